//! In the steady state a datagram takes no memory from the heap, straight from the chunk or rewritten or padded.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/allocations.rs"]
mod allocations;
#[path = "it/common.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use allocations::watched;
use common::Source;
use pump::fec::Fec;
use pump::pids::PidMap;
use pump::pump::Pump;
use pump::sample::{AUDIO_PID, Sample, VIDEO_PID};
use pump::spec::{Command, Event, Pacing, SessionId, SessionSpec, Settings, Transport};
use wire::ts::Pid;
use wire::{Bitrate, LinkId, Outbox, Path, Product as _};

/// A pump with 50 sessions that play a loop, its chunks made in advance.
struct Player {
    now: Instant,
    pump: Pump,
    out: Outbox,
    chunks: Vec<Arc<pump::chunk::Chunk>>,
    datagrams: u64,
    allocations: u64,
}

impl Player {
    fn new(change: impl Fn(&Source, &mut SessionSpec)) -> Player {
        let source = Source::sample(&Sample { pictures: 100, ..Sample::default() });
        let now = Instant::now();
        let chunks = (0..source.title.chunk_count()).map(|number| source.chunk(number)).collect();
        let (pump, out) = (Pump::new(now, Settings::default()), Outbox::new(512 * 1_024));
        let mut player = Player { now, pump, out, chunks, datagrams: 0, allocations: 0 };
        for number in 0..50 {
            let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], number as u16).into(), local: None };
            let mut spec = SessionSpec::new(SessionId(number), source.title.clone(), path);
            spec.play.looped = true;
            change(&source, &mut spec);
            player.pump.handle_command(now, Command::Open(Box::new(spec)));
        }
        player
    }

    fn play(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let Player { now, pump, out, chunks, datagrams, allocations } = self;
            let (count, ()) = watched(|| {
                pump.handle_timeout(*now, out);
                while pump.poll_transmit(*now, out) {
                    *datagrams += out.datagrams().count() as u64;
                    out.clear();
                }
                *datagrams += out.datagrams().count() as u64;
                out.clear();
                while let Some(event) = pump.poll_event() {
                    if let Event::Need { session, chunk } = event {
                        let chunk = chunks[chunk as usize].clone();
                        pump.handle_command(*now, Command::Chunk { session, chunk });
                    }
                }
            });
            *allocations += count;
            *now = pump.poll_timeout().unwrap_or(end);
        }
    }
}

fn steady_state_allocates_nothing(change: impl Fn(&Source, &mut SessionSpec)) {
    let mut player = Player::new(change);
    // Long enough for a loop: behind it every packet is looked at.
    player.play(Duration::from_secs(9));
    (player.datagrams, player.allocations) = (0, 0);
    player.play(Duration::from_secs(6));
    assert!(player.datagrams > 50 * 6 * 400, "{}", player.datagrams);
    assert_eq!(player.allocations, 0);
}

#[test]
fn datagrams_of_a_looped_title_cost_no_allocation() {
    steady_state_allocates_nothing(|_, _| {});
}

#[test]
fn rtp_datagrams_cost_no_allocation() {
    let transport = Transport::Rtp { ssrc: 1, first_seq: 2, first_timestamp: 3 };
    steady_state_allocates_nothing(|_, spec| spec.transport = transport);
}

#[test]
fn parity_costs_no_allocation() {
    steady_state_allocates_nothing(|_, spec| {
        spec.transport = Transport::Rtp { ssrc: 1, first_seq: 2, first_timestamp: 3 };
        spec.play.fec = Fec::new(10, 5, true);
    });
}

#[test]
fn padded_datagrams_cost_no_allocation() {
    steady_state_allocates_nothing(|_, spec| spec.play.pacing = Pacing::Padded(Bitrate::from_kbps(5_000)));
}

#[test]
fn datagrams_with_other_pids_cost_no_allocation() {
    steady_state_allocates_nothing(|source, spec| {
        let rename = [(VIDEO_PID, Pid::new(0x200).unwrap()), (AUDIO_PID, Pid::new(0x201).unwrap())];
        spec.pids = Some(Arc::new(PidMap::new(&source.title, None, &rename)));
    });
}

#[test]
fn the_watch_sees_an_allocation() {
    let (count, _) = watched(|| std::hint::black_box(Box::new(1)));
    assert_eq!(count, 1);
}
