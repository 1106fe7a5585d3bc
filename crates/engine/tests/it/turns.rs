//! However much comes over TCP, what comes by UDP has its share of every turn.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::common::eventually;
use engine::{Service, Socket, Worker, WorkerConfig};
use wire::framing::Framing;
use wire::{DatagramRun, LinkKind, ListenOptions, Outbox, Path, Product, StreamOptions, Token, UdpOptions};

/// Sends each UDP datagram to its own socket again, so that one is always there or under way; counts what comes over TCP
/// before the worker looks for UDP again.
struct Juggler {
    own: SocketAddr,
    /// Bytes of this turn.
    since: u64,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    juggled: AtomicU64,
    tcp_bytes: AtomicU64,
    /// Most in a turn.
    tcp_bytes_in_turn_max: AtomicU64,
}

impl Service for Juggler {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}
}

impl Product for Juggler {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        if run.path.link.kind() == LinkKind::Framed {
            self.since += run.data.len() as u64;
            self.seen.tcp_bytes.fetch_add(run.data.len() as u64, Ordering::Relaxed);
            return;
        }
        self.seen.juggled.fetch_add(1, Ordering::Relaxed);
        assert!(out.push(&Path { remote: self.own, ..run.path }, b"ball"), "there is room before every call");
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Comes at the end of each turn.
    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        self.seen.tcp_bytes_in_turn_max.fetch_max(std::mem::take(&mut self.since), Ordering::Relaxed);
        false
    }
}

#[test]
fn between_two_looks_for_udp_datagrams_the_worker_reads_little_from_all_tcp_connections() {
    const LINKS: usize = 40;
    // The read that a turn's share ends in is not cut short: four times 16 KiB of one connection.
    const TURN_MAX: u64 = (128 + 64) * 1_024;
    let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
    let stream = StreamOptions { framing: Some(Framing::Length16), ..StreamOptions::default() };
    let listen = ListenOptions { stream, ..ListenOptions::default() };
    let sockets = vec![
        Socket::udp(Token::default(), loopback, UdpOptions::default()),
        Socket::listener(Token::default(), loopback, listen),
    ];
    let bound = Worker::bind(WorkerConfig { sockets, ..WorkerConfig::default() }).expect("loopback can be bound");
    let [udp, tcp] = [0, 1].map(|index: usize| bound.sockets()[index].local);
    // All of it lies in the kernel before the worker's first turn.
    let frame = [1_000_u16.to_be_bytes().as_slice(), &[7; 1_000]].concat();
    let mut written = 0;
    let clients: Vec<TcpStream> = (0..LINKS)
        .map(|_| {
            let mut client = TcpStream::connect(tcp).expect("connect");
            client.set_nonblocking(true).expect("option");
            for _ in 0..60 {
                if !matches!(client.write(&frame), Ok(count) if count == frame.len()) {
                    break;
                }
                written += 1_000;
            }
            client
        })
        .collect();
    assert!(written >= 1_000_000, "{written} bytes");
    UdpSocket::bind(loopback).expect("a port").send_to(b"ball", udp).expect("sent");

    let seen = Arc::new(Seen::default());
    let service_seen = Arc::clone(&seen);
    let worker = bound.run(move || Juggler { own: udp, since: 0, seen: service_seen }).expect("run");
    eventually("all frames are read", || seen.tcp_bytes.load(Ordering::Relaxed) >= written);
    let juggled = seen.juggled.load(Ordering::Relaxed);
    eventually("the ball is in the air", || seen.juggled.load(Ordering::Relaxed) > juggled + 1);
    let in_turn = seen.tcp_bytes_in_turn_max.load(Ordering::Relaxed);
    assert!(in_turn > 0 && in_turn <= TURN_MAX, "{in_turn} bytes in one turn");
    worker.stop().expect("it runs");
    drop(clients);
}
