//! Lets clients in: their offers by HTTP, their handshakes by the socket from which viewers get their video.
//!
//! While somebody comes it reads what viewers send, for checks and handshakes are among that. When nobody came for `QUIET` it
//! only listens for requests.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use engine::CountersSnapshot;
use engine::sys::{Epoll, EventFd, Interest, RecvBatch};
use engine::udp::{Options, SendQueue, UdpSocket, recv_batch};
use webrtc::{AnswerOptions, Candidate, Context, Media, Output, Peer, Purpose, Remote};
use wire::codec::Codec;
use wire::rtp::{self, Kind};
use wire::{LinkId, Outbox, Token};

use super::fan::{Arrival, Publisher, Viewer, path_to};

/// How long nobody comes until viewers are read no more.
const QUIET: Duration = Duration::from_secs(1);

/// How long a request may take, and how long its body may be.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
const BODY_MAX: usize = 64 << 10;

const OUTBOX_BYTES: usize = 64 << 10;
const REQUESTS: u64 = 0;
const VIEWERS: u64 = 1;

/// What everybody publishes, and gets; sound where the offer has some.
const CODECS: [Codec; 2] = [Codec::Vp8, Codec::Opus];

/// A viewer until it has what it came for; then only its checks are answered.
struct Guest {
    peer: Peer,
    media: Vec<Media>,
}

pub(super) struct Door {
    context: Context,
    http: TcpListener,
    socket: UdpSocket,
    publisher_addr: SocketAddr,
    arrivals: SyncSender<Arrival>,
    signal: Arc<EventFd>,
    /// By the numbers of their sessions.
    guests: BTreeMap<u64, Guest>,
    by_remote: HashMap<SocketAddr, u64>,
    next_session: u64,
    /// When somebody came last, while viewers are read.
    came: Option<Instant>,
    epoll: Epoll,
    out: Outbox,
    queue: SendQueue,
    counts: CountersSnapshot,
}

impl Door {
    pub(super) fn new(
        listen: SocketAddr,
        viewers: &UdpSocket,
        publisher_addr: SocketAddr,
        arrivals: SyncSender<Arrival>,
        signal: Arc<EventFd>,
    ) -> Result<Self> {
        let http = TcpListener::bind(listen).with_context(|| format!("bind {listen}"))?;
        let same = viewers.as_fd().try_clone_to_owned().context("share a socket")?;
        let epoll = Epoll::new(2).context("open an epoll set")?;
        epoll.add(http.as_fd(), REQUESTS, Interest::READ).context("watch for requests")?;
        Ok(Door {
            context: Context::new()?,
            http,
            socket: UdpSocket::adopt(same, &Options::default()).context("share a socket")?,
            publisher_addr,
            arrivals,
            signal,
            guests: BTreeMap::new(),
            by_remote: HashMap::new(),
            next_session: 0,
            came: None,
            epoll,
            out: Outbox::new(OUTBOX_BYTES),
            queue: SendQueue::default(),
            counts: CountersSnapshot::default(),
        })
    }

    pub(super) fn http_addr(&self) -> SocketAddr {
        self.http.local_addr().unwrap_or(self.publisher_addr)
    }

    pub(super) fn run(mut self) -> Result<Infallible> {
        let mut batch = recv_batch(true);
        loop {
            self.epoll.wait(self.came.map(|_| QUIET)).context("wait for clients")?;
            let now = Instant::now();
            for index in 0..self.epoll.ready_count() {
                match self.epoll.ready(index).map(|ready| ready.token) {
                    Some(REQUESTS) => self.take_request(now)?,
                    _ => self.receive(now, &mut batch),
                }
            }
            if self.came.is_some_and(|came| now.duration_since(came) >= QUIET) {
                self.came = None;
                self.epoll.remove(self.socket.as_fd()).context("watch viewers no more")?;
            }
        }
    }

    fn take_request(&mut self, now: Instant) -> Result<()> {
        // Whoever hangs up or talks nonsense has come to nothing.
        let Ok((stream, _)) = self.http.accept() else { return Ok(()) };
        let Ok((method, path, body)) = read_request(&stream) else { return Ok(()) };
        self.next_session += 1;
        let (kind, name) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        let answered = match (method.as_str(), kind) {
            ("POST", "whip") => self.publish(now, &body),
            ("POST", "whep") => self.watch(now, &body),
            ("DELETE", "session") => self.end(name),
            _ => Err(anyhow!("there is nothing but /whip/NAME and /whep/NAME")),
        };
        if matches!(answered, Ok(Some(_))) {
            if self.came.is_none() {
                self.epoll.add(self.socket.as_fd(), VIEWERS, Interest::READ).context("watch viewers")?;
            }
            self.came = Some(now);
        }
        let (status, text) = match answered {
            Ok(Some(sdp)) => {
                let session = self.next_session;
                (format!("201 Created\r\nLocation: /session/{session}\r\nContent-Type: application/sdp"), sdp)
            }
            Ok(None) => ("200 OK".to_owned(), String::new()),
            Err(error) => ("400 Bad Request".to_owned(), format!("{error:#}")),
        };
        // Who hangs up does not hear it.
        answer(&stream, &status, &text).ok();
        Ok(())
    }

    fn publish(&mut self, now: Instant, offer: &str) -> Result<Option<String>> {
        let candidates = [Candidate { addr: self.publisher_addr, tcp: false }];
        let options = AnswerOptions { purpose: Purpose::Receive { codecs: &CODECS }, candidates: &candidates };
        let (peer, negotiated) = Peer::answer(&self.context, now, offer, &options)?;
        self.announce(Arrival::Publisher(Box::new(Publisher::new(peer, &negotiated.media))));
        Ok(Some(negotiated.sdp))
    }

    fn watch(&mut self, now: Instant, offer: &str) -> Result<Option<String>> {
        let candidates = [Candidate { addr: self.socket.local_addr(), tcp: false }];
        let tracks = if offer.contains("\nm=audio ") { &CODECS[..] } else { &CODECS[..1] };
        let purpose = Purpose::Send { tracks, profiles: &[], chosen: &[], stream: "bench", transport_cc: false };
        let (peer, negotiated) =
            Peer::answer(&self.context, now, offer, &AnswerOptions { purpose, candidates: &candidates })?;
        self.guests.insert(self.next_session, Guest { peer, media: negotiated.media });
        Ok(Some(negotiated.sdp))
    }

    /// Whose session it is gets nothing more.
    fn end(&mut self, session: &str) -> Result<Option<String>> {
        let session = session.parse().context("no session's number")?;
        self.guests.remove(&session);
        self.by_remote.retain(|_, of| *of != session);
        self.announce(Arrival::Gone { session });
        Ok(None)
    }

    fn announce(&self, arrival: Arrival) {
        // Where the other thread has ended, so does the process.
        let _ = self.arrivals.send(arrival);
        self.signal.signal();
    }

    fn receive(&mut self, now: Instant, batch: &mut RecvBatch) {
        // What ICMP says is nothing to us.
        batch.fill(&self.socket).ok();
        for index in 0..batch.message_count() {
            let Some(message) = batch.message(index) else { break };
            let run = message.into_run(Token::default(), LinkId::datagrams(0), 0, usize::MAX);
            for datagram in run.into_datagrams() {
                if matches!(rtp::classify(datagram.data), Kind::Stun | Kind::Dtls) {
                    self.handle(now, datagram.path.remote, datagram.data);
                }
            }
        }
        batch.clear();
        self.queue.send_outbox(&mut self.socket, &self.out, &mut self.counts);
        self.out.clear();
    }

    fn handle(&mut self, now: Instant, addr: SocketAddr, data: &[u8]) {
        let remote = Remote { addr, tcp: false };
        let takes = |guest: &mut Guest| guest.peer.handle_datagram(now, remote, data).is_ok();
        let known = self.by_remote.get(&addr).and_then(|session| Some((*session, self.guests.get_mut(session)?)));
        let taken = match known {
            Some((session, guest)) => takes(guest).then_some((session, guest)),
            // The newest are those whose first check comes.
            None => {
                let mut guests = self.guests.iter_mut().rev();
                guests.find_map(|(session, guest)| {
                    (!guest.peer.is_connected() && takes(guest)).then_some((*session, guest))
                })
            }
        };
        let Some((session, Guest { peer, media })) = taken else { return };
        self.by_remote.insert(addr, session);
        let mut viewer = None;
        loop {
            match peer.poll() {
                Output::Transmit { remote, data } => drop(self.out.push(&path_to(remote.addr), &data)),
                Output::Connected { keys, remote } => viewer = Viewer::new(session, media, &keys, remote.addr),
                Output::PathChanged(_) | Output::Channel(_) => {}
                Output::Ended(_) | Output::Timeout(_) => break,
            }
        }
        if let Some(viewer) = viewer {
            self.announce(Arrival::Viewer(Box::new(viewer)));
        }
    }
}

/// The method, the path and the body of a request (RFC 9112 §3).
fn read_request(stream: &TcpStream) -> Result<(String, String, String)> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let mut reader = BufReader::new(stream.take(BODY_MAX as u64));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = words.next().zip(words.next()).context("no request line")?;
    let mut len = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            None => break,
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => len = value.trim().parse()?,
            Some(_) => {}
        }
    }
    ensure!(len <= BODY_MAX, "a body of {len} bytes");
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    Ok((method, path, String::from_utf8(body)?))
}

fn answer(mut stream: &TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}")
}
