//! Who of a worker's products writes when.
//!
//! In: the products, an outbox with some room, the time. Out: what they wrote, and whether one has more.
//! Cost: two calls per product.
//!
//! The quantum is one outbox, about half a millisecond of sending: whoever fills it, with whatever it writes, is the last to
//! be asked for the next.
//! A product whose time has come meanwhile is told so before it is asked, so that a deadline waits for a quantum and not
//! for all that another has to say.

use std::time::Instant;

use wire::{Outbox, Product};

/// Who is asked first.
#[derive(Debug, Default)]
pub(super) struct Turns {
    first: usize,
}

impl Turns {
    /// Lets products write until the outbox is full; true when there may be more.
    pub(super) fn transmit(&mut self, products: &mut [&mut dyn Product], now: Instant, out: &mut Outbox) -> bool {
        let count = products.len();
        let mut has_more = false;
        for index in (self.first..count).chain(0..self.first) {
            let Some(product) = products.get_mut(index) else { break };
            if product.poll_timeout().is_some_and(|at| at <= now) {
                product.handle_timeout(now, out);
            }
            has_more |= product.poll_transmit(now, out);
            if !out.has_room_for_all() {
                self.first = (index + 1) % count;
                return true;
            }
        }
        has_more
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::{DATAGRAM_MAX, LinkId, LinkKind, Path};

    use super::*;

    const OUTBOX: usize = 10 * DATAGRAM_MAX;

    /// It writes datagrams with its number, as many as it has.
    struct Writer {
        number: u8,
        left: usize,
        at: Option<Instant>,
    }

    impl Writer {
        fn with(number: u8, left: usize) -> Self {
            Writer { number, left, at: None }
        }
    }

    impl Product for Writer {
        fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {
            self.at = None;
            self.left += 1;
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.at
        }

        fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
            let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], 1).into(), local: None };
            while self.left > 0 && out.push(&path, &[self.number; DATAGRAM_MAX]) {
                self.left -= 1;
            }
            self.left > 0
        }
    }

    /// Lets them write one outbox; how many datagrams of each number were in it, and whether there is more.
    fn flush(turns: &mut Turns, writers: &mut [Writer], now: Instant) -> (Vec<usize>, bool) {
        let mut out = Outbox::new(OUTBOX);
        let mut products: Vec<&mut dyn Product> = writers.iter_mut().map(|writer| writer as _).collect();
        let has_more = turns.transmit(&mut products, now, &mut out);
        let count = |number| out.datagrams().filter(|(_, bytes)| bytes[0] == number).count();
        ((0..writers.len() as u8).map(count).collect(), has_more)
    }

    #[test]
    fn a_single_packet_leaves_within_one_quantum_of_one_who_always_has_more() {
        let now = Instant::now();
        let mut turns = Turns::default();
        let mut writers = [Writer::with(0, usize::MAX), Writer::with(1, 0)];
        for round in 0..50 {
            writers[1].left = 1;
            let sent: usize = (0..2).map(|_| flush(&mut turns, &mut writers, now).0[1]).sum();
            assert_eq!(sent, 1, "round {round}");
        }
        assert!(usize::MAX - writers[0].left > 900, "the other had the rest: {}", usize::MAX - writers[0].left);
    }

    #[test]
    fn those_who_always_have_more_get_the_same() {
        let now = Instant::now();
        let mut turns = Turns::default();
        let mut writers = [0, 1, 2].map(|number| Writer::with(number, 1_000_000));
        let mut sent = [0; 3];
        for _ in 0..30 {
            let (counts, has_more) = flush(&mut turns, &mut writers, now);
            assert!(has_more);
            sent.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        assert_eq!(sent, [100; 3]);
    }

    /// It writes single bytes of a byte stream.
    struct Streamer(usize);

    impl Product for Streamer {
        fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

        fn poll_timeout(&self) -> Option<Instant> {
            None
        }

        fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
            while out.push_bytes(LinkId::new(LinkKind::Stream, 0, 0), &[0]) {
                self.0 += 1;
            }
            true
        }
    }

    #[test]
    fn who_fills_the_outbox_with_pieces_of_streams_has_had_its_turn_too() {
        let mut turns = Turns::default();
        let [mut one, mut other] = [Streamer(0), Streamer(0)];
        for _ in 0..10 {
            assert!(turns.transmit(&mut [&mut one, &mut other], Instant::now(), &mut Outbox::new(OUTBOX)));
        }
        assert!(one.0 > 0 && one.0 == other.0, "{} and {}", one.0, other.0);
    }

    #[test]
    fn a_deadline_waits_for_one_quantum_and_not_for_all_that_another_sends() {
        let start = Instant::now();
        let mut turns = Turns::default();
        let mut writers = [Writer::with(0, 1_000_000), Writer::with(1, 0)];
        writers[1].at = Some(start + Duration::from_millis(2));
        let at = |ms| start + Duration::from_millis(ms);

        let sent = [0, 1, 2, 3].map(|ms| flush(&mut turns, &mut writers, at(ms)).0[1]);
        assert_eq!(sent.iter().sum::<usize>(), 1, "{sent:?}");
        assert_eq!(sent[..2], [0, 0]);
    }

    #[test]
    fn all_that_there_is_leaves_in_one_outbox_when_it_fits() {
        let mut turns = Turns::default();
        let mut writers = [0, 1, 2].map(|number| Writer::with(number, 2));
        assert_eq!(flush(&mut turns, &mut writers, Instant::now()), (vec![2, 2, 2], false));
        assert_eq!(flush(&mut turns, &mut [], Instant::now()), (vec![], false));
    }
}
