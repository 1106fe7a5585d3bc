//! `millrace load`: load generators that play clients of a running server, and measure what they see; and one that plays
//! those who mean it ill.
#![forbid(unsafe_code)]

pub mod attack;
mod clients;
pub mod pump;
pub mod reflect;
pub mod relay;
pub mod rooms;

#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
