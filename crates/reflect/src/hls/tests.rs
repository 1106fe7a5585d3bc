//! Playlists of streams that the tests make, unit by unit.

use proptest::prelude::*;

use super::*;

const UNIT: u64 = 188;

/// A stream of a unit per 100 ms, whose clock the test owns.
struct Stream {
    playlist: Playlist,
    begun: Instant,
    at: u64,
    /// The stream's own clock.
    media: Duration,
    now: Duration,
}

impl Stream {
    fn new(container: Container, target: u64) -> Self {
        let settings = Settings {
            container,
            target: Duration::from_secs(target),
            window: None,
            part_target: None,
            backlog_size: 1 << 20,
            first_number: 7,
        };
        let mut playlist = Playlist::new(settings);
        playlist.set_header(b"one");
        Stream { playlist, begun: Instant::now(), at: 0, media: Duration::from_secs(5), now: Duration::ZERO }
    }

    /// Segments of two seconds, in parts of half a second.
    fn in_parts() -> Self {
        let mut stream = Stream::new(Container::Ts, 2);
        let part_target = Some(Duration::from_millis(500));
        stream.playlist = Playlist::new(Settings { part_target, ..stream.playlist.settings });
        stream.playlist.set_header(b"one");
        stream
    }

    /// A start point, and so much behind it.
    fn start(&mut self, ms: u64) {
        self.playlist.handle_start(self.at, Some(self.media), self.begun + self.now);
        self.units(ms, 100);
    }

    /// Units that play so long, and come as fast as that in percent.
    fn units(&mut self, ms: u64, percent: u64) {
        for _ in 0..ms / 100 {
            self.at += UNIT;
            self.media += Duration::from_millis(100);
            self.now += Duration::from_millis(percent);
            self.playlist.handle_boundary(self.at, self.begun + self.now);
        }
    }

    fn break_off(&mut self) {
        self.playlist.break_off(self.at, self.begun + self.now);
    }

    /// Another process goes on, which knows no more than it is told in bytes.
    fn hand_over(&mut self) {
        let now = self.begun + self.now;
        let written = postcard::to_allocvec(&self.playlist.state(now)).expect("it can be written");
        let state = postcard::from_bytes(&written).expect("it can be read");
        self.playlist = Playlist::restore(now, state, self.at).expect("it is as it was");
    }

    /// All that a player can ask for.
    fn all(&self) -> (Option<String>, Vec<Found>, Vec<Option<Bytes>>) {
        let numbers = 0..=self.playlist.next_number();
        let parts = numbers.clone().flat_map(|number| (0..40).map(move |index| (number, index)));
        let found = numbers.clone().map(|number| self.playlist.segment(number));
        let all = found.chain(parts.map(|(number, index)| self.playlist.part(number, index))).collect();
        (self.playlist.text(""), all, numbers.map(|number| self.playlist.map(number)).collect())
    }

    /// Without the first lines.
    fn list(&self) -> String {
        let text = self.playlist.text("").unwrap_or_default();
        let lines = text.lines().skip(4).map(|line| line.trim_start_matches('#'));
        lines.collect::<Vec<_>>().join(" ")
    }

    fn range(&self, number: u64) -> Option<Range<u64>> {
        match self.playlist.segment(number) {
            Found::There { range, .. } => Some(range),
            _ => None,
        }
    }
}

#[test]
fn a_segment_ends_at_the_start_point_that_reaches_the_target_duration() {
    let mut stream = Stream::new(Container::Ts, 4);
    assert_eq!(stream.playlist.text(""), None);
    for _ in 0..5 {
        stream.start(2_000);
    }
    let text = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:7\n\
                #EXT-X-INDEPENDENT-SEGMENTS\n#EXTINF:4.000,\n7.ts?a=b\n#EXTINF:4.000,\n8.ts?a=b\n";
    assert_eq!(stream.playlist.text("?a=b").as_deref(), Some(text));
    let header = Bytes::new(b"one"[..].into());
    assert_eq!(stream.playlist.segment(8), Found::There { header, range: 40 * UNIT..80 * UNIT });
    assert_eq!([6, 9, 10].map(|number| stream.playlist.segment(number)), [Found::Gone, Found::Next, Found::Gone]);
    stream.playlist.end(stream.at, stream.begun + stream.now);
    assert_eq!(stream.range(9), Some(80 * UNIT..100 * UNIT));
    assert!(stream.list().ends_with("EXTINF:2.000, 9.ts EXT-X-ENDLIST"));
    assert_eq!(stream.playlist.segment(10), Found::Gone);
}

#[test]
fn a_segment_ends_before_the_start_point_that_would_make_it_too_long() {
    let mut stream = Stream::new(Container::Ts, 4);
    (0..3).for_each(|_| stream.start(2_500));
    assert_eq!(stream.list(), "EXT-X-INDEPENDENT-SEGMENTS EXTINF:2.500, 7.ts EXTINF:2.500, 8.ts");
}

#[test]
fn the_first_start_points_say_how_long_segments_must_be() {
    let mut stream = Stream::new(Container::Ts, 2);
    (0..3).for_each(|_| stream.start(10_400));
    assert_eq!(stream.playlist.target(), Some(Duration::from_secs(10)));
    assert_eq!(stream.list(), "EXT-X-INDEPENDENT-SEGMENTS EXTINF:10.400, 7.ts EXTINF:10.400, 8.ts");
}

#[test]
fn where_no_start_point_comes_a_segment_ends_with_a_unit() {
    let mut stream = Stream::new(Container::Ts, 2);
    stream.start(2_000);
    stream.start(6_000);
    stream.start(2_000);
    let cut = "EXTINF:2.000, 7.ts EXTINF:2.400, 8.ts EXTINF:2.400, 9.ts EXTINF:1.200, 10.ts";
    assert_eq!(stream.list(), cut, "not all can be begun with");
    assert_eq!(stream.range(9), Some(44 * UNIT..68 * UNIT));
}

#[test]
fn what_comes_faster_than_it_plays_is_cut_by_its_bytes() {
    let mut stream = Stream::new(Container::Ts, 2);
    stream.start(2_000);
    stream.start(0);
    stream.units(6_000, 0);
    stream.start(0);
    let cut = "EXTINF:2.000, 7.ts EXTINF:2.400, 8.ts EXTINF:2.400, 9.ts EXTINF:1.200, 10.ts";
    assert_eq!(stream.list(), cut);
}

#[test]
fn a_unit_that_is_longer_than_all_is_said_to_be_as_long_as_it_may_be() {
    let mut stream = Stream::new(Container::Mp4, 2);
    stream.start(2_000);
    stream.start(0);
    stream.at += UNIT;
    stream.media += Duration::from_secs(8);
    stream.start(2_000);
    assert_eq!(stream.playlist.target(), Some(Duration::from_secs(2)));
    assert!(stream.list().ends_with("EXTINF:2.000, 7.m4s EXTINF:2.000, 8.m4s"), "{}", stream.list());
}

#[test]
fn what_comes_behind_another_header_does_not_go_on_from_what_was_before() {
    let mut stream = Stream::new(Container::Mp4, 2);
    stream.start(2_000);
    stream.start(1_000);
    stream.playlist.set_header(b"two");
    stream.units(500, 100);
    stream.start(2_000);
    stream.start(100);
    let maps = "EXT-X-MAP:URI=\"init-7.mp4\" EXTINF:2.000, 7.m4s EXTINF:1.500, 8.m4s EXT-X-DISCONTINUITY \
                EXT-X-MAP:URI=\"init-9.mp4\" EXTINF:2.000, 9.m4s";
    assert!(stream.list().ends_with(maps), "{}", stream.list());
    let map = |number| stream.playlist.map(number).map(|bytes| bytes.to_vec());
    assert_eq!((map(7), map(8), map(9)), (Some(b"one".to_vec()), None, Some(b"two".to_vec())));
    assert_eq!(stream.playlist.segment(7), Found::There { header: Bytes::default(), range: 0..20 * UNIT });
}

#[test]
fn a_source_that_comes_back_begins_behind_a_discontinuity() {
    let mut stream = Stream::new(Container::Ts, 2);
    stream.start(2_000);
    stream.start(1_000);
    stream.break_off();
    let at = stream.at;
    stream.units(500, 100);
    stream.media = Duration::ZERO;
    stream.start(2_000);
    stream.start(100);
    let list =
        "EXT-X-INDEPENDENT-SEGMENTS EXTINF:2.000, 7.ts EXTINF:1.000, 8.ts EXT-X-DISCONTINUITY EXTINF:2.000, 9.ts";
    assert_eq!(stream.list(), list);
    assert_eq!((stream.range(8), stream.range(9)), (Some(20 * UNIT..at), Some(at + 5 * UNIT..at + 25 * UNIT)));
}

#[test]
fn a_clock_that_jumps_is_a_discontinuity() {
    for media in [Duration::ZERO, Duration::from_secs(500)] {
        let mut stream = Stream::new(Container::Ts, 2);
        stream.start(2_000);
        stream.start(1_500);
        stream.media = media;
        stream.start(2_000);
        stream.start(100);
        let list = "EXTINF:2.000, 7.ts EXTINF:1.500, 8.ts EXT-X-DISCONTINUITY EXTINF:2.000, 9.ts";
        assert!(stream.list().ends_with(list), "{}", stream.list());
    }
}

#[test]
fn what_is_taken_off_the_list_is_there_until_the_backlog_forgets_it() {
    let mut stream = Stream::new(Container::Ts, 2);
    stream.playlist.settings.window = Some(Duration::from_secs(7));
    (0..9).for_each(|_| stream.start(2_000));
    let list = "EXTINF:2.000, 11.ts EXTINF:2.000, 12.ts EXTINF:2.000, 13.ts EXTINF:2.000, 14.ts";
    assert!(stream.list().ends_with(list), "{}", stream.list());
    assert!(stream.playlist.text("").is_some_and(|text| text.contains("#EXT-X-MEDIA-SEQUENCE:11\n")));
    assert_eq!(stream.range(7), Some(0..20 * UNIT));
    stream.playlist.forget(1);
    assert_eq!((stream.playlist.segment(7), stream.range(8)), (Found::Gone, Some(20 * UNIT..40 * UNIT)));
    stream.playlist.forget(6 * 20 * UNIT);
    assert!(
        stream.list().ends_with("INDEPENDENT-SEGMENTS EXTINF:2.000, 13.ts EXTINF:2.000, 14.ts"),
        "{}",
        stream.list()
    );
}

#[test]
fn three_target_durations_stay_on_the_list_however_small_the_backlog_is() {
    let mut stream = Stream::new(Container::Ts, 2);
    stream.playlist.settings.backlog_size = 1;
    (0..9).for_each(|_| stream.start(2_000));
    assert!(stream.list().ends_with("SEGMENTS EXTINF:2.000, 12.ts EXTINF:2.000, 13.ts EXTINF:2.000, 14.ts"));
}

#[test]
fn parts_are_there_before_their_segment_is() {
    let mut stream = Stream::in_parts();
    stream.start(2_000);
    stream.start(1_000);
    let list = "EXT-X-MEDIA-SEQUENCE:7 EXT-X-INDEPENDENT-SEGMENTS \
                EXTINF:2.000, 7.ts EXT-X-PART:DURATION=0.500,URI=\"8.0.ts\",INDEPENDENT=YES \
                EXT-X-PART:DURATION=0.500,URI=\"8.1.ts\" EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"8.2.ts\"";
    assert_eq!(stream.list().trim_start_matches("EXT-X-PART-INF:PART-TARGET=0.500 "), list);
    let header = Bytes::new(b"one"[..].into());
    assert_eq!(stream.playlist.part(8, 0), Found::There { header, range: 20 * UNIT..25 * UNIT });
    assert_eq!(stream.playlist.part(8, 1), Found::There { header: Bytes::default(), range: 25 * UNIT..30 * UNIT });
    assert_eq!([2, 3].map(|index| stream.playlist.part(8, index)), [Found::Next, Found::Gone]);
    use Reached::{NotYet, TooFar, Yes};
    let reaches = |number, part| stream.playlist.reaches(number, part);
    assert_eq!([6, 7, 8, 9, 10].map(|number| reaches(number, None)), [Yes, Yes, NotYet, NotYet, TooFar]);
    assert_eq!([1, 2, 33].map(|part| reaches(8, Some(part))), [Yes, NotYet, TooFar]);
    assert_eq!(reaches(7, Some(9)), Yes, "the first part of 8 is meant");
    stream.units(600, 100);
    stream.start(500);
    let parts: Vec<_> = (0..6).map(|index| stream.playlist.part(8, index) != Found::Gone).collect();
    assert_eq!(parts, [true, true, true, true, false, false], "the last is what was left");
    assert_eq!(stream.range(8), Some(20 * UNIT..36 * UNIT));
}

/// hls.js begins with a part that is said to be independent, whatever stands before the picture in it.
#[test]
fn a_part_with_a_start_point_behind_its_first_unit_is_not_begun_with() {
    let mut stream = Stream::in_parts();
    stream.start(2_000);
    for ms in [700, 800, 400] {
        stream.start(ms);
    }
    let list = stream.list();
    let parts: Vec<_> = list.split(' ').filter(|line| line.starts_with("EXT-X-PART:")).collect();
    let independent: Vec<_> = parts.iter().map(|part| part.ends_with("INDEPENDENT=YES")).collect();
    assert_eq!(independent, [true, false, false], "at 0.7 and 1.5 s: {list}");
    stream.units(100, 100);
    assert_eq!(stream.list().matches(",INDEPENDENT=YES").count(), 2, "that at 1.5 s begins a part: {}", stream.list());
}

#[test]
fn a_segment_of_parts_ends_before_they_are_too_long() {
    let mut stream = Stream::in_parts();
    stream.start(2_000);
    stream.start(5_000);
    let list: Vec<_> = (7..10).map(|number| stream.range(number).map(|range| range.end / UNIT)).collect();
    assert_eq!(list, [Some(20), Some(40), Some(60)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_playlist_that_goes_over_lists_on_as_if_it_had_stayed(
        is_mp4 in any::<bool>(),
        has_parts in any::<bool>(),
        steps in prop::collection::vec((0_u8..12, 0_u64..40), 1..60),
    ) {
        let container = if is_mp4 { Container::Mp4 } else { Container::Ts };
        let new = |begun| {
            let mut stream = Stream { begun, ..if has_parts { Stream::in_parts() } else { Stream::new(container, 2) } };
            stream.playlist.settings.window = Some(Duration::from_secs(20));
            stream
        };
        let begun = Instant::now();
        let (mut stays, mut goes) = (new(begun), new(begun));
        for (step, tenths) in steps {
            for stream in [&mut stays, &mut goes] {
                match step {
                    0..6 => stream.start(100 * tenths),
                    6 | 7 => stream.units(100 * tenths, 100),
                    8 => stream.units(100 * tenths, 0),
                    9 => stream.break_off(),
                    10 => stream.playlist.set_header(&[tenths as u8 % 3]),
                    _ => stream.playlist.forget(stream.at.saturating_sub(200 * UNIT)),
                }
            }
            goes.hand_over();
            prop_assert_eq!(goes.all(), stays.all());
        }
    }
}

/// As fragments of MP4 come: that a unit is over is known before the next begins.
#[test]
fn a_playlist_goes_over_between_the_end_of_a_part_and_a_start_point() {
    let mut stream = Stream::in_parts();
    stream.start(2_000);
    stream.start(500);
    stream.start(100);
    let before = stream.all();
    stream.hand_over();
    assert_eq!(stream.all(), before);
}

/// Of a time stamp with 33 bits that counts on through its wraps, who begins to read knows the last bits alone.
#[test]
fn a_clock_that_begins_anew_with_another_process_is_no_jump() {
    let mut stream = Stream::new(Container::Ts, 2);
    stream.media = Duration::from_secs(200_000);
    stream.start(2_000);
    let (last, wrap) = (stream.at, Duration::from_secs(95_443));
    stream.start(1_500);
    stream.hand_over();
    stream.media -= wrap;
    stream.playlist.set_clock(last + UNIT, stream.media);
    stream.playlist.set_clock(last, stream.media - Duration::from_millis(1_500));
    stream.start(500);
    stream.start(2_000);
    stream.start(100);
    assert_eq!(
        stream.list(),
        "EXT-X-INDEPENDENT-SEGMENTS EXTINF:2.000, 7.ts EXTINF:1.500, 8.ts EXTINF:0.500, 9.ts EXTINF:2.000, 10.ts"
    );
}

#[test]
fn a_playlist_that_cannot_have_been_is_refused() {
    let mut stream = Stream::in_parts();
    (0..4).for_each(|_| stream.start(1_900));
    let now = stream.begun + stream.now;
    let state = stream.playlist.state(now);
    assert!(Playlist::restore(now, state.clone(), stream.at).is_some());
    assert!(Playlist::restore(now, state, stream.at - 1).is_none(), "it is longer than its stream");
}
