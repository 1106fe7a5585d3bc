//! The built-in clip of `millrace serve --demo`: played in a loop as RTP payloads, which a WebRTC client publishes, and as a transport
//! stream for the reflector.
//!
//! In: the time. Out: RTP payloads with timestamp and marker, or packets, each when it is due.
//! Cost: the clip stays in memory; what is due is copied per poll.

mod clip;
pub mod publisher;
pub mod transport;
