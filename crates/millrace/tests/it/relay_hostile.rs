//! Whatever strangers send to the relay, and its clients in their own name: who is there is served, and memory stays.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use load::attack::RawSocket;
use relay::answer::{Seal, Writer};
use relay::message::{Class, Method, attribute};
use wire::Random;

use crate::common::{Echo, RELAY, Server, TurnClient, channel_data, relay_of, wait_until};
use crate::skip::skip;

/// Datagrams with a source of their own each, and how many of them are sent before a client has its turn: fewer than find room
/// in a socket's buffer.
const SPOOFED: u32 = 1_000_000;
const TOGETHER: u32 = 100;
/// What memory may be larger by afterwards: buffers that are used for the first time. A source that was remembered would have
/// eight bytes of it.
const GROWTH_MAX: f64 = 8e6;

#[test]
fn a_million_spoofed_sources_take_no_memory_and_a_client_loses_nothing() {
    let Ok(raw) = RawSocket::open() else {
        return skip("datagrams that seem to come from others: a raw socket needs root");
    };
    let server = Server::start(&RELAY);
    let (relay, echo) = (relay_of(&server), Echo::start());
    let mut client = TurnClient::new(relay);
    client.allocate();
    assert_eq!(client.bind(0x4abc, echo.addr), 0);
    let seed = 0x5eed;
    println!("seed {seed:#x}");
    let (mut random, kinds) = (Random::new(seed), strangers_datagrams());
    let mut flood = |count: u32| {
        for number in 0..count {
            let source = Ipv4Addr::from_bits(0x7f00_0000 | random.next_u64() as u32 & 0x00ff_ffff);
            let from = SocketAddr::from((source, 1_024 + (random.next_u64() % 60_000) as u16));
            assert!(raw.send_datagram(from, relay, &kinds[number as usize % kinds.len()]), "loopback");
            if number % TOGETHER == 0 {
                client.ping(number);
            }
        }
    };
    flood(20_000);
    let before = server.metric("millrace_process_resident_bytes");
    flood(SPOOFED);
    let growth = server.metric("millrace_process_resident_bytes") - before;
    assert!(growth < GROWTH_MAX, "memory grew by {growth} bytes");
    assert_eq!(server.metric("millrace_relay_allocations"), 1.0);
    assert!(server.metric("millrace_relay_refusals_total{code=\"401\"}") > 0.0);
    assert_eq!(client.refresh(600).lifetime, Some(600));
}

/// A thing of each kind that can be sent without knowing anybody.
fn strangers_datagrams() -> Vec<Vec<u8>> {
    let written = |class, method, write: &dyn Fn(&mut Writer<'_>)| {
        let mut buf = [0; 600];
        let mut writer = Writer::new(&mut buf, class, method, *b"a transactio");
        write(&mut writer);
        let len = writer.finish().expect("there is room");
        buf[..len].to_vec()
    };
    let transport = |writer: &mut Writer<'_>| {
        writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24);
    };
    vec![
        written(Class::Request, Method::Allocate, &transport),
        written(Class::Request, Method::Allocate, &|writer| {
            transport(writer);
            writer.attribute(attribute::USERNAME, b"alice").attribute(attribute::REALM, b"millrace");
            writer.attribute(attribute::NONCE, &[b'7'; 40]).seal(&Seal::sha1(b"guessed"));
        }),
        written(Class::Request, Method::Binding, &|_| {}),
        written(Class::Request, Method::Refresh, &|_| {}),
        written(Class::Indication, Method::Send, &|writer| {
            writer.xor_address(attribute::XOR_PEER_ADDRESS, ([127, 0, 0, 1], 53).into());
            writer.attribute(attribute::DATA, b"data");
        }),
        channel_data(0x4000, b"data"),
        vec![0; 100],
        vec![0xff; 3],
    ]
}

#[test]
fn what_a_client_sends_wrongly_is_dropped_and_counted_and_it_is_served_all_the_same() {
    let server = Server::start(&RELAY);
    let (relay, echo) = (relay_of(&server), Echo::start());
    let (mut client, mut other) = (TurnClient::new(relay), TurnClient::new(relay));
    for each in [&mut client, &mut other] {
        each.allocate();
        assert_eq!(each.bind(0x4000, echo.addr), 0);
    }
    let whole = channel_data(0x4000, &[7; 64]);
    let mut wrong: Vec<Vec<u8>> = (1..whole.len()).map(|len| whole[..len].to_vec()).collect();
    wrong.push([&whole[..2], &[0xff, 0xff], &whole[4..]].concat());
    wrong.extend([0x4001, 0x4fff, 0x5000, 0x7fff].map(|channel| channel_data(channel, b"of no channel")));
    wrong.extend(strangers_datagrams());
    let mut random = Random::new(7);
    let request = strangers_datagrams().remove(1);
    for _ in 0..500 {
        let mut damaged = request.clone();
        let at = random.next_u64() as usize % damaged.len();
        damaged[at] = random.next_u64() as u8;
        damaged.truncate(random.next_u64() as usize % (damaged.len() + 1));
        wrong.push(damaged);
    }
    for datagram in wrong.iter().filter(|datagram| !datagram.is_empty()) {
        client.line.send(datagram);
    }
    // Answers to some of it come first.
    wait_until("it is served all the same", || {
        client.send_on(0x4000, b"still here");
        let mut came = std::iter::from_fn(|| client.receive(Duration::from_millis(200)));
        came.any(|came| came == channel_data(0x4000, b"still here"))
    });
    assert_eq!(other.echo_on(0x4000, b"here too"), b"here too");
    assert_eq!((client.refresh(600).code, other.refresh(600).code), (0, 0));
    for reason in ["malformed_channel_data", "malformed_stun", "no_channel", "unknown_protocol"] {
        let name = format!("millrace_relay_dropped_total{{reason=\"{reason}\"}}");
        wait_until(reason, || server.metric(&name) > 0.0);
    }
}
