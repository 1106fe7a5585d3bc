//! Taking connections from a listening socket, whatever becomes of single ones.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::sleep;

use crate::crowd::Crowd;

/// Wait after an error of accept(2), such as too many open files, that another try would only repeat.
const PAUSE: Duration = Duration::from_millis(500);

const OPEN: &str = "nobody closes the semaphore";

/// Connections beyond all places that have made room and are there still. When there are so many newcomers wait.
pub(crate) const LEAVING_MAX: usize = 256;

/// Room for so many connections at a time. When all places are taken, the connection that was idle for longest, of the client
/// that has most, makes room for a newcomer: that has its place at once, however long the other takes to leave.
#[derive(Debug)]
pub(crate) struct Places {
    permits: Arc<Semaphore>,
    /// Who may have to make room, by their clients' networks.
    crowd: Mutex<Crowd<IpAddr, Seat>>,
    leaving: Arc<Semaphore>,
    /// Somebody may make room who did not before.
    unkept: Notify,
    given: AtomicUsize,
    made_room: AtomicU64,
}

/// What a connection has until it makes room, and how it is told to.
#[derive(Debug)]
struct Seat {
    tell: oneshot::Sender<Leave>,
    permit: OwnedSemaphorePermit,
}

/// A connection has made room, and is to leave. It has left when this is dropped.
#[derive(Debug)]
pub(crate) struct Leave {
    /// At once, as many others take their time.
    pub(crate) is_hurried: bool,
    _permit: OwnedSemaphorePermit,
}

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: usize,
    network: Option<IpAddr>,
    /// While it makes no room.
    kept: Mutex<Option<Seat>>,
}

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Places {
            permits: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
            crowd: Mutex::default(),
            leaving: Arc::new(Semaphore::new(LEAVING_MAX)),
            unkept: Notify::new(),
            given: AtomicUsize::new(0),
            made_room: AtomicU64::new(0),
        })
    }

    /// Takes a place for a connection of a client's network; of who has none the connection never makes room. Waits where
    /// nobody makes room. What is returned beside it resolves when the connection is to make room.
    pub(crate) async fn enter(self: &Arc<Self>, network: Option<IpAddr>) -> (Place, oneshot::Receiver<Leave>) {
        let permit = loop {
            if let Ok(permit) = self.permits.clone().try_acquire_owned() {
                break permit;
            }
            if let Some(permit) = self.make_room().await {
                break permit;
            }
            tokio::select! {
                permit = self.permits.clone().acquire_owned() => break permit.expect(OPEN),
                () = self.unkept.notified() => {}
            }
        };
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let (tell, told) = oneshot::channel();
        self.crowd().enter(number, Instant::now(), [network, None], Seat { tell, permit });
        (Place { places: self.clone(), number, network, kept: Mutex::default() }, told)
    }

    /// Tells one to leave, and takes its place. `None`: nobody makes room.
    async fn make_room(&self) -> Option<OwnedSemaphorePermit> {
        let leaving = self.leaving.clone().acquire_owned().await.expect(OPEN);
        let is_hurried = self.leaving.available_permits() < LEAVING_MAX / 2;
        let mut crowd = self.crowd();
        let number = crowd.first_to_go()?;
        let Seat { tell, permit } = crowd.leave(number)?;
        self.made_room.fetch_add(1, Ordering::Relaxed);
        // It may have ended by itself just now.
        let _ = tell.send(Leave { is_hurried, _permit: leaving });
        Some(permit)
    }

    /// How many connections of the network may have to make room.
    pub(crate) fn count(&self, network: IpAddr) -> usize {
        self.crowd().count(&network)
    }

    /// Places that were given since the start, and how many of those had to make room.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.given.load(Ordering::Relaxed) as u64, self.made_room.load(Ordering::Relaxed))
    }

    /// Waits until so many places, which are all, are free.
    pub(crate) async fn wait_until_free(&self, all: usize) {
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        let _ = self.permits.acquire_many(all).await;
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd<IpAddr, Seat>> {
        self.crowd.lock().expect("nobody panics under this lock")
    }
}

impl Place {
    /// The connection is not idle just now.
    pub(crate) fn touch(&self) {
        self.places.crowd().touch(self.number, Instant::now());
    }

    /// Whose the connection is. `None`: it never makes room.
    pub(crate) fn network(&self) -> Option<IpAddr> {
        self.network
    }

    /// It turned out whose the connection is, which is not kept.
    pub(crate) fn belongs_to(&mut self, network: IpAddr) {
        self.network = Some(network);
        let mut crowd = self.places.crowd();
        // It may have been told to leave just now.
        if let Some(seat) = crowd.leave(self.number) {
            crowd.enter(self.number, Instant::now(), [self.network, None], seat);
            self.places.unkept.notify_one();
        }
    }

    /// Whether the connection makes no room from now on. It cannot be kept any more when it has been told to leave.
    pub(crate) fn keep(&self, is_kept: bool) {
        let (mut crowd, mut kept) = (self.places.crowd(), self.kept.lock().expect("nobody panics under this lock"));
        if is_kept {
            *kept = kept.take().or_else(|| crowd.leave(self.number));
        } else if let Some(seat) = kept.take() {
            crowd.enter(self.number, Instant::now(), [self.network, None], seat);
            self.places.unkept.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.crowd().leave(self.number);
    }
}

/// Waits for a connection. `what` it would be is for the log.
pub(crate) async fn accept(listener: &TcpListener, what: &str) -> (TcpStream, SocketAddr) {
    let mut failed_at = None;
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                if let Some(seconds) = failed_at.map(|at: Instant| at.elapsed().as_secs_f32()) {
                    tracing::info!(seconds, "{what} connections are accepted again");
                }
                return accepted;
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                if failed_at.is_none() {
                    tracing::warn!(%error, "no {what} connection can be accepted{}", advice(&error));
                }
                failed_at.get_or_insert_with(Instant::now);
                sleep(PAUSE).await;
            }
        }
    }
}

/// What can be done about it.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => "; this process may have no more open files (ulimit -n, LimitNOFILE of systemd)",
        Some(Errno::ENFILE) => "; this machine may have no more open files (fs.file-max)",
        _ => "",
    }
}

/// Whether accept(2) failed because its client has gone already.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// How many of something each client has, and that none has too many.
#[derive(Debug)]
pub(crate) struct PerClient<K> {
    counts: HashMap<K, usize>,
}

/// The same by clients' addresses.
pub(crate) type PerAddress = PerClient<IpAddr>;

impl<K> Default for PerClient<K> {
    fn default() -> Self {
        PerClient { counts: HashMap::new() }
    }
}

impl<K: Eq + Hash> PerClient<K> {
    /// Whether the client may have one more.
    pub(crate) fn has_room(&self, client: &K, max: usize) -> bool {
        self.counts.get(client).copied().unwrap_or(0) < max
    }

    /// One more. False when that would be more than `max`.
    pub(crate) fn enter(&mut self, client: K, max: usize) -> bool {
        let has_room = self.has_room(&client, max);
        if has_room {
            *self.counts.entry(client).or_default() += 1;
        }
        has_room
    }

    pub(crate) fn leave(&mut self, client: K) {
        if let Entry::Occupied(mut entry) = self.counts.entry(client) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// What counts as one client of all addresses that it may choose from: an IPv6 network of 64 bits, which is what a host
/// has (RFC 4291 §2.5.4), and an IPv4 address.
pub(crate) fn household(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_share_what_one_may_have() {
        let ip = |text: &str| household(text.parse().expect("an address"));
        let mut clients = PerAddress::default();
        assert!(clients.enter(ip("2001:db8::1"), 2) && clients.enter(ip("2001:db8::ffff:2"), 2));
        assert!(!clients.enter(ip("2001:db8:0:0:9::"), 2), "the same network");
        assert!(clients.enter(ip("2001:db8:0:1::1"), 2));
        clients.leave(ip("2001:db8::7"));
        assert!(clients.enter(ip("2001:db8::3"), 2));
        assert!(clients.enter(ip("192.0.2.1"), 1) && clients.enter(ip("192.0.2.2"), 1));
        assert!(!clients.enter(ip("::ffff:192.0.2.1"), 1), "the same address");
    }
}
