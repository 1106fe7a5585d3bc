//! A track that comes by one stream, and then by another.

use std::time::Instant;

use webrtc::{Conference, Context, Described, Down};
use wire::codec::Codec;

use crate::conference::{CHROME, World, down, downs_of, options, ssrcs_of};

/// A track of this name by another stream, in another codec.
fn same_track(id: u64, codec: Codec, as_of: &Down) -> Down {
    Down { media_stream: as_of.media_stream.clone(), track: as_of.track.clone(), ..down(id, codec) }
}

#[test]
fn a_track_that_comes_by_another_stream_keeps_its_section_under_ssrcs_of_its_own() {
    let first = down(1, Codec::Vp9);
    let backup = same_track(2, Codec::Vp8, &first);

    let (mut peer, mut conference) =
        Conference::answerer(&Context::new().unwrap(), Instant::now(), options(false)).unwrap();
    let mut answer = |down: &Down| {
        conference.set_downs(vec![down.clone()]).unwrap();
        conference.answer(&mut peer, Instant::now(), CHROME).unwrap()
    };
    check_taken_over(&answer(&first), &answer(&backup));

    let mut world = World::new(true, false);
    let mut offer = |down: &Down| {
        world.conference.set_downs(vec![down.clone()]).unwrap();
        world.we_offer().unwrap()
    };
    check_taken_over(&offer(&first), &offer(&backup));
}

/// The track's section is the same, and nothing else is.
fn check_taken_over(first: &Described, backup: &Described) {
    let [(1, mid)] = downs_of(&first.sections)[..] else { panic!("{first:?}") };
    assert_eq!(downs_of(&backup.sections), [(2, mid)]);
    let before = ssrcs_of(&first.sections);
    assert!(ssrcs_of(&backup.sections).iter().all(|ssrc| !before.contains(ssrc)));
}

/// The track, subscribed to anew.
fn again(down: &Down) -> Down {
    Down { subscription: down.subscription + 1, ..down.clone() }
}

#[test]
fn a_track_that_is_subscribed_to_anew_comes_in_another_section() {
    let (first, context) = (down(1, Codec::Vp9), Context::new().unwrap());
    let (mut peer, mut conference) = Conference::answerer(&context, Instant::now(), options(false)).unwrap();
    let mut answer = |down: &Down| {
        conference.set_downs(vec![down.clone()]).unwrap();
        conference.answer(&mut peer, Instant::now(), CHROME).unwrap()
    };
    check_in_another(&answer(&first), &answer(&again(&first)));

    let mut world = World::new(true, false);
    world.conference.set_downs(vec![first.clone(), down(2, Codec::Vp8)]).unwrap();
    world.we_offer().unwrap();
    world.conference.set_downs(vec![first.clone()]).unwrap();
    let before = world.we_offer().unwrap();
    world.conference.set_downs(vec![again(&first)]).unwrap();
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    // Where the first was nothing is now.
    let flows = offer.lines().filter(|line| ["a=sendonly", "a=inactive"].contains(line));
    assert_eq!(flows.collect::<Vec<_>>(), ["a=inactive", "a=sendonly"]);
    assert!(matches!(downs_of(&before.sections)[..], [(1, "0")]), "{before:?}");
}

/// The section of the first is empty, and the second's SSRCs are others.
fn check_in_another(first: &Described, second: &Described) {
    let ([(1, before)], [(1, after)]) = (&downs_of(&first.sections)[..], &downs_of(&second.sections)[..]) else {
        panic!("{first:?} {second:?}");
    };
    assert_ne!(before, after);
    let before = ssrcs_of(&first.sections);
    assert!(ssrcs_of(&second.sections).iter().all(|ssrc| !before.contains(ssrc)));
}

#[test]
fn a_track_that_is_subscribed_to_anew_and_has_but_one_section_is_gone_first() {
    let first = down(1, Codec::Vp9);
    let mut world = World::new(true, false);
    world.conference.set_downs(vec![first.clone()]).unwrap();
    world.we_offer().unwrap();
    world.conference.set_downs(vec![again(&first)]).unwrap();
    let gone = world.we_offer().unwrap();
    assert_eq!((downs_of(&gone.sections), gone.sections.len()), (vec![], 1));
    let offer = world.conference.offer(&mut world.peer).unwrap().unwrap();
    assert_eq!((offer.matches("m=").count(), offer.matches("a=msid:PA_1|TR_1 TR_1").count()), (1, 1), "{offer}");
}
