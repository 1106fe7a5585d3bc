//! Transport-wide congestion control feedback: when each packet of a session arrived.
//!
//! In: a feedback packet's body; or arrivals in order of transport sequence number.
//! Out: (number, arrival) pairs; or one packet, and how many of the arrivals it covers.
//! Cost: O(statuses); no allocation. Statuses per packet are bounded by `STATUS_COUNT_MAX`.
//! Source: draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.1.

use super::write::{PacketWriter, feedback};
use super::{FORMAT_TRANSPORT, RTPFB, split_ssrcs};

/// The most packets that one feedback may speak of; one that says more is malformed. Two bytes can stand for 8,191
/// lost packets, so without a limit a small datagram could ask for a lot of work. At 20,000 packets a second and a
/// feedback every quarter of a second there are 5,000.
pub const STATUS_COUNT_MAX: u16 = 8_192;

/// Arrival ticks of 250 µs in one unit of reference time, 64 ms.
const TICKS_PER_REFERENCE: i64 = 256;

/// Bytes of a packet before its first chunk.
const CHUNKS_START: usize = 20;

const RUN_LEN_MAX: usize = 0x1fff;
const ONE_BIT_SYMBOLS: usize = 14;
const TWO_BIT_SYMBOLS: usize = 7;

/// How a packet's arrival is written; the value is that of the two-bit symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Symbol {
    Lost = 0,
    /// One byte, 0 to 255 ticks after the one before.
    Small = 1,
    /// Two bytes, signed.
    Large = 2,
}

impl Symbol {
    /// `None` for the reserved symbol.
    fn from_bits(bits: u16) -> Option<Self> {
        match bits {
            0 => Some(Symbol::Lost),
            1 => Some(Symbol::Small),
            2 => Some(Symbol::Large),
            _ => None,
        }
    }

    fn of(delta: Option<i16>) -> Self {
        match delta {
            None => Symbol::Lost,
            Some(0..=255) => Symbol::Small,
            Some(_) => Symbol::Large,
        }
    }

    fn delta_len(self) -> usize {
        usize::from(self as u16)
    }
}

/// A row of symbols in two bytes. It begins with 0 and stands for one symbol many times, with 10 for symbols of one bit
/// each, the first at bit 13, or with 11 for symbols of two bits each, the first at bits 13 and 12.
#[derive(Clone, Copy, Debug)]
struct Chunk(u16);

impl Chunk {
    fn len(self) -> u16 {
        match self.0 >> 14 {
            0 | 1 => self.0 & RUN_LEN_MAX as u16,
            2 => ONE_BIT_SYMBOLS as u16,
            _ => TWO_BIT_SYMBOLS as u16,
        }
    }

    /// The symbol at `index`, which is below `len`. `None` for the reserved one.
    fn symbol(self, index: u16) -> Option<Symbol> {
        Symbol::from_bits(match self.0 >> 14 {
            0 | 1 => self.0 >> 13 & 3,
            2 => self.0 >> (13 - index) & 1,
            _ => self.0 >> (12 - 2 * index) & 3,
        })
    }

    /// Bytes that the deltas of the first `count` symbols take; `None` when one of them is reserved.
    fn delta_len(self, count: u16) -> Option<usize> {
        match self.0 >> 14 {
            0 | 1 => Some(usize::from(count) * self.symbol(0)?.delta_len()),
            _ => (0..count).map(|index| Some(self.symbol(index)?.delta_len())).sum(),
        }
    }
}

/// A checked feedback packet.
#[derive(Clone, Copy, Debug)]
pub struct TransportFeedback<'a> {
    /// Transport sequence number of the first packet spoken of.
    pub base_seq: u16,
    /// Packets spoken of, at most `STATUS_COUNT_MAX`.
    packet_status_count: u16,
    /// Units of 64 ms on the receiver's clock; 24 bits, signed, so it wraps every 12 days.
    pub reference_time: i32,
    chunks: &'a [[u8; 2]],
    deltas: &'a [u8],
}

impl<'a> TransportFeedback<'a> {
    /// Checks that chunks and deltas are there for every packet that the count speaks of.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let (.., rest) = split_ssrcs(body)?;
        let (&[base_high, base_low, count_high, count_low, high, middle, low, _], rest) = rest.split_first_chunk()?;
        let packet_status_count = u16::from_be_bytes([count_high, count_low]);
        if packet_status_count > STATUS_COUNT_MAX {
            return None;
        }
        let (chunks, deltas) = split_chunks(rest, packet_status_count)?;
        Some(TransportFeedback {
            base_seq: u16::from_be_bytes([base_high, base_low]),
            packet_status_count,
            reference_time: i32::from_be_bytes([high, middle, low, 0]) >> 8,
            chunks,
            deltas,
        })
    }

    /// Every packet spoken of: its number, and when it arrived, in ticks of 250 µs on the receiver's clock (the clock
    /// of `reference_time`, whose unit is 256 ticks). `None`: it has not arrived.
    pub fn arrivals(&self) -> Arrivals<'a> {
        Arrivals {
            seq: self.base_seq,
            left: self.packet_status_count,
            ticks: i64::from(self.reference_time) * TICKS_PER_REFERENCE,
            chunk: Chunk(0),
            chunk_index: 0,
            chunks: self.chunks,
            deltas: self.deltas,
        }
    }
}

/// Splits the chunks of `status_count` packets from their deltas. What is left over is padding.
fn split_chunks(data: &[u8], status_count: u16) -> Option<(&[[u8; 2]], &[u8])> {
    let chunks = data.as_chunks::<2>().0;
    let mut left = status_count;
    let mut chunk_count = 0;
    let mut delta_len = 0;
    while left > 0 {
        let chunk = Chunk(u16::from_be_bytes(*chunks.get(chunk_count)?));
        let used = chunk.len().min(left);
        delta_len += chunk.delta_len(used)?;
        left -= used;
        chunk_count += 1;
    }
    let deltas = data.get(2 * chunk_count..)?.get(..delta_len)?;
    Some((chunks.get(..chunk_count)?, deltas))
}

/// Iterates over the packets of a feedback.
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    seq: u16,
    left: u16,
    ticks: i64,
    chunk: Chunk,
    chunk_index: u16,
    chunks: &'a [[u8; 2]],
    deltas: &'a [u8],
}

impl Iterator for Arrivals<'_> {
    type Item = (u16, Option<i64>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Empty runs are legal, if odd; `parse` saw that the chunks suffice.
        while self.chunk_index >= self.chunk.len() {
            let (bits, rest) = self.chunks.split_first()?;
            self.chunk = Chunk(u16::from_be_bytes(*bits));
            self.chunk_index = 0;
            self.chunks = rest;
        }
        let delta = match self.chunk.symbol(self.chunk_index)? {
            Symbol::Lost => None,
            Symbol::Small => {
                let (delta, rest) = self.deltas.split_first()?;
                self.deltas = rest;
                Some(i64::from(*delta))
            }
            Symbol::Large => {
                let (delta, rest) = self.deltas.split_first_chunk()?;
                self.deltas = rest;
                Some(i64::from(i16::from_be_bytes(*delta)))
            }
        };
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        self.chunk_index += 1;
        self.ticks += delta.unwrap_or(0);
        Some((seq, delta.map(|_| self.ticks)))
    }
}

/// Writes one feedback about packets from `base_seq` on; `arrivals` are in ticks of 250 µs, `None` for a lost packet.
///
/// Returns the packet's length and how many of the arrivals it covers: fewer than all when the buffer ends, when a
/// packet came more than 8 s after or before the one ahead of it, or at `STATUS_COUNT_MAX`. What is not covered goes
/// into a next feedback. `None` when the buffer is too small for any packet, or none of them arrived.
pub fn write_transport_feedback(
    buf: &mut [u8],
    sender_ssrc: u32,
    media_ssrc: u32,
    base_seq: u16,
    feedback_count: u8,
    arrivals: &[Option<i64>],
) -> Option<(usize, usize)> {
    let first_arrival = arrivals.iter().flatten().next()?;
    let reference_time = first_arrival.div_euclid(TICKS_PER_REFERENCE);
    let mut packet = feedback(buf, sender_ssrc, media_ssrc)?;
    let deltas = Deltas { arrivals, last: reference_time.wrapping_mul(TICKS_PER_REFERENCE) };
    let covered = deltas.fitting(packet.room().checked_sub(CHUNKS_START - 12)?);
    if covered == 0 {
        return None;
    }
    let deltas = Deltas { arrivals: &arrivals[..covered], ..deltas };

    packet.put(&base_seq.to_be_bytes())?;
    packet.put(&(covered as u16).to_be_bytes())?;
    packet.put_u32((reference_time as u32) << 8 | u32::from(feedback_count))?;
    write_chunks(&mut packet, deltas.clone())?;
    for delta in deltas.flatten() {
        match Symbol::of(Some(delta)) {
            Symbol::Small => packet.put(&[delta as u8])?,
            _ => packet.put(&delta.to_be_bytes())?,
        }
    }
    packet.align()?;
    Some((packet.finish(RTPFB, FORMAT_TRANSPORT)?, covered))
}

/// Arrivals as steps from one received packet to the next. Ends at a step that does not fit 16 bits.
#[derive(Clone, Debug)]
struct Deltas<'a> {
    arrivals: &'a [Option<i64>],
    last: i64,
}

impl Iterator for Deltas<'_> {
    type Item = Option<i16>;

    fn next(&mut self) -> Option<Self::Item> {
        let (arrival, rest) = self.arrivals.split_first()?;
        let delta = match arrival {
            None => None,
            Some(ticks) => {
                let delta = i16::try_from(ticks.checked_sub(self.last)?).ok()?;
                self.last = *ticks;
                Some(delta)
            }
        };
        self.arrivals = rest;
        Some(delta)
    }
}

impl Deltas<'_> {
    /// How many packets fit `room` bytes of chunks and deltas. Every chunk but the last stands for at least
    /// `TWO_BIT_SYMBOLS`, so this errs to the safe side.
    fn fitting(&self, room: usize) -> usize {
        let mut delta_len = 0;
        let fits = |(index, delta): &(usize, Option<i16>)| {
            delta_len += Symbol::of(*delta).delta_len();
            let chunks_len = 2 * (index + 1).div_ceil(TWO_BIT_SYMBOLS);
            (chunks_len + delta_len).next_multiple_of(4) <= room
        };
        self.clone().take(STATUS_COUNT_MAX.into()).enumerate().take_while(fits).count()
    }
}

/// Writes the symbols of all packets, in the chunk that takes most of them at each place.
fn write_chunks(packet: &mut PacketWriter<'_>, mut deltas: Deltas<'_>) -> Option<()> {
    loop {
        let mut symbols = deltas.clone().map(Symbol::of);
        let Some(first) = symbols.next() else { return Some(()) };
        let run_len = 1 + symbols.take(RUN_LEN_MAX - 1).take_while(|symbol| *symbol == first).count();

        let ahead = || deltas.clone().map(Symbol::of).take(ONE_BIT_SYMBOLS);
        let one_bit_fits = ahead().all(|symbol| symbol != Symbol::Large);
        let vector_len = if one_bit_fits { ONE_BIT_SYMBOLS } else { TWO_BIT_SYMBOLS }.min(deltas.arrivals.len());
        let (bits, len) = if run_len >= vector_len {
            ((first as u16) << 13 | run_len as u16, run_len)
        } else {
            let (start, width) = if one_bit_fits { (0x8000, 1) } else { (0xc000, 2) };
            let symbols = ahead().take(vector_len).zip(1..);
            (symbols.fold(start, |bits, (symbol, place)| bits | (symbol as u16) << (14 - width * place)), vector_len)
        };
        packet.put(&bits.to_be_bytes())?;
        deltas.nth(len - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Packet, packets};
    use super::*;

    /// Base 7, reference 3 × 64 ms, feedback 9; the caller gives chunks and deltas.
    fn body(status_count: u16, rest: &[u8]) -> Vec<u8> {
        let mut body = vec![0, 0, 0, 1, 0, 0, 0, 2, 0, 7];
        body.extend(status_count.to_be_bytes());
        body.extend([0, 0, 3, 9]);
        body.extend(rest);
        body
    }

    fn arrivals(status_count: u16, rest: &[u8]) -> Vec<(u16, Option<i64>)> {
        let body = body(status_count, rest);
        TransportFeedback::parse(&body).unwrap().arrivals().collect()
    }

    fn round_trip(base_seq: u16, all: &[Option<i64>]) -> (usize, usize) {
        let mut buf = [0xff; 1_200];
        let (len, covered) = write_transport_feedback(&mut buf, 1, 2, base_seq, 3, all).unwrap();
        let Some(Packet::TransportFeedback(read)) = packets(&buf[..len]).unwrap().next() else { panic!() };
        assert_eq!((&buf[4..12], buf[19], read.base_seq), (&[0, 0, 0, 1, 0, 0, 0, 2][..], 3, base_seq));
        assert_eq!(read.arrivals().map(|(_, arrival)| arrival).collect::<Vec<_>>(), all[..covered]);
        (len, covered)
    }

    #[test]
    fn a_run_of_small_deltas_is_read() {
        assert_eq!(arrivals(2, &[0x20, 2, 4, 1]), [(7, Some(772)), (8, Some(773))]);
    }

    #[test]
    fn one_bit_symbols_start_at_the_high_end() {
        assert_eq!(arrivals(3, &[0xa8, 0, 1, 2]), [(7, Some(769)), (8, None), (9, Some(771))]);
    }

    #[test]
    fn two_bit_symbols_have_signed_large_deltas() {
        assert_eq!(arrivals(3, &[0xd8, 0, 10, 0xff, 0xf6, 0, 0]), [(7, Some(778)), (8, Some(768)), (9, None)]);
    }

    #[test]
    fn the_reference_time_is_signed() {
        let mut data = body(1, &[0x20, 1, 0, 0]);
        data[12..15].copy_from_slice(&[0xff, 0xff, 0xff]);
        let feedback = TransportFeedback::parse(&data).unwrap();
        assert_eq!(feedback.reference_time, -1);
        assert_eq!(feedback.arrivals().next(), Some((7, Some(-256))));
    }

    #[test]
    fn counts_without_chunks_or_deltas_are_malformed() {
        for (count, rest) in [
            (1, &[][..]),                  // no chunk
            (2, &[0x20, 2, 4]),            // one delta for two packets
            (1, &[0x40, 1, 4]),            // half a large delta
            (8_193, &[0x1f, 0xff, 0, 99]), // more than anyone may ask for
            (1, &[0x60, 1, 0, 0]),         // reserved symbol
            (5, &[0, 0, 0, 0]),            // empty runs only
        ] {
            assert!(TransportFeedback::parse(&body(count, rest)).is_none(), "{count} {rest:?}");
        }
    }

    #[test]
    fn a_run_longer_than_the_count_is_cut() {
        assert_eq!(arrivals(1, &[0x3f, 0xff, 5, 0]), [(7, Some(773))]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let steady: Vec<_> = (0..100).map(|n| Some(1_000 + 4 * n)).collect();
        assert_eq!(round_trip(65_500, &steady), (20 + 2 + 100 + 2, 100));
        let holes: Vec<_> = (0..100).map(|n| (n % 3 > 0).then_some(-5_000 + 4 * n)).collect();
        assert_eq!(round_trip(0, &holes).1, 100);
        let uneven: Vec<_> = (0..100).map(|n| (n % 5 > 0).then_some(1_000_000 + n * n % 700)).collect();
        assert_eq!(round_trip(0, &uneven).1, 100);
    }

    #[test]
    fn a_step_that_does_not_fit_ends_the_packet() {
        let all = [Some(0), None, Some(32_767), Some(65_535), Some(65_536)];
        assert_eq!(round_trip(1, &all).1, 3);
        assert_eq!(round_trip(1, &[Some(40_000), Some(0)]).1, 1);
    }

    #[test]
    fn the_buffer_s_end_ends_the_packet() {
        let all: Vec<_> = (0..500).map(|n| Some(n * 300)).collect();
        for room in 0..200 {
            let mut buf = vec![0; room];
            match write_transport_feedback(&mut buf, 1, 2, 0, 0, &all) {
                None => assert!(room < 24),
                Some((len, covered)) => assert!(len <= room && covered > 0 && covered < 500, "{room}"),
            }
        }
    }

    #[test]
    fn without_any_arrival_there_is_nothing_to_write() {
        assert_eq!(write_transport_feedback(&mut [0; 100], 1, 2, 0, 0, &[None, None]), None);
        assert_eq!(write_transport_feedback(&mut [0; 100], 1, 2, 0, 0, &[]), None);
    }
}
