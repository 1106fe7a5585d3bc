//! Records of a client whose handshake is over.
//!
//! In: records, as they are found in datagrams; what is to be sent, where there is room around it. Out: what records carry, in
//! place; records, in place.
//! Cost: no copy and no memory; a key each way and a window of 960 numbers, some 1,300 bytes.
//! Source: RFC 6347 §4.1.2.6 (replay), §4.1.2.7 (what is no good is dropped, and nobody is told), RFC 5246 §7.2.1 (the end).

use std::ops::Range;

use dimpl::RecordKeys;
use dimpl::crypto::Dtls12CipherSuite;
use srtp::Window;

use crate::protect::{Protect, TAG_LEN};
use crate::record::{HEADER_LEN, Header, content};

/// Bytes that a record has more than what it carries, at most.
pub const OVERHEAD_MAX: usize = HEADER_LEN + 8 + TAG_LEN;

/// Blocks of 16 bytes that one key of AES-GCM may seal: those of the 2^24.5 records of 16 KiB of RFC 8446 §5.5, some 380 GB.
/// Where records are as small as they can be, 100,000 a second are nearly a day's.
const BLOCKS_MAX: u64 = 23_726_566 << 10;

/// Those of a record besides what it carries: one for its tag, and two for what is authenticated.
const RECORD_BLOCKS: u64 = 3;

/// Records that any key may seal: their numbers have 48 bits.
const NUMBERS_MAX: u64 = 1 << 48;

/// An alert's two bytes: of warning, close_notify.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Both directions.
#[derive(Debug)]
pub struct Records {
    opens: Protect,
    seals: Protect,
    received: Window,
    next_seq: u64,
    /// Blocks that may still be sealed.
    blocks_left: u64,
}

/// What a record carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Data, which lies there in the record.
    Data(Range<usize>),
    /// A handshake message: the client has not got the end of the handshake, or wants another, which it does not get.
    Handshake,
    /// The client has ended it, or given up.
    End,
    /// Something that means nothing here.
    Nothing,
}

/// Why a record was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It was here before, or is too old to tell.
    #[error("it was here before")]
    Replayed,
    /// It was changed on its way, or is somebody else's.
    #[error("it is not authentic")]
    NotAuthentic,
}

impl Records {
    /// `None`: a cipher suite that nobody was offered.
    pub(crate) fn new(keys: &RecordKeys) -> Option<Self> {
        let mut received = Window::default();
        // Those of the handshake are not to be taken again.
        let newest = keys.newest_received;
        (newest.saturating_sub(Window::<16>::SIZE)..=newest).for_each(|seq| received.accept(seq));
        Some(Records {
            opens: Protect::new(keys.suite, &keys.client_key, &keys.client_iv)?,
            seals: Protect::new(keys.suite, &keys.server_key, &keys.server_iv)?,
            received,
            next_seq: keys.next_seq,
            blocks_left: match keys.suite {
                // Its bound is beyond what there are numbers for.
                Dtls12CipherSuite::ECDHE_ECDSA_CHACHA20_POLY1305_SHA256 => u64::MAX,
                _ => BLOCKS_MAX,
            },
        })
    }

    /// Opens a record with this header in place; more may stand behind it.
    ///
    /// # Errors
    /// When nobody who has the key has sent it just now.
    pub fn open(&mut self, header: &Header, record: &mut [u8]) -> Result<Carried, RecordError> {
        if header.epoch != 1 {
            return Err(RecordError::NotAuthentic);
        }
        if !self.received.is_new(header.seq) {
            return Err(RecordError::Replayed);
        }
        let record = record.get_mut(..header.len).ok_or(RecordError::NotAuthentic)?;
        let place = self.opens.open(header, record).ok_or(RecordError::NotAuthentic)?;
        self.received.accept(header.seq);
        Ok(match header.content {
            content::DATA => Carried::Data(place),
            content::HANDSHAKE => Carried::Handshake,
            // Of two bytes, warnings but for close_notify say nothing of importance.
            content::ALERT if matches!(record[place.clone()], [_, 0] | [2, _]) => Carried::End,
            _ => Carried::Nothing,
        })
    }

    /// Where what is to be sealed has to stand in its buffer.
    #[inline]
    pub fn data_at(&self) -> usize {
        self.seals.content_at()
    }

    /// Makes a record of `len` bytes that stand at `data_at` in `buf`. Returns how many bytes of `buf` it takes. `None`: there
    /// is no room behind them, or the key is used up.
    #[inline]
    pub fn seal(&mut self, buf: &mut [u8], len: usize) -> Option<usize> {
        self.seal_as(content::DATA, buf, len)
    }

    /// Writes that this was all.
    pub fn end(&mut self, buf: &mut [u8]) -> Option<usize> {
        let at = self.data_at();
        buf.get_mut(at..at + CLOSE_NOTIFY.len())?.copy_from_slice(&CLOSE_NOTIFY);
        self.seal_as(content::ALERT, buf, CLOSE_NOTIFY.len())
    }

    /// Whether the key seals nothing any more but the end.
    pub fn is_used_up(&self) -> bool {
        self.next_seq >= NUMBERS_MAX - 1 || self.blocks_left == 0
    }

    fn seal_as(&mut self, content: u8, buf: &mut [u8], len: usize) -> Option<usize> {
        let is_last = content == content::ALERT && self.next_seq < NUMBERS_MAX;
        if self.is_used_up() && !is_last {
            return None;
        }
        let sealed = self.seals.seal(content, self.next_seq, buf, len)?;
        self.next_seq = if is_last { NUMBERS_MAX } else { self.next_seq + 1 };
        self.blocks_left = self.blocks_left.saturating_sub((len as u64).div_ceil(16) + RECORD_BLOCKS);
        Some(sealed)
    }

    /// Leaves so many blocks; for tests.
    #[doc(hidden)]
    pub fn use_up(&mut self, blocks: u64) {
        self.blocks_left = blocks;
    }
}
