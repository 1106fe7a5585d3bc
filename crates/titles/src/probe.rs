//! From a title's first bytes to a `Title`; and how long it plays.
//!
//! One read gives the probe and the first chunk, which is a small one: a session from a cold cache starts after one round
//! trip and 128 KiB.

use std::sync::Arc;
use std::time::Duration;

use pump::chunk::Chunk;
use pump::clock::{Mark, Slope};
use pump::title::{FIRST_CHUNK_PACKETS, Title, TitleError};
use wire::ts::Pcr;

/// A title is probed with this much, however small its chunks are.
const HEAD_MIN: u64 = 128 << 10;

/// And with this much, when its tables or its clock were not in that.
const HEAD_MAX: u64 = 2 << 20;

/// What packets of 188 bytes have in common with the next chunk.
const OVERLAP: u64 = 187;

/// Bytes to read first: what the probe needs, and all of a chunk of so many packets, unless something stands between them.
pub(crate) fn head_len(packets: u32) -> u64 {
    (u64::from(packets) * 188 + OVERLAP).max(HEAD_MIN)
}

/// Packets of the first chunk. Chunks that are not much larger are not cut.
pub(crate) fn first_chunk_packets(chunk_packets: u32) -> u32 {
    if chunk_packets >= 2 * FIRST_CHUNK_PACKETS { FIRST_CHUNK_PACKETS } else { chunk_packets }
}

/// Of an unsuccessful or poor probe with `got` of `len` bytes: how many to try next.
pub(crate) fn next_head_len(probed: &Result<Title, TitleError>, got: u64, len: u64) -> Option<u64> {
    let is_poor = match probed {
        Ok(title) => title.slope.is_none() || title.programs.iter().any(|program| program.pmt.is_empty()),
        Err(TitleError::NoSync { .. }) => true,
        Err(TitleError::TooLong { .. }) => false,
    };
    let more = len.min(HEAD_MAX).min(4 * got.max(HEAD_MIN));
    (is_poor && more > got).then_some(more)
}

pub(crate) fn probe(head: &[u8], len: u64, chunk_packets: u32) -> Result<Title, TitleError> {
    Ok(Title::probe(head, len, chunk_packets)?.with_first_chunk(first_chunk_packets(chunk_packets)))
}

/// The first chunk, when all of its bytes are in the head.
pub(crate) fn first_chunk(title: &Title, head: &[u8]) -> Option<Arc<Chunk>> {
    let range = title.chunk_range(0);
    let bytes = head.get(range.start as usize..range.end as usize).filter(|bytes| !bytes.is_empty())?;
    Some(Arc::new(Chunk::scan(title, 0, bytes.to_vec())))
}

/// How long a title plays at the mean rate of its head.
pub(crate) fn estimate(title: &Title) -> Option<Duration> {
    let ns = title.slope?.ns(title.packet_count());
    Some(Duration::from_nanos(u64::try_from(ns).ok()?))
}

/// How long a title plays by the references in its first and last chunk. The estimate, when they do not belong to one
/// clock. `false`: the two are so far apart that a look at places between them tells better (`duration_by`).
pub(crate) fn duration(title: &Title, first: &Chunk, last: &Chunk) -> Option<(Duration, bool)> {
    let (Some(slope), Some(start), Some(end)) = (title.slope, first.marks.first(), last.marks.last()) else {
        return Some((estimate(title)?, true));
    };
    let span = (end.pcr.ticks() + Pcr::MODULUS - start.pcr.ticks()) % Pcr::MODULUS;
    // Before the first reference and behind the last one, the mean rate of the head.
    let margins = start.position + title.packet_count().saturating_sub(end.position);
    let by_clock = Duration::from_nanos(span * 1_000 / 27) + Duration::from_nanos(slope.ns(margins).max(0) as u64);
    let by_rate = estimate(title)?;
    let is_likely = by_clock >= by_rate / 8 && by_clock <= by_rate * 8;
    let is_sure = by_clock.abs_diff(by_rate) <= by_rate / 32;
    Some((if is_likely { by_clock } else { by_rate }, is_sure))
}

/// Places at which a title is looked at when its clock and its rate disagree.
pub(crate) const LOOKS: u32 = 16;

/// Packets of such a look: with a few references, which are 100 ms apart at most.
pub(crate) const LOOK_PACKETS: u64 = 700;

/// How long a title plays, by looks at some of its places in order: from one to the next by their references, where these are
/// likely to be of one clock, else by the rate around. So a jump of the clock counts for nothing, unless it is shorter than
/// the time between two places.
pub(crate) fn duration_by(title: &Title, looks: &[Chunk]) -> Option<Duration> {
    let slope = title.slope?;
    let marks = looks.iter().filter_map(|look| Some((*look.marks.first()?, look.slope.unwrap_or(slope))));
    let marks: Vec<(Mark, Slope)> = marks.collect();
    let ((start, first_slope), (end, last_slope)) = (marks.first()?, marks.last()?);
    let mut ns = first_slope.ns(start.position) + last_slope.ns(title.packet_count().saturating_sub(end.position));
    for pair in marks.windows(2) {
        let [(from, slope), (to, next_slope)] = pair else { continue };
        let packets = to.position.saturating_sub(from.position);
        let by_rate_ns = slope.ns(packets) / 2 + next_slope.ns(packets) / 2;
        let by_clock_ns = from.pcr.ticks_to(to.pcr).saturating_mul(1_000) / 27;
        let is_likely = (by_rate_ns / 2..=by_rate_ns.saturating_mul(2)).contains(&by_clock_ns);
        ns = ns.saturating_add(if is_likely { by_clock_ns } else { by_rate_ns });
    }
    Some(Duration::from_nanos(ns.max(0) as u64))
}

#[cfg(test)]
mod tests {
    use pump::sample::Sample;

    use super::*;

    fn chunks(bytes: &[u8]) -> (Title, Chunk, Chunk) {
        let title = probe(bytes, bytes.len() as u64, 700).unwrap();
        let chunk = |number| {
            let range = title.chunk_range(number);
            Chunk::scan(&title, number, bytes[range.start as usize..range.end as usize].to_vec())
        };
        let (first, last) = (chunk(0), chunk(title.chunk_count() - 1));
        (title, first, last)
    }

    #[test]
    fn a_title_plays_as_long_as_its_clock_says_also_when_that_wraps() {
        for is_constant in [true, false] {
            for first_pcr in [0, Pcr::MODULUS - 3 * Pcr::HZ] {
                let (title, first, last) = chunks(&Sample { is_constant, first_pcr, ..Sample::default() }.make());

                let seconds = duration(&title, &first, &last).unwrap().0.as_secs_f64();

                assert!((9.9..10.1).contains(&seconds), "{seconds}");
            }
        }
    }

    #[test]
    fn two_clocks_in_one_title_do_not_make_it_a_day_long() {
        let mut bytes = Sample { first_pcr: 1_000 * Pcr::HZ, ..Sample::default() }.make();
        bytes.extend(Sample { first_pcr: 0, ..Sample::default() }.make());
        let (title, first, last) = chunks(&bytes);

        let (by_rate, is_sure) = duration(&title, &first, &last).unwrap();

        assert!((18.0..22.0).contains(&by_rate.as_secs_f64()) && !is_sure, "{by_rate:?}");
    }

    #[test]
    fn a_clock_that_jumps_does_not_change_how_long_a_title_plays() {
        for is_constant in [true, false] {
            for jump in [-7, 6, 40, 3_600] {
                let first_pcr = 1_000 * Pcr::HZ;
                let mut bytes = Sample { first_pcr, is_constant, ..Sample::default() }.make();
                let first_pcr = (1_010 + jump) as u64 * Pcr::HZ;
                bytes.extend(Sample { first_pcr, is_constant, seed: 2, ..Sample::default() }.make());
                let (title, first, last) = chunks(&bytes);
                let looks = (0..LOOKS).map(|look| {
                    let number = look * title.chunk_count() / LOOKS;
                    let range = title.chunk_range(number);
                    Chunk::scan(&title, number, bytes[range.start as usize..range.end as usize].to_vec())
                });

                let (_, is_sure) = duration(&title, &first, &last).unwrap();
                let seconds = duration_by(&title, &looks.collect::<Vec<_>>()).unwrap().as_secs_f64();

                assert!(!is_sure && (18.8..21.2).contains(&seconds), "{jump} s: {seconds}");
            }
        }
    }

    #[test]
    fn the_head_has_the_first_chunk() {
        let bytes = Sample::default().make();
        let title = probe(&bytes[..head_len(700) as usize], bytes.len() as u64, 700).unwrap();

        let chunk = first_chunk(&title, &bytes[..head_len(700) as usize]).unwrap();

        assert_eq!(chunk.packet_count(), 700);
        assert!(chunk.held_bytes() >= 700 * 188 + 187);
        assert_eq!(chunk.bytes(), &bytes[..700 * 188]);
    }

    #[test]
    fn a_title_of_large_chunks_begins_with_a_small_one() {
        let bytes = Sample::default().make();
        let head = &bytes[..head_len(first_chunk_packets(2_786)) as usize];
        let title = probe(head, bytes.len() as u64, 2_786).unwrap();

        let chunk = first_chunk(&title, head).unwrap();
        let second = title.chunk_range(1);

        assert_eq!((head.len() as u64, chunk.packet_count()), (HEAD_MIN, FIRST_CHUNK_PACKETS));
        assert_eq!((second.start, second.end), (637 * 188, 2_786 * 188 + 187));
    }

    #[test]
    fn tables_that_come_late_are_looked_for_further_on() {
        let mut packet = [0xff; 188];
        packet[..4].copy_from_slice(&[0x47, 0x1f, 0xff, 0x10]);
        let mut bytes = packet.repeat(1_000);
        bytes.extend(Sample::default().make());
        let len = bytes.len() as u64;

        let poor = probe(&bytes[..HEAD_MIN as usize], len, 700);
        let next = next_head_len(&poor, HEAD_MIN, len).unwrap();
        let good = probe(&bytes[..next as usize], len, 700);

        assert_eq!(next, 4 * HEAD_MIN);
        assert!(good.as_ref().unwrap().pcr_pid.is_some());
        assert_eq!(next_head_len(&good, next, len), None);
    }
}
