//! What a stream tells of itself: lateness, the media delivery index of what is sent, and, where it is asked for, what a
//! receiver next to us would measure.
//!
//! Cost: a few additions per burst; a look at each packet of a stream that is monitored.
//! Source: RFC 4445 (delay factor, media loss rate).

use std::time::Duration;

use super::{Pace, Stream};
use crate::chunk::Chunk;
use crate::monitor::Monitor;
use crate::spec::{Activity, Counters, Pacing, SessionSpec, SessionStats, late_bucket};
use crate::totals::Totals;

const SECOND_NS: i64 = 1_000_000_000;

/// Measures that are under way.
#[derive(Debug, Default)]
pub(super) struct Measure {
    /// When the first burst was written.
    first_ns: Option<i64>,
    /// The second that runs: its begin, and the bounds of lateness in it.
    second_ns: i64,
    low_ns: u32,
    high_ns: u32,
    monitor: Option<Box<Monitor>>,
    /// The time of what is being written, for the monitor.
    now_ns: i64,
}

impl Measure {
    pub(super) fn new(spec: &SessionSpec) -> Self {
        let rate = match spec.play.pacing {
            Pacing::Clock => None,
            Pacing::Rate(rate) | Pacing::Padded(rate) => Some(rate),
        };
        Measure { monitor: spec.play.is_monitored.then(|| Box::new(Monitor::new(rate))), ..Measure::default() }
    }

    pub(super) fn has_monitor(&self) -> bool {
        self.monitor.is_some()
    }

    /// Reads what a burst needs.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.second_ns as u64 ^ u64::from(self.low_ns) ^ u64::from(self.monitor.is_some())
    }

    /// Takes a datagram that is about to be sent.
    pub(super) fn add(&mut self, datagram: &[u8], totals: &mut Totals) {
        let Some(monitor) = &mut self.monitor else { return };
        let before = monitor.priority_sums();
        monitor.handle_datagram(self.now_ns.max(0) as u64, datagram);
        let after = monitor.priority_sums();
        totals.counters.priority_1 += after.0 - before.0;
        totals.counters.priority_2 += after.1 - before.1;
        totals.note_pcr_jitter(monitor.pcr_jitter_max());
    }
}

impl Stream {
    /// Notes how late a burst is.
    pub(super) fn measure(&mut self, now_ns: i64, late_ns: i64, totals: &mut Totals) {
        let late_ns = u32::try_from(late_ns).unwrap_or(u32::MAX);
        self.stats.lateness[late_bucket(late_ns.into())] += 1;
        let measure = &mut self.measure;
        measure.now_ns = now_ns;
        let is_first = measure.first_ns.is_none();
        if !is_first && now_ns - measure.second_ns < SECOND_NS {
            (measure.low_ns, measure.high_ns) = (measure.low_ns.min(late_ns), measure.high_ns.max(late_ns));
            return;
        }
        let spread_ns = measure.high_ns - measure.low_ns;
        (measure.second_ns, measure.low_ns, measure.high_ns) = (now_ns, late_ns, late_ns);
        if is_first {
            measure.first_ns = Some(now_ns);
            return;
        }
        self.stats.delay_factor = Duration::from_nanos(u64::from(spread_ns) + self.interval_ns() as u64);
        self.stats.delay_factor_max = self.stats.delay_factor_max.max(self.stats.delay_factor);
        totals.note_delay_factor(self.stats.delay_factor);
    }

    /// What a chunk that came lacks.
    pub(super) fn note_chunk(&mut self, chunk: &Chunk, counters: &mut Counters) {
        let errors = u64::from(chunk.continuity_errors());
        let lost = match self.spec.live {
            Some(_) => 0,
            None => self.spec.title.packets_of(chunk.number()).saturating_sub(chunk.packet_count().into()),
        };
        self.stats.continuity_errors += errors;
        self.stats.lost += lost;
        counters.continuity_errors += errors;
        counters.lost += lost;
    }

    /// Its numbers as they are now.
    pub(crate) fn stats(&self, now_ns: i64) -> SessionStats {
        let waits = !self.is_running || self.queue.has_ended() && self.pictures.is_none();
        let age_ns = self.measure.first_ns.map_or(0, |first_ns| now_ns - first_ns);
        SessionStats {
            activity: if waits && self.activity == Activity::Loading { Activity::Paused } else { self.activity },
            position: self.queue.position().unwrap_or(self.end_position),
            clock_jumps: self.pace.as_ref().map_or(0, Pace::jumps),
            age: Duration::from_nanos(age_ns.max(0) as u64),
            rtp: self.rtp_point(now_ns),
            report: self.measure.monitor.as_ref().map(|monitor| Box::new(monitor.report())),
            ..self.stats.clone()
        }
    }
}
