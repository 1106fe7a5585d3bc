//! The source of the stream: an HTTP server that sends it to who asks, or a client that brings it to a server.
//!
//! In: the stream, and where to. Out: its bytes, as they are made: every tick as many packets as are due, stamped with the
//! time of the tick. Who connects gets what is made from then on, at the beginning of a packet.
//! Cost: a thread; a copy into each connection. Two seconds of the stream are kept for who is slow; who is slower is left.
//! Source: RFC 9112 §7.1 (chunks of what is brought).

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use engine::sys::{self, Epoll, Interest};
use wire::ts::PACKET_LEN;

use super::socket::now_ns;
use super::stream::{Stamp, Stream, packets_in};
use super::target::Target;
use crate::clients::Background;

/// What is kept for who is slow; and bytes more, so that little is kept at low rates.
const KEPT: Duration = Duration::from_secs(2);
const KEPT_MIN: usize = 256 << 10;

/// A source that is later than this was stopped, and does not make what it missed.
const LATE_MAX: Duration = Duration::from_secs(1);

/// How long it takes to bring the stream once more to a server that did not take it.
const PAUSE: Duration = Duration::from_millis(200);

const CONNECT_MAX: Duration = Duration::from_secs(1);

/// Bytes of a chunk at most.
const CHUNK_MAX: usize = 64 << 10;

/// A request is no longer than this.
const REQUEST_MAX: usize = 16 << 10;

const READY_MAX: usize = 256;
const LISTENER: u64 = u64::MAX;

/// Where the stream is to be had.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Here, for whoever asks for anything.
    Here(SocketAddr),
    /// It is brought there, by this method, with this bearer token.
    There { target: Target, method: &'static str, token: Option<String> },
}

/// A source that sends until it is dropped.
pub(super) struct Source {
    _thread: Background,
    /// Where it listens.
    #[cfg(test)]
    pub(super) addr: Option<SocketAddr>,
}

impl Source {
    /// Begins.
    ///
    /// # Errors
    /// When the address is not to be had.
    pub(super) fn start(stream: Arc<Stream>, place: Place, tick: Duration) -> Result<Self> {
        let mut epoll = Epoll::new(READY_MAX).context("open an epoll set")?;
        let listener = match &place {
            Place::Here(addr) => {
                Some(sys::tcp_listener(addr).with_context(|| format!("listen at {addr}, as a source"))?)
            }
            Place::There { .. } => None,
        };
        #[cfg(test)]
        let addr = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        if let Some(listener) = &listener {
            epoll.add(listener.as_fd(), LISTENER, Interest::READ).context("watch the listener")?;
        }
        let thread = Background::start("source", move |is_over| {
            let maker = Maker::new(stream, tick);
            let mut sender =
                Sender { maker, place, listener, takers: Vec::new(), again_at: Instant::now(), said: String::new() };
            while !is_over.load(Ordering::Relaxed) {
                sender.turn(&mut epoll);
            }
        })?;
        Ok(Source {
            _thread: thread,
            #[cfg(test)]
            addr,
        })
    }
}

/// Makes the stream, and keeps the last of it.
struct Maker {
    stream: Arc<Stream>,
    tick: Duration,
    begun: Instant,
    due: Instant,
    /// Packets that were made.
    count: u64,
    kept: Vec<u8>,
    /// Where in the stream that begins.
    kept_at: u64,
    kept_max: usize,
}

impl Maker {
    fn new(stream: Arc<Stream>, tick: Duration) -> Self {
        let kept_max = (stream.rate().bps() / 8 * KEPT.as_secs()) as usize + KEPT_MIN;
        let begun = Instant::now();
        Maker { stream, tick, begun, due: begun, count: 0, kept: Vec::new(), kept_at: 0, kept_max }
    }

    /// Where in the stream the next packet will be.
    fn end(&self) -> u64 {
        self.count * PACKET_LEN as u64
    }

    /// What is kept from there on; `None` when that is gone.
    fn from(&self, at: u64) -> Option<&[u8]> {
        self.kept.get(usize::try_from(at.checked_sub(self.kept_at)?).ok()?..)
    }

    /// Makes what is due; when the time is over, the tick's packets.
    fn make(&mut self, now: Instant) {
        let rate = self.stream.rate();
        let due = packets_in(rate, now.saturating_duration_since(self.begun));
        self.due = (self.due + self.tick).max(now);
        if due.saturating_sub(self.count) > packets_in(rate, self.tick + LATE_MAX) + 1 {
            self.begun = now - rate.time_for(self.end() as usize);
            return;
        }
        if self.kept.len() > 2 * self.kept_max {
            let over = (self.kept.len() - self.kept_max) / PACKET_LEN * PACKET_LEN;
            self.kept.drain(..over);
            self.kept_at += over as u64;
        }
        let sent_ns = now_ns();
        for number in self.count..due {
            let mut packet = [0; PACKET_LEN];
            self.stream.write(Stamp { number, sent_ns }, &mut packet);
            self.kept.extend_from_slice(&packet);
        }
        self.count = self.count.max(due);
    }
}

struct Sender {
    maker: Maker,
    place: Place,
    listener: Option<TcpListener>,
    takers: Vec<Taker>,
    /// When a server is asked once more.
    again_at: Instant,
    /// Why one does not take the stream, as was said last.
    said: String,
}

impl Sender {
    /// Sleeps until the next tick, or until somebody comes, and sends.
    fn turn(&mut self, epoll: &mut Epoll) {
        let wait = self.maker.due.saturating_duration_since(Instant::now());
        if epoll.wait(Some(wait)).is_err() {
            std::thread::sleep(self.maker.tick);
        }
        let now = Instant::now();
        if now >= self.maker.due {
            self.bring(now);
            self.maker.make(now);
        }
        if (0..epoll.ready_count()).any(|index| epoll.ready(index).is_some_and(|ready| ready.token == LISTENER)) {
            self.accept(epoll);
        }
        let Sender { maker, takers, said, .. } = self;
        takers.retain_mut(|taker| match taker.go_on(maker, epoll) {
            Ok(()) => true,
            Err(error) => {
                let why = error.to_string();
                // Once, however often it is tried.
                if taker.is_chunked && *said != why {
                    eprintln!("the server does not take the stream: {why}");
                    *said = why;
                }
                false
            }
        });
    }

    fn accept(&mut self, epoll: &Epoll) {
        while let Some(Ok((socket, _))) = self.listener.as_ref().map(TcpListener::accept) {
            let is_watched = socket.set_nonblocking(true).is_ok()
                && socket.set_nodelay(true).is_ok()
                && epoll.add(socket.as_fd(), 0, Interest::READ).is_ok();
            if is_watched {
                self.takers.push(Taker::new(socket, self.maker.end(), false));
            }
        }
    }

    /// Connects to where the stream is brought, if it is and there is no connection.
    fn bring(&mut self, now: Instant) {
        let Place::There { target, method, token } = &self.place else { return };
        if !self.takers.is_empty() || now < self.again_at {
            return;
        }
        self.again_at = now + PAUSE;
        let Ok(socket) = TcpStream::connect_timeout(&target.addr, CONNECT_MAX) else { return };
        let token = token.as_ref().map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
        let mut taker = Taker::new(socket, self.maker.end(), true);
        taker.rest = format!(
            "{method} {} HTTP/1.1\r\nHost: {}\r\nContent-Type: video/mp2t\r\n{token}Transfer-Encoding: chunked\r\n\r\n",
            target.path, target.host
        )
        .into_bytes();
        taker.is_asking = false;
        let is_ready = taker.socket.set_nonblocking(true).is_ok() && taker.socket.set_nodelay(true).is_ok();
        if is_ready {
            self.takers.push(taker);
        }
    }
}

/// Who gets the stream.
struct Taker {
    socket: TcpStream,
    /// What he asks is not whole.
    is_asking: bool,
    heard: Vec<u8>,
    is_chunked: bool,
    /// Where in the stream he is.
    at: u64,
    /// What is to be sent before it.
    rest: Vec<u8>,
}

impl Taker {
    fn new(socket: TcpStream, at: u64, is_chunked: bool) -> Self {
        Taker { socket, is_asking: true, heard: Vec::new(), is_chunked, at, rest: Vec::new() }
    }

    /// Sends what there is, as far as there is room.
    fn go_on(&mut self, maker: &Maker, epoll: &Epoll) -> io::Result<()> {
        // Of others it shows when something is sent to them.
        if self.is_asking || self.is_chunked {
            self.hear()?;
        }
        if self.is_asking {
            if !self.heard.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(());
            }
            epoll.remove(self.socket.as_fd())?;
            self.is_asking = false;
            self.at = maker.end();
            self.rest = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\nCache-Control: no-store\r\n\r\n".to_vec();
        }
        while self.send(maker)? {}
        Ok(())
    }

    /// What he says: a request, or what a server thinks of the stream.
    fn hear(&mut self) -> io::Result<()> {
        let mut buf = [0; 2_048];
        match self.socket.read(&mut buf) {
            Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok(len) => self.heard.extend_from_slice(&buf[..len]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        if self.heard.len() > REQUEST_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.is_chunked && self.heard.contains(&b'\n') {
            return self.answered();
        }
        Ok(())
    }

    /// What a server says of the stream while it is brought; that all is well may come early.
    fn answered(&mut self) -> io::Result<()> {
        let answer = String::from_utf8_lossy(&self.heard);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        if status.starts_with(['1', '2']) {
            self.heard.clear();
            return Ok(());
        }
        Err(io::Error::other(answer.lines().next().unwrap_or_default().to_owned()))
    }

    /// Sends some; false when there is no room, or nothing more.
    fn send(&mut self, maker: &Maker) -> io::Result<bool> {
        if self.rest.is_empty() {
            let Some(bytes) = maker.from(self.at) else { return Err(io::ErrorKind::TimedOut.into()) };
            if bytes.is_empty() {
                return Ok(false);
            }
            if !self.is_chunked {
                let sent = write(&mut self.socket, bytes)?;
                self.at += sent as u64;
                return Ok(sent > 0);
            }
            let chunk = &bytes[..bytes.len().min(CHUNK_MAX)];
            self.rest = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            self.at += chunk.len() as u64;
        }
        let sent = write(&mut self.socket, &self.rest)?;
        self.rest.drain(..sent);
        Ok(sent > 0)
    }
}

/// How many bytes there was room for.
fn write(socket: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match socket.write(bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use wire::Bitrate;

    use super::*;

    #[test]
    fn what_is_due_is_made_unless_the_process_was_stopped() {
        let rate = Bitrate::from_kbps(1_504);
        for tick in [Duration::from_millis(10), Duration::from_secs(1)] {
            let stream = Stream::new(rate, Duration::from_secs(1)).unwrap();
            let mut maker = Maker::new(Arc::new(stream), tick);
            let begun = maker.begun;
            maker.make(begun + tick + Duration::from_millis(900));
            let made = maker.count;
            assert_eq!(made, packets_in(rate, tick) + 900);
            maker.make(begun + Duration::from_secs(60));
            assert_eq!(maker.count, made);
            maker.make(begun + Duration::from_secs(60) + tick);
            assert_eq!(maker.count, made + packets_in(rate, tick));
        }
    }
}
