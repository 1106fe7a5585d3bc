//! Which sessions there are, on which workers, and how they ended.
//!
//! In: sessions that want a place, what workers report, the time. Out: places; sessions to close.
//! Cost: map lookups; a look at all workers for a place. It has no socket, no clock, no lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::spec::{EndReason, SessionId, SessionStats, Transport};
use pump::title::Title;
use rustc_hash::FxHashMap;
use wire::ts::Pcr;
use wire::{Bitrate, WorkerId};

use super::control::Fast;
use super::live::Input;
use super::request::OpenRequest;
use super::times::Seen;
use crate::plane::placement::Placement;

/// Sessions that have ended and are still shown; the oldest are forgotten.
const ENDED_MAX: usize = 1_000;

/// A destination that is not heard of for this long takes what it gets.
const REFUSALS_GAP: Duration = Duration::from_secs(2);

/// One session, as control knows it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// Where it is.
    pub worker: WorkerId,
    /// What the client called it.
    pub name: Arc<str>,
    /// What it plays.
    pub content: Content,
    /// It is about to be sent elsewhere in its input.
    pub(super) jumps: bool,
    /// References around the place where it is.
    pub seen: Seen,
    /// Where it sends to, as the client wrote it.
    pub destination: Arc<str>,
    /// Where it sends to.
    pub remote: SocketAddr,
    /// It is sent by UDP, so what ICMP says of `remote` is about it.
    pub(super) is_datagrams: bool,
    /// What its packets travel in.
    pub transport: Transport,
    /// The server itself gets what it sends.
    pub(super) is_own: bool,
    /// It sends nothing until it is told to go on.
    pub is_paused: bool,
    /// Thousandths of normal speed; negative backwards.
    pub scale_permille: i32,
    /// Where the pictures come from, at another speed than the normal one.
    pub(super) fast: Option<Fast>,
    /// It ends when nobody asks for it for this long.
    pub lease: Option<Duration>,
    /// Chunks that are on their way to it.
    pub(super) awaited: BTreeSet<u32>,
    /// What keeps it from going on to the title's end.
    pub(super) trouble: Option<String>,
    /// Why control closes it.
    pub(super) closing: Option<End>,
    /// How it ended, and what it had counted.
    pub end: Option<(End, Box<SessionStats>)>,
}

/// What a session plays.
#[derive(Clone, Debug)]
pub struct Content {
    /// The title; that of a live input says what comes.
    pub title: Arc<Title>,
    /// The live input, when it is one.
    pub(super) input: Option<Arc<Input>>,
    /// The title's first reference.
    pub zero: Option<Pcr>,
    /// The packets that are played, counted from the title's start.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// What it takes on the wire, on average.
    pub rate: Bitrate,
}

impl Session {
    /// A session that has not begun.
    pub fn new(
        Vacancy { id, worker }: Vacancy,
        request: &OpenRequest,
        content: Content,
        remote: SocketAddr,
        transport: Transport,
    ) -> Self {
        Session {
            id,
            worker,
            name: request.title.as_str().into(),
            content,
            jumps: false,
            seen: Seen::default(),
            destination: request.destination.to_string().into(),
            remote,
            is_datagrams: request.channel.is_none(),
            transport,
            is_own: request.is_own,
            is_paused: request.play.is_paused,
            scale_permille: 1_000,
            fast: None,
            lease: request.lease,
            awaited: BTreeSet::new(),
            trouble: None,
            closing: None,
            end: None,
        }
    }

    /// How long after the start of what it plays a packet is due.
    pub(super) fn time_at(&self, position: u64) -> Duration {
        self.seen.time_at(&self.content.title, self.content.zero, position)
    }
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, or by a client.
    Pump(EndReason),
    /// Nobody listens at the destination.
    Refused,
    /// Nobody asked for it within its lease.
    Lapsed,
    /// The operator's list of destinations is another one, and its own is not on it.
    NotAllowed,
    /// The title is gone, or is another one.
    Unreadable(String),
    /// The next part of the title did not come for as long as the session waits; why, if that is known.
    Starved(Option<String>),
}

/// As clients are told.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NOTHING_CAME: &str = "the next part of the title did not come for too long (starved_timeout)";
        f.write_str(match self {
            End::Pump(EndReason::Ended) => "all was sent",
            End::Pump(EndReason::Closed) => "closed",
            End::Pump(EndReason::Full) => "the worker was full",
            End::Pump(EndReason::InUse) => "the id was in use",
            End::Pump(EndReason::NoPace) => "the title has no clock",
            End::Pump(EndReason::Starved) | End::Starved(None) => NOTHING_CAME,
            End::Pump(EndReason::Gone) => "the title is gone",
            End::Refused => "nobody listens at the destination",
            End::NotAllowed => "pump.destinations does not allow its destination any more",
            End::Lapsed => "nobody asked for it within its lease",
            End::Unreadable(why) => why,
            End::Starved(Some(why)) => return write!(f, "{NOTHING_CAME}: {why}"),
        })
    }
}

/// Where a new session goes, and what it is called there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vacancy {
    id: SessionId,
    worker: WorkerId,
}

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of all sessions together.
    pub bandwidth_max: Bitrate,
    /// Of one worker.
    pub sessions_max: usize,
    /// A session whose destination refuses for this long ends. `None`: it does not.
    pub refused_timeout: Option<Duration>,
}

/// All sessions.
#[derive(Debug)]
pub struct Sessions {
    limits: Limits,
    next_id: u64,
    sessions: BTreeMap<SessionId, Session>,
    open_count: usize,
    by_remote: FxHashMap<SocketAddr, Vec<SessionId>>,
    refusals: FxHashMap<SocketAddr, Refusals>,
    /// How many each worker has.
    counts: Vec<usize>,
    /// What all open ones take.
    bandwidth_bps: u64,
    ended: VecDeque<SessionId>,
    /// When sessions with a lease end.
    leases: FxHashMap<SessionId, Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Refusals {
    since: Instant,
    last: Instant,
}

impl Sessions {
    /// None yet.
    pub fn new(workers: usize, limits: Limits) -> Self {
        Sessions {
            limits,
            next_id: 1,
            sessions: BTreeMap::new(),
            open_count: 0,
            by_remote: FxHashMap::default(),
            refusals: FxHashMap::default(),
            counts: vec![0; workers],
            bandwidth_bps: 0,
            ended: VecDeque::new(),
            leases: FxHashMap::default(),
        }
    }

    /// How much there may be.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// So much there may be from now on. Those that are there go on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Finds a worker for a session; `on`: only that one will do. `None` when every worker is busy or has enough, or the
    /// bandwidth is used up.
    pub fn place(&self, placement: &Placement, rate: Bitrate, on: Option<WorkerId>) -> Option<Vacancy> {
        if self.bandwidth_bps + rate.bps() > self.limits.bandwidth_max.bps() {
            return None;
        }
        let has_room = |worker: WorkerId| {
            let count = self.counts.get(worker.index()).filter(|_| on.is_none_or(|on| on == worker));
            count.is_some_and(|count| *count < self.limits.sessions_max)
        };
        let worker = placement.find(None, has_room)?;
        Some(Vacancy { id: SessionId(self.next_id), worker })
    }

    /// Takes a session, at the place that was just found for it.
    pub fn open(&mut self, placement: &mut Placement, session: Session) -> &Session {
        let id = session.id;
        placement.take(session.worker, session.content.rate);
        self.bandwidth_bps += session.content.rate.bps();
        if let Some(count) = self.counts.get_mut(session.worker.index()) {
            *count += 1;
        }
        self.next_id = id.0 + 1;
        self.open_count += 1;
        if session.is_datagrams {
            self.by_remote.entry(session.remote).or_default().push(id);
        }
        self.sessions.entry(id).or_insert(session)
    }

    /// A session that is open.
    pub fn running(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions.get_mut(&id).filter(|session| session.end.is_none())
    }

    /// Remembers why control is about to close a session; returns its worker, which is to be told once.
    pub fn close(&mut self, id: SessionId, why: End) -> Option<WorkerId> {
        let session = self.running(id).filter(|session| session.closing.is_none())?;
        session.closing = Some(why);
        Some(session.worker)
    }

    /// A worker says that a session is over.
    pub fn handle_ended(
        &mut self,
        placement: &mut Placement,
        id: SessionId,
        reason: EndReason,
        stats: Box<SessionStats>,
    ) -> Option<&Session> {
        let session = self.sessions.get_mut(&id).filter(|session| session.end.is_none())?;
        let why = match reason {
            EndReason::Starved => End::Starved(session.trouble.take()),
            EndReason::Gone => End::Unreadable(session.trouble.take().unwrap_or_default()),
            EndReason::Closed => session.closing.take().unwrap_or(End::Pump(reason)),
            _ => End::Pump(reason),
        };
        session.end = Some((why, stats));
        placement.release(session.worker, session.content.rate);
        self.bandwidth_bps -= session.content.rate.bps();
        if let Some(count) = self.counts.get_mut(session.worker.index()) {
            *count -= 1;
        }
        self.open_count -= 1;
        if let Some(ids) = self.by_remote.get_mut(&session.remote) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_remote.remove(&session.remote);
                self.refusals.remove(&session.remote);
            }
        }
        session.fast = None;
        self.leases.remove(&id);
        self.ended.push_back(id);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_front()
        {
            self.sessions.remove(&oldest);
        }
        self.sessions.get(&id)
    }

    /// Nobody listens at `remote`. Returns the sessions to close because of that: those whose destination has refused
    /// for long enough, without a pause.
    pub fn handle_refused(&mut self, now: Instant, remote: SocketAddr) -> Vec<SessionId> {
        let (Some(timeout), Some(ids)) = (self.limits.refused_timeout, self.by_remote.get(&remote)) else {
            return Vec::new();
        };
        let refusals = self.refusals.entry(remote).or_insert(Refusals { since: now, last: now });
        if now.saturating_duration_since(refusals.last) > REFUSALS_GAP {
            refusals.since = now;
        }
        refusals.last = now;
        if now.saturating_duration_since(refusals.since) >= timeout { ids.clone() } else { Vec::new() }
    }

    /// Somebody asked for a session: its lease begins anew.
    pub fn renew(&mut self, now: Instant, id: SessionId) {
        if let Some(lease) = self.running(id).and_then(|session| session.lease) {
            self.leases.insert(id, now + lease);
        }
    }

    /// Sessions for which nobody asked within their leases.
    pub fn lapsed(&self, now: Instant) -> Vec<SessionId> {
        self.leases.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect()
    }

    /// One of them, also one that ended lately.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// All, those that ended lately included.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// The same behind one, the oldest first.
    pub fn behind(&self, after: SessionId) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.range((Bound::Excluded(after), Bound::Unbounded)).map(|(id, session)| (*id, session))
    }

    /// How many are open.
    pub fn open_count(&self) -> usize {
        self.open_count
    }

    /// What all open sessions take.
    pub fn bandwidth(&self) -> Bitrate {
        Bitrate::from_bps(self.bandwidth_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::placement;
    use crate::pump::request::Channel;
    use pump::sample::Sample;
    use pump::title::CHUNK_PACKETS;
    use wire::Token;

    /// Sessions on so many workers.
    struct Harness {
        sessions: Sessions,
        placement: Placement,
    }

    impl Harness {
        fn new(workers: usize) -> Self {
            let limits = Limits {
                bandwidth_max: Bitrate::from_kbps(10_000),
                sessions_max: 4,
                refused_timeout: Some(Duration::from_secs(3)),
            };
            let placement = Placement::new(workers, placement::Settings::default());
            Harness { sessions: Sessions::new(workers, limits), placement }
        }

        fn end(&mut self, id: SessionId, reason: EndReason) -> Option<&Session> {
            self.sessions.handle_ended(&mut self.placement, id, reason, Box::default())
        }

        /// The new session and its worker.
        fn open(&mut self, kbps: u64, port: u16) -> Option<(SessionId, u16)> {
            self.open_with_lease(kbps, port, None)
        }

        fn open_with_lease(&mut self, kbps: u64, port: u16, lease: Option<Duration>) -> Option<(SessionId, u16)> {
            self.open_as(kbps, port, |request| request.lease = lease)
        }

        fn open_as(&mut self, kbps: u64, port: u16, change: impl FnOnce(&mut OpenRequest)) -> Option<(SessionId, u16)> {
            let bytes = Sample { pictures: 3, ..Sample::default() }.make();
            let title = Title::probe(&bytes, bytes.len() as u64, CHUNK_PACKETS).expect("a title");
            let destination = format!("udp://127.0.0.1:{port}").parse().expect("a destination");
            let mut request = OpenRequest::new("a".into(), destination);
            change(&mut request);
            let rate = Bitrate::from_kbps(kbps);
            let place = self.sessions.place(&self.placement, rate, None)?;
            let remote = ([127, 0, 0, 1], port).into();
            let content = Content { title: title.into(), input: None, zero: None, start: 0, end: u64::MAX, rate };
            let session = Session::new(place, &request, content, remote, Transport::Udp);
            let session = self.sessions.open(&mut self.placement, session);
            Some((session.id, session.worker.0))
        }
    }

    #[test]
    fn a_session_goes_where_the_least_bandwidth_is_used() {
        let mut test = Harness::new(2);
        let places = [3_000, 1_000, 1_000, 2_000].map(|kbps| test.open(kbps, 1).expect("room").1);
        assert_eq!(places, [0, 1, 1, 1]);
        assert_eq!(test.sessions.bandwidth(), Bitrate::from_kbps(7_000));
    }

    #[test]
    fn no_more_is_taken_than_there_is_bandwidth_and_room_for() {
        let mut test = Harness::new(1);
        let (first, _) = test.open(9_000, 1).expect("room");
        assert_eq!(test.open(1_001, 1), None);
        test.end(first, EndReason::Ended);
        for _ in 0..4 {
            assert!(test.open(10, 1).is_some());
        }
        assert_eq!(test.open(10, 1), None, "four sessions are all");
    }

    #[test]
    fn workers_that_are_behind_take_none() {
        let mut test = Harness::new(2);
        test.placement.set_behind(WorkerId(0), true);
        assert_eq!(test.open(10, 1).map(|(_, worker)| worker), Some(1));
        test.placement.set_behind(WorkerId(1), true);
        assert_eq!(test.open(10, 1), None);
        test.placement.set_behind(WorkerId(0), false);
        assert_eq!(test.open(10, 1).map(|(_, worker)| worker), Some(0));
    }

    #[test]
    fn a_destination_that_refuses_for_long_loses_its_sessions() {
        let mut test = Harness::new(1);
        let (id, _) = test.open(10, 7).expect("room");
        let (other, _) = test.open(10, 8).expect("room");
        let start = Instant::now();
        let remote = ([127, 0, 0, 1], 7).into();
        let mut refused =
            |tenths: u64| test.sessions.handle_refused(start + Duration::from_millis(tenths * 100), remote);
        assert!((0..=25).step_by(5).all(|tenths| refused(tenths).is_empty()));
        assert!((60..90).step_by(5).all(|tenths| refused(tenths).is_empty()), "it took something in between");
        assert_eq!(refused(90), [id]);

        assert_eq!(test.sessions.close(id, End::Refused), Some(WorkerId(0)));
        assert_eq!(test.sessions.close(id, End::Lapsed), None, "its worker knows");
        let ended = test.end(id, EndReason::Closed).expect("it was there");
        assert_eq!(ended.end.as_ref().map(|(why, _)| why), Some(&End::Refused));
        assert!(test.sessions.running(id).is_none() && test.sessions.running(other).is_some());
        assert!(test.sessions.handle_refused(start + Duration::from_secs(20), remote).is_empty());
    }

    #[test]
    fn a_session_in_a_connection_does_not_end_as_nobody_listens_by_udp() {
        let mut test = Harness::new(1);
        let channel = Channel { connection: Token::default(), number: 0, worker: None };
        let (id, _) = test.open_as(10, 7, |request| request.channel = Some(channel)).expect("room");
        let (other, _) = test.open(10, 7).expect("room");
        let start = Instant::now();
        let remote = ([127, 0, 0, 1], 7).into();
        let mut refused = |seconds| test.sessions.handle_refused(start + Duration::from_secs(seconds), remote);
        assert_eq!([refused(0), refused(1), refused(2), refused(3)].concat(), [other]);
        test.end(id, EndReason::Closed);
        let later = test.sessions.handle_refused(start + Duration::from_secs(4), remote);
        assert_eq!(later, [other], "its end changes nothing");
    }

    #[test]
    fn a_lease_that_is_not_renewed_lapses() {
        let mut test = Harness::new(1);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (id, _) = test.open_with_lease(10, 1, Some(Duration::from_secs(10))).expect("room");
        let (other, _) = test.open(10, 1).expect("room");
        for seconds in [0, 9, 18] {
            assert!(test.sessions.lapsed(at(seconds)).is_empty());
            test.sessions.renew(at(seconds), id);
            test.sessions.renew(at(seconds), other);
        }
        assert!(test.sessions.lapsed(at(27)).is_empty());
        assert_eq!(test.sessions.lapsed(at(28)), [id]);
        test.end(id, EndReason::Closed);
        test.sessions.renew(at(28), id);
        assert!(test.sessions.lapsed(at(100)).is_empty());
    }

    #[test]
    fn what_ended_is_shown_for_a_while() {
        let mut test = Harness::new(1);
        for _ in 0..ENDED_MAX + 5 {
            let (id, _) = test.open(10, 1).expect("room");
            test.end(id, EndReason::Ended);
            test.end(id, EndReason::Closed);
        }
        assert_eq!((test.sessions.iter().count(), test.sessions.open_count()), (ENDED_MAX, 0));
        assert_eq!(test.sessions.bandwidth(), Bitrate::ZERO);
    }
}
