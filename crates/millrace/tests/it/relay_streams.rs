//! Connections to the relay, TCP and TLS, on which anything comes in any pieces: who is there is served, and nobody else notices.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use crate::common::{
    Cut, Echo, PATIENCE, RELAY, Server, TurnClient, Undisturbed, channel_data, free_addr, relay_of, send_indication,
    wait_until,
};

/// How long nothing has to come before it counts as nothing.
const SILENCE: Duration = Duration::from_millis(300);

/// A server with a relay by UDP, TCP and TLS, a peer, and a client by UDP that is not to notice anything.
struct Place {
    server: Server,
    tcp: SocketAddr,
    tls: SocketAddr,
    echo: Echo,
    undisturbed: Option<Undisturbed>,
}

impl Place {
    fn new(settings: &[&str]) -> Self {
        let tcp = free_addr();
        let tls = std::iter::repeat_with(free_addr).find(|addr| *addr != tcp).expect("another port");
        let more = [format!("relay.tcp_listen={tcp}"), format!("relay.tls_listen={tls}")];
        let more = RELAY.into_iter().chain(["tls.self_signed=true"]).chain(more.iter().map(String::as_str));
        let settings: Vec<&str> = more.chain(settings.iter().copied()).collect();
        let server = Server::start(&settings);
        let echo = Echo::start();
        let undisturbed = Some(Undisturbed::start(relay_of(&server), &echo));
        let parse = |addr: String| addr.parse().expect("an address");
        Place { server, tcp: parse(tcp), tls: parse(tls), echo, undisturbed }
    }

    /// Both ways to it, and whether that is TLS.
    fn ways(&self) -> [(SocketAddr, bool); 2] {
        [(self.tcp, false), (self.tls, true)]
    }

    /// A client by TCP or TLS, whose channel 0x4000 leads to the peer.
    fn client(&self, (addr, is_tls): (SocketAddr, bool), cut: Cut) -> TurnClient {
        let mut client = TurnClient::connected(addr, is_tls, cut);
        client.allocate();
        assert_eq!(client.bind(0x4000, self.echo.addr), 0);
        client
    }

    fn end(mut self) {
        let count = self.undisturbed.take().expect("it was started").end();
        println!("{count} messages came back to another client meanwhile");
        assert_eq!(self.server.ended(), None, "the server is there");
    }
}

#[test]
fn a_session_is_served_when_each_of_its_bytes_comes_alone() {
    let place = Place::new(&["tls.handshake_timeout=60s"]);
    for way in place.ways() {
        let mut client = place.client(way, Cut::Everywhere);
        for len in 1..6 {
            let data = vec![len; usize::from(len)];
            assert_eq!(client.echo_on(0x4000, &data), data);
        }
        client.send_to(place.echo.addr, b"by an indication");
        assert_eq!(client.receive(PATIENCE), Some(channel_data(0x4000, b"by an indication")));
        assert_eq!(client.refresh(600).lifetime, Some(600));
        assert_eq!(client.refresh(0).lifetime, Some(0));
    }
    place.end();
}

#[test]
fn messages_are_found_wherever_their_bytes_are_cut() {
    let place = Place::new(&[]);
    for way in place.ways() {
        let mut client = place.client(way, Cut::Nowhere);
        let line = client.line.connection();
        let indication = send_indication(place.echo.addr, b"four");
        let messages =
            [&channel_data(0x4000, b"seven b")[..], &[0], &indication, &channel_data(0x4000, b"eight by")].concat();
        // Of TLS all of it is one record.
        let len = line.sealed(&[]).len() + messages.len() + if way.1 { 5 + 1 + 16 } else { 0 };
        for at in 1..len {
            let line = client.line.connection();
            line.cut = Cut::At(at);
            line.write(&messages);
            for data in [&b"seven b"[..], b"four", b"eight by"] {
                assert_eq!(client.receive(PATIENCE), Some(channel_data(0x4000, data)), "cut at {at}");
            }
        }
    }
    place.end();
}

#[test]
fn who_says_a_wrong_length_or_nothing_known_is_hung_up_on() {
    let place = Place::new(&[]);
    let errors = || place.server.metric("millrace_worker_tcp_frame_errors_total");
    let before = errors();
    let wrong: [&[u8]; 5] = [
        // STUN: a length that is no multiple of four, and one over what there is.
        &[0, 1, 0, 7],
        &[0, 1, 0xff, 0xfc],
        // Neither STUN nor ChannelData; TLS where there is none any more.
        &[0x80, 0, 0, 4],
        &[0xff; 64],
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0xfc, 0x03, 0x03],
    ];
    for way in place.ways() {
        for bytes in wrong {
            let mut client = place.client(way, Cut::Nowhere);
            client.line.connection().write(bytes);
            client.line.connection().await_end();
        }
        // The same as the first that comes, and HTTP, which would be ChannelData of many bytes.
        for bytes in wrong.into_iter().chain([&b"GET / HTTP/1.1\r\n\r\n"[..]]) {
            let mut stranger = TurnClient::connected(way.0, way.1, Cut::Nowhere);
            stranger.line.connection().write(bytes);
            stranger.line.connection().await_end();
        }
    }
    wait_until("they are counted", || errors() - before == 10.0);
    place.end();
}

#[test]
fn what_is_too_long_or_cut_short_is_no_data_and_what_follows_is() {
    let place = Place::new(&[]);
    for way in place.ways() {
        let mut client = place.client(way, Cut::Nowhere);
        // No datagram is as long as that.
        client.line.connection().write(&[channel_data(0x4000, &vec![7; 65_535]), vec![0]].concat());
        assert_eq!(client.echo_on(0x4000, b""), b"");
        // On a busy machine it may have been sent twice.
        let came = std::iter::repeat_with(|| client.echo_on(0x4000, b"and so on")).find(|came| !came.is_empty());
        assert_eq!(came.as_deref(), Some(&b"and so on"[..]));

        // It says more than comes, and then no more comes: that ends with the connection.
        client.line.connection().write(&[0x40, 0, 0xff, 0xff, 1, 2, 3]);
        assert_eq!(client.receive(SILENCE), None);
        drop(client);
        // Before there is an allocation no message is longer than a request.
        let mut stranger = TurnClient::connected(way.0, way.1, Cut::Nowhere);
        stranger.line.connection().write(&[0, 3, 0x08, 0, 0x21, 0x12, 0xa4, 0x42]);
        stranger.line.connection().await_end();
    }
    place.end();
}

#[test]
fn records_that_are_broken_end_their_connection_and_no_other() {
    let place = Place::new(&[]);
    let record = |client: &mut TurnClient| client.line.connection().sealed(&channel_data(0x4000, b"data"));
    let broken: [fn(&mut Vec<u8>); 5] = [
        |record| record[7] ^= 1,
        // Of TLS 9.9; longer than a record can be; shorter than its tag; of a kind that has no place here.
        |record| record[1] = 9,
        |record| record[3] = 0xff,
        |record| record[3..5].copy_from_slice(&[0, 1]),
        |record| record[0] = 0x16,
    ];
    for damage in broken {
        let mut client = place.client((place.tls, true), Cut::Nowhere);
        let mut bytes = record(&mut client);
        damage(&mut bytes);
        client.line.connection().write_cut(&bytes);
        client.line.connection().await_end();
    }
    // What comes twice was sealed once.
    let mut client = place.client((place.tls, true), Cut::Nowhere);
    let bytes = record(&mut client);
    client.line.connection().write_cut(&[&bytes[..], &bytes].concat());
    client.line.connection().await_end();
    place.end();
}

#[test]
fn connections_that_say_nothing_or_half_of_something_end_in_time() {
    let place = Place::new(&["tls.handshake_timeout=1s"]);
    let beginnings: [&[u8]; 4] = [b"", b"\0", b"\0\x03\0\x08\x21\x12\xa4\x42", b"\x16\x03\x01\x02\0\x01"];
    let mut halves: Vec<TcpStream> = (0..200)
        .map(|index| {
            let mut half = TcpStream::connect(place.ways()[index % 2].0).expect("it listens");
            half.write_all(beginnings[index / 2 % beginnings.len()]).expect("sent");
            half
        })
        .collect();
    for half in &mut halves {
        half.set_read_timeout(Some(PATIENCE)).expect("a time");
        // What TLS says of it, and the end.
        let mut said = Vec::new();
        let ended = half.read_to_end(&mut said);
        let is_reset = ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset);
        assert!((ended.is_ok() || is_reset) && said.len() < 100, "{ended:?} {said:?}");
    }
    let mut client = place.client(place.ways()[1], Cut::Nowhere);
    assert_eq!(client.echo_on(0x4000, b"served"), b"served");
    place.end();
}

#[test]
fn a_client_that_does_not_read_loses_the_newest_and_takes_no_memory() {
    let place = Place::new(&[]);
    for way in place.ways() {
        let mut client = TurnClient::connected(way.0, way.1, Cut::Nowhere);
        let relayed = client.allocate();
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert_eq!(client.bind(0x4000, peer.local_addr().expect("bound")), 0);
        let dropped = || place.server.metric("millrace_worker_dropped_tcp_full_total");
        let resident = || place.server.metric("millrace_process_resident_bytes");
        let (before, mut number) = (dropped(), 0_u32);
        let mut flood = |count: u32| {
            for _ in 0..count {
                let mut data = [0; 1_000];
                data[..4].copy_from_slice(&number.to_be_bytes());
                number += 1;
                peer.send_to(&data, relayed).expect("loopback");
            }
        };
        wait_until("there is no room any more", || {
            flood(200);
            dropped() > before
        });
        // Memory comes in huge pages, and other connections have theirs: what waited would be many times as much.
        let (memory, full) = (resident(), dropped());
        wait_until("many more come, and go nowhere", || {
            flood(2_000);
            dropped() - full > 40_000.0
        });
        assert!(resident() - memory < 10e6, "it grows from {memory} to {} with 40 MB", resident());

        // What waited is whole and in order; then there is room for what is new.
        let sent = number;
        let (mut count, mut next) = (0, 0);
        wait_until("what is sent last comes", || {
            peer.send_to(b"last", relayed).expect("loopback");
            while let Some(came) = client.receive(SILENCE) {
                if came == channel_data(0x4000, b"last") {
                    return true;
                }
                let number = u32::from_be_bytes(came[4..8].try_into().expect("four bytes"));
                assert!(came.len() == 1_004 && number >= next, "{number} instead of {next}");
                (count, next) = (count + 1, number + 1);
            }
            false
        });
        // What came behind it may all be lost, so that nothing is missing of what is there.
        assert!((100..sent).contains(&count), "{count} of {sent} came");
        assert_eq!(client.refresh(600).lifetime, Some(600));
    }
    place.end();
}
