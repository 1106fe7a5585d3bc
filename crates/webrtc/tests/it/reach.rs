//! What leaves for an address that only forged datagrams came from: an answer and a few requests, and nothing of a session.

use std::collections::VecDeque;
use std::time::Duration;

use webrtc::{EndReason, OfferOptions, Output, Received, Refused, Remote};

use crate::common::{PUBLISH, Pair, TO_RECEIVE, TO_SEND, WATCH, addr};

fn victim() -> Remote {
    Remote { addr: addr("203.0.113.9:4444"), tcp: false }
}

/// The checks that a client has sent so far.
fn checks(pair: &Pair) -> Vec<Vec<u8>> {
    pair.client.sent.iter().filter(|data| data.starts_with(&[0, 1])).cloned().collect()
}

/// What the server sends to the victim while it is left alone for so long; everything else is lost.
fn sent_to_victim(pair: &mut Pair, time: Duration) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    let end = pair.now + time;
    while pair.now < end {
        pair.server.peer.handle_timeout(pair.now);
        loop {
            match pair.server.peer.poll() {
                Output::Transmit { remote, data } if remote == victim() => sent.push(data.to_vec()),
                Output::Timeout(_) => break,
                Output::PathChanged(remote) => pair.server.moves.push(remote),
                Output::Connected { .. } => panic!("nobody has shaken hands"),
                Output::Transmit { .. } | Output::Channel(_) | Output::Ended(_) => {}
            }
        }
        pair.now += Duration::from_millis(50);
    }
    sent
}

#[test]
fn a_viewer_that_forges_the_source_of_its_checks_does_not_aim_the_server_at_others() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    pair.run_until(Duration::from_secs(3), |_| false);
    // Long enough for another path to win by being heard alone.
    pair.now += Duration::from_secs(10);
    let checks = checks(&pair);
    assert!(checks.len() > 2);
    for check in &checks {
        assert_eq!(pair.server.peer.handle_datagram(pair.now, victim(), check), Ok(Received::Check));
    }
    let sent = sent_to_victim(&mut pair, Duration::from_secs(20));
    assert_eq!(pair.server.moves, [], "media stays where it was");
    assert!(sent.iter().all(|data| data[0] < 2), "STUN alone");
    assert!(sent.len() <= checks.len() + 4, "{} for {}", sent.len(), checks.len());
}

#[test]
fn no_dtls_flight_goes_where_nobody_has_answered() {
    let pair = Pair::connected(&WATCH, TO_SEND);
    let mut fresh = Pair::new(&WATCH, TO_SEND);
    fresh.loss_percent = 100;
    fresh.run_until(Duration::from_millis(500), |_| false);
    let check = checks(&fresh).pop().expect("a check that nobody has got");
    assert_eq!(fresh.server.peer.handle_datagram(fresh.now, victim(), &check), Ok(Received::Check));
    let hello = pair.client.sent.iter().find(|data| data[0] == 22).expect("a ClientHello");
    for _ in 0..4 {
        assert_eq!(fresh.server.peer.handle_datagram(fresh.now, victim(), hello), Ok(Received::Handshake));
    }
    assert_eq!(fresh.server.peer.handle_datagram(fresh.now, victim(), hello), Err(Refused::NotProved));
    let sent = sent_to_victim(&mut fresh, Duration::from_secs(10));
    assert!(sent.iter().all(|data| data[0] < 2), "STUN alone");
    assert!((1..=5).contains(&sent.len()), "{}", sent.len());
}

#[test]
fn a_client_hello_that_overtakes_the_proof_is_not_lost() {
    let mut pair = Pair::new(&WATCH, TO_SEND);
    let (mut answers, mut held) = (Vec::new(), false);
    // Answers of the client wait until its ClientHello is there.
    for _ in 0..200 {
        pair.now += Duration::from_millis(5);
        pair.client.peer.handle_timeout(pair.now);
        pair.server.peer.handle_timeout(pair.now);
        while let Output::Transmit { data, .. } = pair.client.peer.poll() {
            if data.starts_with(&[1, 1]) {
                answers.push(data);
                continue;
            }
            let received = pair.server.peer.handle_datagram(pair.now, pair.client.remote, &data);
            held |= data[0] == 22 && received == Ok(Received::Handshake);
        }
        if held {
            break;
        }
        while let Output::Transmit { data, .. } = pair.server.peer.poll() {
            let _ = pair.client.peer.handle_datagram(pair.now, pair.server.remote, &data);
        }
    }
    assert!(held && !answers.is_empty());
    let proved = pair.server.peer.handle_datagram(pair.now, pair.client.remote, &answers[0]);
    assert_eq!(proved, Ok(Received::Proof));
    let mut flight = 0;
    while let Output::Transmit { data, remote } = pair.server.peer.poll() {
        flight += usize::from(data[0] == 22 && remote == pair.client.remote);
    }
    assert!(flight > 0, "the server's flight leaves at once");
}

#[test]
fn an_answer_to_another_request_or_from_elsewhere_proves_nothing() {
    let mut pair = Pair::connected(&WATCH, TO_SEND);
    pair.run_until(Duration::from_secs(3), |_| false);
    let check = checks(&pair).pop().unwrap();
    assert_eq!(pair.server.peer.handle_datagram(pair.now, victim(), &check), Ok(Received::Check));
    let answers: Vec<_> = pair.client.sent.iter().filter(|data| data.starts_with(&[1, 1])).cloned().collect();
    assert!(!answers.is_empty());
    for answer in &answers {
        assert_eq!(pair.server.peer.handle_datagram(pair.now, victim(), answer), Err(Refused::NotAuthentic));
    }
    assert!(!pair.server.peer.is_proved(pair.now, victim()));
}

/// How long the handshake takes where each datagram is under way for 30 ms: the client's ClientHello, whose time to its
/// repetition runs from when it is made and not from when ICE lets it leave, is answered before that is over.
fn handshake_time(tcp: bool) -> Duration {
    let mut pair = Pair::new(&OfferOptions { tcp, ..WATCH }, TO_SEND);
    let start = pair.now;
    let mut under_way = VecDeque::new();
    let mut connected = 0;
    while connected < 2 {
        pair.now += Duration::from_millis(1);
        assert!(pair.now < start + Duration::from_secs(5), "no connection");
        while let Some((_, is_up, data)) = under_way.pop_front_if(|(at, _, _)| *at <= pair.now) {
            let data: Box<[u8]> = data;
            let _ = match is_up {
                true => pair.server.peer.handle_datagram(pair.now, pair.client.remote, &data),
                false => pair.client.peer.handle_datagram(pair.now, pair.server.remote, &data),
            };
        }
        for is_up in [true, false] {
            let side = if is_up { &mut pair.client } else { &mut pair.server };
            side.peer.handle_timeout(pair.now);
            loop {
                match side.peer.poll() {
                    Output::Transmit { data, .. } => {
                        under_way.push_back((pair.now + Duration::from_millis(30), is_up, data));
                    }
                    Output::Connected { .. } => connected += 1,
                    Output::Timeout(_) => break,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    pair.now - start
}

/// Over TCP nothing has to be proved.
#[test]
fn the_proof_costs_no_round_trip() {
    assert_eq!(handshake_time(false), handshake_time(true));
}

/// As FFmpeg does, which once it is connected reads no checks and sends none.
#[test]
fn a_publisher_that_answers_no_checks_goes_on_and_its_goodbye_is_heard() {
    let mut pair = Pair::connected(&PUBLISH, TO_RECEIVE);
    let end = pair.now + Duration::from_secs(120);
    let (mut requests, mut wakeups) = (0, 0);
    let mut next = pair.now;
    while next < end {
        pair.server.peer.handle_timeout(next);
        wakeups += 1;
        loop {
            match pair.server.peer.poll() {
                Output::Transmit { .. } => requests += 1,
                Output::Timeout(at) => break next = at.max(next + Duration::from_millis(1)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(requests <= 12 && wakeups < 120, "{requests} requests, {wakeups} wake-ups");
    pair.now = end;
    pair.client.peer.close();
    pair.run_until(Duration::from_secs(1), |pair| pair.server.ended.is_some());
    assert_eq!(pair.server.ended, Some(EndReason::Closed));
}
