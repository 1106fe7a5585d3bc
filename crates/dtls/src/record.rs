//! What stands before each record (RFC 6347 §4.1).
//!
//! ```text
//! content │ 0xfe 0xfd │ epoch 2 │ number 6 │ length 2 │ body
//! ```

/// Bytes of it.
pub const HEADER_LEN: usize = 13;

/// What a record carries (RFC 5246 §6.2.1).
pub(crate) mod content {
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const DATA: u8 = 23;
}

/// The header of a record that is there as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it carries.
    pub content: u8,
    /// 0 before there are keys, 1 with those of the handshake. There is no other: nobody shakes hands again.
    pub epoch: u16,
    /// Its number within the epoch, of 48 bits.
    pub seq: u64,
    /// Bytes of the record, this header among them.
    pub len: usize,
}

impl Header {
    /// Reads the header of the first record of a datagram. `None`: it is none of DTLS 1.2, or not all of it is there. The first
    /// hello of a client may say 1.0 (RFC 6347 §4.1).
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (header, rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
        let [content @ 20..=23, 0xfe, 0xfd | 0xff, epoch_high, epoch_low, seq @ .., len_high, len_low] = *header else {
            return None;
        };
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let seq = seq.iter().fold(0, |seq, byte| seq << 8 | u64::from(*byte));
        let epoch = u16::from_be_bytes([epoch_high, epoch_low]);
        (1..=rest.len()).contains(&len).then_some(Header { content, epoch, seq, len: HEADER_LEN + len })
    }
}
