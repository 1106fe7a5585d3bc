//! The reflector above its workers.

pub mod hls;
