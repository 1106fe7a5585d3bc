//! A hashed timing wheel: thousands of deadlines on one thread, each served on time and none of them a timer of its own.
//!
//! In: deadlines (`Instant`) with a value each, and the time now. Nothing in here reads a clock.
//! Out: the values whose deadline has passed, earliest tick first; the moment of the next one; how late each was.
//! Cost: O(1) for insert, cancel and fire. Memory grows to the largest number of timers ever pending, then stays.
//! Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (1987), scheme 7 with two levels.
#![forbid(unsafe_code)]

mod level;
mod timers;

pub use counters::{BUCKETS, Lateness};
pub use timers::{TimerId, Wheel};
