//! The part of a server's life in which another process takes over from it, and the one in which it takes over itself.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, block_in_place};

use super::LOOK;
use crate::config::Config;
use crate::door::{self, Door, Hosts, Opened};
use crate::http::Connections;
use crate::machine::Running;
use crate::reflect::access::AccessLog;
use crate::reflect::control::Away;
use crate::relay::setup as relay_setup;
use crate::signals::{Ends, Wishes};
use crate::supervisor::tell_main_process;
use crate::upgrade::{Failed, Predecessor, Socket, Sockets, Successor, Taken};

/// Who has been accepted and begun to say what he wants is waited for so long: who takes longer is answered by HTTP, which refuses
/// him (`door::viewer`).
const NEWCOMERS_MAX: Duration = Duration::from_millis(2_500);

/// Viewers under a cipher, and who has an answer of HTTP's, may take so long to read what was written for them.
const LAST_READS: Duration = Duration::from_secs(30);

/// Why SIGUSR2 does not replace this server by another one. `None`: it does.
pub(super) fn hindrance(config: &Config) -> Option<&'static str> {
    // There it means what coturn makes of it, and allocations would end.
    let has_relay = !relay_setup::listen(config).is_empty();
    let is_of_one = |addr: SocketAddr| !addr.ip().is_multicast();
    match () {
        () if has_relay => Some("there is a relay, whose clients would lose it"),
        () if config.pump.disk_cache.is_some() => Some("pump.disk_cache belongs to one process"),
        () if config.pump.live.iter().any(|input| is_of_one(input.addr)) => {
            Some("an address of pump.live belongs to one process")
        }
        () if std::process::id() == 1 => Some("it is the first process of a container, which would end with it"),
        () => None,
    }
}

/// What there is of the process before, if there was one.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    predecessor: Option<Predecessor>,
    sockets: Sockets,
    /// What this process shares with the next.
    shared: Vec<Socket>,
}

/// What a process shares with the next.
pub(super) type Shared = Arc<Vec<Socket>>;

impl Inherited {
    /// Finds it, takes its sockets, and looks whether this process can be what its settings say. Not on a runtime.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn find(config: &Config) -> anyhow::Result<Self> {
        let Some(predecessor) = Predecessor::find()? else { return Ok(Inherited::default()) };
        let sockets = predecessor.sockets().context("taking over from the process before")?;
        // From where viewers go over there is no way back, so what fails is to fail here.
        super::check(config)?;
        config.reflect.access_log.as_deref().map(AccessLog::check).transpose().context("reflect.access_log")?;
        Ok(Inherited { predecessor: Some(predecessor), sockets, shared: Vec::new() })
    }

    /// Sockets that were there before.
    pub(super) fn sockets(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    /// A listener, which may have been there before.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(&mut self, setting: &str, addr: SocketAddr, only_v6: bool) -> anyhow::Result<TcpListener> {
        let opened = match self.sockets.take(setting, addr).map(std::net::TcpListener::from) {
            Some(listener) => listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)),
            None => door::listener(addr, only_v6),
        };
        let listener = opened.with_context(|| format!("{setting} {addr}"))?;
        self.shared.push(Socket::of(setting, addr, &listener)?);
        Ok(listener)
    }

    /// Sockets that the next process is to have, too.
    pub(super) fn share(&mut self, sockets: Vec<Socket>) {
        self.shared.extend(sockets);
    }

    /// Says that this process can take over, and waits until it is to. Nobody else needs what it did not take. Returned is what
    /// the next process is to have.
    ///
    /// # Errors
    /// When the process before does not go on.
    pub(super) fn ready(&mut self) -> anyhow::Result<Shared> {
        self.sockets = Sockets::default();
        if let Some(predecessor) = &self.predecessor {
            block_in_place(|| predecessor.ready()).context("taking over from the process before")?;
        }
        Ok(Arc::new(std::mem::take(&mut self.shared)))
    }

    /// Has the streams of the settings, with what there is of them; workers run.
    ///
    /// # Errors
    /// When a stream cannot be had, or the process before ends in between.
    pub(super) fn take_up(self, running: &Running, config: &Config) -> anyhow::Result<Silent> {
        let Some(predecessor) = self.predecessor else {
            running.reflect.apply(&config.reflect).context("reflect")?;
            return Ok(Silent::default());
        };
        let (mut streams, mut prepared, mut silent) = (Vec::new(), None, Silent::default());
        predecessor.run()?;
        while let Some(taken) = block_in_place(|| predecessor.take()).context("taking over from the process before")? {
            match taken {
                Taken::Stream(stream) => streams.push(stream),
                Taken::Viewers(viewers) => {
                    let coming = match &mut prepared {
                        Some(coming) => coming,
                        none => none.insert(
                            running
                                .reflect
                                .prepare(&config.reflect, std::mem::take(&mut streams))
                                .context("reflect")?,
                        ),
                    };
                    running.reflect.take_in(coming, viewers);
                }
                Taken::Silent(more) => silent.0.extend(more),
            }
        }
        let coming = match prepared {
            Some(coming) => coming,
            None => running.reflect.prepare(&config.reflect, streams).context("reflect")?,
        };
        predecessor.finish()?;
        let viewers = running.reflect.take_up(coming);
        tracing::info!(viewers, "this process has taken over");
        Ok(silent)
    }
}

/// Who was accepted by the process before and has said nothing, and the setting of the listener.
#[derive(Debug, Default)]
pub(super) struct Silent(Vec<(String, OwnedFd)>);

impl Silent {
    /// Gives a listener those who came there.
    pub(super) fn return_to(&mut self, opened: &mut Opened) {
        let setting = opened.setting();
        for (_, descriptor) in self.0.extract_if(.., |(other, _)| *other == setting) {
            let stream = std::net::TcpStream::from(descriptor);
            // One that cannot be had has left.
            if stream.set_nonblocking(true).is_ok() {
                TcpStream::from_std(stream).into_iter().for_each(|stream| opened.add_silent(stream));
            }
        }
    }
}

/// What listens, and may be closed.
pub(super) struct Doors {
    pub(super) open: watch::Sender<()>,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

impl Doors {
    /// None is open.
    pub(super) fn new() -> Self {
        Doors { open: watch::Sender::new(()), tasks: Vec::new() }
    }

    /// Lets in who comes to a listener.
    pub(super) fn open(&mut self, door: &Arc<Door>, opened: Opened, hosts: &Hosts) {
        self.tasks.push(tokio::spawn(door.clone().serve(opened, hosts.clone(), self.open.subscribe())));
    }

    /// Accepts nobody any more, and lets those who were say what they want. Returns who has said nothing.
    async fn close(self, door: &Door) -> Vec<(&'static str, TcpStream)> {
        drop(self.open);
        for task in self.tasks {
            // One that has panicked accepts nobody either.
            task.await.ok();
        }
        let until = Instant::now() + NEWCOMERS_MAX;
        while door.counters().newcomers > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        door.take_silent()
    }
}

/// Gives everything to another process, which is ready. Nobody is accepted here any more; who was and has said nothing comes
/// back if that fails.
pub(super) async fn hand_over(
    mut successor: Successor,
    running: &Running,
    doors: Doors,
    door: &Door,
) -> Result<Away, (Failed, Silent)> {
    let silent = doors.close(door).await;
    let failed = match give(&mut successor, running, &silent).await {
        Ok(away) => return Ok(away),
        Err(failed) => failed,
    };
    let back =
        silent.into_iter().filter_map(|(setting, stream)| Some((setting.to_owned(), stream.into_std().ok()?.into())));
    Err((failed, Silent(back.collect())))
}

async fn give(
    successor: &mut Successor,
    running: &Running,
    silent: &[(&'static str, TcpStream)],
) -> Result<Away, Failed> {
    if let Err(error) = block_in_place(|| successor.begin()) {
        return Err(Failed::Before(block_in_place(|| successor.end_because(error))));
    }
    let (id, began) = (successor.id(), Instant::now());
    let (mut away, given) = running.reflect.give_away(successor).await?;
    let taken = match given.and_then(|()| block_in_place(|| successor.give_silent(silent))) {
        Ok(()) => block_in_place(|| successor.finish()),
        Err(error) => Err(Failed::Before(block_in_place(|| successor.end_because(error)))),
    };
    let (viewers, streams, sources) = (away.viewers.len(), away.streams.len(), away.feeding.len());
    match taken {
        Ok(()) => {
            tell_main_process(id);
            // What was kept in case that it failed.
            (away.viewers, away.streams) = (Vec::new(), Vec::new());
            tracing::info!(successor = id, viewers, streams, sources, pause = ?began.elapsed(), "a new process has taken over");
            Ok(away)
        }
        Err(Failed::Before(error)) => {
            let taken =
                running.reflect.take_back(away).map_err(|back| Failed::Within(back.context(format!("{error:#}"))))?;
            tracing::warn!(viewers = taken, pause = ?began.elapsed(), "viewers go on here");
            Err(Failed::Before(error))
        }
        Err(within) => Err(within),
    }
}

/// Passes on what sources bring, until they end and who reads here still has read it, or this process is told to end.
pub(super) async fn pass_on(
    away: Away,
    running: &Running,
    connections: &Connections,
    ends: &mut Ends,
    wishes: &mut Wishes,
) {
    let all = async {
        for feeding in away.feeding {
            // It ends in this way.
            feeding.await.ok();
        }
        let until = Instant::now() + LAST_READS;
        // A viewer of HTTP's is gone when his connection has all that he gets, of which it may have much to write still.
        while (running.reflect.viewer_count() > 0 || connections.count() > 0) && Instant::now() < until {
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
