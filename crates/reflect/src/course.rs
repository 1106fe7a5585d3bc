//! What became of one viewer, so that somebody who asks later finds out why he saw so little.
//!
//! In: that he begins, is behind when he has room again, falls out of the window. Out: the same. Nothing where he is just sent to.
//! Cost: 56 bytes per viewer.

use std::num::NonZeroU32;
use std::time::Duration;

/// A time since he came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct After(NonZeroU32);

impl After {
    /// To the millisecond, of 49 days at most.
    pub fn new(age: Duration) -> Self {
        let ms = u32::try_from(age.as_millis()).unwrap_or(u32::MAX);
        After(NonZeroU32::MIN.saturating_add(ms))
    }

    /// How long that is.
    pub fn age(self) -> Duration {
        Duration::from_millis(u64::from(self.0.get() - 1))
    }
}

/// How far he was behind the newest byte, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// When that was.
    pub after: After,
    /// Bytes.
    pub bytes: u64,
}

/// What became of a viewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// Where he began. `None`: he waits for a start point, or began in another process.
    pub joined: Option<Behind>,
    /// He came from another process then, and this is what became of him since.
    pub came_over: Option<After>,
    /// The most that he was behind: seen when he had room again, when he fell out of the window, and at his end.
    pub most: Option<Behind>,
    /// How often the kernel had no room for all that he was to get.
    pub full: u32,
    /// How often he fell out of the window and went on elsewhere.
    pub skips: u32,
    /// How often of these in the process before.
    pub skips_before: u32,
    /// Of the others the first time, and the last.
    pub skipped: Option<(After, After)>,
}

impl Course {
    /// He begins.
    pub(crate) fn join(&mut self, age: Duration, bytes: u64) {
        if self.joined.is_none() && self.came_over.is_none() {
            self.joined = Some(Behind { after: After::new(age), bytes });
        }
    }

    /// He is behind.
    pub(crate) fn see(&mut self, age: Duration, bytes: u64) {
        if bytes > self.most.map_or(0, |most| most.bytes) {
            self.most = Some(Behind { after: After::new(age), bytes });
        }
    }

    /// He fell out of the window, and goes on elsewhere.
    pub(crate) fn skip(&mut self, age: Duration) {
        let now = After::new(age);
        self.skips = self.skips.saturating_add(1);
        self.skipped = Some((self.skipped.map_or(now, |(first, _)| first), now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_the_millisecond_and_the_most_is_the_first_of_its_size() {
        for ms in [0, 1, 999, u64::from(u32::MAX) - 1] {
            assert_eq!(After::new(Duration::from_millis(ms)).age(), Duration::from_millis(ms));
        }
        assert_eq!(After::new(Duration::MAX).age(), Duration::from_millis(u64::from(u32::MAX) - 1));
        let (mut course, second) = (Course::default(), Duration::from_secs(1));
        for (seconds, bytes) in [(1, 5), (2, 9), (3, 9), (4, 2)] {
            course.see(second * seconds, bytes);
            course.join(second * seconds, bytes);
            course.skip(second * seconds);
        }
        let [one, two, four] = [1, 2, 4].map(|seconds| After::new(second * seconds));
        assert_eq!(course.joined, Some(Behind { after: one, bytes: 5 }));
        assert_eq!(course.most, Some(Behind { after: two, bytes: 9 }));
        assert_eq!((course.skips, course.skipped), (4, Some((one, four))));
        assert!(size_of::<Course>() <= 56, "{}", size_of::<Course>());
    }
}
