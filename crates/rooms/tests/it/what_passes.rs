//! Header extensions on their way to a viewer.

use rooms::spec::{DownTrackSpec, ExtensionIds, SessionId, StreamId};
use sim::bare::down_track;
use wire::rtp::RtpPacket;

use crate::world::{PACKETS, World, addr};

const STREAM: StreamId = StreamId(1);
const PUBLISHER: SessionId = SessionId(1);
const VIEWER: SessionId = SessionId(2);
const ID: u8 = 6;

#[test]
fn the_operator_s_playout_delay_goes_with_the_first_packet_of_each_keyframe() {
    for playout_delay in [None, Some([0x01, 0x0f, 0xff])] {
        let mut world = World::with(&[STREAM], |settings| settings.playout_delay = playout_delay);
        world.add_session(PUBLISHER);
        world.publish(PUBLISHER, STREAM);
        world.add_session(VIEWER);
        let extensions = ExtensionIds { playout_delay: Some(ID), ..ExtensionIds::default() };
        world.watch(VIEWER, STREAM, DownTrackSpec { extensions, ..down_track(9) });
        world.drain();
        for is_keyframe in [true, false, true] {
            world.frame(PUBLISHER, is_keyframe);
            let sent = world.drain();
            let came: Vec<_> = sent.iter().filter(|(to, _)| *to == addr(VIEWER)).collect();
            assert_eq!(came.len(), PACKETS);
            for (index, (_, datagram)) in came.into_iter().enumerate() {
                let packet = RtpPacket::parse_header(datagram).unwrap();
                let expected = playout_delay.filter(|_| is_keyframe && index == 0);
                assert_eq!(packet.extension(ID), expected.as_ref().map(|delay| &delay[..]), "packet {index}");
            }
        }
    }
}
