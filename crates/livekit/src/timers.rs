//! When something is due, each kind of thing once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// A set of deadlines.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    in_order: BTreeSet<(Instant, T)>,
    when: BTreeMap<T, Instant>,
}

impl<T: Ord + Clone> Timers<T> {
    pub(crate) fn new() -> Self {
        Timers { in_order: BTreeSet::new(), when: BTreeMap::new() }
    }

    /// It is due then, and at no other time.
    pub(crate) fn set(&mut self, what: T, at: Instant) {
        self.clear(&what);
        self.in_order.insert((at, what.clone()));
        self.when.insert(what, at);
    }

    /// It is due then, unless it is due already at some time.
    pub(crate) fn set_if_none(&mut self, what: T, at: Instant) {
        if !self.when.contains_key(&what) {
            self.set(what, at);
        }
    }

    /// It is due then, or never.
    pub(crate) fn set_or_clear(&mut self, what: T, at: Option<Instant>) {
        match at {
            Some(at) => self.set(what, at),
            None => self.clear(&what),
        }
    }

    pub(crate) fn clear(&mut self, what: &T) {
        if let Some((what, at)) = self.when.remove_entry(what) {
            self.in_order.remove(&(at, what));
        }
    }

    /// Whether it is due at some time.
    pub(crate) fn has(&self, what: &T) -> bool {
        self.when.contains_key(what)
    }

    pub(crate) fn first(&self) -> Option<Instant> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// Takes out the next that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<T> {
        if self.first()? > now {
            return None;
        }
        let (_, what) = self.in_order.pop_first()?;
        self.when.remove(&what);
        Some(what)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_set_again_is_due_once_at_the_later_time() {
        let (mut timers, start) = (Timers::new(), Instant::now());
        timers.set("a", start);
        timers.set("a", start + Duration::from_secs(2));
        timers.set_if_none("a", start + Duration::from_secs(9));

        assert_eq!(timers.pop(start + Duration::from_secs(1)), None);
        assert_eq!(timers.pop(start + Duration::from_secs(2)), Some("a"));
        assert_eq!((timers.pop(start + Duration::from_secs(99)), timers.first()), (None, None));
    }
}
