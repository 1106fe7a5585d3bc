//! What one client takes leaves room for the others, also behind a proxy.

use std::time::Instant;

use webrtc::{Context, Direction, OfferOptions, Peer};
use wire::codec::Codec;

use crate::common::Server;

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

    assert_eq!(publish("192.0.2.1").status, 201);
    let refused = publish("192.0.2.1");
    assert_eq!((refused.status, refused.header("retry-after")), (429, "5"), "{}", refused.body);
    // What the client wrote itself is not believed, what its proxy put behind it is.
    assert_eq!(publish("192.0.2.7, 192.0.2.1").status, 429);
    assert_eq!(publish("192.0.2.2").status, 201);
    assert_eq!(server.metric("millrace_offers_too_many_waiting_total"), 2.0);
}
