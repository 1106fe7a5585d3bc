//! HTTP's connections: how many there are, and how long each may take.
//!
//! In: a listening socket, the router, limits. Out: answers; nothing else depends on who is slow or never ends.
//! Cost: one task per connection, and up to `BUFFER_BYTES_MAX` for what it sends; by HTTP/2 a task and as much for each request,
//! `WINDOW_BYTES` for bodies that nobody has read yet, and some 100 KB while a header is not all there. When all places are taken,
//! a look at each connection per newcomer.
//! Source: RFC 9112 (HTTP/1.1), RFC 9113 (HTTP/2, where it was agreed on in TLS).

mod errand;
mod head;
mod line;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONNECTION;
use axum::response::IntoResponse as _;
use counters::counters;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper::{Request, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use errand::{Errand, Full, Guest, Requests};
pub(super) use errand::{Lasting, Stay};
use line::Line;

use super::Problem;
use super::client::{Doubted, Proxies, Remote};
use crate::accept::{Leave, Place, Places, accept, household};
use crate::guard;

/// What all HTTP connections may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; when there are so many, the one makes room for a newcomer that was idle for longest, of the
    /// client that has most. Of those that have made room some are there still (`LEAVING_MAX`), behind their last answer. Where
    /// all are those of proxies that are believed, newcomers wait in the kernel's backlog.
    pub connections_max: usize,
    /// Connections of one client at a time; further ones are closed. Proxies that are believed may have any number. By HTTP/2
    /// each connection may have one request under way, and so many more in all and of one client; further ones are refused
    /// (503, 429).
    pub connections_per_client: usize,
    /// A request's header, and then its body, must be here within this time. Also how long a connection may be idle, which it
    /// is by HTTP/2 when no request waits for us and nothing of an answer is taken.
    pub request_timeout: Duration,
    /// A client that takes nothing of what it is sent for so long is closed, also where its answer goes on for as long as it likes.
    pub unacknowledged_max: Duration,
    /// A connection that is older is closed behind the request that it has, even when its client reads no answer.
    pub age_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 10_000,
            connections_per_client: 1_000,
            request_timeout: Duration::from_secs(30),
            unacknowledged_max: Duration::from_secs(60),
            age_max: Duration::from_secs(10 * 60),
        }
    }
}

counters! {
    /// HTTP's connections.
    pub struct Counters: "millrace_http_connections" {
        /// HTTP connections now.
        gauge open: u64 = "",
        /// HTTP connections at a time at most.
        gauge max: u64 = "_max",
        /// HTTP connections since the start.
        counter accepted: u64 = "_accepted_total",
        /// HTTP connections that were closed at once, because their client had too many.
        counter refused: u64 = "_refused_total",
        /// HTTP connections that were closed to make room for a newcomer when there were as many as there may be.
        counter made_room: u64 = "_made_room_total",
        /// Requests by HTTP/2 that were refused, because their client, or all together, had too many under way.
        counter requests_refused: u64 = "_requests_refused_total",
        /// HTTP connections that a panic of a library has ended.
        counter panicked: u64 = "_panicked_total",
    }
}

/// Bytes of a request line and its header at most (431 for more).
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The same by HTTP/2.
const HEADER_BYTES_MAX: u32 = 16 * 1024;

/// Bytes of bodies that one connection may send by HTTP/2 before they are read, of one request or of all. A stream of 20 Mbit/s
/// that comes by a path of 100 ms has so many on the way.
const WINDOW_BYTES: u32 = 256 * 1024;

/// Requests of one connection by HTTP/2 at a time; RFC 9113 §6.5.2 wants no fewer.
const STREAMS_MAX: u32 = 100;

/// How long requests that are under way may take when the server ends.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The same when a connection makes room. An offer is answered within 5 s, or refused.
const LAST_REQUEST: Duration = Duration::from_secs(6);

/// The same of a connection that is idle: by HTTP/2 its client acknowledges that there is no more to come.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A place among HTTP's connections.
#[derive(Debug)]
pub struct Entered((Place, oneshot::Receiver<Leave>));

/// The connections that are open.
#[derive(Debug)]
pub struct Connections {
    limits: Limits,
    places: Arc<Places>,
    requests: Arc<Requests>,
    /// Each connection has this too.
    open: Arc<()>,
    refused: AtomicU64,
    panicked: AtomicU64,
    pub(super) doubted: Doubted,
}

impl Connections {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        let places = Places::new(limits.connections_max);
        let requests = Requests::new(limits.connections_max, limits.connections_per_client);
        let (open, refused, panicked) = Default::default();
        Connections { limits, places, requests, open, refused, panicked, doubted: Doubted::default() }
    }

    /// What was set.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Connections that are open.
    pub fn count(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    /// What there is now, and was since the start.
    pub fn counters(&self) -> Counters {
        let open = self.count() as u64;
        let ((accepted, made_room), refused) = (self.places.totals(), self.refused.load(Ordering::Relaxed));
        let (panicked, requests_refused) = (self.panicked.load(Ordering::Relaxed), self.requests.refused());
        let max = self.limits.connections_max as u64;
        Counters { open, max, accepted, refused, made_room, requests_refused, panicked }
    }

    /// Serves `router` until the other end of `closing` is dropped; then accepts no more, and returns when the requests
    /// that are under way have their answers, or have had the time for it.
    pub async fn serve(
        self: &Arc<Self>,
        listener: TcpListener,
        router: Router,
        proxies: &Proxies,
        closing: oneshot::Receiver<()>,
    ) {
        let mut closing = pin!(closing);
        let (open, is_open) = watch::channel(());
        loop {
            let (stream, client) = tokio::select! {
                _ = closing.as_mut() => break,
                accepted = accept(&listener, "HTTP") => accepted,
            };
            let remote = client.ip().to_canonical();
            let Some(network) = self.network(remote, proxies) else { continue };
            self.limit(&stream);
            let entered = tokio::select! {
                _ = closing.as_mut() => break,
                entered = self.places.enter(network) => Entered(entered),
            };
            let (connections, router, is_open) = (self.clone(), router.clone(), is_open.clone());
            tokio::spawn(async move {
                connections.welcome((stream, Version::HTTP_11), remote, router, entered, is_open).await;
            });
        }
        drop((listener, open));
        self.end().await;
    }

    /// By whose network a connection is limited; none is a proxy's. `None`: that has as many as it may have.
    fn network(&self, remote: IpAddr, proxies: &Proxies) -> Option<Option<IpAddr>> {
        let network = (!proxies.has(remote)).then(|| household(remote));
        if network.is_some_and(|network| self.places.count(network) >= self.limits.connections_per_client) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.doubted.reach_limit(remote);
            return None;
        }
        Some(network)
    }

    /// Has the kernel end a connection whose client takes nothing.
    pub(super) fn limit(&self, socket: &TcpStream) {
        let ms = u32::try_from(self.limits.unacknowledged_max.as_millis()).unwrap_or(u32::MAX);
        if let Err(error) = set_tcp_user_timeout(socket, ms) {
            tracing::debug!(%error, "a connection has no limit to what its client does not take");
        }
    }

    /// Waits for a place for a connection that was accepted elsewhere. `None`: its client has as many as it may have.
    pub(super) async fn enter(&self, remote: IpAddr, proxies: &Proxies) -> Option<Entered> {
        Some(Entered(self.places.enter(self.network(remote, proxies)?).await))
    }

    /// Serves a connection that has a place, until it or the other end of `is_open` ends. A panic of a library ends it, and
    /// nobody else's.
    pub(super) async fn welcome<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: &Arc<Self>,
        stream: (S, Version),
        remote: IpAddr,
        router: Router,
        entered: Entered,
        is_open: watch::Receiver<()>,
    ) {
        self.guard(self.converse(stream, remote, router, entered, is_open)).await;
    }

    /// Waits until the requests that are under way have their answers, or have had the time for it. Nobody is accepted any
    /// more, and all that are there know that the server ends.
    pub async fn end(&self) {
        if timeout(LAST_ANSWERS, self.places.wait_until_free(self.limits.connections_max)).await.is_err() {
            tracing::debug!(count = self.counters().open, "connections that do not end");
        }
    }

    async fn guard(&self, work: impl Future) {
        if guard::answering(work).await.is_none() {
            self.panicked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Answers one connection's requests until it ends, is idle for too long, gets too old, has to make room, or the server
    /// ends.
    async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: &Arc<Self>,
        (stream, version): (S, Version),
        remote: IpAddr,
        router: Router,
        Entered((place, told)): Entered,
        is_open: watch::Receiver<()>,
    ) {
        let _counted = self.open.clone();
        let (limits, remote) = (&self.limits, Remote(remote));
        let guest = Guest::new(place, self.requests.clone());
        let (asks, asked) = (guest.clone(), self.clone());
        let answer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(remote);
            request.extensions_mut().insert(Lasting::new(asks.clone()));
            let fault = head::fault(&request);
            let (errand, entered) = Errand::new(asks.clone());
            if entered == Err(Full::OfClient) {
                asked.doubted.reach_limit(remote.0);
            }
            let answering = match (fault, entered) {
                (Some((status, says)), _) => Err(([(CONNECTION, "close")], Problem::new(status, says)).into_response()),
                (None, Err(full)) => Err(Problem::from(full).into_response()),
                (None, Ok(())) => Ok(TowerToHyperService::new(router.clone()).call(request)),
            };
            async move {
                let answer = match answering {
                    Ok(answering) => answering.await?,
                    Err(refused) => refused,
                };
                Ok::<_, Infallible>(answer.map(|body| errand.answer(body)))
            }
        });
        if version == Version::HTTP_2 {
            let mut builder = http2::Builder::new(Guarded(self.clone()));
            builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
            // No line of a header is sent by its number, so a list costs its client what it costs us.
            builder.header_table_size(0);
            builder.max_header_list_size(HEADER_BYTES_MAX).max_send_buf_size(BUFFER_BYTES_MAX);
            builder.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
            let (idle, old) = (guest.is_idle(limits.request_timeout), guest.is_old(limits.age_max));
            let lasts = guest.is_old(Duration::ZERO);
            let line = Line::new(stream);
            let rest = line.other();
            let connection = builder.serve_connection(TokioIo::new(line), answer);
            let connection = (connection, http2::Connection::graceful_shutdown as fn(Pin<&mut _>));
            if self.attend(connection, told, is_open, (idle, pending()), (old, lasts)).await {
                // Of a connection that is closed the kernel throws away what the client has not read as soon as that says
                // something, as it does to make room (RFC 9112 §9.6 has the same of HTTP/1).
                timeout(limits.request_timeout, rest.drain()).await.ok();
            }
            return;
        }
        let mut builder = http1::Builder::new();
        // Who sends no more waits for his answer all the same.
        builder.half_close(true);
        builder.timer(TokioTimer::new()).header_read_timeout(limits.request_timeout).max_buf_size(BUFFER_BYTES_MAX);
        let (line, ages) = (Line::new(stream), (guest.is_old(limits.age_max), guest.is_old(Duration::ZERO)));
        let left = guest.has_left(line.other());
        // What becomes a WebSocket is no connection of HTTP any more.
        let connection = builder.serve_connection(TokioIo::new(line), answer).with_upgrades();
        let connection = (connection, http1::UpgradeableConnection::graceful_shutdown as fn(Pin<&mut _>));
        self.attend(connection, told, is_open, (pending(), left), ages).await;
    }

    /// Until a connection ends, or has to; with it comes what has it end behind its last answer. True when it has ended in order
    /// because the server ends, or as it is too old: all is written, and the client may be reading.
    async fn attend<C: Future<Output = hyper::Result<()>>>(
        &self,
        (connection, shut_down): (C, fn(Pin<&mut C>)),
        told: oneshot::Receiver<Leave>,
        mut is_open: watch::Receiver<()>,
        (idle, left): (impl Future<Output = ()>, impl Future<Output = ()>),
        (old, lasts): (impl Future<Output = ()>, impl Future<Output = ()>),
    ) -> bool {
        let (limits, mut connection, mut told) = (&self.limits, pin!(connection), pin!(told));
        let mut left = pin!(left);
        let (mut leave, mut is_closed, mut is_old) = (None, false, false);
        let time = tokio::select! {
            result = connection.as_mut() => {
                trace(result);
                return false;
            }
            () = left.as_mut() => return false,
            told = told.as_mut() => patience(limits, leave.insert(told)),
            _ = is_open.changed() => {
                is_closed = true;
                limits.request_timeout
            }
            () = idle => limits.request_timeout.min(LAST_WORD),
            () = old => {
                is_old = true;
                limits.request_timeout
            }
        };
        // A request that is under way has its answer, and that leaves to its end.
        shut_down(connection.as_mut());
        // What goes on for as long as it likes does so: the process may be there for its sources alone.
        if is_closed {
            tokio::select! {
                result = connection.as_mut() => return trace(result),
                () = left.as_mut() => return false,
                () = lasts => {}
            }
        }
        let mut end = pin!(sleep(time));
        loop {
            tokio::select! {
                result = connection.as_mut() => return trace(result) && (is_closed || is_old),
                () = left.as_mut() => return false,
                () = end.as_mut() => return false,
                // It is counted among those that leave, and may have less time for it than it had.
                told = told.as_mut(), if leave.is_none() => {
                    let at = Instant::now() + patience(limits, leave.insert(told));
                    let at = at.min(end.deadline());
                    end.as_mut().reset(at);
                }
            }
        }
    }
}

/// How long a connection that is to leave may take.
fn patience(limits: &Limits, told: &Result<Leave, RecvError>) -> Duration {
    match told {
        Ok(Leave { is_hurried: true, .. }) => Duration::ZERO,
        Ok(_) => limits.request_timeout.min(LAST_REQUEST),
        Err(_) => limits.request_timeout,
    }
}

/// For what answers one request of several that a connection has at a time: a panic of a library ends that alone.
#[derive(Clone)]
struct Guarded(Arc<Connections>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Guarded {
    fn execute(&self, work: F) {
        let connections = self.0.clone();
        tokio::spawn(async move { connections.guard(work).await });
    }
}

/// Whether a connection has ended in order.
fn trace(result: hyper::Result<()>) -> bool {
    if let Err(error) = &result {
        tracing::trace!(%error, "an HTTP connection ended early");
    }
    result.is_ok()
}
