//! What a thread of clients is told, and what it came to: plain values that cross threads.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};

use measure::percentiles::Times;
use rustls::ClientConfig;
use wire::LinkId;

use super::dialog::Credentials;
use super::payload::Payload;
use super::strangers::{Heard, Strangers};
use crate::clients::Addresses;

/// What links are, by their token's owner. Numbers of clients' links are the clients', or `SHARED`.
pub(super) const CLIENTS: u16 = 0;
pub(super) const PEERS: u16 = 1;
/// The number of a socket that all share.
pub(super) const SHARED: u32 = u32::MAX;

/// What the threads are told.
pub(super) enum Message {
    /// Makes all allocations.
    SetUp,
    /// Begins to send.
    Go,
    /// Forgets what was counted so far: the warm-up is over.
    Reset,
    /// Sends nothing more.
    Stop,
    /// Gives all allocations back.
    Free,
    /// How far it is, please.
    Report(mpsc::SyncSender<Totals>),
}

/// What clients do once they have their allocations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Job {
    /// Each has so many messages under way.
    Flood { in_flight: u32 },
    /// Each client in its turn sends one every `interval_ns` / clients; what is due leaves every `tick_ns`.
    Paced { interval_ns: f64, tick_ns: u64 },
    /// Each allocates and frees.
    Allocate,
}

/// How clients get to the server.
pub(super) enum Transport {
    /// From one socket, which has an address for each, or from one each.
    Udp,
    /// By connections, perhaps under TLS.
    Stream(Option<Arc<ClientConfig>>),
}

/// What a thread is to be.
pub(super) struct Setup {
    pub(super) server: SocketAddr,
    /// On one thread at most.
    pub(super) strangers: Option<Strangers>,
    pub(super) transport: Transport,
    pub(super) credentials: Credentials,
    pub(super) indications: bool,
    pub(super) sink: bool,
    pub(super) payload: Payload,
    pub(super) job: Job,
    pub(super) count: usize,
    /// The links of the clients: one for all, or one each, or none.
    pub(super) links: Vec<LinkId>,
    /// The clients' addresses where they have some of 127.0.0.0/8.
    pub(super) addresses: Option<Addresses>,
    pub(super) peers: Vec<SocketAddr>,
    pub(super) seed: u64,
}

/// What one thread's clients came to.
#[derive(Clone, Default)]
pub(super) struct Totals {
    pub(super) setting_up: usize,
    pub(super) ready: usize,
    /// Clients that got their first allocation.
    pub(super) allocated: usize,
    pub(super) failed: usize,
    /// How often clients failed by what.
    pub(super) failures: BTreeMap<String, u64>,
    /// Messages that came back while it counted.
    pub(super) received: u64,
    /// Messages that were sent since it counts.
    pub(super) sent: u64,
    /// Of those, how many came back.
    pub(super) answered: u64,
    pub(super) reordered: u64,
    pub(super) duplicates: u64,
    pub(super) damaged: u64,
    pub(super) strangers: Heard,
    /// From a client to a peer and back, or to the peer, or for an allocation and its end.
    pub(super) latency: Times,
    /// From the first request, or the connection's beginning, until a client may send.
    pub(super) set_up: Times,
}
