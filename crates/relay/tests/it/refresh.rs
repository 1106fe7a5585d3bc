//! Refresh (RFC 8656 §8), and what becomes of all when their time is over.

use std::time::Duration;

use relay::limits::LimitSettings;
use relay::message::{Method, attribute};
use relay::spec::Event;
use wire::{Product as _, Rate};

use crate::client::Client;
use crate::world::World;

#[test]
fn a_refreshed_allocation_lives_on_and_zero_ends_it() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    world.advance(Duration::from_secs(500));
    assert_eq!(client.refresh(&mut world, 1_000).number(attribute::LIFETIME), Some(1_000));
    world.advance(Duration::from_secs(999));
    assert_eq!(world.sockets.len(), 1);
    assert_eq!(client.refresh(&mut world, 0).number(attribute::LIFETIME), Some(0));
    assert_eq!(world.sockets.len(), 0);
    assert_eq!(client.refresh(&mut world, 0).code, 437);
    assert_eq!(client.refresh(&mut world, 600).code, 437);
}

#[test]
fn an_allocation_is_its_users_alone() {
    let mut world = World::new(|_| {});
    let mut ann = Client::new(1);
    ann.allocate(&mut world);
    let mut bob = Client::of("bob", 1);
    assert_eq!(bob.allocate_with(&mut world, |_| {}).code, 437);
    assert_eq!(bob.refresh(&mut world, 0).code, 441);
    assert_eq!(bob.permit(&mut world, &[([198, 51, 100, 1], 1).into()]), 441);
    assert_eq!(bob.bind(&mut world, 0x4000, ([198, 51, 100, 1], 1).into()), 441);
    assert_eq!(world.sockets.len(), 1);
}

#[test]
fn the_five_tuple_includes_our_address() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.path.local = Some([192, 0, 2, 1].into());
    let relayed = client.allocate(&mut world);
    let mut other = client.clone();
    other.path.local = Some([192, 0, 2, 2].into());
    assert_eq!(other.refresh(&mut world, 600).code, 437);
    assert_ne!(other.allocate(&mut world), relayed);
}

#[test]
fn of_two_families_one_may_be_given_back() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    let end = |client: &mut Client, world: &mut World, family: u8| {
        client.request(world, Method::Refresh, |writer| {
            writer.number(attribute::LIFETIME, 0);
            writer.attribute(attribute::REQUESTED_ADDRESS_FAMILY, &[family, 0, 0, 0]);
        })
    };
    assert_eq!((end(&mut client, &mut world, 2).code, world.sockets.len()), (0, 1));
    assert_eq!(end(&mut client, &mut world, 2).code, 443);
    assert_eq!((end(&mut client, &mut world, 1).code, world.sockets.len()), (0, 0));
    assert_eq!(client.refresh(&mut world, 600).code, 437);
}

/// So that packets wait for no more than a portion of them.
#[test]
fn thousands_that_expire_at_once_are_seen_to_in_portions() {
    const COUNT: u16 = 5_000;
    let mut world = World::new(|settings| {
        settings.ports = 10_000..=60_000;
        let often = Rate { burst: u32::from(COUNT), interval: Duration::from_micros(1) };
        settings.limits = LimitSettings { source: often, total: often, ..Default::default() };
    });
    for port in 0..COUNT {
        Client::new(port + 1).allocate(&mut world);
    }
    world.events.clear();
    // Nobody looks for a while, as a worker that is busy.
    world.now += Duration::from_secs(601);
    let (mut turns, mut open) = (0, world.sockets.len());
    assert_eq!(open, usize::from(COUNT));
    while world.relay.poll_timeout().is_some() {
        world.now += Duration::from_micros(500);
        world.step();
        let (ended, closed) = (world.events.len(), open - world.sockets.len());
        assert!(ended <= 64 && closed <= 64, "{ended} ended and {closed} were closed");
        world.events.clear();
        open = world.sockets.len();
        turns += 1;
    }
    assert_eq!((open, world.relay.counters().allocations.total()), (0, 0));
    assert!((150..1_000).contains(&turns), "{turns}");
    assert_eq!(world.relay.counters().allocations_expired, u64::from(COUNT));
}

#[test]
fn one_whose_time_is_over_is_gone_though_nobody_saw_to_it_yet() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    let peer = ([198, 51, 100, 1], 9).into();
    client.bind(&mut world, 0x4000, peer);
    world.now += Duration::from_secs(600);
    assert!(client.hear(&mut world, relayed, peer, b"late").is_empty());
    assert!(client.send_on(&mut world, 0x4000, b"late", peer).is_empty());
    assert_eq!(client.refresh(&mut world, 600).code, 437);
    let next = client.allocate(&mut world);
    assert_ne!(next, relayed);
    assert_eq!(world.events.iter().filter(|event| matches!(event, Event::Ended(..))).count(), 1);
    world.step();
    assert_eq!(world.sockets.len(), 1);
}
