//! Offers that never connect, by the thousand and from everywhere, keep nobody out.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use webrtc::{Context, Direction, OfferOptions, Peer};
use wire::codec::Codec;

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

/// As many as all handshakes of two workers.
const OFFERS: usize = 8_000;
/// Networks that they come from, as a proxy tells.
const NETWORKS: usize = 1_000;
/// Connections that they come by.
const FLOODS: usize = 4;
/// Those who mean it.
const VIEWERS: usize = 4;

#[test]
fn eight_thousand_offers_that_never_connect_keep_no_viewer_out_and_are_none() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let (offer, sent) = (offer(), AtomicUsize::new(0));
    let mut viewers: Vec<Viewer> = Vec::new();

    thread::scope(|scope| {
        for _ in 0..FLOODS {
            scope.spawn(|| flood(&server, &offer, &sent));
        }
        for joined in 1..=VIEWERS {
            until_sent(&sent, joined * OFFERS / (VIEWERS + 1), || {
                publisher.pump();
                viewers.iter_mut().for_each(Viewer::pump);
            });
            assert!(server.metric("millrace_handshake_handshakes") > 0.0, "they wait");
            viewers.push(Viewer::join(&server, "news", Way::Udp4));
            wait_until("it is counted", || {
                let counted = viewers_of(&server, "news");
                assert!(counted <= joined, "{counted} of {joined}");
                counted == joined
            });
        }
        until_sent(&sent, OFFERS, || {
            publisher.pump();
            viewers.iter_mut().for_each(Viewer::pump);
        });
    });

    assert_eq!(viewers_of(&server, "news"), VIEWERS);
    let mut viewers: Vec<&mut Viewer> = viewers.iter_mut().collect();
    publisher.play(&mut viewers, 100);
    publisher.finish(&mut viewers);
    viewers.iter().for_each(|viewer| viewer.assert_whole(0, &publisher));
}

/// Waits until so many offers were sent, while `step` keeps everybody going. All of them may take a busy machine long, a few
/// do not.
fn until_sent(sent: &AtomicUsize, count: usize, mut step: impl FnMut()) {
    let mut next = sent.load(Ordering::Relaxed);
    while next < count {
        next = count.min(next + 50);
        wait_until("a few offers more were sent", || {
            step();
            sent.load(Ordering::Relaxed) >= next
        });
    }
}

/// What a viewer offers.
fn offer() -> String {
    let video = &[Codec::Vp8];
    let options =
        OfferOptions { direction: Direction::Receive, audio: false, video, rids: &[], stream: "", tcp: false };
    Peer::offer(&Context::new().expect("a certificate"), Instant::now(), &options).expect("an offer").1
}

/// Sends offers until there were enough of all, each from another network than the one before.
fn flood(server: &Server, offer: &str, sent: &AtomicUsize) {
    let mut connection = TcpStream::connect(&server.addr).expect("it listens");
    let len = offer.len();
    loop {
        let index = sent.fetch_add(1, Ordering::Relaxed);
        if index >= OFFERS {
            return;
        }
        let [_, _, high, low] = ((index % NETWORKS) as u32).to_be_bytes();
        let head = format!(
            "POST /whep/news HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 198.18.{high}.{low}\r\n\
             Content-Type: application/sdp\r\nContent-Length: {len}\r\n\r\n"
        );
        connection.write_all([head.as_bytes(), offer.as_bytes()].concat().as_slice()).expect("sent");
        let status = answer(&mut connection);
        assert_eq!(status, 201, "number {index}");
    }
}

/// Reads an answer, whole, and returns its status.
fn answer(connection: &mut TcpStream) -> u16 {
    let (mut answer, mut buf) = (Vec::new(), [0; 8_192]);
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut headers = head.lines().filter_map(|line| line.split_once(": "));
            let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            if length.is_some_and(|(_, length)| length.parse() == Ok(body.len())) {
                return head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
            }
        }
        let len = connection.read(&mut buf).expect("an answer");
        assert!(len > 0, "an answer");
        answer.extend_from_slice(&buf[..len]);
    }
}

/// How many watch a stream, as the API tells it.
fn viewers_of(server: &Server, stream: &str) -> usize {
    let list: serde_json::Value = serde_json::from_str(&server.ask("GET", "/api/streams", &[], "").body).expect("JSON");
    let found = list.as_array().expect("a list").iter().find(|entry| entry["name"] == stream).expect("it is there");
    found["viewers"].as_u64().expect("a number") as usize
}
