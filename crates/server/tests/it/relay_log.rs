//! What the log says of the relay's clients.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use relay::spec::{AllocationInfo, EndReason, Event, FailedProof, ProofError};
use server::relay::journal::Journal;
use wire::WorkerId;

use crate::relay::{Harness, info};

/// What is written while `body` runs, at `info` and above.
fn written(body: impl FnOnce()) -> String {
    let page = Page::default();
    let writer = page.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, body);
    String::from_utf8(page.0.lock().expect("nobody panics").clone()).expect("text")
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panics").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_allocation_has_a_line_when_it_begins_and_one_when_it_ends() {
    let test = Harness::new("");
    let text = written(|| {
        test.relay.handle_event(WorkerId(0), Event::Began(info(7)));
        test.relay.handle_event(WorkerId(0), Event::Ended(info(7), EndReason::Expired, Default::default()));
    });
    let [began, ended] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    let who = r#"id=7 user="alice" client=192.0.2.1:5000 transport="udp" relayed="127.0.0.1:50000""#;
    assert!(began.contains(" INFO ") && began.ends_with(&format!("allocation began {who}")), "{began}");
    let how =
        r#"reason="expired" seconds=5 sent_packets=3 sent_bytes=300 received_packets=0 received_bytes=0 dropped=4"#;
    assert!(ended.contains(" INFO ") && ended.ends_with(&format!("allocation ended {who} {how}")), "{ended}");
}

#[test]
fn names_that_clients_choose_are_one_line_and_no_control_characters() {
    let name = "eve\r\n2026-01-01 INFO all is well \u{1b}[2J\u{202e}\0";
    let test = Harness::new("");
    let failure = FailedProof {
        user: Some(name.to_owned()),
        client: ([192, 0, 2, 9], 9).into(),
        error: ProofError::WrongPassword,
        left_out: 12,
    };
    let text = written(|| {
        test.relay.handle_event(WorkerId(0), Event::Began(AllocationInfo { user: name.into(), ..info(7) }));
        test.relay.handle_event(WorkerId(1), Event::NotProved(failure));
    });
    let [_, refused] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert!(!text.contains(|c: char| c.is_control() && c != '\n') && !text.contains('\u{202e}'), "{text:?}");
    assert!(refused.ends_with(r#"client=192.0.2.9:9 error="wrong_password" left_out=12 worker=1"#), "{refused}");
}

#[test]
fn whoever_makes_and_frees_allocations_without_end_fills_no_log_and_keeps_nobody_out_of_it() {
    let now = Instant::now();
    let of = |user: &str, id| AllocationInfo { user: user.into(), ..info(id) };
    let text = written(|| {
        let journal = Journal::new(now);
        for id in 0..5_000 {
            journal.began(now, &of("eve", id));
            journal.ended(now, &of("eve", id), EndReason::Deleted);
        }
        ["alice", "bob", "carol"].into_iter().for_each(|user| journal.began(now, &of(user, 5_000)));
        journal.handle_timeout(now);
        journal.handle_timeout(now);
    });
    let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert!((200..=400).contains(&lines("eve")), "{}", lines("eve"));
    assert!(lines("alice") + lines("bob") + lines("carol") > 0, "they share no two buckets with her, all of them");
    let left_out = format!("faster than the log takes lines left_out={}\n", 10_003 + 1 - text.lines().count());
    assert!(text.ends_with(&left_out), "{:?}", text.lines().last());
}

#[test]
fn all_users_together_have_so_many_lines() {
    let now = Instant::now();
    let of = |id: u64| AllocationInfo { user: format!("user {id}").into(), ..info(id) };
    let text = written(|| {
        let journal = Journal::new(now);
        (0..10_000).for_each(|id| journal.began(now, &of(id)));
        journal.handle_timeout(now);
        journal.handle_timeout(now + Duration::from_secs(1));
        journal.handle_timeout(now + Duration::from_secs(1));
    });
    assert_eq!(text.lines().count(), 2_001);
    assert!(text.ends_with("faster than the log takes lines left_out=8000\n"), "{:?}", text.lines().last());
}

#[test]
fn the_beginning_of_a_drain_is_told() {
    let test = Harness::new("");
    let text = written(|| (0..2).for_each(|_| test.relay.start_drain()));
    assert!(text.lines().count() == 1 && text.contains("the relay drains"), "{text}");
}
