//! A process that runs out of descriptors: what cannot be had is told, and what is there stays.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::common::{EchoWorker, Heard, PATIENCE, eventually, has_open_files};
use engine::Socket;
use wire::{LinkId, LinkRequest, ListenOptions, StreamOptions, Token, UdpOptions};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const FILES: u64 = 100;

/// "Too many open files".
const EMFILE: i32 = 24;

fn token(number: u32) -> Token {
    Token { owner: 0, number }
}

fn talk(mut stream: &TcpStream, text: &[u8]) {
    stream.write_all(text).expect("written");
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).expect("it comes back");
    assert_eq!(back, text);
}

fn connect(worker: &EchoWorker) -> TcpStream {
    let stream = TcpStream::connect(worker.handle.sockets()[0].local).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

#[test]
fn what_cannot_be_had_is_told_and_newcomers_wait_until_it_can() {
    if !has_open_files(FILES, "descriptors::what_cannot_be_had_is_told_and_newcomers_wait_until_it_can") {
        return;
    }
    let options = UdpOptions { receive_buffer_bytes: None, send_buffer_bytes: None, ..UdpOptions::default() };
    let open =
        |number| LinkRequest::OpenUdp { token: token(number), addr: LOOPBACK, ports: None, options: options.clone() };
    let worker = EchoWorker::start(vec![Socket::listener(token(0), LOOPBACK, ListenOptions::default())]);
    let old = connect(&worker);
    worker.hear_opened();
    talk(&old, b"before");

    let mut links: Vec<LinkId> = Vec::new();
    let failed = loop {
        worker.request(open(links.len() as u32));
        match worker.hear_of(|heard| match heard {
            Heard::Opened { link, .. } => Some(Ok(*link)),
            Heard::Failed { token, errno, .. } => Some(Err((*token, *errno))),
            _ => None,
        }) {
            Ok(link) => links.push(link),
            Err(failed) => break failed,
        }
    };
    assert_eq!(failed, (token(links.len() as u32), Some(EMFILE)));
    assert!(links.len() < FILES as usize);
    let (listen, connect_to) = (ListenOptions::default(), worker.handle.sockets()[0].local);
    worker.request(LinkRequest::Listen { token: token(200), addr: LOOPBACK, options: listen });
    let options = StreamOptions::default();
    worker.request(LinkRequest::Connect { token: token(201), to: connect_to, from: None, options });
    for number in [200, 201] {
        let failed = worker.hear_of(|heard| match heard {
            Heard::Failed { token, errno, .. } => Some((*token, *errno)),
            _ => None,
        });
        assert_eq!(failed, (token(number), Some(EMFILE)));
    }
    talk(&old, b"while none is left");

    // What is left to others they have; the last is ours, so the worker finds none for the other end.
    let mut others: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!others.is_empty(), "products left some");
    others.pop();
    let newcomer = connect(&worker);
    eventually("the newcomer waits", || worker.handle.counters().tcp_refused > 0);
    talk(&old, b"while another waits");
    for link in links {
        worker.request(LinkRequest::Close { link });
    }
    talk(&newcomer, b"at last");
    talk(&old, b"after");
}
