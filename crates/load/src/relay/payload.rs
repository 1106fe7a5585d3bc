//! What a message is: who sent it, its number, when, and bytes that are always the same.
//!
//! In: a stamp. Out: bytes, and from bytes the stamp, if nothing was changed on the way.
//! Cost: a copy of the length when written, and a comparison when read.

/// Bytes of a stamp, and so of the shortest message.
pub(super) const STAMP_BYTES: usize = 16;

/// What stands at the front of a message. All numbers are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The client's number on its thread.
    pub(super) client: u32,
    /// Counts the client's messages, from 0.
    pub(super) seq: u32,
    /// When it was sent, in nanoseconds since the thread's epoch.
    pub(super) sent_ns: u64,
}

/// Messages of one length.
pub(super) struct Payload {
    /// A message; its stamp is of no meaning.
    sample: Box<[u8]>,
}

impl Payload {
    /// Of `len` bytes, which has room for a stamp.
    pub(super) fn new(len: usize) -> Self {
        Payload { sample: (0..len).map(|index| (index * 7) as u8).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.sample.len()
    }

    /// Writes a message to the front of `buf`, which has room for it.
    pub(super) fn write(&self, buf: &mut [u8], stamp: Stamp) {
        let buf = &mut buf[..self.sample.len()];
        buf.copy_from_slice(&self.sample);
        buf[..4].copy_from_slice(&stamp.client.to_be_bytes());
        buf[4..8].copy_from_slice(&stamp.seq.to_be_bytes());
        buf[8..STAMP_BYTES].copy_from_slice(&stamp.sent_ns.to_be_bytes());
    }

    /// The stamp of a message; `None` when something of it is not as it was written.
    pub(super) fn read(&self, bytes: &[u8]) -> Option<Stamp> {
        let (stamp, rest) = bytes.split_first_chunk::<STAMP_BYTES>()?;
        let [client, seq, high, low] =
            std::array::from_fn(|word| u32::from_be_bytes(std::array::from_fn(|byte| stamp[word * 4 + byte])));
        (*rest == self.sample[STAMP_BYTES..]).then(|| Stamp {
            client,
            seq,
            sent_ns: u64::from(high) << 32 | u64::from(low),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written_and_not_otherwise() {
        let payload = Payload::new(40);
        let stamp = Stamp { client: 70_000, seq: 5, sent_ns: 1 << 40 | 3 };
        let mut buf = [0xff; 50];
        payload.write(&mut buf, stamp);
        assert_eq!(payload.read(&buf[..40]), Some(stamp));
        assert_eq!(payload.read(&buf[..39]), None);
        assert_eq!(payload.read(&buf[..41]), None);
        buf[39] ^= 1;
        assert_eq!(payload.read(&buf[..40]), None);
        assert_eq!(payload.read(&[]), None);
    }
}
