//! A server's relay, with clients by DTLS.

use std::net::{SocketAddr, UdpSocket};

use crate::common::{Echo, Front, PATIENCE, RELAY, Server, TurnClient, wait_until};

fn start() -> (Server, SocketAddr) {
    let more = ["relay.dtls_listen=127.0.0.1:0", "tls.self_signed=true"];
    let server = Server::start(&[&RELAY[..], &more[..]].concat());
    let shown = server.ask("GET", "/api/relay", &[], "").body;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let addr = shown["dtls_listen"][0].as_str().and_then(|addr| addr.parse().ok());
    (server, addr.unwrap_or_else(|| panic!("{shown}")))
}

/// What all workers have counted.
fn counted(server: &Server, name: &str) -> f64 {
    let of = |worker| server.metric(&format!("millrace_relay_{name}{{worker=\"{worker}\"}}"));
    [0, 1].map(of).iter().sum()
}

#[test]
fn clients_of_every_worker_reach_peers_and_leave_nothing_behind() {
    let ((server, relay), echo) = (start(), Echo::start());
    let mut clients: Vec<_> = (0..16_u16)
        .map(|index| {
            let front = Front::connect(relay);
            let mut client = TurnClient::new(front.addr);
            client.allocate();
            assert_eq!(client.bind(0x4000, echo.addr), 0);
            for len in [1, 100, 1_200] {
                let data = vec![index as u8; len];
                assert_eq!(client.echo_on(0x4000, &data), data);
            }
            (front, client)
        })
        .collect();
    let (_, client) = &mut clients[0];
    client.send_to(echo.addr, b"hello");
    let came = client.receive(PATIENCE).expect("the channel permits it, too");
    assert_eq!(&came[4..], b"hello");
    for name in ["dtls_associations", "dtls_handshakes_done_total", "allocations"] {
        wait_until(name, || counted(&server, name) == 16.0);
    }
    drop(clients);
    wait_until("they are gone", || counted(&server, "allocations") == 0.0);
    wait_until("their associations are, too", || counted(&server, "dtls_associations") == 0.0);
}

/// The hello of OpenSSL's client, shortened: the cookie is empty.
fn hello() -> Vec<u8> {
    let body = [&[0xfe, 0xfd][..], &[9; 32], &[0, 0, 0, 2, 0xc0, 0x2b, 1, 0]].concat();
    let len = body.len() as u8;
    let header = [22, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, len + 12];
    [&header[..], &[1, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, len], &body].concat()
}

#[test]
fn a_flood_of_hellos_leaves_nothing_behind_and_clients_unharmed() {
    let ((server, relay), echo) = (start(), Echo::start());
    let front = Front::connect(relay);
    let mut client = TurnClient::new(front.addr);
    client.allocate();
    client.bind(0x4000, echo.addr);
    let (hello, mut answered) = (hello(), 0);
    for last in 1..=250 {
        let stranger = UdpSocket::bind(SocketAddr::from(([127, 0, 1, last], 0))).expect("loopback");
        stranger.connect(relay).expect("loopback");
        stranger.set_read_timeout(Some(PATIENCE)).expect("a time");
        for _ in 0..20 {
            stranger.send(&hello).expect("loopback");
        }
        let mut buf = [0; 2_000];
        let len = stranger.recv(&mut buf).expect("an answer");
        assert!(len < hello.len() && buf[13] == 3, "{:?}", &buf[..len]);
        answered += 1;
    }
    assert_eq!(client.echo_on(0x4000, b"still"), b"still");
    wait_until("they are counted", || counted(&server, "dtls_cookies_total") > f64::from(answered));
    wait_until("none goes on", || counted(&server, "dtls_handshakes") == 0.0);
    assert_eq!(counted(&server, "dtls_handshakes_begun_total"), 1.0, "the client's");
}
