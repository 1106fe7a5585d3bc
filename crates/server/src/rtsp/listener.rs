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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;

    use super::*;
    use crate::pump::connections::tests::control;
    use crate::rtsp::Limits;

    #[tokio::test]
    async fn a_panic_of_a_library_ends_its_connection_and_leaves_nothing_of_it() {
        // The standard library panics where time ends, and so does each connection here.
        let limits = Limits { request_timeout: Duration::MAX, connections_per_client: 1, ..Limits::default() };
        let rtsp = Arc::new(Rtsp::new(control().0, limits));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let addr = listener.local_addr().expect("bound");
        let serving = tokio::spawn(serve(rtsp.clone(), listener));
        for number in 1..=3 {
            let mut client = TcpStream::connect(addr).await.expect("connected");
            let ended = client.read(&mut [0]).await.expect("it ends");
            let stats = rtsp.stats();
            let counted = (stats.accepted, stats.panicked, stats.connections, stats.refused);
            assert_eq!((ended, counted), (0, (number, number, 0, 0)));
        }
        assert!(!serving.is_finished());
    }
}
