//! What one viewer was sent lately of one track, so that it can be sent again and no number goes out twice.
//!
//! In: output numbers with their places in the log. Out: the place of a number that the viewer asks for.
//! Cost: a store per packet; 16 bytes for each packet of about `REPAIRED_FOR`, 8 KB to 128 KB for video. It grows and shrinks
//! once a second, where no packet passes.

use std::ops::RangeInclusive;

use prefetch::prefetch;
use wire::codec::MediaKind;

use crate::packet::REPAIRED_FOR;

/// Packets that are remembered, powers of two. Of video more are where `REPAIRED_FOR` has more.
const VIDEO_MIN: usize = 512;
const VIDEO_MAX: usize = 8_192;
const AUDIO: usize = 64;

/// What is needed to send a packet again: 16 bytes, four to a cache line, because each viewer writes one per packet.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Low half of the position in the layer's log.
    pub position: u32,
    /// As it was sent.
    pub timestamp: u32,
    /// Low 16 bits of the output number.
    pub seq: u16,
    /// When it was last sent again, in milliseconds that wrap; 0 for never.
    pub resent_at_ms: u16,
    /// VP8's or VP9's running numbers as they were sent, where the packet has them.
    pub picture_id: u16,
    /// The same.
    pub tl0_pic_idx: u8,
    /// Of the track, whether it had the marker bit, and whether it was sent as padding.
    pub layer: SentLayer,
}

/// A layer and two bits in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentLayer(u8);

impl SentLayer {
    /// No packet was sent.
    const NONE: SentLayer = SentLayer(0x3f);
    const MARKER: u8 = 0x80;
    const PADDING: u8 = 0x40;

    /// Of a packet with a layer of the track, which has a handful.
    pub fn new(layer: u8, marker: bool, is_padding: bool) -> Self {
        SentLayer(layer | u8::from(marker) << 7 | u8::from(is_padding) << 6)
    }

    /// The layer of the track.
    pub fn layer(self) -> u8 {
        self.0 & !(SentLayer::MARKER | SentLayer::PADDING)
    }

    /// As it was sent.
    pub fn marker(self) -> bool {
        self.0 & SentLayer::MARKER != 0
    }

    /// Whether it was sent without what it holds.
    pub fn is_padding(self) -> bool {
        self.0 & SentLayer::PADDING != 0
    }
}

impl Sent {
    const NOTHING: Sent = Sent {
        position: 0,
        timestamp: 0,
        seq: 0,
        resent_at_ms: 0,
        picture_id: 0,
        tl0_pic_idx: 0,
        layer: SentLayer::NONE,
    };
}

/// The packets of one down track that were sent last.
#[derive(Debug)]
pub struct SentPackets {
    kind: MediaKind,
    /// Each at its number modulo the size, which is a power of two.
    ring: Box<[Sent]>,
    /// The highest output number that went out.
    newest: u64,
    /// What `follow` was last told.
    last_second: u32,
}

impl SentPackets {
    /// Nothing sent yet.
    pub fn new(kind: MediaKind) -> Self {
        let size = match kind {
            MediaKind::Video => VIDEO_MIN,
            MediaKind::Audio => AUDIO,
        };
        SentPackets { kind, ring: vec![Sent::NOTHING; size].into(), newest: 0, last_second: 0 }
    }

    /// Asks for where the next four or more go.
    #[inline]
    pub fn prefetch(&self) {
        let newest = self.newest as u16;
        prefetch(&self.ring[self.index(newest.wrapping_add(1))]);
        prefetch(&self.ring[self.index(newest.wrapping_add(5))]);
    }

    /// Whether a number went out before. Most numbers are new, and then the ring is not read: it lies far away.
    #[inline]
    pub fn has(&self, seq: u64) -> bool {
        seq <= self.newest && self.get(seq as u16).is_some()
    }

    /// What went out lately under the number with these low 16 bits.
    pub fn get(&self, seq: u16) -> Option<Sent> {
        let sent = self.ring[self.index(seq)];
        (sent.layer != SentLayer::NONE && sent.seq == seq).then_some(sent)
    }

    /// So many of these numbers, the last ones, no packet went out under; `None` where they are more than are remembered, or more
    /// than there is `room` for, which is taken from it.
    pub fn holes(&self, seqs: RangeInclusive<u64>, room: &mut usize) -> Option<u64> {
        let count = (seqs.end() + 1).saturating_sub(*seqs.start()) as usize;
        *room = room.checked_sub(count).filter(|_| count <= self.ring.len())?;
        Some(seqs.filter(|seq| !self.has(*seq)).count() as u64)
    }

    /// Takes note of a packet that goes out under `seq`.
    #[inline]
    pub fn insert(&mut self, seq: u64, sent: Sent) {
        if seq + self.ring.len() as u64 <= self.newest {
            // Its place is that of a newer one.
            return;
        }
        self.newest = self.newest.max(seq);
        let index = self.index(seq as u16);
        self.ring[index] = sent;
    }

    /// Takes note of a packet that goes out again.
    pub fn on_resent(&mut self, seq: u16, at_ms: u16) {
        let index = self.index(seq);
        self.ring[index].resent_at_ms = at_ms.max(1);
    }

    /// Has room for what went out in `REPAIRED_FOR`, of which this is the last second's: it grows at once, and shrinks by halves.
    /// A viewer's first second has all from a keyframe on, which may be as much as three others have.
    pub fn follow(&mut self, packets: u32) {
        const { assert!(REPAIRED_FOR.as_secs() == 2) };
        let lately = u64::from(packets) + u64::from(std::mem::replace(&mut self.last_second, packets));
        let (len, lately) = (self.ring.len(), (lately as usize).min(VIDEO_MAX));
        match self.kind {
            MediaKind::Video if lately > len => self.resize(lately.next_power_of_two()),
            // A little less than fits, lest it grow and shrink by turns.
            MediaKind::Video if len > VIDEO_MIN && lately <= len / 16 * 7 => self.resize(len / 2),
            MediaKind::Video | MediaKind::Audio => {}
        }
    }

    /// Keeps the newest. The size is a power of two.
    fn resize(&mut self, size: usize) {
        let before = std::mem::replace(&mut self.ring, vec![Sent::NOTHING; size].into());
        let newest = self.newest as u16;
        let is_kept = |sent: &Sent| usize::from(newest.wrapping_sub(sent.seq)) < size;
        for sent in before.into_iter().filter(|sent| sent.layer != SentLayer::NONE && is_kept(sent)) {
            let index = self.index(sent.seq);
            self.ring[index] = sent;
        }
    }

    fn index(&self, seq: u16) -> usize {
        usize::from(seq) & (self.ring.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(packets: &mut SentPackets, seqs: std::ops::Range<u64>) {
        for seq in seqs {
            packets.insert(
                seq,
                Sent { position: seq as u32, seq: seq as u16, layer: SentLayer::new(0, false, false), ..Sent::NOTHING },
            );
        }
    }

    #[test]
    fn what_was_sent_is_known_for_the_size_also_across_growth_and_wrap() {
        let mut packets = SentPackets::new(MediaKind::Video);
        let first = (1 << 17) - 600;
        send(&mut packets, first..first + 550);
        (0..2).for_each(|_| packets.follow(900));
        send(&mut packets, first + 550..first + 2_048);
        let known: Vec<u64> = (0..2_048).filter(|n| packets.has(first + n)).collect();
        assert_eq!(known, (38..2_048).collect::<Vec<_>>(), "the first were gone before it grew");
        assert!(!packets.has(first + 2_048) && !packets.has(first - 1));
        assert_eq!(packets.get((first + 38) as u16).map(|sent| sent.position), Some((first + 38) as u32));
    }

    #[test]
    fn it_shrinks_to_what_went_out_in_two_seconds_and_keeps_that_across_the_wrap() {
        let mut packets = SentPackets::new(MediaKind::Video);
        let first = (1 << 16) - 2_000;
        packets.follow(1_500);
        send(&mut packets, first..first + 2_048);
        packets.follow(300);
        assert_eq!(packets.ring.len(), 2_048, "1,800 went out in two seconds");
        packets.follow(300);
        packets.follow(300);
        assert_eq!(packets.ring.len(), 1_024, "of 600 it does not shrink again");
        let known: Vec<u64> = (0..2_048).filter(|n| packets.has(first + n)).collect();
        assert_eq!(known, (1_024..2_048).collect::<Vec<_>>());
        (0..9).for_each(|_| packets.follow(224));
        assert_eq!(packets.ring.len(), VIDEO_MIN);
        send(&mut packets, first + 2_048..first + 2_100);
        let known: Vec<u64> = (0..2_100).filter(|n| packets.has(first + n)).collect();
        assert_eq!(known, (1_588..2_100).collect::<Vec<_>>());
    }

    #[test]
    fn what_comes_too_late_takes_no_newer_one_s_place() {
        let mut packets = SentPackets::new(MediaKind::Video);
        send(&mut packets, 70_600..71_200);
        send(&mut packets, 70_500..70_501);
        assert!(packets.has(70_500 + VIDEO_MIN as u64) && !packets.has(70_500));
    }

    #[test]
    fn it_grows_to_a_limit_and_for_audio_not_at_all() {
        for (kind, size) in [(MediaKind::Video, VIDEO_MAX), (MediaKind::Audio, AUDIO)] {
            let mut packets = SentPackets::new(kind);
            packets.follow(u32::MAX / 2);
            assert_eq!(packets.ring.len(), size);
        }
    }
}
