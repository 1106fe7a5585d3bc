//! What goes over to another process is who stays, and what comes from one, damaged or not, harms nobody.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/entry/moved.rs"]
mod entry;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "support/world.rs"]
mod world;

use std::path::Path;
use std::time::Duration;

use reflect::backlog::Backlog;
use reflect::course::{After, Course};
use reflect::hls::{Container, Playlist};
use reflect::moved::Handed;
use reflect::reflect::{Reflect, Settings};
use reflect::spec::{Command, EndReason, Join, Terms, ViewerId};
use reflect::window::Units;
use world::{HEAD, OWNER, World};

#[test]
fn the_corpus_of_streams_and_viewers_is_taken_up_or_refused() {
    replay::replay("../../fuzz/corpus/moved", 2_000, entry::moved);
}

/// A format that has changed needs another corpus: one in the old format would be refused at once, and test nothing.
#[test]
fn the_corpus_is_what_goes_over_today() {
    for (name, room) in [("begun", 10), ("far", 100_000), ("waits", 0)] {
        let mut world = world(room);
        world.join(if name == "waits" { Join::Next } else { Join::Newest });
        world.write(&[8; 200]);
        world.command(Command::Release);
        let Some(Handed::Viewer(viewer)) = world.reflect.poll_moved() else { panic!("he goes over") };
        let backlog = postcard::to_allocvec(&world.backlog.state(world.now)).expect("written");
        let viewer = postcard::to_allocvec(&viewer.state).expect("written");
        let playlist = postcard::to_allocvec(&playlist(&world).state(world.now)).expect("written");
        let lens = [backlog.len(), playlist.len()].map(|len| (len as u16).to_le_bytes()).concat();
        let today = [&lens[..], &backlog, &playlist, &viewer].concat();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/moved").join(name);
        if !std::fs::read(&file).is_ok_and(|bytes| bytes == today) {
            let other = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::write(&other, today).expect("written");
            panic!("{} is of another format: {} has what it is to be", file.display(), other.display());
        }
    }
}

/// With segments of two seconds, of which one is not over.
fn playlist(world: &World) -> Playlist {
    let mut playlist = Playlist::new(reflect::hls::Settings {
        container: Container::Ts,
        target: Duration::from_secs(2),
        window: None,
        part_target: Some(Duration::from_millis(500)),
        backlog_size: 1 << 20,
        first_number: 7,
    });
    playlist.set_header(b"header");
    for tenth in 0..55 {
        let now = world.now + Duration::from_millis(100 * tenth);
        if tenth % 20 == 0 {
            playlist.handle_start(tenth, Some(Duration::from_millis(100 * tenth)), now);
        }
        playlist.handle_boundary(tenth + 1, now);
    }
    playlist
}

#[test]
fn who_is_ended_on_his_way_does_not_go_over() {
    let mut world = world(100_000);
    let viewer = world.join(Join::Newest);
    world.reflect.handle_command(world.now, Command::Release);
    world.reflect.handle_command(world.now, Command::EndViewer(ViewerId(viewer)));
    world.run();
    assert!(matches!(world.reflect.poll_moved(), Some(Handed::Done)));
    assert_eq!(world.ended.iter().map(|ended| ended.reason).collect::<Vec<_>>(), [EndReason::Asked]);
}

/// A cipher's state stays: so that he can come again at once, he is closed, and not within a unit.
#[test]
fn who_is_behind_a_cipher_gets_the_rest_of_his_unit_and_is_closed() {
    let mut world = world(10);
    let [slow, begins, waits] = [Join::Newest, Join::Newest, Join::Next].map(|join| world.join_sealed(join));
    let plain = world.join(Join::Newest);
    world.give_room(slow, HEAD.len() + "header".len() + 1_000);
    write_units(&mut world, 2);
    world.tell();
    world.command(Command::Release);
    assert!(matches!(world.reflect.poll_moved(), Some(Handed::Viewer(viewer)) if viewer.id == ViewerId(plain)));
    assert!(matches!(world.reflect.poll_moved(), Some(Handed::Done)));
    assert!(world.ended.is_empty(), "nobody has room for what is owed him");
    for viewer in [slow, begins, waits] {
        world.give_room(viewer, usize::MAX);
        assert!(world.links[&viewer].is_closed);
    }
    assert_eq!(world.received(slow), [&b"header"[..], &[7; 1_316]].concat());
    assert_eq!((world.received(begins), world.received(waits)), (&[][..], &[][..]));
    assert_eq!(world.ended.iter().map(|ended| ended.reason).collect::<Vec<_>>(), [EndReason::Asked; 3]);
    assert_eq!((world.reflect.counters().viewers, world.reflect.counters().rest_bytes), (0, 0));
}

#[test]
fn of_who_came_over_it_is_told_when_and_what_became_of_him_since() {
    let mut world = world(10);
    let id = world.join(Join::Newest);
    world.advance(Duration::from_secs(9));
    world.command(Command::Release);
    let Some(Handed::Viewer(viewer)) = world.reflect.poll_moved() else { panic!("he goes over") };
    world.backlog = Backlog::restore(world.now, world.backlog.state(world.now)).expect("it is as it was");
    world.reflect = Reflect::new(Settings::new(OWNER));
    world.add_stream(Terms::default());
    world.command(Command::TakeUp(viewer));
    world.command(Command::Story { token: 1, viewer: ViewerId(id) });
    let course = world.told.expect("he is here").course;
    let came_over = Some(After::new(Duration::from_secs(9)));
    assert_eq!(course, Course { came_over, full: course.full, most: course.most, ..Course::default() });
}

/// What is over may be a hole in the file.
#[test]
fn who_is_before_what_is_there_is_not_taken_up() {
    let mut world = world(10);
    world.join(Join::Newest);
    world.command(Command::Release);
    let Some(Handed::Viewer(viewer)) = world.reflect.poll_moved() else { panic!("he goes over") };
    write_units(&mut world, 2_000);
    world.tell();
    world.backlog = Backlog::restore(world.now, world.backlog.state(world.now)).expect("it is as it was");
    world.reflect = Reflect::new(Settings::new(OWNER));
    world.add_stream(Terms::default());
    world.command(Command::TakeUp(viewer));
    assert_eq!(world.ended.iter().map(|ended| ended.reason).collect::<Vec<_>>(), [EndReason::NoStream]);
    assert_eq!(world.reflect.counters().viewers, 0);
}

/// A stream of some units behind a header, whose viewers' connections take so many bytes.
fn world(room: usize) -> World {
    let mut world = World::new(Units::Marked);
    world.backlog.set_header(b"header");
    world.room = room;
    write_units(&mut world, 60);
    world.tell();
    world.add_stream(Terms::default());
    world
}

fn write_units(world: &mut World, count: usize) {
    for _ in 0..count {
        world.backlog.mark_start(world.now);
        world.write(&[7; 1_316]);
        world.backlog.mark_boundary();
    }
}
