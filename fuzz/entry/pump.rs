//! What the fuzz target of the pump does with its bytes: take them for a title, read and index it, and play it through
//! loops, seeks, pauses and late chunks. Shared by the fuzz target and by `crates/pump/tests`, which replays the corpus.
//!
//! The first six bytes say how; what follows is the title.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::chunk::Chunk;
use pump::fec::Fec;
use pump::index::{Found, Index};
use pump::monitor::Monitor;
use pump::pids::PidMap;
use pump::pump::Pump;
use pump::spec::{Command, Event, Pacing, SessionId, SessionSpec, Settings, Transport, WhenStarved};
use pump::title::Title;
use pump::trick::{Pick, Picker};
use wire::ts::{DATAGRAM_PACKETS, PACKET_LEN, Pid};
use wire::{Bitrate, LinkId, Outbox, Path, Product as _};

/// Turns of the worker that are played at most.
const TURNS: usize = 400;

const SESSION: SessionId = SessionId(1);
const PORT: u16 = 1;

pub fn pump(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first_chunk::<6>() else { return };
    let chunk_packets = 7 + u32::from(how[5] % 32);
    let Ok(title) = Title::probe(bytes, bytes.len() as u64, chunk_packets) else { return };
    let title = Arc::new(title);
    let chunks: Vec<_> = (0..title.chunk_count()).map(|number| Arc::new(chunk(&title, number, bytes))).collect();
    let index = index(&title, &chunks);
    play(&how, &title, &chunks, &index);
}

fn chunk(title: &Title, number: u32, bytes: &[u8]) -> Chunk {
    let range = title.chunk_range(number);
    let chunk = Chunk::scan(title, number, bytes[range.start as usize..range.end as usize].to_vec());
    assert!(chunk.packet_count() <= title.chunk_packets());
    let end = chunk.first + u64::from(chunk.packet_count());
    assert!(chunk.marks.windows(2).all(|pair| pair[0].position < pair[1].position));
    assert!(chunk.marks.iter().all(|mark| (chunk.first..end).contains(&mark.position)));
    for picture in &chunk.pictures {
        assert!(picture.start < chunk.packet_count() && picture.end.is_none_or(|end| end > picture.start));
    }
    chunk
}

/// A search ends, whatever was read before it.
fn index(title: &Title, chunks: &[Arc<Chunk>]) -> Index {
    let mut index = Index::new(title);
    for time in [0, 40, 1_000, u64::MAX] {
        let mut reads = 0;
        while let Some(Found::Read(number)) = index.find(Duration::from_millis(time)) {
            index.add(&chunks[number as usize]);
            reads += 1;
            assert!(reads <= chunks.len(), "a chunk was asked for twice");
        }
        match index.find(Duration::from_millis(time)) {
            Some(Found::At(position)) => assert!(position <= title.packet_count()),
            _ => assert!(title.slope.is_none()),
        }
    }
    chunks.iter().rev().for_each(|chunk| index.add(chunk));
    let is_whole = (0..title.chunk_count()).all(|number| index.is_known(number));
    assert!(title.slope.is_none() || (index.end_needs(), is_whole) == (None, true));
    // When all is known nothing is left to be read, for any time that a packet has.
    for position in (0..=title.packet_count()).step_by(7) {
        let Some(time) = index.time_at(position) else { break };
        let Some(Found::At(found)) = index.find(time) else { panic!("all is known") };
        assert!(found <= title.packet_count());
    }
    for picture in index.pictures() {
        assert!(picture.from < title.packet_count() && picture.to > picture.from);
    }
    index
}

fn play(how: &[u8; 6], title: &Arc<Title>, chunks: &[Arc<Chunk>], index: &Index) {
    let start = Instant::now();
    let mut now = start;
    let mut pump = Pump::new(now, Settings::default());
    let mut out = Outbox::new(20_000);
    let mut monitor = Monitor::new(Some(Bitrate::from_kbps(4_500)));
    pump.handle_command(now, Command::Open(Box::new(spec(how, title))));
    let mut is_over = false;
    for turn in 0..TURNS {
        pump.handle_timeout(now, &mut out);
        while pump.poll_transmit(now, &mut out) {
            take(&mut out, &mut monitor, now - start, is_over);
        }
        take(&mut out, &mut monitor, now - start, is_over);
        while let Some(event) = pump.poll_event() {
            match event {
                Event::Need { chunk, .. } if how[4] & 0x80 == 0 || turn % 5 != 0 => {
                    pump.handle_command(
                        now,
                        Command::Chunk { session: SESSION, chunk: chunks[chunk as usize].clone() },
                    );
                }
                Event::Need { chunk, .. } => {
                    let chunk = Arc::new(Chunk::hole(title, chunk));
                    pump.handle_command(now, Command::Chunk { session: SESSION, chunk });
                }
                Event::PicturesWanted { run, .. } if how[4] & 0x40 != 0 => {
                    // Who has no more does not answer.
                    let Some(first) = index.pictures().first().copied() else { continue };
                    let at_ns = 1_000_000 * turn as i64;
                    let picks = [Pick { from: first.from, to: first.to, at_ns, until_ns: at_ns + 1 }].into();
                    pump.handle_command(now, Command::MorePictures { session: SESSION, picks, run });
                }
                Event::SessionEnded { .. } => is_over = true,
                _ => {}
            }
        }
        if turn % 64 == 63
            && let Some(command) = command(how[4], turn / 64, title, index)
        {
            pump.handle_command(now, command);
        }
        let Some(next) = pump.poll_timeout() else { continue };
        now = now.max(next);
    }
    let _ = (pump.counters(), monitor.report());
}

fn take(out: &mut Outbox, monitor: &mut Monitor, at: Duration, is_over: bool) {
    for (path, datagram) in out.datagrams() {
        assert!(!is_over, "nothing is sent behind the end");
        if path.remote.port() > PORT {
            // Parity.
            continue;
        }
        let (_, packets) = wire::ts::datagram_packets(datagram).expect("whole packets");
        assert_eq!(packets.len(), DATAGRAM_PACKETS);
        monitor.handle_datagram(at.as_nanos() as u64, datagram);
    }
    out.clear();
}

fn spec(how: &[u8; 6], title: &Arc<Title>) -> SessionSpec {
    let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], PORT).into(), local: None };
    let mut spec = SessionSpec::new(SESSION, title.clone(), path);
    let rate = Bitrate::from_kbps(64 << (how[0] >> 4));
    spec.play.pacing = match how[0] % 3 {
        0 => Pacing::Clock,
        1 => Pacing::Rate(rate),
        _ => Pacing::Padded(rate),
    };
    (spec.play.looped, spec.play.restamp) = (how[1] & 1 != 0, how[1] & 2 != 0);
    if how[1] & 4 != 0 {
        spec.transport = Transport::Rtp { ssrc: 1, first_seq: 2, first_timestamp: 3 };
        spec.play.fec = Fec::new(4, 4, how[3] & 1 != 0);
    }
    if how[1] & 8 != 0 {
        spec.play.when_starved = WhenStarved::Nulls;
    }
    if how[1] & 16 != 0 {
        let rename = [(Pid::new(0x100).expect("13 bits"), Pid::new(0x200).expect("13 bits"))];
        let keep: Vec<Pid> = title.video.iter().map(|(pid, _)| *pid).collect();
        spec.pids = Some(Arc::new(PidMap::new(title, (how[1] & 32 != 0).then_some(&keep[..]), &rename)));
    }
    spec.play.is_monitored = how[1] & 64 != 0;
    if how[1] & 128 != 0 {
        spec.play.burst_start = Duration::from_millis(u64::from(how[3]) * 20);
    }
    spec.play.burst = Some(how[2]);
    spec.start = u64::from(how[3]);
    spec.play.speed_permille = 1_000 + u32::from(how[2] >> 4) * 100;
    spec
}

fn command(how: u8, turn: usize, title: &Title, index: &Index) -> Option<Command> {
    match (how >> (turn % 4)) & 7 {
        0 => Some(Command::Seek { session: SESSION, to: title.packet_count() / 2 }),
        1 => Some(Command::Pause(SESSION)),
        2 => Some(Command::Resume(SESSION)),
        3 => Some(Command::Seek { session: SESSION, to: 0 }),
        4 => {
            let mut picker = Picker::new(2_000, title.slope?, Duration::from_millis(10));
            let pictures = index.pictures().into_iter();
            let picks =
                pictures.filter_map(|picture| picker.push(picture.from, picture.to, picture.time.as_nanos() as i128));
            Some(Command::Trick { session: SESSION, picks: picks.collect(), run: 1 })
        }
        5 => Some(Command::SetEnd { session: SESSION, end: Some(title.packet_count() * 3 / 4) }),
        6 => Some(Command::AwaitStart { session: SESSION, token: 1 }),
        _ => Some(Command::Resume(SESSION)),
    }
}

/// A row of packets without a title around it, for the receiver's measures.
pub fn monitor(data: &[u8]) {
    let mut monitor = Monitor::new(Some(Bitrate::from_kbps(1_000)));
    for (count, datagram) in data.chunks(2 * PACKET_LEN).enumerate() {
        monitor.handle_datagram(count as u64 * 300_000_000, datagram);
    }
    let report = monitor.report();
    assert!(report.lost >= report.loss_rate_max);
}
