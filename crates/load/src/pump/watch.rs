//! What one session's receiver sees.
//!
//! In: datagrams with their times of arrival. Out: losses, spacing, delay factor, jitter and lateness.
//! Lateness is how much later than the clock says packets came, counted from those that came earliest within some half a
//! minute. What came at once was sent at once, when its first packet was due: so it is that packet's time that counts,
//! which lies as far before the reference as the packets between them take.
//! Cost: some 20 KiB per session; the histograms are shared.

use pump::monitor::{self, Monitor};
use wire::Bitrate;
use wire::ts::{DATAGRAM_PACKETS, PACKET_LEN, Packet, Pcr, Pid, datagram_packets};

use super::original::{Comparison, Original};
use measure::percentiles::Times;

/// Who gets nothing for this long stalls.
const STALL_NS: u64 = 100_000_000;

/// References that are further apart than this, or from where they should be, have a splice between them.
const JUMP_NS: i64 = 1_000_000_000;

/// References that are compared with each other at most: at 30 a second, of half a minute.
const REFERENCES_MAX: usize = 1_000;

/// Times of all sessions of a thread.
#[derive(Default)]
pub(super) struct Arrivals {
    /// From datagram to datagram within a session.
    pub(super) intervals: Times,
    pub(super) lateness: Times,
}

/// One session.
pub(super) struct Watch {
    /// Constant rate of the stream; the one that was given, else the one that its references tell in the warm-up.
    rate: Option<Bitrate>,
    monitor: Monitor,
    seen: Seen,
    last_ns: Option<u64>,
    packets: u64,
    /// Packets before the burst that is arriving.
    burst: u64,
    /// What comes this soon after a datagram is of the same burst: a third of a datagram's time by the clock.
    at_once_ns: u64,
    /// The reference before the clock began: with the next one it tells how long a packet takes.
    before: Option<Reference>,
    /// The first reference since the clock began.
    zero: Option<Reference>,
    /// The latest one.
    latest: Option<Reference>,
    /// How much more time passed from the first reference's arrival than by the clock, in nanoseconds, for each of them
    /// since it was said to begin.
    apart_ns: Vec<i64>,
}

#[derive(Clone, Copy)]
struct Reference {
    pid: Pid,
    pcr: Pcr,
    /// When its burst came, as if the packets before it in there had come one by one.
    at_ns: u64,
    /// Packets before it.
    place: u64,
}

/// What a session came to.
#[derive(Clone, Default)]
pub(super) struct Seen {
    /// Of the counting's end.
    pub(super) report: monitor::Report,
    pub(super) first_ns: Option<u64>,
    pub(super) stalls: u64,
    /// `None`: it was not compared.
    pub(super) comparison: Option<Comparison>,
    /// It came while others were measured: only its start counts.
    pub(super) is_newcomer: bool,
}

impl Watch {
    pub(super) fn new(rate: Option<Bitrate>, is_compared: bool) -> Self {
        Watch {
            rate,
            monitor: Monitor::new(rate),
            seen: Seen { comparison: is_compared.then(Comparison::default), ..Seen::default() },
            last_ns: None,
            packets: 0,
            burst: 0,
            at_once_ns: 0,
            before: None,
            zero: None,
            latest: None,
            apart_ns: Vec::new(),
        }
    }

    /// Of one that comes while others are measured.
    pub(super) fn of_newcomer() -> Self {
        Watch { seen: Seen { is_newcomer: true, ..Seen::default() }, ..Watch::new(None, false) }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.seen.first_ns.is_some()
    }

    /// Takes a datagram; its times go into `times`.
    pub(super) fn take(&mut self, at_ns: u64, datagram: &[u8], original: Option<&Original>, times: &mut Arrivals) {
        self.seen.first_ns.get_or_insert(at_ns);
        if self.seen.is_newcomer {
            return;
        }
        if let Some(last_ns) = self.last_ns.replace(at_ns) {
            let interval_ns = at_ns.saturating_sub(last_ns);
            times.intervals.record_ns(interval_ns);
            self.seen.stalls += u64::from(interval_ns > STALL_NS);
            // The kernel has one time for all datagrams of a message, but where a chunk ends there are two messages.
            if interval_ns > self.at_once_ns {
                self.burst = self.packets;
            }
        }
        self.monitor.handle_datagram(at_ns, datagram);
        let Ok((_, packets)) = datagram_packets(datagram) else { return };
        if let Some((comparison, original)) = self.seen.comparison.as_mut().zip(original) {
            comparison.take(original, packets);
        }
        for packet in packets {
            self.look_for_reference(at_ns, packet, times);
            self.packets += 1;
        }
    }

    fn look_for_reference(&mut self, at_ns: u64, bytes: &[u8; PACKET_LEN], times: &mut Arrivals) {
        // With an adaptation field, of seven bytes at least, that says that it has one.
        if bytes[3] & 0x20 == 0 || bytes[4] < 7 || bytes[5] & 0x10 == 0 {
            return;
        }
        let Ok(packet) = Packet::parse(bytes) else { return };
        let Some(pcr) = packet.pcr() else { return };
        let mut here = Reference { pid: packet.pid(), pcr, at_ns, place: self.packets };
        let Some(before) = self.latest.or(self.before) else {
            self.before = Some(here);
            return;
        };
        if before.pid != here.pid {
            return;
        }
        let between_ns = clock_ns(before.pcr, pcr);
        let is_sound = !packet.discontinuity() && (1..JUMP_NS).contains(&between_ns);
        if is_sound {
            let (between_ns, packets) = (between_ns as u64, here.place - before.place);
            here.at_ns += between_ns * (here.place - self.burst) / packets;
            self.at_once_ns = between_ns * DATAGRAM_PACKETS as u64 / packets / 3;
        }
        let zero = *self.zero.get_or_insert(here);
        let apart_ns = here.at_ns as i64 - zero.at_ns as i64 - clock_ns(zero.pcr, pcr);
        let is_near = (apart_ns - self.apart_ns.last().copied().unwrap_or(0)).abs() < JUMP_NS;
        if !is_sound || !is_near || self.apart_ns.len() >= REFERENCES_MAX {
            self.end_clock(times);
            self.before = Some(here);
            return;
        }
        self.apart_ns.push(apart_ns);
        self.latest = Some(here);
    }

    fn end_clock(&mut self, times: &mut Arrivals) {
        let earliest = self.apart_ns.iter().copied().min().unwrap_or(0);
        for apart_ns in self.apart_ns.drain(..) {
            times.lateness.record_ns((apart_ns - earliest) as u64);
        }
        (self.before, self.zero, self.latest) = (None, None, None);
    }

    /// Forgets what was counted: the warm-up is over. From here on the rate is known.
    pub(super) fn reset(&mut self) {
        self.rate = self.rate.or_else(|| rate_between(self.zero?, self.latest?));
        self.monitor = Monitor::new(self.rate);
        // The clock goes on, but what is counted begins anew.
        (self.before, self.zero, self.latest) = (self.latest.or(self.before), None, None);
        self.apart_ns.clear();
        self.seen.stalls = 0;
        if let Some(comparison) = &mut self.seen.comparison {
            comparison.reset();
        }
    }

    pub(super) fn finish(&mut self, times: &mut Arrivals) -> Seen {
        self.end_clock(times);
        Seen { report: self.monitor.report(), ..self.seen.clone() }
    }
}

fn clock_ns(from: Pcr, to: Pcr) -> i64 {
    (i128::from(from.ticks_to(to)) * 1_000 / 27) as i64
}

/// The rate at which packets passed between two references.
fn rate_between(from: Reference, to: Reference) -> Option<Bitrate> {
    let ticks = u64::try_from(from.pcr.ticks_to(to.pcr)).ok().filter(|ticks| *ticks > 0)?;
    let bits = u128::from(to.place - from.place) * PACKET_LEN as u128 * 8;
    let bps = (bits * u128::from(Pcr::HZ) + u128::from(ticks / 2)) / u128::from(ticks);
    Some(Bitrate::from_bps(u64::try_from(bps).ok()?)).filter(|rate| *rate > Bitrate::ZERO)
}

#[cfg(test)]
mod tests {
    use measure::percentiles::Percentiles;
    use pump::sample::Sample;
    use wire::ts::DATAGRAM_LEN;

    use super::*;

    const RATE: Bitrate = Bitrate::from_kbps(4_500);

    /// Datagrams of a title at their times, `late_ns` later; the first second is the warm-up.
    fn watch(title: &[u8], late_ns: impl Fn(u64) -> u64) -> (Seen, Arrivals, Option<Bitrate>) {
        let (mut watch, mut times) = (Watch::new(None, true), Arrivals::default());
        let original = Original::of(title).unwrap();
        let mut is_reset = false;
        for (count, datagram) in title.chunks_exact(DATAGRAM_LEN).enumerate() {
            let due_ns = RATE.time_for(DATAGRAM_LEN * count).as_nanos() as u64;
            if due_ns > 1_000_000_000 && !std::mem::replace(&mut is_reset, true) {
                watch.reset();
                times = Arrivals::default();
            }
            watch.take(1_000_000_000 + due_ns + late_ns(count as u64), datagram, Some(&original), &mut times);
        }
        (watch.finish(&mut times), times, watch.rate)
    }

    #[test]
    fn an_even_stream_is_on_time_and_its_rate_is_found() {
        let title = Sample::default().make();
        let (seen, times, rate) = watch(&title, |_| 0);
        let off = rate.unwrap().bps().abs_diff(RATE.bps());
        assert!(off < 50, "{rate:?}");
        let (datagram_ms, lateness) = (2.34, Percentiles::of(&times.lateness));
        assert!((Percentiles::of(&times.intervals).p99_ms - datagram_ms).abs() < 0.01);
        // A reference's place in its datagram is all that it is off by.
        assert!(lateness.max_ms <= datagram_ms, "{lateness}");
        assert!(seen.report.delay_factor_max_ns.unwrap() < 2_400_000, "{:?}", seen.report);
        assert_eq!((seen.report.lost, seen.stalls, seen.first_ns), (0, 0, Some(1_000_000_000)));
        let comparison = seen.comparison.unwrap();
        assert!(comparison.matched > 10_000 && comparison.damaged == 0, "{comparison:?}");
    }

    #[test]
    fn what_is_sent_at_once_is_not_late_wherever_in_it_a_reference_stands() {
        let title = Sample { rate: RATE, ..Sample::default() }.make();
        let (mut watch, mut times) = (Watch::new(None, false), Arrivals::default());
        let burst_len = 7 * DATAGRAM_LEN;
        for (count, burst) in title.chunks(burst_len).enumerate() {
            // One burst in ten comes 3 ms late.
            let late_ns = if count % 10 == 9 { 3_000_000 } else { 0 };
            let at_ns = 1_000_000_000 + RATE.time_for(burst_len * count).as_nanos() as u64 + late_ns;
            for (index, datagram) in burst.chunks(DATAGRAM_LEN).enumerate() {
                // One in seven has a message of its own for its end.
                let message_ns = if count % 7 == 3 && index >= 3 { 50_000 } else { 0 };
                watch.take(at_ns + message_ns, datagram, None, &mut times);
            }
            if count == 20 {
                watch.reset();
                times = Arrivals::default();
            }
        }
        watch.finish(&mut times);
        let lateness = Percentiles::of(&times.lateness);
        assert!(lateness.p50_ms < 0.1 && lateness.count > 100, "{lateness}");
        assert!((lateness.max_ms - 3.0).abs() < 0.1, "{lateness}");
    }

    #[test]
    fn a_late_stretch_is_late_and_a_stall_is_counted() {
        let title = Sample::default().make();
        // 60 datagrams come 150 ms late, all together.
        let (seen, times, _) = watch(&title, |count| if (1_000..1_060).contains(&count) { 150_000_000 } else { 0 });
        assert_eq!(seen.stalls, 1);
        let lateness = Percentiles::of(&times.lateness);
        assert!((150.0..153.0).contains(&lateness.max_ms) && lateness.p50_ms < 3.0, "{lateness}");
        assert!(seen.report.delay_factor_max_ns.unwrap() >= 150_000_000);
    }

    #[test]
    fn what_is_lost_shows_in_the_counters() {
        let mut title = Sample::default().make();
        // The one in the middle may be null packets only.
        title.drain(1_500 * DATAGRAM_LEN..1_510 * DATAGRAM_LEN);
        let (seen, ..) = watch(&title, |_| 0);
        assert!((1..=70).contains(&seen.report.lost), "{:?}", seen.report);
        assert_eq!(seen.comparison.unwrap().damaged, 0);
    }
}
