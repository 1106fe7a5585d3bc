//! Connections that are made or handed over, and what happens to them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use crate::common::{EchoWorker, Heard, Order, PATIENCE, eventually, loopback, rests};
use engine::{OpenSocket, Socket, Worker, WorkerConfig};
use wire::{
    Adopted, Bitrate, CloseReason, LinkId, LinkKind, LinkRequest, ListenOptions, StreamOptions, Token, UdpOptions,
};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn token(number: u32) -> Token {
    Token { owner: 2, number }
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// Says something over a stream, and expects it back.
fn talk(mut stream: &TcpStream, text: &[u8]) {
    stream.write_all(text).expect("written");
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).expect("it comes back");
    assert_eq!(back, text);
}

/// The next link that is opened with a token, and its other end.
fn opened(worker: &EchoWorker, number: u32) -> (LinkId, Option<SocketAddr>) {
    worker.hear_of(|heard| match heard {
        Heard::Opened { token: named, link, remote, .. } => {
            assert_eq!(*named, token(number));
            Some((*link, *remote))
        }
        _ => None,
    })
}

fn connect(to: SocketAddr, number: u32) -> LinkRequest {
    LinkRequest::Connect { token: token(number), to, from: None, options: StreamOptions::default() }
}

#[test]
fn a_connection_is_made_and_its_end_is_told() {
    let listener = TcpListener::bind(LOOPBACK).expect("loopback can be bound");
    let to = listener.local_addr().expect("bound");
    let worker = EchoWorker::start(Vec::new());
    worker.request(connect(to, 1));
    let stream = patient(listener.accept().expect("it connects").0);
    let (link, remote) = opened(&worker, 1);
    assert_eq!((link.kind(), remote), (LinkKind::Stream, Some(to)));
    talk(&stream, b"hello");

    worker.request(LinkRequest::WatchWritable { link });
    worker.hear_of(|heard| (*heard == Heard::Writable { link }).then_some(()));
    worker.request(LinkRequest::Pace { link, rate: Bitrate::from_kbps(8_000) });
    talk(&stream, b"paced");
    drop(stream);
    worker.hear_of(|heard| (*heard == Heard::InputEnded { link }).then_some(()));
    worker.request(LinkRequest::Close { link });
    assert_eq!(worker.hear_closed(), (link, CloseReason::Asked));
}

#[test]
fn who_sends_no_more_may_still_read() {
    let worker = EchoWorker::start(vec![Socket::listener(token(1), LOOPBACK, ListenOptions::default())]);
    let mut stream = patient(TcpStream::connect(worker.handle.sockets()[0].local).expect("connect"));
    let (link, _) = worker.hear_opened();
    stream.write_all(b"question").expect("written");
    stream.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(worker.hear(), Heard::Bytes { link, bytes: b"question".to_vec() });
    assert_eq!(worker.hear(), Heard::InputEnded { link });
    worker.order(Order::Write(link, b", answer".to_vec()));
    worker.request(LinkRequest::Close { link });
    let mut got = String::new();
    stream.read_to_string(&mut got).expect("all, and the end");
    assert_eq!(got, "question, answer");
    assert_eq!(worker.hear(), Heard::Closed { token: token(1), link, reason: CloseReason::Asked });
}

#[test]
fn a_connection_that_cannot_be_made_is_told() {
    let listener = TcpListener::bind(loopback(6)).expect("loopback can be bound");
    let gone = listener.local_addr().expect("bound");
    drop(listener);
    let worker = EchoWorker::start(Vec::new());
    worker.request(connect(gone, 7));
    let Heard::Failed { token: named, error, .. } = worker.hear() else { panic!("it fails") };
    assert_eq!((named, error), (token(7), ErrorKind::ConnectionRefused));
    eventually("it is counted", || {
        let counters = worker.handle.counters();
        (counters.tcp_links, counters.links_failed) == (0, 1)
    });
}

#[test]
fn a_connection_comes_from_where_it_is_asked_to() {
    let listener = TcpListener::bind(LOOPBACK).expect("loopback can be bound");
    let to = listener.local_addr().expect("bound");
    let from = SocketAddr::from(([127, 0, 0, 77], 0));
    let worker = EchoWorker::start(Vec::new());
    worker.request(LinkRequest::Connect { token: token(1), to, from: Some(from), options: StreamOptions::default() });
    let (_stream, remote) = listener.accept().expect("it connects");
    assert_eq!(remote.ip(), from.ip());
    let local = worker.hear_opened().1;
    assert_eq!(local, remote);
}

#[test]
fn descriptors_of_every_kind_are_adopted() {
    let worker = EchoWorker::start(Vec::new());
    let adopt = |number, descriptor: OwnedFd, kind| {
        worker.request(LinkRequest::Adopt { token: token(number), descriptor, kind });
    };

    let socket = UdpSocket::bind(LOOPBACK).expect("loopback can be bound");
    let addr = socket.local_addr().expect("bound");
    adopt(1, socket.into(), Adopted::Udp(UdpOptions::default()));
    assert_eq!(opened(&worker, 1).0.kind(), LinkKind::Datagrams);
    let client = UdpSocket::bind(LOOPBACK).expect("loopback can be bound");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.send_to(b"hello", addr).expect("sent");
    assert_eq!(client.recv_from(&mut [0; 10]).expect("an answer"), (5, addr));

    let listener = TcpListener::bind(LOOPBACK).expect("loopback can be bound");
    let addr = listener.local_addr().expect("bound");
    adopt(2, listener.into(), Adopted::Listener(ListenOptions::default()));
    assert_eq!(opened(&worker, 2).0.kind(), LinkKind::Listener);
    let stream = patient(TcpStream::connect(addr).expect("connect"));
    assert_eq!(opened(&worker, 2).1, stream.local_addr().ok());
    talk(&stream, b"by a listener");

    let listener = TcpListener::bind(LOOPBACK).expect("loopback can be bound");
    let stream = patient(TcpStream::connect(listener.local_addr().expect("bound")).expect("connect"));
    let (other, remote) = listener.accept().expect("it connects");
    // Another has the same connection: to close ours must be enough for us to hear no more of it.
    let kept = other.try_clone().expect("a descriptor");
    adopt(3, other.into(), Adopted::Stream(StreamOptions::default()));
    let (link, told) = opened(&worker, 3);
    assert_eq!((link.kind(), told), (LinkKind::Stream, Some(remote)));
    talk(&stream, b"handed over");
    // Twice, as the other side does not end it.
    worker.request(LinkRequest::Close { link });
    worker.request(LinkRequest::Close { link });
    assert_eq!(worker.hear_closed(), (link, CloseReason::Asked));
    (&stream).write_all(b"for the other").expect("written");
    let mut buf = [0; 13];
    kept.set_nonblocking(false).expect("an option");
    (&kept).read_exact(&mut buf).expect("the other reads it");
    assert_eq!(&buf, b"for the other");
}

#[test]
fn a_worker_shares_its_sockets_with_another_and_leaves_them_to_it() {
    let sockets = || {
        let listener = Socket::listener(token(2), LOOPBACK, ListenOptions::default());
        vec![Socket::udp(token(1), LOOPBACK, UdpOptions::default()), listener]
    };
    let mut bound = Worker::bind(WorkerConfig { sockets: sockets(), ..WorkerConfig::default() }).expect("loopback");
    let shared = bound.share().expect("descriptors");
    let former = EchoWorker::run(bound);
    let inherited =
        sockets().into_iter().zip(shared).map(|(socket, (descriptor, _))| socket.inherit(descriptor)).collect();
    let next = EchoWorker::start(inherited);
    let local = |worker: &EchoWorker| worker.handle.sockets().iter().map(|socket| socket.local).collect::<Vec<_>>();
    assert_eq!(local(&former), local(&next));

    for OpenSocket { link, .. } in former.handle.sockets() {
        former.request(LinkRequest::Close { link: *link });
        assert_eq!(former.hear_closed(), (*link, CloseReason::Asked));
    }
    let [datagrams, connections] = local(&next)[..] else { panic!("two sockets") };
    let client = UdpSocket::bind(LOOPBACK).expect("loopback can be bound");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    for _ in 0..10 {
        client.send_to(b"hello", datagrams).expect("sent");
        assert_eq!(client.recv_from(&mut [0; 10]).expect("an answer"), (5, datagrams));
        talk(&patient(TcpStream::connect(connections).expect("it listens")), b"hello");
    }
    // Nobody takes this, and it is no business of the former worker.
    former.settle();
    rests(&former.handle);
}

#[test]
fn a_descriptor_that_is_something_else_is_not_adopted() {
    let worker = EchoWorker::start(Vec::new());
    let listener = TcpListener::bind(LOOPBACK).expect("loopback can be bound");
    let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    let udp = UdpSocket::bind(LOOPBACK).expect("loopback can be bound");
    udp.connect(udp.local_addr().expect("bound")).expect("an address");
    let file = std::fs::File::open("/dev/null").expect("it is there");
    let kinds = || {
        let udp = Adopted::Udp(UdpOptions::default());
        let listener = Adopted::Listener(ListenOptions::default());
        [udp, listener, Adopted::Stream(StreamOptions::default())]
    };
    let all: [OwnedFd; 4] = [udp.into(), listener.into(), stream.into(), file.into()];
    for (index, descriptor) in all.iter().enumerate() {
        // The one at the same place is what it is.
        for (_, kind) in kinds().into_iter().enumerate().filter(|(other, _)| *other != index) {
            let case = format!("{index} as {kind:?}");
            let descriptor = descriptor.try_clone().expect("a descriptor");
            worker.request(LinkRequest::Adopt { token: token(1), descriptor, kind });
            assert!(matches!(worker.hear(), Heard::Failed { .. }), "{case}");
        }
    }
}

/// A connection to a worker that keeps little for it.
fn narrow() -> (EchoWorker, TcpStream, LinkId) {
    let stream =
        StreamOptions { backlog_max: 100_000, send_buffer_bytes: Some(16 * 1_024), ..StreamOptions::default() };
    let options = ListenOptions { stream, ..ListenOptions::default() };
    let worker = EchoWorker::start(vec![Socket::listener(token(1), LOOPBACK, options)]);
    let stream = patient(TcpStream::connect(worker.handle.sockets()[0].local).expect("connect"));
    let (link, _) = worker.hear_opened();
    (worker, stream, link)
}

/// Writes numbered pieces of 1,000 bytes until one is not taken. Returns how many bytes were.
fn fill(worker: &EchoWorker, link: LinkId) -> usize {
    let (mut sent, mut refused) = (0, 0);
    while refused == 0 {
        worker.order(Order::Write(link, vec![(sent % 251) as u8; 1_000]));
        sent += 1;
        assert!(sent < 100_000, "the kernel and the backlog are full at some time");
        if sent % 50 == 0 {
            worker.order(Order::Request(LinkRequest::OpenUdp {
                token: token(9),
                addr: LOOPBACK,
                ports: None,
                options: UdpOptions { receive_buffer_bytes: None, send_buffer_bytes: None, ..UdpOptions::default() },
            }));
            // Requests are done in order, so all was written when that is open.
            let mut is_done = false;
            while !is_done {
                match worker.hear() {
                    Heard::Unsent { bytes, .. } => refused += bytes,
                    Heard::Opened { link, .. } => {
                        worker.request(LinkRequest::Close { link });
                        is_done = true;
                    }
                    Heard::Closed { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert_eq!(refused % 1_000, 0, "whole pieces");
    sent * 1_000 - refused
}

/// Reads what was taken of numbered pieces.
fn expect_pieces(stream: &mut TcpStream, taken: usize) {
    let mut got = vec![0; taken];
    stream.read_exact(&mut got).expect("what was taken arrives");
    for (number, piece) in got.chunks(1_000).enumerate() {
        assert!(piece.iter().all(|byte| *byte == (number % 251) as u8), "piece {number} is whole");
    }
}

#[test]
fn a_copied_piece_is_taken_whole_or_not_at_all_and_room_is_told() {
    let (worker, mut stream, link) = narrow();
    let taken = fill(&worker, link);
    expect_pieces(&mut stream, taken);
    worker.hear_of(|heard| (*heard == Heard::Writable { link }).then_some(()));
    talk(&stream, b"there is room again");
}

#[test]
fn what_was_taken_still_leaves_when_a_connection_is_closed() {
    let (worker, mut stream, link) = narrow();
    let taken = fill(&worker, link);
    worker.request(LinkRequest::Close { link });
    worker.settle();
    assert_eq!(worker.handle.counters().tcp_closed, 0, "something waits");
    worker.order(Order::Write(link, vec![9; 10]));
    // To close a socket with unread input would take back what the kernel has not sent.
    stream.write_all(b"nobody wants to know").expect("written");
    expect_pieces(&mut stream, taken);
    assert_eq!(stream.read(&mut [0; 10]).expect("the end"), 0, "nothing was taken afterwards");
    stream.write_all(b"nor this").expect("written");
    worker.settle();
    assert_eq!(worker.handle.counters().tcp_closed, 0, "the other side may still send");
    drop(stream);
    assert_eq!(closed(&worker, link), CloseReason::Asked);
}

#[test]
fn who_asks_again_is_rid_of_a_connection_whatever_waits() {
    let (worker, stream, link) = narrow();
    fill(&worker, link);
    worker.request(LinkRequest::Close { link });
    worker.request(LinkRequest::Close { link });
    assert_eq!(closed(&worker, link), CloseReason::Asked);
    drop(stream);
}

/// Why a link was closed.
fn closed(worker: &EchoWorker, link: LinkId) -> CloseReason {
    worker.hear_of(|heard| match heard {
        Heard::Closed { link: gone, reason, .. } if *gone == link => Some(*reason),
        _ => None,
    })
}
