//! A viewer that changes networks restarts ICE by PATCH (RFC 9725 §4.3.2) and misses nothing.

use crate::common::{Client, Publisher, Server, Viewer, Way, wait_until};

const FRAGMENT: &str = "Content-Type: application/trickle-ice-sdpfrag";

#[test]
fn media_follows_a_viewer_to_its_new_address() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 100);

    restart_from_another_address(&server, &mut viewer.client);
    publisher.play(&mut [&mut viewer], 100);
    // Nothing comes to the old address any more.
    viewer.client.forget_old_address();
    publisher.play(&mut [&mut viewer], 200);
    publisher.finish(&mut [&mut viewer]);

    viewer.assert_whole(0, &publisher);
    assert_eq!(server.metric("millrace_handshake_restarts_total"), 1.0);
}

#[test]
fn a_publisher_is_heard_from_its_new_address() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 100);

    restart_from_another_address(&server, &mut publisher.client);
    publisher.play(&mut [&mut viewer], 200);
    publisher.finish(&mut [&mut viewer]);
    // What came from the new address before it was nominated is not taken, but asked for again.
    wait_until("the viewer has all", || {
        publisher.listen();
        viewer.pump();
        viewer.received.len() >= publisher.sent.len()
    });

    viewer.sort();
    viewer.assert_whole(0, &publisher);
}

#[test]
fn a_fragment_for_another_ice_session_is_refused() {
    let server = Server::start(&[]);
    let _publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    let fragment = viewer.client.peer.start_restart();

    let resource = &viewer.client.resource;
    assert_eq!(server.ask("PATCH", resource, &[FRAGMENT, "If-Match: \"other\""], &fragment).status, 412);
    assert_eq!(server.ask("PATCH", resource, &[FRAGMENT], &fragment).status, 428);
    assert_eq!(server.metric("millrace_handshake_restarts_total"), 0.0);
}

/// What a browser does whose network has changed.
fn restart_from_another_address(server: &Server, client: &mut Client) {
    let fragment = client.peer.start_restart();
    let if_match = format!("If-Match: {}", client.etag);
    let answer = server.ask("PATCH", &client.resource, &[FRAGMENT, &if_match], &fragment);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_ne!(answer.header("etag"), client.etag, "another ICE session has another name");
    client.change_address();
    client.peer.accept_restart(&answer.body).expect("a fragment that fits");
}
