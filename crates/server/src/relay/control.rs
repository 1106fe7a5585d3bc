//! The relay's control plane: allocations of all workers, as the API and a drain see them.
//!
//! In: events of workers; questions and wishes of the API. Out: commands to workers, answers.
//! Cost: one lock per allocation that begins or ends, held for a map's step; no worker takes it, and no packet.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use engine::Mailbox;
use relay::auth::Found;
use relay::ledger::{Ledger, LedgerSettings, UserTotals};
use relay::spec::{AllocationId, AllocationInfo, ClientTransport, Command, Event, HandshakeStep, connection_worker};
use relay::story::Story;
use tokio::sync::Notify;
use wire::{Bitrate, WorkerId};

use super::blocks::{BLOCKS_MAX, Block, Blocks};
use super::handshakes;
use super::issuer::{Credential, Issuer};
use super::journal::Journal;
use super::lookup::Lookups;
use super::setup::{self, RulesSource, Shared};
use super::stories::{Stories, Told};
use crate::config::{self, Config};
use crate::door::TurnClient;
use crate::plane::questions::Questions;
use crate::plane::{Plane, ProductControl};
use crate::worker::Message;

/// What an allocation is expected to carry: a call's sound and picture, both ways. How busy its worker is counts once it is
/// more than that.
const ALLOCATION: Bitrate = Bitrate::from_kbps(2_000);

/// Everything that can be asked of the relay.
pub struct RelayControl {
    plane: Arc<Plane>,
    /// Where clients find it, as this host has it.
    listen: Vec<SocketAddr>,
    /// The same by DTLS.
    dtls_listen: Vec<SocketAddr>,
    /// The same by TCP, and by TLS.
    connected: [Vec<SocketAddr>; 2],
    issuer: Option<Issuer>,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
    /// Whose turn it is to get a connection.
    next: AtomicUsize,
    host: Mutex<Host>,
    lists: Questions<Listed>,
    journal: Journal,
    /// Those that are there, which are asked for, and those that are gone.
    told: Questions<Option<(AllocationInfo, Box<Story>)>>,
    stories: Mutex<Stories>,
    /// Who is asked for users whom workers do not know.
    lookups: Option<Lookups>,
    /// Who shakes hands with clients by DTLS.
    handshakes: Option<Mailbox<handshakes::Input>>,
    /// Who reads users again.
    users: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Where each allocation is, by its number.
    allocations: BTreeMap<AllocationId, WorkerId>,
    is_draining: bool,
    blocks: Blocks,
}

/// Allocations of a worker, and up to which number they were looked at where there are others.
type Listed = (Vec<AllocationInfo>, Option<AllocationId>);

/// What workers know of the host: its addresses, as the rules have them, and its clock.
struct Host {
    rules: RulesSource,
    clock: (Instant, Duration),
    /// When they are read again.
    next: Instant,
}

/// How often the host's addresses and its clock are read.
const HOST_INTERVAL: Duration = Duration::from_secs(10);

/// A clock that is off by more than that was set. Otherwise it is as fast as the one that instants come from.
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// Why something cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum RelayError {
    #[error("no such allocation")]
    NoAllocation,
    #[error("nobody of that name is blocked")]
    NoBlock,
    #[error("there are {BLOCKS_MAX} blocked users already")]
    TooManyBlocks,
    #[error("the server is too busy to answer")]
    Busy,
    #[error("the server is about to stop, and takes nobody any more")]
    Stopping,
    #[error("there is no secret to make credentials with (see relay.secrets)")]
    NoSecret,
}

impl RelayControl {
    /// Without allocations.
    pub fn new(plane: Arc<Plane>, shared: &Shared, config: &Config) -> Self {
        RelayControl {
            plane,
            listen: shared.listen(ClientTransport::Udp).collect(),
            dtls_listen: shared.listen(ClientTransport::Dtls).collect(),
            connected: [config.relay.tcp_listen.clone(), config.relay.tls_listen.clone()],
            issuer: shared.issuer(config),
            ledger: shared.ledger().clone(),
            state: Mutex::default(),
            next: AtomicUsize::new(0),
            host: Mutex::new(Host {
                rules: shared.rules().clone(),
                clock: shared.epoch(),
                next: Instant::now() + HOST_INTERVAL,
            }),
            lists: Questions::default(),
            journal: Journal::new(Instant::now()),
            told: Questions::default(),
            stories: Mutex::default(),
            lookups: None,
            handshakes: None,
            users: Arc::default(),
        }
    }

    /// The same, with somebody who is asked for users, and somebody who reads them again when notified.
    #[must_use]
    pub fn with_users(self, lookups: Option<Lookups>, users: Arc<Notify>) -> Self {
        RelayControl { lookups, users, ..self }
    }

    /// The same, with somebody who shakes hands with clients by DTLS.
    #[must_use]
    pub fn with_handshakes(self, handshakes: Mailbox<handshakes::Input>) -> Self {
        RelayControl { handshakes: Some(handshakes), ..self }
    }

    /// What all products have in common.
    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// Where clients find it, as this host has it.
    pub fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    /// The same by DTLS.
    pub fn dtls_listen(&self) -> &[SocketAddr] {
        &self.dtls_listen
    }

    /// Where clients connect to it.
    pub fn tcp_listen(&self) -> &[SocketAddr] {
        &self.connected[0]
    }

    /// The same under TLS.
    pub fn tls_listen(&self) -> &[SocketAddr] {
        &self.connected[1]
    }

    /// Takes what a worker reports.
    pub fn handle_event(&self, worker: WorkerId, event: Event) {
        match event {
            Event::Began(info) => {
                if self.lock().allocations.insert(info.id, worker).is_none() {
                    self.plane.placement().take(worker, ALLOCATION);
                }
                self.journal.began(Instant::now(), &info);
            }
            Event::Ended(info, reason, story) => {
                let (now, id) = (Instant::now(), info.id);
                self.journal.ended(now, &info, reason);
                // Before it is gone: who asks meanwhile finds one or the other.
                self.stories().end(Told { worker, info, ended: Some((now, reason)), story });
                if self.lock().allocations.remove(&id).is_some() {
                    self.plane.placement().release(worker, ALLOCATION);
                }
            }
            Event::NotProved(failure) => self.journal.not_proved(worker, &failure),
            Event::Allocations { token, allocations, upto } => self.lists.handle_answer(token, (allocations, upto)),
            Event::Story { token, told } => self.told.handle_answer(token, told),
            Event::Handshake { association, input } => {
                let input = handshakes::Input { worker, association, input };
                let is_taken = self.handshakes.as_ref().is_some_and(|mailbox| mailbox.send(input).is_ok());
                if !is_taken {
                    let failed = Command::Handshake { association, step: HandshakeStep::Failed };
                    self.plane.workers().post(worker, Message::Relay(failed));
                }
            }
            Event::Lookup { user } => {
                let is_asked = self.lookups.as_ref().is_some_and(|lookups| lookups.ask(worker, user.clone()));
                if !is_asked {
                    let found = Command::Found { user, found: Found::Unavailable };
                    self.plane.workers().post(worker, Message::Relay(found));
                }
            }
        }
    }

    /// Allocations from the first number after `after` on, by number, and where they are; those of one user or at one worker, where one
    /// is named.
    ///
    /// # Errors
    /// `Busy`.
    pub async fn allocations(
        &self,
        user: Option<Arc<str>>,
        at: Option<WorkerId>,
        after: AllocationId,
        count: usize,
    ) -> Result<Vec<(WorkerId, AllocationInfo)>, RelayError> {
        let mut all = Vec::new();
        for worker in self.plane.workers().ids().filter(|worker| at.is_none_or(|at| at == *worker)) {
            let (mut left, mut after) = (count, after);
            while left > 0 {
                let list = |token| self.offer(worker, Command::List { token, user: user.clone(), after, count: left });
                let (listed, upto) = self.lists.ask(list).await.ok_or(RelayError::Busy)?;
                left = left.saturating_sub(listed.len());
                all.extend(listed.into_iter().map(|info| (worker, info)));
                let Some(upto) = upto else { break };
                after = upto;
            }
        }
        all.sort_unstable_by_key(|(_, info)| info.id);
        all.truncate(count);
        Ok(all)
    }

    /// What became of an allocation, which may be gone.
    ///
    /// # Errors
    /// `NoAllocation`, `Busy`.
    pub async fn story(&self, id: AllocationId) -> Result<Arc<Told>, RelayError> {
        let worker = self.lock().allocations.get(&id).copied();
        if let Some(worker) = worker {
            let ask = |token| self.offer(worker, Command::Story { token, id });
            if let Some((info, story)) = self.told.ask(ask).await.ok_or(RelayError::Busy)? {
                return Ok(Arc::new(Told { worker, info, ended: None, story }));
            }
        }
        // A worker that does not know it any more has said before that it has ended.
        self.stories().get(id).ok_or(RelayError::NoAllocation)
    }

    /// Those that have ended and are still known, of one user or of all, so many at most, the last first.
    pub fn ended(&self, user: Option<&str>, count: usize) -> Vec<Arc<Told>> {
        self.stories().latest(user, count)
    }

    fn stories(&self) -> MutexGuard<'_, Stories> {
        self.stories.lock().expect("nobody panics under this lock")
    }

    /// Ends an allocation. Its client hears nothing, as with one that has expired.
    ///
    /// # Errors
    /// `NoAllocation`.
    pub fn delete(&self, id: AllocationId) -> Result<(), RelayError> {
        let worker = self.lock().allocations.get(&id).copied().ok_or(RelayError::NoAllocation)?;
        self.plane.workers().post(worker, Message::Relay(Command::Delete(id)));
        Ok(())
    }

    /// Keeps a user out for a time, or until `unblock`: his allocations end, and he gets no others.
    ///
    /// # Errors
    /// `TooManyBlocks`.
    pub fn block(&self, user: &str, time: Option<Duration>) -> Result<(), RelayError> {
        let mut state = self.lock();
        if !state.blocks.add(Instant::now(), user, time) {
            return Err(RelayError::TooManyBlocks);
        }
        tracing::info!(user, seconds = time.map(|time| time.as_secs()), "user blocked");
        self.tell_blocks(&state.blocks);
        Ok(())
    }

    /// Lets a user in again.
    ///
    /// # Errors
    /// `NoBlock`.
    pub fn unblock(&self, user: &str) -> Result<(), RelayError> {
        let mut state = self.lock();
        if !state.blocks.remove(Instant::now(), user) {
            return Err(RelayError::NoBlock);
        }
        tracing::info!(user, "user blocked no more");
        self.tell_blocks(&state.blocks);
        Ok(())
    }

    /// Who is kept out, by name, from the first after `after` on.
    pub fn blocks(&self, after: &str, count: usize) -> Vec<Block> {
        self.lock().blocks.list(Instant::now(), after, count)
    }

    fn tell_blocks(&self, blocks: &Blocks) {
        let blocked = Arc::new(blocks.blocked());
        for worker in self.plane.workers().ids() {
            self.plane.workers().post(worker, Message::Relay(Command::Block(blocked.clone())));
        }
    }

    /// Makes credentials for somebody. It is `now` since 1970.
    ///
    /// # Errors
    /// `NoSecret`.
    pub fn credential(&self, who: &str, wanted: Option<Duration>, now: Duration) -> Result<Credential, RelayError> {
        Ok(self.issuer.as_ref().ok_or(RelayError::NoSecret)?.make(who, wanted, now))
    }

    /// Gives a client's connection to a worker: to the one that a ConnectionBind names, else to each in turn, or the next that
    /// has room in its mailbox. False: they have far too much to do, and the connection is closed.
    pub fn add_client(&self, client: TurnClient) -> bool {
        let (workers, count) = (self.plane.workers(), self.plane.workers().count());
        let named = client.connection_id.map(connection_worker).filter(|named| named.index() < count);
        // An id that is nobody's is answered by any of them (RFC 6062 §5.4).
        let first = if client.connection_id.is_some() { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        let in_turn = (0..count).filter_map(|step| workers.ids().nth((first % count + step) % count));
        let in_turn = in_turn.take(if named.is_some() { 0 } else { count });
        let mut message = Message::Relay(Command::AddClient(client.connection));
        for worker in named.into_iter().chain(in_turn) {
            match workers.give(worker, message) {
                None => return true,
                Some(returned) => message = returned,
            }
        }
        tracing::debug!("a connection finds no room in the workers' mailboxes");
        false
    }

    /// Has the file of users and the secrets in Redis read again.
    pub fn read_again(&self) {
        self.users.notify_one();
    }

    /// Lets no allocation begin from now on; those that are there live out.
    pub fn start_drain(&self) {
        if let Some(allocations) = self.set_draining(true) {
            tracing::info!(allocations, "the relay drains: no allocation begins any more");
        }
    }

    /// Lets them begin again.
    ///
    /// # Errors
    /// `Stopping`.
    pub fn end_drain(&self) -> Result<(), RelayError> {
        if self.plane.is_draining() {
            return Err(RelayError::Stopping);
        }
        if let Some(allocations) = self.set_draining(false) {
            tracing::info!(allocations, "the relay drains no more");
        }
        Ok(())
    }

    /// Tells each worker once; how many allocations there are when that is news.
    fn set_draining(&self, is_draining: bool) -> Option<usize> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_draining, is_draining) == is_draining {
            return None;
        }
        for worker in self.plane.workers().ids() {
            self.plane.workers().post(worker, Message::Relay(Command::Drain(is_draining)));
        }
        Some(state.allocations.len())
    }

    /// Whether no allocation begins any more.
    pub fn is_draining(&self) -> bool {
        self.lock().is_draining
    }

    /// What users have that have an allocation, by name, from the first after `after` on.
    pub fn users(&self, after: Option<&str>, count: usize) -> Vec<UserTotals> {
        self.ledger.users(after, count)
    }

    /// How many allocations there are.
    pub fn count(&self) -> usize {
        self.lock().allocations.len()
    }

    /// Has workers refuse peers at addresses that the host has got meanwhile, and go by its clock where that was set.
    fn look_at_host(&self, now: Instant) {
        let mut host = self.host.lock().expect("nobody panics under this lock");
        if now < host.next {
            return;
        }
        host.next = now + HOST_INTERVAL;
        let (expected, (_, since_1970)) = (host.clock.1 + now.saturating_duration_since(host.clock.0), setup::clock());
        if since_1970.abs_diff(expected) > CLOCK_STEP {
            tracing::info!("the host's clock was set");
            host.clock = (now, since_1970);
            self.tell_all(|| Command::Clock(now, since_1970));
        }
        let rules = match setup::host_addresses() {
            Ok(addresses) => host.rules.renew(addresses),
            Err(error) => return tracing::warn!(%error, "the host's addresses cannot be read"),
        };
        let Some(rules) = rules.map(Arc::new) else { return };
        tracing::info!("the host has other addresses; the relay's rules for peers are renewed");
        self.tell_all(|| Command::Rules(rules.clone()));
    }

    /// These are the operator's lists of peers and limits of users from now on. Permissions and channels of peers that are denied
    /// now go; allocations stay, however many a user has.
    pub fn set_limits(&self, settings: &config::Relay) {
        let allocations_max = self.ledger.settings().allocations_max;
        let changed = LedgerSettings { allocations_max, ..setup::ledger_settings(settings) };
        self.ledger.change(Instant::now(), changed);
        // Under the lock: of two changes the later one is told last.
        let mut host = self.host.lock().expect("nobody panics under this lock");
        if let Some(rules) = host.rules.change(settings).map(Arc::new) {
            tracing::info!("the relay's rules for peers are renewed");
            self.tell_all(|| Command::Rules(rules.clone()));
        }
    }

    fn tell_all(&self, command: impl Fn() -> Command) {
        for worker in self.plane.workers().ids() {
            self.plane.workers().post(worker, Message::Relay(command()));
        }
    }

    fn offer(&self, worker: WorkerId, question: Command) -> bool {
        self.plane.workers().offer(worker, Message::Relay(question))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under this lock")
    }
}

impl ProductControl for RelayControl {
    fn handle_timeout(&self, now: Instant) {
        self.look_at_host(now);
        self.journal.handle_timeout(now);
        if self.plane.is_draining() {
            self.start_drain();
        }
    }

    fn has_receivers(&self) -> bool {
        self.count() > 0
    }

    /// What is left ends with its workers: a client notices when it is not answered, as it would if the server had gone.
    fn close_all(&self) {}
}
