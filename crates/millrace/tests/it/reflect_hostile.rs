//! Whatever viewers of a reflected stream do, the others get all of it, and what the bad ones took is there again.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{PATIENCE, Server, wait_until};
use crate::reflect::{PACKET, Pusher, Viewer, pieces, shown, stream};

const GET: &[u8] = b"GET /live/x HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Bytes that a viewer may be behind by: with what was sent since the key frame before, less than the smallest backlog here.
const STEP: usize = 1_000_000;

/// A server with a stream, of which some has come, and the rest.
struct World {
    server: Server,
    pusher: Pusher,
    bytes: Arc<[u8]>,
    rest: usize,
}

impl World {
    fn new(server: Server, kbps: u64, pictures: u32) -> Self {
        let bytes = stream(kbps, pictures);
        let rest = bytes.len() / 8 / PACKET * PACKET;
        let mut pusher = Pusher::begin(&server, "x", &[]);
        pusher.push(&bytes[..rest]);
        wait_until("it is there", || shown(&server, "x")["received_bytes"] == rest);
        // There is a key frame every half a second; workers may be told of the last a moment later.
        let step = kbps as usize * 1_000 / 8 / 2;
        wait_until("the newest start point is told", || newest(&server, &bytes) + step + step / 4 >= rest);
        let world = World { server, pusher, bytes, rest };
        world.until_viewers(0);
        world
    }

    fn connect(&self) -> TcpStream {
        connect(&self.server.addr)
    }

    fn ask(&self, request: &[u8]) -> TcpStream {
        let mut socket = self.connect();
        socket.write_all(request).expect("sent");
        socket
    }

    fn viewers(&self) -> u64 {
        shown(&self.server, "x")["viewers"].as_u64().expect("a number")
    }

    fn until_viewers(&self, count: u64) {
        wait_until(&format!("{count} viewers"), || self.viewers() == count);
    }

    /// Sends the rest, as fast as somebody who is there takes it, and looks whether he gets all of it.
    fn finish(mut self, good: Viewer) -> Server {
        let got = Arc::<AtomicUsize>::default();
        let watched = good.watch_and_tell(self.bytes.clone(), got.clone());
        let mut pushed = self.rest;
        for piece in self.bytes[self.rest..].chunks(STEP) {
            self.pusher.push(piece);
            pushed += piece.len();
            // He began at the last key frame before `rest`.
            wait_until("he keeps up", || got.load(Ordering::Relaxed) + self.rest + STEP >= pushed);
        }
        assert_eq!(self.pusher.end(), 204);
        self.assert_whole(&watched.join().expect("watched"));
        self.server
    }

    fn assert_whole(&self, body: &[u8]) {
        let pieces = pieces(body, &self.bytes);
        assert!(pieces.len() == 1 && pieces[0].1 == self.bytes.len(), "{pieces:?}");
    }
}

/// Where a viewer begins who comes now.
fn newest(server: &Server, bytes: &[u8]) -> usize {
    let mut body = vec![0; 48 * PACKET];
    Viewer::begin(server, "x", false).socket().read_exact(&mut body).expect("so much");
    pieces(&body, bytes)[0].0
}

fn connect(addr: &str) -> TcpStream {
    let socket = TcpStream::connect(addr).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket
}

/// What is closed is reset, so that no port waits for what may still come.
fn reset(socket: TcpStream) {
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("set");
}

#[test]
fn viewers_of_every_kind_of_nastiness_harm_nobody() {
    let world = World::new(Server::start(&["reflect.streams=x backlog=4MiB pace=free"]), 20_000, 300);
    let good = Viewer::begin(&world.server, "x", false);
    // One never reads, one reads a byte now and then, one sends no more, two send what nobody asked for.
    let never_reads = world.ask(GET);
    let mut reads_a_byte = world.ask(GET);
    let half_closed = world.ask(GET);
    let mut talks = world.ask(&[GET, GET, b"\0\xff\x16\x03\x01"].concat());
    let mut garbage = world.ask(b"\xff\xfe\0 nonsense\r\n\r\n");
    let unfinished = world.ask(&GET[..GET.len() - 2]);
    let leaves = world.ask(GET);
    world.until_viewers(6);
    half_closed.shutdown(Shutdown::Write).expect("open");
    world.until_viewers(5);
    reset(leaves);
    world.until_viewers(4);

    let slow = thread::spawn(move || {
        let mut count = 0;
        // Until the server ends it, or the test.
        while count < 1_000 && reads_a_byte.read(&mut [0]).is_ok_and(|len| len == 1) {
            count += 1;
        }
        reads_a_byte
    });
    // Far more than he has to say; one behind another request does the same.
    let mut talks_later = Viewer::begin(&world.server, "x", true);
    for socket in [&mut talks, talks_later.socket()] {
        socket.set_write_timeout(Some(PATIENCE)).expect("a time");
        let ended = loop {
            if let Err(error) = socket.write_all(&[b'x'; 16 * 1_024]) {
                break error;
            }
        };
        assert!(matches!(ended.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{ended:?}");
    }
    world.until_viewers(3);
    let mut answer = Vec::new();
    garbage.read_to_end(&mut answer).expect("it is ended");
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));

    let server = world.finish(good);
    let slow = slow.join().expect("it reads");
    for socket in [never_reads, unfinished, slow] {
        reset(socket);
    }
    wait_until("all are gone", || shown(&server, "x")["viewers"] == 0);
}

#[test]
fn ten_thousand_who_come_and_go_leave_nothing_behind() {
    const THREADS: usize = 8;
    const EACH: usize = 1_250;
    let limits = "reflect.viewers_per_client=20000";
    let world = World::new(Server::start(&["reflect.streams=x", limits]), 4_000, 250);
    let good = Viewer::begin(&world.server, "x", false);
    world.until_viewers(1);
    let files = || fs::read_dir(format!("/proc/{}/fd", world.server.pid())).expect("a process").count();
    // Each worker has a pipe from the first file on that it sends much of at once.
    let pipes = 2 * thread::available_parallelism().expect("known").get();
    let before = files();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let addr = &world.server.addr;
            scope.spawn(move || {
                for round in 0..EACH {
                    let mut socket = connect(addr);
                    match (number + round) % 4 {
                        0 => {}
                        1 => socket.write_all(&GET[..20]).expect("sent"),
                        2 => socket.write_all(GET).expect("sent"),
                        _ => {
                            socket.write_all(GET).expect("sent");
                            // One that came when there are too many newcomers is closed.
                            let _ = socket.read(&mut [0; 100]);
                        }
                    }
                    reset(socket);
                }
            });
        }
    });
    world.until_viewers(1);
    wait_until("their sockets are gone", || files() <= before + 1 + pipes);
    let server = world.finish(good);
    wait_until("all are gone", || shown(&server, "x")["viewers"] == 0);
}

#[test]
fn who_never_ends_his_request_is_sent_away_and_newcomers_find_room() {
    let settings = ["reflect.streams=x", "http.request_timeout=1s", "tls.newcomers_max=50", "http.connections_max=50"];
    let world = World::new(Server::start(&settings), 4_000, 250);
    let mut slow: Vec<TcpStream> = (0..200).map(|number| world.ask(&GET[..number % GET.len()])).collect();
    let good = Viewer::begin(&world.server, "x", false);
    world.until_viewers(1);
    for socket in &mut slow {
        // 408, or nothing; or it was reset.
        let mut answer = Vec::new();
        let ended = socket.read_to_end(&mut answer);
        let is_late = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!ended.is_err_and(|error| is_late(&error)), "it is kept");
    }
    drop(slow);
    drop(world.finish(good));
}

#[test]
fn without_descriptors_the_log_says_so_and_who_watches_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let settings = ["reflect.streams=x backlog=4MiB pace=free"];
    let world = World::new(Server::start_with_files_and_log(200, &log, &settings), 20_000, 150);
    let good = Viewer::begin(&world.server, "x", false);
    world.until_viewers(1);
    let idle: Vec<TcpStream> = (0..250).map(|_| world.ask(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")).collect();
    let says = || fs::read_to_string(&log).expect("a file");
    wait_until("it says so", || says().contains("no TCP connection can be accepted"));
    assert!(says().contains("may have no more open files (ulimit -n"), "{}", says());
    let server = world.finish(good);
    drop(idle);
    wait_until("all are gone", || shown(&server, "x")["viewers"] == 0);
    let lines = says().lines().filter(|line| line.contains("can be accepted")).count();
    assert!(lines < 20, "{lines} lines");
}

/// What follows there is the request of another of the proxy's clients (RFC 9112 §11.2).
#[test]
fn who_says_no_length_behind_a_proxy_gets_nothing_of_what_follows_on_its_connection() {
    let server = Server::start(&["reflect.streams=x"]);
    let mut socket = connect(&server.addr);
    let put = "PUT /live/x HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n";
    let get = "GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all([put, get].concat().as_bytes()).expect("sent");
    let mut answers = String::new();
    socket.read_to_string(&mut answers).expect("both");
    assert!(answers.starts_with("HTTP/1.1 411 ") && answers.contains("HTTP/1.1 204 "), "{answers}");
    assert_eq!(shown(&server, "x")["received_bytes"], 0);
}

#[test]
fn a_full_disk_costs_lines_of_the_access_log_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let settings = ["reflect.streams=x backlog=4MiB pace=free", "reflect.access_log=/dev/full"];
    let world = World::new(Server::start_with_files_and_log(1_000, &log, &settings), 20_000, 150);
    let good = Viewer::begin(&world.server, "x", false);
    for _ in 0..20 {
        drop(Viewer::begin(&world.server, "x", false));
    }
    world.until_viewers(1);
    let refused = "millrace_reflect_access_log_lines_total{what=\"refused\"}";
    wait_until("their lines are lost", || world.server.metric(refused) >= 20.0);
    let says = fs::read_to_string(&log).expect("a file");
    let lines: Vec<&str> = says.lines().filter(|line| line.contains("the access log cannot be written")).collect();
    assert!(lines.len() == 1 && lines[0].contains("No space left on device"), "{says}");
    drop(world.finish(good));
}
