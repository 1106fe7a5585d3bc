//! Connections without sockets, by a clock that is set: those of HTTP/2 above all.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::StatusCode;
use axum::routing::{get, post};
use hyper::body::Frame;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::*;

/// How long an answer takes that is slow.
const SLOW: Duration = Duration::from_secs(10);

const PIECE: usize = 16 * 1024;

/// A body of so many pieces, each of which is there after a while.
struct Pieces {
    left: usize,
    every: Duration,
    next: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl Pieces {
    fn body(left: usize, every: Duration) -> Body {
        Body::new(Pieces { left, every, next: None })
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if !self.every.is_zero() {
            let every = self.every;
            let next = self.next.get_or_insert_with(|| Box::pin(sleep(every)));
            std::task::ready!(next.as_mut().poll(context));
            self.next = None;
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; PIECE])))))
    }
}

struct World {
    connections: Arc<Connections>,
    router: Router,
    is_open: watch::Sender<()>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let router = Router::new()
            .route("/forty", get(async || Pieces::body(40, Duration::ZERO)))
            .route("/large", get(async || vec![7; 40 * PIECE]))
            .route("/rare", get(async || Pieces::body(3, Duration::from_secs(45))))
            .route("/slow", get(async || sleep(SLOW).await))
            .route("/never", get(pending::<()>))
            .route(
                "/read",
                post(async |body: Body| to_bytes(body, PIECE).await.map(drop).map_err(|_| StatusCode::BAD_REQUEST)),
            )
            .route("/ok", get(async || "ok"));
        World { connections: Arc::new(Connections::new(limits)), router, is_open: watch::channel(()).0 }
    }

    /// The other end of a connection of an address.
    fn connect(&self, host: u8) -> DuplexStream {
        let (ours, theirs) = duplex(PIECE);
        let (connections, router, is_open) = (self.connections.clone(), self.router.clone(), self.is_open.subscribe());
        tokio::spawn(async move {
            let remote = [192, 0, 2, host].into();
            let entered = connections.enter(remote, &Proxies::default()).await.expect("there is a place");
            connections.welcome((ours, Version::HTTP_2), remote, router, entered, is_open).await;
        });
        theirs
    }

    /// A client that speaks HTTP/2.
    async fn client(&self, host: u8) -> SendRequest<Body> {
        let stream = TokioIo::new(self.connect(host));
        let mut builder = Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).initial_stream_window_size(PIECE as u32);
        let (sender, connection) = builder.handshake(stream).await.expect("it is spoken here");
        tokio::spawn(connection);
        sender
    }

    async fn until_open(&self, count: u64) {
        while self.connections.counters().open != count {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn ask(client: &SendRequest<Body>, path: &str) -> hyper::Response<Incoming> {
    let request = Request::get(format!("https://localhost{path}")).body(Body::empty()).expect("a request");
    client.clone().send_request(request).await.expect("an answer")
}

/// Reads an answer to its end, or to where it breaks off; a pause before each piece.
async fn read(answer: hyper::Response<Incoming>, pause: Duration) -> usize {
    let (mut body, mut len) = (Body::new(answer.into_body()), 0);
    loop {
        sleep(pause).await;
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        match frame {
            Some(Ok(frame)) => len += frame.into_data().map_or(0, |data| data.len()),
            Some(Err(_)) | None => return len,
        }
    }
}

const TIME: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn an_answer_is_read_to_its_end_however_long_that_takes_while_something_is_read() {
    let world = World::new(Limits { request_timeout: TIME, ..Limits::default() });
    for path in ["/forty", "/large"] {
        let (client, began) = (world.client(1).await, Instant::now());
        let answer = ask(&client, path).await;
        assert_eq!(read(answer, Duration::from_secs(5)).await, 40 * PIECE, "{path}");
        assert!(began.elapsed() > 3 * TIME, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_made_slowly_is_waited_for() {
    let world = World::new(Limits { request_timeout: TIME, ..Limits::default() });
    let client = world.client(1).await;
    let answer = ask(&client, "/rare").await;
    assert_eq!(read(answer, Duration::ZERO).await, 3 * PIECE);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_its_answer_is_idle() {
    let world = World::new(Limits { request_timeout: TIME, ..Limits::default() });
    for path in ["/forty", "/large"] {
        let (client, began) = (world.client(1).await, Instant::now());
        let _answer = ask(&client, path).await;
        world.until_open(0).await;
        assert!((TIME..2 * TIME + Duration::from_secs(1)).contains(&began.elapsed()), "{:?}", began.elapsed());
    }
}

/// A client by HTTP/2 that says hello, and acknowledges nothing.
async fn silent(world: &World, host: u8) -> DuplexStream {
    let mut stream = world.connect(host);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("written");
    stream
}

#[tokio::test(start_paused = true)]
async fn who_is_idle_and_acknowledges_nothing_is_gone_soon() {
    let world = World::new(Limits { request_timeout: TIME, ..Limits::default() });
    let (mut client, began) = (silent(&world, 1).await, Instant::now());
    client.read_to_end(&mut Vec::new()).await.expect("it ends");
    assert!((TIME..TIME + TIME / 2).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_is_on_its_way_out_makes_room_like_others() {
    let age_max = Duration::from_secs(5);
    let limits = Limits { request_timeout: 10 * TIME, age_max, connections_max: 1, ..Limits::default() };
    let world = World::new(limits);
    let client = world.client(1).await;
    let asks = tokio::spawn(async move { ask(&client, "/never").await });
    sleep(2 * age_max).await;

    let (newcomer, began) = (world.client(2).await, Instant::now());
    assert_eq!(ask(&newcomer, "/ok").await.status(), 200);
    assert_eq!((world.connections.counters().open, asks.is_finished()), (2, false), "its request is under way");
    let left = asks.await;
    assert!(left.is_err() && began.elapsed() <= LAST_REQUEST + Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_too_old_is_read_until_its_client_has_closed_it() {
    let world = World::new(Limits { age_max: Duration::from_secs(5), ..Limits::default() });
    let mut stream = silent(&world, 1).await;
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let mut payload = vec![0; usize::from(head[2])];
        stream.read_exact(&mut payload).await.expect("all of it");
        // PING (RFC 9113 §6.7).
        if (head[3], head[4]) == (6, 0) {
            head[4] = 1;
            stream.write_all(&[&head[..], &payload].concat()).await.expect("written");
        }
    }
    // WINDOW_UPDATE: it has read what was on its way.
    stream.write_all(b"\0\0\x04\x08\0\0\0\0\0\0\0\x40\0").await.expect("nothing answers with a reset");
    assert_eq!(world.connections.counters().open, 1);
    drop(stream);
    world.until_open(0).await;
}

/// Sends requests whose bodies do not come; those that are answered all the same, by their status.
async fn send_many(client: &SendRequest<Body>, count: usize, tasks: &mut JoinSet<()>) -> (usize, usize) {
    let (answered, mut statuses) = mpsc::channel(count);
    for _ in 0..count {
        let body = Body::new(Pieces { left: 1, every: TIME * 1_000, next: None });
        let request = Request::post("https://localhost/read").body(body).expect("a request");
        let (mut client, answered) = (client.clone(), answered.clone());
        tasks.spawn(async move {
            if let Ok(answer) = client.send_request(request).await {
                answered.try_send(answer.status()).expect("there is room");
            }
        });
    }
    sleep(Duration::from_secs(1)).await;
    let statuses: Vec<StatusCode> = std::iter::from_fn(|| statuses.try_recv().ok()).collect();
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    (count(StatusCode::TOO_MANY_REQUESTS), count(StatusCode::SERVICE_UNAVAILABLE))
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_their_bodies_have_a_limit_of_each_client() {
    let world = World::new(Limits { connections_per_client: 120, ..Limits::default() });
    let (one, two, mut tasks) = (world.client(1).await, world.client(1).await, JoinSet::new());
    assert_eq!(send_many(&one, 100, &mut tasks).await, (0, 0));
    assert_eq!(send_many(&two, 100, &mut tasks).await, (78, 0), "one of each connection, and 120 beside");
    assert_eq!(world.connections.counters().requests_refused, 78);
    assert_eq!(send_many(&world.client(2).await, 50, &mut tasks).await, (0, 0), "another client");
    tasks.shutdown().await;
    assert_eq!(send_many(&one, 100, &mut tasks).await, (0, 0), "none is counted any more");
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_for_their_bodies_have_a_limit_of_all_and_each_connection_may_have_one() {
    let world = World::new(Limits { connections_max: 50, ..Limits::default() });
    let (one, another, mut tasks) = (world.client(1).await, world.client(2).await, JoinSet::new());
    assert_eq!(send_many(&one, 100, &mut tasks).await, (0, 49));
    assert_eq!(ask(&another, "/ok").await.status(), 200);
    assert_eq!(send_many(&another, 2, &mut tasks).await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_header_list_beyond_all_measure_is_refused() {
    let world = World::new(Limits::default());
    let client = world.client(1).await;
    for (len, status) in [(15, 200), (17, 431), (1, 200)] {
        let request = Request::get("https://localhost/ok").header("x-long", "x".repeat(len * 1_024));
        let answer = client.clone().send_request(request.body(Body::empty()).expect("a request")).await;
        assert_eq!(answer.expect("an answer").status(), status, "{len} KiB");
    }
}

#[tokio::test(start_paused = true)]
async fn no_line_of_a_header_is_sent_by_its_number() {
    let world = World::new(Limits::default());
    let mut stream = silent(&world, 1).await;
    let (mut frame, mut settings) = ([0; 9], [0; 256]);
    stream.read_exact(&mut frame).await.expect("a frame");
    let settings = &mut settings[..usize::from(frame[2])];
    stream.read_exact(settings).await.expect("all of it");
    // SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §6.5.2).
    assert_eq!((frame[3], settings.chunks(6).find(|one| one[..2] == [0, 1])), (4, Some(&[0, 1, 0, 0, 0, 0][..])));
}

#[tokio::test(start_paused = true)]
async fn by_http_2_who_sends_no_more_has_gone() {
    let world = World::new(Limits::default());
    let (mut stream, began) = (silent(&world, 1).await, Instant::now());
    // GET https://h/slow, with no more to come in this stream (RFC 7541 appendix A).
    stream.write_all(b"\0\0\x0c\x01\x05\0\0\0\x01\x82\x87\x04\x05/slow\x01\x01h").await.expect("written");
    stream.shutdown().await.expect("said");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("it ends");
    assert!(began.elapsed() < SLOW, "it has no answer: {:?}", began.elapsed());
}
