//! Times and pictures of a title are found, with few reads, and shown at other speeds.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Source, World};
use crate::trick::picks;
use pump::index::{Found, Index};
use pump::monitor::Monitor;
use pump::sample::{AUDIO_PID, Sample, VIDEO_PID};
use pump::spec::{Command, Settings};
use pump::trick::Pick;
use wire::ts::{PACKET_LEN, Packet, Pcr, PesHeader, Timestamp};

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn whole(source: &Source) -> Index {
    let mut index = Index::new(&source.title);
    (0..source.title.chunk_count()).for_each(|number| index.add(&source.chunk(number)));
    index
}

/// Searches, reads what the search asks for, and returns the place and how many chunks were read.
fn search(source: &Source, index: &mut Index, time: Duration) -> (u64, u32) {
    for reads in 0..100 {
        match index.find(time).unwrap() {
            Found::At(position) => return (position, reads),
            Found::Read(number) => {
                assert!(!index.is_known(number), "chunk {number} again");
                index.add(&source.chunk(number));
            }
        }
    }
    panic!("a search ends");
}

fn samples() -> [Sample; 4] {
    let constant = Sample { pictures: 1_000, ..Sample::default() };
    let variable = Sample { is_constant: false, ..constant.clone() };
    let silent = Sample { says_random_access: false, ..variable.clone() };
    let wraps = Sample { first_pcr: Pcr::MODULUS - 20 * Pcr::HZ, ..variable.clone() };
    [constant, variable, silent, wraps]
}

#[test]
fn the_pictures_that_stand_alone_are_found_with_their_times() {
    for sample in samples() {
        let source = Source::sample(&sample);
        let index = whole(&source);
        assert!((0..source.title.chunk_count()).all(|number| index.is_known(number)));
        let pictures = index.pictures();
        assert_eq!(pictures.len(), 84, "{sample:?}");
        let packets = source.bytes.as_chunks::<PACKET_LEN>().0;
        for (count, picture) in pictures.iter().enumerate() {
            let expected = millis(count as u64 * 12 * 40);
            assert!(picture.time.abs_diff(expected) <= millis(10), "{picture:?} at {expected:?}");
            let first = Packet::parse(&packets[picture.from as usize]).unwrap();
            assert!(first.payload_unit_start() && first.pid() == VIDEO_PID);
            assert!(picture.to as usize == packets.len() || packets[picture.to as usize][1] & 0x40 != 0);
        }
        assert!(index.duration().unwrap().abs_diff(millis(40_000)) < millis(45), "{:?}", index.duration());
    }
}

#[test]
fn a_time_is_found_by_reading_a_few_chunks() {
    for sample in samples() {
        let source = Source::sample(&sample);
        for wanted in [0, 479, 480, 481, 12_345, 25_000, 39_990, 60_000] {
            let (position, reads) = search(&source, &mut Index::new(&source.title), millis(wanted));
            let expected = whole(&source).pictures().into_iter().rfind(|picture| picture.time <= millis(wanted));
            let expected = expected.map_or(0, |picture| picture.from);
            // A neighbour will do where the way there was estimated.
            assert!(position.abs_diff(expected) < 2_000, "{wanted}: {position}, not {expected}");
            assert!(reads <= 9, "{reads} reads");
        }
    }
}

#[test]
fn once_all_is_known_times_and_places_are_exact() {
    let source = Source::sample(&samples()[1]);
    let mut index = whole(&source);
    for picture in index.pictures() {
        assert_eq!(search(&source, &mut index, picture.time), (picture.from, 0));
        let time = index.time_at(picture.from).unwrap();
        assert!(time.abs_diff(picture.time) < millis(40), "{time:?} {picture:?}");
    }
}

#[test]
fn the_duration_is_known_when_the_last_chunk_with_a_clock_is() {
    let source = Source::sample(&samples()[1]);
    let mut index = Index::new(&source.title);
    index.add(&source.chunk(0));
    let guess = index.duration().unwrap();
    let mut reads = 0;
    while let Some(number) = index.end_needs() {
        index.add(&source.chunk(number));
        reads += 1;
    }
    assert!(reads <= 2, "{reads} reads");
    assert!(index.duration().unwrap().abs_diff(millis(40_000)) < millis(45), "{:?} {index:?}", index.duration());
    assert!(guess.abs_diff(millis(40_000)) < millis(8_000), "{guess:?}");
}

fn shown(scale_permille: i32, span: Duration) -> (Arc<Source>, World, Vec<Pick>) {
    let source = Source::sample(&samples()[0]);
    let index = whole(&source);
    let rate = source.title.slope.unwrap();
    let picks = picks(&index.pictures(), millis(20_000), scale_permille, rate, millis(100));
    let mut world = World::new(Settings { tick: Duration::from_nanos(1), ..Settings::default() });
    let session = world.open(1, &source, |spec| (spec.start, spec.play.burst) = (50_000, Some(1)));
    world.run(millis(1_000));
    world.command(Command::Trick { session, picks: picks.clone().into(), run: 1 });
    world.run(span);
    (source, world, picks)
}

#[test]
fn at_another_speed_pictures_come_alone_and_on_time() {
    // Fewer than there are, so that they are not all shown before the seek.
    for (scale, count) in [(2_000, 8), (4_000, 16), (8_000, 16), (-1_000, 4), (-8_000, 16)] {
        let (source, mut world, picks) = shown(scale, millis(2_000));
        let end_ns = (world.now - world.start).as_nanos() as u64;
        world.command(Command::Seek { session: pump::spec::SessionId(1), to: 10_000 });
        world.run(millis(1_000));

        // Between the two jumps only video is sent, each picture whole, as the picks say.
        let (mut pictures, mut pcr, mut jumps) = (Vec::new(), None, 0);
        for sent in &world.sent[&1] {
            for bytes in wire::ts::datagram_packets(&sent.bytes).unwrap().1 {
                let packet = Packet::parse(bytes).unwrap();
                jumps += u32::from(packet.discontinuity());
                pcr = packet.pcr().or(pcr);
                let is_shown = jumps == 1 && sent.ns < end_ns;
                if is_shown && packet.pid() == VIDEO_PID && packet.payload_unit_start() {
                    let dts = PesHeader::parse(packet.payload()).unwrap().dts.unwrap();
                    let lead = Timestamp::from_ticks(pcr.unwrap().ticks() / 300).ticks_to(dts);
                    // It is decoded 100 ms after it is there.
                    assert!((9_000..40_000).contains(&lead), "{lead}");
                    pictures.push(bytes[50..].to_vec());
                }
                assert!(!is_shown || packet.pid() != AUDIO_PID);
            }
        }
        assert_eq!(jumps, 2);
        assert!(pictures.len().abs_diff(count) <= 2, "{scale}: {} pictures", pictures.len());
        for (picture, pick) in pictures.iter().zip(&picks) {
            assert_eq!(picture[..], source.bytes[pick.from as usize * PACKET_LEN + 50..][..PACKET_LEN - 50]);
        }
        let mut monitor = Monitor::new(Some(source.title.rate()));
        world.sent[&1].iter().for_each(|sent| monitor.handle_datagram(sent.ns, &sent.bytes));
        let report = monitor.report();
        assert_eq!((report.lost, report.priorities.continuity, report.priorities.pcr_repetition), (0, 0, 0));
        assert_eq!((report.priorities.pcr_discontinuity, report.priorities.pat), (0, 0), "{report:?}");
        assert!(report.pcr_jitter_max_ns < 5_000_000, "{report:?}");
    }
}

#[test]
fn when_all_pictures_are_shown_the_session_waits() {
    let (_, mut world, _) = shown(-8_000, millis(4_000));
    assert_eq!(world.shown.len(), 1);
    assert!(world.ended.is_empty());
    let sent = world.sent[&1].len();
    world.run(millis(3_000));
    assert_eq!(world.sent[&1].len(), sent);
    world.command(Command::Seek { session: pump::spec::SessionId(1), to: 0 });
    world.run(millis(3_000));
    assert!(world.sent[&1].len() > sent + 1_000);
}

#[test]
fn showing_no_pictures_is_over_at_once_and_ends_nothing() {
    let source = Source::sample(&samples()[0]);
    let mut world = World::new(Settings::default());
    let session = world.open(1, &source, |_| {});
    world.run(millis(1_000));
    world.command(Command::Trick { session, picks: [].into(), run: 2 });
    world.run(millis(1_000));
    assert_eq!((world.shown.len(), world.ended.len()), (1, 0));
}

#[test]
fn a_search_reads_first_parts_and_the_chunk_of_the_picture_whole() {
    for sample in samples() {
        let source = Source::sample(&sample);
        for wanted in [479, 12_345, 25_000, 39_000] {
            let mut index = Index::new(&source.title);
            index.add(&source.chunk(0));
            let (mut parts, mut wholes) = (0, Vec::new());
            let position = loop {
                match index.find(millis(wanted)).unwrap() {
                    Found::At(position) => break position,
                    Found::Read(number) if index.is_known_in_part(number) => {
                        wholes.push(number);
                        index.add(&source.chunk(number));
                    }
                    Found::Read(number) => {
                        parts += 1;
                        index.add_part(&source.part(number, 300));
                    }
                }
            };
            let expected = whole(&source).pictures().into_iter().rfind(|picture| picture.time <= millis(wanted));
            assert!(position.abs_diff(expected.unwrap().from) < 2_000, "{wanted}: {position}");
            assert!(parts <= 8 && wholes.len() <= 4, "{wanted}: {parts} parts, {wholes:?}");
            // A part says nothing about pictures, nor how long the title is.
            assert!(index.pictures().iter().all(|picture| index.is_known((picture.from / 700) as u32)));
        }
    }
}

#[test]
fn a_packet_is_found_by_the_marks_around_it() {
    for sample in samples() {
        let source = Source::sample(&sample);
        let index = whole(&source);
        for wanted in [0, 40, 12_345, 25_000, 39_900] {
            let Some(Found::At(position)) = index.find_packet(millis(wanted)) else { panic!("all is known") };
            let time = index.time_at(position).unwrap();
            let next = index.time_at(position + 1).unwrap();
            assert!(time <= millis(wanted + 1) && millis(wanted) <= next + millis(1), "{wanted}: {time:?} {next:?}");
        }
    }
}
