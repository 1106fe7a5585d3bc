//! What is missing, and when to ask for it.
//!
//! A gap may be packets out of order, so the first request waits a moment; further ones follow a round trip apart. What
//! ten requests did not bring, or what is too much to ask for, is given up: then only a keyframe helps.
//! Source: RFC 4585 §6.2.1, §3.5; ten tries a round trip apart is what libwebrtc receivers do.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Packets that may be missing at a time. When there are more all are given up.
pub const MISSING_MAX: usize = 256;

/// How long a gap may be mere reordering. Reordering on real paths is mostly within one frame's packets.
const REORDER_WAIT: Duration = Duration::from_millis(5);

/// Requests for one packet.
const TRIES_MAX: u8 = 10;

/// A packet that is missing for longer would come too late to be shown.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Requests for one packet are at least this far apart, however short the round trip.
const RETRY_MIN: Duration = Duration::from_millis(20);

/// Asks for nothing by default.
#[derive(Debug, Default)]
pub(super) struct Nacks {
    enabled: bool,
    /// In order of their numbers; never more than `MISSING_MAX`.
    missing: VecDeque<Missing>,
    /// Not later than the first that is due.
    next_at: Option<Instant>,
    /// When packets were given up that nobody has been told of.
    gave_up_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    seq: u64,
    since: Instant,
    due: Instant,
    tries: u8,
}

impl Nacks {
    pub(super) fn new() -> Self {
        let missing = VecDeque::with_capacity(MISSING_MAX);
        Nacks { enabled: true, missing, ..Nacks::default() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.missing.len()
    }

    /// The numbers from `start` up to `end` did not come yet.
    pub(super) fn on_gap(&mut self, now: Instant, start: u64, end: u64) {
        if start == end || !self.enabled {
            return;
        }
        if end - start > (MISSING_MAX - self.missing.len()) as u64 {
            self.missing.clear();
            self.next_at = None;
            self.gave_up_at = Some(now);
            return;
        }
        let due = now + REORDER_WAIT;
        self.missing.extend((start..end).map(|seq| Missing { seq, since: now, due, tries: 0 }));
        self.next_at = Some(self.next_at.map_or(due, |at| at.min(due)));
    }

    /// A packet came that was missing.
    pub(super) fn on_late(&mut self, seq: u64) {
        if let Ok(index) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            self.missing.remove(index);
            if self.missing.is_empty() {
                self.next_at = None;
            }
        }
    }

    /// Hands out what is due. What is older than `oldest` could not be taken any more.
    pub(super) fn poll(&mut self, now: Instant, rtt: Duration, oldest: u64, lost: &mut impl FnMut(u16)) {
        if self.next_at.is_none_or(|at| at > now) {
            return;
        }
        let retry = (rtt + rtt / 4).max(RETRY_MIN);
        let mut gave_up = false;
        let mut next_at = None;
        self.missing.retain_mut(|missing| {
            if missing.due <= now {
                let age = now.saturating_duration_since(missing.since);
                if missing.tries >= TRIES_MAX || age > AGE_MAX || missing.seq < oldest {
                    gave_up = true;
                    return false;
                }
                lost(missing.seq as u16);
                missing.tries += 1;
                missing.due = now + retry;
            }
            next_at = Some(next_at.map_or(missing.due, |at: Instant| at.min(missing.due)));
            true
        });
        self.next_at = next_at;
        if gave_up {
            self.gave_up_at = Some(now);
        }
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        match (self.next_at, self.gave_up_at) {
            (Some(next_at), Some(gave_up_at)) => Some(next_at.min(gave_up_at)),
            (next_at, gave_up_at) => next_at.or(gave_up_at),
        }
    }

    pub(super) fn take_gave_up(&mut self) -> bool {
        self.gave_up_at.take().is_some()
    }
}
