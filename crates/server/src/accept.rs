//! Taking connections from a listening socket, whatever becomes of single ones.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::sleep;

use crate::crowd::Crowd;

/// Wait after an error of accept(2), such as too many open files, that another try would only repeat.
const PAUSE: Duration = Duration::from_millis(500);

/// Room for so many connections at a time. When all places are taken, the connection that was idle for longest, of the client
/// that has most, makes room for a newcomer.
#[derive(Debug)]
pub(crate) struct Places {
    permits: Arc<Semaphore>,
    /// Who may have to make room, by their clients' networks, and how each is told.
    crowd: Mutex<Crowd<IpAddr, oneshot::Sender<()>>>,
    given: AtomicUsize,
    made_room: AtomicU64,
}

/// One connection's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: usize,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Places {
            permits: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
            crowd: Mutex::default(),
            given: AtomicUsize::new(0),
            made_room: AtomicU64::new(0),
        })
    }

    /// Takes a place for a connection of a client's network; of who has none the connection never makes room. Waits where
    /// nobody makes room. What is returned beside it resolves when the connection is to make room.
    pub(crate) async fn enter(self: &Arc<Self>, network: Option<IpAddr>) -> (Place, oneshot::Receiver<()>) {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.make_room();
                self.permits.clone().acquire_owned().await.expect("nobody closes the semaphore")
            }
        };
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        let (end, ended) = oneshot::channel();
        self.crowd().enter(number, Instant::now(), [network, None], end);
        (Place { places: self.clone(), number, _permit: permit }, ended)
    }

    fn make_room(&self) {
        let mut crowd = self.crowd();
        if let Some(end) = crowd.first_to_go().and_then(|number| crowd.leave(number)) {
            self.made_room.fetch_add(1, Ordering::Relaxed);
            // It may have ended by itself just now.
            let _ = end.send(());
        }
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

    fn crowd(&self) -> MutexGuard<'_, Crowd<IpAddr, oneshot::Sender<()>>> {
        self.crowd.lock().expect("nobody panics under this lock")
    }
}

impl Place {
    /// The connection is not idle just now.
    pub(crate) fn touch(&self) {
        self.places.crowd().touch(self.number, Instant::now());
    }

    /// The connection makes no room from now on. False: it has been told to.
    pub(crate) fn keep(&self) -> bool {
        self.places.crowd().leave(self.number).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.crowd().leave(self.number);
    }
}

/// Waits for a connection. `what` it would be is for the log.
pub(crate) async fn accept(listener: &TcpListener, what: &str) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no {what} connection can be accepted");
                sleep(PAUSE).await;
            }
        }
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
