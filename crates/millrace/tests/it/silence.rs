//! Who says nothing for `rooms.idle_timeout` is removed; connectivity checks alone count as a sign of life (RFC 7675).

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

const VIEWERS: &str = "millrace_sessions{role=\"viewer\",state=\"connected\"}";

#[test]
fn a_silent_viewer_is_removed_and_one_that_checks_stays() {
    let server = Server::start(&["rooms.idle_timeout=5s"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut silent = Viewer::join(&server, "news", Way::Udp4);
    let mut lively = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut silent, &mut lively], 100);
    wait_until("both are counted", || server.metric(VIEWERS) == 2.0);

    wait_until("one viewer is left", || {
        publisher.pump();
        lively.pump();
        server.metric(VIEWERS) < 2.0
    });
    // As long again, so that the other had its chance to be forgotten.
    publisher.play(&mut [&mut lively], 4 * 50 * 6);

    assert_eq!(server.metric(VIEWERS), 1.0);
    assert_eq!(server.ask("GET", &format!("{}/stats", silent.client.resource), &[], "").status, 404);
    publisher.finish(&mut [&mut lively]);
    lively.assert_whole(0, &publisher);
}
