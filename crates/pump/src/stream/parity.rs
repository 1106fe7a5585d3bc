//! Parity beside a stream's datagrams, and behind the last of them.

use super::{Output, Stream};
use crate::fec::PARITY_LEN;
use crate::spec::Activity;

impl Stream {
    /// Writes the parity that is due; false when there is no room left.
    pub(super) fn send_parity(&mut self, output: &mut Output<'_>) -> bool {
        let Some(fec) = &mut self.fec else { return true };
        loop {
            let Some(slot) = output.out.slot() else { return false };
            let Some(path) = fec.write(slot) else { return true };
            output.out.commit(&path, PARITY_LEN);
            self.stats.fec_datagrams += 1;
            output.totals.counters.fec_datagrams += 1;
        }
    }

    /// All is sent but parity, which leaves at the pace that was.
    pub(super) fn is_parity_left(&self) -> bool {
        let holds_columns = self.fec.as_ref().is_some_and(|fec| fec.holds_columns());
        // Behind pictures something else is about to come.
        holds_columns && self.activity == Activity::Playing && self.pictures.is_none()
    }

    /// Lets one more column go, and says when. The schedule moves on with it, so what may yet come is not late.
    pub(super) fn release_parity(&mut self) -> i64 {
        let datagram_ns = self.interval_ns() / i64::from(self.burst);
        if let Some(fec) = &self.fec {
            self.shift(datagram_ns * i64::from(fec.column_len()));
        }
        let timestamp = self.timestamp_at(self.rtp_zero_ns.unwrap_or(self.due_ns), self.due_ns);
        if let Some(fec) = &mut self.fec {
            fec.release(timestamp);
        }
        self.due_ns
    }
}
