//! A connected peer's checks: the rooms answer those that come from where it is.

use std::time::Duration;

use rooms::spec::{Command, EndReason, Event, IceCredentials, SessionId};
use sim::bare::path;
use stun_types::attribute::Username;
use stun_types::message::{BINDING, IntegrityAlgorithm, Message, MessageWriteVec, ShortTermCredentials};
use stun_types::prelude::{MessageWrite as _, MessageWriteExt as _};
use wire::{LinkId, LinkKind, Path, Product as _};

use crate::world::{World, addr};

const ANN: SessionId = SessionId(1);
const BEN: SessionId = SessionId(2);

/// Two members; Ann's checks are answered.
fn world() -> World {
    let mut world = World::new(&[]);
    [ANN, BEN].into_iter().for_each(|session| world.add_member(session));
    let credentials = IceCredentials { username: "ours:anns".into(), password: "secret".into() };
    world.command(Command::AnswerChecks { session: ANN, credentials: Some(credentials) });
    world
}

fn place(of: SessionId) -> Path {
    Path { remote: addr(of), ..path(0, 0) }
}

/// Whether a check of Ann's that comes that way is answered, and nobody is sent anything else.
fn is_answered(world: &mut World, path: Path) -> bool {
    let mut check = Message::builder_request(BINDING, MessageWriteVec::new());
    check.add_attribute(&Username::new("ours:anns").unwrap()).unwrap();
    let key = ShortTermCredentials::new("secret".to_owned()).into();
    check.add_message_integrity(&key, IntegrityAlgorithm::Sha1).unwrap();
    let check = check.finish();
    let is_answered = world.rooms.handle_consent_check(world.now, &path, &check, &mut world.out);
    let sent: Vec<(Path, Vec<u8>)> = world.out.datagrams().map(|(path, datagram)| (*path, datagram.to_vec())).collect();
    world.out.clear();
    assert_eq!(sent.len(), usize::from(is_answered));
    if let [(to, answer)] = &sent[..] {
        assert_eq!(*to, path);
        assert!(Message::from_bytes(answer).unwrap().validate_integrity(&key).is_ok());
    }
    is_answered
}

#[test]
fn checks_are_answered_where_the_peer_is_and_nowhere_else() {
    let mut world = world();
    let elsewhere = Path { remote: ([10, 0, 0, 9], 9).into(), ..path(0, 0) };
    let by_another_socket = Path { link: LinkId::datagrams(7), ..place(ANN) };
    assert!(is_answered(&mut world, place(ANN)));
    for path in [place(BEN), elsewhere, by_another_socket] {
        assert!(!is_answered(&mut world, path), "{path:?}");
    }
    world.command(Command::MovePath { session: ANN, path: elsewhere });
    assert!(is_answered(&mut world, elsewhere) && !is_answered(&mut world, place(ANN)));
    world.command(Command::AnswerChecks { session: ANN, credentials: None });
    assert!(!is_answered(&mut world, elsewhere));
}

/// They prove that the connection is still the peer's, which the negotiator has to know.
#[test]
fn checks_over_tcp_are_the_negotiators() {
    let mut world = world();
    let tcp = Path { link: LinkId::new(LinkKind::Framed, 7, 1), ..place(ANN) };
    world.open(tcp);
    world.command(Command::MovePath { session: ANN, path: tcp });
    assert!(!is_answered(&mut world, tcp));
}

/// Lets so many seconds pass, with a check of Ann's every two; what control has heard.
fn pass(world: &mut World, seconds: u64) -> Vec<Event> {
    for _ in 0..seconds / 2 {
        world.now += Duration::from_secs(2);
        is_answered(world, place(ANN));
        while let Some(at) = world.rooms.poll_timeout().filter(|at| *at <= world.now) {
            world.rooms.handle_timeout(at.max(world.now), &mut world.out);
            world.out.clear();
        }
    }
    std::iter::from_fn(|| world.poll_event()).collect()
}

#[test]
fn who_sends_nothing_but_checks_is_not_silent() {
    let mut world = world();
    let told = pass(&mut world, 80);
    let [Event::Silent { session: BEN, on: true }, Event::SessionEnded { session: BEN, reason }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(reason, EndReason::Silent);
}

#[test]
fn who_is_not_heard_for_twelve_seconds_is_told_of_and_so_is_that_it_is_heard_again() {
    let mut world = world();
    assert!(pass(&mut world, 10).is_empty());
    let told = pass(&mut world, 6);
    assert!(matches!(told[..], [Event::Silent { session: BEN, on: true }]), "{told:?}");
    world.command(Command::Consent { session: BEN });
    let told = pass(&mut world, 4);
    assert!(matches!(told[..], [Event::Silent { session: BEN, on: false }]), "{told:?}");
}
