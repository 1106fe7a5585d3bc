//! The server's own way, with the server's own parts: pool, mailbox, outbox and GSO sends.
//!
//! The publisher's worker copies a frame once for each other worker, and posts it. Every worker writes the whole frame
//! for one down track, then for the next, straight into its outbox, and never waits for another.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::udp::{Options, SendQueue, UdpSocket};
use engine::{Mailbox, Pool, Receiver, mailbox};
use wire::{LinkId, Outbox, Path};

use super::cpu::{Spent, Stopwatch};
use super::schedulers::{Bench, Tally, share};
use super::work::{Frame, Source, Track};

/// Frames on their way to one worker. Here the publisher waits when there are more; a server would drop.
const MAILBOX_LEN: usize = 16;

/// How long it waits. Sleeping costs little; spinning would count as work.
const FULL_PAUSE: Duration = Duration::from_micros(50);

/// Sends frames to `tracks` for `time`; with `sends` off, everything but the sending.
pub(super) fn fan_out(
    bench: &Bench,
    source: &mut Source,
    tracks: &[Track],
    time: Duration,
    sends: bool,
) -> Result<(Spent, Tally)> {
    let mut workers = workers(bench, tracks, sends)?;
    let pool = Pool::new(MAILBOX_LEN * bench.threads, Frame::default);
    thread::scope(|scope| {
        let mut others = Vec::new();
        let mut threads = Vec::new();
        let mut first = workers.remove(0);
        for mut worker in workers.drain(..).filter(|worker| !worker.tracks.is_empty()) {
            let (sender, receiver) = mailbox(MAILBOX_LEN).context("open a mailbox")?;
            others.push(sender);
            let pool = &pool;
            threads.push(scope.spawn(move || worker.serve(&receiver, pool)));
        }

        let stopwatch = Stopwatch::start()?;
        let start = Instant::now();
        while start.elapsed() < time {
            let frame = source.next_frame();
            for other in &others {
                post(frame, other, &pool);
            }
            first.fan_out(frame);
        }
        // Without senders the mailboxes end, once they are empty.
        drop(others);
        let mut total = first.tally();
        for thread in threads {
            total += thread.join().expect("a worker does not panic");
        }
        Ok((stopwatch.stop()?, total))
    })
}

/// Sends ready-made bytes, as many and as large as `fan_out` does.
pub(super) fn floor(bench: &Bench, tracks: &[Track], time: Duration) -> Result<(Spent, Tally)> {
    let mut workers = workers(bench, tracks, true)?;
    workers.iter_mut().for_each(Worker::fill_outbox);
    let (burst, len) = (bench.shape.burst, bench.shape.datagram_len);
    thread::scope(|scope| {
        let stopwatch = Stopwatch::start()?;
        let threads = workers.into_iter().filter(|worker| !worker.tracks.is_empty()).map(|mut worker| {
            scope.spawn(move || {
                let start = Instant::now();
                while start.elapsed() < time {
                    worker.each_slot(burst, |_, _, _| len);
                }
                worker.tally()
            })
        });
        let threads: Vec<_> = threads.collect();
        let mut total = Tally::default();
        for thread in threads {
            total += thread.join().expect("a worker does not panic");
        }
        Ok((stopwatch.stop()?, total))
    })
}

fn workers<'a>(bench: &Bench, tracks: &'a [Track], sends: bool) -> Result<Vec<Worker<'a>>> {
    (0..bench.threads).map(|index| Worker::new(share(tracks, index, bench.threads), bench, sends)).collect()
}

fn post(frame: &Frame, to: &Mailbox<Box<Frame>>, pool: &Pool<Frame>) {
    let mut copy = pool.take();
    copy.copy_from(frame);
    while let Err(back) = to.send(copy) {
        copy = back;
        thread::sleep(FULL_PAUSE);
    }
}

/// One worker and the down tracks that it owns.
struct Worker<'a> {
    tracks: &'a [Track],
    socket: UdpSocket,
    out: Outbox,
    queue: SendQueue,
    sends: bool,
    /// Datagrams that were written and not sent, because they are not to be.
    unsent: u64,
}

impl<'a> Worker<'a> {
    fn new(tracks: &'a [Track], bench: &Bench, sends: bool) -> Result<Self> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = UdpSocket::bind(any_port, &Options::default()).context("bind a sending socket on 127.0.0.1")?;
        let out = Outbox::new(bench.outbox_bytes);
        Ok(Worker { tracks, socket, out, queue: SendQueue::new(), sends, unsent: 0 })
    }

    fn serve(&mut self, frames: &Receiver<Box<Frame>>, pool: &Pool<Frame>) -> Tally {
        while let Ok(frame) = frames.recv_timeout(None) {
            self.fan_out(&frame);
            pool.give(frame);
        }
        self.tally()
    }

    fn fan_out(&mut self, frame: &Frame) {
        self.each_slot(frame.packet_count(), |track, packet, slot| track.write(frame, packet, slot));
    }

    /// Touches every byte, so that what is sent unwritten does not all come from the kernel's one page of zeros.
    fn fill_outbox(&mut self) {
        while let Some(slot) = self.out.slot() {
            slot.fill(0xa5);
            let len = slot.len();
            self.out.commit(&Path { link: LinkId(0), remote: self.socket.local_addr(), local: None }, len);
        }
        self.out.clear();
    }

    /// Lets `write` fill a slot for each packet of each down track, and sends them all.
    #[inline]
    fn each_slot(&mut self, packets: usize, mut write: impl FnMut(&Track, usize, &mut [u8]) -> usize) {
        for track in self.tracks {
            for packet in 0..packets {
                if !self.out.has_room() {
                    self.flush();
                }
                let Some(slot) = self.out.slot() else { return };
                let len = write(track, packet, slot);
                self.out.commit(&track.path, len);
            }
        }
        self.flush();
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
