//! Every format is read as it was written, and takes any bytes.
#![allow(clippy::unwrap_used)]

mod any_bytes;
mod corpus;
#[path = "../../../../fuzz/entry/wire.rs"]
mod entry;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod round_trips;
mod ts;
