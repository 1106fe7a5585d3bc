//! The reflector above its workers.

pub mod access;
pub mod control;
pub mod cubemap;
pub mod hls;
pub mod inlet;
pub(crate) mod moved;
pub mod request;
pub mod response;
pub mod sign;
pub mod source;
pub mod stories;
pub mod stream;
