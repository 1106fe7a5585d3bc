//! Packets of one stream on their way to another worker: a value, copied once per worker and never once per viewer.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::packet::{PacketMeta, Place, SenderClock};
use crate::spec::{StreamId, WorkerId};

/// What one worker's rooms tell another's.
#[derive(Debug)]
pub enum Post {
    Packets(Box<Batch>),
    /// Somebody over here needs a keyframe of that layer.
    KeyframeWanted {
        stream: StreamId,
        track: u8,
        layer: u8,
    },
    /// The publisher's clock, from its sender report.
    Clock {
        stream: StreamId,
        track: u8,
        layer: u8,
        clock: SenderClock,
    },
}

/// The packets of a stream that arrived together.
#[derive(Debug)]
pub struct Batch {
    pub stream: StreamId,
    pub from: WorkerId,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: Place,
    meta: PacketMeta,
    extensions_len: u16,
    payload_len: u16,
}

/// One packet of a batch.
pub struct BatchPacket<'a> {
    pub place: Place,
    pub meta: &'a PacketMeta,
    pub extensions: &'a [u8],
    pub payload: &'a [u8],
}

/// Packets in a batch at most; a full one is posted and the next begun.
const BATCH_PACKETS: usize = 128;

impl Batch {
    fn new() -> Self {
        Batch { stream: StreamId(0), from: WorkerId(0), entries: Vec::with_capacity(BATCH_PACKETS), bytes: Vec::new() }
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() >= BATCH_PACKETS
    }

    pub fn push(&mut self, place: Place, meta: &PacketMeta, extensions: &[u8], payload: &[u8]) {
        let (extensions_len, payload_len) = (extensions.len() as u16, payload.len() as u16);
        self.entries.push(Entry { place, meta: *meta, extensions_len, payload_len });
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
            BatchPacket { place: entry.place, meta: &entry.meta, extensions, payload }
        })
    }
}

/// Batches that nobody uses now, shared by all workers. When it is empty a new batch is made; when full, one is freed.
#[derive(Clone, Debug)]
pub struct BatchPool(Arc<ArrayQueue<Box<Batch>>>);

impl BatchPool {
    pub fn new(size: usize) -> Self {
        BatchPool(Arc::new(ArrayQueue::new(size.max(1))))
    }

    pub fn take(&self, stream: StreamId, from: WorkerId) -> Box<Batch> {
        let mut batch = self.0.pop().unwrap_or_else(|| Box::new(Batch::new()));
        batch.stream = stream;
        batch.from = from;
        batch
    }

    pub fn give(&self, mut batch: Box<Batch>) {
        batch.entries.clear();
        batch.bytes.clear();
        // A full pool has enough: the batch is freed.
        let _ = self.0.push(batch);
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
        let place = Place { track: 0, layer: 1, epoch: 5 };
        batch.push(place, &meta, &[9], &[1, 2, 3]);
        meta.seq = 2;
        batch.push(place, &meta, &[], &[4]);
        let seen: Vec<_> = batch
            .packets()
            .map(|packet| (packet.place, packet.meta.seq, packet.extensions.to_vec(), packet.payload.to_vec()))
            .collect();
        assert_eq!(seen, [(place, 1, vec![9], vec![1, 2, 3]), (place, 2, vec![], vec![4])]);
        pool.give(batch);
        assert_eq!(pool.take(StreamId(5), WorkerId(0)).packets().count(), 0);
    }
}
