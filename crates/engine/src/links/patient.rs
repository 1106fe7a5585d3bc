//! Sockets for what can wait: they wake nobody as long as they are looked at anyway.
//!
//! In: what comes by the second socket of a port (`UdpSocket::beside`), the time. Out: when to look at which.
//! What comes first after a silence wakes the worker at once. From then on a patient socket is not watched but looked at: with
//! other work when half of its patience is over, by itself when all of it is, until a look finds nothing. One that found much
//! makes it a quarter, as the kernel has to hold what waits. While somebody waits for an answer it is an eighth, and
//! no time at all with other work.
//! Cost: one receive call for a look, and one `epoll_ctl` for the first that finds nothing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use wire::LinkId;

use super::{Body, Link, Links};
use crate::udp::UdpSocket;

/// The patient sockets of a worker: a few at most.
#[derive(Default)]
pub(crate) struct PatientSockets {
    /// Zero: there are none.
    pub(crate) patience: Duration,
    sockets: Vec<Patient>,
}

struct Patient {
    link: LinkId,
    /// The other socket of the port. What comes here is told as if it had come there, and answers leave by it.
    first: LinkId,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// The kernel tells of the next that comes.
    Watched,
    /// Something is there.
    Ready,
    /// Something was there then, and what comes now can wait for so long.
    Looked { at: Instant, patience: Duration },
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Found {
    Nothing,
    Something,
    /// More than one batch.
    Much,
    /// More than was taken.
    More,
}

impl PatientSockets {
    pub(crate) fn new(patience: Duration) -> Self {
        PatientSockets { patience, sockets: Vec::new() }
    }

    /// Notes that the kernel has told of one; false when it is none of these.
    pub(crate) fn wake(&mut self, link: LinkId) -> bool {
        let socket = self.sockets.iter_mut().find(|socket| socket.link == link);
        socket.is_some_and(|socket| {
            socket.state = State::Ready;
            true
        })
    }

    /// The link that a socket's datagrams are told of with: its own, but for patient ones.
    pub(crate) fn named(&self, link: LinkId) -> LinkId {
        self.sockets.iter().find(|socket| socket.link == link).map_or(link, |socket| socket.first)
    }

    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// The socket of this number, if it is time to look at it when there is work anyway.
    pub(crate) fn due(&self, now: Instant, index: usize, is_awaited: bool) -> Option<LinkId> {
        let socket = self.sockets.get(index)?;
        let is_due = match socket.state {
            State::Watched => false,
            State::Ready => true,
            State::Looked { at, patience } => now + self.patience / 2 >= at + self.shortened(patience, is_awaited),
        };
        is_due.then_some(socket.link)
    }

    /// When one is to be looked at though there is nothing else to do.
    pub(crate) fn next_look(&self, now: Instant, is_awaited: bool) -> Option<Instant> {
        let look = |socket: &Patient| match socket.state {
            State::Watched => None,
            State::Ready => Some(now),
            State::Looked { at, patience } => Some(at + self.shortened(patience, is_awaited)),
        };
        self.sockets.iter().filter_map(look).min()
    }

    fn shortened(&self, patience: Duration, is_awaited: bool) -> Duration {
        if is_awaited { patience.min(self.patience / 8) } else { patience }
    }

    fn second_of(&self, first: LinkId) -> Option<LinkId> {
        self.sockets.iter().find(|socket| socket.first == first).map(|socket| socket.link)
    }

    /// Forgets the socket beside that one.
    pub(super) fn take_second_of(&mut self, first: LinkId) -> Option<LinkId> {
        let index = self.sockets.iter().position(|socket| socket.first == first)?;
        Some(self.sockets.swap_remove(index).link)
    }
}

impl Links {
    /// Takes in the second socket of the port that the link has.
    pub(crate) fn add_patient(&mut self, first: LinkId, second: UdpSocket) -> io::Result<()> {
        let token = self.udp(first).ok_or(io::ErrorKind::NotFound)?.0;
        let link = self.insert(token, Body::Udp(second))?;
        self.patient.sockets.push(Patient { link, first, state: State::Watched });
        self.watch_once(link)
    }

    /// One more reference to the second socket of a link's port, if it has one.
    pub(crate) fn share_patient(&mut self, first: LinkId) -> io::Result<Option<OwnedFd>> {
        self.patient.second_of(first).map(|link| self.share(link)).transpose()
    }

    /// Notes what a look has found. What comes after a look that found nothing is told by the kernel.
    pub(crate) fn end_look(&mut self, now: Instant, link: LinkId, found: Found) {
        let patience = self.patient.patience;
        let state = match found {
            Found::Nothing => match self.watch_once(link) {
                Ok(()) => State::Watched,
                Err(error) => {
                    tracing::error!(%error, ?link, "a patient socket cannot be watched");
                    State::Looked { at: now, patience }
                }
            },
            Found::Something => State::Looked { at: now, patience },
            Found::Much => State::Looked { at: now, patience: patience / 4 },
            Found::More => State::Ready,
        };
        if let Some(socket) = self.patient.sockets.iter_mut().find(|socket| socket.link == link) {
            socket.state = state;
        }
    }

    fn watch_once(&self, link: LinkId) -> io::Result<()> {
        self.table.get(link).map_or(Ok(()), |Link { body, .. }| self.epoll.watch_once(body.as_fd(), link.to_bits()))
    }
}
