//! Where a title is cut into chunks.
//!
//! In: packets from the title's start, or a chunk's number. Out: the other. All chunks have the same number of packets,
//! but that the first may be cut in two, so that its beginning is read soon.
//!
//! ```text
//! 0      first       packets       2 × packets
//! │  0  │     1     │      2      │      3      …
//! ```

/// How one title is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    packets: u64,
    /// Packets before the additional cut; 0 without one. Less than `packets`.
    first: u64,
}

impl Cut {
    /// Chunks of `packets`, of one at least.
    pub(crate) fn new(packets: u32) -> Cut {
        Cut { packets: u64::from(packets).max(1), first: 0 }
    }

    /// The first chunk is cut behind `packets`, rounded down to whole datagrams, if it is longer than that.
    pub(crate) fn with_first(self, packets: u32) -> Cut {
        let datagram = wire::ts::DATAGRAM_PACKETS as u64;
        let first = u64::from(packets) / datagram * datagram;
        Cut { first: if first < self.packets { first } else { 0 }, ..self }
    }

    /// Packets of every chunk behind the cut one.
    pub(crate) fn packets(self) -> u64 {
        self.packets
    }

    /// The chunk in which a packet is.
    pub(crate) fn number(self, position: u64) -> u32 {
        if position < self.first {
            return 0;
        }
        u32::try_from(position / self.packets + u64::from(self.first > 0)).unwrap_or(u32::MAX)
    }

    /// The first packet of a chunk.
    pub(crate) fn start(self, number: u32) -> u64 {
        self.border(number.into())
    }

    /// The packet behind a chunk's last.
    pub(crate) fn end(self, number: u32) -> u64 {
        self.border(u64::from(number) + 1)
    }

    /// Packets before a chunk.
    fn border(self, number: u64) -> u64 {
        match (self.first, number) {
            (0, _) => number * self.packets,
            (_, 0) => 0,
            (first, 1) => first,
            _ => (number - 1) * self.packets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_in_one_chunk_and_chunks_follow_each_other() {
        for (first, count) in [(0, 7), (14, 8), (20, 8), (70, 7), (1_000, 7)] {
            let cut = Cut::new(70).with_first(first);
            let mut position = 0;
            for number in 0..count {
                assert_eq!(cut.start(number), position, "chunk {number}, {first} first");
                assert!(cut.end(number) > position && cut.end(number) - position <= 70);
                for packet in position..cut.end(number) {
                    assert_eq!(cut.number(packet), number);
                }
                position = cut.end(number);
            }
            assert_eq!(position, 490);
        }
    }

    #[test]
    fn a_first_chunk_is_whole_datagrams_and_the_second_ends_where_the_first_would() {
        let cut = Cut::new(70).with_first(20);
        assert_eq!((cut.end(0), cut.end(1), cut.end(2)), (14, 70, 140));
    }
}
