//! What waits to be sent to one client: so many messages, and so many bytes. Who reads too slowly for that is closed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use livekit::proto::{SignalResponse, signal_response};
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// Messages for one client that wait at most.
pub const MESSAGES_MAX: usize = 1024;
/// Bytes of these at most; one message alone may be longer.
pub const BYTES_MAX: usize = 8 << 20;

/// A message for one client or for many, written once for all who read it in the same form.
#[derive(Debug)]
pub struct Shared {
    message: SignalResponse,
    size_bytes: usize,
    binary: OnceLock<axum::body::Bytes>,
    json: OnceLock<Utf8Bytes>,
}

/// Where messages for one client are put.
#[derive(Debug)]
pub struct Inlet {
    sender: mpsc::Sender<Arc<Shared>>,
    state: Arc<State>,
}

/// Where the client's connection takes them out.
#[derive(Debug)]
pub struct Outlet {
    receiver: mpsc::Receiver<Arc<Shared>>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: AtomicUsize,
    /// The client has sent a text frame: it reads JSON.
    is_json: AtomicBool,
    /// The client was too slow: nothing more is taken out.
    is_over: AtomicBool,
}

/// A queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Shared {
    /// Takes a message to be sent.
    pub fn new(message: signal_response::Message) -> Arc<Self> {
        let message = SignalResponse { message: Some(message) };
        let size_bytes = message.encoded_len();
        Arc::new(Shared { message, size_bytes, binary: OnceLock::new(), json: OnceLock::new() })
    }

    /// What it says.
    pub fn said(&self) -> Option<&signal_response::Message> {
        self.message.message.as_ref()
    }

    fn frame(&self, is_json: bool) -> Message {
        if is_json {
            let text = || serde_json::to_string(&self.message).unwrap_or_default().into();
            return Message::Text(self.json.get_or_init(text).clone());
        }
        Message::Binary(self.binary.get_or_init(|| self.message.encode_to_vec().into()).clone())
    }
}

/// The two ends of an empty queue.
pub fn queue() -> (Inlet, Outlet) {
    let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
    let state = Arc::new(State::default());
    (Inlet { sender, state: state.clone() }, Outlet { receiver, state })
}

impl Inlet {
    /// Puts a message in.
    ///
    /// # Errors
    /// When there is no room for it, or nobody takes it out any more.
    pub fn push(&self, message: &Arc<Shared>) -> Result<(), Full> {
        let waiting = self.state.bytes.load(Ordering::Relaxed);
        if waiting > 0 && waiting + message.size_bytes > BYTES_MAX {
            return Err(Full);
        }
        // Counted before it can be taken out, so that the sum is never below nothing.
        self.state.bytes.fetch_add(message.size_bytes, Ordering::Relaxed);
        self.sender.try_send(message.clone()).map_err(|_| {
            self.state.bytes.fetch_sub(message.size_bytes, Ordering::Relaxed);
            Full
        })
    }

    /// Ends it for a client that is too slow: what waits is not sent any more.
    pub fn give_up(self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

impl Outlet {
    /// Waits for the next message, for who takes it in this process; `None` when no more will come.
    pub async fn message(&mut self) -> Option<Arc<Shared>> {
        let message = self.receiver.recv().await?;
        if self.state.is_over.load(Ordering::Relaxed) {
            return None;
        }
        self.state.bytes.fetch_sub(message.size_bytes, Ordering::Relaxed);
        Some(message)
    }

    /// Waits for the next frame; `None` when no more will come.
    pub async fn next(&mut self) -> Option<Message> {
        let message = self.message().await?;
        Some(message.frame(self.state.is_json.load(Ordering::Relaxed)))
    }

    /// The client reads JSON from now on.
    pub fn read_json(&self) {
        self.state.is_json.store(true, Ordering::Relaxed);
    }
}
