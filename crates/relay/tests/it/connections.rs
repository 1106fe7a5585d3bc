//! Clients over TCP and TLS.

use std::net::SocketAddr;
use std::time::Duration;

use relay::message::Message;
use relay::spec::{ClientTransport, EndReason, Event};
use wire::LinkId;

use crate::client::{Client, channel_data};
use crate::world::World;

const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 5_000);

#[test]
fn a_client_that_connects_has_all_that_others_have() {
    for transport in [ClientTransport::Tcp, ClientTransport::Tls] {
        let mut world = World::new(|_| {});
        let mut client = Client::over(transport, &mut world, 1);
        let (peer, relayed) = (SocketAddr::from(PEER), client.allocate(&mut world));
        assert!(matches!(world.events.last(), Some(Event::Began(info)) if info.transport == transport));
        client.permit(&mut world, &[peer]);
        assert_eq!(client.send(&mut world, peer, b"hello"), [b"hello"]);
        // The engine pads what it sends.
        let heard = client.hear(&mut world, relayed, peer, b"hello");
        assert_eq!(Message::parse(&[&heard[0][..], &[0; 3]].concat()).unwrap().peers().next(), Some(peer));
        client.bind(&mut world, 0x4000, peer);
        assert_eq!(client.send_on(&mut world, 0x4000, b"hello", peer), [b"hello"]);
        assert_eq!(client.hear(&mut world, relayed, peer, b"hello"), [channel_data(0x4000, b"hello")]);
        assert_eq!(client.refresh(&mut world, 0).code, 0);
    }
}

#[test]
fn an_allocation_ends_with_its_connection() {
    let mut world = World::new(|_| {});
    let mut client = Client::over(ClientTransport::Tcp, &mut world, 1);
    client.allocate(&mut world);
    assert_eq!(world.relay.counters().connections, 1);
    world.hang_up(&client.path);
    assert!(matches!(world.events.last(), Some(Event::Ended(_, EndReason::ConnectionClosed, _))));
    assert_eq!((world.sockets.len(), world.relay.counters().connections), (0, 0));
}

#[test]
fn a_connection_that_nobody_uses_is_closed() {
    let mut world = World::new(|_| {});
    let mut used = Client::over(ClientTransport::Tcp, &mut world, 1);
    used.allocate(&mut world);
    let _ = Client::over(ClientTransport::Tls, &mut world, 2);
    world.advance(Duration::from_secs(59));
    assert_eq!(world.connections.len(), 2);
    world.advance(Duration::from_secs(2));
    assert_eq!(world.connections.len(), 1);
    world.advance(Duration::from_secs(500));
    assert_eq!(world.connections.len(), 1, "its allocation is there");
    world.advance(Duration::from_secs(100));
    assert_eq!((world.connections.len(), world.relay.counters().connections), (0, 0));
}

#[test]
fn connections_have_a_limit() {
    let mut world = World::new(|settings| settings.connections_max = 2);
    for port in 1..=2 {
        Client::over(ClientTransport::Tcp, &mut world, port).allocate(&mut world);
    }
    assert_eq!(world.connect(([192, 0, 2, 200], 3).into(), ClientTransport::Tcp), None);
    assert_eq!((world.connections.len(), world.relay.counters().connections_refused), (2, 1));
}

#[test]
fn connections_that_nobody_makes_use_of_make_room_for_newcomers_and_others_stay() {
    let mut world = World::new(|settings| {
        settings.connections_max = 5;
        settings.strangers_per_source_max = 2;
    });
    let connect = |world: &mut World, source: u8, port: u16| {
        world.connect(([192, 0, 2, source], port).into(), ClientTransport::Tcp).map(|(_, path)| path.link)
    };
    let mut used = Client::over(ClientTransport::Tcp, &mut world, 1);
    used.allocate(&mut world);
    let of_one: Vec<_> = (2..=5).map(|port| connect(&mut world, 200, port).expect("it is taken over")).collect();
    let there = |world: &World, link: &LinkId| world.connections.contains_key(&link.slot());
    let is_there: Vec<_> = of_one.iter().map(|link| there(&world, link)).collect();
    assert_eq!(is_there, [false, false, true, true], "a source has so many");
    let others: Vec<_> = (1..=4).map(|source| connect(&mut world, source, 9).expect("it is taken over")).collect();
    assert!(
        !there(&world, &of_one[3]) && others.iter().all(|link| there(&world, link)) && world.connections.len() == 5
    );
    assert!(there(&world, &used.path.link), "somebody makes use of it");
    assert_eq!(world.relay.counters().connections_made_room, 4);
    // Who has no allocation any more is one of them again, the last.
    assert_eq!(used.refresh(&mut world, 0).code, 0);
    for source in 11..=14 {
        connect(&mut world, source, 9).expect("it is taken over");
    }
    assert!(there(&world, &used.path.link));
    connect(&mut world, 15, 9).expect("it is taken over");
    assert!(!there(&world, &used.path.link));
}

#[test]
fn long_messages_are_for_who_has_an_allocation() {
    let mut world = World::new(|_| {});
    let mut client = Client::over(ClientTransport::Tcp, &mut world, 1);
    let slot = client.path.link.slot();
    assert!(world.frames_max[&slot] <= 4_096);
    client.allocate(&mut world);
    assert!(world.frames_max[&slot] > 65_535);
    client.refresh(&mut world, 0);
    assert!(world.frames_max[&slot] <= 4_096);
}
