//! A viewer that changes networks restarts ICE by PATCH (RFC 9725 §4.3.2) and misses nothing.

use crate::common::{FRAGMENT, Publisher, Server, Viewer, Way, restart_from_another_address, wait_until};

#[test]
fn media_follows_a_viewer_to_its_new_address() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 100);

    restart_from_another_address(&server, &mut viewer.client);
    wait_until("media comes to the new address", || {
        publisher.pump();
        viewer.pump();
        viewer.client.has_moved
    });
    // Nothing comes to the old address any more.
    viewer.pump();
    viewer.client.forget_old_address();
    publisher.play(&mut [&mut viewer], 200);
    publisher.finish(&mut [&mut viewer]);

    viewer.sort();
    viewer.assert_whole(0, &publisher);
    wait_until("it is counted", || server.metric("millrace_handshake_restarts_total") == 1.0);
}

#[test]
fn a_publisher_is_heard_from_its_new_address() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 100);

    restart_from_another_address(&server, &mut publisher.client);
    publisher.play(&mut [&mut viewer], 200);
    // What came from the new address before it was nominated is not taken, but asked for again.
    publisher.finish_with_repairs(&mut [&mut viewer]);

    viewer.assert_whole(0, &publisher);
}

#[test]
fn a_fragment_for_another_ice_session_is_refused() {
    let server = Server::start(&[]);
    let _publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    let fragment = viewer.client.peer.start_restart().unwrap();

    let resource = &viewer.client.resource;
    assert_eq!(server.ask("PATCH", resource, &[FRAGMENT, "If-Match: \"other\""], &fragment).status, 412);
    assert_eq!(server.ask("PATCH", resource, &[FRAGMENT], &fragment).status, 428);
    assert_eq!(server.metric("millrace_handshake_restarts_total"), 0.0);
}
