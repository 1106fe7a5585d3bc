//! Allocate (RFC 8656 §7).

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use relay::answer::Writer;
use relay::message::{Class, Method, attribute};
use relay::reservation::Reservations;
use relay::settings::RelayAddress;
use relay::spec::{ClientTransport, Command, EndReason, Event};
use wire::Product as _;

use crate::client::Client;
use crate::world::{PORTS, RELAY, World};

const EVEN: &[u8] = &[0];
const PAIR: &[u8] = &[0x80];

#[test]
fn an_allocation_is_told_when_its_socket_is_open() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1_000);
    let answer = client.allocate_with(&mut world, |_| {});
    assert_eq!(answer.class, Class::Success);
    let relayed = answer.relayed();
    assert!(relayed.ip() == SocketAddr::from((RELAY, 0)).ip() && PORTS.contains(&relayed.port()));
    assert_eq!(answer.addresses(attribute::XOR_MAPPED_ADDRESS), [client.path.remote]);
    assert_eq!(answer.number(attribute::LIFETIME), Some(600));
    assert_eq!(world.sockets.len(), 1);
    let Some(Event::Began(info)) = world.events.first() else { panic!("{:?}", world.events) };
    assert_eq!((&*info.user, &info.relayed[..], info.client), ("ann", &[relayed][..], client.path.remote));
    assert_eq!(world.relay.counters().allocations.total(), 1);
}

#[test]
fn a_repeated_allocate_is_answered_alike_and_another_is_a_mismatch() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1_000);
    let relayed = client.allocate(&mut world);
    let _ = client.refresh(&mut world, 600);
    let (id, other) = (client.transaction(), client.transaction());
    client.refresh(&mut world, 0);
    let allocate = |client: &Client, id| {
        client.sealed(Method::Allocate, id, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
        })
    };
    world.is_slow = true;
    assert!(client.exchange(&mut world, &allocate(&client, id)).is_empty());
    assert!(client.exchange(&mut world, &allocate(&client, id)).is_empty(), "it waits");
    world.is_slow = false;
    world.open_sockets();
    let first = client.read(&client.take(&mut world)[0], Method::Allocate, id).relayed();
    assert_ne!(first, relayed);
    let again = client.exchange(&mut world, &allocate(&client, id));
    assert_eq!(client.read(&again[0], Method::Allocate, id).relayed(), first);
    let mismatch = client.exchange(&mut world, &allocate(&client, other));
    assert_eq!(client.read(&mismatch[0], Method::Allocate, other).code, 437);
    assert_eq!(world.sockets.len(), 1);
}

#[test]
fn lifetimes_are_within_what_is_allowed() {
    for (asked, told) in [(Some(10), 600), (Some(700), 700), (Some(u32::MAX), 3_600), (None, 600)] {
        let mut world = World::new(|_| {});
        let answer = Client::new(1).allocate_with(&mut world, |writer| {
            if let Some(asked) = asked {
                writer.number(attribute::LIFETIME, asked);
            }
        });
        assert_eq!(answer.number(attribute::LIFETIME), Some(told), "{asked:?}");
        world.advance(Duration::from_secs(u64::from(told) - 1));
        assert_eq!(world.sockets.len(), 1);
        world.advance(Duration::from_secs(2));
        assert_eq!(world.sockets.len(), 0);
        assert!(matches!(world.events.last(), Some(Event::Ended(info, EndReason::Expired, _)) if *info.user == *"ann"));
    }
}

#[test]
fn what_is_wrong_with_a_request_is_told() {
    type Attributes = &'static [(u16, &'static [u8])];
    const TRANSPORT: (u16, &[u8]) = (attribute::REQUESTED_TRANSPORT, &[17, 0, 0, 0]);
    const V4: (u16, &[u8]) = (attribute::REQUESTED_ADDRESS_FAMILY, &[1, 0, 0, 0]);
    const V6_TOO: (u16, &[u8]) = (attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    const TOKEN: (u16, &[u8]) = (attribute::RESERVATION_TOKEN, &[1; 8]);
    let cases: [(Attributes, u16); 12] = [
        (&[], 400),
        (&[(attribute::REQUESTED_TRANSPORT, &[17])], 400),
        (&[(attribute::REQUESTED_TRANSPORT, &[6, 0, 0, 0])], 442),
        (&[TRANSPORT, V4, V6_TOO], 400),
        (&[TRANSPORT, (attribute::ADDITIONAL_ADDRESS_FAMILY, &[1, 0, 0, 0])], 400),
        (&[TRANSPORT, (attribute::REQUESTED_ADDRESS_FAMILY, &[3, 0, 0, 0])], 440),
        (&[TRANSPORT, V6_TOO, (attribute::EVEN_PORT, PAIR)], 400),
        (&[TRANSPORT, TOKEN, (attribute::EVEN_PORT, EVEN)], 400),
        (&[TRANSPORT, TOKEN, V4], 400),
        (&[TRANSPORT, TOKEN], 508),
        (&[TRANSPORT, (attribute::LIFETIME, &[1])], 400),
        (&[TRANSPORT, (0x7f00, &[]), (0x7f01, &[])], 420),
    ];
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.refresh(&mut world, 0);
    for (attributes, code) in cases {
        let answer = client.request(&mut world, Method::Allocate, |writer| {
            for (kind, value) in attributes {
                writer.attribute(*kind, value);
            }
        });
        assert_eq!(answer.code, code, "{attributes:?}");
        let unknown = answer.value(attribute::UNKNOWN_ATTRIBUTES);
        assert_eq!(unknown, (code == 420).then_some(&[0x7f, 0, 0x7f, 1][..]));
    }
    assert_eq!(world.sockets.len(), 0);
}

#[test]
fn families_are_what_is_asked_for() {
    let mut world = World::new(|_| {});
    let v6 = Client::new(1).allocate_with(&mut world, |writer| {
        writer.attribute(attribute::REQUESTED_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    assert!(v6.relayed().is_ipv6());
    // coturn's client of Debian asks for both by the number of a draft.
    let numbers = [attribute::ADDITIONAL_ADDRESS_FAMILY, attribute::ADDITIONAL_ADDRESS_FAMILY_OF_DRAFT];
    for (index, number) in (2..).zip(numbers) {
        let both = Client::new(index).allocate_with(&mut world, |writer| {
            writer.attribute(number, &[2, 0, 0, 0]);
        });
        let relayed = both.addresses(attribute::XOR_RELAYED_ADDRESS);
        assert!(relayed.len() == 2 && relayed[0].is_ipv4() && relayed[1].is_ipv6(), "{number:#x}");
    }
    assert_eq!(world.sockets.len(), 5);
}

#[test]
fn of_two_families_the_one_that_there_is_is_given_and_the_other_explained() {
    let mut world = World::new(|settings| settings.relays = vec![RelayAddress::of(RELAY.into())]);
    let answer = Client::new(2).allocate_with(&mut world, |writer| {
        writer.attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    assert_eq!(answer.addresses(attribute::XOR_RELAYED_ADDRESS).len(), 1);
    assert_eq!(answer.value(attribute::ADDRESS_ERROR_CODE), Some(&[2, 0, 4, 40][..]));
    let mut client = Client::new(3);
    let answer = client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::REQUESTED_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    assert_eq!(answer.code, 440);
}

#[test]
fn who_wants_no_fragments_gets_a_socket_that_makes_none() {
    let mut world = World::new(|_| {});
    Client::new(1).allocate(&mut world);
    assert!(world.whole.is_empty());
    let mut client = Client::new(2);
    let answer = client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::DONT_FRAGMENT, &[]).attribute(attribute::ADDITIONAL_ADDRESS_FAMILY, &[2, 0, 0, 0]);
    });
    let ports = answer.addresses(attribute::XOR_RELAYED_ADDRESS).iter().map(SocketAddr::port).collect();
    assert_eq!(world.whole, ports);
}

#[test]
fn behind_a_nat_the_address_outside_is_told() {
    let external = [198, 51, 100, 9].into();
    let mut world = World::new(|settings| settings.relays[0].external = Some(external));
    let relayed = Client::new(1).allocate(&mut world);
    assert_eq!(relayed.ip(), external);
    let (_, _, bound) = world.sockets.values().next().expect("it is open");
    assert_eq!((bound.ip(), bound.port()), (RELAY.into(), relayed.port()));
}

#[test]
fn a_client_that_asks_for_no_family_may_get_its_own() {
    for keeps_family in [false, true] {
        let mut world = World::new(|settings| settings.keeps_family = keeps_family);
        let mut client = Client::new(1);
        assert!(client.allocate(&mut world).is_ipv4());
        let mut over_ipv6 = Client::new(2);
        (over_ipv6.number, over_ipv6.path.remote) = (1, "[2001:db8::77]:2".parse().unwrap());
        assert_eq!(over_ipv6.allocate(&mut world).is_ipv6(), keeps_family);
    }
}

/// As two workers' allocations reach each other, whatever the NAT makes of that.
#[test]
fn behind_a_nat_relayed_addresses_of_this_server_are_reached_from_within() {
    let external = [198, 51, 100, 9].into();
    let mut world = World::new(|settings| settings.relays[0].external = Some(external));
    let mut client = Client::new(1);
    let relayed = client.allocate(&mut world);
    let bound = SocketAddr::new(RELAY.into(), relayed.port());
    let (others, inside) = (SocketAddr::new(external, 50_999), SocketAddr::from((RELAY, 50_999)));
    client.bind(&mut world, 0x4000, others);
    assert_eq!(client.send_on(&mut world, 0x4000, b"hello", inside), [b"hello"]);
    assert_eq!(client.hear(&mut world, bound, inside, b"hello").len(), 1);
    // Other ports are not the relay's.
    assert!(client.hear(&mut world, bound, SocketAddr::from((RELAY, 9)), b"hello").is_empty());
    let elsewhere = SocketAddr::new(external, 9);
    client.bind(&mut world, 0x4001, elsewhere);
    assert_eq!(client.send_on(&mut world, 0x4001, b"hello", elsewhere), [b"hello"]);
}

#[test]
fn a_pair_of_ports_is_kept_together_for_its_user() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    let answer = client.allocate_with(&mut world, |writer| {
        writer.attribute(attribute::EVEN_PORT, PAIR);
    });
    let (even, token) = (answer.relayed(), answer.value(attribute::RESERVATION_TOKEN).expect("it is told").to_vec());
    assert!(even.port().is_multiple_of(2) && token.len() == 8);
    let take = |world: &mut World, mut client: Client| {
        client.allocate_with(world, |writer| {
            writer.attribute(attribute::RESERVATION_TOKEN, &token);
        })
    };
    assert_eq!(take(&mut world, Client::of("bob", 2)).code, 508, "it is another's");
    let odd = take(&mut world, Client::new(3)).relayed();
    assert_eq!((odd.ip(), odd.port()), (even.ip(), even.port() + 1));
    assert_eq!(take(&mut world, Client::new(4)).code, 508, "it is taken");
}

#[test]
fn a_pair_of_which_somebody_else_has_the_second_port_is_left_to_him() {
    /// The world has all ports but one.
    fn hold(addr: SocketAddr) -> io::Result<OwnedFd> {
        if addr.port() == 50_001 { Err(ErrorKind::AddrInUse.into()) } else { Ok(File::open("/dev/null")?.into()) }
    }
    let mut world = World::new(|settings| {
        settings.ports = 50_000..=50_005;
        settings.reservations = Arc::new(Reservations::held_by(hold));
    });
    let pair = |writer: &mut Writer<'_>| {
        writer.attribute(attribute::EVEN_PORT, PAIR);
    };
    let mut clients = [1, 2, 3].map(Client::new);
    let ports = clients.each_mut().map(|client| {
        let answer = client.allocate_with(&mut world, pair);
        if answer.code == 0 { answer.relayed().port() } else { answer.code }
    });
    assert!([[50_002, 50_004, 508], [50_004, 50_002, 508]].contains(&ports), "{ports:?}");
    assert_eq!(world.sockets.len(), 2, "none is open that nobody was told of");
    // The first of those two ports is good for who wants one.
    assert_eq!(clients[2].allocate(&mut world).port() & !1, 50_000);
}

/// Otherwise whoever allocates pairs and gives them back would soon have all ports, whatever his quota.
#[test]
fn a_port_that_is_kept_is_free_when_its_allocation_ends() {
    let mut world = World::new(|settings| settings.ports = 50_000..=50_003);
    let mut client = Client::new(1);
    let pair = |client: &mut Client, world: &mut World| {
        client.allocate_with(world, |writer| {
            writer.attribute(attribute::EVEN_PORT, PAIR);
        })
    };
    for round in 0..20 {
        assert_eq!(pair(&mut client, &mut world).code, 0, "round {round}");
        assert_eq!(client.refresh(&mut world, 0).code, 0);
        world.advance(Duration::from_millis(5));
        assert_eq!(world.relay.poll_timeout(), None, "a timer is left of round {round}");
    }
    // It is given away once, also later.
    let mut others: Vec<_> = (2..6).map(|port| Client::new(port).allocate(&mut world).port()).collect();
    world.advance(Duration::from_secs(61));
    assert_eq!(Client::new(6).allocate_with(&mut world, |_| {}).code, 508);
    others.sort_unstable();
    assert_eq!(others, [50_000, 50_001, 50_002, 50_003]);
}

#[test]
fn no_port_is_ever_lost() {
    // Two pairs are all there is.
    let mut world = World::new(|settings| settings.ports = 50_000..=50_003);
    for round in 0..20 {
        let mut clients = [Client::new(1), Client::new(2)];
        let mut tokens = Vec::new();
        for client in &mut clients {
            let answer = client.allocate_with(&mut world, |writer| {
                writer.attribute(attribute::EVEN_PORT, PAIR);
            });
            assert_eq!(answer.code, 0, "round {round}");
            tokens.push(answer.value(attribute::RESERVATION_TOKEN).expect("it is told").to_vec());
        }
        assert_eq!(Client::new(3).allocate_with(&mut world, |_| {}).code, 508);
        let mut third = Client::new(4);
        if round % 2 == 0 {
            third.allocate_with(&mut world, |writer| {
                writer.attribute(attribute::RESERVATION_TOKEN, &tokens[0]);
            });
        }
        clients.iter_mut().for_each(|client| assert_eq!(client.refresh(&mut world, 0).code, 0));
        if round % 2 == 0 {
            world.advance(Duration::from_secs(45));
            assert_eq!(third.refresh(&mut world, 0).code, 0);
        }
        world.advance(Duration::from_secs(61));
        assert_eq!(world.sockets.len(), 0);
    }
}

#[test]
fn ports_of_two_processes_say_nothing_of_each_other_cve_2025_69217() {
    let ports = |seed: u8| -> Vec<u16> {
        let mut world = World::new(|settings| settings.seed = [seed; 32]);
        (1..=30).map(|port| Client::new(port).allocate(&mut world).port()).collect()
    };
    let (one, other) = (ports(1), ports(2));
    assert_eq!(one, ports(1), "the test says what is chance");
    let distances = |ports: &[u16]| ports.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect::<HashSet<_>>();
    assert!(one.iter().zip(&other).filter(|(one, other)| one == other).count() < 5);
    assert!(distances(&one).len() > 20 && distances(&one).is_disjoint(&[1, 2, u16::MAX].into()), "{one:?}");
}

#[test]
fn a_port_that_somebody_else_has_is_left_to_him() {
    let mut world = World::new(|settings| settings.ports = 50_000..=50_003);
    world.taken.extend([50_000, 50_001, 50_003]);
    assert_eq!(Client::new(1).allocate(&mut world).port(), 50_002);
    world.taken.insert(50_002);
    let answer = Client::new(2).allocate_with(&mut world, |_| {});
    assert_eq!(answer.code, 508);
    world.taken.clear();
    assert_eq!(Client::new(3).allocate_with(&mut world, |_| {}).code, 0, "nothing was lost");
}

#[test]
fn limits_and_quotas_have_their_codes() {
    let mut world = World::new(|settings| {
        settings.allocations_max = 2;
        let ledger = relay::ledger::LedgerSettings { user_allocations_max: Some(1), ..Default::default() };
        settings.ledger = std::sync::Arc::new(relay::ledger::Ledger::new(settings.epoch.0, ledger));
    });
    Client::new(1).allocate(&mut world);
    assert_eq!(Client::new(2).allocate_with(&mut world, |_| {}).code, 486);
    let mut bob = Client::of("bob", 3);
    bob.allocate(&mut world);
    assert_eq!(Client::of("eve", 4).allocate_with(&mut world, |_| {}).code, 508);
    bob.refresh(&mut world, 0);
    assert_eq!(Client::of("bob", 5).allocate_with(&mut world, |_| {}).code, 0, "the place is free again");
}

#[test]
fn a_relay_that_drains_sends_newcomers_elsewhere_and_keeps_who_is_there() {
    let other: SocketAddr = ([192, 0, 2, 77], 3_478).into();
    for alternates in [vec![], vec!["[2001:db8::77]:3478".parse().unwrap(), other]] {
        let mut world = World::new(|settings| settings.alternates.plain = alternates.clone());
        let mut client = Client::new(1);
        client.allocate(&mut world);
        world.command(Command::Drain(true));
        let answer = Client::new(2).allocate_with(&mut world, |_| {});
        assert_eq!(answer.code, if alternates.is_empty() { 508 } else { 300 });
        let told = answer.value(attribute::ALTERNATE_SERVER);
        let expected = [0, 1, 0x0d, 0x96, 192, 0, 2, 77];
        assert_eq!(told, (!alternates.is_empty()).then_some(&expected[..]));
        assert_eq!((client.refresh(&mut world, 600).code, world.relay.counters().draining), (0, 1));
        world.command(Command::Drain(false));
        assert_eq!(Client::new(3).allocate_with(&mut world, |_| {}).code, 0, "they may come again");
    }
}

#[test]
fn a_relay_that_sends_all_away_keeps_those_for_whom_there_is_no_other() {
    let mut world = World::new(|settings| {
        settings.alternates.plain = vec![([192, 0, 2, 77], 3_478).into()];
        settings.alternates.take_all = true;
    });
    assert_eq!(Client::new(1).allocate_with(&mut world, |_| {}).code, 300);
    let mut over_tls = Client::over(ClientTransport::Tls, &mut world, 2);
    assert_eq!(over_tls.allocate_with(&mut world, |_| {}).code, 0, "that one is no server of TLS");
    let mut over_ipv6 = Client::new(3);
    (over_ipv6.number, over_ipv6.path.remote) = (1, "[2001:db8::77]:1".parse().unwrap());
    assert_eq!(over_ipv6.allocate_with(&mut world, |_| {}).code, 0);
}

#[test]
fn an_allocation_that_is_ended_before_it_is_open_leaves_nothing() {
    let mut world = World::new(|_| {});
    let mut client = Client::new(1);
    client.allocate(&mut world);
    client.refresh(&mut world, 0);
    world.events.clear();
    world.is_slow = true;
    let id = client.transaction();
    let request = client.sealed(Method::Allocate, id, |writer| {
        writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
    });
    client.exchange(&mut world, &request);
    world.advance(Duration::from_secs(700));
    world.is_slow = false;
    world.open_sockets();
    assert_eq!((world.sockets.len(), world.relay.counters().allocations.total()), (0, 0));
    assert!(client.take(&mut world).is_empty() && world.events.is_empty());
}

#[test]
fn a_pair_of_ports_that_is_let_go_before_it_is_open_is_free_again() {
    let mut world = World::new(|settings| settings.ports = 50_000..=50_001);
    for port in 1..=3 {
        let mut client = Client::over(ClientTransport::Tcp, &mut world, port);
        assert_eq!(client.refresh(&mut world, 0).code, 437, "it has proved itself");
        world.is_slow = true;
        let id = client.transaction();
        let request = client.sealed(Method::Allocate, id, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24).attribute(attribute::EVEN_PORT, PAIR);
        });
        client.exchange(&mut world, &request);
        world.hang_up(&client.path);
        world.is_slow = false;
        world.open_sockets();
        assert_eq!(world.sockets.len(), 0);
    }
    let answer = Client::new(9).allocate_with(&mut world, |writer| {
        writer.attribute(attribute::EVEN_PORT, PAIR);
    });
    assert_eq!(answer.code, 0, "both ports are there");
}

#[test]
fn control_sees_and_ends_allocations() {
    let mut world = World::new(|_| {});
    let relayed: Vec<_> = (1..=3).map(|port| Client::new(port).allocate(&mut world)).collect();
    let list = |world: &mut World, after, count| {
        world.events.clear();
        world.command(Command::List { token: 5, user: None, after, count });
        match world.events.pop() {
            Some(Event::Allocations { token: 5, allocations, .. }) => allocations,
            other => panic!("{other:?}"),
        }
    };
    let first = list(&mut world, relay::spec::AllocationId(0), 2);
    assert_eq!(first.iter().map(|info| info.relayed[0]).collect::<Vec<_>>(), relayed[..2]);
    let rest = list(&mut world, first[1].id, 2);
    assert_eq!((rest.len(), rest[0].relayed[0]), (1, relayed[2]));
    world.command(Command::Delete(rest[0].id));
    assert_eq!(world.sockets.len(), 2);
    assert!(matches!(world.events.last(), Some(Event::Ended(info, EndReason::Deleted, _)) if info.id == rest[0].id));
}
