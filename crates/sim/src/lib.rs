//! For tests: a world in one thread, with a seeded network and a clock of its own, in which publishers and viewers talk
//! to real rooms; and, for who counts what rooms cost, the two ends of a session alone (`bare`). Nothing here waits or
//! depends on the machine; the same seed gives the same run.
#![forbid(unsafe_code)]

pub mod bare;
pub mod check;
pub mod media;
pub mod network;
pub mod publisher;
pub mod remb;
pub mod viewer;
pub mod world;
