//! What is lost between the publisher and the server is asked for by the server, so that viewers miss nothing.

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

#[test]
fn viewers_get_packets_that_were_lost_on_the_way_to_the_server() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut one = Viewer::join(&server, "news", Way::Udp4);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut one, &mut other], 50);

    publisher.loses = |index| index % 23 == 7;
    publisher.play(&mut [&mut one, &mut other], 400);
    publisher.loses = |_| false;
    publisher.play(&mut [&mut one, &mut other], 50);
    publisher.finish(&mut [&mut one, &mut other]);
    wait_until("the last repairs are through", || {
        publisher.listen();
        one.pump();
        other.pump();
        one.received.len() == other.received.len() && one.received.len() == publisher.sent.len()
    });

    assert!(publisher.resent >= 15, "{} packets were asked for", publisher.resent);
    for viewer in [&mut one, &mut other] {
        viewer.sort();
        viewer.assert_whole(0, &publisher);
    }
}
