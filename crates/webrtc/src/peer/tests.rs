//! What str0m does and does not do below a peer.

use str0m::media::MediaKind;
use wire::codec::Codec;

use super::*;
use crate::{Direction, Purpose};

const SERVER: Remote = Remote { addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7000), tcp: false };
const CLIENT: Remote = Remote { addr: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000), tcp: false };

/// Lets `peer` do all that it wants now; the first bytes of what str0m itself sends go to `kinds`.
fn drive(now: Instant, peer: &mut Peer, other: &mut Peer, at: Remote, kinds: &mut Vec<u8>) {
    peer.handle_timeout(now);
    loop {
        match peer.rtc.poll_output().unwrap() {
            str0m::Output::Transmit(sent) => {
                kinds.extend(sent.contents.first());
                let _ = other.handle_datagram(now, at, &sent.contents);
            }
            str0m::Output::Event(Event::Connected) => peer.state = State::DtlsDone,
            str0m::Output::Event(_) => {}
            str0m::Output::Timeout(_) => break,
        }
    }
    while let Some(Output::Transmit { data, .. }) = peer.ask() {
        let _ = other.handle_datagram(now, at, &data);
    }
}

/// A viewer that watches one video track, and the server's side of it.
fn pair(start: Instant) -> (Peer, Peer) {
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
    let purpose = Purpose::Send { tracks: &tracks, profiles: &[], chosen: &[], stream: "s" };
    let candidates = [Candidate { addr: SERVER.addr, tcp: false }];
    let (server, answer) =
        Peer::answer(&context, start, &offer, &AnswerOptions { purpose, candidates: &candidates }).unwrap();
    client.accept_answer(&answer.sdp).unwrap();
    (server, client)
}

/// A viewer without `m=application` that begins an SCTP association (RFC 8831) all the same.
#[test]
fn a_peer_that_speaks_sctp_is_not_answered() {
    let start = Instant::now();
    let (mut server, mut client) = pair(start);
    client.rtc.direct_api().start_sctp(true);
    let (mut from_server, mut from_client) = (Vec::new(), Vec::new());
    for step in 0..500 {
        let now = start + Duration::from_millis(10 * step);
        drive(now, &mut server, &mut client, SERVER, &mut from_server);
        drive(now, &mut client, &mut server, CLIENT, &mut from_client);
    }
    let records = |kinds: &[u8]| kinds.iter().filter(|kind| **kind == 23).count();
    assert!(server.keys.get().is_some() && records(&from_client) > 1, "it asked again and again");
    assert_eq!(records(&from_server), 0);
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
    let (mut server, mut client) = pair(start);
    let mut api = server.rtc.direct_api();
    api.declare_media("0".into(), MediaKind::Video);
    api.declare_stream_tx(1.into(), Some(2.into()), "0".into(), None);
    api.expect_stream_rx(3.into(), None, "0".into(), None);

    let mut kinds = Vec::new();
    for step in 0..1_100 {
        let now = start + Duration::from_millis(10 * step);
        drive(now, &mut server, &mut client, SERVER, &mut kinds);
        drive(now, &mut client, &mut server, CLIENT, &mut kinds);
    }

    assert!(matches!(server.keys.get(), Some(Ok(_))) && server.state == State::DtlsDone);
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
    server.inject_fault();
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
