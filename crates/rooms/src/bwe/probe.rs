//! Finds out whether more fits than is being sent, by short clusters of packets at a higher rate.
//!
//! In: the wish for more, each packet sent, each packet received. Out: when to send a cluster, and what rate it proved.
//! Cost: O(1) per packet, 200 bytes. Source: libwebrtc modules/congestion_controller/goog_cc/probe_controller.cc (when and
//! how much) and probe_bitrate_estimator.cc (what it proves).

use std::time::{Duration, Instant};

use wire::Bitrate;

use super::rate::APP_LIMITED;

/// How much more than the wanted rate is asked for: the room that a switch up needs.
pub const HEADROOM: f64 = 1.2;
/// A cluster asks for at most this many times the estimate: before the first failure, and after
/// (`first_exponential_probe_scale`, `further_exponential_probe_scale`).
const STEP_FIRST: f64 = 3.0;
const STEP: f64 = 2.0;
/// Length and size of a cluster (`min_probe_duration` is 15 ms; longer, because arrival times come in steps of 250 µs).
const DURATION: Duration = Duration::from_millis(25);
const BYTES_MIN: usize = 2_000;
/// Time between two clusters: while each finds more, after one that did not, and the longest.
const PAUSE_FOLLOW_UP: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(32);
/// A cluster that its sender did not finish by now is given up (`kMaxProbeInterval`, halved).
const SEND_TIMEOUT: Duration = Duration::from_millis(500);
/// … and one about which feedback is still missing (`kMaxClusterHistory`).
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Packets sent so long after a cluster may still wait behind it: three times the estimate for 25 ms is 75 ms worth of
/// data, which a path drains in this time with a third of its capacity to spare.
const DRAIN_US: i64 = 225_000;
/// Shares of the packets and bytes that must have arrived (`kMinReceivedProbesRatio`, `kMinReceivedBytesRatio`).
const RECEIVED_MIN: f64 = 0.8;
/// Arrivals that are faster than the send rate by more than this are no measurement (`kMaxValidRatio`).
const SPEED_UP_MAX: f64 = 2.0;
/// Below this ratio the link was full (`kMinRatioForUnsaturatedLink`), and this share of what came through is used
/// (`kTargetUtilizationFraction`).
const UNSATURATED: f64 = 0.9;
const UTILIZATION: f64 = 0.95;

/// When to probe, and the cluster under way.
#[derive(Debug)]
pub(super) struct Prober {
    pub(super) cluster: Option<Cluster>,
    /// No cluster before this.
    not_before: Option<Instant>,
    pause: Duration,
    /// Every cluster so far found what it asked for.
    ramping: bool,
    /// Send times in µs between which the last cluster's queue is felt.
    disturbed_us: Option<(i64, i64)>,
}

/// Packets sent at one rate, and how they arrived. All times in µs.
#[derive(Debug)]
pub(super) struct Cluster {
    asked_bps: f64,
    bytes_left: usize,
    give_up: Instant,
    first_seq: u16,
    last_seq: u16,
    sent: Side,
    received: Side,
    last_reported: bool,
}

/// One end's view of a cluster.
#[derive(Debug, Default)]
struct Side {
    packets: u32,
    bytes: u64,
    first_us: i64,
    last_us: i64,
    first_bytes: u64,
    last_bytes: u64,
}

impl Prober {
    pub(super) fn new() -> Self {
        Prober { cluster: None, not_before: None, pause: PAUSE, ramping: true, disturbed_us: None }
    }

    /// The bytes to send at once, by media, padding or retransmissions, for a cluster that would tell whether `goal_bps` fits;
    /// when it is time for one.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        goal_bps: f64,
        estimate_bps: f64,
        acked_bps: Option<f64>,
    ) -> Option<usize> {
        if self.cluster.is_some() || goal_bps <= estimate_bps || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        // After the ramp only while little of the estimate is used; otherwise media finds out by itself, as in libwebrtc,
        // which probes in the application-limited region alone (alr_detector.cc).
        if !self.ramping && acked_bps.is_some_and(|acked_bps| acked_bps > APP_LIMITED * estimate_bps) {
            return None;
        }
        let step = if self.ramping { STEP_FIRST } else { STEP };
        let rate = Bitrate::from_bps(goal_bps.min(estimate_bps * step) as u64);
        let bytes = (rate.scale(DURATION.as_secs_f64()).bps() as usize / 8).max(BYTES_MIN);
        self.cluster = Some(Cluster {
            asked_bps: rate.bps() as f64,
            bytes_left: bytes,
            give_up: now + SEND_TIMEOUT,
            first_seq: 0,
            last_seq: 0,
            sent: Side::default(),
            received: Side::default(),
            last_reported: false,
        });
        Some(bytes)
    }

    /// Takes a packet that leaves; while a cluster is under way it is part of it.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, seq: u16, sent_us: i64, bytes: usize) {
        if let Some(cluster) = &mut self.cluster
            && cluster.bytes_left > 0
        {
            cluster.on_sent(now, seq, sent_us, bytes);
            self.disturbed_us = Some((cluster.sent.first_us, sent_us + DRAIN_US));
        }
    }

    /// Whether a packet sent then may have met the queue of a cluster, so that its delay says nothing about the media.
    pub(super) fn disturbs(&self, sent_us: i64) -> bool {
        self.disturbed_us.is_some_and(|(from_us, to_us)| (from_us..=to_us).contains(&sent_us))
    }

    /// Takes one line of a report; `arrival_us` of a packet that arrived.
    pub(super) fn on_report(&mut self, seq: u16, arrival: Option<(i64, u16)>) {
        if let Some(cluster) = &mut self.cluster
            && cluster.covers(seq)
        {
            if let Some((arrival_us, bytes)) = arrival {
                cluster.received.add(arrival_us, bytes.into());
            }
            cluster.last_reported |= seq == cluster.last_seq;
        }
    }

    /// What the cluster has proven, once everything is known about it. Called after each report.
    pub(super) fn finish(&mut self, now: Instant, estimate_bps: f64) -> Option<f64> {
        let cluster = self.cluster.as_ref()?;
        let all_sent = cluster.bytes_left == 0;
        let all_known = all_sent && (cluster.last_reported || cluster.received.packets >= cluster.sent.packets);
        if !all_known && now < cluster.give_up {
            return None;
        }
        let cluster = self.cluster.take()?;
        let proven_bps = cluster.proven_bps().filter(|_| all_sent);
        self.schedule(now, &cluster, proven_bps.unwrap_or(0.0), estimate_bps);
        proven_bps
    }

    /// Forgets a cluster of which nothing more is heard, where no report comes to do so.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.cluster.as_ref().is_some_and(|cluster| now >= cluster.give_up) {
            self.finish(now, f64::MAX);
        }
    }

    /// Puts the next cluster off: overuse and loss say that there is nothing to be found now.
    pub(super) fn hold_off(&mut self, now: Instant) {
        let until = now + PAUSE;
        self.not_before = Some(self.not_before.map_or(until, |at| at.max(until)));
    }

    /// Sets the time of the next cluster by what this one found.
    fn schedule(&mut self, now: Instant, cluster: &Cluster, proven_bps: f64, estimate_bps: f64) {
        if cluster.bytes_left > 0 {
            // The caller had no time or nothing to send: that says nothing about the path.
            self.not_before = Some(now + PAUSE);
        } else if proven_bps >= UNSATURATED * cluster.asked_bps {
            self.pause = PAUSE;
            self.not_before = Some(now + if self.ramping { PAUSE_FOLLOW_UP } else { PAUSE });
        } else {
            self.ramping = false;
            self.not_before = Some(now + self.pause);
            // One that found something, but less than hoped, is no reason to wait ever longer.
            if proven_bps <= estimate_bps {
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

impl Cluster {
    fn on_sent(&mut self, now: Instant, seq: u16, sent_us: i64, bytes: usize) {
        if self.sent.packets == 0 {
            self.first_seq = seq;
        }
        self.last_seq = seq;
        self.sent.add(sent_us, bytes as u64);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        if self.bytes_left == 0 {
            self.give_up = now + REPORT_TIMEOUT;
        }
    }

    fn covers(&self, seq: u16) -> bool {
        self.sent.packets > 0 && seq.wrapping_sub(self.first_seq) <= self.last_seq.wrapping_sub(self.first_seq)
    }

    /// The rate that came through, never more than was asked for; `None` when the arrivals are no measurement.
    fn proven_bps(&self) -> Option<f64> {
        let (sent, received) = (&self.sent, &self.received);
        if received.packets < 2
            || f64::from(received.packets) < RECEIVED_MIN * f64::from(sent.packets)
            || (received.bytes as f64) < RECEIVED_MIN * sent.bytes as f64
        {
            return None;
        }
        // The packet at the open end of the interval took no part of it. No time at all is faster than can be told.
        let sent_bps = bits_over(sent.bytes - sent.last_bytes, sent.span_us()).unwrap_or(f64::MAX);
        let receive_bps = bits_over(received.bytes - received.first_bytes, received.span_us()).unwrap_or(f64::MAX);
        if receive_bps / SPEED_UP_MAX > sent_bps {
            return None;
        }
        // A burst that left faster than asked is judged by its arrivals, up to the rate that was asked for.
        let send_bps = sent_bps.min(self.asked_bps);
        Some(if receive_bps < UNSATURATED * send_bps { UTILIZATION * receive_bps } else { send_bps.min(receive_bps) })
    }
}

impl Side {
    fn add(&mut self, at_us: i64, bytes: u64) {
        if self.packets == 0 || at_us < self.first_us {
            (self.first_us, self.first_bytes) = (at_us, bytes);
        }
        if self.packets == 0 || at_us >= self.last_us {
            (self.last_us, self.last_bytes) = (at_us, bytes);
        }
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn span_us(&self) -> i64 {
        self.last_us.saturating_sub(self.first_us)
    }
}

/// Bits per second; `None` when no time passed.
fn bits_over(bytes: u64, span_us: i64) -> Option<f64> {
    (span_us > 0).then(|| bytes as f64 * 8e6 / span_us as f64)
}
