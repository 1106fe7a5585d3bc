//! Compares what arrives with the title, byte by byte.
//!
//! Null packets are left out of both, as a stream may be padded or thinned out. Where something is missing the next
//! packets are looked up in the title; what stands nowhere in it is damaged. A server that had nothing to send for a while,
//! or was late, goes on with a clock that says so: packets that differ in that alone are counted by themselves.
//! Cost: one comparison per packet; a pass over the title for each gap.

use std::path::Path;

use anyhow::{Context, Result};
use wire::ts::{Layout, PACKET_LEN, Packets, Pid};

/// Gaps per session behind which is looked for the next packets.
const SEARCHES_MAX: u32 = 100;

type TsPacket = [u8; PACKET_LEN];

/// A title as it should arrive.
pub(super) struct Original {
    packets: Vec<TsPacket>,
}

impl Original {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        Self::of(&bytes).with_context(|| format!("{} is no MPEG transport stream", path.display()))
    }

    /// `None`: that is no transport stream.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let layout = Layout::find(bytes)?;
        let packets = Packets::new(&bytes[layout.first..], layout.spacing).map(|(_, packet)| *packet);
        Some(Original { packets: packets.filter(|packet| !is_null(packet)).collect() })
    }

    /// Where these packets stand one behind the other, at `from` or behind it, or before; with another clock only when they
    /// stand nowhere as they are.
    fn find(&self, wanted: &[&TsPacket], from: usize) -> Option<usize> {
        self.find_by(wanted, from, |is, want| is == want).or_else(|| self.find_by(wanted, from, is_same_but_clock))
    }

    fn find_by(&self, wanted: &[&TsPacket], from: usize, is_same: fn(&TsPacket, &TsPacket) -> bool) -> Option<usize> {
        let places = || self.packets.windows(wanted.len()).enumerate();
        let is_it = |(_, place): &(usize, &[TsPacket])| place.iter().zip(wanted).all(|(is, want)| is_same(is, want));
        let behind = places().skip(from).find(is_it);
        behind.or_else(|| places().take(from).find(is_it)).map(|(index, _)| index)
    }
}

fn is_null(packet: &TsPacket) -> bool {
    Pid::from_bytes(packet[1], packet[2]) == Pid::NULL
}

fn is_same_but_clock(one: &TsPacket, other: &TsPacket) -> bool {
    // Most are the same, or PID and counter tell them apart.
    one == other || (one[..4] == other[..4] && without_clock(one) == without_clock(other))
}

/// The packet with zeros for its clock references, the flag that they do not continue, and its PES timestamps.
fn without_clock(packet: &TsPacket) -> TsPacket {
    let mut blank = *packet;
    let has_adaptation = packet[3] & 0x20 != 0;
    if has_adaptation && packet[4] > 0 {
        blank[5] &= !DISCONTINUITY;
        let references = usize::from(packet[5] & 0x10 != 0) + usize::from(packet[5] & 0x08 != 0);
        blank[6..6 + 6 * references].fill(0);
    }
    let start = if has_adaptation { 5 + usize::from(packet[4]) } else { 4 };
    let Some(pes) = blank.get_mut(start..).filter(|_| packet[1] & 0x40 != 0 && packet[3] & 0x10 != 0) else {
        return blank;
    };
    // ISO/IEC 13818-1 §2.4.3.6: behind start code, stream, length and two bytes of flags comes the header's length.
    if let [0, 0, 1, _, _, _, 0x80..=0xbf, flags, _, stamps @ ..] = pes {
        let len = 5 * (*flags >> 6).count_ones() as usize;
        stamps.iter_mut().take(len).for_each(|byte| *byte = 0);
    }
    blank
}

/// In the flags of an adaptation field.
const DISCONTINUITY: u8 = 0x80;

/// One session's place in the title.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// The packet of the title that comes next; `None` before the first was found.
    next: Option<usize>,
    searches: u32,
    /// The title was over; what comes then, if it begins again, is marked and renumbered.
    is_over: bool,
    /// Packets that were as they should be, that were so but for their clock, and that were not.
    pub(super) matched: u64,
    pub(super) restamped: u64,
    pub(super) damaged: u64,
}

impl Comparison {
    /// Takes the packets of a datagram.
    pub(super) fn take(&mut self, original: &Original, packets: &[TsPacket]) {
        let packets: Vec<&TsPacket> = packets.iter().filter(|packet| !is_null(packet)).collect();
        let mut rest = &packets[..];
        while let Some((first, others)) = rest.split_first() {
            if self.is_over {
                return;
            }
            let due = self.next.and_then(|next| original.packets.get(next));
            if let Some(due) = due.filter(|due| is_same_but_clock(due, first)) {
                self.next = self.next.map(|next| next + 1);
                self.is_over = self.next == Some(original.packets.len());
                if due == *first {
                    self.matched += 1;
                } else {
                    self.restamped += 1;
                }
                rest = others;
                continue;
            }
            self.searches += 1;
            let found = (self.searches <= SEARCHES_MAX).then(|| original.find(rest, self.next.unwrap_or(0))).flatten();
            match found {
                Some(index) => self.next = Some(index),
                None => {
                    // One packet at a time, so that a damaged one takes no others with it.
                    self.damaged += 1;
                    self.next = self.next.map(|next| next + 1);
                    rest = others;
                }
            }
        }
    }

    /// Forgets what was counted, but not the place.
    pub(super) fn reset(&mut self) {
        (self.matched, self.restamped, self.damaged) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use pump::sample::Sample;
    use wire::ts::DATAGRAM_PACKETS;

    use super::*;

    fn title() -> Vec<u8> {
        Sample { pictures: 25, ..Sample::default() }.make()
    }

    fn play(title: &[u8], arrived: &[[u8; PACKET_LEN]]) -> Comparison {
        let original = Original::of(title).unwrap();
        let mut comparison = Comparison::default();
        arrived.chunks(DATAGRAM_PACKETS).for_each(|packets| comparison.take(&original, packets));
        comparison
    }

    #[test]
    fn the_title_itself_is_not_damaged_wherever_it_begins_and_what_is_lost_is_not_either() {
        let title = title();
        let packets = title.as_chunks().0;
        let real = packets.iter().filter(|packet| !is_null(packet)).count() as u64;
        let whole = play(&title, packets);
        assert_eq!((whole.matched, whole.damaged), (real, 0));

        let mut thinned = packets[700..].to_vec();
        thinned.drain(70..140);
        let thinned = play(&title, &thinned);
        assert_eq!(thinned.damaged, 0);
        assert!(thinned.matched > 1_000 && thinned.matched < real - 500);
    }

    #[test]
    fn a_changed_byte_is_one_damaged_packet() {
        let title = title();
        let mut packets = title.as_chunks().0.to_vec();
        let victim = (800..).find(|index| !is_null(&packets[*index])).unwrap();
        packets[victim][100] ^= 1;
        assert_eq!(play(&title, &packets).damaged, 1);
    }

    #[test]
    fn a_clock_that_was_moved_is_no_damage() {
        let title = title();
        let moved =
            Sample { pictures: 25, first_pcr: Sample::default().first_pcr + 12_345_678, ..Sample::default() }.make();
        // The clock is moved in the middle, and something is missing behind that.
        let mut packets = [&title.as_chunks().0[..1_500], &moved.as_chunks().0[1_500..]].concat();
        packets.drain(2_000..2_070);
        let seen = play(&title, &packets);
        assert_eq!(seen.damaged, 0);
        assert!(seen.matched > 1_500 && seen.restamped > 20, "{seen:?}");
        // From the beginning, too.
        let seen = play(&title, moved.as_chunks().0);
        assert!(seen.damaged == 0 && seen.restamped > 40, "{seen:?}");
    }

    #[test]
    fn another_title_is_all_damage() {
        let other = Sample { pictures: 25, seed: 2, ..Sample::default() }.make();
        let seen = play(&title(), other.as_chunks().0);
        assert!(seen.damaged > 1_000 && seen.matched < 300, "{seen:?}");
        assert!(Original::of(&[7; 10_000]).is_none());
    }
}
