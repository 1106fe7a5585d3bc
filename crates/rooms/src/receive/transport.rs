//! When each packet of a session arrived, for its sender's bandwidth estimation.
//!
//! In: transport-wide sequence numbers as they come. Out: feedback every `INTERVAL`.
//! Source: draft-holmer-rmcat-transport-wide-cc-extensions-01.

use std::time::{Duration, Instant};

use wire::rtcp;
use wire::{Seq, SeqExtender};

/// How often feedback goes out while packets come; libwebrtc's remote_estimator_proxy.cc starts from the same.
const INTERVAL: Duration = Duration::from_millis(100);
/// Packets that wait for feedback at most; more make it due at once, and a leap beyond it starts over.
const PACKETS_MAX: usize = 1_024;
/// Microseconds in the feedback's unit of time.
const TICK_US: u128 = 250;

/// Arrivals that no feedback has told of yet.
#[derive(Debug)]
pub struct TransportRecorder {
    epoch: Instant,
    extender: SeqExtender,
    /// The packets from `base` on that no feedback has covered: the time of arrival in ticks, or `None`.
    base: u64,
    arrivals: Vec<Option<i64>>,
    due_at: Option<Instant>,
    feedback_count: u8,
}

impl TransportRecorder {
    /// Nothing arrived yet.
    pub fn new(now: Instant) -> Self {
        TransportRecorder {
            epoch: now,
            extender: SeqExtender::default(),
            base: 0,
            arrivals: Vec::new(),
            due_at: None,
            feedback_count: 0,
        }
    }

    /// Takes the number of a packet that just arrived. One that feedback has covered already is ignored.
    pub fn on_packet(&mut self, now: Instant, seq: u16) {
        let is_first = self.extender.highest().is_none();
        let extended = self.extender.extend(Seq(seq));
        if is_first || extended > self.base + PACKETS_MAX as u64 {
            self.base = extended;
            self.arrivals.clear();
        }
        let Some(index) = extended.checked_sub(self.base).map(|index| index as usize) else { return };
        if self.arrivals.len() <= index {
            self.arrivals.resize(index + 1, None);
        }
        let ticks = now.saturating_duration_since(self.epoch).as_micros() / TICK_US;
        self.arrivals[index].get_or_insert(ticks as i64);
        let due_at = if index >= PACKETS_MAX / 2 { now } else { now + INTERVAL };
        self.due_at = Some(self.due_at.map_or(due_at, |at| at.min(due_at)));
    }

    /// When feedback is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due_at
    }

    /// Writes the feedback that is due; returns its length. When more stays, it is due at once.
    pub fn write_feedback(&mut self, now: Instant, buf: &mut [u8], ssrc: u32, media_ssrc: u32) -> Option<usize> {
        let written = rtcp::write_transport_feedback(
            buf,
            ssrc,
            media_ssrc,
            self.base as u16,
            self.feedback_count,
            &self.arrivals,
        );
        let Some((len, covered)) = written else {
            // Nothing that can be told: start over with the next packet.
            self.base += self.arrivals.len() as u64;
            self.arrivals.clear();
            self.due_at = None;
            return None;
        };
        self.feedback_count = self.feedback_count.wrapping_add(1);
        self.base += covered as u64;
        self.arrivals.drain(..covered);
        self.due_at = (!self.arrivals.is_empty()).then_some(now);
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use wire::rtcp::Packet;

    use super::*;

    fn told(recorder: &mut TransportRecorder, now: Instant) -> Vec<(u16, Option<i64>)> {
        let mut buf = [0; 1_200];
        let Some(len) = recorder.write_feedback(now, &mut buf, 1, 2) else { return Vec::new() };
        let packet = rtcp::packets(&buf[..len]).unwrap().next();
        let Some(Packet::TransportFeedback(feedback)) = packet else { panic!("no feedback: {packet:?}") };
        feedback.arrivals().collect()
    }

    #[test]
    fn arrivals_and_losses_are_told_across_the_wrap() {
        let start = Instant::now();
        let mut recorder = TransportRecorder::new(start);
        for (seq, ms) in [(65_535, 10), (1, 20), (0, 21), (3, 30)] {
            recorder.on_packet(start + Duration::from_millis(ms), seq);
        }
        let due = recorder.poll_timeout().unwrap();
        assert_eq!(due, start + Duration::from_millis(10) + INTERVAL);
        let told = told(&mut recorder, due);
        let first = told[0].1.unwrap();
        let steps: Vec<_> = told.iter().map(|(seq, at)| (*seq, at.map(|at| at - first))).collect();
        assert_eq!(steps, [(65_535, Some(0)), (0, Some(44)), (1, Some(40)), (2, None), (3, Some(80))]);
        assert_eq!(recorder.poll_timeout(), None);
    }

    #[test]
    fn a_leap_starts_over() {
        let start = Instant::now();
        let mut recorder = TransportRecorder::new(start);
        recorder.on_packet(start, 5);
        recorder.on_packet(start, 20_000);
        assert_eq!(told(&mut recorder, start), [(20_000, Some(0))]);
    }

    #[test]
    fn many_packets_are_told_early() {
        let start = Instant::now();
        let mut recorder = TransportRecorder::new(start);
        for seq in 0..=512 {
            recorder.on_packet(start, seq);
        }
        assert_eq!(recorder.poll_timeout(), Some(start));
        assert_eq!(told(&mut recorder, start).len(), 513);
    }
}
