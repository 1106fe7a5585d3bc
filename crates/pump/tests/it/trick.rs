//! Pictures are picked for other speeds.

use std::time::Duration;

use pump::clock::Slope;
use pump::index::TimedPicture;
use pump::trick::{Pick, Picker};

/// Picks pictures from `start` on, or backwards from there.
pub fn picks(
    pictures: &[TimedPicture],
    start: Duration,
    scale_permille: i32,
    rate: Slope,
    spacing: Duration,
) -> Vec<Pick> {
    let is_ahead = |picture: &&TimedPicture| (picture.time >= start) == (scale_permille > 0) || picture.time == start;
    let mut ahead: Vec<&TimedPicture> = pictures.iter().filter(is_ahead).collect();
    if scale_permille < 0 {
        ahead.reverse();
    }
    let mut picker = Picker::new(scale_permille, rate, spacing);
    let passed = |picture: &TimedPicture| picture.time.as_nanos().abs_diff(start.as_nanos()) as i128;
    ahead.into_iter().filter_map(|picture| picker.push(picture.from, picture.to, passed(picture))).collect()
}

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
