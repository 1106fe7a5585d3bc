//! A viewer over TCP who stops reading harms only itself, and finds its way back when it reads again.

use crate::common::{Publisher, Server, Viewer, Way, wait_until};

#[test]
fn a_viewer_over_tcp_who_does_not_read_holds_nobody_up() {
    // Faster than any viewer would be sent to otherwise, to be done sooner.
    let server = Server::start(&["workers.count=1", "rooms.burst_rate_min=1000Mbps"]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut stuck = Viewer::join(&server, "news", Way::Tcp);
    let mut other = Viewer::join(&server, "news", Way::Udp4);
    publisher.play(&mut [&mut stuck, &mut other], 50);
    publisher.finish(&mut [&mut other]);
    // What was sent before it came.
    let missed = publisher.sent.len() - other.received.len();

    // Until the kernel's buffers are full, and the worker's too.
    let dropped = || server.metric("millrace_worker_dropped_tcp_full_total");
    for round in 0.. {
        assert!(round < 200, "{} packets were sent and none was dropped", publisher.sent.len());
        for _ in 0..40 {
            publisher.send_frame();
            // No faster than the server and this test come along, or buffers between them overflow.
            wait_until("the other gets what is sent", || {
                publisher.listen();
                other.pump();
                missed + other.received.len() + 40 >= publisher.sent.len()
            });
        }
        if dropped() > 1_000.0 {
            break;
        }
    }
    publisher.finish(&mut [&mut other]);
    other.assert_whole(0, &publisher);

    let had = publisher.sent.len();
    wait_until("what is new comes again to who reads again", || {
        publisher.pump();
        stuck.pump();
        other.pump();
        let newest = &stuck.received.last().expect("packets").payload;
        publisher.sent[had..].iter().any(|sent| sent.payload == *newest)
    });
}
