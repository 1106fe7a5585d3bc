//! A TCP listener, and how many of its connections are open.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use wire::{ListenOptions, StreamOptions};

use super::strangers::Strangers;
use crate::sys;

pub(crate) struct Listener {
    socket: TcpListener,
    local: SocketAddr,
    links_max: usize,
    /// Connections that it brought and that are open.
    pub(super) links: usize,
    /// Those of them to which nothing was sent yet, and whose the others are, where they have limits.
    pub(super) strangers: Strangers,
    stream: Arc<StreamOptions>,
}

/// What accepting came to.
pub(super) enum Accepted {
    Connection(TcpStream, SocketAddr, Arc<StreamOptions>),
    Nobody,
    /// One connection failed before it was accepted; the next may be well.
    Aborted,
    /// No descriptors or memory are left, or the socket cannot accept. It would wake us again at once.
    Trouble(io::Error),
}

impl Listener {
    pub(crate) fn bind(addr: &SocketAddr, options: &ListenOptions) -> io::Result<Self> {
        let socket = if options.reuse_port { sys::shared_tcp_listener(addr) } else { sys::tcp_listener(addr) };
        Self::new(socket?, options)
    }

    /// Takes a descriptor that was opened elsewhere; `InvalidInput` when it does not listen.
    pub(crate) fn adopt(descriptor: OwnedFd, options: &ListenOptions) -> io::Result<Self> {
        if !sys::is_listener(descriptor.as_fd())? {
            return Err(ErrorKind::InvalidInput.into());
        }
        Self::new(descriptor.into(), options)
    }

    fn new(socket: TcpListener, options: &ListenOptions) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (local, stream) = (socket.local_addr()?, Arc::new(options.stream.clone()));
        Ok(Listener { socket, local, links_max: options.links_max, links: 0, strangers: Strangers::default(), stream })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Whether all places are taken.
    pub(super) fn is_full(&self) -> bool {
        self.links >= self.links_max
    }

    /// Whether a source has all the strangers that it may have, or with those that are known half of the places: so whoever
    /// opens ever more, and makes them known, leaves as many to the others.
    pub(super) fn has_enough_of(&self, ip: IpAddr) -> bool {
        let (strangers, known) = self.strangers.counts_of(ip);
        self.stream
            .strangers
            .is_some_and(|limits| strangers >= limits.per_source_max || strangers + known >= self.links_max.div_ceil(2))
    }

    /// Accepts one connection.
    pub(super) fn accept(&self) -> Accepted {
        match self.socket.accept() {
            Ok((socket, remote)) => Accepted::Connection(socket, remote, Arc::clone(&self.stream)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Accepted::Nobody,
            Err(error) if is_of_one(&error) => Accepted::Aborted,
            Err(error) => Accepted::Trouble(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether it is the fault of one connection, which failed before it was accepted (accept(2)).
fn is_of_one(error: &io::Error) -> bool {
    let of_one = [libc::ECONNABORTED, libc::EINTR, libc::EPROTO, libc::EPERM, libc::ENETDOWN, libc::ENOPROTOOPT];
    let of_its_way = [libc::EHOSTDOWN, libc::ENONET, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::ETIMEDOUT];
    error.raw_os_error().is_some_and(|errno| of_one.contains(&errno) || of_its_way.contains(&errno))
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    #[test]
    fn a_socket_that_cannot_accept_is_trouble_and_not_tried_for_ever() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
        let same = TcpStream::from(OwnedFd::from(socket.try_clone().expect("a descriptor")));
        let listener = Listener::new(socket, &ListenOptions::default()).expect("it listens");
        assert!(matches!(listener.accept(), Accepted::Nobody));
        same.shutdown(Shutdown::Both).expect("it listens no more");
        assert!(matches!(listener.accept(), Accepted::Trouble(_)));
    }
}
