//! Datagrams over TCP: each behind its length (RFC 4571 §2), as ICE-TCP has it (RFC 6544 §3).

use std::ops::Range;

/// Bytes of the length field.
pub const LENGTH_LEN: usize = 2;

/// What stands at the front of a stream's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// More bytes are needed.
    Incomplete,
    /// A datagram, at this place in the buffer; the next frame begins at its end. It may be empty.
    Datagram { range: Range<usize> },
    /// The frame exceeds the limit. Nothing after it can be found, so the connection has to be closed.
    TooLong { len: usize },
}

/// Finds the first frame of `buf`, whose datagram may have up to `len_max` bytes. Read `LENGTH_LEN + len_max` bytes
/// ahead, and an incomplete frame is never waited for in vain.
pub fn next_frame(buf: &[u8], len_max: usize) -> Frame {
    let Some(length) = buf.first_chunk() else { return Frame::Incomplete };
    let len = usize::from(u16::from_be_bytes(*length));
    let range = LENGTH_LEN..LENGTH_LEN + len;
    match buf.len() {
        _ if len > len_max => Frame::TooLong { len },
        got if got < range.end => Frame::Incomplete,
        _ => Frame::Datagram { range },
    }
}

/// The length field before a datagram of `len` bytes; `None` when 16 bits do not hold it.
pub fn length_field(len: usize) -> Option<[u8; LENGTH_LEN]> {
    u16::try_from(len).ok().map(u16::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_one_after_the_other() {
        let buf = [0, 3, 7, 8, 9, 0, 0, 0, 2, 1];
        assert_eq!(next_frame(&buf, 3), Frame::Datagram { range: 2..5 });
        assert_eq!(next_frame(&buf[5..], 3), Frame::Datagram { range: 2..2 });
        assert_eq!(next_frame(&buf[7..], 3), Frame::Incomplete);
    }

    #[test]
    fn a_frame_over_the_limit_is_known_by_its_length_alone() {
        assert_eq!(next_frame(&[0, 4], 3), Frame::TooLong { len: 4 });
        assert_eq!(next_frame(&[0xff], 3), Frame::Incomplete);
        assert_eq!(next_frame(&[], 3), Frame::Incomplete);
    }

    #[test]
    fn the_length_field_is_big_endian() {
        assert_eq!(length_field(0x1234), Some([0x12, 0x34]));
        assert_eq!(length_field(65_536), None);
    }
}
