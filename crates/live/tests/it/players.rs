//! What a newcomer sees: from each start point, behind the header, ffmpeg decodes without a word.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use live::{DETECT_LEN, Format};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::skip::skip;
use crate::streams::{CASES, Case, Told, read, streams};

/// Runs a test on all streams.
fn for_each(test: impl Fn(&Case, &[u8], &Told)) {
    let Some(streams) = streams() else {
        skip("start points of streams: ffmpeg is not installed, or lacks an encoder");
        return;
    };
    for (case, stream) in CASES.iter().zip(streams) {
        test(case, stream, &read(case.format, stream, []));
    }
}

#[test]
fn a_newcomer_sees_all_pictures_from_its_start_point_on() {
    for_each(|case, stream, told| {
        let header = told.header.as_ref().expect(case.name);
        let (all, said) = decode(stream, header.has_video);
        assert!(said.is_empty() && all.len() > 40, "{}: {said}", case.name);
        let mut before = all.len() + 1;
        // Of sound alone there are as many as packets.
        for start in told.starts.iter().step_by(told.starts.len().div_ceil(8)) {
            let joined = [&header.bytes[..], &stream[start.at as usize..]].concat();
            let (seen, said) = decode(&joined, header.has_video);
            assert_eq!(said, "", "{} from {start:?}", case.name);
            // Sound depends on what was decoded before, for a while.
            assert!(!header.has_video || all.ends_with(&seen), "{} from {start:?}", case.name);
            assert!(!seen.is_empty(), "{} from {start:?}", case.name);
            assert!(seen.len() < before, "{}: each sees less", case.name);
            before = seen.len();
        }
    });
}

#[test]
fn key_frames_are_where_and_when_the_encoder_made_them() {
    for_each(|case, _, told| {
        let header = told.header.as_ref().expect(case.name);
        assert_eq!(
            (header.content_type, &header.codecs[..].iter().map(|name| &name[..]).collect::<Vec<_>>()[..]),
            (case.content_type, case.codecs)
        );
        let times: Vec<Duration> = told.starts.iter().map(|start| start.time.expect("a time")).collect();
        let steps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        if header.has_video {
            assert_eq!(times.len(), 7, "{}: {times:?}", case.name);
            let is_right = |step: &Duration| step.abs_diff(Duration::from_millis(480)) <= Duration::from_millis(1);
            assert!(steps.iter().all(is_right), "{}: {steps:?}", case.name);
        } else {
            assert!(times.len() >= 7, "{}: {times:?}", case.name);
            assert!(*times.last().unwrap() - times[0] > Duration::from_secs(2), "{}: {times:?}", case.name);
        }
    });
}

#[test]
fn formats_are_told_by_the_first_bytes() {
    for_each(|case, stream, _| {
        assert_eq!(Format::detect(&stream[..DETECT_LEN], None), Some(case.format), "{}", case.name);
    });
}

#[test]
fn cuts_make_no_difference() {
    for_each(|case, stream, told| {
        for piece in [1, 2, 3, 7, 187, 188, 189, 1_316, 65_536] {
            let cuts = (piece..stream.len()).step_by(piece);
            assert_eq!(&read(case.format, stream, cuts), told, "{} in pieces of {piece}", case.name);
        }
        let mut runner =
            TestRunner::new(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() });
        let cuts = proptest::collection::btree_set(0..stream.len(), 0..50);
        let same = runner.run(&cuts, |cuts| {
            prop_assert_eq!(&read(case.format, stream, cuts), told);
            Ok(())
        });
        same.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    });
}

#[test]
fn key_frames_in_ts_are_found_without_the_multiplexers_word() {
    for_each(|case, stream, told| {
        if case.format != Format::Ts {
            return;
        }
        let mut bytes = stream.to_vec();
        for packet in bytes.as_chunks_mut::<188>().0 {
            if packet[3] & 0x20 != 0 && packet[4] > 0 {
                packet[5] &= !0x40;
            }
        }
        assert_eq!(&read(case.format, &bytes, []), told, "{}", case.name);
    });
}

#[test]
fn a_transport_stream_that_is_joined_and_damaged_is_in_step_again() {
    for_each(|case, stream, told| {
        if case.format != Format::Ts {
            return;
        }
        // From within the first packet, and a hole in a packet between two start points.
        let hole = told.starts[3].at as usize + 188 + 100;
        let bytes = [&stream[..188 * 3], &stream[50..hole], &stream[hole + 40..]].concat();
        let shift = 188 * 3 - 50;
        let starts = read(case.format, &bytes, []).starts;
        let expected = |at: u64| at + shift - if at < hole as u64 { 0 } else { 40 };
        let known: Vec<u64> = told.starts.iter().map(|start| expected(start.at)).collect();
        assert!(starts.iter().all(|start| bytes[start.at as usize] == 0x47), "{}", case.name);
        assert!(known[5..].iter().all(|at| starts.iter().any(|start| start.at == *at)), "{}", case.name);
    });
}

/// Digests of the pictures or of the sound's frames, in order, and what ffmpeg says.
fn decode(stream: &[u8], is_video: bool) -> (Vec<String>, String) {
    let track = if is_video { "0:v" } else { "0:a" };
    let mut command = Command::new("ffmpeg");
    command.args("-v error -threads 1 -i pipe:0 -map".split(' ')).arg(track);
    command.args("-vsync passthrough -f framemd5 pipe:1".split(' '));
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("ffmpeg runs");
    let mut input = child.stdin.take().expect("piped");
    let output = thread::scope(|scope| {
        scope.spawn(move || input.write_all(stream));
        child.wait_with_output().expect("it ends")
    });
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digests = lines.filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect();
    (digests, String::from_utf8_lossy(&output.stderr).into_owned())
}
