//! CreatePermission (RFC 8656 §9, §10), and which peers are refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use relay::answer::Writer;
use relay::drops::DropReason;
use relay::message::{Method, attribute};
use relay::rules::{Lists, Own, Rules};
use relay::spec::{ClientTransport, Command};

use crate::client::Client;
use crate::world::{RELAY, World};

const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 5_000);

/// Who listens at one of the relay's ports on the same host, and is no relayed address, is not reached through it.
#[test]
fn of_the_relay_s_own_ports_only_relayed_addresses_are_peers_and_only_while_they_are_there() {
    let mut world = World::new(|settings| {
        let relayed = vec!["203.0.113.1:50000-50999".parse().unwrap()];
        let own = Own { relayed, opened: settings.opened.clone(), ..Own::default() };
        settings.rules = Arc::new(Rules::new(&Lists::default(), &own));
        settings.allows_tcp = true;
    });
    let (mut ann, mut bob) = (Client::new(1), Client::of("bob", 2));
    let (of_ann, of_bob) = (ann.allocate(&mut world), bob.allocate(&mut world));
    assert_eq!((ann.permit(&mut world, &[of_bob]), bob.permit(&mut world, &[of_ann])), (0, 0));
    ann.send(&mut world, of_bob, b"hello");
    assert_eq!(bob.take(&mut world).len(), 1);
    let other = (50_000..51_000).map(|port| SocketAddr::from((RELAY, port)));
    let other = other.into_iter().find(|peer| ![of_ann, of_bob].contains(peer)).unwrap();
    assert_eq!(ann.bind(&mut world, 0x4001, other), 403);
    let mut over_tcp = Client::over(ClientTransport::Tcp, &mut world, 3);
    let transport = |writer: &mut Writer<'_>| _ = writer.number(attribute::REQUESTED_TRANSPORT, 6 << 24);
    assert_eq!(over_tcp.request(&mut world, Method::Allocate, transport).code, 0);
    let connect = |writer: &mut Writer<'_>| _ = writer.xor_address(attribute::XOR_PEER_ADDRESS, of_bob);
    assert_eq!(over_tcp.request(&mut world, Method::Connect, connect).code, 403, "it is one of UDP");

    bob.refresh(&mut world, 0);
    world.advance(Duration::from_secs(1));
    assert!(ann.send(&mut world, of_bob, b"anybody there?").is_empty());
    assert_eq!(world.relay.counters().drops.count(DropReason::ForbiddenPeer), 1);
    assert_eq!(ann.bind(&mut world, 0x4003, of_bob), 403);
}

#[test]
fn permission_lapses_300_seconds_after_the_last_create_permission() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let (peer, relayed) = (PEER.into(), client.allocate(&mut world));
    assert!(client.send(&mut world, peer, b"hello").is_empty());
    assert!(client.hear(&mut world, relayed, peer, b"hello").is_empty());
    assert_eq!(world.relay.counters().drops.count(DropReason::NoPermission), 2);

    assert_eq!(client.permit(&mut world, &[peer]), 0);
    world.advance(Duration::from_secs(100));
    assert_eq!(client.permit(&mut world, &[peer]), 0);
    world.advance(Duration::from_millis(299_999));
    assert_eq!(client.send(&mut world, peer, b"hello"), [b"hello"]);
    // By address, whatever the port.
    let other_port = SocketAddr::new(peer.ip(), 7);
    assert_eq!(client.hear(&mut world, relayed, other_port, b"hello").len(), 1);

    world.advance(Duration::from_millis(1));
    assert!(client.send(&mut world, peer, b"hello").is_empty());
    assert!(client.hear(&mut world, relayed, peer, b"hello").is_empty());
}

#[test]
fn all_peers_of_a_request_are_permitted_or_none() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let [one, two]: [SocketAddr; 2] = [([198, 51, 100, 1], 0).into(), ([198, 51, 100, 2], 9).into()];
    assert_eq!(client.permit(&mut world, &[one, ([127, 0, 0, 1], 9).into()]), 403);
    assert_eq!(client.permit(&mut world, &[one, "[2001:db8::9]:1".parse().unwrap()]), 443);
    assert_eq!(client.permit(&mut world, &[]), 400);
    assert!(client.send(&mut world, SocketAddr::new(one.ip(), 9), b"x").is_empty());
    assert_eq!(client.permit(&mut world, &[one, two]), 0);
    assert_eq!(client.send(&mut world, SocketAddr::new(one.ip(), 9), b"x").len(), 1);
    assert_eq!(client.send(&mut world, two, b"x").len(), 1);
    assert!(client.send(&mut world, one, b"x").is_empty(), "port 0 is none");
}

#[test]
fn permissions_have_a_limit() {
    let mut world = World::new(|settings| settings.permissions_max = 3);
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let peer = |last: u8| SocketAddr::from(([198, 51, 100, last], 1));
    assert_eq!(client.permit(&mut world, &[peer(1), peer(2)]), 0);
    assert_eq!(client.permit(&mut world, &[peer(3), peer(4)]), 508);
    assert_eq!(client.permit(&mut world, &[peer(3), peer(2), peer(3)]), 0);
    assert_eq!(client.bind(&mut world, 0x4000, peer(4)), 508);
    let many: Vec<_> = (0..65).map(peer).collect();
    assert_eq!(client.permit(&mut world, &many), 508);
    world.advance(Duration::from_secs(300));
    assert_eq!(client.permit(&mut world, &[peer(4), peer(5), peer(6)]), 0);
}

/// What attackers did: the host's own network, in every form of its addresses.
#[test]
fn peers_that_mean_something_else_to_the_host_are_refused() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    let peers = [
        "127.0.0.1:80",
        "0.0.0.0:80",
        "169.254.169.254:80",
        "10.1.2.3:80",
        "192.168.0.1:80",
        "100.64.0.1:80",
        "224.0.0.1:80",
        "255.255.255.255:80",
        "[::]:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
        "[::127.0.0.1]:80",
        "[2002:7f00:1::]:80",
        "[64:ff9b::7f00:1]:80",
        "[2001:0:1::]:80",
        "[fe80::1]:80",
        "[fd00::1]:80",
        "[ff02::1]:80",
    ];
    for peer in peers {
        let peer: SocketAddr = peer.parse().unwrap();
        assert_eq!(client.permit(&mut world, &[peer]), 403, "{peer}");
        assert_eq!(client.bind(&mut world, 0x4000, peer), 403, "{peer}");
        assert!(client.send(&mut world, peer, b"x").is_empty(), "{peer}");
    }
    assert_eq!(client.bind(&mut world, 0x4000, ([198, 51, 100, 1], 0).into()), 403, "port 0");
}

#[test]
fn a_rule_for_ports_holds_for_each_datagram() {
    let lists = Lists { allow: vec!["10.0.0.0/8:5000-5009".parse().unwrap()], deny: Vec::new() };
    let rules = Arc::new(Rules::new(&lists, &Own::default()));
    let mut world = World::new(|settings| settings.rules = rules);
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    let [allowed, refused] = [5_000, 5_010].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
    assert_eq!(client.permit(&mut world, &[refused]), 0, "it is for the address");
    assert_eq!(client.send(&mut world, allowed, b"x").len(), 1);
    assert!(client.send(&mut world, refused, b"x").is_empty());
    assert_eq!(client.hear(&mut world, relayed, allowed, b"x").len(), 1);
    assert!(client.hear(&mut world, relayed, refused, b"x").is_empty());
    assert_eq!(world.relay.counters().drops.count(DropReason::ForbiddenPeer), 2);
    assert_eq!((client.bind(&mut world, 0x4000, allowed), client.bind(&mut world, 0x4001, refused)), (0, 403));
}

#[test]
fn other_rules_hold_for_what_was_permitted_before() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let (peer, relayed) = (PEER.into(), client.allocate(&mut world));
    let bound = ([198, 51, 100, 2], 1).into();
    client.permit(&mut world, &[peer]);
    client.bind(&mut world, 0x4000, bound);
    let lists = Lists { allow: Vec::new(), deny: vec!["198.51.100.0/24".parse().unwrap()] };
    world.command(Command::Rules(Arc::new(Rules::new(&lists, &Own::default()))));
    assert!(client.send(&mut world, peer, b"x").is_empty());
    assert!(client.hear(&mut world, relayed, peer, b"x").is_empty());
    assert!(client.send_on(&mut world, 0x4000, b"x", bound).is_empty());
    assert!(client.hear(&mut world, relayed, bound, b"x").is_empty());
    assert_eq!(client.permit(&mut world, &[peer]), 403);
}

#[test]
fn other_rules_hold_for_every_allocation_soon_and_for_few_at_a_time() {
    let mut world = World::new(|_| {});
    let peer = PEER.into();
    let mut clients: Vec<_> = (1..=200).map(Client::new).collect();
    for client in &mut clients {
        client.allocate(&mut world);
        assert_eq!(client.permit(&mut world, &[peer]), 0);
    }
    let lists = Lists { allow: Vec::new(), deny: vec!["198.51.100.0/24".parse().unwrap()] };
    world.command(Command::Rules(Arc::new(Rules::new(&lists, &Own::default()))));
    let mut reached = || clients.iter_mut().filter(|client| !client.send(&mut world, peer, b"x").is_empty()).count();
    assert_eq!(reached(), 200 - 64);
    for _ in 0..4 {
        world.advance(Duration::from_millis(1));
    }
    let mut reached = || clients.iter_mut().filter(|client| !client.send(&mut world, peer, b"x").is_empty()).count();
    assert_eq!(reached(), 0);
}

#[test]
fn without_an_allocation_nothing_is_permitted() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.refresh(&mut world, 0);
    assert_eq!(client.permit(&mut world, &[PEER.into()]), 437);
    assert_eq!(client.bind(&mut world, 0x4000, PEER.into()), 437);
}
