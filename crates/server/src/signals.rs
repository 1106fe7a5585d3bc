//! What whoever runs the server tells it by signals.
//!
//! SIGINT and SIGTERM: the end. SIGHUP: read again what may change. SIGUSR2: a new process takes over (`upgrade`) where streams
//! are reflected and nothing hinders that, as a relay does; elsewhere the same as SIGHUP. SIGUSR1: take nobody new. To a relay
//! SIGUSR1 and SIGUSR2 mean what they mean to coturn, so that what renews its certificates goes on doing so; there SIGHUP begins
//! the log anew, which is the system's business here.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Of the end. Until it is made, these signals end the process at once, as there is nothing that could be lost.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
}

impl Ends {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Ends { interrupt: on(SignalKind::interrupt())?, terminate: on(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What a server is to do that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub(crate) enum Wish {
    /// Read again what may change.
    #[strum(serialize = "SIGHUP")]
    HangUp,
    /// Have a new process take over; where that cannot be, read again what may change.
    #[strum(serialize = "SIGUSR2")]
    User2,
    /// Take nobody new, and end with the last of those who are there.
    #[strum(serialize = "SIGUSR1")]
    User1,
}

/// Of wishes. It is made first of all: before, these signals end the process. What comes then waits until it is asked for.
pub(crate) struct Wishes {
    hang_up: Signal,
    user1: Signal,
    user2: Signal,
}

impl Wishes {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let [hang_up, user1, user2] = [SignalKind::hangup(), SignalKind::user_defined1(), SignalKind::user_defined2()];
        Ok(Wishes { hang_up: on(hang_up)?, user1: on(user1)?, user2: on(user2)? })
    }

    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hang_up.recv() => Wish::HangUp,
            _ = self.user1.recv() => Wish::User1,
            _ = self.user2.recv() => Wish::User2,
        }
    }
}

fn on(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("listening for signals")
}
