//! What a product hears, and what it hears first.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use crate::common::{PATIENCE, eventually};
use engine::{Mailbox, Service, Worker, WorkerConfig, WorkerHandle};
use wire::{DATAGRAM_MAX, LinkEvent, LinkId, LinkRequest, Outbox, Path, Product, StreamOptions, Token};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What the product is to do.
enum Order {
    /// Nothing, until the test says so.
    Wait(Receiver<()>),
    /// Asks for a connection, in an outbox that is full.
    Connect(SocketAddr),
    /// Writes more than the kernel takes, into an outbox that is full.
    Write,
    Read,
    /// Tells what it heard so far.
    Tell(SyncSender<Vec<Heard>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Opened,
    Bytes(usize),
    Unsent,
    Closed,
}

/// Has one connection, and wants to read no more of it after each read.
#[derive(Default)]
struct Listener {
    link: Option<LinkId>,
    heard: Vec<Heard>,
}

fn fill(out: &mut Outbox) {
    let nowhere = Path { link: LinkId::datagrams(9), remote: LOOPBACK, local: None };
    while out.push(&nowhere, &[0; DATAGRAM_MAX]) {}
}

impl Service for Listener {
    type Message = Order;

    fn handle_message(&mut self, _now: Instant, order: Order, out: &mut Outbox) {
        match order {
            Order::Wait(end) => end.recv_timeout(PATIENCE).expect("the test goes on"),
            Order::Connect(to) => {
                let (token, options) = (Token::default(), StreamOptions::default());
                out.request(LinkRequest::Connect { token, to, from: None, options }).expect("room");
                fill(out);
            }
            Order::Write => {
                let shared = Arc::new(vec![7; 8 << 20]);
                assert!(out.push_stream(self.link.expect("it is open"), &shared, 0, shared.len()));
                fill(out);
            }
            Order::Read => {
                let link = self.link.expect("it is open");
                out.request(LinkRequest::Read { link, is_on: true }).expect("room");
            }
            Order::Tell(answer) => answer.send(self.heard.clone()).expect("the test listens"),
        }
    }
}

impl Product for Listener {
    fn handle_link(&mut self, _now: Instant, _token: Token, event: LinkEvent<'_>, out: &mut Outbox) {
        self.heard.push(match event {
            LinkEvent::Opened { link, .. } => {
                self.link = Some(link);
                Heard::Opened
            }
            LinkEvent::Bytes { link, bytes } => {
                out.request(LinkRequest::Read { link, is_on: false }).expect("room");
                Heard::Bytes(bytes.len())
            }
            LinkEvent::Unsent { .. } => Heard::Unsent,
            LinkEvent::Closed { .. } => Heard::Closed,
            other => panic!("{other:?}"),
        });
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        false
    }
}

fn start() -> WorkerHandle<Order> {
    let bound = Worker::bind(WorkerConfig::default()).expect("there are descriptors");
    bound.run(Listener::default).expect("a thread can be started")
}

fn order(mailbox: &Mailbox<Order>, order: Order) {
    assert!(mailbox.send(order).is_ok(), "the mailbox has room");
}

/// Lets the worker do nothing until something is sent there.
fn hold(mailbox: &Mailbox<Order>) -> SyncSender<()> {
    let (go, end) = sync_channel(1);
    order(mailbox, Order::Wait(end));
    go
}

fn tell(mailbox: &Mailbox<Order>) -> Receiver<Vec<Heard>> {
    let (answer, heard) = sync_channel(1);
    order(mailbox, Order::Tell(answer));
    heard
}

fn heard(mailbox: &Mailbox<Order>) -> Vec<Heard> {
    tell(mailbox).recv_timeout(PATIENCE).expect("an answer")
}

/// A connection, which has sent `early` before the worker could know that it is there.
fn connect(mailbox: &Mailbox<Order>, early: &[u8]) -> TcpStream {
    let listener = TcpListener::bind(LOOPBACK).expect("loopback can be bound");
    // Both orders are there when the first is obeyed.
    let begin = hold(mailbox);
    order(mailbox, Order::Connect(listener.local_addr().expect("bound")));
    let go = hold(mailbox);
    begin.send(()).expect("it waits");
    let mut stream = listener.accept().expect("it connects").0;
    stream.write_all(early).expect("written");
    go.send(()).expect("it waits");
    stream
}

#[test]
fn nothing_is_heard_of_a_link_before_it_is_open() {
    let worker = start();
    let mailbox = worker.mailbox();
    let _stream = connect(&mailbox, b"early");
    eventually("it is heard", || heard(&mailbox).len() > 1);
    assert_eq!(heard(&mailbox), [Heard::Opened, Heard::Bytes(5)]);
}

#[test]
fn what_was_not_taken_is_told_before_anything_else() {
    let worker = start();
    let mailbox = worker.mailbox();
    let _stream = connect(&mailbox, b"");
    eventually("it is open", || heard(&mailbox) == [Heard::Opened]);
    let go = hold(&mailbox);
    order(&mailbox, Order::Write);
    let next = tell(&mailbox);
    go.send(()).expect("it waits");
    assert_eq!(next.recv_timeout(PATIENCE).expect("an answer"), [Heard::Opened, Heard::Unsent]);
}

#[test]
fn who_wants_to_read_no_more_is_not_read_to() {
    // What one read brings at most.
    const READ: usize = 16 * 1_024;
    let worker = start();
    let mailbox = worker.mailbox();
    let stream = connect(&mailbox, &[7; 3 * READ]);
    let mut expected = vec![Heard::Opened];
    for _ in 0..3 {
        expected.push(Heard::Bytes(READ));
        eventually("it is read to", || heard(&mailbox).len() >= expected.len());
        // A turn more.
        heard(&mailbox);
        assert_eq!(heard(&mailbox), expected);
        order(&mailbox, Order::Read);
    }
    drop(stream);
}
