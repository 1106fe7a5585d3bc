//! A stream's datagrams on their way into the outbox: headers before them, parity beside them.

use wire::Seq;
use wire::rtp::FIXED_HEADER_LEN;
use wire::rtsp::{FRAME_HEADER_LEN, frame_header};
use wire::ts::{DATAGRAM_LEN, write_rtp_header};

use super::Output;
use super::measure::Measure;
use crate::fec::{Encoder, PARITY_LEN};
use crate::spec::{RtpPoint, SessionSpec, Target, Transport};

/// Where a stream is sent, and in what.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) to: Target,
    /// `None`: right in UDP.
    pub(super) rtp: Option<Rtp>,
    pub(super) fec: Option<Box<Encoder>>,
}

/// The RTP stream.
#[derive(Debug)]
pub(super) struct Rtp {
    ssrc: u32,
    first_timestamp: u32,
    /// The next packet's number.
    seq: Seq,
    /// The time that the first timestamp stands for. `None` before the first packet.
    zero_ns: Option<i64>,
    /// The next packet does not continue the last one.
    marker: bool,
}

impl Sender {
    pub(super) fn new(spec: &SessionSpec) -> Self {
        let rtp = match spec.transport {
            Transport::Udp => None,
            Transport::Rtp { ssrc, first_seq, first_timestamp } => {
                Some(Rtp { ssrc, first_timestamp, seq: Seq(first_seq), zero_ns: None, marker: true })
            }
        };
        let fec = match (&rtp, spec.play.fec, &spec.to) {
            (Some(rtp), Some(fec), Target::Datagrams(path)) => Encoder::new(fec, path, rtp.seq),
            _ => None,
        };
        Sender { to: spec.to, rtp, fec: fec.map(Box::new) }
    }

    /// Whether a datagram is what lies in the chunk.
    #[inline]
    pub(super) fn is_bare(&self) -> bool {
        self.rtp.is_none()
    }

    /// The next datagram does not continue the last one.
    pub(super) fn mark_splice(&mut self) {
        if let Some(rtp) = &mut self.rtp {
            rtp.marker = true;
        }
    }

    /// Writes the header of a datagram whose first packet is due then; returns its length.
    pub(super) fn write_header(&mut self, slot: &mut [u8], due_ns: i64) -> usize {
        let before = self.frame_header_len();
        if let Target::Interleaved { channel, .. } = self.to {
            let len = if self.rtp.is_some() { FIXED_HEADER_LEN + DATAGRAM_LEN } else { DATAGRAM_LEN };
            slot[..before].copy_from_slice(&frame_header(channel, len as u16));
        }
        let Some(rtp) = &mut self.rtp else { return before };
        rtp.zero_ns.get_or_insert(due_ns);
        let timestamp = rtp.timestamp_at(due_ns);
        let marker = std::mem::take(&mut rtp.marker);
        let len = write_rtp_header(&mut slot[before..], rtp.seq, timestamp, rtp.ssrc, marker).unwrap_or(0);
        rtp.seq = rtp.seq.plus(1);
        before + len
    }

    /// Bytes before the datagram.
    fn frame_header_len(&self) -> usize {
        match self.to {
            Target::Datagrams(_) => 0,
            Target::Interleaved { .. } => FRAME_HEADER_LEN,
        }
    }

    /// Sends the datagram that was written behind a header of that length.
    pub(super) fn commit(&mut self, header_len: usize, output: &mut Output<'_>, measure: &mut Measure) {
        let (before, len) = (self.frame_header_len(), header_len + DATAGRAM_LEN);
        if let Some(fec) = &mut self.fec
            && let Some(slot) = output.out.slot()
        {
            fec.add(&slot[before..len]);
        }
        if measure.monitor.is_some()
            && let Some(slot) = output.out.slot()
        {
            measure.add(&slot[before..len], output.totals);
        }
        match &self.to {
            Target::Datagrams(path) => output.out.commit(path, len),
            Target::Interleaved { connection, .. } => {
                output.connections.send(*connection, output.out, len, &mut output.totals.counters);
            }
        }
        measure.count_sent(1, (len - before) as u64, output.totals);
    }

    /// Writes the parity that is due; false when there is no room left.
    pub(super) fn send_parity(&mut self, output: &mut Output<'_>, measure: &mut Measure) -> bool {
        let Some(fec) = &mut self.fec else { return true };
        loop {
            let Some(slot) = output.out.slot() else { return false };
            let Some(path) = fec.write(slot) else { return true };
            output.out.commit(&path, PARITY_LEN);
            measure.count_parity(output.totals);
        }
    }

    /// Whether columns of parity are left that no datagram was followed by.
    pub(super) fn holds_parity(&self) -> bool {
        self.fec.as_ref().is_some_and(|fec| fec.holds_columns())
    }

    /// Lets one more column go, at `at_ns`.
    pub(super) fn release_parity(&mut self, at_ns: i64) {
        let timestamp = self.rtp.as_ref().map_or(0, |rtp| rtp.timestamp_at(at_ns));
        if let Some(fec) = &mut self.fec {
            fec.release(timestamp);
        }
    }

    /// The next sequence number, and the timestamp that stands for `at_ns`: the first one before the first packet.
    pub(super) fn rtp_point(&self, at_ns: i64) -> Option<RtpPoint> {
        let rtp = self.rtp.as_ref()?;
        Some(RtpPoint { seq: rtp.seq.0, timestamp: rtp.timestamp_at(at_ns) })
    }
}

impl Rtp {
    /// Counts 90 kHz from the first packet's time.
    fn timestamp_at(&self, at_ns: i64) -> u32 {
        let passed_ns = at_ns - self.zero_ns.unwrap_or(at_ns);
        let passed = passed_ns.div_euclid(100_000) * 9 + passed_ns.rem_euclid(100_000) * 9 / 100_000;
        self.first_timestamp.wrapping_add(passed as u32)
    }
}
