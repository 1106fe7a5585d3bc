//! Taking connections from a listening socket, whatever becomes of single ones.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

/// Wait after an error of accept(2), such as too many open files, that another try would only repeat.
const PAUSE: Duration = Duration::from_millis(500);

/// Room for so many connections at a time; further ones wait in the kernel's backlog.
pub(crate) fn places(connections_max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)))
}

/// Waits for room, and then for a connection. `what` it would be is for the log.
pub(crate) async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    what: &str,
) -> (OwnedSemaphorePermit, TcpStream, SocketAddr) {
    let place = places.clone().acquire_owned().await.expect("nobody closes the semaphore");
    loop {
        match listener.accept().await {
            Ok((stream, client)) => return (place, stream, client),
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

/// How many of something each address has, and that none has too many.
#[derive(Debug, Default)]
pub(crate) struct PerAddress {
    counts: HashMap<IpAddr, usize>,
}

impl PerAddress {
    /// One more. False when that would be more than `max`.
    pub(crate) fn enter(&mut self, ip: IpAddr, max: usize) -> bool {
        let count = self.counts.get(&ip).copied().unwrap_or(0);
        let has_room = count < max;
        if has_room {
            self.counts.insert(ip, count + 1);
        }
        has_room
    }

    pub(crate) fn leave(&mut self, ip: IpAddr) {
        if let Some(count) = self.counts.get_mut(&ip) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&ip);
            }
        }
    }
}
