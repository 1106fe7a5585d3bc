//! The load against a relay without rules (`bench::relay`), in this process.

use std::net::SocketAddr;
use std::thread;

use super::*;
use crate::clients::typed;

/// A relay that is there until the process ends.
fn relay() -> SocketAddr {
    let args = bench::relay::Args { listen: "127.0.0.1:0".parse().unwrap(), way: bench::relay::Way::Gro };
    let relay = bench::relay::Relay::new(&args).unwrap();
    let addr = relay.local_addr();
    thread::spawn(move || relay.run());
    addr
}

fn measured(words: &str) -> Report {
    let server = relay().to_string();
    let line = format!("--server {server} --seconds 1 --warm-up 0.1 --url http://127.0.0.1:9 --json {words}");
    measure(&args(&line)).unwrap()
}

fn args(line: &str) -> Args {
    typed(&line.split(' ').collect::<Vec<_>>()).unwrap()
}

/// Every client has its allocation, and what came is what was sent.
fn assert_sound(report: &Report, clients: usize) {
    assert_eq!((report.clients, report.failed, report.damaged, report.duplicates), (clients, 0, 0, 0), "{report:?}");
    assert!(report.packets > 0 && report.sent > 0 && report.lost <= report.sent, "{report:?}");
    assert_eq!(report.reordered, 0, "{report:?}");
}

#[test]
fn a_flood_comes_back_to_clients_of_all_threads() {
    let report = measured("--clients 7 --threads 2 --peers 2 --in-flight 8 --length 33");
    assert_sound(&report, 7);
    assert_eq!(report.bytes, report.packets * 33);
    assert!(report.latency.count >= report.packets && report.set_up.count == 7, "{report:?}");
}

#[test]
fn at_a_pace_no_more_is_sent_than_it_says() {
    let report = measured("--clients 20 --rate 100");
    assert_sound(&report, 20);
    // The thread may be late, and then sends what is due at once; never more.
    assert!(report.sent as f64 <= report.seconds * 2_000.0 + 200.0, "{report:?}");
}

#[test]
fn what_peers_keep_counts_there() {
    let report = measured("--clients 3 --rate 200 --sink --no-gso");
    assert_sound(&report, 3);
}

#[test]
fn allocations_are_made_and_freed_again_and_again() {
    let report = measured("--clients 5 --allocate");
    assert_eq!((report.clients, report.failed, report.bytes), (5, 0, 0), "{report:?}");
    assert!(report.packets > 5 && report.latency.count > 5, "{report:?}");
}

#[test]
fn clients_have_sockets_of_their_own_where_they_are_told_to_be() {
    let report = measured("--clients 4 --peers 2 --from 127.0.0.1 --in-flight 4");
    assert_sound(&report, 4);
}

#[test]
fn where_no_server_is_nobody_gets_an_allocation() {
    // No other test is on this host.
    let nobody = std::net::TcpListener::bind("127.77.5.1:0").unwrap().local_addr().unwrap();
    let line = format!("--server {nobody} --transport tcp");
    let error = measure(&args(&line)).unwrap_err().to_string();
    assert!(error.contains("no client got an allocation: connect"), "{error}");
}
