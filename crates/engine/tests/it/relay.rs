//! Runs that come in leave again with other bytes before each datagram, or without some, and are not copied on the way.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Instant;

use engine::udp::SendQueue;
use engine::{CountersSnapshot, Service, Socket, Worker, WorkerConfig, WorkerHandle};
use wire::framing::Framing;
use wire::{DatagramRun, LinkId, LinkKind, ListenOptions, Outbox, Path, Product, StreamOptions, Token, UdpOptions};

use crate::common::{PATIENCE, eventually};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Links by their tokens.
const CLIENTS: u32 = 0;
const PEERS: u32 = 1;

/// What stands before each datagram on the client's side: a channel, and a length.
const HEADER_LEN: usize = 4;

/// Between one client and one peer.
struct Relay {
    client: Option<Path>,
    peer: Path,
}

impl Service for Relay {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}
}

impl Product for Relay {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        assert!(run.place().is_some(), "it can be sent from where it was received");
        let count = run.datagram_count();
        let queued = if run.token.number == CLIENTS {
            self.client = Some(run.path);
            out.push_prefixed(&self.peer, &run, 0..count, HEADER_LEN..usize::MAX, |_| [])
        } else {
            let client = self.client.expect("the client is first");
            let header = |payload: &[u8]| [0x40, 0, 0, payload.len() as u8];
            out.push_prefixed(&client, &run, 0..count, 0..usize::MAX, header)
        };
        assert_eq!(queued, count, "there is room for each");
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        false
    }
}

/// A relay, and the address of its peers' side.
fn start(gso: bool, gro: bool, peer: SocketAddr) -> WorkerHandle<()> {
    let token = |number| Token { owner: 0, number };
    let udp = UdpOptions { gso, gro, ..UdpOptions::default() };
    let stream = StreamOptions { framing: Some(Framing::Turn), ..StreamOptions::default() };
    let listen = ListenOptions { stream, ..ListenOptions::default() };
    let sockets = vec![
        Socket::udp(token(CLIENTS), LOOPBACK, udp.clone()),
        Socket::udp(token(PEERS), LOOPBACK, udp),
        Socket::listener(token(CLIENTS), LOOPBACK, listen),
    ];
    let bound = Worker::bind(WorkerConfig { sockets, ..WorkerConfig::default() }).expect("loopback can be bound");
    let link = bound.sockets()[1].link;
    let relay = Relay { client: None, peer: Path { link, remote: peer, local: None } };
    bound.run(move || relay).expect("a thread can be started")
}

/// A socket that sends runs as one, and receives datagram by datagram.
struct End {
    socket: engine::udp::UdpSocket,
    receiver: UdpSocket,
    queue: SendQueue,
}

impl End {
    fn new() -> Self {
        let options = UdpOptions { gro: false, ..UdpOptions::default() };
        let receiver = UdpSocket::bind(LOOPBACK).expect("loopback can be bound");
        let descriptor = receiver.try_clone().expect("a descriptor").into();
        let socket = engine::udp::UdpSocket::adopt(descriptor, &options).expect("it is a socket");
        End { socket, receiver, queue: SendQueue::default() }
    }

    fn addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    fn send(&mut self, to: SocketAddr, datagrams: &[Vec<u8>]) {
        let mut out = Outbox::new(1 << 20);
        let path = Path { link: LinkId::datagrams(0), remote: to, local: None };
        datagrams.iter().for_each(|datagram| assert!(out.push(&path, datagram)));
        self.queue.send_outbox(&mut self.socket, &out, &mut CountersSnapshot::default());
    }

    fn expect(&self, datagrams: &[Vec<u8>]) {
        self.receiver.set_nonblocking(false).expect("an option");
        self.receiver.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut buf = [0; 2_048];
        for datagram in datagrams {
            let len = self.receiver.recv(&mut buf).expect("it arrives");
            assert_eq!(&buf[..len], datagram);
        }
    }
}

/// Eleven datagrams of which the last is shorter, and the same with a header before each.
fn datagrams() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let plain: Vec<Vec<u8>> = (0..11_u8).map(|number| vec![number; if number < 10 { 100 } else { 60 }]).collect();
    let with_header = |datagram: &Vec<u8>| [&[0x40, 0, 0, datagram.len() as u8], &datagram[..]].concat();
    let wrapped = plain.iter().map(with_header).collect();
    (plain, wrapped)
}

#[test]
fn headers_are_put_before_each_datagram_and_taken_off_again() {
    let (plain, wrapped) = datagrams();
    for (gso, gro) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut client, mut peer) = (End::new(), End::new());
        let relay = start(gso, gro, peer.addr());
        let [clients, peers] = [0, 1].map(|index: usize| relay.sockets()[index].local);
        for _ in 0..20 {
            client.send(clients, &wrapped);
            peer.expect(&plain);
            peer.send(peers, &plain);
            client.expect(&wrapped);
        }
        drop(relay);
    }
}

#[test]
fn a_run_that_came_as_one_leaves_as_one() {
    let (plain, wrapped) = datagrams();
    let (mut client, mut peer) = (End::new(), End::new());
    let relay = start(true, true, peer.addr());
    let [clients, peers] = [0, 1].map(|index: usize| relay.sockets()[index].local);
    client.send(clients, &wrapped);
    peer.expect(&plain);
    peer.send(peers, &plain);
    client.expect(&wrapped);
    eventually("both came as one and left as one, unless there is no GRO here", || {
        let counters = relay.counters();
        let calls = (counters.gro_batches, counters.gso_sends, counters.send_calls);
        counters.datagrams_out == 22 && (calls.0 == 0 || calls == (2, 2, 2))
    });
}

#[test]
fn frames_of_a_connection_become_datagrams_and_datagrams_frames() {
    let (plain, wrapped) = datagrams();
    let mut peer = End::new();
    let relay = start(true, true, peer.addr());
    let listener = relay.sockets()[2];
    assert_eq!(listener.link.kind(), LinkKind::Listener);
    let mut stream = TcpStream::connect(listener.local).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let bytes = wrapped.concat();
    for _ in 0..20 {
        stream.write_all(&bytes).expect("written");
        peer.expect(&plain);
        peer.send(relay.sockets()[1].local, &plain);
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).expect("they come back");
        assert_eq!(back, bytes);
    }
}
