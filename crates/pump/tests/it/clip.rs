//! A title made by another multiplexer: `data/clip.ts`, two seconds of H.264 with B pictures and AAC, by
//! `ffmpeg -f lavfi -i testsrc2=size=160x120:rate=25 -f lavfi -i sine=frequency=440:sample_rate=48000 -t 2
//! -c:v libx264 -preset veryslow -g 12 -bf 2 -b:v 120k -c:a aac -b:a 32k clip.ts` (5.1). What is expected of it is what
//! ffprobe says.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Source, World};
use pump::index::Index;
use pump::monitor::Monitor;
use pump::picture::VideoCodec;
use pump::spec::Settings;
use wire::ts::{PACKET_LEN, Pid};

fn clip() -> Vec<u8> {
    include_bytes!("../data/clip.ts").to_vec()
}

/// First packets of the key frames.
const PICTURES: [u64; 5] = [3, 52, 110, 169, 238];

fn pictures(source: &Source) -> Vec<(u64, Duration)> {
    let mut index = Index::new(&source.title);
    (0..source.title.chunk_count()).for_each(|number| index.add(&source.chunk(number)));
    index.pictures().into_iter().map(|picture| (picture.from, picture.time)).collect()
}

fn assert_pictures(source: &Arc<Source>) {
    let found = pictures(source);
    assert_eq!(found.iter().map(|(from, _)| *from).collect::<Vec<_>>(), PICTURES);
    for (count, (_, time)) in found.iter().enumerate() {
        let expected = Duration::from_millis(480 * count as u64);
        assert!(time.abs_diff(expected) < Duration::from_millis(50), "{time:?}, not {expected:?}");
    }
}

#[test]
fn its_tables_and_key_frames_are_found() {
    let source = Source::new(clip(), 49);
    let title = &source.title;
    assert_eq!((title.program_number, title.video), (Some(1), Some((Pid::new(0x100).unwrap(), VideoCodec::H264))));
    assert_eq!((title.pcr_pid, title.packet_count()), (Pid::new(0x100), 259));
    assert_pictures(&source);
}

#[test]
fn its_key_frames_are_found_without_the_multiplexers_word() {
    let mut bytes = clip();
    for packet in bytes.as_chunks_mut::<PACKET_LEN>().0 {
        if packet[3] & 0x20 != 0 && packet[4] > 0 {
            packet[5] &= !0x40;
        }
    }
    assert_pictures(&Source::new(bytes, 49));
}

#[test]
fn it_is_sent_whole_in_its_time_and_loops_without_an_error() {
    let source = Source::new(clip(), 49);
    let mut world = World::new(Settings::default());
    world.open(1, &source, |_| {});
    world.open(2, &source, |spec| spec.play.looped = true);
    world.run(Duration::from_secs(9));
    assert_eq!(world.packets(1).as_flattened()[..source.bytes.len()], source.bytes);
    let span = world.sent[&1].last().unwrap().ns - world.sent[&1][0].ns;
    assert!((1_900_000_000..2_100_000_000).contains(&span), "{span}");
    let mut monitor = Monitor::new(None);
    world.sent[&2].iter().for_each(|sent| monitor.handle_datagram(sent.ns, &sent.bytes));
    let report = monitor.report();
    assert_eq!((report.lost, report.priorities.sums().0, report.priorities.pcr_discontinuity), (0, 0, 0), "{report:?}");
    assert!(report.datagrams > 4 * 37);
}
