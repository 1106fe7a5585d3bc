//! What several tests of workers need: patience, and a product that sends back what it gets, does what it is told, and
//! tells the test what it hears.
#![allow(dead_code, reason = "no test needs everything")]

#[path = "../../../../tests/support/own_process.rs"]
pub mod own_process;
#[path = "../../../../tests/support/skip.rs"]
pub mod skip;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use engine::{BoundWorker, OpenSocket, Service, Socket, Worker, WorkerConfig, WorkerHandle};
use wire::{CloseReason, DatagramRun, LinkEvent, LinkId, LinkRequest, Outbox, Path, Product, Token};

/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Counters are published once per turn, so a reader may be a turn ahead of them.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a worker sleeps and is not woken for a while.
pub fn rests<M>(worker: &WorkerHandle<M>) {
    let (turns, since) = (Cell::new(0), Cell::new(Instant::now()));
    eventually("it rests", || {
        let now = worker.counters().turns;
        if turns.replace(now) != now {
            since.set(Instant::now());
        }
        since.get().elapsed() > Duration::from_millis(100)
    });
}

/// An address of loopback that no other process has, nor another test, with any port: thousands of ports are taken, and what
/// others send to ports of theirs that were given back must not arrive here.
pub fn loopback(test: u8) -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, 64 | test << 3 | high & 7, middle, low.clamp(1, 254)), 0))
}

/// Descriptors that a worker leaves to others at most, and what a test and its worker have besides.
pub const LEFT_TO_OTHERS: u64 = 1_024 + 200;

/// Runs the body of a test in a process of its own that may have `files` open files, or as many as the system lets it have.
/// True: this is that process, so the body is to be run.
pub fn has_open_files(files: u64, test: &str) -> bool {
    let script = format!("{{ ulimit -n {files} 2>/dev/null || ulimit -n $(ulimit -H -n); }}");
    own_process::is_alone(test, &script)
}

/// How many things of so many open files each a process may have, of `count` that a test wants. It says so when that is less.
pub fn affordable(count: usize, files_each: usize, test: &str) -> usize {
    let files = engine::sys::raise_open_files_max().expect("the limit is known");
    let affordable = count.min(files.saturating_sub(LEFT_TO_OTHERS) as usize / files_each);
    if affordable < count {
        skip::skip(&format!("{test}: {affordable} of {count}, as no more files may be open"));
    }
    affordable
}

/// What the product is to do.
#[derive(Debug)]
pub enum Order {
    Request(LinkRequest),
    Send(Path, Vec<u8>),
    Write(LinkId, Vec<u8>),
    Nothing,
}

/// What the product heard.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Opened { token: Token, link: LinkId, local: SocketAddr, remote: Option<SocketAddr> },
    Failed { token: Token, error: ErrorKind, errno: Option<i32> },
    Run { token: Token, path: Path, segments: Vec<Vec<u8>> },
    Bytes { link: LinkId, bytes: Vec<u8> },
    InputEnded { link: LinkId },
    Unsent { link: LinkId, bytes: usize },
    Writable { link: LinkId },
    Refused { link: LinkId, remote: SocketAddr },
    Closed { token: Token, link: LinkId, reason: CloseReason },
}

/// Sends back what it gets.
pub struct Echo {
    heard: SyncSender<Heard>,
    /// What found no room yet.
    waiting: VecDeque<Order>,
}

impl Echo {
    fn tell(&self, heard: Heard) {
        // A test that has seen enough listens no more.
        self.heard.send(heard).ok();
    }

    /// Gives back what finds no room.
    fn obey(order: Order, out: &mut Outbox) -> Option<Order> {
        match order {
            Order::Request(request) => out.request(request).err().map(Order::Request),
            Order::Send(path, bytes) => (!out.push(&path, &bytes)).then_some(Order::Send(path, bytes)),
            Order::Nothing => None,
            Order::Write(link, bytes) => (!out.push_bytes(link, &bytes)).then_some(Order::Write(link, bytes)),
        }
    }
}

impl Service for Echo {
    type Message = Order;

    fn handle_message(&mut self, _now: Instant, order: Order, _out: &mut Outbox) {
        self.waiting.push_back(order);
    }
}

impl Product for Echo {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        let segments = run.data.chunks(run.segment_size.get()).map(<[u8]>::to_vec).collect();
        self.tell(Heard::Run { token: run.token, path: run.path, segments });
        for datagram in run.into_datagrams() {
            assert!(out.push(&datagram.path, datagram.data), "there is room before every call");
        }
    }

    fn handle_link(&mut self, _now: Instant, token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        self.tell(match event {
            LinkEvent::Opened { link, local, remote } => Heard::Opened { token, link, local, remote },
            LinkEvent::Failed { error } => Heard::Failed { token, error: error.kind(), errno: error.raw_os_error() },
            LinkEvent::Bytes { link, bytes } => {
                assert!(out.push_bytes(link, bytes), "there is room before every call");
                Heard::Bytes { link, bytes: bytes.to_vec() }
            }
            LinkEvent::InputEnded { link } => Heard::InputEnded { link },
            LinkEvent::Unsent { link, bytes } => Heard::Unsent { link, bytes },
            LinkEvent::Writable { link } => Heard::Writable { link },
            // Nobody asks for it here.
            LinkEvent::Released { .. } => return,
            LinkEvent::Refused { link, remote } => Heard::Refused { link, remote },
            LinkEvent::Closed { link, reason, .. } => Heard::Closed { token, link, reason },
        });
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
        while let Some(order) = self.waiting.pop_front() {
            if let Some(order) = Self::obey(order, out) {
                self.waiting.push_front(order);
                return true;
            }
        }
        false
    }
}

/// A worker with an `Echo`.
pub struct EchoWorker {
    pub handle: WorkerHandle<Order>,
    heard: Receiver<Heard>,
    orders: Cell<u64>,
}

impl EchoWorker {
    /// Starts it, and hears that its sockets are open.
    pub fn start(sockets: Vec<Socket>) -> Self {
        let config = WorkerConfig { sockets, ..WorkerConfig::default() };
        Self::run(Worker::bind(config).expect("the address can be bound"))
    }

    /// The same with one whose sockets are open.
    pub fn run(bound: BoundWorker<Order>) -> Self {
        let (sender, heard) = sync_channel(100_000);
        let make = move || Echo { heard: sender, waiting: VecDeque::new() };
        let worker =
            EchoWorker { handle: bound.run(make).expect("a thread can be started"), heard, orders: Cell::new(0) };
        for OpenSocket { token, link, local } in worker.handle.sockets() {
            let opened = Heard::Opened { token: *token, link: *link, local: *local, remote: None };
            assert_eq!(worker.hear(), opened, "what it has from the start is told as well");
        }
        worker
    }

    pub fn order(&self, mut order: Order) {
        let start = Instant::now();
        while let Err(back) = self.handle.mailbox().send(order) {
            assert!(start.elapsed() < PATIENCE, "the mailbox has room");
            thread::yield_now();
            order = back;
        }
        self.orders.set(self.orders.get() + 1);
    }

    /// Waits for a turn that began after this call, and so had everything that was sent before.
    pub fn settle(&self) {
        for _ in 0..2 {
            self.order(Order::Nothing);
            eventually("an order is obeyed", || self.handle.counters().messages == self.orders.get());
        }
    }

    pub fn request(&self, request: LinkRequest) {
        self.order(Order::Request(request));
    }

    /// The next that the product hears.
    pub fn hear(&self) -> Heard {
        self.heard.recv_timeout(PATIENCE).expect("something is heard")
    }

    /// The next of what the product hears that `pick` wants. What comes before it is passed over.
    pub fn hear_of<T>(&self, pick: impl Fn(&Heard) -> Option<T>) -> T {
        loop {
            let heard = self.hear();
            if let Some(found) = pick(&heard) {
                return found;
            }
        }
    }

    /// The next link that is opened, with our address.
    pub fn hear_opened(&self) -> (LinkId, SocketAddr) {
        self.hear_of(|heard| match heard {
            Heard::Opened { link, local, .. } => Some((*link, *local)),
            _ => None,
        })
    }

    /// The next link that is closed, and why.
    pub fn hear_closed(&self) -> (LinkId, CloseReason) {
        self.hear_of(|heard| match heard {
            Heard::Closed { link, reason, .. } => Some((*link, *reason)),
            _ => None,
        })
    }
}
