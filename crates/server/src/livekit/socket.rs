//! One client's signalling connection: frames in, frames out, and a question whether it lives after ten seconds of silence.
//!
//! A binary frame is protobuf; a text frame is JSON, and from the first one on what is sent is JSON too. What cannot be read
//! is left out. A frame that is not taken within `WRITE_TIME` ends it, behind what the client has said already; so does a client that
//! is silent for `SILENCE_MAX`. Whoever ends it otherwise says so, and is answered (RFC 6455 §7.1).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use livekit::output::ConnectionId;
use livekit::proto::SignalRequest;
use prost::Message as _;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::hub::Hub;
use super::queue::Outlet;
use super::websocket::Socket;

const PING_EVERY: Duration = Duration::from_secs(10);
const SILENCE_MAX: Duration = Duration::from_secs(30);
const WRITE_TIME: Duration = Duration::from_secs(10);
/// Within this a client that is told of the end has to answer, and is heard out that takes nothing any more.
const PART_TIME: Duration = Duration::from_secs(5);
/// So many may take their time at once; with others the connection ends behind the last word.
pub(super) const PARTING_MAX: usize = 1_024;

/// A participant's connection, which the rooms hear the end of, whatever ends it.
pub(super) struct Signalling {
    pub(super) hub: Arc<Hub>,
    pub(super) connection: ConnectionId,
    pub(super) outlet: Outlet,
}

impl Drop for Signalling {
    fn drop(&mut self) {
        self.hub.closed(self.connection);
    }
}

impl Signalling {
    /// Speaks with the client until either has had enough.
    pub(super) async fn serve(mut self, mut socket: Socket) {
        let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        let mut heard_at = Instant::now();
        loop {
            let frame = tokio::select! {
                frame = self.outlet.next() => match frame {
                    Some(frame) => frame,
                    None => break,
                },
                received = socket.recv() => {
                    heard_at = Instant::now();
                    pings.reset();
                    match received {
                        Some(Ok(Message::Close(_))) => break,
                        Some(Ok(message)) => {
                            self.handle(&message);
                            let len = message.len();
                            drop(message);
                            socket = socket.tidied(len).await;
                            continue;
                        }
                        _ => return,
                    }
                }
                _ = pings.tick() => match heard_at.elapsed() < SILENCE_MAX {
                    true => Message::Ping(Bytes::new()),
                    false => return,
                },
            };
            if !matches!(timeout(WRITE_TIME, socket.send(frame)).await, Ok(Ok(()))) {
                return self.hear_out(socket).await;
            }
        }
        // All that was to be said has been, and the rooms need not wait.
        let hub = self.hub.clone();
        drop(self);
        let place = hub.parting.try_acquire();
        part(socket, if place.is_ok() { PART_TIME } else { Duration::ZERO }).await;
    }

    /// Nothing goes out any more. What the client has said before is heard: that it leaves, perhaps, and so has ceased to read.
    async fn hear_out(self, mut socket: Socket) {
        let rest = async {
            while let Some(Ok(message)) = socket.recv().await {
                self.handle(&message);
            }
        };
        let _client_goes_on = timeout(PART_TIME, rest).await;
    }

    fn handle(&self, message: &Message) {
        let request = match message {
            Message::Binary(bytes) => SignalRequest::decode(&**bytes).ok(),
            Message::Text(text) => {
                self.outlet.read_json();
                serde_json::from_str(text).ok()
            }
            Message::Close(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => return,
        };
        match request {
            Some(request) => self.hub.request(self.connection, request),
            None => tracing::debug!(connection = self.connection.0, "a signalling frame that cannot be read"),
        }
    }
}

/// Says that this is the end, and waits for the client to say so. If the connection were closed before, what the client still
/// sends would have it reset, and browsers would tell their pages of a failure (1006).
async fn part(mut socket: Socket, time: Duration) {
    let parting = async {
        // Where the client was first, this is refused, and its answer goes out as more is read.
        let _client_was_first = socket.send(Message::Close(None)).await;
        while let Some(Ok(_)) = socket.recv().await {}
    };
    let _client_is_slow = timeout(time, parting).await;
}
