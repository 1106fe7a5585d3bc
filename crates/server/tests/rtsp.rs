//! RTSP as clients meet it: real connections, a real worker, packets on loopback.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Worker, WorkerConfig, mailbox};
use pump::pump::Pump;
use pump::sample::Sample;
use server::pump::control::{PumpControl, PumpPort, Settings};
use server::pump::destination::Allowed;
use server::pump::part::{Event, PumpPart, PumpService};
use server::pump::{sessions, setup};
use server::rtsp::{Rtsp, SESSION_TIMEOUT, listener};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wire::Bitrate;
use wire::rtp::RtpPacket;
use wire::ts::PACKET_LEN;

/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(40);

/// 20 seconds of 2 Mbit/s, to be sent to 127.0.0.0/8 only unless `destinations` says otherwise.
struct Server {
    rtsp: Arc<Rtsp>,
    pump: Arc<PumpControl>,
    listen: std::net::SocketAddr,
    _folder: TempDir,
}

impl Server {
    async fn start(destinations: &str, bandwidth_kbps: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = Sample { rate: Bitrate::from_kbps(2_000), pictures: 500, ..Sample::default() }.make();
        std::fs::write(folder.path().join("a title.ts"), bytes).expect("written");
        let media = Some(folder.path().to_owned());
        let library = titles::Library::new(titles::Settings { media, ..Default::default() }).expect("a library");
        let settings = Settings {
            limits: sessions::Limits {
                bandwidth_max: Bitrate::from_kbps(bandwidth_kbps),
                sessions_max: 100,
                refused_timeout: None,
            },
            busy_max: 1.0,
            destinations: Some(Allowed::new(&[destinations.parse().expect("a prefix")])),
            burst: 2,
        };
        let (events, heard) = mailbox(1_000).expect("a mailbox");
        let runtime = tokio::runtime::Handle::current();
        let (pump, _) = setup::start(library, vec![port(events)], settings, heard, runtime).expect("a librarian");
        let rtsp = Arc::new(Rtsp::new(pump.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let listen = listener.local_addr().expect("bound");
        tokio::spawn(listener::serve(rtsp.clone(), listener));
        Server { rtsp, pump, listen, _folder: folder }
    }

    async fn connect(&self) -> Client {
        Client {
            stream: TcpStream::connect(self.listen).await.expect("connected"),
            cseq: 0,
            base: self.listen.to_string(),
        }
    }

    /// Waits until no pump session is open.
    async fn until_silent(&self) {
        let start = Instant::now();
        while self.pump.totals().open > 0 {
            assert!(start.elapsed() < PATIENCE, "a pump session stays open");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn port(events: engine::Mailbox<Event>) -> PumpPort {
    let senders = vec!["0.0.0.0:0".parse().expect("an address")];
    let worker = Worker::bind(WorkerConfig { senders, ..WorkerConfig::default() }).expect("bound");
    let senders = worker.senders().collect();
    let make = move || {
        let now = Instant::now();
        let pump = Pump::new(now, pump::spec::Settings::default());
        PumpService(PumpPart::new(now, 0, pump, move |event: Event| events.send(event)))
    };
    let handle = Arc::new(worker.run(make).expect("a thread"));
    let mailbox = handle.mailbox();
    let busy_ns = move || handle.counters().busy_ns;
    PumpPort { command: Box::new(move |command| mailbox.send(command)), senders, busy_ns: Box::new(busy_ns) }
}

struct Client {
    stream: TcpStream,
    cseq: u32,
    base: String,
}

struct Answer {
    code: u16,
    text: String,
}

impl Client {
    /// Asks about the title, with these headers, each behind a line's end.
    async fn ask(&mut self, method: &str, headers: &str) -> Answer {
        let uri = format!("rtsp://{}/a%20title.ts", self.base);
        self.ask_for(method, &uri, headers).await
    }

    async fn ask_for(&mut self, method: &str, uri: &str, headers: &str) -> Answer {
        self.cseq += 1;
        let answer = self.send(&format!("{method} {uri} RTSP/1.0\r\nCSeq: {}{headers}\r\n\r\n", self.cseq)).await;
        assert!(answer.text.contains(&format!("CSeq: {}\r\n", self.cseq)), "{}", answer.text);
        answer
    }

    async fn send(&mut self, text: &str) -> Answer {
        self.stream.write_all(text.as_bytes()).await.expect("taken");
        let (mut buf, mut text) = (Vec::new(), String::new());
        let is_whole = |text: &str| {
            let (head, body) = text.split_once("\r\n\r\n")?;
            let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            (body.len() >= len.map_or(0, |len| len.parse().expect("a number"))).then_some(())
        };
        while is_whole(&text).is_none() {
            let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut buf)).await;
            assert!(read.expect("in time").expect("read") > 0, "closed after {text:?}");
            text = String::from_utf8(buf.clone()).expect("text");
        }
        let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Answer { code, text }
    }

    /// Returns the header that names the session.
    async fn setup(&mut self, transport: &str) -> String {
        let answer = self.ask("SETUP", &format!("\r\nTransport: {transport}")).await;
        assert_eq!(answer.code, 200, "{}", answer.text);
        assert!(answer.header("Transport").starts_with(transport.split(';').next().expect("a name")));
        let (id, timeout) = answer.header("Session").split_once(';').expect("an id and a timeout");
        assert_eq!((id.len(), timeout), (32, "timeout=60"));
        format!("\r\nSession: {id}")
    }
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let value = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.text))
    }
}

fn receiver() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let port = socket.local_addr().expect("bound").port();
    (socket, port)
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buf = [0; 2_000];
    let len = socket.recv(&mut buf).expect("a datagram");
    buf[..len].to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_player_describes_plays_pauses_seeks_and_ends() {
    let server = Server::start("127.0.0.0/8", 100_000).await;
    let mut client = server.connect().await;
    assert!(client.ask_for("OPTIONS", "*", "").await.header("Public").contains("PLAY"));
    let described = client.ask("DESCRIBE", "\r\nAccept: application/sdp").await;
    assert!(described.text.contains("m=video 0 RTP/AVP 33\r\n"), "{}", described.text);
    assert!(described.text.contains("a=range:npt=0-20.") || described.text.contains("a=range:npt=0-19."));
    assert!(described.header("Content-Base").ends_with("/a%20title.ts/"));

    let (socket, port) = receiver();
    let session = client.setup(&format!("RTP/AVP;unicast;client_port={port}-{}", port ^ 1)).await;
    assert_eq!(server.pump.totals().open, 0, "nothing is sent before PLAY");
    let played = client.ask("PLAY", &format!("{session}\r\nRange: npt=0.000-\r\nScale: 4")).await;
    assert_eq!((played.code, played.header("Scale")), (200, "1.000"), "{}", played.text);
    assert!(played.header("Range").starts_with("npt=0.000-"));
    let datagram = receive(&socket);
    let packet = RtpPacket::parse(&datagram).expect("RTP");
    assert_eq!((packet.header().payload_type, packet.payload().len()), (33, 7 * PACKET_LEN));

    assert_eq!(client.ask("PAUSE", &session).await.code, 200);
    assert_eq!(server.pump.totals().paused, 1);
    let resumed = client.ask("PLAY", &session).await;
    let from: f64 = resumed.header("Range")[4..].split('-').next().and_then(|at| at.parse().ok()).expect("a time");
    assert!(from < 19.0 && server.pump.totals().paused == 0, "{from}");
    assert!(
        client.ask("PLAY", &format!("{session}\r\nRange: npt=12-")).await.header("Range").starts_with("npt=12.000-")
    );
    assert_eq!(server.pump.totals().open, 1, "it goes on with one pump session");
    // With an end it takes a new one.
    let part = client.ask("PLAY", &format!("{session}\r\nRange: npt=3-5")).await;
    assert_eq!(part.header("Range"), "npt=3.000-5.000");

    assert_eq!(client.ask("TEARDOWN", &session).await.code, 200);
    server.until_silent().await;
    assert_eq!(client.ask("PLAY", &session).await.code, 454);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_box_gets_the_stream_right_in_udp() {
    let server = Server::start("127.0.0.0/8", 100_000).await;
    let mut client = server.connect().await;
    let (socket, port) = receiver();
    let session = client.setup(&format!("MP2T/H2221/UDP;unicast;client_port={port}")).await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let datagram = receive(&socket);
    assert_eq!((datagram[0], datagram.len()), (0x47, 7 * PACKET_LEN));

    // Another connection may go on with it, this one may end.
    drop(client);
    let mut client = server.connect().await;
    assert_eq!(client.ask("GET_PARAMETER", &session).await.code, 200);
    assert_eq!(client.ask("TEARDOWN", &session).await.code, 200);
    server.until_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_without_requests_ends() {
    let server = Server::start("127.0.0.0/8", 100_000).await;
    let mut client = server.connect().await;
    let (_socket, port) = receiver();
    let session = client.setup(&format!("RTP/AVP;unicast;client_port={port}")).await;
    assert_eq!(client.ask("PLAY", &session).await.code, 200);
    let now = Instant::now();
    server.rtsp.handle_timeout(now + SESSION_TIMEOUT / 2).await;
    assert_eq!(client.ask("OPTIONS", &session).await.code, 200, "it is still there");
    server.rtsp.handle_timeout(now + SESSION_TIMEOUT + PATIENCE).await;
    assert_eq!(client.ask("OPTIONS", &session).await.code, 454);
    server.until_silent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_by_its_status() {
    let server = Server::start("127.0.0.0/8", 1_000).await;
    let mut client = server.connect().await;
    let (_socket, port) = receiver();
    for (code, method, headers) in [
        (406, "DESCRIBE", "\r\nAccept: text/html".to_owned()),
        (400, "SETUP", String::new()),
        (461, "SETUP", "\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1".to_owned()),
        (461, "SETUP", format!("\r\nTransport: RTP/AVP;unicast;client_port={port};destination=127.0.0.2")),
        (461, "SETUP", format!("\r\nTransport: RTP/AVP;multicast;client_port={port}")),
        (454, "PLAY", String::new()),
        (454, "PLAY", "\r\nSession: 0123".to_owned()),
        (451, "SET_PARAMETER", String::new()),
        (501, "RECORD", String::new()),
    ] {
        assert_eq!(client.ask(method, &headers).await.code, code, "{method}{headers}");
    }
    for uri in ["rtsp://h/none.ts", "rtsp://h/../a%20title.ts", "rtsp://h/http://127.0.0.1/a.ts", "*"] {
        assert_eq!(client.ask_for("DESCRIBE", uri, "").await.code, 404, "{uri}");
    }
    let session = client.setup(&format!("RTP/AVP;unicast;client_port={port}")).await;
    for (code, method, headers) in [
        (455, "PAUSE", ""),
        (455, "SETUP", "\r\nTransport: RTP/AVP;unicast;client_port=5"),
        (457, "PLAY", "\r\nRange: smpte=0:0:1-"),
        (457, "PLAY", "\r\nRange: npt=9-3"),
        (400, "PLAY", "\r\nScale: fast"),
        (453, "PLAY", ""),
    ] {
        assert_eq!(client.ask(method, &format!("{session}{headers}")).await.code, code, "{method}{headers}");
    }
    assert_eq!(client.send("PLAY * RTSP/1.0\r\n\r\n").await.code, 400, "a request has a number");
    assert_eq!(client.send("PLAY * RTSP/2.0\r\n\r\n").await.code, 505);
    let mut byte = [0];
    assert_eq!(client.stream.read(&mut byte).await.expect("an end"), 0, "what follows cannot be told apart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_outside_of_the_allowed_networks_are_sent_nothing() {
    let server = Server::start("192.0.2.0/24", 100_000).await;
    let mut client = server.connect().await;
    let session = client.setup("RTP/AVP;unicast;client_port=5000-5001").await;
    assert_eq!(client.ask("PLAY", &session).await.code, 403);
    assert_eq!(server.pump.totals().open, 0);
}
