//! ChannelBind (RFC 8656 §12).

use std::net::SocketAddr;
use std::time::Duration;

use crate::client::{Client, channel_data};
use crate::world::World;

const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 5_000);

#[test]
fn a_channel_carries_data_both_ways_for_600_seconds() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let (peer, relayed) = (PEER.into(), client.allocate(&mut world));
    assert!(client.send_on(&mut world, 0x4000, b"hello", peer).is_empty());
    assert_eq!(client.bind(&mut world, 0x4000, peer), 0);
    world.advance(Duration::from_millis(500_000));
    client.refresh(&mut world, 600);
    world.advance(Duration::from_millis(99_999));
    assert_eq!(client.send_on(&mut world, 0x4000, b"hello", peer), [b"hello"]);
    assert_eq!(client.hear(&mut world, relayed, peer, b"answer"), [channel_data(0x4000, b"answer")]);
    world.advance(Duration::from_millis(1));
    assert!(client.send_on(&mut world, 0x4000, b"hello", peer).is_empty());
    assert!(client.hear(&mut world, relayed, peer, b"answer").is_empty());
}

#[test]
fn it_permits_its_own_peer_for_as_long_and_the_rest_of_the_address_for_300_seconds() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let (peer, relayed) = (SocketAddr::from(PEER), client.allocate(&mut world));
    let neighbour = SocketAddr::new(peer.ip(), 7);
    client.bind(&mut world, 0x4000, peer);
    assert_eq!(client.hear(&mut world, relayed, neighbour, b"four").len(), 1);
    world.advance(Duration::from_secs(300));
    assert!(client.hear(&mut world, relayed, neighbour, b"four").is_empty());
    assert!(client.send(&mut world, neighbour, b"four").is_empty());
    assert_eq!(client.hear(&mut world, relayed, peer, b"four").len(), 1);
    assert_eq!(client.send(&mut world, peer, b"four").len(), 1);
}

#[test]
fn a_number_and_a_peer_belong_together() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let [one, two] = [1, 2].map(|port| SocketAddr::from(([198, 51, 100, 1], port)));
    assert_eq!(client.bind(&mut world, 0x4000, one), 0);
    assert_eq!(client.bind(&mut world, 0x4000, one), 0, "that refreshes it");
    assert_eq!(client.bind(&mut world, 0x4000, two), 400);
    assert_eq!(client.bind(&mut world, 0x4001, one), 400);
    assert_eq!(client.bind(&mut world, 0x4001, two), 0);
    for number in [0, 0x3fff, 0x8000, 0xffff] {
        assert_eq!(client.bind(&mut world, number, ([198, 51, 100, 3], 1).into()), 400, "{number:#x}");
    }
    // As RFC 5766 has it.
    assert_eq!(client.bind(&mut world, 0x7fff, ([198, 51, 100, 3], 1).into()), 0);
    assert_eq!(client.bind(&mut world, 0x4002, "[2001:db8::9]:1".parse().unwrap()), 443);
}

#[test]
fn channels_have_a_limit() {
    let mut world = World::new(|settings| settings.channels_max = 2);
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let codes = [1, 2, 3].map(|last| client.bind(&mut world, 0x4000 + last, ([198, 51, 100, 1], last).into()));
    assert_eq!(codes, [0, 0, 508]);
}
