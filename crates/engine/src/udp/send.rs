//! The way out: runs to messages, messages to the kernel, and what to do when it refuses one.

#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use wire::{Outbox, Run, RunBytes, source_network};

use super::UdpSocket;
use crate::CountersSnapshot;
use crate::sys::{self, Outgoing, Payload, SendBatch};

/// For how long one flush waits for full sockets, all in all. Then it drops: media that is later than this is late.
const STALL_MAX: Duration = Duration::from_millis(2);

/// Pause after ENOBUFS: a queue below the socket is full, and nothing tells when it has room again.
const QUEUE_FULL_PAUSE: Duration = Duration::from_micros(200);

/// After a flush has waited so long for a queue below a socket and none had room, no other waits for one for this time. The
/// error does not name the queue, so what goes another way meanwhile says nothing of it.
const QUEUES_PAUSE: Duration = Duration::from_millis(100);

/// Refusals in a row, with no GSO send accepted in between, and destinations that they were for, until they count as the
/// socket's own fault. Linux refuses to split (EIO) also where an IPsec policy holds for the route, and EINVAL may be a small
/// path's: one destination alone must not make the sends to all others dearer.
const REFUSALS_MAX: u32 = 64;
const REFUSERS_MAX: usize = 3;

/// After so many in a row nobody else is sent anything that could be split, and it does not matter whose fault it is.
const REFUSALS_OF_FEW_MAX: u32 = 1_024;

/// Attempts for one message when errors may be those of others: what ICMP says, true or forged, fails one send each.
const RETRIES_MAX: u32 = 8;

/// Hands runs to the kernel. Serves any number of sockets in turn.
#[derive(Default)]
pub struct SendQueue {
    batch: SendBatch,
    /// For how long this flush may still wait.
    patience: Duration,
    /// Until when no flush waits for a queue below a socket.
    queues_paused_until: Option<Instant>,
    /// Errors that the next calls meet instead of the kernel.
    #[cfg(test)]
    faults: std::collections::VecDeque<i32>,
}

impl SendQueue {
    /// Sends all that is queued in `out`, whatever link it names, through `socket`. Everything is sent, or counted as
    /// dropped.
    pub fn send_outbox(&mut self, socket: &mut UdpSocket, out: &Outbox, counts: &mut CountersSnapshot) {
        self.begin_flush();
        self.send_runs(socket, (out, &[]), out.runs(), counts);
    }

    /// Comes before all `send_runs` of one flush.
    pub(crate) fn begin_flush(&mut self) {
        self.patience = STALL_MAX;
    }

    /// Sends `runs`, which are of `out`, through `socket`; `received` is where what was just received lies. Everything is
    /// sent, or counted as dropped.
    pub(crate) fn send_runs(
        &mut self,
        socket: &mut UdpSocket,
        (out, received): (&Outbox, &[u8]),
        runs: &[Run],
        counts: &mut CountersSnapshot,
    ) {
        let mut pieces = Pieces { out, runs, received, sent: 0, split_first: false, gso: socket.gso() };
        let mut retries = 0;
        while !pieces.is_empty() {
            counts.send_calls += 1;
            match self.send(socket, pieces.clone()) {
                Ok(count) => {
                    retries = 0;
                    socket.stalled = false;
                    count_sent(socket, pieces.by_ref().take(count), counts);
                }
                Err(error) => match Refusal::of(&error, pieces.first_is_gso()) {
                    Refusal::Interrupted => {}
                    Refusal::Full => {
                        counts.send_would_block += 1;
                        if self.patience.is_zero() || socket.stalled {
                            counts.dropped_socket_full +=
                                pieces.map(|piece| piece.datagram_count() as u64).sum::<u64>();
                            return;
                        }
                        // An error here shows again in the next send, where it is handled.
                        self.wait(|limit| drop(sys::wait_writable(socket.as_fd(), Some(limit))));
                        // Only who had all the time that there is.
                        socket.stalled = self.patience.is_zero();
                    }
                    Refusal::QueueFull => {
                        counts.send_queue_full += 1;
                        let is_paused = self.queues_paused_until.is_some_and(|until| Instant::now() < until);
                        if self.patience.is_zero() || is_paused {
                            // It has dropped this one; there may be room for the next, which goes another way perhaps.
                            counts.dropped_queue_full += pieces.next().map_or(0, |piece| piece.datagram_count() as u64);
                        } else {
                            self.wait(|limit| std::thread::sleep(limit.min(QUEUE_FULL_PAUSE)));
                            if self.patience.is_zero() {
                                self.queues_paused_until = Some(Instant::now() + QUEUES_PAUSE);
                            }
                        }
                    }
                    // On a socket that keeps refusals it may be what ICMP said of another path. What the kernel says itself is
                    // also among the refusals.
                    Refusal::TooLong if socket.hear_too_long(!socket.refusals) => {}
                    refusal @ (Refusal::Gso | Refusal::TooLong) if pieces.first_is_gso() => {
                        counts.gso_refused += 1;
                        pieces.split_first = true;
                        // What is too long is its path's fault, however often.
                        if let (Refusal::Gso, Some(run)) = (refusal, pieces.runs.first())
                            && socket.gso_refusals.add(run.path.remote.ip())
                        {
                            counts.gso_lowered += 1;
                            pieces.gso = false;
                            socket.lower_gso();
                        }
                    }
                    // On a socket that keeps refusals the error may be that of an earlier message.
                    Refusal::Message | Refusal::TooLong if socket.refusals && retries < RETRIES_MAX => retries += 1,
                    Refusal::Message | Refusal::TooLong | Refusal::Gso => {
                        retries = 0;
                        counts.dropped_refused += pieces.next().map_or(0, |piece| piece.datagram_count() as u64);
                    }
                },
            }
        }
    }

    /// Waits for room, as long as this flush may.
    fn wait(&mut self, for_room: impl FnOnce(Duration)) {
        let start = Instant::now();
        for_room(self.patience);
        self.patience = self.patience.saturating_sub(start.elapsed());
    }

    fn send<'a>(&mut self, socket: &UdpSocket, messages: impl Iterator<Item = Outgoing<'a>>) -> io::Result<usize> {
        #[cfg(test)]
        if let Some(errno) = self.faults.pop_front() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.batch.send(socket.as_fd(), messages)
    }
}

fn count_sent<'a>(socket: &mut UdpSocket, pieces: impl Iterator<Item = Outgoing<'a>>, counts: &mut CountersSnapshot) {
    for piece in pieces {
        counts.datagrams_out += piece.datagram_count() as u64;
        counts.bytes_out += piece.len_bytes() as u64;
        let datagram_bytes = piece.segment_bytes.map_or(piece.len_bytes(), usize::from);
        socket.datagram_bytes_max = socket.datagram_bytes_max.max(datagram_bytes);
        if piece.segment_bytes.is_some() {
            counts.gso_sends += 1;
            socket.gso_refusals.count = 0;
        }
    }
}

/// Refusals to split since the kernel split something, of one socket.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    count: u32,
    /// Whose the first ones were, and those of others.
    sources: [Option<IpAddr>; REFUSERS_MAX],
}

impl Refusals {
    /// One more, for a destination. True when it is the socket's fault by now.
    fn add(&mut self, remote: IpAddr) -> bool {
        if self.count == 0 {
            self.sources = [None; REFUSERS_MAX];
        }
        self.count += 1;
        let network = source_network(remote);
        if !self.sources.contains(&Some(network))
            && let Some(place) = self.sources.iter_mut().find(|place| place.is_none())
        {
            *place = Some(network);
        }
        let are_many = self.sources.iter().all(Option::is_some);
        self.count >= if are_many { REFUSALS_MAX } else { REFUSALS_OF_FEW_MAX }
    }
}

/// What a failed send means for the first of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// A signal came: once more.
    Interrupted,
    /// The socket is full: wait a little.
    Full,
    /// A queue below the socket is full, and has dropped the message: wait a little, and send it again.
    QueueFull,
    /// This message could not be split: send it datagram by datagram.
    Gso,
    /// It is longer than its path takes in one piece: the kernel is to make fragments.
    TooLong,
    /// Nothing is to be done for this message; others may well pass.
    Message,
}

impl Refusal {
    fn of(error: &io::Error, is_gso: bool) -> Self {
        match error.raw_os_error() {
            Some(libc::EINTR) => Refusal::Interrupted,
            Some(libc::EAGAIN) => Refusal::Full,
            Some(libc::ENOBUFS) => Refusal::QueueFull,
            Some(libc::EIO | libc::EINVAL) if is_gso => Refusal::Gso,
            Some(libc::EMSGSIZE) => Refusal::TooLong,
            _ => Refusal::Message,
        }
    }
}

/// The messages that runs become: one for each run, or one for each datagram where the kernel does not split.
#[derive(Clone)]
struct Pieces<'a> {
    out: &'a Outbox,
    runs: &'a [Run],
    received: &'a [u8],
    /// Datagrams of the first run that are done.
    sent: usize,
    /// The first run goes datagram by datagram.
    split_first: bool,
    gso: bool,
}

impl Pieces<'_> {
    fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    fn first_is_gso(&self) -> bool {
        self.clone().next().is_some_and(|piece| piece.segment_bytes.is_some())
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Outgoing<'a>;

    #[inline]
    fn next(&mut self) -> Option<Outgoing<'a>> {
        let (run, others) = self.runs.split_first()?;
        let (first, segment) = (self.sent, run.segment_size());
        let left = run.segment_count().checked_sub(first).filter(|left| *left > 0)?;
        let count = if self.gso && !self.split_first { left } else { 1 };
        let start = first * segment;
        let end = if count == left { run.len_bytes() } else { start + segment };
        let data = match self.out.run_bytes(run, self.received) {
            RunBytes::Whole(bytes) => Payload::Whole(bytes.get(start..end)?),
            RunBytes::Gathered(run) => Payload::Gathered { run, first, count, len: end - start },
        };
        self.sent += count;
        if count == left {
            (self.runs, self.sent, self.split_first) = (others, 0, false);
        }
        Some(Outgoing { path: &run.path, data, segment_bytes: (count > 1).then_some(segment as u16) })
    }
}
