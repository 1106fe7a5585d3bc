//! Taking connections from a listening socket, whatever becomes of single ones.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Wait after an error of accept(2), such as too many open files, that another try would only repeat.
const PAUSE: Duration = Duration::from_millis(500);

/// Room for so many connections at a time.
pub(crate) fn places(connections_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)))
}

/// Waits for room.
pub(crate) async fn find_place(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    places.clone().acquire_owned().await.expect("nobody closes the semaphore")
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
