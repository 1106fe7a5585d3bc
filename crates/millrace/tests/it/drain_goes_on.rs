//! While the server drains, those who watch go on watching.

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

#[test]
fn viewers_watch_on_until_the_second_signal() {
    let mut server = Server::start(&["http.drain_timeout=60s"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut viewer], 100);

    server.terminate();
    wait_until("the server drains", || {
        publisher.pump();
        viewer.pump();
        server.ask("GET", "/healthz", &[], "").status == 503
    });
    for endpoint in ["/whip/other", "/whep/news"] {
        let refused = server.ask("POST", endpoint, &["Content-Type: application/sdp"], "v=0\r\n");
        assert_eq!((refused.status, refused.header("retry-after")), (503, "5"), "{endpoint}");
    }
    publisher.play(&mut [&mut viewer], 200);
    publisher.finish(&mut [&mut viewer]);
    viewer.assert_whole(0, &publisher);

    server.terminate();
    let mut status = None;
    wait_until("the process ends", || {
        viewer.pump();
        status = status.or(server.ended());
        status.is_some()
    });
    viewer.pump();
    assert_eq!(status.expect("it has ended").code(), Some(0));
    assert!(viewer.client.has_ended, "goodbye was said");
}
