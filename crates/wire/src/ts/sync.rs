//! Finds packets in bytes: how far apart they stand, where the first is, and the way back after damage.
//!
//! In: any bytes. Out: packets of 188 bytes, without the prefix or suffix that a file may have between them.
//! Cost: one byte compared per packet while in sync; a search when not.
//! Source: §2.4.3.2 and Annex F.1 (sync byte), Blu-ray's M2TS (192 bytes), EN 300 429 (204 bytes with Reed-Solomon).

use super::{PACKET_LEN, SYNC_BYTE};

/// Sync bytes in a row that make one believe the packets stand so.
const CONFIRMED: usize = 5;

/// How far apart the packets stand, and what is between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spacing {
    /// Nothing between.
    Ts188,
    /// Four bytes, an arrival time, before each packet.
    M2ts192,
    /// 16 bytes of error correction behind each packet.
    Rs204,
}

impl Spacing {
    const ALL: [Spacing; 3] = [Spacing::Ts188, Spacing::M2ts192, Spacing::Rs204];

    /// Bytes from one packet to the next.
    pub const fn stride(self) -> usize {
        match self {
            Spacing::Ts188 => 188,
            Spacing::M2ts192 => 192,
            Spacing::Rs204 => 204,
        }
    }

    /// Bytes before the packet that belong to it.
    pub const fn prefix(self) -> usize {
        match self {
            Spacing::M2ts192 => 4,
            Spacing::Ts188 | Spacing::Rs204 => 0,
        }
    }
}

/// Where a row of packets begins, and how they stand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// From packet to packet.
    pub spacing: Spacing,
    /// Byte offset of the first packet, of its prefix where there is one.
    pub first: usize,
}

impl Layout {
    /// Looks for the first place from which five packets follow each other; in less data all that it can hold, but two at
    /// least. The last bytes of longer data prove nothing by a sync byte or two.
    pub fn find(data: &[u8]) -> Option<Layout> {
        sync_bytes(data).find_map(|at| {
            let fits = |spacing: &Spacing| {
                let mut places = (at..data.len()).step_by(spacing.stride()).take(CONFIRMED);
                let needed = (data.len() / spacing.stride()).clamp(2, CONFIRMED);
                at >= spacing.prefix() && places.len() >= needed && places.all(|at| data[at] == SYNC_BYTE)
            };
            let spacing = Spacing::ALL.into_iter().find(fits)?;
            Some(Layout { spacing, first: at - spacing.prefix() })
        })
    }
}

fn sync_bytes(data: &[u8]) -> impl Iterator<Item = usize> {
    data.iter().enumerate().filter(|(_, byte)| **byte == SYNC_BYTE).map(|(at, _)| at)
}

/// Iterates over the packets of a row; leaves out what is none, and finds the next.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    data: &'a [u8],
    spacing: Spacing,
    /// Where the next sync byte should be.
    at: usize,
    losses: usize,
}

impl<'a> Packets<'a> {
    /// Begins at the start of `data`, where a packet (with its prefix) should stand.
    pub fn new(data: &'a [u8], spacing: Spacing) -> Self {
        Packets { data, spacing, at: spacing.prefix(), losses: 0 }
    }

    /// How often a sync byte was not where it should be.
    pub fn sync_losses(&self) -> usize {
        self.losses
    }

    /// The next place from `from` on where a packet is believed to stand: where two more follow it, or, so near to the
    /// end that fewer can, where it would have stood anyway.
    fn resync(&self, from: usize) -> Option<usize> {
        let stride = self.spacing.stride();
        let last = self.data.len().checked_sub(PACKET_LEN)?;
        (from..=last).find(|&at| {
            let followers = (at..self.data.len()).step_by(stride).take(3);
            let in_step = (at - from).is_multiple_of(stride);
            (in_step || followers.len() == 3) && followers.into_iter().all(|at| self.data[at] == SYNC_BYTE)
        })
    }
}

impl<'a> Iterator for Packets<'a> {
    /// The packet, and the byte offset of its sync byte.
    type Item = (usize, &'a [u8; PACKET_LEN]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let mut packet = self.data.get(self.at..)?.first_chunk::<PACKET_LEN>()?;
        if packet[0] != SYNC_BYTE {
            self.losses += 1;
            let Some(found) = self.resync(self.at) else {
                self.at = self.data.len();
                return None;
            };
            self.at = found;
            packet = self.data[found..].first_chunk()?;
        }
        let at = self.at;
        self.at += self.spacing.stride();
        Some((at, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` packets, numbered in their second byte.
    fn row(spacing: Spacing, count: u8) -> Vec<u8> {
        let mut row = Vec::new();
        for number in 0..count {
            let start = row.len();
            row.resize(start + spacing.stride(), 0xee);
            row[start + spacing.prefix()] = SYNC_BYTE;
            row[start + spacing.prefix() + 1] = number;
        }
        row
    }

    fn numbers(packets: &mut Packets<'_>) -> Vec<u8> {
        packets.map(|(_, packet)| packet[1]).collect()
    }

    #[test]
    fn all_three_spacings_are_found_behind_garbage() {
        for spacing in Spacing::ALL {
            for garbage in [0, 1, 100, 187] {
                let data = [vec![0x11; garbage], row(spacing, 8)].concat();
                let layout = Layout::find(&data).unwrap();
                assert_eq!(layout, Layout { spacing, first: garbage });
                assert_eq!(numbers(&mut Packets::new(&data[layout.first..], spacing)), [0, 1, 2, 3, 4, 5, 6, 7]);
            }
        }
        assert_eq!(Layout::find(&[0x11; 2_000]), None);
        assert_eq!(Layout::find(&[]), None);
    }

    #[test]
    fn a_sync_byte_in_the_payload_fools_nobody() {
        let mut data = row(Spacing::Ts188, 8);
        (data[3], data[20], data[300]) = (SYNC_BYTE, SYNC_BYTE, SYNC_BYTE);
        assert_eq!(Layout::find(&data[1..]), Some(Layout { spacing: Spacing::Ts188, first: 187 }));
    }

    #[test]
    fn two_sync_bytes_at_the_end_of_long_data_are_no_stream() {
        let mut data = vec![0; 10_000];
        for at in [9_000, 9_000 + PACKET_LEN] {
            data[at] = SYNC_BYTE;
        }
        assert_eq!(Layout::find(&data), None);
        assert_eq!(Layout::find(&data[9_000..9_000 + 2 * PACKET_LEN]).map(|layout| layout.first), Some(0));
    }

    #[test]
    fn one_damaged_sync_byte_costs_one_packet() {
        for spacing in Spacing::ALL {
            let mut data = row(spacing, 8);
            data[3 * spacing.stride() + spacing.prefix()] = 0;
            let mut packets = Packets::new(&data, spacing);
            assert_eq!(numbers(&mut packets), [0, 1, 2, 4, 5, 6, 7]);
            assert_eq!(packets.sync_losses(), 1);
        }
    }

    #[test]
    fn lost_and_added_bytes_cost_only_the_packets_that_they_hit() {
        let whole = row(Spacing::Ts188, 10);
        let cut = [&whole[..400], &whole[450..]].concat();
        assert_eq!(numbers(&mut Packets::new(&cut, Spacing::Ts188)), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
        let cut = [&whole[..376], &whole[450..]].concat();
        assert_eq!(numbers(&mut Packets::new(&cut, Spacing::Ts188)), [0, 1, 3, 4, 5, 6, 7, 8, 9]);
        let added = [&whole[..376], &[0; 77], &whole[376..]].concat();
        assert_eq!(numbers(&mut Packets::new(&added, Spacing::Ts188)), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_truncated_last_packet_is_left_out() {
        let data = row(Spacing::Ts188, 3);
        assert_eq!(numbers(&mut Packets::new(&data[..3 * 188 - 1], Spacing::Ts188)), [0, 1]);
    }
}
