//! Clients' connections that workers have, as they carry packets of sessions: what clients say comes here.
//!
//! In: a socket that is handed over, what is to be said, what a worker hears. Out: what the client says, in order.
//! Cost: one lock, held for a map lookup, per piece that is heard; a worker lets `UNHEARD_MAX` of them wait.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pump::spec::{Command, UNHEARD_MAX};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use wire::{Token, WorkerId};

use super::control::PumpControl;
use crate::worker::Message;

/// Who hears what comes on each connection.
#[derive(Debug, Default)]
pub(super) struct Connections {
    listeners: Mutex<Listeners>,
}

type Listeners = FxHashMap<Token, mpsc::Sender<Box<[u8]>>>;

/// A client's connection that a worker has. It ends with this, behind what was said.
pub struct Connection {
    control: Arc<PumpControl>,
    worker: WorkerId,
    token: Token,
    heard: mpsc::Receiver<Box<[u8]>>,
    /// Something was heard that the worker takes to be waiting.
    is_behind: bool,
}

impl PumpControl {
    /// Hands a connection over to a worker. A client that takes nothing of what waits for it for as long as `patience` is
    /// gone.
    pub fn adopt(
        self: &Arc<Self>,
        worker: WorkerId,
        token: Token,
        descriptor: OwnedFd,
        patience: Duration,
    ) -> Connection {
        let (listener, heard) = mpsc::channel(UNHEARD_MAX + 1);
        self.connections().lock().insert(token, listener);
        self.post(worker, Command::Adopt { connection: token, descriptor, patience });
        Connection { control: self.clone(), worker, token, heard, is_behind: false }
    }

    /// Says something on a worker's connection, between packets.
    pub fn say(&self, worker: WorkerId, connection: Token, bytes: Vec<u8>) {
        self.post(worker, Command::Say { connection, bytes, heard: 0 });
    }

    fn post(&self, worker: WorkerId, command: Command) {
        self.plane().workers().post(worker, Message::Pump(command));
    }
}

impl Connections {
    pub(super) fn handle_heard(&self, connection: Token, bytes: Box<[u8]>) {
        if let Some(listener) = self.lock().get(&connection) {
            // There is room, for the worker counts, and for the end. Who listened may be about to hang up.
            listener.try_send(bytes).ok();
        }
    }

    pub(super) fn handle_hung_up(&self, connection: Token) {
        self.lock().remove(&connection);
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().expect("nobody panics under this lock")
    }
}

impl Connection {
    /// What the client says next; what came before is done with. Empty: it says no more, but may listen. `None`: it is gone.
    pub async fn hear(&mut self) -> Option<Box<[u8]>> {
        if std::mem::take(&mut self.is_behind) {
            self.control.post(self.worker, Command::Say { connection: self.token, bytes: Vec::new(), heard: 1 });
        }
        let bytes = self.heard.recv().await?;
        self.is_behind = true;
        Some(bytes)
    }

    /// Says something, between packets.
    pub fn say(&self, bytes: Vec<u8>) {
        self.control.say(self.worker, self.token, bytes);
    }

    /// Hangs up, and waits until the client has heard all, or is gone.
    pub async fn close(mut self) {
        self.control.post(self.worker, Command::HangUp(self.token));
        while self.heard.recv().await.is_some() {}
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.control.connections().lock().remove(&self.token).is_some() {
            self.control.post(self.worker, Command::HangUp(self.token));
        }
    }
}
