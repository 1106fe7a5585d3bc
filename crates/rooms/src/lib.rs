//! The selective forwarding unit. No sockets, no clock, no threads: datagrams and commands in, datagrams and events out.
//!
//! `rooms::Rooms` is all of one worker; `spec` says what control tells it and hears back.
#![forbid(unsafe_code)]

pub mod batch;
mod bwe;
mod consent;
pub mod counters;
mod down_track;
mod downs;
pub mod drops;
mod former;
mod forward;
mod io;
mod keyframe;
mod layer_choice;
mod layer_limit;
mod layer_order;
mod log;
pub mod observer;
pub mod pacer;
pub mod packet;
mod passthrough;
mod places;
mod rate;
pub mod receive;
mod redundancy;
mod reports;
#[allow(clippy::module_inception)]
pub mod rooms;
mod sent;
mod session;
pub mod settings;
mod shares;
mod silence;
pub mod spec;
pub mod story;
mod stream;
mod transport;
mod ups;
