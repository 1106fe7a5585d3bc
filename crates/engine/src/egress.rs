//! The way out of a worker: the outbox, and what it is flushed to.

use std::time::Instant;

use wire::{LinkKind, Outbox};

use crate::counters::CountersSnapshot;
use crate::links::Links;
use crate::udp::SendQueue;

/// The outbox of a worker, and all that it leads to.
pub(crate) struct Egress {
    pub(crate) out: Outbox,
    pub(crate) links: Links,
    queue: SendQueue,
    pub(crate) counts: CountersSnapshot,
}

impl Egress {
    pub(crate) fn new(out: Outbox, links: Links) -> Self {
        Egress { out, links, queue: SendQueue::new(), counts: CountersSnapshot::default() }
    }

    /// Flushes when there is no room for as many datagrams, or for a request. `received` is what is being handled.
    #[inline]
    pub(crate) fn make_room(&mut self, datagrams: usize, received: &[u8]) {
        if !self.out.has_room_for(datagrams) || !self.out.has_room_for_request() {
            self.flush(received);
        }
    }

    /// Flushes what lies where it was received, as other things are received next.
    #[inline]
    pub(crate) fn let_go_of(&mut self, received: &[u8]) {
        if self.out.points_at_received() {
            self.flush(received);
        }
    }

    /// Hands everything in the outbox to the kernel, row by row of runs that leave by the same link, and then does what is
    /// requested. `received` is what is being handled.
    pub(crate) fn flush(&mut self, received: &[u8]) {
        self.queue.begin_flush();
        for runs in self.out.runs().chunk_by(|one, next| one.path.link == next.path.link) {
            let [first, ..] = runs else { continue };
            let link = first.path.link;
            match self.links.udp(link) {
                Some((_, socket)) => self.queue.send_runs(socket, (&self.out, received), runs, &mut self.counts),
                None if link.kind() == LinkKind::Framed => {
                    self.links.send_frames(link, (&self.out, received), runs, &mut self.counts);
                }
                None => self.counts.dropped_no_link += runs.iter().map(|run| run.segment_count() as u64).sum::<u64>(),
            }
        }
        self.links.flush_frames(&mut self.counts);
        self.links.send_pieces(&self.out, &mut self.counts);
        self.out.clear();
        debug_assert!(self.out.is_empty() && !self.out.points_at_received(), "all has left or is counted");
        if self.out.has_requests() {
            let now = Instant::now();
            for request in self.out.take_requests() {
                self.links.handle_request(now, request, &mut self.counts);
            }
        }
    }
}
