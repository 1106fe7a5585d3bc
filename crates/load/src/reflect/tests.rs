//! The load against a small HTTP server in this process, which can be told to do its work badly.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use wire::Bitrate;
use wire::ts::PACKET_LEN;

use super::source::{Place, Source};
use super::*;
use crate::clients::typed;

/// What the server does with the stream of one viewer, which it has read in pieces of a packet.
type Way = fn(packet: usize, bytes: &mut Vec<u8>);

/// A server that reads the stream from `source` for each viewer, does `way` to it, and passes it on. It is there until the
/// process ends.
fn server(source: SocketAddr, way: Way) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            thread::spawn(move || serve(socket.unwrap(), source, way));
        }
    });
    addr
}

/// Ends when either side does.
fn serve(mut viewer: TcpStream, source: SocketAddr, way: Way) -> Option<()> {
    let mut source = TcpStream::connect(source).ok()?;
    source.write_all(&head(&mut viewer)?).ok()?;
    viewer.write_all(&head(&mut source)?).ok()?;
    for packet in 0.. {
        let mut bytes = vec![0; PACKET_LEN];
        source.read_exact(&mut bytes).ok()?;
        way(packet, &mut bytes);
        viewer.write_all(&bytes).ok()?;
    }
    None
}

/// What comes up to an empty line, and nothing behind that.
fn head(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.extend_from_slice(&byte);
    }
    Some(head)
}

/// A source of a stream that has 26 packets in a round, ten times a second.
fn source() -> (Source, SocketAddr) {
    let stream = Stream::new(Bitrate::from_kbps(400), Duration::from_millis(100)).unwrap();
    let place = Place::Here("127.0.0.1:0".parse().unwrap());
    let source = Source::start(Arc::new(stream), place, Duration::from_millis(5)).unwrap();
    let addr = source.addr.unwrap();
    (source, addr)
}

fn args(words: &str) -> Args {
    let line = format!("--url http://127.0.0.1:9 --rate 400k --interval 0.1 --json --warm-up 0.1 {words}");
    typed(&line.split_whitespace().collect::<Vec<_>>()).unwrap()
}

fn measured(way: Way, words: &str) -> Report {
    let (_source, addr) = source();
    let server = server(addr, way);
    measure(&args(&format!("--made --stream http://{server}/live.ts --seconds 1 --stall 10000 {words}"))).unwrap()
}

fn unchanged(_: usize, _: &mut Vec<u8>) {}

#[test]
fn everybody_gets_all_of_a_stream_that_is_passed_on_as_it_is() {
    let report = measured(unchanged, "--viewers 12 --sample 3 --threads 2");
    assert_eq!((report.viewers, report.ended, report.stalls), (12, 0, 0), "{report}");
    assert_eq!((report.checked, report.others, report.lost), (Faults::default(), Faults::default(), 0), "{report}");
    assert!(report.bytes > 12 * 10_000 && report.latency.count > 3 * 50, "{report}");
    assert_eq!((report.first_byte.count, report.picture.count), (12, 12), "{report}");
    assert!(report.failures(&Limits { max_faults: Some(0), max_missing: Some(0), ..Limits::default() }).is_empty());
}

#[test]
fn those_who_are_read_in_turn_get_it_too() {
    let report = measured(unchanged, "--viewers 6 --sample 1 --read-every 20");
    assert_eq!((report.viewers, report.stalls, report.faults(), report.lost), (6, 0, 0, 0), "{report}");
    assert!(report.least_mbit_per_second > 0.1, "{report}");
}

#[test]
fn what_a_server_does_wrong_is_found_with_those_who_are_looked_at_in_part_too() {
    let missing = measured(
        |packet, bytes| {
            if packet % 50 == 49 {
                bytes.clear()
            }
        },
        "--viewers 4 --sample 2",
    );
    assert!(missing.checked.gaps > 2 && missing.others.gaps > 0 && missing.lost > 0, "{missing}");
    let again = measured(
        |packet, bytes| {
            if packet % 50 == 49 {
                bytes.extend_from_within(..)
            }
        },
        "--viewers 2 --sample 1",
    );
    assert!(again.checked.repeats > 2 && again.others.repeats > 0, "{again}");
    let torn = measured(
        |packet, bytes| {
            if packet % 50 == 49 {
                bytes.truncate(100)
            }
        },
        "--viewers 4 --sample 2",
    );
    assert!(torn.checked.torn > 2 && torn.others.torn > 0, "{torn}");
    // Of these every packet is looked at.
    let damaged = measured(
        |packet, bytes| {
            if packet % 50 == 49 {
                bytes[150] ^= 1
            }
        },
        "--viewers 2 --sample 2",
    );
    assert!(damaged.checked.damaged > 2 && damaged.checked.gaps == 0, "{damaged}");
    for report in [missing, again, torn, damaged] {
        assert_eq!(report.failures(&Limits { max_faults: Some(0), ..Limits::default() }).len(), 1, "{report}");
    }
}

#[test]
fn who_reads_slowly_or_never_is_there_and_who_passes_comes_anew() {
    let report = measured(unchanged, "--viewers 20 --sample 2 --slow 10@40k --deaf 10 --churn 20 --stay 0.5");
    assert_eq!((report.viewers, report.stalls, report.faults(), report.lost), (20, 0, 0, 0), "{report}");
    assert_eq!(report.first_byte.count, 18, "{report}");
    assert!(report.passing_first_byte.count > 3 && report.passing_picture.count > 1, "{report}");
    assert!(report.failures.is_empty(), "{report}");
}

#[test]
fn a_pause_of_the_server_is_a_stall_of_all_its_viewers() {
    let pauses: Way = |packet, _| {
        // Once in a second of the stream.
        if packet % 266 == 150 {
            thread::sleep(Duration::from_millis(400));
        }
    };
    let addr = free_addr(1);
    let server = server(addr, pauses);
    let words = format!("--origin {addr} --stream http://{server}/ --viewers 3 --sample 1 --stall 200 --at-once");
    let report = measure(&args(&format!("{words} --seconds 2"))).unwrap();
    assert!(report.stalls >= 3 && report.stall.count >= 3 && report.stall.p50_ms >= 200.0, "{report}");
    assert_eq!((report.faults(), report.lost), (0, 0), "{report}");
}

#[test]
fn a_stream_of_others_is_counted() {
    let (_source, addr) = source();
    let report = measure(&args(&format!("--stream http://{addr}/ --viewers 5 --seconds 0.5"))).unwrap();
    assert_eq!((report.viewers, report.latency.count, report.first_byte.count), (5, 0, 5), "{report}");
    assert!(report.bytes > 5 * 5_000, "{report}");
}

#[test]
fn a_stream_that_is_brought_comes_in_chunks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let words = format!("--push http://{}/live/x --push-token secret", listener.local_addr().unwrap());
    let (args, stream) = (args(&words), args(&words).made_stream().unwrap());
    let source = args.start_source(&stream).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let mut heard = vec![0; 4_000];
    socket.read_exact(&mut heard).unwrap();
    let text = String::from_utf8_lossy(&heard);
    assert!(text.starts_with("PUT /live/x HTTP/1.1\r\n") && text.contains("Bearer secret\r\n"), "{text}");
    let body_at = heard.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let (size, rest) = heard[body_at..].split_at(heard[body_at..].iter().position(|byte| *byte == b'\r').unwrap());
    let len = usize::from_str_radix(std::str::from_utf8(size).unwrap(), 16).unwrap();
    assert!(len > 0 && len.is_multiple_of(PACKET_LEN) && rest.starts_with(b"\r\n\x47"), "{len}");
    drop(source);
}

#[test]
fn a_server_without_the_stream_is_said_to_have_none() {
    let addr = free_addr(2);
    let error = measure(&args(&format!("--stream http://{addr}/x --wait 0"))).unwrap_err();
    assert!(format!("{error:#}").contains("has no stream"), "{error:#}");
}

/// An address where nobody listens, nor will: each test has another host.
fn free_addr(host: u8) -> SocketAddr {
    TcpListener::bind((Ipv4Addr::new(127, 77, 3, host), 0)).unwrap().local_addr().unwrap()
}
