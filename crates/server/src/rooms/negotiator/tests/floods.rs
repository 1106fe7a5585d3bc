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
