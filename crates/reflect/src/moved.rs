//! What of a stream and its viewers goes over to another process, which goes on where this one stops.
//!
//! In: a backlog and viewers as they stand. Out: plain values without descriptors and clocks, and the same backlog and viewers
//! made of them. Times are ages. What comes in may be from another program: what does not fit together is refused.
//! Cost: a copy of what a viewer is owed that is not of the stream.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::feed::FeedState;
use crate::spec::{StreamId, ViewerId};
use crate::window::{Extent, Growth, Header, StartPoint};

/// A viewer on the way from one process to another: `Reflect::poll_moved` gives him, `Command::TakeUp` takes him.
#[derive(Debug)]
pub struct MovedViewer {
    /// Who.
    pub id: ViewerId,
    /// Of what.
    pub stream: StreamId,
    /// The socket.
    pub descriptor: OwnedFd,
    /// What he sent and nobody looked at.
    pub unread: Box<[u8]>,
    /// All else.
    pub state: ViewerState,
}

/// What a worker gives away.
#[derive(Debug)]
pub enum Handed {
    /// A viewer, who is no more here.
    Viewer(Box<MovedViewer>),
    /// There are no others that go over.
    Done,
}

/// How far a viewer has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewerState {
    pub(crate) feed: FeedState,
    pub(crate) header: Option<u64>,
    pub(crate) has_caught_up: bool,
    pub(crate) pace: Option<PaceState>,
    pub(crate) paced_bps: Option<u64>,
    pub(crate) ignored_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) rest_bytes: u64,
    pub(crate) skips: u32,
    pub(crate) age: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PaceState {
    Free,
    Percent(u16),
    Bps(u64),
}

impl ViewerState {
    /// For how long he has been here.
    pub fn age(&self) -> Duration {
        self.age
    }
}

/// What the writer of a stream knows, beside the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BacklogState {
    /// Bytes of a unit; `None`: they are marked.
    pub(crate) unit_len: Option<u64>,
    pub(crate) size: u64,
    pub(crate) hole: u64,
    /// What workers were told of.
    pub(crate) told: Places,
    /// What they were not.
    pub(crate) news: Places,
    pub(crate) last_start: Option<u64>,
    pub(crate) last_boundary: Option<u64>,
}

/// A `Growth` without bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    begin: u64,
    end: u64,
    /// Where, and how long ago.
    starts: Vec<(u64, Duration)>,
    boundaries: Vec<u64>,
    headers: Vec<(u64, Vec<u8>)>,
}

impl Places {
    pub(crate) fn of(growth: &Growth, now: Instant) -> Self {
        let start = |start: &StartPoint| (start.at, now.saturating_duration_since(start.time));
        Places {
            begin: growth.extent.begin,
            end: growth.extent.end,
            starts: growth.starts.iter().map(start).collect(),
            boundaries: growth.boundaries.clone(),
            headers: growth.headers.iter().map(|header| (header.from, header.bytes.to_vec())).collect(),
        }
    }

    /// The same again. `None`: it cannot have been.
    pub(crate) fn growth(self, now: Instant) -> Option<Growth> {
        let Places { begin, end, starts, boundaries, headers } = self;
        let is_there = |at: u64| at <= end;
        let is_right = begin <= end
            && starts.is_sorted_by(|one, next| one.0 < next.0)
            && boundaries.is_sorted()
            && headers.is_sorted_by(|one, next| one.0 <= next.0)
            && starts.last().is_none_or(|(at, _)| is_there(*at))
            && boundaries.last().is_none_or(|at| is_there(*at))
            && headers.last().is_none_or(|(from, _)| is_there(*from));
        let start = |(at, age)| StartPoint { at, time: now.checked_sub(age).unwrap_or(now) };
        is_right.then(|| Growth {
            extent: Extent { begin, end },
            starts: starts.into_iter().map(start).collect(),
            boundaries,
            headers: headers.into_iter().map(|(from, bytes)| Header { from, bytes: Arc::new(bytes.into()) }).collect(),
            fresh: None,
        })
    }
}
