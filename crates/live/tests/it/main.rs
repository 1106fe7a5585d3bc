//! Through the public API: streams made by ffmpeg, what it decodes from each start point, and the fuzz target's corpus.
#![allow(clippy::unwrap_used)]

mod corpus;
mod players;
mod streams;

#[path = "../../../../tests/support/skip.rs"]
mod skip;
