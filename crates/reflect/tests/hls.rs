//! Whatever start points come, playlists only ever advance, and what they list can be read for as long as RFC 8216 wants it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use hls_m3u8::MediaPlaylist;
use proptest::prelude::*;
use reflect::hls::{Container, Found, Playlist, Settings};

const UNIT: u64 = 188;
const FIRST: u64 = 1_700_000_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A start point, and units behind it that play for so long, and come within so much; whether it has a time.
    Start {
        media_ms: u64,
        came_ms: u64,
        units: u64,
        has_time: bool,
    },
    Header(u8),
    Break,
    /// The stream's clock goes on from there.
    Jump {
        ms: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let media_ms = prop_oneof![4 => 400..2_500_u64, 2 => 20..30_000_u64, 1 => Just(2_000)];
    let came = prop_oneof![4 => 90..110_u64, 1 => 0..300_u64];
    let start =
        (media_ms, came, 0..80_u64, prop::bool::weighted(0.9)).prop_map(|(media_ms, percent, units, has_time)| {
            Step::Start { media_ms, came_ms: media_ms * percent / 100, units, has_time }
        });
    prop_oneof![
        20 => start,
        1 => (0..3_u8).prop_map(Step::Header),
        1 => Just(Step::Break),
        1 => (0..10_000_000_u64).prop_map(|ms| Step::Jump { ms }),
    ]
}

/// What a playlist said of a segment.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    uri: String,
    duration: Duration,
    map: Option<String>,
    /// How many discontinuities there are up to it.
    discontinuities: usize,
}

#[derive(Debug)]
struct World {
    playlist: Playlist,
    size: u64,
    begun: Instant,
    now: Duration,
    at: u64,
    media: Duration,
    said: BTreeMap<u64, Said>,
    ranges: BTreeMap<u64, Range<u64>>,
    listed: Range<u64>,
    target: Option<Duration>,
    /// Until when a segment must be readable: those that are listed no more, and for the others by the longest playlist.
    kept: BTreeMap<u64, Duration>,
    /// What was said of parts, and where they are.
    parts: BTreeMap<(u64, u64), (String, Range<u64>)>,
    longest: BTreeMap<u64, Duration>,
}

impl World {
    fn new(container: Container, target: u64, window: Option<u64>, size: u64, part_ms: Option<u64>) -> Self {
        let (target, window) = (Duration::from_secs(target), window.map(Duration::from_secs));
        let settings = Settings {
            container,
            target,
            window,
            part_target: part_ms.map(Duration::from_millis),
            backlog_size: size,
            first_number: FIRST,
        };
        World {
            playlist: Playlist::new(settings),
            size,
            begun: Instant::now(),
            now: Duration::ZERO,
            at: 0,
            media: Duration::from_secs(1_000),
            said: BTreeMap::new(),
            ranges: BTreeMap::new(),
            listed: FIRST..FIRST,
            target: None,
            kept: BTreeMap::new(),
            parts: BTreeMap::new(),
            longest: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Start { media_ms, came_ms, units, has_time } => {
                let media = has_time.then_some(self.media);
                self.playlist.handle_start(self.at, media, self.begun + self.now);
                self.check();
                let (from, begun_at) = (self.now, self.at);
                for unit in 1..=units {
                    self.now = from + Duration::from_millis(came_ms) * unit as u32 / units as u32;
                    self.at = begun_at + unit * UNIT;
                    self.playlist.handle_boundary(self.at, self.begun + self.now);
                    self.playlist.forget(self.begin());
                    self.check();
                }
                self.now = from + Duration::from_millis(came_ms);
                self.media += Duration::from_millis(media_ms);
            }
            Step::Header(which) => self.playlist.set_header(&[which]),
            Step::Break => self.playlist.break_off(self.at, self.begun + self.now),
            Step::Jump { ms } => self.media = Duration::from_millis(ms),
        }
        self.check();
    }

    /// As `Backlog` has it: in steps.
    fn begin(&self) -> u64 {
        let step = self.size / 16;
        self.at.saturating_sub(self.size).next_multiple_of(step)
    }

    fn check(&mut self) {
        let Some(text) = self.playlist.text("") else { return };
        // What stands behind the last segment is of parts, which the reader does not know.
        let Some(last) = text.lines().rfind(|line| !line.starts_with('#')) else { return };
        let segments = &text[..text.rfind(last).expect("it is there") + last.len()];
        // It refuses what is longer than the target duration.
        let list = MediaPlaylist::try_from(segments).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(*self.target.get_or_insert(list.target_duration), list.target_duration, "never changes");
        let from = list.media_sequence as u64;
        let listed = from..from + list.segments.num_elements() as u64;
        assert!(
            listed.start >= self.listed.start && listed.end >= self.listed.end,
            "{listed:?} after {:?}",
            self.listed
        );
        let mut discontinuities = list.discontinuity_sequence;
        for (number, segment) in listed.clone().zip(list.segments.values()) {
            discontinuities += usize::from(segment.has_discontinuity);
            let map = segment.map.as_ref().map(|map| map.uri().to_string());
            let map = map.or_else(|| self.said.get(&number.wrapping_sub(1)).and_then(|said| said.map.clone()));
            let duration = segment.duration.duration();
            let said = Said { uri: segment.uri().to_string(), duration, map, discontinuities };
            assert_eq!(*self.said.entry(number).or_insert_with(|| said.clone()), said, "is said once");
            self.check_range(number, segment.has_discontinuity);
        }
        self.check_parts(&text);
        self.note_times(&listed, list.duration());
        self.listed = listed;
    }

    /// Each goes on where the one before ends, or says that it does not.
    fn check_range(&mut self, number: u64, is_discontinuous: bool) {
        let Found::There { range, .. } = self.playlist.segment(number) else { panic!("{number} is listed") };
        assert!(!range.is_empty() && range.end <= self.at);
        assert_eq!(*self.ranges.entry(number).or_insert_with(|| range.clone()), range);
        if let Some(before) = self.ranges.get(&(number - 1)) {
            assert!(before.end == range.start || before.end < range.start && is_discontinuous, "{before:?} {range:?}");
        }
    }

    /// They are said once, play no longer than they may, and are their segment.
    fn check_parts(&mut self, text: &str) {
        let target = text.lines().find_map(|line| line.strip_prefix("#EXT-X-PART-INF:PART-TARGET="));
        let target: f64 = target.map_or(0.0, |target| target.parse().expect("seconds"));
        for line in text.lines().filter_map(|line| line.strip_prefix("#EXT-X-PART:DURATION=")) {
            let (seconds, rest) = line.split_once(",URI=\"").expect("an address");
            assert!(seconds.parse::<f64>().expect("seconds") <= target, "{line}");
            let mut words = rest.split('.');
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
            let (number, index) = (number(), number());
            let Found::There { range, .. } = self.playlist.part(number, index) else { panic!("{line} is listed") };
            let said = (line.to_owned(), range.clone());
            assert_eq!(*self.parts.entry((number, index)).or_insert_with(|| said.clone()), said, "is said once");
            if let Some((_, before)) = index.checked_sub(1).and_then(|index| self.parts.get(&(number, index))) {
                assert_eq!(before.end, range.start);
            }
            if let Found::There { range: all, .. } = self.playlist.segment(number) {
                let is_first = index > 0 || range.start == all.start;
                assert!(is_first && range.end <= all.end, "{range:?} of {all:?}");
                let is_last = matches!(self.playlist.part(number, index + 1), Found::Gone);
                assert!(!is_last || range.end == all.end, "{range:?} of {all:?}");
            }
        }
    }

    /// RFC 8216 §6.2.2: for its own duration, and that of the longest playlist that it was in.
    fn note_times(&mut self, listed: &Range<u64>, duration: Duration) {
        for number in self.listed.start..listed.start {
            let longest = self.longest.remove(&number).unwrap_or_default();
            self.kept.insert(number, self.now + self.said.get(&number).map_or(longest, |said| said.duration + longest));
        }
        for number in listed.clone() {
            let longest = self.longest.entry(number).or_default();
            *longest = duration.max(*longest);
        }
    }

    fn check_kept(&mut self) {
        self.kept.retain(|_, until| *until >= self.now);
        for (number, until) in &self.kept {
            assert!(matches!(self.playlist.segment(*number), Found::There { .. }), "{number} until {until:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn playlists_only_ever_advance(
        is_mp4: bool,
        target in 1..6_u64,
        window in prop::option::of(1..60_u64),
        size in 100..40_000_u64,
        part_ms in prop::option::of(200..1_000_u64),
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let mut world = World::new(if is_mp4 { Container::Mp4 } else { Container::Ts }, target, window, size * UNIT, part_ms);
        steps.into_iter().for_each(|step| world.take(step));
    }

    /// At a rate that does not rise by more than a third.
    #[test]
    fn what_was_listed_can_be_read_for_as_long_as_it_plays_and_its_playlist(
        target in 2..6_u64,
        window in prop::option::of(1..60_u64),
        segments in 30..60_u64,
        gaps in prop::collection::vec((300..2_000_u64, 100..130_u64), 100..400),
    ) {
        // 10 units a second.
        let mut world = World::new(Container::Ts, target, window, segments * target * 10 * UNIT, None);
        for (media_ms, rate) in gaps {
            world.take(Step::Start { media_ms, came_ms: media_ms, units: media_ms * rate / 10_000, has_time: true });
            world.check_kept();
        }
    }
}
