//! Two workers with pumps, a folder of titles, an origin that can be slow, and receivers on loopback.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path as InPath, State};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine::sys::BufferSide;
use engine::{WorkerConfig, mailbox};
use pump::sample::Sample;
use serde_json::Value;
use server::auth::{Auth, Claims, Rights, SigningKey, mint};
use server::config::OutputConfig;
use server::config::{self, Config, Secret};
use server::http::{App, router};
use server::plane::ProductControl as _;
use server::pump::control::{PumpControl, Settings};
use server::pump::destination::Allowed;
use server::pump::outputs::{self, Outputs};
use server::pump::{sessions, setup};
use server::rooms::control::RoomsControl;
use server::rooms::directory;
use server::rtsp::Rtsp;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tower::ServiceExt;
use wire::ts::{PACKET_LEN, Packet, datagram_packets, write_null};
use wire::{Bitrate, UdpOptions};

/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(40);

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Packets of a chunk: a quarter of a second of the titles here.
pub const CHUNK_PACKETS: usize = 350;

pub struct Harness {
    pump: Arc<PumpControl>,
    router: Router,
    folder: TempDir,
    origin: Arc<Origin>,
}

pub struct Answer {
    pub status: StatusCode,
    pub retry_after: Option<String>,
    pub body: Value,
}

impl Harness {
    /// May send to 127.0.0.0/8 only.
    pub fn start(change: impl FnOnce(&mut Settings)) -> Self {
        Self::new(change, true)
    }

    pub fn with_tokens() -> Self {
        Self::new(|_| {}, false)
    }

    fn new(change: impl FnOnce(&mut Settings), is_open: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (origin, addr) = Origin::start();
        let library = titles::Library::new(titles::Settings {
            media: Some(folder.path().to_owned()),
            rescan: Duration::from_millis(200),
            origins: vec![format!("http://{addr}/").parse().expect("a URL")],
            chunk_bytes: CHUNK_PACKETS * PACKET_LEN,
            stall_timeout: PATIENCE,
            fetch_timeout: PATIENCE,
            retries: 0,
            retry_backoff: Duration::from_millis(20),
            gone_after: Duration::from_millis(200),
            ..titles::Settings::default()
        })
        .expect("a library");
        let mut config = Config::default();
        let output = OutputConfig::new(OUTPUT).and_then(|output| output.with("source", "127.0.0.2")?.with("ttl", "9"));
        config.pump.outputs = vec![output.expect("an output")];
        let mut settings = Settings {
            outputs: Outputs::new(&config),
            limits: sessions::Limits {
                bandwidth_max: Bitrate::from_kbps(100_000),
                sessions_max: 100,
                refused_timeout: None,
            },
            destinations: Some(Allowed::new(&["127.0.0.0/8".parse().expect("a prefix")])),
            read_timeout: PATIENCE,
        };
        change(&mut settings);
        let pump = start_pump(library, &config, settings);
        let none = directory::Settings { reconnect_grace: Duration::ZERO, ..Default::default() };
        let rooms = Arc::new(RoomsControl::new(pump.plane().clone(), Vec::new(), none));
        let auth = config::Auth {
            dev: is_open,
            hs256_secret: (!is_open).then(|| Secret(SECRET.to_owned())),
            ..Default::default()
        };
        let auth = Auth::new(&auth).expect("a key");
        let rtsp = Some(Arc::new(Rtsp::new(pump.clone(), server::rtsp::Limits::default())));
        let relay = Some(Arc::new(crate::relay::control(pump.plane().clone(), "")));
        let reflect = Some(server::reflect::control::Control::new(pump.plane().clone(), None, usize::MAX));
        let service = App { pump: Some(pump.clone()), relay, rtsp, reflect, ..App::new(rooms, auth) };
        Harness { pump, router: router(Arc::new(service)), folder, origin }
    }

    pub fn media(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a title of 2 Mbit/s with so many pictures, 25 a second, into the folder.
    pub fn title(&self, name: &str, pictures: u32) -> Vec<u8> {
        let sample = Sample { rate: Bitrate::from_kbps(2_000), pictures, ..Sample::default() };
        let bytes = sample.make();
        let path = self.media().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, &bytes).expect("written");
        bytes
    }

    /// Puts a title on the origin, which holds back what lies behind `chunk`.
    pub fn origin_title(&self, name: &str, bytes: Vec<u8>, chunk: usize) {
        let held = chunk * CHUNK_PACKETS * PACKET_LEN;
        self.origin.titles.try_lock().expect("nobody asks yet").insert(name.to_owned(), (bytes, held));
    }

    pub fn release_origin(&self) {
        self.origin.is_released.store(true, Ordering::SeqCst);
        self.origin.released.notify_waiters();
    }

    /// It answers with this status where it would hold back.
    pub fn fail_origin(&self, status: Option<StatusCode>) {
        *self.origin.failure.lock().expect("nobody panics") = status;
    }

    pub fn pump(&self) -> &Arc<PumpControl> {
        &self.pump
    }

    /// What is due is done now.
    pub fn tick(&self) {
        self.pump().handle_timeout(Instant::now());
    }

    pub fn start_drain(&self) {
        self.pump.plane().start_drain();
    }

    pub async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.request(None, method, path, body).await
    }

    pub async fn send_as(&self, admin: bool, method: &str, path: &str, body: &str) -> Answer {
        let rights = Rights { admin, publish: vec!["*".to_owned()], ..Rights::default() };
        let claims = Claims { exp: u64::MAX / 2, millrace: rights, ..Claims::default() };
        let token = mint(&claims, SigningKey::Hs256(SECRET)).expect("a token");
        self.request(Some(&token), method, path, body).await
    }

    async fn request(&self, token: Option<&str>, method: &str, path: &str, body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.map(|value| value.to_str().expect("text").to_owned());
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        let body = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).expect("JSON") };
        Answer { status, retry_after, body }
    }

    pub async fn metrics(&self) -> String {
        let request = Request::get("/metrics").body(Body::empty()).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        String::from_utf8(bytes.into()).expect("text")
    }

    /// Opens a session and returns its id.
    pub async fn open(&self, request: Value) -> u64 {
        let answer = self.send("POST", "/pump/sessions", &request.to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{request}: {}", answer.body);
        answer.body["id"].as_str().expect("an id").parse().expect("a number")
    }

    pub async fn get(&self, id: u64) -> Value {
        let answer = self.send("GET", &format!("/pump/sessions/{id}"), "").await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        answer.body
    }

    pub async fn patch(&self, id: u64, change: Value) -> StatusCode {
        self.send("PATCH", &format!("/pump/sessions/{id}"), &change.to_string()).await.status
    }

    pub async fn delete(&self, id: u64) -> StatusCode {
        self.send("DELETE", &format!("/pump/sessions/{id}"), "").await.status
    }

    /// The session once it is as wanted.
    pub async fn until(&self, id: u64, is_so: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let session = self.get(id).await;
            if is_so(&session) {
                return session;
            }
            assert!(start.elapsed() < PATIENCE, "waited in vain: {session}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn until_ended(&self, id: u64) -> Value {
        self.until(id, |session| session["state"] == "ended").await
    }
}

/// An output from 127.0.0.2.
pub const OUTPUT: &str = "marked";

fn start_pump(library: titles::Library, config: &Config, settings: Settings) -> Arc<PumpControl> {
    let (control, reports) = mailbox(1_000).expect("a mailbox");
    let workers = (0..2).map(|index| {
        let mut sockets = setup::senders(vec!["0.0.0.0:0".parse().expect("an address")], &UdpOptions::sender());
        sockets.extend(outputs::sockets(config, index, &UdpOptions::sender()).expect("outputs"));
        let worker = WorkerConfig { sockets, ..WorkerConfig::default() };
        // However busy the machine is, a session catches up, and its references stay those of the title.
        let settings = pump::spec::Settings { late_max: PATIENCE, ..pump::spec::Settings::default() };
        setup::start_worker(index, worker, settings, control.clone()).expect("a worker")
    });
    setup::start(library, workers.collect(), settings, reports, Handle::current()).expect("a thread")
}

/// An HTTP server with range requests.
#[derive(Default)]
struct Origin {
    /// Bytes, and from where on they are held back.
    titles: Mutex<HashMap<String, (Vec<u8>, usize)>>,
    is_released: AtomicBool,
    released: Notify,
    failure: std::sync::Mutex<Option<StatusCode>>,
}

impl Origin {
    fn start() -> (Arc<Origin>, SocketAddr) {
        let origin = Arc::new(Origin::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
        listener.set_nonblocking(true).expect("set");
        let addr = listener.local_addr().expect("bound");
        let router = Router::new().route("/{title}", get(Origin::answer)).with_state(origin.clone());
        tokio::spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            axum::serve(listener, router).await.expect("serves");
        });
        (origin, addr)
    }

    async fn answer(State(origin): State<Arc<Origin>>, InPath(name): InPath<String>, headers: HeaderMap) -> Response {
        let Some((bytes, held)) = origin.titles.lock().await.get(&name).cloned() else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok()?.strip_prefix("bytes="));
        let Some((first, last)) = range.and_then(|range| range.split_once('-')) else {
            return ([(header::ACCEPT_RANGES, "bytes")], bytes).into_response();
        };
        let first: usize = first.parse().expect("a number");
        let last = last.parse().unwrap_or(usize::MAX).min(bytes.len() - 1);
        // The title's head is longer than a chunk.
        if first >= held && first > 0 {
            let failure = *origin.failure.lock().expect("nobody panics");
            if let Some(failure) = failure {
                return failure.into_response();
            }
            loop {
                let released = origin.released.notified();
                if origin.is_released.load(Ordering::SeqCst) {
                    break;
                }
                released.await;
            }
        }
        let range = format!("bytes {first}-{last}/{}", bytes.len());
        let part = bytes[first..=last].to_vec();
        (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], part).into_response()
    }
}

pub async fn eventually<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A datagram behind which there is nothing that was sent before it.
const MARKER: &[u8] = b"all that was sent";

/// A datagram and when it was read.
pub type Received = (Instant, Vec<u8>);

/// A socket that is read all the time.
pub struct Receiver {
    addr: SocketAddr,
    /// Where the last one came from.
    from: Arc<std::sync::Mutex<Option<SocketAddr>>>,
    datagrams: mpsc::Receiver<Received>,
}

impl Receiver {
    pub fn bind() -> Self {
        Receiver::bind_at(Ipv4Addr::LOCALHOST)
    }

    pub fn bind_at(host: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((host, 0)).expect("loopback can be bound");
        let addr = socket.local_addr().expect("bound");
        // So that a test that is kept from running for a while loses nothing.
        engine::sys::set_buffer_bytes(socket.as_fd(), BufferSide::Receive, 8 << 20).expect("a buffer");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let (sender, datagrams) = mpsc::sync_channel(100_000);
        let from = Arc::new(std::sync::Mutex::new(None));
        let last_from = from.clone();
        std::thread::spawn(move || {
            let mut buf = [0; 2_000];
            loop {
                let received = socket.recv_from(&mut buf).map(|(len, source)| {
                    if buf[..len] != *MARKER {
                        *last_from.lock().expect("nobody panics") = Some(source);
                    }
                    (Instant::now(), buf[..len].to_vec())
                });
                let is_over = match received {
                    Ok(received) => sender.send(received).is_err(),
                    // An empty one asks whether anybody listens still.
                    Err(_) => sender.send((Instant::now(), Vec::new())).is_err(),
                };
                if is_over {
                    return;
                }
            }
        });
        Receiver { addr, from, datagrams }
    }

    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    pub fn last_from(&self) -> Option<SocketAddr> {
        *self.from.lock().expect("nobody panics")
    }

    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.addr)
    }

    /// The next `count` datagrams.
    pub fn take(&self, count: usize) -> Vec<Received> {
        (0..count).map(|number| self.next(PATIENCE).unwrap_or_else(|| panic!("{number} of {count} came"))).collect()
    }

    /// All that were sent until now, however long its reader is kept from running, and what comes until there is nothing for
    /// a moment.
    pub fn take_what_is_there(&self) -> Vec<Received> {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
        socket.send_to(MARKER, self.addr).expect("sent");
        let sent = std::iter::from_fn(|| self.next(PATIENCE)).take_while(|(_, bytes)| bytes != MARKER);
        let mut received: Vec<_> = sent.collect();
        received.extend(std::iter::from_fn(|| self.next(Duration::from_millis(300))));
        received
    }

    /// The datagrams of so many packets, and what comes behind them.
    pub fn until_quiet_after(&self, packets: usize) -> Vec<Received> {
        let mut received = self.take(packets.div_ceil(7));
        received.extend(self.take_what_is_there());
        received
    }

    fn next(&self, timeout: Duration) -> Option<Received> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.datagrams.recv_timeout(left) {
                Ok((_, bytes)) if bytes.is_empty() => {}
                received => return received.ok(),
            }
        }
    }
}

/// Where nobody listens, for as long as the socket is kept: it has the port, and takes datagrams of one other port alone.
pub fn nowhere() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback can be bound");
    let addr = socket.local_addr().expect("bound");
    socket.connect(addr).expect("loopback");
    (socket, format!("udp://{addr}"))
}

/// The packets of datagrams, one behind the other.
pub fn packets(received: &[Received]) -> Vec<u8> {
    let of = |(_, bytes): &Received| datagram_packets(bytes).expect("whole packets").1.as_flattened().to_vec();
    received.iter().flat_map(of).collect()
}

/// A title as it is sent: the last datagram is filled up with null packets.
pub fn padded(title: &[u8]) -> Vec<u8> {
    let mut bytes = title.to_vec();
    while !(bytes.len() / PACKET_LEN).is_multiple_of(7) {
        let mut packet = [0; PACKET_LEN];
        write_null(&mut packet);
        bytes.extend(packet);
    }
    bytes
}

/// Checks that continuity counters go on, whatever was cut and joined (ISO/IEC 13818-1 §2.4.3.3).
pub fn assert_continues(bytes: &[u8]) {
    let mut last: HashMap<u16, u8> = HashMap::new();
    for (index, packet) in bytes.as_chunks::<PACKET_LEN>().0.iter().enumerate() {
        let packet = Packet::parse(packet).expect("a packet");
        if packet.pid() == wire::ts::Pid::NULL || !packet.has_payload() {
            continue;
        }
        let counter = packet.continuity();
        if let Some(before) = last.insert(packet.pid().number(), counter) {
            assert_eq!((before + 1) & 0x0f, counter, "packet {index}, PID {}", packet.pid().number());
        }
    }
}
