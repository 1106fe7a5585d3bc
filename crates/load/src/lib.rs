//! `millrace load`: load generators that play clients of a running server, and measure what they see.
#![forbid(unsafe_code)]

mod clients;
pub mod pump;
pub mod rooms;
