//! Parts of lists that are filtered, under locks that others wait for.
//!
//! In: entries by their numbers, from some number on, and which of them are wanted. Out: so many at most, and where to go on.
//! Cost: a look at `LOOKS_MAX` entries at most, however few are wanted: then a part is short, and the next goes on behind it.

/// Entries that are looked at for one part. A thousand of them take some ten microseconds.
pub(crate) const LOOKS_MAX: usize = 10_000;

/// Up to `count` wanted entries, and the number behind which the next part begins, if there may be one.
pub(crate) fn scan<K: Copy, V, R>(
    entries: impl Iterator<Item = (K, V)>,
    count: usize,
    wanted: impl Fn(K, V) -> Option<R>,
) -> (Vec<R>, Option<K>) {
    let mut found = Vec::new();
    for (looks, (number, entry)) in (1..).zip(entries) {
        found.extend(wanted(number, entry));
        if found.len() >= count || looks >= LOOKS_MAX {
            return (found, Some(number));
        }
    }
    (found, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_full_or_the_list_is_over_or_there_was_enough_to_look_at() {
        let even = |number: usize, (): ()| number.is_multiple_of(2).then_some(number);
        let entries = |from: usize, to: usize| (from..to).map(|number| (number, ()));
        assert_eq!(scan(entries(1, 10), 2, even), (vec![2, 4], Some(4)));
        assert_eq!(scan(entries(5, 10), 9, even), (vec![6, 8], None));
        let none = scan(entries(1, usize::MAX), 1, |_, ()| None::<usize>);
        assert_eq!(none, (vec![], Some(LOOKS_MAX)));
    }
}
