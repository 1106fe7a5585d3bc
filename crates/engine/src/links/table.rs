//! Where links are found by their numbers.
//!
//! In: what is behind a link, and numbers, which may be those of links that are gone. Out: what is behind the number, or
//! nothing.
//! Cost: an index and a comparison. A slot is used again, but with another generation, so no number is given twice.

use std::collections::VecDeque;
use std::ops::Range;

use wire::{LinkId, LinkKind};

/// Slots at most. There are never as many descriptors.
const SLOTS_MAX: usize = 1 << 24;

pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Slots without a link, the longest idle first.
    free: VecDeque<u32>,
}

struct Slot<T> {
    /// The number of the link that is here, or of the next one but for its kind.
    id: LinkId,
    value: Option<T>,
}

impl<T> Table<T> {
    pub(crate) fn new() -> Self {
        Table { slots: Vec::new(), free: VecDeque::new() }
    }

    /// Puts a link in and returns its number, or gives it back when there is no slot.
    pub(crate) fn insert(&mut self, kind: LinkKind, value: T) -> Result<LinkId, T> {
        let Some(index) = self.free.pop_front() else {
            let index = self.slots.len();
            if index >= SLOTS_MAX {
                return Err(value);
            }
            let id = LinkId::new(kind, index as u32, 0);
            self.slots.push(Slot { id, value: Some(value) });
            return Ok(id);
        };
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.value.is_none(), "a free slot has no link");
        slot.id = LinkId::new(kind, index, slot.id.generation());
        slot.value = Some(value);
        Ok(slot.id)
    }

    /// What is behind a number; `None` when that link is gone.
    #[inline]
    pub(crate) fn get(&self, id: LinkId) -> Option<&T> {
        let slot = self.slots.get(id.slot())?;
        if slot.id == id { slot.value.as_ref() } else { None }
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.id == id { slot.value.as_mut() } else { None }
    }

    /// Takes a link out. Its number is not given again: a slot whose generations are used up stays empty.
    pub(crate) fn remove(&mut self, id: LinkId) -> Option<T> {
        let slot = self.slots.get_mut(id.slot()).filter(|slot| slot.id == id)?;
        let value = slot.value.take()?;
        if let Some(generation) = id.generation().checked_add(1) {
            slot.id = LinkId::new(id.kind(), id.slot() as u32, generation);
            self.free.push_back(id.slot() as u32);
        }
        Some(value)
    }

    /// The links that are open at some slots, to be changed.
    pub(crate) fn part_mut(&mut self, slots: Range<usize>) -> impl Iterator<Item = (LinkId, &mut T)> {
        let part = self.slots.iter_mut().skip(slots.start).take(slots.len());
        part.filter_map(|slot| Some((slot.id, slot.value.as_mut()?)))
    }

    /// Slots with a link or without.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The links that are open.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &T)> {
        self.slots.iter().filter_map(|slot| Some((slot.id, slot.value.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(LinkKind),
        /// Which of all links so far, modulo their count; it may be gone.
        Remove(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let kind = prop_oneof![
            Just(LinkKind::Datagrams),
            Just(LinkKind::Framed),
            Just(LinkKind::Stream),
            Just(LinkKind::Listener)
        ];
        prop_oneof![kind.prop_map(Step::Insert), any::<usize>().prop_map(Step::Remove)]
    }

    proptest! {
        /// The model is a list of all links that ever were, each with a value of its own while it is open.
        #[test]
        fn a_number_leads_to_its_own_link_or_nowhere(steps in prop::collection::vec(step(), 0..200)) {
            let mut table = Table::new();
            let mut model: Vec<(LinkId, Option<usize>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(kind) => {
                        let id = table.insert(kind, model.len()).expect("there are slots");
                        prop_assert_eq!(id.kind(), kind);
                        prop_assert!(model.iter().all(|(other, _)| *other != id), "no number is given twice");
                        model.push((id, Some(model.len())));
                    }
                    Step::Remove(which) if !model.is_empty() => {
                        let which = which % model.len();
                        let (id, value) = &mut model[which];
                        prop_assert_eq!(table.remove(*id), value.take());
                    }
                    Step::Remove(_) => {}
                }
                for (id, value) in &model {
                    prop_assert_eq!(table.get(*id), value.as_ref());
                }
                let open: Vec<LinkId> = table.iter().map(|(id, _)| id).collect();
                let mut expected: Vec<LinkId> = model.iter().filter(|it| it.1.is_some()).map(|it| it.0).collect();
                expected.sort_unstable_by_key(|id| id.slot());
                prop_assert_eq!(open, expected);
            }
        }
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_not_used_again() {
        let mut table = Table::new();
        let first = table.insert(LinkKind::Stream, 'a').expect("room");
        table.slots[0].id = LinkId::new(first.kind(), 0, u32::MAX);
        assert_eq!(table.remove(LinkId::new(first.kind(), 0, u32::MAX)), Some('a'));
        let second = table.insert(LinkKind::Stream, 'b').expect("room");
        assert_eq!((second.slot(), second.generation()), (1, 0));
        assert_eq!(table.get(LinkId::new(first.kind(), 0, u32::MAX)), None);
    }
}
