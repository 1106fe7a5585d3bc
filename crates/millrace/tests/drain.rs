//! The end of a server's life: the first signal drains, the second one ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use clap::Parser;

#[derive(Parser)]
struct Load {
    #[command(flatten)]
    args: measure::load::Args,
}

#[test]
fn the_first_signal_refuses_newcomers_and_the_second_ends_at_once() {
    let mut server = Server::start();
    let url = format!("http://{}", server.addr);
    spawn(move || {
        let words = ["load", "--url", &url, "--subscribers", "2", "--seconds", "30", "--json"];
        // Its server goes away, which is what this test is about.
        measure::load::measure(&Load::parse_from(words).args).ok();
    });
    server.wait_for("/metrics", "millrace_sessions{role=\"viewer\",state=\"connected\"} 2");

    server.signal();
    server.wait_for("/healthz", "503 Service Unavailable");
    let refused = server.ask("POST /whep/load0 HTTP/1.1\r\nContent-Type: application/sdp\r\n");
    assert!(refused.contains("503 Service Unavailable") && refused.contains("retry-after: 5"), "{refused}");
    sleep(Duration::from_millis(300));
    assert!(server.child.try_wait().expect("a child").is_none(), "it waits for its viewers");

    server.signal();
    let told = Instant::now();
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(2));
}

#[test]
fn without_viewers_the_first_signal_ends_it() {
    let mut server = Server::start();
    server.signal();
    assert_eq!(server.child.wait().expect("a child").code(), Some(0));
}

struct Server {
    child: Child,
    addr: String,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--set", "workers.udp_port=0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("what it prints");
        let (_, rest) = line.split_once("http://").expect("an address");
        Server { addr: rest.trim().trim_end_matches('/').to_owned(), child }
    }

    fn signal(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    }

    /// Sends the head of a request and returns the whole answer.
    fn ask(&self, head: &str) -> String {
        let mut socket = TcpStream::connect(&self.addr).expect("it listens");
        socket.write_all(format!("{head}Host: test\r\nConnection: close\r\n\r\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn wait_for(&self, path: &str, wanted: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.ask(&format!("GET {path} HTTP/1.1\r\n")).contains(wanted) {
            assert!(Instant::now() < until, "{path} never says {wanted}");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
