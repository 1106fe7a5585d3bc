//! What of a peer's SCTP is let in, before str0m sees it, and when.
//!
//! In: the SCTP packets of one association, out of DTLS. Out: whether one goes on, or is held for now.
//! Cost: one look at each chunk's header, or two; a copy of a packet that is held.
//! Source: RFC 9260 §3 (chunks), RFC 6525 (resets), RFC 3758 and RFC 8260 (FORWARD-TSN, I-DATA).
//!
//! sctp-proto makes a stream of each of 65,536 numbers that comes, and with each chunk walks all that there are; it keeps
//! something of each INIT, and of each reset that is not acknowledged. Applications here have a handful of channels and reset none.
//!
//! str0m reads whatever has come, so that the window which is advertised (RFC 9260 §6.2) never closes. A peer that is to wait with its
//! data hears no acknowledgement of what it has sent instead: packets with data are held, and it sends no more than its window.

use std::collections::VecDeque;

/// Streams of an association: those with numbers below. Peers number theirs from 0 or 1 on, in steps of two.
pub(crate) const STREAMS_MAX: u16 = 64;

/// Chunks of one packet. Some 70 of the smallest messages fit a datagram.
const CHUNKS_MAX: usize = 128;

/// Packets with an INIT, of one session. One that is lost is repeated, ever more rarely.
const INITS_MAX: u32 = 32;

/// Packets with a reset, of one session.
const RESETS_MAX: u32 = 256;

/// What is held of one association: as much as its peer has room for by what we advertise. What is more is as if it were lost.
const HELD_BYTES_MAX: usize = 1024 * 1024;

/// What a packet that is held costs beside its bytes.
const HELD_OVERHEAD_BYTES: usize = 64;

/// Bytes of the header that all chunks share (RFC 9260 §3.1).
const COMMON_HEADER_BYTES: usize = 12;

/// Counts what one association's peer has sent of what costs memory.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    inits: u32,
    resets: u32,
}

impl Gate {
    /// Whether a packet goes on. One that does not is as one that was lost: its sender repeats it, and gets nowhere.
    pub fn admits(&mut self, packet: &[u8]) -> bool {
        let Some(mut rest) = packet.get(COMMON_HEADER_BYTES..) else { return false };
        for _ in 0..CHUNKS_MAX {
            let [kind, _, high, low, ..] = *rest else { return rest.is_empty() };
            let len = usize::from(u16::from_be_bytes([high, low]));
            let Some(chunk) = rest.get(..len).filter(|chunk| chunk.len() >= 4) else { return false };
            if !self.admits_chunk(kind, chunk) {
                return false;
            }
            // The last one may come without its padding.
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        rest.is_empty()
    }

    fn admits_chunk(&mut self, kind: u8, chunk: &[u8]) -> bool {
        match kind {
            // DATA and I-DATA: the stream stands behind the TSN.
            0 | 64 => chunk.get(8..10).is_some_and(are_known),
            1 => count(&mut self.inits, INITS_MAX),
            130 => count(&mut self.resets, RESETS_MAX) && admits_resets(&chunk[4..]),
            // FORWARD-TSN and I-FORWARD-TSN: behind a TSN, of each stream its number and 2 or 6 bytes more.
            192 => chunk.get(8..).is_some_and(|streams| streams.chunks(4).all(are_known)),
            194 => chunk.get(8..).is_some_and(|streams| streams.chunks(8).all(are_known)),
            _ => true,
        }
    }
}

/// Packets that wait, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Held {
    packets: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn push(&mut self, packet: &[u8]) {
        let bytes = packet.len() + HELD_OVERHEAD_BYTES;
        if self.bytes + bytes <= HELD_BYTES_MAX {
            self.bytes += bytes;
            self.packets.push_back(packet.into());
        }
    }

    /// Copies the oldest into a buffer that it came out of.
    pub fn pop<'a>(&mut self, buf: &'a mut [u8]) -> Option<&'a [u8]> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.len() + HELD_OVERHEAD_BYTES;
        let to = buf.get_mut(..packet.len())?;
        to.copy_from_slice(&packet);
        Some(to)
    }
}

/// Whether there is data in a packet that is let in.
pub(crate) fn has_data(packet: &[u8]) -> bool {
    let mut rest = packet.get(COMMON_HEADER_BYTES..).unwrap_or_default();
    while let [kind, _, high, low, ..] = *rest {
        if matches!(kind, 0 | 64) {
            return true;
        }
        let len = usize::from(u16::from_be_bytes([high, low]));
        rest = rest.get(len.next_multiple_of(4).max(4)..).unwrap_or_default();
    }
    false
}

/// Counts one more, unless there were so many.
fn count(number: &mut u32, max: u32) -> bool {
    *number = number.saturating_add(1);
    *number <= max
}

/// Whether what begins with the number of a stream, or ends before it, is of one that there may be.
fn are_known(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_none_or(|number| u16::from_be_bytes(*number) < STREAMS_MAX)
}

/// Looks at the parameters of a RE-CONFIG chunk (RFC 6525 §4).
fn admits_resets(mut parameters: &[u8]) -> bool {
    while let [_, kind, high, low, ..] = *parameters {
        let len = usize::from(u16::from_be_bytes([high, low]));
        let Some(parameter) = parameters.get(..len).filter(|parameter| parameter.len() >= 4) else { return false };
        let streams = match kind {
            // Outgoing: three numbers first. Incoming: one.
            13 => parameter.get(16..),
            14 => parameter.get(8..),
            // Nobody here adds streams.
            17 | 18 => return false,
            _ => None,
        };
        if !streams.unwrap_or_default().chunks(2).all(are_known) {
            return false;
        }
        parameters = parameters.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(chunks: &[&[u8]]) -> Vec<u8> {
        let mut packet = vec![0; COMMON_HEADER_BYTES];
        for chunk in chunks {
            packet.extend_from_slice(chunk);
            packet.resize(packet.len().next_multiple_of(4), 0);
        }
        packet
    }

    /// One byte of data on a stream.
    fn data(stream: u16) -> Vec<u8> {
        let [high, low] = stream.to_be_bytes();
        vec![0, 3, 0, 17, 0, 0, 0, 1, high, low, 0, 0, 0, 0, 0, 51, 7]
    }

    fn reset(streams: &[u16]) -> Vec<u8> {
        let len = 16 + 2 * streams.len() as u8;
        let mut chunk = vec![130, 0, 0, 4 + len, 0, 13, 0, len];
        chunk.extend_from_slice(&[0; 12]);
        chunk.extend(streams.iter().flat_map(|stream| stream.to_be_bytes()));
        chunk
    }

    #[test]
    fn streams_with_high_numbers_are_not_let_in_whatever_names_them() {
        let mut gate = Gate::default();
        for (stream, is_in) in [(0, true), (STREAMS_MAX - 1, true), (STREAMS_MAX, false), (u16::MAX, false)] {
            let [high, low] = stream.to_be_bytes();
            let forward = [192, 0, 0, 12, 0, 0, 0, 1, high, low, 0, 0];
            let interleaved = [194, 0, 0, 16, 0, 0, 0, 1, high, low, 0, 0, 0, 0, 0, 0];
            for chunk in [&data(stream)[..], &reset(&[1, stream]), &forward, &interleaved] {
                assert_eq!(gate.admits(&packet(&[chunk])), is_in, "{stream} {chunk:?}");
                assert_eq!(gate.admits(&packet(&[&data(0), chunk])), is_in, "{stream} {chunk:?}, behind another");
            }
        }
    }

    #[test]
    fn what_costs_memory_is_let_in_so_many_times() {
        let mut gate = Gate::default();
        let init = packet(&[&[1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 255, 255, 255, 255, 0, 0, 0, 1]]);
        assert_eq!((0..1_000).filter(|_| gate.admits(&init)).count(), INITS_MAX as usize);
        let reset = packet(&[&reset(&[1])]);
        assert_eq!((0..1_000).filter(|_| gate.admits(&reset)).count(), RESETS_MAX as usize);
        assert!((0..10_000).all(|_| gate.admits(&packet(&[&data(1)]))));
    }

    #[test]
    fn data_is_found_behind_what_is_none() {
        let (heartbeat, sack): (&[u8], &[u8]) = (&[4, 0, 0, 4], &[3, 0, 0, 16, 0, 0, 0, 1, 0, 0, 9, 0, 0, 0, 0, 0]);
        assert!(has_data(&packet(&[&data(1)])) && has_data(&packet(&[sack, heartbeat, &data(1)])));
        assert!(!has_data(&packet(&[sack, heartbeat])) && !has_data(&packet(&[])));
    }

    #[test]
    fn what_is_held_comes_out_in_order_and_is_no_more_than_the_window() {
        let (mut held, mut buf) = (Held::default(), [0; 2_000]);
        (0..3).for_each(|number| held.push(&[number; 1_200]));
        for number in 0..3 {
            assert_eq!(held.pop(&mut buf), Some(&[number; 1_200][..]));
        }
        assert!(held.pop(&mut buf).is_none() && held.is_empty());
        (0..10_000).for_each(|_| held.push(&[7; 1_200]));
        let count = std::iter::from_fn(|| held.pop(&mut buf).map(|_| ())).count();
        assert_eq!(count, HELD_BYTES_MAX / (1_200 + HELD_OVERHEAD_BYTES));
    }

    #[test]
    fn packets_that_make_no_sense_and_those_of_too_many_chunks_are_not_let_in() {
        let mut gate = Gate::default();
        let heartbeat: &[u8] = &[4, 0, 0, 4];
        assert!(gate.admits(&packet(&[heartbeat; CHUNKS_MAX])));
        assert!(!gate.admits(&packet(&[heartbeat; CHUNKS_MAX + 1])));
        for chunk in [&[0, 0, 0, 3][..], &[0, 0, 0, 200, 1], &[0, 3, 0, 8, 0, 0, 0, 1], &[130, 0, 0, 8, 0, 13, 0, 99]] {
            assert!(!gate.admits(&packet(&[chunk])), "{chunk:?}");
        }
        assert!(!gate.admits(&[0; 11]));
    }
}
