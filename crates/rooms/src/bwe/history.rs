//! What was sent lately, by transport-wide sequence number.
//!
//! In: each packet as it leaves; then, per number, whether it arrived. Out: what it was, once.
//! Cost: O(1), 8 bytes per packet, 16 KiB in all, allocated at the first packet. Never grows: a packet that 2,048 later
//! ones overtook is forgotten, and feedback about it is ignored.
//! Source: draft-holmer-rmcat-transport-wide-cc-extensions-01 §3.

/// How many packets are remembered: 4 s at 5 Mbit/s. A power of two that divides 2^16.
pub(super) const HISTORY_LEN: usize = 2_048;

const INDEX_BITS: u32 = HISTORY_LEN.trailing_zeros();

/// The packets that may still be reported.
#[derive(Debug, Default)]
pub(super) struct History {
    /// `None` before the first packet.
    pub(super) slots: Option<Box<[Slot; HISTORY_LEN]>>,
}

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
    /// The bits of the sequence number above the slot's index.
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
    /// Remembers a packet. It takes the place of the one sent 2,048 numbers before.
    pub(super) fn push(&mut self, seq: u16, sent_us: u32, bytes: usize) {
        let slots = self.slots.get_or_insert_with(empty_slots);
        slots[index(seq)] = Slot {
            sent_us,
            bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
            seq_high: high(seq),
            state: State::InFlight,
        };
    }

    /// Takes one line of a report.
    pub(super) fn resolve(&mut self, seq: u16, received: bool) -> Outcome {
        let Some(slots) = &mut self.slots else { return Outcome::Unknown };
        let slot = &mut slots[index(seq)];
        if slot.seq_high != high(seq) {
            return Outcome::Unknown;
        }
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
        let Some(slots) = &mut self.slots else { return 0 };
        let slot = &mut slots[index(seq)];
        if slot.seq_high != high(seq) || slot.state != State::InFlight {
            return 0;
        }
        slot.state = State::Done;
        slot.bytes
    }
}

/// Made on the stack first, which is not to be looked through for each packet.
#[cold]
#[inline(never)]
fn empty_slots() -> Box<[Slot; HISTORY_LEN]> {
    Box::new([Slot::default(); HISTORY_LEN])
}

fn index(seq: u16) -> usize {
    usize::from(seq) % HISTORY_LEN
}

fn high(seq: u16) -> u8 {
    (seq >> INDEX_BITS) as u8
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
    fn a_slot_takes_eight_bytes() {
        assert_eq!(size_of::<Slot>(), 8);
    }
}
