//! A TURN server. No sockets, no clock, no threads: datagrams and commands in, datagrams and events out.
//!
//! `relay::Relay` is all of one worker; `spec` says what control tells it and hears back.
#![forbid(unsafe_code)]

mod allocation;
mod allocations;
pub mod alternates;
pub mod answer;
mod associations;
pub mod auth;
pub mod blocked;
pub mod channel;
mod connections;
pub mod counters;
mod discovery;
pub mod drops;
mod forward;
pub mod ledger;
pub mod limits;
pub mod message;
pub mod names;
mod opening;
pub mod permission;
mod ports;
mod random;
pub mod relay;
mod requests;
pub mod reservation;
pub mod rules;
pub mod settings;
pub mod spec;
pub mod story;
mod strangers;
mod tcp;
