//! The server's own way, by the server's own code: `pump::Pump` on an engine worker, with its outbox and GSO sends.
//!
//! Chunks lie ready in memory and are handed over on the worker: what reading them costs is not in it.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use counters::Published;
use engine::{Service, Socket, Worker, WorkerConfig, WorkerHandle};
use pump::pump::Pump;
use pump::spec::{Command, Counters, Event, PlaySpec, SessionId, SessionSpec, Settings};
use wire::ts::DATAGRAM_PACKETS;
use wire::{LinkId, Outbox, Path, Product, Token, UdpOptions};

use super::Case;
use super::scene::{Scene, Stream};
use super::window::since;
use crate::comparison::Sample;

pub(super) fn run(scene: &Scene, case: &Case<'_>) -> Result<Sample> {
    let workers = (0..case.args.workers).map(|index| start(&scene.share(index, case.args.workers), case, index));
    let workers: Vec<Running> = workers.collect::<Result<_>>()?;
    let mut counted: Vec<Vec<Sample>> = Vec::new();
    let mut sample = case.window().measure(|| counted.push(workers.iter().map(Running::counted).collect()))?;
    for worker in workers {
        worker.handle.stop().context("stop a worker")?;
    }
    if let [before, after] = &counted[..] {
        for (before, after) in before.iter().zip(after) {
            let (sent, refused) = (after.sent - before.sent, after.refused - before.refused);
            sample += Sample { sent, refused, lateness: since(&after.lateness, &before.lateness), ..Sample::default() };
        }
    }
    Ok(sample)
}

struct Running {
    handle: WorkerHandle<()>,
    pump: Published<Counters>,
}

impl Running {
    /// What the worker has done so far.
    fn counted(&self) -> Sample {
        let counters = self.handle.counters();
        let (sent, refused, lateness) = (counters.datagrams_out, counters.dropped(), self.pump.load().lateness);
        Sample { sent, refused, lateness, ..Sample::default() }
    }
}

fn start(streams: &[Arc<Stream>], case: &Case<'_>, index: usize) -> Result<Running> {
    let config = WorkerConfig {
        name: format!("pump-{index}"),
        sockets: vec![Socket::udp(Token::default(), (Ipv4Addr::UNSPECIFIED, 0).into(), UdpOptions::default())],
        ..WorkerConfig::default()
    };
    let bound = Worker::bind(config).context("bind a worker's socket")?;
    let settings = Settings { tick: case.args.tick(), ..Settings::default() };
    let (streams, burst, pump) = (streams.to_vec(), case.burst, Published::default());
    let counted = pump.clone();
    let handle = bound.run(move || PumpService::new(streams, burst, settings, counted)).context("start a worker")?;
    Ok(Running { handle, pump })
}

struct PumpService {
    pump: Pump,
    /// By session.
    streams: Vec<Arc<Stream>>,
    counted: Published<Counters>,
}

impl PumpService {
    fn new(streams: Vec<Arc<Stream>>, burst: u8, settings: Settings, counted: Published<Counters>) -> Self {
        let now = Instant::now();
        let mut service = PumpService { pump: Pump::new(now, settings), streams, counted };
        for (session, stream) in service.streams.iter().enumerate() {
            let path = Path { link: LinkId::datagrams(0), remote: stream.to, local: None };
            let title = Arc::clone(&stream.content.title);
            let spec = SessionSpec::new(SessionId(session as u64), title, path);
            let play = PlaySpec { burst: Some(burst), ..PlaySpec::default() };
            let spec = SessionSpec { play, start: stream.start * DATAGRAM_PACKETS as u64, ..spec };
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
    type Message = ();

    fn handle_message(&mut self, _: Instant, (): (), _: &mut Outbox) {}
}

impl Product for PumpService {
    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.pump.handle_timeout(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pump.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Outbox) -> bool {
        let has_more = self.pump.poll_transmit(now, out);
        self.hand_over(now);
        if !has_more {
            self.counted.store(self.pump.counters());
        }
        has_more
    }
}
