//! Sessions whose packets come in the connection itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use server::rtsp::Limits;
use socket2::SockRef;
use tokio::io::AsyncWriteExt as _;
use wire::rtcp::{Packet, packets};
use wire::rtp::RtpPacket;

use server::pump::request::ChangeRequest;

use super::harness::{Client, PATIENCE, Server, receiver_report};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_and_reports_come_between_the_answers() {
    let (server, mut client) = Server::exact_with_client().await;
    let answer = client.ask("SETUP", "\r\nTransport: RTP/AVP/TCP;unicast;interleaved=4-5").await;
    assert!(answer.header("Transport").starts_with("RTP/AVP/TCP;unicast;interleaved=4-5;ssrc="), "{}", answer.text);
    let session = format!("\r\nSession: {}", answer.header("Session"));
    let play = request("PLAY", &client.uri("a%20title.ts"), 99, &session);
    client.stream.write_all(&play).await.expect("taken");

    let (mut received, mut has_report) = (Vec::new(), false);
    let (mut seq, mut is_answered) = (None, false);
    while received.len() < 300_000 || !has_report {
        let Some((channel, data)) = client.item().await else {
            is_answered = true;
            continue;
        };
        assert!(is_answered, "ffmpeg takes no packet before the answer");
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
    assert!(received == server.title[..received.len()], "every byte");

    assert_eq!(client.ask("PAUSE", &session).await.code, 200, "requests are heard meanwhile");
    assert_eq!(client.ask("TEARDOWN", &session).await.code, 200);
    server.until_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_packet_comes_before_the_answer_to_its_play_or_behind_that_to_pause() {
    let (_server, mut client) = Server::with_client().await;
    let sessions = [
        client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await,
        client.setup("RTP/AVP/TCP;unicast;interleaved=2-3").await,
    ];
    let uri = client.uri("a%20title.ts");
    let asked = ["PLAY 0", "PLAY 1", "PAUSE 0", "PLAY 0", "PLAY 1", "PAUSE 1", "PAUSE 0", "PLAY 1", "PLAY 0"];
    let mut plays = [false; 2];
    for (cseq, asked) in asked.into_iter().enumerate() {
        let (method, session) = asked.split_once(' ').expect("two words");
        let session: usize = session.parse().expect("a number");
        // The answers of some are behind those of others.
        let behind = request("OPTIONS", "*", 200, "");
        let requests = [request(method, &uri, 100 + cseq as u32, &sessions[session]), behind].concat();
        client.stream.write_all(&requests).await.expect("taken");
        let (mut answers, mut packets) = (0, [0; 2]);
        while answers < 2 || (0..2).any(|session| plays[session] && packets[session] < 5) {
            let Some((channel, _)) = client.item().await else {
                answers += 1;
                if answers == 1 {
                    plays[session] = method == "PLAY";
                }
                continue;
            };
            // Reports may come at any time.
            if channel % 2 == 0 {
                let session = usize::from(channel / 2);
                assert!(plays[session], "{asked}, {answers}: a packet of {session}");
                packets[session] += 1;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_play_that_is_refused_holds_nothing_back() {
    let (server, mut client) = Server::with_client().await;
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    assert_eq!(client.ask("PLAY", &format!("{session}\r\nRange: npt=1000-")).await.code, 457);
    let id = server.pump.sessions()[0].id;
    let change = ChangeRequest { paused: Some(false), ..ChangeRequest::default() };
    server.pump.change(id, change).await.expect("it plays");
    assert_eq!(client.interleaved().await.0, 0);
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
    let (server, mut client) = Server::exact_with_client().await;
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
    server.until("it is closed", |server| server.rtsp.stats().connections == 0).await;
    assert!(asked.elapsed() >= write_timeout, "it had time");
    assert_eq!(server.rtsp.session_count(), 0);
    server.until_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_too_little_loses_whole_packets_and_no_answer() {
    let server = Server::with_limits(Limits::default()).await;
    let mut client = server.connect_narrow().await;
    let mut plays = Vec::new();
    for cseq in 100..116 {
        let session = client.setup("RTP/AVP/TCP;unicast").await;
        plays.extend(request("PLAY", &client.uri("a%20title.ts"), cseq, &session));
    }
    client.stream.write_all(&plays).await.expect("taken");
    server.until("packets are dropped", |server| server.rtsp.stats().lost > 0).await;
    client.stream.write_all(&request("OPTIONS", "*", 99, "")).await.expect("taken");
    let (mut seqs, mut lost, mut answers) = (HashMap::new(), 0, 0);
    while answers < 17 || lost == 0 {
        let Some((channel, data)) = client.item().await else {
            answers += 1;
            continue;
        };
        let seq = RtpPacket::parse(&data).map(|packet| packet.header().seq);
        if let (Ok(seq), true) = (seq, channel % 2 == 0) {
            let last = seqs.insert(channel, seq);
            lost += last.map_or(0, |last: wire::Seq| last.distance_to(seq) - 1);
        }
    }
    server.until("what came is counted", |server| server.rtsp.stats().carried > 0).await;
    assert_eq!(server.rtsp.stats().connections, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_all_loses_nothing_however_much_is_said_between_the_packets() {
    let (server, mut client) = Server::with_client().await;
    SockRef::from(&client.stream).set_recv_buffer_size(1 << 20).expect("set");
    for _ in 0..3 {
        let session = client.setup("RTP/AVP/TCP;unicast").await;
        assert_eq!(client.ask("PLAY", &session).await.code, 200);
    }
    let (mut seqs, mut packets) = (HashMap::new(), 0);
    for cseq in 100..2_100 {
        client.stream.write_all(&request("OPTIONS", "*", cseq, "")).await.expect("taken");
        while let Some((channel, data)) = client.item().await {
            if channel % 2 == 0 {
                let seq = RtpPacket::parse(&data).expect("RTP").header().seq;
                let last = seqs.insert(channel, seq);
                assert!(last.is_none_or(|last: wire::Seq| last.distance_to(seq) == 1), "behind {packets} packets");
                packets += 1;
            }
        }
    }
    assert_eq!(server.rtsp.stats().lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_the_answer_to_teardown_no_packet_of_the_session_comes_and_others_go_on() {
    let (server, mut client) = Server::with_client().await;
    let first = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    let second = client.setup("RTP/AVP/TCP;unicast;interleaved=2-3").await;
    for session in [&first, &second] {
        assert_eq!(client.ask("PLAY", session).await.code, 200);
    }
    while client.interleaved().await.0 != 0 {}
    assert_eq!(client.ask("TEARDOWN", &first).await.code, 200);
    for _ in 0..50 {
        let (channel, _) = client.interleaved().await;
        assert!(matches!(channel, 2 | 3), "{channel}");
    }
    assert_eq!(server.pump.totals().open, 1);
    assert_eq!(client.ask("PLAY", &first).await.code, 454);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_together_are_answered_in_their_order() {
    let (_server, mut client) = Server::with_client().await;
    let uri = client.uri("a%20title.ts");
    let transport = "\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let together =
        [request("OPTIONS", "*", 1, ""), request("DESCRIBE", &uri, 2, ""), request("SETUP", &uri, 3, transport)];
    client.stream.write_all(&together.concat()).await.expect("taken");
    let mut session = String::new();
    for cseq in 1..=3 {
        let answer = client.answer().await;
        assert_eq!((answer.code, answer.header("CSeq")), (200, &*cseq.to_string()));
        session = answer.text.lines().find_map(|line| line.strip_prefix("Session: ")).unwrap_or_default().to_owned();
    }
    let session = format!("\r\nSession: {session}");
    let methods = ["PLAY", "GET_PARAMETER", "PAUSE", "PLAY", "OPTIONS", "TEARDOWN"];
    let together: Vec<u8> =
        methods.iter().zip(4..).flat_map(|(method, cseq)| request(method, &uri, cseq, &session)).collect();
    // Also in the middle of a line.
    let (one, two) = together.split_at(200);
    client.stream.write_all(one).await.expect("taken");
    for (_, cseq) in methods.iter().zip(4..) {
        let answer = client.answer().await;
        assert_eq!((answer.code, answer.header("CSeq")), (200, &*cseq.to_string()));
        if cseq == 4 {
            client.interleaved().await;
            client.stream.write_all(two).await.expect("taken");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_cut_while_it_plays_leaves_nothing_behind() {
    let server = Server::with_limits(Limits::default()).await;
    for is_reset in [false, true] {
        let mut client = server.connect().await;
        let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
        assert_eq!(client.ask("PLAY", &session).await.code, 200);
        client.interleaved().await;
        // The packet may be here before its worker has published what it counts.
        server.until("the link is counted", |server| server.links() == 1).await;
        assert_eq!(server.rtsp.stats().connections, 1);
        if is_reset {
            SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).expect("set");
        }
        drop(client);
        server.until_silent().await;
        server.until("the link is gone", |server| server.links() == 0).await;
        server.until("the connection is gone", |server| server.rtsp.stats().connections == 0).await;
        assert_eq!(server.rtsp.session_count(), 0);
        assert_eq!(server.pump.totals().bandwidth.bps(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_plays_anew_behind_its_goodbye_ends_with_its_connection() {
    let (server, mut client) = Server::with_client().await;
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let (_, data) = client.interleaved().await;
    report(&mut client, RtpPacket::parse(&data).expect("RTP").header().ssrc, true).await;
    server.until_silent().await;
    for seconds in [1, 2] {
        server.rtsp.handle_timeout(Instant::now() + Duration::from_secs(seconds)).await;
    }
    client.setup("RTP/AVP/TCP;unicast;interleaved=2-3").await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    assert_eq!(server.pump.totals().open, 2);
    drop(client);
    server.until_silent().await;
    assert_eq!(server.rtsp.session_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_has_played_to_its_end_leaves_its_channels_to_the_next() {
    let (server, mut client) = Server::with_client().await;
    let setup = "\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1";
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    assert!(!client.ask("SETUP", setup).await.header("Transport").contains("interleaved=0-1"), "they are taken");
    assert_eq!(client.ask("PLAY", &format!("{session}\r\nRange: npt=0-0.3")).await.code, 200);
    server.until("it has ended", |server| server.pump.totals().open == 1).await;
    for seconds in [1, 2] {
        server.rtsp.handle_timeout(Instant::now() + Duration::from_secs(seconds)).await;
    }
    let next = client.ask("SETUP", setup).await;
    assert!(next.header("Transport").contains("interleaved=0-1"), "{}", next.text);
    assert_eq!((server.rtsp.session_count(), client.ask("PLAY", &session).await.code), (2, 454));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_clients_requests_that_read_titles_are_so_many_at_a_time() {
    let limits = Limits { lookups_per_client: 0, ..Limits::default() };
    let server = Server::with_limits(limits).await;
    let mut client = server.connect().await;
    for method in ["DESCRIBE", "SETUP"] {
        assert_eq!(client.ask(method, "\r\nTransport: RTP/AVP;unicast;client_port=5000").await.code, 503);
    }
    assert_eq!(client.ask("OPTIONS", "").await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_plays_lives_as_long_as_its_client_takes_it() {
    let (server, mut client) = Server::with_client().await;
    let session = client.setup("RTP/AVP/TCP;unicast;interleaved=0-1").await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let later = Instant::now() + Limits::default().session_timeout + PATIENCE;
    server.rtsp.handle_timeout(later).await;
    assert_eq!(server.rtsp.session_count(), 1, "though nothing was heard of it");
    assert_eq!(client.ask("PAUSE", &session).await.code, 200);
    server.rtsp.handle_timeout(later + 2 * Limits::default().session_timeout).await;
    assert_eq!(server.rtsp.session_count(), 0);
    server.until_silent().await;
}

fn request(method: &str, uri: &str, cseq: u32, headers: &str) -> Vec<u8> {
    format!("{method} {uri} RTSP/1.0\r\nCSeq: {cseq}{headers}\r\n\r\n").into_bytes()
}

/// Sends a receiver report, and waits until it was heard.
async fn report(client: &mut Client, ssrc: u32, is_leaving: bool) {
    let compound = receiver_report(ssrc, is_leaving);
    let frame = [&[b'$', 1, 0, compound.len() as u8][..], &compound].concat();
    client.stream.write_all(&frame).await.expect("taken");
    assert_eq!(client.ask_for("OPTIONS", "*", "").await.code, 200);
}
