//! Users whom the operator keeps out: for a time, or until he lets them in again, and no longer than the server runs.
//!
//! In: whom and for how long. Out: all of them, for workers and for the API. Cost: a copy for each change; there are
//! `BLOCKS_MAX` at most.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::{Duration, Instant};

use relay::blocked::Blocked;

/// So many at a time; others are users to be removed, not to be kept out.
pub const BLOCKS_MAX: usize = 10_000;

/// All of them, by name.
#[derive(Debug, Default)]
pub struct Blocks {
    users: BTreeMap<Arc<str>, Option<Instant>>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Who.
    pub user: Arc<str>,
    /// For how long still; `None` is until he is let in.
    pub left: Option<Duration>,
}

impl Blocks {
    /// Keeps somebody out from now on, whatever was said of him before. False when there are too many.
    pub fn add(&mut self, now: Instant, user: &str, time: Option<Duration>) -> bool {
        self.forget(now);
        let has_room = self.users.len() < BLOCKS_MAX || self.users.contains_key(user);
        if has_room {
            self.users.insert(user.into(), time.map(|time| now + time));
        }
        has_room
    }

    /// Lets him in again. False when he was not kept out.
    pub fn remove(&mut self, now: Instant, user: &str) -> bool {
        self.forget(now);
        self.users.remove(user).is_some()
    }

    /// The first `count` behind `after`.
    pub fn list(&mut self, now: Instant, after: &str, count: usize) -> Vec<Block> {
        self.forget(now);
        let behind = self.users.range::<str, _>((Excluded(after), Unbounded)).take(count);
        let left = |until: Instant| until.saturating_duration_since(now);
        behind.map(|(user, until)| Block { user: user.clone(), left: until.map(left) }).collect()
    }

    /// As workers have them.
    pub fn blocked(&self) -> Blocked {
        Blocked(self.users.iter().map(|(user, until)| (user.clone(), *until)).collect())
    }

    fn forget(&mut self, now: Instant) {
        self.users.retain(|_, until| until.is_none_or(|until| now < until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_kept_out_for_a_time_is_forgotten_after_it_and_there_are_no_more_than_so_many() {
        let (start, hour) = (Instant::now(), Duration::from_secs(3_600));
        let mut blocks = Blocks::default();
        assert!(blocks.add(start, "bob", Some(hour)) && blocks.add(start, "ann", None));
        let left = |blocks: &mut Blocks, at| {
            blocks.list(at, "", 9).into_iter().map(|block| (block.user.to_string(), block.left)).collect::<Vec<_>>()
        };
        let bob = ("bob".to_owned(), Some(hour / 2));
        assert_eq!(left(&mut blocks, start + hour / 2), [("ann".to_owned(), None), bob]);
        assert_eq!(blocks.list(start, "ann", 9).len(), 1);
        assert_eq!(left(&mut blocks, start + hour), [("ann".to_owned(), None)]);
        assert!(!blocks.remove(start + hour, "bob") && blocks.remove(start + hour, "ann"));
        let added = (0..=BLOCKS_MAX).filter(|index| blocks.add(start, &index.to_string(), Some(hour))).count();
        assert_eq!(added, BLOCKS_MAX);
        assert!(blocks.add(start, "0", None), "he has a place already");
        assert!(blocks.add(start + hour, "one more", None), "the others have left");
        assert_eq!(blocks.blocked().0.len(), 2);
    }
}
