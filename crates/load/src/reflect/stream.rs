//! The stream that a load is the source of: a transport stream of which every byte is known by where it stands.
//!
//! In: a rate, and how often one can begin. Out: packets by their number; and of one that came, whether it is as it was
//! sent, its number and when it was sent. So a viewer can be checked from wherever it begins.
//! How: each packet has a stamp among the private data of its adaptation field; the rest follows from the number. A round is
//! a PAT, a PMT, a packet at which a decoder can begin, and others.
//! Cost: some 50 ns for a packet, made or checked; 64 KiB of noise.
//! Source: ISO/IEC 13818-1 §2.4.3.4 (adaptation field) and §2.4.4 (PAT, PMT).

use std::time::Duration;

use anyhow::{Result, ensure};
use wire::ts::{
    PACKET_LEN, Pcr, Pid, PmtStream, SECTION_LEN_MAX, SYNC_BYTE, Timestamp, write_pat, write_pes_header, write_pmt,
};
use wire::{Bitrate, Random};

// 0      4   5     6   7                    27
// ┌──────┬───┬─────┬───┬────────────────────┬─────────┐   Before the second length is a PCR, six bytes,
// │header│len│flags│len│number, time, check │ payload │   where a decoder can begin.
// └──────┴───┴─────┴───┴────────────────────┴─────────┘

/// Eight bytes, eight, and four.
const STAMP_LEN: usize = 20;

/// Where the stamp's length stands, without a PCR and with one.
const PLAIN_AT: usize = 6;
const WITH_PCR_AT: usize = 12;

/// Flags of an adaptation field: private data, a PCR, a decoder may begin.
const HAS_PRIVATE: u8 = 0x02;
const HAS_PCR: u8 = 0x10;
const RANDOM_ACCESS: u8 = 0x40;

const PMT_PID: Pid = Pid::new(0x1000).unwrap();
const VIDEO_PID: Pid = Pid::new(0x100).unwrap();
const STREAM_TYPE_H264: u8 = 0x1b;
const VIDEO_STREAM_ID: u8 = 0xe0;

/// Bytes of noise, of which each packet has another part.
const NOISE_LEN: usize = 1 << 16;

/// Packets in a round at least: its tables, its first one, and others.
const ROUND_MIN: u64 = 8;

/// What is known of a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Counted from the stream's beginning.
    pub(super) number: u64,
    /// Nanoseconds since 1970.
    pub(super) sent_ns: u64,
}

/// How the stream is made.
pub(super) struct Stream {
    rate: Bitrate,
    /// Packets from one that a decoder can begin at to the next.
    round: u64,
    pat: Vec<u8>,
    pmt: Vec<u8>,
    noise: Box<[u8]>,
}

/// What a packet is by its place in the round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pat,
    Pmt,
    /// A decoder can begin here.
    Start,
    Other,
}

impl Stream {
    /// A stream of constant rate with a start point each `interval`.
    ///
    /// # Errors
    /// When that is less than eight packets.
    pub(super) fn new(rate: Bitrate, interval: Duration) -> Result<Self> {
        let round = packets_in(rate, interval);
        ensure!(round >= ROUND_MIN, "{} ms at {rate} are less than {ROUND_MIN} packets", interval.as_millis());
        let video = PmtStream { stream_type: STREAM_TYPE_H264, pid: VIDEO_PID, descriptors: &[] };
        Ok(Stream {
            rate,
            round,
            pat: section(|buf| write_pat(buf, 1, 0, [(1, PMT_PID)])),
            pmt: section(|buf| write_pmt(buf, 1, 0, VIDEO_PID, &[], [video])),
            noise: noise(),
        })
    }

    pub(super) fn rate(&self) -> Bitrate {
        self.rate
    }

    /// Whether one who begins with this packet can show the next picture: it is such a packet, or the first of its tables.
    pub(super) fn is_entrance(&self, number: u64) -> bool {
        matches!(self.kind(number), Kind::Start | Kind::Pat)
    }

    /// Whether a decoder can begin at this packet.
    pub(super) fn is_start(&self, number: u64) -> bool {
        self.kind(number) == Kind::Start
    }

    fn kind(&self, number: u64) -> Kind {
        match number % self.round {
            0 => Kind::Pat,
            1 => Kind::Pmt,
            2 => Kind::Start,
            _ => Kind::Other,
        }
    }

    /// Makes a packet.
    pub(super) fn write(&self, Stamp { number, sent_ns }: Stamp, packet: &mut [u8; PACKET_LEN]) {
        let kind = self.kind(number);
        let rounds = number / self.round;
        let (pid, continuity) = match kind {
            Kind::Pat => (Pid::PAT, rounds),
            Kind::Pmt => (PMT_PID, rounds),
            // All but two packets of each round.
            Kind::Start | Kind::Other => (VIDEO_PID, number - 2 * (rounds + 1)),
        };
        let [high, low] = pid.number().to_be_bytes();
        let unit_start = if kind == Kind::Other { 0 } else { 0x40 };
        let at = if kind == Kind::Start { WITH_PCR_AT } else { PLAIN_AT };
        let payload_at = at + 1 + STAMP_LEN;
        let flags = if kind == Kind::Start { HAS_PRIVATE | HAS_PCR | RANDOM_ACCESS } else { HAS_PRIVATE };
        packet[..6].copy_from_slice(&[
            SYNC_BYTE,
            unit_start | high,
            low,
            0x30 | (continuity & 0x0f) as u8,
            (payload_at - 5) as u8,
            flags,
        ]);
        if kind == Kind::Start {
            packet[6..12].copy_from_slice(&Pcr::from_ticks(self.ticks(number, Pcr::HZ) % Pcr::MODULUS).to_field());
        }
        packet[at] = STAMP_LEN as u8;
        packet[at + 1..at + 9].copy_from_slice(&number.to_be_bytes());
        packet[at + 9..at + 17].copy_from_slice(&sent_ns.to_be_bytes());
        let check = check(number, sent_ns);
        packet[at + 17..payload_at].copy_from_slice(&check.to_be_bytes());
        self.write_payload(number, check, kind, &mut packet[payload_at..]);
    }

    fn write_payload(&self, number: u64, check: u32, kind: Kind, payload: &mut [u8]) {
        let section = match kind {
            Kind::Pat => Some(&self.pat),
            Kind::Pmt => Some(&self.pmt),
            Kind::Start | Kind::Other => None,
        };
        if let Some(section) = section {
            payload.fill(0xff);
            payload[0] = 0;
            payload[1..=section.len()].copy_from_slice(section);
            return;
        }
        let mut header_len = 0;
        if kind == Kind::Start {
            let pts = Timestamp::from_ticks(self.ticks(number, PTS_HZ) % Timestamp::MODULUS);
            header_len =
                write_pes_header(payload, VIDEO_STREAM_ID, usize::from(u16::MAX), Some(pts), None).unwrap_or(0);
        }
        let rest = &mut payload[header_len..];
        let from = check as usize % NOISE_LEN;
        rest.copy_from_slice(&self.noise[from..from + rest.len()]);
    }

    /// The stream's clock at a packet.
    fn ticks(&self, number: u64, hz: u64) -> u64 {
        let bits = u128::from(number) * 8 * PACKET_LEN as u128;
        (bits * u128::from(hz) / u128::from(self.rate.bps())) as u64
    }

    /// What a packet says of itself; `None` when any byte is not as it was sent.
    pub(super) fn read(&self, packet: &[u8; PACKET_LEN]) -> Option<Stamp> {
        let at = if packet[5] & HAS_PCR == 0 { PLAIN_AT } else { WITH_PCR_AT };
        let word = |from: usize| packet[from..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let stamp = Stamp { number: word(at + 1)?, sent_ns: word(at + 9)? };
        let mut made = [0; PACKET_LEN];
        self.write(stamp, &mut made);
        (made == *packet).then_some(stamp)
    }

    /// Whether it is one of the tables, as a server that keeps them would write it anew: without a stamp.
    pub(super) fn is_own_table(&self, packet: &[u8; PACKET_LEN]) -> bool {
        let [SYNC_BYTE, high, low, flags, 0, payload @ ..] = packet else { return false };
        let section = match (high & 0xe0, Pid::new(u16::from_be_bytes([high & 0x1f, *low]))) {
            (0x40, Some(Pid::PAT)) => &self.pat,
            (0x40, Some(PMT_PID)) => &self.pmt,
            _ => return false,
        };
        let (table, stuffing) = payload.split_at(section.len());
        flags >> 4 == 1 && table == section && stuffing.iter().all(|byte| *byte == 0xff)
    }
}

/// Ticks of a presentation time in a second.
const PTS_HZ: u64 = 90_000;

/// Of a stamp: so one that was changed is none any more.
fn check(number: u64, sent_ns: u64) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sent_ns.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

/// Whole packets that pass in a time.
pub(super) fn packets_in(rate: Bitrate, span: Duration) -> u64 {
    (u128::from(rate.bps()) * span.as_nanos() / (8_000_000_000 * PACKET_LEN as u128)) as u64
}

fn section(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut buf = vec![0; SECTION_LEN_MAX];
    let len = write(&mut buf).expect("a section has room for one program of one stream");
    buf.truncate(len);
    buf
}

/// The same at each start, so that two processes make the same stream. Without zeros there is no start code in it.
fn noise() -> Box<[u8]> {
    let mut random = Random::new(1);
    let next = || random.next_u64() as u8 | 1;
    std::iter::repeat_with(next).take(NOISE_LEN + PACKET_LEN).collect()
}

#[cfg(test)]
mod tests {
    use wire::ts::{Packet, Pat, Pmt, Section, SectionBuffer};

    use super::*;

    fn stream() -> Stream {
        Stream::new(Bitrate::from_kbps(2_000), Duration::from_secs(1)).unwrap()
    }

    fn packet(stream: &Stream, number: u64) -> [u8; PACKET_LEN] {
        let mut packet = [0; PACKET_LEN];
        stream.write(Stamp { number, sent_ns: 1_700_000_000_123_456_789 }, &mut packet);
        packet
    }

    #[test]
    fn what_was_written_is_read_and_no_byte_can_be_another() {
        let stream = stream();
        for number in [0, 1, 2, 3, stream.round - 1, 7 * stream.round + 2, u64::MAX / 2] {
            let packet = packet(&stream, number);
            let stamp = stream.read(&packet).unwrap();
            assert_eq!((stamp.number, stamp.sent_ns), (number, 1_700_000_000_123_456_789));
            for at in 0..PACKET_LEN {
                for change in [0x01, 0x10, 0x80, 0xff] {
                    let mut other = packet;
                    other[at] ^= change;
                    assert_eq!(stream.read(&other), None, "packet {number}, byte {at}");
                }
            }
        }
    }

    #[test]
    fn the_stream_is_one_that_others_can_read() {
        let stream = stream();
        let (mut counters, mut clocks) = ([None; Pid::COUNT], Vec::new());
        let mut programs = 0;
        for number in 0..3 * stream.round {
            let bytes = packet(&stream, number);
            let packet = Packet::parse(&bytes).unwrap();
            let counter = &mut counters[usize::from(packet.pid().number())];
            assert!(counter.is_none_or(|before: u8| (before + 1) & 0x0f == packet.continuity()), "{number}");
            *counter = Some(packet.continuity());
            clocks.extend(packet.pcr().map(Pcr::ticks));
            let is_start = packet.adaptation().is_some_and(|field| field.random_access());
            assert_eq!(is_start, stream.is_start(number));
            if number % stream.round < 2 {
                let mut tables = SectionBuffer::default();
                tables.push(&packet, |bytes| {
                    let section = Section::parse(bytes).unwrap();
                    match number % stream.round {
                        0 => programs += Pat::parse(section).unwrap().programs().count(),
                        _ => assert_eq!(Pmt::parse(section).unwrap().streams().count(), 1),
                    }
                });
            }
        }
        assert_eq!((programs, clocks.len()), (3, 3));
        assert_eq!(clocks[1] - clocks[0], stream.ticks(stream.round, Pcr::HZ));
    }

    #[test]
    fn tables_without_a_stamp_are_known() {
        let stream = stream();
        for (section, pid) in [(&stream.pat, Pid::PAT), (&stream.pmt, PMT_PID)] {
            wire::ts::section_packets(section, pid, 5, |packet| {
                assert!(stream.is_own_table(packet) && stream.read(packet).is_none());
                for at in (0..PACKET_LEN).filter(|at| *at != 3) {
                    let mut other = *packet;
                    other[at] ^= 0x01;
                    assert!(!stream.is_own_table(&other), "{at}");
                }
            });
        }
        assert!(!stream.is_own_table(&packet(&stream, 0)));
    }

    #[test]
    fn a_round_has_room_for_what_is_in_it() {
        assert!(Stream::new(Bitrate::from_kbps(100), Duration::from_millis(100)).is_err());
    }
}
