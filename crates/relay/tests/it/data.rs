//! The way of data (RFC 8656 §11, §12).

use std::net::SocketAddr;

use relay::drops::DropReason;
use relay::message::{Class, Message, Method, attribute};
use relay::spec::{Command, Event};

use crate::client::{Answer, Client, address, channel_data, indication, to_peer};
use crate::world::{RELAY, Sent, World};

const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 5_000);

/// A client with a channel.
fn bound(world: &mut World) -> (Client, SocketAddr, SocketAddr) {
    let mut client = Client::new(1);
    let relayed = client.allocate(world);
    assert_eq!(client.bind(world, 0x4000, PEER.into()), 0);
    (client, relayed, PEER.into())
}

fn receive(world: &mut World, client: &Client, datagrams: &[Vec<u8>]) {
    let datagrams: Vec<&[u8]> = datagrams.iter().map(|datagram| &datagram[..]).collect();
    world.receive(client.number, client.path, &datagrams);
}

/// How many datagrams each run has, and their bytes.
fn shape(sent: &[Sent]) -> Vec<(usize, Vec<u8>)> {
    sent.iter().map(|sent| (sent.datagrams.len(), sent.datagrams.concat())).collect()
}

#[test]
fn a_run_of_one_channel_leaves_as_one_run() {
    let mut world = World::new(|_| {});
    let (client, relayed, peer) = bound(&mut world);
    let run = [b"aaaa", b"bbbb", b"cccc"].map(|data| channel_data(0x4000, data));
    receive(&mut world, &client, &[&run[..], &[channel_data(0x4000, b"d")]].concat());
    assert_eq!(shape(&world.sent), [(4, b"aaaabbbbccccd".to_vec())]);
    assert_eq!(world.sent.pop().map(|sent| sent.path.remote), Some(peer));

    world.receive_from_peer(relayed, peer, &[b"eeeee", b"fffff", b"gg"]);
    let expected = [&b"eeeee"[..], b"fffff", b"gg"].map(|data| channel_data(0x4000, data)).concat();
    assert_eq!(shape(&world.sent), [(3, expected)]);
    let counters = world.relay.counters();
    assert_eq!((counters.packets_to_peers, counters.bytes_to_peers), (4, 13));
    assert_eq!((counters.packets_to_clients, counters.bytes_to_clients), (3, 12));
}

#[test]
fn a_run_of_several_channels_is_split() {
    let mut world = World::new(|_| {});
    let (mut client, _, _) = bound(&mut world);
    let other = ([198, 51, 100, 1], 6_000).into();
    client.bind(&mut world, 0x4001, other);
    let run = [(0x4000, b"aa"), (0x4000, b"bb"), (0x4001, b"cc"), (0x4002, b"dd"), (0x4000, b"ee")];
    receive(&mut world, &client, &run.map(|(number, data)| channel_data(number, data)));
    assert_eq!(shape(&world.sent), [(2, b"aabb".to_vec()), (1, b"cc".to_vec()), (1, b"ee".to_vec())]);
    assert_eq!(world.relay.counters().drops.count(DropReason::NoChannel), 1);
}

#[test]
fn padding_is_left_out() {
    let mut world = World::new(|_| {});
    let (client, _, _) = bound(&mut world);
    let padded = |data: &[u8]| [channel_data(0x4000, data), vec![9; 8 - data.len()]].concat();
    receive(&mut world, &client, &[padded(b"aaaaa"), padded(b"bbbbb"), padded(b"ccc"), padded(b"dd")]);
    assert_eq!(shape(&world.sent), [(3, b"aaaaabbbbbccc".to_vec()), (1, b"dd".to_vec())]);
}

#[test]
fn channel_data_that_is_cut_off_goes_no_further() {
    let mut world = World::new(|_| {});
    let (client, _, peer) = bound(&mut world);
    for datagram in [&[0x40, 0, 0, 3, 1, 2][..], &[0x40, 0, 0xff, 0xff, 1], &[0x40, 0, 0], &[0x40]] {
        world.receive(client.number, client.path, &[datagram]);
    }
    receive(&mut world, &client, &[vec![0x40, 0, 0, 2, 1, 2], vec![0x40, 0, 0, 9, 1, 2]]);
    assert_eq!(to_peer(&mut world, peer), [[1, 2]]);
    assert!(world.sent.is_empty());
    let drops = &world.relay.counters().drops;
    assert_eq!(drops.count(DropReason::MalformedChannelData), 5);
}

#[test]
fn a_datagram_without_a_byte_is_one_both_ways() {
    let mut world = World::new(|_| {});
    let (mut client, relayed, peer) = bound(&mut world);
    receive(&mut world, &client, &[channel_data(0x4000, b"")]);
    receive(&mut world, &client, &[indication(Method::Send, peer, b"")]);
    receive(&mut world, &client, &[channel_data(0x4000, b"a"), channel_data(0x4000, b"")]);
    assert_eq!(to_peer(&mut world, peer), [&b""[..], b"", b"a", b""]);
    assert_eq!(client.hear(&mut world, relayed, peer, b""), [channel_data(0x4000, b"")]);
    let other: SocketAddr = ([198, 51, 100, 1], 6_000).into();
    client.permit(&mut world, &[other]);
    let heard = client.hear(&mut world, relayed, other, b"");
    let data = Answer::of(&heard[0], Class::Indication);
    assert_eq!((heard.len(), data.value(attribute::DATA)), (1, Some(&b""[..])));
    assert_eq!((data.addresses(attribute::XOR_PEER_ADDRESS), heard[0].len()), (vec![other], 36));
    let counters = world.relay.counters();
    assert_eq!((counters.packets_to_peers, counters.bytes_to_peers), (4, 1));
    assert_eq!((counters.packets_to_clients, counters.bytes_to_clients), (2, 0));

    let mut bob = Client::of("bob", 2);
    let of_bob = bob.allocate(&mut world);
    bob.permit(&mut world, &[relayed]);
    client.bind(&mut world, 0x4001, of_bob);
    receive(&mut world, &client, &[channel_data(0x4001, b"")]);
    assert_eq!(bob.take(&mut world).len(), 1, "joined on this worker");
}

#[test]
fn send_indications_to_one_peer_leave_as_one_run() {
    let mut world = World::new(|_| {});
    let (client, _, peer) = bound(&mut world);
    let run = [&b"aaaa"[..], b"bbbb", b"cccc"].map(|data| indication(Method::Send, peer, data));
    receive(&mut world, &client, &run);
    assert_eq!(shape(&world.sent), [(3, b"aaaabbbbcccc".to_vec())]);
}

#[test]
fn without_a_channel_peers_are_heard_by_data_indications() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    let sockets: Vec<_> = world.sockets.values().map(|(_, _, addr)| *addr).collect();
    for peer in ["198.51.100.1:5000", "[2001:db8::9]:6000"] {
        let peer: SocketAddr = peer.parse().unwrap();
        assert_eq!(client.permit(&mut world, &[peer]), 0);
        let relayed = *sockets.iter().find(|addr| addr.is_ipv4() == peer.is_ipv4()).expect("it has both");
        // Whole ones first, then such with padding, and one of each.
        for data in [&[&b"aaaa"[..], b"bbbb"][..], &[b"aaaaa", b"bbbbb"], &[b"aaaa", b"bbb"], &[b"aaaaa", b"bbbb"]] {
            world.receive_from_peer(relayed, peer, data);
            let heard = client.take(&mut world);
            assert_eq!(heard.len(), data.len());
            for (heard, data) in heard.iter().zip(data) {
                let message = Message::parse(heard).expect("a message");
                assert_eq!((message.class, message.method), (Class::Indication, Some(Method::Data)));
                assert_eq!(message.peers().collect::<Vec<_>>(), [peer]);
                let at = 24 + if peer.is_ipv4() { 8 } else { 20 };
                assert_eq!(address(&heard[24..at], &heard[4..20]), peer);
                assert_eq!(heard[at..at + 4], [0, 0x13, 0, data.len() as u8]);
                assert_eq!(
                    heard[at + 4..],
                    [&data[..], &[0; 3][..data.len().next_multiple_of(4) - data.len()]].concat()
                );
            }
        }
    }
}

/// With its header a Data indication may be longer than what networks carry in one piece; the system makes fragments.
#[test]
fn data_indications_are_as_long_as_what_peers_send() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    let sockets: Vec<_> = world.sockets.values().map(|(_, _, addr)| *addr).collect();
    for (peer, lens) in
        [("198.51.100.1:5000", 1_440..1_480), ("[2001:db8::9]:6000", 1_430..1_460), ("198.51.100.1:5000", 8_970..8_974)]
    {
        let peer: SocketAddr = peer.parse().expect("an address");
        client.permit(&mut world, &[peer]);
        let relayed = *sockets.iter().find(|addr| addr.is_ipv4() == peer.is_ipv4()).expect("it has both");
        for len in lens {
            let data: Vec<u8> = (0..len).map(|index| index as u8).collect();
            let heard = client.hear(&mut world, relayed, peer, &data);
            assert_eq!(heard.len(), 1, "{len} bytes");
            let message = Message::parse(&heard[0]).expect("a message");
            assert_eq!((message.method, message.peers().next()), (Some(Method::Data), Some(peer)));
            assert_eq!(Answer::of(&heard[0], message.class).value(attribute::DATA), Some(&data[..]));
        }
    }
}

/// Clients see numbers of a generator that can be turned back; what others depend on must not be found by that.
#[test]
fn what_is_shown_in_indications_is_not_made_from_the_seed_itself() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let (relayed, peer) = (client.allocate(&mut world), SocketAddr::from(([198, 51, 100, 1], 5_000)));
    client.permit(&mut world, &[peer]);
    let heard = client.hear(&mut world, relayed, peer, b"data");
    let of_the_seed = wire::Random::new(u64::from_be_bytes([7; 8])).next_u64();
    assert_ne!(heard[0][8..16], of_the_seed.to_be_bytes());
}

#[test]
fn broken_indications_go_no_further() {
    let mut world = World::new(|_| {});
    let (client, _, peer) = bound(&mut world);
    let good = indication(Method::Send, peer, b"data");
    for len in 1..good.len() {
        world.receive(client.number, client.path, &[&good[..len]]);
    }
    let mut wrong = good.clone();
    wrong[4] = 0;
    let mut foreign = good.clone();
    foreign[20..22].copy_from_slice(&[0, 0x77]);
    world.receive(client.number, client.path, &[&wrong]);
    world.receive(client.number, client.path, &[&foreign]);
    assert!(world.sent.is_empty());
    world.receive(client.number, client.path, &[&good]);
    assert_eq!(to_peer(&mut world, peer), [b"data"]);
    // A client is not to send what servers do, and other answers.
    let data = indication(Method::Data, peer, b"data");
    world.receive(client.number, client.path, &[&data]);
    assert_eq!(world.relay.counters().drops.count(DropReason::UnexpectedStun), 1);
}

#[test]
fn two_allocations_of_a_worker_are_joined_after_both_have_permitted() {
    let mut world = World::new(|_| {});
    let (mut ann, mut bob) = (Client::new(1), Client::of("bob", 2));
    let (of_ann, of_bob) = (ann.allocate(&mut world), bob.allocate(&mut world));
    assert_eq!(ann.bind(&mut world, 0x4000, of_bob), 0);
    receive(&mut world, &ann, &[channel_data(0x4000, b"hello")]);
    assert!(world.sent.is_empty(), "bob has permitted nobody");
    assert_eq!(world.relay.counters().drops.count(DropReason::NoPermission), 1);

    assert_eq!(bob.permit(&mut world, &[of_ann]), 0);
    receive(&mut world, &ann, &[channel_data(0x4000, b"four"), channel_data(0x4000, b"more")]);
    let heard = bob.take(&mut world);
    assert_eq!((heard.len(), Message::parse(&heard[0]).unwrap().peers().next()), (2, Some(of_ann)));
    assert_eq!(bob.bind(&mut world, 0x4abc, of_ann), 0);
    receive(&mut world, &ann, &[channel_data(0x4000, b"four"), channel_data(0x4000, b"m")]);
    assert_eq!(shape(&world.sent), [(2, [channel_data(0x4abc, b"four"), channel_data(0x4abc, b"m")].concat())]);
    world.sent.clear();
    // What nobody here has goes out as ever.
    let nobody = SocketAddr::from((RELAY, 40_000));
    assert_eq!(ann.send(&mut world, nobody, b"x"), [b"x"]);
    assert_eq!(world.relay.counters().packets_joined, 5);
}

#[test]
fn what_is_over_the_bandwidth_is_dropped_and_counted() {
    let mut world = World::new(|settings| {
        let bandwidth = Some(wire::Bitrate::from_kbps(80));
        let ledger = relay::ledger::LedgerSettings { user_bandwidth: bandwidth, ..Default::default() };
        settings.ledger = std::sync::Arc::new(relay::ledger::Ledger::new(settings.epoch.0, ledger));
    });
    let (client, relayed, peer) = bound(&mut world);
    let data = vec![7; 1_000];
    for _ in 0..100 {
        receive(&mut world, &client, &[channel_data(0x4000, &data), channel_data(0x4000, &data)]);
        world.receive_from_peer(relayed, peer, &[&data, &data]);
    }
    let (sent, heard) = (to_peer(&mut world, peer).len(), client.take(&mut world).len());
    assert!((1..200).contains(&sent) && (1..200).contains(&heard), "{sent} {heard}");
    // There is less left than one of those takes: headers count, too.
    (0..100).for_each(|_| world.receive_from_peer(relayed, peer, &[b""]));
    let empty = client.take(&mut world).len();
    assert!(empty < 100, "{empty}");
    world.command(Command::List { token: 0, user: None, after: relay::spec::AllocationId(0), count: 9 });
    let Some(Event::Allocations { allocations, .. }) = world.events.pop() else { panic!("it is told") };
    let dropped = world.relay.counters().drops.count(DropReason::BandwidthSpent);
    assert_eq!(allocations[0].dropped, dropped);
    assert_eq!(dropped, 500 - (sent + heard + empty) as u64);
}

/// Of a datagram of one byte networks carry 29, or 49 of IPv6.
#[test]
fn small_datagrams_are_charged_with_their_headers() {
    for (peer, on_the_wire) in [("198.51.100.1:5000", 29), ("[2001:db8::9]:5000", 49)] {
        let mut world = World::new(|settings| {
            let bandwidth = Some(wire::Bitrate::from_kbps(8_000));
            let ledger = relay::ledger::LedgerSettings { user_bandwidth: bandwidth, ..Default::default() };
            settings.ledger = std::sync::Arc::new(relay::ledger::Ledger::new(settings.epoch.0, ledger));
        });
        let (mut client, peer) = (Client::new(1), peer.parse::<SocketAddr>().expect("an address"));
        let answer = client.allocate_with(&mut world, |writer| {
            writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
        });
        assert_eq!((answer.code, client.bind(&mut world, 0x4000, peer)), (0, 0));
        let run: Vec<_> = (0..50).map(|_| channel_data(0x4000, b"x")).collect();
        let mut sent = 0;
        for _ in 0..1_000 {
            receive(&mut world, &client, &run);
            sent += to_peer(&mut world, peer).len();
        }
        // Half a second's at once: a megabyte a second.
        assert_eq!(sent, 500_000 / on_the_wire);
    }
}

#[test]
fn what_an_allocation_carried_is_told() {
    let mut world = World::new(|_| {});
    let (client, relayed, peer) = bound(&mut world);
    receive(&mut world, &client, &[channel_data(0x4000, b"12345"), channel_data(0x4000, b"123")]);
    client.hear(&mut world, relayed, peer, b"1234567");
    world.events.clear();
    world.command(Command::List { token: 0, user: None, after: relay::spec::AllocationId(0), count: 9 });
    let Some(Event::Allocations { allocations, .. }) = world.events.pop() else { panic!("it is told") };
    let [info] = &allocations[..] else { panic!("{allocations:?}") };
    assert_eq!((info.sent.packets, info.sent.bytes, info.received.packets, info.received.bytes), (2, 8, 1, 7));
    assert_eq!((info.permissions, info.channels), (1, 1));
}

#[test]
fn data_of_strangers_goes_nowhere() {
    let mut world = World::new(|_| {});
    let (_, _, peer) = bound(&mut world);
    let stranger = Client::new(77);
    receive(&mut world, &stranger, &[channel_data(0x4000, b"hello")]);
    receive(&mut world, &stranger, &[indication(Method::Send, peer, b"hello")]);
    world.receive(stranger.number, stranger.path, &[&[0x80, 1, 2, 3]]);
    assert!(world.sent.is_empty());
    let drops = &world.relay.counters().drops;
    assert_eq!((drops.count(DropReason::NoAllocation), drops.count(DropReason::UnknownProtocol)), (2, 1));
}
