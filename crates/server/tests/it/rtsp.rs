//! RTSP as clients meet it: real connections, a real worker, packets on loopback.

mod harness;
mod interleaved;
mod live;
mod metrics;
mod reports;

use std::time::{Duration, Instant};

use harness::{Client, PATIENCE, Server, receive};
use pump::sample::Sample;
use server::rtsp::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::Bitrate;
use wire::rtp::RtpPacket;
use wire::ts::PACKET_LEN;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_player_describes_plays_pauses_seeks_and_ends() {
    let (server, mut client) = Server::with_client().await;
    assert!(client.ask_for("OPTIONS", "*", "").await.header("Public").contains("PLAY"));
    let described = client.ask("DESCRIBE", "\r\nAccept: application/sdp").await;
    assert!(described.text.contains("m=video 0 RTP/AVP 33\r\n"), "{}", described.text);
    assert!(described.text.contains("a=range:npt=0-20.") || described.text.contains("a=range:npt=0-19."));
    assert!(described.header("Content-Base").ends_with("/a%20title.ts/"));

    let (socket, port) = client.receiver();
    let session = client.setup(&format!("RTP/AVP;unicast;client_port={port}-{}", port ^ 1)).await;
    let totals = server.pump.totals();
    assert_eq!((totals.open, totals.paused), (1, 1), "there is room for it, and nothing is sent before PLAY");
    let played = client.ask("PLAY", &format!("{session}\r\nRange: npt=0.000-")).await;
    assert_eq!(played.code, 200, "{}", played.text);
    assert!(played.header("Range").starts_with("npt=0.000-"), "{}", played.text);
    let datagram = receive(&socket);
    let packet = RtpPacket::parse(&datagram).expect("RTP");
    assert_eq!((packet.header().payload_type, packet.payload().len()), (33, 7 * PACKET_LEN));

    assert_eq!(client.ask("PAUSE", &session).await.code, 200);
    assert_eq!(server.pump.totals().paused, 1);
    let resumed = client.ask("PLAY", &session).await;
    assert!(start_of(resumed.header("Range")) < 19.0 && server.pump.totals().paused == 0, "{}", resumed.text);
    let sought = client.ask("PLAY", &format!("{session}\r\nRange: npt=12-")).await;
    let start = start_of(sought.header("Range"));
    assert!((11.0..=12.0).contains(&start), "it begins with the picture before that: {start}");
    let part = client.ask("PLAY", &format!("{session}\r\nRange: npt=3-19")).await;
    assert!(part.header("Range").ends_with("-19.000"), "{}", part.text);
    let names = "position\r\nscale\r\nactivity\r\ntrouble";
    let asked = client.ask("GET_PARAMETER", &format!("{session}\r\nContent-Length: 34\r\n\r\n{names}")).await;
    assert_eq!(asked.code, 200, "{}", asked.text);
    assert!(asked.text.contains("\r\nactivity: playing\r\ntrouble: \r\n"), "{}", asked.text);
    assert!(asked.text.contains("\r\nposition: ") && asked.text.contains("\r\nscale: 1.000\r\n"), "{}", asked.text);
    assert_eq!(server.pump.totals().open, 1, "it goes on with one pump session");

    assert_eq!(client.ask("TEARDOWN", &session).await.code, 200);
    server.until_silent().await;
    assert_eq!(client.ask("PLAY", &session).await.code, 454);
}

/// Seconds at which a range begins.
fn start_of(range: &str) -> f64 {
    let start = range.strip_prefix("npt=").and_then(|range| range.split('-').next());
    start.and_then(|start| start.parse().ok()).expect("a time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rtp_info_names_the_packet_with_which_it_goes_on() {
    let (_server, mut client) = Server::with_client().await;
    let (socket, port) = client.receiver();
    let answer = client.ask("SETUP", &format!("\r\nTransport: RTP/AVP;unicast;client_port={port}")).await;
    let transport = answer.header("Transport").to_owned();
    let ssrc = transport.split(";ssrc=").nth(1).and_then(|ssrc| u32::from_str_radix(ssrc.get(..8)?, 16).ok());
    let session = format!("\r\nSession: {}", answer.header("Session"));

    for (range, is_first) in [("npt=0-", true), ("npt=12-", false), ("npt=4-", false)] {
        let played = client.ask("PLAY", &format!("{session}\r\nRange: {range}")).await;
        let info = played.header("RTP-Info").to_owned();
        let value = |key: &str| info.split(key).nth(1).and_then(|rest| rest.split(';').next()?.parse::<u32>().ok());
        assert!(info.starts_with("url=rtsp://") && info.contains("/a%20title.ts;"), "{info}");
        let datagram = loop {
            let datagram = receive(&socket);
            let header = RtpPacket::parse(&datagram).expect("RTP").header();
            if Some(u32::from(header.seq.0)) == value("seq=") {
                break header;
            }
            assert!(!is_first, "the first packet is the first one");
        };
        assert_eq!((Some(datagram.timestamp), Some(datagram.ssrc)), (value("rtptime="), ssrc), "{info}");
        assert!(datagram.marker, "it does not continue what was before");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_at_another_speed_are_had_by_scale() {
    let (_server, mut client) = Server::with_client().await;
    let (socket, session) = client.setup_datagrams("RTP/AVP").await;
    for (asked, expected) in [("4", "4.000"), ("-2.0", "-2.000"), ("1", "1.000")] {
        let played = client.ask("PLAY", &format!("{session}\r\nRange: npt=10-\r\nScale: {asked}")).await;
        assert_eq!((played.code, played.header("Scale")), (200, expected), "{}", played.text);
        receive(&socket);
    }
    client.ask("PLAY", &format!("{session}\r\nScale: 8")).await;
    let normal = client.ask("PLAY", &session).await;
    assert!(!normal.text.contains("Scale"), "who does not ask is not told");
    let asked = client.ask("GET_PARAMETER", &format!("{session}\r\nContent-Length: 5\r\n\r\nscale")).await;
    assert!(asked.text.contains("scale: 1.000"), "without Scale it is normal again: {}", asked.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_box_gets_the_stream_right_in_udp() {
    let (server, mut client) = Server::with_client().await;
    let (socket, session) = client.setup_datagrams("MP2T/H2221/UDP").await;
    let played = client.ask("PLAY", &session).await;
    assert!(played.code == 200 && !played.text.contains("RTP-Info"), "{}", played.text);
    let datagram = receive(&socket);
    assert_eq!((datagram[0], datagram.len()), (0x47, 7 * PACKET_LEN));

    // Another connection may go on with it, this one may end.
    drop(client);
    let mut client = server.connect().await;
    assert_eq!(client.ask("GET_PARAMETER", &session).await.code, 200);
    assert_eq!(client.ask("TEARDOWN", &session).await.code, 200);
    server.until_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_requests_ends() {
    let (server, mut client) = Server::with_client().await;
    let (_socket, session) = client.setup_datagrams("RTP/AVP").await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let (now, timeout) = (Instant::now(), Limits::default().session_timeout);
    server.rtsp.handle_timeout(now + timeout / 2).await;
    assert_eq!(client.ask("OPTIONS", &session).await.code, 200, "it is still there");
    server.rtsp.handle_timeout(now + timeout + PATIENCE).await;
    assert_eq!(client.ask("OPTIONS", &session).await.code, 454);
    server.until_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_title_that_was_played_can_be_played_again() {
    let (server, mut client) = Server::with_client().await;
    let (socket, session) = client.setup_datagrams("RTP/AVP").await;
    assert_eq!(client.ask("PLAY", &format!("{session}\r\nRange: npt=0-0.4")).await.code, 200);
    server.until_silent().await;
    socket.take_what_is_there();

    let again = client.ask("PLAY", &format!("{session}\r\nRange: npt=2-")).await;
    assert_eq!(again.code, 200, "{}", again.text);
    assert!(RtpPacket::parse(&receive(&socket)).is_ok());
    assert!(start_of(again.header("Range")) > 0.5 && again.text.contains("RTP-Info"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_while_their_session_ends_leave_nothing_behind() {
    let (server, mut client) = Server::with_client().await;
    // Two minutes: a stream that is nobody's does not end while this waits for it.
    server.put("a title.ts", &Sample { rate: Bitrate::from_kbps(200), pictures: 3_000, ..Sample::default() }.make());
    let mut others = Vec::new();
    for _ in 0..6 {
        others.push(server.connect().await);
    }
    for _ in 0..10 {
        let (_socket, session) = client.setup_datagrams("RTP/AVP").await;
        assert_eq!(client.ask("PLAY", &format!("{session}\r\nRange: npt=0-0.1")).await.code, 200);
        // From here on each PLAY needs a stream of its own.
        server.until_silent().await;
        let uri = client.uri("a%20title.ts");
        let play = format!("PLAY {uri} RTSP/1.0\r\nCSeq: 1{session}\r\n\r\n");
        for other in &mut others {
            other.stream.write_all(play.repeat(2).as_bytes()).await.expect("taken");
        }
        assert_eq!(client.ask("TEARDOWN", &session).await.code, 200);
        for other in &mut others {
            for _ in 0..2 {
                let answer = other.answer().await;
                assert!(matches!(answer.code, 200 | 454 | 455), "{}", answer.text);
            }
        }
        server.until_silent().await;
        assert_eq!(server.rtsp.session_count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_by_its_status_and_in_the_words_of_the_api() {
    let (server, mut client) = Server::with_client().await;
    let (_socket, port) = client.receiver();
    for (code, method, headers) in [
        (406, "DESCRIBE", "\r\nAccept: text/html".to_owned()),
        (400, "SETUP", String::new()),
        (461, "SETUP", "\r\nTransport: RTP/SAVP;unicast;client_port=5000-5001".to_owned()),
        (461, "SETUP", format!("\r\nTransport: RTP/AVP;unicast;client_port={port};destination=127.0.0.2")),
        (461, "SETUP", format!("\r\nTransport: RTP/AVP;multicast;client_port={port}")),
        (454, "PLAY", String::new()),
        (454, "PLAY", "\r\nSession: 0123".to_owned()),
        (451, "SET_PARAMETER", "\r\nContent-Length: 4\r\n\r\na: b".to_owned()),
        (551, "PLAY", "\r\nRequire: sit-down".to_owned()),
        (501, "RECORD", String::new()),
        (501, "ANNOUNCE", String::new()),
    ] {
        assert_eq!(client.ask(method, &headers).await.code, code, "{method}{headers}");
    }
    for uri in ["rtsp://h/none.ts", "rtsp://h/../a%20title.ts", "rtsp://h/http://127.0.0.1/a.ts"] {
        assert_eq!(client.ask_for("DESCRIBE", uri, "").await.code, 404, "{uri}");
    }
    server.put("noise.ts", &[7; 5_000]);
    server.put("empty.ts", &[]);
    let null: Vec<u8> = [0x47, 0x1f, 0xff, 0x10].into_iter().chain([0xff; 184]).collect();
    server.put("nulls.ts", &null.repeat(1_000));
    let long = "a".repeat(256);
    for (code, name, words) in [
        (415, "noise.ts", "no transport stream"),
        (415, "empty.ts", "no transport stream"),
        (415, "nulls.ts", "no clock"),
        (404, &*long, "255 bytes"),
        (404, "none.ts", "there is no title \"none.ts\""),
    ] {
        let refused = client.ask_for("DESCRIBE", &format!("rtsp://h/{name}"), "").await;
        assert!(refused.code == code && refused.text.contains(words), "{name}: {}", refused.text);
    }
    assert!(client.ask_for("DESCRIBE", "*", "").await.header("Allow").starts_with("OPTIONS"));
    let session = client.setup(&format!("RTP/AVP;unicast;client_port={port}")).await;
    for (code, method, headers, words) in [
        (455, "SETUP", "\r\nTransport: RTP/AVP;unicast;client_port=5", ""),
        (457, "PLAY", "\r\nRange: smpte=0:0:1-", "npt="),
        (457, "PLAY", "\r\nRange: npt=9-3", "ends before it begins"),
        (457, "PLAY", "\r\nRange: npt=500-", "nothing lies between start and end"),
        (400, "PLAY", "\r\nScale: fast", "a Scale is a number"),
        (451, "GET_PARAMETER", "\r\nContent-Length: 5\r\n\r\ncolor", ""),
    ] {
        let refused = client.ask(method, &format!("{session}{headers}")).await;
        assert!(refused.code == code && refused.text.contains(words), "{method}{headers}: {}", refused.text);
    }
    for (code, method) in [(459, "SETUP"), (404, "PLAY"), (404, "PAUSE"), (404, "TEARDOWN")] {
        assert_eq!(client.ask_for(method, "rtsp://h/other.ts", &session).await.code, code, "{method}");
    }
    for (code, request, words) in [(400, "PLAY * RTSP/1.0", "CSeq"), (505, "PLAY * RTSP/2.0", "other than 1.0")] {
        let refused = client.send(&format!("{request}\r\n\r\n")).await;
        assert!(refused.code == code && refused.text.contains(words), "{request}: {}", refused.text);
    }
    let mut byte = [0];
    assert_eq!(client.stream.read(&mut byte).await.expect("an end"), 0, "what follows cannot be told apart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_beyond_the_bandwidth_or_the_clients_share_are_refused() {
    let server = Server::start("127.0.0.0/8", 5_000).await;
    let mut client = server.connect().await;
    let setup = "\r\nTransport: RTP/AVP;unicast;client_port=5000";
    let sessions = [
        client.setup("RTP/AVP;unicast;client_port=5000").await,
        client.setup("RTP/AVP;unicast;client_port=5002").await,
    ];
    assert_eq!(client.ask("SETUP", setup).await.code, 453);
    for session in &sessions {
        assert_eq!(client.ask("TEARDOWN", session).await.code, 200);
    }
    server.until_silent().await;
    assert_eq!(client.ask("SETUP", setup).await.code, 200, "there is room again");

    let (_server, mut client) = Server::with_client().await;
    for _ in 0..harness::CLIENT_MAX {
        assert_eq!(client.ask("SETUP", setup).await.code, 200);
    }
    let refused = client.ask("SETUP", setup).await;
    assert_eq!((refused.code, refused.header("Retry-After")), (503, "5"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_session_makes_room_for_a_newcomer_and_who_has_one_does_not() {
    let server = Server::with_limits(Limits { connections_max: 3, ..Limits::default() }).await;
    let mut player = server.connect().await;
    player.setup("RTP/AVP;unicast;client_port=5000").await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    // To speak of a session is not to have one.
    assert_eq!(first.ask("OPTIONS", "\r\nSession: 1\r\nRequire: x").await.code, 551);
    assert_eq!(second.ask("OPTIONS", "").await.code, 200);

    let mut newcomer = server.connect().await;
    assert_eq!(newcomer.ask("OPTIONS", "").await.code, 200);
    let end = tokio::time::timeout(PATIENCE, first.stream.read(&mut [0])).await.expect("it is closed");
    assert!(matches!(end, Ok(0) | Err(_)));
    for client in [&mut player, &mut second] {
        assert_eq!(client.ask("OPTIONS", "").await.code, 200);
    }
    assert_eq!(server.rtsp.stats().made_room, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_session_any_more_makes_room_though_newcomers_wait_already() {
    let server = Server::with_limits(Limits { connections_max: 2, ..Limits::default() }).await;
    let (mut former, mut player) = (server.connect().await, server.connect().await);
    let first = former.setup("RTP/AVP;unicast;client_port=5000").await;
    let second = former.setup("RTP/AVP;unicast;client_port=5002").await;
    player.setup("RTP/AVP;unicast;client_port=5004").await;
    assert_eq!(former.ask("TEARDOWN", &first).await.code, 200);

    let mut newcomer = server.connect().await;
    let mut comes = std::pin::pin!(newcomer.ask("OPTIONS", ""));
    let waits = tokio::time::timeout(Duration::from_millis(100), comes.as_mut()).await;
    assert!(waits.is_err(), "both have sessions");
    assert_eq!(former.ask("TEARDOWN", &second).await.code, 200);
    assert_eq!(comes.await.code, 200);
    let end = tokio::time::timeout(PATIENCE, former.stream.read(&mut [0])).await.expect("it is closed");
    assert!(matches!(end, Ok(0) | Err(_)));
    assert_eq!(player.ask("OPTIONS", "").await.code, 200);
    assert_eq!(server.rtsp.stats().made_room, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_outside_of_the_allowed_networks_are_sent_nothing() {
    let server = Server::start("192.0.2.0/24", 100_000).await;
    let mut client = server.connect().await;
    for transport in ["RTP/AVP;unicast;client_port=5000-5001", "RTP/AVP/TCP;unicast;interleaved=0-1"] {
        assert_eq!(client.ask("SETUP", &format!("\r\nTransport: {transport}")).await.code, 403);
    }
    assert_eq!((server.pump.totals().open, server.rtsp.session_count()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_bytes_are_answered_or_end_the_connection_and_nothing_else() {
    let server = Server::start("127.0.0.0/8", 100_000).await;
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize % below
    };
    let request = "SETUP rtsp://h/a%20title.ts RTSP/1.0\r\nCSeq: 1\r\nSession: 7;x\r\nRange: npt=1-2\r\nScale: -1\r\n\
        Transport: RTP/AVP/TCP;interleaved=0-1,RTP/AVP;client_port=9-10\r\nContent-Length: 3\r\n\r\nabc$\x01\x00\x02..";
    for _ in 0..300 {
        let mut bytes = request.as_bytes().repeat(1 + random(3));
        for _ in 0..random(12) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => drop(bytes.drain(at..bytes.len().min(at + random(9)))),
                _ => bytes.insert(at, b"$\r\n;=-,:%"[random(9)]),
            }
        }
        let mut client = server.connect().await;
        // It may close before it has read all.
        client.stream.write_all(&bytes).await.ok();
        client.stream.shutdown().await.ok();
        let mut rest = Vec::new();
        let read = client.stream.read_to_end(&mut rest);
        tokio::time::timeout(PATIENCE, read).await.expect("it is closed").ok();
    }
    let mut client: Client = server.connect().await;
    assert_eq!(client.ask("OPTIONS", "").await.code, 200);
    server.rtsp.handle_timeout(Instant::now() + Limits::default().session_timeout + Duration::from_secs(1)).await;
    assert_eq!(server.rtsp.session_count(), 0);
}
