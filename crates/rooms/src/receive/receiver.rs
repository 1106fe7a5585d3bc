//! The packets of one SSRC as they arrive.
//!
//! In: sequence numbers and timestamps. Out: extended numbers, NACKs, report blocks.
//! Cost: O(1) per packet in order; a lost packet takes a place in a list of at most `MISSING_MAX`.
//! Source: RFC 3550 §6.4.1, §A.3 and §A.8 (reports), RFC 4585 §6.2.1 (NACK); the pace of NACKs follows libwebrtc's
//! modules/video_coding/nack_requester.cc.

use std::time::{Duration, Instant};

use wire::rtcp::ReportBlock;
use wire::{Seq, SeqExtender};

use crate::drops::DropReason;

/// Packets back from the newest that are told apart from duplicates.
const WINDOW: u64 = 1_024;
/// Missing packets that are asked for at one time. When there are more, a keyframe is needed instead.
const MISSING_MAX: usize = 256;
/// A gap waits so long for packets that were only reordered.
const REORDERING: Duration = Duration::from_millis(5);
/// A packet is asked for so often.
const TRIES_MAX: u8 = 10;
/// A packet is not asked for more often than this, however short the round trip.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// A packet that is missing for longer is of no use any more.
const AGE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Receiver {
    ssrc: u32,
    clock_rate: u32,
    extender: SeqExtender,
    first: u64,
    received: u64,
    /// One bit per packet of the window, by number modulo `WINDOW`.
    seen: [u64; (WINDOW / 64) as usize],
    missing: Vec<Missing>,
    keyframe_needed: bool,
    /// RFC 3550 §A.8: arrival less timestamp of the last packet, and the jitter, both in clock-rate units.
    epoch: Instant,
    transit: i64,
    jitter: f64,
    /// The middle of the NTP timestamp of the last sender report, and when it came.
    last_report: Option<(u32, Instant)>,
    /// Expected and received at the last report (RFC 3550 §A.3).
    expected_before: u64,
    received_before: u64,
    fraction_lost: u8,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    seq: u64,
    since: Instant,
    next_at: Instant,
    tries: u8,
}

impl Receiver {
    pub fn new(now: Instant, ssrc: u32, clock_rate: u32) -> Self {
        Receiver {
            ssrc,
            clock_rate,
            extender: SeqExtender::default(),
            first: 0,
            received: 0,
            seen: [0; (WINDOW / 64) as usize],
            missing: Vec::new(),
            keyframe_needed: false,
            epoch: now,
            transit: 0,
            jitter: 0.0,
            last_report: None,
            expected_before: 0,
            received_before: 0,
            fraction_lost: 0,
        }
    }

    /// Takes a packet's numbers and returns the extended sequence number.
    ///
    /// # Errors
    /// `Duplicate` for one that is there already, `TooOld` for one behind the window.
    pub fn on_packet(&mut self, now: Instant, seq: Seq, timestamp: u32, is_rtx: bool) -> Result<u64, DropReason> {
        let extended = self.extender.peek(seq);
        match self.extender.highest() {
            None => self.first = extended,
            Some(highest) if extended > highest => self.step_to(now, highest, extended),
            Some(highest) if highest - extended >= WINDOW => return Err(DropReason::TooOld),
            Some(_) if self.is_seen(extended) => return Err(DropReason::Duplicate),
            Some(_) => {
                self.first = self.first.min(extended);
                self.missing.retain(|missing| missing.seq != extended);
            }
        }
        self.extender.extend(seq);
        self.seen[bit(extended).0] |= bit(extended).1;
        self.received += 1;
        if !is_rtx {
            self.measure_jitter(now, timestamp);
        }
        Ok(extended)
    }

    /// Moves the window on to `to`; all between is missing for now.
    fn step_to(&mut self, now: Instant, from: u64, to: u64) {
        if to - from > WINDOW {
            self.seen = [0; (WINDOW / 64) as usize];
            self.give_up();
            return;
        }
        for seq in from + 1..to {
            let (word, mask) = bit(seq);
            self.seen[word] &= !mask;
            if self.missing.len() < MISSING_MAX {
                self.missing.push(Missing { seq, since: now, next_at: now + REORDERING, tries: 0 });
            } else {
                self.give_up();
            }
        }
        let (word, mask) = bit(to);
        self.seen[word] &= !mask;
    }

    fn give_up(&mut self) {
        self.missing.clear();
        self.keyframe_needed = true;
    }

    fn is_seen(&self, seq: u64) -> bool {
        let (word, mask) = bit(seq);
        self.seen[word] & mask != 0
    }

    fn measure_jitter(&mut self, now: Instant, timestamp: u32) {
        let arrival = now.saturating_duration_since(self.epoch).as_secs_f64() * f64::from(self.clock_rate);
        let transit = (arrival as i64).wrapping_sub(i64::from(timestamp));
        // Only the low 32 bits mean anything: timestamps wrap.
        let step = f64::from((transit.wrapping_sub(self.transit) as i32).unsigned_abs());
        if self.received > 1 {
            self.jitter += (step - self.jitter) / 16.0;
        }
        self.transit = transit;
    }

    /// When the next packet is to be asked for.
    pub fn next_nack_at(&self) -> Option<Instant> {
        self.missing.iter().map(|missing| missing.next_at).min()
    }

    /// Names the packets that are to be asked for now, oldest first.
    pub fn poll_nacks(&mut self, now: Instant, rtt: Duration, ask: &mut impl FnMut(u16)) {
        let mut gave_up = false;
        self.missing.retain_mut(|missing| {
            if missing.next_at > now {
                return true;
            }
            if missing.tries >= TRIES_MAX || now.saturating_duration_since(missing.since) > AGE_MAX {
                gave_up = true;
                return false;
            }
            missing.tries += 1;
            missing.next_at = now + rtt.max(PAUSE_MIN);
            ask(missing.seq as u16);
            true
        });
        self.keyframe_needed |= gave_up;
    }

    /// Whether packets were given up since the last call, so that only a keyframe helps.
    pub fn take_keyframe_needed(&mut self) -> bool {
        std::mem::take(&mut self.keyframe_needed)
    }

    /// Packets that were sent, as far as the numbers tell, and never came.
    pub fn missing(&self) -> u64 {
        self.expected().saturating_sub(self.received)
    }

    fn expected(&self) -> u64 {
        self.extender.highest().map_or(0, |highest| highest + 1 - self.first)
    }

    /// The report block about the time since the last one.
    pub fn report(&mut self, now: Instant) -> ReportBlock {
        let expected = self.expected() - self.expected_before;
        let received = self.received - self.received_before;
        (self.expected_before, self.received_before) = (self.expected(), self.received);
        let lost = expected.saturating_sub(received);
        self.fraction_lost = (lost * 256).checked_div(expected).unwrap_or(0).min(255) as u8;
        let (last_sr, delay) = match self.last_report {
            Some((middle, at)) => (middle, now.saturating_duration_since(at)),
            None => (0, Duration::ZERO),
        };
        ReportBlock {
            ssrc: self.ssrc,
            fraction_lost: self.fraction_lost,
            cumulative_lost: i32::try_from(self.missing()).unwrap_or(i32::MAX),
            // The convention begins at 65,536, RFC 3550 at cycle 0.
            highest_seq: (self.extender.highest().unwrap_or(0) as u32).wrapping_sub(1 << 16),
            jitter: self.jitter as u32,
            last_sr,
            delay_since_last_sr: (delay.as_secs_f64() * 65_536.0) as u32,
        }
    }

    /// Takes the NTP timestamp of a sender report, to be named in ours.
    pub fn on_sender_report(&mut self, now: Instant, ntp: u64) {
        self.last_report = Some(((ntp >> 16) as u32, now));
    }

    /// Share of packets lost, 0 to 1, by the last report.
    pub fn loss(&self) -> f32 {
        f32::from(self.fraction_lost) / 256.0
    }
}

fn bit(seq: u64) -> (usize, u64) {
    let place = seq % WINDOW;
    ((place / 64) as usize, 1 << (place % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(receiver: &mut Receiver, now: Instant) -> Vec<u16> {
        let mut asked = Vec::new();
        receiver.poll_nacks(now, Duration::from_millis(50), &mut |seq| asked.push(seq));
        asked
    }

    #[test]
    fn a_gap_is_asked_for_after_a_moment_and_again_after_a_round_trip() {
        let start = Instant::now();
        let mut receiver = Receiver::new(start, 1, 90_000);
        for seq in [65_534, 65_535, 2] {
            receiver.on_packet(start, Seq(seq), 0, false).unwrap();
        }
        assert_eq!(asked(&mut receiver, start), []);
        let at = receiver.next_nack_at().unwrap();
        assert_eq!(at, start + REORDERING);
        assert_eq!(asked(&mut receiver, at), [0, 1]);
        receiver.on_packet(at, Seq(0), 0, true).unwrap();
        assert_eq!(asked(&mut receiver, at + Duration::from_millis(49)), []);
        assert_eq!(asked(&mut receiver, at + Duration::from_millis(50)), [1]);
    }

    #[test]
    fn what_never_comes_is_given_up_and_a_keyframe_wanted() {
        let start = Instant::now();
        let mut receiver = Receiver::new(start, 1, 90_000);
        receiver.on_packet(start, Seq(1), 0, false).unwrap();
        receiver.on_packet(start, Seq(3), 0, false).unwrap();
        let mut now = start;
        let mut count = 0;
        while let Some(at) = receiver.next_nack_at() {
            now = at;
            count += asked(&mut receiver, now).len();
        }
        assert_eq!(count, usize::from(TRIES_MAX));
        assert!(now < start + AGE_MAX);
        assert!(receiver.take_keyframe_needed());
        assert_eq!(receiver.missing(), 1);
    }

    #[test]
    fn duplicates_and_packets_behind_the_window_are_refused() {
        let now = Instant::now();
        let mut receiver = Receiver::new(now, 1, 90_000);
        receiver.on_packet(now, Seq(5_000), 0, false).unwrap();
        assert_eq!(receiver.on_packet(now, Seq(5_000), 0, false), Err(DropReason::Duplicate));
        assert_eq!(receiver.on_packet(now, Seq(4_990), 0, false), Ok(65_536 + 4_990));
        assert_eq!(receiver.on_packet(now, Seq(4_990), 0, false), Err(DropReason::Duplicate));
        assert_eq!(receiver.on_packet(now, Seq(3_900), 0, false), Err(DropReason::TooOld));
    }

    #[test]
    fn a_report_counts_what_was_lost_since_the_last_one() {
        let now = Instant::now();
        let mut receiver = Receiver::new(now, 9, 90_000);
        for seq in (0..200u16).filter(|seq| seq % 4 != 0 || *seq >= 100) {
            receiver.on_packet(now, Seq(seq), 0, false).unwrap();
        }
        let block = receiver.report(now);
        assert_eq!((block.ssrc, block.cumulative_lost, block.highest_seq), (9, 24, 199));
        assert_eq!(block.fraction_lost, (24 * 256 / 199) as u8);
        assert_eq!(receiver.report(now).fraction_lost, 0);
    }

    #[test]
    fn a_leap_clears_the_list() {
        let now = Instant::now();
        let mut receiver = Receiver::new(now, 1, 90_000);
        receiver.on_packet(now, Seq(0), 0, false).unwrap();
        receiver.on_packet(now, Seq(20_000), 0, false).unwrap();
        assert_eq!(receiver.next_nack_at(), None);
        assert!(receiver.take_keyframe_needed());
        assert_eq!(receiver.on_packet(now, Seq(19_999), 0, false), Ok(65_536 + 19_999));
    }

    #[test]
    fn even_arrivals_have_no_jitter() {
        let start = Instant::now();
        let mut receiver = Receiver::new(start, 1, 90_000);
        for frame in 0..100u32 {
            let now = start + Duration::from_millis(10) * frame;
            receiver.on_packet(now, Seq(frame as u16), (frame * 900).wrapping_sub(5_000), false).unwrap();
        }
        assert!(receiver.report(start).jitter <= 1);
    }
}
