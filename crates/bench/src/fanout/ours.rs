//! The server's own way, by the server's own code: `rooms::Rooms` with a session for each down track, its batches between
//! workers, its outbox, and GSO sends by the engine.
//!
//! The publisher's frame is gathered in a batch for each worker, as for a worker without the publisher. Every worker
//! writes the whole frame for one viewer, then for the next, and never waits for another. What runs per packet is all
//! that runs in the server: log, renumbering, header extensions, records for NACK and bandwidth estimation, SRTP.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::udp::{Options, SendQueue, UdpSocket};
use engine::{Mailbox, Receiver, mailbox};
use rooms::batch::{BatchPool, Post};
use rooms::pacer::Burst;
use rooms::packet::{LayerStart, PacketMeta};
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, ExtensionIds, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, WorkerId,
};
use wire::codec::{Codec, MediaKind, PayloadInfo, Vp8Numbers};
use wire::{Bitrate, LinkId, Outbox, Path};

use super::schedulers::{Bench, Sample, Tally, share};
use super::work::{Frame, Source, Track};
use crate::sinks::bind_loopback;
use measure::cpu::Stopwatch;

/// Frames on their way to one worker. Here the publisher waits when there are more; the server would drop.
const MAILBOX_LEN: usize = 16;

/// How long it waits. Sleeping costs little; spinning would count as work.
const FULL_PAUSE: Duration = Duration::from_micros(50);

const STREAM: StreamId = StreamId(1);
const PUBLISHER: WorkerId = WorkerId(0);

/// Sends frames to `tracks` for `time`; with `sends` off, everything but the sending.
pub(super) fn fan_out(
    bench: &Bench,
    source: &mut Source,
    tracks: &[Track],
    time: Duration,
    sends: bool,
) -> Result<Sample> {
    let pool = BatchPool::new(MAILBOX_LEN * bench.threads);
    let shares = (0..bench.threads).map(|index| share(tracks, index, bench.threads)).filter(|share| !share.is_empty());
    let workers = shares.map(|tracks| Worker::new(tracks, bench, &pool, sends));
    let mut workers: Vec<Worker> = workers.collect::<Result<_>>()?;
    let mut gatherer = Gatherer { pool, seq: 1 << 16 };
    thread::scope(|scope| {
        let (mut others, mut threads) = (Vec::new(), Vec::new());
        let mut first = workers.remove(0);
        for mut worker in workers {
            let (sender, receiver) = mailbox(MAILBOX_LEN).context("open a mailbox")?;
            others.push(sender);
            threads.push(scope.spawn(move || worker.serve(&receiver)));
        }

        let stopwatch = Stopwatch::start()?;
        let start = Instant::now();
        while start.elapsed() < time {
            let frame = source.next_frame();
            for other in &others {
                post(gatherer.gather(frame), other);
            }
            first.fan_out(gatherer.gather(frame));
            gatherer.seq += frame.packet_count() as u64;
        }
        // Without senders the mailboxes end, once they are empty.
        drop(others);
        let mut tally = first.tally();
        for thread in threads {
            tally += thread.join().expect("a worker does not panic");
        }
        Ok(Sample { spent: stopwatch.stop()?, tally })
    })
}

/// Makes batches of frames.
struct Gatherer {
    pool: BatchPool,
    /// Extended sequence number of the next packet.
    seq: u64,
}

impl Gatherer {
    fn gather(&self, frame: &Frame) -> Post {
        let mut batch = self.pool.take(STREAM, PUBLISHER);
        let place = LayerStart { track: 0, layer: 0, epoch: 1 };
        for packet in 0..frame.packet_count() {
            let picture_id = Some((frame.timestamp / 3_000) as u16 & 0x7fff);
            let payload = PayloadInfo {
                starts_frame: packet == 0,
                keyframe: true,
                vp8: Some(Vp8Numbers { picture_id, long_picture_id: true, tl0_pic_idx: None }),
                ..PayloadInfo::default()
            };
            let meta = PacketMeta {
                seq: self.seq + packet as u64,
                timestamp: frame.timestamp,
                arrival: Instant::now(),
                marker: packet + 1 == frame.packet_count(),
                payload,
            };
            batch.push(place, &meta, &[], frame.payload(packet));
        }
        Post::Packets(batch)
    }
}

fn post(post: Post, to: &Mailbox<Post>) {
    let mut post = post;
    while let Err(back) = to.send(post) {
        post = back;
        thread::sleep(FULL_PAUSE);
    }
}

/// One worker with its rooms and its socket.
struct Worker {
    rooms: Rooms,
    socket: UdpSocket,
    out: Outbox,
    queue: SendQueue,
    sends: bool,
    /// Datagrams that were written and not sent, because they are not to be.
    unsent: u64,
}

impl Worker {
    fn new(tracks: &[Track], bench: &Bench, pool: &BatchPool, sends: bool) -> Result<Self> {
        let socket = bind_loopback(&Options::default())?;
        let mut out = Outbox::new(bench.outbox_bytes);
        let mut rooms = Rooms::new(Instant::now(), WorkerId(1), settings(), pool.clone());
        let spec = TrackSpec { kind: MediaKind::Video, codec: Codec::Vp8, clock_rate: 90_000, rids: Vec::new() };
        let open = Command::OpenStream(StreamSpec { id: STREAM, tracks: vec![spec] });
        rooms.handle_command(Instant::now(), open, &mut out);
        for (index, track) in tracks.iter().enumerate() {
            let session = SessionId(index as u64);
            let peer = PeerSpec { session, path: track.path, keys: track.keys.clone() };
            let tracks = vec![down_track(index as u32)];
            rooms.handle_command(Instant::now(), Command::AddSession(peer), &mut out);
            rooms.handle_command(Instant::now(), Command::Watch { session, stream: STREAM, tracks }, &mut out);
        }
        Ok(Worker { rooms, socket, out, queue: SendQueue::new(), sends, unsent: 0 })
    }

    fn serve(&mut self, posts: &Receiver<Post>) -> Tally {
        while let Ok(post) = posts.recv_timeout(None) {
            self.fan_out(post);
        }
        self.tally()
    }

    fn fan_out(&mut self, post: Post) {
        let now = Instant::now();
        self.rooms.handle_post(now, post, &mut self.out);
        loop {
            let more = self.rooms.poll_transmit(now, &mut self.out);
            self.flush();
            if !more {
                return;
            }
        }
    }

    fn flush(&mut self) {
        if self.sends {
            self.queue.send_outbox(&self.socket, &self.out);
        } else {
            self.unsent += self.out.runs().iter().map(|run| run.segment_count() as u64).sum::<u64>();
        }
        self.out.clear();
    }

    fn tally(&self) -> Tally {
        let stats = self.queue.stats();
        Tally { sent: stats.datagrams + self.unsent, refused: stats.dropped_full + stats.dropped_refused }
    }
}

/// The server's defaults, but for the pacer: here frames come as fast as they can be sent.
fn settings() -> Settings {
    let burst = Burst { packets: 64, rate_min: Bitrate::from_kbps(1_000_000_000) };
    Settings { burst, ..Settings::new(1, (Instant::now(), 0)) }
}

fn down_track(index: u32) -> DownTrackSpec {
    let extensions = ExtensionIds { transport_cc: Some(3), ..ExtensionIds::default() };
    let (ssrc, rtx) = (2 * index + 1, Some((2 * index + 2, 97)));
    DownTrackSpec { track: 0, mid: Arc::from("0"), ssrc, payload_type: 96, rtx, extensions }
}

/// Sends ready-made bytes, as many and as large as `fan_out` does.
pub(super) fn floor(bench: &Bench, tracks: &[Track], time: Duration) -> Result<Sample> {
    let shares = (0..bench.threads).map(|index| share(tracks, index, bench.threads)).filter(|share| !share.is_empty());
    let senders: Vec<Sender<'_>> = shares.map(|tracks| Sender::new(tracks, bench)).collect::<Result<_>>()?;
    thread::scope(|scope| {
        let stopwatch = Stopwatch::start()?;
        let run = |mut sender: Sender<'_>| {
            let start = Instant::now();
            while start.elapsed() < time {
                sender.send_frame(bench.shape.burst, bench.shape.datagram_len);
            }
            sender.queue.stats().to_owned()
        };
        let threads: Vec<_> = senders.into_iter().map(|sender| scope.spawn(move || run(sender))).collect();
        let mut tally = Tally::default();
        for thread in threads {
            let stats = thread.join().expect("a sender does not panic");
            tally += Tally { sent: stats.datagrams, refused: stats.dropped_full + stats.dropped_refused };
        }
        Ok(Sample { spent: stopwatch.stop()?, tally })
    })
}

/// Sends what lies in its outbox, whatever it is.
struct Sender<'a> {
    tracks: &'a [Track],
    socket: UdpSocket,
    out: Outbox,
    queue: SendQueue,
}

impl<'a> Sender<'a> {
    fn new(tracks: &'a [Track], bench: &Bench) -> Result<Self> {
        let (socket, mut out) = (bind_loopback(&Options::default())?, Outbox::new(bench.outbox_bytes));
        // Touches every byte, so that what is sent unwritten does not all come from the kernel's one page of zeros.
        while let Some(slot) = out.slot() {
            slot.fill(0xa5);
            let len = slot.len();
            out.commit(&Path { link: LinkId::datagrams(0), remote: socket.local_addr(), local: None }, len);
        }
        out.clear();
        Ok(Sender { tracks, socket, out, queue: SendQueue::new() })
    }

    fn send_frame(&mut self, packets: usize, len: usize) {
        for track in self.tracks {
            for _ in 0..packets {
                if !self.out.has_room() {
                    self.flush();
                }
                self.out.commit(&track.path, len);
            }
        }
        self.flush();
    }

    fn flush(&mut self) {
        self.queue.send_outbox(&self.socket, &self.out);
        self.out.clear();
    }
}
