//! What RTSP has counted.
//!
//! Cost: some atomic additions per request.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::rtsp::{Method, Status};

/// How a session's packets travel: by UDP in RTP or as they are, or in the connection.
pub const TRANSPORTS: [&str; 3] = ["rtp", "raw", "interleaved"];

/// What is counted apart; `None` is what is no request.
const METHODS: [(Option<Method>, &str); 10] = [
    (Some(Method::Options), "OPTIONS"),
    (Some(Method::Describe), "DESCRIBE"),
    (Some(Method::Setup), "SETUP"),
    (Some(Method::Play), "PLAY"),
    (Some(Method::Pause), "PAUSE"),
    (Some(Method::Teardown), "TEARDOWN"),
    (Some(Method::GetParameter), "GET_PARAMETER"),
    (Some(Method::SetParameter), "SET_PARAMETER"),
    (Some(Method::Other), "other"),
    (None, "malformed"),
];

/// The first digits of the statuses that there are.
const CLASSES: [(u16, &str); 3] = [(2, "2xx"), (4, "4xx"), (5, "5xx")];

#[derive(Debug, Default)]
pub(super) struct Counters {
    connections: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    requests: [[AtomicU64; CLASSES.len()]; METHODS.len()],
}

impl Counters {
    /// A connection is there from now on. Returns its number.
    pub(super) fn open_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn close_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn refuse_connection(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was answered; `None`: what came was none.
    pub(super) fn count_request(&self, method: Option<Method>, status: Status) {
        let method = METHODS.iter().position(|(other, _)| *other == method);
        let class = CLASSES.iter().position(|(class, _)| *class == status.code() / 100);
        if let (Some(method), Some(class)) = (method, class) {
            self.requests[method][class].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `carried` and `lost` are what workers count.
    pub(super) fn read(&self, sessions: [(&'static str, usize); TRANSPORTS.len()], [carried, lost]: [u64; 2]) -> Stats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let requests = METHODS.iter().zip(&self.requests).flat_map(|((_, method), counts)| {
            CLASSES.iter().zip(counts).map(move |((_, class), count)| (*method, *class, read(count)))
        });
        Stats {
            connections: read(&self.connections),
            accepted: read(&self.accepted),
            refused: read(&self.refused),
            carried,
            lost,
            sessions,
            requests: requests.collect(),
        }
    }
}

/// What RTSP has counted since the start, and what there is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Connections now.
    pub connections: u64,
    /// Connections that were served, those of now included.
    pub accepted: u64,
    /// Connections that were closed at once, as their address has too many.
    pub refused: u64,
    /// Datagrams that were put into connections.
    pub carried: u64,
    /// Datagrams that were lost on their way there.
    pub lost: u64,
    /// Sessions now, by how their packets travel.
    pub sessions: [(&'static str, usize); TRANSPORTS.len()],
    /// Requests by method and class of the answer's status.
    pub requests: Vec<(&'static str, &'static str, u64)>,
}
