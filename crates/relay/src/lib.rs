//! A TURN server. No sockets, no clock, no threads: datagrams and commands in, datagrams and events out.
//!
//! `relay::Relay` is all of one worker; `spec` says what control tells it and hears back.
#![forbid(unsafe_code)]

pub mod answer;
pub mod auth;
pub mod counters;
pub mod drops;
pub mod ledger;
pub mod limits;
pub mod message;
pub mod names;
pub mod relay;
pub mod reservation;
pub mod rules;
pub mod settings;
pub mod spec;
