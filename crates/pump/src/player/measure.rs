//! What a stream tells of itself: counts, lateness, the media delivery index of what is sent, and, where it is asked for,
//! what a receiver next to us would measure. What all streams count together is counted with it.
//!
//! Cost: a few additions per burst; a look at each packet of a stream that is monitored.
//! Source: RFC 4445 (delay factor, media loss rate).

use std::time::Duration;

use crate::chunk::Chunk;
use crate::monitor::Monitor;
use crate::spec::{Counters, Pacing, PlaySpec, SessionStats, late_bucket};
use crate::totals::Totals;

const SECOND_NS: i64 = 1_000_000_000;

/// A stream's numbers, and measures that are under way.
#[derive(Debug, Default)]
pub(super) struct Measure {
    /// `Player::stats` fills in the rest.
    pub(super) stats: SessionStats,
    /// When the first burst was written.
    pub(super) first_ns: Option<i64>,
    /// The second that runs: its begin, and the bounds of lateness in it.
    pub(super) second_ns: i64,
    pub(super) low_ns: u32,
    pub(super) high_ns: u32,
    /// By how much a title that is padded was moved, as there was no room for it.
    pub(super) pad_shifted_ns: i64,
    pub(super) monitor: Option<Box<Monitor>>,
    /// The time of what is being written, for the monitor.
    pub(super) now_ns: i64,
}

impl Measure {
    pub(super) fn new(play: &PlaySpec) -> Self {
        let rate = match play.pacing {
            Pacing::Clock => None,
            Pacing::Rate(rate) | Pacing::Padded(rate) => Some(rate),
        };
        Measure { monitor: play.is_monitored.then(|| Box::new(Monitor::new(rate))), ..Measure::default() }
    }

    /// Takes a datagram that is about to be sent.
    pub(super) fn add(&mut self, datagram: &[u8], totals: &mut Totals) {
        let Some(monitor) = &mut self.monitor else { return };
        let before = monitor.watch.counts.sums();
        monitor.handle_datagram(self.now_ns.max(0) as u64, datagram);
        let after = monitor.watch.counts.sums();
        totals.counters.priority_1 += after.0 - before.0;
        totals.counters.priority_2 += after.1 - before.1;
        totals.note_pcr_jitter(Duration::from_nanos(monitor.report.pcr_jitter_max_ns));
    }

    /// Notes how late a burst is. `interval_ns` is the time from burst to burst.
    #[inline]
    pub(super) fn count_burst(
        &mut self,
        now_ns: i64,
        late_ns: i64,
        interval_ns: impl FnOnce() -> i64,
        totals: &mut Totals,
    ) {
        let late = Duration::from_nanos(late_ns as u64);
        totals.counters.lateness.record(late);
        self.stats.late_max = self.stats.late_max.max(late);
        let late_ns = u32::try_from(late_ns).unwrap_or(u32::MAX);
        self.stats.lateness[late_bucket(late_ns.into())] += 1;
        self.now_ns = now_ns;
        let is_first = self.first_ns.is_none();
        if !is_first && now_ns - self.second_ns < SECOND_NS {
            (self.low_ns, self.high_ns) = (self.low_ns.min(late_ns), self.high_ns.max(late_ns));
            return;
        }
        let spread_ns = self.high_ns - self.low_ns;
        (self.second_ns, self.low_ns, self.high_ns) = (now_ns, late_ns, late_ns);
        if is_first {
            self.first_ns = Some(now_ns);
            return;
        }
        self.stats.delay_factor = Duration::from_nanos(u64::from(spread_ns) + interval_ns() as u64);
        self.stats.delay_factor_max = self.stats.delay_factor_max.max(self.stats.delay_factor);
        totals.note_delay_factor(self.stats.delay_factor);
    }

    /// What a chunk that came lacks. `expected`: packets of the title; a live input has so many as there are.
    pub(super) fn count_chunk(&mut self, chunk: &Chunk, expected: u64, counters: &mut Counters) {
        let (errors, lost) = (u64::from(chunk.continuity_errors), expected.saturating_sub(chunk.packet_count().into()));
        self.stats.continuity_errors += errors;
        self.stats.lost += lost;
        counters.continuity_errors += errors;
        counters.lost += lost;
    }

    #[inline]
    pub(super) fn count_sent(&mut self, datagrams: u64, len: u64, totals: &mut Totals) {
        self.stats.datagrams += datagrams;
        self.stats.bytes += datagrams * len;
        totals.counters.datagrams += datagrams;
        totals.counters.bytes += datagrams * len;
    }

    pub(super) fn count_parity(&mut self, totals: &mut Totals) {
        self.stats.fec_datagrams += 1;
        totals.counters.fec_datagrams += 1;
    }

    pub(super) fn count_nulls(&mut self, packets: u64, totals: &mut Totals) {
        self.stats.nulls += packets;
        totals.counters.nulls += packets;
    }

    pub(super) fn count_underrun(&mut self, totals: &mut Totals) {
        self.stats.underruns += 1;
        totals.counters.underruns += 1;
    }

    /// A packet is late as the constant rate has no room for it.
    pub(super) fn note_pad_late(&mut self, late_ns: i64) {
        let late = Duration::from_nanos((self.pad_shifted_ns + late_ns).max(0) as u64);
        self.stats.pad_late = self.stats.pad_late.max(late);
    }

    pub(super) fn count_shift(&mut self, totals: &mut Totals) {
        self.stats.shifts += 1;
        totals.counters.shifts += 1;
    }
}
