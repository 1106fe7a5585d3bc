//! Packets of one stream on their way to another worker: a value, copied once per worker and never once per viewer.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::keyframe::Urgency;
use crate::packet::{LayerStart, PacketMeta, SenderClock};
use crate::spec::{StreamId, WorkerId};

/// What one worker's rooms tell another's.
#[derive(Debug)]
pub enum Post {
    /// Packets of a stream that has viewers over there.
    Packets(Box<Batch>),
    /// Somebody over here needs a keyframe of that layer.
    KeyframeWanted {
        /// Whose publisher is over there.
        stream: StreamId,
        /// Index of the track in the stream.
        track: u8,
        /// Index of the layer in the track.
        layer: u8,
        /// How soon.
        urgency: Urgency,
    },
    /// The publisher's clock, from its sender report.
    Clock {
        /// A stream that has viewers over there.
        stream: StreamId,
        /// Index of the track in the stream.
        track: u8,
        /// Index of the layer in the track.
        layer: u8,
        /// What the report said.
        clock: SenderClock,
    },
}

/// The packets of a stream that arrived together.
#[derive(Debug)]
pub struct Batch {
    /// The stream that the packets are of.
    pub stream: StreamId,
    /// The worker that has the publisher.
    pub from: WorkerId,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: LayerStart,
    meta: PacketMeta,
    extensions_len: u16,
    payload_len: u16,
}

/// One packet of a batch.
pub struct BatchPacket<'a> {
    /// Where it belongs.
    pub start: LayerStart,
    /// What is known about it.
    pub meta: &'a PacketMeta,
    /// Header extensions to be passed on, as `passthrough` gathers them.
    pub extensions: &'a [u8],
    /// What stands behind the header, without padding.
    pub payload: &'a [u8],
}

/// Packets in a batch at most; a full one is posted and the next begun.
const BATCH_PACKETS: usize = 128;

impl Batch {
    fn new() -> Self {
        Batch { stream: StreamId(0), from: WorkerId(0), entries: Vec::with_capacity(BATCH_PACKETS), bytes: Vec::new() }
    }

    /// Whether it holds `BATCH_PACKETS`.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= BATCH_PACKETS
    }

    /// Appends a packet. The batch is not full.
    pub fn push(&mut self, start: LayerStart, meta: &PacketMeta, extensions: &[u8], payload: &[u8]) {
        debug_assert!(!self.is_full(), "a full batch is posted");
        let (extensions_len, payload_len) = (extensions.len() as u16, payload.len() as u16);
        self.entries.push(Entry { start, meta: *meta, extensions_len, payload_len });
        self.bytes.extend_from_slice(extensions);
        self.bytes.extend_from_slice(payload);
    }

    /// The packets, in the order of their arrival.
    pub fn packets(&self) -> impl Iterator<Item = BatchPacket<'_>> {
        let mut rest = &self.bytes[..];
        self.entries.iter().map(move |entry| {
            let (extensions, tail) = rest.split_at(entry.extensions_len.into());
            let (payload, tail) = tail.split_at(entry.payload_len.into());
            rest = tail;
            BatchPacket { start: entry.start, meta: &entry.meta, extensions, payload }
        })
    }
}

/// Batches that nobody uses now, shared by all workers. When it is empty a new batch is made; when full, one is freed.
#[derive(Clone, Debug)]
pub struct BatchPool(Arc<ArrayQueue<Box<Batch>>>);

impl BatchPool {
    /// Keeps up to `size` batches.
    pub fn new(size: usize) -> Self {
        BatchPool(Arc::new(ArrayQueue::new(size.max(1))))
    }

    /// An empty batch for packets of `stream`, which `from` has.
    pub fn take(&self, stream: StreamId, from: WorkerId) -> Box<Batch> {
        let mut batch = self.0.pop().unwrap_or_else(|| Box::new(Batch::new()));
        batch.stream = stream;
        batch.from = from;
        batch
    }

    /// Takes a batch back.
    pub fn give(&self, mut batch: Box<Batch>) {
        batch.entries.clear();
        batch.bytes.clear();
        // A full pool has enough: the batch is freed.
        let _ = self.0.push(batch);
    }
}

/// The way from one worker's rooms to others'.
#[derive(Debug)]
pub struct Posts {
    from: WorkerId,
    /// Takes back batches whose packets are stored, or lost.
    pub pool: BatchPool,
    /// What waits, oldest first. It is fetched after each call that may have added to it.
    pub queue: VecDeque<(WorkerId, Post)>,
}

impl Posts {
    /// The way from `from`, empty.
    pub fn new(from: WorkerId, pool: BatchPool) -> Self {
        Posts { from, pool, queue: VecDeque::new() }
    }

    /// An empty batch for packets of `stream`.
    pub fn batch(&self, stream: StreamId) -> Box<Batch> {
        self.pool.take(stream, self.from)
    }

    /// Queues a post.
    pub fn push(&mut self, to: WorkerId, post: Post) {
        self.queue.push_back((to, post));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use wire::codec::PayloadInfo;

    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let pool = BatchPool::new(1);
        let mut batch = pool.take(StreamId(4), WorkerId(1));
        let mut meta =
            PacketMeta { seq: 1, timestamp: 2, arrival: Instant::now(), marker: true, payload: PayloadInfo::default() };
        let start = LayerStart { track: 0, layer: 1, epoch: 5 };
        batch.push(start, &meta, &[9], &[1, 2, 3]);
        meta.seq = 2;
        batch.push(start, &meta, &[], &[4]);
        let seen: Vec<_> = batch
            .packets()
            .map(|packet| (packet.start, packet.meta.seq, packet.extensions.to_vec(), packet.payload.to_vec()))
            .collect();
        assert_eq!(seen, [(start, 1, vec![9], vec![1, 2, 3]), (start, 2, vec![], vec![4])]);
        pool.give(batch);
        assert_eq!(pool.take(StreamId(5), WorkerId(0)).packets().count(), 0);
    }
}
