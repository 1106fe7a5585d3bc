//! RTSP's listening socket, its connections, and what is due for the sessions behind them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::interval;

use super::connection::converse;
use super::{Rtsp, rtcp};
use crate::accept::{PerAddress, accept};

/// Connections at a time; further ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 10_000;

/// Connections of one address at a time; further ones are closed.
const CLIENT_CONNECTIONS_MAX: usize = 1_000;

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
    tokio::join!(timeouts, take_clients(&rtsp, listener), rtcp::receive(&rtsp));
}

async fn take_clients(rtsp: &Arc<Rtsp>, listener: TcpListener) {
    let (places, clients) = (Arc::new(Semaphore::new(CONNECTIONS_MAX)), Arc::new(Mutex::new(PerAddress::default())));
    // Nobody closes the semaphore.
    while let Ok(place) = places.clone().acquire_owned().await {
        let (stream, client) = accept(&listener, "RTSP").await;
        if !lock(&clients).enter(client.ip(), CLIENT_CONNECTIONS_MAX) {
            rtsp.counters.refuse_connection();
            continue;
        }
        let (rtsp, clients) = (rtsp.clone(), clients.clone());
        tokio::spawn(async move {
            if let Err(error) = converse(&rtsp, stream, client).await {
                tracing::debug!(%client, %error, "an RTSP connection failed");
            }
            lock(&clients).leave(client.ip());
            drop(place);
        });
    }
}

fn lock(clients: &Mutex<PerAddress>) -> MutexGuard<'_, PerAddress> {
    clients.lock().expect("nobody panics under this lock")
}
