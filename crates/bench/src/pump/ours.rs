//! The server's own way, by the server's own code: `pump::Pump` on an engine worker, with its outbox and GSO sends.
//!
//! Chunks lie ready in memory and are handed over on the worker: what reading them costs is not in it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::{Mailbox, Service, Socket, Worker, WorkerConfig, WorkerHandle};
use pump::pump::Pump;
use pump::spec::{Command, Counters, Event, PlaySpec, SessionId, SessionSpec, Settings};
use wire::{DatagramRun, LinkId, Outbox, Path, Token, UdpOptions};

use super::scene::{Scene, Stream};
use super::window::{Tally, since};
use super::{Case, Sample};

/// For how long a worker's numbers are waited for.
const ANSWER_MAX: Duration = Duration::from_secs(10);

pub(super) fn run(scene: &Scene, case: &Case<'_>) -> Result<Sample> {
    let workers = (0..case.args.workers).map(|index| start(&scene.share(index, case.args.workers), case, index));
    let workers: Vec<Running> = workers.collect::<Result<_>>()?;
    let mut counted: Vec<Vec<Counted>> = Vec::new();
    let measured = case.window().measure(|| {
        counted.push(workers.iter().map(Running::counted).collect::<Result<_>>()?);
        Ok(())
    })?;
    for worker in workers {
        worker.handle.stop().context("stop a worker")?;
    }
    let mut tally = Tally::default();
    if let [before, after] = &counted[..] {
        for (before, after) in before.iter().zip(after) {
            tally += Tally {
                sent: after.sent - before.sent,
                refused: after.dropped - before.dropped,
                lateness: since(&after.pump.lateness, &before.pump.lateness),
            };
        }
    }
    Ok(Sample::new(scene, measured, tally))
}

struct Running {
    handle: WorkerHandle<Message>,
    mailbox: Mailbox<Message>,
}

/// What a worker has done so far.
struct Counted {
    pump: Counters,
    sent: u64,
    dropped: u64,
}

impl Running {
    fn counted(&self) -> Result<Counted> {
        let (reply, answer) = sync_channel(1);
        let asked = self.mailbox.send(reply);
        asked.map_err(|_| anyhow::anyhow!("a worker's mailbox is full"))?;
        let pump = *answer.recv_timeout(ANSWER_MAX).context("a worker does not answer")?;
        let counters = self.handle.counters();
        Ok(Counted { pump, sent: counters.datagrams_out, dropped: counters.dropped() })
    }
}

fn start(streams: &[Arc<Stream>], case: &Case<'_>, index: usize) -> Result<Running> {
    let config = WorkerConfig {
        name: format!("pump-{index}"),
        sockets: vec![Socket::udp(Token::default(), (Ipv4Addr::UNSPECIFIED, 0).into(), UdpOptions::default())],
        ..WorkerConfig::default()
    };
    let bound = Worker::bind(config).context("bind a worker's socket")?;
    let mailbox = bound.mailbox();
    let settings = Settings { tick: case.args.tick(), ..Settings::default() };
    let (streams, burst) = (streams.to_vec(), case.burst);
    let handle = bound.run(move || PumpService::new(streams, burst, settings)).context("start a worker")?;
    Ok(Running { handle, mailbox })
}

/// Asks what the pump has counted.
type Message = SyncSender<Box<Counters>>;

struct PumpService {
    pump: Pump,
    /// By session.
    streams: Vec<Arc<Stream>>,
}

impl PumpService {
    fn new(streams: Vec<Arc<Stream>>, burst: u8, settings: Settings) -> Self {
        let now = Instant::now();
        let mut service = PumpService { pump: Pump::new(now, settings), streams };
        for (session, stream) in service.streams.iter().enumerate() {
            let path = Path { link: LinkId::datagrams(0), remote: stream.to, local: None };
            let title = Arc::clone(&stream.content.title);
            let spec = SessionSpec::new(SessionId(session as u64), title, path);
            let play = PlaySpec { burst: Some(burst), ..PlaySpec::default() };
            let spec = SessionSpec { play, start: stream.start_packets(), ..spec };
            service.pump.handle_command(now, Command::Open(Box::new(spec)));
        }
        service.hand_over(now);
        service
    }

    /// Gives the pump the chunks that it asked for.
    fn hand_over(&mut self, now: Instant) {
        while let Some(event) = self.pump.poll_event() {
            if let Event::Need { session, chunk } = event
                && let Some(stream) = self.streams.get(session.0 as usize)
                && let Some(chunk) = stream.content.chunks.get(chunk as usize)
            {
                self.pump.handle_command(now, Command::Chunk { session, chunk: Arc::clone(chunk) });
            }
        }
    }
}

impl Service for PumpService {
    type Message = Message;

    fn handle_run(&mut self, _: Instant, _: DatagramRun<'_>, _: &mut Outbox) {}

    fn handle_message(&mut self, _: Instant, reply: Message, _: &mut Outbox) {
        // Nobody listens any more: then nobody needs it.
        let _ = reply.send(Box::new(self.pump.counters().clone()));
    }

    fn handle_timeout(&mut self, now: Instant, _: &mut Outbox) {
        self.pump.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pump.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let has_more = self.pump.poll_transmit(now, out);
        self.hand_over(now);
        has_more
    }
}
