//! A server that is replaced by a new one while its streams are watched by TLS: a cipher's state stays with the old process, so
//! these viewers are closed in order, and come again at once.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pump::sample::Sample;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};
use wire::Bitrate;

use crate::common::{PATIENCE, Service, wait_until};
use crate::upgrade::{PACKET, PIECE, Pusher, is_start, wait_for_stream, whole_body_len};

/// How somebody asks for the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// First on his connection, so a worker sends it.
    First,
    /// Behind another request, so HTTP sends it, in chunks.
    Behind,
    /// By HTTP/2.
    Second,
}

const WAYS: [Way; 3] = [Way::First, Way::Behind, Way::Second];

/// A pause behind each 16 KiB at most: megabytes take seconds.
const SLOW: Duration = Duration::from_millis(10);

/// Bytes of a receive buffer.
const NARROW: usize = 16 << 10;

/// Of each way, who read at once. One more of each reads nothing before the end.
const VIEWERS: usize = 8;

#[test]
fn who_watches_by_tls_is_closed_in_order_between_two_packets_and_comes_again_at_once() {
    let bytes: Arc<[u8]> = Sample { rate: Bitrate::from_kbps(8_000), pictures: 300, ..Sample::default() }.make().into();
    let mut service = Service::start(&[
        "reflect.streams=x backlog=64MiB pace=free",
        "tls.self_signed=true",
        "http.tls_listen=127.0.0.1:0",
    ]);
    let addr = service.tls_addr.clone();
    let mut pusher = Pusher::begin(&service.addr);
    let (first, rest) = bytes.split_at(bytes.len() / 4 / PIECE * PIECE);
    pusher.push(&first[..4 * PIECE]);
    wait_for_stream(&service.addr);
    let viewers: Vec<JoinHandle<[Seen; 2]>> = (0..VIEWERS)
        .flat_map(|_| WAYS)
        .map(|way| {
            let (addr, bytes, viewer) = (addr.clone(), bytes.clone(), Viewer::begin(&addr, way));
            thread::spawn(move || {
                let before = viewer.watch(&bytes);
                // Who was closed comes again without a pause, and is let in.
                [before, Viewer::begin(&addr, way).watch(&bytes)]
            })
        })
        .collect();
    let idle = WAYS.map(|way| Viewer::begin(&addr, way));
    let (middle, last) = rest.split_at(rest.len() / 2 / PIECE * PIECE);
    pusher.push(&first[4 * PIECE..]);
    pusher.push(middle);
    service.tell("USR2");
    service.wait_for_successor(1);
    for seen in idle.map(|viewer| viewer.watch(&bytes)) {
        seen.has_ended_in_order();
        assert!(part(&seen, &bytes).1 < bytes.len(), "{:?}: by the first process", seen.way);
    }
    pusher.push(last);
    assert_eq!(pusher.end(), 204);
    for thread in viewers {
        let [before, after] = thread.join().expect("closed, and let in again");
        before.has_ended_in_order();
        assert!(part(&before, &bytes).1 < bytes.len());
        assert_eq!(part(&after, &bytes).1, bytes.len(), "{:?}: the rest of the stream", after.way);
    }
    wait_until("the first process ends with its source", || service.has_ended());
}

#[test]
fn a_process_that_is_replaced_ends_when_who_reads_slowly_has_read_his_last_byte() {
    let bytes: Arc<[u8]> = Sample { rate: Bitrate::from_kbps(8_000), pictures: 300, ..Sample::default() }.make().into();
    let mut service = Service::start(&[
        "reflect.streams=x backlog=64MiB pace=free",
        "tls.self_signed=true",
        "http.tls_listen=127.0.0.1:0",
    ]);
    let mut pusher = Pusher::begin(&service.addr);
    let (first, rest) = bytes.split_at(4 * PIECE);
    pusher.push(first);
    wait_for_stream(&service.addr);
    let viewers = WAYS.map(|way| Viewer::begin_narrow(&service.tls_addr, way));
    pusher.push(&rest[..rest.len() / 2 / PIECE * PIECE]);
    service.tell("USR2");
    service.wait_for_successor(1);
    // From here on the first process is there for these alone. What was written for them waits in the kernel, for longer than
    // other requests have when a server ends.
    assert_eq!(pusher.end(), 204);
    let threads = viewers.map(|viewer| {
        let bytes = bytes.clone();
        thread::spawn(move || viewer.watch(&bytes))
    });
    for thread in threads {
        let seen = thread.join().expect("closed");
        seen.has_ended_in_order();
        assert!(part(&seen, &bytes).1 < bytes.len(), "{:?}: by the first process", seen.way);
    }
    wait_until("the first process ends with them", || service.has_ended());
}

/// Which part of the stream a body has, behind the tables.
fn part(Seen { way, body, .. }: &Seen, stream: &[u8]) -> (usize, usize) {
    assert_eq!(body.len() % PACKET, 0, "{way:?}: it ends within a packet");
    let begin = (0..body.len()).step_by(PACKET).find(|at| is_start(&body[*at..])).expect("a start");
    let body = &body[begin..];
    let from = (0..stream.len()).step_by(PACKET).find(|at| stream[*at..].starts_with(body));
    let from = from.unwrap_or_else(|| panic!("{way:?}: some of {} bytes are others", body.len()));
    (from, from + body.len())
}

/// What somebody got, behind the head of the answer.
struct Seen {
    way: Way,
    body: Vec<u8>,
    /// What he was not told of the end: of the answer, as far as its way can say so, and of the connection.
    lacks: Vec<&'static str>,
    /// Bytes behind the last that were whole.
    left_over: usize,
}

impl Seen {
    fn has_ended_in_order(&self) {
        let Seen { way, body, lacks, left_over } = self;
        assert!(
            lacks.is_empty() && *left_over == 0,
            "{way:?}: {} bytes, {left_over} more, without {lacks:?}",
            body.len()
        );
    }
}

/// Who watches by TLS.
struct Viewer {
    way: Way,
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// What came and was not looked at.
    came: Vec<u8>,
    body: Body,
    /// Between two reads.
    pause: Duration,
}

/// What an answer has brought.
#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    /// It has come to its end.
    is_whole: bool,
    /// By HTTP/2: there are no others on this connection (GOAWAY, without an error).
    is_last: bool,
}

impl Viewer {
    /// Asks for the stream; the answer has begun when this returns.
    fn begin(addr: &str, way: Way) -> Self {
        Viewer::begin_on(TcpStream::connect(addr).expect("it listens"), way)
    }

    /// The same on a connection whose kernel takes little: what he has not read waits at the server.
    fn begin_narrow(addr: &str, way: Way) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(NARROW).expect("set");
        socket.connect(&addr.parse::<SocketAddr>().expect("an address").into()).expect("it listens");
        Viewer { pause: SLOW, ..Viewer::begin_on(socket.into(), way) }
    }

    fn begin_on(tcp: TcpStream, way: Way) -> Self {
        tcp.set_read_timeout(Some(PATIENCE)).expect("a time");
        let name = ServerName::IpAddress(IpAddr::from([127, 0, 0, 1]).into());
        let mut config = ClientConfig::clone(&load::relay::tls_config().expect("TLS"));
        config.alpn_protocols = vec![if way == Way::Second { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let connection = ClientConnection::new(Arc::new(config), name).expect("TLS");
        let stream = StreamOwned::new(connection, tcp);
        let mut viewer = Viewer { way, stream, came: Vec::new(), body: Body::default(), pause: Duration::ZERO };
        if way == Way::Second {
            viewer.say(&second::request("/live/x"));
            while !viewer.came.windows(5).any(|status| status == [1, 4, 0, 0, 0]) && viewer.read().expect("an answer") {
            }
            return viewer;
        }
        if way == Way::Behind {
            viewer.say(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(viewer.read_head().starts_with("HTTP/1.1 204 "));
        }
        viewer.say(b"GET /live/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let head = viewer.read_head();
        let is_chunked = head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n");
        assert!(head.starts_with("HTTP/1.1 200 ") && is_chunked == (way == Way::Behind), "{head}");
        viewer
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
        self.stream.flush().expect("sent");
    }

    fn read_head(&mut self) -> String {
        loop {
            if let Some(end) = self.came.windows(4).position(|end| end == b"\r\n\r\n") {
                return String::from_utf8(self.came.drain(..end + 4).collect()).expect("text");
            }
            assert!(self.read().expect("an answer"), "it ends too soon");
        }
    }

    /// Reads more; false when close_notify has come.
    fn read(&mut self) -> io::Result<bool> {
        let mut buf = [0; 16 * 1_024];
        let count = self.stream.read(&mut buf)?;
        self.came.extend_from_slice(&buf[..count]);
        Ok(count > 0)
    }

    /// Reads until the end of the stream, or of the connection.
    fn watch(mut self, stream: &[u8]) -> Seen {
        let (mut whole, mut is_closed) = (None, false);
        while !is_closed && whole.is_none_or(|whole| self.body.bytes.len() < whole) {
            thread::sleep(self.pause);
            match self.read() {
                Ok(more) => is_closed = !more,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => panic!("{:?}: {error}, {} of {whole:?} bytes", self.way, self.body.bytes.len()),
            }
            match self.way {
                Way::First => self.body.bytes.append(&mut self.came),
                Way::Behind => self.body.take_chunks(&mut self.came),
                Way::Second => {
                    let answers = self.body.take_frames(&mut self.came);
                    // Who has closed hears nothing any more.
                    if !answers.is_empty() && !is_closed {
                        self.say(&answers);
                    }
                }
            }
            whole = whole.or_else(|| whole_body_len(&self.body.bytes, stream));
        }
        let Viewer { way, came, body, .. } = self;
        let told = [
            ("close_notify", is_closed),
            ("the end of the answer", body.is_whole || way == Way::First),
            ("GOAWAY", body.is_last || way != Way::Second),
        ];
        let lacks = told.into_iter().filter(|(_, is_told)| !is_told).map(|(what, _)| what).collect();
        Seen { way, body: body.bytes, lacks, left_over: came.len() }
    }
}

impl Body {
    /// Takes what is whole of chunks (RFC 9112 §7.1).
    fn take_chunks(&mut self, came: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(line) = came[at..].windows(2).position(|end| end == b"\r\n") {
            let len = str::from_utf8(&came[at..at + line]).ok().and_then(|len| usize::from_str_radix(len, 16).ok());
            let (data, len) = (at + line + 2, len.expect("a length"));
            if came.len() < data + len + 2 {
                break;
            }
            assert!(!self.is_whole && came[data + len..].starts_with(b"\r\n"), "a chunk has its end");
            self.bytes.extend_from_slice(&came[data..data + len]);
            (self.is_whole, at) = (len == 0, data + len + 2);
        }
        came.drain(..at);
    }

    /// Takes what is whole of frames. Returns what is to be answered.
    fn take_frames(&mut self, came: &mut Vec<u8>) -> Vec<u8> {
        let (mut at, mut answers) = (0, Vec::new());
        while let Some((second::Frame { kind, flags, payload }, len)) = second::frame_of(&came[at..]) {
            match kind {
                second::DATA => {
                    self.bytes.extend_from_slice(payload);
                    answers.extend(second::room(payload.len()));
                    self.is_whole |= flags & second::END_STREAM != 0;
                }
                second::GOAWAY => self.is_last |= payload.get(4..8) == Some(&[0; 4]),
                second::RST_STREAM => panic!("reset"),
                // The server waits for it before it says the last word.
                second::PING if flags & second::ACK == 0 => answers.extend(second::pong(payload)),
                _ => {}
            }
            at += len;
        }
        came.drain(..at);
        answers
    }
}

/// As much of HTTP/2 as one request needs (RFC 9113).
mod second {
    pub const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    const WINDOW_UPDATE: u8 = 8;
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    const END_HEADERS: u8 = 4;

    /// Bytes that may come before what was read makes room, of the answer and on the connection.
    const WINDOW: u32 = 1 << 20;

    pub struct Frame<'a> {
        pub kind: u8,
        pub flags: u8,
        pub payload: &'a [u8],
    }

    /// All that a client says first.
    pub fn request(path: &str) -> Vec<u8> {
        let window = [&4_u16.to_be_bytes()[..], &WINDOW.to_be_bytes()].concat();
        let field = |name: u8, value: &str| [&[name, value.len() as u8], value.as_bytes()].concat();
        // GET and https by their numbers, path and authority as they are (RFC 7541).
        let headers = [&[0x82, 0x87][..], &field(4, path), &field(1, "localhost")].concat();
        [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(SETTINGS, 0, 0, &window),
            frame(WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes()),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers),
        ]
        .concat()
    }

    /// There is room for as much as was read.
    pub fn room(len: usize) -> Vec<u8> {
        let increment = (len as u32).to_be_bytes();
        let update = |stream| if len == 0 { Vec::new() } else { frame(WINDOW_UPDATE, 0, stream, &increment) };
        [update(0), update(1)].concat()
    }

    pub fn pong(payload: &[u8]) -> Vec<u8> {
        frame(PING, ACK, 0, payload)
    }

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// The first frame, and its length, when it is whole.
    pub fn frame_of(bytes: &[u8]) -> Option<(Frame<'_>, usize)> {
        let (&[high, middle, low, kind, flags, ..], rest) = bytes.split_first_chunk::<9>()?;
        let len = u32::from_be_bytes([0, high, middle, low]) as usize;
        Some((Frame { kind, flags, payload: rest.get(..len)? }, 9 + len))
    }
}
