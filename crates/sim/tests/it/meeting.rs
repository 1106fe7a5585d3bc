//! Meetings: all publish, all watch all others, on paths of all kinds.

use std::time::{Duration, Instant};

use crate::common::*;
use rooms::spec::{Command, Event};
use sim::check::{Holes, check_track};
use sim::media::{LayerPlan, Spatial};
use sim::network::LinkConfig;
use sim::publisher::TrackPlan;
use sim::viewer::{Behaviour, ReceivedTrack};
use sim::world::{PeerId, World};
use wire::codec::Codec;
use wire::{Bitrate, Random};

/// How long a meeting has to settle, and how long it is looked at then.
const SETTLES: u64 = 20;
const LOOKED_AT: u64 = 10;

/// A camera in a meeting of so many sends small pictures: kbit/s and pictures per second of each layer.
const LAYERS: [(u64, u32); 3] = [(30, 5), (80, 10), (200, 15)];

fn camera() -> TrackPlan {
    let layers = LAYERS.iter().map(|&(kbps, frames_per_second)| LayerPlan {
        bitrate: Bitrate::from_kbps(kbps),
        frames_per_second,
        temporal_layers: 1,
        spatial: Spatial::ONE,
    });
    TrackPlan { codec: Codec::Vp8, layers: layers.collect() }
}

/// What a path carries of so many cameras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// All there is.
    Free,
    /// Half of what all the largest pictures take.
    Half,
    /// What the smallest pictures take twice over.
    Narrow,
}

impl Way {
    const ALL: [Way; 3] = [Way::Free, Way::Half, Way::Narrow];

    fn kbps(self, cameras: u64) -> Option<u64> {
        match self {
            Way::Free => None,
            Way::Half => Some(cameras * LAYERS[2].0 / 2),
            Way::Narrow => Some(cameras * LAYERS[0].0 * 2),
        }
    }

    fn link(self, cameras: u64, loss: f64) -> LinkConfig {
        let rate = self.kbps(cameras).map(Bitrate::from_kbps);
        // A queue of a quarter of a second.
        let queue_bytes = self.kbps(cameras).map_or(quiet().queue_bytes, |kbps| kbps as usize * 1_000 / 8 / 4);
        LinkConfig { rate, queue_bytes, loss, reordering: 2.0 * loss, ..quiet() }
    }
}

/// Somebody in the meeting: what comes to him comes by a session of its own.
struct Member {
    name: usize,
    worker: usize,
    down: PeerId,
    way: Way,
    joined: Instant,
}

/// What somebody got of all the others.
#[derive(Debug)]
struct Seen {
    way: Way,
    /// So many pictures were of each layer in the end.
    layers: [usize; 3],
    /// Until the last change of layer, or the end of the time that it may take.
    settled_after: Duration,
    /// Changes of layer while it was looked at.
    changes: usize,
    /// The longest time without a new picture of one of the others, while it was looked at.
    gap: Duration,
    /// What was sent while it was looked at, and what rooms think that the path carries.
    sent_kbps: u64,
    estimate_kbps: u64,
}

/// Lets so many meet, who come one after another, and looks at what each gets of each other. A share of all packets is lost, on
/// all ways, and twice as many are overtaken.
fn meet(seed: u64, count: usize, workers: u16, loss: f64) {
    let mut random = Random::new(seed);
    let mut world = World::with_workers(seed, quiet(), workers, |_| ());
    let worker_of = |name: usize| name % usize::from(workers);
    let streams: Vec<_> = (0..count).map(|_| world.open_stream(&[camera()])).collect();
    let others = count as u64 - 1;
    for (name, stream) in streams.iter().enumerate() {
        let publisher = world.add_publisher_on(worker_of(name), *stream);
        world.set_path(publisher, Way::Free.link(others, loss));
        world.run(millis(random.below(100)));
    }
    let mut members = Vec::new();
    for (name, way) in (0..count).zip(Way::ALL.into_iter().cycle()) {
        let watched: Vec<_> = (0..count).filter(|other| *other != name).map(|other| streams[other]).collect();
        let worker = worker_of(name);
        world.set_way_down_of_next(worker, way.link(others, loss));
        let down = world.add_member_on(worker, &watched, Behaviour::GOOD);
        members.push(Member { name, worker, down, way, joined: world.now });
        world.run(millis(random.below(100)));
    }
    world.run(seconds(SETTLES));
    let sent = |world: &World, member: &Member| {
        world.network.sent_bytes(world.worker_addr(member.worker), world.addr(member.down))
    };
    let before: Vec<_> = members.iter().map(|member| sent(&world, member)).collect();
    world.run(seconds(LOOKED_AT));
    let mut all = Vec::new();
    for (member, before) in members.iter().zip(before) {
        let sent_kbps = (sent(&world, member) - before) * 8 / 1_000 / LOOKED_AT;
        let estimate_kbps = estimate(&mut world, member).bps() / 1_000;
        let name = format!("seed {seed}, member {}", member.name);
        let seen = Seen { sent_kbps, estimate_kbps, ..look(&mut world, member, &name) };
        all.push((name, seen));
    }
    summarize(seed, &all);
    for (name, seen) in all {
        check(&name, &seen, others);
    }
}

fn estimate(world: &mut World, member: &Member) -> Bitrate {
    let session = world.session(member.down);
    world.command(member.worker, Command::Inspect { session, token: 1 });
    let Some((_, Event::Stats { stats: Some(stats), .. })) = world.events.pop() else { panic!("no stats") };
    stats.estimate.expect("there is feedback")
}

/// Nothing of what came may be wrong, or missing for good where it was not a queue that dropped it.
fn look(world: &mut World, member: &Member, name: &str) -> Seen {
    let Member { down, way, joined, .. } = *member;
    let (now, viewer) = (world.now, world.viewer(down));
    // A full queue may drop all that shows to whom a track belongs at first: what comes then until it is shown again is refused.
    let refused = if way == Way::Free { viewer.counters.refused } else { 0 };
    assert_eq!((viewer.counters.spoilt, refused), (0, 0), "{name}");
    let tracks = std::mem::take(&mut viewer.tracks);
    let (mut layers, mut changes, mut gap) = ([0; 3], 0, Duration::ZERO);
    let mut settled_at = joined;
    for (index, track) in tracks.iter().enumerate() {
        let holes = if way == Way::Free { Holes::Refused } else { Holes::Allowed };
        let summary = check_track(track, VIDEO_CLOCK, seconds(2), holes);
        summary.unwrap_or_else(|what| panic!("{name}, track {index}: {what}"));
        let switches = switches(track);
        let early = switches.iter().filter(|at| **at < now - seconds(LOOKED_AT));
        settled_at = early.clone().copied().fold(settled_at, Instant::max);
        changes += switches.len() - early.count();
        gap = gap.max(longest_gap(track, now - seconds(LOOKED_AT), now));
        let last = track.records.values().next_back().expect("something came");
        layers[usize::from(last.tag.layer)] += 1;
    }
    let settled_after = settled_at.duration_since(joined);
    Seen { way, layers, settled_after, changes, gap, sent_kbps: 0, estimate_kbps: 0 }
}

/// When the layer changed.
fn switches(track: &ReceivedTrack) -> Vec<Instant> {
    let records: Vec<_> = track.records.values().collect();
    let pairs = records.windows(2).filter(|pair| pair[0].tag.layer != pair[1].tag.layer);
    pairs.map(|pair| pair[1].arrival).collect()
}

fn longest_gap(track: &ReceivedTrack, from: Instant, to: Instant) -> Duration {
    let whole = track.frames.values().filter_map(|frame| frame.whole_at).filter(|at| *at >= from);
    let mut moments: Vec<_> = whole.chain([from, to]).collect();
    moments.sort_unstable();
    moments.windows(2).map(|pair| pair[1].duration_since(pair[0])).max().unwrap_or_default()
}

/// Prints the least and the most, for each kind of path.
fn summarize(seed: u64, all: &[(String, Seen)]) {
    for way in Way::ALL {
        let seen: Vec<_> = all.iter().map(|(_, seen)| seen).filter(|seen| seen.way == way).collect();
        let spread = |value: &dyn Fn(&Seen) -> u64| {
            let values = seen.iter().map(|seen| value(seen));
            format!("{} to {}", values.clone().min().unwrap_or(0), values.max().unwrap_or(0))
        };
        println!(
            "seed {seed}, {way:?}: on layer 0 {}, on 1 {}, on 2 {}; settled after {} ms; {} changes in {LOOKED_AT} s; no picture for {} \
             ms; {} kbit/s sent, {} estimated",
            spread(&|seen| seen.layers[0] as u64),
            spread(&|seen| seen.layers[1] as u64),
            spread(&|seen| seen.layers[2] as u64),
            spread(&|seen| seen.settled_after.as_millis() as u64),
            spread(&|seen| seen.changes as u64),
            spread(&|seen| seen.gap.as_millis() as u64),
            spread(&|seen| seen.sent_kbps),
            spread(&|seen| seen.estimate_kbps),
        );
    }
}

/// Each gets what fits: on a free path the largest of all, on others most of what the path carries. Pictures go on.
fn check(name: &str, seen: &Seen, others: u64) {
    assert!(seen.gap < seconds(1), "{name}: {seen:?}");
    match seen.way.kbps(others) {
        None => {
            assert_eq!((seen.layers, seen.changes), ([0, 0, others as usize], 0), "{name}: {seen:?}");
        }
        Some(kbps) => {
            assert!((kbps * 6 / 10..=kbps * 105 / 100).contains(&seen.sent_kbps), "{name}: {seen:?}");
            assert!((kbps * 6 / 10..=kbps * 125 / 100).contains(&seen.estimate_kbps), "{name}: {seen:?}");
            assert!(seen.changes as u64 <= others, "{name}: {seen:?}");
        }
    }
}

#[test]
fn fifty_who_all_publish_see_each_other() {
    for seed in seeds(1..2) {
        meet(seed, 50, 2, 0.01);
    }
}

/// 4: all packets of a track that showed its MID were lost, for a full queue.
#[test]
fn members_on_paths_that_lose_get_every_picture() {
    for seed in seeds(0..5) {
        meet(seed, 12, 1 + seed as u16 % 2, 0.02);
    }
}

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
