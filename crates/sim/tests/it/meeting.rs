//! Meetings: all publish, all watch all others, on paths of all kinds.

use crate::common::*;
use sim::viewer::Behaviour;
use sim::world::World;

/// Of somebody who is muted there is nothing to send again, and that is no reason not to look for more bandwidth.
#[test]
fn somebody_who_sends_nothing_keeps_nobody_from_the_largest_picture() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let streams = [0; 2].map(|_| world.open_stream(&[simulcast()]));
        let publishers = streams.map(|stream| world.add_publisher(stream));
        let now = world.now;
        world.publisher(publishers[1]).set_sending(now, false);
        let member = world.add_member_on(0, &streams, Behaviour::GOOD);
        world.run(seconds(10));
        assert_eq!(layer_now(&mut world, member), 2, "seed {seed}");
    }
}
