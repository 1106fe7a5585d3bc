//! How much of what a viewer's path carries each of its pictures may take.
//!
//! In: what there is for them all, and of each its priority, the least that is sent of it, and the most that is wanted. Out: a share
//! for each. Cost: O(n log n) for n pictures, and no allocation.
//!
//! Those of one priority share alike, but what one has no use for is the others'. A priority has what those before it leave, and
//! leaves those behind it the least that is sent of them.

use wire::Bitrate;

/// What one picture needs, and gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need<T> {
    /// Whose it is.
    pub of: T,
    /// 1 comes before 2; 0 comes behind all others.
    pub priority: u32,
    /// For the smallest size that is sent, which goes out whatever fits.
    pub least: Bitrate,
    /// For the largest size that is wanted.
    pub most: Bitrate,
    /// What it may take.
    pub share: Bitrate,
}

impl<T> Need<T> {
    /// Nothing is known of it yet.
    pub fn of(of: T) -> Self {
        Need { of, priority: 0, least: Bitrate::ZERO, most: Bitrate::ZERO, share: Bitrate::ZERO }
    }

    fn order(&self) -> (u32, Bitrate) {
        // Of 0 it is the largest number.
        (self.priority.wrapping_sub(1), self.most)
    }
}

/// Divides what there is. The needs stand in another order then.
pub fn divide<T>(carried: Bitrate, needs: &mut [Need<T>]) {
    needs.sort_unstable_by_key(Need::order);
    let mut left = carried.bps();
    let mut kept: u64 = needs.iter().map(|need| need.least.bps()).sum();
    // Estimates are nothing near this; it stands for none.
    left = left.min(u64::MAX / 4);
    for alike in needs.chunk_by_mut(|one, other| one.priority == other.priority) {
        let own: u64 = alike.iter().map(|need| need.least.bps()).sum();
        kept -= own;
        let given = left.saturating_sub(kept).max(left.min(own));
        left = left - given + share_alike(given, alike);
    }
}

/// Divides among those of one priority, of whom who wants least stands first. Returns what is left.
fn share_alike<T>(given: u64, needs: &mut [Need<T>]) -> u64 {
    let (mut left, count) = (given, needs.len());
    for (index, need) in needs.iter_mut().enumerate() {
        let even = left / (count - index) as u64;
        need.share = Bitrate::from_bps(even);
        left -= need.most.bps().min(even);
    }
    // Nobody has to do with less than there is.
    for need in needs.iter_mut().filter(|need| need.share >= need.most) {
        need.share = Bitrate::from_bps(need.most.bps().saturating_add(left).max(need.share.bps()));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares of pictures with these priorities, least and most, in kbit/s, by their place.
    fn shares(carried: u64, needs: &[(u32, u64, u64)]) -> Vec<u64> {
        let need = |(of, (priority, least, most)): (usize, &(u32, u64, u64))| Need {
            of,
            priority: *priority,
            least: Bitrate::from_kbps(*least),
            most: Bitrate::from_kbps(*most),
            share: Bitrate::ZERO,
        };
        let mut needs: Vec<_> = needs.iter().enumerate().map(need).collect();
        divide(Bitrate::from_kbps(carried), &mut needs);
        needs.sort_by_key(|need| need.of);
        needs.iter().map(|need| need.share.bps() / 1_000).collect()
    }

    #[test]
    fn a_single_picture_has_all_that_there_is() {
        for carried in [0, 100, 5_000] {
            assert_eq!(shares(carried, &[(0, 150, 2_500)]), [carried]);
        }
    }

    #[test]
    fn what_one_has_no_use_for_is_the_others() {
        let thumbnails = [(0, 150, 150), (0, 150, 150), (0, 150, 2_500)];
        assert_eq!(shares(2_000, &thumbnails), [666, 925, 1_700]);
        assert_eq!(shares(300, &thumbnails), [100, 100, 100]);
    }

    #[test]
    fn who_comes_first_has_what_it_wants_but_for_the_least_of_the_others() {
        let needs = [(2, 150, 2_500), (0, 150, 2_500), (1, 150, 2_500)];
        assert_eq!(shares(3_000, &needs), [350, 150, 2_700]);
        assert_eq!(shares(6_000, &needs), [3_350, 1_000, 5_700]);
        assert_eq!(shares(100, &needs), [0, 0, 100]);
    }

    #[test]
    fn no_more_is_taken_than_there_is_unless_it_is_the_least() {
        let mut random = wire::Random::new(1);
        for _ in 0..1_000 {
            let mut kbps = |below| random.below(below);
            let needs: Vec<_> = (0..kbps(6)).map(|_| (kbps(3) as u32, kbps(200), 200 + kbps(3_000))).collect();
            let carried = kbps(6_000);
            let shares = shares(carried, &needs);
            let taken: u64 = needs.iter().zip(&shares).map(|((_, _, most), share)| *most.min(share)).sum();
            assert!(taken <= carried, "{carried}: {needs:?}, {shares:?}");
        }
    }
}
