//! Checks of peers that are connected: who answers them, and what becomes of a peer that answers ours no more.

use rooms::spec::IceCredentials;

use super::*;

#[test]
fn consent_is_passed_on_now_and_then() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    harness.commands();
    harness.run(&mut [&mut client], Duration::from_secs(30));
    let commands = harness.commands();
    let consents =
        commands.iter().filter(|command| matches!(command, Command::Consent { session: SessionId(1) })).count();
    assert!((2..=6).contains(&consents), "{commands:?}");
    assert_eq!(consents + answered_by_the_worker(&commands).len(), commands.len(), "{commands:?}");
}

/// What the worker was told to answer checks by, each time.
fn answered_by_the_worker(commands: &[Command]) -> Vec<Option<IceCredentials>> {
    let told = commands.iter().filter_map(|command| match command {
        Command::AnswerChecks { credentials, .. } => Some(credentials.clone()),
        _ => None,
    });
    told.collect()
}

#[test]
fn the_worker_is_told_once_how_to_answer_checks() {
    let mut harness = Harness::new();
    let (mut client, answer) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(30));
    let commands = harness.commands();
    let [Some(credentials)] = &answered_by_the_worker(&commands)[..] else { panic!("{commands:?}") };
    let names = credentials.username.split_once(':').unwrap();
    assert_eq!((names.0, names.1.is_empty(), credentials.password.len()), (&*answer.etag, false, 24));
    assert!(!format!("{credentials:?}").contains(&*credentials.password), "nobody reads it in a log");
}

#[test]
fn a_session_ends_when_nobody_answers_any_more_where_its_media_goes() {
    let mut harness = Harness::new();
    let (mut client, _) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    // Its checks come, and what is sent to it gets nowhere.
    for _ in 0..400 {
        client.peer.handle_timeout(harness.now);
        client.drain(&mut harness);
        harness.run(&mut [], Duration::from_millis(100));
    }
    assert_eq!(harness.ended(), [(1, EndReason::Peer(webrtc::EndReason::ConsentLapsed))]);
    assert!(matches!(harness.commands()[..], [.., Command::RemoveSession(SessionId(1))]));
    assert_eq!((harness.counted().consent_lapsed, harness.counted().failed), (1, 0));
}

#[test]
fn an_ice_restart_changes_the_etag_and_the_session_goes_on() {
    let mut harness = Harness::new();
    let (mut client, answer) = harness.client(1, &WATCH);
    harness.run(&mut [&mut client], Duration::from_secs(1));
    let trickle = "a=candidate:1 1 udp 2130706431 192.0.2.7 4000 typ host\r\n";
    assert_eq!(harness.patch(1, trickle, "\"other\""), Err(NegotiationError::EtagMismatch));
    assert_eq!(harness.patch(9, trickle, "*"), Err(NegotiationError::NoSession));
    let patched = harness.patch(1, trickle, &format!("\"{}\"", answer.etag)).unwrap();
    assert_eq!((patched.fragment, &patched.etag), (None, &answer.etag));

    let restart = client.peer.start_restart().unwrap();
    let patched = harness.patch(1, &restart, "*").unwrap();
    assert_ne!(patched.etag, answer.etag);
    client.peer.accept_restart(&patched.fragment.unwrap()).unwrap();
    assert_eq!(answered_by_the_worker(&harness.commands()).last(), Some(&None), "not those with the old ones");
    harness.run(&mut [&mut client], Duration::from_secs(10));
    let commands = harness.commands();
    let is_consent = |command: &Command| matches!(command, Command::Consent { .. });
    assert!(commands.iter().any(is_consent), "checks with the new credentials arrive");
    let [Some(credentials)] = &answered_by_the_worker(&commands)[..] else { panic!("{commands:?}") };
    assert!(credentials.username.starts_with(&patched.etag), "{credentials:?}");
    assert_eq!((harness.ended(), harness.counted().restarts), (vec![], 1));
}
