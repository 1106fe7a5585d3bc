//! What is counted: declared once with its help, published by the one who counts, read by anybody.
//!
//! In: a list of fields, each with what it is and what it tells (`counters!`). Out: a plain struct for who counts, and its
//! families, names and values for who shows them: no list has to be kept a second time.
//! Cost: counting is an addition to a field. To publish is one relaxed store per number (`Published`); there is one writer,
//! so nothing is locked and no reader is waited for.
#![forbid(unsafe_code)]

mod by_label;
mod lateness;
mod published;

use std::convert::identity;
use std::time::Duration;

pub use lateness::{BUCKETS, Lateness};
pub use published::Published;

/// What a number is, in the words of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It is what it is now.
    Gauge,
    /// Counts by size.
    Histogram,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One number of a set, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its whole name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// What it tells.
    pub help: &'static str,
}

/// A number at one time.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// One number.
    Number(u64),
    /// A time.
    Time(Duration),
    /// Counts of times.
    Times(&'a Lateness),
    /// One number that may have a fraction, or be negative.
    Real(f64),
    /// One number for each value of a label, which is named first.
    ByLabel(&'static str, Vec<(&'static str, u64)>),
    /// One number for each row of labels, as it stands in Prometheus' text: `one="a",two="b"`.
    ByLabels(Vec<(String, u64)>),
}

/// What can be a field of a set.
pub trait Cell: Default {
    /// How many words it takes.
    const WORDS: usize;

    /// Hands its words out.
    fn put(&self, word: &mut impl FnMut(u64));

    /// Is made of the words that were handed out.
    fn take(word: &mut impl FnMut() -> u64) -> Self;

    /// What is shown of it.
    fn value(&self) -> Value<'_>;
}

/// A set of numbers that somebody counts; `counters!` makes them.
pub trait Counters: Default {
    /// How many words they take.
    const WORDS: usize;

    /// All numbers, in the order of their declaration.
    const FAMILIES: &'static [Family];

    /// Hands all words out.
    fn put(&self, word: &mut impl FnMut(u64));

    /// Is made of the words that were handed out.
    fn take(word: &mut impl FnMut() -> u64) -> Self;

    /// What is shown, in the order of the families.
    fn values(&self) -> Vec<Value<'_>>;
}

/// Makes a type of one word a field: how it becomes the word, how the word becomes it, and what is shown.
macro_rules! cell_of_one_word {
    ($type:ty, $to:expr, $from:expr, $shown:expr) => {
        impl Cell for $type {
            const WORDS: usize = 1;

            fn put(&self, word: &mut impl FnMut(u64)) {
                word($to(*self));
            }

            fn take(word: &mut impl FnMut() -> u64) -> Self {
                $from(word())
            }

            fn value(&self) -> Value<'_> {
                $shown(*self)
            }
        }
    };
}

cell_of_one_word!(u64, identity, identity, Value::Number);
cell_of_one_word!(f64, f64::to_bits, f64::from_bits, Value::Real);
cell_of_one_word!(Duration, |time: Duration| time.as_nanos() as u64, Duration::from_nanos, Value::Time);

/// Declares a set of numbers: a struct of plain fields, and all that who shows them has to know.
///
/// Each field says what it is (`counter`, `gauge` or `histogram`), its type, and how its name ends when it is shown, behind
/// the prefix of the set. Its doc comment is its help.
///
/// ```
/// counters::counters! {
///     /// What a mill counts.
///     pub struct Mill: "mill_" {
///         /// Sacks that came in.
///         counter sacks: u64 = "sacks_total",
///         /// How late each was.
///         histogram lateness: counters::Lateness = "lateness_seconds",
///     }
/// }
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $set:ident: $prefix:literal {
            $($(#[doc = $help:literal])+ $kind:ident $field:ident: $type:ty = $name:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $set {
            $($(#[doc = $help])+ pub $field: $type,)+
        }

        impl $crate::Counters for $set {
            const WORDS: usize = 0 $(+ <$type as $crate::Cell>::WORDS)+;

            const FAMILIES: &'static [$crate::Family] = &[$($crate::Family {
                name: concat!($prefix, $name),
                kind: $crate::counters!(@kind $kind),
                help: concat!($($help),+).trim_ascii(),
            }),+];

            fn put(&self, word: &mut impl FnMut(u64)) {
                $($crate::Cell::put(&self.$field, word);)+
            }

            fn take(word: &mut impl FnMut() -> u64) -> Self {
                $(let $field = $crate::Cell::take(word);)+
                $set { $($field,)+ }
            }

            fn values(&self) -> Vec<$crate::Value<'_>> {
                vec![$($crate::Cell::value(&self.$field)),+]
            }
        }
    };
    (@kind counter) => { $crate::Kind::Counter };
    (@kind gauge) => { $crate::Kind::Gauge };
    (@kind histogram) => { $crate::Kind::Histogram };
}
