//! Pictures at another speed.

/// A picture to show: which packets, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its first packet and the one behind its last, counted from the title's start.
    pub from: u64,
    pub to: u64,
    /// Its packets are sent from here to there, in nanoseconds since the first picture.
    pub at_ns: i64,
    pub until_ns: i64,
}
