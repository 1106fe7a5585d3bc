//! The HTTP server under clients that are slow, many, or never end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use server::auth::Auth;
use server::config;
use server::http::{App, Connections, Limits, serve};
use server::plane::workers::Workers;
use server::plane::{Plane, placement};
use server::rooms::control::RoomsControl;
use server::rooms::directory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::offers;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);
const GET: &str = "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n";
const POST: &str = "POST /whep/none HTTP/1.1\r\nHost: h\r\nContent-Type: application/sdp\r\nContent-Length: 5\r\n\r\n";

#[tokio::test]
async fn who_never_finishes_a_header_is_cut_off_however_busily_it_writes() {
    let server = Server::start(Limits { request_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let (mut reader, mut writer) = server.connect().await.into_split();
    let writes = tokio::spawn(async move {
        writer.write_all(b"GET / HTTP/1.1\r\nX-Slow: ").await?;
        loop {
            writer.write_all(b"x").await?;
            sleep(Duration::from_millis(20)).await;
        }
        #[allow(unreachable_code)]
        Ok::<(), std::io::Error>(())
    });
    read_to_end(&mut reader).await;
    assert!(timeout(LONG, writes).await.expect("the writer is told").expect("no panic").is_err());
    server.wait_for_open(0).await;
}

#[tokio::test]
async fn who_says_nothing_is_cut_off_before_and_between_requests() {
    let server = Server::start(Limits { request_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let mut silent = server.connect().await;
    let mut idle = server.connect().await;
    assert_eq!(ask(&mut idle, GET).await, 200);
    assert_eq!(read_to_end(&mut silent).await, "");
    assert_eq!(read_to_end(&mut idle).await, "");
}

#[tokio::test]
async fn who_says_that_it_sends_no_more_has_its_answer() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(GET.as_bytes()).await.expect("written");
    client.shutdown().await.expect("said");
    let answer = read_to_end(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_with_408() {
    let server = Server::start(Limits { request_timeout: Duration::from_millis(300), ..Limits::default() }).await;
    let mut client = server.connect().await;
    assert_eq!(ask(&mut client, &format!("{POST}off")).await, 408);
    read_to_end(&mut client).await;
}

#[tokio::test]
async fn a_header_beyond_all_measure_ends_the_connection() {
    let server = Server::start(Limits::default()).await;
    let mut client = server.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n").await.expect("written");
    let flood =
        async { while client.write_all(b"X-Long: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n").await.is_ok() {} };
    timeout(LONG, flood).await.expect("the server closes");
    // The answer, 431, is lost where the connection is reset because of what was not read.
    let answer = read_to_end(&mut client).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn a_body_beyond_all_measure_is_refused_whether_its_length_is_said_or_not() {
    let server = Server::start(Limits::default()).await;
    let said = POST.replace("Content-Length: 5", "Content-Length: 99999999999");
    assert_eq!(ask(&mut server.connect().await, &said).await, 413);
    let chunk = format!("11000\r\n{}\r\n", "x".repeat(0x11000));
    let unsaid = POST.replace("Content-Length: 5", "Transfer-Encoding: chunked") + &chunk;
    assert_eq!(ask(&mut server.connect().await, &unsaid).await, 413);
}

#[tokio::test]
async fn a_head_that_two_may_read_in_two_ways_is_refused_and_ends_the_connection() {
    let server = Server::start(Limits::default()).await;
    let chunked = POST.replace("Content-Length: 5", "Transfer-Encoding: chunked");
    for (request, expected) in [
        (GET.replace("Host: h", "Host: h\r\nHost: h"), 400),
        (GET.replace("Host: h", "Host: h\r\nHost: other"), 400),
        (GET.replace("Host: h\r\n", ""), 400),
        (chunked.replace("chunked", "chunked\r\nTransfer-Encoding: chunked") + "0\r\n\r\n", 400),
        (chunked.replace("chunked", "gzip, chunked") + "0\r\n\r\n", 501),
    ] {
        let mut client = server.connect().await;
        assert_eq!(ask(&mut client, &request).await, expected, "{request}");
        assert_eq!(read_to_end(&mut client).await, "", "{request}");
    }
    let mut oldest = server.connect().await;
    assert_eq!(ask(&mut oldest, "GET /healthz HTTP/1.0\r\n\r\n").await, 200);
}

#[tokio::test]
async fn who_has_most_connections_makes_room_by_the_idlest() {
    let server = Server::start(Limits { connections_max: 4, ..Limits::default() }).await;
    let mut lone = server.connect_from(2).await;
    assert_eq!(ask(&mut lone, GET).await, 200);
    let mut many = Vec::new();
    for _ in 0..3 {
        let mut client = server.connect_from(1).await;
        assert_eq!(ask(&mut client, GET).await, 200);
        many.push(client);
    }
    // The first is heard of again, and one has sent no more than the beginning of a request.
    assert_eq!(ask(&mut many[0], GET).await, 200);
    many[1].write_all(&GET.as_bytes()[..20]).await.expect("written");

    let mut newcomer = server.connect_from(3).await;
    assert_eq!(ask(&mut newcomer, GET).await, 200);
    let mut another = server.connect_from(4).await;
    assert_eq!(ask(&mut another, GET).await, 200);
    assert_eq!(read_to_end(&mut many[2]).await, "");
    for client in [&mut lone, &mut many[0], &mut newcomer] {
        assert_eq!(ask(client, GET).await, 200);
    }
    assert!(read_to_end(&mut many[1]).await.is_empty(), "in the time that a request may take");
    let counters = server.service.connections.counters();
    assert_eq!((counters.open, counters.accepted, counters.made_room), (4, 6, 2));
}

#[tokio::test]
async fn requests_that_never_end_keep_no_newcomer_waiting() {
    let server = Server::start(Limits { connections_max: 8, ..Limits::default() }).await;
    let expects = POST.replace("Host", "Expect: 100-continue\r\nHost");
    let mut busy = Vec::new();
    for _ in 0..300 {
        let mut client = server.connect_from(1).await;
        assert_eq!(timeout(LONG / 4, ask(&mut client, &expects)).await, Ok(100), "its body is wanted");
        busy.push(client);
    }
    let mut newcomer = server.connect_from(2).await;
    assert_eq!(ask(&mut newcomer, GET).await, 200);
    let counters = server.service.connections.counters();
    assert_eq!((counters.accepted, counters.made_room), (301, 293));
    assert!(counters.open <= 8 + 256, "{} open", counters.open);
}

#[tokio::test]
async fn a_request_that_is_under_way_has_its_answer_after_its_connection_has_made_room() {
    let server = Server::start(Limits { connections_max: 1, ..Limits::default() }).await;
    let mut busy = server.connect_from(1).await;
    let expects = POST.replace("Host", "Expect: 100-continue\r\nHost");
    assert_eq!(ask(&mut busy, &expects).await, 100, "its body is wanted");

    let mut newcomer = server.connect_from(2).await;
    // The server runs on this thread, so with each of these it had the chance to end the other.
    for _ in 0..100 {
        assert_eq!(ask(&mut newcomer, GET).await, 200);
    }
    assert_eq!(server.service.connections.counters().made_room, 1);
    busy.write_all(b"offer").await.expect("written");
    assert!(read_to_end(&mut busy).await.starts_with("HTTP/1.1 404 "));
}

#[tokio::test]
async fn a_proxys_connections_make_no_room_and_newcomers_wait_until_one_ends() {
    let networks = vec!["127.0.0.0/8".parse().expect("a network")];
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let server = Server::start_with(limits, |app| app.proxies.networks = networks).await;
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    assert_eq!(ask(&mut first, GET).await, 200);
    assert_eq!(ask(&mut second, GET).await, 200);

    let mut third = server.connect().await;
    third.write_all(GET.as_bytes()).await.expect("written to the backlog");
    // The server runs on this thread, so with each of these it had the chance to let the third one in.
    for _ in 0..20 {
        assert_eq!(ask(&mut first, GET).await, 200, "the others go on");
    }
    let counters = server.service.connections.counters();
    assert_eq!((counters.open, counters.accepted), (2, 2));

    drop(second);
    assert_eq!(status(&mut third).await, 200);
    assert_eq!(server.service.connections.counters().accepted, 3);
}

#[tokio::test]
async fn one_address_has_so_many_connections_and_a_proxy_any_number() {
    let limits = Limits { connections_per_client: 2, ..Limits::default() };
    let server = Server::start(limits.clone()).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    assert_eq!((ask(&mut first, GET).await, ask(&mut second, GET).await), (200, 200));
    assert_eq!(read_to_end(&mut server.connect().await).await, "");
    let counters = server.service.connections.counters();
    assert_eq!((counters.open, counters.accepted, counters.refused), (2, 2, 1));
    drop(first);
    server.wait_for_open(1).await;
    assert_eq!(ask(&mut server.connect().await, GET).await, 200);

    let networks = vec!["127.0.0.0/8".parse().expect("a network")];
    let server = Server::start_with(limits, |app| app.proxies.networks = networks).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(server.connect().await);
    }
    for client in &mut clients {
        assert_eq!(ask(client, GET).await, 200);
    }
}

#[tokio::test]
async fn whose_connection_it_is_counts_for_what_it_offers() {
    let server = Server::start(Limits::default()).await;
    let offer = offers::video("sendonly", "VP8", &[]);
    let post = |from: &str| {
        let len = offer.len();
        let head =
            format!("POST /whip/a HTTP/1.1\r\nHost: h\r\nContent-Type: application/sdp\r\nContent-Length: {len}");
        format!("{head}{from}\r\n\r\n{offer}")
    };
    // No client may have offers that wait here, and there is no worker for those who are not known.
    assert_eq!(ask(&mut server.connect().await, &post("")).await, 429);
    assert_eq!(server.service.rooms.counters().too_many_waiting, 1);
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_cut_off_in_the_end() {
    let limits = Limits {
        age_max: Duration::from_millis(300),
        request_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    is_cut_off_who_only_asks(limits).await;
}

/// However long its answer may go on, as a stream's does.
#[tokio::test]
async fn a_client_that_takes_nothing_of_what_it_is_sent_is_cut_off() {
    let limits = Limits {
        unacknowledged_max: Duration::from_millis(300),
        age_max: 10 * LONG,
        request_timeout: 10 * LONG,
        ..Limits::default()
    };
    is_cut_off_who_only_asks(limits).await;
}

/// Asks for more than any socket buffer holds, and reads nothing of it.
async fn is_cut_off_who_only_asks(limits: Limits) {
    let server = Server::start(limits).await;
    let mut client = server.connect().await;
    let requests = "GET /app.js HTTP/1.1\r\nHost: h\r\n\r\n".repeat(1_000);
    let flood = async { while client.write_all(requests.as_bytes()).await.is_ok() {} };
    timeout(LONG, flood).await.expect("the server closes");
    server.wait_for_open(0).await;
}

#[tokio::test]
async fn at_the_end_requests_under_way_are_answered_and_nobody_else_is_let_in() {
    let mut server = Server::start(Limits::default()).await;
    let mut idle = server.connect().await;
    assert_eq!(ask(&mut idle, GET).await, 200);
    let mut busy = server.connect().await;
    busy.write_all(POST.as_bytes()).await.expect("written");
    busy.write_all(b"of").await.expect("written");
    server.wait_for_open(2).await;

    drop(server.open.take());
    assert_eq!(read_to_end(&mut idle).await, "");
    busy.write_all(b"fer").await.expect("written");
    let answer = read_to_end(&mut busy).await;
    assert!(
        answer.starts_with("HTTP/1.1 404 ") && answer.to_ascii_lowercase().contains("connection: close"),
        "{answer}"
    );
    timeout(LONG, &mut server.task).await.expect("it ends").expect("no panic");
    assert!(TcpStream::connect(server.addr).await.is_err());
}

#[tokio::test]
async fn the_end_does_not_wait_for_who_never_ends() {
    let mut server = Server::start(Limits::default()).await;
    let mut busy = server.connect().await;
    busy.write_all(POST.as_bytes()).await.expect("written");
    server.wait_for_open(1).await;
    drop(server.open.take());
    timeout(LONG, &mut server.task).await.expect("it ends").expect("no panic");
}

struct Server {
    service: Arc<App>,
    addr: SocketAddr,
    open: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Server {
    /// A server without workers: all that is asked here is answered before one is needed.
    async fn start(limits: Limits) -> Self {
        Server::start_with(limits, |_| {}).await
    }

    async fn start_with(limits: Limits, change: impl FnOnce(&mut App)) -> Self {
        let plane = Plane::new(Workers::pretended(Vec::new()), placement::Settings::default());
        let settings =
            directory::Settings { reconnect_grace: Duration::ZERO, waiting_per_client: 0, ..Default::default() };
        let rooms = Arc::new(RoomsControl::new(plane, Vec::new(), settings));
        let auth = Auth::new(&config::Auth { dev: true, ..config::Auth::default() }).expect("no key needed");
        let mut service = App { connections: Arc::new(Connections::new(limits)), ..App::new(rooms, auth) };
        change(&mut service);
        let service = Arc::new(service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let (open, closing) = oneshot::channel();
        let task = tokio::spawn(serve(service.clone(), listener, closing));
        Server { service, addr, open: Some(open), task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.expect("it listens")
    }

    /// From an address of its own.
    async fn connect_from(&self, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, host], 0).into()).expect("an address of loopback");
        socket.connect(self.addr).await.expect("it listens")
    }

    async fn wait_for_open(&self, count: u64) {
        let arrive = async {
            while self.service.connections.counters().open != count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, arrive).await.unwrap_or_else(|_| panic!("{} open", self.service.connections.counters().open));
    }
}

/// Sends a request and returns the answer's status.
async fn ask(client: &mut TcpStream, request: &str) -> u16 {
    client.write_all(request.as_bytes()).await.expect("written");
    status(client).await
}

/// Reads an answer, whole, and returns its status.
async fn status(client: &mut TcpStream) -> u16 {
    let read = async {
        let mut answer = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().expect("a number"))
                });
                if body.len() >= length.unwrap_or(0) {
                    return head[9..12].parse().expect("a status");
                }
            }
            assert!(client.read_buf(&mut answer).await.expect("readable") > 0, "{answer:?}");
        }
    };
    timeout(LONG, read).await.expect("an answer")
}

/// Reads until the server closes; a reset is an end, too.
async fn read_to_end(client: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut answer = Vec::new();
    let _ = timeout(LONG, client.read_to_end(&mut answer)).await.expect("the server closes");
    String::from_utf8(answer).expect("text")
}
