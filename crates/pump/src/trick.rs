//! Pictures at another speed: which of a title's pictures that stand alone are shown, and when.
//!
//! In: pictures in the order of showing, a speed, a rate. Out: picks, for `Command::Trick`.
//! A picture is sent at the rate and shown when it is there; one that would not be through before the next is due, or
//! would follow the one before too soon, is left out. So fast speeds show fewer pictures of the title, not more a second.
//! Source: RFC 2326 §12.34 (Scale).

use std::time::Duration;

use crate::clock::Slope;

/// A picture to show: which packets, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its first packet and the one behind its last, counted from the title's start.
    pub from: u64,
    /// The one behind its last.
    pub to: u64,
    /// Its packets are sent from here to there, in nanoseconds since the first picture.
    pub at_ns: i64,
    /// When the next one is due.
    pub until_ns: i64,
}

/// Picks pictures one by one, in the order of showing.
#[derive(Clone, Debug)]
pub struct Picker {
    scale_permille: u32,
    rate: Slope,
    spacing_ns: i64,
    /// When the first picture would be shown, counted from where the others are counted from.
    first_ns: Option<i64>,
    last: Option<Pick>,
}

impl Picker {
    /// Shows pictures at `scale_permille` thousandths of normal speed: 4,000 is four times as fast, −1,000 runs backwards,
    /// and which way they come is the caller's business. No two follow each other by less than `spacing`. `rate` is what
    /// the output may carry.
    pub fn new(scale_permille: i32, rate: Slope, spacing: Duration) -> Self {
        Picker {
            scale_permille: scale_permille.unsigned_abs().max(1),
            rate,
            spacing_ns: i64::try_from(spacing.as_nanos()).unwrap_or(i64::MAX),
            first_ns: None,
            last: None,
        }
    }

    /// The next picture, its first packet and the one behind its last, which lies `passed_ns` of the title behind any one
    /// place. `None` when it is left out.
    pub fn push(&mut self, from: u64, to: u64, passed_ns: i128) -> Option<Pick> {
        let shown_ns = i64::try_from(passed_ns * 1_000 / i128::from(self.scale_permille)).ok()?;
        let at_ns = shown_ns - *self.first_ns.get_or_insert(shown_ns);
        let free_ns = self.last.map_or(0, |last| last.until_ns.max(last.at_ns.saturating_add(self.spacing_ns)));
        if at_ns < free_ns || to <= from {
            return None;
        }
        let pick = Pick { from, to, at_ns, until_ns: at_ns + self.rate.ns(to - from) };
        self.last = Some(pick);
        Some(pick)
    }
}
