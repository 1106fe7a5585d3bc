//! The built-in clip of `millrace serve --demo`: read from its files, and played as RTP payloads in a loop.
//!
//! In: an IVF file with VP8, an Ogg file with Opus, and the time.
//! Out: RTP payloads with timestamp and marker, each when it is due. Sequence numbers, SSRC and SRTP are the caller's.
//! Cost: the clip stays in memory; one payload is copied per poll, nothing is allocated.

mod clip;
mod ivf;
mod ogg;
pub mod publisher;

pub use clip::{Clip, ClipError, MediaPacket, Player};
pub use ivf::IvfError;
pub use ogg::OggError;
