//! What the reflector of one process gives that of the next.

use std::net::IpAddr;

use reflect::moved::ViewerState;
use serde::{Deserialize, Serialize};

use super::inlet::InletState;

/// A stream, beside its file and what its source's bytes come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StreamRecord {
    /// What it is called; with Cubemap's framing the name ends so.
    pub(crate) name: String,
    pub(crate) inlet: InletState,
    /// Something of it was told.
    pub(crate) is_ready: bool,
    pub(crate) received_bytes: u64,
    /// Of a source that goes on: what it said of its format.
    pub(crate) content_type: Option<String>,
    /// A source is heard, and goes on.
    pub(crate) goes_on: bool,
    /// What was read of its feed, and is no whole frame.
    pub(crate) fed: Vec<u8>,
}

/// A viewer, beside his connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ViewerRecord {
    pub(crate) id: u64,
    /// Which of the streams, in the order in which they came.
    pub(crate) stream: u32,
    pub(crate) client: Option<IpAddr>,
    /// Whose it is, as far as one client may have so many.
    pub(crate) network: Option<IpAddr>,
    /// What he sent, and nobody looked at.
    pub(crate) unread: Vec<u8>,
    pub(crate) state: ViewerState,
}
