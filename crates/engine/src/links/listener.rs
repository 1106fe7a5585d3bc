//! A TCP listener, and how many of its connections are open.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use wire::{ListenOptions, StreamOptions};

use crate::sys;

pub(crate) struct Listener {
    socket: TcpListener,
    local: SocketAddr,
    links_max: usize,
    /// Connections that it brought and that are open.
    pub(super) links: usize,
    stream: Arc<StreamOptions>,
}

/// What accepting came to.
pub(super) enum Accepted {
    Connection(TcpStream, SocketAddr, Arc<StreamOptions>),
    /// It is closed at once, as there are too many.
    OneTooMany,
    Nobody,
    /// No descriptors or memory are left. The connection stays in the queue, and would wake us again at once.
    Shortage(io::Error),
}

impl Listener {
    pub(super) fn bind(addr: &SocketAddr, options: &ListenOptions) -> io::Result<Self> {
        let socket = if options.reuse_port { sys::shared_tcp_listener(addr) } else { sys::tcp_listener(addr) };
        Self::new(socket?, options)
    }

    pub(super) fn new(socket: TcpListener, options: &ListenOptions) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (local, stream) = (socket.local_addr()?, Arc::new(options.stream.clone()));
        Ok(Listener { socket, local, links_max: options.links_max, links: 0, stream })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Accepts one connection.
    pub(super) fn accept(&self) -> Accepted {
        loop {
            match self.socket.accept() {
                Ok(_) if self.links >= self.links_max => return Accepted::OneTooMany,
                Ok((socket, remote)) => return Accepted::Connection(socket, remote, Arc::clone(&self.stream)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Accepted::Nobody,
                Err(error) if is_shortage(&error) => return Accepted::Shortage(error),
                // That connection failed before it was accepted; the next may be well.
                Err(_) => {}
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
