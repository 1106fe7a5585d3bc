//! Live inputs as titles.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use server::config::LiveInput;
use wire::rtp::RtpPacket;
use wire::ts::DATAGRAM_LEN;

use super::harness::{PATIENCE, Server, receive};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_input_is_played_from_the_present_on() {
    let server = Server::start("127.0.0.0/8", 100_000).await;
    let input = LiveInput::new("news", "udp://127.0.0.1:0").expect("an input");
    server.pump.start_live(&[input]).expect("it can be received");
    let mut client = server.connect().await;
    let uri = client.uri("live/news");
    let described = client.ask_for("DESCRIBE", &uri, "").await;
    assert!(described.text.contains("a=range:npt=now-\r\n"), "{}", described.text);
    let (socket, port) = client.receiver();
    let setup = format!("\r\nTransport: RTP/AVP;unicast;client_port={port}");
    assert_eq!(client.ask_for("SETUP", &uri, &setup).await.code, 503, "nothing comes yet");

    let is_over = Arc::new(AtomicBool::new(false));
    let (to, title, stop) = (server.pump.live_inputs()[0].local, server.title.clone(), is_over.clone());
    let sender = std::thread::spawn(move || {
        let (from, start) = (UdpSocket::bind("127.0.0.1:0").expect("bound"), Instant::now());
        // 2 Mbit/s.
        for (index, part) in title.chunks(DATAGRAM_LEN).enumerate() {
            std::thread::sleep(
                (start + Duration::from_micros(index as u64 * 5_264)).saturating_duration_since(Instant::now()),
            );
            if stop.load(Ordering::Relaxed) {
                return;
            }
            from.send_to(part, to).expect("sent");
        }
    });
    let start = Instant::now();
    let answer = loop {
        let answer = client.ask_for("SETUP", &uri, &setup).await;
        if answer.code == 200 {
            break answer;
        }
        assert!(answer.code == 503 && start.elapsed() < PATIENCE, "{}", answer.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let (session, _) = answer.header("Session").split_once(';').expect("an id");
    let session = format!("\r\nSession: {session}");
    for _ in 0..2 {
        let played = client.ask_for("PLAY", &uri, &format!("{session}\r\nRange: npt=0.000-\r\nScale: 1")).await;
        assert_eq!((played.code, played.header("Range")), (200, "npt=now-"), "{}", played.text);
        assert!(RtpPacket::parse(&receive(&socket)).is_ok());
        assert_eq!(client.ask_for("PAUSE", &uri, &session).await.code, 200);
    }
    assert_eq!(client.ask_for("TEARDOWN", &uri, &session).await.code, 200);
    server.until_silent().await;
    is_over.store(true, Ordering::Relaxed);
    sender.join().expect("it has sent");
}
