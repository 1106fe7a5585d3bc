//! A title whose first chunk is a small one, so that it begins soon.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Source, World};
use pump::index::{Found, Index};
use pump::sample::Sample;
use pump::spec::{Command, Settings};
use wire::ts::PACKET_LEN;

/// The first 140 of 700 packets are a chunk of their own.
fn source(bytes: &[u8]) -> Arc<Source> {
    let whole = Source::new(bytes.to_vec(), 700);
    let title = Arc::new((*whole.title).clone().with_first_chunk(145));
    assert_eq!((title.chunk_of(139), title.chunk_of(140), title.chunk_packets()), (0, 1, 700));
    assert_eq!(title.chunk_count(), whole.title.chunk_count() + 1);
    Arc::new(Source { title, bytes: bytes.to_vec() })
}

#[test]
fn every_byte_of_a_title_arrives_whatever_stands_between_its_packets() {
    let plain = Sample { pictures: 50, ..Sample::default() }.make();
    for (before, behind) in [(0, 0), (4, 0), (0, 16)] {
        let packets = plain.as_chunks::<PACKET_LEN>().0;
        let spaced: Vec<u8> =
            packets.iter().flat_map(|packet| [&vec![1; before][..], packet, &vec![2; behind]].concat()).collect();
        let mut world = World::new(Settings::default());
        world.open(1, &source(&spaced), |_| {});
        world.run_to_the_end();

        assert_eq!(world.packets(1).as_flattened()[..plain.len()], plain);
        assert_eq!(world.asked.iter().take(3).map(|(_, number)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(world.ended[0].2.underruns, 0);
    }
}

#[test]
fn it_begins_with_the_small_chunk_alone() {
    let mut world = World::new(Settings::default());
    world.delay = |_, number| if number == 0 { Duration::ZERO } else { Duration::from_millis(150) };
    let bytes = Sample::default().make();
    world.open(1, &source(&bytes), |_| {});
    world.run(Duration::from_millis(40));
    assert!(world.packets(1).len() > 100, "140 packets are 47 ms");
    world.run_to_the_end();
    let (sent, stats) = (world.packets(1), &world.ended[0].2);
    assert_eq!(sent.as_flattened()[..140 * PACKET_LEN], bytes[..140 * PACKET_LEN]);
    assert_eq!((sent.len().div_ceil(7), stats.underruns), ((bytes.len() / PACKET_LEN).div_ceil(7), 1));
}

#[test]
fn a_seek_goes_to_the_packet_that_was_asked_for() {
    let bytes = Sample::default().make();
    for to in [0, 139, 140, 699, 700, 1_400] {
        let mut world = World::new(Settings::default());
        let session = world.open(1, &source(&bytes), |_| {});
        world.run(Duration::from_millis(5));
        world.command(Command::Seek { session, to });
        world.pump.handle_command(world.now, Command::Pause(session));
        world.pump.handle_command(world.now, Command::Inspect { session, token: 1 });
        let stats = std::iter::from_fn(|| world.pump.poll_event()).find_map(|event| match event {
            pump::spec::Event::Stats { stats, .. } => stats,
            _ => None,
        });
        assert!((to..=to + 14).contains(&stats.unwrap().position), "seek to {to}");
    }
}

#[test]
fn times_and_pictures_are_where_they_are_in_chunks_of_one_size() {
    let bytes = Sample { pictures: 300, is_constant: false, ..Sample::default() }.make();
    let indexed = |source: &Source| {
        let mut index = Index::new(&source.title);
        (0..source.title.chunk_count()).for_each(|number| index.add(&source.chunk(number)));
        index
    };
    let (cut, even) = (indexed(&source(&bytes)), indexed(&Source::new(bytes.clone(), 700)));
    let starts = |index: &Index| index.pictures().iter().map(|picture| (picture.from, picture.to)).collect::<Vec<_>>();
    assert_eq!(starts(&cut), starts(&even));
    for time in (0..11_000).step_by(250).map(Duration::from_millis) {
        assert_eq!(cut.find(time), even.find(time), "{time:?}");
        assert!(matches!(cut.find(time), Some(Found::At(_))));
    }
}
