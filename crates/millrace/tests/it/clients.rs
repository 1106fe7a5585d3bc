//! What one client takes leaves room for the others, also behind a proxy.

use std::time::{Duration, Instant};

use webrtc::{Context, Direction, OfferOptions, Peer};
use wire::codec::Codec;

use crate::common::Server;

/// For how long an offer waits whose client proves no address.
const WAITING_MAX: Duration = Duration::from_secs(5);

#[test]
fn offers_of_one_client_that_come_to_nothing_leave_room_for_others() {
    let server = Server::start(&["rooms.waiting_per_client=1"]);
    let context = Context::new().expect("a certificate");
    let video = [Codec::Vp8];
    let options =
        OfferOptions { direction: Direction::Send, audio: false, video: &video, rids: &[], stream: "news", tcp: false };
    let (_, offer) = Peer::offer(&context, Instant::now(), &options).expect("an offer");
    let publish = |client: &str| {
        let headers = ["Content-Type: application/sdp".to_owned(), format!("X-Forwarded-For: {client}")];
        server.ask("POST", "/whip/news", &headers.each_ref().map(String::as_str), &offer)
    };

    // On a busy machine the first offer's time may be over, and others have its room.
    let start = Instant::now();
    let mut refused = 0.0;
    let mut is_refused = |client| {
        let answer = publish(client);
        if answer.status == 201 {
            return assert!(start.elapsed() >= WAITING_MAX, "the first one waits");
        }
        assert_eq!((answer.status, answer.header("retry-after")), (429, "5"), "{}", answer.body);
        refused += 1.0;
    };
    assert_eq!(publish("192.0.2.1").status, 201);
    is_refused("192.0.2.1");
    // What the client wrote itself is not believed, what its proxy put behind it is.
    is_refused("192.0.2.7, 192.0.2.1");
    assert_eq!(publish("192.0.2.2").status, 201);
    assert_eq!(server.metric("millrace_offers_too_many_waiting_total"), refused);
}
