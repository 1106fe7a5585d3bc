//! Puts RTP packets back in order.
//!
//! In: payloads with their sequence numbers, as they arrive. Out: the same in order, each once.
//! One that is missing is waited for until so many are there behind it, or for a while; then it is lost.
//! Cost: none for what is in order; a copy for what is early.
//! Source: RFC 3550 §5.1, §A.1 (a row of numbers that do not fit begins anew).

use std::collections::BTreeMap;

use wire::Seq;
use wire::SeqExtender;

/// Packets that wait at most; over that the missing ones are lost.
const HELD_MAX: usize = 64;

/// So many packets in a row that are older than what was passed on are not late: the sender counts anew.
const LATE_MAX: u32 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) lost: u64,
    /// Put back in order.
    pub(super) reordered: u64,
    /// Came too late, or twice.
    pub(super) late: u64,
}

#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// How long a missing one is waited for.
    patience_ns: i64,
    extender: SeqExtender,
    next: Option<u64>,
    held: BTreeMap<u64, Held>,
    late_run: u32,
    pub(super) counts: Counts,
}

#[derive(Debug)]
struct Held {
    arrived_ns: i64,
    payload: Vec<u8>,
}

impl Sorter {
    pub(super) fn new(patience_ns: i64) -> Self {
        Sorter { patience_ns, ..Sorter::default() }
    }

    /// Another sender, or one that counts anew. What is held goes out first.
    pub(super) fn restart(&mut self, out: &mut dyn FnMut(i64, &[u8])) {
        while self.skip(out) {}
        (self.extender, self.next, self.late_run) = (SeqExtender::default(), None, 0);
    }

    pub(super) fn push(&mut self, arrived_ns: i64, seq: Seq, payload: &[u8], out: &mut dyn FnMut(i64, &[u8])) {
        let number = self.extender.peek(seq);
        let next = self.next.unwrap_or(number);
        if number < next {
            self.counts.late += 1;
            self.late_run += 1;
            if self.late_run > LATE_MAX {
                self.restart(out);
                self.push(arrived_ns, seq, payload, out);
            }
            return;
        }
        self.late_run = 0;
        self.extender.extend(seq);
        if number > next {
            if self.held.insert(number, Held { arrived_ns, payload: payload.to_vec() }).is_some() {
                self.counts.late += 1;
            }
            if self.held.len() > HELD_MAX {
                self.skip(out);
            }
            return;
        }
        out(arrived_ns, payload);
        self.next = Some(number + 1);
        if !self.held.is_empty() {
            self.counts.reordered += 1;
            self.drain(out);
        }
    }

    /// What was waited for too long is lost.
    pub(super) fn handle_timeout(&mut self, now_ns: i64, out: &mut dyn FnMut(i64, &[u8])) {
        while self.poll_timeout().is_some_and(|at| at <= now_ns) {
            self.skip(out);
        }
    }

    /// When `handle_timeout` has work.
    pub(super) fn poll_timeout(&self) -> Option<i64> {
        let oldest = self.held.values().map(|held| held.arrived_ns).min()?;
        Some(oldest.saturating_add(self.patience_ns))
    }

    /// Goes on with the first that is held. Returns false when there is none.
    fn skip(&mut self, out: &mut dyn FnMut(i64, &[u8])) -> bool {
        let Some((&first, _)) = self.held.first_key_value() else { return false };
        self.counts.lost += first - self.next.unwrap_or(first);
        self.next = Some(first);
        self.drain(out);
        true
    }

    fn drain(&mut self, out: &mut dyn FnMut(i64, &[u8])) {
        while let Some(entry) = self.held.first_entry()
            && Some(*entry.key()) == self.next
        {
            let (number, held) = entry.remove_entry();
            out(held.arrived_ns, &held.payload);
            self.next = Some(number + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out, each packet being its number; one a millisecond, and a second of silence at the end.
    fn sorted(seqs: &[u16]) -> (Vec<u16>, Counts) {
        let mut sorter = Sorter::new(20_000_000);
        let mut found = Vec::new();
        let mut out = |_: i64, payload: &[u8]| found.push(u16::from_be_bytes([payload[0], payload[1]]));
        for (count, seq) in seqs.iter().enumerate() {
            let now_ns = count as i64 * 1_000_000;
            sorter.handle_timeout(now_ns, &mut out);
            sorter.push(now_ns, Seq(*seq), &seq.to_be_bytes(), &mut out);
        }
        sorter.handle_timeout(1_000_000_000, &mut out);
        (found, sorter.counts)
    }

    #[test]
    fn packets_out_of_order_are_put_in_order_across_the_wrap() {
        let (found, counts) = sorted(&[65_533, 65_535, 65_534, 2, 0, 1, 3]);
        assert_eq!(found, [65_533, 65_534, 65_535, 0, 1, 2, 3]);
        assert_eq!(counts, Counts { lost: 0, reordered: 3, late: 0 });
    }

    #[test]
    fn what_does_not_come_is_lost_after_a_while_and_late_after_that() {
        let mut seqs: Vec<u16> = (0..100).filter(|seq| *seq != 7 && *seq != 8).collect();
        seqs.push(7);
        let (found, counts) = sorted(&seqs);
        assert_eq!(found, (0..100).filter(|seq| *seq != 7 && *seq != 8).collect::<Vec<u16>>());
        assert_eq!(counts, Counts { lost: 2, reordered: 0, late: 1 });
    }

    #[test]
    fn the_same_packet_twice_goes_out_once() {
        let (found, counts) = sorted(&[1, 2, 2, 4, 4, 3, 5]);
        assert_eq!((found, counts.late), (vec![1, 2, 3, 4, 5], 2));
    }

    #[test]
    fn a_sender_that_counts_anew_is_followed() {
        let seqs: Vec<u16> = (30_000..30_010).chain(5..30).collect();
        let (found, counts) = sorted(&seqs);
        assert_eq!(found.last(), Some(&29));
        assert_eq!((found.len(), counts.lost), (10 + 25 - LATE_MAX as usize, 0));
        // A jump ahead is a loss of so many.
        let (found, counts) = sorted(&[1, 2, 3, 1_000, 1_001]);
        assert_eq!((found, counts.lost), (vec![1, 2, 3, 1_000, 1_001], 996));
    }
}
