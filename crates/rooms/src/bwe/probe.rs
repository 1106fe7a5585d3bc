//! Finds out whether more fits than is being sent, by short clusters of packets at a higher rate.
//!
//! In: the wish for more, each packet sent, each packet received. Out: what to send beside the media and when, so that
//! together they leave at the cluster's rate; and what rate it proved.
//! Cost: O(1) per packet, 300 bytes. Source: libwebrtc modules/congestion_controller/goog_cc/probe_controller.cc (when and
//! how much), modules/pacing/bitrate_prober.cc (packets and time of a cluster) and probe_bitrate_estimator.cc (what it
//! proves).

use std::time::{Duration, Instant};

use super::rate::{APP_LIMITED, GROWTH_LIMIT};

/// How much more than the wanted rate is asked for: the room that a switch up needs.
pub const HEADROOM: f64 = 1.2;
/// A cluster asks for at most this many times the estimate: before the first failure, and after
/// (`first_exponential_probe_scale`, `further_exponential_probe_scale`).
const STEP_FIRST: f64 = 3.0;
const STEP: f64 = 2.0;
/// … and for so much more than that, because packets are not cut to measure, and what leaves is a little slower.
const MARGIN: f64 = 1.1;
/// While all fits, so much more is asked for again: what a layer takes is another in a second with a keyframe.
const RAMP_MARGIN: f64 = 1.25;
/// A cluster takes at least this long and so many packets (`min_probe_duration` is 15 ms, `min_probe_packets_sent` 5;
/// longer, because arrival times come in steps of 250 µs). One that arrived too close together to tell a rate, as on Wi-Fi,
/// is repeated with twice the time, up to the other.
const DURATION: Duration = Duration::from_millis(25);
const DURATION_MAX: Duration = Duration::from_millis(200);
const PACKETS_MIN: u32 = 5;
/// A cluster leaves in slices of this time (`min_probe_delta` is 2 ms).
pub const SLICE: Duration = Duration::from_millis(4);
/// … of which those of so much time leave together at most, when its sender comes late.
const LATE_MAX: Duration = Duration::from_millis(16);
/// … and of which one that arrived in less than so many is repeated, too.
const GAPS_MIN: i64 = 6;
/// Packets that left or arrived within this time are one group: its open end took no part of the time.
const GROUP_US: i64 = 1_000;
/// So many that were too thin to tell are repeated at once.
const THIN_MAX: u8 = 3;
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
    /// Of the next cluster.
    duration: Duration,
    /// No cluster so far was lost, or has filled the path.
    pub(super) ramping: bool,
    /// So many in a row were too thin to tell.
    thin: u8,
    /// There was one.
    has_begun: bool,
    /// Send times in µs between which the last cluster's queue is felt.
    disturbed_us: Option<(i64, i64)>,
}

/// Packets sent at one rate, and how they arrived. All times in µs.
#[derive(Debug)]
pub(super) struct Cluster {
    asked_bps: f64,
    duration: Duration,
    began: Instant,
    give_up: Instant,
    is_sent: bool,
    first_seq: u16,
    last_seq: u16,
    sent: Side,
    received: Side,
    /// Packets that a report says did not arrive.
    lost: u32,
    last_reported: bool,
}

/// What is known of a cluster's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proof {
    /// Nothing: it was not sent whole, or its arrivals are no measurement.
    Unknown,
    /// Too little was heard of it: reports were lost.
    Unheard,
    /// Too little of it arrived.
    Lost,
    /// So much came through, in bits per second; never more than was asked for.
    Carried(f64),
    /// The same, and the path was full.
    Full(f64),
}

/// One end's view of a cluster.
#[derive(Debug, Default)]
struct Side {
    packets: u32,
    bytes: u64,
    first_us: i64,
    last_us: i64,
    /// When the group of the last packet began.
    last_group_us: i64,
    /// The longest time between two groups.
    gap_us: i64,
    first_group_bytes: u64,
    last_group_bytes: u64,
}

impl Prober {
    pub(super) fn new() -> Self {
        Prober {
            cluster: None,
            not_before: None,
            pause: PAUSE,
            duration: DURATION,
            ramping: true,
            thin: 0,
            has_begun: false,
            disturbed_us: None,
        }
    }

    /// The bytes to send now, by padding or retransmissions, while a cluster goes out that would tell whether `goal_bps` fits;
    /// it is called again after a slice. `None` while there is none.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        goal_bps: f64,
        estimate_bps: f64,
        acked_bps: Option<f64>,
        is_narrow: bool,
    ) -> Option<usize> {
        if self.cluster.is_none() {
            self.begin(now, goal_bps, estimate_bps, acked_bps, is_narrow);
        }
        self.cluster.as_mut().filter(|cluster| !cluster.is_sent).map(|cluster| cluster.next_bytes(now))
    }

    /// Begins a cluster when it is time for one.
    fn begin(&mut self, now: Instant, goal_bps: f64, estimate_bps: f64, acked_bps: Option<f64>, is_narrow: bool) {
        if goal_bps <= estimate_bps || self.not_before.is_some_and(|at| now < at) {
            return;
        }
        // After the ramp not while media finds out by itself: while most of the estimate is used, and it may grow to the goal.
        // libwebrtc, whose encoder uses all of it, probes in the application-limited region alone (alr_detector.cc).
        let finds_out = |acked_bps| acked_bps > APP_LIMITED * estimate_bps && goal_bps <= GROWTH_LIMIT * acked_bps;
        if !self.ramping && acked_bps.is_some_and(finds_out) {
            return;
        }
        self.has_begun = true;
        let step = if self.ramping { STEP_FIRST } else { STEP };
        let margin = if self.ramping && !is_narrow { RAMP_MARGIN } else { 1.0 };
        self.cluster = Some(Cluster {
            asked_bps: (goal_bps * margin).min(estimate_bps * step) * MARGIN,
            duration: self.duration,
            began: now,
            give_up: now + SEND_TIMEOUT,
            is_sent: false,
            first_seq: 0,
            last_seq: 0,
            sent: Side::default(),
            received: Side::default(),
            lost: 0,
            last_reported: false,
        });
    }

    /// Whether there was a cluster, and there is none under way.
    pub(super) fn is_done(&self) -> bool {
        self.has_begun && self.cluster.is_none()
    }

    /// Takes a packet that leaves; while a cluster is under way it is part of it.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, seq: u16, sent_us: i64, bytes: usize) {
        if let Some(cluster) = &mut self.cluster
            && !cluster.is_sent
        {
            cluster.on_sent(now, seq, sent_us, bytes);
            self.disturbed_us = Some((cluster.sent.first_us, sent_us + DRAIN_US));
        }
    }

    /// Whether a packet sent then may have met the queue of a cluster, so that its delay says nothing about the media.
    pub(super) fn disturbs(&self, sent_us: i64) -> bool {
        self.disturbed_us.is_some_and(|(from_us, to_us)| (from_us..=to_us).contains(&sent_us))
    }

    /// Takes one line of a report; `arrival_us` of a packet that arrived. Returns whether the packet was of a cluster.
    pub(super) fn on_report(&mut self, seq: u16, arrival: Option<(i64, u16)>) -> bool {
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.covers(seq)) else { return false };
        match arrival {
            Some((arrival_us, bytes)) => cluster.received.add(arrival_us, bytes.into()),
            None => cluster.lost = cluster.lost.saturating_add(1),
        }
        cluster.last_reported |= seq == cluster.last_seq;
        true
    }

    /// What the cluster has proven, once everything is known about it. Called after each report.
    pub(super) fn finish(&mut self, now: Instant, estimate_bps: f64) -> Option<f64> {
        let cluster = self.cluster.as_ref()?;
        let all_known = cluster.is_sent && (cluster.last_reported || cluster.received.packets >= cluster.sent.packets);
        if !all_known && now < cluster.give_up {
            return None;
        }
        let cluster = self.cluster.take()?;
        let proof = cluster.proof();
        self.schedule(now, &cluster, proof, estimate_bps);
        match proof {
            Proof::Carried(bps) | Proof::Full(bps) => Some(bps),
            Proof::Lost | Proof::Unheard | Proof::Unknown => None,
        }
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
    fn schedule(&mut self, now: Instant, cluster: &Cluster, proof: Proof, estimate_bps: f64) {
        match proof {
            // The caller had no time or nothing to send: that says nothing about the path.
            Proof::Unknown if !cluster.is_sent => self.not_before = Some(now + PAUSE),
            Proof::Unheard => self.not_before = Some(now + PAUSE),
            Proof::Unknown => {
                self.duration = (self.duration * 2).min(DURATION_MAX);
                self.not_before = Some(now + PAUSE);
            }
            // Where a picture left at once in the midst of it, the rest was too thin to tell.
            Proof::Carried(bps) if bps < UNSATURATED * cluster.asked_bps => {
                self.thin = self.thin.saturating_add(1);
                let goes_on = self.ramping && self.thin <= THIN_MAX;
                self.not_before = Some(now + if goes_on { PAUSE_FOLLOW_UP } else { self.pause });
            }
            Proof::Carried(_) => {
                (self.pause, self.thin) = (PAUSE, 0);
                self.not_before = Some(now + if self.ramping { PAUSE_FOLLOW_UP } else { PAUSE });
            }
            Proof::Full(_) | Proof::Lost => {
                self.ramping = false;
                self.not_before = Some(now + self.pause);
                // One that found something, but less than hoped, is no reason to wait ever longer.
                if !matches!(proof, Proof::Full(bps) if bps > estimate_bps) {
                    self.pause = (self.pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }
}

impl Cluster {
    /// The bytes of the next slice. Of what is late only some is made up for: so it ends, however late its sender comes.
    fn next_bytes(&mut self, now: Instant) -> usize {
        let (due, most) = (self.due_bytes(now), (self.asked_bps * LATE_MAX.as_secs_f64() / 8.0) as usize);
        if due > most {
            self.began += Duration::from_secs_f64((due - most) as f64 * 8.0 / self.asked_bps);
        }
        due.min(most)
    }

    /// What its rate would have let leave by the end of this slice, and has not left.
    fn due_bytes(&self, now: Instant) -> usize {
        let passed = now.saturating_duration_since(self.began) + SLICE;
        let due = (self.asked_bps * passed.as_secs_f64() / 8.0) as usize;
        due.saturating_sub(self.sent.bytes as usize)
    }

    fn on_sent(&mut self, now: Instant, seq: u16, sent_us: i64, bytes: usize) {
        if self.sent.packets == 0 {
            self.first_seq = seq;
        }
        self.last_seq = seq;
        self.sent.add(sent_us, bytes as u64);
        let is_long = self.sent.packets >= PACKETS_MIN && self.sent.span_us() >= self.duration.as_micros() as i64;
        self.is_sent = is_long && self.due_bytes(now) == 0;
        if self.is_sent {
            self.give_up = now + REPORT_TIMEOUT;
        }
    }

    fn covers(&self, seq: u16) -> bool {
        self.sent.packets > 0 && seq.wrapping_sub(self.first_seq) <= self.last_seq.wrapping_sub(self.first_seq)
    }

    fn proof(&self) -> Proof {
        let (sent, received) = (&self.sent, &self.received);
        if !self.is_sent {
            return Proof::Unknown;
        }
        if f64::from(received.packets) < RECEIVED_MIN * f64::from(sent.packets)
            || (received.bytes as f64) < RECEIVED_MIN * sent.bytes as f64
        {
            let is_lost = f64::from(self.lost) > (1.0 - RECEIVED_MIN) * f64::from(sent.packets);
            return if is_lost { Proof::Lost } else { Proof::Unheard };
        }
        // What arrived in one piece, or much faster than it was sent, was gathered on the way.
        let open_end = sent.first_group_bytes.max(sent.last_group_bytes);
        let Some(sent_bps) = bits_over(sent.bytes - open_end.min(sent.bytes), sent.span_us()) else {
            return Proof::Unknown;
        };
        let Some(receive_bps) = bits_over(received.bytes - received.first_group_bytes, received.span_us()) else {
            return Proof::Unknown;
        };
        // Where a transmission begins and ends is too coarse a measure for the few that a short cluster is.
        let is_coarse = received.gap_us > received.span_us() / GAPS_MIN && 5 * received.gap_us > 6 * sent.gap_us;
        if receive_bps / SPEED_UP_MAX > sent_bps || is_coarse && self.duration < DURATION_MAX {
            return Proof::Unknown;
        }
        let send_bps = sent_bps.min(self.asked_bps);
        if receive_bps < UNSATURATED * send_bps {
            Proof::Full(UTILIZATION * receive_bps)
        } else {
            Proof::Carried(send_bps.min(receive_bps))
        }
    }
}

impl Side {
    fn add(&mut self, at_us: i64, bytes: u64) {
        if self.packets == 0 {
            (self.first_us, self.last_us, self.last_group_us) = (at_us, at_us, at_us);
        }
        self.first_us = self.first_us.min(at_us);
        self.last_us = self.last_us.max(at_us);
        if at_us.saturating_sub(self.last_group_us) > GROUP_US {
            self.gap_us = self.gap_us.max(at_us.saturating_sub(self.last_group_us));
            (self.last_group_us, self.last_group_bytes) = (at_us, 0);
        }
        if at_us >= self.last_group_us {
            self.last_group_bytes = self.last_group_bytes.saturating_add(bytes);
        }
        if at_us.saturating_sub(self.first_us) <= GROUP_US {
            self.first_group_bytes = self.first_group_bytes.saturating_add(bytes);
        }
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// From the first group to the last; zero when all is one.
    fn span_us(&self) -> i64 {
        if self.first_group_bytes >= self.bytes { 0 } else { self.last_us.saturating_sub(self.first_us) }
    }
}

/// Bits per second; `None` when no time passed.
fn bits_over(bytes: u64, span_us: i64) -> Option<f64> {
    (span_us > 0).then(|| bytes as f64 * 8e6 / span_us as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a cluster of 2 Mbit/s and lets `report` say of each packet whether a report has it, and whether it arrived.
    /// Returns the time to the next one.
    fn pause_after(report: impl Fn(u16) -> Option<bool>) -> Duration {
        let start = Instant::now();
        let mut prober = Prober::new();
        let (mut now, mut seq) = (start, 0);
        let mut sent_us = Vec::new();
        while let Some(bytes) = prober.poll(now, 2e6, 1e6, None, false) {
            for _ in 0..bytes.div_ceil(1_000) {
                sent_us.push(now.duration_since(start).as_micros() as i64);
                prober.on_sent(now, seq, now.duration_since(start).as_micros() as i64, 1_000);
                seq += 1;
            }
            now += SLICE;
        }
        for (seq, sent_us) in (0..).zip(sent_us) {
            let arrival = (sent_us, 1_000);
            if let Some(arrived) = report(seq) {
                prober.on_report(seq, arrived.then_some(arrival));
            }
        }
        now += REPORT_TIMEOUT;
        prober.expire(now);
        assert!(prober.cluster.is_none(), "it is over");
        prober.not_before.map_or(Duration::ZERO, |at| at.duration_since(now)) + (prober.pause - PAUSE)
    }

    #[test]
    fn a_probe_of_which_nothing_is_heard_is_not_taken_for_a_lost_one() {
        assert_eq!(pause_after(|_| Some(false)), 2 * PAUSE, "lost: the next pause is longer");
        assert_eq!(pause_after(|seq| Some(seq % 2 == 0)), 2 * PAUSE);
        assert_eq!(pause_after(|_| None), PAUSE);
        assert_eq!(pause_after(|seq| (seq < 4).then_some(true)), PAUSE);
        assert_eq!(pause_after(|_| Some(true)), PAUSE_FOLLOW_UP);
    }

    #[test]
    fn a_probe_ends_however_late_its_sender_comes() {
        for late_ms in [1, 4, 15, 30, 60] {
            let start = Instant::now();
            let mut prober = Prober::new();
            let (mut now, mut seq, mut sent) = (start, 0, 0);
            while let Some(bytes) = prober.poll(now, 2e6, 1e6, None, false) {
                for _ in 0..bytes.div_ceil(300) {
                    prober.on_sent(now, seq, now.duration_since(start).as_micros() as i64, 300);
                    (seq, sent) = (seq + 1, sent + 300);
                }
                now += Duration::from_millis(late_ms);
            }
            let span = now.duration_since(start);
            assert!(span <= Duration::from_millis(25 + 2 * late_ms), "{late_ms} ms: {span:?}");
            assert!(sent <= 2_750_000 / 8 * 60 / 1_000, "{late_ms} ms: {sent} bytes");
        }
    }
}
