//! Bytes to fields and back, and the small vocabulary that all products share.
//!
//! Nothing in here opens a socket, reads a clock or allocates per packet. Parsers give borrowed views,
//! writers fill a caller's buffer, and a length is checked once, on construction.
#![forbid(unsafe_code)]

mod bitrate;
mod budget;
mod cipher;
pub mod codec;
mod datagram;
pub mod dtls;
pub mod framing;
mod link;
mod outbox;
mod product;
pub mod proxy;
mod random;
pub mod rtcp;
pub mod rtp;
pub mod rtsp;
mod seq;
pub mod stun;
pub mod ts;
mod worker;

pub use bitrate::Bitrate;
pub use budget::{Budget, Rate};
pub use cipher::{Begun, Cipher, CipherError, Handover, KernelKey, KernelStep, Opened, RECORD_MAX, TlsKey, TlsVersion};
pub use datagram::{Datagram, DatagramRun, Path};
pub use link::{
    Adopted, CloseReason, Fragments, LinkEvent, LinkId, LinkKind, LinkRequest, ListenOptions, Multicast, Sending,
    Strangers, StreamOptions, Token, UdpOptions, Unicast, source_network,
};
pub use outbox::{DATAGRAM_MAX, Gathered, Outbox, Piece, PieceSource, Run, RunBytes};
pub use product::Product;
pub use random::Random;
pub use seq::{Seq, SeqExtender};
pub use worker::WorkerId;
