//! Where a stream begins, or goes on, for control that has to tell its client (RTP-Info, RFC 2326 §12.33).

use super::{Activity, Stream, Transport};
use crate::spec::{RtpPoint, Start};

impl Stream {
    /// Remembers who wants to know when it plays. Returns who is not told any more.
    pub(crate) fn await_start(&mut self, token: u64) -> Option<u64> {
        self.start_token.replace(token)
    }

    /// Who is to be told that it plays now.
    pub(crate) fn poll_started(&mut self) -> Option<(u64, Start)> {
        let token = self.start_token.filter(|_| self.activity == Activity::Playing)?;
        self.start_token = None;
        Some((token, self.start()))
    }

    pub(crate) fn take_start_token(&mut self) -> Option<u64> {
        self.start_token.take()
    }

    fn start(&mut self) -> Start {
        let position = self.queue.position().unwrap_or(self.end_position);
        let due_ns = self.rtp_time();
        let rtp = match self.spec.transport {
            Transport::Udp => None,
            Transport::Rtp { first_timestamp, .. } => self.rtp_point(due_ns).or(Some(RtpPoint {
                // The first packet's time is that of the first timestamp.
                seq: self.seq.0,
                timestamp: first_timestamp,
            })),
        };
        Start { position, rtp }
    }

    /// The next sequence number, and the timestamp that stands for `at_ns`. `None` before the first packet.
    pub(super) fn rtp_point(&self, at_ns: i64) -> Option<RtpPoint> {
        let zero_ns = self.rtp_zero_ns?;
        Some(RtpPoint { seq: self.seq.0, timestamp: self.timestamp_at(zero_ns, at_ns) })
    }

    /// Counts 90 kHz from the first packet's time.
    pub(super) fn timestamp_at(&self, zero_ns: i64, at_ns: i64) -> u32 {
        let Transport::Rtp { first_timestamp, .. } = self.spec.transport else { return 0 };
        let passed = (at_ns - zero_ns).div_euclid(100_000) * 9 + (at_ns - zero_ns).rem_euclid(100_000) * 9 / 100_000;
        first_timestamp.wrapping_add(passed as u32)
    }
}
