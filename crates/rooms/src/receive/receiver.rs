//! One layer as it arrives: what was there before, what is missing, and what the publisher is told about it.
//!
//! In: sequence numbers and timestamps of one SSRC in arrival order, those that RTX brought back included.
//! Out: extended sequence numbers, NACKs that are due, report blocks.
//! Cost: O(1) per packet; O(missing) when a packet is lost or comes back. Allocates once, in `new`.
//! Source: RFC 3550 §6.4.1, §A.3 (loss), §A.8 (jitter); RFC 4585 §6.2.1 (NACK).

use std::time::Instant;

use wire::codec::{Codec, MediaKind};
use wire::rtcp::ReportBlock;
use wire::{Seq, SeqExtender};

use super::nacks::Nacks;
use crate::drops::DropReason;
use crate::packet::Arrived;

/// Receives one SSRC and, under it, what its RTX stream repairs.
#[derive(Debug)]
pub struct Receiver {
    ssrc: u32,
    clock_rate: u32,
    /// Where the arrival times of the jitter count from.
    start: Instant,
    extender: SeqExtender,
    window: Arrived,
    nacks: Nacks,
    /// The lowest extended number.
    base: Option<u64>,
    /// Packets that came by themselves, each counted once.
    received: u64,
    /// What there was to expect and what came, at the last report.
    reported: (u64, u64),
    /// Packets to expect and lost ones of the last reports, the older the less.
    recent: (f32, f32),
    /// In sixteenths of a clock-rate unit.
    jitter_16: u32,
    /// Arrival less timestamp of the packet before, in clock-rate units, and its timestamp.
    transit: Option<(u32, u32)>,
    /// The middle of the NTP timestamp of the last sender report, and when it came.
    sender_report: Option<(u32, Instant)>,
}

/// Jumps of the delay beyond this are no jitter: the publisher paused, or set its clock.
const JITTER_STEP_MAX_S: u32 = 5;

/// So much of what one report told of counts at the next.
const RECENT_KEPT: f32 = 0.8;

impl Receiver {
    /// Nothing received yet. Audio is never asked for again: a lost packet is 20 ms that the decoder conceals, and by the
    /// time it came again it would be late.
    pub fn new(now: Instant, ssrc: u32, codec: Codec) -> Self {
        Receiver {
            ssrc,
            clock_rate: codec.clock_rate(),
            start: now,
            extender: SeqExtender::default(),
            window: Arrived::default(),
            nacks: if codec.kind() == MediaKind::Video { Nacks::new() } else { Nacks::default() },
            base: None,
            received: 0,
            reported: (0, 0),
            recent: (0.0, 0.0),
            jitter_16: 0,
            transit: None,
            sender_report: None,
        }
    }

    /// Takes a packet and returns its extended sequence number.
    ///
    /// A packet that RTX or RED brought back counts as lost in reports, for it was.
    ///
    /// # Errors
    /// When the packet was here before, or is too old to tell.
    pub fn on_packet(&mut self, now: Instant, seq: Seq, timestamp: u32, is_recovered: bool) -> Result<u64, DropReason> {
        let highest = self.extender.highest();
        let extended = self.extender.peek(seq);
        if !self.window.is_new(extended) {
            let is_too_old = self.window.is_too_old(extended);
            return Err(if is_too_old { DropReason::TooOld } else { DropReason::Duplicate });
        }
        self.window.accept(extended);
        self.extender.extend(seq);
        match highest {
            Some(highest) if extended <= highest => self.nacks.on_late(now, extended, is_recovered),
            Some(highest) => self.nacks.on_gap(now, highest + 1, extended),
            None => {}
        }
        self.base = Some(self.base.map_or(extended, |base| base.min(extended)));
        if !is_recovered {
            self.received += 1;
            if highest.is_none_or(|highest| extended > highest) {
                self.update_jitter(now, timestamp);
            }
        }
        Ok(extended)
    }

    /// Whether the packet with that number and timestamp, of which a later one tells, is missing. Redundancy (RED) names no
    /// numbers, so its timestamp has to be that of none that came.
    pub fn misses(&self, seq: Seq, timestamp: u32) -> bool {
        let is_ahead = self.extender.highest().is_some_and(|highest| self.extender.peek(seq) > highest);
        is_ahead && self.transit.is_some_and(|(_, last)| timestamp.wrapping_sub(last) as i32 > 0)
    }

    /// Hands out the numbers to ask for now, in sending order.
    pub fn poll_nacks(&mut self, now: Instant, lost: &mut impl FnMut(u16)) {
        let oldest = self.extender.highest().map_or(0, |highest| highest.saturating_sub(Arrived::SIZE - 1));
        self.nacks.poll(now, oldest, lost);
    }

    /// When `poll_nacks` or `take_keyframe_needed` next has something to say.
    pub fn next_nack_at(&self) -> Option<Instant> {
        self.nacks.next_at()
    }

    /// What is missing will not come.
    pub fn stop_asking(&mut self) {
        self.nacks.stop();
    }

    /// Whether so much is lost for good that video can only go on at a keyframe. True once for each time.
    pub fn take_keyframe_needed(&mut self) -> bool {
        self.nacks.take_gave_up()
    }

    /// Packets that are missing now and are still asked for.
    #[cfg(test)]
    pub(super) fn missing_count(&self) -> usize {
        self.nacks.len()
    }

    /// Takes the NTP timestamp of a sender report, 32.32 fixed-point seconds, to be named in ours.
    pub fn on_sender_report(&mut self, now: Instant, ntp: u64) {
        self.sender_report = Some(((ntp >> 16) as u32, now));
    }

    /// What the publisher is told; ends the interval of which it speaks.
    pub fn report(&mut self, now: Instant) -> ReportBlock {
        let (highest, expected) = (self.extender.highest(), self.expected());
        let expected_now = expected.saturating_sub(self.reported.0);
        let lost_now = expected_now.saturating_sub(self.received - self.reported.1);
        let fraction_lost = (lost_now * 256).checked_div(expected_now).unwrap_or(0).min(255) as u8;
        self.reported = (expected, self.received);
        let of_before = |sum: f32| sum * RECENT_KEPT;
        self.recent = (of_before(self.recent.0) + expected_now as f32, of_before(self.recent.1) + lost_now as f32);
        let (last_sr, delay_since_last_sr) = self.sender_report.map_or((0, 0), |(middle, at)| {
            let delay = now.saturating_duration_since(at);
            (middle, u32::try_from((delay.as_nanos() << 16) / 1_000_000_000).unwrap_or(u32::MAX))
        });
        ReportBlock {
            ssrc: self.ssrc,
            fraction_lost,
            cumulative_lost: i32::try_from(expected as i64 - self.received as i64).unwrap_or(i32::MAX),
            // Ours start a cycle later than the report's.
            highest_seq: highest.map_or(0, |highest| (highest as u32).wrapping_sub(1 << 16)),
            jitter: self.jitter_16 >> 4,
            last_sr,
            delay_since_last_sr,
        }
    }

    /// Packets that were sent, as far as the numbers tell, and have not come.
    pub fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }

    /// Share of packets lost before the last five reports or so, 0 to 1.
    pub fn loss(&self) -> f32 {
        let (expected, lost) = self.recent;
        if expected > 0.0 { lost / expected } else { 0.0 }
    }

    /// Packets that were sent, as far as the numbers tell.
    fn expected(&self) -> u64 {
        self.extender.highest().zip(self.base).map_or(0, |(highest, base)| highest - base + 1)
    }

    fn update_jitter(&mut self, now: Instant, timestamp: u32) {
        let elapsed = now.saturating_duration_since(self.start).as_micros() as u64;
        let arrival = (elapsed.wrapping_mul(self.clock_rate.into()) / 1_000_000) as u32;
        let transit = arrival.wrapping_sub(timestamp);
        let before = self.transit.replace((transit, timestamp));
        // Packets of one frame share a timestamp, but not the moment at which they could be sent.
        let Some((before, _)) = before.filter(|(_, before)| *before != timestamp) else { return };
        let step = (transit.wrapping_sub(before) as i32).unsigned_abs();
        if step <= JITTER_STEP_MAX_S.saturating_mul(self.clock_rate) {
            let decay = self.jitter_16.saturating_add(8) >> 4;
            self.jitter_16 = self.jitter_16.saturating_add(step) - decay;
        }
    }
}
