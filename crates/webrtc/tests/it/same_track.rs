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
