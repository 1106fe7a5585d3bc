//! What is missing, and when to ask for it.
//!
//! A gap may be packets out of order, so the first request waits a moment; further ones follow a round trip apart. That is
//! measured by what they bring: from the request to the packet on the RTX stream. What ten requests did not bring, or what
//! is too much to ask for, is given up: then only a keyframe helps.
//! Source: RFC 4585 §6.2.1, §3.5; ten tries a round trip apart is what libwebrtc receivers do. RFC 6298 §2 for the mean,
//! §3 for what an answer to a repeated request says.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::packet::REPAIRED_FOR;

/// Packets that may be missing at a time. When there are more all are given up.
pub const MISSING_MAX: usize = 256;

/// How long a gap may be mere reordering. Reordering on real paths is mostly within one frame's packets.
const REORDER_WAIT: Duration = Duration::from_millis(5);

/// Requests for one packet.
const TRIES_MAX: u8 = 10;

/// A packet that is missing for longer than this and a round trip would come too late to be shown.
const AGE_MAX: Duration = REPAIRED_FOR.saturating_sub(RTT_MAX);

/// A request is repeated after this, and after twice as long each further time, until the round trip is known. As long as
/// nothing is known libwebrtc's receivers wait so long, too (nack_requester.cc).
const RTT_ASSUMED: Duration = Duration::from_millis(100);

/// Round trips beyond this are not waited for.
const RTT_MAX: Duration = Duration::from_secs(1);

/// After so many answers in a row that are none to a first request, the round trip has grown.
const REPEATED_MAX: u8 = 8;

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
    /// How long an answer takes.
    rtt: Option<Duration>,
    /// Answers to repeated requests since one to a first request.
    repeated: u8,
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

    /// Nothing is missing any more.
    pub(super) fn stop(&mut self) {
        self.missing.clear();
        self.next_at = None;
    }

    /// A packet came that was missing; with `is_answer` because it was asked for.
    pub(super) fn on_late(&mut self, now: Instant, seq: u64, is_answer: bool) {
        if let Ok(index) = self.missing.binary_search_by_key(&seq, |missing| missing.seq) {
            let missing = self.missing.remove(index).filter(|missing| is_answer && missing.tries > 0);
            if let Some(missing) = missing {
                self.learn_rtt(now, &missing);
            }
            if self.missing.is_empty() {
                self.next_at = None;
            }
        }
    }

    /// Learns from an answer: the mean, or what is another round trip altogether. To a repeated request it may be the answer
    /// to any of them, and says nothing (Karn's rule); on a lossy path many are. But when all answers are such, the round
    /// trip has grown beyond the time to the repetition.
    fn learn_rtt(&mut self, now: Instant, missing: &Missing) {
        let is_first = missing.tries == 1;
        self.repeated = if is_first { 0 } else { self.repeated + 1 };
        if !is_first && self.rtt.is_some() && self.repeated < REPEATED_MAX {
            return;
        }
        self.repeated = 0;
        let since_first = now.saturating_duration_since(missing.since + REORDER_WAIT).min(RTT_MAX);
        self.rtt = match self.rtt {
            Some(rtt) if is_first && (rtt / 2..=rtt * 2).contains(&since_first) => Some((rtt * 7 + since_first) / 8),
            _ => Some(since_first),
        };
    }

    /// Hands out what is due. What is older than `oldest` could not be taken any more.
    pub(super) fn poll(&mut self, now: Instant, oldest: u64, lost: &mut impl FnMut(u16)) {
        if self.next_at.is_none_or(|at| at > now) {
            return;
        }
        let age_max = AGE_MAX + self.rtt.unwrap_or(RTT_ASSUMED);
        let rtt = self.rtt;
        let mut gave_up = false;
        let mut next_at = None;
        self.missing.retain_mut(|missing| {
            if missing.due <= now {
                let age = now.saturating_duration_since(missing.since);
                if missing.tries >= TRIES_MAX || age > age_max || missing.seq < oldest {
                    gave_up = true;
                    return false;
                }
                lost(missing.seq as u16);
                missing.tries += 1;
                missing.due = now + retry_after(rtt, missing.tries);
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

/// How long the answer to the request of that number is waited for: longer and longer, as the round trip may be longer
/// than it was.
fn retry_after(rtt: Option<Duration>, tries: u8) -> Duration {
    match rtt {
        Some(rtt) => (rtt + rtt / 4).max(RETRY_MIN) * (1 << (tries / 3)),
        None => RTT_ASSUMED * (1 << tries.saturating_sub(1).min(4)),
    }
}
