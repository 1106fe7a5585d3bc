//! A worker in its steady state takes no memory from the heap, with datagrams over UDP and messages coming in.
#![allow(clippy::unwrap_used)]

#[path = "../../../tests/support/allocations.rs"]
mod allocations;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Mailbox, Service, Socket, Worker, WorkerConfig, WorkerHandle};
use wire::{DatagramRun, Outbox, Product, Token, UdpOptions};

/// What the worker's thread took, as of its last watch.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Beginnings and ends of watches that the worker has seen.
static WATCHES: AtomicU64 = AtomicU64::new(0);

struct Echo {
    alarm: Option<Instant>,
}

/// True starts the watch on the worker's thread, false ends it.
type Watch = Option<bool>;

impl Service for Echo {
    type Message = Watch;

    fn handle_message(&mut self, _now: Instant, message: Watch, _out: &mut Outbox) {
        if let Some(watch) = message {
            // One allocation on purpose, at the end of the watch: so the test sees that the count works.
            drop(std::hint::black_box(Box::new(watch)));
            allocations::watch(watch);
            // Only the worker's thread is watched; the test's own may allocate.
            ALLOCATIONS.store(allocations::count(), Ordering::Relaxed);
            WATCHES.fetch_add(1, Ordering::Release);
        }
    }
}

impl Product for Echo {
    fn handle_run(&mut self, now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        // One that is set is not put off, so it goes off however fast the next datagram comes.
        self.alarm.get_or_insert(now + Duration::from_micros(300));
        for datagram in run.into_datagrams() {
            out.push(&datagram.path, datagram.data);
        }
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {
        self.alarm = None;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.alarm
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        false
    }
}

#[test]
fn thousands_of_datagrams_cost_no_allocation_on_the_workers_thread() {
    let socket = Socket::udp(Token::default(), ([127, 0, 0, 1], 0).into(), UdpOptions::default());
    let config = WorkerConfig { sockets: vec![socket], ..WorkerConfig::default() };
    let worker = Worker::bind(config).expect("bind").run(|| Echo { alarm: None }).expect("run");
    let mailbox = worker.mailbox();

    exchange(&worker, &mailbox, 500);
    watch(&mailbox, true);
    let before = worker.counters();
    exchange(&worker, &mailbox, 5_000);
    wait_until("an alarm goes off", || worker.counters().timeouts > before.timeouts);
    watch(&mailbox, false);

    assert!(worker.counters().datagrams_in >= 5_000);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 1, "only the one that was made on purpose");
}

/// Sends datagrams in groups of ten, with a message between groups, and waits for each answer.
fn exchange(worker: &WorkerHandle<Watch>, mailbox: &Mailbox<Watch>, count: usize) {
    let client = UdpSocket::bind("127.0.0.1:0").expect("bind");
    client.connect(worker.sockets()[0].local).expect("connect");
    client.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    let mut buf = [0; 2_048];
    for group in 0..count / 10 {
        for number in 0..10 {
            client.send(&vec![7; 100 + group % 7 + number]).expect("send");
        }
        mailbox.send(None).expect("room");
        for _ in 0..10 {
            client.recv(&mut buf).expect("an answer within ten seconds");
        }
    }
}

/// Begins or ends the watch, and waits until the worker has done so.
fn watch(mailbox: &Mailbox<Watch>, begins: bool) {
    let before = WATCHES.load(Ordering::Acquire);
    mailbox.send(Some(begins)).expect("room");
    wait_until("the worker sees the message", || WATCHES.load(Ordering::Acquire) > before);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}
