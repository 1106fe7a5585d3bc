//! Keys come out equal on both sides, over bad networks too, and nothing but STUN and DTLS ever leaves a peer.

use std::time::{Duration, Instant};

use crate::common::{PUBLISH, Pair, TO_RECEIVE, TO_SEND, WATCH, addr, udp};
use srtp::Profile;
use str0m::media::{Direction as Flow, MediaKind};
use str0m::net::{Protocol, Receive};
use webrtc::{AnswerOptions, Context, EndReason, OfferOptions, Output, Peer, Received, Refused, Remote};

#[test]
fn both_sides_get_the_same_keys_and_the_server_is_the_dtls_server() {
    for (offer, purpose) in [(&WATCH, TO_SEND), (&PUBLISH, TO_RECEIVE)] {
        let pair = Pair::connected(offer, purpose);
        let (server, server_sees) = pair.server.connected.unwrap();
        let (mut client, client_sees) = pair.client.connected.unwrap();
        assert_eq!(server.profile(), Profile::AeadAes128Gcm);
        assert_eq!((server.is_client, client.is_client), (false, true));
        client.is_client = false;
        assert_eq!(server, client, "all but their sides");
        assert_eq!((server_sees, client_sees), (pair.client.remote, pair.server.remote));
    }
}

#[test]
fn no_media_datagram_leaves_a_session_within_ten_seconds() {
    let mut pair = Pair::connected(&PUBLISH, TO_RECEIVE);
    pair.run_until(Duration::from_secs(10), |_| false);
    let sent = pair.server.sent.iter().chain(&pair.client.sent);
    assert_eq!(sent.filter(|data| (128..=191).contains(&data[0])).count(), 0);
    assert_eq!((pair.server.ended, pair.client.ended), (None, None));
}

#[test]
fn an_idle_session_wants_to_be_woken_at_most_once_a_second() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    let mut wakeups = 0;
    let end = pair.now + Duration::from_secs(10);
    while pair.server.deadline < end {
        let now = pair.server.deadline;
        pair.server.peer.handle_timeout(now);
        while !matches!(pair.server.peer.poll(), Output::Timeout(at) if { pair.server.deadline = at; true }) {}
        wakeups += 1;
    }
    assert!(wakeups <= 10, "{wakeups} wakeups in 10 s");
}

#[test]
fn the_handshake_survives_a_loss_of_20_percent() {
    let failed = (1..=20).filter(|seed| {
        let mut pair = Pair::new(&WATCH, TO_SEND).with_seed(20, *seed);
        pair.run_until(Duration::from_secs(30), Pair::is_connected);
        !pair.is_connected()
    });
    // When flights are repeated is dimpl's own dice, and with that which datagrams are lost: one in a thousand loses seven tries.
    let failed: Vec<u64> = failed.collect();
    assert!(failed.len() <= 2, "seeds {failed:?}");
}

/// How many DTLS datagrams each side sends on a path that loses nothing, when the client comes so long after its answer.
fn dtls_datagrams(later: Duration) -> [usize; 2] {
    let mut pair = Pair::new(&WATCH, TO_SEND);
    pair.now += later;
    pair.client.peer.handle_timeout(pair.now);
    pair.run_until(Duration::from_secs(10), Pair::is_connected);
    assert!(pair.is_connected());
    [&pair.server, &pair.client].map(|side| side.sent.iter().filter(|data| (20..=63).contains(&data[0])).count())
}

#[test]
fn no_flight_is_sent_twice_however_long_the_client_takes_to_come() {
    for later in [0, 300, 1_000, 3_000] {
        assert_eq!(
            dtls_datagrams(Duration::from_millis(later)),
            [2, 2],
            "{later} ms later: a datagram for each flight"
        );
    }
}

#[test]
fn ice_tcp_connects_too() {
    let pair = Pair::connected(&OfferOptions { tcp: true, ..WATCH }, TO_SEND);
    assert!(pair.answer.sdp.contains("a=candidate:1 1 tcp 1526726655 127.0.0.1 7001 typ host tcptype passive\r\n"));
    assert!(pair.server.connected.unwrap().1.tcp);
}

#[test]
fn an_unmodified_str0m_peer_connects() {
    let mut now = Instant::now();
    let mut client = str0m::Rtc::builder().build(now);
    let client_at = addr("127.0.0.1:9000");
    client.add_local_candidate(str0m::Candidate::host(client_at, "udp").unwrap());
    let mut changes = client.sdp_api();
    changes.add_media(MediaKind::Audio, Flow::RecvOnly, None, None, None);
    changes.add_media(MediaKind::Video, Flow::RecvOnly, None, None, None);
    let (offer, pending) = changes.apply().unwrap();

    let options = AnswerOptions { purpose: TO_SEND, candidates: &[udp("127.0.0.1:7000")] };
    let offer = offer.to_sdp_string();
    let (mut server, answer) = Peer::answer(&Context::new().unwrap(), now, &offer, &options).unwrap();
    let answer = str0m::change::SdpAnswer::from_sdp_string(&answer.sdp).unwrap();
    client.sdp_api().accept_answer(pending, answer).unwrap();

    for _ in 0..2_000 {
        now += Duration::from_millis(5);
        server.handle_timeout(now);
        client.handle_input(str0m::Input::Timeout(now)).unwrap();
        loop {
            match client.poll_output().unwrap() {
                str0m::Output::Transmit(sent) => {
                    let remote = Remote { addr: client_at, tcp: false };
                    let _ = server.handle_datagram(now, remote, &sent.contents);
                }
                str0m::Output::Timeout(_) => break,
                str0m::Output::Event(_) => {}
            }
        }
        loop {
            match server.poll() {
                Output::Transmit { data, .. } => {
                    let source = addr("127.0.0.1:7000");
                    let received = Receive::new(Protocol::Udp, source, client_at, &data).unwrap();
                    client.handle_input(str0m::Input::Receive(now, received)).unwrap();
                }
                Output::Timeout(_) => break,
                Output::Ended(reason) => panic!("{reason:?}"),
                Output::Connected { .. } | Output::PathChanged(_) | Output::Channel(_) => {}
            }
        }
        if client.is_connected() && server.is_connected() {
            return;
        }
    }
    panic!("no connection within 10 s");
}

/// A ClientHello that does not offer the extended master secret (RFC 7627), without which there is no DTLS-SRTP here.
fn without_extended_master_secret(hello: &[u8]) -> Vec<u8> {
    let mut hello = hello.to_vec();
    let at = hello.windows(4).rposition(|bytes| bytes == [0, 23, 0, 0]).expect("the extension, which is empty");
    hello[at] = 0x5a;
    hello
}

#[test]
fn a_handshake_that_cannot_come_to_anything_ends_at_once() {
    let mut pair = Pair::new(&WATCH, TO_SEND);
    for _ in 0..100 {
        pair.now += Duration::from_millis(10);
        pair.client.peer.handle_timeout(pair.now);
        for data in outputs(&mut pair.client.peer).0 {
            let data = if data[0] == 22 { without_extended_master_secret(&data) } else { data.into() };
            let _ = pair.server.peer.handle_datagram(pair.now, pair.client.remote, &data);
        }
        let (sent, ended) = outputs(&mut pair.server.peer);
        if let Some(reason) = ended {
            assert!(matches!(reason, EndReason::Failed(_)), "{reason:?}");
            return;
        }
        for data in sent {
            let _ = pair.client.peer.handle_datagram(pair.now, pair.server.remote, &data);
        }
    }
    panic!("it waits for another hello");
}

#[test]
fn a_client_without_a_certificate_is_told_so_and_ends() {
    let (mut now, client_at) = (Instant::now(), Remote { addr: addr("127.0.0.1:9000"), tcp: false });
    let (mut client, offer) = Peer::offer(&Context::new().unwrap(), now, &WATCH).unwrap();
    let candidates = [udp("127.0.0.1:7000")];
    let options = AnswerOptions { purpose: TO_SEND, candidates: &candidates };
    let (mut server, answer) = Peer::answer(&Context::new().unwrap(), now, &offer, &options).unwrap();
    client.accept_answer(&answer.sdp).unwrap();
    // Until the client has said hello and the server has asked for its certificate.
    let is_dtls = |data: &[u8]| data[0] == 22;
    let mut has_asked = false;
    while !has_asked {
        now += Duration::from_millis(10);
        client.handle_timeout(now);
        for data in outputs(&mut client).0 {
            let _ = server.handle_datagram(now, client_at, &data);
        }
        for data in outputs(&mut server).0 {
            has_asked |= is_dtls(&data);
            if !is_dtls(&data) {
                client.handle_datagram(now, Remote { addr: candidates[0].addr, tcp: false }, &data).unwrap();
            }
        }
    }
    // What OpenSSL sends when it has none of a kind that was asked for: a record with the second handshake message, an empty certificate list.
    let record = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 15];
    let empty = [11, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0];
    let refused = server.handle_datagram(now, client_at, &[&record[..], &empty].concat());
    assert_eq!(refused, Err(Refused::BadDtls));

    let (sent, ended) = outputs(&mut server);
    assert_eq!(ended, Some(EndReason::CertificateRefused));
    assert!(sent.iter().any(|data| data[0] == 21 && data.ends_with(&[2, 40])), "no handshake_failure in {sent:?}");
    assert_eq!(server.handle_datagram(now, client_at, &record), Err(Refused::Ended));
}

/// What a peer sends now, and why it ended.
fn outputs(peer: &mut Peer) -> (Vec<Box<[u8]>>, Option<EndReason>) {
    let (mut sent, mut ended) = (Vec::new(), None);
    loop {
        match peer.poll() {
            Output::Transmit { data, .. } => sent.push(data),
            Output::Ended(reason) => ended = Some(reason),
            Output::Connected { .. } | Output::PathChanged(_) | Output::Channel(_) => {}
            Output::Timeout(_) => return (sent, ended),
        }
    }
}

#[test]
fn an_ice_restart_changes_the_credentials_and_moves_the_path() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    let old_ufrag = pair.server.peer.ufrag().to_owned();

    let request = pair.client.peer.start_restart().unwrap();
    let answer = pair.server.peer.handle_fragment(&request).unwrap().expect("a restart is answered");
    assert_ne!(pair.server.peer.ufrag(), old_ufrag);
    assert!(answer.contains("a=candidate:1 1 udp "));
    pair.client.peer.accept_restart(&answer).unwrap();
    pair.client.remote.addr = addr("127.0.0.1:9001");
    pair.run_until(Duration::from_secs(5), |pair| !pair.server.moves.is_empty());

    assert_eq!(pair.server.moves, [pair.client.remote]);
    assert_eq!((pair.server.ended, pair.client.ended), (None, None));
}

#[test]
fn a_peer_may_restart_ice_eight_times_at_once_and_then_once_in_15_seconds() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    let restarts = |pair: &mut Pair, count: usize| {
        let fragments = (0..count).map(|_| pair.client.peer.start_restart().unwrap()).collect::<Vec<_>>();
        fragments.iter().filter(|fragment| pair.server.peer.handle_fragment(fragment).is_ok()).count()
    };
    assert_eq!(restarts(&mut pair, 20), 8);
    pair.server.peer.handle_timeout(pair.now + Duration::from_secs(31));
    assert_eq!(restarts(&mut pair, 20), 2);
    let fragment = pair.client.peer.start_restart().unwrap();
    let refused = pair.server.peer.handle_fragment(&fragment);
    assert_eq!(refused, Err(webrtc::Error::TooManyRestarts { seconds: 15 }));
}

#[test]
fn a_fragment_with_the_same_credentials_is_no_restart() {
    let mut pair = Pair::new(&WATCH, TO_SEND);
    let ufrag = pair.server.peer.ufrag().to_owned();
    let trickle = "a=mid:0\r\na=candidate:1 1 udp 2130706431 192.0.2.7 4000 typ host\r\na=end-of-candidates\r\n";
    assert_eq!(pair.server.peer.handle_fragment(trickle), Ok(None));
    assert_eq!(pair.server.peer.ufrag(), ufrag);
    assert!(pair.server.peer.handle_fragment("a=ice-ufrag:abcd\r\n").is_err());
    assert!(pair.server.peer.handle_fragment("nonsense").is_err());
}

#[test]
fn the_path_follows_the_client_to_a_new_address() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    pair.client.remote.addr = addr("127.0.0.1:9002");
    pair.run_until(Duration::from_secs(20), |pair| !pair.server.moves.is_empty());
    assert_eq!(pair.server.moves, [pair.client.remote]);
}

#[test]
fn forged_and_malformed_datagrams_are_refused_and_change_nothing() {
    let mut pair = Pair::new(&WATCH, TO_SEND);
    let mut other = Pair::new(&WATCH, TO_SEND);
    other.run_until(Duration::from_millis(200), |_| false);
    let foreign = other.client.sent.iter().find(|data| data[0] < 2).unwrap();
    let from = pair.client.remote;

    let server = &mut pair.server.peer;
    assert_eq!(server.handle_datagram(pair.now, from, foreign), Err(Refused::NotAuthentic));
    assert_eq!(server.handle_datagram(pair.now, from, &[22, 254, 253, 0]), Err(Refused::NotAuthentic));
    assert_eq!(server.handle_datagram(pair.now, from, &[0, 1, 0, 0]), Err(Refused::Malformed));
    assert_eq!(server.handle_datagram(pair.now, from, &[]), Err(Refused::NotHandshake));
    assert_eq!(server.handle_datagram(pair.now, from, &[0x80; 100]), Err(Refused::NotHandshake));
    pair.run_until(Duration::from_secs(10), Pair::is_connected);
    for garbage in [&[20; 1][..], &[22; 40], &[23; 1200], &[63; 13]] {
        let _ = pair.server.peer.handle_datagram(pair.now, from, garbage);
    }
    pair.run_until(Duration::from_secs(3), |_| false);
    assert!(pair.is_connected());
    assert_eq!((pair.server.ended, pair.client.ended), (None, None));
}

#[test]
fn who_comes_from_ever_more_addresses_is_heard_from_the_last_and_where_it_is() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    let check = pair.client.sent.iter().find(|data| data[0] == 0 && data[1] == 1).unwrap().clone();
    for port in 1..=100 {
        let remote = Remote { addr: ([127, 0, 0, 2], port).into(), tcp: false };
        assert_eq!(pair.server.peer.handle_datagram(pair.now, remote, &check), Ok(Received::Check), "{port}");
    }
    pair.run_until(Duration::from_secs(40), |_| false);
    assert_eq!((pair.server.ended.clone(), pair.client.ended.clone(), pair.server.moves.len()), (None, None, 0));
    pair.client.remote.addr = addr("127.0.0.1:9002");
    pair.run_until(Duration::from_secs(20), |pair| !pair.server.moves.is_empty());
    assert_eq!(pair.server.moves, [pair.client.remote]);
}

#[test]
fn a_goodbye_ends_both_sides() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    pair.client.peer.close();
    pair.run_until(Duration::from_secs(1), |pair| pair.server.ended.is_some());
    assert_eq!(pair.server.ended, Some(EndReason::Closed));
}

#[test]
fn another_certificate_than_the_fingerprint_says_ends_the_session() {
    let now = Instant::now();
    let context = Context::new().unwrap();
    let (mut client, offer) = Peer::offer(&context, now, &WATCH).unwrap();
    let line = offer.lines().find(|line| line.starts_with("a=fingerprint")).unwrap();
    let changed =
        if line.ends_with("00") { line.replace(":00", ":01") } else { format!("{}00", &line[..line.len() - 2]) };
    let options = AnswerOptions { purpose: TO_SEND, candidates: &[udp("127.0.0.1:7000")] };
    let (mut server, answer) = Peer::answer(&context, now, &offer.replace(line, &changed), &options).unwrap();
    client.accept_answer(&answer.sdp).unwrap();

    let remote = Remote { addr: addr("127.0.0.1:9000"), tcp: false };
    for step in 0..2_000 {
        let now = now + Duration::from_millis(step * 5);
        client.handle_timeout(now);
        server.handle_timeout(now);
        while let Output::Transmit { data, .. } = client.poll() {
            let _ = server.handle_datagram(now, remote, &data);
        }
        loop {
            match server.poll() {
                Output::Transmit { data, .. } => {
                    let _ = client.handle_datagram(now, Remote { addr: addr("127.0.0.1:7000"), tcp: false }, &data);
                }
                Output::Ended(EndReason::Failed(_)) => {
                    server.close();
                    let Output::Timeout(at) = server.poll() else {
                        panic!("it hears more of a handshake that is none")
                    };
                    assert!(at > now + Duration::from_secs(60), "and there is nothing to wait for");
                    return;
                }
                Output::Timeout(_) => break,
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("the session went on");
}
