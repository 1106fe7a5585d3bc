//! What NATs do (RFC 5780).

use std::net::SocketAddr;

use relay::answer::Writer;
use relay::message::{Class, Method, attribute};
use relay::settings::Listener;
use relay::spec::ClientTransport;
use wire::LinkId;

use crate::client::{Answer, Client};
use crate::world::{SERVER, World};

const SECOND: ([u8; 4], u16) = ([192, 0, 2, 2], 3_479);

fn world() -> World {
    World::new(|settings| {
        let ports = [SERVER.1, SECOND.1];
        let addrs = [SERVER.0, SECOND.0].into_iter().flat_map(|ip| ports.map(|port| SocketAddr::from((ip, port))));
        settings.listeners = addrs.map(|addr| Listener { addr, transport: ClientTransport::Udp }).collect();
        settings.discovery = Some(SECOND.into());
    })
}

fn binding(attributes: &[(u16, [u8; 4])]) -> Vec<u8> {
    let mut buf = [0; 100];
    let mut writer = Writer::new(&mut buf, Class::Request, Method::Binding, [3; 12]);
    for (kind, value) in attributes {
        writer.attribute(*kind, value);
    }
    let len = writer.finish().unwrap();
    buf[..len].to_vec()
}

fn named(answer: &Answer, kind: u16) -> Option<SocketAddr> {
    Some(crate::client::address(answer.value(kind)?, &[0; 16]))
}

#[test]
fn an_answer_comes_from_where_the_client_wants_it_and_says_so() {
    let links = [SERVER, (SERVER.0, SECOND.1), (SECOND.0, SERVER.1), SECOND];
    for (asked, bits) in (0..4).flat_map(|asked| [0, 2, 4, 6].map(|bits| (asked, bits))) {
        let mut world = world();
        let mut client = Client::new(1);
        client.number = asked;
        client.path.link = LinkId::datagrams(asked);
        world.receive(client.number, client.path, &[&binding(&[(attribute::CHANGE_REQUEST, [0, 0, 0, bits])])]);
        let sent = world.sent.pop().expect("an answer");
        // The two bits change what the two bits of the number stand for.
        let from = asked ^ u32::from(bits >> 1);
        assert_eq!(sent.path.link, LinkId::datagrams(from), "asked {asked}, bits {bits}");
        let answer = Answer::of(&sent.datagrams[0], Class::Success);
        assert_eq!(named(&answer, attribute::RESPONSE_ORIGIN), Some(links[from as usize].into()));
        assert_eq!(named(&answer, attribute::OTHER_ADDRESS), Some(links[asked as usize ^ 3].into()));
        assert_eq!(answer.addresses(attribute::XOR_MAPPED_ADDRESS), [client.path.remote]);
        assert_eq!(answer.bytes.len(), 56, "a header of 20 bytes, and 12 for each address");
    }
}

#[test]
fn who_asks_another_listener_hears_nothing_of_discovery() {
    let mut world = World::new(|settings| {
        let addrs = [SERVER, (SERVER.0, 443), SECOND, (SERVER.0, SECOND.1), (SECOND.0, SERVER.1)];
        let listener = |addr: ([u8; 4], u16)| Listener { addr: addr.into(), transport: ClientTransport::Udp };
        settings.listeners = addrs.map(listener).to_vec();
        settings.discovery = Some(SECOND.into());
    });
    let mut client = Client::new(1);
    client.number = 1;
    client.path.link = LinkId::datagrams(1);
    let answers = client.exchange(&mut world, &binding(&[]));
    let answer = Answer::of(&answers[0], Class::Success);
    assert_eq!((answer.value(attribute::OTHER_ADDRESS), answers[0].len()), (None, 32));
    let answers = client.exchange(&mut world, &binding(&[(attribute::CHANGE_REQUEST, [0, 0, 0, 4])]));
    assert_eq!(Answer::of(&answers[0], Class::Error).code, 420);
}

#[test]
fn an_answer_goes_to_the_port_that_the_client_names() {
    let mut world = world();
    let client = Client::new(1);
    world.receive(client.number, client.path, &[&binding(&[(attribute::RESPONSE_PORT, [0x12, 0x34, 0, 0])])]);
    let sent = world.sent.pop().expect("an answer");
    assert_eq!(sent.path.remote, SocketAddr::new(client.path.remote.ip(), 0x1234));
}

#[test]
fn without_a_second_address_nothing_is_changed_or_named() {
    let mut world = World::new(|_| {});
    let client = Client::new(1);
    for (kind, value) in [(attribute::CHANGE_REQUEST, [0, 0, 0, 6]), (attribute::RESPONSE_PORT, [1, 2, 0, 0])] {
        let answers = client.exchange(&mut world, &binding(&[(kind, value)]));
        let answer = Answer::of(&answers[0], Class::Error);
        assert_eq!(answer.code, 420);
        assert_eq!(answer.value(attribute::UNKNOWN_ATTRIBUTES), Some(&kind.to_be_bytes()[..]));
    }
    let answers = client.exchange(&mut world, &binding(&[]));
    assert_eq!(answers[0].len(), 32);
}

#[test]
fn an_answer_to_an_ipv4_client_does_not_leave_by_a_wildcard_of_ipv6() {
    let mut world = World::new(|settings| {
        let wildcard = |port| SocketAddr::from(([0; 16], port));
        let v4 = [SERVER, (SERVER.0, SECOND.1), (SECOND.0, SERVER.1), SECOND].map(SocketAddr::from);
        let addrs = [v4[0], wildcard(SECOND.1), wildcard(SERVER.1), v4[1], v4[2], v4[3]];
        settings.listeners = addrs.map(|addr| Listener { addr, transport: ClientTransport::Udp }).to_vec();
        settings.discovery = Some(SECOND.into());
    });
    let client = Client::new(1);
    world.receive(client.number, client.path, &[&binding(&[(attribute::CHANGE_REQUEST, [0, 0, 0, 2])])]);
    assert_eq!(world.sent.pop().expect("an answer").path.link, LinkId::datagrams(3));
}
