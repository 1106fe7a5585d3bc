//! How much a viewer's path carries: Google congestion control, sender's side.
//!
//! In: each packet as it leaves, with its transport-wide sequence number; transport feedback; receiver reports; REMB.
//! Out: an estimate in bits per second, and requests for probes, since a viewer of a small simulcast layer shows nothing
//! about what more would fit. Cost: `on_sent` is a store into a ring; feedback is O(1) per packet in it. 3 KiB per
//! viewer once the first packet is sent, more where feedback takes long, and 1 KiB before.
//! Source: draft-ietf-rmcat-gcc-02, draft-holmer-rmcat-transport-wide-cc-extensions-01; libwebrtc
//! modules/congestion_controller/goog_cc/goog_cc_network_control.cc for how the parts work together.
//!
//! The parts: `history` knows what was sent, `delay` sees the queue grow, `acked` measures what arrives, `rate` makes
//! a bound of these three, `loss` another one, and `probe` looks for more. Without transport feedback `loss` and `remb`, what
//! the viewer says itself, are the bounds.
//! `layers` chooses a simulcast layer by the estimate.

mod acked;
mod delay;
mod history;
mod layers;
mod loss;
mod probe;
mod queue;
mod rate;
mod remb;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use prefetch::prefetch;
use wire::Bitrate;

use acked::AckedRate;
use delay::{DelayDetector, Signal};
use history::{HISTORY_LEN, History, Outcome};
pub use layers::{LayerChooser, room_for};
use loss::{INHERENT_MAX, LossBound, LossWindow};
use probe::Prober;
pub use probe::{HEADROOM, SLICE as PROBE_SLICE};
use queue::Queue;
use rate::RateControl;
use remb::RembBound;

/// One tick of an arrival time, in µs (draft-holmer §3.1.5).
const TICK_US: i64 = 250;
/// No arrival is further from the clock's zero than a reference time can say, and some.
const TICKS_MAX: i64 = 1 << 33;
/// Ticks in one unit of the reference time, which is 64 ms (draft-holmer §3.1).
const TICKS_PER_REFERENCE: i64 = 256;
/// The reference time has 24 bits of 32 (draft-holmer §3.1).
const REFERENCE_UNUSED_BITS: u32 = 8;
/// Round-trip time as long as none was measured (aimd_rate_control.cc, `kDefaultRtt`).
const RTT_DEFAULT: Duration = Duration::from_millis(200);
/// Numbers that the feedback of one compound may speak of: what the history holds, for more cannot all be of packets of ours.
pub const LINES_MAX: usize = HISTORY_LEN;
/// After such a pause in the feedback old delays say nothing (delay_based_bwe.cc, `kStreamTimeOut`).
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// Without feedback on what is sent, the rate falls by the factor each interval
/// (send_side_bandwidth_estimation.cc, `kFeedbackTimeoutIntervals` and what follows).
const SILENCE_MAX: Duration = Duration::from_secs(3);
const SILENCE_STEP: Duration = Duration::from_secs(1);
const SILENCE_FACTOR: f64 = 0.8;
/// So long after a growing delay nothing that could do without is tried.
const DELAY_HOLD: Duration = Duration::from_secs(30);
/// Weight of a new loss fraction in the reported one.
const LOSS_WEIGHT: f32 = 0.3;

/// Estimates the bandwidth towards one viewer.
#[derive(Debug)]
pub struct Estimator {
    epoch: Instant,
    history: History,
    clock: ReferenceClock,
    delay: DelayDetector,
    acked: AckedRate,
    rate: RateControl,
    loss_window: LossWindow,
    loss_bound: LossBound,
    /// What the viewer says that it takes, where it says so.
    remb: Option<RembBound>,
    prober: Prober,
    min_bps: f64,
    max_bps: f64,
    /// Share of packets lost, 0 to 1, smoothed.
    loss: f32,
    /// The smoothed round-trip time.
    rtt: Option<Duration>,
    queue: Queue,
    last_sent: Instant,
    /// Sent without a number since the last packet that had one.
    unnumbered_bytes: usize,
    last_feedback: Option<Instant>,
    /// Since when packets are sent and nothing is heard.
    unheard_since: Option<Instant>,
    last_decay: Instant,
    /// The number after the last one that feedback mentioned.
    next_seq: Option<u16>,
}

impl Estimator {
    /// Starts at `start`, and stays between `min` and `max`.
    pub fn new(now: Instant, start: Bitrate, min: Bitrate, max: Bitrate) -> Self {
        let min_bps = min.bps().max(1) as f64;
        let max_bps = (max.bps() as f64).max(min_bps);
        let start_bps = start.bps() as f64;
        Estimator {
            epoch: now,
            history: History::default(),
            clock: ReferenceClock::default(),
            delay: DelayDetector::default(),
            acked: AckedRate::new(),
            rate: RateControl::new(now, start_bps, min_bps, max_bps),
            loss_window: LossWindow::new(now),
            loss_bound: LossBound::new(now, start_bps, min_bps, max_bps),
            remb: None,
            prober: Prober::new(),
            min_bps,
            max_bps,
            loss: 0.0,
            rtt: None,
            queue: Queue::new(),
            last_sent: now,
            unnumbered_bytes: 0,
            last_feedback: None,
            unheard_since: None,
            last_decay: now,
            next_seq: None,
        }
    }

    /// Takes a packet that leaves now; `bytes` is its length on the wire, headers and all. Numbers have to go up one by one.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, transport_seq: u16, bytes: usize) {
        let sent_us = self.micros(now);
        let bytes = bytes + std::mem::take(&mut self.unnumbered_bytes);
        self.last_sent = now;
        self.history.push(transport_seq, sent_us as u32, bytes);
        self.prober.on_sent(now, transport_seq, sent_us, bytes);
    }

    /// Takes a packet that leaves without a number. Nothing is heard of it, but it loads the path: its bytes are counted
    /// with the next packet's (as `prior_unacked_data` in transport_feedback_adapter.cc).
    #[inline]
    pub fn on_sent_without_number(&mut self, bytes: usize) {
        self.unnumbered_bytes += bytes;
    }

    /// Asks for what `on_sent` needs.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(&self.history);
        prefetch(&self.prober.cluster);
        prefetch(&self.last_sent);
        prefetch(&self.unnumbered_bytes);
    }

    /// Takes the viewer's report of arrivals: for each number from `base_seq` on, when the packet arrived on the viewer's
    /// clock, in ticks of 250 µs, or `None` when it did not. `reference_time`, in units of 64 ms, says where in its
    /// cycle of 24 bits that clock stands. No more than `room` numbers are looked at, which it takes its part from. Returns
    /// whether that was enough.
    pub fn on_feedback(
        &mut self,
        now: Instant,
        base_seq: u16,
        reference_time: i32,
        mut arrivals: impl Iterator<Item = (u16, Option<i64>)>,
        room: &mut usize,
    ) -> bool {
        if *room == 0 {
            return false;
        }
        if self.last_feedback.is_none_or(|at| now.saturating_duration_since(at) > STREAM_TIMEOUT) {
            self.delay.reset();
            self.queue = Queue::new();
        }
        let mut batch = Batch {
            now_us: self.micros(now),
            wrapped_ticks: self.clock.wrapped_ticks(reference_time),
            unreported_bytes: self.skip_to(base_seq, room),
            shortest_us: None,
            transit_us: None,
        };
        while *room > 0
            && let Some((seq, ticks)) = arrivals.next()
        {
            *room -= 1;
            self.on_line(&mut batch, seq, ticks);
        }
        self.last_feedback = Some(now);
        self.unheard_since = None;
        if let Some(transit_us) = batch.transit_us {
            self.queue.on_transit(now, transit_us);
        }
        if let Some(shortest_us) = batch.shortest_us {
            self.note_round_trip(Duration::from_micros(shortest_us));
        }
        self.update(now);
        *room > 0
    }

    /// Takes a receiver report (RFC 3550 §6.4.2): lost share in 1/256, and the round-trip time that follows from it; and the
    /// rate of what was sent since the last.
    pub fn on_report(&mut self, now: Instant, fraction_lost: u8, rtt: Option<Duration>, sent: Bitrate) {
        if let Some(rtt) = rtt {
            self.note_round_trip(rtt);
        }
        // Transport feedback knows better, where there is any.
        if self.last_feedback.is_none_or(|at| now.saturating_duration_since(at) > STREAM_TIMEOUT) {
            self.note_loss(now, f64::from(fraction_lost) / 256.0, sent.bps() as f64);
        }
    }

    /// Takes the rate that the viewer takes at most (REMB), and that of what was sent lately. It counts where there is no
    /// transport-wide feedback.
    pub fn on_remb(&mut self, now: Instant, said: Bitrate, sent: Bitrate) {
        let (said_bps, sent_bps) = (said.bps() as f64, sent.bps() as f64);
        match &mut self.remb {
            Some(bound) => bound.on_message(now, said_bps, sent_bps),
            None => self.remb = Some(RembBound::new(now, said_bps, sent_bps)),
        }
    }

    /// Whether what the viewer said is the bound: what it said at first, or what did not fall, is none.
    pub fn is_bounded_by_remb(&self) -> bool {
        self.last_feedback.is_none() && self.remb.is_some_and(|remb| remb.bps < self.loss_bound.bps)
    }

    /// The bytes to send now for a cluster that tells whether `wanted` fits, when that is more than the estimate holds and
    /// might fit; `None` when there is no cluster. `is_busy`: a picture is sent. Call it again after `PROBE_SLICE` while there
    /// is one, and otherwise some ten times per second while there is a larger layer than the one that is sent.
    pub fn poll_probe(&mut self, now: Instant, wanted: Bitrate, is_busy: bool) -> Option<usize> {
        self.handle_timeout(now);
        if self.prober.cluster.is_none() && self.waits_with_probe(now, is_busy) {
            return None;
        }
        if self.delay.signal() == Signal::Overuse || self.loss_bound.is_high(self.loss.into()) {
            self.prober.hold_off(now);
            return None;
        }
        let goal_bps = (wanted.bps() as f64 * HEADROOM).min(self.max_bps);
        self.prober.poll(now, goal_bps, self.bps(), self.acked.bps(), self.is_narrow())
    }

    /// Whether all that was tried so far fitted, so that as much as possible is tried next.
    pub fn is_ramping(&self) -> bool {
        self.prober.ramping && !self.is_narrow() && !self.is_unheard()
    }

    /// Whether no cluster begins now. On a narrow path the first would take the place of the first picture in the queue, until
    /// something is heard of that; and the next ones would be lost while one before is not through.
    fn waits_with_probe(&self, now: Instant, is_busy: bool) -> bool {
        self.prober.ramping && self.queue.is_long(now) || is_busy && self.last_feedback.is_none() || self.is_unheard()
    }

    /// Whether there was a probe, and no feedback ever. Nothing can be proven to who sends none.
    fn is_unheard(&self) -> bool {
        self.last_feedback.is_none() && self.prober.is_done()
    }

    /// Lowers the estimate while feedback stays away, and gives up probes of which nothing is heard. Call it a few
    /// times per second; `poll_probe` does so too.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.prober.expire(now);
        self.history.tidy();
        let Some(heard) = self.last_feedback else { return };
        // Where nothing is sent there is nothing to hear of.
        if self.last_sent <= heard || now.saturating_duration_since(self.last_sent) > SILENCE_STEP {
            self.unheard_since = None;
            return;
        }
        self.unheard_since.get_or_insert(now);
        if self.is_silent(now) && now.saturating_duration_since(self.last_decay) >= SILENCE_STEP {
            self.last_decay = now;
            self.rate.scale_down(SILENCE_FACTOR);
        }
    }

    /// What the path carries, as far as is known.
    pub fn estimate(&self) -> Bitrate {
        Bitrate::from_bps(self.bps() as u64)
    }

    /// Whether anything has said yet that the path is narrow: until then it may carry more than was tried.
    pub fn is_narrow(&self) -> bool {
        self.was_lowered() || self.remb.is_some()
    }

    /// Whether delay or loss have said so.
    pub fn was_lowered(&self) -> bool {
        self.rate.was_lowered || self.loss_bound.was_lowered()
    }

    /// Whether nothing is heard of what is sent, for seconds.
    pub fn is_silent(&self, now: Instant) -> bool {
        self.unheard_since.is_some_and(|since| now.saturating_duration_since(since) >= SILENCE_MAX)
    }

    /// The same without what loss says, unless more is lost than a path may lose by its nature, and no bound at all until
    /// something says that the path is narrow: for decisions that are worse than loss which is repaired.
    pub fn patient_estimate(&self) -> Bitrate {
        if !self.is_narrow() {
            return Bitrate::from_bps(self.max_bps as u64);
        }
        let counts_loss = self.last_feedback.is_none() || f64::from(self.loss) > INHERENT_MAX;
        if counts_loss { self.estimate() } else { Bitrate::from_bps(self.rate.bps as u64) }
    }

    /// What the path carries by its delay alone; `None` until that has said that it is narrow. For what makes up for loss, and
    /// makes it worse where it fills a queue.
    pub fn delay_estimate(&self) -> Option<Bitrate> {
        self.rate.was_lowered.then(|| Bitrate::from_bps(self.rate.bps as u64))
    }

    /// Whether that said so lately. Where little is sent nothing more is heard of what would fit, and only a try tells.
    pub fn is_held_by_delay(&self, now: Instant) -> bool {
        self.rate.reduced.is_some_and(|at| now.saturating_duration_since(at) < DELAY_HOLD)
    }

    fn bps(&self) -> f64 {
        match self.last_feedback {
            Some(_) => self.rate.bps.min(self.loss_bound.bps),
            None => self.remb.map_or(self.loss_bound.bps, |remb| remb.bps.clamp(self.min_bps, self.loss_bound.bps)),
        }
    }

    fn micros(&self, now: Instant) -> i64 {
        let passed = now.saturating_duration_since(self.epoch);
        // Not `as_micros`, whose 128-bit arithmetic is felt in `on_sent`.
        (passed.as_secs() * 1_000_000 + u64::from(passed.subsec_micros())) as i64
    }

    /// Bytes between the last feedback and this one. Receivers leave no gap, so a feedback message was lost; its packets
    /// count as arrived, or the acknowledged rate would fall for the way back's fault.
    fn skip_to(&mut self, base_seq: u16, room: &mut usize) -> u64 {
        let Some(next_seq) = self.next_seq else { return 0 };
        let gap = base_seq.wrapping_sub(next_seq);
        if usize::from(gap) > HISTORY_LEN.min(*room) {
            return 0;
        }
        *room -= usize::from(gap);
        self.next_seq = Some(base_seq);
        (0..gap).map(|i| u64::from(self.history.skip(next_seq.wrapping_add(i)))).sum()
    }

    fn on_line(&mut self, batch: &mut Batch, seq: u16, ticks: Option<i64>) {
        let ahead = self.next_seq.is_none_or(|next_seq| seq.wrapping_sub(next_seq) < 1 << 15);
        match self.history.resolve(seq, ticks.is_some()) {
            Outcome::Unknown => return,
            Outcome::Lost => {
                // That a cluster did not fit says nothing about the media, and some receivers take no packets sent again.
                if !self.prober.on_report(seq, None) {
                    self.loss_window.on_lost();
                }
            }
            Outcome::Received { sent_us, bytes, was_lost } => {
                let sent_us = batch.now_us - i64::from((batch.now_us as u32).wrapping_sub(sent_us));
                let ticks = ticks.unwrap_or(0).clamp(-TICKS_MAX, TICKS_MAX);
                let arrival_us = batch.wrapped_ticks.saturating_add(ticks).saturating_mul(TICK_US);
                if !self.prober.on_report(seq, Some((arrival_us, bytes))) {
                    self.loss_window.on_received(was_lost);
                }
                self.acked.on_packet(arrival_us, u64::from(bytes) + std::mem::take(&mut batch.unreported_bytes));
                // A probe is meant to build a short queue: that is no reason to slow down.
                if !self.prober.disturbs(sent_us) {
                    self.delay.on_packet(sent_us, arrival_us, batch.now_us);
                }
                batch.note_age(sent_us);
                if ahead {
                    batch.transit_us = Some(arrival_us.saturating_sub(sent_us));
                }
            }
        }
        if ahead {
            self.next_seq = Some(seq.wrapping_add(1));
        }
    }

    /// Draws the conclusions from one feedback message.
    fn update(&mut self, now: Instant) {
        let signal = self.delay.signal();
        let rtt = self.rtt.unwrap_or(RTT_DEFAULT);
        self.rate.update(now, signal, self.acked.bps(), self.acked.latest_bps(), rtt);
        if let Some(loss) = self.loss_window.poll(now) {
            let sent_bps = self.acked.bps().map_or(self.bps(), |acked_bps| acked_bps / (1.0 - loss).max(0.1));
            self.note_loss(now, loss, sent_bps);
        }
        if let Some(proven_bps) = self.prober.finish(now, self.bps())
            && signal != Signal::Overuse
        {
            self.rate.raise_to(now, proven_bps);
            self.loss_bound.raise_to(proven_bps);
        }
    }

    fn note_loss(&mut self, now: Instant, loss: f64, sent_bps: f64) {
        self.loss += LOSS_WEIGHT * (loss as f32 - self.loss);
        self.loss_bound.on_loss(now, loss, self.loss.into(), sent_bps, self.rtt.unwrap_or(RTT_DEFAULT));
    }

    fn note_round_trip(&mut self, rtt: Duration) {
        // One part in eight, as RFC 6298 §2 smooths it.
        let rtt = rtt.min(Duration::from_secs(10));
        self.rtt = Some(self.rtt.map_or(rtt, |old| (old * 7 + rtt) / 8));
    }
}

/// What the lines of one feedback message share.
struct Batch {
    now_us: i64,
    /// What the cycles of the viewer's clock before this one add to its arrival times.
    wrapped_ticks: i64,
    /// Bytes of packets that no message mentioned.
    unreported_bytes: u64,
    /// The youngest packet's age: a round trip, and how long the viewer kept its report back.
    shortest_us: Option<u64>,
    /// How long the newest packet took, between two clocks.
    transit_us: Option<i64>,
}

impl Batch {
    fn note_age(&mut self, sent_us: i64) {
        let age_us = self.now_us.saturating_sub(sent_us).max(0) as u64;
        self.shortest_us = Some(self.shortest_us.map_or(age_us, |shortest_us| shortest_us.min(age_us)));
    }
}

/// Follows the 24-bit reference time (draft-holmer §3.1), which wraps every 12 days.
#[derive(Debug, Default)]
struct ReferenceClock {
    /// The last reference time, with the wraps so far.
    last: Option<i64>,
}

impl ReferenceClock {
    /// What the wraps so far add to the message's ticks. A step counts as the shorter way around.
    fn wrapped_ticks(&mut self, reference_time: i32) -> i64 {
        let reference_time = i64::from(reference_time);
        let extended = self.last.map_or(reference_time, |last| {
            let step = (reference_time - last) as i32;
            last + i64::from((step << REFERENCE_UNUSED_BITS) >> REFERENCE_UNUSED_BITS)
        });
        self.last = Some(extended);
        (extended - reference_time) * TICKS_PER_REFERENCE
    }
}
