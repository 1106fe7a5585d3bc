//! Rooms in LiveKit's client protocol. No sockets, no clock, no threads: messages and the time in, messages out.
//!
//! `rooms::Rooms` is all rooms of the process; `media` says what it asks of the packet path and hears from there, and
//! `output` what else an input causes. Messages are those of the crate `livekit-protocol`, re-exported as `proto`.
#![forbid(unsafe_code)]

pub use livekit_protocol as proto;

pub mod admin;
mod allowance;
mod backup;
mod behind;
mod codecs;
pub mod config;
mod data;
mod demand;
mod directory;
mod forwarding;
pub mod join;
pub mod limits;
mod loudest;
pub mod media;
mod moving;
mod negotiate;
pub mod output;
mod participant;
mod permission;
mod presence;
mod profile;
mod publish;
mod quality;
mod resume;
mod room;
pub mod rooms;
mod sid;
mod speakers;
mod subscribe;
mod subscription;
mod tick;
mod timers;
pub mod token;
mod track;
mod transports;
mod turn;
mod updates;
pub mod view;
mod webhook;
