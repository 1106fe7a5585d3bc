//! Which of the last packets were there, as one bit each.

use crate::drops::DropReason;

/// So many packets back it is known what came. At 1,000 packets a second that is one second.
pub(super) const LEN: u64 = 1_024;

#[derive(Debug, Default)]
pub(super) struct Window {
    /// One more than the highest number.
    next: u64,
    /// Bit `seq % LEN`: that packet came.
    seen: [u64; (LEN / 64) as usize],
}

impl Window {
    /// Notes a packet, when it is new.
    pub(super) fn insert(&mut self, seq: u64) -> Result<(), DropReason> {
        if seq >= self.next {
            self.move_to(seq + 1);
        } else if self.next - seq > LEN {
            return Err(DropReason::TooOld);
        }
        let word = &mut self.seen[(seq % LEN / 64) as usize];
        let bit = 1 << (seq % 64);
        if *word & bit != 0 {
            return Err(DropReason::Duplicate);
        }
        *word |= bit;
        Ok(())
    }

    /// Makes room for the numbers before `next`, all of them new.
    fn move_to(&mut self, next: u64) {
        if next - self.next >= LEN {
            self.seen.fill(0);
        } else {
            for seq in self.next..next {
                self.seen[(seq % LEN / 64) as usize] &= !(1 << (seq % 64));
            }
        }
        self.next = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_new_once() {
        let mut window = Window::default();
        for seq in [70_000, 70_002, 70_001, 71_025] {
            assert_eq!(window.insert(seq), Ok(()));
            assert_eq!(window.insert(seq), Err(DropReason::Duplicate));
        }
        assert_eq!(window.insert(70_001), Err(DropReason::TooOld));
        assert_eq!(window.insert(70_002), Err(DropReason::Duplicate));
        assert_eq!(window.insert(70_003), Ok(()));
    }

    #[test]
    fn a_jump_forgets_what_was_before() {
        let mut window = Window::default();
        window.insert(70_000).unwrap();
        window.insert(70_000 + 3 * LEN).unwrap();
        assert_eq!(window.insert(70_000 + 2 * LEN + 1), Ok(()));
    }
}
