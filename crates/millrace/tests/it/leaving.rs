//! DELETE on a session's resource ends it at once (RFC 9725 §4.2), and nobody else's.

use std::time::{Duration, Instant};

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

#[test]
fn a_viewer_that_leaves_gets_a_goodbye_and_nothing_more() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut leaver = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut leaver, &mut other], 100);

    leaver.client.leave(&server);
    wait_until("goodbye is said", || {
        leaver.pump();
        leaver.client.has_ended
    });
    // The worker may hear of it after the viewer. What it had sent until then is here.
    wait_until("its worker has let it go", || {
        publisher.pump();
        leaver.pump();
        server.metric("millrace_rooms_sessions") == 2.0
    });
    leaver.pump();
    let had = leaver.received.len();
    play_for(Duration::from_millis(300), &mut publisher, &mut leaver);

    assert_eq!(leaver.received.len(), had, "no packet comes after the goodbye");
    assert_eq!(server.ask("DELETE", &leaver.client.resource, &[], "").status, 404);
    publisher.finish(&mut [&mut other]);
    other.assert_whole(0, &publisher);
}

#[test]
fn a_publisher_that_leaves_takes_its_stream_along() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut other], 100);

    publisher.client.leave(&server);

    wait_until("all are told", || {
        publisher.listen();
        one.pump();
        other.pump();
        publisher.client.has_ended && one.client.has_ended && other.client.has_ended
    });
    assert_eq!(server.stream_state("news"), "", "it is not listed");
    // The page with numbers is made anew now and then.
    wait_until("nobody is counted", || {
        server.metric("millrace_rooms_streams") == 0.0 && server.metric("millrace_rooms_sessions") == 0.0
    });
}

#[test]
fn a_goodbye_by_dtls_alone_ends_the_session_but_keeps_the_stream_for_a_return() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut leaver = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut leaver, &mut other], 100);

    leaver.client.peer.close();
    publisher.client.peer.close();

    wait_until("both are gone, and the other is not", || {
        leaver.client.pump();
        publisher.client.pump();
        other.pump();
        server.metric("millrace_rooms_viewers") == 1.0 && server.metric("millrace_rooms_publishers") == 0.0
    });
    assert_eq!(server.stream_state("news"), "interrupted");
    let mut returned = Publisher::join(&server, "news", Way::Udp4, 2);
    let before = other.received.len();
    returned.play(&mut [&mut other], 100);
    returned.finish(&mut [&mut other]);
    other.assert_whole(before, &returned);
}

fn play_for(time: Duration, publisher: &mut Publisher, viewer: &mut Viewer) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        publisher.pump();
        viewer.pump();
        std::thread::sleep(Duration::from_millis(1));
    }
}
