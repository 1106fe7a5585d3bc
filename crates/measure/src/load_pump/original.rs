//! Compares what arrives with the title, byte by byte.
//!
//! Null packets are left out of both, as a stream may be padded or thinned out. Where something is missing the next
//! packets are looked up in the title; what stands nowhere in it is damaged.
//! Cost: one comparison per packet; a pass over the title for each gap.

use std::path::Path;

use anyhow::{Context, Result};
use wire::ts::{Layout, PACKET_LEN, Packets, Pid};

/// Gaps per session behind which is looked for the next packets.
const SEARCHES_MAX: u32 = 100;

/// A title as it should arrive.
pub(super) struct Original {
    packets: Vec<[u8; PACKET_LEN]>,
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

    /// Where these packets stand one behind the other, at `from` or behind it, or before.
    fn find(&self, wanted: &[&[u8; PACKET_LEN]], from: usize) -> Option<usize> {
        let places = || self.packets.windows(wanted.len()).enumerate();
        let is_it = |(_, place): &(usize, &[[u8; PACKET_LEN]])| place.iter().zip(wanted).all(|(is, want)| is == *want);
        let behind = places().skip(from).find(is_it);
        behind.or_else(|| places().take(from).find(is_it)).map(|(index, _)| index)
    }
}

fn is_null(packet: &[u8; PACKET_LEN]) -> bool {
    Pid::from_bytes(packet[1], packet[2]) == Pid::NULL
}

/// One session's place in the title.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// The packet of the title that comes next; `None` before the first was found.
    next: Option<usize>,
    searches: u32,
    /// The title was over; what comes then, if it begins again, is marked and renumbered.
    is_over: bool,
    /// Packets that were as they should be, and that were not.
    pub(super) matched: u64,
    pub(super) damaged: u64,
}

impl Comparison {
    /// Takes the packets of a datagram.
    pub(super) fn take(&mut self, original: &Original, packets: &[[u8; PACKET_LEN]]) {
        let packets: Vec<&[u8; PACKET_LEN]> = packets.iter().filter(|packet| !is_null(packet)).collect();
        let mut rest = &packets[..];
        while let Some((first, others)) = rest.split_first() {
            if self.is_over {
                return;
            }
            if self.next.is_some_and(|next| original.packets.get(next) == Some(*first)) {
                self.next = self.next.map(|next| next + 1);
                self.is_over = self.next == Some(original.packets.len());
                self.matched += 1;
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
        (self.matched, self.damaged) = (0, 0);
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
    fn another_title_is_all_damage() {
        let other = Sample { pictures: 25, seed: 2, ..Sample::default() }.make();
        let seen = play(&title(), other.as_chunks().0);
        assert!(seen.damaged > 1_000 && seen.matched < 300, "{seen:?}");
        assert!(Original::of(&[7; 10_000]).is_none());
    }
}
