//! Where UDP does not get through, media goes over one TCP connection (ICE-TCP, framed by RFC 4571).

use std::time::{Duration, Instant};

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

#[test]
fn a_viewer_over_tcp_gets_every_packet_beside_one_over_udp() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut over_tcp = Viewer::join(&server, "news", Way::Tcp);
    let mut over_udp = Viewer::join(&server, "news", Way::Udp4);

    publisher.play(&mut [&mut over_tcp, &mut over_udp], 400);
    publisher.finish(&mut [&mut over_tcp, &mut over_udp]);

    over_tcp.assert_whole(0, &publisher);
    over_udp.assert_whole(0, &publisher);
}

#[test]
fn a_publisher_over_tcp_reaches_viewers() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Tcp, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);

    publisher.play(&mut [&mut viewer], 400);
    publisher.finish(&mut [&mut viewer]);

    viewer.assert_whole(0, &publisher);
}

#[test]
fn a_viewer_whose_connection_is_cut_is_gone_when_it_was_silent_for_long() {
    const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
    let server = Server::start(&["rooms.idle_timeout=5s"]);
    let _publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let joining = Instant::now();
    let viewer = Viewer::join(&server, "news", Way::Tcp);
    let resource = viewer.client.resource.clone();
    let stats = || server.ask("GET", &format!("{resource}/stats"), &[], "");
    wait_until("the worker has the session", || stats().body.contains(r#""connected":true"#));

    drop(viewer);

    wait_until("the connection is gone", || server.metric("millrace_worker_tcp_links") == 0.0);
    wait_until("the session is gone", || stats().status == 404);
    assert!(joining.elapsed() >= IDLE_TIMEOUT, "it might have come back by another way");
}
