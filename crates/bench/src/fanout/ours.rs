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
use engine::{CountersSnapshot, Mailbox, Receiver, mailbox};
use rooms::batch::{BatchPool, Post};
use rooms::pacer::Burst;
use rooms::packet::{LayerStart, PacketMeta};
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, ExtensionIds, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, WorkerId,
};
use wire::codec::{Codec, PayloadInfo, PictureNumbers};
use wire::{Bitrate, Outbox, Product};

use super::schedulers::Bench;
use super::work::{Frame, Source, Track};
use crate::comparison::{Sample, spending};
use crate::sinks::bind_loopback;

/// Frames on their way to one worker. Here the publisher waits when there are more; the server would drop.
const MAILBOX_LEN: usize = 16;

/// How long it waits. Sleeping costs little; spinning would count as work.
const FULL_PAUSE: Duration = Duration::from_micros(50);

const STREAM: StreamId = StreamId(1);
const PUBLISHER: WorkerId = WorkerId(0);

/// Sends frames to `tracks` for one round; with `sends` off, everything but the sending.
pub(super) fn fan_out(bench: &Bench<'_>, source: &mut Source, tracks: &[Track], sends: bool) -> Result<Sample> {
    let pool = BatchPool::new(MAILBOX_LEN * bench.threads);
    let workers = bench.shares(tracks).map(|tracks| Worker::new(tracks, bench, &pool, sends));
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
        spending(|| {
            let start = Instant::now();
            while start.elapsed() < bench.time() {
                let frame = source.next_frame();
                for other in &others {
                    post(gatherer.gather(frame), other);
                }
                first.fan_out(gatherer.gather(frame));
                gatherer.seq += frame.packet_count() as u64;
            }
            // Without senders the mailboxes end, once they are empty.
            drop(others);
            let mut sample = first.sender.done();
            for thread in threads {
                sample += thread.join().expect("a worker does not panic");
            }
            Ok(sample)
        })
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
                picture: Some(PictureNumbers {
                    picture_id,
                    long_picture_id: true,
                    keeps_gaps: false,
                    tl0_pic_idx: None,
                }),
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

/// One worker with its rooms.
struct Worker {
    rooms: Rooms,
    sender: Sender,
}

impl Worker {
    fn new(tracks: &[Track], bench: &Bench<'_>, pool: &BatchPool, sends: bool) -> Result<Self> {
        let now = Instant::now();
        let mut sender = Sender::new(bench, sends)?;
        let mut rooms = Rooms::new(now, WorkerId(1), settings(), pool.clone());
        let spec = TrackSpec { codec: Codec::Vp8, profile: Default::default(), rids: Vec::new() };
        let mut command = |command| rooms.handle_command(now, command, &mut sender.out);
        command(Command::OpenStream(StreamSpec { id: STREAM, tracks: vec![spec] }));
        for (index, track) in tracks.iter().enumerate() {
            let session = SessionId(index as u64);
            command(Command::AddSession(PeerSpec { session, path: track.path, keys: track.keys.clone(), cname: None }));
            command(Command::Watch { session, stream: STREAM, tracks: vec![down_track(index as u32)] });
        }
        Ok(Worker { rooms, sender })
    }

    fn serve(&mut self, posts: &Receiver<Post>) -> Sample {
        while let Ok(post) = posts.recv_timeout(None) {
            self.fan_out(post);
        }
        self.sender.done()
    }

    fn fan_out(&mut self, post: Post) {
        let now = Instant::now();
        self.rooms.handle_post(now, post, &mut self.sender.out);
        loop {
            let more = self.rooms.poll_transmit(now, &mut self.sender.out);
            self.sender.flush();
            if !more {
                return;
            }
        }
    }
}

/// One thread's socket and outbox.
pub(super) struct Sender {
    socket: UdpSocket,
    pub(super) out: Outbox,
    queue: SendQueue,
    counts: CountersSnapshot,
    sends: bool,
    /// Datagrams that were written and not sent, because they are not to be.
    unsent: u64,
}

impl Sender {
    pub(super) fn new(bench: &Bench<'_>, sends: bool) -> Result<Self> {
        let socket = bind_loopback(&Options::default())?;
        let (out, counts) = (Outbox::new(bench.args.outbox_bytes()), CountersSnapshot::default());
        Ok(Sender { socket, out, queue: SendQueue::default(), counts, sends, unsent: 0 })
    }

    pub(super) fn flush(&mut self) {
        if self.sends {
            self.queue.send_outbox(&mut self.socket, &self.out, &mut self.counts);
        } else {
            self.unsent += self.out.runs().iter().map(|run| run.segment_count() as u64).sum::<u64>();
        }
        self.out.clear();
    }

    pub(super) fn done(&self) -> Sample {
        let (sent, refused) = (self.counts.datagrams_out + self.unsent, self.counts.dropped());
        Sample { sent, refused, ..Sample::default() }
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
    DownTrackSpec { track: 0, mid: Arc::from("0"), ssrc, payload_type: 96, rtx, red: None, extensions }
}
