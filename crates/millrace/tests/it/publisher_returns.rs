//! A publisher that vanishes and comes back under the same name finds its viewers there, and they just watch on.

use std::time::Instant;

use crate::common::{Client, Publisher, Server, Viewer, Way, wait_until};
use webrtc::{Context, Direction, OfferOptions, Peer};
use wire::codec::Codec;

#[test]
fn viewers_keep_their_session_while_the_publisher_is_away() {
    let server = Server::start(&["rooms.idle_timeout=5s", "rooms.reconnect_grace=60s"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut other], 200);
    publisher.finish(&mut [&mut one, &mut other]);
    assert_eq!(server.stream_state("news"), "live");

    drop(publisher);
    wait_until("the stream is listed as interrupted", || {
        one.pump();
        other.pump();
        server.stream_state("news") == "interrupted"
    });
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 2);

    goes_on(&mut publisher, [one, other]);
    assert_eq!(server.stream_state("news"), "live");
}

#[test]
fn a_publisher_that_returns_before_it_was_missed_takes_its_own_place() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut other], 200);
    publisher.finish(&mut [&mut one, &mut other]);

    let mut returned = Publisher::join(&server, "news", Way::Udp4, 2);

    goes_on(&mut returned, [one, other]);
    wait_until("the one before is told to go", || {
        publisher.listen();
        publisher.client.has_ended
    });
    assert_eq!(server.stream_state("news"), "live");
}

#[test]
fn a_publisher_that_returns_with_other_tracks_begins_a_new_stream() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 50);

    let _returned = Client::join(&server, "/whip/news", Way::Udp4, &WITH_SOUND);

    wait_until("those who cannot go on are told", || {
        publisher.listen();
        viewer.pump();
        publisher.client.has_ended && viewer.client.has_ended
    });
    wait_until("the new stream is there", || server.stream_state("news") == "live");
    let viewer = Viewer::join(&server, "news", Way::Udp4);
    assert!(!viewer.client.has_ended);
}

#[test]
fn an_offer_that_never_connects_ends_nobody() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut other], 50);
    publisher.finish(&mut [&mut one, &mut other]);

    let context = Context::new().expect("a certificate");
    let (_, offer) = Peer::offer(&context, Instant::now(), &WITH_SOUND).expect("an offer");
    let answer = server.ask("POST", "/whip/news", &["Content-Type: application/sdp"], &offer);
    assert_eq!(answer.status, 201, "{}", answer.body);

    publisher.play(&mut [&mut one, &mut other], 50);
    publisher.finish(&mut [&mut one, &mut other]);
    for viewer in [one, other] {
        viewer.assert_whole(0, &publisher);
        assert!(!viewer.client.has_ended);
    }
    assert!(!publisher.client.has_ended);
    assert_eq!(server.stream_state("news"), "live");
}

/// Other tracks than publishers here have.
const WITH_SOUND: OfferOptions<'static> = OfferOptions {
    direction: Direction::Send,
    audio: true,
    video: &[Codec::Vp8],
    rids: &[],
    stream: "news",
    tcp: false,
};

/// Plays, and asserts that the viewers get all of it, numbered and timed on from what they had.
fn goes_on(publisher: &mut Publisher, mut viewers: [Viewer; 2]) {
    let before: Vec<_> = viewers.iter().map(|viewer| viewer.received.len()).collect();
    let [one, other] = &mut viewers;
    publisher.play(&mut [one, other], 200);
    publisher.finish(&mut [one, other]);

    for (viewer, before) in viewers.iter().zip(before) {
        viewer.assert_whole(before, publisher);
        let [last, first] = [&viewer.received[before - 1], &viewer.received[before]];
        assert_eq!(last.seq.distance_to(first.seq), 1, "the numbers go on");
        assert!((first.timestamp.wrapping_sub(last.timestamp) as i32) > 0, "time goes on");
        assert!(!viewer.client.has_ended);
    }
}
