//! The recent packets of one layer, stored once per worker and read by every down track.
//!
//! In: packets in the order of their arrival. Out: the packet at a position, as long as it is still there.
//! The log is the only queue between a publisher and its viewers: each down track has a position of its own in it, and
//! whoever is too slow finds its place gone (drop the oldest). NACKs are answered from it, too.
//!
//! It lies in chunks of `CHUNK_PACKETS`. With each chunk that begins, the oldest is used again when all of it is older than
//! `LogSize::span`, or when the log has `LogSize::bytes_max`; otherwise there is one more. So a log holds what came lately,
//! whatever the rate, nothing that was stored is ever moved, and a layer that nobody sends takes 1.2 KB.
//! Cost: one copy in, none out; no allocation while the rate stays as it is.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::packet::{Arrived, PacketMeta};

/// How much a log remembers. The older end goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// What is older goes, but for `CHUNKS_MIN` chunks.
    pub span: Duration,
    /// More is not kept, but for `CHUNKS_MIN` chunks and the one that is being filled.
    pub bytes_max: usize,
}

/// Packets of one chunk, a power of two.
const CHUNK_PACKETS: usize = 64;

/// The chunks that a slow layer keeps: at least 64 packets.
const CHUNKS_MIN: usize = 2;

/// Bytes that a first chunk has room for. A later one has room for what the one before took, and a quarter more.
const FIRST_BYTES: usize = 8 * 1_024;

/// A stored packet.
#[derive(Clone, Copy, Debug)]
pub struct Logged<'a> {
    /// What is known about it.
    pub meta: &'a PacketMeta,
    /// Header extensions that are passed on, see `passthrough`.
    pub extensions: &'a [u8],
    /// What stands behind the header.
    pub payload: &'a [u8],
    /// The payload size to which the packet is padded so that its frame goes out as one row of equal datagrams.
    pub padded_len: usize,
}

impl Logged<'_> {
    /// The same as a packet of nothing but padding.
    pub fn emptied(self) -> Self {
        Logged { extensions: &[], payload: &[], padded_len: 0, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    meta: PacketMeta,
    /// Where the bytes start in the chunk's.
    start: u32,
    extensions_len: u16,
    payload_len: u16,
    padded_len: u16,
}

/// Packets that follow each other.
#[derive(Debug, Default)]
struct Chunk {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
}

/// The packets of one layer.
#[derive(Debug, Default)]
pub struct Log {
    size: LogSize,
    /// Those of the positions from `oldest` on, each at the number of its first position modulo the table's size, which is
    /// a power of two. The others are empty.
    chunks: Vec<Chunk>,
    /// The first position that is still there.
    oldest: u64,
    /// Positions are counted since the log began; `head` is the one that the next packet gets.
    head: u64,
    keyframe: Option<u64>,
    /// Which sequence numbers of this epoch were stored.
    stored: Arrived,
    epoch: u32,
    /// Position of the publisher's first packet.
    start: u64,
    /// First position whose frame has not been evened out yet.
    ragged: u64,
}

/// Padding more than this per packet costs more than the send that it saves, in bytes.
const PADDING_MAX: u16 = 48;

impl Log {
    /// Nothing stored yet, and nothing allocated.
    pub fn new(size: LogSize) -> Self {
        Log { size, ..Log::default() }
    }

    /// Appends a packet. One that was stored already, or is too far behind the newest to tell, is not stored: what is
    /// stored twice would be sent twice under one number, and give an AES-GCM key away.
    pub fn push(&mut self, meta: &PacketMeta, extensions: &[u8], payload: &[u8]) {
        if extensions.len() + payload.len() > usize::from(u16::MAX) || !self.stored.is_new(meta.seq) {
            return;
        }
        self.stored.accept(meta.seq);
        if self.head.is_multiple_of(CHUNK_PACKETS as u64) {
            self.begin_chunk(meta.arrival);
        }
        let index = self.index(self.head);
        let Some(chunk) = self.chunks.get_mut(index) else { return };
        let start = chunk.bytes.len() as u32;
        chunk.bytes.extend_from_slice(extensions);
        chunk.bytes.extend_from_slice(payload);
        let (extensions_len, payload_len) = (extensions.len() as u16, payload.len() as u16);
        chunk.slots.push(Slot { meta: *meta, start, extensions_len, payload_len, padded_len: payload_len });
        if meta.payload.keyframe && meta.payload.starts_frame {
            // H.264 may bring parameter sets and picture in packets of their own: the first of them is the start.
            let is_same = self
                .keyframe
                .and_then(|position| self.slot(position))
                .is_some_and(|slot| slot.meta.timestamp == meta.timestamp);
            if !is_same {
                self.keyframe = Some(self.head);
            }
        }
        self.head += 1;
    }

    /// The highest sequence number since the publisher's start.
    pub fn newest(&self) -> Option<u64> {
        self.stored.newest()
    }

    /// Which of the publisher's starts the newest packets belong to.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Where the present publisher's packets begin.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The publisher starts anew: numbers and timestamps have nothing to do with what was before.
    pub fn restart(&mut self, epoch: u32) {
        debug_assert_ne!(self.epoch, epoch, "a start is counted once");
        self.epoch = epoch;
        self.start = self.head;
        self.keyframe = None;
        self.stored = Arrived::default();
    }

    /// Whether some of these sequence numbers of the present start have not come, as far as that is known.
    pub fn lacks_some(&self, seqs: Range<u64>) -> bool {
        self.stored.lacks_some(seqs)
    }

    /// The newest position whose low half is `low`.
    pub fn position_of(&self, low: u32) -> u64 {
        self.head.saturating_sub(u64::from((self.head as u32).wrapping_sub(low)))
    }

    /// The position that the next packet gets.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The packet at `position`, or `None` when it is gone or not there yet.
    #[inline(always)] // a `Logged` that stays in registers is not written to the stack and read back, 30 ns a packet
    pub fn at(&self, position: u64) -> Option<Logged<'_>> {
        let chunk = self.chunk(position)?;
        let slot = chunk.slots.get(place(position))?;
        let (extensions_len, payload_len) = (usize::from(slot.extensions_len), usize::from(slot.payload_len));
        let (extensions, rest) = chunk.bytes.get(slot.start as usize..)?.split_at_checked(extensions_len)?;
        Some(Logged {
            meta: &slot.meta,
            extensions,
            payload: rest.get(..payload_len)?,
            padded_len: slot.padded_len.into(),
        })
    }

    /// Where the newest keyframe starts, when it is still there whole.
    pub fn keyframe(&self) -> Option<u64> {
        self.keyframe.filter(|position| *position >= self.oldest)
    }

    /// Evens out the packets that were appended since the last call: those of one frame get the size of the largest,
    /// but for the frame's last one, which may be shorter in a GSO send anyway where nothing stands behind it. With more header
    /// extensions than the others, as last ones have, it would be longer than they are.
    pub fn even_out(&mut self, with_last: bool) {
        let mut first = self.ragged.max(self.oldest);
        while let Some(timestamp) = self.slot(first).map(|slot| slot.meta.timestamp) {
            let mut end = first;
            let mut largest = 0;
            while let Some(slot) = self.slot(end).filter(|slot| slot.meta.timestamp == timestamp) {
                largest = largest.max(slot.payload_len);
                end += 1;
            }
            let extensions_len = |position| self.slot(position).map(|slot| slot.extensions_len);
            let with_last = with_last && extensions_len(end.saturating_sub(1)) <= extensions_len(first);
            for position in first..end.saturating_sub(u64::from(!with_last)) {
                let Some(slot) = self.slot_mut(position) else { continue };
                if slot.payload_len > 0 && largest - slot.payload_len <= PADDING_MAX {
                    slot.padded_len = largest;
                }
            }
            first = end;
        }
        self.ragged = self.head;
    }

    /// Bytes of memory that the packets take.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Chunk::size).sum()
    }

    /// Makes room for the chunk that begins at `head`: the oldest one's, where it is not needed any more.
    fn begin_chunk(&mut self, now: Instant) {
        let mut chunk = None;
        // A second goes for good, so only when it is twice as old: a steady rate is to take no memory and give none back.
        for span in [self.size.span, self.size.span * 2] {
            let count = (self.head - self.oldest) as usize / CHUNK_PACKETS;
            let last = self.slot(self.oldest + CHUNK_PACKETS as u64 - 1);
            let is_past = last.is_some_and(|slot| now.saturating_duration_since(slot.meta.arrival) > span);
            if count < CHUNKS_MIN || !is_past && self.bytes() < self.size.bytes_max {
                break;
            }
            let index = self.index(self.oldest);
            chunk = self.chunks.get_mut(index).map(std::mem::take);
            self.oldest += CHUNK_PACKETS as u64;
        }
        let mut chunk = chunk.unwrap_or_else(|| self.new_chunk());
        chunk.slots.clear();
        chunk.bytes.clear();
        if (self.head - self.oldest) as usize == self.chunks.len() * CHUNK_PACKETS {
            self.widen();
        }
        let index = self.index(self.head);
        self.chunks[index] = chunk;
    }

    /// Lets go of what is old of a layer of which nothing comes any more. Comes once a second or so.
    pub fn tidy(&mut self, now: Instant) {
        let is_past = |slot: &Slot| now.saturating_duration_since(slot.meta.arrival) > self.size.span * 2;
        while (self.head - self.oldest) as usize / CHUNK_PACKETS >= CHUNKS_MIN
            && self.slot(self.oldest + CHUNK_PACKETS as u64 - 1).is_some_and(is_past)
        {
            let index = self.index(self.oldest);
            self.chunks[index] = Chunk::default();
            self.oldest += CHUNK_PACKETS as u64;
        }
    }

    fn new_chunk(&self) -> Chunk {
        let before = self.head.checked_sub(1).and_then(|last| self.chunk(last)).map(|chunk| chunk.bytes.len());
        let bytes = before.map_or(FIRST_BYTES, |len| len + len / 4);
        Chunk { slots: Vec::with_capacity(CHUNK_PACKETS), bytes: Vec::with_capacity(bytes) }
    }

    /// Doubles the table; the chunks stay where they are in memory.
    fn widen(&mut self) {
        let before = std::mem::take(&mut self.chunks);
        self.chunks.resize_with((before.len() * 2).max(4), Chunk::default);
        let mask = before.len().wrapping_sub(1) as u64;
        let mut before = before.into_iter().map(Some).collect::<Vec<_>>();
        for number in self.oldest / CHUNK_PACKETS as u64..self.head / CHUNK_PACKETS as u64 {
            let index = self.index(number * CHUNK_PACKETS as u64);
            if let Some(chunk) = before.get_mut((number & mask) as usize).and_then(Option::take) {
                self.chunks[index] = chunk;
            }
        }
    }

    /// Where the chunk of a position stands; the table's size is a power of two, so this is a mask.
    fn index(&self, position: u64) -> usize {
        (position as usize / CHUNK_PACKETS) & self.chunks.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn chunk(&self, position: u64) -> Option<&Chunk> {
        if position >= self.head || position < self.oldest {
            return None;
        }
        self.chunks.get(self.index(position))
    }

    fn slot(&self, position: u64) -> Option<&Slot> {
        self.chunk(position)?.slots.get(place(position))
    }

    fn slot_mut(&mut self, position: u64) -> Option<&mut Slot> {
        let index = self.index(position);
        self.chunks.get_mut(index)?.slots.get_mut(place(position))
    }
}

/// Where a position stands in its chunk.
fn place(position: u64) -> usize {
    position as usize % CHUNK_PACKETS
}

impl Chunk {
    fn size(&self) -> usize {
        self.bytes.capacity() + self.slots.capacity() * size_of::<Slot>()
    }
}

#[cfg(test)]
mod tests {
    use wire::codec::PayloadInfo;

    use super::*;

    const SIZE: LogSize = LogSize { span: Duration::from_secs(2), bytes_max: 1 << 20 };

    fn meta(seq: u64, timestamp: u32, keyframe: bool, arrival: Instant) -> PacketMeta {
        let payload = PayloadInfo { starts_frame: true, keyframe, ..PayloadInfo::default() };
        PacketMeta { seq, timestamp, arrival, marker: false, payload }
    }

    /// Appends a packet of each length, `gap` apart.
    fn fill(log: &mut Log, start: Instant, gap: Duration, lens: impl Iterator<Item = usize>) {
        for (n, len) in (0..).zip(lens) {
            log.push(&meta(u64::from(n), n, false, start + gap * n), &[n as u8], &vec![n as u8; len]);
        }
    }

    #[test]
    fn a_packet_is_read_back_as_it_was_written() {
        let mut log = Log::new(SIZE);
        log.push(&meta(7, 1, false, Instant::now()), &[1, 2], &[3, 4, 5]);
        let packet = log.at(0).unwrap();
        assert_eq!((packet.meta.seq, packet.extensions, packet.payload), (7, &[1, 2][..], &[3, 4, 5][..]));
        assert!(log.at(1).is_none());
    }

    #[test]
    fn a_layer_that_fell_silent_gives_its_memory_back() {
        let start = Instant::now();
        let mut log = Log::new(LogSize { bytes_max: 16 << 20, ..SIZE });
        fill(&mut log, start, Duration::from_micros(400), (0..5_000).map(|_| 1_000));
        let (bytes, head) = (log.bytes(), log.head());
        log.tidy(start + Duration::from_secs(4));
        assert_eq!((log.bytes(), log.head()), (bytes, head), "within twice its span");

        log.tidy(start + Duration::from_secs(60));
        assert!(bytes > 5_000_000 && log.bytes() < 300_000, "{bytes} bytes, then {}", log.bytes());
        assert_eq!((log.head(), log.at(head - 1).map(|logged| logged.meta.seq)), (head, Some(head - 1)));
        assert!(log.at(0).is_none());
        let gap = Duration::from_micros(400);
        for seq in head..head + 5_000 {
            log.push(
                &meta(seq, 0, false, start + Duration::from_secs(61) + gap * (seq - head) as u32),
                &[],
                &[0; 1_000],
            );
        }
        assert!(log.bytes() <= bytes * 5 / 4);
        assert_eq!(log.at(head + 4_999).map(|logged| logged.meta.seq), Some(head + 4_999));
    }

    #[test]
    fn nothing_is_taken_before_a_packet_comes_and_a_slow_layer_takes_little() {
        let mut log = Log::new(SIZE);
        assert_eq!(log.bytes(), 0);
        fill(&mut log, Instant::now(), Duration::from_secs(1), (0..10_000).map(|_| 100));
        assert!(log.bytes() < 64 * 1_024, "{}", log.bytes());
        assert!(log.at(log.head() - 64).is_some());
    }

    #[test]
    fn two_seconds_are_there_whatever_the_rate_and_not_much_more() {
        let start = Instant::now();
        for kbps in [100, 1_000, 4_000, 20_000] {
            let gap = Duration::from_micros(8_000_000 / kbps);
            let mut log = Log::new(LogSize { bytes_max: 16 << 20, ..SIZE });
            fill(&mut log, start, gap, (0..4 * kbps as usize / 8).map(|_| 1_000));
            let now = start + Duration::from_secs(4);
            let oldest = (0..log.head()).find_map(|position| log.at(position)).unwrap();
            let age = now.duration_since(oldest.meta.arrival).as_millis();
            assert!((2_000..=2_600).contains(&age) || kbps == 100, "{age} ms at {kbps} kbit/s");
            let ideal = 2 * kbps as usize * 125;
            assert!(log.bytes() < ideal * 3 / 2 + 200_000, "{} bytes for {ideal}", log.bytes());
        }
    }

    #[test]
    fn a_ceiling_holds_whatever_comes() {
        let mut log = Log::new(LogSize { bytes_max: 200_000, ..SIZE });
        for (start, len) in [(0_u64, 1_000), (5_000, 0), (10_000, 60_000)] {
            for n in start..start + 1_000 {
                log.push(&meta(n, 0, false, Instant::now()), &[], &vec![0; len]);
                // One chunk may be larger than the whole: then there are as many as always stay.
                let largest = CHUNK_PACKETS * (len + len / 4 + 128) * 2;
                assert!(log.bytes() <= 200_000 + 4 * largest, "{} bytes after {n}", log.bytes());
            }
        }
    }

    #[test]
    fn what_grew_for_a_fast_layer_is_given_back() {
        let (mut log, start) = (Log::new(LogSize { bytes_max: 16 << 20, ..SIZE }), Instant::now());
        fill(&mut log, start, Duration::from_micros(250), (0..20_000).map(|_| 1_000));
        let large = log.bytes();
        for n in 0..20_000_u32 {
            let at = start + Duration::from_secs(5) + Duration::from_millis(20) * n;
            log.push(&meta(20_000 + u64::from(n), n, false, at), &[], &[0; 100]);
        }
        assert!(large > 8_000_000 && log.bytes() < large / 20, "{large} bytes, then {}", log.bytes());
    }

    #[test]
    fn every_stored_packet_is_whole_whatever_the_sizes() {
        let mut log = Log::new(LogSize { bytes_max: 50_000, ..SIZE });
        let start = Instant::now();
        for n in 0..5_000_u64 {
            let len = (n * 37 % 1_200) as usize;
            log.push(&meta(n, 0, false, start), &[n as u8; 3], &vec![n as u8; len]);
            for position in n.saturating_sub(16)..=n {
                let packet = log.at(position).unwrap();
                assert!(packet.payload.iter().chain(packet.extensions).all(|byte| *byte == position as u8));
                assert_eq!((packet.meta.seq, packet.extensions.len()), (position, 3));
            }
        }
    }

    #[test]
    fn what_is_stored_already_is_not_stored_again_before_a_restart() {
        let (mut log, now) = (Log::new(SIZE), Instant::now());
        for seq in [5, 7, 5, 6, 7] {
            log.push(&meta(seq, 0, false, now), &[], &[0]);
        }
        assert_eq!(log.head(), 3);
        log.restart(1);
        log.push(&meta(5, 0, false, now), &[], &[0]);
        assert_eq!(log.head(), 4);
        log.push(&meta(5 + Arrived::SIZE, 0, false, now), &[], &[0]);
        log.push(&meta(5, 0, false, now), &[], &[0]);
        assert_eq!(log.head(), 5, "too far behind to tell");
        log.push(&meta(6, 0, false, now), &[], &[0]);
        assert_eq!(log.head(), 6);
    }

    #[test]
    fn the_keyframe_is_known_until_it_is_gone() {
        let (mut log, now) = (Log::new(LogSize { bytes_max: 0, ..SIZE }), Instant::now());
        log.push(&meta(0, 0, false, now), &[], &[0]);
        log.push(&meta(1, 9, true, now), &[], &[0]);
        log.push(&meta(2, 9, true, now), &[], &[0]);
        assert_eq!(log.keyframe(), Some(1));
        for n in 3..128 {
            log.push(&meta(n, 0, false, now), &[], &[0]);
        }
        assert_eq!(log.keyframe(), Some(1));
        log.push(&meta(128, 0, false, now), &[], &[0]);
        assert_eq!(log.keyframe(), None);
    }

    #[test]
    fn packets_of_a_frame_get_one_size_but_for_the_last() {
        let (mut log, now) = (Log::new(SIZE), Instant::now());
        for (seq, (timestamp, len)) in (0..).zip([(1, 500), (1, 499), (1, 300), (2, 500), (2, 100), (2, 498)]) {
            log.push(&meta(seq, timestamp, false, now), &[], &vec![0; len]);
        }
        let sizes = |log: &Log| (0..6).map(|position| log.at(position).unwrap().padded_len).collect::<Vec<_>>();
        log.even_out(false);
        assert_eq!(sizes(&log), [500, 500, 300, 500, 100, 498]);
        log.ragged = 0;
        log.even_out(true);
        assert_eq!(sizes(&log), [500, 500, 300, 500, 100, 500]);

        // Header extensions make the last one as long as the others, or longer.
        let mut log = Log::new(SIZE);
        for (seq, extensions) in (0..).zip([&[][..], &[1, 1, 1]]) {
            log.push(&meta(seq, 1, false, now), extensions, &vec![0; 500 - 4 * seq as usize]);
        }
        log.even_out(true);
        assert_eq!(log.at(1).unwrap().padded_len, 496);
    }
}
