//! What products ask for: links that open, and what is done to open ones.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use wire::{Adopted, Bitrate, CloseReason, LinkEvent, LinkId, LinkKind, LinkRequest, Token};

use super::{Body, Link, Links, Listener, SWEEP_INTERVAL, Stream, udp};
use crate::udp::UdpSocket;

/// Descriptors that what products open leaves to others, where the process may have eight times as many: clients can have a
/// relay open sockets, and the server's own connections, files and logs are not to suffer.
const FILES_RESERVED: u64 = 1_024;

impl Links {
    /// Does what a product asks for. What comes of it is news.
    pub(crate) fn handle_request(&mut self, now: Instant, request: LinkRequest) {
        let (token, opened) = match request {
            LinkRequest::OpenUdp { token, addr, ports, options } => {
                (token, self.while_files_last(udp::bind(addr, ports, &options).map(Body::Udp)))
            }
            LinkRequest::Listen { token, addr, options } => {
                (token, self.while_files_last(Listener::bind(&addr, &options).map(Body::Listener)))
            }
            LinkRequest::Connect { token, to, from, options } => {
                (token, self.while_files_last(Stream::connect(now, to, from, options).map(Body::Stream)))
            }
            LinkRequest::Adopt { token, descriptor, kind } => {
                (token, self.while_files_last(adopt(now, descriptor, kind)))
            }
            LinkRequest::Close { link } => return self.close_softly(now, link),
            LinkRequest::Release { link } => return self.release(now, link),
            LinkRequest::WatchWritable { link } => return self.watch_writable(link),
            LinkRequest::Read { link, is_on } => return self.set_reading(now, link, is_on),
            LinkRequest::LimitFrames { link, bytes } => return self.limit_frames(link, bytes),
            LinkRequest::Pace { link, rate } => return self.pace(link, rate),
        };
        if let Err(error) = opened.and_then(|body| self.open(now, token, body)) {
            self.fail(token, error);
        }
    }

    /// Refuses one of the last descriptors. The kernel gives the lowest that is free, so it tells how many are used.
    fn while_files_last(&self, opened: io::Result<Body>) -> io::Result<Body> {
        let reserved = FILES_RESERVED.min(self.files_max / 8);
        opened.and_then(|body| match u64::try_from(body.as_fd().as_raw_fd()) {
            Ok(number) if number + reserved < self.files_max => Ok(body),
            _ => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        })
    }

    /// Takes a link in, and tells that it is open, unless it is a connection under way. Returns it, and its address.
    pub(crate) fn open(&mut self, now: Instant, token: Token, body: Body) -> io::Result<(LinkId, SocketAddr)> {
        let local = body.local_addr()?;
        let Body::Stream(stream) = &body else {
            let link = self.insert(token, body)?;
            self.news.push_back((token, LinkEvent::Opened { link, local, remote: None }));
            return Ok((link, local));
        };
        let (listener, remote) = (stream.listener, Some(stream.remote));
        let (is_connecting, is_impatient) = (stream.is_connecting(), stream.is_impatient());
        let (is_stranger, has_unread) = (stream.is_stranger, stream.has_unread());
        let link = self.insert(token, body)?;
        self.counts.tcp_links += 1;
        if is_impatient {
            self.count_impatient(now);
        }
        if let Some(Link { body: Body::Listener(listener), .. }) = listener.and_then(|id| self.table.get_mut(id)) {
            listener.links += 1;
            if let Some(remote) = remote.filter(|_| is_stranger) {
                listener.strangers.enter(link, remote.ip());
                self.counts.tcp_strangers += 1;
            }
        }
        if !is_connecting {
            self.news.push_back((token, LinkEvent::Opened { link, local, remote }));
        }
        if has_unread {
            self.connections.come_back_to(link);
        }
        Ok((link, local))
    }

    pub(super) fn insert(&mut self, token: Token, body: Body) -> io::Result<LinkId> {
        let (kind, interest) = (body.kind(), body.interest());
        let full = |_| io::Error::from(io::ErrorKind::QuotaExceeded);
        let id = self.table.insert(kind, Link { token, body }).map_err(full)?;
        let watched =
            self.table.get(id).map_or(Ok(()), |link| self.set_of(kind).add(link.body.as_fd(), id.to_bits(), interest));
        if watched.is_err() {
            self.table.remove(id);
        }
        watched.map(|()| id)
    }

    /// The other side has answered, or nobody will.
    pub(super) fn finish_connecting(&mut self, now: Instant, id: LinkId) {
        let Some(Link { token, body: Body::Stream(stream) }) = self.table.get_mut(id) else { return };
        let (token, remote) = (*token, stream.remote);
        let socket = stream.socket();
        let answer = socket.take_error().and_then(|error| error.map_or_else(|| socket.local_addr(), Err));
        match answer {
            Ok(local) => {
                stream.open(now);
                // Its answer had a time, and what it brings may have none.
                self.impatient -= usize::from(!stream.is_impatient());
                self.news.push_back((token, LinkEvent::Opened { link: id, local, remote: Some(remote) }));
                self.watch_as_wanted(id);
            }
            Err(error) => {
                self.remove(id);
                self.fail(token, error);
            }
        }
    }

    /// Closes a link when what waits has left and the other side knows; at once when that is asked for again.
    pub(super) fn close_softly(&mut self, now: Instant, id: LinkId) {
        let stream = match self.table.get_mut(id) {
            Some(Link { body: Body::Stream(stream), .. }) if stream.is_open() => stream,
            _ => return self.close(id, CloseReason::Asked),
        };
        let was_impatient = stream.is_impatient();
        stream.begin_closing(now, &mut self.buffers);
        let has_backlog = stream.has_backlog();
        if !was_impatient {
            self.count_impatient(now);
        }
        if has_backlog {
            self.watch_as_wanted(id);
        } else {
            self.end_output(id);
        }
    }

    /// Gives a byte stream back. One that cannot go on elsewhere is closed.
    fn release(&mut self, now: Instant, id: LinkId) {
        let Some(Link { token, body: Body::Stream(stream) }) = self.table.get_mut(id) else { return };
        let token = *token;
        // Of one that nobody wants the end is told anyway.
        if !stream.is_open() || id.kind() != LinkKind::Stream {
            return;
        }
        let Some((descriptor, [unsent, unread])) = stream.give_up() else { return self.close_softly(now, id) };
        self.remove(id);
        self.news.push_back((token, LinkEvent::Released { link: id, descriptor, unsent, unread }));
    }

    fn count_impatient(&mut self, now: Instant) {
        self.impatient += 1;
        self.next_sweep.get_or_insert(now + SWEEP_INTERVAL);
    }

    fn watch_writable(&mut self, id: LinkId) {
        if id.kind() == LinkKind::Stream
            && let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id)
        {
            stream.watch_room();
            self.watch_as_wanted(id);
        }
    }

    fn set_reading(&mut self, now: Instant, id: LinkId, is_on: bool) {
        if let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id)
            && stream.is_open()
        {
            stream.set_reading(now, is_on);
            if stream.has_unread() {
                self.connections.come_back_to(id);
            }
            self.watch_as_wanted(id);
        }
    }

    fn limit_frames(&mut self, id: LinkId, bytes: usize) {
        if let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id) {
            stream.frame_max = bytes;
        }
    }

    fn pace(&mut self, id: LinkId, rate: Bitrate) {
        if let Some(Link { body: Body::Stream(stream), .. }) = self.table.get_mut(id)
            && let Err(error) = stream.set_pace(rate)
        {
            tracing::debug!(%error, link = ?id, "a link cannot be paced");
        }
    }
}

/// Takes a descriptor that was opened elsewhere.
fn adopt(now: Instant, descriptor: OwnedFd, kind: Adopted) -> io::Result<Body> {
    match kind {
        Adopted::Udp(options) => UdpSocket::adopt(descriptor, &options).map(Body::Udp),
        Adopted::Listener(options) => Listener::adopt(descriptor, &options).map(Body::Listener),
        Adopted::Stream(options) => {
            let socket = TcpStream::from(descriptor);
            let remote = socket.peer_addr()?;
            Stream::new(now, socket, remote, Arc::new(options), None).map(Body::Stream)
        }
        Adopted::Begun(options, begun) => {
            Stream::resume(now, TcpStream::from(descriptor), options, begun).map(Body::Stream)
        }
    }
}
