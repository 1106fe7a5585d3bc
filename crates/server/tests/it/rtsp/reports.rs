//! RTCP beside sessions in UDP.

use std::net::UdpSocket;

use wire::rtcp::{Packet, packets};
use wire::rtp::RtpPacket;

use super::harness::{Client, Server, receiver_report};

/// Two neighbouring ports, for packets and reports.
fn pair(client: &Client) -> (UdpSocket, UdpSocket, u16) {
    loop {
        let packets = UdpSocket::bind((client.host, 0)).expect("loopback can be bound");
        let port = packets.local_addr().expect("bound").port();
        let Ok(reports) = UdpSocket::bind((client.host, port.wrapping_add(1))) else { continue };
        for socket in [&packets, &reports] {
            socket.set_read_timeout(Some(super::PATIENCE)).expect("a timeout");
        }
        return (packets, reports, port);
    }
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buf = [0; 2_000];
    let len = socket.recv(&mut buf).expect("a datagram");
    buf[..len].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_report_and_at_the_end_a_goodbye_come_from_the_port_that_setup_told() {
    let (_server, mut client) = Server::with_client().await;
    let (media, reports, port) = pair(&client);
    let offer = format!("\r\nTransport: RTP/AVP;unicast;client_port={port}-{}", port + 1);
    let answer = client.ask("SETUP", &offer).await;
    let session = format!("\r\nSession: {}", answer.header("Session"));
    let ports = answer.header("Transport").split("server_port=").nth(1).and_then(|ports| ports.split_once('-'));
    let port = |text: &str| text.split(';').next().and_then(|text| text.parse::<u16>().ok());
    let (rtp, rtcp) = ports.map(|(rtp, rtcp)| (port(rtp), port(rtcp))).expect("two ports");
    assert_eq!(client.ask("PLAY", &format!("{session}\r\nRange: npt=0-2")).await.code, 200);

    let mut buf = [0; 2_000];
    let (len, from) = media.recv_from(&mut buf).expect("a datagram");
    let first = RtpPacket::parse(&buf[..len]).expect("RTP").header();
    assert_eq!(Some(from.port()), rtp);
    let (len, from) = reports.recv_from(&mut buf).expect("a report");
    assert_eq!(Some(from.port()), rtcp);
    let Some(Packet::SenderReport(report)) = packets(&buf[..len]).expect("a compound").next() else {
        panic!("a sender report comes first")
    };
    assert_eq!(report.info.ssrc, first.ssrc);
    assert_eq!(report.info.byte_count, report.info.packet_count * 1_316);
    let passed = report.info.rtp_timestamp.wrapping_sub(first.timestamp);
    assert!((1..90_000 * 60).contains(&passed), "its clock is that of the packets: {passed}");

    let goodbye = loop {
        let data = receive(&reports);
        if let Some(Packet::Bye(_)) = packets(&data).expect("a compound").last() {
            break data;
        }
    };
    assert!(goodbye.ends_with(&first.ssrc.to_be_bytes()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receivers_goodbye_ends_its_stream_and_nobody_elses_does() {
    let (server, mut client) = Server::with_client().await;
    let (media, reports, port) = pair(&client);
    let answer = client.ask("SETUP", &format!("\r\nTransport: RTP/AVP;unicast;client_port={port}")).await;
    let to =
        answer.header("Transport").split("server_port=").nth(1).and_then(|ports| ports.split('-').nth(1)?.parse().ok());
    let to = ("127.0.0.1", to.expect("a port"));
    let session = format!("\r\nSession: {}", answer.header("Session"));
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let ssrc = RtpPacket::parse(&receive(&media)).expect("RTP").header().ssrc;

    let stranger = UdpSocket::bind("127.0.0.2:0").expect("loopback can be bound");
    stranger.send_to(&receiver_report(ssrc, true), to).expect("sent");
    reports.send_to(&receiver_report(ssrc ^ 1, true), to).expect("sent");
    reports.send_to(b"no report", to).expect("sent");
    assert_eq!(client.ask("OPTIONS", &session).await.code, 200);
    assert_eq!(server.pump.totals().open, 1);
    reports.send_to(&receiver_report(ssrc, true), to).expect("sent");
    server.until_silent().await;
}
