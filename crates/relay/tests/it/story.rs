//! What became of an allocation, for who asks later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use relay::message::{Family, Method, attribute};
use relay::rules::{Lists, Own, Rules};
use relay::spec::{AllocationId, AllocationInfo, ClientTransport, Command, EndReason, Event};
use relay::story::{Flow, Happened, Story};

use crate::client::Client;
use crate::world::World;

const PEER: ([u8; 4], u16) = ([198, 51, 100, 1], 4_000);

fn story(world: &mut World, id: AllocationId) -> Option<(AllocationInfo, Box<Story>)> {
    world.events.clear();
    world.command(Command::Story { token: 7, id });
    match world.events.pop() {
        Some(Event::Story { token: 7, told }) => told,
        other => panic!("{other:?}"),
    }
}

fn began(world: &World) -> AllocationId {
    let mut ids = world.events.iter().filter_map(|event| match event {
        Event::Began(info) => Some(info.id),
        _ => None,
    });
    ids.next_back().expect("it has begun")
}

fn entries(story: &Story) -> Vec<Happened> {
    story.entries().iter().map(|entry| entry.what).collect()
}

#[test]
fn what_a_client_asks_for_and_what_it_carries_is_told_while_it_is_there_and_at_its_end() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let (peer, relayed) = (SocketAddr::from(PEER), client.allocate(&mut world));
    let id = began(&world);
    let denied = SocketAddr::from(([10, 0, 0, 1], 1));
    for _ in 0..3 {
        assert_eq!(client.permit(&mut world, &[denied]), 403);
        assert_eq!(client.permit(&mut world, &[peer]), 0);
    }
    assert_eq!(client.bind(&mut world, 0x4000, peer), 0);
    client.send(&mut world, peer, b"x");
    let (info, told) = story(&mut world, id).expect("it is there");
    let begins = [
        Happened::Began(Duration::from_secs(600)),
        Happened::Refused { method: Method::CreatePermission, code: 403, peer: Some(denied) },
        Happened::Permitted(peer.ip()),
        Happened::Bound { channel: 0x4000, peer },
        Happened::Flows(Flow { sent: true, received: false }),
    ];
    assert_eq!((entries(&told), told.refused, info.id), (begins.to_vec(), 3, id));

    world.advance(Duration::from_secs(299));
    client.hear(&mut world, relayed, peer, b"x");
    assert_eq!(client.refresh(&mut world, 600).code, 0);
    world.advance(Duration::from_secs(400));
    assert_eq!(client.permit(&mut world, &[peer]), 0, "it had run out");
    world.advance(Duration::from_secs(200));
    let Some(Event::Ended(ended, EndReason::Expired, told)) = world.events.pop() else { panic!("it has run out") };
    let ends = [
        Happened::Flows(Flow { sent: false, received: true }),
        Happened::Permitted(peer.ip()),
        Happened::Flows(Flow::default()),
    ];
    assert_eq!((ended.id, told.refreshes), (id, 1));
    assert_eq!(entries(&told), [&begins[..], &ends].concat());
    assert!(story(&mut world, id).is_none(), "its worker does not know it any more");
}

#[test]
fn a_password_that_does_not_hold_any_more_is_in_the_story_and_a_challenge_is_not() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let id = began(&world);
    // A nonce is asked for without any proof.
    let unproved = Client::new(1);
    let request = unproved.sealed(Method::Refresh, [3; 12], |_| {});
    unproved.exchange(&mut world, &request);
    client.key = crate::key("eve");
    let request = client.sealed(Method::Refresh, [4; 12], |_| {});
    client.exchange(&mut world, &request);
    let (_, told) = story(&mut world, id).expect("it is there");
    let refused = Happened::Refused { method: Method::Refresh, code: 401, peer: None };
    assert_eq!(entries(&told), [Happened::Began(Duration::from_secs(600)), refused]);
}

#[test]
fn rules_that_take_a_peer_away_and_a_family_that_is_given_back_are_told() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    let (id, peer) = (began(&world), PEER.into());
    client.bind(&mut world, 0x4000, peer);
    let lists = Lists { allow: Vec::new(), deny: vec!["198.51.100.0/24".parse().unwrap()] };
    let rules = Arc::new(Rules::new(&lists, &Own::default()));
    for _ in 0..2 {
        world.command(Command::Rules(rules.clone()));
    }
    client.request(&mut world, Method::Refresh, |writer| {
        writer.number(attribute::LIFETIME, 0);
        writer.attribute(attribute::REQUESTED_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    let (_, told) = story(&mut world, id).expect("it is there");
    let expected = [
        Happened::Began(Duration::from_secs(600)),
        Happened::Bound { channel: 0x4000, peer },
        Happened::Denied { permissions: 1, channels: 1 },
        Happened::GaveBack(Family::V6),
    ];
    assert_eq!(entries(&told), expected);
}

#[test]
fn connections_to_peers_and_those_that_fail_are_told() {
    let mut world = World::new(|settings| settings.allows_tcp = true);
    let mut client = Client::over(ClientTransport::Tcp, &mut world, 1);
    client.request(&mut world, Method::Allocate, |writer| {
        writer.number(attribute::REQUESTED_TRANSPORT, 6 << 24);
    });
    let (id, peer) = (began(&world), SocketAddr::from(PEER));
    let transaction = client.transaction();
    let request = client.sealed(Method::Connect, transaction, |writer| {
        writer.xor_address(attribute::XOR_PEER_ADDRESS, peer);
    });
    client.exchange(&mut world, &request);
    world.answer_connects(false);
    let (_, told) = story(&mut world, id).expect("it is there");
    assert_eq!(entries(&told)[1..], [Happened::Connects(peer), Happened::NotConnected]);
}

/// The worker that is asked has packets to see to.
#[test]
fn a_list_is_told_in_parts_however_many_allocations_there_are() {
    let mut world = World::new(|settings| {
        settings.ports = 10_000..=20_000;
        let often = wire::Rate { burst: 10_000, interval: Duration::from_micros(1) };
        settings.limits = relay::limits::LimitSettings { source: often, total: often, ..Default::default() };
    });
    for port in 1..=2_000 {
        Client::new(port).allocate(&mut world);
    }
    Client::of("bob", 2_001).allocate(&mut world);
    let mut list = |user: Option<&str>, after, count| {
        world.events.clear();
        world.command(Command::List { token: 5, user: user.map(Into::into), after, count });
        match world.events.pop() {
            Some(Event::Allocations { token: 5, allocations, upto }) => (allocations, upto),
            other => panic!("{other:?}"),
        }
    };
    let (first, upto) = list(None, AllocationId(0), 1_000);
    assert_eq!((first.len(), upto), (128, Some(first[127].id)));
    let (second, _) = list(None, first[127].id, 1_000);
    assert!(second[0].id > first[127].id && second.is_sorted_by_key(|info| info.id));

    let (none, upto) = list(Some("bob"), AllocationId(0), 1_000);
    assert!(none.is_empty());
    let (his, upto) = list(Some("bob"), upto.expect("there are others"), 1_000);
    assert_eq!((his.len(), upto), (1, None));
}
