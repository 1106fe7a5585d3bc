//! What the relay calls its links: the number of a `Token` says what a link is, and where that stands in its table.

/// What a link is to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A UDP socket that clients send to: its place in `Settings::listeners`.
    Listener(usize),
    /// A relayed transport address: its slot.
    Relayed(usize),
    /// A client's connection: its slot.
    Client(usize),
    /// A connection to or from a peer: its slot.
    Peer(usize),
}

/// The kind is in the two upper bits.
const KIND_SHIFT: u32 = 30;

const SLOT_MASK: u32 = (1 << KIND_SHIFT) - 1;

impl Name {
    /// The number of the token.
    pub fn number(self) -> u32 {
        let (kind, slot) = match self {
            Name::Listener(index) => (0, index),
            Name::Relayed(slot) => (1, slot),
            Name::Client(slot) => (2, slot),
            Name::Peer(slot) => (3, slot),
        };
        debug_assert!(slot as u64 <= u64::from(SLOT_MASK), "tables are smaller");
        kind << KIND_SHIFT | slot as u32 & SLOT_MASK
    }

    /// What has that number.
    pub fn of(number: u32) -> Self {
        let slot = (number & SLOT_MASK) as usize;
        match number >> KIND_SHIFT {
            0 => Name::Listener(slot),
            1 => Name::Relayed(slot),
            2 => Name::Client(slot),
            _ => Name::Peer(slot),
        }
    }
}

/// The number of the token of a listener, by its place in `Settings::listeners`.
pub fn listener(index: usize) -> u32 {
    Name::Listener(index).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_by_its_number() {
        for slot in [0, 7, SLOT_MASK as usize] {
            for name in [Name::Listener(slot), Name::Relayed(slot), Name::Client(slot), Name::Peer(slot)] {
                assert_eq!(Name::of(name.number()), name);
            }
        }
        assert_eq!(listener(3), 3);
    }
}
