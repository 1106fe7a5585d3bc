//! Parity datagrams for RTP: what they cover, and what their header says (SMPTE 2022-1, on the layout of RFC 2733 §3).
//!
//! ```text
//! 0       12                  28
//! ┌───────┬───────────────────┬────────────────────────────────┐
//! │RTP, 96│base, length, PT,  │exclusive or of all that stands │
//! │       │time, kind, steps  │behind the covered RTP headers  │
//! └───────┴───────────────────┴────────────────────────────────┘
//! ```

use crate::Seq;
use crate::rtp::FIXED_HEADER_LEN;

/// Payload type of parity datagrams (SMPTE 2022-1 §7).
pub const FEC_PAYLOAD_TYPE: u8 = 96;

/// Bytes behind the RTP header and before the parity.
pub const FEC_HEADER_LEN: usize = 16;

/// The datagrams that a parity covers: `count`, from `base` on, each `offset` behind the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FecHeader {
    /// The first datagram's number.
    pub base: Seq,
    /// Exclusive or of the lengths behind the fixed RTP headers, in bytes; and of payload types and timestamps.
    pub length_recovery: u16,
    /// Exclusive or of the payload types.
    pub payload_type_recovery: u8,
    /// Exclusive or of the timestamps.
    pub timestamp_recovery: u32,
    /// Neighbours are covered (D is 1), and not a column.
    pub is_row: bool,
    /// From one number to the next.
    pub offset: u8,
    /// Datagrams that are covered.
    pub count: u8,
}

impl FecHeader {
    /// The header, extended (E is 1) and without a mask, of the kind exclusive or.
    pub fn to_bytes(self) -> [u8; FEC_HEADER_LEN] {
        let [base0, base1] = self.base.0.to_be_bytes();
        let [length0, length1] = self.length_recovery.to_be_bytes();
        let [time0, time1, time2, time3] = self.timestamp_recovery.to_be_bytes();
        let (payload_type, kind) = (0x80 | self.payload_type_recovery & 0x7f, u8::from(self.is_row) << 6);
        [
            base0,
            base1,
            length0,
            length1,
            payload_type,
            0,
            0,
            0,
            time0,
            time1,
            time2,
            time3,
            kind,
            self.offset,
            self.count,
            0,
        ]
    }

    /// Reads a parity datagram: its header, and the parity. `None` when it is none, or of another kind than exclusive or.
    pub fn parse(datagram: &[u8]) -> Option<(FecHeader, &[u8])> {
        let (rtp, rest) = datagram.split_first_chunk::<FIXED_HEADER_LEN>()?;
        let (header, parity) = rest.split_first_chunk::<FEC_HEADER_LEN>()?;
        let is_parity = rtp[0] >> 6 == 2 && rtp[1] & 0x7f == FEC_PAYLOAD_TYPE && header[12] & 0x38 == 0;
        let header = FecHeader {
            base: Seq(u16::from_be_bytes([header[0], header[1]])),
            length_recovery: u16::from_be_bytes([header[2], header[3]]),
            payload_type_recovery: header[4] & 0x7f,
            timestamp_recovery: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
            is_row: header[12] & 0x40 != 0,
            offset: header[13],
            count: header[14],
        };
        (is_parity && header.offset > 0 && header.count > 0).then_some((header, parity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMN: FecHeader = FecHeader {
        base: Seq(0x1234),
        length_recovery: 0x0524,
        payload_type_recovery: 33,
        timestamp_recovery: 0x0102_0304,
        is_row: false,
        offset: 10,
        count: 5,
    };

    #[test]
    fn the_header_is_where_smpte_2022_1_puts_it_and_is_read_again() {
        let bytes = COLUMN.to_bytes();
        assert_eq!(bytes, [0x12, 0x34, 5, 0x24, 0x80 | 33, 0, 0, 0, 1, 2, 3, 4, 0, 10, 5, 0]);
        let row = FecHeader { is_row: true, offset: 1, count: 10, ..COLUMN };
        assert_eq!(row.to_bytes()[12..], [0x40, 1, 10, 0]);
        for header in [COLUMN, row] {
            let datagram = [&[0x80, FEC_PAYLOAD_TYPE][..], &[0; 10], &header.to_bytes(), &[7; 9]].concat();
            assert_eq!(FecHeader::parse(&datagram), Some((header, &[7; 9][..])));
        }
    }

    #[test]
    fn what_is_no_parity_is_refused() {
        let parsed = |rtp: [u8; 2], header: FecHeader, len: usize| {
            let datagram = [&rtp[..], &[0; 10], &header.to_bytes()].concat();
            FecHeader::parse(&datagram[..len]).is_some()
        };
        assert!(parsed([0x80, 96], COLUMN, 28) && !parsed([0x80, 96], COLUMN, 27));
        assert!(!parsed([0x80, 33], COLUMN, 28) && !parsed([0x47, 96], COLUMN, 28));
        assert!(!parsed([0x80, 96], FecHeader { offset: 0, ..COLUMN }, 28));
    }
}
