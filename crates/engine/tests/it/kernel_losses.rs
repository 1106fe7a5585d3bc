//! What the kernel drops before it is sent and before it is read is counted.

use std::net::{SocketAddr, UdpSocket};

use crate::common::own_process::is_alone_in_a_network;
use crate::common::{EchoWorker, Order, eventually};
use engine::{Socket, Worker, WorkerConfig};
use wire::{Path, Token, UdpOptions};

const COUNT: usize = 300;

/// Makes a network in which a queue takes five datagrams, and one each 8 ms.
const NETWORK: &str = "ip link set lo up && ip link add one type veth peer name two && ip link set two up && \
    ip addr add 10.9.0.1/24 dev one && ip link set one up && \
    ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:99 dev one nud permanent && \
    tc qdisc replace dev one root tbf rate 1mbit burst 2000 limit 5000";

#[test]
fn what_a_queue_below_the_socket_drops_is_counted_where_the_kernel_tells() {
    const NAME: &str = "kernel_losses::what_a_queue_below_the_socket_drops_is_counted_where_the_kernel_tells";
    if !is_alone_in_a_network(NAME, NETWORK, "iproute2 and tbf in the kernel") {
        return;
    }
    for refusals in [true, false] {
        let options = UdpOptions { refusals, gso: false, ..UdpOptions::default() };
        let worker = EchoWorker::start(vec![Socket::udp(Token::default(), ([10, 9, 0, 1], 0).into(), options)]);
        let path = Path { link: worker.handle.sockets()[0].link, remote: ([10, 9, 0, 2], 9).into(), local: None };
        for _ in 0..COUNT {
            worker.order(Order::Send(path, vec![7; 1_000]));
        }
        worker.settle();
        let counters = worker.handle.counters();
        assert_eq!(counters.datagrams_out + counters.dropped_queue_full, COUNT as u64, "{counters:?}");
        if refusals {
            assert!(counters.dropped_queue_full > COUNT as u64 / 2, "{counters:?}");
            assert!(counters.send_queue_full >= counters.dropped_queue_full);
        } else {
            assert_eq!(counters.dropped(), 0, "without `refusals` the kernel says that all was sent");
        }
    }
}

#[test]
fn what_finds_no_room_in_a_receive_buffer_is_counted() {
    let options = UdpOptions { receive_buffer_bytes: Some(4_096), ..UdpOptions::default() };
    let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
    let config =
        WorkerConfig { sockets: vec![Socket::udp(Token::default(), loopback, options)], ..WorkerConfig::default() };
    let bound = Worker::bind(config).expect("loopback can be bound");
    let client = UdpSocket::bind(loopback).expect("a port");
    // Nobody reads before some have found no room.
    let to = bound.sockets()[0].local;
    for _ in 0..COUNT {
        client.send_to(&[7; 1_000], to).expect("sent");
    }
    eventually("some find no room", || drops_at(to.port()) > 0);
    let worker = EchoWorker::run(bound);
    eventually("all are counted", || {
        let counters = worker.handle.counters();
        counters.datagrams_in + counters.dropped_receive_full == COUNT as u64 && counters.dropped_receive_full > 0
    });
}

/// Datagrams that found no room in the receive buffer of the UDP socket at a port of an IPv4 address: the last column of
/// `/proc/net/udp`. The second is the address, in hexadecimal digits.
fn drops_at(port: u16) -> u64 {
    let sockets = std::fs::read_to_string("/proc/net/udp").expect("the kernel tells");
    let mine = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mine = mine.filter(|words| words.get(1).is_some_and(|addr| addr.ends_with(&format!(":{port:04X}"))));
    mine.filter_map(|words| words.last()?.parse::<u64>().ok()).sum()
}
