//! Live streams by HTTP: one pushes, many watch, and each gets the bytes from a start point on.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use pump::sample::Sample;
use serde_json::Value;
use wire::Bitrate;

use crate::common::{PATIENCE, Server, wait_until};

pub(crate) const PACKET: usize = 188;

/// A transport stream with a start point every half a second.
pub(crate) fn stream(kbps: u64, pictures: u32) -> Arc<[u8]> {
    Sample { rate: Bitrate::from_kbps(kbps), pictures, ..Sample::default() }.make().into()
}

#[test]
fn all_who_watch_get_what_is_pushed_from_a_start_point_on() {
    let server = Server::start(&["reflect.streams=x"]);
    let bytes = stream(4_000, 250);
    let (first, rest) = bytes.split_at(bytes.len() / 4);
    assert_eq!(server.ask("GET", "/live/x", &[], "").status, 503, "nothing has come yet");
    let mut pusher = Pusher::begin(&server, "x", &[]);
    pusher.push(first);
    wait_until("it is known what it is", || !shown(&server, "x")["content_type"].is_null());
    let watching: Vec<Viewer> = (0..6).map(|number| Viewer::begin(&server, "x", number % 3 == 2)).collect();
    wait_until("they are there", || shown(&server, "x")["viewers"] == 6);
    pusher.push(rest);
    assert_eq!(pusher.end(), 204);
    for viewer in &watching {
        assert_eq!(viewer.header("content-type"), "video/mp2t");
        assert_eq!(viewer.header("accept-ranges"), "none");
    }
    let watched: Vec<JoinHandle<Vec<u8>>> = watching.into_iter().map(|viewer| viewer.watch(bytes.clone())).collect();
    for body in watched.into_iter().map(|viewer| viewer.join().expect("watched")) {
        let pieces = pieces(&body, &bytes);
        assert_eq!(pieces.len(), 1, "{pieces:?}");
        assert!(pieces[0].0 <= first.len() && pieces[0].1 == bytes.len(), "{pieces:?}");
    }
    wait_until("they are gone", || shown(&server, "x")["viewers"] == 0);
    assert_eq!(server.metric("millrace_reflect_stream_viewers_begun_total{stream=\"x\"}"), 6.0);
    assert_eq!(server.metric("millrace_door_viewers_total"), 4.0, "the others came behind another request");
}

#[test]
fn who_lags_goes_on_at_a_start_point_and_no_packet_is_torn() {
    let server = Server::start(&["reflect.streams=x backlog=4MiB"]);
    let bytes = stream(40_000, 300);
    let (first, rest) = bytes.split_at(bytes.len() / 32 / PACKET * PACKET);
    let mut pusher = Pusher::begin(&server, "x", &[]);
    pusher.push(first);
    wait_until("it is known what it is", || !shown(&server, "x")["content_type"].is_null());
    let lagging = Viewer::begin(&server, "x", false);
    wait_until("he is there", || shown(&server, "x")["viewers"] == 1);
    pusher.push(rest);
    assert_eq!(pusher.end(), 204);
    wait_until("he is behind", || server.metric("millrace_reflect_skips_total") > 0.0);
    let body = lagging.watch(bytes.clone()).join().expect("watched");
    let pieces = pieces(&body, &bytes);
    assert!(pieces.len() > 1 && pieces.last().is_some_and(|last| last.1 == bytes.len()), "{pieces:?}");
}

#[test]
fn who_may_not_watch_or_push_is_told_so() {
    let streams = "reflect.streams=['x viewers_max=2 push_token=secret', 'far source=http://127.0.0.1:9/']";
    let server = Server::start(&[streams, "reflect.viewers_per_client=1"]);
    let status = |method, path, headers: &[&str]| server.ask(method, path, headers, "").status;
    assert_eq!(status("GET", "/live/none", &[]), 404);
    assert_eq!(status("PUT", "/live/none", &[]), 404);
    let answer = server.ask("DELETE", "/live/x", &[], "");
    assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD, PUT, POST, OPTIONS"));
    let answer = server.ask("PUT", "/live/far", &[], "");
    assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD, OPTIONS"));
    let answer = server.ask("PUT", "/live/x", &[], "");
    assert_eq!(answer.status, 401);
    assert!(answer.header("www-authenticate").contains("Basic"), "{}", answer.header("www-authenticate"));
    assert_eq!(status("PUT", "/live/x", &["Authorization: Bearer other"]), 401);

    let bytes = stream(2_000, 50);
    // "source:secret".
    let mut pusher = Pusher::begin(&server, "x", &["Authorization: Basic c291cmNlOnNlY3JldA=="]);
    pusher.push(&bytes);
    wait_until("it is known what it is", || !shown(&server, "x")["content_type"].is_null());
    assert_eq!(status("PUT", "/live/x", &["Authorization: Bearer secret"]), 409);
    let head = server.ask("HEAD", "/live/x", &[], "");
    assert_eq!((head.status, head.header("content-type")), (200, "video/mp2t"));
    assert_eq!((head.header("content-length"), head.header("transfer-encoding")), ("", ""), "as of GET");

    let one = Viewer::begin_with(&server, "x", false, &["X-Forwarded-For: 192.0.2.1"]);
    wait_until("he is there", || shown(&server, "x")["viewers"] == 1);
    let answer = server.ask("GET", "/live/x", &["X-Forwarded-For: 192.0.2.1"], "");
    assert_eq!(answer.status, 429);
    assert!(!answer.header("retry-after").is_empty());
    let other = Viewer::begin_with(&server, "x", true, &["X-Forwarded-For: 192.0.2.2"]);
    wait_until("he is there", || shown(&server, "x")["viewers"] == 2);
    assert_eq!(status("GET", "/live/x", &["X-Forwarded-For: 192.0.2.3"]), 503, "the stream has two");

    for viewer in viewers(&server, "x") {
        let path = format!("/api/reflect/viewers/{}", viewer["id"].as_str().expect("a number"));
        assert_eq!(server.ask("DELETE", &path, &[], "").status, 204);
    }
    wait_until("they are gone", || shown(&server, "x")["viewers"] == 0);
    drop((one, other));
}

#[test]
fn who_plays_by_hls_is_a_viewer() {
    let server = Server::start(&["reflect.streams=x hls=true hls_segment=1s", "reflect.viewers_per_client=1"]);
    let mut pusher = Pusher::begin(&server, "x", &[]);
    pusher.push(&stream(2_000, 250));
    wait_until("it is known what it is", || !shown(&server, "x")["content_type"].is_null());
    let from = "X-Forwarded-For: 192.0.2.1";
    let ask = |path: &str, agent: &str| server.ask("GET", path, &[&format!("User-Agent: {agent}"), from], "");
    let playlist = ask("/live/x/index.m3u8", "one");
    assert_eq!(playlist.status, 200, "{}", playlist.body);
    let segment = playlist.body.lines().find(|line| line.ends_with(".ts")).expect("a segment");
    let path = format!("/live/x/{segment}");
    let head = server.ask("HEAD", &path, &["User-Agent: one", from], "");
    let len: u64 = head.header("content-length").parse().expect("a length");
    assert_eq!((head.status, shown(&server, "x")["viewers"].as_u64()), (200, Some(1)));
    let other = ask("/live/x/index.m3u8", "other");
    assert_eq!(other.status, 429);
    assert!(!other.header("retry-after").is_empty());
    assert_eq!(viewers(&server, "x")[0]["hls"], true);
    wait_until("it is gone", || shown(&server, "x")["viewers"] == 0);
    assert_eq!(ask("/live/x/index.m3u8", "other").status, 200);
    let sent = shown(&server, "x")["viewers_gone"]["sent_bytes"].as_u64().expect("a number");
    assert_eq!(sent, playlist.body.len() as u64, "nothing of {len} bytes by HEAD");
    assert_eq!(pusher.end(), 204);
}

#[test]
fn streams_come_change_and_go_while_others_are_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("millrace.toml");
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    write("[[reflect.streams]]\nname = \"stays\"\n[[reflect.streams]]\nname = \"goes\"\n");
    let server = Server::start_with(&["--config", file.to_str().expect("text")], &[]);
    let bytes = stream(2_000, 250);
    let (first, rest) = bytes.split_at(bytes.len() / 2 / PACKET * PACKET);
    let mut pushers = ["stays", "goes"].map(|name| Pusher::begin(&server, name, &[]));
    pushers.iter_mut().for_each(|pusher| pusher.push(first));
    let is_there = |name: &str| shown(&server, name)["received_bytes"] == first.len();
    wait_until("all of it is there", || is_there("stays") && is_there("goes"));
    let [stays, goes] = ["stays", "goes"].map(|name| Viewer::begin(&server, name, false));
    wait_until("they watch", || shown(&server, "stays")["viewers"] == 1 && shown(&server, "goes")["viewers"] == 1);

    write(
        "[[reflect.streams]]\nname = \"stays\"\npath = \"/elsewhere\"\nlag = \"close\"\n[[reflect.streams]]\nname = \"comes\"\n",
    );
    hang_up(&server);
    wait_until("it comes", || !shown(&server, "comes").is_null());
    assert!(shown(&server, "goes").is_null());
    assert_eq!(shown(&server, "stays")["path"], "/elsewhere");
    assert_eq!(server.ask("GET", "/live/stays", &[], "").status, 404);
    assert_eq!(goes.watch(first.into()).join().expect("watched").last(), first.last(), "what was left of it");

    write("[[reflect.streams]]\nname = \"stays\"\npace = \"1%\"\n");
    hang_up(&server);
    let [mut stayed, _] = pushers;
    stayed.push(rest);
    assert_eq!(stayed.end(), 204);
    let body = stays.watch(bytes.clone()).join().expect("watched");
    assert_eq!(pieces(&body, &bytes).len(), 1);
    assert!(!shown(&server, "comes").is_null(), "what cannot be leaves all as it was");
}

fn hang_up(server: &Server) {
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-s", "HUP", &pid]).status().expect("kill runs").success());
}

/// What the API says of a stream.
pub(crate) fn shown(server: &Server, name: &str) -> Value {
    let list: Value = serde_json::from_str(&server.ask("GET", "/api/reflect/streams", &[], "").body).expect("JSON");
    let found = list.as_array().expect("a list").iter().find(|stream| stream["name"] == name);
    found.cloned().unwrap_or_default()
}

fn viewers(server: &Server, name: &str) -> Vec<Value> {
    let list = server.ask("GET", &format!("/api/reflect/streams/{name}/viewers"), &[], "").body;
    serde_json::from_str(&list).expect("a list")
}

/// Which parts of a stream a body has, one behind the other. The tables that stand before the first are not among them.
pub(crate) fn pieces(body: &[u8], stream: &[u8]) -> Vec<(usize, usize)> {
    assert_eq!(body.len() % PACKET, 0, "a packet is torn");
    let (mut pieces, mut at) =
        (Vec::new(), (0..).step_by(PACKET).take(8).find(|at| is_start(&body[*at..])).expect("a start"));
    while at < body.len() {
        let some = &body[at..body.len().min(at + 40 * PACKET)];
        assert!(is_start(some), "goes on where one cannot begin");
        let found =
            (0..stream.len()).step_by(PACKET).find(|from| stream[*from..].starts_with(some)).expect("its bytes");
        let packets = body[at..].chunks(PACKET).zip(stream[found..].chunks(PACKET));
        let len = PACKET * packets.take_while(|(one, other)| one == other).count();
        pieces.push((found, found + len));
        at += len;
    }
    pieces
}

/// Whether one may begin with a packet: it says so itself (random_access_indicator).
fn is_start(packet: &[u8]) -> bool {
    packet[0] == 0x47 && packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x40 != 0
}

/// Who sends a stream, in chunks.
pub(crate) struct Pusher {
    socket: TcpStream,
}

impl Pusher {
    pub(crate) fn begin(server: &Server, name: &str, headers: &[&str]) -> Self {
        let mut socket = TcpStream::connect(&server.addr).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let head =
            format!("PUT /live/{name} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).expect("sent");
        Pusher { socket }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(10_000) {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            self.socket.write_all(&chunk).expect("sent");
        }
    }

    /// Ends the stream; returns the status of the answer.
    pub(crate) fn end(&mut self) -> u16 {
        self.socket.write_all(b"0\r\n\r\n").expect("sent");
        let mut answer = [0; 12];
        self.socket.read_exact(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[9..]).parse().expect("a status")
    }
}

/// Who watches a stream.
pub(crate) struct Viewer {
    socket: TcpStream,
    head: String,
    is_chunked: bool,
}

impl Viewer {
    /// Asks behind another request, or first of all.
    pub(crate) fn begin(server: &Server, name: &str, is_second: bool) -> Self {
        Self::begin_with(server, name, is_second, &[])
    }

    pub(crate) fn begin_with(server: &Server, name: &str, is_second: bool, headers: &[&str]) -> Self {
        let mut socket = TcpStream::connect(&server.addr).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        if is_second {
            socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            assert!(read_head(&mut socket).starts_with("HTTP/1.1 200"));
            socket.read_exact(&mut [0; 3]).expect("ok");
        }
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!("GET /live/{name} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        socket.write_all(request.as_bytes()).expect("sent");
        let head = read_head(&mut socket);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        assert_eq!(is_chunked, is_second, "{head}");
        Viewer { socket, head, is_chunked }
    }

    pub(crate) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// Reads until the end of the stream comes, or of the connection.
    pub(crate) fn watch(self, stream: Arc<[u8]>) -> JoinHandle<Vec<u8>> {
        self.watch_and_tell(stream, Arc::default())
    }

    /// The same; how many bytes that are is told meanwhile.
    pub(crate) fn watch_and_tell(mut self, stream: Arc<[u8]>, got: Arc<AtomicUsize>) -> JoinHandle<Vec<u8>> {
        // From the last start point on: without its time one picture may be as another.
        let last =
            stream.chunks(PACKET).rposition(is_start).map_or(&[][..], |packet| &stream[packet * PACKET..]).to_vec();
        thread::spawn(move || {
            let (mut body, mut buf) = (Vec::new(), vec![0; 256 * 1_024]);
            while !body.ends_with(&last) {
                let count = if self.is_chunked { self.read_chunk(&mut buf) } else { self.read(&mut buf) };
                if count == 0 {
                    break;
                }
                body.extend_from_slice(&buf[..count]);
                got.store(body.len(), Ordering::Relaxed);
            }
            body
        })
    }

    fn read(&mut self, buf: &mut [u8]) -> usize {
        match self.socket.read(buf) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            read => read.expect("more in time"),
        }
    }

    fn read_chunk(&mut self, buf: &mut [u8]) -> usize {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.socket.read_exact(&mut byte).expect("more in time");
            line.push(byte[0]);
        }
        let len = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).expect("a length");
        self.socket.read_exact(&mut buf[..len + 2]).expect("a chunk");
        len
    }
}

fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("more in time");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}
