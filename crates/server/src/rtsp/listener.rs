//! RTSP's listening socket, its connections, and what is due for the sessions behind them.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::net::TcpListener;
use tokio::time::interval;

use super::connection::converse;
use super::{Rtsp, rtcp};
use crate::accept::{PerAddress, accept, household};

/// Serves until it is dropped; connections that are open then go on.
pub async fn serve(rtsp: Arc<Rtsp>, listener: TcpListener) {
    let timeouts = async {
        let mut tick = interval(rtsp.limits.tick);
        loop {
            tick.tick().await;
            rtsp.handle_timeout(Instant::now()).await;
        }
    };
    tokio::join!(timeouts, take_clients(&rtsp, listener), rtcp::receive(&rtsp));
}

async fn take_clients(rtsp: &Arc<Rtsp>, listener: TcpListener) {
    let clients = Arc::new(Mutex::new(PerAddress::default()));
    loop {
        let (stream, client) = accept(&listener, "RTSP").await;
        if !lock(&clients).enter(household(client.ip()), rtsp.limits.connections_per_client) {
            rtsp.count(|stats| stats.refused += 1);
            continue;
        }
        let place = rtsp.places.enter(Some(household(client.ip()))).await;
        let (rtsp, clients) = (rtsp.clone(), clients.clone());
        tokio::spawn(async move {
            if let Err(error) = converse(&rtsp, stream, client, place).await {
                tracing::debug!(%client, %error, "an RTSP connection failed");
            }
            lock(&clients).leave(household(client.ip()));
        });
    }
}

fn lock(clients: &Mutex<PerAddress>) -> MutexGuard<'_, PerAddress> {
    clients.lock().expect("nobody panics under this lock")
}
