//! Sessions whose packets come in the connection itself.

use std::time::{Duration, Instant};

use server::rtsp::Limits;
use tokio::io::AsyncWriteExt as _;
use wire::rtcp::{Packet, packets};
use wire::rtp::RtpPacket;

use super::harness::{Client, PATIENCE, Server, receiver_report};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_and_reports_come_between_the_answers() {
    let (server, mut client) = Server::with_client().await;
    let answer = client.ask("SETUP", "\r\nTransport: RTP/AVP/TCP;unicast;interleaved=4-5").await;
    assert!(answer.header("Transport").starts_with("RTP/AVP/TCP;unicast;interleaved=4-5;ssrc="), "{}", answer.text);
    let session = format!("\r\nSession: {}", answer.header("Session"));
    assert_eq!(client.ask("PLAY", &session).await.code, 200);

    let (mut received, mut has_report) = (Vec::new(), false);
    let mut seq = None;
    while received.len() < 300_000 || !has_report {
        let (channel, data) = client.interleaved().await;
        if channel == 5 {
            let mut kinds = packets(&data).expect("a compound");
            has_report |= matches!(kinds.next(), Some(Packet::SenderReport(_)));
            continue;
        }
        let packet = RtpPacket::parse(&data).expect("RTP");
        assert_eq!(channel, 4);
        assert!(seq.is_none_or(|seq: wire::Seq| seq.distance_to(packet.header().seq) == 1), "none is lost");
        seq = Some(packet.header().seq);
        received.extend_from_slice(packet.payload());
    }
    assert_eq!(received, server.title[..received.len()]);

    assert_eq!(client.ask("PAUSE", &session).await.code, 200, "requests are heard meanwhile");
    assert_eq!(client.ask("TEARDOWN", &session).await.code, 200);
    server.until_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaved_sessions_end_with_their_connection_and_belong_to_it() {
    let (server, mut client) = Server::with_client().await;
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    let second = client.ask("SETUP", "\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1").await;
    assert!(second.header("Transport").contains("interleaved=2-3"), "taken channels are not given again");
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    client.interleaved().await;

    let mut other = server.connect().await;
    assert_eq!(other.ask("PAUSE", &session).await.code, 454);
    drop(client);
    server.until_silent().await;
    assert_eq!(server.rtsp.session_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goodbye_follows_the_last_packet_of_the_title() {
    let (server, mut client) = Server::with_client().await;
    let described = client.ask("DESCRIBE", "").await;
    let end = described.text.split("a=range:npt=0-").nth(1).and_then(|rest| rest.lines().next()).expect("a length");
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    let played = client.ask("PLAY", &format!("{session}\r\nRange: npt=19-{end}")).await;
    assert_eq!(played.code, 200, "{}", played.text);
    let mut last = Vec::new();
    loop {
        let (channel, data) = client.interleaved().await;
        if channel == 1 && packets(&data).expect("a compound").any(|packet| matches!(packet, Packet::Bye(_))) {
            break;
        }
        if channel == 0 {
            last = data;
        }
    }
    let is_null = |packet: &&[u8; 188]| packet[1] & 0x1f == 0x1f && packet[2] == 0xff;
    let packet = RtpPacket::parse(&last).expect("RTP");
    let sent = packet.payload().as_chunks().0.iter().rfind(|packet| !is_null(packet)).expect("a packet");
    let of_title = server.title.as_chunks().0.iter().rfind(|packet| !is_null(packet)).expect("a packet");
    assert_eq!((&sent[1..3], &sent[20..]), (&of_title[1..3], &of_title[20..]), "the title's last packet has come");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receiver_reports_keep_a_session_and_goodbyes_end_it() {
    let (server, mut client) = Server::with_client().await;
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let (_, data) = client.interleaved().await;
    let ssrc = RtpPacket::parse(&data).expect("RTP").header().ssrc;
    assert_eq!(client.ask("PAUSE", &session).await.code, 200);

    let asked = Instant::now();
    tokio::time::sleep(Duration::from_millis(20)).await;
    report(&mut client, ssrc, false).await;
    server.rtsp.handle_timeout(asked + Limits::default().session_timeout).await;
    assert_eq!(server.rtsp.session_count(), 1, "it was heard of after the last request");

    report(&mut client, ssrc ^ 1, true).await;
    assert_eq!(server.pump.totals().open, 1, "another stream's goodbye is nothing to it");
    report(&mut client, ssrc, true).await;
    server.until_silent().await;
    assert_eq!(client.ask("TEARDOWN", &session).await.code, 200, "there is still an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_nothing_for_a_while_is_closed_and_its_session_ends() {
    let write_timeout = Duration::from_millis(300);
    let server = Server::with_limits(Limits { write_timeout, ..Limits::default() }).await;
    let mut client = server.connect().await;
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let asked = Instant::now();
    while server.rtsp.stats().connections > 0 {
        assert!(asked.elapsed() < PATIENCE, "it is still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(asked.elapsed() >= write_timeout, "it had time");
    assert_eq!(server.rtsp.session_count(), 0);
    server.until_silent().await;
}

/// Sends a receiver report, and waits until it was heard.
async fn report(client: &mut Client, ssrc: u32, is_leaving: bool) {
    let compound = receiver_report(ssrc, is_leaving);
    let frame = [&[b'$', 1, 0, compound.len() as u8][..], &compound].concat();
    client.stream.write_all(&frame).await.expect("taken");
    assert_eq!(client.ask_for("OPTIONS", "*", "").await.code, 200);
}
