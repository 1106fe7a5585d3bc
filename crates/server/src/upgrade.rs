//! A running server is replaced by a new one, and who watches a reflected stream notices nothing.
//!
//! In: SIGUSR2. Out: a process of the binary that is there now, which has the listeners, the streams and the connections of their
//! viewers; and the one before, which passes on what its sources bring until they end, and then ends too.
//!
//! 1. The old process starts the new one, with one end of a pair of sockets as its standard input. That reads its settings, and
//!    says that it is ready (`Successor::start`, `Predecessor::ready`); one that does not is forgotten.
//! 2. The old one accepts nobody any more, ends what cannot go over and closes its sockets; its TCP listeners go over, so that
//!    who comes meanwhile waits. The new one opens its sockets and starts its workers (`Successor::begin`).
//! 3. Streams and viewers go over (`reflect::control`), some milliseconds for a thousand.
//! 4. What a source brings goes over by a socket of its own (`feed`).
//!
//! Each step has a time limit. Up to the third one the old process can go on as if nothing had been.

mod channel;
pub(crate) mod feed;
mod notify;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use self::channel::{Channel, DESCRIPTORS_MAX};
use crate::reflect::moved::{StreamRecord, ViewerRecord};
pub(crate) use notify::{tell_main_process, tell_ready};

/// What says to a process that it has one before it: with this set, its standard input is the socket.
const VARIABLE: &str = "MILLRACE_UPGRADE";

/// A new process may take so long to read its settings.
const START_MAX: Duration = Duration::from_secs(20);

/// The old one may take so long to say goodbye to those who cannot go over.
const GOODBYE_MAX: Duration = Duration::from_secs(30);

/// The new one may take so long to open its sockets and start its threads.
const RUN_MAX: Duration = Duration::from_secs(20);

/// Each further step.
const STEP_MAX: Duration = Duration::from_secs(10);

/// What the old process says.
#[derive(Debug, Serialize, Deserialize)]
enum FromOld {
    /// It accepts nobody any more. Its listeners come with this: settings and addresses, as they are configured.
    Begin { listeners: Vec<(String, SocketAddr)> },
    /// A stream, with its file and the end of a feed, if there is one.
    Stream(StreamRecord),
    /// Viewers, with their connections.
    Viewers(Vec<ViewerRecord>),
    /// That was all.
    Done,
}

/// What the new process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FromNew {
    /// Its settings can be.
    Ready,
    /// Its workers run.
    Running,
    /// It has what was sent last.
    Got,
}

/// A listener of a process, by the setting and the address that ask for it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) setting: String,
    pub(crate) addr: SocketAddr,
    pub(crate) descriptor: OwnedFd,
}

impl Listener {
    /// One more reference to it.
    pub(crate) fn of(setting: &str, addr: SocketAddr, listener: &tokio::net::TcpListener) -> io::Result<Self> {
        Ok(Listener { setting: setting.into(), addr, descriptor: listener.as_fd().try_clone_to_owned()? })
    }
}

/// Listeners of the process before, each to be taken once.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Listener>);

impl Listeners {
    /// What a setting asks for, if it was there before.
    pub(crate) fn take(&mut self, setting: &str, addr: SocketAddr) -> Option<OwnedFd> {
        let index = self.0.iter().position(|other| other.setting == setting && other.addr == addr)?;
        Some(self.0.swap_remove(index).descriptor)
    }
}

/// The process that takes over from this one. Dropped before its time, it ends.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
    child: Option<Child>,
}

impl Successor {
    /// Starts a process with this one's arguments and environment, and waits until it is ready. Blocks.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut arguments = std::env::args_os();
        let program = arguments.next().context("this process has no name")?;
        let (channel, other) = Channel::pair().context("a pair of sockets")?;
        let mut command = Command::new(&program);
        command.args(arguments).env(VARIABLE, "stdin").stdin(Stdio::from(other));
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        // The other end is the child's alone from here on.
        drop(command);
        let successor = Successor { channel, child: Some(child) };
        successor.hear(FromNew::Ready, START_MAX).context("the new process did not get ready")?;
        Ok(successor)
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Gives it the listeners, and waits until its workers run. Blocks.
    ///
    /// # Errors
    /// When they do not.
    pub(crate) fn begin(&self, listeners: &[Listener]) -> anyhow::Result<()> {
        let names = listeners.iter().map(|listener| (listener.setting.clone(), listener.addr)).collect();
        let descriptors: Vec<_> = listeners.iter().map(|listener| listener.descriptor.as_fd()).collect();
        self.channel.send(&FromOld::Begin { listeners: names }, &descriptors, STEP_MAX).context("listeners")?;
        self.hear(FromNew::Running, RUN_MAX).context("the new process did not start its workers")
    }

    /// Gives it a stream: its file, and what a source's bytes come from. Blocks.
    ///
    /// # Errors
    /// When it does not take it.
    pub(crate) fn give_stream(
        &self,
        record: StreamRecord,
        file: &File,
        feed: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<()> {
        let descriptors: Vec<_> = [file.as_fd()].into_iter().chain(feed).collect();
        self.give(&FromOld::Stream(record), &descriptors)
    }

    /// Gives it viewers, each with a connection. Blocks.
    ///
    /// # Errors
    /// When it does not take them.
    pub(crate) fn give_viewers(&self, mut viewers: Vec<(ViewerRecord, OwnedFd)>) -> anyhow::Result<()> {
        while !viewers.is_empty() {
            let rest = viewers.split_off(viewers.len().min(DESCRIPTORS_MAX));
            let (records, descriptors): (Vec<_>, Vec<OwnedFd>) =
                std::mem::replace(&mut viewers, rest).into_iter().unzip();
            let descriptors: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
            self.give(&FromOld::Viewers(records), &descriptors)?;
        }
        Ok(())
    }

    /// Tells it that it has everything, and leaves it alone.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.give(&FromOld::Done, &[])?;
        if let Some(mut child) = self.child.take() {
            // This process may be there for longer, and nobody else hears how its child ends.
            std::thread::Builder::new().name("successor".into()).spawn(move || child.wait()).context("a thread")?;
        }
        Ok(())
    }

    fn give(&self, value: &FromOld, descriptors: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        self.channel.send(value, descriptors, STEP_MAX)?;
        self.hear(FromNew::Got, STEP_MAX)
    }

    fn hear(&self, expected: FromNew, time_max: Duration) -> anyhow::Result<()> {
        match self.channel.receive::<FromNew>(time_max)? {
            (said, _) if said == expected => Ok(()),
            (said, _) => bail!("it says {said:?} instead of {expected:?}"),
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// The process that this one takes over from.
#[derive(Debug)]
pub(crate) struct Predecessor {
    channel: Channel,
}

/// A stream of the process before.
#[derive(Debug)]
pub(crate) struct TakenStream {
    pub(crate) record: StreamRecord,
    pub(crate) file: File,
    pub(crate) feed: Option<OwnedFd>,
}

/// What the process before had.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) streams: Vec<TakenStream>,
    pub(crate) viewers: Vec<(ViewerRecord, OwnedFd)>,
}

impl Predecessor {
    /// The one that started this process to take over, if one did.
    ///
    /// # Errors
    /// When the standard input is not what it should be.
    pub(crate) fn find() -> anyhow::Result<Option<Self>> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let socket = io::stdin().as_fd().try_clone_to_owned().context("the standard input")?;
        rustix::net::getpeername(&socket)
            .with_context(|| format!("{VARIABLE} is set, and the standard input is no socket"))?;
        let nothing = File::open("/dev/null").context("/dev/null")?;
        rustix::stdio::dup2_stdin(nothing).context("the standard input")?;
        Ok(Some(Predecessor { channel: Channel::of(socket) }))
    }

    /// Says that the settings can be, and waits for the listeners. Blocks.
    ///
    /// # Errors
    /// When the other process does not go on.
    pub(crate) fn ready(&self) -> anyhow::Result<Listeners> {
        self.say(FromNew::Ready)?;
        let (FromOld::Begin { listeners }, descriptors) = self.channel.receive(START_MAX + GOODBYE_MAX)? else {
            bail!("the process before gives no listeners")
        };
        if listeners.len() != descriptors.len() {
            bail!("the process before gives {} listeners, and {} descriptors", listeners.len(), descriptors.len());
        }
        let listener = |((setting, addr), descriptor)| Listener { setting, addr, descriptor };
        Ok(Listeners(listeners.into_iter().zip(descriptors).map(listener).collect()))
    }

    /// Says that workers run, and takes all that there is. Blocks.
    ///
    /// # Errors
    /// When the other process ends in between.
    pub(crate) fn take(&self) -> anyhow::Result<Taken> {
        self.say(FromNew::Running)?;
        let mut taken = Taken::default();
        loop {
            let (said, descriptors) = self.channel.receive::<FromOld>(STEP_MAX)?;
            let mut descriptors = descriptors.into_iter();
            match said {
                FromOld::Stream(record) => {
                    let file = File::from(descriptors.next().context("a stream without a file")?);
                    taken.streams.push(TakenStream { record, file, feed: descriptors.next() });
                }
                FromOld::Viewers(records) => taken.viewers.extend(records.into_iter().zip(descriptors)),
                FromOld::Done => return Ok(taken),
                FromOld::Begin { .. } => bail!("the process before begins again"),
            }
            self.say(FromNew::Got)?;
        }
    }

    /// Says that all is taken up: the other process is needed no more.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.say(FromNew::Got)
    }

    fn say(&self, what: FromNew) -> anyhow::Result<()> {
        Ok(self.channel.send(&what, &[], STEP_MAX)?)
    }
}
