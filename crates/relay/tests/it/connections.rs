//! Clients over TCP and TLS.

use std::net::SocketAddr;
use std::time::Duration;

use relay::message::Message;
use relay::spec::{ClientTransport, Event};

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
    assert!(matches!(world.events.last(), Some(Event::Ended(_))));
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
        let _ = Client::over(ClientTransport::Tcp, &mut world, port);
    }
    assert_eq!(world.connect(([192, 0, 2, 200], 3).into(), ClientTransport::Tcp), None);
    assert_eq!((world.connections.len(), world.relay.counters().connections_refused), (2, 1));
}
