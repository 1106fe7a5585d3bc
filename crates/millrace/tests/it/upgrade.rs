//! A server that is replaced by a new one while streams are sent and watched.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use pump::sample::Sample;
use tempfile::TempDir;
use wire::Bitrate;

use crate::common::{PATIENCE, Service, is_there, millrace, wait_until};

pub const PACKET: usize = 188;

/// Bytes that are pushed at a time.
pub const PIECE: usize = 50 * PACKET;

/// How many come one behind the other, at most.
const COMING: usize = 50;

/// How many watch from the start.
const VIEWERS: usize = 100;

#[test]
fn who_watches_loses_and_repeats_no_byte_while_the_server_is_replaced_twice() {
    let bytes: Arc<[u8]> = Sample { rate: Bitrate::from_kbps(8_000), pictures: 300, ..Sample::default() }.make().into();
    let mut service = Service::start(&["reflect.streams=x backlog=64MiB pace=free"]);
    let mut pusher = Pusher::begin(&service.addr);
    let third = bytes.len() / 3 / PIECE * PIECE;
    pusher.push(&bytes[..4 * PIECE]);
    wait_for_stream(&service.addr);
    let mut viewers: Vec<Viewer> = (0..VIEWERS).map(|_| Viewer::begin(&service.addr, &bytes)).collect();
    // One who reads nothing until the end has most of it before him when he goes over.
    let idle = Viewer::connect(&service.addr);
    for (round, part) in [&bytes[4 * PIECE..third], &bytes[third..2 * third]].into_iter().enumerate() {
        let (before, after) = part.split_at(part.len() / 2);
        pusher.push(before);
        service.tell("USR2");
        // Some come and go meanwhile.
        for piece in after.chunks(PIECE) {
            pusher.push(piece);
            viewers.push(Viewer::begin(&service.addr, &bytes));
            drop(Viewer::connect(&service.addr));
        }
        service.wait_for_successor(round + 1);
    }
    pusher.push(&bytes[2 * third..]);
    viewers.push(idle.watch(&bytes));
    for (number, viewer) in viewers.into_iter().enumerate() {
        let body = viewer.body();
        let (from, to) = part(&body, &bytes);
        assert_eq!(to, bytes.len(), "viewer {number}, who began at {from}, has all");
    }
    assert_eq!(pusher.end(), 204);
    wait_until("the first process ends with its source", || service.has_ended());
    assert_eq!(service.child.wait().expect("a child").code(), Some(0));
    let successors = service.successors();
    wait_until("the second one ends too", || !is_there(successors[0]));
    assert!(is_there(successors[1]));

    let mut other = Pusher::begin(&service.addr);
    other.push(&bytes);
    assert_eq!(other.end(), 204, "the third one takes a new source");
}

#[test]
fn a_player_of_hls_misses_nothing_while_the_server_is_replaced_twice() {
    let bytes: Arc<[u8]> = Sample { rate: Bitrate::from_kbps(4_000), pictures: 500, ..Sample::default() }.make().into();
    let service = Service::start(&["reflect.streams=x backlog=64MiB hls=true hls_segment=1s"]);
    let mut pusher = Pusher::begin(&service.addr);
    // Neither ends with a packet.
    let [first, second] = [bytes.len() / 3, 2 * bytes.len() / 3].map(|at| at / PACKET * PACKET + 100);
    pusher.push(&bytes[..first]);
    let mut listed = Vec::new();
    wait_until("something is listed", || {
        listed = segments(&get(&service.addr, "index.m3u8").1);
        listed.len() > 3
    });
    for (round, part) in [&bytes[first..second], &bytes[second..]].into_iter().enumerate() {
        let last = segments(&get(&service.addr, "index.m3u8").1).pop().expect("a segment");
        let next = last.trim_end_matches(".ts").parse::<u64>().expect("a number") + 1;
        let waits = ask(&service.addr, &format!("index.m3u8?_HLS_msn={next}"));
        service.tell("USR2");
        pusher.push(part);
        service.wait_for_successor(round + 1);
        assert_eq!(answer(waits).0, 200, "who waits is not left alone");
    }
    assert_eq!(pusher.end(), 204);
    let fetch = |name: &String| {
        let (status, body) = get(&service.addr, name);
        assert_eq!(status, 200, "{name}");
        // PAT and PMT.
        body[2 * PACKET..].to_vec()
    };
    let from = bytes.chunks(PACKET).position(is_start).expect("a start") * PACKET;
    // What is on its way between the processes is there soon.
    wait_until("all of it is listed", || {
        let text = get(&service.addr, "index.m3u8").1;
        assert!(!String::from_utf8_lossy(&text).contains("DISCONTINUITY"));
        let all = segments(&text);
        assert!(all.starts_with(&listed), "{all:?} after {listed:?}");
        let played: Vec<u8> = all.iter().flat_map(fetch).collect();
        assert!(bytes[from..].starts_with(&played), "{} bytes, not all as they were", played.len());
        from + played.len() == bytes.len()
    });
}

#[test]
fn a_new_binary_that_does_not_start_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("millrace.toml");
    let write = |path: &Path, text: &str| fs::write(path, text).expect("written");
    write(&file, "[[reflect.streams]]\nname = \"x\"\nbacklog = \"64MiB\"\n");
    let bytes: Arc<[u8]> = Sample { rate: Bitrate::from_kbps(4_000), pictures: 100, ..Sample::default() }.make().into();
    let notified = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    notified.set_read_timeout(Some(PATIENCE)).expect("a time");
    let told = || {
        let mut text = [0; 128];
        let len = notified.recv(&mut text).expect("it tells");
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let mut command = millrace();
    command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    let mut service = Service::start_as(command, &["--config", file.to_str().expect("text")], &[]);
    assert!(told().starts_with("READY=1\n"));
    let mut pusher = Pusher::begin(&service.addr);
    let (first, rest) = bytes.split_at(bytes.len() / 2 / PIECE * PIECE);
    pusher.push(first);
    wait_for_stream(&service.addr);
    let viewer = Viewer::begin(&service.addr, &bytes);
    write(&file, "[[reflect.streams]]\nname = \"x\"\npace = \"1%\"\n");
    service.tell("USR2");
    wait_until("it is told", || service.has_said("the server goes on as before"));
    let later = Viewer::begin(&service.addr, &bytes);
    pusher.push(rest);
    for viewer in [viewer, later] {
        assert_eq!(part(&viewer.body(), &bytes).1, bytes.len());
    }
    assert_eq!(pusher.end(), 204);
    assert!(!service.has_ended());

    write(&file, "[[reflect.streams]]\nname = \"x\"\n");
    service.tell("USR2");
    service.wait_for_successor(1);
    let main = format!("MAINPID={}\nREADY=1\nSTATUS=\n", service.successors()[0]);
    assert!([told(), told()].contains(&main), "whoever watches over it is told which process is it");
    wait_until("it has nothing to do any more", || service.has_ended());
}

#[test]
fn viewers_go_on_where_the_new_process_fails_half_way() {
    let installed = Installed::new();
    let bytes: Arc<[u8]> = Sample { rate: Bitrate::from_kbps(8_000), pictures: 200, ..Sample::default() }.make().into();
    let mut service =
        Service::start_as(installed.command(), &[], &["reflect.streams=x backlog=64MiB pace=free metacube=true"]);
    let mut pusher = Pusher::begin(&service.addr);
    let mut parts = bytes.chunks(bytes.len() / 4 / PIECE * PIECE);
    pusher.push(parts.next().expect("a part"));
    wait_for_stream(&service.addr);
    let mut viewers: Vec<Viewer> = (0..VIEWERS).map(|_| Viewer::begin(&service.addr, &bytes)).collect();
    let idle = Viewer::connect(&service.addr);
    let failures = [
        ("exit 3", "it has ended (exit status: 3)"),
        // It has descriptors for its start, and not for the viewers.
        (
            &*format!("ulimit -n {}; exec {} \"$@\"", service.open_files() - VIEWERS / 2, installed.original),
            "it has ended (exit status: 2)",
        ),
    ];
    for (script, said) in failures {
        installed.replace_by(script);
        service.tell("USR2");
        pusher.push(parts.next().expect("a part"));
        wait_until("it is told why", || service.has_said(said));
        wait_until("it goes on", || service.has_said("the server goes on as before"));
        service.forget_what_was_said();
        viewers.push(Viewer::begin(&service.addr, &bytes));
    }
    assert!(!service.has_ended() && service.successors().is_empty());
    // Now one that is as it should be.
    installed.restore();
    service.tell("USR2");
    pusher.push(parts.next().expect("a part"));
    service.wait_for_successor(1);
    parts.for_each(|part| pusher.push(part));
    viewers.push(idle.watch(&bytes));
    for (number, viewer) in viewers.into_iter().enumerate() {
        let (from, to) = part(&viewer.body(), &bytes);
        assert_eq!(to, bytes.len(), "viewer {number}, who began at {from}, has all");
    }
    assert_eq!(pusher.end(), 204);
    wait_until("the first process ends with its source", || service.has_ended());
}

#[test]
fn who_comes_while_the_server_is_replaced_is_let_in() {
    let bytes: Arc<[u8]> = Sample { rate: Bitrate::from_kbps(4_000), pictures: 100, ..Sample::default() }.make().into();
    let service = Service::start(&["reflect.streams=x backlog=64MiB pace=free"]);
    let mut pusher = Pusher::begin(&service.addr);
    let (first, rest) = bytes.split_at(bytes.len() / 2 / PIECE * PIECE);
    pusher.push(first);
    wait_for_stream(&service.addr);
    // Some have been accepted, and say nothing before another process is there.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&service.addr).expect("it listens")).collect();
    let (addr, is_replaced) = (service.addr.clone(), Arc::<AtomicBool>::default());
    let told = is_replaced.clone();
    let coming = [(); 8].map(|()| {
        let (addr, told, bytes) = (addr.clone(), told.clone(), bytes.clone());
        thread::spawn(move || {
            let mut came = Vec::new();
            while !told.load(Ordering::Relaxed) && came.len() < COMING {
                came.push(Viewer::begin(&addr, &bytes));
            }
            came
        })
    });
    for round in 1..=2 {
        service.tell("USR2");
        service.wait_for_successor(round);
    }
    is_replaced.store(true, Ordering::Relaxed);
    let mut came: Vec<Viewer> = coming.into_iter().flat_map(|thread| thread.join().expect("all are let in")).collect();
    came.extend(silent.into_iter().map(|stream| Viewer::ask(stream).watch(&bytes)));
    pusher.push(rest);
    let count = came.len();
    for (number, viewer) in came.into_iter().enumerate() {
        assert_eq!(part(&viewer.body(), &bytes).1, bytes.len(), "viewer {number} of {count}");
    }
    assert_eq!(pusher.end(), 204);
}

#[test]
fn workers_of_the_new_process_go_before_its_other_threads_as_those_before_did() {
    let service = Service::start(&["reflect.streams=x"]);
    let before = priorities_of_workers(service.child.id());
    service.tell("USR2");
    service.wait_for_successor(1);
    assert_eq!(priorities_of_workers(service.successors()[0]), before);
}

/// By their names. A higher number is a more modest one (proc(5), "/proc/pid/stat", nice).
fn priorities_of_workers(pid: u32) -> BTreeMap<String, i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let stats =
        threads.map(|thread| fs::read_to_string(thread.expect("a thread").path().join("stat")).expect("it is there"));
    let of_worker = |stat: String| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let nice = rest.split_ascii_whitespace().nth(16)?.parse().ok()?;
        name.starts_with("worker-").then(|| (name.to_owned(), nice))
    };
    let priorities: BTreeMap<String, i32> = stats.filter_map(of_worker).collect();
    assert!(!priorities.is_empty());
    priorities
}

/// A binary at a path, where another may be put.
struct Installed {
    folder: TempDir,
    original: String,
}

impl Installed {
    fn new() -> Self {
        let original = millrace().get_program().to_str().expect("text").to_owned();
        let installed = Installed { folder: tempfile::tempdir().expect("a folder"), original };
        installed.restore();
        installed
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("millrace")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_")) {
            command.env_remove(name);
        }
        command
    }

    fn restore(&self) {
        self.replace_by(&format!("exec {} \"$@\"", self.original));
    }

    /// Puts a script where the binary is; what runs is named as that is.
    fn replace_by(&self, script: &str) {
        let next = self.folder.path().join("next");
        fs::write(&next, format!("#!/bin/bash\n{}\n", script.replace("exec ", "exec -a \"$0\" "))).expect("written");
        fs::set_permissions(&next, Permissions::from_mode(0o755)).expect("it may run");
        fs::rename(&next, self.path()).expect("renamed");
    }
}

/// How long an answer is that has all of a stream from where it begins, as soon as that can be told.
fn whole_len(answer: &[u8], stream: &[u8]) -> Option<usize> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    Some(head + whole_body_len(&answer[head..], stream)?)
}

/// The same of its body. The end alone cannot be recognised: packets that fill up are all alike.
pub fn whole_body_len(body: &[u8], stream: &[u8]) -> Option<usize> {
    let begin = PACKET * body.chunks_exact(PACKET).position(is_start)?;
    let some = body.get(begin..begin + 40 * PACKET)?;
    let from = (0..stream.len()).step_by(PACKET).find(|at| stream[*at..].starts_with(some)).expect("its bytes");
    Some(begin + stream.len() - from)
}

/// Which part of a stream a body has, behind the tables.
fn part(body: &[u8], stream: &[u8]) -> (usize, usize) {
    let head = body.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    assert!(body.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&body[..head]));
    let body = &body[head..];
    let begin = (0..body.len()).step_by(PACKET).find(|at| is_start(&body[*at..])).expect("a start");
    let body = &body[begin..];
    let some = &body[..body.len().min(40 * PACKET)];
    let from = (0..stream.len()).step_by(PACKET).find(|at| stream[*at..].starts_with(some)).expect("its bytes");
    assert!(stream[from..].starts_with(body), "some of {} bytes from {from} on are others", body.len());
    (from, from + body.len())
}

/// Asks for something of HLS, on a connection of its own.
fn ask(addr: &str, name: &str) -> TcpStream {
    let mut socket = TcpStream::connect(addr).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let head = format!("GET /live/x/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).expect("sent");
    socket
}

/// The status, and the body.
fn answer(mut socket: TcpStream) -> (u16, Vec<u8>) {
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("an answer");
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
    let status = String::from_utf8_lossy(&answer[9..12]).parse().expect("a status");
    (status, answer.split_off(head))
}

fn get(addr: &str, name: &str) -> (u16, Vec<u8>) {
    answer(ask(addr, name))
}

/// What a playlist lists.
fn segments(playlist: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(playlist);
    text.lines().filter(|line| line.ends_with(".ts")).map(str::to_owned).collect()
}

/// Whether one may begin with a packet: it says so itself (random_access_indicator).
pub fn is_start(packet: &[u8]) -> bool {
    packet[0] == 0x47 && packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x40 != 0
}

/// There is something to watch.
pub fn wait_for_stream(addr: &str) {
    wait_until("it is known what it is", || {
        let mut status = [0; 12];
        (&Viewer::connect(addr).0).read_exact(&mut status).expect("an answer");
        status.ends_with(b"200")
    });
}

/// Who sends a stream, in chunks.
pub struct Pusher {
    socket: TcpStream,
}

impl Pusher {
    pub fn begin(addr: &str) -> Self {
        let mut socket = TcpStream::connect(addr).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let head = "PUT /live/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).expect("sent");
        Pusher { socket }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE) {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            self.socket.write_all(&chunk).expect("sent");
        }
    }

    /// Ends the stream; returns the status of the answer.
    pub fn end(&mut self) -> u16 {
        self.socket.write_all(b"0\r\n\r\n").expect("sent");
        let mut answer = [0; 12];
        self.socket.read_exact(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[9..]).parse().expect("a status")
    }
}

/// A connection that asks for the stream.
struct Asking(TcpStream);

/// Who watches a stream.
struct Viewer {
    thread: JoinHandle<Vec<u8>>,
}

impl Viewer {
    fn connect(addr: &str) -> Asking {
        Self::ask(TcpStream::connect(addr).expect("it listens"))
    }

    fn ask(mut socket: TcpStream) -> Asking {
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        socket.write_all(b"GET /live/x HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        Asking(socket)
    }

    /// Watches from now on: what comes first is here when this returns.
    fn begin(addr: &str, stream: &Arc<[u8]>) -> Self {
        let asking = Self::connect(addr);
        let mut first = [0; 13];
        (&asking.0).read_exact(&mut first).expect("an answer");
        asking.watch_behind(first.to_vec(), stream)
    }

    /// All that came.
    fn body(self) -> Vec<u8> {
        self.thread.join().expect("it is read")
    }
}

impl Asking {
    fn watch(self, stream: &Arc<[u8]>) -> Viewer {
        self.watch_behind(Vec::new(), stream)
    }

    /// Reads until the end of the stream comes, or of the connection.
    fn watch_behind(self, mut body: Vec<u8>, stream: &Arc<[u8]>) -> Viewer {
        let (mut socket, stream) = (self.0, stream.clone());
        let thread = thread::spawn(move || {
            let (mut whole, mut buf) = (None, vec![0; 64 * 1_024]);
            while whole.is_none_or(|whole| body.len() < whole) {
                let count = match socket.read(&mut buf) {
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
                    read => read.expect("more in time"),
                };
                if count == 0 {
                    break;
                }
                body.extend_from_slice(&buf[..count]);
                whole = whole.or_else(|| whole_len(&body, &stream));
            }
            body
        });
        Viewer { thread }
    }
}
