//! A worker with the simplest service, over real sockets.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{eventually, rests};
use engine::{Mailbox, Service, Socket, Worker, WorkerConfig, WorkerHandle};
use wire::{DatagramRun, LinkId, LinkKind, Outbox, Path, Product, Token, UdpOptions};

/// Sends everything back, and what it is told to whoever wrote last; at a set time it says so.
#[derive(Default)]
struct Echo {
    last: Option<Path>,
    alarm: Option<Instant>,
    /// Datagrams still to be made by `poll_transmit`.
    burst: usize,
}

#[derive(Debug)]
enum Message {
    Say(&'static [u8]),
    SayAfter(Duration),
    Burst(usize),
    SayOver(LinkId),
}

impl Service for Echo {
    type Message = Message;

    fn handle_message(&mut self, now: Instant, message: Message, out: &mut Outbox) {
        match (message, self.last) {
            (Message::Say(bytes), Some(path)) => assert!(out.push(&path, bytes)),
            (Message::SayAfter(span), _) => self.alarm = Some(now + span),
            (Message::Burst(count), _) => self.burst += count,
            (Message::SayOver(link), Some(path)) => assert!(out.push(&Path { link, ..path }, b"lost")),
            _ => {}
        }
    }
}

impl Product for Echo {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        for datagram in run.into_datagrams() {
            self.last = Some(datagram.path);
            assert!(out.push(&datagram.path, datagram.data), "there is room before every call");
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        if let (Some(alarm), Some(path)) = (self.alarm, self.last) {
            assert!(alarm <= now, "not before its time");
            self.alarm = None;
            out.push(&path, b"alarm");
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.alarm
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
        let Some(path) = self.last else { return false };
        while self.burst > 0 && out.push(&path, &[9; 1_000]) {
            self.burst -= 1;
        }
        self.burst > 0
    }
}

/// Has more to say until it was asked so many times, and tells what time it was then.
struct Talker {
    times: SyncSender<Instant>,
    left: usize,
}

impl Service for Talker {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, _message: (), _out: &mut Outbox) {}
}

impl Product for Talker {
    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, _out: &mut Outbox) -> bool {
        while Instant::now() == now {}
        // Who listens has heard enough.
        self.times.send(now).ok();
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

#[test]
fn who_has_more_to_say_is_told_the_time_anew_for_each_outbox() {
    let (times, told) = sync_channel(4);
    let bound = Worker::bind::<()>(WorkerConfig::default()).expect("a worker without sockets");
    let worker = bound.run(move || Talker { times, left: 4 }).expect("a thread can be started");
    let told: Vec<Instant> = told.iter().take(4).collect();
    assert!(told.is_sorted_by(|one, next| one < next), "{told:?}");
    worker.stop().expect("it ends well");
}

/// Does what is due when it is asked for more, as who lets several write in turns. Of each datagram something is due at once;
/// a message lets it ask to be woken.
#[derive(Default)]
struct Turner {
    due: Option<Instant>,
    wake: Option<Instant>,
    woken: Arc<AtomicU64>,
}

impl Service for Turner {
    type Message = ();

    fn handle_message(&mut self, now: Instant, _message: (), _out: &mut Outbox) {
        self.wake = Some(now + Duration::from_millis(1));
    }

    fn poll_wake(&self) -> Option<Instant> {
        self.wake
    }
}

impl Product for Turner {
    fn handle_run(&mut self, now: Instant, _run: DatagramRun<'_>, _out: &mut Outbox) {
        self.due = Some(now);
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn poll_transmit(&mut self, now: Instant, _out: &mut Outbox) -> bool {
        self.due = None;
        if self.wake.take_if(|at| *at <= now).is_some() {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
        false
    }
}

#[test]
fn what_is_due_counts_once_whenever_it_is_done_and_a_wish_to_be_woken_never() {
    let turner = Turner::default();
    let woken = Arc::clone(&turner.woken);
    let bound = Worker::bind(on("127.0.0.1:0")).expect("loopback can be bound");
    let worker = bound.run(move || turner).expect("a thread can be started");
    let client = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    for number in 1..=20 {
        client.send_to(b"due", worker.sockets()[0].local).expect("sent");
        eventually("it is counted", || worker.counters().lateness.count() == number);
        worker.mailbox().send(()).expect("room");
        eventually("it is woken", || woken.load(Ordering::Relaxed) == number);
    }
    rests(&worker);
    assert_eq!((worker.counters().lateness.count(), worker.counters().timeouts), (20, 20));
}

fn start(config: WorkerConfig) -> WorkerHandle<Message> {
    let bound = Worker::bind(config).expect("loopback can be bound");
    bound.run(Echo::default).expect("a thread can be started")
}

fn on(addr: &str) -> WorkerConfig {
    with(addr, UdpOptions::default())
}

fn with(addr: &str, options: UdpOptions) -> WorkerConfig {
    let socket = Socket::udp(Token::default(), addr.parse().expect("an address"), options);
    WorkerConfig { sockets: vec![socket], ..WorkerConfig::default() }
}

fn client(worker: &WorkerHandle<Message>) -> UdpSocket {
    let addr = worker.sockets()[0].local;
    let ip = if addr.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(ip).expect("loopback can be bound");
    let target = if addr.ip().is_unspecified() && addr.is_ipv4() {
        ([127, 0, 0, 9], addr.port()).into()
    } else if addr.ip().is_unspecified() {
        (std::net::Ipv6Addr::LOCALHOST, addr.port()).into()
    } else {
        addr
    };
    socket.connect(target).expect("connect");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("timeout");
    socket
}

fn send(mailbox: &Mailbox<Message>, message: Message) {
    assert!(mailbox.send(message).is_ok(), "the mailbox has room");
}

fn ask(socket: &UdpSocket, question: &[u8]) -> Vec<u8> {
    socket.send(question).expect("send");
    receive(socket)
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buf = [0; 2_048];
    let len = socket.recv(&mut buf).expect("an answer within ten seconds");
    buf[..len].to_vec()
}

#[test]
fn every_datagram_comes_back_over_both_families_and_with_every_fallback() {
    for addr in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"] {
        for (gso, gro) in [(true, true), (false, true), (true, false), (false, false)] {
            let worker = start(with(addr, UdpOptions { gso, gro, ..UdpOptions::default() }));
            // The client is connected, so an answer from another address than the one asked would not arrive.
            let client = client(&worker);
            for number in 0..20_u8 {
                assert_eq!(ask(&client, &[number; 100]), [number; 100], "{addr}, GSO {gso}, GRO {gro}");
            }
            worker.stop().expect("a clean end");
        }
    }
}

#[test]
fn a_message_wakes_a_sleeping_worker() {
    let worker = start(on("127.0.0.1:0"));
    let client = client(&worker);
    ask(&client, b"hello");
    for _ in 0..50 {
        send(&worker.mailbox(), Message::Say(b"told"));
        assert_eq!(receive(&client), b"told");
    }
    eventually("messages are counted", || worker.counters().messages == 50);
}

#[test]
fn a_timeout_comes_when_it_is_due_and_its_lateness_is_known() {
    let worker = start(on("127.0.0.1:0"));
    let client = client(&worker);
    ask(&client, b"hello");
    let start = Instant::now();
    send(&worker.mailbox(), Message::SayAfter(Duration::from_millis(3)));
    assert_eq!(receive(&client), b"alarm");
    assert!(start.elapsed() >= Duration::from_millis(3));
    eventually("the timeout is counted", || worker.counters().lateness.count() == 1);
}

#[test]
fn what_does_not_fit_the_outbox_follows_after_a_flush() {
    let worker = start(WorkerConfig { outbox_bytes: 8_000, ..on("127.0.0.1:0") });
    let client = client(&worker);
    ask(&client, b"hello");
    send(&worker.mailbox(), Message::Burst(60));
    for _ in 0..60 {
        assert_eq!(receive(&client), [9; 1_000]);
    }
    eventually("datagrams are counted", || worker.counters().datagrams_out == 61);
    let counters = worker.counters();
    assert!(counters.gso_sends >= 8 && counters.send_calls <= counters.datagrams_out / 5, "{counters:?}");
}

#[test]
fn an_idle_worker_sleeps() {
    let worker = start(on("127.0.0.1:0"));
    ask(&client(&worker), b"hello");
    eventually("it sleeps", || worker.counters().sleeps > 0);
    rests(&worker);
    let turns = worker.counters().turns;
    let used = worker.cpu_time();
    thread::sleep(Duration::from_millis(100));
    // A second after it has received something it looks what found no room.
    assert!(worker.counters().turns <= turns + 1, "none without a reason");
    assert!(used.is_some_and(|used| used > Duration::ZERO));
}

#[test]
fn datagrams_that_come_often_share_their_wake_ups() {
    let coalesce = Duration::from_millis(20);
    let worker = start(WorkerConfig { coalesce, ..on("127.0.0.1:0") });
    let client = client(&worker);
    let start = Instant::now();
    for number in 0..200_u8 {
        client.send(&[number]).expect("send");
        thread::sleep(Duration::from_micros(500));
    }
    for number in 0..200_u8 {
        assert_eq!(receive(&client), [number]);
    }
    // After one that was woken early comes one that is as long as that.
    let sleeps_max = 2 * (start.elapsed().as_nanos() / coalesce.as_nanos()) as u64 + 4;
    assert!(worker.counters().sleeps <= sleeps_max, "{} of {sleeps_max}", worker.counters().sleeps);
}

#[test]
fn an_address_that_is_taken_is_an_error_of_bind_and_names_the_address() {
    let worker = start(on("127.0.0.1:0"));
    let taken = worker.sockets()[0].local.to_string();
    let error = Worker::bind::<Message>(on(&taken)).err().expect("the address is taken");
    assert!(error.to_string().contains(&taken), "{error}");
}

#[test]
fn datagrams_for_a_link_that_is_not_there_are_counted() {
    let worker = start(on("127.0.0.1:0"));
    ask(&client(&worker), b"hello");
    // A socket that the worker has not, and a TCP link that never was.
    send(&worker.mailbox(), Message::SayOver(LinkId::datagrams(7)));
    send(&worker.mailbox(), Message::SayOver(LinkId::new(LinkKind::Framed, 0, 0)));
    eventually("both are counted", || worker.counters().dropped_no_link == 2);
}

#[test]
fn input_is_served_while_there_is_always_more_to_send() {
    let worker = start(on("127.0.0.1:0"));
    let (greedy, modest) = (client(&worker), client(&worker));
    ask(&greedy, b"hello");
    send(&worker.mailbox(), Message::Burst(usize::MAX));
    eventually("it sends without end", || worker.counters().datagrams_out > 10_000);
    // What is asked from now on changes the burst's target, so any message shows that input was served.
    assert_eq!(ask(&modest, b"question"), b"question");
    let (told, timeouts) = (worker.counters().messages, worker.counters().timeouts);
    send(&worker.mailbox(), Message::SayAfter(Duration::from_millis(1)));
    eventually("the message is heard", || worker.counters().messages == told + 1);
    eventually("the timeout is served", || worker.counters().timeouts == timeouts + 1);
    worker.stop().expect("a clean end");
}
