//! What a viewer asks for again comes again, as RTX with the same payload (RFC 4588).

use crate::common::{Publisher, Server, Viewer, Way, wait_until};
use wire::rtcp;

#[test]
fn lost_packets_come_again_with_the_same_payload() {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", Way::Udp4, 1);
    let mut viewer = Viewer::join(&server, "news", Way::Udp4);
    // The very first one too, so that numbers before that of the first received are asked for.
    viewer.loses = |index| index % 37 == 0;
    publisher.play(&mut [&mut viewer], 300);
    assert!(viewer.lost.len() >= 5);

    let (lost, (ssrc, _)) = (viewer.lost.clone(), viewer.media.rx[0]);
    viewer.client.send_rtcp(|buf| rtcp::write_nack(buf, 1, ssrc, lost.iter().copied()));
    wait_until("all lost packets come again", || {
        publisher.listen();
        viewer.pump();
        viewer.repaired.len() >= lost.len()
    });

    let first = &viewer.received[0];
    let start = publisher.sent.iter().position(|sent| sent.payload == first.payload).expect("one that was sent");
    for ((seq, payload), asked) in viewer.repaired.iter().zip(&lost) {
        assert_eq!(seq, asked, "in the order of the request");
        let sent = &publisher.sent[start.wrapping_add_signed(first.seq.distance_to(*seq).into())];
        assert_eq!(*payload, sent.payload);
    }
    // A worker publishes its counts after its turn, and the packets may be here before.
    let resent = || server.metric("millrace_rooms_packets_resent_total");
    wait_until("they are counted", || resent() >= lost.len() as f64);
    assert_eq!(resent(), lost.len() as f64);
}
