//! Whatever strangers and peers send, the streams of others do not suffer, and it is counted.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

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
        assert!(server.metric(&dropped(reason)) > 0.0, "{reason}");
    }
    assert!(server.metric("millrace_handshake_datagrams_refused_total") > 0.0);
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
        assert!(server.metric(&dropped(reason)) > 0.0, "{reason}");
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
