//! What one client makes of a negotiator's places and time, and what is left for the others.

use super::*;

#[test]
fn who_has_most_handshakes_that_go_no_further_makes_room_where_nobody_is_a_stranger() {
    let mut harness = Harness::with(Settings { handshakes_max: 20, ..Settings::default() });
    let (mut early, _) = harness.client(APART, &WATCH);
    while harness.counted().proved == 0 {
        harness.run(&mut [&mut early], Duration::from_millis(10));
    }
    for session in 1..20 {
        let (mut idle, _) = harness.client(session, &WATCH);
        while harness.counted().proved <= session {
            harness.run(&mut [&mut idle], Duration::from_millis(10));
        }
    }
    let (mut late, _) = harness.client(APART + 1, &WATCH);
    harness.run(&mut [&mut early, &mut late], Duration::from_secs(1));
    assert!(early.keys.is_some() && late.keys.is_some());
    assert_eq!((harness.counted().overloaded, harness.ended()), (0, vec![(1, EndReason::MadeRoom)]));
}

#[test]
fn checks_of_one_session_are_read_a_hundred_a_second_wherever_they_come_from() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    let check = loop {
        harness.now += Duration::from_millis(10);
        client.peer.handle_timeout(harness.now);
        if let Output::Transmit { data, .. } = client.peer.poll() {
            break data;
        }
    };
    let flood = |harness: &mut Harness| {
        for port in 20_000..21_000 {
            harness.deliver(Path { remote: ([192, 0, 2, 1], port).into(), ..client.path }, &check);
        }
        let transmits = std::mem::take(&mut harness.heard.borrow_mut().transmits);
        transmits.iter().filter(|(_, data)| data.starts_with(&[1, 1])).count()
    };
    assert_eq!(flood(&mut harness), 128);
    harness.now += Duration::from_secs(1);
    assert_eq!(flood(&mut harness), 100);
    let (mut other, _) = harness.client(2, &WATCH);
    harness.run(&mut [&mut other], Duration::from_secs(1));
    assert!(other.keys.is_some(), "others have theirs");
}

/// Who has seen a check can send it on, and others like it with another end.
#[test]
fn checks_from_elsewhere_take_nothing_from_those_of_where_the_peer_is() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    let seen = loop {
        harness.now += Duration::from_millis(10);
        client.peer.handle_timeout(harness.now);
        if let Output::Transmit { data, .. } = client.peer.poll() {
            break data;
        }
    };
    harness.run(&mut [&mut client], Duration::from_secs(1));
    let mut forged = seen.clone();
    // In the message integrity, before the fingerprint.
    let at = forged.len() - 10;
    forged[at] ^= 1;
    let attacker = Path { remote: "192.0.2.1:5000".parse().unwrap(), ..client.path };
    // 20,000 a second, each time before what the client sends.
    let from = Remote { addr: SERVER.parse().unwrap(), tcp: false };
    let (mut checks, mut answers) = (0, 0);
    for _ in 0..4_000 {
        harness.now += Duration::from_millis(10);
        for data in [&seen, &forged] {
            (0..100).for_each(|_| harness.deliver(attacker, data));
        }
        client.peer.handle_timeout(harness.now);
        while let Output::Transmit { data, .. } = client.peer.poll() {
            checks += usize::from(data.starts_with(&[0, 1]));
            harness.deliver(client.path, &data);
        }
        harness.negotiator.handle_timeout(harness.now);
        let transmits = std::mem::take(&mut harness.heard.borrow_mut().transmits);
        for (_, data) in transmits.into_iter().filter(|(path, _)| *path == client.path) {
            answers += usize::from(data.starts_with(&[1, 1]));
            let _ = client.peer.handle_datagram(harness.now, from, &data);
        }
    }
    assert!(answers == checks && checks >= 4, "{answers} of {checks} answered");
    assert_eq!(harness.ended(), []);
    assert!(harness.counted().too_many_checks > 700_000, "{:?}", harness.counted());
}

#[test]
fn of_dtls_a_connected_session_has_little_read_and_its_goodbye_all_the_same() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    let record = [23, 254, 253, 0, 1, 0, 0, 0, 0, 0, 9, 0, 4, 1, 2, 3, 4];
    let before = harness.counted().too_many_records;
    (0..10_000).for_each(|_| harness.deliver(client.path, &record));
    assert_eq!(harness.counted().too_many_records - before, 10_000 - 64);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    client.peer.close();
    harness.run(&mut [&mut client], Duration::from_millis(100));
    assert_eq!(harness.ended(), [(1, EndReason::Peer(webrtc::EndReason::Closed))]);
}
