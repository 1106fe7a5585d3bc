//! The harness alone: a viewer that is fed by a publisher directly repairs what it can, and finds no fault.
//! What fails in other tests but not here is the fault of rooms.

use std::net::SocketAddr;
use std::time::Instant;

use crate::common::*;
use rooms::spec::DownTrackSpec;
use sim::check::{Holes, check_track};
use sim::network::{LinkConfig, Network};
use sim::publisher::{Publisher, TrackPlan, extensions};
use sim::viewer::{Behaviour, Viewer};
use srtp::{Profile, SessionKeys};
use wire::Random;

struct Pair {
    network: Network,
    publisher: Publisher,
    viewer: Viewer,
}

fn run(link: LinkConfig, plans: &[TrackPlan], seed: u64) -> Pair {
    let start = Instant::now();
    let mut random = Random::new(seed);
    let (ours, theirs) = SessionKeys::made_up_pair(Profile::AeadAes128Gcm, 1);
    let mut publisher = Publisher::new(start, start, &ours, plans, 0, &mut random);
    let specs: Vec<_> = plans
        .iter()
        .enumerate()
        .map(|(index, _)| DownTrackSpec {
            track: index as u8,
            mid: TrackPlan::mid(index),
            ssrc: publisher.ssrc(index, 0),
            payload_type: TrackPlan::payload_type(index),
            rtx: Some((publisher.rtx_ssrc(index, 0), TrackPlan::payload_type(index) + 1)),
            red: None,
            extensions: extensions(),
        })
        .collect();
    let mut viewer = Viewer::new(start, start, &theirs, plans, &specs, Behaviour::GOOD, &mut random);
    let mut network = Network::new(seed, link);
    let (one, other): (SocketAddr, SocketAddr) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
    for step in 0..15_000 {
        let now = start + millis(step);
        publisher.handle_timeout(now);
        viewer.handle_timeout(now);
        while let Some(mut datagram) = network.poll(now) {
            if datagram.to == one {
                publisher.handle_datagram(now, &mut datagram.bytes);
            } else {
                viewer.handle_datagram(now, &mut datagram.bytes);
            }
        }
        std::iter::from_fn(|| publisher.poll_transmit()).for_each(|bytes| network.send(now, one, other, &bytes));
        std::iter::from_fn(|| viewer.poll_transmit()).for_each(|bytes| network.send(now, other, one, &bytes));
    }
    Pair { network, publisher, viewer }
}

#[test]
fn a_quiet_path_gives_everything() {
    let Pair { publisher, viewer, .. } = run(quiet(), &[vp8(), h264(), opus()], 1);
    for (index, clock_rate) in [VIDEO_CLOCK, VIDEO_CLOCK, AUDIO_CLOCK].into_iter().enumerate() {
        let summary = check_track(&viewer.tracks[index], clock_rate, millis(0), Holes::Refused).unwrap();
        assert!(summary.frames as u32 + 1 >= publisher.frame_count(index, 0), "{summary:?}");
    }
    assert_eq!((viewer.counters.refused, viewer.counters.spoilt, viewer.counters.duplicates), (0, 0, 0));
    assert!(publisher.counters.transport_feedbacks > 250 && publisher.counters.reports_received > 10);
}

#[test]
fn a_rough_path_is_repaired() {
    for seed in 0..5 {
        let Pair { network, viewer, publisher } = run(rough(), &[vp8(), opus()], seed);
        let track = &viewer.tracks[0];
        let summary = check_track(track, VIDEO_CLOCK, seconds(2), Holes::Refused)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert!(summary.frames > 350, "seed {seed}: {summary:?}");
        assert_eq!(track.holes().into_iter().filter(|seq| seq + 50 < *track.records.keys().last().unwrap()).count(), 0);
        assert!(publisher.counters.packets_resent > 50);
        drop(network);
    }
}
