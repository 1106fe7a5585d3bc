//! What was sent lately, by transport-wide sequence number.
//!
//! In: each packet as it leaves; then, per number, whether it arrived. Out: what it was, once.
//! Cost: O(1), 8 bytes per packet, 2 KiB from the first packet on and 16 KiB at most: it grows where it would forget a packet
//! that no report has mentioned, and shrinks once few are such. One that 2,048 later ones overtook is forgotten, and feedback
//! about it is ignored.
//! Source: draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.

/// How many packets are remembered at most: 4 s at 5 Mbit/s. A power of two that divides 2^16.
pub(super) const HISTORY_LEN: usize = 2_048;

/// The same at first. Most receivers report ten times a second.
const LEN_MIN: usize = 256;

/// The packets that may still be reported.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Each at its number modulo the size, which is a power of two, or 0 before the first packet.
    pub(super) slots: Box<[Slot]>,
    /// Calls of `tidy` in a row that found few packets on their way.
    calm: u8,
}

/// So often few have to be on their way before it shrinks: just behind a report there are few of any path.
const CALM: u8 = 5;

/// A sent packet that has just been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Never sent, forgotten, or reported before.
    Unknown,
    /// The first report about this packet, and it did not arrive.
    Lost,
    Received {
        /// Lower 32 bits of the send time in µs.
        sent_us: u32,
        bytes: u16,
        /// An earlier report called it lost.
        was_lost: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    sent_us: u32,
    bytes: u16,
    /// The upper half of the sequence number.
    seq_high: u8,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Empty,
    InFlight,
    Lost,
    Done,
}

impl History {
    /// Remembers a packet. It takes the place of one that was reported, or is 2,048 numbers older.
    pub(super) fn push(&mut self, seq: u16, sent_us: u32, bytes: usize) {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        let new = Slot { sent_us, bytes, seq_high: high(seq), state: State::InFlight };
        let index = self.index(seq);
        match self.slots.get_mut(index) {
            Some(slot) if slot.state != State::InFlight => *slot = new,
            _ => self.push_and_grow(seq, new),
        }
    }

    #[cold]
    fn push_and_grow(&mut self, seq: u16, new: Slot) {
        while self.slots.len() < HISTORY_LEN
            && self.slots.get(self.index(seq)).is_none_or(|slot| slot.state == State::InFlight)
        {
            self.resize(LEN_MIN.max(self.slots.len() * 2));
        }
        let index = self.index(seq);
        self.slots[index] = new;
    }

    /// Gives half of it back where few packets are on their way; to be called now and then.
    pub(super) fn tidy(&mut self) {
        let len = self.slots.len();
        let in_flight = || self.slots.iter().filter(|slot| slot.state == State::InFlight).count();
        let is_calm = len > LEN_MIN && in_flight() <= len / 8;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        if self.calm == CALM {
            self.calm = 0;
            self.resize(len / 2);
        }
    }

    /// Has so many slots, a power of two. Where two come to the same one, it is for what is on its way, and of that for the later.
    fn resize(&mut self, wanted: usize) {
        let before = std::mem::replace(&mut self.slots, vec![Slot::default(); wanted].into());
        for (index, slot) in before.into_iter().enumerate().filter(|(_, slot)| slot.state != State::Empty) {
            let index = self.index(u16::from_be_bytes([slot.seq_high, index as u8]));
            let place = &mut self.slots[index];
            let is_later = slot.sent_us.wrapping_sub(place.sent_us) as i32 > 0;
            if place.state != State::InFlight || (slot.state == State::InFlight && is_later) {
                *place = slot;
            }
        }
    }

    /// Takes one line of a report.
    pub(super) fn resolve(&mut self, seq: u16, received: bool) -> Outcome {
        let index = self.index(seq);
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.seq_high == high(seq)) else {
            return Outcome::Unknown;
        };
        match (slot.state, received) {
            (State::Empty | State::Done, _) | (State::Lost, false) => Outcome::Unknown,
            (State::InFlight, false) => {
                slot.state = State::Lost;
                Outcome::Lost
            }
            (state, true) => {
                slot.state = State::Done;
                Outcome::Received { sent_us: slot.sent_us, bytes: slot.bytes, was_lost: state == State::Lost }
            }
        }
    }

    /// Bytes of a packet that no report has mentioned yet, which from now on counts as reported.
    pub(super) fn skip(&mut self, seq: u16) -> u16 {
        let index = self.index(seq);
        match self.slots.get_mut(index) {
            Some(slot) if slot.seq_high == high(seq) && slot.state == State::InFlight => {
                slot.state = State::Done;
                slot.bytes
            }
            _ => 0,
        }
    }

    /// None is that of a slot as long as there are none.
    fn index(&self, seq: u16) -> usize {
        usize::from(seq) & self.slots.len().wrapping_sub(1)
    }
}

fn high(seq: u16) -> u8 {
    (seq >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_reported_once() {
        let mut history = History::default();
        history.push(7, 100, 1_200);
        let first = history.resolve(7, true);
        assert_eq!(first, Outcome::Received { sent_us: 100, bytes: 1_200, was_lost: false });
        assert_eq!(history.resolve(7, true), Outcome::Unknown);
        assert_eq!(history.resolve(7, false), Outcome::Unknown);
    }

    #[test]
    fn a_packet_called_lost_may_still_arrive() {
        let mut history = History::default();
        history.push(7, 100, 1_200);
        assert_eq!(history.resolve(7, false), Outcome::Lost);
        assert_eq!(history.resolve(7, false), Outcome::Unknown);
        assert!(matches!(history.resolve(7, true), Outcome::Received { was_lost: true, .. }));
    }

    #[test]
    fn an_overtaken_packet_is_forgotten_and_strangers_are_unknown() {
        let mut history = History::default();
        assert_eq!(history.resolve(0, true), Outcome::Unknown);
        history.push(65_535, 1, 10);
        assert_eq!(history.resolve(65_535 - 2_048, true), Outcome::Unknown);
        history.push(2_047, 2, 20);
        assert_eq!(history.resolve(65_535, true), Outcome::Unknown);
        assert_eq!(history.skip(2_047), 20);
    }

    #[test]
    fn it_grows_for_what_no_report_has_mentioned_and_forgets_none_of_it() {
        let is_received = |outcome| matches!(outcome, Outcome::Received { bytes: 1_200, .. });
        let mut history = History::default();
        for seq in 0..70_000_u32 {
            history.push(seq as u16, seq, 1_200);
            assert_eq!(is_received(history.resolve((seq as u16).wrapping_sub(100), true)), seq >= 100, "{seq}");
        }
        assert_eq!(history.slots.len(), LEN_MIN);
        (70_000..71_900_u32).for_each(|seq| history.push(seq as u16, seq, 1_200));
        assert!((69_900..71_900_u32).all(|seq| is_received(history.resolve(seq as u16, true))));
        assert_eq!(history.slots.len(), HISTORY_LEN);
    }

    #[test]
    fn it_shrinks_when_little_is_on_its_way_and_forgets_none_of_that() {
        let mut history = History::default();
        (0..2_000_u32).for_each(|seq| history.push(seq as u16, seq, 1_200));
        let tidy = |history: &mut History, times: u8| (0..times).for_each(|_| history.tidy());
        tidy(&mut history, CALM);
        assert_eq!(history.slots.len(), HISTORY_LEN, "all are on their way");
        (0..1_990).for_each(|seq| _ = history.resolve(seq, true));
        tidy(&mut history, CALM - 1);
        assert_eq!(history.slots.len(), HISTORY_LEN, "it may have been just behind a report");
        tidy(&mut history, 2 * CALM + 1);
        assert_eq!(history.slots.len(), LEN_MIN);
        let outcomes: Vec<Outcome> = (1_980..2_001).map(|seq| history.resolve(seq, true)).collect();
        let is_received = |outcome: &&Outcome| matches!(outcome, Outcome::Received { .. });
        assert_eq!(outcomes.iter().filter(is_received).count(), 10);
        assert_eq!(outcomes[10], Outcome::Received { sent_us: 1_990, bytes: 1_200, was_lost: false });
    }

    #[test]
    fn a_slot_takes_eight_bytes() {
        assert_eq!(size_of::<Slot>(), 8);
    }
}
