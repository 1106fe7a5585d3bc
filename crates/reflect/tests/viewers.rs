//! What viewers get, one case at a time.

#[path = "support/world.rs"]
mod world;

use std::time::Duration;

use reflect::backlog::FRESH_MAX;
use reflect::coalesce::Share;
use reflect::course::{After, Behind};
use reflect::spec::{Command, EndReason, Join, Lag, Pace, Terms, ViewerId};
use reflect::window::Units;
use wire::{Begun, Bitrate};
use world::{HEAD, STREAM, WINDOW, World};

/// A stream of single bytes with a header and a start point every second: each second is a hundred equal bytes.
fn seconds(world: &mut World, from: u8, count: u8) {
    for second in from..from + count {
        world.backlog.mark_start(world.now);
        world.write(&[second; 100]);
        world.tell();
        world.advance(Duration::from_secs(1));
    }
}

fn live() -> World {
    let mut world = World::new(Units::Fixed(1));
    world.backlog.set_header(b"header");
    world.add_stream(Terms::default());
    seconds(&mut world, 0, 5);
    world
}

#[test]
fn viewers_begin_where_they_asked_to_behind_the_header() {
    let mut world = live();
    let [next, newest, back, first] =
        [Join::Next, Join::Newest, Join::Back(Duration::from_secs(3)), Join::Back(Duration::from_secs(60))]
            .map(|join| world.join(join));
    assert_eq!(
        (world.links[&next].received.len(), world.received(next)),
        (HEAD.len(), &[][..]),
        "the head goes at once"
    );
    assert_eq!(world.received(newest), [b"header", &[4; 100][..]].concat());
    seconds(&mut world, 5, 1);
    let all: Vec<u8> = (0..6).flat_map(|second| [second; 100]).collect();
    for (viewer, from) in [(next, 500), (newest, 400), (back, 200), (first, 0)] {
        assert_eq!(world.received(viewer), [b"header", &all[from..]].concat(), "{viewer}");
    }
}

#[test]
fn who_takes_little_gets_all_of_it_later() {
    let mut world = live();
    world.room = HEAD.len() - 1;
    let viewer = world.join(Join::Newest);
    for _ in 0..3 {
        world.give_room(viewer, 1);
    }
    assert_eq!(world.received(viewer), b"he");
    seconds(&mut world, 5, 1);
    assert_eq!(world.received(viewer), b"he");
    world.give_room(viewer, 14);
    assert_eq!(world.received(viewer), [b"header", &[4; 10][..]].concat());
    world.give_room(viewer, usize::MAX);
    assert_eq!(world.received(viewer), [b"header", &[4; 100][..], &[5; 100]].concat());
}

#[test]
fn many_viewers_have_their_turns_in_shares_one_after_the_other() {
    let mut world = live();
    let viewers: Vec<u64> = (0..7).map(|_| world.join(Join::Newest)).collect();
    let lengths =
        |world: &World| -> Vec<usize> { viewers.iter().map(|viewer| world.received(*viewer).len()).collect() };
    let (before, mut turns) = (lengths(&world)[0], vec![0; 7]);
    world.pieces = [0; 2];
    for told in 1..=12 {
        let had = lengths(&world);
        world.write(&[7; 10]);
        world.tell_some(Share::of(Duration::from_secs(1), Duration::from_secs(3)));
        for (viewer, (had, has)) in std::iter::zip(had, lengths(&world)).enumerate() {
            assert!(has == had || has == before + 10 * told, "{viewer} has all or had no turn: {has}");
            turns[viewer] += usize::from(has > had);
        }
    }
    assert!(turns.iter().all(|turns| (3..=4).contains(turns)), "{turns:?}");
    assert_eq!(world.pieces[0], 0, "all by a copy");
    world.tell();
    assert_eq!(lengths(&world), [before + 120; 7]);
}

#[test]
fn who_takes_the_place_of_one_that_left_has_the_last_bytes_before_a_pause_too() {
    for gone in 0..7 {
        let mut world = live();
        let viewers: Vec<u64> = (0..7).map(|_| world.join(Join::Newest)).collect();
        let before = world.received(viewers[0]).len();
        world.write(&[7; 10]);
        // They have their turns in shares, and nothing comes behind these bytes.
        for turn in 0..3 {
            world.tell_some(Share::of(Duration::from_secs(1), Duration::from_millis(2_900)));
            if turn == 0 {
                world.break_off(viewers[gone]);
            }
        }
        for (number, viewer) in viewers.iter().enumerate().filter(|(number, _)| *number != gone) {
            assert_eq!(world.received(*viewer).len(), before + 10, "{number}, when {gone} has left");
        }
    }
}

#[test]
fn who_is_there_gets_few_bytes_from_memory_and_many_from_the_file() {
    let mut world = live();
    world.join(Join::Newest);
    world.pieces = [0; 2];
    world.write(&[7; FRESH_MAX]);
    world.tell();
    assert_eq!(world.pieces, [0, 1]);
    world.write(&[7; FRESH_MAX + 1]);
    world.tell();
    assert_eq!(world.pieces, [1, 1]);
}

#[test]
fn who_falls_out_of_the_window_ends_his_unit_and_goes_on_at_the_newest_start_point() {
    let mut world = World::new(Units::Fixed(188));
    world.add_stream(Terms::default());
    world.room = HEAD.len() + 2 * 188 + 1;
    world.backlog.mark_start(world.now);
    world.write(&[1; 188 * 100]);
    world.tell();
    let viewer = world.join(Join::Newest);
    for _ in 0..4 {
        world.backlog.mark_start(world.now);
        world.write(&[2; 188 * 100]);
        world.tell();
    }
    world.backlog.mark_start(world.now);
    world.write(&[3; 188]);
    world.tell();
    assert_eq!((world.received(viewer).len(), world.reflect.counters().rest_bytes), (2 * 188 + 1, 187));
    world.give_room(viewer, usize::MAX);
    assert!(world.received(viewer) == [&[1; 3 * 188][..], &[3; 188]].concat());
    world.command(Command::EndViewer(ViewerId(viewer)));
    let ended = world.ended[0];
    assert_eq!((ended.course.skips, ended.sent_bytes as usize), (1, HEAD.len() + 4 * 188));
    assert_eq!(ended.reason, EndReason::Asked);
}

#[test]
fn who_falls_out_of_the_window_is_closed_where_that_is_wanted() {
    let mut world = World::new(Units::Fixed(1));
    world.add_stream(Terms { lag: Lag::Close, ..Terms::default() });
    world.room = HEAD.len();
    world.backlog.mark_start(world.now);
    world.write(&[0; WINDOW as usize]);
    world.tell();
    let viewer = world.join(Join::Newest);
    assert!(world.ended.is_empty());
    world.write(&[0]);
    world.tell();
    assert!(world.links[&viewer].is_closed && world.ended[0].reason == EndReason::Lagged);
}

#[test]
fn who_is_moved_gets_the_header_that_holds_there_and_never_the_same_twice() {
    for is_new in [false, true] {
        let mut world = live();
        world.room = HEAD.len() + 6 + 1;
        let viewer = world.join(Join::Newest);
        if is_new {
            world.backlog.set_header(b"other");
        }
        world.write(&[9; WINDOW as usize]);
        world.backlog.mark_start(world.now);
        world.tell();
        world.give_room(viewer, usize::MAX);
        world.write(b"!");
        world.tell();
        let between: &[u8] = if is_new { b"other" } else { b"" };
        assert_eq!(world.received(viewer), [b"header", &[4][..], between, b"!"].concat());
    }
}

#[test]
fn viewers_of_a_stream_that_ends_get_all_of_it_in_limited_time() {
    let mut world = live();
    let quick = world.join(Join::Newest);
    world.room = HEAD.len() + 50;
    let [slow, stuck] = [Join::Newest; 2].map(|join| world.join(join));
    world.command(Command::RemoveStream(STREAM));
    assert_eq!([quick, slow, stuck].map(|viewer| world.links[&viewer].is_closed), [true, false, false]);
    assert_eq!(world.received(quick).len(), 106);
    world.give_room(slow, 56);
    assert!(world.links[&slow].is_closed && world.received(slow).len() == 106);
    world.advance(Duration::from_secs(29));
    assert!(!world.has_left && !world.links[&stuck].is_closed);
    world.advance(Duration::from_secs(1));
    assert!(world.has_left && world.links[&stuck].is_closed);
    assert_eq!(world.ended.iter().map(|ended| ended.reason).collect::<Vec<_>>(), [EndReason::StreamEnded; 3]);
    world.join(Join::Newest);
    assert_eq!(world.ended[3].reason, EndReason::NoStream);
}

#[test]
fn one_viewer_too_many_is_refused() {
    let mut world = World::with(Units::Fixed(1), |settings| settings.viewers_max = 1);
    world.add_stream(Terms::default());
    let first = world.join(Join::Next);
    world.join(Join::Next);
    assert_eq!(world.ended.iter().map(|ended| ended.reason).collect::<Vec<_>>(), [EndReason::Full]);
    world.break_off(first);
    world.join(Join::Next);
    assert_eq!(world.ended.len(), 2);
    assert_eq!((world.ended[1].reason, world.reflect.counters().viewers), (EndReason::Closed, 1));
}

#[test]
fn pace_follows_the_rate_and_is_higher_until_somebody_has_caught_up() {
    let mut world = live();
    let terms = |kbps| Terms { rate: Bitrate::from_kbps(kbps), ..Terms::default() };
    world.command(Command::ChangeStream { stream: STREAM, terms: terms(1_000) });
    let viewer = world.join(Join::Back(Duration::from_secs(3)));
    let own = world.join_at(Join::Newest, Some(Pace::Free));
    seconds(&mut world, 5, 1);
    world.command(Command::ChangeStream { stream: STREAM, terms: terms(3_000) });
    seconds(&mut world, 6, 2);
    let kbps: Vec<u64> = world.links[&viewer].paces.iter().map(|rate| rate.bps() / 1_000).collect();
    assert_eq!((kbps, world.links[&own].paces.len()), (vec![16_000, 2_000, 6_000], 0));
}

#[test]
fn hundreds_are_paced_to_no_part_of_the_rate() {
    let mut world = live();
    let rate = Bitrate::from_kbps(1_000);
    world.command(Command::ChangeStream { stream: STREAM, terms: Terms { rate, ..Terms::default() } });
    let (viewer, own) = (world.join(Join::Newest), world.join_at(Join::Newest, Some(Pace::Rate(rate))));
    let last = |world: &World, viewer: u64| world.links[&viewer].paces.last().map(|rate| rate.bps());
    let others: Vec<u64> = (0..250).map(|_| world.join(Join::Newest)).collect();
    seconds(&mut world, 5, 2);
    assert_eq!((last(&world, viewer), last(&world, own)), (Some(u64::MAX), Some(1_000_000)));
    assert_eq!(last(&world, others[249]), None, "he came late");
    for other in &others[..66] {
        world.command(Command::EndViewer(ViewerId(*other)));
    }
    seconds(&mut world, 7, 2);
    assert_eq!(last(&world, viewer), Some(2_000_000));
}

#[test]
fn who_talks_too_much_is_closed() {
    let mut world = live();
    let viewers = [world.join(Join::Newest), world.join(Join::Newest)];
    world.bring(viewers[0], &mut [0; 64 * 1_024]);
    seconds(&mut world, 5, 1);
    assert_eq!((world.received(viewers[0]).len(), world.ended.len()), (206, 0));
    world.bring(viewers[0], &mut [0]);
    seconds(&mut world, 6, 1);
    assert_eq!((world.ended.len(), world.ended[0].reason), (1, EndReason::Talked));
    assert_eq!((world.reflect.counters().ignored_bytes, world.reflect.counters().viewers), (65_537, 1));
}

#[test]
fn who_sends_no_more_is_gone_though_nothing_is_sent_to_him() {
    let mut world = live();
    let viewers = [world.join(Join::Newest), world.join(Join::Newest)];
    world.end_input(viewers[0]);
    assert!(world.links[&viewers[0]].is_closed && !world.links[&viewers[1]].is_closed);
    let ended: Vec<_> = world.ended.iter().map(|ended| (ended.id, ended.reason)).collect();
    assert_eq!(ended, [(ViewerId(viewers[0]), EndReason::Closed)]);
}

#[test]
fn more_viewers_than_an_outbox_has_room_for_all_get_it() {
    let mut world = live();
    let viewers: Vec<u64> = (0..700).map(|_| world.join(Join::Newest)).collect();
    seconds(&mut world, 5, 1);
    assert!(viewers.iter().all(|viewer| world.received(*viewer).len() == 206));
}

#[test]
fn newcomers_do_not_wait_for_who_is_there() {
    let mut world = live();
    let viewers: Vec<u64> = (0..700).map(|_| world.join(Join::Newest)).collect();
    world.write(&[5; 188]);
    let told = [world.grown(Share::ALL), world.newcomer(Join::Newest, None, Begun::default())];
    told.into_iter().for_each(|command| world.reflect.handle_command(world.now, command));
    world.step();
    let is_served = |viewer: &&u64| world.received(**viewer).ends_with(&[5]);
    assert!(viewers.iter().filter(is_served).count() < viewers.len(), "one outbox is not enough for all");
    assert_eq!(world.links.len(), viewers.len() + 1);
}

#[test]
fn what_became_of_a_viewer_is_told_while_he_is_here_and_when_he_is_gone() {
    let mut world = World::new(Units::Fixed(188));
    world.add_stream(Terms::default());
    world.backlog.mark_start(world.now);
    world.write(&[1; 188 * 100]);
    world.tell();
    // The kernel takes his head and a unit.
    world.room = HEAD.len() + 188;
    let viewer = world.join(Join::Newest);
    for _ in 0..8 {
        world.advance(Duration::from_secs(1));
        world.backlog.mark_start(world.now);
        world.write(&[2; 188 * 50]);
        world.tell();
    }
    world.command(Command::Story { token: 1, viewer: ViewerId(viewer) });
    let told = world.told.take().expect("he is here");
    let seconds = |seconds| After::new(Duration::from_secs(seconds));
    assert_eq!(told.course.joined, Some(Behind { after: seconds(0), bytes: 188 * 100 }));
    assert_eq!((told.sent_bytes, told.age), ((HEAD.len() + 188) as u64, Duration::from_secs(8)));
    assert_eq!((told.course.full, told.course.skips), (1, 1));
    let (first, last) = told.course.skipped.expect("he fell out of the window");
    let most = told.course.most.expect("he was behind");
    assert!(first == last && first == most.after && seconds(1) < first, "{told:?}");
    assert!((WINDOW..2 * WINDOW).contains(&most.bytes), "{told:?}");

    world.give_room(viewer, usize::MAX);
    world.command(Command::Story { token: 2, viewer: ViewerId(viewer) });
    let told = world.told.take().expect("he is here");
    assert_eq!((told.behind, told.course.most), (0, Some(most)), "he has caught up");
    world.advance(Duration::from_secs(60));
    world.command(Command::EndViewer(ViewerId(viewer)));
    let ended = world.ended[0];
    assert_eq!((ended.course, ended.age), (told.course, Duration::from_secs(68)));
    world.command(Command::Story { token: 3, viewer: ViewerId(viewer) });
    assert_eq!(world.told, None, "he is gone");
}

#[test]
fn how_far_somebody_was_behind_is_seen_when_he_has_room_again_and_when_he_goes() {
    let mut world = live();
    world.room = HEAD.len();
    let [reads, leaves] = [Join::Newest, Join::Newest].map(|join| world.join(join));
    seconds(&mut world, 5, 2);
    world.give_room(reads, usize::MAX);
    world.command(Command::Story { token: 1, viewer: ViewerId(reads) });
    let told = world.told.take().expect("he is here");
    let two = Behind { after: After::new(Duration::from_secs(2)), bytes: 300 };
    assert_eq!((told.behind, told.course.most), (0, Some(two)));
    seconds(&mut world, 7, 1);
    world.break_off(leaves);
    let three = Behind { after: After::new(Duration::from_secs(3)), bytes: 400 };
    assert_eq!(world.ended[0].course.most, Some(three));
}
