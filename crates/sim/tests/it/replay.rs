//! SRTP and SRTCP that came before are refused, and do nothing.

use crate::common::*;
use rooms::drops::DropReason;
use sim::viewer::Behaviour;
use sim::world::World;
use srtp::Profile;

#[test]
fn replayed_media_and_reports_are_counted_and_dropped() {
    for profile in Profile::ALL {
        let mut world = World::new(1, quiet());
        world.set_profile(profile);
        let stream = world.open_stream(&[vp8(), opus()]);
        let publisher = world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        let to = world.worker_addr(0);
        let talkers = [world.addr(publisher), world.addr(viewer)];
        talkers.iter().for_each(|from| world.network.capture(*from, to));
        world.run(seconds(3));

        for from in talkers {
            // The last ones are still on their way.
            let mut captured = world.network.take_capture(from, to);
            captured.truncate(captured.len() - 20);
            let before = world.counters(0);
            let sent_before = world.network.sent_bytes(to, talkers[1]);
            for datagram in &captured {
                world.inject(0, from, datagram);
            }
            let after = world.counters(0);
            let refused = after.drops.count(DropReason::Replayed) - before.drops.count(DropReason::Replayed);
            assert_eq!(refused, captured.len() as u64, "{profile:?} from {from}");
            assert!(captured.len() > 30, "{profile:?} from {from}: {}", captured.len());
            assert_eq!(after.packets_in, before.packets_in, "{profile:?} from {from}");
            assert_eq!(
                world.network.sent_bytes(to, talkers[1]),
                sent_before,
                "{profile:?} from {from}: nothing is sent"
            );
        }
    }
}
