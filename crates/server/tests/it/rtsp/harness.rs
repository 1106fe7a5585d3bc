//! A server of one title, and its clients.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use engine::{WorkerConfig, mailbox};
use pump::sample::Sample;
use server::pump::control::{PumpControl, Settings};
use server::pump::destination::Allowed;
use server::pump::{sessions, setup};
use server::rtsp::{Limits, Rtsp, listener};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use wire::rtcp::{ReportBlock, write_bye, write_receiver_report};
use wire::{Bitrate, UdpOptions};

use crate::pump::harness::Receiver;

/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// Sessions of one client.
pub const CLIENT_MAX: usize = 20;

/// 20 seconds of 2 Mbit/s, to be sent to 127.0.0.0/8 only unless `destinations` says otherwise. Each has a host of its own, and so
/// have its clients: nothing comes to a test that was meant for another one, or for who had the port before.
pub struct Server {
    host: Ipv4Addr,
    pub rtsp: Arc<Rtsp>,
    pub pump: Arc<PumpControl>,
    listen: std::net::SocketAddr,
    /// What is played.
    pub title: Vec<u8>,
    folder: TempDir,
}

impl Server {
    pub async fn start(destinations: &str, bandwidth_kbps: u64) -> Self {
        Server::start_with(destinations, bandwidth_kbps, Limits::default(), Default::default()).await
    }

    /// With room for everything, and limits of a test's own.
    pub async fn with_limits(limits: Limits) -> Self {
        Server::start_with("127.0.0.0/8", 100_000, limits, Default::default()).await
    }

    async fn start_with(destinations: &str, bandwidth_kbps: u64, limits: Limits, pump: pump::spec::Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes = Sample { rate: Bitrate::from_kbps(2_000), pictures: 500, ..Sample::default() }.make();
        std::fs::write(folder.path().join("a title.ts"), &bytes).expect("written");
        let media = Some(folder.path().to_owned());
        let library = titles::Library::new(titles::Settings { media, ..Default::default() }).expect("a library");
        let settings = Settings {
            limits: sessions::Limits {
                bandwidth_max: Bitrate::from_kbps(bandwidth_kbps),
                sessions_max: 100,
                refused_timeout: None,
            },
            outputs: Default::default(),
            destinations: Some(Allowed::new(&[destinations.parse().expect("a prefix")])),
            read_timeout: PATIENCE,
        };
        let (control, reports) = mailbox(1_000).expect("a mailbox");
        let sockets = setup::senders(vec!["0.0.0.0:0".parse().expect("an address")], &UdpOptions::sender());
        let config = WorkerConfig { sockets, ..WorkerConfig::default() };
        let worker = setup::start_worker(0, config, pump, control).expect("a worker");
        let runtime = tokio::runtime::Handle::current();
        let pump = setup::start(library, vec![worker], settings, reports, runtime).expect("a thread");
        let rtsp = Arc::new(Rtsp::new(pump.clone(), Limits { sessions_per_client: CLIENT_MAX, ..limits }));
        static HOSTS: AtomicU16 = AtomicU16::new(1);
        let [high, low] = HOSTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let host = Ipv4Addr::new(127, 82, high, low);
        let listener = TcpListener::bind((host, 0)).await.expect("loopback can be bound");
        let listen = listener.local_addr().expect("bound");
        tokio::spawn(listener::serve(rtsp.clone(), listener));
        Server { host, rtsp, pump, listen, title: bytes, folder }
    }

    /// Puts a file among the titles.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(name), bytes).expect("written");
    }

    /// With room for everything, and a client of it.
    pub async fn with_client() -> (Self, Client) {
        let server = Server::with_limits(Limits::default()).await;
        let client = server.connect().await;
        (server, client)
    }

    /// The same. However busy the machine is, a session catches up, and its bytes stay those of the title.
    pub async fn exact_with_client() -> (Self, Client) {
        let pump = pump::spec::Settings { late_max: PATIENCE, ..Default::default() };
        let server = Server::start_with("127.0.0.0/8", 100_000, Limits::default(), pump).await;
        let client = server.connect().await;
        (server, client)
    }

    pub async fn connect(&self) -> Client {
        self.client(self.socket()).await
    }

    /// A client for which the kernel keeps hardly anything.
    pub async fn connect_narrow(&self) -> Client {
        let socket = self.socket();
        socket.set_recv_buffer_size(8 << 10).expect("set");
        self.client(socket).await
    }

    fn socket(&self) -> TcpSocket {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((self.host, 0).into()).expect("loopback can be bound");
        socket
    }

    async fn client(&self, socket: TcpSocket) -> Client {
        let stream = socket.connect(self.listen).await.expect("connected");
        Client { host: self.host, stream, inbox: Vec::new(), cseq: 0, base: self.listen.to_string() }
    }

    /// Waits until no pump session is open.
    pub async fn until_silent(&self) {
        self.until("no pump session is open", |server| server.pump.totals().open == 0).await;
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&Server) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Connections that workers have.
    pub fn links(&self) -> u64 {
        self.pump.plane().workers().counters().map(|(_, counters)| counters.tcp_links).sum()
    }
}

pub struct Client {
    pub host: Ipv4Addr,
    pub stream: TcpStream,
    /// What came and was not looked at.
    pub inbox: Vec<u8>,
    cseq: u32,
    base: String,
}

pub struct Answer {
    pub code: u16,
    pub text: String,
}

impl Client {
    /// Asks about the title, with these headers, each behind a line's end.
    pub async fn ask(&mut self, method: &str, headers: &str) -> Answer {
        self.ask_for(method, &self.uri("a%20title.ts"), headers).await
    }

    pub fn uri(&self, title: &str) -> String {
        format!("rtsp://{}/{title}", self.base)
    }

    pub async fn ask_for(&mut self, method: &str, uri: &str, headers: &str) -> Answer {
        self.cseq += 1;
        let answer = self.send(&format!("{method} {uri} RTSP/1.0\r\nCSeq: {}{headers}\r\n\r\n", self.cseq)).await;
        assert!(answer.text.contains(&format!("CSeq: {}\r\n", self.cseq)), "{}", answer.text);
        answer
    }

    pub async fn send(&mut self, text: &str) -> Answer {
        self.stream.write_all(text.as_bytes()).await.expect("taken");
        self.answer().await
    }

    /// The next answer. Interleaved data before it is let go.
    pub async fn answer(&mut self) -> Answer {
        loop {
            if let Some((_, len)) = self.frame() {
                self.inbox.drain(..len);
            } else if let Some(len) = self.answer_len() {
                let text = String::from_utf8(self.inbox.drain(..len).collect()).expect("text");
                let code = text.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
                return Answer { code, text };
            } else {
                self.read().await;
            }
        }
    }

    /// The next interleaved data, with its channel.
    pub async fn interleaved(&mut self) -> (u8, Vec<u8>) {
        loop {
            match self.frame() {
                Some((channel, len)) => return (channel, self.inbox.drain(..len).skip(4).collect()),
                None => self.read().await,
            }
        }
    }

    /// The next of what comes: interleaved data with its channel, or `None` for an answer.
    pub async fn item(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if self.frame().is_some() {
                return Some(self.interleaved().await);
            }
            if self.answer_len().is_some() {
                self.answer().await;
                return None;
            }
            self.read().await;
        }
    }

    async fn read(&mut self) {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.inbox)).await;
        assert!(read.expect("in time").expect("read") > 0, "closed after {:?}", self.inbox);
    }

    /// Channel and length of the frame that is first, when it is whole.
    fn frame(&self) -> Option<(u8, usize)> {
        let [b'$', channel, high, low, ..] = self.inbox[..] else { return None };
        let len = 4 + usize::from(u16::from_be_bytes([high, low]));
        (self.inbox.len() >= len).then_some((channel, len))
    }

    fn answer_len(&self) -> Option<usize> {
        let end = self.inbox.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = str::from_utf8(&self.inbox[..end]).ok().filter(|head| head.starts_with("RTSP/"))?;
        let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let len = end + len.map_or(0, |len| len.parse::<usize>().expect("a number"));
        (self.inbox.len() >= len).then_some(len)
    }

    /// Where it is, and its port.
    pub fn receiver(&self) -> (Receiver, u16) {
        let receiver = Receiver::bind_at(self.host);
        let port = receiver.port();
        (receiver, port)
    }

    /// A session that is sent to the socket, and the header that names it.
    pub async fn setup_datagrams(&mut self, transport: &str) -> (Receiver, String) {
        let (receiver, port) = self.receiver();
        let session = self.setup(&format!("{transport};unicast;client_port={port}")).await;
        (receiver, session)
    }

    /// Returns the header that names the session.
    pub async fn setup(&mut self, transport: &str) -> String {
        let answer = self.ask("SETUP", &format!("\r\nTransport: {transport}")).await;
        assert_eq!(answer.code, 200, "{}", answer.text);
        assert!(answer.header("Transport").starts_with(transport.split(';').next().expect("a name")));
        let (id, timeout) = answer.header("Session").split_once(';').expect("an id and a timeout");
        assert_eq!((id.len(), timeout), (32, "timeout=60"));
        format!("\r\nSession: {id}")
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        let value = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.text))
    }
}

pub fn receive(receiver: &Receiver) -> Vec<u8> {
    receiver.take(1).remove(0).1
}

/// What a receiver says of a stream, and that it leaves.
pub fn receiver_report(ssrc: u32, is_leaving: bool) -> Vec<u8> {
    let mut buf = vec![0; 100];
    let block = ReportBlock { ssrc, ..ReportBlock::default() };
    let mut len = write_receiver_report(&mut buf, 1, &[block]).expect("room");
    if is_leaving {
        len += write_bye(&mut buf[len..], &[1]).expect("room");
    }
    buf.truncate(len);
    buf
}
