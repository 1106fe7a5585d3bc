//! UDP sockets that come and go while a worker runs.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};

use crate::common::{
    EchoWorker, Heard, LEFT_TO_OTHERS, Order, PATIENCE, affordable, eventually, has_open_files, loopback, rests,
};
use engine::Socket;
use wire::{Adopted, CloseReason, LinkId, LinkRequest, Path, Token, UdpOptions};

const SOCKETS: usize = 10_000;

/// Buffers as the system has them: thousands of sockets do not ask for megabytes each.
fn small() -> UdpOptions {
    UdpOptions { receive_buffer_bytes: None, send_buffer_bytes: None, ..UdpOptions::default() }
}

fn token(number: u32) -> Token {
    Token { owner: 3, number }
}

fn open(addr: SocketAddr, number: u32) -> LinkRequest {
    LinkRequest::OpenUdp { token: token(number), addr, ports: None, options: small() }
}

fn client(addr: SocketAddr) -> UdpSocket {
    let client = UdpSocket::bind(addr).expect("loopback can be bound");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client
}

/// Asks one address, and expects the answer from there.
fn ask(client: &UdpSocket, to: SocketAddr, question: &[u8]) {
    client.send_to(question, to).expect("sent");
    let mut buf = [0; 100];
    let (len, from) = client.recv_from(&mut buf).expect("an answer");
    assert_eq!((&buf[..len], from), (question, to));
}

#[test]
fn ten_thousand_sockets_are_opened_and_closed_and_each_answers_from_its_own_address() {
    const NAME: &str = "udp_links::ten_thousand_sockets_are_opened_and_closed_and_each_answers_from_its_own_address";
    if !has_open_files(SOCKETS as u64 + LEFT_TO_OTHERS, NAME) {
        return;
    }
    let (addr, count) = (loopback(0), affordable(SOCKETS, 1, NAME) as u32);
    let worker = EchoWorker::start(Vec::new());
    let mut old = HashSet::new();
    for round in 0..2_u64 {
        (0..count).for_each(|number| worker.request(open(addr, number)));
        let mut links: Vec<(LinkId, SocketAddr)> = Vec::new();
        for number in 0..count {
            let Heard::Opened { token: named, link, local, remote: None } = worker.hear() else { panic!("it opens") };
            assert_eq!(named, token(number), "in order");
            assert!(old.insert(link), "{link:?} was never given before");
            links.push((link, local));
        }
        let client = client(addr);
        for (number, (link, local)) in links.iter().enumerate() {
            ask(&client, *local, &number.to_be_bytes());
            let Heard::Run { token: named, path, segments } = worker.hear() else { panic!("it is heard") };
            assert_eq!(
                (named, path.link, segments),
                (token(number as u32), *link, vec![number.to_be_bytes().to_vec()])
            );
        }
        for (link, _) in &links {
            worker.request(LinkRequest::Close { link: *link });
        }
        for (number, (link, _)) in links.iter().enumerate() {
            let closed = Heard::Closed { token: token(number as u32), link: *link, reason: CloseReason::Asked };
            assert_eq!(worker.hear(), closed);
        }
        // What is sent to links that are gone goes nowhere, though their slots will be used again.
        let gone = (round + 1) * links.len() as u64;
        for (link, local) in links {
            worker.order(Order::Send(Path { link, remote: local, local: None }, vec![1]));
        }
        eventually("what goes nowhere is counted", || worker.handle.counters().dropped_no_link == gone);
    }
    worker.handle.stop().expect("a clean end");
}

#[test]
fn a_socket_that_cannot_be_had_is_told_and_others_stay() {
    let addr = loopback(1);
    let worker = EchoWorker::start(vec![Socket::udp(token(1), addr, small())]);
    let taken = worker.handle.sockets()[0].local;
    worker.request(LinkRequest::OpenUdp { token: token(2), addr: taken, ports: None, options: small() });
    let failed = Heard::Failed { token: token(2), error: std::io::ErrorKind::AddrInUse, errno: Some(98) };
    assert_eq!(worker.hear(), failed);
    ask(&client(addr), taken, b"still there");

    let ports = Some(taken.port().saturating_sub(20)..=taken.port().saturating_add(20));
    worker.request(LinkRequest::OpenUdp { token: token(3), addr: taken, ports: ports.clone(), options: small() });
    let (_, local) = worker.hear_opened();
    assert!(local != taken && ports.is_some_and(|ports| ports.contains(&local.port())));
    ask(&client(addr), local, b"another one");
    eventually("it is counted", || worker.handle.counters().links_failed == 1);
}

#[test]
fn a_socket_that_receives_hears_of_refusals_and_loses_nothing() {
    let addr = loopback(2);
    let options = UdpOptions { refusals: true, ..small() };
    let worker = EchoWorker::start(vec![Socket::udp(token(1), addr, options)]);
    let (link, local) = (worker.handle.sockets()[0].link, worker.handle.sockets()[0].local);
    let (client, gone) = (client(addr), client(addr).local_addr().expect("bound"));
    for number in 0..200_u8 {
        worker.order(Order::Send(Path { link, remote: gone, local: None }, vec![number]));
        ask(&client, local, &[number; 10]);
    }
    let refused = worker.hear_of(|heard| match heard {
        Heard::Refused { link, remote } => Some((*link, *remote)),
        _ => None,
    });
    assert_eq!(refused, (link, gone));
    assert_eq!(worker.handle.counters().receive_errors, 0);
}

#[test]
fn what_comes_to_one_who_only_sends_takes_no_room_from_refusals() {
    let addr = loopback(4);
    let (client, gone) = (client(addr), client(addr).local_addr().expect("bound"));
    let worker = EchoWorker::start(Vec::new());
    // More than there is room for, when nobody has heard yet that it only sends, and afterwards.
    let flood = |to| (0..200).for_each(|_| assert_eq!(client.send_to(&[7; 1_000], to).expect("sent"), 1_000));
    let socket = UdpSocket::bind(addr).expect("loopback can be bound");
    flood(socket.local_addr().expect("bound"));
    let kind = Adopted::Udp(UdpOptions::sender());
    worker.request(LinkRequest::Adopt { token: token(1), descriptor: socket.into(), kind });
    let (link, local) = worker.hear_opened();
    for _ in 0..2 {
        worker.order(Order::Send(Path { link, remote: gone, local: None }, vec![1]));
        assert_eq!(worker.hear(), Heard::Refused { link, remote: gone });
        rests(&worker.handle);
        flood(local);
    }
}

#[test]
fn an_error_of_a_socket_wakes_its_worker_once() {
    let addr = loopback(5);
    let (socket, gone) = (client(addr), client(addr).local_addr().expect("bound"));
    // Of a connected socket the kernel tells errors that nobody asked for.
    socket.connect(gone).expect("an address");
    let worker = EchoWorker::start(Vec::new());
    let kind = Adopted::Udp(UdpOptions { send_only: true, ..small() });
    worker.request(LinkRequest::Adopt { token: token(1), descriptor: socket.into(), kind });
    let (link, _) = worker.hear_opened();
    worker.order(Order::Send(Path { link, remote: gone, local: None }, vec![1]));
    eventually("it is sent", || worker.handle.counters().datagrams_out == 1);
    rests(&worker.handle);
}

#[test]
fn workers_share_an_address_and_each_gets_its_senders() {
    let addr = loopback(3);
    let options = UdpOptions { reuse_port: true, ..small() };
    let first = EchoWorker::start(vec![Socket::udp(token(1), addr, options.clone())]);
    let shared = first.handle.sockets()[0].local;
    let second = EchoWorker::start(vec![Socket::udp(token(1), shared, options)]);
    // The kernel spreads senders by a hash of their addresses.
    let mut clients = Vec::new();
    let has_both = |clients: &mut Vec<UdpSocket>| {
        clients.push(client(addr));
        ask(&clients[clients.len() - 1], shared, b"who is there");
        [&first, &second].iter().all(|worker| worker.handle.counters().datagrams_in > 0)
    };
    while !has_both(&mut clients) {
        assert!(clients.len() < 1_000, "of a thousand senders each worker gets some");
    }
    for client in &clients {
        ask(client, shared, b"still there");
    }
}
