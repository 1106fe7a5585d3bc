//! What comes from another process, damaged or not, harms nobody.
#![allow(clippy::unwrap_used)]

#[path = "../../../fuzz/entry/moved.rs"]
mod entry;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "support/world.rs"]
mod world;

use reflect::moved::Handed;
use reflect::spec::{Command, Join, Terms};
use reflect::window::Units;
use world::World;

#[test]
fn the_corpus_of_streams_and_viewers_is_taken_up_or_refused() {
    replay::replay("../../fuzz/corpus/moved", 2_000, entry::moved);
}

/// Writes the corpus anew, where the types have changed (`upgrade::channel::FORMAT`).
#[test]
#[ignore = "by hand"]
fn write_the_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/moved");
    std::fs::create_dir_all(folder).expect("made");
    for (name, room) in [("begun", 10), ("far", 100_000), ("waits", 0)] {
        let mut world = World::new(Units::Marked);
        world.backlog.set_header(b"header");
        world.room = room;
        for _ in 0..60 {
            world.backlog.mark_start(world.now);
            world.write(&[7; 1_316]);
            world.backlog.mark_boundary();
        }
        world.tell();
        world.add_stream(Terms::default());
        world.join(if name == "waits" { Join::Next } else { Join::Newest });
        world.write(&[8; 200]);
        world.command(Command::Release);
        let Some(Handed::Viewer(viewer)) = world.reflect.poll_moved() else { panic!("he goes over") };
        let backlog = postcard::to_allocvec(&world.backlog.state(world.now)).expect("written");
        let viewer = postcard::to_allocvec(&viewer.state).expect("written");
        let len = (backlog.len() as u16).to_le_bytes();
        std::fs::write(format!("{folder}/{name}"), [&len[..], &backlog, &viewer].concat()).expect("written");
    }
}
