//! One look at all numbers, as the dashboard shows them.
//!
//! In: what workers publish, and what control planes count. Out: a `Reading`, plain numbers with their names.
//! Cost: a load of each worker's numbers (about 500 words), and some counts of control planes, each of which is kept and not
//! counted anew: nothing here grows with the number of sessions. It is done on a control thread, and no worker notices.
//!
//! Names are those of `/metrics` without `millrace_`, and as there what ends in `_total` only grows; rates are for who reads two
//! samples.

use std::time::Duration;

use counters::{BUCKETS, Lateness};
use engine::CountersSnapshot;
use nix::sys::resource::{UsageWho, getrusage};

use crate::http::App;
use crate::http::metrics::process::resident_bytes;
use crate::rooms::directory::StreamState;

/// A number by its name.
pub(super) type Named = (&'static str, u64);

/// All numbers at one time.
#[derive(Debug)]
pub(super) struct Reading {
    /// Of the process, and sums over all workers.
    pub(super) machine: Vec<Named>,
    /// What went no further: who dropped it, why, and how much since the start.
    pub(super) drops: Vec<(&'static str, &'static str, u64)>,
    /// Of each worker. What begins with `late_` is in microseconds, within a factor of two, and of the time since the reading before.
    pub(super) workers: Vec<Vec<Named>>,
}

/// What has to be known of the reading before.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    before: Vec<[Lateness; 3]>,
}

impl Sampler {
    pub(super) fn read(&mut self, app: &App) -> Reading {
        let workers = app.plane.workers();
        // How late things were before the first reading is not of its second.
        let is_first = self.before.is_empty();
        self.before.resize(workers.count(), Default::default());
        let (mut engine, mut rooms, mut pump) = (Vec::new(), Vec::new(), Vec::new());
        let (mut relay, mut reflect) = (Vec::new(), Vec::new());
        for ((_, counters), (_, numbers)) in workers.counters().zip(workers.numbers()) {
            engine.push(counters);
            rooms.push(numbers.rooms.load());
            pump.push(numbers.pump.load());
            relay.push(numbers.relay.load());
            reflect.push(numbers.reflect.load());
        }
        let mut each = Vec::new();
        for (index, (worker, before)) in workers.ids().zip(&mut self.before).enumerate() {
            let (engine, rooms, pump) = (&engine[index], &rooms[index], &pump[index]);
            let cpu = workers.cpu_time(worker).unwrap_or_default();
            let late = [&engine.lateness, &rooms.lateness, &pump.lateness];
            if is_first {
                *before = late.map(Clone::clone);
            }
            let [own, of_rooms, of_pump] = [0, 1, 2].map(|which| since(late[which], &before[which]));
            *before = late.map(Clone::clone);
            each.push(vec![
                ("cpu_ns_total", nanos(cpu)),
                ("busy_ns_total", nanos(engine.busy)),
                ("packets_in_total", engine.datagrams_in + engine.tcp_datagrams_in),
                ("packets_out_total", engine.datagrams_out + engine.tcp_datagrams_out),
                ("bytes_in_total", engine.bytes_in + engine.tcp_bytes_in + engine.stream_bytes_in),
                ("bytes_out_total", engine.bytes_out + engine.tcp_bytes_out + engine.stream_bytes_out),
                ("dropped_total", engine.dropped() + engine.dropped_receive_full),
                ("sessions", rooms.sessions),
                ("pump_sessions", pump.sessions),
                ("relay_allocations", relay[index].allocations.total()),
                ("reflect_viewers", reflect[index].viewers),
                ("late_p50_us", micros(own.quantile(0.5))),
                ("late_p99_us", micros(own.quantile(0.99))),
                ("late_max_us", micros(own.quantile(1.0))),
                ("late_rooms_p99_us", micros(of_rooms.quantile(0.99))),
                ("late_pump_p99_us", micros(of_pump.quantile(0.99))),
            ]);
        }
        let mut machine = of_process(app);
        machine.extend(of_rooms(app, &rooms));
        machine.extend(of_others(app, &pump, &relay, &reflect));
        Reading { machine, drops: drops(&engine, &rooms, &relay), workers: each }
    }
}

/// What was counted since a time.
fn since(now: &Lateness, before: &Lateness) -> Lateness {
    let mut buckets = [0; BUCKETS];
    for (bucket, (now, before)) in buckets.iter_mut().zip(now.buckets().iter().zip(before.buckets())) {
        *bucket = now.saturating_sub(*before);
    }
    Lateness::from_buckets(buckets)
}

fn of_process(app: &App) -> Vec<Named> {
    let cpu_ns = getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        let microseconds = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
        (microseconds(usage.user_time()) + microseconds(usage.system_time())).unsigned_abs() * 1_000
    });
    vec![
        ("process_cpu_ns_total", cpu_ns),
        ("process_resident_bytes", resident_bytes().unwrap_or_default()),
        ("process_open_files", open_files()),
        ("http_connections", app.connections.count() as u64),
        ("draining", u64::from(app.plane.is_draining())),
    ]
}

/// Descriptors that are open; 0 where the kernel does not say, which it does since Linux 6.2. To list them would take longer the
/// more there are.
fn open_files() -> u64 {
    std::fs::metadata("/proc/self/fd").map_or(0, |metadata| metadata.len())
}

fn of_rooms(app: &App, workers: &[rooms::counters::Counters]) -> Vec<Named> {
    let sum = |number: fn(&rooms::counters::Counters) -> u64| workers.iter().map(number).sum();
    let census = app.rooms.census();
    let livekit = app.livekit.as_ref().map(|livekit| livekit.hub().sizes()).unwrap_or_default();
    vec![
        ("streams", census.streams.iter().sum::<usize>() as u64),
        ("streams_live", census.streams[StreamState::Live as usize] as u64),
        ("publishers", census.publishers.1 as u64),
        ("viewers", census.viewers.1 as u64),
        (
            "sessions_connecting",
            (census.publishers.0 + census.viewers.0 - census.publishers.1 - census.viewers.1) as u64,
        ),
        ("livekit_rooms", livekit.rooms as u64),
        ("livekit_participants", livekit.participants as u64),
        ("livekit_tracks", livekit.tracks as u64),
        ("rooms_sessions", sum(|rooms| rooms.sessions)),
        ("rooms_packets_in_total", sum(|rooms| rooms.packets_in)),
        ("rooms_packets_out_total", sum(|rooms| rooms.packets_out)),
        ("rooms_packets_resent_total", sum(|rooms| rooms.packets_resent)),
        ("rooms_keyframe_requests_total", sum(|rooms| rooms.keyframe_requests)),
        ("rooms_pictures", sum(|rooms| rooms.pictures)),
        ("rooms_pictures_small", sum(|rooms| rooms.pictures_small)),
        ("rooms_pictures_missing", sum(|rooms| rooms.pictures_missing)),
    ]
}

fn of_others(
    app: &App,
    pump: &[pump::counters::Counters],
    relay: &[relay::counters::Counters],
    reflect: &[reflect::counters::Counters],
) -> Vec<Named> {
    let of_pump = |number: fn(&pump::counters::Counters) -> u64| pump.iter().map(number).sum();
    let of_relay = |number: fn(&relay::counters::Counters) -> u64| relay.iter().map(number).sum();
    let of_reflect = |number: fn(&reflect::counters::Counters) -> u64| reflect.iter().map(number).sum();
    vec![
        ("pump_sessions", of_pump(|pump| pump.sessions)),
        ("pump_playing", of_pump(|pump| pump.playing)),
        ("pump_starved", of_pump(|pump| pump.starved)),
        ("pump_datagrams_total", of_pump(|pump| pump.datagrams)),
        ("pump_bytes_total", of_pump(|pump| pump.bytes)),
        ("pump_underruns_total", of_pump(|pump| pump.underruns)),
        ("pump_lost_packets_total", of_pump(|pump| pump.lost)),
        ("relay_allocations", of_relay(|relay| relay.allocations.total())),
        ("relay_allocations_begun_total", of_relay(|relay| relay.allocations_begun)),
        ("relay_packets_to_peers_total", of_relay(|relay| relay.packets_to_peers)),
        ("relay_packets_to_clients_total", of_relay(|relay| relay.packets_to_clients)),
        ("relay_bytes_to_peers_total", of_relay(|relay| relay.bytes_to_peers)),
        ("relay_bytes_to_clients_total", of_relay(|relay| relay.bytes_to_clients)),
        ("reflect_streams", app.reflect.as_ref().map_or(0, |reflect| reflect.stream_count()) as u64),
        ("reflect_viewers", app.reflect.as_ref().map_or(0, |reflect| reflect.viewer_count()) as u64),
        ("reflect_sent_bytes_total", of_reflect(|reflect| reflect.sent_bytes)),
        ("reflect_skips_total", of_reflect(|reflect| reflect.skips)),
    ]
}

/// A reason, and where its count is.
type Read = (&'static str, fn(&CountersSnapshot) -> u64);

/// By who dropped it and why, of all workers together. The set is the same in each reading.
fn drops(
    engine: &[CountersSnapshot],
    rooms: &[rooms::counters::Counters],
    relay: &[relay::counters::Counters],
) -> Vec<(&'static str, &'static str, u64)> {
    let of_engine: [Read; 7] = [
        ("receive_full", |engine| engine.dropped_receive_full),
        ("queue_full", |engine| engine.dropped_queue_full),
        ("socket_full", |engine| engine.dropped_socket_full),
        ("refused", |engine| engine.dropped_refused),
        ("no_link", |engine| engine.dropped_no_link),
        ("tcp_full", |engine| engine.dropped_tcp_full),
        ("truncated", |engine| engine.truncated),
    ];
    let mut all: Vec<_> =
        of_engine.iter().map(|(why, read)| ("worker", *why, engine.iter().map(read).sum::<u64>())).collect();
    let mut of_rooms = rooms::drops::DropCounters::default().iter().collect::<Vec<_>>();
    for (reason, count) in &mut of_rooms {
        *count = rooms.iter().map(|rooms| rooms.drops.count(*reason)).sum();
    }
    all.extend(of_rooms.into_iter().map(|(reason, count)| ("rooms", <&str>::from(reason), count)));
    let mut of_relay = relay::drops::DropCounters::default().iter().collect::<Vec<_>>();
    for (reason, count) in &mut of_relay {
        *count = relay.iter().map(|relay| relay.drops.count(*reason)).sum();
    }
    all.extend(of_relay.into_iter().map(|(reason, count)| ("relay", <&str>::from(reason), count)));
    all
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
