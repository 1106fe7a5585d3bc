//! Whoever connects by TCP, until it is known what he wants: HTTPS, TURN under TLS, load balancers, and those who want nothing.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use engine::mailbox;
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use relay::spec::{ClientTransport, Connection};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use server::auth::Auth;
use server::config::{self, CertificateFiles};
use server::door::{Door, Entrance, Hosts, Limits, Opened, TurnClient};
use server::http::{self, App, Connections, Site};
use server::plane::workers::Workers;
use server::plane::{Plane, placement};
use server::rooms::control::RoomsControl;
use server::rooms::directory;
use server::tls::Certificates;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::{Begun, Cipher};

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);
const GET: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// An Allocate request.
const ALLOCATE: [u8; 28] =
    [0, 3, 0, 8, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0x19, 0, 4, 17, 0, 0, 0];

struct World {
    addr: SocketAddr,
    door: Arc<Door>,
    turn: mpsc::Receiver<TurnClient>,
    folder: tempfile::TempDir,
    certificates: Arc<Certificates>,
    open: Option<watch::Sender<()>>,
    service: Arc<App>,
}

impl World {
    /// One entrance where everything is spoken under TLS.
    async fn new() -> Self {
        let entrance = Entrance { is_tls: true, http: true, http2: true, turn: true, ..Entrance::default() };
        World::with(entrance, Limits::default()).await
    }

    async fn with(entrance: Entrance, limits: Limits) -> Self {
        World::with_http(entrance, limits, http::Limits::default()).await
    }

    async fn with_http(entrance: Entrance, limits: Limits, of_http: http::Limits) -> Self {
        World::with_proxies(entrance, limits, of_http, http::Proxies::default()).await
    }

    async fn with_proxies(entrance: Entrance, limits: Limits, of_http: http::Limits, proxies: http::Proxies) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let certificates = Certificates::read(&[write(folder.path())]).expect("certificates");
        let plane = Plane::new(Workers::pretended(Vec::new()), placement::Settings::default());
        let rooms = Arc::new(RoomsControl::new(plane, Vec::new(), directory::Settings::default()));
        let auth = Auth::new(&config::Auth { dev: true, ..config::Auth::default() }).expect("no key needed");
        let connections = Arc::new(Connections::new(of_http));
        let service = Arc::new(App { door: Door::new(limits), connections, proxies, ..App::new(rooms, auth) });
        let (sender, turn) = mpsc::channel(10);
        let at = ([127, 0, 0, 1], 0).into();
        let opened = Opened::bind(at, entrance, Some(&certificates)).expect("a port");
        let addr = opened.local_addr().expect("an address");
        let (open, is_open) = watch::channel(());
        let hosts = Hosts { site: Site::new(service.clone()), turn: Some(sender) };
        let door = service.door.clone();
        tokio::spawn(door.clone().serve(opened, hosts, is_open));
        World { addr, door, turn, folder, certificates, open: Some(open), service }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.expect("it listens")
    }

    /// Behind a handshake in which the client offers these protocols.
    async fn secure<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, protocols: &[&str]) -> TlsStream<S> {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(self.folder.path().join("one.pem")).expect("a certificate");
        roots.add(certificate).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let connector = TlsConnector::from(Arc::new(config));
        let name = "localhost".try_into().expect("a name");
        timeout(LONG, connector.connect(name, stream)).await.expect("in time").expect("a handshake")
    }

    async fn next_turn(&mut self) -> TurnClient {
        timeout(LONG, self.turn.recv()).await.expect("in time").expect("it goes on")
    }

    async fn until(&self, what: impl Fn(&server::door::Counters) -> bool) {
        let wait = async {
            while !what(&self.door.counters()) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{:?}", self.door.counters()));
    }
}

/// A certificate for localhost and its key, as `one.pem` and `one.key`.
fn write(folder: &Path) -> CertificateFiles {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let files = CertificateFiles { certificate: folder.join("one.pem"), key: folder.join("one.key") };
    std::fs::write(&files.certificate, made.cert.pem()).expect("written");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("written");
    files
}

/// Asks for health, and reads the answer.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> String {
    stream.write_all(GET.as_bytes()).await.expect("written");
    stream.flush().await.expect("written");
    let (mut answer, read) = (Vec::new(), Duration::from_secs(20));
    while !answer.ends_with(b"ok\n") {
        let count = timeout(read, stream.read_buf(&mut answer)).await.expect("in time").expect("an answer");
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
    }
    String::from_utf8(answer).expect("text")
}

/// Whether the other side has ended a connection.
async fn is_ended(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(LONG, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn https_is_answered_with_and_without_a_name_for_the_protocol() {
    let world = World::new().await;
    for protocols in [&["http/1.1"][..], &["h3", "http/1.1"], &[]] {
        let mut stream = world.secure(world.connect().await, protocols).await;
        for _ in 0..3 {
            assert!(ask(&mut stream).await.starts_with("HTTP/1.1 200 "));
        }
        let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(agreed.is_some(), !protocols.is_empty());
    }
    let counters = world.door.counters();
    assert_eq!((counters.accepted, counters.handshakes, counters.http, counters.newcomers), (3, 3, 3, 0));
}

/// A client that speaks HTTP/2.
async fn second(world: &World) -> http2::SendRequest<Body> {
    let stream = world.secure(world.connect().await, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it is spoken here");
    tokio::spawn(connection);
    sender
}

/// Asks for `path` at `authority`; the status and the body.
async fn ask_second(sender: &http2::SendRequest<Body>, authority: &str, path: &str) -> (u16, Vec<u8>) {
    let request = Request::get(format!("https://{authority}{path}")).body(Body::empty()).expect("a request");
    let answer = timeout(LONG, sender.clone().send_request(request)).await.expect("in time").expect("an answer");
    let status = answer.status().as_u16();
    (status, to_bytes(Body::new(answer.into_body()), 10_000).await.expect("a body").to_vec())
}

#[tokio::test]
async fn many_requests_share_a_connection_by_http_2() {
    let world = World::new().await;
    let sender = second(&world).await;
    let mut asked = JoinSet::new();
    for _ in 0..50 {
        let sender = sender.clone();
        asked.spawn(async move { ask_second(&sender, "localhost", "/healthz").await });
    }
    for answer in asked.join_all().await {
        assert_eq!(answer, (200, b"ok\n".to_vec()));
    }
    let counters = world.door.counters();
    assert_eq!((counters.accepted, counters.handshakes, counters.http), (1, 1, 1));
}

/// As `http::where_no_token_is_needed_pages_of_others_administer_nothing`; there is no `Host`.
#[tokio::test]
async fn a_name_that_leads_here_administers_nothing_by_http_2_either() {
    let world = World::new().await;
    let sender = second(&world).await;
    for (authority, status) in [("localhost", 200), ("127.0.0.1:1", 200), ("else.example", 403)] {
        assert_eq!(ask_second(&sender, authority, "/api/streams").await.0, status, "{authority}");
    }
}

#[tokio::test]
async fn a_connection_of_http_2_without_a_request_is_closed_in_time() {
    let limits = http::Limits { request_timeout: Duration::from_millis(200), ..http::Limits::default() };
    let entrance = Entrance { is_tls: true, http: true, http2: true, ..Entrance::default() };
    let world = World::with_http(entrance, Limits::default(), limits).await;
    for requests in [0, 2] {
        let sender = second(&world).await;
        for _ in 0..requests {
            assert_eq!(ask_second(&sender, "localhost", "/healthz").await.0, 200);
        }
        let closed = async {
            while !sender.is_closed() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, closed).await.expect("it is closed");
    }
}

#[tokio::test]
async fn where_http_2_is_not_wanted_nobody_agrees_on_it() {
    let entrance = Entrance { is_tls: true, http: true, ..Entrance::default() };
    let world = World::with(entrance, Limits::default()).await;
    let mut stream = world.secure(world.connect().await, &["h2", "http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert!(ask(&mut stream).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn who_says_that_it_sends_no_more_has_its_answer() {
    let world = World::new().await;
    let mut stream = world.secure(world.connect().await, &[]).await;
    // Both in one segment, so that what is asked comes with the end.
    stream.get_mut().1.writer().write_all(GET.as_bytes()).expect("kept");
    stream.shutdown().await.expect("said");
    let mut answer = String::new();
    timeout(LONG, stream.read_to_string(&mut answer)).await.expect("in time").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
}

/// As a user would, who has nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn curl_and_openssl_find_what_they_expect() {
    let world = World::new().await;
    let certificate = world.folder.path().join("one.pem");
    let port = world.addr.port();
    let certificate = certificate.to_str().expect("text").to_owned();
    let asked = tokio::task::spawn_blocking(move || ask_as_users_do(port, &certificate));
    if let Some(missing) = timeout(3 * LONG, asked).await.expect("in time").expect("all is well") {
        skipped(&format!("{missing} is not installed"));
    }
}

/// Asks for health with programs that users have. Returns the one that is not there.
fn ask_as_users_do(port: u16, certificate: &str) -> Option<&'static str> {
    for versions in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
        let resolve = format!("localhost:{port}:127.0.0.1");
        let url = format!("https://localhost:{port}/healthz");
        let curl = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "20", "--resolve", &resolve, "--cacert", certificate])
            .args(versions)
            .arg(url)
            .output();
        let Ok(curl) = curl else { return Some("curl") };
        assert_eq!(String::from_utf8_lossy(&curl.stdout), "ok\n", "{curl:?}");
    }
    for version in ["-tls1_2", "-tls1_3"] {
        let openssl = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost", version])
            .args(["-CAfile", certificate, "-connect", &format!("127.0.0.1:{port}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut openssl) = openssl else { return Some("openssl") };
        let request = GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        openssl.stdin.as_mut().expect("a pipe").write_all(request.as_bytes()).expect("written");
        // Its input stays open meanwhile: the server ends the connection.
        let mut text = String::new();
        openssl.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
        openssl.wait().expect("it ran");
        assert!(text.starts_with("HTTP/1.1 200 OK") && text.ends_with("ok\n"), "{text}");
    }
    None
}

/// Says which test was skipped, and why, to whoever runs all of them.
fn skipped(why: &str) {
    if let Some(file) = std::env::var_os("MILLRACE_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
        writeln!(file.expect("a file"), "{why}").expect("written");
    }
}

#[tokio::test]
async fn turn_is_handed_over_with_what_was_read_and_the_cipher() {
    let mut world = World::new().await;
    for protocols in [&["stun.turn"][..], &[]] {
        let mut stream = world.secure(world.connect().await, protocols).await;
        let local = stream.get_ref().0.local_addr().expect("connected");
        // One byte at a time, each in a record of its own.
        for byte in ALLOCATE {
            stream.write_all(&[byte]).await.expect("written");
            stream.flush().await.expect("written");
        }
        let TurnClient { connection, connection_id } = world.next_turn().await;
        assert_eq!((connection.client, connection.server, connection_id), (local, world.addr, None));
        assert_eq!(&connection.begun.received[..], ALLOCATE);

        // What a worker does with it.
        let mut cipher = connection.begun.cipher.expect("it is under TLS");
        let socket = std::net::TcpStream::from(connection.descriptor);
        socket.set_nonblocking(true).expect("an option");
        let mut socket = TcpStream::from_std(socket).expect("a socket");
        let mut out = Vec::new();
        cipher.seal(b"answer", &mut out).expect("a record");
        socket.write_all(&out).await.expect("written");
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"answer");
        stream.write_all(b"and on").await.expect("written");
        stream.flush().await.expect("written");
        let (mut came, mut plain) = (connection.begun.sealed.to_vec(), 0);
        while plain < 6 {
            socket.read_buf(&mut came).await.expect("more");
            plain = open(&mut *cipher, &mut came);
        }
        assert_eq!(&came[..6], b"and on");
    }
}

fn open(cipher: &mut dyn Cipher, came: &mut [u8]) -> usize {
    cipher.open(came).expect("records").plain
}

#[tokio::test]
async fn plain_turn_and_http_share_a_port() {
    let entrance = Entrance { http: true, turn: true, ..Entrance::default() };
    let mut world = World::with(entrance, Limits::default()).await;
    assert!(ask(&mut world.connect().await).await.starts_with("HTTP/1.1 200 "));
    let bind = [&[0, 0x0b, 0, 8][..], &ALLOCATE[4..20], &[0, 0x2a, 0, 4, 1, 2, 3, 4], b"@ABC"].concat();
    let mut client = world.connect().await;
    client.write_all(&bind).await.expect("written");
    let TurnClient { connection, connection_id } = world.next_turn().await;
    assert_eq!((connection_id, &connection.begun.received[..]), (Some(0x0102_0304), &bind[..]));
    assert!(connection.begun.cipher.is_none());

    let mut wrong = world.connect().await;
    // A header of STUN without the magic cookie.
    wrong.write_all(&[[0, 1, 0, 0].as_slice(), &[0; 16]].concat()).await.expect("written");
    assert!(is_ended(&mut wrong).await);
    world.until(|counters| counters.unclear == 1).await;
}

#[tokio::test]
async fn a_load_balancer_says_whose_a_connection_is_and_nobody_else_is_believed() {
    let entrance = Entrance {
        is_tls: true,
        turn: true,
        proxied_from: vec!["127.0.0.7/32".parse().expect("a network")],
        ..Entrance::default()
    };
    let mut world = World::with(entrance, Limits::default()).await;
    let from = async |host: u8| {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, host], 0).into()).expect("an address of loopback");
        socket.connect(world.addr).await.expect("it listens")
    };
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x09\xc6\x33\x64\x02\xdc\x04\x01\xbb";
    let mut streams = Vec::new();
    for header in [&b"PROXY TCP4 192.0.2.9 198.51.100.2 56324 443\r\n"[..], v2] {
        let mut stream = from(7).await;
        // Cut anywhere.
        for part in header.chunks(5) {
            stream.write_all(part).await.expect("written");
        }
        streams.push(stream);
    }
    // Nobody's but the balancer's own.
    let mut own = from(7).await;
    own.write_all(b"PROXY UNKNOWN\r\n").await.expect("written");
    streams.push(own);
    streams.push(from(8).await);
    let (without, stranger) = (from(7).await, from(8).await);
    let named = ("192.0.2.9:56324".parse().expect("an address"), "198.51.100.2:443".parse().expect("an address"));
    for (index, stream) in streams.into_iter().enumerate() {
        let local = stream.local_addr().expect("connected");
        let expected = if index < 2 { named } else { (local, world.addr) };
        let mut stream = world.secure(stream, &["stun.turn"]).await;
        stream.write_all(&ALLOCATE).await.expect("written");
        stream.flush().await.expect("written");
        let TurnClient { connection, .. } = world.next_turn().await;
        assert_eq!((connection.client, connection.server), expected, "{index}");
        assert_eq!(connection.begun.remote, Some(expected.0));
    }
    for (mut stream, bytes) in [(without, &b"\x16\x03\x01\x02\0\x01\0"[..]), (stranger, b"PROXY UNKNOWN\r\n")] {
        stream.write_all(bytes).await.expect("written");
        assert!(is_ended(&mut stream).await);
    }
    world.until(|counters| (counters.proxy_errors, counters.handshakes_failed) == (1, 1)).await;
    assert_eq!(world.door.counters().turn, 4);
}

#[tokio::test]
async fn who_stops_in_the_middle_is_closed_in_time() {
    // Long enough for a handshake on a busy machine.
    let limits = Limits { time: Duration::from_secs(5), ..Limits::default() };
    let entrance = Entrance { is_tls: true, http: true, turn: true, ..Entrance::default() };
    let world = World::with(entrance, limits).await;
    let mut silent = world.connect().await;
    let mut slow = world.connect().await;
    slow.write_all(b"\x16\x03\x01\x02\0").await.expect("written");
    // The handshake is over, and nothing is said.
    let mut mute = world.secure(world.connect().await, &[]).await;
    assert!(is_ended(&mut silent).await && is_ended(&mut slow).await);
    let _ = timeout(LONG, mute.read(&mut [0; 10])).await.expect("it is ended");
    world.until(|counters| counters.late == 3 && counters.newcomers == 0).await;
    assert!(ask(&mut world.secure(world.connect().await, &["http/1.1"]).await).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn many_who_say_nothing_make_room_for_who_does_and_one_source_has_so_many() {
    let limits = Limits { newcomers_max: 4, newcomers_per_client: 3, ..Limits::default() };
    let entrance = Entrance { is_tls: true, http: true, ..Entrance::default() };
    let world = World::with(entrance, limits).await;
    let connect_from = async |host: u8| {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, host], 0).into()).expect("an address of loopback");
        socket.connect(world.addr).await.expect("it listens")
    };
    let mut of_one = Vec::new();
    for count in 1..=4 {
        of_one.push(connect_from(2).await);
        world.until(|counters| counters.accepted == count).await;
    }
    world.until(|counters| counters.refused == 1 && counters.newcomers == 3).await;
    assert!(is_ended(of_one.last_mut().expect("four")).await);
    let _other = connect_from(3).await;
    world.until(|counters| counters.newcomers == 4).await;
    let stream = connect_from(4).await;
    assert!(ask(&mut world.secure(stream, &["http/1.1"]).await).await.starts_with("HTTP/1.1 200 "));
    assert!(is_ended(&mut of_one[0]).await, "the first of who has most");
    assert_eq!(world.door.counters().made_room, 1);
}

/// Comes to the world from one of loopback's addresses.
async fn connect_from(world: &World, host: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, host], 0).into()).expect("an address of loopback");
    socket.connect(world.addr).await.expect("it listens")
}

#[tokio::test]
async fn idle_connections_behind_a_load_balancer_make_room_for_others_behind_it() {
    let limits = Limits { newcomers_max: 4, newcomers_per_client: 3, time: 3 * LONG, ..Limits::default() };
    let proxied_from = vec!["127.0.0.7/32".parse().expect("a network")];
    let entrance = Entrance { is_tls: true, http: true, proxied_from, ..Entrance::default() };
    let world = World::with(entrance, limits).await;
    let of = async |client: &str| {
        let mut stream = connect_from(&world, 7).await;
        let header = format!("PROXY TCP4 {client} 198.51.100.2 56324 443\r\n");
        stream.write_all(header.as_bytes()).await.expect("written");
        stream
    };
    let mut idle = Vec::new();
    for count in 1..=3 {
        idle.push(of("192.0.2.9").await);
        world.until(|counters| counters.newcomers == count).await;
    }
    // The header of the third may not have been read yet.
    let mut more = of("192.0.2.9").await;
    tokio::select! {
        is_ended = is_ended(&mut more) => assert!(is_ended),
        () = world.until(|counters| counters.refused > 0) => {}
    }
    let _another = of("192.0.2.10").await;
    world.until(|counters| counters.newcomers == 4).await;
    let stream = of("192.0.2.11").await;
    assert!(ask(&mut world.secure(stream, &["http/1.1"]).await).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn who_waits_for_a_place_waits_no_longer_than_he_has() {
    let limits = Limits { time: Duration::from_secs(1), ..Limits::default() };
    let of_http = http::Limits { connections_max: 1, ..http::Limits::default() };
    let networks = vec!["127.0.0.7/32".parse().expect("a network")];
    let proxies = http::Proxies { networks, ..http::Proxies::default() };
    let entrance = Entrance { http: true, ..Entrance::default() };
    let world = World::with_proxies(entrance, limits, of_http, proxies).await;
    // It never makes room.
    let mut proxy = connect_from(&world, 7).await;
    assert!(ask(&mut proxy).await.starts_with("HTTP/1.1 200 "));

    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = connect_from(&world, 2).await;
        client.write_all(GET.as_bytes()).await.expect("written");
        clients.push(client);
    }
    for client in &mut clients {
        assert!(is_ended(client).await);
    }
    world.until(|counters| (counters.late, counters.newcomers) == (10, 0)).await;
    drop(proxy);
    assert!(ask(&mut connect_from(&world, 2).await).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn one_source_begins_so_many_handshakes_and_no_more() {
    let limits = Limits { handshakes_per_client: 1, ..Limits::default() };
    let proxied_from = vec!["127.0.0.7/32".parse().expect("a network")];
    let entrance = Entrance { is_tls: true, http: true, proxied_from, ..Entrance::default() };
    let world = World::with(entrance, limits).await;
    let mut refused = 0;
    while refused == 0 {
        assert!(world.door.counters().accepted < 100, "{:?}", world.door.counters());
        // What it says is not a handshake, and costs one all the same.
        let mut stream = connect_from(&world, 2).await;
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.ok();
        assert!(is_ended(&mut stream).await);
        refused = world.door.counters().handshakes_refused;
    }
    assert!(world.door.counters().handshakes_failed >= 4);
    let stream = connect_from(&world, 3).await;
    assert!(ask(&mut world.secure(stream, &["http/1.1"]).await).await.starts_with("HTTP/1.1 200 "));
    // A load balancer's clients are told apart.
    let mut stream = connect_from(&world, 7).await;
    stream.write_all(b"PROXY TCP4 127.0.0.2 198.51.100.2 56324 443\r\n").await.expect("written");
    assert!(is_ended(&mut stream).await);
    let mut stream = connect_from(&world, 7).await;
    stream.write_all(b"PROXY TCP4 127.0.0.4 198.51.100.2 56324 443\r\n").await.expect("written");
    assert!(ask(&mut world.secure(stream, &["http/1.1"]).await).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn other_certificates_are_for_newcomers_and_who_is_there_stays() {
    let world = World::new().await;
    let mut before = world.secure(world.connect().await, &["http/1.1"]).await;
    ask(&mut before).await;
    let shown = |stream: &TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].clone().into_owned()
    };
    write(world.folder.path());
    world.certificates.look_again();
    let mut after = world.secure(world.connect().await, &["http/1.1"]).await;
    assert!(shown(&before) != shown(&after));
    assert!(ask(&mut before).await.starts_with("HTTP/1.1 200 "));
    assert!(ask(&mut after).await.starts_with("HTTP/1.1 200 "));
}

/// A connection that is none, of a client who wants to bind one of these.
fn turn_client(connection_id: Option<u32>) -> TurnClient {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let here = listener.local_addr().expect("bound");
    let (descriptor, transport) = (listener.into(), ClientTransport::Tcp);
    let connection = Connection { descriptor, client: here, server: here, transport, begun: Begun::default() };
    TurnClient { connection, connection_id }
}

#[test]
fn connections_go_to_each_worker_in_turn_and_a_bind_to_the_one_that_it_names() {
    let (mailboxes, workers): (Vec<_>, Vec<_>) = (0..3).map(|_| mailbox(16).expect("a mailbox")).unzip();
    let plane = Plane::new(Workers::pretended(mailboxes), placement::Settings::default());
    let relay = crate::relay::control(plane, "");
    let add = |connection_id| {
        assert!(relay.add_client(turn_client(connection_id)));
        let got = workers.iter().position(|worker| worker.try_recv().is_some());
        got.expect("one gets it")
    };
    assert_eq!([None; 4].map(add), [0, 1, 2, 0]);
    // Its upper bits say whose it is; none of them has the last.
    assert_eq!([Some(1 << 22), Some(2 << 22 | 7), Some(0), Some(u32::MAX)].map(add), [1, 2, 0, 0]);
}

#[test]
fn a_connection_goes_to_the_next_worker_that_has_room_and_a_bind_to_no_other() {
    let (mailboxes, workers): (Vec<_>, Vec<_>) = (0..2).map(|_| mailbox(2).expect("a mailbox")).unzip();
    let plane = Plane::new(Workers::pretended(mailboxes), placement::Settings::default());
    let relay = crate::relay::control(plane, "");
    let add = |connection_id| relay.add_client(turn_client(connection_id));
    assert!([Some(0); 2].map(add) == [true; 2], "the first is full");
    assert_eq!([None; 3].map(add), [true, true, false]);
    assert!(!add(Some(0)));
    assert!(workers[1].try_recv().is_some());
    assert!(!add(Some(0)), "it belongs to the other");
    assert!(add(None));
}

#[tokio::test]
async fn who_is_there_has_its_answer_when_the_server_ends_and_nobody_else_comes_in() {
    let mut world = World::new().await;
    let mut stream = world.secure(world.connect().await, &["http/1.1"]).await;
    ask(&mut stream).await;
    drop(world.open.take());
    let mut rest = Vec::new();
    let end = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("it is ended");
    assert!(end.is_ok() && rest.is_empty(), "with a close_notify: {end:?}");
    timeout(LONG, world.service.connections.end()).await.expect("nobody is left");
    let refused = async {
        while TcpStream::connect(world.addr).await.is_ok() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, refused).await.expect("nobody listens");
}
