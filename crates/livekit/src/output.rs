//! What one input causes, in the order in which it is to happen.

use livekit_protocol::{WebhookEvent, signal_response};

use crate::media;

/// One signalling connection. Never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Why a signalling connection is closed by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Its participant is in the room no more.
    Left,
    /// Its participant has another one.
    Replaced,
    /// It is to come again: its path is lost.
    Resume,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// A message for clients. It is the same for all of them, so it is to be written once.
    Send {
        /// To whom.
        to: Vec<ConnectionId>,
        /// What.
        message: signal_response::Message,
    },
    /// Nothing comes for a connection after this: what is written goes out, then it is closed.
    Close {
        /// Which.
        connection: ConnectionId,
        /// Why.
        why: CloseReason,
    },
    /// Something for the packet path.
    Media(media::Request),
    /// Something for who runs the application.
    Webhook(Box<WebhookEvent>),
}

/// Where outputs go.
#[derive(Debug, Default)]
pub struct Outbox {
    outputs: Vec<Output>,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes out what there is, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Output> + '_ {
        self.outputs.drain(..)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    pub(crate) fn send(&mut self, to: ConnectionId, message: signal_response::Message) {
        self.outputs.push(Output::Send { to: vec![to], message });
    }

    /// Nothing is sent to nobody.
    pub(crate) fn send_all(&mut self, to: Vec<ConnectionId>, message: signal_response::Message) {
        if !to.is_empty() {
            self.outputs.push(Output::Send { to, message });
        }
    }

    pub(crate) fn close(&mut self, connection: ConnectionId, why: CloseReason) {
        self.outputs.push(Output::Close { connection, why });
    }

    pub(crate) fn media(&mut self, request: media::Request) {
        self.outputs.push(Output::Media(request));
    }

    pub(crate) fn webhook(&mut self, event: WebhookEvent) {
        self.outputs.push(Output::Webhook(Box::new(event)));
    }
}
