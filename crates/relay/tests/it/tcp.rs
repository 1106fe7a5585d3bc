//! TCP allocations (RFC 6062).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use relay::ledger::{Ledger, LedgerSettings};
use relay::message::{Class, Message, Method, attribute};
use relay::rules::{Lists, Own, Rules};
use relay::settings::Settings;
use relay::spec::{ClientTransport, Command, connection_worker};
use wire::{LinkId, WorkerId};

use crate::client::{Answer, Client};
use crate::world::{RELAY, World};

const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 5_000);

/// A world in which TCP is allowed, a client with a TCP allocation, and its relayed address.
fn allocated() -> (World, Client, SocketAddr) {
    allocated_with(|_| {})
}

fn allocated_with(change: impl FnOnce(&mut Settings)) -> (World, Client, SocketAddr) {
    let mut world = World::new(|settings| {
        change(settings);
        settings.allows_tcp = true;
        settings.worker = WorkerId(3);
        settings.peer_connections_max = 3;
    });
    let mut client = Client::over(ClientTransport::Tcp, &mut world, 1);
    let answer = client.request(&mut world, Method::Allocate, |writer| {
        writer.number(attribute::REQUESTED_TRANSPORT, 6 << 24);
    });
    (world, client, answer.relayed())
}

/// Asks for a connection to a peer, which answers; its id and link.
fn connect(world: &mut World, client: &mut Client, peer: SocketAddr) -> (u32, LinkId) {
    let id = client.transaction();
    let request = client.sealed(Method::Connect, id, |writer| {
        writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
    });
    assert!(client.exchange(world, &request).is_empty(), "the peer has not answered");
    let links = world.answer_connects(true);
    let answers = client.take(world);
    let answer = client.read(&answers[0], Method::Connect, id);
    (answer.number(attribute::CONNECTION_ID).expect("it is told"), links[0])
}

fn refused(world: &mut World, client: &mut Client, peer: SocketAddr) -> u16 {
    let answer = client.request(world, Method::Connect, |writer| {
        writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
    });
    answer.code
}

/// Binds a connection by another of the client's, behind whose message stands `rest`; its link and the answer.
fn bind(world: &mut World, client: &mut Client, id: u32, rest: &[u8]) -> (LinkId, Answer, Vec<u8>) {
    let transaction = client.transaction();
    let request = client.sealed(Method::ConnectionBind, transaction, |writer| {
        writer.number(attribute::CONNECTION_ID, id);
    });
    let remote = ([192, 0, 2, 200], 40_000 + transaction[3] as u16).into();
    let received = [&request[..], rest].concat();
    let (_, path) = world.connect_with(remote, ClientTransport::Tcp, &received).expect("it is taken over");
    let written = world.read(path.link);
    let len = 20 + usize::from(u16::from_be_bytes([written[2], written[3]]));
    (path.link, client.read(&written[..len], Method::ConnectionBind, transaction), written[len..].to_vec())
}

#[test]
fn a_connection_to_a_peer_is_joined_with_one_of_the_clients() {
    let (mut world, mut client, relayed) = allocated();
    let (id, peer) = connect(&mut world, &mut client, PEER.into());
    assert_eq!(connection_worker(id), WorkerId(3));
    assert!(world.paused.contains(&peer.slot()), "nothing is read before it is bound");
    let (own, answer, _) = bind(&mut world, &mut client, id, b"behind");
    assert_eq!(answer.class, Class::Success);
    assert_eq!(world.read(peer), b"behind");
    assert!(!world.paused.contains(&peer.slot()));
    world.bring(peer, b"to the client");
    world.bring(own, b"to the peer");
    assert_eq!((world.read(own), world.read(peer)), (b"to the client".to_vec(), b"to the peer".to_vec()));
    assert_eq!(world.relay.counters().peer_connections, 1);
    assert_ne!(relayed.port(), 0);
}

#[test]
fn a_connection_leaves_from_the_relayed_address() {
    let (mut world, mut client, relayed) = allocated();
    let id = client.transaction();
    let request = client.sealed(Method::Connect, id, |writer| {
        writer.xor_address(attribute::XOR_PEER_ADDRESS, PEER.into());
    });
    client.exchange(&mut world, &request);
    assert_eq!(world.connecting.iter().map(|(_, to, from)| (*to, *from)).collect::<Vec<_>>(), [(PEER.into(), relayed)]);
}

#[test]
fn a_peer_that_connects_is_told_of_when_it_is_permitted() {
    let (mut world, mut client, relayed) = allocated();
    let peer = SocketAddr::from(PEER);
    assert_eq!(world.connect_peer(relayed, peer), None);
    client.permit(&mut world, &[peer]);
    let link = world.connect_peer(relayed, peer).expect("it is permitted");
    let told = client.take(&mut world);
    let message = Message::parse(&told[0]).expect("an indication");
    assert_eq!((message.class, message.method), (Class::Indication, Some(Method::ConnectionAttempt)));
    assert_eq!(message.peers().next(), Some(peer));
    let (own, answer, _) = bind(&mut world, &mut client, message.connection_id.expect("it is told"), &[]);
    assert_eq!(answer.class, Class::Success);
    world.bring(link, b"hello");
    assert_eq!(world.read(own), b"hello");
}

#[test]
fn two_allocations_behind_one_nat_meet_inside_and_see_each_other_outside() {
    let external = [198, 51, 100, 9].into();
    let (mut world, mut one, at_one) = allocated_with(|settings| settings.relays[0].external = Some(external));
    let mut other = Client::over(ClientTransport::Tcp, &mut world, 2);
    let at_other = other.request(&mut world, Method::Allocate, |writer| {
        writer.number(attribute::REQUESTED_TRANSPORT, 6 << 24);
    });
    let at_other = at_other.relayed();
    assert_eq!((at_one.ip(), at_other.ip()), (external, external));
    let inside = |addr: SocketAddr| SocketAddr::new(RELAY.into(), addr.port());
    let id = one.transaction();
    let request = one.sealed(Method::Connect, id, |writer| {
        writer.xor_address(attribute::XOR_PEER_ADDRESS, at_other);
    });
    one.exchange(&mut world, &request);
    let asked: Vec<_> = world.connecting.iter().map(|(_, to, from)| (*to, *from)).collect();
    assert_eq!(asked, [(inside(at_other), inside(at_one))]);

    other.permit(&mut world, &[at_one]);
    assert!(world.connect_peer(inside(at_other), inside(at_one)).is_some(), "it is permitted");
    let told = other.take(&mut world);
    assert_eq!(Message::parse(&told[0]).expect("an indication").peers().next(), Some(at_one));
}

#[test]
fn what_is_sent_by_udp_to_a_tcp_allocation_does_not_come_to_its_client() {
    let (mut world, mut client, relayed) = allocated();
    let mut other = Client::new(9);
    let at_other = other.allocate(&mut world);
    assert_eq!((client.permit(&mut world, &[at_other]), other.permit(&mut world, &[relayed])), (0, 0));
    other.send(&mut world, relayed, b"x");
    assert!(client.take(&mut world).is_empty());
}

#[test]
fn what_cannot_be_is_refused() {
    let (mut world, mut client, _) = allocated();
    let peer = SocketAddr::from(PEER);
    assert_eq!(refused(&mut world, &mut client, ([127, 0, 0, 1], 22).into()), 403);
    assert_eq!(refused(&mut world, &mut client, "[2001:db8::9]:1".parse().unwrap()), 443);
    assert_eq!(client.request(&mut world, Method::Connect, |_| {}).code, 400);
    connect(&mut world, &mut client, peer);
    assert_eq!(refused(&mut world, &mut client, peer), 446);
    for port in [1, 2] {
        connect(&mut world, &mut client, SocketAddr::new(peer.ip(), port));
    }
    assert_eq!(refused(&mut world, &mut client, SocketAddr::new(peer.ip(), 3)), 508);
    assert_eq!(client.bind(&mut world, 0x4000, peer), 400, "there are no channels");

    // A UDP allocation has no connections, and a client over UDP no TCP allocation.
    let mut other = Client::over(ClientTransport::Tcp, &mut world, 2);
    other.allocate(&mut world);
    assert_eq!(refused(&mut world, &mut other, peer), 400);
    let mut over_udp = Client::new(3);
    for (extra, code) in [(None, 400), (Some(attribute::DONT_FRAGMENT), 400)] {
        let answer = over_udp.request(&mut world, Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 6 << 24);
            if let Some(extra) = extra {
                writer.attribute(extra, &[]);
            }
        });
        assert_eq!(answer.code, code);
    }
}

#[test]
fn a_peer_that_does_not_answer_is_told_of() {
    let (mut world, mut client, _) = allocated();
    for is_silent in [false, true] {
        let id = client.transaction();
        let request = client.sealed(Method::Connect, id, |writer| {
            writer.xor_address(attribute::XOR_PEER_ADDRESS, PEER.into());
        });
        client.exchange(&mut world, &request);
        if is_silent {
            world.advance(Duration::from_secs(31));
        } else {
            world.answer_connects(false);
        }
        let answers = client.take(&mut world);
        assert_eq!(client.read(&answers[0], Method::Connect, id).code, 447);
    }
    // It answers at last, and nobody waits for it.
    let links = world.answer_connects(true);
    assert!(!world.connections.contains_key(&links[0].slot()));
    assert_eq!(world.relay.counters().peer_connections, 0);
    connect(&mut world, &mut client, PEER.into());
}

#[test]
fn only_its_user_binds_a_connection_and_once() {
    let (mut world, mut client, _) = allocated();
    let (id, _) = connect(&mut world, &mut client, PEER.into());
    let mut bob = Client::of("bob", 9);
    bob.allocate(&mut world);
    assert_eq!(bind(&mut world, &mut bob, id, &[]).1.code, 441);
    assert_eq!(bind(&mut world, &mut client, id ^ 1, &[]).1.code, 400);
    assert_eq!(bind(&mut world, &mut client, id, &[]).1.code, 0);
    assert_eq!(bind(&mut world, &mut client, id, &[]).1.code, 400);
    // On a connection of messages it is no request.
    let answer = client.request(&mut world, Method::ConnectionBind, |writer| {
        writer.number(attribute::CONNECTION_ID, id);
    });
    assert_eq!(answer.code, 400);
}

#[test]
fn who_has_still_to_prove_himself_may_do_so_on_the_same_connection() {
    let (mut world, mut client, _) = allocated();
    let (id, peer) = connect(&mut world, &mut client, PEER.into());
    let mut stranger = client.clone();
    stranger.nonce.clear();
    let ask = |client: &Client, transaction| {
        client.sealed(Method::ConnectionBind, transaction, |writer| {
            writer.number(attribute::CONNECTION_ID, id);
        })
    };
    let transactions = [client.transaction(), client.transaction()];
    let first = ask(&stranger, transactions[0]);
    let remote = ([192, 0, 2, 200], 50_000).into();
    let (_, path) = world.connect_with(remote, ClientTransport::Tls, &first).expect("it is taken over");
    let answer = world.read(path.link);
    assert_eq!(stranger.read(&answer, Method::ConnectionBind, transactions[0]).code, 401);
    // In pieces, as streams may have it.
    let second = [&ask(&client, transactions[1])[..], b"data"].concat();
    second.chunks(7).for_each(|piece| world.bring(path.link, piece));
    let answer = world.read(path.link);
    assert_eq!(client.read(&answer, Method::ConnectionBind, transactions[1]).code, 0);
    assert_eq!(world.read(peer), b"data");
}

#[test]
fn who_binds_nothing_is_closed() {
    let (mut world, mut client, _) = allocated();
    let (id, peer) = connect(&mut world, &mut client, PEER.into());
    world.advance(Duration::from_secs(31));
    assert!(!world.connections.contains_key(&peer.slot()));
    assert_eq!(bind(&mut world, &mut client, id, &[]).1.code, 400);
    world.advance(Duration::from_secs(61));
    assert_eq!(world.connections.len(), 1, "the client's own");
    // What is no message ends it.
    for rest in [&[0xff, 0xfc][..], &[[0, 8], [0xff; 2]].concat()] {
        let bytes = [&[0, 0x0b], rest, &[0xff; 40]].concat();
        world.connect_with(([192, 0, 2, 200], 1).into(), ClientTransport::Tcp, &bytes);
        assert_eq!(world.connections.len(), 1);
    }
}

#[test]
fn when_one_side_ends_the_other_gets_what_was_on_its_way() {
    for who_ends in 0..4 {
        let (mut world, mut client, _) = allocated();
        let (id, peer) = connect(&mut world, &mut client, PEER.into());
        let (own, _, _) = bind(&mut world, &mut client, id, &[]);
        world.bring(own, b"last words");
        world.bring(peer, b"last answer");
        assert_eq!((world.read(peer), world.read(own)), (b"last words".to_vec(), b"last answer".to_vec()));
        match who_ends {
            0 => world.end_input(own),
            1 => world.end_input(peer),
            2 => world.hang_up(&client.path),
            _ => assert_eq!(client.refresh(&mut world, 0).code, 0),
        }
        assert!(!world.connections.contains_key(&peer.slot()) && !world.connections.contains_key(&own.slot()));
        assert_eq!(world.relay.counters().peer_connections, 0);
    }
}

#[test]
fn a_user_over_his_bandwidth_is_read_more_slowly() {
    let (mut world, mut client, _) = allocated_with(|settings| {
        let user_bandwidth = Some(wire::Bitrate::from_kbps(800));
        let ledger = LedgerSettings { user_bandwidth, ..LedgerSettings::default() };
        settings.ledger = Arc::new(Ledger::new(settings.epoch.0, ledger));
    });
    let (id, peer) = connect(&mut world, &mut client, PEER.into());
    let (own, _, _) = bind(&mut world, &mut client, id, &[]);
    let mut sent = 0;
    for _ in 0..1_000 {
        if !world.paused.contains(&peer.slot()) {
            world.bring(peer, &[7; 10_000]);
            sent += 10_000;
        }
        world.advance(Duration::from_millis(10));
        assert!(!world.paused.contains(&own.slot()), "the other way is not concerned");
    }
    // 100,000 bytes a second for ten seconds, and what may come at once.
    assert!((1_000_000..1_200_000).contains(&sent), "{sent}");
    assert_eq!(world.read(own).len(), sent);
}

#[test]
fn who_does_not_read_has_the_other_side_wait() {
    let (mut world, mut client, _) = allocated();
    let (id, peer) = connect(&mut world, &mut client, PEER.into());
    let (own, _, _) = bind(&mut world, &mut client, id, &[]);
    world.stalled.insert(own.slot());
    let piece: Vec<u8> = (0..16_384).map(|index| (index % 251) as u8).collect();
    let mut sent = Vec::new();
    while !world.paused.contains(&peer.slot()) {
        world.bring(peer, &piece);
        sent.extend(&piece);
        assert!(sent.len() < 200_000, "it is paused");
    }
    // What was read before the engine heard of it.
    for _ in 0..3 {
        world.bring(peer, &piece);
        sent.extend(&piece);
    }
    assert_eq!(world.read(own), sent);
    world.drain(own);
    assert!(!world.paused.contains(&peer.slot()));
    world.bring(peer, b"more");
    assert_eq!(world.read(own), b"more");
}

/// Two ends of a pipe each way: what one wrote, and what the other has read.
#[derive(Default)]
struct Way {
    written: Vec<u8>,
    read: Vec<u8>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whoever stalls and goes on, nothing is lost, doubled or out of order, and little waits.
    #[test]
    fn what_is_joined_arrives_as_it_was_sent(steps in prop::collection::vec((0..8_u8, 1..20_000_usize), 1..120)) {
        let (mut world, mut client, _) = allocated();
        let (id, peer) = connect(&mut world, &mut client, PEER.into());
        let (own, _, _) = bind(&mut world, &mut client, id, &[]);
        let ends = [own, peer];
        let mut ways = [Way::default(), Way::default()];
        for (what, len) in steps {
            let from = usize::from(what & 1);
            let (link, other) = (ends[from], ends[1 - from]);
            match what >> 1 {
                0 | 1 if world.paused.contains(&link.slot()) => {}
                0 | 1 => {
                    let start = ways[from].written.len();
                    let bytes: Vec<u8> = (start..start + len).map(|place| (place % 251) as u8).collect();
                    world.bring(link, &bytes);
                    ways[from].written.extend(bytes);
                }
                2 => drop(world.stalled.insert(other.slot())),
                _ => world.drain(other),
            }
            ways[from].read.extend(world.read(other));
            prop_assert!(ways[from].written.len() - ways[from].read.len() <= 128 * 1_024);
        }
        ends.iter().for_each(|link| world.drain(*link));
        for from in 0..2 {
            ways[from].read.extend(world.read(ends[1 - from]));
            prop_assert!(ways[from].written == ways[from].read);
            prop_assert!(!world.paused.contains(&ends[from].slot()), "it is read again");
        }
        world.end_input(own);
        prop_assert_eq!((world.connections.len(), world.relay.counters().peer_connections), (1, 0));
    }
}

#[test]
fn before_it_is_data_a_connection_is_answered_one_bind_at_a_time_and_closed_for_anything_else() {
    let (mut world, client, _) = allocated();
    let request = |method: u8, number: u8| [&[0, method, 0, 0, 0x21, 0x12, 0xa4, 0x42], &[number; 12][..]].concat();
    let bind = request(0x0b, 1);
    for behind in [request(0x01, 2), request(0x0b, 2), request(0x03, 2)] {
        let flood = [&bind[..], &behind.repeat(700)].concat();
        world.connect_with(([192, 0, 2, 200], 1).into(), ClientTransport::Tcp, &flood);
        assert_eq!(world.connections.len(), 1, "the client's own");
        let answers: usize = world.written.values().map(Vec::len).sum();
        assert!(answers < 200, "one challenge, not {answers} bytes");
        world.written.clear();
    }
    // One by one they are answered, a few times.
    let (_, path) = world.connect_with(([192, 0, 2, 200], 1).into(), ClientTransport::Tcp, &bind).expect("taken over");
    let mut answered = 0;
    while world.connections.contains_key(&path.link.slot()) {
        answered += usize::from(!world.read(path.link).is_empty());
        world.bring(path.link, &bind);
    }
    assert!((2..10).contains(&answered), "{answered} times");
    // What is no request for data ends it at once.
    let (_, path) = world.connect_with(([192, 0, 2, 200], 1).into(), ClientTransport::Tcp, &bind).expect("taken over");
    world.bring(path.link, &request(0x01, 2));
    assert_eq!((world.connections.len(), world.connections.contains_key(&client.path.link.slot())), (1, true));
}

#[test]
fn a_peer_that_is_not_permitted_is_let_go_at_once() {
    let (mut world, mut client, relayed) = allocated();
    for port in 1..=200 {
        assert_eq!(world.connect_peer(relayed, ([198, 51, 100, 9], port).into()), None);
    }
    assert_eq!(world.lingering.len(), 0, "none of them keeps a place of the listener's");
    client.permit(&mut world, &[PEER.into()]);
    assert!(world.connect_peer(relayed, PEER.into()).is_some());
}

#[test]
fn connections_to_peers_that_are_not_allowed_any_more_end() {
    let (mut world, mut client, _) = allocated();
    let other = SocketAddr::from(([203, 0, 113, 9], 5_000));
    let (id, peer) = connect(&mut world, &mut client, PEER.into());
    let (own, _, _) = bind(&mut world, &mut client, id, &[]);
    let (_, kept) = connect(&mut world, &mut client, other);
    let transaction = client.transaction();
    let request = client.sealed(Method::Connect, transaction, |writer| {
        writer.xor_address(attribute::XOR_PEER_ADDRESS, ([198, 51, 100, 2], 1).into());
    });
    assert!(client.exchange(&mut world, &request).is_empty(), "the peer has not answered");
    let prefix = |text: &str| vec![text.parse().expect("a prefix")];
    let lists = Lists { allow: prefix("203.0.113.0/24"), deny: prefix("198.51.100.0/24") };
    world.command(Command::Rules(Arc::new(Rules::new(&lists, &Own::default()))));
    assert!(!world.connections.contains_key(&peer.slot()) && !world.connections.contains_key(&own.slot()));
    let answers = client.take(&mut world);
    assert_eq!(client.read(&answers[0], Method::Connect, transaction).code, 447);
    let links = world.answer_connects(true);
    assert!(!world.connections.contains_key(&links[0].slot()), "nobody waits for it any more");
    assert!(world.connections.contains_key(&kept.slot()));
}

#[test]
fn a_peer_that_answers_late_is_not_taken_for_another() {
    let (mut world, mut client, _) = allocated();
    let ask = |world: &mut World, client: &mut Client, peer: SocketAddr| {
        let transaction = client.transaction();
        let request = client.sealed(Method::Connect, transaction, |writer| {
            writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
        });
        assert!(client.exchange(world, &request).is_empty(), "the peer has not answered");
    };
    ask(&mut world, &mut client, PEER.into());
    client.refresh(&mut world, 0);
    world.advance(Duration::from_secs(31));
    client.request(&mut world, Method::Allocate, |writer| {
        writer.number(attribute::REQUESTED_TRANSPORT, 6 << 24);
    });
    ask(&mut world, &mut client, ([198, 51, 100, 2], 1).into());
    let [(first, ..), (second, ..)] = world.connecting[..] else { panic!("both are under way") };
    assert_ne!(first, second);
}

#[test]
fn a_user_has_half_of_all_connections_also_of_those_that_nobody_waits_for() {
    let (mut world, mut client, _) = allocated_with(|settings| settings.peer_connections_of_all_max = 4);
    let ask = |world: &mut World, client: &mut Client, port: u16| {
        let transaction = client.transaction();
        let request = client.sealed(Method::Connect, transaction, |writer| {
            writer.xor_address(attribute::XOR_PEER_ADDRESS, ([198, 51, 100, 1], port).into());
        });
        client.exchange(world, &request);
    };
    for port in 1..=2 {
        ask(&mut world, &mut client, port);
    }
    // Nothing becomes free when they are nobody's: their sockets are there.
    client.refresh(&mut world, 0);
    let allocate = |world: &mut World, client: &mut Client| {
        client.request(world, Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 6 << 24);
        });
    };
    allocate(&mut world, &mut client);
    assert_eq!(refused(&mut world, &mut client, PEER.into()), 508);
    let mut bob = Client::over(ClientTransport::Tcp, &mut world, 7);
    (bob.user, bob.key) = ("bob".to_owned(), crate::key("bob"));
    allocate(&mut world, &mut bob);
    ask(&mut world, &mut bob, 3);
    assert_eq!(world.connecting.len(), 3);
    world.answer_connects(false);
    connect(&mut world, &mut client, PEER.into());
}
