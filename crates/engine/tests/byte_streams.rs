//! Ten thousand byte streams, served from shared memory and from a file, with slow readers among them.
#![allow(clippy::unwrap_used)]

#[path = "it/common.rs"]
mod common;
#[path = "../../../tests/support/heap.rs"]
mod heap;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use common::{LEFT_TO_OTHERS, PATIENCE, affordable, eventually, has_open_files};
use engine::{Service, Socket, Worker, WorkerConfig, WorkerHandle};
use wire::{DatagramRun, LinkEvent, LinkId, LinkRequest, ListenOptions, Outbox, Product, StreamOptions, Token};

const STREAMS: usize = 10_000;

/// Streams that are not read before all others are through.
const SLOW: usize = 300;

/// Others that are served at the same time.
const TOGETHER: usize = 200;

/// More than the kernel takes for one who does not read.
const CONTENT_BYTES: usize = 256 * 1_024;

/// Of one piece.
const PIECE_BYTES: usize = 48 * 1_024;

/// What stands before the content.
const HEAD: &[u8] = b"a head that must not be torn\n";

/// One who watches: where he is in the content, once he has asked for it.
#[derive(Clone, Copy)]
struct Viewer {
    link: LinkId,
    has_head: bool,
    position: usize,
    is_blocked: bool,
}

/// Serves one content to all, and keeps no more than each one's position.
struct Reflector {
    memory: Arc<Vec<u8>>,
    file: Arc<File>,
    /// By slot.
    viewers: Vec<Option<Viewer>>,
    /// Slots of viewers who have something to get.
    due: Vec<usize>,
    blocked: Arc<AtomicU64>,
}

impl Reflector {
    /// Writes one piece for a viewer. False when there is no room.
    fn write(&mut self, slot: usize, out: &mut Outbox) -> bool {
        let Some(viewer) = self.viewers[slot].as_mut().filter(|viewer| !viewer.is_blocked) else {
            self.due.retain(|due| *due != slot);
            return true;
        };
        if !out.has_room_for_piece() {
            return false;
        }
        if !std::mem::replace(&mut viewer.has_head, true) {
            return out.push_bytes(viewer.link, HEAD);
        }
        let len = PIECE_BYTES.min(CONTENT_BYTES - viewer.position);
        if len == 0 {
            // Everything was taken, as nothing else was heard.
            let closes = out.request(LinkRequest::Close { link: viewer.link }).is_ok();
            if closes {
                self.due.retain(|due| *due != slot);
            }
            return closes;
        }
        let is_queued = if slot.is_multiple_of(2) {
            out.push_stream(viewer.link, &self.memory, viewer.position, len)
        } else {
            out.push_file(viewer.link, &self.file, viewer.position as u64, len)
        };
        viewer.position += if is_queued { len } else { 0 };
        is_queued
    }
}

impl Service for Reflector {
    type Message = ();

    fn handle_message(&mut self, _now: Instant, (): (), _out: &mut Outbox) {}
}

impl Product for Reflector {
    fn handle_run(&mut self, _now: Instant, _run: DatagramRun<'_>, _out: &mut Outbox) {
        panic!("there are no datagrams");
    }

    fn handle_link(&mut self, _now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        match event {
            LinkEvent::Opened { link, remote: Some(_), .. } => {
                self.viewers.resize(self.viewers.len().max(link.slot() + 1), None);
                let viewer = Viewer { link, has_head: false, position: 0, is_blocked: false };
                self.viewers[link.slot()] = Some(viewer);
            }
            LinkEvent::Bytes { link, .. } => self.due.push(link.slot()),
            LinkEvent::Unsent { link, bytes } => {
                let viewer = self.viewers[link.slot()].as_mut().expect("it is open");
                assert!(bytes <= viewer.position, "the head is taken whole");
                viewer.position -= bytes;
                viewer.is_blocked = true;
                self.blocked.fetch_add(1, Ordering::Relaxed);
            }
            LinkEvent::Writable { link } => {
                let viewer = self.viewers[link.slot()].as_mut().expect("it is open");
                assert!(viewer.is_blocked, "it is told to who waits for it");
                viewer.is_blocked = false;
                if !self.due.contains(&link.slot()) {
                    self.due.push(link.slot());
                }
            }
            LinkEvent::Closed { link, .. } => self.viewers[link.slot()] = None,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// One piece for each in turn.
    fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
        let due = self.due.clone();
        for (index, slot) in due.iter().enumerate() {
            if !self.write(*slot, out) {
                // Those who had nothing come first next time.
                let behind = index.min(self.due.len());
                self.due.rotate_left(behind);
                return true;
            }
        }
        !self.due.is_empty()
    }
}

fn content() -> Vec<u8> {
    (0..CONTENT_BYTES as u32).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

fn start(memory: &Arc<Vec<u8>>, blocked: &Arc<AtomicU64>) -> WorkerHandle<()> {
    let path = std::env::temp_dir().join(format!("millrace-byte-streams-{}", std::process::id()));
    std::fs::write(&path, &**memory).expect("the folder for temporary files can be written to");
    let file = Arc::new(File::open(&path).expect("it was just written"));
    std::fs::remove_file(&path).expect("it is ours");
    let stream = StreamOptions { send_buffer_bytes: Some(32 * 1_024), ..StreamOptions::default() };
    let options = ListenOptions { links_max: STREAMS, stream, ..ListenOptions::default() };
    let socket = Socket::listener(Token::default(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options);
    let config = WorkerConfig { sockets: vec![socket], ..WorkerConfig::default() };
    let (memory, blocked) = (Arc::clone(memory), Arc::clone(blocked));
    let make = move || Reflector { memory, file, viewers: Vec::new(), due: Vec::new(), blocked };
    Worker::bind(config).expect("loopback can be bound").run(make).expect("a thread can be started")
}

/// The clients, in a process of their own, as each process has its own limit of open files.
struct Clients {
    process: Child,
}

impl Clients {
    /// Where they are to connect to, and how many they are.
    const MARK: &str = "MILLRACE_TEST_CLIENTS";

    /// Starts them. One connects at once.
    fn start(to: SocketAddr, count: usize, test: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("the test is a program"));
        command.args(["--exact", test, "--nocapture"]).env(Self::MARK, format!("{to} {count}"));
        Clients { process: command.stdin(Stdio::piped()).spawn().expect("it runs already") }
    }

    /// Is what a process does that was started in this way. False in any other.
    fn run() -> bool {
        let Ok(task) = env::var(Self::MARK) else { return false };
        let (to, count) = task.split_once(' ').expect("two words");
        let (to, count) = (to.parse().expect("an address"), count.parse::<usize>().expect("a number"));
        let expected = [HEAD, &content()].concat();
        let mut buf = Vec::with_capacity(2 * expected.len());
        let mut quick = vec![connect(to)];
        await_word();
        quick.resize_with(count, || connect(to));
        await_word();
        let mut slow = quick.split_off(count - SLOW);
        slow.iter_mut().for_each(ask);
        await_word();
        for group in quick.chunks_mut(TOGETHER) {
            group.iter_mut().for_each(ask);
            group.iter_mut().for_each(|stream| read_all(stream, &expected, &mut buf));
        }
        await_word();
        slow.iter_mut().for_each(|stream| read_all(stream, &expected, &mut buf));
        true
    }

    /// Lets them do the next thing.
    fn go_on(&mut self) {
        self.process.stdin.as_ref().expect("it is ours").write_all(b"\n").expect("they are there");
    }

    /// Whether they wait or are at work. They give up by themselves when nothing comes.
    fn are_well(&mut self) -> bool {
        self.process.try_wait().expect("it is ours").is_none()
    }
}

fn await_word() {
    let mut line = String::new();
    assert!(io::stdin().read_line(&mut line).expect("a line") > 0, "the test goes on");
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn ask(stream: &mut TcpStream) {
    stream.write_all(b"?").expect("asked");
}

fn read_all(stream: &mut TcpStream, expected: &[u8], buf: &mut Vec<u8>) {
    buf.clear();
    stream.read_to_end(buf).expect("all of it, and the end");
    stream.shutdown(Shutdown::Write).expect("connected");
    assert!(buf == expected, "{} bytes of {}", buf.len(), expected.len());
}

#[test]
fn ten_thousand_are_served_and_slow_readers_cost_neither_time_nor_memory() {
    const NAME: &str = "ten_thousand_are_served_and_slow_readers_cost_neither_time_nor_memory";
    if Clients::run() || !has_open_files(STREAMS as u64 + LEFT_TO_OTHERS, NAME) {
        return;
    }
    let count = affordable(STREAMS, 1, NAME);
    let (memory, blocked) = (Arc::new(content()), Arc::new(AtomicU64::new(0)));
    let worker = start(&memory, &blocked);
    let mut clients = Clients::start(worker.sockets()[0].local, count, NAME);
    eventually("the first is open", || worker.counters().tcp_links == 1);

    let before = heap::bytes();
    clients.go_on();
    eventually("all are open", || worker.counters().tcp_links == count as u64);
    let per_link = (heap::bytes() - before) as f64 / (count - 1) as f64;
    println!("{count} streams, {per_link:.0} bytes for each idle one");
    assert!(per_link <= 1_024.0, "{per_link} bytes for each idle stream, the product's included");

    clients.go_on();
    eventually("all slow ones are blocked", || blocked.load(Ordering::Relaxed) >= SLOW as u64);
    clients.go_on();
    let mut most = 0;
    while worker.counters().tcp_links > SLOW as u64 {
        most = most.max(heap::bytes() - before);
        assert!(clients.are_well(), "they get all of it");
        thread::sleep(Duration::from_millis(1));
    }
    println!("{most} bytes of memory at most, {} times blocked", blocked.load(Ordering::Relaxed));
    assert!(most <= (count * 1_024) as isize, "what is not read waits in no queue: {most} bytes");
    assert_eq!(worker.counters().tcp_links, SLOW as u64, "the slow ones are still there, and no others");
    clients.go_on();
    assert!(clients.process.wait().expect("it is ours").success(), "the slow ones get all of it as well");
    eventually("all have gone", || worker.counters().tcp_links == 0);
    let sent = worker.counters().stream_bytes_out;
    assert_eq!(sent, (count * (HEAD.len() + CONTENT_BYTES)) as u64, "nothing was counted twice");
    worker.stop().expect("a clean end");
}
