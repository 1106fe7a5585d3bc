//! A publisher's packets under SSRCs that nobody announced.

use std::time::Duration;

use crate::common::*;
use rooms::drops::DropReason;
use sim::check::{Holes, check_track};
use sim::publisher::{TrackPlan, extensions};
use sim::viewer::Behaviour;
use sim::world::{PeerId, World};
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{Seq, rtcp};

const OTHER: u32 = 0x0bad_cafe;

/// A keyframe of one packet, of the first track, under an SSRC of its own.
fn send_other(world: &mut World, publisher: PeerId, seq: u64) {
    let payload_type = TrackPlan::payload_type(0);
    let header = RtpHeader { payload_type, marker: true, seq: Seq(seq as u16), timestamp: 0, ssrc: OTHER };
    let mut plain = [0; 64];
    let mut writer = HeaderWriter::new(&mut plain, &header).unwrap();
    writer.extension(extensions().mid.unwrap(), TrackPlan::mid(0).as_bytes());
    let len = writer.finish();
    plain[len] = 0x10;
    let packet = world.publisher(publisher).seal_rtp(&plain[..len + 20], len, OTHER, (1 << 16) + seq);
    let from = world.addr(publisher);
    world.inject(0, from, &packet);
}

#[test]
fn two_ssrcs_in_one_section_leave_the_first_as_it_was() {
    let mut world = World::new(3, quiet());
    let stream = world.open_stream(&[vp8()]);
    let publisher = world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(1));
    for seq in 0..300 {
        send_other(&mut world, publisher, seq);
        world.run(millis(10));
    }
    assert_eq!(world.counters(0).drops.count(DropReason::UnknownSsrc), 300);
    check_track(&world.viewer(viewer).tracks[0], VIDEO_CLOCK, millis(100), Holes::Refused).unwrap();
    assert!(world.viewer(viewer).tracks[0].whole_frames() > 115);
}

/// A world whose publisher has sent for a second and then nothing for that long.
fn silent_for(silence: Duration) -> (World, PeerId) {
    let mut world = World::new(3, quiet());
    let stream = world.open_stream(&[vp8()]);
    let publisher = world.add_publisher(stream);
    world.run(seconds(1));
    let now = world.now;
    world.publisher(publisher).set_sending(now, false);
    world.run(silence);
    (world, publisher)
}

#[test]
fn another_ssrc_takes_the_place_of_one_that_is_silent() {
    let (mut world, publisher) = silent_for(millis(250));
    let before = world.counters(0).packets_in;
    for seq in 0..10 {
        send_other(&mut world, publisher, seq);
        world.run(millis(10));
    }
    assert_eq!(world.counters(0).packets_in, before + 10);
}

#[test]
fn another_ssrc_takes_the_place_of_one_that_says_goodbye() {
    let (mut world, publisher) = silent_for(millis(20));
    let mut bye = [0; 64];
    let ssrc = world.publisher(publisher).ssrc(0, 0);
    let len = rtcp::write_bye(&mut bye, &[ssrc]).unwrap();
    let (bye, from) = (world.publisher(publisher).seal_rtcp(&bye[..len]), world.addr(publisher));
    world.inject(0, from, &bye);
    let before = world.counters(0).packets_in;
    send_other(&mut world, publisher, 0);
    assert_eq!(world.counters(0).packets_in, before + 1);
}
