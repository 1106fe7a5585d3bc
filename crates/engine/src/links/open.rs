//! What products ask for: links that open, and what is done to open ones.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use wire::{Adopted, Bitrate, CloseReason, LinkEvent, LinkId, LinkKind, LinkRequest, ListenOptions, Token, UdpOptions};

use super::{Body, Link, Links, Listener, SWEEP_INTERVAL, Stream, udp};
use crate::CountersSnapshot;
use crate::sys;
use crate::udp::UdpSocket;

impl Links {
    /// Does what a product asks for. What comes of it is news.
    pub(crate) fn handle_request(&mut self, now: Instant, request: LinkRequest, counts: &mut CountersSnapshot) {
        let (token, opened) = match request {
            LinkRequest::OpenUdp { token, addr, ports, options } => {
                let bound = udp::bind(addr, ports, &options);
                (token, bound.and_then(|socket| self.open_udp(token, socket)).map(drop))
            }
            LinkRequest::Listen { token, addr, options } => (token, self.listen(token, addr, &options).map(drop)),
            LinkRequest::Connect { token, to, from, options } => {
                let stream = Stream::connect(now, to, from, options);
                (token, stream.and_then(|stream| self.open_stream(now, token, stream, counts)))
            }
            LinkRequest::Adopt { token, descriptor, kind } => (token, self.adopt(now, token, descriptor, kind, counts)),
            LinkRequest::Close { link } => return self.close_softly(now, link, counts),
            LinkRequest::WatchWritable { link } => return self.watch_writable(link, counts),
            LinkRequest::Pace { link, rate } => return self.pace(link, rate),
        };
        if let Err(error) = opened {
            self.fail(token, error, counts);
        }
    }

    /// Opens a UDP socket. Returns the link, and its address.
    pub(crate) fn bind_udp(
        &mut self,
        token: Token,
        addr: SocketAddr,
        options: &UdpOptions,
    ) -> io::Result<(LinkId, SocketAddr)> {
        self.open_udp(token, UdpSocket::bind(addr, options)?)
    }

    /// Opens a listener. Returns the link, and its address.
    pub(crate) fn listen(
        &mut self,
        token: Token,
        addr: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<(LinkId, SocketAddr)> {
        self.open_listener(token, Listener::bind(&addr, options)?)
    }

    fn open_udp(&mut self, token: Token, socket: UdpSocket) -> io::Result<(LinkId, SocketAddr)> {
        let local = socket.local_addr();
        let link = self.insert(token, Body::Udp(socket))?;
        self.news.push_back((token, LinkEvent::Opened { link, local, remote: None }));
        Ok((link, local))
    }

    fn open_listener(&mut self, token: Token, listener: Listener) -> io::Result<(LinkId, SocketAddr)> {
        let local = listener.local_addr();
        let link = self.insert(token, Body::Listener(listener))?;
        self.news.push_back((token, LinkEvent::Opened { link, local, remote: None }));
        Ok((link, local))
    }

    /// Takes a connection in, which may still be under way.
    pub(super) fn open_stream(
        &mut self,
        now: Instant,
        token: Token,
        stream: Stream,
        counts: &mut CountersSnapshot,
    ) -> io::Result<()> {
        let (listener, remote, is_connecting) = (stream.listener, stream.remote, stream.is_connecting());
        let local = stream.socket().local_addr()?;
        let is_impatient = stream.is_impatient();
        let link = self.insert(token, Body::Stream(stream))?;
        counts.tcp_links += 1;
        if is_impatient {
            self.count_impatient(now);
        }
        if let Some(Link { body: Body::Listener(listener), .. }) = listener.and_then(|id| self.table.get_mut(id)) {
            listener.links += 1;
        }
        if !is_connecting {
            self.news.push_back((token, LinkEvent::Opened { link, local, remote: Some(remote) }));
        }
        Ok(())
    }

    fn insert(&mut self, token: Token, body: Body) -> io::Result<LinkId> {
        let (kind, interest) = (body.kind(), body.interest());
        let full = |_| io::Error::from(io::ErrorKind::QuotaExceeded);
        let id = self.table.insert(kind, Link { token, body }).map_err(full)?;
        let watched =
            self.table.get(id).map_or(Ok(()), |link| self.epoll.add(link.body.as_fd(), id.to_bits(), interest));
        if watched.is_err() {
            self.table.remove(id);
        }
        watched.map(|()| id)
    }

    /// The other side has answered, or nobody will.
    pub(super) fn finish_connecting(&mut self, now: Instant, id: LinkId, counts: &mut CountersSnapshot) {
        let Some(Link { token, body: Body::Stream(stream) }) = self.table.get_mut(id) else { return };
        let (token, remote) = (*token, stream.remote);
        let socket = stream.socket();
        let answer = socket.take_error().and_then(|error| error.map_or_else(|| socket.local_addr(), Err));
        match answer {
            Ok(local) => {
                stream.open(now);
                self.news.push_back((token, LinkEvent::Opened { link: id, local, remote: Some(remote) }));
                self.watch_as_wanted(id, counts);
            }
            Err(error) => {
                self.remove(id, counts);
                self.fail(token, error, counts);
            }
        }
    }

    fn adopt(
        &mut self,
        now: Instant,
        token: Token,
        descriptor: OwnedFd,
        kind: Adopted,
        counts: &mut CountersSnapshot,
    ) -> io::Result<()> {
        match kind {
            Adopted::Udp(options) => self.adopt_udp(token, descriptor, &options),
            Adopted::Listener(options) => self.open_listener(token, Listener::adopt(descriptor, &options)?).map(drop),
            Adopted::Stream(options) => {
                let socket = TcpStream::from(descriptor);
                let remote = socket.peer_addr()?;
                self.open_stream(now, token, Stream::new(now, socket, remote, Arc::new(options), None)?, counts)
            }
        }
    }

    fn adopt_udp(&mut self, token: Token, descriptor: OwnedFd, options: &UdpOptions) -> io::Result<()> {
        self.open_udp(token, UdpSocket::adopt(descriptor, options)?).map(drop)
    }

    /// Closes a link when what waits has left and the other side knows; at once when that is asked for again.
    fn close_softly(&mut self, now: Instant, id: LinkId, counts: &mut CountersSnapshot) {
        let stream = match self.table.get_mut(id) {
            Some(Link { body: Body::Stream(stream), .. }) if stream.is_open() => stream,
            _ => return self.close(id, CloseReason::Asked, counts),
        };
        let (was_impatient, has_backlog) = (stream.is_impatient(), stream.has_backlog());
        stream.begin_closing(now, &mut self.buffers);
        if !was_impatient {
            self.count_impatient(now);
        }
        if has_backlog {
            self.watch_as_wanted(id, counts);
        } else {
            self.end_output(id, counts);
        }
    }

    fn count_impatient(&mut self, now: Instant) {
        self.impatient += 1;
        self.next_sweep.get_or_insert(now + SWEEP_INTERVAL);
    }

    fn watch_writable(&mut self, id: LinkId, counts: &mut CountersSnapshot) {
        if id.kind() == LinkKind::Stream
            && let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id)
        {
            stream.watch_room();
            self.watch_as_wanted(id, counts);
        }
    }

    fn pace(&self, id: LinkId, rate: Bitrate) {
        if let Some(Link { body: Body::Stream(stream), .. }) = self.table.get(id)
            && let Err(error) = sys::set_pacing(stream.as_fd(), rate)
        {
            tracing::debug!(%error, link = ?id, "a link cannot be paced");
        }
    }
}
