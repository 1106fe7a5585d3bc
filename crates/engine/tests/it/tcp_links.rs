//! Datagrams over TCP links (RFC 4571): framing both ways, limits, and the end of a link.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::eventually;
use engine::{Service, Socket, Worker, WorkerConfig, WorkerHandle};
use wire::framing::Framing;
use wire::{DatagramRun, LinkEvent, ListenOptions, Outbox, Path, Product, StreamOptions, Token};

/// What the service has seen, for the test to read.
#[derive(Default)]
struct Seen {
    datagrams: AtomicU64,
    closed: AtomicU64,
    last_link: AtomicU64,
}

/// Sends everything back; on command it floods whoever wrote last.
struct Echo {
    seen: Arc<Seen>,
    last: Option<Path>,
    flood: usize,
}

/// Datagrams of 1,000 bytes for whoever wrote last.
struct Flood(usize);

impl Service for Echo {
    type Message = Flood;

    fn handle_message(&mut self, _now: Instant, Flood(count): Flood, _out: &mut Outbox) {
        self.flood += count;
    }
}

impl Product for Echo {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        for datagram in run.into_datagrams() {
            self.seen.datagrams.fetch_add(1, Ordering::Relaxed);
            self.seen.last_link.store(datagram.path.link.to_bits(), Ordering::Relaxed);
            self.last = Some(datagram.path);
            out.push(&datagram.path, datagram.data);
        }
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
        let Some(path) = self.last else { return false };
        while self.flood > 0 && out.push(&path, &[9; 1_000]) {
            self.flood -= 1;
        }
        self.flood > 0
    }

    fn handle_link(&mut self, _now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        if let LinkEvent::Closed { link, .. } = event {
            assert_eq!(link.to_bits(), self.seen.last_link.load(Ordering::Relaxed));
            self.seen.closed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn start(addr: &str, links_max: usize) -> (WorkerHandle<Flood>, Arc<Seen>) {
    let stream = StreamOptions {
        framing: Some(Framing::Length16),
        send_buffer_bytes: Some(128 * 1_024),
        ..StreamOptions::default()
    };
    let options = ListenOptions { links_max, stream, ..ListenOptions::default() };
    let socket = Socket::listener(Token::default(), addr.parse().expect("an address"), options);
    let config = WorkerConfig { sockets: vec![socket], ..WorkerConfig::default() };
    let seen = Arc::new(Seen::default());
    let service_seen = Arc::clone(&seen);
    let make = move || Echo { seen: service_seen, last: None, flood: 0 };
    (Worker::bind(config).expect("loopback can be bound").run(make).expect("run"), seen)
}

fn connect(worker: &WorkerHandle<Flood>) -> TcpStream {
    let stream = TcpStream::connect(worker.sockets()[0].local).expect("connect");
    stream.set_nodelay(true).expect("option");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    stream
}

fn frame(datagram: &[u8]) -> Vec<u8> {
    let mut frame = (datagram.len() as u16).to_be_bytes().to_vec();
    frame.extend(datagram);
    frame
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).expect("a length within ten seconds");
    let mut datagram = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut datagram).expect("as many bytes as were announced");
    datagram
}

#[test]
fn frames_come_back_as_frames_however_they_were_cut() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let (worker, _) = start(addr, 8);
        let mut stream = connect(&worker);
        let datagrams = [vec![1; 1], vec![2; 1_400], vec![3; 1_400], vec![4; 20]];
        let bytes: Vec<u8> = datagrams.iter().flat_map(|datagram| frame(datagram)).collect();

        for piece in bytes.chunks(333) {
            stream.write_all(piece).expect("write");
        }
        for datagram in &datagrams {
            assert_eq!(read_frame(&mut stream), *datagram);
        }
        eventually("all are counted", || {
            let counters = worker.counters();
            (counters.tcp_datagrams_in, counters.tcp_datagrams_out, counters.tcp_links) == (4, 4, 1)
        });
    }
}

#[test]
fn the_end_of_a_link_is_told_once_and_its_number_is_not_used_again() {
    let (worker, seen) = start("127.0.0.1:0", 8);
    let mut links = Vec::new();
    for round in 1..=5 {
        let mut stream = connect(&worker);
        stream.write_all(&frame(b"hello")).expect("write");
        assert_eq!(read_frame(&mut stream), b"hello");
        links.push(seen.last_link.load(Ordering::Relaxed));
        drop(stream);
        eventually("the end is told", || seen.closed.load(Ordering::Relaxed) == round);
    }
    links.sort_unstable();
    links.dedup();
    assert_eq!(links.len(), 5);
    eventually("the end is counted", || (worker.counters().tcp_links, worker.counters().tcp_closed) == (0, 5));
}

#[test]
fn what_was_sent_before_the_end_is_still_heard() {
    let (worker, seen) = start("127.0.0.1:0", 8);
    let mut stream = connect(&worker);
    stream.write_all(&frame(&[5; 700]).repeat(40)).expect("write");
    // A connection that is closed before it has read its answers is reset, and what the other side has not read yet is lost.
    stream.shutdown(Shutdown::Write).expect("shut down");
    eventually("all 40 are heard", || seen.datagrams.load(Ordering::Relaxed) == 40);
    eventually("the end is told", || seen.closed.load(Ordering::Relaxed) == 1);
}

#[test]
fn a_newcomer_beyond_the_limit_is_turned_away_and_finds_room_later() {
    let (worker, seen) = start("127.0.0.1:0", 1);
    let mut first = connect(&worker);
    first.write_all(&frame(b"first")).expect("write");
    assert_eq!(read_frame(&mut first), b"first");

    let mut refused = connect(&worker);
    assert!(matches!(refused.read(&mut [0; 1]), Ok(0) | Err(_)));
    eventually("the refusal is counted", || worker.counters().tcp_refused == 1);

    drop(first);
    eventually("the end is told", || seen.closed.load(Ordering::Relaxed) == 1);
    let mut second = connect(&worker);
    second.write_all(&frame(b"second")).expect("write");
    assert_eq!(read_frame(&mut second), b"second");
}

#[test]
fn a_frame_that_is_too_long_ends_the_link() {
    let (worker, seen) = start("127.0.0.1:0", 8);
    let mut stream = connect(&worker);
    stream.write_all(&frame(b"hello")).expect("write");
    assert_eq!(read_frame(&mut stream), b"hello");
    stream.write_all(&[0xff, 0xff, 1, 2, 3]).expect("write");
    eventually("the link is closed", || seen.closed.load(Ordering::Relaxed) == 1);
    eventually("the reason is counted", || worker.counters().tcp_frame_errors == 1);
}

#[test]
fn a_viewer_that_does_not_read_loses_datagrams_whole_and_holds_up_nobody() {
    let (worker, _) = start("127.0.0.1:0", 8);
    let mut slow = connect(&worker);
    slow.write_all(&frame(b"slow")).expect("write");
    assert_eq!(read_frame(&mut slow), b"slow");
    // Ten megabytes: more than the link's backlog and both kernel buffers.
    worker.mailbox().send(Flood(10_000)).map_err(drop).expect("room");
    eventually("datagrams are dropped", || worker.counters().dropped_tcp_full > 0);

    let mut other = connect(&worker);
    other.write_all(&frame(b"other")).expect("write");
    assert_eq!(read_frame(&mut other), b"other");

    eventually("the flood is over", || {
        let counters = worker.counters();
        counters.tcp_datagrams_out - 2 + counters.dropped_tcp_full == 10_000
    });
    let kept = worker.counters().tcp_datagrams_out - 2;
    for _ in 0..kept {
        assert_eq!(read_frame(&mut slow), [9; 1_000]);
    }
    slow.write_all(&frame(b"again")).expect("write");
    assert_eq!(read_frame(&mut slow), b"again");
}
