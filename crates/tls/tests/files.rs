//! Files over TLS, from an engine's worker to a client of rustls that knows nothing of it: sealed by the kernel where that
//! has TLS, and by the worker else. `MILLRACE_TEST_KTLS`: the kernel has to have all of it, as in tests/ktls/machine.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use engine::sys::KernelTls;
use engine::{CountersSnapshot, Service, Worker, WorkerConfig};
use rustix::fs::{MemfdFlags, memfd_create};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned, SupportedCipherSuite};
use tls::{Established, Handshake};
use wire::{Adopted, Begun, LinkEvent, LinkId, LinkRequest, Outbox, Product, StreamOptions, Token};

/// How long anything may take; the machine may be an emulated one.
const PATIENCE: Duration = Duration::from_secs(120);

/// Far more than what the kernel has room for.
const CONTENT_BYTES: usize = 1_500_001;

/// What is sent before the client is asked whether it goes on.
const HALF_BYTES: usize = CONTENT_BYTES / 2;

const HEAD: &[u8] = b"a head that must not be torn\n";

/// Lengths of pieces: within a page, within a record, of many.
const PIECES_BYTES: [usize; 5] = [1, 4_095, 16_384, 70_001, 300_000];

/// Sends a head and a file to whom it adopts: half of it when something comes, the rest when something comes again; then it
/// closes.
struct Server {
    file: Arc<File>,
    link: Option<LinkId>,
    has_head: bool,
    position: usize,
    end: usize,
    piece: usize,
    is_blocked: bool,
    is_closed: bool,
}

impl Service for Server {
    type Message = (OwnedFd, Begun);

    fn handle_message(&mut self, _now: Instant, (descriptor, begun): (OwnedFd, Begun), out: &mut Outbox) {
        let options = StreamOptions { send_buffer_bytes: Some(100_000), ..StreamOptions::default() };
        let kind = Adopted::Begun(options, begun);
        out.request(LinkRequest::Adopt { token: Token::default(), descriptor, kind }).expect("there is room");
    }
}

impl Product for Server {
    fn handle_link(&mut self, _now: Instant, _token: Token, event: LinkEvent<'_>, _out: &mut Outbox) {
        match event {
            LinkEvent::Opened { link, .. } => self.link = Some(link),
            LinkEvent::Bytes { .. } => self.end = if self.end == 0 { HALF_BYTES } else { CONTENT_BYTES },
            LinkEvent::Unsent { bytes, .. } => (self.position, self.is_blocked) = (self.position - bytes, true),
            LinkEvent::Writable { .. } => self.is_blocked = false,
            LinkEvent::Closed { .. } => self.link = None,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut Outbox) -> bool {
        let Some(link) = self.link.filter(|_| !self.is_blocked && !self.is_closed && self.end > 0) else {
            return false;
        };
        if self.position == CONTENT_BYTES {
            self.is_closed = true;
            out.request(LinkRequest::Close { link }).expect("there is room");
            return false;
        }
        if !std::mem::replace(&mut self.has_head, true) {
            assert!(out.push_bytes(link, HEAD));
        }
        let len = PIECES_BYTES[self.piece % PIECES_BYTES.len()].min(self.end - self.position);
        if len == 0 {
            return false;
        }
        assert!(out.push_file(link, &self.file, self.position as u64, len));
        (self.position, self.piece) = (self.position + len, self.piece + 1);
        true
    }
}

fn content() -> Vec<u8> {
    (0..CONTENT_BYTES as u32).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

type Client = StreamOwned<ClientConnection, TcpStream>;

/// How a client asks for one half.
type Ask = fn(&mut Client);

fn plainly(client: &mut Client) {
    client.write_all(b"the next half").expect("sent");
}

fn with_a_new_key(client: &mut Client) {
    client.conn.refresh_traffic_keys().expect("it is TLS 1.3");
    plainly(client);
}

fn for_the_last_time(client: &mut Client) {
    plainly(client);
    client.conn.send_close_notify();
    client.conn.complete_io(&mut client.sock).expect("sent");
    client.sock.shutdown(Shutdown::Write).expect("connected");
}

/// Serves a client who has just that suite. Returns what he got, who was told that this was all, and what was counted.
fn serve(suite: SupportedCipherSuite, [first, then]: [Ask; 2]) -> (Vec<u8>, CountersSnapshot) {
    let (server, client) = configs(suite);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let accepted = listener.accept().expect("it connects").0;
    let greeting = thread::spawn(move || shake_hands(accepted, server));
    let name = "localhost".try_into().expect("a name");
    let mut client = Client::new(ClientConnection::new(client, name).expect("a client"), socket);
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock).expect("a handshake");
    }
    let adopted = greeting.join().expect("a handshake");

    let file = File::from(memfd_create("content", MemfdFlags::CLOEXEC).expect("memory"));
    file.write_all_at(&content(), 0).expect("memory");
    let server = Server {
        file: Arc::new(file),
        link: None,
        has_head: false,
        position: 0,
        end: 0,
        piece: 0,
        is_blocked: false,
        is_closed: false,
    };
    let worker = Worker::bind(WorkerConfig::default()).expect("epoll").run(|| server).expect("a thread");
    worker.mailbox().send(adopted).expect("there is room");
    first(&mut client);
    let mut got = vec![0; HEAD.len() + HALF_BYTES];
    client.read_exact(&mut got).expect("one half");
    then(&mut client);
    // It would be an error if nobody had said that this was all.
    client.read_to_end(&mut got).expect("the rest, and that this was all");
    drop(client);
    let start = Instant::now();
    while worker.counters().tcp_links > 0 {
        assert!(start.elapsed() < PATIENCE, "the link ends");
        thread::sleep(Duration::from_millis(1));
    }
    let counts = worker.counters();
    worker.stop().expect("a clean end");
    (got, counts)
}

fn configs(suite: SupportedCipherSuite) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let provider = Arc::new(CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() });
    let versions = [if suite.tls13().is_some() { &TLS13 } else { &TLS12 }];
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let certificate = made.cert.der().clone();
    let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions);
    let mut server = server
        .expect("a suite")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("its key");
    server.enable_secret_extraction = true;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions);
    let client = client.expect("a suite").with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// What stands before a worker adopts a connection.
fn shake_hands(mut socket: TcpStream, config: Arc<ServerConfig>) -> (OwnedFd, Begun) {
    let mut handshake = Handshake::new(config).expect("a server");
    let mut came = vec![0; 4_096];
    loop {
        let count = socket.read(&mut came).expect("a handshake");
        let mut answer = Vec::new();
        let is_done = handshake.handle(&came[..count], &mut answer).expect("a handshake");
        socket.write_all(&answer).expect("sent");
        if is_done {
            break;
        }
    }
    let Established { records, received, sealed, .. } = handshake.finish().expect("it is over");
    let (received, cipher, sealed) = (received.into(), Some(Box::new(records) as _), sealed.into());
    (socket.into(), Begun { remote: None, received, cipher, sealed })
}

fn suites() -> impl Iterator<Item = SupportedCipherSuite> {
    aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().filter(|suite| {
        // Those whose key is what the certificate has.
        suite.tls13().is_some() || format!("{suite:?}").contains("ECDHE_ECDSA")
    })
}

/// What the kernel does. Where it has to do all, less is an error.
fn kernel() -> KernelTls {
    let found = KernelTls::found();
    println!("kernel: {}", found.as_ref().map_or_else(|error| format!("no TLS: {error}"), ToString::to_string));
    if std::env::var_os("MILLRACE_TEST_KTLS").is_some() {
        let found = found.expect("the kernel has TLS").to_string();
        let all = "AES-128-GCM, AES-256-GCM, ChaCha20-Poly1305";
        assert!(found.starts_with(&format!("TLS 1.2 with {all}; TLS 1.3 with {all}; ")), "{found}");
    }
    found.unwrap_or(KernelTls::NONE)
}

/// The counter says who sealed.
fn assert_sealed_by(kernel: KernelTls, counts: &CountersSnapshot, suite: SupportedCipherSuite) {
    // This kernel has all or nothing.
    let expected = if kernel == KernelTls::NONE { (0, 1) } else { (1, 0) };
    assert_eq!((counts.tls_files_by_kernel, counts.tls_files_by_worker), expected, "{suite:?}");
}

fn all() -> Vec<u8> {
    [HEAD, &content()].concat()
}

#[test]
fn a_file_arrives_as_it_is_with_every_suite_and_its_end_is_told() {
    let kernel = kernel();
    for suite in suites() {
        let (got, counts) = serve(suite, [plainly, plainly]);
        assert!(got == all(), "{suite:?}: {} bytes", got.len());
        assert_sealed_by(kernel, &counts, suite);
        println!("{suite:?}: {} bytes are as they were, and the end was told", got.len());
    }
}

#[test]
fn who_wants_a_new_key_before_the_first_file_has_it() {
    let kernel = kernel();
    for suite in suites().filter(|suite| suite.tls13().is_some()) {
        let (got, counts) = serve(suite, [with_a_new_key, plainly]);
        assert!(got == all(), "{suite:?}: {} bytes", got.len());
        assert_sealed_by(kernel, &counts, suite);
    }
}

#[test]
fn who_wants_a_new_key_later_has_it_or_the_connection_ends_in_order() {
    let kernel = kernel();
    for suite in suites().filter(|suite| suite.tls13().is_some()) {
        let (got, counts) = serve(suite, [plainly, with_a_new_key]);
        let goes_on = kernel == KernelTls::NONE || kernel.takes_keys();
        let expected = HEAD.len() + if goes_on { CONTENT_BYTES } else { HALF_BYTES };
        assert!(got == all()[..expected], "{suite:?}: {} of {expected} bytes", got.len());
        assert_sealed_by(kernel, &counts, suite);
    }
}

#[test]
fn who_says_nothing_more_gets_the_rest() {
    let kernel = kernel();
    for suite in suites() {
        let (got, counts) = serve(suite, [plainly, for_the_last_time]);
        assert!(got == all(), "{suite:?}: {} bytes", got.len());
        assert_sealed_by(kernel, &counts, suite);
    }
}
