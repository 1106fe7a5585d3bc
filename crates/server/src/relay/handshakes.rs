//! The thread that shakes hands with the relay's clients by DTLS, so that no worker has to.
//!
//! In: what workers' relays have of clients that have shown their cookies. Out: what to send them, keys.
//! Cost: some 0.3 ms for each, and memory for those that go on: workers say how many that may be.
//! Source: RFC 6347 §4.2, RFC 7350.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dtls::{Handshake, Identity, Progress};
use engine::{Mailbox, Receiver, RecvError, mailbox};
use relay::spec::{AssociationId, Command, HandshakeInput, HandshakeStep};
use wire::WorkerId;

use crate::plane::Plane;
use crate::tls::Certificates;
use crate::worker::Message;

/// What waits for the thread at most. A handshake of which something finds no room has failed, and its client begins anew.
const MAILBOX: usize = 8_192;

/// Inputs between two looks at the timers.
const BATCH: usize = 64;

/// Below the workers, which must not wait for handshakes on a busy machine (nice(2)).
const NICE: i32 = 10;

/// A handshake of which its worker says nothing any more is forgotten after so long; workers wait for ten seconds.
const TIME_MAX: Duration = Duration::from_secs(15);

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
    let identity = move || certificates.identity();
    ensure!(
        identity().is_some(),
        "relay.dtls_listen: none of tls.certificates has an ECDSA key (P-256 or P-384), as DTLS needs here"
    );
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
        let timeout = handshakes.poll_timeout().map(|at| at.saturating_duration_since(Instant::now()));
        match inputs.recv_timeout(timeout) {
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
    }
}

/// Which of all workers' clients.
type Key = (WorkerId, AssociationId);

/// All that go on. `identity` says who we are, `tell` takes what workers are to hear.
struct Handshakes<I, T> {
    identity: I,
    tell: T,
    all: HashMap<Key, Entry>,
    due: BTreeSet<(Instant, Key)>,
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
        Handshakes { identity, tell, all: HashMap::new(), due: BTreeSet::new() }
    }

    /// Takes what a worker has.
    fn handle(&mut self, now: Instant, Input { worker, association, input }: Input) {
        let key = (worker, association);
        let datagram = match input {
            HandshakeInput::End => return self.forget(key),
            HandshakeInput::Datagram(datagram) => datagram,
            HandshakeInput::Begin { numbers, hello } => {
                let Some(identity) = (self.identity)() else { return self.fail(key) };
                let until = now + TIME_MAX;
                let entry = Entry { handshake: Handshake::new(&identity, now, numbers), at: until, until };
                self.due.insert((until, key));
                self.all.insert(key, entry);
                hello
            }
        };
        self.step(now, key, Some(&datagram));
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
        if let Some(entry) = self.all.remove(&key) {
            self.due.remove(&(entry.at, key));
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
        }
        let left = handshakes.all.len();
        assert_eq!(handshakes.due.len(), left);
        handshakes.handle_timeout(now + TIME_MAX);
        assert!(handshakes.all.is_empty() && handshakes.poll_timeout().is_none());
        (steps, left)
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
