//! RTSP's listening socket, its connections, and what is due for the sessions behind them.

use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep};

use super::connection::converse;
use super::{Rtsp, rtcp};

/// Connections at a time; further ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 10_000;

/// Connections of one address at a time; further ones are closed.
const CLIENT_CONNECTIONS_MAX: usize = 1_000;

/// Wait after an error of accept(2), such as too many open files, that another try would only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// How often sessions are looked at that may be due.
const TICK: Duration = Duration::from_millis(500);

/// Serves until it is dropped; connections that are open then go on.
pub async fn serve(rtsp: Arc<Rtsp>, listener: TcpListener) {
    let timeouts = async {
        let mut tick = interval(TICK);
        loop {
            tick.tick().await;
            rtsp.handle_timeout(Instant::now()).await;
        }
    };
    tokio::join!(timeouts, accept(&rtsp, listener), rtcp::receive(&rtsp));
}

async fn accept(rtsp: &Arc<Rtsp>, listener: TcpListener) {
    let (places, clients) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(Clients::default()));
    // Nobody closes the semaphore.
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, client)) => {
                let (rtsp, clients) = (rtsp.clone(), clients.clone());
                if !clients.enter(client.ip()) {
                    rtsp.counters.refuse_connection();
                    continue;
                }
                tokio::spawn(async move {
                    if let Err(error) = converse(&rtsp, stream, client).await {
                        tracing::debug!(%client, %error, "an RTSP connection failed");
                    }
                    clients.leave(client.ip());
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accepting an RTSP connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// How many connections each address has.
#[derive(Default)]
struct Clients {
    counts: Mutex<FxHashMap<IpAddr, usize>>,
}

impl Clients {
    fn enter(&self, ip: IpAddr) -> bool {
        let mut counts = self.counts.lock().expect("nobody panics under this lock");
        let count = counts.entry(ip).or_default();
        let has_room = *count < CLIENT_CONNECTIONS_MAX;
        *count += usize::from(has_room);
        has_room
    }

    fn leave(&self, ip: IpAddr) {
        let mut counts = self.counts.lock().expect("nobody panics under this lock");
        if let Entry::Occupied(mut count) = counts.entry(ip) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
