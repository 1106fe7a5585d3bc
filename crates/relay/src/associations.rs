//! Clients over DTLS (RFC 7350).
//!
//! In: datagrams of listeners for DTLS, what control tells of handshakes. Out: cookies, which cost no memory; what comes of a
//! handshake behind one, for control, which does it; then what records carry, opened where it was received, and records of
//! what is for a client, sealed in the outbox.
//! Cost: an HMAC for who is unknown; one lookup per run and a copy into the outbox for who is not. An association takes some
//! 1.8 KB.
//! Source: RFC 6347 §4.2.1 (cookies), §4.2.8 (who begins anew at the same address).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dtls::{Cookies, Established, Hello, Numbers, Records};
use hashbrown::HashMap;
use slab::Slab;
use wheel::{TimerId, Wheel};
use wire::{Outbox, Path};

use crate::counters::Counters;
use crate::drops::DropReason;
use crate::limits::Limits;
use crate::random;
use crate::settings::Settings;
use crate::spec::{AssociationId, Event, HandshakeInput, HandshakeStep};
use crate::strangers::Strangers;

/// Handshakes that go on at a time, on one worker, and of one source (`wire::source_network`). For one beyond that the oldest
/// makes room, of the source or of all.
const HANDSHAKES_MAX: usize = 1_024;
const HANDSHAKES_PER_SOURCE_MAX: usize = 64;

/// A handshake is over after so long, one way or the other.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Datagrams of one handshake that are taken, and bytes of one of them: a client sends some four, and each again when it is
/// not answered.
const HANDSHAKE_DATAGRAMS_MAX: u8 = 32;
const HANDSHAKE_DATAGRAM_MAX: usize = 1_500;

/// The end of a handshake is sent again so often, to who shows under the new keys that he has not got it.
const LAST_FLIGHTS_MAX: u8 = 8;

/// Associations that are looked at before everything else gets its turn; the next portion waits for `PAUSE`.
const PORTION: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// How fine the wheel turns.
const TICK: Duration = Duration::from_millis(100);

/// All of one worker.
#[derive(Debug)]
pub(crate) struct Associations {
    settings: Arc<Settings>,
    cookies: Cookies,
    all: Slab<Association>,
    /// Those whose handshake is over, and those whose goes on. Who begins anew has one of each for a while.
    open: HashMap<Path, usize>,
    shaking: HashMap<Path, usize>,
    /// Those whose handshake goes on, and those that are open and that nobody makes use of.
    newcomers: Strangers,
    unused: Strangers,
    checks: Wheel<usize>,
    /// Before this nobody looks any more, as a portion just was.
    checks_at: Option<Instant>,
    pub(crate) events: VecDeque<Event>,
    last_number: u32,
    /// Those that are gone, and whose allocations are to go with them.
    pub(crate) ended: Vec<Path>,
}

#[derive(Debug)]
struct Association {
    id: AssociationId,
    path: Path,
    check: TimerId,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Control shakes hands. So many of its datagrams may still come.
    Shaking { left: u8 },
    /// There are keys. The end of the handshake may be sent again so often.
    Open { established: Box<Established>, flights_left: u8 },
}

impl Associations {
    pub(crate) fn new(now: Instant, settings: &Arc<Settings>) -> Self {
        Associations {
            settings: Arc::clone(settings),
            cookies: Cookies::new(&random::derived(&settings.seed, "cookies")),
            all: Slab::new(),
            open: HashMap::default(),
            shaking: HashMap::default(),
            newcomers: Strangers::default(),
            unused: Strangers::default(),
            checks: Wheel::new(now, TICK),
            checks_at: None,
            events: VecDeque::new(),
            last_number: 0,
            ended: Vec::new(),
        }
    }

    /// Whether there are keys for who is at the other end of a path.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.open.contains_key(path)
    }

    /// What protects the records of a path.
    #[inline]
    pub(crate) fn records(&mut self, path: &Path) -> Option<&mut Records> {
        let slot = *self.open.get(path)?;
        match &mut self.all.get_mut(slot)?.state {
            State::Open { established, .. } => Some(&mut established.records),
            State::Shaking { .. } => None,
        }
    }

    /// Whether a datagram whose first record carries this belongs to a handshake that goes on at a path.
    pub(crate) fn is_shaking(&self, path: &Path) -> bool {
        self.shaking.contains_key(path)
    }

    /// Takes a datagram that is under no keys, or under those of a handshake that goes on.
    pub(crate) fn handle_handshake(
        &mut self,
        now: Instant,
        path: &Path,
        datagram: &[u8],
        (limits, counters): (&mut Limits, &mut Counters),
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        if datagram.len() > HANDSHAKE_DATAGRAM_MAX {
            return Err(DropReason::MalformedDtls);
        }
        if let Some(slot) = self.shaking.get(path).copied() {
            return self.pass_on(slot, datagram);
        }
        let since = now.saturating_duration_since(self.settings.epoch.0);
        match self.cookies.check(since, path.remote, datagram, || limits.take_cookie(now)) {
            Hello::Verified(numbers) => {
                // He is at his address, and a signature is dear.
                let may = limits.take_handshake(now, path.remote.ip());
                may.then(|| self.begin(now, path, numbers, datagram, counters)).ok_or(DropReason::HandshakeBudgetSpent)
            }
            Hello::Unverified(answer) => {
                counters.dtls_cookies += 1;
                out.push(path, &answer).then_some(()).ok_or(DropReason::OutboxFull)
            }
            Hello::TooOld(alert) => out.push(path, &alert).then_some(()).ok_or(DropReason::OutboxFull),
            Hello::NotAnswered => Err(DropReason::UnauthenticatedBudgetSpent),
            Hello::None => Err(DropReason::NoAssociation),
        }
    }

    /// Gives control a further datagram of a handshake.
    fn pass_on(&mut self, slot: usize, datagram: &[u8]) -> Result<(), DropReason> {
        let association = self.all.get_mut(slot).ok_or(DropReason::NoAssociation)?;
        let State::Shaking { left } = &mut association.state else { return Err(DropReason::NoAssociation) };
        *left = left.checked_sub(1).ok_or(DropReason::HandshakeBudgetSpent)?;
        let (association, input) = (association.id, HandshakeInput::Datagram(datagram.into()));
        self.events.push_back(Event::Handshake { association, input });
        Ok(())
    }

    /// A client has shown that it receives where it says it is: control is to shake hands with it.
    fn begin(&mut self, now: Instant, path: &Path, numbers: Numbers, hello: &[u8], counters: &mut Counters) {
        let oldest = self.newcomers.oldest_of_many(path.remote, HANDSHAKES_PER_SOURCE_MAX);
        let is_full = self.shaking.len() >= HANDSHAKES_MAX;
        if let Some(slot) = oldest.or_else(|| self.newcomers.oldest().filter(|_| is_full)) {
            counters.dtls_made_room += 1;
            self.remove(slot);
        }
        self.last_number = self.last_number.wrapping_add(1);
        let entry = self.all.vacant_entry();
        let slot = entry.key();
        let id = AssociationId(u64::from(self.last_number) << 32 | slot as u64);
        let check = self.checks.insert(now + HANDSHAKE_TIME_MAX, slot);
        let state = State::Shaking { left: HANDSHAKE_DATAGRAMS_MAX };
        entry.insert(Association { id, path: *path, check, state });
        self.shaking.insert(*path, slot);
        self.newcomers.enter(slot, path.remote);
        counters.dtls_handshakes_begun += 1;
        let input = HandshakeInput::Begin { numbers, hello: hello.into() };
        self.events.push_back(Event::Handshake { association: id, input });
    }

    /// Does what control says of a handshake. Of one that is gone it says nothing of importance.
    pub(crate) fn handle_step(
        &mut self,
        now: Instant,
        id: AssociationId,
        step: HandshakeStep,
        counters: &mut Counters,
        out: &mut Outbox,
    ) {
        let slot = (id.0 & u64::from(u32::MAX)) as usize;
        let Some(association) = self.all.get(slot).filter(|it| it.id == id && it.is_shaking()) else { return };
        let path = association.path;
        match step {
            HandshakeStep::Send(datagram) => {
                counters.drops.add(DropReason::OutboxFull, u64::from(!out.push(&path, &datagram)));
            }
            HandshakeStep::Failed => {
                counters.dtls_handshakes_failed += 1;
                self.forget(slot);
            }
            HandshakeStep::Done(established) => {
                self.make_room(path.remote, counters);
                // He has begun anew, and the former one is nobody's any more.
                if let Some(former) = self.open.get(&path).copied() {
                    self.remove(former);
                }
                if self.open.len() >= self.settings.associations_max {
                    counters.connections_refused += 1;
                    self.forget(slot);
                    return;
                }
                self.shaking.remove(&path);
                self.newcomers.leave(slot);
                let Some(association) = self.all.get_mut(slot) else { return };
                send_flight(&path, &established.last_flight, out);
                association.state = State::Open { established, flights_left: LAST_FLIGHTS_MAX };
                self.checks.cancel(association.check);
                association.check = self.checks.insert(now + self.settings.unused_max, slot);
                self.open.insert(path, slot);
                self.unused.enter(slot, path.remote);
                counters.dtls_handshakes_done += 1;
            }
        }
    }

    /// Ends the oldest association that nobody makes use of: of a source that has enough of them, or of all where there is no
    /// place.
    fn make_room(&mut self, newcomer: SocketAddr, counters: &mut Counters) {
        let is_full = self.open.len() >= self.settings.associations_max;
        let oldest = self.unused.oldest_of_many(newcomer, self.settings.strangers_per_source_max);
        if let Some(slot) = oldest.or_else(|| self.unused.oldest().filter(|_| is_full)) {
            counters.dtls_made_room += 1;
            self.remove(slot);
        }
    }

    /// The client shows that it has not got the end of the handshake.
    pub(crate) fn repeat_flight(&mut self, path: &Path, out: &mut Outbox) {
        let association = self.open.get(path).and_then(|slot| self.all.get_mut(*slot));
        if let Some(Association { state: State::Open { established, flights_left }, .. }) = association
            && let Some(left) = flights_left.checked_sub(1)
        {
            *flights_left = left;
            send_flight(path, &established.last_flight, out);
        }
    }

    /// Ends it where its keys are used up, and says so: the client begins anew with others.
    pub(crate) fn end_used_up(&mut self, path: &Path, out: &mut Outbox) {
        let Some(records) = self.records(path).filter(|records| records.is_used_up()) else { return };
        if let Some(len) = out.slot().and_then(|slot| records.end(slot)) {
            out.commit(path, len);
        }
        self.end(path);
    }

    /// The client has ended it.
    pub(crate) fn end(&mut self, path: &Path) {
        if let Some(slot) = self.open.get(path).copied() {
            self.remove(slot);
        }
    }

    /// There is an allocation.
    pub(crate) fn settle(&mut self, path: &Path) {
        if let Some(slot) = self.open.get(path) {
            self.unused.leave(*slot);
        }
    }

    /// The allocation is gone.
    pub(crate) fn unsettle(&mut self, path: &Path) {
        if let Some(slot) = self.open.get(path) {
            self.unused.enter(*slot, path.remote);
        }
    }

    /// Ends one; control hears of it where it shakes hands.
    fn remove(&mut self, slot: usize) {
        if let Some(association) = self.forget(slot) {
            self.events.push_back(Event::Handshake { association, input: HandshakeInput::End });
        }
    }

    /// Ends one of which control knows that, and says which it was where its handshake went on.
    fn forget(&mut self, slot: usize) -> Option<AssociationId> {
        let association = self.all.try_remove(slot)?;
        self.checks.cancel(association.check);
        self.newcomers.leave(slot);
        self.unused.leave(slot);
        match association.state {
            State::Shaking { .. } => {
                self.shaking.remove(&association.path);
                Some(association.id)
            }
            State::Open { .. } => {
                self.open.remove(&association.path);
                self.ended.push(association.path);
                None
            }
        }
    }

    /// Ends handshakes that take too long, and associations on which nobody has an allocation, a portion at a time.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        is_used: impl Fn(&Path) -> bool,
        counters: &mut Counters,
        out: &mut Outbox,
    ) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        self.checks_at = None;
        for _ in 0..PORTION {
            let Some(slot) = self.checks.pop_due(now) else { return };
            let Some(association) = self.all.get_mut(slot) else { continue };
            let path = association.path;
            counters.dtls_handshakes_failed += u64::from(association.is_shaking());
            if let State::Open { established, .. } = &mut association.state {
                if is_used(&path) {
                    association.check = self.checks.insert(now + self.settings.unused_max, slot);
                    continue;
                }
                // Where there is no room he finds out by himself.
                if let Some(len) = out.slot().and_then(|slot| established.records.end(slot)) {
                    out.commit(&path, len);
                }
            }
            self.remove(slot);
        }
        self.checks_at = Some(now + PAUSE);
    }

    /// When that is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let at = self.checks.next_deadline()?;
        Some(self.checks_at.map_or(at, |not_before| not_before.max(at)))
    }

    /// How many there are, and how many handshakes go on.
    pub(crate) fn count(&self) -> (usize, usize) {
        (self.open.len(), self.shaking.len())
    }
}

impl Association {
    fn is_shaking(&self) -> bool {
        matches!(self.state, State::Shaking { .. })
    }
}

fn send_flight(path: &Path, flight: &[Box<[u8]>], out: &mut Outbox) {
    for datagram in flight {
        // What finds no room is asked for again.
        out.push(path, datagram);
    }
}

/// Seals what stands in several places, one behind the other, into the outbox.
#[inline]
pub(crate) fn seal(records: &mut Records, path: &Path, parts: &[&[u8]], out: &mut Outbox) -> Result<(), DropReason> {
    let Some(slot) = out.slot() else { return Err(DropReason::OutboxFull) };
    let mut end = records.data_at();
    for part in parts {
        let place = slot.get_mut(end..end + part.len()).ok_or(DropReason::TooLong)?;
        place.copy_from_slice(part);
        end += part.len();
    }
    let len = records.seal(slot, end - records.data_at());
    len.map(|len| out.commit(path, len)).ok_or(DropReason::TooLong)
}

/// Seals what stands in the outbox's slot there, and says how long that is.
pub(crate) fn seal_slot(records: &mut Records, len: usize, out: &mut Outbox) -> Option<usize> {
    let (slot, at) = (out.slot()?, records.data_at());
    if at + len > slot.len() {
        return None;
    }
    slot.copy_within(..len, at);
    records.seal(slot, len)
}
