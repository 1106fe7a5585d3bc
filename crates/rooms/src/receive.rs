//! One incoming stream of packets: what came, what is missing, and what its sender is told about it.

mod layers;
mod nacks;
mod receiver;
#[cfg(test)]
mod tests;
mod transport;

pub(crate) use layers::Layers;
pub use nacks::MISSING_MAX;
pub use receiver::Receiver;
pub use transport::TransportRecorder;
