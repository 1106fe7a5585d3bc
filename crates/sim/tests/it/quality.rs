//! What viewers on all kinds of paths get: the layer, and how soon.

use crate::common::*;
use sim::viewer::Behaviour;
use sim::world::World;

#[test]
fn a_viewer_with_transport_wide_numbers_on_video_alone_gets_the_largest_layer() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[simulcast(), opus()]);
        world.add_publisher(stream);
        // As Firefox offers it.
        let viewer =
            world.add_viewer_with(0, stream, Behaviour::GOOD, |tracks| tracks[1].extensions.transport_cc = None);
        world.run(seconds(10));
        assert_eq!(layer_now(&mut world, viewer), 2, "seed {seed}");
        world.run(seconds(20));
        assert_eq!(layer_now(&mut world, viewer), 2, "seed {seed}: and keeps it");
    }
}
