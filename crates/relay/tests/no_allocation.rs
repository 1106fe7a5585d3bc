//! A datagram between a client and a peer takes no memory from the heap, whichever way it goes.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/allocations.rs"]
mod allocations;
#[path = "support/client.rs"]
mod client;
#[path = "support/sealed.rs"]
mod sealed;
#[path = "support/world.rs"]
mod world;

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use allocations::watched;
use client::{Client, channel_data, indication};
use relay::message::Method;
use wire::{DatagramRun, Outbox, Path, Product as _, Token};
use world::World;

/// Datagrams of one run.
const COUNT: usize = 40;

/// Runs each way before the watch, in which the outbox's tables grow to what they hold, and during it.
const RUNS: usize = 100;

/// What comes to a link, again and again.
struct Incoming {
    number: u32,
    path: Path,
    data: Vec<u8>,
    segment: usize,
}

impl Incoming {
    fn new(number: u32, path: Path, datagram: &[u8]) -> Self {
        Incoming { number, path, data: datagram.repeat(COUNT), segment: datagram.len() }
    }

    /// Hands it to the relay; how many datagrams leave.
    fn handle(&mut self, world: &mut World, out: &mut Outbox) -> usize {
        let (token, segment) = (Token { owner: 0, number: self.number }, NonZeroUsize::new(self.segment).unwrap());
        let run = DatagramRun::new(token, self.path, segment, &mut self.data).at(0);
        world.relay.handle_run(world.now, run, out);
        let count = out.runs().iter().map(|run| run.segment_count()).sum();
        out.clear();
        count
    }
}

#[test]
fn data_costs_no_allocation() {
    let mut world = World::new(|_| {});
    let (mut ann, mut bob) = (Client::new(1), Client::of("bob", 2));
    let (of_ann, of_bob) = (ann.allocate(&mut world), bob.allocate(&mut world));
    let [bound, permitted] = [5_000, 6_000].map(|port| SocketAddr::from(([198, 51, 100, 1], port)));
    ann.bind(&mut world, 0x4000, bound);
    ann.bind(&mut world, 0x4001, of_bob);
    bob.bind(&mut world, 0x4000, of_ann);
    let (link, token, _) = *world.sockets.values().find(|(_, _, addr)| *addr == of_ann).unwrap();
    let from = |remote| Path { link, remote, local: None };
    let mut ways = [
        Incoming::new(ann.number, ann.path, &channel_data(0x4000, &[7; 100])),
        Incoming::new(ann.number, ann.path, &channel_data(0x4001, &[7; 100])),
        Incoming::new(ann.number, ann.path, &indication(Method::Send, permitted, &[7; 101])),
        Incoming::new(token.number, from(bound), &[7; 100]),
        Incoming::new(token.number, from(permitted), &[7; 100]),
        Incoming::new(token.number, from(permitted), &[7; 101]),
    ];
    let mut out = Outbox::new(512 * 1_024);
    for way in &mut ways {
        (0..RUNS).for_each(|_| assert_eq!(way.handle(&mut world, &mut out), COUNT));
    }
    let mut sent = 0;
    let (allocations, ()) = watched(|| {
        for way in &mut ways {
            (0..RUNS).for_each(|_| sent += way.handle(&mut world, &mut out));
        }
    });
    assert_eq!((allocations, sent), (0, 6 * RUNS * COUNT));
}

#[test]
fn data_by_dtls_costs_no_allocation() {
    let (mut world, mut control) = (sealed::with_dtls(|_| {}), sealed::Control::new());
    let mut client = sealed::Sealed::connected(&mut world, &mut control, 1);
    let (relayed, peer) = (client.allocate(&mut world), SocketAddr::from(([198, 51, 100, 1], 5_000)));
    client.bind(&mut world, 0x4000, peer);
    let (link, token, _) = *world.sockets.values().find(|(_, _, addr)| *addr == relayed).unwrap();
    let data = channel_data(0x4000, &[7; 100]);
    // A record is good once.
    let mut up: Vec<Incoming> = (0..2 * RUNS)
        .map(|_| {
            let records = client.seal(&[&data[..]; COUNT]);
            let (number, path, segment) = (sealed::LISTENER, client.client.path, records[0].len());
            Incoming { number, path, data: records.concat(), segment }
        })
        .collect();
    let mut down = Incoming::new(token.number, Path { link, remote: peer, local: None }, &[7; 100]);
    let mut out = Outbox::new(512 * 1_024);
    let (before, watched_for) = up.split_at_mut(RUNS);
    for way in before {
        assert_eq!((way.handle(&mut world, &mut out), down.handle(&mut world, &mut out)), (COUNT, COUNT));
    }
    let mut sent = 0;
    let (allocations, ()) = watched(|| {
        for way in watched_for {
            sent += way.handle(&mut world, &mut out) + down.handle(&mut world, &mut out);
        }
    });
    assert_eq!((allocations, sent), (0, 2 * RUNS * COUNT));
}

#[test]
fn a_hello_without_a_cookie_costs_no_allocation() {
    let mut world = sealed::with_dtls(|_| {});
    let client = sealed::Sealed::new(&world, 1);
    let mut hellos = Incoming::new(sealed::LISTENER, client.client.path, &client.sends[0]);
    let mut out = Outbox::new(512 * 1_024);
    assert_eq!(hellos.handle(&mut world, &mut out), COUNT);
    assert_eq!(watched(|| hellos.handle(&mut world, &mut out)), (0, COUNT));
}

#[test]
fn what_proves_nothing_costs_no_allocation() {
    let mut world = World::new(|_| {});
    let client = Client::new(1);
    let mut ways = [&b"\x00\x01\x00\x00\x21\x12\xa4\x42............"[..], &[0x40, 0, 0, 4, 1, 2, 3, 4], &[0xff; 20]]
        .map(|datagram| Incoming::new(client.number, client.path, datagram));
    let mut out = Outbox::new(512 * 1_024);
    ways.iter_mut().for_each(|way| assert!(way.handle(&mut world, &mut out) <= COUNT));
    let (allocations, _) = watched(|| ways.iter_mut().map(|way| way.handle(&mut world, &mut out)).sum::<usize>());
    assert_eq!(allocations, 0);
}

#[test]
fn the_watch_sees_an_allocation() {
    let (count, _) = watched(|| std::hint::black_box(Box::new(1)));
    assert_eq!(count, 1);
}

/// The key of a user of these tests.
fn key(user: &str) -> Vec<u8> {
    relay::auth::UserKeys::new(user, "millrace", world::PASSWORD).md5.unwrap().to_vec()
}
