//! A stream's datagrams on their way into the outbox: headers before them, parity beside them.

use wire::ts::{DATAGRAM_LEN, write_rtp_header};
use wire::{Path, Seq};

use super::Output;
use super::measure::Measure;
use crate::fec::{Encoder, PARITY_LEN};
use crate::spec::{RtpPoint, SessionSpec, Transport};

/// Where a stream is sent, and in what.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) path: Path,
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
        let fec = rtp.as_ref().zip(spec.play.fec).and_then(|(rtp, fec)| Encoder::new(fec, &spec.path, rtp.seq));
        Sender { path: spec.path, rtp, fec: fec.map(Box::new) }
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
        let Some(rtp) = &mut self.rtp else { return 0 };
        rtp.zero_ns.get_or_insert(due_ns);
        let timestamp = rtp.timestamp_at(due_ns);
        let marker = std::mem::take(&mut rtp.marker);
        let len = write_rtp_header(slot, rtp.seq, timestamp, rtp.ssrc, marker).unwrap_or(0);
        rtp.seq = rtp.seq.plus(1);
        len
    }

    /// Sends the datagram that was written behind a header of that length.
    pub(super) fn commit(&mut self, header_len: usize, output: &mut Output<'_>, measure: &mut Measure) {
        let len = header_len + DATAGRAM_LEN;
        if let Some(fec) = &mut self.fec
            && let Some(slot) = output.out.slot()
        {
            fec.add(&slot[..len]);
        }
        if measure.has_monitor()
            && let Some(slot) = output.out.slot()
        {
            measure.add(&slot[..len], output.totals);
        }
        output.out.commit(&self.path, len);
        measure.count_sent(1, len as u64, output.totals);
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
