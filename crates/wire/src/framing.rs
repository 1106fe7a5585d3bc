//! Datagrams over TCP: where one ends and the next begins.
//!
//! In: what a stream has brought. Out: where its first datagram lies, and what stands around one on its way out.
//! Source: RFC 4571 §2, as ICE-TCP has it (RFC 6544 §3); RFC 8656 §12.5 and §12.6, RFC 8489 §5.

use std::ops::Range;

/// How a stream is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Each datagram stands behind its length, of two bytes (RFC 4571 §2).
    Length16,
    /// STUN messages and ChannelData, which say themselves how long they are. ChannelData is padded to a multiple of four
    /// bytes; its datagram is without the padding (RFC 8656 §12.5).
    Turn,
}

/// What stands at the front of a stream's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// More bytes are needed.
    Incomplete {
        /// Bytes that the frame has, as far as those that are there tell. It is not to be looked at again before.
        len: usize,
    },
    /// A datagram, at this place in the buffer. It may be empty.
    Datagram {
        /// Its bytes.
        range: Range<usize>,
        /// Where the next frame begins.
        end: usize,
    },
    /// That is no frame, or one over the limit. Nothing after it can be found, so the connection has to be closed.
    Invalid,
}

/// What a datagram has around it on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapping {
    header: [u8; 2],
    header_len: usize,
    padding_len: usize,
}

impl Framing {
    /// Finds the first frame of `buf`, which may have up to `frame_max` bytes, its header included. Read as many ahead, and
    /// an incomplete frame is never waited for in vain.
    pub fn next_frame(self, buf: &[u8], frame_max: usize) -> Frame {
        let found = match self {
            Framing::Length16 => length16(buf),
            Framing::Turn => turn(buf),
        };
        match found {
            Ok((_, end)) if end > frame_max => Frame::Invalid,
            Ok((_, end)) if buf.len() < end => Frame::Incomplete { len: end },
            Ok((range, end)) => Frame::Datagram { range, end },
            Err(frame) => frame,
        }
    }

    /// What stands around a datagram of `len` bytes; `None` when there is no frame for one that long.
    pub fn wrap(self, len: usize) -> Option<Wrapping> {
        let short = u16::try_from(len).ok()?;
        let (header, header_len, padding_len) = match self {
            Framing::Length16 => (short.to_be_bytes(), LENGTH_LEN, 0),
            Framing::Turn => ([0; 2], 0, len.next_multiple_of(4) - len),
        };
        Some(Wrapping { header, header_len, padding_len })
    }
}

impl Wrapping {
    /// What stands before the datagram.
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }

    /// What stands behind it.
    pub fn padding(&self) -> &'static [u8] {
        &[0; 3][..self.padding_len]
    }
}

/// Bytes of the length field of RFC 4571.
const LENGTH_LEN: usize = 2;

/// Where the datagram lies and the next frame begins, as the header says; or what there is without a header.
fn length16(buf: &[u8]) -> Result<(Range<usize>, usize), Frame> {
    let len = buf.first_chunk().ok_or(Frame::Incomplete { len: LENGTH_LEN })?;
    let end = LENGTH_LEN + usize::from(u16::from_be_bytes(*len));
    Ok((LENGTH_LEN..end, end))
}

/// Bytes until both kinds have said how long they are; ChannelData has no more before its data.
const TURN_HEADER_LEN: usize = 4;

/// Bytes of a STUN header.
const STUN_HEADER_LEN: usize = 20;

/// The same. The two upper bits tell STUN (00) from ChannelData (01), and the length stands at the same place in both.
fn turn(buf: &[u8]) -> Result<(Range<usize>, usize), Frame> {
    let header_len = match buf.first().map(|first| first >> 6) {
        None | Some(1) => TURN_HEADER_LEN,
        Some(0) => STUN_HEADER_LEN,
        Some(_) => return Err(Frame::Invalid),
    };
    let [_, _, high, low] = buf.first_chunk().ok_or(Frame::Incomplete { len: TURN_HEADER_LEN })?;
    let end = header_len + usize::from(u16::from_be_bytes([*high, *low]));
    // RFC 8489 §5: the length of a STUN message is a multiple of four.
    if header_len == STUN_HEADER_LEN && !end.is_multiple_of(4) {
        return Err(Frame::Invalid);
    }
    Ok((0..end, end.next_multiple_of(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_one_after_the_other() {
        let buf = [0, 3, 7, 8, 9, 0, 0, 0, 2, 1];
        let next = |buf| Framing::Length16.next_frame(buf, 5);
        assert_eq!(next(&buf), Frame::Datagram { range: 2..5, end: 5 });
        assert_eq!(next(&buf[5..]), Frame::Datagram { range: 2..2, end: 2 });
        assert_eq!(next(&buf[7..]), Frame::Incomplete { len: 4 });
    }

    #[test]
    fn a_frame_over_the_limit_is_known_by_its_length_alone() {
        let next = |buf| Framing::Length16.next_frame(buf, 5);
        assert_eq!(next(&[0, 4]), Frame::Invalid);
        assert_eq!(next(&[0xff]), Frame::Incomplete { len: 2 });
        assert_eq!(next(&[]), Frame::Incomplete { len: 2 });
        assert_eq!(Framing::Turn.next_frame(&[0x40, 0, 0, 5], 11), Frame::Invalid);
    }

    #[test]
    fn stun_and_channel_data_say_themselves_how_long_they_are() {
        let next = |buf| Framing::Turn.next_frame(buf, 1_000);
        // ChannelData of 5 bytes takes 12 on the stream, and its datagram has 9.
        let data = [0x40, 1, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, 0x40];
        assert_eq!(next(&data), Frame::Datagram { range: 0..9, end: 12 });
        for len in 0..12 {
            let known = if len < 4 { 4 } else { 12 };
            assert_eq!(next(&data[..len]), Frame::Incomplete { len: known }, "{len}");
        }
        let mut stun = [0; 28];
        stun[3] = 8;
        assert_eq!(next(&stun), Frame::Datagram { range: 0..28, end: 28 });
        assert_eq!(next(&stun[..27]), Frame::Incomplete { len: 28 });
    }

    #[test]
    fn the_longest_lengths_do_not_wrap_round_cve_2026_68552() {
        let next = |buf: &[u8]| Framing::Turn.next_frame(buf, 1 << 17);
        assert_eq!(next(&[0x40, 0, 0xff, 0xff]), Frame::Incomplete { len: 65_540 });
        assert_eq!(next(&[0, 1, 0xff, 0xfc]), Frame::Incomplete { len: 65_552 });
        let whole = [&[0x40, 0, 0xff, 0xff][..], &[7; 65_536]].concat();
        assert_eq!(next(&whole), Frame::Datagram { range: 0..65_539, end: 65_540 });
        assert_eq!(next(&whole[..65_539]), Frame::Incomplete { len: 65_540 });
        assert_eq!(Framing::Turn.next_frame(&whole, 65_539), Frame::Invalid);
    }

    #[test]
    fn what_is_neither_stun_nor_channel_data_is_no_frame() {
        let next = |buf| Framing::Turn.next_frame(buf, 1_000);
        assert_eq!(next(&[0x80]), Frame::Invalid);
        assert_eq!(next(&[0xc0, 0, 0, 0]), Frame::Invalid);
        assert_eq!(next(&[0, 1, 0, 7]), Frame::Invalid, "an attribute has a multiple of four bytes");
    }

    #[test]
    fn a_datagram_is_wrapped_as_it_will_be_found() {
        let wrap = |framing: Framing, len| framing.wrap(len).map(|it| (it.header().to_vec(), it.padding().len()));
        assert_eq!(wrap(Framing::Length16, 0x1234), Some((vec![0x12, 0x34], 0)));
        assert_eq!(wrap(Framing::Length16, 65_536), None);
        assert_eq!(wrap(Framing::Turn, 9), Some((vec![], 3)));
        assert_eq!(wrap(Framing::Turn, 28), Some((vec![], 0)));
    }
}
