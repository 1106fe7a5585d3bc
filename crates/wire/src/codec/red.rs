//! Redundant audio (RED): a packet that carries those before it once more, so that they may be lost.
//!
//! In: an RTP payload. Out: its blocks, which borrow from it; the same the other way.
//! Cost: one step per block, without a copy; 4 bytes for each redundant block and 1 for the primary on the wire.
//! Source: RFC 2198 §3.

/// A redundant block lies this far back at most, in clock-rate units: 14 bits. Of Opus it is a third of a second.
pub const OFFSET_MAX: u32 = (1 << 14) - 1;

/// Bytes of a redundant block at most: 10 bits.
pub const BLOCK_LEN_MAX: usize = (1 << 10) - 1;

/// Says in a block's first byte that another follows.
const FOLLOWED: u8 = 0x80;

/// Bytes of a redundant block's header.
const HEADER_LEN: usize = 4;

/// A payload of several blocks: the primary is the packet's own, the others were primaries before.
#[derive(Clone, Copy, Debug)]
pub struct Red<'a> {
    /// The payload type of the primary.
    pub payload_type: u8,
    /// The packet without its redundancy.
    pub primary: &'a [u8],
    headers: &'a [[u8; HEADER_LEN]],
    blocks: &'a [u8],
}

/// A redundant block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block<'a> {
    /// As if it had come by itself; 7 bits.
    pub payload_type: u8,
    /// So far its timestamp is before the packet's, in clock-rate units; `OFFSET_MAX` at most.
    pub offset: u32,
    /// `BLOCK_LEN_MAX` bytes at most.
    pub payload: &'a [u8],
}

impl<'a> Red<'a> {
    /// Reads the headers. `None` where they end early, or lie about lengths.
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let (all, _) = payload.as_chunks();
        let count = all.iter().take_while(|header| header[0] & FOLLOWED != 0).count();
        let headers = &all[..count];
        let (first, bodies) = payload[count * HEADER_LEN..].split_first()?;
        let len = headers.iter().map(|header| block_len(*header)).sum();
        let (blocks, primary) = bodies.split_at_checked(len).filter(|_| first & FOLLOWED == 0)?;
        Some(Red { payload_type: *first, primary, headers, blocks })
    }

    /// The redundant blocks, as a rule the oldest first.
    pub fn redundant(&self) -> impl ExactSizeIterator<Item = Block<'a>> {
        let mut rest = self.blocks;
        self.headers.iter().map(move |header| {
            // `parse` saw to it that all are there.
            let (payload, behind) = rest.split_at(block_len(*header).min(rest.len()));
            rest = behind;
            let [first, high, low, _] = *header;
            let offset = u32::from(u16::from_be_bytes([high, low]) >> 2);
            Block { payload_type: first & !FOLLOWED, offset, payload }
        })
    }
}

fn block_len([_, _, high, low]: [u8; HEADER_LEN]) -> usize {
    usize::from(u16::from_be_bytes([high, low])) & BLOCK_LEN_MAX
}

/// Writes a payload of redundant blocks, the oldest first, and the primary. Returns its length; `None` when there is no
/// room, or a block is too old or too long.
pub fn write(buf: &mut [u8], redundant: &[Block<'_>], payload_type: u8, primary: &[u8]) -> Option<usize> {
    let mut used = 0;
    let mut put = |bytes: &[u8]| {
        buf.get_mut(used..used + bytes.len())?.copy_from_slice(bytes);
        used += bytes.len();
        Some(())
    };
    for block in redundant {
        if block.offset > OFFSET_MAX || block.payload.len() > BLOCK_LEN_MAX {
            return None;
        }
        let [_, high, middle, low] = (block.offset << 10 | block.payload.len() as u32).to_be_bytes();
        put(&[FOLLOWED | block.payload_type, high, middle, low])?;
    }
    put(&[payload_type & !FOLLOWED])?;
    redundant.iter().try_for_each(|block| put(block.payload))?;
    put(primary)?;
    Some(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: [Block<'_>; 2] = [
        Block { payload_type: 111, offset: 1_920, payload: &[1, 2, 3] },
        Block { payload_type: 111, offset: 960, payload: &[4] },
    ];

    #[test]
    fn a_payload_is_written_as_the_rfc_has_it_and_read_back() {
        let mut buf = [0; 64];
        let len = write(&mut buf, &BLOCKS, 111, &[5, 6]).unwrap();
        // 1,920 << 10 | 3 and 960 << 10 | 1 in 24 bits.
        assert_eq!(buf[..len], [0x80 | 111, 0x1e, 0, 3, 0x80 | 111, 0x0f, 0, 1, 111, 1, 2, 3, 4, 5, 6]);
        let red = Red::parse(&buf[..len]).unwrap();
        assert_eq!((red.payload_type, red.primary), (111, &[5, 6][..]));
        assert!(red.redundant().eq(BLOCKS));
    }

    #[test]
    fn what_is_cut_short_is_not_read() {
        let mut buf = [0; 64];
        let len = write(&mut buf, &BLOCKS, 111, &[]).unwrap();
        assert!(Red::parse(&buf[..len]).is_some_and(|red| red.primary.is_empty()));
        for cut in 0..len {
            assert!(Red::parse(&buf[..cut]).is_none(), "{cut} bytes");
        }
        assert!(Red::parse(&[0xff; 40]).is_none(), "no primary");
        assert!(Red::parse(&[0x80 | 111, 0, 3, 0xff, 111, 1, 2]).is_none(), "a block of 1,023 bytes");
        assert!(Red::parse(&[111, 9]).is_some_and(|red| red.primary == [9] && red.redundant().len() == 0));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let mut buf = [0; 2_000];
        let long = [0; BLOCK_LEN_MAX + 1];
        let block = |offset, len| Block { payload_type: 1, offset, payload: &long[..len] };
        for (blocks, fits) in [
            ([block(OFFSET_MAX, BLOCK_LEN_MAX)], true),
            ([block(OFFSET_MAX + 1, 1)], false),
            ([block(1, BLOCK_LEN_MAX + 1)], false),
        ] {
            assert_eq!(write(&mut buf, &blocks, 1, &[0]).is_some(), fits, "{:?}", blocks[0].offset);
        }
        assert_eq!(write(&mut buf[..8], &BLOCKS, 111, &[5]), None);
    }
}
