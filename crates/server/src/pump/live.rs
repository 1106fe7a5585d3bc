//! Live inputs: what is received once and played by many sessions.
//!
//! A datagram's way: the input's thread receives it → `pump::live::Live` makes chunks, each with the times at which its
//! packets are due → `Command::LiveChunk` to every worker that has sessions of the input, one message for all of them.
//! A chunk waits for a worker that is behind, in the order of all that control has for it. A worker for which `WAITING_MAX`
//! of an input's chunks wait has hung, and gets no more of them until it has taken some.
//! Only inputs that were configured are received. Locks: control's before an input's; an input's thread takes its own.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use engine::sys::{BufferSide, group_socket, join_group, set_buffer_bytes, udp_socket, wait_readable};
use pump::live::{Counters, Live, Settings, Start};
use pump::spec::{Command, InputId, LiveSpec, Pacing};
use pump::title::Title;
use wire::WorkerId;

use super::control::{PumpControl, PumpError};
use super::request::{ChangeRequest, OpenRequest};
use super::setup::interface_index;
use crate::config::LiveInput;
use crate::plane::workers::{Posted, Workers};
use crate::worker::Message;

/// What the titles of inputs begin with.
const PREFIX: &str = "live/";

/// A thread looks so often whether it is still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// Datagrams that are received before others may have the input's lock.
const BATCH: usize = 64;

/// What the kernel keeps while the thread does not run: a second of 60 Mbit/s and more.
const SOCKET_BUFFER: usize = 8 << 20;

/// Largest datagram.
const DATAGRAM_MAX: usize = 65_536;

/// Chunks of an input that wait for one worker at most. Each has 20 ms and more, so that it may stand still for two seconds.
const WAITING_MAX: usize = 100;

#[derive(Debug)]
pub(super) struct Input {
    id: InputId,
    config: LiveInput,
    /// Where it is received.
    local: SocketAddr,
    state: Mutex<State>,
    /// Chunks for workers that have hung.
    dropped: AtomicU64,
}

#[derive(Debug)]
struct State {
    live: Live,
    receivers: Vec<Receiver>,
}

/// What a worker has of an input.
#[derive(Debug, Default)]
struct Receiver {
    sessions: usize,
    /// Each chunk that waits for the worker has this too.
    ticket: Arc<()>,
}

/// An input and how it does.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// As it was configured.
    pub config: LiveInput,
    /// Where it is received: `config` may leave the port to the system.
    pub local: SocketAddr,
    /// From whom it is.
    pub source: Option<SocketAddr>,
    /// What its thread counted and measured, and who plays it on all workers.
    pub counters: Counters,
}

impl PumpControl {
    /// Begins to receive. To be called once.
    ///
    /// # Errors
    /// When an address or group cannot be had, or a thread cannot be started.
    pub fn start_live(self: &Arc<Self>, configs: &[LiveInput]) -> anyhow::Result<()> {
        let mut all = Vec::with_capacity(configs.len());
        for (index, config) in configs.iter().enumerate() {
            let context = || format!("the live input {:?} (see pump.live)", config.name);
            let socket = bind(config).with_context(context)?;
            let local = socket.local_addr().with_context(context)?;
            let settings = Settings { delay: config.delay, source: config.source };
            let state =
                State { live: Live::new(Instant::now(), settings), receivers: receivers(self.plane().workers()) };
            let input = Arc::new(Input {
                id: InputId(index as u32),
                config: config.clone(),
                local,
                state: Mutex::new(state),
                dropped: AtomicU64::new(0),
            });
            let (control, received) = (Arc::downgrade(self), input.clone());
            let body = move || received.run(&socket, &control);
            thread::Builder::new().name("live".into()).spawn(body).with_context(context)?;
            all.push(input);
        }
        self.live.set(all).map_err(|_| anyhow::anyhow!("live inputs are started once"))
    }

    /// All inputs and how they do.
    pub fn live_inputs(&self) -> Vec<Inspected> {
        let now = Instant::now();
        let inspect = |input: &Arc<Input>| {
            let state = input.lock();
            let counters = Counters {
                sessions: state.receivers.iter().map(|receiver| receiver.sessions as u64).sum(),
                dropped: input.dropped.load(Ordering::Relaxed),
                ..state.live.counters(now)
            };
            Inspected { config: input.config.clone(), local: input.local, source: state.live.source(), counters }
        };
        self.inputs().map(inspect).collect()
    }

    /// The input that a title's name means.
    pub(super) fn input(&self, title: &str) -> Option<&Arc<Input>> {
        let name = title.strip_prefix(PREFIX)?;
        self.inputs().find(|input| input.config.name == name)
    }

    fn inputs(&self) -> impl Iterator<Item = &Arc<Input>> {
        self.live.get().into_iter().flatten()
    }
}

impl Input {
    /// What comes, once that is known.
    pub(super) fn title(&self) -> Result<Arc<Title>, PumpError> {
        let state = self.lock();
        state.live.title().filter(|_| state.live.start().is_some()).cloned().ok_or(PumpError::NoSignal)
    }

    /// Where a session begins, and goes on after a pause.
    pub(super) fn start(&self) -> Option<Start> {
        self.lock().live.start()
    }

    /// A session begins on a worker: from here on that gets its chunks. To be called before it is opened.
    pub(super) fn add_session(&self, worker: WorkerId, workers: &Workers) -> Result<LiveSpec, PumpError> {
        let mut state = self.lock();
        let State { live, receivers } = &mut *state;
        let start = live.start().ok_or(PumpError::NoSignal)?;
        let receiver = receivers.get_mut(worker.index()).ok_or(PumpError::Busy)?;
        if receiver.sessions == 0 {
            for chunk in live.kept().filter(|chunk| chunk.number >= start.chunk) {
                // They come together, and do not count.
                let (chunk, ticket) = (chunk.clone(), Arc::default());
                let command = Command::LiveChunk { input: self.id, chunk, oldest: start.chunk, ticket };
                workers.post(worker, Message::Pump(command));
            }
        }
        receiver.sessions += 1;
        Ok(LiveSpec { input: self.id, start })
    }

    /// A session is over.
    pub(super) fn remove_session(&self, worker: WorkerId, workers: &Workers) {
        let mut state = self.lock();
        let Some(receiver) = state.receivers.get_mut(worker.index()) else { return };
        receiver.sessions -= 1;
        if receiver.sessions == 0 {
            workers.post(worker, Message::Pump(Command::LiveGone(self.id)));
        }
    }

    /// Receives until nobody has the control plane any more. Meant to be a thread's body.
    fn run(&self, socket: &UdpSocket, control: &Weak<PumpControl>) {
        let mut buf = vec![0; DATAGRAM_MAX];
        tracing::info!(input = self.config.name, url = %self.config, "receiving");
        loop {
            let timeout = self.lock().live.poll_timeout().map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = wait_readable(socket.as_fd(), Some(timeout.unwrap_or(LOOK).min(LOOK))) {
                tracing::debug!(%error, input = self.config.name, "waiting for datagrams");
                thread::sleep(LOOK);
            }
            let Some(control) = control.upgrade() else { return };
            let mut state = self.lock();
            for _ in 0..BATCH {
                // What the kernel has to say of earlier datagrams is of no use here.
                let Ok((len, from)) = socket.recv_from(&mut buf) else { break };
                state.live.handle_datagram(Instant::now(), from, &buf[..len]);
            }
            state.live.handle_timeout(Instant::now());
            self.publish(&mut state, control.plane().workers());
        }
    }

    /// Sends new chunks to the workers that have sessions.
    fn publish(&self, state: &mut State, workers: &Workers) {
        while let Some((chunk, oldest)) = state.live.poll_chunk() {
            for (worker, receiver) in workers.ids().zip(&state.receivers).filter(|(_, receiver)| receiver.sessions > 0)
            {
                let has_room = receiver.waiting() < WAITING_MAX;
                let (chunk, ticket) = (chunk.clone(), receiver.ticket.clone());
                let command = Command::LiveChunk { input: self.id, chunk, oldest, ticket };
                if !has_room || workers.post(worker, Message::Pump(command)) == Posted::Refused {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under this lock")
    }
}

impl Receiver {
    fn waiting(&self) -> usize {
        Arc::strong_count(&self.ticket) - 1
    }
}

fn receivers(workers: &Workers) -> Vec<Receiver> {
    workers.ids().map(|_| Receiver::default()).collect()
}

/// A socket that gets what is sent to an input.
///
/// # Errors
/// When there is no such interface, or the address or group cannot be had.
pub(crate) fn bind(input: &LiveInput) -> anyhow::Result<UdpSocket> {
    let group = input.addr.ip().is_multicast();
    let socket = if group { group_socket(&input.addr) } else { udp_socket(&input.addr) };
    let socket = socket.with_context(|| format!("receiving at {}", input.addr))?;
    if group {
        let interface = interface_index(input.interface.as_deref())?;
        let joined = join_group(socket.as_fd(), input.addr.ip(), input.source, interface);
        joined.with_context(|| format!("joining the group {}", input.addr.ip()))?;
    }
    // A smaller one is better than none.
    if let Err(error) = set_buffer_bytes(socket.as_fd(), BufferSide::Receive, SOCKET_BUFFER) {
        tracing::warn!(%error, input = input.name, "the socket's buffer stays as it is");
    }
    Ok(socket)
}

/// What a live input has not.
///
/// # Errors
/// When that is asked for.
pub(super) fn check_open(request: &OpenRequest) -> Result<(), PumpError> {
    let refused = [
        ("start", !request.start.is_zero()),
        ("end", request.end.is_some()),
        ("loop", request.play.looped),
        ("speed", request.play.speed_permille != 1_000),
        ("rate", matches!(request.play.pacing, Pacing::Rate(_))),
        ("burst_start", !request.play.burst_start.is_zero()),
    ];
    refuse(&refused)
}

/// # Errors
/// When something is asked for that a live input has not.
pub(super) fn check_change(change: &ChangeRequest) -> Result<(), PumpError> {
    refuse(&[("seek", change.seek.is_some()), ("end", change.end.is_some()), ("scale", change.scale.is_some())])
}

fn refuse(keys: &[(&'static str, bool)]) -> Result<(), PumpError> {
    match keys.iter().find(|(_, is_asked)| *is_asked) {
        Some((key, _)) => Err(PumpError::Live(key)),
        None => Ok(()),
    }
}

#[cfg(test)]
impl Input {
    /// One of a worker that has a session of it. No thread receives.
    pub(super) fn pretended(start: Instant) -> Self {
        let config = LiveInput::new("a", "udp://127.0.0.1:0").expect("an input");
        let settings = Settings { delay: config.delay, source: config.source };
        let receivers = vec![Receiver { sessions: 1, ..Receiver::default() }];
        let state = Mutex::new(State { live: Live::new(start, settings), receivers });
        Input { id: InputId(0), config, local: ([127, 0, 0, 1], 1).into(), state, dropped: AtomicU64::new(0) }
    }

    /// Takes a stream, each datagram when it is due at its rate, hands out chunks and calls `taken` after each.
    pub(super) fn take(
        &self,
        start: Instant,
        (rate, bytes): (wire::Bitrate, &[u8]),
        workers: &Workers,
        mut taken: impl FnMut(usize),
    ) {
        let state = &mut *self.lock();
        for (index, part) in bytes.chunks(wire::ts::DATAGRAM_LEN).enumerate() {
            let bits = (index * wire::ts::DATAGRAM_LEN * 8) as u64;
            let now = start + Duration::from_nanos(bits * 1_000_000_000 / rate.bps());
            state.live.handle_datagram(now, self.local, part);
            state.live.handle_timeout(now);
            self.publish(state, workers);
            taken(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::mailbox;
    use pump::sample::Sample;
    use wire::Bitrate;

    use super::*;

    #[test]
    fn for_a_worker_that_takes_nothing_so_many_chunks_wait_and_no_more() {
        let rate = Bitrate::from_kbps(2_000);
        let bytes = Sample { rate, pictures: 500, ..Sample::default() }.make();
        let (mailbox, worker) = mailbox(10_000).expect("a mailbox");
        let workers = Workers::pretended(vec![mailbox]);
        let start = Instant::now();
        let input = Input::pretended(start);
        let mut counts = Vec::new();
        input.take(start, (rate, &bytes), &workers, |index| {
            if index % 800 == 799 {
                // Four seconds have come in.
                let taken = std::iter::from_fn(|| worker.try_recv()).count();
                counts.push((taken, input.dropped.swap(0, Ordering::Relaxed) > 0));
            }
        });
        assert_eq!(counts, [(WAITING_MAX, true); 4]);
    }

    #[test]
    fn sockets_for_addresses_and_groups_can_be_had() {
        for url in ["udp://127.0.0.1:0", "udp://@239.255.77.9:0"] {
            let input = LiveInput::new("a", url).and_then(|input| input.with("interface", "lo")).expect("an input");
            bind(&input).unwrap_or_else(|error| panic!("{url}: {error:#}"));
        }
        let nowhere = LiveInput::new("a", "udp://192.0.2.77:0").expect("an input");
        assert!(bind(&nowhere).is_err());
        let elsewhere = LiveInput::new("a", "udp://@239.255.77.9:0").and_then(|input| input.with("interface", "none7"));
        assert!(bind(&elsewhere.expect("an input")).is_err());
    }
}
