//! A table of bounded size that forgets what was not asked for of late.
//!
//! Cost: one or two hashes for a question; nothing is sorted, and nothing is looked through.

use std::collections::HashMap;
use std::sync::Arc;

/// Values by name, in two halves: when the young half is full it becomes the old one, and what is in the old one then is
/// forgotten. What is asked for becomes young.
#[derive(Debug)]
pub(super) struct Generations<V> {
    young: HashMap<Arc<str>, V>,
    old: HashMap<Arc<str>, V>,
    /// Of each half.
    count_max: usize,
}

impl<V> Generations<V> {
    pub(super) fn new(count_max: usize) -> Self {
        Generations { young: HashMap::new(), old: HashMap::new(), count_max }
    }

    pub(super) fn get_mut(&mut self, name: &Arc<str>) -> Option<&mut V> {
        if let Some(value) = self.old.remove(name) {
            self.insert(name.clone(), value);
        }
        self.young.get_mut(name)
    }

    pub(super) fn insert(&mut self, name: Arc<str>, value: V) {
        self.old.remove(&name);
        if self.young.len() >= self.count_max && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, value);
    }

    pub(super) fn remove(&mut self, name: &Arc<str>) -> Option<V> {
        self.young.remove(name).or_else(|| self.old.remove(name))
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_was_used_last_and_is_bounded(steps in prop::collection::vec((0_u8..20, 0_u8..3), 0..300)) {
            let mut table = Generations::new(4);
            // Names in the order of their last use, and what was last said of each; `None` when it was removed.
            let mut used: VecDeque<(Arc<str>, Option<usize>)> = VecDeque::new();
            for (number, (name, what)) in steps.into_iter().enumerate() {
                let name: Arc<str> = name.to_string().into();
                let before = used.iter().position(|(used, _)| *used == name);
                let said = before.and_then(|at| used[at].1);
                let is_there = match what {
                    0 => {
                        table.insert(name.clone(), number);
                        Some(number)
                    }
                    1 => {
                        prop_assert!(table.remove(&name).is_none_or(|value| Some(value) == said));
                        if let Some(at) = before {
                            used[at].1 = None;
                        }
                        None
                    }
                    _ => table.get_mut(&name).copied(),
                };
                prop_assert!(what == 0 || is_there.is_none() || is_there == said);
                if is_there.is_some() {
                    before.map(|at| used.remove(at));
                    used.push_front((name, is_there));
                }
                prop_assert!(table.len() <= 8);
            }
            // The four that were used last are there.
            for (name, value) in used.iter().take(4) {
                prop_assert_eq!(table.get_mut(name).copied(), *value);
            }
        }
    }
}
