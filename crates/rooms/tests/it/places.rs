//! One address is one peer's at a time: who was heard there keeps it, and has it again when another goes.

use std::time::Duration;

use rooms::drops::DropReason;
use rooms::spec::{Command, SessionId, StreamId};
use sim::bare::path;
use wire::Path;

use crate::world::{PACKETS, World, addr};

const STREAM: StreamId = StreamId(1);
const ANN: SessionId = SessionId(1);
const BEN: SessionId = SessionId(2);

/// Ann publishes; Ben does nothing.
fn world() -> World {
    let mut world = World::new(&[STREAM]);
    [ANN, BEN].into_iter().for_each(|session| world.add_session(session));
    world.publish(ANN, STREAM);
    world
}

fn move_to(world: &mut World, session: SessionId, place: SessionId) {
    let path = Path { remote: addr(place), ..path(0, 0) };
    world.command(Command::MovePath { session, path });
}

/// How many packets of Ann's next frame are taken.
fn taken(world: &mut World) -> usize {
    let refused = |world: &World| {
        let drops = world.rooms.counters().drops;
        [DropReason::UnknownPeer, DropReason::NotAPublisher, DropReason::NotAuthentic].map(|reason| drops.count(reason))
    };
    let before: u64 = refused(world).iter().sum();
    world.frame(ANN, true);
    PACKETS - (refused(world).iter().sum::<u64>() - before) as usize
}

#[test]
fn who_moves_to_the_place_of_a_session_that_is_heard_gets_none_of_its_packets() {
    let mut world = world();
    assert_eq!(taken(&mut world), PACKETS);
    move_to(&mut world, BEN, ANN);
    assert_eq!(taken(&mut world), PACKETS);
    move_to(&mut world, BEN, BEN);
    assert_eq!(taken(&mut world), PACKETS);
    world.command(Command::RemoveSession(BEN));
    assert_eq!(taken(&mut world), PACKETS);
}

#[test]
fn a_place_that_was_taken_meanwhile_is_the_former_sessions_again_when_the_other_goes() {
    let leaves = |world: &mut World| move_to(world, BEN, BEN);
    let ends = |world: &mut World| world.command(Command::RemoveSession(BEN));
    for goes in [&leaves as &dyn Fn(&mut World), &ends] {
        let mut world = world();
        world.now += Duration::from_secs(4);
        move_to(&mut world, BEN, ANN);
        assert_eq!(taken(&mut world), 0, "nothing was heard of Ann for long");
        goes(&mut world);
        assert_eq!(taken(&mut world), PACKETS);
    }
}

#[test]
fn a_session_has_its_place_back_when_it_is_heard_and_the_other_is_not() {
    let mut world = world();
    world.now += Duration::from_secs(4);
    move_to(&mut world, BEN, ANN);
    world.now += Duration::from_secs(4);
    world.command(Command::Consent { session: ANN });
    assert_eq!(taken(&mut world), PACKETS);
}
