//! The pump's cases: streams of one title on a pump, with a clock that is set.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use pump::chunk::Chunk;
use pump::pump::Pump;
use pump::sample::Sample;
use pump::spec::{Command, Event, SessionId, SessionSpec, Settings};
use pump::title::{CHUNK_PACKETS, Title};
use wire::{LinkId, Outbox, Path, Product as _};

use crate::region::Region;

const STREAMS: u64 = 32;

/// Datagrams of a burst.
const BURST: u8 = 4;

/// How long is counted: some 107 bursts of 4.5 Mbit/s for each stream.
const COUNTED: Duration = Duration::from_secs(1);

/// Streams that play, and the chunks of their title.
struct Pumping {
    pump: Pump,
    out: Outbox,
    now: Instant,
    chunks: Vec<Arc<Chunk>>,
}

/// Bursts of four datagrams. When `is_changed`, the streams were paused once, so each packet's clock is later.
///
/// # Errors
/// When not all of what was due was sent.
pub fn bursts(region: &mut Region, is_changed: bool) -> Result<()> {
    let mut pumping = Pumping::new()?;
    pumping.run(Duration::from_millis(100));
    if is_changed {
        let sessions = || (0..STREAMS).map(SessionId);
        sessions().for_each(|session| pumping.command(Command::Pause(session)));
        pumping.run(Duration::from_millis(50));
        sessions().for_each(|session| pumping.command(Command::Resume(session)));
        pumping.run(Duration::from_millis(100));
    }
    let due = STREAMS * COUNTED.as_nanos() as u64 / (2_339_555 * u64::from(BURST));
    let datagrams = region.count(due, || pumping.run(COUNTED));
    let bursts = datagrams / u64::from(BURST);
    ensure!(bursts.abs_diff(due) <= STREAMS, "{bursts} bursts and not {due}");
    Ok(())
}

impl Pumping {
    fn new() -> Result<Self> {
        let bytes = Sample { pictures: 75, ..Sample::default() }.make();
        let title = Title::probe(&bytes, bytes.len() as u64, CHUNK_PACKETS).context("read the title")?;
        let title = Arc::new(title);
        let chunks = (0..title.chunk_count()).map(|number| {
            let range = title.chunk_range(number);
            Arc::new(Chunk::scan(&title, number, bytes[range.start as usize..range.end as usize].to_vec()))
        });
        let (chunks, now) = (chunks.collect(), Instant::now());
        let mut pumping =
            Pumping { pump: Pump::new(now, Settings::default()), out: Outbox::new(256 << 10), now, chunks };
        for number in 0..STREAMS {
            let path = Path { link: LinkId::datagrams(0), remote: ([192, 0, 2, 1], number as u16).into(), local: None };
            let mut spec = SessionSpec::new(SessionId(number), Arc::clone(&title), path);
            spec.play.burst = Some(BURST);
            pumping.command(Command::Open(Box::new(spec)));
        }
        Ok(pumping)
    }

    fn command(&mut self, command: Command) {
        self.pump.handle_command(self.now, command);
        self.give_chunks();
    }

    fn give_chunks(&mut self) {
        while let Some(event) = self.pump.poll_event() {
            if let Event::Need { session, chunk } = event
                && let Some(chunk) = self.chunks.get(chunk as usize)
            {
                self.pump.handle_command(self.now, Command::Chunk { session, chunk: Arc::clone(chunk) });
            }
        }
    }

    /// Lets the clock run; returns the datagrams that were sent.
    fn run(&mut self, span: Duration) -> u64 {
        let (end, mut datagrams) = (self.now + span, 0);
        while let Some(at) = self.pump.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.pump.handle_timeout(self.now, &mut self.out);
            while self.pump.poll_transmit(self.now, &mut self.out) {
                datagrams += self.sent();
            }
            datagrams += self.sent();
            self.give_chunks();
        }
        self.now = end;
        datagrams
    }

    fn sent(&mut self) -> u64 {
        let datagrams = self.out.runs().iter().map(|run| run.segment_count() as u64).sum();
        self.out.clear();
        datagrams
    }
}
