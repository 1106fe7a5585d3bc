//! What all requests have in common: who is answered, and how much.

use std::sync::Arc;

use counters::Cell as _;
use relay::auth::{Found, UserKeys};
use relay::blocked::Blocked;
use relay::drops::DropReason;
use relay::limits::LimitSettings;
use relay::message::{Class, Message, Method, attribute};
use relay::spec::{Command, EndReason, Event};
use wire::Rate;

use crate::client::{Answer, Client};
use crate::world::World;

/// A Binding request.
const BINDING: &[u8; 20] = b"\x00\x01\x00\x00\x21\x12\xa4\x42............";

#[test]
fn binding_tells_the_address_and_nothing_else() {
    let mut world = World::new(|_| {});
    let client = Client::new(1);
    let answers = client.exchange(&mut world, BINDING);
    assert_eq!((answers.len(), answers[0].len()), (1, 32), "1.6 times the request");
    let answer = Answer::of(&answers[0], Class::Success);
    assert_eq!(answer.addresses(attribute::XOR_MAPPED_ADDRESS), [client.path.remote]);

    let mut over_ipv6 = Client::new(1);
    (over_ipv6.number, over_ipv6.path.remote) = (1, "[2001:db8::77]:1".parse().unwrap());
    let answers = over_ipv6.exchange(&mut world, BINDING);
    assert_eq!(answers[0].len(), 44, "2.2 times: the address alone is longer than the request");

    let mut mapped = Client::new(1);
    mapped.path.remote = "[::ffff:192.0.2.200]:1".parse().unwrap();
    let answers = mapped.exchange(&mut world, BINDING);
    assert_eq!(Answer::of(&answers[0], Class::Success).addresses(attribute::XOR_MAPPED_ADDRESS), [client.path.remote]);
}

#[test]
fn a_fingerprint_is_answered_by_one_and_a_wrong_one_by_nothing() {
    let mut world = World::new(|_| {});
    let client = Client::new(1);
    let mut buf = [0; 100];
    let mut writer = relay::answer::Writer::new(&mut buf, Class::Request, Method::Binding, [3; 12]);
    let len = writer.fingerprint().finish().unwrap();
    let answers = client.exchange(&mut world, &buf[..len]);
    assert_eq!((answers[0].len(), Message::parse(&answers[0]).unwrap().has_fingerprint), (40, true));
    buf[10] ^= 1;
    assert!(client.exchange(&mut world, &buf[..len]).is_empty());
}

#[test]
fn strangers_are_answered_so_often_and_clients_always() {
    let seldom = Rate { burst: 3, interval: std::time::Duration::from_secs(60) };
    let mut world = World::new(|settings| settings.limits = LimitSettings { source: seldom, ..Default::default() });
    let (mut client, stranger) = (Client::new(1), Client::new(2));
    client.allocate(&mut world);
    let answered = (0..20).filter(|_| !stranger.exchange(&mut world, BINDING).is_empty()).count();
    assert!((1..=6).contains(&answered), "{answered}");
    assert!(world.relay.counters().drops.count(DropReason::UnauthenticatedBudgetSpent) >= 14);
    for _ in 0..20 {
        assert_eq!(client.exchange(&mut world, BINDING).len(), 1);
        assert_eq!(client.refresh(&mut world, 600).code, 0);
    }
}

#[test]
fn errors_are_counted_by_their_codes_and_allocations_by_their_clients() {
    let mut world = World::new(|settings| settings.allocations_max = 2);
    let (mut first, mut second, mut third) = (Client::new(1), Client::of("bob", 2), Client::of("eve", 3));
    (second.number, second.path.remote) = (1, "[2001:db8::77]:1".parse().unwrap());
    first.allocate(&mut world);
    second.allocate(&mut world);
    assert_eq!(third.allocate_with(&mut world, |_| {}).code, 508);
    assert_eq!(third.refresh(&mut world, 600).code, 437);
    let counters = world.relay.counters();
    assert_eq!([401, 437, 438, 508].map(|code| counters.refusals.count(code)), [3, 1, 0, 1]);
    let counters::Value::ByLabels(rows) = counters.allocations.value() else { panic!("it has two labels") };
    let rows: Vec<_> = rows.iter().filter(|(_, count)| *count > 0).map(|(labels, _)| labels.as_str()).collect();
    assert_eq!(rows, [r#"transport="udp",family="ipv4""#, r#"transport="udp",family="ipv6""#]);
    let ports = |set: &relay::counters::PortCounts| set.iter().map(|(_, count)| count).collect::<Vec<_>>();
    assert_eq!((ports(&counters.ports_in_use), ports(&counters.ports)), (vec![2, 0], vec![1_000, 1_000]));

    first.refresh(&mut world, 0);
    let counters = world.relay.counters();
    assert_eq!((counters.allocations.total(), ports(&counters.ports_in_use)), (1, vec![1, 0]));
}

#[test]
fn who_is_blocked_has_nothing_any_more_and_gets_nothing_until_he_is_not() {
    let mut world = World::new(|_| {});
    let (mut ann, mut bob) = (Client::new(1), Client::of("bob", 2));
    ann.allocate(&mut world);
    bob.allocate(&mut world);
    let hour = world.now + std::time::Duration::from_secs(3_600);
    let block = |users: &[(&str, Option<std::time::Instant>)]| {
        Command::Block(Arc::new(Blocked(users.iter().map(|(user, until)| ((*user).into(), *until)).collect())))
    };
    world.command(block(&[("ann", Some(hour)), ("eve", None)]));
    assert!(matches!(world.events.last(), Some(Event::Ended(info, EndReason::Blocked, _)) if *info.user == *"ann"));
    assert_eq!((world.sockets.len(), bob.refresh(&mut world, 3_600).code), (1, 0));
    assert_eq!(ann.refresh(&mut world, 600).code, 403);
    let allocated = |world: &mut World, user| Client::of(user, 9).allocate_with(world, |_| {}).code;
    assert_eq!(["ann", "eve"].map(|user| allocated(&mut world, user)), [403, 403]);
    world.advance(std::time::Duration::from_secs(3_600));
    assert_eq!(["ann", "eve"].map(|user| allocated(&mut world, user)), [0, 403], "an hour is over");
    world.command(block(&[]));
    assert_eq!(Client::of("eve", 10).allocate_with(&mut world, |_| {}).code, 0);
}

/// What spoofed sources, or a neighbour behind the same NAT, are able to do.
#[test]
fn a_flood_in_the_name_of_an_address_ends_no_allocation_there() {
    let seldom = Rate { burst: 3, interval: std::time::Duration::from_secs(3_600) };
    let few = Rate { burst: 100, interval: std::time::Duration::from_secs(3_600) };
    let mut world = World::new(|settings| {
        settings.limits = LimitSettings { source: seldom, total: few, ..Default::default() };
        settings.auth.nonce_age_max = std::time::Duration::from_secs(60);
    });
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    for number in 0..200 {
        let mut stranger = Client::new(2);
        stranger.exchange(&mut world, BINDING);
        stranger.path.remote = ([198, 51, 100, number], 1).into();
        stranger.exchange(&mut world, BINDING);
    }
    assert!(Client::new(3).exchange(&mut world, BINDING).is_empty());
    for _ in 0..10 {
        world.advance(std::time::Duration::from_secs(500));
        // 438, and then it is granted.
        assert_eq!(client.refresh(&mut world, 600).code, 0);
    }
    assert_eq!(world.sockets.values().map(|(_, _, addr)| *addr).collect::<Vec<_>>(), [relayed]);
}

#[test]
fn who_tries_passwords_is_not_heard_for_long_and_who_has_an_allocation_there_is() {
    let seldom = Rate { burst: 3, interval: std::time::Duration::from_secs(60) };
    let mut world = World::new(|settings| settings.limits = LimitSettings { source: seldom, ..Default::default() });
    let (mut ann, mut eve, mut bob) = (Client::new(1), Client::new(2), Client::of("bob", 3));
    ann.allocate(&mut world);
    (eve.realm, eve.nonce, eve.key) = (ann.realm.clone(), ann.nonce.clone(), b"guessed".to_vec());
    (bob.realm, bob.nonce) = (ann.realm.clone(), ann.nonce.clone());
    let tries = |world: &mut World, client: &mut Client, count: usize| {
        let mut answered = 0;
        for _ in 0..count {
            let request = client.sealed(Method::Refresh, client.clone().transaction(), |_| {});
            answered += client.exchange(world, &request).len();
        }
        answered
    };
    let answered = tries(&mut world, &mut eve, 100);
    assert!((3..=6).contains(&answered), "{answered}");
    assert_eq!(world.relay.counters().drops.count(DropReason::AttemptsSpent), 100 - answered as u64);
    assert_eq!(tries(&mut world, &mut bob, 1), 0, "nobody there is a newcomer for now");
    assert_eq!(ann.refresh(&mut world, 600).code, 0);
    world.advance(std::time::Duration::from_secs(60));
    bob.allocate(&mut world);
}

#[test]
fn a_first_allocate_is_asked_for_a_proof_in_few_bytes() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let id = client.transaction();
    let request = client.sealed(Method::Allocate, id, |writer| {
        writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
    });
    let answers = client.exchange(&mut world, &request);
    assert!(answers[0].len() * 10 <= request.len() * 26, "{} for {}", answers[0].len(), request.len());
    let answer = client.read(&answers[0], Method::Allocate, id);
    assert_eq!((answer.code, answer.value(attribute::REALM)), (401, Some(&b"millrace"[..])));
    // Nothing is kept of it.
    assert_eq!((world.sockets.len(), world.relay.counters().allocations.total()), (0, 0));
}

#[test]
fn who_proves_nothing_hears_nothing_but_to_an_allocate() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    for method in [Method::Refresh, Method::CreatePermission, Method::ChannelBind, Method::Connect, Method::Allocate] {
        let id = client.transaction();
        let request = client.sealed(method, id, |_| {});
        assert!(client.exchange(&mut world, &request).is_empty(), "{method:?}");
    }
}

#[test]
fn what_stands_behind_the_proof_does_not_count() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let id = client.transaction();
    let mut request = client.sealed(Method::Refresh, id, |_| {});
    request.extend([0, 0x0d, 0, 4, 0, 0, 0, 0]);
    let length = (request.len() - 20) as u16;
    request[2..4].copy_from_slice(&length.to_be_bytes());
    let answers = client.exchange(&mut world, &request);
    let answer = client.read(&answers[0], Method::Refresh, id);
    assert_eq!((answer.code, answer.number(attribute::LIFETIME)), (0, Some(600)));
    assert_eq!(world.sockets.len(), 1);
}

#[test]
fn a_request_that_was_changed_on_its_way_does_nothing() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    let id = client.transaction();
    let request = client.sealed(Method::Refresh, id, |writer| {
        writer.number(attribute::LIFETIME, 0);
    });
    for at in 0..request.len() {
        let mut changed = request.clone();
        changed[at] ^= 1;
        client.exchange(&mut world, &changed);
        assert_eq!(world.sockets.len(), 1, "{at}");
    }
    client.exchange(&mut world, &request);
    assert_eq!(world.sockets.len(), 0);
}

#[test]
fn a_request_waits_until_its_user_is_found() {
    let mut world = World::new(|settings| settings.auth.looks_up = true);
    for (user, is_there) in [("zoe", true), ("zac", false)] {
        let mut client = Client::of(user, 1);
        let allocate = |client: &mut Client| {
            let id = client.transaction();
            let request = client.sealed(Method::Allocate, id, |writer| {
                writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
            });
            (id, request)
        };
        let (id, request) = allocate(&mut client);
        let answers = client.exchange(&mut world, &request);
        let challenge = client.read(&answers[0], Method::Allocate, id);
        client.realm = challenge.value(attribute::REALM).unwrap().to_vec();
        client.nonce = challenge.value(attribute::NONCE).unwrap().to_vec();
        world.events.clear();
        let (id, request) = allocate(&mut client);
        assert!(client.exchange(&mut world, &request).is_empty());
        assert!(matches!(&world.events[..], [Event::Lookup { user: asked }] if **asked == *user));
        let keys = UserKeys::new(user, "millrace", crate::world::PASSWORD);
        let found = if is_there { Found::Keys(keys) } else { Found::Nobody };
        world.command(Command::Found { user: user.into(), found });
        let answers = client.take(&mut world);
        assert_eq!(client.read(&answers[0], Method::Allocate, id).code, if is_there { 0 } else { 401 });
        if is_there {
            client.refresh(&mut world, 0);
        }
    }
}
