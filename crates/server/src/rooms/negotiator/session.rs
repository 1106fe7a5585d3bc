//! One session of a negotiator: its peer, where that is, and how far it has come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rooms::spec::{Command, SessionId};
use webrtc::{Peer, Remote};
use wire::{Budget, Path, Rate};

use super::member::Member;

/// Who has proved an address and is shaking hands from there keeps it for so long after its last check, which is longer than
/// a handshake takes.
const HOLDS_PLACE: Duration = Duration::from_secs(2);

/// Checks of one session's peer that are read: each costs two HMACs and an answer. Browsers send 20 a second, and others one
/// for each pair of addresses at once.
const CHECKS: Rate = Rate { burst: 128, interval: Duration::from_millis(10) };

/// DTLS records of a connected session that are read. Its peer has nothing to say but that its last flight was lost, and
/// goodbye.
const RECORDS: Rate = Rate { burst: 64, interval: Duration::from_millis(100) };

/// The same of a member's, which has data channels: some 2 MB/s of messages, or of what acknowledges ours.
const DATA_RECORDS: Rate = Rate { burst: 1_024, interval: Duration::from_micros(500) };

/// A session that is up may be driven later than it wants to be, by this part of the time until then: what is due in a second
/// is a message that was lost, what is due in ten a question whether anybody is there.
const DRIVEN_LATE_PART: u32 = 10;

/// What the ids of a session's own checks begin with.
pub(super) type Tag = [u8; 4];

pub(super) struct Session {
    pub id: SessionId,
    /// The key in `by_tag`.
    pub tag: Tag,
    pub peer: Peer,
    /// Which way each remote address is reached.
    pub paths: Vec<Way>,
    /// The key in `by_ufrag`.
    pub ufrag: String,
    /// How many checks may be read that come from where its peer has proved to be; and how many of others, as anybody who has
    /// seen one can send it on.
    pub checks: Budget,
    pub strange_checks: Budget,
    /// How many DTLS records may be read once it is connected.
    pub records: Budget,
    /// The entry in `deadlines`, and for when its peer has asked.
    pub deadline: Instant,
    pub asked_for: Instant,
    /// Of `PeerSpec`.
    pub cname: Option<Arc<str>>,
    /// Of a conference.
    pub member: Option<Box<Member>>,
    pub phase: Phase,
}

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A check of a peer's.
    Check,
    /// An answer to one of ours.
    Answer,
    /// DTLS.
    Record,
}

/// One of a peer's addresses.
pub(super) struct Way {
    pub remote: Remote,
    pub path: Path,
    /// When an authenticated check last came from there.
    pub heard: Instant,
}

pub(super) enum Phase {
    Handshaking {
        until: Instant,
        progress: Progress,
        /// What its worker is told once it is connected, behind its keys; of a member its `Member` says it.
        begin: Option<Command>,
    },
    Connected {
        last_consent: Instant,
        /// The worker knows how to answer its checks.
        answers_checks: bool,
    },
}

/// The phase of who was answered just now.
pub(super) fn begins(until: Instant, begin: Option<Command>) -> Phase {
    Phase::Handshaking { until, progress: Progress::Answered, begin }
}

/// How far a peer has come with ICE. Each step gives it time for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// It has its answer.
    Answered,
    /// It has sent an authentic check: it is on its way, over a satellite or a relay perhaps.
    Checked,
    /// It has proved an address, and is a stranger no more.
    Proved,
}

impl Session {
    /// One that is answered, and not heard of yet.
    pub fn new(
        now: Instant,
        (id, tag): (SessionId, Tag),
        peer: Peer,
        member: Option<Box<Member>>,
        phase: Phase,
    ) -> Self {
        let [checks, strange_checks, records] = [Budget::new(now); 3];
        let (ufrag, paths) = (peer.ufrag().to_owned(), Vec::new());
        let (deadline, asked_for, cname) = (now, now, None);
        Session {
            id,
            tag,
            peer,
            paths,
            ufrag,
            checks,
            strange_checks,
            records,
            deadline,
            asked_for,
            cname,
            member,
            phase,
        }
    }

    /// Whether a datagram for it is read, of which more may come than are of any use.
    pub fn may_read(&mut self, now: Instant, kind: Kind, remote: Remote) -> bool {
        match kind {
            Kind::Check if self.peer.is_proved(now, remote) => self.checks.take(now, CHECKS),
            Kind::Check => self.strange_checks.take(now, CHECKS),
            Kind::Record if matches!(self.phase, Phase::Connected { .. }) => {
                self.records.take(now, if self.member.is_some() { DATA_RECORDS } else { RECORDS })
            }
            Kind::Record | Kind::Answer => true,
        }
    }

    /// How a remote address is reached.
    pub fn path(&self, remote: Remote) -> Option<Path> {
        self.paths.iter().find(|way| way.remote == remote).map(|way| way.path)
    }

    /// Whether it has proved an address and is shaking hands from there just now.
    pub fn holds(&self, now: Instant, remote: Remote) -> bool {
        let was_heard = |way: &Way| way.remote == remote && now.saturating_duration_since(way.heard) < HOLDS_PLACE;
        matches!(self.phase, Phase::Handshaking { .. })
            && self.peer.is_proved(now, remote)
            && self.paths.iter().any(was_heard)
    }
}

/// When a session that is up and wants to be driven `at` then is: with those that want it soon afterwards, as each by itself would
/// wake the thread. So they are driven on steps from `start`, which are as wide as all may be late.
pub(super) fn shared(start: Instant, now: Instant, at: Instant) -> Instant {
    let late_max = at.saturating_duration_since(now) / DRIVEN_LATE_PART;
    // The widths are powers of two, so those who wait for a short time meet those who wait for a long one.
    let Some(step) = (late_max.as_millis() as u64).checked_ilog2().map(|log| 1 << log) else { return at };
    let steps = (at - start).as_nanos().div_ceil(Duration::from_millis(step).as_nanos()) as u64;
    start + Duration::from_millis(steps * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_are_up_are_driven_together() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let driven = |now, wanted: u64| (shared(start, at(now), at(wanted)) - start).as_millis();
        assert_eq!(
            [10_000, 10_001, 10_240].map(|wanted| driven(0, wanted)),
            [10_240; 3],
            "one in 10 s late by half a second"
        );
        assert_eq!(
            [13_000, 13_050, 13_056].map(|wanted| driven(10_001, wanted)),
            [13_056; 3],
            "one in 3 s by a quarter"
        );
        assert_eq!([100, 109, 9].map(|wanted| driven(0, wanted)), [104, 112, 9], "one in 10 ms at once");
        assert_eq!(driven(500, 400), 400, "what is due is due");
    }
}
