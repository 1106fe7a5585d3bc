//! One acceptor for every TCP listener of the binary: who is there, what he wants to speak, and who speaks it with him.
//!
//! In: listening sockets, each an `Entrance` that says what is spoken there. Out: HTTP's connections are answered here; those
//! of TURN go to a worker, with what was read of them, and the cipher that they are under. So do those whose first request is
//! for a reflected stream.
//! Newcomers have so long to show what they want; there is room for so many of them, of all and of each source, and when
//! there is none, one of those who take most of it goes. Before that nothing costs more than a handshake.
//! Cost: a task per newcomer, and some 20 KB while a handshake goes on.

mod greeting;
mod push;
mod secured;
mod viewer;
mod wish;

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use counters::counters;
use ipnet::IpNet;
use relay::limits::Table;
use relay::spec::{ClientTransport, Connection};
use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};
use wire::{Begun, Rate};

use crate::accept::{Leave, Place, Places, accept, household};
use crate::guard;
use crate::http::Site;
use crate::tls::Certificates;
use greeting::{Arrival, Greeting, Trouble};
use wish::Wish;

/// A listener, and what is spoken there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entrance {
    /// The setting that wants it, for errors.
    pub setting: &'static str,
    /// Under TLS.
    pub is_tls: bool,
    /// HTTP is spoken.
    pub http: bool,
    /// HTTP/2 is, too, for who agrees on it in the handshake.
    pub http2: bool,
    /// TURN is spoken.
    pub turn: bool,
    /// Load balancers: each connection from there begins with a PROXY header, and none from elsewhere does.
    pub proxied_from: Vec<IpNet>,
}

impl Entrance {
    /// Puts what several products want of one address together.
    ///
    /// # Errors
    /// When they do not agree on TLS.
    pub fn merge(
        wanted: impl IntoIterator<Item = (SocketAddr, Entrance)>,
    ) -> anyhow::Result<Vec<(SocketAddr, Entrance)>> {
        let mut merged: Vec<(SocketAddr, Entrance)> = Vec::new();
        for (addr, other) in wanted {
            // Each that has port 0 gets one of its own.
            let same = merged.iter_mut().find(|(taken, _)| *taken == addr && addr.port() != 0);
            let Some((_, entrance)) = same else {
                merged.push((addr, other));
                continue;
            };
            let (one, another) = (entrance.setting, other.setting);
            ensure!(entrance.is_tls == other.is_tls, "{one}, {another}: {addr} is to be with TLS and without");
            entrance.http |= other.http;
            entrance.http2 |= other.http2;
            entrance.turn |= other.turn;
            entrance.proxied_from.extend(other.proxied_from);
        }
        Ok(merged)
    }

    /// Names of what is spoken (ALPN), most wanted first.
    fn protocols(&self) -> Vec<&'static str> {
        let turn = self.turn.then_some([wish::ALPN_TURN, wish::ALPN_DISCOVERY]).into_iter().flatten();
        let second = (self.http && self.http2).then_some(wish::ALPN_HTTP2);
        turn.chain(second).chain(self.http.then_some(wish::ALPN_HTTP)).collect()
    }
}

/// A connection of TURN.
#[derive(Debug)]
pub struct TurnClient {
    /// What a worker's relay needs of it.
    pub connection: Connection,
    /// The first thing that it asks for is ConnectionBind with this id (RFC 6062 §4.4): it belongs where that connection
    /// is, and anywhere else it is refused.
    pub connection_id: Option<u32>,
}

/// What newcomers may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Within this a newcomer has to have shown what he wants: load balancer's header, handshake, first words.
    pub time: Duration,
    /// Newcomers at a time; beyond that one makes room, of the source that has most.
    pub newcomers_max: usize,
    /// The same of one source; further ones are closed.
    pub newcomers_per_client: usize,
    /// TLS handshakes of one source in a second in the long run, and four times as many at once.
    pub handshakes_per_client: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            time: Duration::from_secs(10),
            newcomers_max: 1_000,
            newcomers_per_client: 100,
            handshakes_per_client: 50,
        }
    }
}

/// Handshakes of a source at once are those of so many seconds: many come from behind one address after a restart.
const BURST_SECONDS: u32 = 4;

counters! {
    /// TCP connections until it is known what they want.
    pub struct Counters: "millrace_door_" {
        /// TCP connections of which it is not known yet what they want.
        gauge newcomers: u64 = "newcomers",
        /// TCP connections accepted.
        counter accepted: u64 = "accepted_total",
        /// TCP connections closed at once, because their source had too many newcomers.
        counter refused: u64 = "refused_total",
        /// TCP connections closed to make room for a newcomer before it was known what they wanted.
        counter made_room: u64 = "made_room_total",
        /// TCP connections closed because they did not show in time what they wanted.
        counter late: u64 = "late_total",
        /// TLS handshakes that came to their end.
        counter handshakes: u64 = "tls_handshakes_total",
        /// TLS handshakes that failed.
        counter handshakes_failed: u64 = "tls_handshakes_failed_total",
        /// TCP connections closed before their TLS handshake, because their source begins too many in a second.
        counter handshakes_refused: u64 = "tls_handshakes_refused_total",
        /// TLS connections of directories that came to see whether a name is ours (ACME).
        counter challenges: u64 = "acme_challenges_total",
        /// TCP connections of load balancers without a PROXY header, or with none that can be read.
        counter proxy_errors: u64 = "proxy_errors_total",
        /// TCP connections that began with something that is not spoken there, or ended before.
        counter unclear: u64 = "unclear_total",
        /// TCP connections that are HTTP's.
        counter http: u64 = "http_total",
        /// TCP connections of HTTP that a worker has, as they began with a request for a reflected stream.
        counter viewers: u64 = "viewers_total",
        /// TCP connections that are TURN's.
        counter turn: u64 = "turn_total",
        /// TCP connections of TURN closed because they came faster than they could be handed over.
        counter turn_refused: u64 = "turn_refused_total",
    }
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU64,
    refused: AtomicU64,
    late: AtomicU64,
    handshakes: AtomicU64,
    handshakes_failed: AtomicU64,
    handshakes_refused: AtomicU64,
    challenges: AtomicU64,
    proxy_errors: AtomicU64,
    unclear: AtomicU64,
    http: AtomicU64,
    viewers: AtomicU64,
    turn: AtomicU64,
    turn_refused: AtomicU64,
}

/// Whoever is accepted comes through here.
#[derive(Debug)]
pub struct Door {
    limits: Limits,
    places: Arc<Places>,
    /// By sources.
    handshakes: Mutex<Table>,
    counts: Counts,
    /// Each newcomer has this too.
    newcomers: Arc<()>,
    /// Those who had said nothing when it was closed, and where they came in.
    silent: Mutex<Vec<(&'static str, TcpStream)>>,
}

/// Who speaks with those that have said what they want.
#[derive(Clone)]
pub struct Hosts {
    /// HTTP.
    pub site: Site,
    /// TURN, where it is spoken. When this is full the connection is closed.
    pub turn: Option<mpsc::Sender<TurnClient>>,
}

/// A listener that is open.
pub struct Opened {
    entrance: Entrance,
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    /// Who was accepted before, and has said nothing.
    silent: Vec<TcpStream>,
}

impl Opened {
    /// Binds an address.
    ///
    /// # Errors
    /// When it cannot be bound, or wants certificates and there are none.
    pub fn bind(
        addr: SocketAddr,
        entrance: Entrance,
        certificates: Option<&Arc<Certificates>>,
    ) -> anyhow::Result<Self> {
        // Of TURN's addresses, which are a list, an IPv6 one takes IPv6 alone, as by UDP; HTTP has just one, for both.
        let listener = listener(addr, entrance.turn).with_context(|| format!("{} {addr}", entrance.setting))?;
        Opened::with(listener, entrance, certificates)
    }

    /// The same with a listener that is there.
    ///
    /// # Errors
    /// When it wants certificates and there are none.
    pub(crate) fn with(
        listener: TcpListener,
        entrance: Entrance,
        certificates: Option<&Arc<Certificates>>,
    ) -> anyhow::Result<Self> {
        let tls = match (entrance.is_tls, certificates) {
            (false, _) => None,
            (true, Some(certificates)) => Some(certificates.config(&entrance.protocols())?),
            (true, None) => anyhow::bail!("{} needs certificates", entrance.setting),
        };
        Ok(Opened { entrance, listener, tls, silent: Vec::new() })
    }

    /// The setting that wants it.
    pub fn setting(&self) -> &'static str {
        self.entrance.setting
    }

    /// Whether TURN is spoken there, under TLS or without.
    pub fn speaks_turn(&self, is_tls: bool) -> bool {
        self.entrance.turn && self.entrance.is_tls == is_tls
    }

    /// Who was accepted before, and has said nothing, comes first.
    pub(crate) fn add_silent(&mut self, stream: TcpStream) {
        self.silent.push(stream);
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Door {
    /// Nobody is there yet.
    pub fn new(limits: Limits) -> Arc<Self> {
        let places = Places::new(limits.newcomers_max);
        let per_client = u32::from(limits.handshakes_per_client);
        let interval = Duration::from_secs(1) / per_client.max(1);
        let rate = Rate { burst: per_client * BURST_SECONDS, interval };
        let handshakes = Mutex::new(Table::new(Instant::now().into_std(), rate, RandomState::new().hash_one(())));
        Arc::new(Door {
            limits,
            places,
            handshakes,
            counts: Counts::default(),
            newcomers: Arc::default(),
            silent: Mutex::default(),
        })
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { accepted, refused, late, handshakes, handshakes_failed, .. } = &self.counts;
        let Counts { handshakes_refused, challenges, proxy_errors, unclear, http, viewers, turn, turn_refused, .. } =
            &self.counts;
        Counters {
            newcomers: Arc::strong_count(&self.newcomers) as u64 - 1,
            accepted: read(accepted),
            refused: read(refused),
            made_room: self.places.totals().1,
            late: read(late),
            handshakes: read(handshakes),
            handshakes_failed: read(handshakes_failed),
            handshakes_refused: read(handshakes_refused),
            challenges: read(challenges),
            proxy_errors: read(proxy_errors),
            unclear: read(unclear),
            http: read(http),
            viewers: read(viewers),
            turn: read(turn),
            turn_refused: read(turn_refused),
        }
    }

    /// A connection of TURN was passed on, and nobody had room for it.
    pub fn count_refused(&self) {
        count(&self.counts.turn_refused);
    }

    /// Lets in who comes to a listener, until the other end of `is_open` is dropped.
    pub async fn serve(self: Arc<Self>, opened: Opened, hosts: Hosts, mut is_open: watch::Receiver<()>) {
        let Opened { entrance, listener, tls, mut silent } = opened;
        let entrance = Arc::new(entrance);
        loop {
            let accepted = silent.pop().map(|stream| (stream.peer_addr(), stream));
            let (stream, remote) = match accepted {
                Some((Ok(remote), stream)) => (stream, remote),
                Some((Err(_), _)) => continue,
                None => tokio::select! {
                    biased;
                    _ = is_open.changed() => return,
                    accepted = accept(&listener, "TCP") => accepted,
                },
            };
            count(&self.counts.accepted);
            let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
            // Who stands for others has as many as these have.
            let is_proxy = has(&entrance.proxied_from, remote) || (entrance.http && hosts.site.believes(remote.ip()));
            let network = (!is_proxy).then(|| household(remote.ip()));
            if network.is_some_and(|network| self.places.count(network) >= self.limits.newcomers_per_client) {
                count(&self.counts.refused);
                continue;
            }
            let entered = tokio::select! {
                biased;
                _ = is_open.changed() => return self.put_aside(&entrance, stream),
                entered = self.places.enter(network) => entered,
            };
            let greeting = Greeting::new(stream, remote, entrance.clone(), tls.clone());
            let (door, hosts, is_open) = (self.clone(), hosts.clone(), is_open.clone());
            let guest = (entered, self.newcomers.clone());
            let conversation = async move { door.converse(greeting, network, guest, hosts, is_open).await };
            debug_assert!(size_of_val(&conversation) <= NEWCOMER_BYTES, "{}", size_of_val(&conversation));
            // A panic of a library ends the connection alone.
            tokio::spawn(guard::answering(conversation));
        }
    }

    /// Who has been accepted by a door that is closed, and has said nothing.
    pub(crate) fn take_silent(&self) -> Vec<(&'static str, TcpStream)> {
        std::mem::take(&mut *self.silent.lock().expect("nobody panics under this lock"))
    }

    fn put_aside(&self, entrance: &Entrance, stream: TcpStream) {
        self.silent.lock().expect("nobody panics under this lock").push((entrance.setting, stream));
    }

    /// Finds out what a newcomer wants, and passes him on. Who has said nothing when the door is closed is put aside.
    async fn converse(
        &self,
        greeting: Greeting,
        network: Option<IpAddr>,
        ((mut place, mut ended), newcomer): ((Place, oneshot::Receiver<Leave>), Arc<()>),
        hosts: Hosts,
        mut is_open: watch::Receiver<()>,
    ) {
        let (until, remote) = (Instant::now() + self.limits.time, greeting.remote());
        let has_spoken = tokio::select! {
            biased;
            spoken = timeout_at(until, greeting.hear()) => spoken.is_ok(),
            _ = &mut ended => return,
            _ = is_open.changed() => {
                let (entrance, stream) = greeting.into_parts();
                return self.put_aside(&entrance, stream);
            }
        };
        if !has_spoken {
            return count(&self.counts.late);
        }
        let greeted = tokio::select! {
            greeted = timeout_at(until, self.greet(greeting, network, &mut place)) => greeted,
            _ = &mut ended => return,
        };
        match greeted {
            Ok(Ok(arrival)) => {
                let gone = async {
                    if timeout_at(until, ended).await.is_err() {
                        count(&self.counts.late);
                    }
                };
                self.hand_over(arrival, &hosts, is_open, (place, newcomer), gone).await;
            }
            Ok(Err(trouble)) => self.note(&trouble, remote),
            Err(_) => count(&self.counts.late),
        }
    }

    /// Finds out what a newcomer wants. `network` is its source, where it is known whose the connection is.
    async fn greet(&self, greeting: Greeting, network: Option<IpAddr>, place: &mut Place) -> Result<Arrival, Trouble> {
        let is_tls = greeting.is_tls();
        let met = greeting.meet(|told| self.admit(told, network, is_tls, place)).await;
        let has_none = |trouble: &Trouble| {
            matches!(trouble, Trouble::Proxy | Trouble::Crowded | Trouble::TooOften | Trouble::Handshake(_))
        };
        if is_tls && !met.as_ref().is_err_and(has_none) {
            count(&self.counts.handshakes);
        }
        met
    }

    /// Whether the source of a newcomer, which a load balancer may have told, leaves others their part.
    fn admit(
        &self,
        told: Option<IpAddr>,
        network: Option<IpAddr>,
        is_tls: bool,
        place: &mut Place,
    ) -> Result<(), Trouble> {
        let told = told.map(household);
        if let Some(told) = told {
            if self.places.count(told) >= self.limits.newcomers_per_client {
                return Err(Trouble::Crowded);
            }
            place.belongs_to(told);
        }
        let Some(source) = told.or(network).filter(|_| is_tls) else { return Ok(()) };
        let mut handshakes = self.handshakes.lock().expect("nobody panics under this lock");
        if handshakes.take(Instant::now().into_std(), source) { Ok(()) } else { Err(Trouble::TooOften) }
    }

    fn note(&self, trouble: &Trouble, remote: SocketAddr) {
        tracing::debug!(%trouble, %remote, "a newcomer is sent away");
        count(match trouble {
            Trouble::Proxy => &self.counts.proxy_errors,
            Trouble::Crowded => &self.counts.refused,
            Trouble::TooOften => &self.counts.handshakes_refused,
            Trouble::Handshake(_) => &self.counts.handshakes_failed,
            Trouble::Challenge => &self.counts.challenges,
            Trouble::Unclear | Trouble::Broken(_) => &self.counts.unclear,
        });
    }

    /// Passes a connection on; `guest` is what it had here, until `gone` at most.
    async fn hand_over<T>(
        &self,
        arrival: Arrival,
        hosts: &Hosts,
        is_open: watch::Receiver<()>,
        guest: T,
        gone: impl Future<Output = ()>,
    ) {
        match (arrival.wish, &hosts.turn) {
            (Wish::Http(version), _) => {
                count(&self.counts.http);
                let mut gone = pin!(gone);
                let shown = tokio::select! {
                    shown = viewer::show_in(arrival, version, &hosts.site) => shown,
                    () = gone.as_mut() => return,
                };
                let Some(arrival) = shown else { return count(&self.counts.viewers) };
                let client = arrival.client.ip().to_canonical();
                hosts.site.limit(&arrival.stream);
                let stream = arrival.into_stream();
                // It has a place there before it gives up the one that it has here.
                let entered = tokio::select! {
                    entered = hosts.site.enter(client) => entered,
                    () = gone => None,
                };
                drop(guest);
                if let Some(entered) = entered {
                    // Most newcomers go elsewhere, and need no room for it.
                    Box::pin(hosts.site.welcome((stream, version), client, entered, is_open)).await;
                }
            }
            (Wish::Turn { connection_id }, Some(turn)) => {
                let sent = turn_client(arrival, connection_id).map(|client| turn.try_send(client));
                count(if matches!(sent, Ok(Ok(()))) { &self.counts.turn } else { &self.counts.turn_refused });
            }
            (Wish::Turn { .. }, None) => count(&self.counts.turn_refused),
        }
    }
}

/// What a worker needs of a connection of TURN.
fn turn_client(arrival: Arrival, connection_id: Option<u32>) -> io::Result<TurnClient> {
    let Arrival { stream, client, server, begun, .. } = arrival;
    let transport = if begun.cipher.is_some() { ClientTransport::Tls } else { ClientTransport::Tcp };
    let descriptor = OwnedFd::from(stream.into_std()?);
    let begun = Begun { remote: Some(client), ..begun };
    Ok(TurnClient { connection: Connection { descriptor, client, server, transport, begun }, connection_id })
}

/// What a newcomer takes before it is known what he wants, without his socket and what he said.
const NEWCOMER_BYTES: usize = 4 * 1_024;

/// A listening socket, with room for a crowd that comes at once: from a mobile network, after a restart.
pub(crate) fn listener(addr: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a process before this one may still be closing.
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Connections that wait to be accepted, by one address. The system mostly has a smaller limit (net.core.somaxconn): 4,096.
const BACKLOG: i32 = 16_384;

fn has(networks: &[IpNet], addr: SocketAddr) -> bool {
    networks.iter().any(|network| network.contains(&addr.ip()))
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[tokio::test]
    async fn there_is_room_for_a_crowd_that_comes_at_once() {
        for turn in [false, true] {
            let entrance = Entrance { setting: "http.listen", turn, http: !turn, ..Entrance::default() };
            let opened = Opened::bind(([127, 0, 0, 1], 0).into(), entrance, None).expect("loopback");
            let addr = opened.local_addr().expect("bound");
            let came = (0..300).map(|_| std::net::TcpStream::connect_timeout(&addr, Duration::from_secs(1)));
            assert!(came.collect::<io::Result<Vec<_>>>().is_ok(), "nobody accepts them");
        }
    }

    #[tokio::test]
    async fn at_an_ipv6_address_turn_leaves_ipv4_to_another() {
        let addr = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        for turn in [false, true] {
            let entrance = Entrance { setting: "relay.tcp_listen", turn, http: !turn, ..Entrance::default() };
            // There may be no IPv6 here.
            let Ok(opened) = Opened::bind(addr, entrance, None) else { return };
            let only_v6 = socket2::SockRef::from(&opened.listener).only_v6().expect("an option of the socket");
            assert_eq!(only_v6, turn);
        }
    }
}
