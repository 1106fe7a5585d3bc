//! One incoming stream of packets: what came, what is missing, and what its sender is told about it.

mod receiver;
mod transport;

pub use receiver::Receiver;
pub use transport::TransportRecorder;
