//! What is and is not done below a peer.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use str0m::media::MediaKind;
use wire::codec::Codec;

use super::*;
use crate::{Direction, Purpose};

const SERVER: Remote = Remote { addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7000), tcp: false };
const CLIENT: Remote = Remote { addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000), tcp: false };

/// Lets `peer` do all that it wants now; the first bytes of what comes from below go to `kinds`.
fn drive(now: Instant, peer: &mut Peer, other: &mut Peer, at: Remote, kinds: &mut Vec<u8>) {
    peer.handle_timeout(now);
    loop {
        match peer.call(|below| below.poll(now)).unwrap().unwrap() {
            Said::Datagram { data, .. } => {
                kinds.extend(data.first());
                let _ = other.handle_datagram(now, at, &data);
            }
            Said::Connected => peer.state = State::DtlsDone,
            Said::Channel(_) | Said::Closed => {}
            Said::Rest(_) => break,
        }
    }
    let answers = std::mem::take(&mut peer.queue).into_iter();
    for output in answers.chain(std::iter::from_fn(|| peer.ask())) {
        if let Output::Transmit { data, .. } = output {
            let _ = other.handle_datagram(now, at, &data);
        }
    }
}

/// A viewer that watches one video track, and the server's side of it.
fn pair(start: Instant) -> (Peer, Peer) {
    pair_with(Kind::SERVER, start)
}

/// The same with all of str0m on both sides, as where there are data channels.
fn pair_of_str0m(start: Instant) -> (Peer, Peer) {
    pair_with(Kind { has_data: true, ..Kind::SERVER }, start)
}

fn pair_with(server: Kind, start: Instant) -> (Peer, Peer) {
    let context = Context::new().unwrap();
    let tracks = [Codec::Vp8];
    let offer = OfferOptions {
        direction: Direction::Receive,
        audio: false,
        video: &[Codec::Vp8],
        rids: &[],
        stream: "",
        tcp: false,
    };
    let (mut client, offer) = Peer::offer(&context, start, &offer).unwrap();
    let purpose = Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s", transport_cc: true };
    let candidates = [Candidate { addr: SERVER.addr, tcp: false }];
    let (server, answer) =
        Peer::answer_as(server, &context, start, &offer, &AnswerOptions { purpose, candidates: &candidates }).unwrap();
    client.accept_answer(&answer.sdp).unwrap();
    (server, client)
}

/// A viewer without `m=application` that begins an SCTP association (RFC 8831) all the same.
#[test]
fn a_peer_that_speaks_sctp_is_not_answered() {
    for pair in [pair, pair_of_str0m] {
        speak_sctp(pair);
    }
}

fn speak_sctp(pair: fn(Instant) -> (Peer, Peer)) {
    let start = Instant::now();
    let (mut server, mut client) = pair(start);
    client.call_str0m(|rtc| rtc.direct_api().start_sctp(true)).unwrap();
    let (mut from_server, mut from_client) = (Vec::new(), Vec::new());
    let records = |kinds: &[u8]| kinds.iter().filter(|kind| **kind == 23).count();
    let mut left = 100;
    for step in 0.. {
        let now = start + Duration::from_millis(10 * step);
        drive(now, &mut server, &mut client, SERVER, &mut from_server);
        drive(now, &mut client, &mut server, CLIENT, &mut from_client);
        // When it asks again is a matter of the machine's clock, too, which the association reads.
        let has_asked_again = server.seam.keys.get().is_some() && records(&from_client) > 1;
        left -= u32::from(has_asked_again);
        if left == 0 {
            break;
        }
        assert!(step < 60_000, "{} times in ten minutes", records(&from_client));
    }
    assert_eq!(records(&from_server), 0);
}

/// Of a viewer's memory str0m would be the most.
#[test]
fn a_server_has_str0m_for_data_channels_alone() {
    let start = Instant::now();
    assert!(pair(start).0.below.str0m().is_none() && pair_of_str0m(start).0.below.str0m().is_some());
    assert!(pair(start).1.below.str0m().is_some(), "and a client for ICE");
}

#[test]
fn a_session_that_never_comes_to_rest_is_ended() {
    let (mut server, _) = pair(Instant::now());
    server.outputs = OUTPUTS_MAX;
    assert!(matches!(server.poll(), Output::Ended(EndReason::Failed(_))));
    assert!(matches!(server.poll(), Output::Timeout(_)));
    server.close();
    assert!(matches!(server.poll(), Output::Timeout(_)));
}

/// What the whole design rests on, to be seen again with each new version of str0m.
#[test]
fn str0m_without_keys_sends_no_media_even_where_it_knows_of_streams() {
    let start = Instant::now();
    let (mut server, mut client) = pair_of_str0m(start);
    let mut api = server.below.str0m().expect("str0m is below").direct_api();
    api.declare_media("0".into(), MediaKind::Video);
    api.declare_stream_tx(1.into(), Some(2.into()), "0".into(), None);
    api.expect_stream_rx(3.into(), None, "0".into(), None);

    let mut kinds = Vec::new();
    for step in 0..1_100 {
        let now = start + Duration::from_millis(10 * step);
        drive(now, &mut server, &mut client, SERVER, &mut kinds);
        drive(now, &mut client, &mut server, CLIENT, &mut kinds);
    }

    assert!(matches!(server.seam.keys.get(), Some(Ok(_))) && server.state == State::DtlsDone);
    assert!(kinds.iter().any(|byte| (20..=63).contains(byte)));
    assert!(!kinds.iter().any(|byte| (128..=191).contains(byte)));
}

/// libjuice, and with it libdatachannel, answers a check whose tie-breaker is zero by a role conflict.
#[test]
fn checks_of_ours_have_a_tie_breaker() {
    let start = Instant::now();
    let (mut server, mut client) = pair(start);
    let mut checks = Vec::new();
    for step in 0..50 {
        let now = start + Duration::from_millis(10 * step);
        drive(now, &mut client, &mut server, CLIENT, &mut Vec::new());
        server.handle_timeout(now);
        while let Some(Output::Transmit { data, .. }) = server.ask() {
            checks.push(data);
        }
    }
    assert!(!checks.is_empty());
    for check in &checks {
        // ICE-CONTROLLED (RFC 8445 §16.1): type, length, and 64 bits.
        let at = check.windows(4).position(|head| head == [0x80, 0x29, 0, 8]).expect("we are controlled");
        assert_ne!(check[at + 4..at + 12], [0; 8]);
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_panic_below_ends_its_session_and_no_other() {
    let start = Instant::now();
    let (mut server, mut client) = pair(start);
    server.inject_fault(Fault::Session);
    client.handle_timeout(start);
    server.handle_timeout(start);
    assert!(matches!(server.poll(), Output::Ended(EndReason::Panicked)));
    assert!(matches!(server.poll(), Output::Timeout(_)));
    server.has_fault = false;
    assert_eq!(server.handle_datagram(start, CLIENT, &[0, 1]), Err(Refused::Ended));
    server.close();
    assert!(matches!(server.poll(), Output::Timeout(_)), "nothing that panicked is called again");
    assert!(!crate::is_guarded());
    let mut kinds = Vec::new();
    drive(start, &mut client, &mut server, CLIENT, &mut kinds);
    assert!(!kinds.is_empty(), "others go on");
}

const ELSEWHERE: Remote = Remote { addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9001), tcp: false };

/// A server and its client that is at `places`; what is sent elsewhere is lost.
struct World {
    now: Instant,
    server: Peer,
    client: Peer,
    places: Vec<Remote>,
    moves: Vec<(Instant, Remote)>,
    ended: Option<EndReason>,
    /// Of our own, by where they went.
    checks: Vec<Remote>,
}

impl World {
    fn connected() -> Self {
        World::connected_by(pair)
    }

    fn connected_by(pair: fn(Instant) -> (Peer, Peer)) -> Self {
        let now = Instant::now();
        let (server, client) = pair(now);
        let (places, moves, checks) = (vec![CLIENT], Vec::new(), Vec::new());
        let mut world = World { now, server, client, places, moves, ended: None, checks };
        for _ in 0..200 {
            world.client.handle_timeout(world.now);
            while let Output::Transmit { data, .. } = world.client.poll() {
                let _ = world.server.handle_datagram(world.now, CLIENT, &data);
                world.drain();
            }
            world.pass(Duration::from_millis(10));
        }
        assert!(world.server.is_connected() && world.moves.is_empty());
        world
    }

    /// Lets time pass, in which the client answers and does nothing else.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(10);
            self.server.handle_timeout(self.now);
            self.drain();
        }
    }

    fn drain(&mut self) {
        loop {
            match self.server.poll() {
                Output::Transmit { remote, data } => {
                    if data.starts_with(&[0, 1]) {
                        self.checks.push(remote);
                    }
                    if !self.places.contains(&remote) {
                        continue;
                    }
                    let _ = self.client.handle_datagram(self.now, SERVER, &data);
                    while let Output::Transmit { data: answer, .. } = self.client.poll() {
                        // Its own checks are made up here.
                        if !answer.starts_with(&[0, 1]) {
                            let _ = self.server.handle_datagram(self.now, remote, &answer);
                        }
                    }
                }
                Output::PathChanged(remote) => self.moves.push((self.now, remote)),
                Output::Ended(reason) => self.ended = Some(reason),
                Output::Connected { .. } | Output::Channel(_) => {}
                Output::Timeout(_) => return,
            }
        }
    }

    fn check(&mut self, from: Remote) -> Result<Received, Refused> {
        let check = self.server.checks.made_up_without_nomination().expect("a check");
        let received = self.server.handle_datagram(self.now, from, &check);
        self.drain();
        received
    }

    fn nominate(&mut self, remote: Remote) {
        let check = self.server.checks.made_up().expect("a check");
        let _ = self.server.handle_datagram(self.now, remote, &check);
        self.drain();
    }
}

#[test]
fn where_the_peer_answers_media_goes_on() {
    let mut world = World::connected();
    world.checks.clear();
    for _ in 0..120 {
        world.pass(Duration::from_secs(1));
        assert!(matches!(world.server.reach.standing(world.now, CLIENT), Standing::Good));
    }
    assert_eq!((world.ended, world.moves), (None, vec![]));
    assert_eq!(world.checks, [CLIENT; 12], "a check in ten seconds");
}

/// Somebody else has the peer's address by now, and the peer, which has left it, forges it.
#[test]
fn forged_checks_do_not_have_media_sent_to_an_address_that_the_peer_has_left() {
    let mut world = World::connected();
    world.places.clear();
    let left = world.now;
    while world.ended.is_none() && world.now < left + Duration::from_secs(120) {
        let _ = world.check(CLIENT);
        world.pass(Duration::from_millis(500));
    }
    assert_eq!(world.ended, Some(EndReason::ConsentLapsed));
    assert!(world.now - left <= Duration::from_millis(30_500), "{:?}", world.now - left);
    assert!(matches!(world.server.poll(), Output::Timeout(_)), "no goodbye goes there either");
}

#[test]
fn consent_for_one_address_is_none_for_another() {
    let mut world = World::connected();
    // It is elsewhere as well, and nominates nothing there.
    world.places = vec![ELSEWHERE];
    assert_eq!(world.check(ELSEWHERE), Ok(Received::Check), "which is to be proved");
    assert_eq!(world.check(ELSEWHERE), Ok(Received::Check), "which is proved, and not where media goes");
    assert!(world.server.is_proved(world.now, ELSEWHERE));
    assert_eq!(world.check(CLIENT), Ok(Received::Consent));
}

/// Clients that nominate once, as most do, cannot know that their NAT has given them another port.
#[test]
fn who_gets_another_port_from_its_nat_is_followed_within_seconds() {
    let mut world = World::connected();
    world.pass(Duration::from_secs(20));
    world.places = vec![ELSEWHERE];
    let moved = world.now;
    let _ = world.check(ELSEWHERE);
    world.pass(Duration::from_millis(3_100));
    let after: Vec<_> = world.moves.iter().map(|(at, remote)| (*at - moved, *remote)).collect();
    assert_eq!(after, [(Duration::from_secs(3), ELSEWHERE)]);
    assert_eq!(world.check(ELSEWHERE), Ok(Received::Consent));
    world.pass(Duration::from_secs(120));
    assert_eq!((world.ended, world.moves.len()), (None, 1), "and lives on there");
}

#[test]
fn who_answers_at_two_addresses_stays_where_it_has_nominated() {
    let mut world = World::connected();
    world.places = vec![CLIENT, ELSEWHERE];
    for _ in 0..60 {
        let _ = world.check(ELSEWHERE);
        world.pass(Duration::from_secs(2));
    }
    assert_eq!((world.ended, world.moves), (None, vec![]));
}

#[test]
fn an_address_that_was_proved_long_ago_is_asked_again_before_media_goes_there() {
    let mut world = World::connected();
    world.places = vec![CLIENT, ELSEWHERE];
    let _ = world.check(ELSEWHERE);
    world.pass(Duration::from_secs(31));
    world.places = vec![CLIENT];
    world.nominate(ELSEWHERE);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.moves, [], "it has left it");
    world.places = vec![CLIENT, ELSEWHERE];
    world.nominate(ELSEWHERE);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.moves.iter().map(|(_, remote)| *remote).collect::<Vec<_>>(), [ELSEWHERE]);
}

#[test]
fn restarts_of_ice_are_no_consent() {
    let mut world = World::connected();
    world.places.clear();
    let left = world.now;
    let mut restarts = 0;
    while world.ended.is_none() && world.now < left + Duration::from_secs(120) {
        let restart = world.client.start_restart().unwrap();
        restarts += usize::from(world.server.handle_fragment(&restart).is_ok());
        let _ = world.check(CLIENT);
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.ended, Some(EndReason::ConsentLapsed));
    assert!(restarts >= 9, "{restarts}");
    assert!(world.now - left <= Duration::from_secs(31));
}

#[test]
fn who_alternates_between_two_addresses_moves_so_often_and_ends_where_it_was_last() {
    let mut world = World::connected();
    world.places = vec![CLIENT, ELSEWHERE];
    world.pass(Duration::from_secs(6));
    for _ in 0..500 {
        world.nominate(ELSEWHERE);
        world.nominate(CLIENT);
        world.pass(Duration::from_millis(10));
    }
    world.nominate(ELSEWHERE);
    assert!(world.moves.len() <= 4 + 5, "{}", world.moves.len());
    world.pass(Duration::from_secs(2));
    assert_eq!(world.moves.last().map(|(_, remote)| *remote), Some(ELSEWHERE));
    assert!(world.moves.len() <= 4 + 7 && world.ended.is_none());
}

/// str0m keeps all addresses that it hears of, for as long as the session lasts.
#[cfg(debug_assertions)]
#[test]
fn str0m_hears_nothing_of_addresses_and_restarts() {
    let mut world = World::connected_by(pair_of_str0m);
    world.server.inject_fault(Fault::Session);
    for port in 0..1_000 {
        let remote = Remote { addr: ([192, 0, 2, 1], port).into(), tcp: false };
        if port % 200 == 0 {
            let restart = world.client.start_restart().unwrap();
            world.server.handle_fragment(&restart).unwrap();
        }
        let check = world.server.checks.made_up().unwrap();
        assert_eq!(world.server.handle_datagram(world.now, remote, &check), Ok(Received::Check));
    }
    assert_eq!(world.server.queue.len(), 1_000, "each is answered");
    assert!(world.server.is_connected());
}

/// Whoever knows the user fragment can send what claims to be a check.
#[cfg(debug_assertions)]
#[test]
fn a_panic_over_what_nobody_has_signed_ends_nobody() {
    let mut world = World::connected();
    world.server.inject_fault(Fault::Parser);
    assert_eq!(world.check(CLIENT), Err(Refused::Malformed));
    world.server.checks.has_fault = false;
    assert_eq!(world.check(CLIENT), Ok(Received::Consent));
    assert!(world.ended.is_none() && !crate::is_guarded());
}

#[test]
fn who_says_that_it_is_controlled_hears_that_it_is_not() {
    let mut world = World::connected();
    let check = world.server.checks.local.clone();
    let remote = world.server.checks.remote.clone().unwrap();
    let mut theirs = Checks::new(remote, Context::new().unwrap().crypto.sha1_hmac_provider);
    theirs.remote = Some(check);
    let request = theirs.request([1; 12]).unwrap();
    assert_eq!(world.server.handle_datagram(world.now, ELSEWHERE, &request), Ok(Received::Check));
    let Some(Output::Transmit { data, .. }) = world.server.queue.pop_front() else { panic!("no answer") };
    // Binding error response, with the code in hundreds and the rest (RFC 8489 §14.8).
    assert!(data.starts_with(&[1, 0x11]) && data.windows(2).any(|code| code == [4, 87]), "{data:?}");
    assert!(!world.server.reach.knows(ELSEWHERE));
}
