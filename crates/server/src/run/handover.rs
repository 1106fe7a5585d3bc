//! The part of a server's life in which another process takes over from it, and the one in which it takes over itself.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::task::block_in_place;

use crate::config::Config;
use crate::door::Door;
use crate::machine::Running;
use crate::reflect::control::Away;
use crate::signals::{Ends, Wishes};
use crate::upgrade::{Listener, Listeners, Predecessor, Successor, tell_main_process};

/// Who has been accepted and not said what he wants is waited for so long.
const NEWCOMERS_MAX: Duration = Duration::from_millis(500);

/// Viewers under a cipher may take so long to read what was sealed for them.
const SEALED_MAX: Duration = Duration::from_secs(30);

/// How often somebody who is waited for is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Why SIGUSR2 does not replace this server by another one. `None`: it does.
pub(super) fn hindrance(config: &Config) -> Option<&'static str> {
    // There it means what coturn makes of it, and allocations would end.
    let has_relay = !crate::relay::setup::listen(config).is_empty();
    match () {
        () if config.reflect.streams.is_empty() => Some("no stream is reflected"),
        () if has_relay => Some("there is a relay, whose clients would lose it"),
        () if config.pump.disk_cache.is_some() => Some("pump.disk_cache belongs to one process"),
        () => None,
    }
}

/// What there is of the process before, if there was one.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    predecessor: Option<Predecessor>,
    listeners: Listeners,
}

impl Inherited {
    /// Says that this process can take over, and waits for the listeners.
    ///
    /// # Errors
    /// When the process before does not go on.
    pub(super) fn new(predecessor: Option<Predecessor>) -> anyhow::Result<Self> {
        let ready = predecessor.as_ref().map(|predecessor| block_in_place(|| predecessor.ready())).transpose();
        let listeners = ready.context("taking over from the process before")?.unwrap_or_default();
        Ok(Inherited { predecessor, listeners })
    }

    /// A listener that was there before.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn listener(&mut self, setting: &str, addr: SocketAddr) -> io::Result<Option<TcpListener>> {
        let found = self.listeners.take(setting, addr).map(std::net::TcpListener::from);
        found.map(|listener| listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener))).transpose()
    }

    /// Has the streams of the settings, with what there is of them; workers run.
    ///
    /// # Errors
    /// When a stream cannot be had, or the process before ends in between.
    pub(super) fn take_up(self, running: &Running, config: &Config) -> anyhow::Result<()> {
        let Some(predecessor) = self.predecessor else {
            return running.reflect.apply(&config.reflect).context("reflect.streams");
        };
        let taken = block_in_place(|| predecessor.take()).context("taking over from the process before")?;
        let (viewers, applied) = running.reflect.take_up(&config.reflect, taken);
        // Who watches is served before anything else.
        if let Err(error) = applied {
            tracing::error!(%error, "reflect.streams");
        }
        tracing::info!(viewers, "this process takes over");
        block_in_place(|| predecessor.finish())
    }
}

/// Why a process did not take over.
#[derive(Debug)]
pub(super) enum Failed {
    /// This one goes on.
    Before(anyhow::Error),
    /// Neither can go on.
    Within(anyhow::Error),
}

/// Gives everything to another process, which is ready. Nobody is accepted here any more.
pub(super) async fn hand_over(
    successor: Successor,
    running: &Running,
    door: &Door,
    listeners: &[Listener],
) -> Result<Away, Failed> {
    let until = Instant::now() + NEWCOMERS_MAX;
    while door.counters().newcomers > 0 && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
    }
    let sessions: u64 = running.rooms.negotiator_counters().map(|(_, counters)| counters.sessions).sum();
    if running.has_sessions() {
        tracing::info!(sessions, "sessions of rooms and pump end with this process");
        running.close_others();
        let until = Instant::now() + super::GOODBYE + super::goodbye(sessions);
        while Instant::now() < until {
            running.handle_timeout(Instant::now());
            tokio::time::sleep(LOOK).await;
        }
    }
    running.plane.workers().close_sockets().await;
    block_in_place(|| successor.begin(listeners)).map_err(Failed::Before)?;
    let id = successor.id();
    let away = running.reflect.give_away(&successor).await.map_err(Failed::Within)?;
    let began = Instant::now();
    block_in_place(|| successor.finish()).map_err(Failed::Within)?;
    let pause = away.pause + began.elapsed();
    tell_main_process(id);
    let (viewers, streams, sources) = (away.viewers, away.streams, away.feeding.len());
    tracing::info!(successor = id, viewers, streams, sources, ?pause, "a new process has taken over");
    Ok(away)
}

/// Passes on what sources bring, until they end, or this process is told to.
pub(super) async fn pass_on(away: Away, running: &Running, ends: &mut Ends, wishes: &mut Wishes) {
    let all = async {
        for feeding in away.feeding {
            // One that has panicked is over.
            feeding.await.ok();
        }
        let until = Instant::now() + SEALED_MAX;
        while running.reflect.viewer_count() > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
    };
    let mut all = std::pin::pin!(all);
    loop {
        tokio::select! {
            () = &mut all => return,
            () = ends.next() => return,
            wish = wishes.next() => tracing::warn!("{wish}: another process has taken over, which is to be told"),
        }
    }
}
