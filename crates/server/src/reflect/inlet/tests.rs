//! An inlet with sources of each format.

use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use live::metacube::Part;
use proptest::prelude::*;
use reflect::window::StartPoint;

use super::*;

mod moved;

#[path = "samples.rs"]
mod samples;

use samples::Made;

const BACKLOG: u64 = 8 << 20;

/// From one piece of a source to the next: workers are told of each.
const TICK: Duration = Duration::from_millis(40);

/// An inlet with a reader, and what that was told.
struct Harness {
    inlet: Inlet,
    now: Instant,
    tick: Duration,
    all: Growth,
}

impl Harness {
    fn new(settings: Settings) -> Self {
        let now = Instant::now();
        let mut inlet = Inlet::new(now, settings).expect("memory");
        let (_, _, all) = inlet.add_reader(WorkerId(0));
        Harness { inlet, now, tick: TICK, all }
    }

    fn plain() -> Self {
        Harness::new(settings(Framing::None))
    }

    /// Some bytes, and what workers are told of them.
    fn give(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let given = self.inlet.handle_bytes(self.now, bytes);
        self.now += self.tick;
        self.look();
        given
    }

    fn look(&mut self) {
        if let Some((growth, _)) = self.inlet.poll_growth(self.now) {
            self.all.extent = growth.extent;
            self.all.starts.extend(&growth.starts);
            self.all.boundaries.extend(&growth.boundaries);
            self.all.headers.extend(growth.headers.iter().cloned());
        }
    }

    fn begin(&mut self) {
        self.inlet.begin(self.now, None);
    }

    fn break_off(&mut self) {
        self.inlet.break_off(self.now);
        self.now += TICK;
        self.look();
    }

    /// All bytes that were told of.
    fn stream(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.all.extent.end as usize];
        self.inlet.ring.file.read_exact_at(&mut bytes, 0).expect("what was told of is there");
        bytes
    }

    fn starts(&self) -> Vec<u64> {
        self.all.starts.iter().map(|start: &StartPoint| start.at).collect()
    }
}

fn settings(framing: Framing) -> Settings {
    Settings { format: None, backlog: BACKLOG, intervals: Intervals::default(), hls: None, framing }
}

/// What is in blocks, with the places where those begin that one may start with; headers on their own.
fn unframe(framed: &[u8]) -> (Vec<u8>, Vec<u64>, Vec<Vec<u8>>) {
    let (mut reader, mut bytes) = (metacube::Reader::default(), framed);
    let (mut data, mut starts, mut headers, mut is_header) = (Vec::new(), Vec::new(), Vec::new(), false);
    while let Some(part) = reader.read(&mut bytes) {
        match part {
            Part::Block { kind, .. } => {
                is_header = kind == Kind::Header;
                match kind {
                    Kind::Header => headers.push(Vec::new()),
                    Kind::Start => starts.push(data.len() as u64),
                    Kind::Continuation => {}
                }
            }
            Part::Data(part) if is_header => headers.last_mut().expect("its block").extend(part),
            Part::Data(part) => data.extend(part),
            Part::Metadata(_) => {}
        }
    }
    assert_eq!(reader.lost(), 0);
    (data, starts, headers)
}

/// What of a stream is to be there: all from the first start point on, and where the others are then. Of those that are close
/// to each other, as in none of these, some would be missing.
fn expected(made: &Made) -> (&[u8], Vec<u64>) {
    let first = made.starts[0];
    (&made.bytes[first as usize..], made.starts.iter().map(|start| start - first).collect())
}

#[test]
fn a_stream_stands_there_from_its_first_start_point_on_behind_its_header() {
    for made in samples::all(20, 1) {
        let mut harness = Harness::plain();
        harness.begin();
        made.bytes.chunks(5_000).for_each(|bytes| harness.give(bytes).expect("room"));
        let (bytes, starts) = expected(&made);
        assert!(harness.stream() == bytes, "{:?}", made.format);
        assert_eq!(harness.starts(), starts, "{:?}", made.format);
        let [header] = &harness.all.headers[..] else { panic!("{:?}: {:?}", made.format, harness.all.headers) };
        assert_eq!(header.from, 0);
        if made.format != Format::Ts {
            assert!(**header.bytes == made.bytes[..made.starts[0] as usize], "{:?}", made.format);
        }
        let status = harness.inlet.status();
        assert_eq!(status.format, Some(made.format));
        assert!(status.has_video && status.is_live && status.content_type.starts_with("video/"), "{status:?}");
        assert_eq!(status.counts.passed_bytes, made.starts[0]);
    }
}

#[test]
fn boundaries_are_places_between_units() {
    for made in samples::all(10, 1) {
        let mut harness = Harness::plain();
        made.bytes.chunks(1_000).for_each(|bytes| harness.give(bytes).expect("room"));
        let first = made.starts[0];
        assert!(harness.all.boundaries.len() > 5, "{:?}", made.format);
        for at in &harness.all.boundaries {
            let rest = &made.bytes[(first + at) as usize..];
            let is_unit = match made.format {
                Format::Ts => rest.first().is_none_or(|byte| *byte == 0x47),
                Format::Flv => rest.first().is_none_or(|byte| *byte == 9),
                Format::Matroska => rest.starts_with(&[0x1f, 0x43, 0xb6, 0x75]),
                _ => rest.is_empty() || rest[4..].starts_with(b"styp") || rest[4..].starts_with(b"moof"),
            };
            assert!(is_unit, "{:?} {at}", made.format);
        }
    }
}

#[test]
fn the_next_source_goes_on_at_its_first_start_point() {
    for made in samples::all(4, 1) {
        let mut harness = Harness::plain();
        let (bytes, starts) = expected(&made);
        for _ in 0..2 {
            harness.begin();
            harness.give(&made.bytes).expect("room");
            harness.break_off();
        }
        assert!(harness.stream() == [bytes, bytes].concat(), "{:?}", made.format);
        let len = bytes.len() as u64;
        assert_eq!(harness.starts(), [starts.clone(), starts.iter().map(|at| at + len).collect()].concat());
        assert_eq!(harness.inlet.status().counts.sources, 2);
    }
}

#[test]
fn who_watches_gets_the_header_of_the_next_source_if_it_is_another_one() {
    for (one, other) in samples::all(4, 1).into_iter().zip(samples::all(4, 2)).skip(1) {
        let mut harness = Harness::plain();
        harness.give(&one.bytes).expect("room");
        harness.begin();
        harness.give(&other.bytes).expect("room");
        let header = &other.bytes[..other.starts[0] as usize];
        // The file's own header is not repeated.
        let inline = if one.format == Format::Flv { &header[13..] } else { header };
        let (before, _) = expected(&one);
        let (after, _) = expected(&other);
        assert!(harness.stream() == [before, inline, after].concat(), "{:?}", one.format);
        let froms: Vec<u64> = harness.all.headers.iter().map(|header| header.from).collect();
        let from = (before.len() + inline.len()) as u64;
        assert_eq!(froms, [0, from]);
        assert!(harness.starts().contains(&from));
        assert!(**harness.all.headers[1].bytes == *header);
    }
}

#[test]
fn a_torn_unit_is_filled_up() {
    for made in samples::all(3, 1) {
        let mut harness = Harness::plain();
        let torn = made.starts[1] as usize + 4_000;
        harness.give(&made.bytes[..torn]).expect("room");
        harness.break_off();
        harness.give(&made.bytes).expect("room");
        let stream = harness.stream();
        let (bytes, _) = expected(&made);
        let first = stream.len() - bytes.len();
        assert!(stream[first..] == *bytes, "{:?}", made.format);
        let known = torn - made.starts[0] as usize;
        match made.format {
            Format::Ts => assert_eq!(first, known / 188 * 188),
            _ => {
                assert!(stream[..known] == bytes[..known], "{:?}", made.format);
                assert!(first > known && stream[known..first].iter().all(|byte| *byte == 0), "{:?}", made.format);
                let filled = first - known;
                assert_eq!(harness.inlet.status().counts.filled_bytes, filled as u64);
            }
        }
        // Whoever reads it finds every start point where it is.
        let header = harness.all.headers[0].bytes.to_vec();
        let mut reader = live::Reader::new(made.format);
        let whole = [header, stream].concat();
        let (mut bytes, mut found) = (&whole[..], 0);
        while let Some(event) = reader.read(&mut bytes).expect("nothing is torn") {
            found += usize::from(matches!(event, live::Event::Start(_)));
        }
        assert_eq!(found, 2 + 3, "{:?}", made.format);
    }
}

#[test]
fn another_format_is_told_and_what_came_of_it_can_be_had() {
    let mut harness = Harness::plain();
    harness.give(&samples::flv(2, 1).bytes).expect("room");
    let end = harness.all.extent.end;
    harness.begin();
    let other = samples::webm(2, 1).bytes;
    harness.give(&other[..5]).expect("it says nothing yet");
    let trouble = harness.give(&other[5..]);
    let expected = Trouble::OtherFormat { before: Format::Flv, now: Format::Matroska };
    assert_eq!(trouble.map_err(|trouble| trouble.to_string()), Err(expected.to_string()));
    assert_eq!(harness.all.extent.end, end);
    let mut next = Harness::plain();
    let pending = harness.inlet.take_pending();
    next.give(&pending).expect("it says nothing yet");
    next.give(&other[5..]).expect("room");
    assert!(next.all.extent.end > 0);
}

#[test]
fn a_source_that_cannot_be_read_on_is_broken_off_and_the_next_goes_on() {
    let made = samples::mp4(3, 1);
    let mut harness = Harness::plain();
    let (bytes, _) = expected(&made);
    let wrong = [&made.bytes[..], &[0; 100]].concat();
    assert!(matches!(harness.give(&wrong), Err(Trouble::Source(_))));
    assert!(harness.stream() == bytes);
    assert!(!harness.inlet.status().is_live);
    harness.give(&made.bytes).expect("room");
    assert!(harness.stream() == [bytes, bytes].concat());
}

#[test]
fn while_a_worker_holds_on_nothing_is_taken_and_what_was_passed_is_given_back() {
    let made = samples::ts(60, 1);
    let mut harness = Harness::new(Settings { backlog: BACKLOG_MIN, ..settings(Framing::None) });
    let mut left = made.bytes.chunks(20_000).cycle();
    let mut given = 0;
    let next = loop {
        let bytes = left.next().expect("it has no end");
        match harness.give(bytes) {
            Ok(()) => given += bytes.len(),
            Err(Trouble::Full(_)) => break bytes,
            Err(trouble) => panic!("{trouble}"),
        }
        assert!(given < 10 << 20, "it is to be full");
    };
    let end = harness.all.extent.end;
    let kept = |harness: &Harness| harness.inlet.ring.file.metadata().expect("a file").blocks() * 512;
    let before = kept(&harness);
    assert!(before > BACKLOG_MIN, "{before}");
    harness.inlet.passed(WorkerId(0), harness.all.extent.begin);
    let after = kept(&harness);
    assert!(after <= BACKLOG_MIN + (64 << 10), "{after}");
    harness.give(next).expect("room");
    assert!(harness.all.extent.end > end);
}

#[test]
fn a_stream_in_which_one_can_start_nowhere_is_begun_anywhere_after_a_while() {
    let without_tables: Vec<u8> = {
        let made = samples::ts(100, 1);
        let is_video = |packet: &&[u8]| packet[1] & 0x1f == 1;
        made.bytes.chunks(188).filter(is_video).flatten().copied().collect()
    };
    let mut harness = Harness::plain();
    let mut pieces = without_tables.chunks(2_000);
    for bytes in pieces.by_ref().take(100) {
        harness.give(bytes).expect("room");
    }
    assert_eq!(harness.all.extent.end, 0);
    harness.now += Duration::from_secs(12);
    pieces.by_ref().take(100).for_each(|bytes| harness.give(bytes).expect("room"));
    assert!(harness.all.extent.end > 190_000 && harness.starts().len() > 2);
    assert!(harness.starts().iter().all(|at| at % 188 == 0));
}

#[test]
fn a_raw_stream_starts_anywhere() {
    let mut harness = Harness::plain();
    harness.inlet.begin(harness.now, Some("audio/mpeg; x=1"));
    let sound: Vec<u8> = [0xff, 0xfb, 0x90, 0].into_iter().chain((0..200_000).map(|byte| byte as u8)).collect();
    sound.chunks(1_000).for_each(|bytes| harness.give(bytes).expect("room"));
    assert!(harness.stream() == sound);
    assert_eq!((harness.starts()[0], harness.inlet.content_type()), (0, "audio/mpeg; x=1"));
    assert!(harness.starts().len() > 2 && harness.all.headers.is_empty());
}

#[test]
fn blocks_for_a_cubemap_hold_the_same_stream() {
    for (one, other) in samples::all(4, 1).into_iter().zip(samples::all(4, 2)) {
        let (mut plain, mut framed) = (Harness::plain(), Harness::new(settings(Framing::Metacube)));
        for harness in [&mut plain, &mut framed] {
            one.bytes.chunks(3_000).for_each(|bytes| harness.give(bytes).expect("room"));
            harness.break_off();
            one.bytes.chunks(3_001).for_each(|bytes| harness.give(bytes).expect("room"));
            harness.break_off();
        }
        let (data, starts, headers) = unframe(&framed.stream());
        assert!(data == plain.stream(), "{:?}", one.format);
        assert_eq!(starts, plain.starts(), "{:?}", one.format);
        assert!(headers.is_empty(), "who is there has it");
        let [header, ..] = &framed.all.headers[..] else { panic!("there is one") };
        assert_eq!(unframe(&header.bytes).2, [plain.all.headers[0].bytes.to_vec()]);
        // Each of its start points is a block that one may start with.
        for at in framed.starts() {
            let is_start = unframe(&framed.stream()[at as usize..]).1.first() == Some(&0);
            assert!(is_start, "{:?} {at}", one.format);
        }
        if one.format != Format::Ts {
            framed.give(&other.bytes).expect("room");
            framed.break_off();
            assert_eq!(unframe(&framed.stream()).2, [other.bytes[..other.starts[0] as usize].to_vec()]);
        }
        assert_eq!(framed.inlet.content_encoding(), Some("metacube"));
    }
}

#[test]
fn the_playlist_is_told_behind_the_bytes_and_forgets_before_they_are_gone() {
    let hls = reflect::hls::Settings {
        container: Container::Mp4,
        target: Duration::from_secs(1),
        window: None,
        part_target: None,
        backlog_size: BACKLOG_MIN,
        first_number: 7,
    };
    let made = samples::ts(120, 1);
    let mut harness = Harness::new(Settings { backlog: BACKLOG_MIN, hls: Some(hls), ..settings(Framing::None) });
    assert!(harness.inlet.hls().is_none());
    harness.inlet.remove_reader(WorkerId(0));
    for bytes in made.bytes.chunks(119 * 188) {
        harness.give(bytes).expect("room");
        let Some(hls) = harness.inlet.hls() else { continue };
        let begin = harness.all.extent.begin;
        hls.tell(|playlist| {
            let mut number = playlist.next_number();
            while let reflect::hls::Found::There { header, range } = playlist.segment(number - 1) {
                number -= 1;
                assert!(!header.is_empty() && range.end <= harness.inlet.ring.backlog.end());
                let mut first = [0; 1];
                harness.inlet.ring.file.read_exact_at(&mut first, range.start).expect("it is there");
                assert_eq!(first, [0x47]);
                assert!(range.start + (128 << 10) > begin, "no more than a step is over");
            }
        });
    }
    let hls = harness.inlet.hls().expect("it is TS").clone();
    hls.tell(|playlist| assert!(playlist.next_number() > 20, "{}", playlist.next_number()));
    harness.inlet.end(harness.now);
    hls.tell(|playlist| assert!(playlist.is_ended()));
}

/// HLS with segments of a second, in parts.
fn in_parts() -> reflect::hls::Settings {
    reflect::hls::Settings {
        container: Container::Ts,
        target: Duration::from_secs(1),
        window: None,
        part_target: Some(Duration::from_millis(200)),
        backlog_size: BACKLOG,
        first_number: 0,
    }
}

#[test]
fn parts_of_a_transport_stream_end_where_a_picture_begins() {
    let made = samples::ts(20, 1);
    let mut harness = Harness::new(Settings { hls: Some(in_parts()), ..settings(Framing::None) });
    // Each piece ends within a picture.
    made.bytes.chunks(5 * 188).for_each(|bytes| harness.give(bytes).expect("room"));
    let (stream, hls) = (harness.stream(), harness.inlet.hls().expect("it is TS").clone());
    let mut ends = Vec::new();
    hls.tell(|playlist| {
        for (number, index) in (0..playlist.next_number()).flat_map(|number| (0..9).map(move |index| (number, index))) {
            if let reflect::hls::Found::There { range, .. } = playlist.part(number, index) {
                ends.push(range.end as usize);
            }
        }
    });
    assert!(ends.len() > 5, "{ends:?}");
    let is_picture = |end: &usize| stream[end + 1] & 0x5f == 0x41 && stream[end + 2] == 0;
    assert!(ends.iter().all(is_picture), "{ends:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn however_a_stream_is_cut_it_stands_there_in_the_same_way(
        format in 0_usize..4,
        cuts in prop::collection::vec(1_usize..6_000, 1..200),
        broken in 0_usize..60_000,
        is_framed in any::<bool>(),
    ) {
        let made = samples::all(3, 1).into_iter().nth(format).expect("one of four");
        let framing = if is_framed { Framing::Metacube } else { Framing::None };
        let read = |cuts: &[usize]| {
            let mut harness = Harness { tick: Duration::from_micros(10), ..Harness::new(settings(framing)) };
            let broken = &made.bytes[..broken.min(made.bytes.len())];
            for source in [broken, &made.bytes] {
                harness.begin();
                let (mut rest, mut lens) = (source, cuts.iter().cycle());
                while !rest.is_empty() {
                    let bytes;
                    (bytes, rest) = rest.split_at(rest.len().min(*lens.next().expect("they go round")));
                    harness.give(bytes).expect("room");
                }
                harness.break_off();
            }
            let (stream, starts) = (harness.stream(), harness.starts());
            if is_framed {
                let (data, starts, headers) = unframe(&stream);
                return (data, starts, headers);
            }
            (stream, starts, Vec::new())
        };
        prop_assert!(read(&cuts) == read(&[usize::MAX]));
    }
}
