//! What viewers on all kinds of paths get: the layer, how soon, and how steadily.

use std::time::Duration;

use crate::common::*;
use rooms::spec::{Command, Event};
use sim::check::{Holes, check_track};
use sim::media::Tag;
use sim::network::{LinkConfig, Policer};
use sim::publisher::TrackPlan;
use sim::viewer::{Behaviour, ReceivedTrack};
use sim::world::World;
use wire::codec::Codec;
use wire::{Bitrate, Random};

/// Three layers as a browser sends them of a camera with 720 lines.
const LAYERS_KBPS: [u64; 3] = [150, 500, 2_500];

/// No new picture for so long is a freeze.
const FREEZE: Duration = Duration::from_millis(500);

/// What a viewer saw.
#[derive(Clone, Copy, Debug)]
struct Quality {
    /// That of most pictures in the last third.
    layer: u8,
    /// From joining to the first whole keyframe.
    first_picture: Duration,
    /// Changes of layer.
    switches: usize,
    /// Of these in the second half of the time.
    late_switches: usize,
    /// Times that pictures stood still for more than `FREEZE`.
    freezes: usize,
    /// Of the pictures in the last third, from the encoder to the viewer: the value below which nine in ten lie.
    lateness: Duration,
    probe_kb: u64,
}

/// What is the worst that a viewer may see.
struct Bounds {
    layers: std::ops::RangeInclusive<u8>,
    first_picture_ms: u64,
    switches: usize,
    freezes: usize,
    lateness_ms: u64,
    probe_kb: u64,
}

/// How a viewer tells of its path.
#[derive(Clone, Copy, PartialEq)]
enum Feedback {
    /// When each packet came.
    TransportWide,
    /// What it takes at most (REMB).
    Remb,
}

/// Lets viewers of several seeds watch on one path, and looks at each of them.
fn check(
    seeds: std::ops::Range<u64>,
    tracks: &[TrackPlan],
    way_down: &[(u64, LinkConfig)],
    bounds: &Bounds,
) -> Vec<Quality> {
    check_with(Feedback::TransportWide, seeds, tracks, way_down, bounds)
}

/// What all of them came to is printed.
fn check_with(
    feedback: Feedback,
    range: std::ops::Range<u64>,
    tracks: &[TrackPlan],
    way_down: &[(u64, LinkConfig)],
    bounds: &Bounds,
) -> Vec<Quality> {
    let (mut all, mut bad) = (Vec::new(), Vec::new());
    for seed in seeds(range) {
        let quality = watch(feedback, seed, tracks, way_down);
        let good = bounds.layers.contains(&quality.layer)
            && quality.first_picture <= millis(bounds.first_picture_ms)
            && quality.switches <= bounds.switches
            && quality.freezes <= bounds.freezes
            && quality.lateness <= millis(bounds.lateness_ms)
            && quality.probe_kb <= bounds.probe_kb;
        if !good {
            bad.push((seed, quality));
        }
        all.push(quality);
    }
    summarize(&all);
    assert!(bad.is_empty(), "{} of {} seeds: {:?}", bad.len(), all.len(), &bad[..bad.len().min(5)]);
    all
}

/// Prints the median and the worst.
fn summarize(all: &[Quality]) {
    let spread = |name: &str, value: &dyn Fn(&Quality) -> u64| {
        let mut values: Vec<u64> = all.iter().map(value).collect();
        values.sort_unstable();
        format!("{name} {} (at most {})", values[values.len() / 2], values[values.len() - 1])
    };
    let layers: Vec<String> = (0..4)
        .map(|layer| (layer, all.iter().filter(|quality| quality.layer == layer).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(layer, count)| format!("{count} on {layer}"))
        .collect();
    let parts = [
        layers.join(", "),
        spread("first picture ms", &|quality| quality.first_picture.as_millis() as u64),
        spread("switches", &|quality| quality.switches as u64),
        spread("freezes", &|quality| quality.freezes as u64),
        spread("lateness ms", &|quality| quality.lateness.as_millis() as u64),
        spread("probe kB", &|quality| quality.probe_kb),
    ];
    println!("{} seeds: {}", all.len(), parts.join("; "));
}

/// Lets a viewer watch on a path that changes: seconds, and how it is for so long.
fn watch(feedback: Feedback, seed: u64, tracks: &[TrackPlan], way_down: &[(u64, LinkConfig)]) -> Quality {
    let mut random = Random::new(seed);
    let mut world = World::new(seed, quiet());
    let stream = world.open_stream(tracks);
    let publisher = world.add_publisher(stream);
    world.run(seconds(3) + millis(random.below(1_000)));
    let now = world.now;
    (0..tracks[0].layers.len()).for_each(|layer| world.publisher(publisher).pause_layer(now, 0, layer, false));
    // The keyframes that are stored when the viewer comes are of any age.
    world.run(millis(random.below(2_000)));
    world.set_way_down_of_next(0, way_down[0].1);
    let is_remb = feedback == Feedback::Remb;
    let behaviour = Behaviour { sends_remb: is_remb, ..Behaviour::GOOD };
    let viewer = world.add_viewer_with(0, stream, behaviour, |tracks| {
        let tracks = tracks.iter_mut().filter(|_| is_remb);
        tracks.for_each(|track| track.extensions.transport_cc = None);
    });
    let joined = world.now;
    for (span, link) in way_down {
        world.set_way_down(viewer, *link);
        world.run(seconds(*span));
    }
    let (start, now) = (world.start, world.now);
    let probe_kb = world.counters(0).probe_bytes / 1_000;
    let track = &world.viewer(viewer).tracks[0];
    let mut shown: Vec<_> = track.frames.values().filter_map(|frame| Some((frame.whole_at?, frame.tag))).collect();
    shown.sort_by_key(|(at, _)| *at);
    let first = shown.iter().find(|(_, tag)| tag.keyframe).map_or(now, |(at, _)| *at);
    let gaps = shown.windows(2).map(|pair| pair[1].0.duration_since(pair[0].0));
    let gaps = gaps.chain(shown.last().map(|(last, _)| now.duration_since(*last)));
    let last_third = now - now.duration_since(joined) / 3;
    let late: Vec<_> = shown.iter().filter(|(at, _)| *at >= last_third).collect();
    let most = (0..4).max_by_key(|layer| late.iter().filter(|(_, tag)| tag.layer == *layer).count());
    let mut lateness: Vec<_> =
        late.iter().map(|(at, tag)| at.duration_since(start + Duration::from_micros(tag.sent_us))).collect();
    lateness.sort_unstable();
    let tags: Vec<_> = track.records.values().map(|record| record.tag).collect();
    let switches = tags.windows(2).filter(|pair| pair[0].layer != pair[1].layer);
    let second_half = (now - now.duration_since(joined) / 2).duration_since(start);
    let is_late = |tag: &Tag| Duration::from_micros(tag.sent_us) >= second_half;
    Quality {
        layer: most.unwrap_or(0),
        first_picture: first.duration_since(joined),
        switches: switches.clone().count(),
        late_switches: switches.filter(|pair| is_late(&pair[1])).count(),
        freezes: gaps.filter(|gap| *gap > FREEZE).count(),
        lateness: if lateness.is_empty() { Duration::MAX } else { nine_in_ten(&lateness) },
        probe_kb,
    }
}

fn camera() -> Vec<TrackPlan> {
    vec![video(Codec::Vp8, &LAYERS_KBPS), opus()]
}

/// A link with a queue of a quarter of a second.
fn narrow(kbps: u64) -> LinkConfig {
    LinkConfig { rate: Some(Bitrate::from_kbps(kbps)), queue_bytes: kbps as usize * 1_000 / 8 / 4, ..quiet() }
}

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

#[test]
fn a_newcomer_on_500_kbit_s_has_a_picture_at_once() {
    let bounds =
        Bounds { layers: 0..=0, first_picture_ms: 400, switches: 4, freezes: 1, lateness_ms: 150, probe_kb: 200 };
    check(0..50, &camera(), &[(40, narrow(500))], &bounds);
}

/// A bucket lets a probe pass, and half a second of a layer that is too large, without any delay. libwebrtc's encoder would
/// come down to the policer's rate by steps of the lost share; a layer can only be tried and left.
#[test]
fn a_policer_is_tried_ever_more_rarely() {
    let policer = Policer { rate: Bitrate::from_kbps(1_000), bucket_bytes: 30_000 };
    let bounds =
        Bounds { layers: 1..=1, first_picture_ms: 150, switches: 19, freezes: 2, lateness_ms: 30, probe_kb: 100 };
    let policed = LinkConfig { policer: Some(policer), ..quiet() };
    check(0..50, &camera(), &[(60, policed)], &bounds);
    for seed in 0..10 {
        let Quality { switches, late_switches, .. } =
            watch(Feedback::TransportWide, seed, &camera(), &[(120, policed)]);
        assert!(late_switches * 5 <= switches * 2, "seed {seed}: {late_switches} of {switches} in the second minute");
    }
}

/// What Wi-Fi sends in one piece arrives in one piece: that proves nothing, and more of it does.
#[test]
fn what_arrives_in_pieces_is_measured_all_the_same() {
    let wide = Bounds { layers: 2..=2, first_picture_ms: 150, switches: 1, freezes: 0, lateness_ms: 60, probe_kb: 600 };
    check(0..50, &camera(), &[(30, LinkConfig { aggregation: millis(10), ..narrow(20_000) })], &wide);
    check(0..20, &camera(), &[(30, LinkConfig { aggregation: millis(30), ..narrow(20_000) })], &wide);
    let narrower = Bounds { layers: 1..=1, first_picture_ms: 200, switches: 2, lateness_ms: 80, ..wide };
    check(0..20, &camera(), &[(60, LinkConfig { aggregation: millis(20), ..narrow(1_000) })], &narrower);
}

#[test]
fn who_was_there_before_the_publisher_starts_small_too() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&camera());
        world.set_way_down_of_next(0, narrow(500));
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(3));
        world.add_publisher(stream);
        world.run(millis(400));
        let frames = &world.viewer(viewer).tracks[0].frames;
        let whole = frames.values().find(|frame| frame.tag.keyframe && frame.whole_at.is_some());
        assert!(whole.is_some(), "seed {seed}: {frames:?}");
    }
}

#[test]
fn what_was_lost_comes_again_at_the_pace_of_the_estimate() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[vp8(), opus()]);
        world.add_publisher(stream);
        world.set_way_down_of_next(0, narrow(1_000));
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(10));
        world.set_way_down(viewer, LinkConfig { loss: 1.0, ..narrow(1_000) });
        world.run(millis(300));
        world.set_way_down(viewer, narrow(1_000));
        let (from, to) = (world.worker_addr(0), world.addr(viewer));
        world.network.capture(from, to);
        world.run(seconds(2));
        let sent = world.network.take_timed_capture(from, to);
        let within = |at, span| sent.iter().filter(move |(other, _)| *other >= at && *other < at + span);
        let most =
            sent.iter().map(|(at, _)| within(*at, millis(20)).map(|(_, bytes)| bytes.len()).sum::<usize>()).max();
        // Two and a half times the 1.1 Mbit/s that the path seems to carry at most, and a burst of 40 ms of it.
        assert!(most.unwrap() < (20 + 40) * 2_750 / 8, "seed {seed}: {most:?} bytes in 20 ms");
        world.run(seconds(3));
        let summary = check_track(&world.viewer(viewer).tracks[0], VIDEO_CLOCK, seconds(1), Holes::Refused);
        assert!(summary.is_ok_and(|summary| summary.frames > 400), "seed {seed}");
    }
}

/// A sender of its own media subtracts sound, headers and retransmissions from the estimate before its encoder is told.
#[test]
fn sound_and_headers_are_part_of_what_has_to_fit() {
    // Sound in stereo and in four languages, with headers 360 kbit/s, and 330 of the larger layer.
    let mut tracks = vec![video(Codec::Vp8, &[100, 300])];
    tracks.extend([64; 4].map(sound));
    let bounds =
        Bounds { layers: 0..=0, first_picture_ms: 400, switches: 4, freezes: 0, lateness_ms: 80, probe_kb: 200 };
    check(0..10, &tracks, &[(60, narrow(620))], &bounds);
}

/// A layer of 2.5 Mbit/s takes 2.8 with headers and sound. Its first keyframe fills the queue for a moment; the rate comes
/// down to what arrives just then, as libwebrtc's does by 0.85, and that is enough.
#[test]
fn a_climb_is_not_lost_to_the_keyframe_that_it_begins_with() {
    let bounds =
        Bounds { layers: 2..=2, first_picture_ms: 150, switches: 3, freezes: 0, lateness_ms: 100, probe_kb: 60 };
    check(0..10, &camera(), &[(40, narrow(3_500))], &bounds);
}

/// libwebrtc holds its rate between 2 and 10 % of loss, and comes down to nothing above; its second loss-based estimator finds
/// out, as ours does, whether less is lost when less is sent.
#[test]
fn random_loss_takes_no_layer_away() {
    let tracks = [video(Codec::Vp8, &[150, 500, 2_000]), opus()];
    // Nobody knows of the very first packet that it was lost: the viewer asks for a keyframe after half a second.
    let bounds =
        Bounds { layers: 1..=2, first_picture_ms: 700, switches: 6, freezes: 0, lateness_ms: 150, probe_kb: 150 };
    let all = check(0..50, &tracks, &[(40, LinkConfig { loss: 0.03, ..narrow(3_000) })], &bounds);
    // Of 200 seeds 7 have gone down when the time is over.
    let gone_down = all.iter().filter(|quality| quality.layer < 2).count();
    assert!(gone_down * 20 <= all.len(), "{gone_down} of {}", all.len());
    let bounds = Bounds { layers: 1..=2, first_picture_ms: 1_200, switches: 10, freezes: 1, ..bounds };
    check(0..10, &tracks, &[(60, LinkConfig { loss: 0.08, ..narrow(10_000) })], &bounds);
}

/// A queue that is always full delays all alike, and what it loses comes again and loses more.
#[test]
fn what_does_not_quite_fit_is_not_kept_in_a_full_queue() {
    let bounds =
        Bounds { layers: 0..=1, first_picture_ms: 300, switches: 6, freezes: 0, lateness_ms: 250, probe_kb: 150 };
    check(0..10, &camera(), &[(60, narrow(620))], &bounds);
}

/// Rate steps as of LTE in a moving car. libwebrtc comes down by 0.85 of what arrives, and up by probes of twice the estimate;
/// so do we, and a layer is a longer step than an encoder's.
#[test]
fn rate_steps_are_followed_down_and_up() {
    let steps = [(20, narrow(6_000)), (10, narrow(800)), (10, narrow(2_000)), (5, narrow(300)), (30, narrow(8_000))];
    let bounds =
        Bounds { layers: 2..=2, first_picture_ms: 150, switches: 10, freezes: 3, lateness_ms: 60, probe_kb: 250 };
    check(0..50, &camera(), &steps, &bounds);
}

#[test]
fn a_round_trip_of_300_ms_costs_little() {
    let far = |kbps| LinkConfig { delay: millis(290), ..narrow(kbps) };
    let bounds =
        Bounds { layers: 2..=2, first_picture_ms: 500, switches: 3, freezes: 0, lateness_ms: 350, probe_kb: 60 };
    check(0..50, &camera(), &[(40, far(5_000))], &bounds);
    // Of 200 seeds five are late by more than 350 ms, the time that two frames take more.
    let bounds = Bounds { layers: 0..=1, switches: 8, lateness_ms: 380, ..bounds };
    check(0..50, &camera(), &[(40, far(700))], &bounds);
}

#[test]
fn a_wide_path_carries_the_largest_layer_within_seconds() {
    let bounds =
        Bounds { layers: 2..=2, first_picture_ms: 150, switches: 1, freezes: 0, lateness_ms: 40, probe_kb: 60 };
    check(0..20, &camera(), &[(15, quiet())], &bounds);
    // Jitter looks like arrivals in pieces, so its probes are longer.
    let bounds = Bounds { probe_kb: 200, ..bounds };
    check(0..20, &camera(), &[(15, LinkConfig { jitter: millis(8), ..narrow(20_000) })], &bounds);
}

/// A layer of 1 Mbit/s of which half the frames may be left out, on a path that carries two thirds of it.
#[test]
fn a_single_layer_that_does_not_fit_loses_frames_and_no_smoothness() {
    let tracks = [video(Codec::Vp8, &[1_000]), opus()];
    let bounds =
        Bounds { layers: 0..=0, first_picture_ms: 400, switches: 0, freezes: 1, lateness_ms: 120, probe_kb: 300 };
    check(0..10, &tracks, &[(40, narrow(750))], &bounds);
}

/// Without transport-wide feedback a viewer begins with the largest layer, as nobody knows what its path carries. What it says
/// then takes that layer away, and lets a larger one be tried: ever more rarely, where that comes to nothing.
#[test]
fn who_says_by_remb_what_it_takes_gets_the_layer_that_fits() {
    let bounds = Bounds { layers: 2..=2, first_picture_ms: 150, switches: 0, freezes: 0, lateness_ms: 60, probe_kb: 0 };
    check_with(Feedback::Remb, 0..5, &camera(), &[(30, narrow(10_000))], &bounds);
    let bounds =
        Bounds { layers: 1..=1, first_picture_ms: 2_500, switches: 14, freezes: 5, lateness_ms: 300, ..bounds };
    check_with(Feedback::Remb, 0..5, &camera(), &[(60, narrow(1_200))], &bounds);
    let bounds = Bounds { layers: 0..=0, first_picture_ms: 3_000, freezes: 8, ..bounds };
    check_with(Feedback::Remb, 0..5, &camera(), &[(60, narrow(450))], &bounds);
    let bounds = Bounds { layers: 2..=2, ..bounds };
    check_with(Feedback::Remb, 0..5, &camera(), &[(20, narrow(700)), (60, narrow(8_000))], &bounds);
}

/// Whether a viewer saw pictures and heard sound in each of the seconds.
fn heard_and_seen(pauses: bool, seed: u64, way_down: &[(u64, LinkConfig)]) -> (Vec<bool>, Vec<bool>) {
    let mut world = World::with_workers(seed, quiet(), 1, |settings| settings.pause = pauses);
    let stream = world.open_stream(&[video(Codec::Vp8, &[400]), opus()]);
    world.add_publisher(stream);
    let viewer = world.add_viewer(stream, Behaviour::GOOD);
    let joined = world.now;
    for (span, link) in way_down {
        world.set_way_down(viewer, *link);
        world.run(seconds(*span));
    }
    let count = way_down.iter().map(|(span, _)| *span).sum();
    let in_seconds = |track: usize, tracks: &[ReceivedTrack]| -> Vec<bool> {
        let whole: Vec<_> = tracks[track].frames.values().filter_map(|frame| frame.whole_at).collect();
        (0..count).map(|second| whole.iter().any(|at| at.duration_since(joined).as_secs() == second)).collect()
    };
    let tracks = &world.viewer(viewer).tracks;
    (in_seconds(1, tracks), in_seconds(0, tracks))
}

/// 200 kbit/s are the half of the frames; on 100 not even half of that fits beside the sound.
#[test]
fn a_track_of_which_nothing_fits_pauses_where_that_is_wanted_and_comes_back_by_itself() {
    let way_down = [(10, quiet()), (40, narrow(100)), (60, narrow(2_000))];
    for seed in 0..10 {
        let (heard, seen) = heard_and_seen(true, seed, &way_down);
        let silent = heard.iter().filter(|heard| !**heard).count();
        assert!(silent <= 3, "seed {seed}: {silent} seconds without sound");
        let paused = seen[10..50].iter().filter(|seen| !**seen).count();
        assert!(paused > 15, "seed {seed}: {paused} seconds of 40 without pictures");
        assert!(seen[95..].iter().all(|seen| *seen), "seed {seed}: {seen:?}");
        let (_, seen) = heard_and_seen(false, seed, &way_down);
        let last = seen[10..50].iter().rposition(|seen| *seen);
        assert!(last > Some(36), "seed {seed}: it goes on where no pause is wanted: {seen:?}");
    }
}

#[test]
fn a_newcomer_gets_every_frame_until_something_says_that_its_path_is_narrow() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[video(Codec::Vp8, &[2_500]), opus()]);
        world.add_publisher(stream);
        world.run(seconds(2));
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(5));
        let frames = &world.viewer(viewer).tracks[0].frames;
        let [lower, upper] = [0, 1].map(|id| frames.values().filter(|frame| frame.tag.temporal_id == id).count());
        assert!(lower.abs_diff(upper) < 3, "seed {seed}: {lower} and {upper} frames of the two temporal layers");
    }
}

#[test]
fn a_path_that_loses_three_in_ten_is_repaired() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[video(Codec::Vp8, &[2_000]), opus()]);
        world.add_publisher(stream);
        world.set_way_down_of_next(0, LinkConfig { loss: 0.3, ..quiet() });
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(30));
        world.set_way_down(viewer, quiet());
        world.run(seconds(1));
        let track = &world.viewer(viewer).tracks[0];
        let (missing, all) = (track.holes().len(), track.records.len());
        assert!(missing * 200 < all, "seed {seed}: {missing} of {all} packets never came");
    }
}

/// Without transport-wide feedback reports are all that is heard of the path.
#[test]
fn who_only_reports_loss_gets_a_layer_that_is_not_lost() {
    for seed in 0..6 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&camera());
        world.add_publisher(stream);
        world.set_way_down_of_next(0, narrow(1_000));
        let viewer = world.add_viewer_with(0, stream, Behaviour::GOOD, |tracks| {
            tracks.iter_mut().for_each(|track| track.extensions.transport_cc = None);
        });
        world.run(seconds(40));
        let now = world.now;
        let frames = &world.viewer(viewer).tracks[0].frames;
        let late = frames.values().filter(|frame| frame.whole_at.is_some_and(|at| at + seconds(20) > now));
        let (small, all) = late.fold((0, 0), |(small, all), frame| (small + usize::from(frame.tag.layer < 2), all + 1));
        assert!(all > 450 && small * 10 > all * 9, "seed {seed}: {all} pictures, {small} of layers that fit");
    }
}

/// What gives no sign of life for seconds is sent less, though nothing says that it is narrow.
#[test]
fn a_path_on_which_everything_is_lost_is_sent_the_smallest_layer() {
    for seed in 0..4 {
        let mut world = World::new(seed, quiet());
        let stream = world.open_stream(&[simulcast(), opus()]);
        world.add_publisher(stream);
        let viewer = world.add_viewer(stream, Behaviour::GOOD);
        world.run(seconds(5));
        assert_eq!(layer_now(&mut world, viewer), 2, "seed {seed}");
        world.set_way_down(viewer, LinkConfig { loss: 1.0, ..quiet() });
        world.run(seconds(20));
        let session = world.session(viewer);
        world.command(0, Command::Inspect { session, token: 1 });
        let Some((_, Event::Stats { stats: Some(stats), .. })) = world.events.pop() else { panic!("no stats") };
        assert_eq!(stats.layers[0].target, 0, "seed {seed}");
    }
}
