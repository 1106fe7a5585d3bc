//! Whatever strangers and peers send, the streams of others do not suffer, and it is counted.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;

use clap::Parser;
use load::attack::{self, RawSocket};
use load::rooms as load_rooms;

use crate::common::{Client, Publisher, Server, Viewer, Way, kernel_drops, snmp, wait_until};
use crate::own_process::is_alone_in_a_network;
use crate::skip::skip;

#[test]
fn datagrams_of_strangers_change_nothing() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Tcp);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let mut tcp_stranger = TcpStream::connect(other.client.server).expect("the worker listens");

    for datagram in hostile_datagrams(1) {
        for worker in [publisher.client.server, one.client.server] {
            stranger.send_to(&datagram, worker).expect("sent");
        }
        // Without a frame's length before it. The server may have cut the connection already.
        tcp_stranger.write_all(&datagram).ok();
        publisher.pump();
        one.pump();
        other.pump();
    }
    publisher.play(&mut [&mut one, &mut other], 200);
    publisher.finish(&mut [&mut one, &mut other]);

    one.assert_whole(0, &publisher);
    other.assert_whole(0, &publisher);
    for reason in ["unknown_protocol", "unknown_peer"] {
        wait_until(reason, || server.metric(&dropped(reason)) > 0.0);
    }
    wait_until("refusals", || server.metric("millrace_handshake_datagrams_refused_total") > 0.0);
}

#[test]
fn datagrams_forged_under_a_peers_address_change_nothing() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);

    for datagram in hostile_datagrams(2) {
        publisher.client.socket.send(&datagram);
        one.client.socket.send(&datagram);
        publisher.pump();
        one.pump();
        other.pump();
    }
    publisher.play(&mut [&mut one, &mut other], 200);
    publisher.finish(&mut [&mut one, &mut other]);

    one.assert_whole(0, &publisher);
    other.assert_whole(0, &publisher);
    assert!(!publisher.client.has_ended && !one.client.has_ended);
    for reason in ["not_authentic", "malformed_srtp", "not_a_publisher"] {
        wait_until(reason, || server.metric(&dropped(reason)) > 0.0);
    }
}

#[test]
fn a_replayed_packet_is_refused() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 100);

    let recorded = publisher.last_datagram.clone();
    for _ in 0..10 {
        publisher.client.socket.send(&recorded);
    }
    publisher.play(&mut [&mut viewer], 100);
    publisher.finish(&mut [&mut viewer]);

    viewer.assert_whole(0, &publisher);
    wait_until("the replays are counted", || server.metric(&dropped("replayed")) >= 10.0);
}

#[test]
fn viewers_lose_nothing_while_strangers_send_all_that_they_may() {
    const NAME: &str = "hostile::viewers_lose_nothing_while_strangers_send_all_that_they_may";
    // What the kernel drops is counted for all of a network. In this one nobody else has sockets, and strangers are sent nothing.
    if !is_alone_in_a_network(NAME, "ip link set lo up", "iproute2") {
        return;
    }
    let server = Server::start(&[]);
    let url = server.url();
    let kinds = "stun,ufrag,dtls,media,connects,slow,sdp,offers,icmp";
    let limits = ["--rate", "1000", "--held", "300", "--requests", "10", "--seconds", "6"];
    let attack = attack::Args::parse_from([["attack", "--url", &url, "--kinds", kinds].as_slice(), &limits].concat());
    let watch = ["load", "--url", &url, "--subscribers", "30", "--sample", "1", "--seconds", "5", "--json"];
    let watch = load_rooms::Args::parse_from(watch);

    let drops_before = kernel_drops();
    let (seen, sent) = thread::scope(|scope| {
        let watching = scope.spawn(|| load_rooms::measure(&watch).expect("a report"));
        wait_until("there is a stream", || server.stream_state("load-0") == "live");
        let attacking = scope.spawn(|| attack::attack(&attack).expect("an attack"));
        (watching.join().expect("it ends"), attacking.join().expect("it ends"))
    });

    assert_eq!((seen.viewers, seen.failed, seen.damaged), (30, 0, 0), "{seen:?}");
    // A message that the kernel drops on a busy machine is up to 64 packets (GSO), of the publisher's at worst.
    let dropped = kernel_drops() - drops_before
        + ["queue_full", "socket_full"]
            .map(|what| server.metric(&format!("millrace_worker_dropped_{what}_total")) as u64)
            .iter()
            .sum::<u64>();
    assert!(seen.lost <= 30 * 64 * dropped && (seen.duplicates == 0 || dropped > 0), "{dropped} dropped: {seen:?}");

    // There was an attack, and the server has seen it.
    for (kind, sent) in sent.kinds {
        // Offers that are none are all refused.
        assert!(sent.count > 0 && (kind == attack::Kind::Sdp || sent.count > sent.refused), "{kind:?}: {sent:?}");
        let name = sign_of(kind);
        wait_until(&name, || server.metric(&name) > 0.0);
    }
}

/// What the server counts of what strangers do.
fn sign_of(kind: attack::Kind) -> String {
    let of_handshakes = |what| format!("millrace_handshake_{what}_total");
    match kind {
        attack::Kind::Stun => of_handshakes("datagrams_unknown"),
        attack::Kind::Ufrag => of_handshakes("datagrams_not_authentic"),
        attack::Kind::Dtls => dropped("malformed_handshake"),
        attack::Kind::Media => dropped("unknown_peer"),
        attack::Kind::Icmp => "millrace_worker_icmp_port_unreachable_total".to_owned(),
        attack::Kind::Connects => "millrace_worker_tcp_closed_total".to_owned(),
        attack::Kind::Slow => "millrace_worker_tcp_accepted_total".to_owned(),
        attack::Kind::Sdp => "millrace_offers_unreadable_total".to_owned(),
        attack::Kind::Offers => of_handshakes("timed_out"),
    }
}

#[test]
fn http_answers_and_tcp_viewers_join_while_strangers_hold_all_connections_that_there_are() {
    let server = Server::start_with_files(400, &["http.connections_max=50", "workers.tcp_strangers_max=1000"]);
    let url = server.url();
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    // A worker's address has 25 places. Some of these are lost each second, and taken again: too few to take all in the time
    // that a viewer needs for its first check.
    let words = ["attack", "--url", &url, "--stream", "news", "--kinds", "slow", "--held", "60", "--seconds", "6"];
    let attack = attack::Args::parse_from(words);

    thread::scope(|scope| {
        let attacking = scope.spawn(|| attack::attack(&attack).expect("an attack"));
        wait_until("strangers give way to others", || {
            publisher.pump();
            server.metric("millrace_worker_tcp_strangers_closed_total") > 10.0
        });
        assert_eq!(server.ask("GET", "/healthz", &[], "").status, 200);
        let mut viewer = Viewer::join(&server, "news", Way::Tcp);
        publisher.play(&mut [&mut viewer], 100);
        publisher.finish(&mut [&mut viewer]);
        viewer.assert_whole(0, &publisher);
        attacking.join().expect("it ends");
    });
}

#[test]
fn a_check_from_a_publishers_address_takes_nothing_from_him() {
    let Ok(raw) = RawSocket::open() else { return skip("checks from others' addresses: a raw socket needs root") };
    let server = Server::start(&["workers.count=1"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut evil = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut evil], 50);

    let place = publisher.client.socket.local_addr();
    forge_checks(&server, &evil.client, &raw, place);
    publisher.play(&mut [&mut one], 200);
    publisher.finish(&mut [&mut one]);
    one.assert_whole(0, &publisher);
}

#[test]
fn a_third_party_who_answers_nothing_is_sent_nothing_but_checks() {
    let Ok(raw) = RawSocket::open() else {
        return skip("checks from a third party's address: a raw socket needs root");
    };
    let server = Server::start(&["workers.count=1"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut evil = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut evil], 50);

    let third = UdpSocket::bind("127.0.0.77:0").expect("a free port");
    third.set_nonblocking(true).expect("option");
    let forged = forge_checks(&server, &evil.client, &raw, third.local_addr().expect("bound"));
    let (mut buf, mut bytes) = ([0; 2_000], 0);
    let mut receive = || {
        while let Ok(len) = third.recv(&mut buf) {
            assert!(buf[0] < 4, "no media and no DTLS: it begins with {}", buf[0]);
            bytes += len;
        }
        bytes
    };
    wait_until("the checks are answered", || receive() > 0);
    publisher.play(&mut [&mut one], 100);
    let bytes = receive();
    assert!(bytes <= 3 * forged, "{bytes} bytes for {forged}");
}

#[test]
fn forged_icmp_cuts_no_media_into_fragments() {
    // What the kernel believes of a path holds for everybody who uses it.
    if !is_alone_in_a_network("hostile::forged_icmp_cuts_no_media_into_fragments", "ip link set lo up", "iproute2") {
        return;
    }
    let raw = RawSocket::open().expect("who makes a network may do this, too");
    // With one socket on its port: of two the kernel takes either for what ICMP says, and one of them hears nothing of it.
    let server = Server::start(&["workers.count=1", "workers.bind=127.0.0.1", "workers.patience=0ms"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    // The publisher, whose kernel is the same, sends elsewhere.
    let mut viewer = Viewer::join(&server, "news", Way::Udp4Apart);
    let place = viewer.client.socket.local_addr();
    for round in 1..=2 {
        assert!(raw.send_unreachable(viewer.client.server, place, true));
        let told = || server.metric("millrace_worker_icmp_too_long_total");
        wait_until("it is heard", || {
            publisher.pump();
            viewer.pump();
            told() >= f64::from(round)
        });
        publisher.play(&mut [&mut viewer], 100);
    }
    publisher.finish(&mut [&mut viewer]);
    viewer.assert_whole(0, &publisher);
    assert_eq!(fragments(), 0, "of {} packets", publisher.sent.len());
}

/// Fragments that were made in this network.
fn fragments() -> u64 {
    snmp("Ip:", "FragCreates")
}

/// Sends checks that a client may write, which nominate, from another's place, and waits until they are read. Returns how
/// many bytes that were.
fn forge_checks(server: &Server, client: &Client, raw: &RawSocket, from: SocketAddr) -> usize {
    let [ufrag, password] = &client.credentials;
    let username = format!("{ufrag}:{}", client.peer.ufrag());
    let mut random = wire::Random::new(7);
    let count = |what: &str| server.metric(&format!("millrace_handshake_datagrams{what}_total"));
    let (all, unknown) = (count(""), count("_unknown"));
    let forged = (0..20).map(|_| {
        let check = attack::nominating_check(&username, Some(password), &mut random);
        assert!(raw.send_datagram(from, client.server, &check));
        check.len()
    });
    let forged = forged.sum();
    // Behind them goes one that is counted by itself.
    let last = attack::nominating_check("nobody:evil", None, &mut random);
    assert!(raw.send_datagram(from, client.server, &last));
    wait_until("the forged checks are read", || count("_unknown") > unknown && count("") >= all + 21.0);
    forged
}

fn dropped(reason: &str) -> String {
    format!("millrace_rooms_dropped_total{{reason=\"{reason}\"}}")
}

/// Every protocol's beginning, cut at every length and with random bytes after it, then pure noise.
fn hostile_datagrams(seed: u64) -> Vec<Vec<u8>> {
    let mut random = wire::Random::new(seed);
    let stun = [&[0, 1, 0, 8, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12], &[0, 6, 0, 4], b"a:bc"].concat();
    // A fatal alert in the clear, which after the handshake means nothing (RFC 6347 §4.1.2.7).
    let dtls_alert = [&[21, 0xfe, 0xfd, 0, 0][..], &[0, 0, 0, 0, 0, 9], &[0, 2, 2, 40]].concat();
    let dtls_goodbye = [&[21, 0xfe, 0xfd, 0, 0][..], &[0, 0, 0, 0, 0, 10], &[0, 2, 1, 0]].concat();
    let dtls_hello = [&[22, 0xfe, 0xfd, 0, 0][..], &[0; 6], &[0, 12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let rtp = [&[0x90, 96, 0, 1][..], &[0; 8], &[0xbe, 0xde, 0xff, 0xff], &[1; 40]].concat();
    let rtp_plain = [&[0x80, 96, 0, 1][..], &[9; 100]].concat();
    let rtcp = [&[0x81, 201, 0, 7][..], &[3; 44]].concat();
    let turn_channel = [0x40, 0, 0, 4, 1, 2, 3, 4].to_vec();
    let mut all = vec![Vec::new()];
    for whole in [stun, dtls_alert, dtls_goodbye, dtls_hello, rtp, rtp_plain, rtcp, turn_channel] {
        for len in 1..=whole.len() {
            all.push(whole[..len].to_vec());
        }
        let tail: Vec<u8> = (0..200).map(|_| random.next_u64() as u8).collect();
        all.push([whole, tail].concat());
    }
    for _ in 0..300 {
        let len = random.next_u64() % 1_400;
        all.push((0..len).map(|_| random.next_u64() as u8).collect());
    }
    all
}
