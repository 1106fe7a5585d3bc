//! Clients over DTLS.

use std::net::SocketAddr;
use std::time::Duration;

use relay::drops::DropReason;
use relay::message::{Message, Method};
use relay::spec::{ClientTransport, Event, HandshakeInput};
use wire::Product as _;

use crate::client::{channel_data, indication, to_peer};
use crate::sealed::{Control, LISTENER, Sealed, with_dtls};
use crate::world::World;

const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 5_000);

fn drops(world: &World, reason: DropReason) -> u64 {
    world.relay.counters().drops.count(reason)
}

/// A client with an allocation, and its relayed address.
fn allocated(world: &mut World, control: &mut Control, port: u16) -> (Sealed, SocketAddr) {
    let mut client = Sealed::connected(world, control, port);
    let relayed = client.allocate(world);
    (client, relayed)
}

/// One that has a channel to a peer, and its relayed address.
fn bound(world: &mut World, control: &mut Control) -> (Sealed, SocketAddr, SocketAddr) {
    let (mut client, relayed) = allocated(world, control, 1);
    let peer = SocketAddr::from(PEER);
    client.bind(world, 0x4000, peer);
    world.sent.clear();
    (client, relayed, peer)
}

#[test]
fn a_client_that_has_shaken_hands_has_all_that_others_have() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut client, relayed) = allocated(&mut world, &mut control, 1);
    let peer = SocketAddr::from(PEER);
    assert!(matches!(world.events.last(), Some(Event::Began(info)) if info.transport == ClientTransport::Dtls));
    client.permit(&mut world, peer);
    for data in [&b"hello"[..], b"hell", &[7; 1_100]] {
        client.exchange(&mut world, &[&indication(Method::Send, peer, data)]);
        assert_eq!(to_peer(&mut world, peer), [data]);
        world.receive_from_peer(relayed, peer, &[data]);
        let heard = client.hear(&mut world);
        let message = Message::parse(&heard[0]).expect("it is padded");
        assert_eq!((message.method, message.peers().next()), (Some(Method::Data), Some(peer)));
        assert!(heard[0].windows(data.len()).any(|window| window == data));
    }
    client.bind(&mut world, 0x4000, peer);
    client.exchange(&mut world, &[&channel_data(0x4000, b"hello")]);
    assert_eq!(to_peer(&mut world, peer), [b"hello"]);
    world.receive_from_peer(relayed, peer, &[b"hello"]);
    assert_eq!(client.hear(&mut world), [channel_data(0x4000, b"hello")]);
    assert_eq!(client.refresh(&mut world, 0), 0);
    let counters = world.relay.counters();
    assert_eq!((counters.dtls_cookies, counters.dtls_handshakes_begun, counters.dtls_handshakes_done), (1, 1, 1));
    assert_eq!((counters.dtls_associations, counters.dtls_handshakes, counters.allocations.total()), (1, 0, 0));
}

#[test]
fn what_comes_together_leaves_together() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut client, relayed) = allocated(&mut world, &mut control, 1);
    let (peer, other) = (SocketAddr::from(PEER), SocketAddr::from(([198, 51, 100, 2], 5_000)));
    client.bind(&mut world, 0x4000, peer);
    client.bind(&mut world, 0x4001, other);
    world.sent.clear();
    let messages = [(0x4000, 100), (0x4000, 100), (0x4000, 60), (0x4001, 60), (0x4001, 60), (0x4000, 90)]
        .map(|(number, len)| channel_data(number, &vec![len as u8; len]));
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    for part in [&messages[..3], &messages[3..5], &messages[5..]] {
        client.exchange(&mut world, part);
    }
    let runs: Vec<Vec<usize>> =
        world.sent.drain(..).map(|sent| sent.datagrams.iter().map(Vec::len).collect()).collect();
    assert_eq!(runs, [vec![100, 100, 60], vec![60, 60], vec![90]]);

    world.receive_from_peer(relayed, peer, &[&[1; 100], &[2; 100], &[3; 50]]);
    let lens: Vec<usize> = world.sent.iter().flat_map(|sent| sent.datagrams.iter().map(Vec::len)).collect();
    assert_eq!((world.sent.len(), lens), (1, vec![141, 141, 91]), "one run of records");
    let heard = client.hear(&mut world);
    assert_eq!(heard, [vec![1; 100], vec![2; 100], vec![3; 50]].map(|data| channel_data(0x4000, &data)));
}

#[test]
fn a_datagram_may_carry_several_records() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut client, _, peer) = bound(&mut world, &mut control);
    let data = [&b"short"[..], b"a longer one", b"mid-sized"].map(|data| channel_data(0x4000, data));
    let records = client.seal(&[&data[0], &data[1], &data[2]]).concat();
    world.receive(LISTENER, client.client.path, &[&records, &[23; 9]]);
    assert_eq!(to_peer(&mut world, peer), [&b"short"[..], b"a longer one", b"mid-sized"]);
    assert_eq!(drops(&world, DropReason::MalformedDtls), 1);
}

#[test]
fn hellos_without_a_cookie_leave_nothing_behind() {
    let (mut world, control) = (with_dtls(|_| {}), Control::new());
    for port in 1..=600 {
        let client = Sealed::new(&world, port);
        world.receive(LISTENER, client.client.path, &[&client.sends[0]]);
        let answers = client.client.take(&mut world);
        assert!(answers.len() == 1 && answers[0].len() < client.sends[0].len());
    }
    let counters = world.relay.counters();
    assert_eq!((counters.dtls_cookies, drops(&world, DropReason::UnauthenticatedBudgetSpent)), (600, 0));
    assert_eq!((counters.dtls_handshakes, counters.dtls_handshakes_begun, control.count()), (0, 0, 0));
    assert!(world.events.is_empty() && world.relay.poll_timeout().is_none());
}

#[test]
fn a_flood_of_hellos_in_somebodys_name_keeps_nobody_at_that_address_from_anything() {
    let cookies = wire::Rate { burst: 2_000, interval: Duration::from_secs(1) };
    let (mut world, mut control) = (with_dtls(|settings| settings.limits.cookies = cookies), Control::new());
    let flood = Sealed::new(&world, 9);
    for _ in 0..1_000 {
        world.receive(LISTENER, flood.client.path, &[&flood.sends[0]]);
    }
    allocated(&mut world, &mut control, 1);
    crate::client::Client::of("bob", 2).allocate(&mut world);
    // Beyond what there is for all nobody is asked, and nothing is computed.
    for _ in 0..2_000 {
        world.receive(LISTENER, flood.client.path, &[&flood.sends[0]]);
    }
    let counters = world.relay.counters();
    assert_eq!((counters.dtls_cookies, drops(&world, DropReason::UnauthenticatedBudgetSpent)), (2_000, 1_001));
}

/// A ClientHello with its cookie.
fn verified(world: &mut World, port: u16, host: u8) -> (Sealed, Vec<u8>) {
    let mut client = Sealed::new(world, port);
    client.client.path.remote = ([198, 18, host, 1], port).into();
    client.flush(world);
    client.hear(world);
    let hello = client.sends.remove(0);
    (client, hello)
}

#[test]
fn handshakes_that_go_on_are_so_many_of_one_source_and_of_all() {
    let plenty = |settings: &mut relay::settings::Settings| settings.limits.handshakes.burst = 10_000;
    let (mut world, mut control) = (with_dtls(plenty), Control::new());
    for port in 1..=100 {
        let (client, hello) = verified(&mut world, port, 1);
        world.receive(LISTENER, client.client.path, &[&hello]);
        control.work(&mut world);
    }
    assert_eq!((world.relay.counters().dtls_handshakes, control.count()), (64, 64));
    assert_eq!(world.relay.counters().dtls_made_room, 36);
    for host in 2..=250 {
        for port in 1..=5 {
            let (client, hello) = verified(&mut world, port, host);
            world.receive(LISTENER, client.client.path, &[&hello]);
            // Nobody shakes hands with these: it is a matter of how many there are.
            world.events.retain(|event| matches!(event, Event::Handshake { input: HandshakeInput::End, .. }));
        }
        world.sent.clear();
    }
    assert_eq!(world.relay.counters().dtls_handshakes, 1_024);
    world.advance(Duration::from_secs(11));
    let counters = world.relay.counters();
    assert_eq!((counters.dtls_handshakes, counters.dtls_handshakes_failed), (0, 1_024), "each has its time");
    control.work(&mut world);
    assert_eq!(control.count(), 0);
}

#[test]
fn a_source_begins_so_many_handshakes_a_second() {
    let mut world = with_dtls(|_| {});
    let hellos: Vec<_> = (1..=450)
        .map(|port| {
            let (client, hello) = verified(&mut world, port, 99);
            (client.client.path, hello)
        })
        .collect();
    for (path, hello) in &hellos {
        world.receive(LISTENER, *path, &[hello]);
    }
    let begun = world.relay.counters().dtls_handshakes_begun;
    assert!((100..=200).contains(&begun), "{begun}");
    assert_eq!(begun + drops(&world, DropReason::HandshakeBudgetSpent), 450);
}

#[test]
fn a_cookie_is_good_for_no_other_address_and_no_other_time() {
    let mut world = with_dtls(|_| {});
    let (client, hello) = verified(&mut world, 1, 1);
    let mut elsewhere = client.client.path;
    elsewhere.remote.set_port(2);
    world.receive(LISTENER, elsewhere, &[&hello]);
    world.advance(Duration::from_secs(10));
    world.receive(LISTENER, client.client.path, &[&hello]);
    assert_eq!((world.relay.counters().dtls_handshakes_begun, world.events.len()), (0, 0));
    assert_eq!(world.relay.counters().dtls_cookies, 3);
}

#[test]
fn a_handshake_brings_so_many_datagrams_and_no_more() {
    let mut world = with_dtls(|_| {});
    let (client, hello) = verified(&mut world, 1, 1);
    for _ in 0..100 {
        world.receive(LISTENER, client.client.path, &[&hello]);
    }
    assert_eq!((world.events.len(), drops(&world, DropReason::HandshakeBudgetSpent)), (33, 67));
    let long = [&hello[..], &[0; 1_500]].concat();
    world.receive(LISTENER, client.client.path, &[&long]);
    assert_eq!(drops(&world, DropReason::MalformedDtls), 1);
}

#[test]
fn what_is_nobodys_and_what_was_changed_or_there_before_goes_no_further() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut client, _, peer) = bound(&mut world, &mut control);
    let [record] = &client.seal(&[&channel_data(0x4000, b"hello")])[..] else { panic!("one") };
    let mut changed = record.clone();
    changed[30] ^= 1;
    let mut stranger = client.client.path;
    stranger.remote.set_port(2);
    world.receive(LISTENER, stranger, &[record]);
    world.receive(LISTENER, client.client.path, &[&changed]);
    world.receive(LISTENER, client.client.path, &[record]);
    world.receive(LISTENER, client.client.path, &[record]);
    world.receive(LISTENER, client.client.path, &[&channel_data(0x4000, b"plain")]);
    world.receive(LISTENER, client.client.path, &[&record[..record.len() - 1]]);
    assert_eq!(to_peer(&mut world, peer), [b"hello"]);
    let counted =
        [DropReason::NoAssociation, DropReason::NotAuthentic, DropReason::Replayed, DropReason::MalformedDtls]
            .map(|reason| drops(&world, reason));
    assert_eq!(counted, [1, 1, 1, 2]);
    assert!(world.sent.is_empty(), "nobody is told");
}

#[test]
fn an_allocation_ends_with_its_association() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut client, _) = allocated(&mut world, &mut control, 1);
    client.close(&mut world);
    assert!(matches!(world.events.last(), Some(Event::Ended(..))));
    assert_eq!((world.sockets.len(), world.relay.counters().dtls_associations), (0, 0));
    let late = client.client.path;
    world.receive(LISTENER, late, &[&[23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9, 0, 1, 1]]);
    assert_eq!(drops(&world, DropReason::NoAssociation), 1);
}

#[test]
fn what_comes_in_one_run_with_the_end_goes_out_before_it() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut client, _, peer) = bound(&mut world, &mut control);
    let mut records = client.seal(&[&channel_data(0x4000, b"hello"), &channel_data(0x4000, b"again")]);
    records.extend(client.end());
    let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    world.receive(LISTENER, client.client.path, &records);
    assert_eq!(to_peer(&mut world, peer), [b"hello", b"again"]);
    assert!(matches!(world.events.last(), Some(Event::Ended(..))));
    assert_eq!((world.relay.counters().dtls_associations, drops(&world, DropReason::NoAssociation)), (0, 0));
}

#[test]
fn an_association_whose_key_is_used_up_ends_at_once_and_says_so() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    control.key_blocks = Some(1_000);
    let (mut client, relayed, peer) = bound(&mut world, &mut control);
    let heard: Vec<usize> = (0..20)
        .map(|_| {
            world.receive_from_peer(relayed, peer, &[&[7; 1_000]]);
            client.hear(&mut world).len()
        })
        .take_while(|count| *count > 0)
        .collect();
    assert!((10..=15).contains(&heard.len()), "of 66 blocks each: {heard:?}");
    assert!(client.has_ended && matches!(world.events.last(), Some(Event::Ended(..))));
    assert_eq!((world.relay.counters().dtls_associations, drops(&world, DropReason::TooLong)), (0, 0));
    // It begins anew.
    control.key_blocks = None;
    allocated(&mut world, &mut control, 1);
}

#[test]
fn an_association_that_nobody_uses_ends_and_says_so() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let mut unused = Sealed::connected(&mut world, &mut control, 1);
    let (mut used, _) = allocated(&mut world, &mut control, 2);
    world.advance(Duration::from_secs(61));
    unused.hear(&mut world);
    used.hear(&mut world);
    assert_eq!((unused.has_ended, used.has_ended), (true, false));
    assert_eq!(world.relay.counters().dtls_associations, 1);
    // Its allocation runs out after ten minutes.
    world.advance(Duration::from_secs(600));
    used.hear(&mut world);
    assert_eq!((used.has_ended, world.relay.counters().dtls_associations), (true, 0));
}

/// A client whose handshake is over for the relay, and that has not heard so.
fn unaware(world: &mut World, control: &mut Control) -> Sealed {
    let mut client = Sealed::new(world, 1);
    while world.relay.counters().dtls_handshakes_done == 0 {
        client.hear(world);
        client.flush(world);
        control.work(world);
    }
    assert!(!client.client.take(world).is_empty() && !client.is_connected, "the end is lost");
    client.wait(world.now + Duration::from_secs(3));
    client
}

#[test]
fn who_has_not_got_the_end_of_a_handshake_gets_it_again() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let mut client = unaware(&mut world, &mut control);
    client.flush(&mut world);
    client.hear(&mut world);
    assert!(client.is_connected);
    client.allocate(&mut world);
}

#[test]
fn who_sends_its_whole_part_of_a_handshake_again_in_one_datagram_gets_the_end_again() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let mut client = unaware(&mut world, &mut control);
    // The first record is under no keys, and the last one is.
    let flight = std::mem::take(&mut client.sends).concat();
    assert_eq!((flight[0], flight[3..5].iter().sum::<u8>()), (22, 0));
    world.receive(LISTENER, client.client.path, &[&flight]);
    client.hear(&mut world);
    assert!(client.is_connected);
    client.allocate(&mut world);
    // What has nothing under keys is nobody's, as before.
    let plain = &flight[..13 + usize::from(u16::from_be_bytes([flight[11], flight[12]]))];
    world.receive(LISTENER, client.client.path, &[plain]);
    assert_eq!(drops(&world, DropReason::NoAssociation), 1);
}

#[test]
fn who_comes_back_at_the_same_address_begins_anew() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut before, _) = allocated(&mut world, &mut control, 1);
    let peer = SocketAddr::from(PEER);
    before.bind(&mut world, 0x4000, peer);
    // Until the new handshake is over the former keys hold (RFC 6347 §4.2.8).
    let mut after = Sealed::new(&world, 1);
    after.flush(&mut world);
    after.hear(&mut world);
    after.flush(&mut world);
    control.work(&mut world);
    let records = before.seal(&[&channel_data(0x4000, b"still")]);
    world.receive(LISTENER, before.client.path, &[&records[0]]);
    assert_eq!(to_peer(&mut world, peer), [b"still"]);
    after.connect(&mut world, &mut control);
    assert!(matches!(world.events.last(), Some(Event::Ended(..))), "its allocation is gone");
    assert_eq!(world.relay.counters().dtls_associations, 1);
    after.allocate(&mut world);
}

#[test]
fn associations_that_nobody_uses_make_room_and_those_in_use_do_not() {
    let few = |settings: &mut relay::settings::Settings| {
        (settings.connections_max, settings.associations_max) = (0, 3);
        settings.strangers_per_source_max = 2;
    };
    let (mut world, mut control) = (with_dtls(few), Control::new());
    let (mut used, _) = allocated(&mut world, &mut control, 1);
    for port in 2..=6 {
        Sealed::connected(&mut world, &mut control, port);
    }
    let counters = world.relay.counters();
    assert_eq!((counters.dtls_associations, counters.dtls_made_room, counters.allocations.total()), (3, 3, 1));
    assert_eq!(used.refresh(&mut world, 600), 0);
}

#[test]
fn data_that_does_not_fit_a_datagram_is_dropped_and_counted() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (client, relayed, peer) = bound(&mut world, &mut control);
    // A record has 37 bytes more, and ChannelData four.
    for (len, is_heard) in [(1_459, true), (1_460, false), (9_000, false)] {
        let before = drops(&world, DropReason::TooLong);
        world.receive_from_peer(relayed, peer, &[&vec![7; len]]);
        assert_eq!(client.client.take(&mut world).len(), usize::from(is_heard), "{len}");
        assert_eq!(drops(&world, DropReason::TooLong) - before, u64::from(!is_heard), "{len}");
    }
}

#[test]
fn two_clients_of_one_relay_reach_each_other_whatever_is_around_their_messages() {
    let (mut world, mut control) = (with_dtls(|_| {}), Control::new());
    let (mut sealed, of_sealed) = allocated(&mut world, &mut control, 1);
    let mut plain = crate::client::Client::of("bob", 2);
    let of_plain = plain.allocate(&mut world);
    sealed.bind(&mut world, 0x4000, of_plain);
    plain.bind(&mut world, 0x4001, of_sealed);
    sealed.exchange(&mut world, &[&channel_data(0x4000, b"to the plain one")]);
    assert_eq!(plain.take(&mut world), [channel_data(0x4001, b"to the plain one")]);
    world.receive(plain.number, plain.path, &[&channel_data(0x4001, b"to the sealed one")]);
    assert_eq!(sealed.hear(&mut world), [channel_data(0x4000, b"to the sealed one")]);
}
