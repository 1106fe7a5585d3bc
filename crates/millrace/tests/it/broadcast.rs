//! One publisher, viewers on two workers: each gets every packet, byte for byte, over IPv4 and IPv6.

use crate::common::{Publisher, Server, Viewer, Way};
use srtp::Profile;

#[test]
fn viewers_on_two_workers_get_every_packet_over_ipv4() {
    every_packet_arrives(Way::Udp4);
}

#[test]
fn viewers_on_two_workers_get_every_packet_over_ipv6() {
    every_packet_arrives(Way::Udp6);
}

fn every_packet_arrives(way: Way) {
    let server = Server::start(&[]);
    let mut publisher = Publisher::join(&server, "news", way, 1);
    let mut one = Viewer::join(&server, "news", way);
    // Each worker has a port of its own. How busy they are depends on the machine, and decides where a viewer goes.
    let mut more = std::iter::repeat_with(|| Viewer::join(&server, "news", way)).take(40);
    let mut other =
        more.find(|other| other.client.server.port() != one.client.server.port()).expect("another worker's");

    publisher.play(&mut [&mut one, &mut other], 400);
    publisher.finish(&mut [&mut one, &mut other]);

    for viewer in [&one, &other] {
        viewer.assert_whole(0, &publisher);
        assert!(viewer.repaired.is_empty(), "nothing was asked for again");
    }
    for client in [&publisher.client, &one.client, &other.client] {
        let profile = client.link.as_ref().expect("keys").profile;
        assert!(matches!(profile, Profile::AeadAes128Gcm | Profile::AeadAes256Gcm), "{profile:?}");
    }
}
