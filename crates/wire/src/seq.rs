//! Sequence numbers that wrap.

/// RTP sequence number (RFC 3550 §5.1). Wraps at 2^16, so it has a distance but no order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u16);

impl Seq {
    /// Packets from `self` to `other`; negative when `other` was sent earlier.
    pub fn distance_to(self, other: Seq) -> i16 {
        other.0.wrapping_sub(self.0) as i16
    }

    /// The number that is `count` packets later.
    pub fn plus(self, count: u16) -> Seq {
        Seq(self.0.wrapping_add(count))
    }
}

/// Extends 16-bit sequence numbers to 64 bits that never wrap (RFC 3550 §A.1).
///
/// The first number seen becomes 65,536 + itself, so that packets which are a little older still have a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeqExtender {
    highest: Option<u64>,
}

impl SeqExtender {
    /// Returns the extended number nearest to the highest seen, and remembers it when it is higher.
    pub fn extend(&mut self, seq: Seq) -> u64 {
        let extended = self.peek(seq);
        if self.highest.is_none_or(|highest| extended > highest) {
            self.highest = Some(extended);
        }
        extended
    }

    /// Like `extend`, but remembers nothing.
    pub fn peek(&self, seq: Seq) -> u64 {
        match self.highest {
            None => (1 << 16) + u64::from(seq.0),
            Some(highest) => {
                let step = Seq(highest as u16).distance_to(seq);
                highest.saturating_add_signed(i64::from(step))
            }
        }
    }

    /// The highest extended number so far.
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_signed_across_the_wrap() {
        assert_eq!(Seq(65_535).distance_to(Seq(1)), 2);
        assert_eq!(Seq(1).distance_to(Seq(65_535)), -2);
    }

    #[test]
    fn extension_survives_wraps_and_reordering() {
        let mut extender = SeqExtender::default();
        assert_eq!(extender.extend(Seq(65_534)), 65_536 + 65_534);
        assert_eq!(extender.extend(Seq(1)), 2 * 65_536 + 1);
        assert_eq!(extender.extend(Seq(65_535)), 65_536 + 65_535);
        assert_eq!(extender.highest(), Some(2 * 65_536 + 1));
    }
}
