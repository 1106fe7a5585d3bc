//! Pictures at another speed: which of a title's pictures that stand alone are shown, and when.
//!
//! In: the pictures that are known, a speed, a rate. Out: picks, for `Command::Trick`.
//! A picture is sent at the rate and shown when it is there; one that would not be through before the next is due, or
//! would follow the one before too soon, is left out. So fast speeds show fewer pictures of the title, not more a second.
//! Source: RFC 2326 §12.34 (Scale).

use std::time::Duration;

use crate::clock::Slope;
use crate::index::TimedPicture;

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

/// Picks pictures from `start` on, at `scale_permille` thousandths of normal speed: 4,000 is four times as fast, −1,000
/// runs backwards. No two follow each other by less than `spacing`. `rate` is what the output may carry.
pub fn picks(
    pictures: &[TimedPicture],
    start: Duration,
    scale_permille: i32,
    rate: Slope,
    spacing: Duration,
) -> Vec<Pick> {
    if scale_permille == 0 {
        return Vec::new();
    }
    let is_ahead = |picture: &&TimedPicture| (picture.time >= start) == (scale_permille > 0) || picture.time == start;
    let mut ahead: Vec<&TimedPicture> = pictures.iter().filter(is_ahead).collect();
    if scale_permille < 0 {
        ahead.reverse();
    }
    let mut picker = Picker::new(scale_permille, rate, spacing);
    let passed = |picture: &TimedPicture| picture.time.as_nanos().abs_diff(start.as_nanos()) as i128;
    ahead.into_iter().filter_map(|picture| picker.push(picture.from, picture.to, passed(picture))).collect()
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
    /// The arguments are those of `picks`. Which way the pictures go is the caller's business.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 188 packets a second.
    const RATE: Slope = Slope { packets: 188, ticks: 27_000_000 };
    const SPACING: Duration = Duration::from_millis(100);

    /// A picture of ten packets every half second.
    fn pictures() -> Vec<TimedPicture> {
        let picture = |number: u64| TimedPicture {
            from: 100 * number,
            to: 100 * number + 10,
            time: Duration::from_millis(500 * number),
        };
        (0..100).map(picture).collect()
    }

    fn shown(start_ms: u64, scale_permille: i32) -> Vec<(u64, i64)> {
        let picks = picks(&pictures(), Duration::from_millis(start_ms), scale_permille, RATE, SPACING);
        picks.into_iter().map(|pick| (pick.from / 100, pick.at_ns / 1_000_000)).collect()
    }

    #[test]
    fn pictures_come_sooner_the_faster_it_is() {
        assert_eq!(shown(20_000, 1_000)[..3], [(40, 0), (41, 500), (42, 1_000)]);
        assert_eq!(shown(20_000, 4_000)[..3], [(40, 0), (41, 125), (42, 250)]);
        assert_eq!(shown(20_000, 8_000)[..3], [(40, 0), (42, 125), (44, 250)], "every other, for the spacing");
        assert_eq!(shown(20_000, 500)[..2], [(40, 0), (41, 1_000)]);
    }

    #[test]
    fn backwards_the_pictures_before_come_in_turn() {
        assert_eq!(shown(20_000, -1_000)[..3], [(40, 0), (39, 500), (38, 1_000)]);
        assert_eq!(shown(20_100, -2_000)[..3], [(40, 0), (39, 250), (38, 500)]);
        assert_eq!(shown(20_000, -1_000).last(), Some(&(0, 20_000)));
    }

    #[test]
    fn a_picture_that_would_not_be_through_in_time_is_left_out() {
        let mut pictures = pictures();
        pictures[0].to = 94;
        // 94 packets take half a second.
        let picks = picks(&pictures, Duration::ZERO, 4_000, RATE, SPACING);
        assert_eq!((picks[0].until_ns, picks[1].from, picks[1].at_ns), (500_000_000, 400, 500_000_000));
        assert!(picks.windows(2).all(|pair| pair[0].until_ns <= pair[1].at_ns));
    }

    #[test]
    fn standing_still_shows_nothing() {
        assert!(shown(0, 0).is_empty());
        assert!(shown(1_000_000, 1_000).is_empty());
    }
}
