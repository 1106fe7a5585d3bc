//! What the fuzz target of the clock does with its bytes: take them for references, follow them, and look at the times on
//! the way. Shared by the fuzz target and by `crates/pump/tests`, which replays the corpus.
//!
//! The first four bytes are a rate; then come 10 bytes for each reference: how many packets further, its ticks, and a flag.

use pump::clock::{Clock, Mark, Slope, mean_slope};
use wire::ts::Pcr;

/// A step of at most this many ticks is believed whatever rate it means (500 ms).
const STEP_SURE: i64 = Pcr::HZ as i64 / 2;

pub fn clock(data: &[u8]) {
    let Some((&[packets, ticks, more, scale], rest)) = data.split_first_chunk::<4>() else { return };
    let ticks = (u64::from(ticks) + 1) << (scale % 16);
    let slope = Slope { packets: u64::from(packets) + 1 + (u64::from(more) << 8), ticks };
    let marks = marks(rest);
    if let Some(mean) = mean_slope(&marks) {
        assert!(mean.packets > 0 && mean.ticks > 0);
    }
    let Some((first, others)) = marks.split_first() else { return };
    let mut clock = Clock::new(*first, slope);
    assert_eq!((clock.ns_at(first.position), clock.ticks_at(first.position)), (0, 0));
    for next in others {
        follow(&mut clock, *next);
    }
    assert!(clock.jumps() <= others.len() as u64);
}

/// Goes on to the next reference: no time runs back, and where the references continue time is theirs to the tick.
fn follow(clock: &mut Clock, next: Mark) {
    let from = clock.from();
    let (begun_ns, begun) = (clock.ns_at(from.position), clock.ticks_at(from.position));
    clock.aim(next);
    assert_eq!(clock.until().is_some(), next.position > from.position);
    let Some(until) = clock.until() else { return };
    let slope = clock.slope();
    assert!(slope.packets > 0 && slope.ticks > 0);
    let mut before_ns = begun_ns;
    for position in [from.position, from.position.midpoint(until.position), until.position - 1, until.position] {
        let ns = clock.ns_at(position);
        assert!(ns >= before_ns, "time runs back");
        before_ns = ns.max(before_ns);
        assert_eq!(from.pcr.plus(clock.ticks_at(position) - begun), clock.pcr_at(position));
    }
    clock.reach();
    assert_eq!((clock.from(), clock.until()), (until, None));
    assert!(clock.ns_at(until.position) >= before_ns, "time runs back where a reference is reached");
    let step = from.pcr.ticks_to(until.pcr);
    if !until.discontinuity && (1..=STEP_SURE).contains(&step) {
        assert_eq!(clock.ticks_at(until.position) - begun, step, "the references continue");
    }
    assert_eq!(clock.pcr_at(until.position), until.pcr);
    // Without a further reference the rate stays.
    assert!(clock.ns_at(until.position + 1_000) >= clock.ns_at(until.position));
}

fn marks(data: &[u8]) -> Vec<Mark> {
    let mut position = 0;
    let marks = data.as_chunks::<10>().0.iter().map(|&[a, b, c, t0, t1, t2, t3, t4, t5, flags]| {
        position += u64::from_le_bytes([a, b, c & 0x0f, 0, 0, 0, 0, 0]);
        let ticks = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, 0, 0]) % Pcr::MODULUS;
        Mark { position, pcr: Pcr::from_ticks(ticks), discontinuity: flags & 1 != 0 }
    });
    marks.collect()
}
