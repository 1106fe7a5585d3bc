//! A thread that plays the receivers of many sessions, on one socket or on a socket for each.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Questions, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use engine::sys::{Epoll, Interest};

use super::original::Original;
use super::receive::{Arrival, Batch};
use super::watch::{Arrivals, Seen, Watch};
use crate::clients::Addresses;

/// How often it looks for questions at least.
const LOOK: Duration = Duration::from_millis(20);

/// How long it may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Batches from one socket before the next has its turn.
const BATCHES_MAX: usize = 8;

/// What is done with what a thread has, where it stands between two batches.
type Question = Box<dyn FnOnce(&mut Play) + Send>;

/// What one thread's sessions saw.
pub(super) struct Totals {
    pub(super) seen: Vec<Seen>,
    pub(super) times: Arrivals,
    /// Messages for which there was no room in the sockets.
    pub(super) dropped: u64,
}

/// The running thread. It ends when this is dropped.
pub(super) struct Receiver {
    questions: SyncSender<Question>,
}

impl Receiver {
    /// Starts it. With `addresses` all sessions are sent to one port, each to an address of its own; otherwise each has a
    /// socket. With an `original` the watches that compare compare with that.
    pub(super) fn start(
        sockets: Vec<UdpSocket>,
        addresses: Option<Addresses>,
        watches: Vec<Watch>,
        original: Option<Arc<Original>>,
    ) -> Result<Self> {
        let epoll = Epoll::new(256).context("open an epoll set")?;
        for (index, socket) in sockets.iter().enumerate() {
            epoll.add(socket.as_fd(), index as u64, Interest::READ).context("wait for a socket")?;
        }
        let (questions, asked) = sync_channel(4);
        let (times, dropped) = (Arrivals::default(), vec![(0, 0); sockets.len()]);
        let mut play = Play { sockets, addresses, watches, original, times, dropped };
        let run = move || {
            if let Err(error) = play.run(epoll, &asked) {
                eprintln!("a receiving thread ended: {error:#}");
            }
        };
        thread::Builder::new().name("receiver".into()).spawn(run).context("start a thread")?;
        Ok(Receiver { questions })
    }

    /// Sessions of which something has arrived.
    pub(super) fn begun(&self) -> Result<usize> {
        self.ask(|play| play.watches.iter().filter(|watch| watch.has_begun()).count())
    }

    /// The warm-up is over.
    pub(super) fn reset(&self) -> Result<()> {
        self.ask(Play::reset)
    }

    pub(super) fn totals(&self) -> Result<Totals> {
        self.ask(Play::totals)
    }

    fn ask<T: Send + 'static>(&self, what: fn(&mut Play) -> T) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        // Nobody listens any more: then nobody needs it.
        let question: Question = Box::new(move |play| drop(reply.send(what(play))));
        self.questions.send(question).ok().context("the receiving thread has ended")?;
        answer.recv_timeout(PATIENCE).context("the receiving thread does not answer")
    }
}

struct Play {
    sockets: Vec<UdpSocket>,
    addresses: Option<Addresses>,
    watches: Vec<Watch>,
    original: Option<Arc<Original>>,
    times: Arrivals,
    /// Of each socket: drops since it was opened, and when the counting began.
    dropped: Vec<(u32, u32)>,
}

impl Play {
    fn run(&mut self, mut epoll: Epoll, questions: &Questions<Question>) -> Result<()> {
        let mut batch = Batch::new();
        loop {
            epoll.wait(Some(LOOK)).context("wait for datagrams")?;
            for index in 0..epoll.ready_count() {
                if let Some(ready) = epoll.ready(index) {
                    self.receive(ready.token as usize, &mut batch)?;
                }
            }
            match questions.try_recv() {
                Ok(question) => question(self),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn receive(&mut self, index: usize, batch: &mut Batch) -> Result<()> {
        let Play { sockets, addresses, watches, original, times, dropped } = self;
        for _ in 0..BATCHES_MAX {
            let filled = batch.fill(&sockets[index], |Arrival { at_ns, local, datagram }| {
                let session = match addresses {
                    Some(addresses) => local.and_then(|local| addresses.client(local.into())),
                    None => Some(index),
                };
                // What is none of ours was sent here by mistake.
                let Some(watch) = session.and_then(|session| watches.get_mut(session)) else { return };
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
        self.times = Arrivals::default();
        self.dropped.iter_mut().for_each(|(now, before)| *before = *now);
    }

    fn totals(&mut self) -> Totals {
        let mut times = std::mem::take(&mut self.times);
        Totals {
            seen: self.watches.iter_mut().map(|watch| watch.finish(&mut times)).collect(),
            times,
            dropped: self.dropped.iter().map(|(now, before)| u64::from(now.wrapping_sub(*before))).sum(),
        }
    }
}
