//! RTSP's connections: bytes from TCP to requests, one after the other, and responses back.
//!
//! Cost: a task per connection, with a buffer for what is the longest request or interleaved frame.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use wire::rtsp::{Item, Response, RtspError, Status, next_item};

use super::{Ends, Rtsp, SESSION_TIMEOUT};

/// Connections at a time; further ones wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 10_000;

/// A connection that says nothing for so long is closed; its sessions have timed out by then.
const IDLE_TIMEOUT: Duration = SESSION_TIMEOUT.saturating_mul(2);

/// A client that does not take its answer for so long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait after an error of accept(2), such as too many open files, that another try would only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// How often sessions are looked at that may be due.
const TICK: Duration = Duration::from_secs(1);

/// Serves until it is dropped; connections that are open then go on.
pub async fn serve(rtsp: Arc<Rtsp>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let timeouts = async {
        let mut tick = interval(TICK);
        loop {
            tick.tick().await;
            rtsp.handle_timeout(Instant::now()).await;
        }
    };
    let accepting = async {
        // Nobody closes the semaphore.
        while let Ok(place) = places.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, client)) => {
                    let rtsp = rtsp.clone();
                    tokio::spawn(async move {
                        if let Err(error) = converse(&rtsp, stream, client).await {
                            tracing::debug!(%client, %error, "an RTSP connection failed");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting an RTSP connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::join!(timeouts, accepting);
}

/// One connection, from its first byte to its end.
async fn converse(rtsp: &Rtsp, mut stream: TcpStream, client: SocketAddr) -> std::io::Result<()> {
    let ends = Ends { client: client.ip().to_canonical(), server: stream.local_addr()?.ip().to_canonical() };
    let mut buf = Vec::new();
    loop {
        let (text, len) = match next_item(&buf) {
            Ok(None) => {
                if timeout(IDLE_TIMEOUT, stream.read_buf(&mut buf)).await?? == 0 {
                    return Ok(());
                }
                continue;
            }
            // Receiver reports, of clients that send them here.
            Ok(Some((Item::Interleaved { .. }, len))) => (String::new(), len),
            Ok(Some((Item::Request(request), len))) => {
                let response = rtsp.answer(Instant::now(), ends, &request).await;
                (response.to_text(request.cseq()), len)
            }
            Err(error) => {
                let status = match error {
                    RtspError::Version => Status::VersionNotSupported,
                    _ => Status::BadRequest,
                };
                let text = Response::new(status).with("Connection", "close").to_text(None);
                return timeout(WRITE_TIMEOUT, stream.write_all(text.as_bytes())).await?;
            }
        };
        buf.drain(..len);
        timeout(WRITE_TIMEOUT, stream.write_all(text.as_bytes())).await??;
    }
}
