//! The built-in clip of `millrace serve --demo`: played as RTP payloads in a loop, and published by a WebRTC client.
//!
//! In: the time. Out: RTP payloads with timestamp and marker, each when it is due.
//! Cost: the clip stays in memory; one payload is copied per poll, nothing is allocated.

mod clip;
pub mod publisher;
