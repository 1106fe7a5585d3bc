//! Links that only send: beside others, to groups, and to where nobody listens.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::common::eventually;
use engine::{Service, Socket, Worker, WorkerConfig};
use wire::{LinkEvent, LinkId, Multicast, Outbox, Path, Product, Token, UdpOptions};

/// Sends what it is told to, and reports refusals.
struct Speaker {
    refused: SyncSender<(LinkId, SocketAddr)>,
    /// Refusals since it was last asked for more.
    in_row: u64,
    in_row_most: Arc<AtomicU64>,
}

impl Speaker {
    fn new(refused: SyncSender<(LinkId, SocketAddr)>) -> Self {
        Speaker { refused, in_row: 0, in_row_most: Arc::default() }
    }
}

impl Service for Speaker {
    type Message = (Path, Vec<u8>);

    fn handle_message(&mut self, _now: Instant, (path, bytes): (Path, Vec<u8>), out: &mut Outbox) {
        assert!(out.push(&path, &bytes), "there is room before every call");
    }
}

impl Product for Speaker {
    fn handle_link(&mut self, _now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        if let LinkEvent::Refused { link, remote } = event {
            self.refused.send((link, remote)).expect("the test listens");
            self.in_row += 1;
            self.in_row_most.fetch_max(self.in_row, Ordering::Relaxed);
        }
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        self.in_row = 0;
        false
    }
}

fn receiver(addr: &str) -> UdpSocket {
    let socket = UdpSocket::bind(addr).expect("loopback can be bound");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    socket
}

/// A socket that has a port so that nobody else has it, and takes nothing but what it sends itself.
fn deaf(addr: &str) -> UdpSocket {
    let socket = receiver(addr);
    socket.connect(socket.local_addr().expect("bound")).expect("loopback");
    socket
}

#[test]
fn one_who_refuses_is_reported_and_costs_nobody_else_a_datagram() {
    let socket = |number, addr: &str, options| {
        Socket::udp(Token { owner: 0, number }, addr.parse().expect("an address"), options)
    };
    let sockets = vec![
        socket(7, "127.0.0.1:0", UdpOptions::default()),
        socket(8, "127.0.0.1:0", UdpOptions::sender()),
        socket(9, "[::1]:0", UdpOptions::sender()),
    ];
    let config = WorkerConfig { sockets, ..WorkerConfig::default() };
    let (refused, refusals) = sync_channel(10_000);
    let bound = Worker::bind(config).expect("loopback can be bound");
    assert_eq!(bound.sockets().iter().map(|socket| socket.token.number).collect::<Vec<_>>(), [7, 8, 9]);
    let senders: Vec<_> = bound.sockets()[1..].iter().map(|socket| (socket.link, socket.local)).collect();
    let worker = bound.run(move || Speaker::new(refused)).expect("a thread can be started");

    for ((link, from), ip) in senders.into_iter().zip(["127.0.0.1:0", "[::1]:0"]) {
        let (there, gone) = (receiver(ip), deaf(ip));
        let to = |socket: &UdpSocket| Path { link, remote: socket.local_addr().expect("bound"), local: None };
        let (good, bad) = (to(&there), to(&gone));
        for number in 0..100_u8 {
            for path in [bad, good] {
                worker.mailbox().send((path, vec![number; 100])).expect("room");
            }
        }
        let mut buf = [0; 200];
        for number in 0..100_u8 {
            let (len, sender) = there.recv_from(&mut buf).expect("every datagram arrives");
            assert_eq!((len, buf[0], sender), (100, number, from));
        }
        // Some of the link before may come late.
        while refusals.recv_timeout(Duration::from_secs(10)).expect("it is reported") != (link, bad.remote) {}
    }
    eventually("it is counted", || worker.counters().icmp_port_unreachable > 1);
    assert_eq!((worker.counters().icmp_unreachable, worker.counters().icmp_too_long), (0, 0));
}

#[test]
fn a_flood_of_refusals_is_heard_in_turns() {
    const FLOOD: usize = 150;
    // One that also receives: its errors are met there as well.
    let options = UdpOptions { refusals: true, gso: false, ..UdpOptions::default() };
    let socket = Socket::udp(Token::default(), "127.0.0.1:0".parse().expect("an address"), options);
    let config = WorkerConfig { sockets: vec![socket], ..WorkerConfig::default() };
    let (refused, refusals) = sync_channel(10_000);
    let speaker = Speaker::new(refused);
    let most = Arc::clone(&speaker.in_row_most);
    let bound = Worker::bind(config).expect("loopback can be bound");
    let gone = deaf("127.0.0.1:0");
    let remote = gone.local_addr().expect("bound");
    let path = Path { link: bound.sockets()[0].link, remote, local: None };
    // Sent in the worker's first turn, so that all refusals wait for the second.
    for _ in 0..FLOOD {
        bound.mailbox().send((path, vec![7; 100])).expect("room");
    }
    let worker = bound.run(move || speaker).expect("a thread can be started");
    for _ in 0..FLOOD {
        refusals.recv_timeout(Duration::from_secs(10)).expect("each is told");
    }
    worker.stop().expect("a clean end");
    assert!((1..=64).contains(&most.load(Ordering::Relaxed)), "{most:?} in one turn");
}

#[test]
fn a_group_is_reached_through_the_interface_that_was_chosen() {
    let group = Ipv4Addr::new(239, 77, 12, 9);
    // On Linux loopback is interface 1 of every network namespace.
    let multicast = Multicast { hops: 3, interface: 1, is_looped: true };
    let options = UdpOptions { multicast, dscp: 34, ..UdpOptions::sender() };
    let socket = Socket::udp(Token::default(), "0.0.0.0:0".parse().expect("an address"), options);
    let config = WorkerConfig { sockets: vec![socket], ..WorkerConfig::default() };
    let listener = receiver("0.0.0.0:0");
    listener.join_multicast_v4(&group, &Ipv4Addr::LOCALHOST).expect("loopback takes groups");
    let (refused, _refusals) = sync_channel(10_000);
    let worker = Worker::bind(config).expect("bound").run(move || Speaker::new(refused)).expect("a thread");

    let remote = SocketAddr::new(group.into(), listener.local_addr().expect("bound").port());
    worker.mailbox().send((Path { link: LinkId::datagrams(0), remote, local: None }, vec![7; 50])).expect("room");

    let mut buf = [0; 100];
    assert_eq!(listener.recv(&mut buf).expect("it arrives"), 50);
}
