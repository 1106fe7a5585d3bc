//! The thread that shakes hands with the relay's clients by DTLS, so that no worker has to.
//!
//! In: what workers' relays have of clients that have shown their cookies. Out: what to send them, keys.
//! Cost: some 0.3 ms for each, and memory for those that go on: workers say how many that may be. Those that go on come first,
//! so that what has cost something already comes to its end, and newcomers wait for their turn.
//! Source: RFC 6347 §4.2, RFC 7350.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dtls::{Handshake, Identity, Numbers, Progress};
use engine::{Mailbox, Receiver, RecvError, mailbox};
use relay::spec::{AssociationId, Command, HandshakeInput, HandshakeStep};
use wire::WorkerId;

use crate::plane::Plane;
use crate::tls::Certificates;
use crate::worker::Message;

/// What waits for the thread at most. A handshake of which something finds no room has failed, and its client begins anew.
const MAILBOX: usize = 8_192;

/// Inputs between two looks at the timers, and at newcomers.
const BATCH: usize = 256;

/// Handshakes that go on, of one worker, which waits for no more than that; and newcomers that wait for their turn, of all. For
/// one more the oldest is let go.
const OF_WORKER_MAX: usize = 1_024;
const WAITING_MAX: usize = 1_024;

/// Below the workers, which must not wait for handshakes on a busy machine (nice(2)).
const NICE: i32 = 10;

/// A handshake of which its worker says nothing any more is forgotten after so long; workers wait for ten seconds.
const TIME_MAX: Duration = Duration::from_secs(15);

/// Why there is no DTLS with the certificates that there are.
pub(crate) const NO_IDENTITY: &str = "relay.dtls_listen: none of tls.certificates has an ECDSA key (P-256 or P-384), as \
                                      DTLS needs here";

/// What comes into the thread's mailbox.
#[derive(Debug)]
pub struct Input {
    /// Whose relay.
    pub worker: WorkerId,
    /// Which of its clients.
    pub association: AssociationId,
    /// What it has sent, or that nobody waits for it.
    pub input: HandshakeInput,
}

/// Starts the thread. It ends when nobody has its mailbox any more.
///
/// # Errors
/// When none of the certificates can be shown, or the thread cannot be started.
pub fn start(plane: &Arc<Plane>, certificates: Arc<Certificates>) -> anyhow::Result<(Mailbox<Input>, JoinHandle<()>)> {
    // What is to be obtained may not be there yet.
    ensure!(certificates.obtains() || certificates.identity().is_some(), NO_IDENTITY);
    let identity = move || certificates.identity();
    let (inputs, receiver) = mailbox(MAILBOX).context("making a mailbox")?;
    let plane = plane.clone();
    let tell = move |worker, command| match command {
        // The client asks for it again.
        Command::Handshake { step: HandshakeStep::Send(_), .. } => {
            plane.workers().offer(worker, Message::Relay(command));
        }
        command => {
            plane.workers().post(worker, Message::Relay(command));
        }
    };
    let body = move || run(Handshakes::new(identity, tell), &receiver);
    let thread = thread::Builder::new().name("dtls".into()).spawn(body).context("starting the thread for DTLS")?;
    Ok((inputs, thread))
}

fn run<I, T>(mut handshakes: Handshakes<I, T>, inputs: &Receiver<Input>)
where
    I: Fn() -> Option<Identity>,
    T: FnMut(WorkerId, Command),
{
    if let Err(error) = engine::sys::set_nice(NICE) {
        tracing::debug!(%error, "cannot lower the priority of the thread for DTLS");
    }
    loop {
        let is_idle = handshakes.waiting.is_empty();
        let timeout = handshakes.poll_timeout().map(|at| at.saturating_duration_since(Instant::now()));
        match inputs.recv_timeout(if is_idle { timeout } else { Some(Duration::ZERO) }) {
            Ok(input) => {
                handshakes.handle(Instant::now(), input);
                for input in std::iter::from_fn(|| inputs.try_recv()).take(BATCH) {
                    handshakes.handle(Instant::now(), input);
                }
            }
            Err(RecvError::Timeout) => {}
            Err(RecvError::Closed) => return,
        }
        handshakes.handle_timeout(Instant::now());
        handshakes.begin_next(Instant::now());
    }
}

/// Which of all workers' clients.
type Key = (WorkerId, AssociationId);

/// All that go on. `identity` says who we are, `tell` takes what workers are to hear.
struct Handshakes<I, T> {
    identity: I,
    tell: T,
    /// By worker, the oldest first: associations are numbered.
    all: BTreeMap<Key, Entry>,
    due: BTreeSet<(Instant, Key)>,
    /// Those that have not begun.
    waiting: VecDeque<(Key, Numbers, Box<[u8]>)>,
    /// It was said that there is none.
    lacks_identity: bool,
}

struct Entry {
    handshake: Handshake,
    /// When it has something to do, as it stands in `due`.
    at: Instant,
    until: Instant,
}

impl<I, T> Handshakes<I, T>
where
    I: Fn() -> Option<Identity>,
    T: FnMut(WorkerId, Command),
{
    fn new(identity: I, tell: T) -> Self {
        let (all, due, waiting) = (BTreeMap::new(), BTreeSet::new(), VecDeque::new());
        Handshakes { identity, tell, all, due, waiting, lacks_identity: false }
    }

    /// Takes what a worker has.
    fn handle(&mut self, now: Instant, Input { worker, association, input }: Input) {
        let key = (worker, association);
        match input {
            HandshakeInput::End => self.forget(key),
            HandshakeInput::Datagram(datagram) => self.step(now, key, Some(&datagram)),
            HandshakeInput::Begin { numbers, hello } => {
                self.waiting.push_back((key, numbers, hello));
                if self.waiting.len() > WAITING_MAX
                    && let Some((oldest, ..)) = self.waiting.pop_front()
                {
                    self.fail(oldest);
                }
            }
        }
    }

    /// Begins the handshake that has waited longest.
    fn begin_next(&mut self, now: Instant) {
        let Some((key, numbers, hello)) = self.waiting.pop_front() else { return };
        let of_worker = (key.0, AssociationId(0))..=(key.0, AssociationId(u64::MAX));
        let mut all = self.all.range(of_worker).map(|(key, _)| *key);
        if let Some(oldest) = all.next()
            && all.count() >= OF_WORKER_MAX - 1
        {
            self.fail(oldest);
        }
        let identity = (self.identity)();
        if identity.is_none() && !std::mem::replace(&mut self.lacks_identity, true) {
            tracing::warn!("no client comes in by DTLS until then: {NO_IDENTITY}");
        }
        let Some(identity) = identity else { return self.fail(key) };
        self.lacks_identity = false;
        let until = now + TIME_MAX;
        let entry = Entry { handshake: Handshake::new(&identity, now, numbers), at: until, until };
        self.due.insert((until, key));
        self.all.insert(key, entry);
        self.step(now, key, Some(&hello));
    }

    /// Sends again what was not answered, and forgets whom nobody waits for.
    fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, key)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            match self.all.get(&key) {
                Some(entry) if now < entry.until => self.step(now, key, None),
                _ => self.fail(key),
            }
        }
    }

    /// When that has something to do.
    fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn step(&mut self, now: Instant, key: Key, datagram: Option<&[u8]>) {
        let Some(entry) = self.all.get_mut(&key) else { return };
        let progress = entry.handshake.handle(now, datagram);
        // A timer that is due all the same comes a little later.
        let at = entry.handshake.poll_timeout().map_or(entry.until, |at| at.max(now + TICK).min(entry.until));
        self.due.remove(&(std::mem::replace(&mut entry.at, at), key));
        self.due.insert((at, key));
        match progress {
            Ok(Progress::Answers(datagrams)) => {
                datagrams.into_iter().for_each(|datagram| self.tell(key, HandshakeStep::Send(datagram)));
            }
            Ok(Progress::Done(established)) => {
                self.forget(key);
                self.tell(key, HandshakeStep::Done(Box::new(established)));
            }
            Err(error) => {
                tracing::debug!(%error, "a handshake by DTLS has failed");
                self.fail(key);
            }
        }
    }

    fn fail(&mut self, key: Key) {
        self.forget(key);
        self.tell(key, HandshakeStep::Failed);
    }

    fn forget(&mut self, key: Key) {
        match self.all.remove(&key) {
            Some(entry) => drop(self.due.remove(&(entry.at, key))),
            None => self.waiting.retain(|(waiting, ..)| *waiting != key),
        }
    }

    fn tell(&mut self, (worker, association): Key, step: HandshakeStep) {
        (self.tell)(worker, Command::Handshake { association, step });
    }
}

/// How soon a timer may be due again.
const TICK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use dtls::Numbers;

    use super::*;

    const ANYBODY: Key = (WorkerId(1), AssociationId(7));

    /// What one input makes of handshakes, by the names of the steps, and how many are left.
    fn handled(identity: Option<Identity>, inputs: Vec<HandshakeInput>) -> (Vec<&'static str>, usize) {
        let (now, mut steps) = (Instant::now(), Vec::new());
        let tell = |worker, command| {
            let Command::Handshake { association, step } = command else { panic!("{command:?}") };
            assert_eq!((worker, association), ANYBODY);
            steps.push(match step {
                HandshakeStep::Send(_) => "send",
                HandshakeStep::Done(_) => "done",
                HandshakeStep::Failed => "failed",
            });
        };
        let mut handshakes = Handshakes::new(|| identity.clone(), tell);
        for input in inputs {
            handshakes.handle(now, Input { worker: ANYBODY.0, association: ANYBODY.1, input });
            handshakes.begin_next(now);
        }
        let left = handshakes.all.len();
        assert_eq!(handshakes.due.len(), left);
        handshakes.handle_timeout(now + TIME_MAX);
        assert!(handshakes.all.is_empty() && handshakes.poll_timeout().is_none());
        (steps, left)
    }

    fn input(worker: u16, association: u64, input: HandshakeInput) -> Input {
        Input { worker: WorkerId(worker), association: AssociationId(association), input }
    }

    /// The end of a handshake may be lost on its way here.
    #[test]
    fn of_one_worker_so_many_go_on_and_the_oldest_goes_when_its_end_was_not_heard() {
        let (now, identity) = (Instant::now(), Identity::made_up().expect("randomness"));
        let mut failed = Vec::new();
        let tell = |worker: WorkerId, command| match command {
            Command::Handshake { association, step: HandshakeStep::Failed } => failed.push((worker.0, association.0)),
            other => panic!("{other:?}"),
        };
        let mut handshakes = Handshakes::new(|| Some(identity.clone()), tell);
        handshakes.handle(now, input(2, 0, begin()));
        handshakes.begin_next(now);
        for number in 0..OF_WORKER_MAX as u64 + 2 {
            handshakes.handle(now, input(1, number << 32 | 5, begin()));
            handshakes.begin_next(now);
        }
        assert_eq!((handshakes.all.len(), handshakes.due.len()), (OF_WORKER_MAX + 1, OF_WORKER_MAX + 1));
        assert_eq!(failed, [(1, 5), (1, 1 << 32 | 5)]);
    }

    #[test]
    fn newcomers_wait_while_others_go_on_and_so_many_do() {
        let (now, identity) = (Instant::now(), Identity::made_up().expect("randomness"));
        let mut failed = Vec::new();
        let tell = |_, command| match command {
            Command::Handshake { association, step: HandshakeStep::Failed } => failed.push(association.0),
            other => panic!("{other:?}"),
        };
        let mut handshakes = Handshakes::new(|| Some(identity.clone()), tell);
        for number in 0..WAITING_MAX as u64 + 2 {
            handshakes.handle(now, input(1, number, begin()));
        }
        handshakes.handle(now, input(1, 2, HandshakeInput::End));
        assert_eq!((handshakes.waiting.len(), handshakes.all.len()), (WAITING_MAX - 1, 0));
        handshakes.begin_next(now);
        assert_eq!(
            handshakes.all.keys().next(),
            Some(&(WorkerId(1), AssociationId(3))),
            "nobody waits for that before it"
        );
        drop(handshakes);
        assert_eq!(failed, [0, 1]);
    }

    fn begin() -> HandshakeInput {
        HandshakeInput::Begin { numbers: Numbers { record: 1, message: 1 }, hello: [0; 30].into() }
    }

    #[test]
    fn one_of_whom_nothing_is_heard_is_forgotten() {
        let identity = || Some(Identity::made_up().expect("randomness"));
        assert_eq!(handled(identity(), vec![begin()]), (vec!["failed"], 1));
        assert_eq!(handled(identity(), vec![begin(), HandshakeInput::End]), (vec![], 0));
        assert_eq!(handled(identity(), vec![HandshakeInput::Datagram([1; 9].into())]), (vec![], 0));
        assert_eq!(handled(None, vec![begin()]), (vec!["failed"], 0));
    }
}
