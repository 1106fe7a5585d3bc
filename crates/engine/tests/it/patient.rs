//! What can wait: it wakes a worker after a silence, and then shares the wake-ups of what cannot.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::common::{EchoWorker, Heard, Order, PATIENCE, loopback, rests};
use engine::sys::Beginning;
use engine::{Socket, Worker, WorkerConfig};
use wire::{CloseReason, LinkRequest, Path, Token, UdpOptions};

static CAN_WAIT: [Beginning; 1] = [Beginning(b'p'..=b'p', 0..=255)];

/// No test takes as long.
const HOURS: Duration = Duration::from_secs(36_000);

fn socket() -> Socket {
    Socket::udp(Token { owner: 3, number: 1 }, loopback(5), UdpOptions::default()).with_patient(&CAN_WAIT)
}

fn config(patience: Duration, socket: Socket) -> WorkerConfig {
    WorkerConfig { sockets: vec![socket], patience, ..WorkerConfig::default() }
}

fn start(patience: Duration) -> (EchoWorker, UdpSocket) {
    let worker = EchoWorker::run(Worker::bind(config(patience, socket())).expect("the address can be bound"));
    (worker, client())
}

fn client() -> UdpSocket {
    let client = UdpSocket::bind(loopback(5)).expect("loopback can be bound");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client
}

/// The next datagram that is heard; it comes by the one link that products know of, and is answered from its address.
fn hear(worker: &EchoWorker, client: &UdpSocket) -> Vec<u8> {
    let socket = worker.handle.sockets()[0];
    let Heard::Run { token, path, segments } = worker.hear() else { panic!("a datagram is heard") };
    let from = Path { link: socket.link, remote: client.local_addr().expect("bound"), local: path.local };
    assert_eq!((token, path), (socket.token, from));
    let mut buf = [0; 100];
    let (len, from) = client.recv_from(&mut buf).expect("an answer");
    assert_eq!((&buf[..len], from), (&segments.concat()[..], socket.local));
    buf[..len].to_vec()
}

#[test]
fn what_can_wait_wakes_a_worker_after_a_silence_and_then_waits() {
    let (worker, client) = start(HOURS);
    let to = worker.handle.sockets()[0].local;
    rests(&worker.handle);
    client.send_to(b"p1", to).expect("sent");
    assert_eq!(hear(&worker, &client), b"p1");

    rests(&worker.handle);
    let before = worker.handle.counters();
    client.send_to(b"p2", to).expect("sent");
    rests(&worker.handle);
    assert_eq!(worker.handle.counters().turns, before.turns, "nobody was woken");
    // Not the turns that come too soon after the last look, either.
    client.send_to(b"now", to).expect("sent");
    assert_eq!(hear(&worker, &client), b"now");
    worker.settle();
    assert_eq!(worker.handle.counters().datagrams_in, before.datagrams_in + 1);
}

#[test]
fn what_waits_is_heard_when_its_time_has_come_and_nothing_else_has() {
    let (worker, client) = start(Duration::from_millis(2));
    let to = worker.handle.sockets()[0].local;
    for number in 0..50 {
        client.send_to(&[b'p', number], to).expect("sent");
        assert_eq!(hear(&worker, &client), [b'p', number]);
    }
    // And then it rests.
    rests(&worker.handle);
}

#[test]
fn a_worker_that_takes_over_hears_what_waits_for_the_one_before() {
    let mut bound = Worker::bind(config(HOURS, socket())).expect("the address can be bound");
    let to = bound.sockets()[0].local;
    let Some((first, Some(second))) = bound.share().expect("descriptors").pop() else { panic!("two on one port") };
    let former = EchoWorker::run(bound);
    let link = former.handle.sockets()[0].link;
    former.request(LinkRequest::Close { link });
    assert_eq!(former.hear_closed(), (link, CloseReason::Asked));
    let client = client();
    client.send_to(b"p1", to).expect("sent");
    former.settle();
    rests(&former.handle);

    // Whatever patience this one has.
    let inherited = Socket::udp(Token { owner: 3, number: 1 }, to, UdpOptions::default());
    let inherited = inherited.inherit(first).inherit_patient(second);
    let next = Worker::bind(config(Duration::ZERO, inherited)).expect("its sockets are there");
    let next = EchoWorker::run(next);
    assert_eq!(hear(&next, &client), b"p1");
    for number in 0..10 {
        for datagram in [[b'p', number], [b'n', number]] {
            client.send_to(&datagram, to).expect("sent");
            assert_eq!(hear(&next, &client), datagram);
        }
    }
    rests(&next.handle);
}

#[test]
fn what_icmp_says_stays_in_no_socket_that_nobody_looks_at() {
    let options = UdpOptions { refusals: true, ..UdpOptions::default() };
    let bind = || engine::udp::UdpSocket::bind(loopback(5), &options).expect("loopback can be bound");
    let (first, other) = (bind(), bind());
    let second = first.beside(&CAN_WAIT, &options).expect("two on one port");
    assert_eq!((first.keeps_refusals(), second.keeps_refusals()), (true, false));
    let descriptor = || second.as_fd().try_clone_to_owned().expect("a descriptor");
    let adopted = first.adopt_beside(descriptor(), &CAN_WAIT, &options).expect("it is beside that");
    assert!(!adopted.keeps_refusals());
    let error = other.adopt_beside(descriptor(), &CAN_WAIT, &options).expect_err("it is on another port");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn without_patience_a_port_has_one_socket_and_others_may_not_have_it_either_way() {
    for patience in [Duration::ZERO, HOURS] {
        let mut bound = Worker::bind::<Order>(config(patience, socket())).expect("the address can be bound");
        let [(_, second)] = &bound.share().expect("descriptors")[..] else { panic!("one socket") };
        assert_eq!(second.is_some(), !patience.is_zero());
        let addr = bound.sockets()[0].local;
        let same = Socket::udp(Token::default(), addr, UdpOptions::default()).with_patient(&CAN_WAIT);
        let error = Worker::bind::<Order>(config(patience, same)).err().expect("it is taken");
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    }
}
