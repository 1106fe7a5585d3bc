//! The recent packets of one layer, stored once per worker and read by every down track.
//!
//! In: packets in the order of their arrival. Out: the packet at a position, as long as it is still there.
//! The log is the only queue between a publisher and its viewers: each down track has a position of its own in it, and
//! whoever is too slow finds its place overwritten (drop the oldest). NACKs are answered from it, too.
//! Cost: one copy in, none out; no allocation after `new`.

use crate::packet::PacketMeta;

/// How much a log remembers, in powers of two. The older end goes first, whichever limit is met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Packets kept.
    pub packets: usize,
    /// Bytes kept.
    pub bytes: usize,
}

impl LogSize {
    /// Half a megabyte: 2.7 s at 1.5 Mbit/s, longer than a retransmission is of any use.
    pub const VIDEO: LogSize = LogSize { packets: 1_024, bytes: 512 * 1_024 };
    /// 2.5 s of 20 ms frames at up to 250 bytes each.
    pub const AUDIO: LogSize = LogSize { packets: 128, bytes: 32 * 1_024 };
}

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

#[derive(Clone, Copy, Debug)]
struct Slot {
    meta: PacketMeta,
    /// Where the bytes start, counted since the log began; the ring holds the last `bytes.len()` of them.
    start: u64,
    extensions_len: u16,
    payload_len: u16,
    padded_len: u16,
}

/// The packets of one layer.
#[derive(Debug, Default)]
pub struct Log {
    size: LogSize,
    slots: Vec<Slot>,
    bytes: Box<[u8]>,
    /// Positions are counted since the log began; `head` is the one that the next packet gets.
    head: u64,
    bytes_head: u64,
    keyframe: Option<u64>,
    /// The highest sequence number of this epoch.
    newest_seq: Option<u64>,
    epoch: u32,
    /// Position of the publisher's first packet.
    start: u64,
    /// First position whose frame has not been evened out yet.
    ragged: u64,
}

/// Padding more than this per packet costs more than the send that it saves, in bytes.
const PADDING_MAX: u16 = 48;

impl Log {
    /// Nothing stored yet.
    pub fn new(size: LogSize) -> Self {
        assert!(size.packets.is_power_of_two() && size.bytes.is_power_of_two(), "positions are masked");
        let (slots, bytes) = (Vec::with_capacity(size.packets), vec![0; size.bytes].into());
        Log { size, slots, bytes, ..Log::default() }
    }

    /// Appends a packet. One that is larger than the whole log, or is stored already, is not stored: what is stored twice
    /// would be sent twice under one number, and give an AES-GCM key away.
    pub fn push(&mut self, meta: &PacketMeta, extensions: &[u8], payload: &[u8]) {
        let len = extensions.len() + payload.len();
        if len > self.bytes.len().min(usize::from(u16::MAX)) || self.holds(meta.seq) {
            return;
        }
        self.newest_seq = self.newest_seq.max(Some(meta.seq));
        let start = self.room_for(len);
        let at = self.offset(start);
        self.bytes[at..at + extensions.len()].copy_from_slice(extensions);
        self.bytes[at + extensions.len()..at + len].copy_from_slice(payload);
        self.bytes_head = start + len as u64;
        let payload_len = payload.len() as u16;
        let extensions_len = extensions.len() as u16;
        let slot = Slot { meta: *meta, start, extensions_len, payload_len, padded_len: payload_len };
        let index = self.index(self.head);
        if index < self.slots.len() {
            self.slots[index] = slot;
        } else {
            self.slots.push(slot);
        }
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
        self.newest_seq = None;
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
        let slot = self.slot(position)?;
        let at = self.offset(slot.start);
        let (extensions_len, payload_len) = (usize::from(slot.extensions_len), usize::from(slot.payload_len));
        Some(Logged {
            meta: &slot.meta,
            extensions: &self.bytes[at..at + extensions_len],
            payload: &self.bytes[at + extensions_len..at + extensions_len + payload_len],
            padded_len: slot.padded_len.into(),
        })
    }

    /// Where the newest keyframe starts, when it is still there whole.
    pub fn keyframe(&self) -> Option<u64> {
        self.keyframe.filter(|position| self.slot(*position).is_some())
    }

    /// Evens out the packets that were appended since the last call: those of one frame get the size of the largest,
    /// but for the frame's last one, which may be shorter in a GSO send anyway.
    pub fn even_out(&mut self) {
        let mut first = self.ragged.max(self.head.saturating_sub(self.size.packets as u64));
        while first < self.head {
            let timestamp = self.slot_mut(first).meta.timestamp;
            let mut end = first;
            let mut largest = 0;
            while end < self.head && self.slot_mut(end).meta.timestamp == timestamp {
                largest = largest.max(self.slot_mut(end).payload_len);
                end += 1;
            }
            for position in first..end.saturating_sub(1) {
                let slot = self.slot_mut(position);
                if slot.payload_len > 0 && largest - slot.payload_len <= PADDING_MAX {
                    slot.padded_len = largest;
                }
            }
            first = end;
        }
        self.ragged = self.head;
    }

    /// Whether a packet of this epoch is here. Looks through the log only for a packet that is out of order.
    fn holds(&self, seq: u64) -> bool {
        let oldest = self.start.max(self.head.saturating_sub(self.size.packets as u64));
        self.newest_seq.is_some_and(|newest| seq <= newest)
            && (oldest..self.head).any(|position| self.slots[self.index(position)].meta.seq == seq)
    }

    /// Where the next `len` bytes go; they never wrap around the ring's end.
    fn room_for(&self, len: usize) -> u64 {
        let size = self.bytes.len() as u64;
        let left = size - self.bytes_head % size;
        if len as u64 <= left { self.bytes_head } else { self.bytes_head + left }
    }

    /// Sizes are powers of two, so these are masks.
    fn index(&self, position: u64) -> usize {
        position as usize & (self.size.packets - 1)
    }

    fn offset(&self, byte: u64) -> usize {
        byte as usize & (self.bytes.len() - 1)
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> Option<&Slot> {
        if position >= self.head || self.head - position > self.size.packets as u64 {
            return None;
        }
        let slot = &self.slots[self.index(position)];
        (self.bytes_head <= slot.start + self.bytes.len() as u64).then_some(slot)
    }

    /// The slot of a position that is among the last `size.packets`.
    fn slot_mut(&mut self, position: u64) -> &mut Slot {
        let index = self.index(position);
        &mut self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use wire::codec::PayloadInfo;

    use super::*;

    fn meta(seq: u64, timestamp: u32, keyframe: bool) -> PacketMeta {
        let payload = PayloadInfo { starts_frame: true, keyframe, ..PayloadInfo::default() };
        PacketMeta { seq, timestamp, arrival: Instant::now(), marker: false, payload }
    }

    #[test]
    fn a_packet_is_read_back_as_it_was_written() {
        let mut log = Log::new(LogSize { packets: 4, bytes: 128 });
        log.push(&meta(7, 1, false), &[1, 2], &[3, 4, 5]);
        let packet = log.at(0).unwrap();
        assert_eq!((packet.meta.seq, packet.extensions, packet.payload), (7, &[1, 2][..], &[3, 4, 5][..]));
        assert!(log.at(1).is_none());
    }

    #[test]
    fn the_oldest_packets_go_first_by_count_and_by_bytes() {
        let mut log = Log::new(LogSize { packets: 4, bytes: 128 });
        for n in 0..6 {
            log.push(&meta(n, 0, false), &[], &[n as u8; 10]);
        }
        assert!(log.at(1).is_none());
        assert_eq!(log.at(2).unwrap().payload, [2; 10]);
        log.push(&meta(6, 0, false), &[], &[6; 110]);
        assert!(log.at(5).is_none(), "its bytes were overwritten");
        assert_eq!(log.at(6).unwrap().payload, [6; 110]);
    }

    #[test]
    fn every_stored_packet_is_whole_whatever_the_sizes() {
        let mut log = Log::new(LogSize { packets: 16, bytes: 512 });
        for n in 0..1_000u64 {
            let len = (n * 37 % 120) as usize;
            log.push(&meta(n, 0, false), &[], &vec![n as u8; len]);
            for position in n.saturating_sub(16)..=n {
                if let Some(packet) = log.at(position) {
                    assert!(packet.payload.iter().all(|byte| *byte == position as u8));
                    assert_eq!(packet.meta.seq, position);
                }
            }
        }
    }

    #[test]
    fn what_is_stored_already_is_not_stored_again_before_a_restart() {
        let mut log = Log::new(LogSize { packets: 4, bytes: 128 });
        for seq in [5, 7, 5, 6, 7] {
            log.push(&meta(seq, 0, false), &[], &[0]);
        }
        assert_eq!(log.head(), 3);
        log.restart(1);
        log.push(&meta(5, 0, false), &[], &[0]);
        assert_eq!(log.head(), 4);
    }

    #[test]
    fn the_keyframe_is_known_until_it_is_overwritten() {
        let mut log = Log::new(LogSize { packets: 4, bytes: 128 });
        log.push(&meta(0, 0, false), &[], &[0]);
        log.push(&meta(1, 9, true), &[], &[0]);
        log.push(&meta(2, 9, true), &[], &[0]);
        assert_eq!(log.keyframe(), Some(1));
        for n in 3..5 {
            log.push(&meta(n, 0, false), &[], &[0]);
        }
        assert_eq!(log.keyframe(), Some(1));
        log.push(&meta(5, 0, false), &[], &[0]);
        assert_eq!(log.keyframe(), None);
    }

    #[test]
    fn packets_of_a_frame_get_one_size_but_for_the_last() {
        let mut log = Log::new(LogSize { packets: 16, bytes: 16_384 });
        for (seq, (timestamp, len)) in (0..).zip([(1, 500), (1, 499), (1, 300), (2, 500), (2, 100), (2, 498)]) {
            log.push(&meta(seq, timestamp, false), &[], &vec![0; len]);
        }
        log.even_out();
        let sizes: Vec<usize> = (0..6).map(|position| log.at(position).unwrap().padded_len).collect();
        assert_eq!(sizes, [500, 500, 300, 500, 100, 498]);
    }
}
