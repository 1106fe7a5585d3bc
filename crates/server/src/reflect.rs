//! The reflector above its workers.

pub mod hls;
pub mod inlet;
pub mod source;
