use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use live::metacube::{Kind, Metadata, block_head, write_metadata};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use crate::reflect::inlet::{Framing, Inlet, Settings, Trouble};

/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Begin(Option<String>),
    Bytes(Vec<u8>),
    BreakOff,
}

/// Keeps what it is given; bytes behind each other as one.
#[derive(Clone)]
struct Recorder {
    events: Arc<watch::Sender<Vec<Event>>>,
}

impl Recorder {
    fn new() -> Self {
        Recorder { events: Arc::new(watch::Sender::new(Vec::new())) }
    }

    async fn until(&self, is_so: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let mut events = self.events.subscribe();
        let found = timeout(PATIENCE, events.wait_for(|events| is_so(events))).await;
        match found {
            Ok(found) => found.expect("somebody tells").clone(),
            Err(_) => panic!("it did not come: {:?}", self.events.borrow()),
        }
    }

    /// Until so many events came.
    async fn first(&self, count: usize) -> Vec<Event> {
        self.until(|events| events.len() >= count).await
    }
}

impl Sink for Recorder {
    fn name(&self) -> &str {
        "test"
    }

    fn begin(&self, content_type: Option<&str>) {
        self.events.send_modify(|events| events.push(Event::Begin(content_type.map(str::to_owned))));
    }

    async fn write(&self, bytes: &[u8]) -> Result<(), Stop> {
        self.events.send_modify(|events| match events.last_mut() {
            Some(Event::Bytes(before)) => before.extend(bytes),
            _ => events.push(Event::Bytes(bytes.to_vec())),
        });
        Ok(())
    }

    fn break_off(&self) {
        self.events.send_modify(|events| events.push(Event::BreakOff));
    }
}

/// An origin that answers each request by the next of its answers, and then no more.
struct Origin {
    addr: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

/// What is sent, and whether the connection ends then.
type Answer = (Vec<u8>, bool);

impl Origin {
    async fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (heads, mut answers) = (asked.clone(), answers.into_iter().collect::<VecDeque<_>>());
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = read_head(&mut stream).await;
                heads.lock().unwrap().push(head);
                let Some((bytes, ends)) = answers.pop_front() else { continue };
                // The client may have gone.
                stream.write_all(&bytes).await.ok();
                if !ends {
                    open.push(stream);
                }
            }
        });
        Origin { addr, asked }
    }

    fn source(&self, user: &str) -> ReflectSource {
        format!("http://{user}{}/a", self.addr).parse().expect("a source")
    }
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).to_lowercase()
}

fn ok(fields: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.0 200 OK\r\n{fields}\r\n").as_bytes(), body].concat()
}

fn around() -> Around {
    let patience = Patience {
        connect: Duration::from_secs(5),
        silence: Duration::from_secs(30),
        retry: Duration::from_millis(5),
        retry_max: Duration::from_millis(20),
    };
    Around::new(None, None, patience).expect("certificates")
}

fn bytes(text: &str) -> Event {
    Event::Bytes(text.as_bytes().to_vec())
}

fn begin(content_type: &str) -> Event {
    Event::Begin(Some(content_type.to_owned()))
}

#[tokio::test]
async fn a_source_that_ends_is_asked_again() {
    let origin = Origin::new([
        (ok("Content-Type: video/mp2t\r\n", b"one"), true),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec(), true),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n".to_vec(), false),
    ])
    .await;
    let recorder = Recorder::new();
    let _running = start(recorder.clone(), &[origin.source("")], &around());
    let expected = [begin("video/mp2t"), bytes("one"), Event::BreakOff, Event::Begin(None), bytes("two")];
    assert_eq!(recorder.first(5).await, expected);
    assert_eq!(origin.asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn the_next_source_is_heard_while_the_first_has_nothing() {
    let nowhere = format!("http://{}/", free()).parse().expect("a source");
    let first = Origin::new([(ok("", b""), true), (ok("", b"back"), false)]).await;
    let second = Origin::new([(ok("", b"instead"), true)]).await;
    let recorder = Recorder::new();
    let sources = [nowhere, first.source(""), second.source("")];
    let _running = start(recorder.clone(), &sources, &around());
    let expected = [Event::Begin(None), bytes("instead"), Event::BreakOff, Event::Begin(None), bytes("back")];
    assert_eq!(recorder.first(5).await, expected);
}

#[tokio::test]
async fn redirects_are_followed_and_another_host_hears_no_password() {
    let end = Origin::new([(ok("", b"here"), false)]).await;
    let location = format!("HTTP/1.1 302 Found\r\nLocation: http://{}/b\r\nContent-Length: 0\r\n\r\n", end.addr);
    let begin = Origin::new([(location.into_bytes(), true)]).await;
    let recorder = Recorder::new();
    let _running = start(recorder.clone(), &[begin.source("me:secret@")], &around());
    assert_eq!(recorder.first(2).await, [Event::Begin(None), bytes("here")]);
    // "me:secret" in base64, in small letters.
    assert!(begin.asked.lock().unwrap()[0].contains("authorization: basic bwu6c2vjcmv0\r\n"));
    assert!(!end.asked.lock().unwrap()[0].contains("authorization"));
}

#[tokio::test]
async fn an_encoding_that_nobody_knows_is_no_stream() {
    let one = Origin::new([(ok("Content-Encoding: gzip\r\n", b"what"), false)]).await;
    let other = Origin::new([(ok("Content-Encoding: identity\r\n", b"that"), false)]).await;
    let recorder = Recorder::new();
    let _running = start(recorder.clone(), &[one.source(""), other.source("")], &around());
    assert_eq!(recorder.first(2).await, [Event::Begin(None), bytes("that")]);
}

fn block(kind: Kind, data: &str) -> Vec<u8> {
    [&block_head(kind, data.len() as u32)[..], data.as_bytes()].concat()
}

#[tokio::test]
async fn the_header_of_a_framed_stream_goes_before_its_blocks_and_another_one_begins_it_anew() {
    let mut body = block(Kind::Header, "head:");
    body.extend(block(Kind::Start, "one,"));
    write_metadata(&mut body, Metadata::EncoderTimestamp(Duration::from_secs(1)));
    body.extend(block(Kind::Continuation, "two,"));
    body.extend(block(Kind::Header, "head:"));
    body.extend(block(Kind::Start, "three."));
    body.extend(block(Kind::Header, ""));
    body.extend(block(Kind::Header, "other:"));
    body.extend(block(Kind::Start, "four."));
    let origin = Origin::new([(ok("Content-Encoding: metacube\r\nContent-Type: video/webm\r\n", &body), false)]).await;
    let recorder = Recorder::new();
    let _running = start(recorder.clone(), &[origin.source("")], &around());
    let all = recorder.until(|events| events.last() == Some(&bytes("other:four."))).await;
    assert_eq!(all, [begin("video/webm"), bytes("head:one,two,three."), begin("video/webm"), bytes("other:four.")]);
}

/// Sends to a source, and to nobody else.
async fn sender(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    socket.connect(to).await.expect("loopback");
    socket
}

/// An address that nobody has: each call names another host.
fn free() -> SocketAddr {
    static HOSTS: AtomicU8 = AtomicU8::new(1);
    let id = std::process::id();
    let host = [127, 80 + id as u8 % 100, (id >> 8) as u8, HOSTS.fetch_add(1, Ordering::Relaxed)];
    std::net::UdpSocket::bind((Ipv4Addr::from(host), 0)).and_then(|socket| socket.local_addr()).expect("a port")
}

/// Until somebody listens at it.
async fn listening(addr: SocketAddr) {
    while std::net::UdpSocket::bind(addr).is_ok() {
        tokio::task::yield_now().await;
    }
}

/// Sends until so many events came.
async fn send_until(socket: &UdpSocket, datagram: &[u8], recorder: &Recorder, count: usize) {
    while recorder.events.borrow().len() < count {
        socket.send(datagram).await.expect("loopback");
        tokio::task::yield_now().await;
    }
}

fn packet(number: u8) -> Vec<u8> {
    let mut packet = vec![number; 188];
    packet[0] = 0x47;
    packet
}

fn rtp(seq: u16) -> Vec<u8> {
    let head = [&[0x80, 33][..], &seq.to_be_bytes(), &[0; 4], &[1, 2, 3, 4]].concat();
    [head, packet(seq as u8)].concat()
}

#[tokio::test]
async fn datagrams_are_a_stream_and_rtp_is_put_in_order() {
    let addr = free();
    let recorder = Recorder::new();
    let source = format!("rtp://{addr}").parse().expect("a source");
    let _running = start(recorder.clone(), &[source], &around());
    listening(addr).await;
    let sender = sender(addr).await;
    for seq in [1, 3, 2, 5, 4, 6] {
        sender.send(&rtp(seq)).await.expect("loopback");
    }
    let last = packet(6);
    let all =
        recorder.until(|events| matches!(events.last(), Some(Event::Bytes(bytes)) if bytes.ends_with(&last))).await;
    let expected: Vec<u8> = (1..=6).flat_map(packet).collect();
    assert_eq!(all, [begin("video/mp2t"), Event::Bytes(expected)]);
}

#[tokio::test]
async fn an_only_source_that_falls_silent_is_heard_again() {
    let addr = free();
    let recorder = Recorder::new();
    let patience = Patience { silence: Duration::from_millis(50), ..around().patience };
    let source = format!("udp://{addr}").parse().expect("a source");
    let _running = start(recorder.clone(), &[source], &Around { patience, ..around() });
    listening(addr).await;
    let sender = sender(addr).await;
    for (number, count) in [(1, 2), (2, 5)] {
        send_until(&sender, &packet(number), &recorder, count).await;
        recorder.until(|events| events.len() > count && events.last() == Some(&Event::BreakOff)).await;
    }
}

#[tokio::test]
async fn a_group_is_joined() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = free().port();
    let recorder = Recorder::new();
    let source = format!("udp://@239.255.77.10:{port}?interface=lo").parse().expect("a source");
    let _running = start(recorder.clone(), &[source], &around());
    let lo = socket2::SockRef::from(&socket);
    lo.set_multicast_if_v4(&std::net::Ipv4Addr::LOCALHOST).expect("loopback");
    while recorder.events.borrow().len() < 2 {
        socket.send_to(&packet(1), ("239.255.77.10", port)).expect("loopback");
        tokio::task::yield_now().await;
    }
    assert_eq!(recorder.events.borrow()[0], begin("video/mp2t"));
}

/// A stream as its writer keeps it; in another format it begins anew.
#[derive(Clone)]
struct Writer {
    inlets: Arc<watch::Sender<Vec<Inlet>>>,
}

impl Writer {
    fn new() -> Self {
        Writer { inlets: Arc::new(watch::Sender::new(vec![inlet()])) }
    }

    async fn until(&self, is_so: impl Fn(&[Inlet]) -> bool) {
        let mut inlets = self.inlets.subscribe();
        let found = timeout(PATIENCE, inlets.wait_for(|inlets| is_so(inlets))).await.map(drop);
        assert!(found.is_ok(), "{:?}", self.inlets.borrow());
    }
}

fn inlet() -> Inlet {
    let intervals = reflect::coalesce::Intervals::default();
    let settings = Settings { format: None, backlog: 1 << 20, intervals, hls: None, framing: Framing::None };
    Inlet::new(Instant::now(), settings).expect("memory")
}

impl Sink for Writer {
    fn name(&self) -> &str {
        "test"
    }

    fn begin(&self, content_type: Option<&str>) {
        self.inlets.send_modify(|inlets| inlets.last_mut().unwrap().begin(Instant::now(), content_type));
    }

    async fn write(&self, bytes: &[u8]) -> Result<(), Stop> {
        let mut result = Ok(());
        self.inlets.send_modify(|inlets| {
            let (last, now) = (inlets.last_mut().unwrap(), Instant::now());
            result = last.handle_bytes(now, bytes);
            if let Err(Trouble::OtherFormat { .. }) = result {
                let mut next = inlet();
                next.handle_bytes(now, &last.take_pending()).expect("it is no more than a few bytes");
                result = next.handle_bytes(now, bytes);
                inlets.push(next);
            }
        });
        result.map_err(Stop::because)
    }

    fn break_off(&self) {
        self.inlets.send_modify(|inlets| inlets.last_mut().unwrap().break_off(Instant::now()));
    }
}

#[tokio::test]
async fn a_source_dies_and_returns_and_comes_back_in_another_format() {
    let ts = ::pump::sample::Sample { pictures: 50, ..::pump::sample::Sample::default() }.make();
    let mut flv = b"FLV\x01\x01\0\0\0\x09\0\0\0\0".to_vec();
    for time in 0..9 {
        flv.extend([9, 0, 0, 100, 0, 0, time, 0, 0, 0, 0, 0x12]);
        flv.extend([time; 99]);
        flv.extend(111_u32.to_be_bytes());
    }
    let wrong = [&flv[..], &[0xff; 100]].concat();
    let origin = Origin::new([
        (ok("", &ts[..100_000]), true),
        (ok("", &ts), true),
        (ok("", &wrong), false),
        (ok("", &flv), false),
    ])
    .await;
    let writer = Writer::new();
    let _running = start(writer.clone(), &[origin.source("")], &around());
    writer.until(|inlets| inlets.len() == 2 && inlets[1].status().counts.sources == 2).await;
    let inlets = writer.inlets.borrow();
    let of = |index: usize| inlets[index].status();
    assert_eq!((of(0).content_type, of(1).content_type), ("video/mp2t".to_owned(), "video/x-flv".to_owned()));
    // Its third source is the one in another format.
    assert_eq!((of(0).counts.sources, of(1).counts.faults), (3, 1));
    assert!(of(0).extent.end > ts.len() as u64);
}
