//! Clients' connections that workers have, as they carry packets of sessions: what clients say comes here.
//!
//! In: a socket that is handed over, what is to be said, what a worker hears. Out: what the client says, in order.
//! Cost: one lock, held for a map lookup, per piece that is heard; a worker lets `UNHEARD_MAX` bytes of them wait.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pump::spec::{Command, UNHEARD_MAX, heard_len};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::time::timeout;
use wire::{Token, WorkerId};

use super::control::PumpControl;
use crate::plane::workers::Posted;

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
    patience: Duration,
    /// What was heard and the worker takes to be waiting, by `heard_len`.
    unheard: usize,
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
        let (listener, heard) = mpsc::channel(UNHEARD_MAX / heard_len(&[]) + 1);
        self.connections.lock().insert(token, listener);
        if self.post(worker, Command::Adopt { connection: token, descriptor, patience }) == Posted::Refused {
            self.connections.lock().remove(&token);
        }
        Connection { control: self.clone(), worker, token, heard, patience, unheard: 0 }
    }

    /// Says something on a worker's connection, between packets.
    pub fn say(&self, worker: WorkerId, connection: Token, bytes: Vec<u8>) {
        self.post(worker, Command::Say { connection, bytes, heard: 0 });
    }

    /// Has packets on a channel of a connection wait until `let_go`, behind what is said before that.
    pub fn hold(&self, worker: WorkerId, connection: Token, channel: u8) {
        self.post(worker, Command::Hold { connection, channel });
    }

    /// What was held follows what was said.
    pub fn let_go(&self, worker: WorkerId, connection: Token) {
        self.post(worker, Command::LetGo(connection));
    }

    /// Whether a connection is a worker's still.
    pub fn is_connected(&self, connection: Token) -> bool {
        self.connections.lock().contains_key(&connection)
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
        let heard = std::mem::take(&mut self.unheard);
        if heard > 0 {
            self.control.post(self.worker, Command::Say { connection: self.token, bytes: Vec::new(), heard });
        }
        let bytes = self.heard.recv().await?;
        self.unheard = heard_len(&bytes);
        Some(bytes)
    }

    /// Says something, between packets.
    pub fn say(&self, bytes: Vec<u8>) {
        self.control.say(self.worker, self.token, bytes);
    }

    /// Hangs up, and waits until the client has heard all, or is gone. One for which that takes longer than `patience` is cut
    /// off.
    pub async fn close(mut self) {
        if self.control.post(self.worker, Command::HangUp(self.token)) != Posted::Refused {
            let gone = async { while self.heard.recv().await.is_some() {} };
            // One that is there still is hung up again, and so cut off, with this.
            timeout(self.patience, gone).await.ok();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.control.connections.lock().remove(&self.token).is_some() {
            self.control.post(self.worker, Command::HangUp(self.token));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;

    use engine::{Receiver, mailbox};
    use titles::Library;
    use wire::Bitrate;

    use super::*;
    use crate::plane::workers::Workers;
    use crate::plane::{Plane, placement};
    use crate::pump::control::Settings;
    use crate::pump::outputs::Outputs;
    use crate::pump::sessions::Limits;
    use crate::worker::Message;

    const TOKEN: Token = Token { owner: 1, number: 2 };

    /// Control of one worker, which takes what it is told and does nothing.
    pub(crate) fn control() -> (Arc<PumpControl>, Receiver<Message>) {
        let (mailbox, worker) = mailbox(10).expect("a mailbox");
        let plane = Plane::new(Workers::pretended(vec![mailbox]), placement::Settings::default());
        let library = Library::new(titles::Settings::default()).expect("a library");
        let limits = Limits { bandwidth_max: Bitrate::ZERO, sessions_max: 0, refused_timeout: None };
        let settings =
            Settings { limits, outputs: Outputs::default(), destinations: None, read_timeout: Duration::ZERO };
        (Arc::new(PumpControl::new(library, plane, Vec::new(), settings)), worker)
    }

    fn adopt(control: &Arc<PumpControl>, worker: u16) -> Connection {
        let descriptor = File::open("/dev/null").expect("it is there").into();
        control.adopt(WorkerId(worker), TOKEN, descriptor, Duration::from_millis(20))
    }

    #[tokio::test]
    async fn a_connection_that_does_not_end_is_hung_up_twice() {
        let (control, worker) = control();
        let connection = adopt(&control, 0);
        assert!(control.is_connected(TOKEN));
        connection.close().await;
        assert!(!control.is_connected(TOKEN));
        let told: Vec<Message> = std::iter::from_fn(|| worker.try_recv()).collect();
        assert!(
            matches!(
                told[..],
                [
                    Message::Pump(Command::Adopt { .. }),
                    Message::Pump(Command::HangUp(TOKEN)),
                    Message::Pump(Command::HangUp(TOKEN)),
                ]
            ),
            "{told:?}"
        );
    }

    #[tokio::test]
    async fn a_connection_that_is_gone_is_hung_up_once() {
        let (control, worker) = control();
        let connection = adopt(&control, 0);
        control.connections.handle_hung_up(TOKEN);
        connection.close().await;
        assert_eq!(std::iter::from_fn(|| worker.try_recv()).count(), 2);
    }

    #[tokio::test]
    async fn nothing_is_heard_on_a_connection_that_no_worker_takes() {
        let (control, _worker) = control();
        let mut connection = adopt(&control, 7);
        assert!(!control.is_connected(TOKEN) && connection.hear().await.is_none());
        connection.close().await;
    }
}
