//! A thread that plays the receivers of many sessions, on one socket or on a socket for each.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Messages, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use engine::sys::{Epoll, Interest};

use super::original::Original;
use super::receive::{Arrival, Batch};
use super::watch::{Seen, Times, Watch};
use crate::clients::Addresses;

/// How often it looks for messages at least.
const LOOK: Duration = Duration::from_millis(20);

/// Batches from one socket before the next has its turn.
const BATCHES_MAX: usize = 8;

/// How sessions are told apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    /// All are sent to one port, each to an address of its own.
    Address(Addresses),
    /// Each has a socket.
    Socket,
}

enum Message {
    Reset,
    Report(SyncSender<Totals>),
}

/// What one thread's sessions saw.
pub(super) struct Totals {
    pub(super) seen: Vec<Seen>,
    pub(super) times: Times,
    /// Messages for which there was no room in the sockets.
    pub(super) dropped: u64,
}

/// The running thread. It ends when this is dropped.
pub(super) struct Receiver {
    messages: Option<SyncSender<Message>>,
    begun: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Receiver {
    /// Starts it; with an `original` the watches that compare compare with that.
    pub(super) fn start(
        sockets: Vec<UdpSocket>,
        by: By,
        watches: Vec<Watch>,
        original: Option<Arc<Original>>,
    ) -> Result<Self> {
        let epoll = Epoll::new(256).context("open an epoll set")?;
        for (index, socket) in sockets.iter().enumerate() {
            epoll.add(socket.as_fd(), index as u64, Interest::Read).context("wait for a socket")?;
        }
        let (messages, asked) = sync_channel(4);
        let begun = Arc::new(AtomicU64::new(0));
        let mut play = Play {
            by,
            dropped: vec![(0, 0); sockets.len()],
            sockets,
            watches,
            original,
            times: Times::new(),
            begun: Arc::clone(&begun),
        };
        let thread = thread::Builder::new().name("receiver".into()).spawn(move || play.run(epoll, &asked));
        let thread = Some(thread.context("start a thread")?);
        Ok(Receiver { messages: Some(messages), begun, thread })
    }

    /// Sessions of which something has arrived.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// The warm-up is over.
    pub(super) fn reset(&self) -> Result<()> {
        self.tell(Message::Reset)
    }

    pub(super) fn totals(&self) -> Result<Totals> {
        let (reply, totals) = sync_channel(1);
        self.tell(Message::Report(reply))?;
        totals.recv_timeout(Duration::from_secs(30)).context("the receiving thread does not answer")
    }

    fn tell(&self, message: Message) -> Result<()> {
        let told = self.messages.as_ref().map(|messages| messages.send(message));
        told.and_then(Result::ok).context("the receiving thread has ended")
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.messages = None;
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("a receiving thread ended: {error:#}");
        }
    }
}

struct Play {
    sockets: Vec<UdpSocket>,
    by: By,
    watches: Vec<Watch>,
    original: Option<Arc<Original>>,
    times: Times,
    /// Of each socket: drops since it was opened, and when the counting began.
    dropped: Vec<(u32, u32)>,
    begun: Arc<AtomicU64>,
}

impl Play {
    fn run(&mut self, mut epoll: Epoll, messages: &Messages<Message>) -> Result<()> {
        let mut batch = Batch::new();
        loop {
            epoll.wait(Some(LOOK)).context("wait for datagrams")?;
            for index in 0..epoll.ready_count() {
                if let Some(ready) = epoll.ready(index) {
                    self.receive(ready.token as usize, &mut batch)?;
                }
            }
            match messages.try_recv() {
                Ok(Message::Reset) => self.reset(),
                // Nobody listens any more: then nobody needs it.
                Ok(Message::Report(reply)) => drop(reply.send(self.totals())),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn receive(&mut self, index: usize, batch: &mut Batch) -> Result<()> {
        let Play { sockets, by, watches, original, times, dropped, begun } = self;
        for _ in 0..BATCHES_MAX {
            let filled = batch.fill(&sockets[index], |Arrival { at_ns, local, datagram }| {
                let session = match by {
                    By::Address(addresses) => local.and_then(|local| addresses.client(IpAddr::V4(local))),
                    By::Socket => u32::try_from(index).ok(),
                };
                // What is none of ours was sent here by mistake.
                let Some(watch) = session.and_then(|session| watches.get_mut(session as usize)) else { return };
                begun.fetch_add(u64::from(!watch.has_begun()), Ordering::Relaxed);
                watch.take(at_ns, datagram, original.as_deref(), times);
            });
            let filled = filled.context("receive")?;
            dropped[index].0 = filled.dropped.unwrap_or(dropped[index].0);
            if !filled.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.watches.iter_mut().for_each(Watch::reset);
        self.times.reset();
        self.dropped.iter_mut().for_each(|(now, before)| *before = *now);
    }

    fn totals(&mut self) -> Totals {
        let mut times = std::mem::replace(&mut self.times, Times::new());
        Totals {
            seen: self.watches.iter_mut().map(|watch| watch.finish(&mut times)).collect(),
            times,
            dropped: self.dropped.iter().map(|(now, before)| u64::from(now.wrapping_sub(*before))).sum(),
        }
    }
}
