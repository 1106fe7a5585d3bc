//! Framed listeners: datagrams are found however their bytes are cut, and leave as they came.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::common::{EchoWorker, Heard, PATIENCE};
use engine::Socket;
use wire::framing::Framing;
use wire::{CloseReason, LinkKind, ListenOptions, StreamOptions, Token};

const TOKEN: Token = Token { owner: 1, number: 5 };

fn start(framing: Framing) -> EchoWorker {
    let stream = StreamOptions { framing: Some(framing), frame_max: 1_000, ..StreamOptions::default() };
    let options = ListenOptions { stream, ..ListenOptions::default() };
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    EchoWorker::start(vec![Socket::listener(TOKEN, addr, options)])
}

/// A connection, once the worker has it.
fn connect(worker: &EchoWorker) -> TcpStream {
    let stream = TcpStream::connect(worker.handle.sockets()[0].local).expect("connect");
    stream.set_nodelay(true).expect("an option");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let Heard::Opened { token, link, local, remote } = worker.hear() else { panic!("it is told first") };
    assert_eq!((token, link.kind()), (TOKEN, LinkKind::Framed));
    assert_eq!((Some(local), remote), (stream.peer_addr().ok(), stream.local_addr().ok()));
    stream
}

/// Datagrams of some lengths, and the bytes that they are on a stream.
fn datagrams(framing: Framing) -> (Vec<Vec<u8>>, Vec<u8>) {
    let stun = |attributes: u8| {
        let mut stun = vec![0, 1, 0, attributes];
        stun.resize(20 + usize::from(attributes), 7);
        stun
    };
    let channel_data = |len: u8| [vec![0x40, 0x01, 0, len], (0..len).collect()].concat();
    let datagrams = match framing {
        Framing::Length16 => vec![vec![1], vec![2; 30], vec![3; 3], (0..40).collect()],
        Framing::Turn => vec![channel_data(1), stun(0), channel_data(8), stun(12), channel_data(3), channel_data(0)],
    };
    let mut bytes = Vec::new();
    for datagram in &datagrams {
        let wrapping = framing.wrap(datagram.len()).expect("short");
        bytes.extend([wrapping.header(), datagram, wrapping.padding()].concat());
    }
    (datagrams, bytes)
}

/// Writes bytes, and waits until the worker has had them.
fn write(worker: &EchoWorker, stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("written");
    worker.settle();
}

/// Expects that the datagrams were heard one by one, and that they come back as the bytes that they were.
fn expect(worker: &EchoWorker, stream: &mut TcpStream, datagrams: &[Vec<u8>], bytes: &[u8]) {
    for datagram in datagrams {
        let Heard::Run { token, segments, .. } = worker.hear() else { panic!("a datagram is heard") };
        assert_eq!((token, &segments[..]), (TOKEN, std::slice::from_ref(datagram)));
    }
    let mut got = vec![0; bytes.len()];
    stream.read_exact(&mut got).expect("they come back");
    assert_eq!(got, bytes);
}

#[test]
fn frames_are_found_wherever_they_are_cut() {
    for framing in [Framing::Length16, Framing::Turn] {
        let worker = start(framing);
        let mut stream = connect(&worker);
        let (datagrams, bytes) = datagrams(framing);
        for cut in 0..=bytes.len() {
            for part in [&bytes[..cut], &bytes[cut..]] {
                if !part.is_empty() {
                    write(&worker, &mut stream, part);
                }
            }
            expect(&worker, &mut stream, &datagrams, &bytes);
        }
        for byte in bytes.chunks(1) {
            write(&worker, &mut stream, byte);
        }
        expect(&worker, &mut stream, &datagrams, &bytes);
        assert_eq!(worker.handle.counters().tcp_frame_errors, 0);
    }
}

#[test]
fn what_is_no_frame_ends_the_link_and_no_other() {
    let length16: &[&[u8]] = &[&[0x03, 0xe7, 1, 2], &[0xff, 0xff]];
    let turn: &[&[u8]] = &[&[0x80], &[0xff; 4], &[0, 1, 0, 3], &[0x40, 0, 0x03, 0xe8], &[0, 1, 0x03, 0xe8]];
    for (framing, bad) in [(Framing::Length16, length16), (Framing::Turn, turn)] {
        let worker = start(framing);
        let mut other = connect(&worker);
        let (datagrams, bytes) = datagrams(framing);
        for bad in bad {
            let mut stream = connect(&worker);
            stream.write_all(&bytes).expect("written");
            expect(&worker, &mut stream, &datagrams, &bytes);
            stream.write_all(bad).expect("written");
            let (link, reason) = worker.hear_closed();
            assert_eq!((link.kind(), reason), (LinkKind::Framed, CloseReason::BadFrame), "{bad:?}");
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        }
        other.write_all(&bytes).expect("written");
        expect(&worker, &mut other, &datagrams, &bytes);
        drop(other);
        assert_eq!(worker.hear_closed().1, CloseReason::Ended);
    }
}
