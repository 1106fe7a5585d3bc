//! A running server is replaced by a new one, and who watches a reflected stream notices nothing.
//!
//! In: SIGUSR2. Out: a process of the binary that is there now, which has the sockets, the streams and the connections of their
//! viewers; and the one before, which passes on what its sources bring until they end, and then ends too.
//!
//! 1. The old process starts the new one, with one end of a pair of sockets as its standard input, and shares its listeners and
//!    its workers' sockets with it. That reads its settings, opens what it has not got, and says that it is ready
//!    (`Successor::start`, `Successor::wait_until_ready`, `Predecessor::ready`).
//! 2. The old one accepts nobody any more: who comes meanwhile waits at a listener. The new one starts its workers
//!    (`Successor::begin`).
//! 3. Streams and viewers go over (`reflect::control`), some milliseconds for a thousand. The old process keeps all of it until
//!    the new one has said that it is its own now (`Successor::finish`); before, that touches none of it.
//! 4. The old one ends what cannot go over. What a source brings goes over by a socket of its own (`feed`).
//!
//! Each step has a time limit. Whatever goes wrong before the end of the third, the new process is ended, and the old one goes on
//! with what it had.

mod channel;
pub(crate) mod feed;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

#[cfg(test)]
pub(crate) use self::channel::FORMAT;
use self::channel::{Channel, DESCRIPTORS_MAX};
use crate::reflect::moved::{StreamRecord, ViewerRecord};

/// What says to a process that it has one before it: with this set, its standard input is the socket.
const VARIABLE: &str = "MILLRACE_UPGRADE";

/// A new process may take so long to read its settings and open its sockets.
const START_MAX: Duration = Duration::from_secs(20);

/// Each further step. Viewers may be waiting.
const STEP_MAX: Duration = Duration::from_secs(5);

/// Messages that the other process need not have answered before the next one: it is about one while others come.
const AHEAD_MAX: usize = 8;

/// One that is no longer heard of may be about to end by itself, and that says more than being killed.
const END_MAX: Duration = Duration::from_millis(200);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(5);

/// What the old process says.
#[derive(Debug, Serialize, Deserialize)]
enum FromOld {
    /// Sockets, which come with this: what asks for each, and its address as it is configured.
    Sockets { named: Vec<(String, SocketAddr)>, are_all: bool },
    /// It accepts nobody any more.
    Begin,
    /// A stream, with its file and the end of a feed, if there is one.
    Stream(StreamRecord),
    /// Viewers, with their connections.
    Viewers(Vec<ViewerRecord>),
    /// Connections that have said nothing, by the settings of their listeners.
    Silent(Vec<String>),
    /// That was all.
    Done,
}

/// What the new process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum FromNew {
    /// Its settings can be, and its sockets are open.
    Ready,
    /// Its workers run.
    Running,
    /// It has what was sent last.
    Got,
    /// It has all, and serves viewers from here on.
    TakenOver,
}

/// A socket that a process shares with the next, by what asks for it, as a setting, and the address.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    pub(crate) descriptor: OwnedFd,
}

impl Socket {
    /// One more reference to a listener.
    pub(crate) fn of(setting: &str, addr: SocketAddr, listener: &tokio::net::TcpListener) -> io::Result<Self> {
        Ok(Socket { name: setting.into(), addr, descriptor: listener.as_fd().try_clone_to_owned()? })
    }
}

/// Sockets of the process before, each to be taken once.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Vec<Socket>);

impl Sockets {
    /// What asks for it, if it was there before. Of several that are alike the first.
    pub(crate) fn take(&mut self, name: &str, addr: SocketAddr) -> Option<OwnedFd> {
        let index = self.0.iter().position(|other| other.name == name && other.addr == addr)?;
        Some(self.0.remove(index).descriptor)
    }
}

/// Why a process did not take over.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It has touched nothing, and this one can go on.
    Before(anyhow::Error),
    /// Neither can go on.
    Within(anyhow::Error),
}

/// The process that takes over from this one. Dropped before its time, it ends.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
    child: Option<Child>,
    /// Messages that it has not said to have got.
    owed: usize,
}

impl Successor {
    /// Starts a process with this one's arguments and environment. Its workers have the calling thread's priority, so that is
    /// not to be one of control, which is modest.
    ///
    /// # Errors
    /// When there is no such binary, or no process is to be had.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut arguments = std::env::args_os();
        let program = arguments.next().context("this process has no name")?;
        let (channel, other) = Channel::pair().context("a pair of sockets")?;
        let mut command = Command::new(&program);
        command.args(arguments).env(VARIABLE, "stdin").stdin(Stdio::from(other));
        let child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        // The other end is the child's alone from here on.
        drop(command);
        Ok(Successor { channel, child: Some(child), owed: 0 })
    }

    /// Shares this one's sockets with it, and waits until it is ready. Blocks.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn wait_until_ready(mut self, sockets: &[Socket]) -> anyhow::Result<Self> {
        match self.give_sockets(sockets).and_then(|()| self.hear(FromNew::Ready, START_MAX)) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.end_because(error)),
        }
    }

    fn give_sockets(&self, sockets: &[Socket]) -> anyhow::Result<()> {
        // At least one message, and one is the last.
        let (mut rest, mut are_all) = (sockets, false);
        while !are_all {
            let (some, others) = rest.split_at(rest.len().min(DESCRIPTORS_MAX));
            (rest, are_all) = (others, others.is_empty());
            let named = some.iter().map(|socket| (socket.name.clone(), socket.addr)).collect();
            let descriptors: Vec<_> = some.iter().map(|socket| socket.descriptor.as_fd()).collect();
            self.channel.send(&FromOld::Sockets { named, are_all }, &descriptors, STEP_MAX)?;
        }
        Ok(())
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Tells it that nobody is accepted here any more, and waits until its workers run. Blocks.
    ///
    /// # Errors
    /// When they do not.
    pub(crate) fn begin(&self) -> anyhow::Result<()> {
        self.channel.send(&FromOld::Begin, &[], STEP_MAX)?;
        self.hear(FromNew::Running, START_MAX).context("its workers")
    }

    /// Gives it a stream. Blocks.
    ///
    /// # Errors
    /// When it does not take it.
    pub(crate) fn give_stream(&mut self, stream: &TakenStream) -> anyhow::Result<()> {
        let TakenStream { record, file, feed } = stream;
        let descriptors: Vec<_> = [file.as_fd()].into_iter().chain(feed.as_ref().map(OwnedFd::as_fd)).collect();
        self.give(&FromOld::Stream(record.clone()), &descriptors).context("a stream")
    }

    /// Gives it viewers, each with a connection. Blocks.
    ///
    /// # Errors
    /// When it does not take them.
    pub(crate) fn give_viewers(&mut self, viewers: &[(ViewerRecord, OwnedFd)]) -> anyhow::Result<()> {
        for some in viewers.chunks(DESCRIPTORS_MAX) {
            let records = some.iter().map(|(record, _)| record.clone()).collect();
            let descriptors: Vec<_> = some.iter().map(|(_, descriptor)| descriptor.as_fd()).collect();
            self.give(&FromOld::Viewers(records), &descriptors).context("viewers")?;
        }
        Ok(())
    }

    /// Gives it connections that were accepted and have said nothing, each with the setting of its listener. Blocks.
    ///
    /// # Errors
    /// When it does not take them.
    pub(crate) fn give_silent(&mut self, silent: &[(&'static str, TcpStream)]) -> anyhow::Result<()> {
        for some in silent.chunks(DESCRIPTORS_MAX) {
            let settings = some.iter().map(|(setting, _)| (*setting).to_owned()).collect();
            let descriptors: Vec<_> = some.iter().map(|(_, stream)| stream.as_fd()).collect();
            self.give(&FromOld::Silent(settings), &descriptors).context("newcomers")?;
        }
        Ok(())
    }

    /// Tells it that this was all, and leaves it alone when it has taken over.
    ///
    /// # Errors
    /// When it does not; then it is ended.
    pub(crate) fn finish(&mut self) -> Result<(), Failed> {
        let said = self.channel.send(&FromOld::Done, &[], STEP_MAX).map_err(anyhow::Error::from);
        let got = said.and_then(|()| self.hear_of(0));
        if let Err(error) = got.and_then(|()| self.hear(FromNew::TakenOver, STEP_MAX)) {
            let error = self.end_because(error);
            // It may have said so just before it was ended, and then nobody knows what it has sent.
            let has_begun = self.hear(FromNew::TakenOver, Duration::from_millis(1)).is_ok();
            return Err(if has_begun { Failed::Within(error) } else { Failed::Before(error) });
        }
        if let Some(mut child) = self.child.take() {
            // This process may be there for longer, and nobody else hears how its child ends. Without a thread init does, later.
            std::thread::Builder::new().name("successor".into()).spawn(move || child.wait()).ok();
        }
        Ok(())
    }

    /// Ends it. Returns the error with what became of it: why it has ended itself is in the log. Blocks.
    pub(crate) fn end_because(&mut self, error: anyhow::Error) -> anyhow::Error {
        let status = self.ended_by_itself();
        self.end();
        let error = match status {
            Some(status) => error.context(format!("it has ended ({status})")),
            None => error,
        };
        error.context("the new process does not take over")
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// How it has ended, if it does within a moment.
    fn ended_by_itself(&mut self) -> Option<ExitStatus> {
        let (child, until) = (self.child.as_mut()?, Instant::now() + END_MAX);
        loop {
            match child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    fn give(&mut self, value: &FromOld, descriptors: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        self.channel.send(value, descriptors, STEP_MAX)?;
        self.owed += 1;
        self.hear_of(AHEAD_MAX)
    }

    /// Waits until it has got all but so many messages.
    fn hear_of(&mut self, owed_max: usize) -> anyhow::Result<()> {
        while self.owed > owed_max {
            self.hear(FromNew::Got, STEP_MAX)?;
            self.owed -= 1;
        }
        Ok(())
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
        self.end();
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
    pub(crate) file: Arc<File>,
    pub(crate) feed: Option<OwnedFd>,
}

/// What the process before gives at a time.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A stream. All come before the first viewers.
    Stream(TakenStream),
    /// Viewers, with their connections.
    Viewers(Vec<(ViewerRecord, OwnedFd)>),
    /// Who has said nothing, and at which setting's listener he was accepted.
    Silent(Vec<(String, OwnedFd)>),
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

    /// Takes the sockets that it shares. Blocks.
    ///
    /// # Errors
    /// When it does not say which.
    pub(crate) fn sockets(&self) -> anyhow::Result<Sockets> {
        let mut sockets = Vec::new();
        loop {
            let (FromOld::Sockets { named, are_all }, descriptors) = self.channel.receive(STEP_MAX)? else {
                bail!("the process before shares no sockets")
            };
            let socket = |((name, addr), descriptor)| Socket { name, addr, descriptor };
            sockets.extend(named.into_iter().zip(descriptors).map(socket));
            if are_all {
                return Ok(Sockets(sockets));
            }
        }
    }

    /// Says that this process can take over, and waits until it is to. Blocks.
    ///
    /// # Errors
    /// When the other process does not go on.
    pub(crate) fn ready(&self) -> anyhow::Result<()> {
        self.say(FromNew::Ready)?;
        match self.channel.receive(START_MAX)? {
            (FromOld::Begin, _) => Ok(()),
            (said, _) => bail!("the process before does not begin: {said:?}"),
        }
    }

    /// Says that workers run: what there is may come.
    ///
    /// # Errors
    /// When the other process is gone.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.say(FromNew::Running)
    }

    /// What comes next; `None`: that was all. Each is asked for when the one before is done with. Blocks.
    ///
    /// # Errors
    /// When the other process ends in between.
    pub(crate) fn take(&self) -> anyhow::Result<Option<Taken>> {
        let (said, descriptors) = self.channel.receive::<FromOld>(STEP_MAX)?;
        let mut descriptors = descriptors.into_iter();
        let taken = match said {
            FromOld::Stream(record) => {
                let file = Arc::new(File::from(descriptors.next().context("a stream without a file")?));
                Taken::Stream(TakenStream { record, file, feed: descriptors.next() })
            }
            FromOld::Viewers(records) => Taken::Viewers(records.into_iter().zip(descriptors).collect()),
            FromOld::Silent(settings) => Taken::Silent(settings.into_iter().zip(descriptors).collect()),
            FromOld::Done => return Ok(None),
            FromOld::Sockets { .. } | FromOld::Begin => bail!("the process before begins again"),
        };
        self.say(FromNew::Got)?;
        Ok(Some(taken))
    }

    /// Says that all of it is this process's own from now on.
    ///
    /// # Errors
    /// When the other one is gone.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        self.say(FromNew::TakenOver)
    }

    fn say(&self, what: FromNew) -> anyhow::Result<()> {
        Ok(self.channel.send(&what, &[], STEP_MAX)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What does not read what is written today is another format, and has another number.
    #[test]
    fn what_goes_over_is_written_as_its_format_says() {
        let sockets =
            FromOld::Sockets { named: vec![("http.listen".into(), ([127, 0, 0, 1], 80).into())], are_all: true };
        let written = [postcard::to_allocvec(&sockets), postcard::to_allocvec(&FromOld::Done)]
            .map(|bytes| bytes.expect("written"));
        assert_eq!(
            (channel::FORMAT, written[0].as_slice()),
            (2, &b"\x00\x01\x0bhttp.listen\x00\x7f\x00\x00\x01\x50\x01"[..])
        );
        assert_eq!(written[1], [5]);
    }

    #[test]
    fn a_socket_is_taken_once_and_of_those_that_are_alike_the_first() {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind(addr).expect("loopback"));
        let ports = listeners.each_ref().map(|listener| listener.local_addr().expect("bound").port());
        let socket = |listener: std::net::TcpListener| Socket { name: "a".into(), addr, descriptor: listener.into() };
        let mut sockets = Sockets(listeners.into_iter().map(socket).collect());
        assert!(sockets.take("b", addr).is_none());
        for port in ports {
            let taken = std::net::TcpListener::from(sockets.take("a", addr).expect("it is there"));
            assert_eq!(taken.local_addr().expect("bound").port(), port);
        }
        assert!(sockets.take("a", addr).is_none());
    }
}
