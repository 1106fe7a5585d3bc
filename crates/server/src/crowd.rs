//! Who makes room when all places are taken: one of those who take most of them.
//!
//! In: members as they come, are heard of and go, each with the names of whose it is, such as an address and a token.
//! Out: how many there are of a name, and who is to go first.
//! Cost: a map lookup for each name and change, and a look at each member when one is to go. No clock, no lock.
//!
//! A name by itself says too little: one token may be everybody's, and one stranger may have many addresses. So members
//! are compared by the larger of their names' counts, then by the other, and then by when they were heard of last.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

use rustc_hash::FxHashMap;
use slab::Slab;

/// Members with numbers, which their owner gives them. `T` is what is kept of each.
#[derive(Debug)]
pub(crate) struct Crowd<K, T> {
    members: FxHashMap<usize, Member<T>>,
    names: Slab<Name<K>>,
    by_name: HashMap<K, usize>,
}

#[derive(Debug)]
struct Member<T> {
    names: [Option<usize>; 2],
    since: Instant,
    value: T,
}

#[derive(Debug)]
struct Name<K> {
    name: K,
    count: usize,
}

impl<K, T> Default for Crowd<K, T> {
    fn default() -> Self {
        Crowd { members: FxHashMap::default(), names: Slab::new(), by_name: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, T> Crowd<K, T> {
    /// One more, under a number that no other has.
    pub(crate) fn enter(&mut self, number: usize, now: Instant, names: [Option<K>; 2], value: T) {
        let names = names.map(|name| name.map(|name| self.count_one(name)));
        let before = self.members.insert(number, Member { names, since: now, value });
        debug_assert!(before.is_none(), "each has its own number");
    }

    fn count_one(&mut self, name: K) -> usize {
        let names = &mut self.names;
        let index = *self.by_name.entry(name.clone()).or_insert_with(|| names.insert(Name { name, count: 0 }));
        self.names[index].count += 1;
        index
    }

    /// One is gone, or none of them any more. `None`: it was not there.
    pub(crate) fn leave(&mut self, number: usize) -> Option<T> {
        let member = self.members.remove(&number)?;
        for index in member.names.into_iter().flatten() {
            self.names[index].count -= 1;
            if self.names[index].count == 0 {
                let Name { name, .. } = self.names.remove(index);
                self.by_name.remove(&name);
            }
        }
        Some(member.value)
    }

    /// One was heard of.
    pub(crate) fn touch(&mut self, number: usize, now: Instant) {
        if let Some(member) = self.members.get_mut(&number) {
            member.since = now;
        }
    }

    /// How many members have the name.
    pub(crate) fn count(&self, name: &K) -> usize {
        self.by_name.get(name).map_or(0, |index| self.names[*index].count)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Who makes room for a newcomer. Who has no name never does.
    pub(crate) fn first_to_go(&self) -> Option<usize> {
        let named = self.members.iter().filter(|(_, member)| member.names.iter().any(Option::is_some));
        let order = |(number, member): &(&usize, &Member<T>)| {
            let counts = member.names.map(|name| name.map_or(0, |index| self.names[index].count));
            (larger_first(counts), Reverse(member.since), Reverse(**number))
        };
        named.max_by_key(order).map(|(number, _)| *number)
    }

    /// The same, if that one takes more than the newcomer would: so newcomers do not drive each other out.
    pub(crate) fn first_to_go_for(&self, newcomer: &[Option<K>; 2]) -> Option<usize> {
        let first = self.first_to_go()?;
        let shared = newcomer.each_ref().map(|name| name.as_ref().and_then(|name| self.by_name.get(name)));
        let with_newcomer = |index: usize| self.names[index].count + usize::from(shared.contains(&Some(&index)));
        let of_first = self.members[&first].names.map(|name| name.map_or(0, with_newcomer));
        let of_newcomer = newcomer.each_ref().map(|name| name.as_ref().map_or(0, |name| self.count(name) + 1));
        (larger_first(of_first) > larger_first(of_newcomer)).then_some(first)
    }
}

/// By what members are compared, of how many there are of each of their names.
fn larger_first([one, other]: [usize; 2]) -> (usize, usize) {
    (one.max(other), one.min(other))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Members with the names, which came one after the other.
    fn crowd(names: impl IntoIterator<Item = [Option<String>; 2]>) -> Crowd<String, ()> {
        let (start, mut crowd) = (Instant::now(), Crowd::default());
        for (number, names) in names.into_iter().enumerate() {
            crowd.enter(number, start + Duration::from_secs(number as u64), names, ());
        }
        crowd
    }

    fn names(address: impl ToString, token: &str) -> [Option<String>; 2] {
        [Some(address.to_string()), Some(token.to_owned())]
    }

    /// Lets so many go, and returns them.
    fn gone(crowd: &mut Crowd<String, ()>, count: usize) -> Vec<usize> {
        let next = |_| {
            let number = crowd.first_to_go()?;
            crowd.leave(number)?;
            Some(number)
        };
        (0..count).map_while(next).collect()
    }

    #[test]
    fn who_takes_most_goes_first_and_of_them_the_oldest() {
        let mut crowd = crowd(["a", "b", "b", "b", "c"].map(|address| [Some(address.to_owned()), None]));
        assert_eq!(crowd.count(&"b".to_owned()), 3);
        assert_eq!(gone(&mut crowd, 9), [1, 2, 0, 3, 4]);
        assert_eq!((crowd.len(), crowd.count(&"b".to_owned()), crowd.names.len(), crowd.by_name.len()), (0, 0, 0, 0));
    }

    #[test]
    fn who_was_heard_of_stays_longer_and_who_has_no_name_always() {
        let mut crowd = crowd([[Some("a".to_owned()), None], [None, None], [Some("b".to_owned()), None]]);
        crowd.touch(0, Instant::now() + Duration::from_secs(60));
        assert_eq!(gone(&mut crowd, 9), [2, 0]);
        assert_eq!(crowd.len(), 1);
    }

    #[test]
    fn who_takes_no_more_than_a_newcomer_makes_no_room_for_it() {
        // A hundred addresses with the same token, and another two of one of them.
        let all = |extra| crowd((0..100).chain([7; 2].into_iter().take(extra)).map(|n| names(n, "public")));
        assert_eq!(all(0).first_to_go_for(&names(100, "public")), None);
        assert_eq!(all(2).first_to_go_for(&names(100, "public")), Some(7));
        assert_eq!(all(2).first_to_go_for(&names(7, "public")), None);
        assert_eq!(all(0).first_to_go_for(&names(100, "own")), Some(0));
    }

    #[test]
    fn a_token_that_everybody_has_says_nothing_and_one_that_many_addresses_share_does() {
        // A hundred of one address, with the same token as fifty others.
        let everybodys = (0..150).map(|n| names(if n % 3 == 0 { n } else { 1_000 }, "public"));
        assert!(gone(&mut crowd(everybodys), 98).iter().all(|number| number % 3 != 0));
        // A hundred addresses with one token, beside fifty of an office with tokens of their own.
        let mixed = (0..150).map(|n| if n % 3 == 0 { names("office", &n.to_string()) } else { names(n, "stolen") });
        assert!(gone(&mut crowd(mixed), 50).iter().all(|number| number % 3 != 0));
        // One address with many tokens, beside fifty who share one.
        let many = (0..150).map(|n| if n % 3 == 0 { names(n, "public") } else { names("one", &n.to_string()) });
        assert!(gone(&mut crowd(many), 50).iter().all(|number| number % 3 != 0));
        // And beside a few who have both in common.
        let few = (0..10).map(|n| if n < 3 { names("few", "own") } else { names("one", &n.to_string()) });
        assert_eq!(gone(&mut crowd(few), 4), [3, 4, 5, 6]);
    }
}
