//! A set of numbers where another thread can read it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Counters;

/// The numbers of one writer, as they were when it last published them. Each number is whole; two of them may be of two
/// different times.
pub struct Published<C> {
    words: Arc<[AtomicU64]>,
    set: PhantomData<fn(C)>,
}

impl<C: Counters> Published<C> {
    /// For the writer alone.
    pub fn store(&self, counters: &C) {
        let mut words = self.words.iter();
        counters.put(&mut |value| {
            if let Some(word) = words.next() {
                word.store(value, Ordering::Relaxed);
            }
        });
    }

    /// What was published last; zeros before that.
    pub fn load(&self) -> C {
        let mut words = self.words.iter();
        C::take(&mut || words.next().map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}

impl<C: Counters> Default for Published<C> {
    fn default() -> Self {
        Published { words: (0..C::WORDS).map(|_| AtomicU64::new(0)).collect(), set: PhantomData }
    }
}

impl<C> Clone for Published<C> {
    fn clone(&self) -> Self {
        Published { words: self.words.clone(), set: PhantomData }
    }
}

impl<C: Counters + fmt::Debug> fmt::Debug for Published<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Family, Kind, Lateness, Value};

    crate::counters! {
        /// All that can be counted.
        pub struct Set: "set_" {
            /// Things that came, since
            /// the start.
            counter things: u64 = "things_total",
            /// The worst.
            gauge worst: Duration = "worst_seconds",
            /// How late.
            histogram late: Lateness = "late_seconds",
            /// Things now.
            gauge now: u64 = "now",
        }
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let mut set = Set { things: 7, worst: Duration::from_millis(3), now: 9, ..Set::default() };
        set.late.record(Duration::from_micros(5));
        let published = Published::<Set>::default();
        assert_eq!(published.load(), Set::default());

        published.clone().store(&set);
        assert_eq!(published.load(), set);
        assert_eq!(Set::WORDS, 3 + 65);
    }

    #[test]
    fn each_number_has_its_name_its_kind_its_help_and_its_value() {
        let things =
            Family { name: "set_things_total", kind: Kind::Counter, help: "Things that came, since the start." };
        assert_eq!(Set::FAMILIES[0], things);
        let kinds: Vec<&str> = Set::FAMILIES.iter().map(|family| family.kind.name()).collect();
        assert_eq!(kinds, ["counter", "gauge", "histogram", "gauge"]);

        let set = Set { things: 7, ..Set::default() };
        let none = Lateness::default();
        let values = [Value::Number(7), Value::Time(Duration::ZERO), Value::Times(&none), Value::Number(0)];
        assert_eq!(set.values(), values);
    }
}
