//! From a title's first bytes to a `Title`; and how long it plays.
//!
//! One read gives the probe and the first chunk, which is a small one: a session from a cold cache starts after one round
//! trip and 128 KiB.

use std::sync::Arc;
use std::time::Duration;

use pump::chunk::Chunk;
use pump::clock::{Clock, Mark, Slope};
use pump::title::{FIRST_CHUNK_PACKETS, Title, TitleError};

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

/// Places at which a title is looked at to tell how long it plays, and further ones between those of which the clocks are
/// not likely to be one.
pub(crate) const LOOKS: u32 = 16;
pub(crate) const CLOSER_LOOKS: u32 = 48;

/// The same of a title at an origin, all at once, and none between them.
pub(crate) const REMOTE_LOOKS: u32 = 8;

/// Time by the clock is that of one clock for sure when it is within this factor of that by the rates at both ends; and
/// likely to be within that one, where nothing tells better.
const SURE: i64 = 2;
const LIKELY: i64 = 8;

/// Packets of such a look: with a few references, which are 100 ms apart at most.
pub(crate) const LOOK_PACKETS: u64 = 700;

/// How long a title plays, by looks at some of its places (`look_at`): from one to the next by their references, where
/// these are likely to be of one clock. Where they are not, `look_closer` reads the chunk between them, down to one, which it
/// reads whole: so a jump of the clock counts for nothing, unless it is shorter than the time between two places, and a
/// rate that varies for what it is. Where it gives nothing, it is the rate around.
///
/// # Errors
/// What `look_closer` says.
pub(crate) fn duration<E>(
    title: &Title,
    looks: &[Arc<Chunk>],
    look_closer: impl FnMut(u32, bool) -> Result<Option<Chunk>, E>,
) -> Result<Option<Duration>, E> {
    let Some(slope) = title.slope else { return Ok(estimate(title)) };
    let places: Vec<Place> = looks.iter().filter_map(|chunk| Place::of(chunk, slope)).collect();
    let (Some(start), Some(end)) = (places.first(), places.last()) else { return Ok(estimate(title)) };
    let mut looks = Looks { slope, look: look_closer };
    let mut ns = start.slope.ns(start.mark.position).saturating_add(looks.ns_to_the_end(*end, title.packet_count())?);
    for pair in places.windows(2) {
        let [from, to] = pair else { continue };
        ns = ns.saturating_add(looks.ns_between(*from, *to)?);
    }
    Ok(Some(Duration::from_nanos(ns.max(0) as u64)))
}

/// The chunks to look at, `looks` of them, or all where there are fewer.
pub(crate) fn look_at(title: &Title, looks: u32) -> impl Iterator<Item = u32> {
    let last = title.chunk_count().saturating_sub(1);
    let intervals = last.min(looks.max(2) - 1);
    (0..=intervals).map(move |at| (u64::from(at) * u64::from(last) / u64::from(intervals.max(1))) as u32)
}

struct Looks<F> {
    slope: Slope,
    look: F,
}

/// The first reference of a chunk, and the rate there.
#[derive(Clone, Copy)]
struct Place {
    number: u32,
    mark: Mark,
    slope: Slope,
}

impl Place {
    fn of(chunk: &Chunk, slope: Slope) -> Option<Place> {
        let mark = chunk.marks.first().copied()?;
        Some(Place { number: chunk.number, mark, slope: chunk.slope.unwrap_or(slope) })
    }
}

impl<E, F: FnMut(u32, bool) -> Result<Option<Chunk>, E>> Looks<F> {
    fn ns_between(&mut self, from: Place, to: Place) -> Result<i64, E> {
        let packets = to.mark.position.saturating_sub(from.mark.position);
        let by_rates_ns = [from.slope.ns(packets), to.slope.ns(packets)];
        let [short_ns, long_ns] = [by_rates_ns[0].min(by_rates_ns[1]), by_rates_ns[0].max(by_rates_ns[1])];
        let by_clock_ns = from.mark.pcr.ticks_to(to.mark.pcr).saturating_mul(1_000) / 27;
        let is_likely = |factor| (short_ns / factor..=long_ns.saturating_mul(factor)).contains(&by_clock_ns);
        if is_likely(SURE) {
            return Ok(by_clock_ns);
        }
        let is_one_chunk = to.number - from.number <= 1;
        let number = from.number + (to.number - from.number) / 2;
        let Some(chunk) = (self.look)(number, is_one_chunk)? else {
            return Ok(if is_likely(LIKELY) { by_clock_ns } else { short_ns / 2 + long_ns / 2 });
        };
        if let Some(between) = Place::of(&chunk, self.slope).filter(|_| !is_one_chunk) {
            return Ok(self.ns_between(from, between)?.saturating_add(self.ns_between(between, to)?));
        }
        Ok(follow(from, chunk.marks.iter().copied().chain([to.mark])).ns_at(to.mark.position))
    }

    /// From the first reference of the last chunk to the title's last packet.
    fn ns_to_the_end(&mut self, from: Place, packets: u64) -> Result<i64, E> {
        Ok(match (self.look)(from.number, true)? {
            Some(chunk) => follow(from, chunk.marks.iter().copied()).ns_at(packets),
            None => from.slope.ns(packets.saturating_sub(from.mark.position)),
        })
    }
}

fn follow(from: Place, marks: impl Iterator<Item = Mark>) -> Clock {
    let mut clock = Clock::new(from.mark, from.slope);
    for mark in marks {
        clock.aim(mark);
        clock.reach();
    }
    clock
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use pump::sample::Sample;
    use wire::Bitrate;
    use wire::ts::Pcr;

    use super::*;

    /// How long a title plays by `looks` places, and up to `closer` between them.
    fn seconds(bytes: &[u8], looks: u32, closer: u32) -> f64 {
        let title = probe(bytes, bytes.len() as u64, 700).unwrap();
        let look = |number, is_whole| {
            let range = title.chunk_range(number);
            let len = if is_whole { range.end - range.start } else { LOOK_PACKETS * 188 };
            let end = range.end.min(range.start + len);
            Chunk::scan(&title, number, bytes[range.start as usize..end as usize].to_vec())
        };
        let places: Vec<_> = look_at(&title, looks).map(|number| Arc::new(look(number, false))).collect();
        let mut left = closer;
        let duration = duration(&title, &places, |number, is_whole| {
            let may_look = left > 0;
            left = left.saturating_sub(1);
            Ok::<_, Infallible>(may_look.then(|| look(number, is_whole)))
        });
        duration.unwrap().unwrap().as_secs_f64()
    }

    #[test]
    fn a_rate_that_varies_is_no_clock_that_jumps() {
        // Seconds of 1 and of 8 Mbit/s by turns, in this or that order; and one title of long parts.
        for (length, parts) in [(1, 24), (2, 11), (10, 2), (20, 3)] {
            for is_first_slow in [true, false] {
                let bytes: Vec<u8> = (0..parts)
                    .flat_map(|part| {
                        let is_slow = (part % 2 == 0) == is_first_slow;
                        let rate = Bitrate::from_kbps(if is_slow { 1_000 } else { 8_000 });
                        let first_pcr = (1_000 + part * length) * Pcr::HZ;
                        Sample { rate, first_pcr, pictures: 25 * length as u32, seed: part, ..Sample::default() }.make()
                    })
                    .collect();
                let whole = (parts * length) as f64;
                for (looks, closer, off_max) in [(LOOKS, CLOSER_LOOKS, 0.01), (REMOTE_LOOKS, 0, 0.04)] {
                    let told = seconds(&bytes, looks, closer);
                    let off = (told / whole - 1.0).abs();
                    assert!(off < off_max, "{parts} of {length} s, slow first {is_first_slow}, {looks} looks: {told}");
                }
            }
        }
    }

    #[test]
    fn a_title_plays_as_long_as_its_clock_says_also_when_that_wraps() {
        for is_constant in [true, false] {
            for first_pcr in [0, Pcr::MODULUS - 3 * Pcr::HZ] {
                let bytes = Sample { is_constant, first_pcr, ..Sample::default() }.make();
                for (looks, closer, off_max) in [(LOOKS, 0, 0.1), (REMOTE_LOOKS, 0, 0.1), (1, 0, 0.1), (LOOKS, 1, 0.03)]
                {
                    let seconds = seconds(&bytes, looks, closer);
                    assert!((seconds - 10.0).abs() < off_max, "{seconds}");
                }
            }
        }
    }

    #[test]
    fn two_clocks_in_one_title_do_not_make_it_a_day_long() {
        let mut bytes = Sample { first_pcr: 1_000 * Pcr::HZ, ..Sample::default() }.make();
        bytes.extend(Sample { first_pcr: 0, ..Sample::default() }.make());
        for looks in [LOOKS, REMOTE_LOOKS, 2] {
            let seconds = seconds(&bytes, looks, 0);
            assert!((18.0..22.0).contains(&seconds), "{seconds}");
        }
    }

    #[test]
    fn a_clock_that_jumps_does_not_change_how_long_a_title_plays() {
        for is_constant in [true, false] {
            for jump in [-7, 6, 40, 3_600] {
                let first_pcr = 1_000 * Pcr::HZ;
                let mut bytes = Sample { first_pcr, is_constant, ..Sample::default() }.make();
                let first_pcr = (1_010 + jump) as u64 * Pcr::HZ;
                bytes.extend(Sample { first_pcr, is_constant, seed: 2, ..Sample::default() }.make());
                let seconds = seconds(&bytes, LOOKS, CLOSER_LOOKS);

                assert!((19.9..20.1).contains(&seconds), "{jump} s: {seconds}");
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
