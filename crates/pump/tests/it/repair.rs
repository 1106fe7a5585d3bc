//! Repairs lost datagrams, as a receiver does with the parity of `fec`.
//!
//! In: RTP datagrams of the session, and those of the ports for parity. Out: the datagrams that were lost.
//! The last 512 datagrams and 128 parities are kept; older ones are let go. For measuring, not for a packet path.
//! Source: SMPTE 2022-1, RFC 2733 §3.

use std::collections::{BTreeMap, VecDeque};

use wire::Seq;
use wire::rtp::FIXED_HEADER_LEN;

/// Payload type of parity datagrams (SMPTE 2022-1 §7).
pub const FEC_PAYLOAD_TYPE: u8 = 96;

/// Bytes behind the RTP header and before the parity.
const FEC_HEADER_LEN: usize = 16;

/// Datagrams that are kept.
const DATAGRAMS_MAX: i16 = 512;

/// Parities that wait for datagrams.
const PARITIES_MAX: usize = 128;

/// Puts one session together again.
#[derive(Debug, Default)]
pub struct Repair {
    datagrams: BTreeMap<u16, Vec<u8>>,
    newest: Option<Seq>,
    parities: VecDeque<Vec<u8>>,
    repaired: VecDeque<Vec<u8>>,
}

impl Repair {
    /// Takes a datagram of the session.
    pub fn handle_datagram(&mut self, datagram: &[u8]) {
        if datagram.len() >= FIXED_HEADER_LEN && datagram[0] >> 6 == 2 {
            self.keep(datagram.to_vec());
            self.repair();
        }
    }

    /// Takes a datagram of one of the ports for parity.
    pub fn handle_parity(&mut self, datagram: &[u8]) {
        if FecHeader::parse(datagram).is_none() {
            return;
        }
        if self.parities.len() == PARITIES_MAX {
            self.parities.pop_front();
        }
        self.parities.push_back(datagram.to_vec());
        self.repair();
    }

    /// A datagram that was lost, as it was sent. Parity does not cover the SSRC, which is the neighbours'.
    pub fn poll_repaired(&mut self) -> Option<Vec<u8>> {
        self.repaired.pop_front()
    }

    fn keep(&mut self, datagram: Vec<u8>) {
        let seq = Seq(u16::from_be_bytes([datagram[2], datagram[3]]));
        let newest = self.newest.filter(|newest| newest.distance_to(seq) <= 0).unwrap_or(seq);
        self.newest = Some(newest);
        self.datagrams.insert(seq.0, datagram);
        self.datagrams.retain(|old, _| (0..DATAGRAMS_MAX).contains(&Seq(*old).distance_to(newest)));
    }

    /// One repair may make the next one possible.
    fn repair(&mut self) {
        while let Some((index, lost)) = self.next_usable() {
            let Some(parity) = self.parities.remove(index) else { return };
            if let Some(datagram) = lost.and_then(|seq| self.rebuild(&parity, seq)) {
                self.repaired.push_back(datagram.clone());
                self.keep(datagram);
            }
        }
    }

    /// A parity of which no datagram is missing, or one.
    fn next_usable(&self) -> Option<(usize, Option<Seq>)> {
        self.parities.iter().enumerate().find_map(|(index, parity)| {
            let (header, _) = FecHeader::parse(parity)?;
            let mut missing = covered(&header).filter(|seq| !self.datagrams.contains_key(&seq.0));
            let lost = missing.next();
            missing.next().is_none().then_some((index, lost))
        })
    }

    fn rebuild(&self, parity: &[u8], lost: Seq) -> Option<Vec<u8>> {
        let (header, sum) = FecHeader::parse(parity)?;
        let mut flags = [parity[0] & 0x3f, parity[1] & 0x80 | header.payload_type_recovery];
        let (mut timestamp, mut len, mut payload) = (header.timestamp_recovery, header.length_recovery, sum.to_vec());
        let mut ssrc = None;
        for datagram in covered(&header).filter_map(|seq| self.datagrams.get(&seq.0)) {
            flags[0] ^= datagram[0] & 0x3f;
            flags[1] ^= datagram[1];
            timestamp ^= u32::from_be_bytes([datagram[4], datagram[5], datagram[6], datagram[7]]);
            len ^= (datagram.len() - FIXED_HEADER_LEN) as u16;
            ssrc = Some(&datagram[8..FIXED_HEADER_LEN]);
            payload.iter_mut().zip(&datagram[FIXED_HEADER_LEN..]).for_each(|(sum, byte)| *sum ^= byte);
        }
        let payload = payload.get(..usize::from(len))?;
        let head =
            [&[0x80 | flags[0], flags[1]][..], &lost.0.to_be_bytes()[..], &timestamp.to_be_bytes(), ssrc?].concat();
        Some([&head[..], payload].concat())
    }
}

/// The datagrams that a parity covers.
fn covered(header: &FecHeader) -> impl Iterator<Item = Seq> + use<> {
    let (base, offset) = (header.base.0, u16::from(header.offset));
    (0..u16::from(header.count)).map(move |index| Seq(base.wrapping_add(index.wrapping_mul(offset))))
}

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

#[test]
fn what_is_no_parity_is_refused() {
    let parsed = |rtp: [u8; 2], offset: u8, len: usize| {
        let datagram = [&rtp[..], &[0; 10], &[0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, offset, 5, 0]].concat();
        FecHeader::parse(&datagram[..len]).is_some()
    };
    assert!(parsed([0x80, 96], 10, 28) && !parsed([0x80, 96], 10, 27));
    assert!(!parsed([0x80, 33], 10, 28) && !parsed([0x47, 96], 10, 28) && !parsed([0x80, 96], 0, 28));
}
