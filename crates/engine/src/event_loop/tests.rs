use std::net::SocketAddr;

use super::*;
use wire::{LinkRequest, Token};

use crate::links::tests::with_backlogs;
use crate::links::{Body, PatientSockets};
use crate::mailbox::{Mailbox, mailbox};
use crate::sys::Beginning;
use crate::udp::UdpSocket;

/// Does nothing.
struct Nobody;

impl Service for Nobody {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}
}

impl wire::Product for Nobody {
    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        false
    }
}

#[test]
fn what_waits_for_room_in_connections_leaves_in_shares_of_turns() {
    const WAITING: usize = 50_000;
    let (links, clients) = with_backlogs(20, WAITING);
    let (_mailbox, receiver) = mailbox::<()>(1).expect("eventfd");
    let mut own = Loop::new(4_096, Duration::ZERO, links, receiver, Arc::default(), Arc::default()).expect("epoll");
    let mut waiting = own.egress.links.backlog_bytes();
    assert!(waiting >= clients.len() * WAITING);
    let mut turns = 0;
    while waiting > 0 {
        own.handle_connections(&mut Nobody, Instant::now()).expect("epoll");
        let rest = own.egress.links.backlog_bytes();
        assert!(waiting - rest < CONNECTION_BYTES_MAX + WAITING * 2, "{} bytes in one turn", waiting - rest);
        (waiting, turns) = (rest, turns + 1);
    }
    assert!(turns > 1);
}

/// Always has more to send, which takes longer than the time for it.
#[derive(Default)]
struct Slow {
    sends: usize,
}

impl Service for Slow {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}
}

impl wire::Product for Slow {
    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, _out: &mut Outbox) -> bool {
        self.sends += 1;
        while now.elapsed() <= FLUSHING_MAX {}
        true
    }
}

#[test]
fn who_takes_long_to_send_leaves_input_its_turn() {
    let (_mailbox, receiver) = mailbox::<()>(1).expect("eventfd");
    let mut own =
        Loop::new(4_096, Duration::ZERO, Links::new().expect("epoll"), receiver, Arc::default(), Arc::default())
            .expect("epoll");
    let mut slow = Slow::default();
    assert!(own.transmit(&mut slow, Instant::now()), "there is more");
    assert_eq!(slow.sends, 1);
}

/// Has something due, which can wait or cannot.
struct Due {
    at: Instant,
    is_exact: bool,
}

impl Service for Due {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}

    fn poll_exact(&self) -> Option<Instant> {
        self.is_exact.then_some(self.at)
    }
}

impl wire::Product for Due {
    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.at)
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        false
    }
}

#[test]
fn what_is_due_and_can_wait_does_not_end_a_rest() {
    const REST: Duration = Duration::from_millis(5);
    let (_mailbox, receiver) = mailbox::<()>(1).expect("eventfd");
    let mut own =
        Loop::new(4_096, REST, Links::new().expect("epoll"), receiver, Arc::default(), Arc::default()).expect("epoll");
    for (is_exact, comes_often, sleeps) in [(true, true, 0), (false, false, 0), (false, true, 1)] {
        let now = Instant::now();
        (own.woke, own.comes_often) = (now, comes_often);
        own.wait(&Due { at: now, is_exact }, now, false).expect("epoll");
        assert_eq!(own.egress.links.counts.sleeps, sleeps);
    }
    assert!(own.woke.elapsed() >= REST);
}

/// Sends all that comes to one place, behind a byte.
struct Forwarder {
    to: Path,
}

impl Service for Forwarder {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}
}

impl wire::Product for Forwarder {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, out: &mut Outbox) {
        out.push_prefixed(&self.to, &run, 0..run.datagram_count(), 0..usize::MAX, |_| [7]);
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        false
    }
}

#[test]
fn what_many_sockets_have_is_received_first_and_leaves_in_one_call() {
    const SOCKETS: u8 = 40;
    let mut links = Links::new().expect("epoll");
    let mut opened = (0..=SOCKETS).map(|_| {
        let addr = ([127, 0, 0, 1], 0).into();
        let (token, options) = (Token::default(), wire::UdpOptions::default());
        links.handle_request(Instant::now(), LinkRequest::OpenUdp { token, addr, ports: None, options });
        let Some((_, LinkEvent::Opened { link, local, .. })) = links.poll_news() else { panic!("it is told") };
        (link, local)
    });
    let (way_out, _) = opened.next().expect("a socket");
    let others: Vec<_> = opened.collect();
    let [sender, receiver] = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound"));
    for (number, (_, addr)) in (0..).zip(&others) {
        sender.send_to(&[number], addr).expect("it is sent");
    }
    receiver.set_nonblocking(true).expect("it is a socket");
    let (_mailbox, messages) = mailbox::<()>(1).expect("eventfd");
    let mut own = Loop::new(200_000, Duration::ZERO, links, messages, Arc::default(), Arc::default()).expect("epoll");
    let remote = receiver.local_addr().expect("bound");
    let mut forwarder = Forwarder { to: Path { link: way_out, remote, local: None } };
    own.egress.links.epoll.wait(None).expect("epoll");
    own.turn(&mut forwarder, Instant::now()).expect("a turn");

    let mut buf = [0; 10];
    let got = (0..SOCKETS).map(|_| {
        assert_eq!(receiver.recv(&mut buf).expect("it came"), 2);
        buf[1]
    });
    let mut got: Vec<u8> = got.collect();
    let counts = &own.egress.links.counts;
    assert_eq!((counts.receive_calls, counts.send_calls), (SOCKETS.into(), 2), "{SOURCES_MAX} at a time");
    got.sort_unstable();
    assert_eq!(got, (0..SOCKETS).collect::<Vec<u8>>());
}

/// Counts what comes.
#[derive(Default)]
struct Counter {
    datagrams: usize,
    is_awaited: bool,
}

impl Service for Counter {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}

    fn is_awaited(&self, _now: Instant) -> bool {
        self.is_awaited
    }
}

impl wire::Product for Counter {
    fn handle_run(&mut self, _now: Instant, run: DatagramRun<'_>, _out: &mut Outbox) {
        self.datagrams += run.datagram_count();
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Outbox) -> bool {
        false
    }
}

/// A loop whose one port has two sockets, of which the second gets all that comes; and its address.
fn patient_loop(patience: Duration) -> (Loop<()>, Mailbox<()>, SocketAddr) {
    let mut links = Links::new().expect("epoll");
    links.patient = PatientSockets::new(patience);
    let options = wire::UdpOptions::default();
    let first = UdpSocket::bind(([127, 0, 0, 1], 0).into(), &options).expect("loopback can be bound");
    let second = first.beside(&[Beginning(0..=255, 0..=255)], &options).expect("two on one port");
    let (link, addr) = links.open(Instant::now(), Token::default(), Body::Udp(first)).expect("it is opened");
    links.add_patient(link, second).expect("it is taken in");
    let (mailbox, messages) = mailbox(1).expect("eventfd");
    let own = Loop::new(4_096, Duration::ZERO, links, messages, Arc::default(), Arc::default()).expect("epoll");
    (own, mailbox, addr)
}

#[test]
fn what_can_wait_is_looked_at_by_turns_when_half_of_its_time_is_over_and_wakes_when_all_of_it_is() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (mut own, _mailbox, to) = patient_loop(PATIENCE);
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let send = || sender.send_to(&[1, 2], to).map(drop).expect("sent");
    let (mut counter, start) = (Counter::default(), Instant::now());
    // One turn at that time: what was heard until then, when the next look is, and whether the kernel had told of something.
    let mut turn = |after: Duration| {
        own.egress.links.epoll.wait(Some(Duration::ZERO)).expect("epoll");
        let is_told = own.egress.links.epoll.ready_count() > 0;
        assert!(!own.turn(&mut counter, start + after).expect("a turn"), "nothing is left");
        (counter.datagrams, own.egress.links.patient.next_look(start, false).map(|at| at - start), is_told)
    };
    turn(Duration::ZERO);
    send();
    assert_eq!(turn(Duration::ZERO), (1, Some(PATIENCE), true));
    send();
    assert_eq!(turn(PATIENCE / 2 - Duration::from_nanos(1)), (1, Some(PATIENCE), false));
    assert_eq!(turn(PATIENCE / 2), (2, Some(PATIENCE * 3 / 2), false));
    // A look that finds nothing is the last.
    assert_eq!(turn(PATIENCE * 3 / 2), (2, None, false));
    send();
    assert_eq!(turn(PATIENCE * 3 / 2), (3, Some(PATIENCE * 5 / 2), true));
}

#[test]
fn what_can_wait_comes_with_all_other_work_while_somebody_waits_for_it_and_soon_without_any() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (mut own, _mailbox, to) = patient_loop(PATIENCE);
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let mut counter = Counter { is_awaited: true, ..Counter::default() };
    let now = Instant::now();
    for count in 1..=3 {
        sender.send_to(&[1, 2], to).expect("sent");
        own.egress.links.epoll.wait(Some(Duration::ZERO)).expect("epoll");
        assert!(!own.turn(&mut counter, now).expect("a turn"), "nothing is left");
        assert_eq!(counter.datagrams, count);
        assert_eq!(own.egress.links.patient.next_look(now, true), Some(now + PATIENCE / 8));
    }
}

#[test]
fn more_that_can_wait_than_a_turn_takes_is_taken_by_the_next() {
    const COUNT: usize = 300;
    let (mut own, _mailbox, to) = patient_loop(Duration::from_secs(10));
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    (0..COUNT).for_each(|_| sender.send_to(&[1, 2], to).map(drop).expect("sent"));
    let mut counter = Counter::default();
    let now = Instant::now();
    own.egress.links.epoll.wait(Some(Duration::ZERO)).expect("epoll");
    assert!(own.turn(&mut counter, now).expect("a turn"), "there is more");
    let taken = counter.datagrams;
    assert!(taken < COUNT);
    own.egress.links.epoll.wait(Some(Duration::ZERO)).expect("epoll");
    assert!(!own.turn(&mut counter, now).expect("a turn"), "that was all");
    assert_eq!(counter.datagrams, COUNT);
}

#[test]
fn where_much_comes_that_can_wait_it_waits_for_a_quarter_of_the_time() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (mut own, _mailbox, to) = patient_loop(PATIENCE);
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    for (count, wait) in [(100, PATIENCE / 4), (10, PATIENCE)] {
        (0..count).for_each(|_| sender.send_to(&[1, 2], to).map(drop).expect("sent"));
        let now = Instant::now() + PATIENCE;
        own.egress.links.epoll.wait(Some(Duration::ZERO)).expect("epoll");
        assert!(!own.turn(&mut Counter::default(), now).expect("a turn"), "nothing is left");
        assert_eq!(own.egress.links.patient.next_look(now, false), Some(now + wait), "{count}");
    }
}
