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
