//! What RTSP counts.

use counters::{Cell, Value, counters};
use wire::rtsp::{Method, Status};

use super::sessions::{Delivery, Session};

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

counters! {
    /// What RTSP has counted since the start, and what there is now.
    pub struct Stats: "millrace_rtsp_" {
        /// RTSP connections now.
        gauge connections: u64 = "connections",
        /// RTSP connections since the start.
        counter accepted: u64 = "connections_accepted_total",
        /// RTSP connections closed at once, as their client has too many.
        counter refused: u64 = "connections_refused_total",
        /// RTSP connections without a session that were closed to make room for a newcomer when there were as many as there may be.
        counter made_room: u64 = "connections_made_room_total",
        /// RTSP connections that a panic of a library has ended.
        counter panicked: u64 = "connections_panicked_total",
        /// Datagrams for RTSP connections that had room, or seemed to: some of them may be among the lost.
        counter carried: u64 = "interleaved_datagrams_total",
        /// Datagrams lost on their way to RTSP connections, as clients took too little.
        counter lost: u64 = "interleaved_lost_total",
        /// RTSP sessions, by how their packets travel.
        gauge sessions: Transports = "sessions",
        /// RTSP requests by method, and by their answer's status.
        counter requests: Requests = "requests_total",
    }
}

/// Sessions by how their packets travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transports {
    /// By UDP, in RTP.
    pub rtp: u64,
    /// By UDP, as they are.
    pub raw: u64,
    /// In the client's connection.
    pub interleaved: u64,
}

impl Transports {
    pub(super) fn count(&mut self, session: &Session) {
        match session.delivery {
            Delivery::Interleaved { .. } => self.interleaved += 1,
            Delivery::Datagrams { .. } if session.destination.is_rtp => self.rtp += 1,
            Delivery::Datagrams { .. } => self.raw += 1,
        }
    }
}

impl Cell for Transports {
    const WORDS: usize = 3;

    fn put(&self, word: &mut impl FnMut(u64)) {
        [self.rtp, self.raw, self.interleaved].into_iter().for_each(word);
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        Transports { rtp: word(), raw: word(), interleaved: word() }
    }

    fn value(&self) -> Value<'_> {
        let counts = [("rtp", self.rtp), ("raw", self.raw), ("interleaved", self.interleaved)];
        Value::ByLabel("transport", counts.into())
    }
}

/// Requests by method and class of the answer's status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests([[u64; CLASSES.len()]; METHODS.len()]);

impl Requests {
    /// A request was answered; `None`: what came was none.
    pub(super) fn count(&mut self, method: Option<Method>, status: Status) {
        let method = METHODS.iter().position(|(other, _)| *other == method);
        let class = CLASSES.iter().position(|(class, _)| *class == status.code() / 100);
        if let (Some(method), Some(class)) = (method, class) {
            self.0[method][class] += 1;
        }
    }
}

impl Cell for Requests {
    const WORDS: usize = METHODS.len() * CLASSES.len();

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.0.as_flattened().iter().for_each(|count| word(*count));
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        Requests(std::array::from_fn(|_| std::array::from_fn(|_| word())))
    }

    fn value(&self) -> Value<'_> {
        let rows = METHODS.iter().zip(&self.0).flat_map(|((_, method), counts)| {
            let of = move |class: &str| format!("method={method:?},status={class:?}");
            CLASSES.iter().zip(counts).map(move |((_, class), count)| (of(class), *count))
        });
        Value::ByLabels(rows.collect())
    }
}
