//! What became of one allocation, so that somebody who asks later finds out why a call through it was silent.
//!
//! In: what its client asks for, and what rules and timers do to it; what it has carried is read from its counters whenever one of
//! these happens, or somebody asks, and at the end. Nothing on the way of a datagram.
//! Cost: a hundred bytes of an allocation, and 56 of each entry, of which there are at most `ENTRIES_MAX`.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::message::{Family, Method};
use crate::spec::Traffic;

/// Entries of an allocation at most. Of more, the first ones stay, which say how it began, and the newest.
const ENTRIES_MAX: usize = 16;
const FIRST_KEPT: usize = 4;

/// For so long nothing has to be seen of a direction before it counts as still, and what is dropped is told no more often: requests
/// come in bursts.
const APART: Duration = Duration::from_secs(60);

/// What became of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    entries: Vec<Entry>,
    /// Entries that are gone, from behind the first `FIRST_KEPT`.
    pub forgotten: u32,
    /// How often its client has given it another time.
    pub refreshes: u32,
    /// Requests of its client that were refused; of alike ones the first is an entry.
    pub refused: u32,
    /// Of each way, what it had carried when something moved on it last, or it had been still for `APART`; and when that was.
    seen: [(u64, Option<Instant>); 2],
    /// What moved when that was told last.
    told_flow: Flow,
    /// Datagrams over a bandwidth that were told, and when.
    dropped_told: (u64, Option<Instant>),
}

/// One thing that happened, and when it was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When that was.
    pub at: Instant,
    /// What it was.
    pub what: Happened,
}

/// What moves through an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// From its client to peers.
    pub sent: bool,
    /// From peers to its client.
    pub received: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// Its client was told that it is there, for so long unless it is refreshed.
    Began(Duration),
    /// The client permits a peer's address, which it did not just before.
    Permitted(IpAddr),
    /// It has bound a channel.
    Bound {
        /// Its number.
        channel: u16,
        /// What it stands for.
        peer: SocketAddr,
    },
    /// It wants a connection to a peer (RFC 6062).
    Connects(SocketAddr),
    /// The peer could not be reached.
    NotConnected,
    /// A request was refused.
    Refused {
        /// What it asked for.
        method: Method,
        /// The error's code (RFC 8656 §19).
        code: u16,
        /// The first peer that it named.
        peer: Option<SocketAddr>,
    },
    /// It gave back one of its two relayed addresses.
    GaveBack(Family),
    /// The operator's rules are others, and these of its permissions and channels went with them.
    Denied {
        /// Addresses.
        permissions: u32,
        /// Channels.
        channels: u32,
    },
    /// What moves now is other than what was told last. What begins has begun at some time since the entry or the request
    /// before; what is still was so for a minute at least.
    Flows(Flow),
    /// So many datagrams were over a bandwidth since that was told last.
    OverBandwidth(u64),
}

impl Story {
    /// Its entries, the oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes another entry.
    pub fn note(&mut self, at: Instant, what: Happened) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.remove(FIRST_KEPT);
            self.forgotten = self.forgotten.saturating_add(1);
        }
        self.entries.push(Entry { at, what });
    }

    /// A request was refused.
    pub(crate) fn note_refusal(&mut self, at: Instant, method: Method, code: u16, peer: Option<SocketAddr>) {
        self.refused = self.refused.saturating_add(1);
        let what = Happened::Refused { method, code, peer };
        if !self.entries.iter().any(|entry| entry.what == what) {
            self.note(at, what);
        }
    }

    /// Looks at what it has carried so far: to peers, to its client, and what was dropped of both.
    pub(crate) fn look(&mut self, now: Instant, sent: Traffic, received: Traffic, dropped: u64) {
        let moves = |(seen, at): &mut (u64, Option<Instant>), count: u64, told: bool| {
            // Within a short time nothing says little.
            let is_long = at.is_none_or(|at| now.saturating_duration_since(at) >= APART);
            let has_moved = count > *seen;
            if has_moved || is_long {
                (*seen, *at) = (count, Some(now));
            }
            has_moved || told && !is_long
        };
        let [to_peers, to_client] = &mut self.seen;
        let flow = Flow {
            sent: moves(to_peers, sent.packets, self.told_flow.sent),
            received: moves(to_client, received.packets, self.told_flow.received),
        };
        if flow != self.told_flow {
            self.told_flow = flow;
            self.note(now, Happened::Flows(flow));
        }
        let (told, told_at) = self.dropped_told;
        let is_time = told_at.is_none_or(|at| now.saturating_duration_since(at) >= APART);
        if dropped > told && is_time {
            self.dropped_told = (dropped, Some(now));
            self.note(now, Happened::OverBandwidth(dropped - told));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn traffic(packets: u64) -> Traffic {
        Traffic { packets, bytes: packets * 100 }
    }

    #[test]
    fn of_too_many_entries_the_first_and_the_newest_stay_and_alike_refusals_are_one() {
        let (start, mut story) = (Instant::now(), Story::default());
        for last in 0..100 {
            story.note(start, Happened::Permitted([192, 0, 2, last].into()));
            story.note_refusal(start, Method::Refresh, 437, None);
        }
        let kept: Vec<_> = story.entries().iter().map(|entry| entry.what).collect();
        assert_eq!(kept.len(), 16);
        assert_eq!(kept[0], Happened::Permitted([192, 0, 2, 0].into()));
        assert_eq!(kept[15], Happened::Permitted([192, 0, 2, 99].into()));
        let refusals = kept.iter().filter(|what| matches!(what, Happened::Refused { .. })).count();
        assert_eq!((refusals, story.refused, story.forgotten), (1, 100, 101 - 16));
        assert!(size_of::<Entry>() <= 56, "{}", size_of::<Entry>());
    }

    #[test]
    fn what_moves_is_told_when_it_begins_and_when_it_was_still_for_a_minute() {
        let (start, mut story) = (Instant::now(), Story::default());
        let mut look = |seconds, sent, received, dropped| {
            let before = story.entries().len();
            story.look(at(start, seconds), traffic(sent), traffic(received), dropped);
            story.entries()[before..].iter().map(|entry| entry.what).collect::<Vec<_>>()
        };
        let flows = |sent, received| Happened::Flows(Flow { sent, received });
        assert_eq!(look(0, 0, 0, 0), []);
        assert_eq!(look(1, 5, 0, 0), [flows(true, false)]);
        assert_eq!(look(2, 5, 0, 0), [], "a second says little");
        assert_eq!(look(3, 6, 7, 0), [flows(true, true)]);
        assert_eq!(look(240, 900, 900, 0), []);
        assert_eq!(look(299, 901, 900, 0), [], "not long enough to say that nothing comes");
        assert_eq!(look(540, 950, 900, 12), [flows(true, false), Happened::OverBandwidth(12)]);
        assert_eq!(look(541, 950, 901, 20), [flows(true, true)], "what is over a bandwidth is told in sums");
        assert_eq!(look(900, 950, 901, 21), [flows(false, false), Happened::OverBandwidth(9)]);
    }

    #[test]
    fn that_nothing_comes_back_is_told_though_somebody_looks_all_the_time() {
        let (start, mut story) = (Instant::now(), Story::default());
        for second in 0..120 {
            story.look(at(start, second), traffic(second), traffic(second.min(10)), 0);
        }
        let told: Vec<_> = story.entries().iter().map(|entry| (entry.at - start, entry.what)).collect();
        let flows = |seconds, received| (Duration::from_secs(seconds), Happened::Flows(Flow { sent: true, received }));
        assert_eq!(told, [flows(1, true), flows(70, false)]);
    }
}
