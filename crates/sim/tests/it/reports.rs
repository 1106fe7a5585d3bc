//! What peers tell about packets, and what they are told.

use crate::common::*;
use rooms::spec::{Command, Event};
use sim::network::LinkConfig;
use sim::publisher::{TrackPlan, extensions};
use sim::viewer::Behaviour;
use sim::world::World;
use wire::Seq;
use wire::rtcp::{self, ReportBlock};
use wire::rtp::{HeaderWriter, RtpHeader, RtpPacket};

#[test]
fn a_publisher_hears_of_padding_as_soon_as_of_media() {
    let mut world = World::new(1, quiet());
    let stream = world.open_stream(&[vp8()]);
    let publisher = world.add_publisher(stream);
    let (from, to) = (world.addr(publisher), world.worker_addr(0));
    world.network.capture(from, to);
    world.run(seconds(2));
    let sent = world.network.take_capture(from, to);
    let mut sent = sent.iter().rev().filter_map(|datagram| RtpPacket::parse_header(datagram).ok());
    let last = sent.find_map(|packet| packet.extension(extensions().transport_cc?)).expect("numbers").first_chunk();
    let last = Seq(u16::from_be_bytes(*last.expect("two bytes")));
    let now = world.now;
    world.publisher(publisher).set_sending(now, false);
    world.run(seconds(1));
    for number in 1..6_u16 {
        let ssrc = world.publisher(publisher).rtx_ssrc(0, 0);
        let payload_type = TrackPlan::payload_type(0) + 1;
        let header = RtpHeader { payload_type, marker: false, seq: Seq(number), timestamp: 0, ssrc };
        let mut plain = [0; 64];
        let mut writer = HeaderWriter::new(&mut plain, &header).unwrap();
        writer.extension(extensions().mid.unwrap(), TrackPlan::mid(0).as_bytes());
        writer.extension(extensions().transport_cc.unwrap(), &last.plus(number).0.to_be_bytes());
        let len = writer.finish();
        let padding = world.publisher(publisher).seal_rtp(&plain[..len], len, ssrc, (1 << 16) + u64::from(number));
        let before = world.publisher(publisher).counters.transport_feedbacks;
        world.inject(0, from, &padding);
        world.run(millis(150));
        assert_eq!(world.publisher(publisher).counters.transport_feedbacks, before + 1, "packet {number}");
    }
}

#[test]
fn a_viewer_loses_as_much_as_the_worst_of_its_tracks() {
    let mut world = World::new(1, quiet());
    let stream = world.open_stream(&[vp8(), opus()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::DEAF);
    let (from, to) = (world.worker_addr(0), world.addr(viewer));
    world.network.capture(from, to);
    world.run(seconds(2));
    let sent = world.network.take_capture(from, to);
    let highest = |ssrc| {
        let mut sent = sent.iter().rev().filter_map(|datagram| RtpPacket::parse_header(datagram).ok());
        sent.find(|packet| packet.ssrc() == ssrc).expect("a packet of each track").seq().0.into()
    };
    let ssrcs: Vec<_> = world.viewer(viewer).tracks.iter().map(|track| track.ssrc).collect();
    let blocks = ssrcs.into_iter().zip([128, 0]);
    let blocks: Vec<_> = blocks
        .map(|(ssrc, fraction_lost)| ReportBlock {
            ssrc,
            fraction_lost,
            highest_seq: highest(ssrc),
            ..ReportBlock::default()
        })
        .collect();
    let mut buf = [0; 100];
    let len = rtcp::write_receiver_report(&mut buf, 1, &blocks).unwrap();
    world.viewer(viewer).send_rtcp(&buf[..len]);
    world.run(millis(100));

    let session = world.session(viewer);
    world.command(0, Command::Inspect { session, token: 1 });
    let losses = world.events.iter().filter_map(|(_, event)| match event {
        Event::Stats { stats, .. } => Some(stats.as_ref()?.loss),
        _ => None,
    });
    assert_eq!(losses.collect::<Vec<_>>(), [0.5]);
}

#[test]
fn what_a_publisher_loses_takes_no_layer_from_who_gives_reports_alone() {
    for seed in [1, 2, 3] {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[simulcast(), opus()]);
        let publisher = world.add_publisher(stream);
        let viewer = world.add_viewer_with(0, stream, Behaviour::GOOD, |tracks| {
            tracks.iter_mut().for_each(|track| track.extensions.transport_cc = None);
        });
        world.run(seconds(5));
        let (from, to) = (world.addr(publisher), world.worker_addr(0));
        world.network.set_link(from, to, LinkConfig { loss: 0.15, ..quiet() });
        for second in 0..30 {
            world.run(seconds(1));
            let session = world.session(viewer);
            world.command(0, Command::Inspect { session, token: 1 });
            let Some((_, Event::Stats { stats: Some(stats), .. })) = world.events.pop() else { panic!("no stats") };
            assert!(stats.loss < 0.05, "seed {seed}: {} after {second} s", stats.loss);
            assert_eq!(stats.layers[0].target, 2, "seed {seed}: after {second} s");
        }
    }
}

#[test]
fn what_a_publisher_loses_is_told_of_its_session() {
    for seed in [1, 2, 3] {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[vp8(), opus()]);
        let publisher = world.add_publisher(stream);
        let (from, to, session) = (world.addr(publisher), world.worker_addr(0), world.session(publisher));
        let loss_after = |world: &mut World, span| {
            world.run(span);
            world.command(0, Command::Inspect { session, token: 1 });
            let Some((_, Event::Stats { stats: Some(stats), .. })) = world.events.pop() else { panic!("no stats") };
            stats.loss
        };
        assert_eq!(loss_after(&mut world, seconds(5)), 0.0);
        world.network.set_link(from, to, LinkConfig { loss: 0.1, ..quiet() });
        world.run(seconds(10));
        for _ in 0..10 {
            let loss = loss_after(&mut world, seconds(1));
            assert!((0.04..0.2).contains(&loss), "seed {seed}: {loss}");
        }
        world.network.set_link(from, to, quiet());
        assert!(loss_after(&mut world, seconds(20)) < 0.01, "seed {seed}");
    }
}

#[test]
fn who_takes_whole_compounds_only_gets_no_others() {
    for cname in [None, Some("stage")] {
        let mut world = World::new(1, rough());
        cname.into_iter().for_each(|cname| world.set_cname(cname));
        let stream = world.open_stream(&[vp8(), opus()]);
        let publisher = world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(5));
        let at_publisher = world.publisher(publisher).counters;
        let at_viewer = world.viewer(viewer).counters;
        assert!(at_publisher.nacked > 0 && at_publisher.reports_received > 0 && at_viewer.sender_reports > 0);
        assert_eq!((at_publisher.reduced > 0, at_viewer.reduced > 0), (cname.is_none(), cname.is_none()));
    }
}

#[test]
fn a_viewer_hears_goodbye_of_each_of_its_sources() {
    let mut world = World::new(1, quiet());
    let stream = world.open_stream(&[vp8(), opus()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    world.run(seconds(1));
    world.command(0, Command::CloseStream(stream));
    world.run(seconds(1));
    assert_eq!(world.viewer(viewer).counters.goodbyes, 3, "with that of retransmissions");
}
