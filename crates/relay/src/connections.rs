//! Clients' connections: TCP, and TLS over it, accepted elsewhere.
//!
//! In: descriptors with what was read of them, what the engine tells of their links. Out: requests to adopt and close them;
//! who is at the other end of a link.
//! Cost: a slot per connection, found by its token. A client that reads too slowly loses the newest datagrams: what waits for
//! it in the engine has a limit. One on which nobody has an allocation is closed after a time.
//! Source: RFC 8656 §3.1, §12.5 (messages one behind the other).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;
use wheel::{TimerId, Wheel};
use wire::framing::{Frame, Framing};
use wire::{Adopted, LinkId, LinkKind, LinkRequest, Path, StreamOptions, Token};

use crate::allocation::Client;
use crate::message::{Class, Method, message_type};
use crate::names::Name;
use crate::settings::Settings;
use crate::spec::{self, ClientTransport};
use crate::strangers::Strangers;
use crate::tcp::PeerConnections;

/// Bytes of the longest message: ChannelData with all the data that its length can tell, and padding (RFC 8656 §12.4).
const FRAME_MAX: usize = (1 << 16) + 4;

/// The same where nobody has an allocation: there are requests alone.
const REQUEST_MAX: usize = 2_048;

/// How much longer than an allocation lives without a refresh a connection may be silent.
const SILENCE_MORE: Duration = Duration::from_secs(60);

/// What the client was sent and does not acknowledge for so long ends the connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);

/// Bytes that the kernel holds of what a client is sent, beyond what is on its way. Left alone it takes megabytes, which are
/// seconds of media; and a smaller buffer would slow down who is far away.
const UNSENT_MAX: u32 = 128 * 1_024;

/// Bytes of the longest message on a connection for data.
const HEAD_MAX: usize = 2_048;

/// Messages that are taken on a connection for data before it is one: the first may have to be proved (401), with a newer nonce
/// than the second had (438).
const ASKS_MAX: u8 = 4;

/// Connections that are looked at before everything else gets its turn; the next portion waits for `PAUSE`.
const PORTION: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// How fine the wheel turns.
const TICK: Duration = Duration::from_millis(100);

/// How a connection for data begins.
const BIND: [u8; 2] = message_type(Class::Request, Method::ConnectionBind);

/// All connections of clients to one worker.
#[derive(Debug)]
pub(crate) struct Connections {
    settings: Arc<Settings>,
    all: Slab<Connection>,
    requests: VecDeque<LinkRequest>,
    /// When to look whether somebody has an allocation on a connection.
    checks: Wheel<usize>,
    /// Before this nobody looks any more, as a portion just was.
    checks_at: Option<Instant>,
    /// Those that nobody makes use of.
    strangers: Strangers,
    /// Those that had to make room and are not closed yet, and how many there ever were.
    ending: usize,
    pub(crate) made_room: u64,
}

#[derive(Debug)]
struct Connection {
    /// `None`: it is not open yet.
    path: Option<Path>,
    check: Option<TimerId>,
    /// It carries data (RFC 6062 §4.3), behind a ConnectionBind, of which the beginning is here.
    head: Vec<u8>,
    /// Messages that it may still bring before it is data; 0 when it is being closed.
    asks_left: u8,
    /// It has made room for another.
    is_ending: bool,
    address: SocketAddr,
    server: SocketAddr,
    transport: ClientTransport,
}

/// What came is no ConnectionBind, or too long for one.
pub(crate) struct NotBind;

impl Connections {
    pub(crate) fn new(now: Instant, settings: &Arc<Settings>) -> Self {
        Connections {
            settings: Arc::clone(settings),
            all: Slab::new(),
            requests: VecDeque::new(),
            checks: Wheel::new(now, TICK),
            checks_at: None,
            strangers: Strangers::default(),
            ending: 0,
            made_room: 0,
        }
    }

    /// Takes a connection over. Where there is no place, or its source has enough of those that nobody makes use of, the oldest
    /// of these makes room. One too many is closed: then it is false.
    pub(crate) fn add(&mut self, connection: spec::Connection) -> bool {
        let is_full = |all: &Self| all.all.len() - all.ending >= all.settings.connections_max;
        let oldest = self.strangers.oldest_of_many(connection.client, self.settings.strangers_per_source_max);
        if let Some(slot) = oldest.or_else(|| self.strangers.oldest().filter(|_| is_full(self))) {
            self.make_room(slot);
        }
        if is_full(self) {
            return false;
        }
        let spec::Connection { descriptor, client, server, transport, begun } = connection;
        let slot = self.all.insert(Connection {
            path: None,
            check: None,
            head: Vec::new(),
            asks_left: ASKS_MAX,
            is_ending: false,
            address: client,
            server,
            transport,
        });
        self.strangers.enter(slot, client);
        let is_data = begun.received.starts_with(&BIND);
        let options = if is_data { PeerConnections::options() } else { self.options() };
        let token = Token { owner: self.settings.owner, number: Name::Client(slot).number() };
        self.requests.push_back(LinkRequest::Adopt { token, descriptor, kind: Adopted::Begun(options, begun) });
        true
    }

    /// What holds for one that carries messages.
    fn options(&self) -> StreamOptions {
        StreamOptions {
            framing: Some(Framing::Turn),
            frame_max: REQUEST_MAX,
            backlog_max: self.settings.backlog_max,
            unsent_max: Some(UNSENT_MAX),
            silence_max: Some(self.settings.lifetime_max + SILENCE_MORE),
            unacknowledged_max: Some(UNACKNOWLEDGED_MAX),
            ..StreamOptions::default()
        }
    }

    /// Closes one at once, as another needs its place.
    fn make_room(&mut self, slot: usize) {
        self.strangers.leave(slot);
        let Some(connection) = self.all.get_mut(slot) else { return };
        connection.is_ending = true;
        self.ending += 1;
        self.made_room += 1;
        if let Some(path) = connection.path {
            self.refuse(path.link);
        }
    }

    /// A connection is made use of: there is an allocation, or it carries data.
    pub(crate) fn settle(&mut self, slot: usize) {
        self.strangers.leave(slot);
        self.limit_frames(slot, FRAME_MAX);
    }

    /// The allocation of a connection is gone.
    pub(crate) fn unsettle(&mut self, slot: usize) {
        let Some(connection) = self.all.get(slot).filter(|connection| !connection.is_ending) else { return };
        self.strangers.enter(slot, connection.address);
        self.limit_frames(slot, REQUEST_MAX);
    }

    fn limit_frames(&mut self, slot: usize, bytes: usize) {
        let path = self.all.get(slot).and_then(|connection| connection.path);
        if let Some(Path { link, .. }) = path.filter(|path| path.link.kind() == LinkKind::Framed) {
            self.requests.push_back(LinkRequest::LimitFrames { link, bytes });
        }
    }

    /// Takes what a connection for data brings before it is one. Returns the first message, when it is there; what is behind
    /// it is looked at when more comes. Only a ConnectionBind is taken, and only so often: what is answered here has proved
    /// nothing.
    pub(crate) fn take_message(&mut self, slot: usize, bytes: &[u8]) -> Result<Option<Vec<u8>>, NotBind> {
        let connection = self.all.get_mut(slot).ok_or(NotBind)?;
        if connection.asks_left == 0 {
            return Ok(None);
        }
        connection.head.extend_from_slice(bytes);
        match Framing::Turn.next_frame(&connection.head, HEAD_MAX) {
            Frame::Datagram { range, end } if connection.head.starts_with(&BIND) => {
                connection.asks_left -= 1;
                let message = connection.head.get(range).map(<[u8]>::to_vec);
                connection.head.drain(..end);
                Ok(message)
            }
            Frame::Incomplete { .. } => Ok(None),
            Frame::Datagram { .. } | Frame::Invalid => Err(NotBind),
        }
    }

    /// Whether a connection that is no data after a message may bring another. Who has still to prove himself reads what he is
    /// told before he goes on.
    pub(crate) fn may_ask_again(&self, slot: usize) -> bool {
        self.all.get(slot).is_some_and(|connection| connection.asks_left > 0 && connection.head.len() <= HEAD_MAX)
    }

    /// Takes nothing more of a connection for data that is none, and closes it behind what it was told.
    pub(crate) fn end(&mut self, slot: usize, link: LinkId) {
        if let Some(connection) = self.all.get_mut(slot) {
            (connection.asks_left, connection.head) = (0, Vec::new());
        }
        self.close(link);
    }

    /// Takes what stands behind the messages.
    pub(crate) fn take_rest(&mut self, slot: usize) -> Vec<u8> {
        self.all.get_mut(slot).map(|connection| std::mem::take(&mut connection.head)).unwrap_or_default()
    }

    /// Nobody wants a connection any more.
    pub(crate) fn close(&mut self, link: LinkId) {
        self.requests.push_back(LinkRequest::Close { link });
    }

    /// The same at once: its other side, whom nobody knows, does not choose for how long it keeps a place.
    pub(crate) fn refuse(&mut self, link: LinkId) {
        self.requests.extend([LinkRequest::Close { link }, LinkRequest::Close { link }]);
    }

    /// A connection is there.
    pub(crate) fn handle_opened(&mut self, now: Instant, slot: usize, link: LinkId, remote: Option<SocketAddr>) {
        let Some(connection) = self.all.get_mut(slot) else { return };
        connection.path = Some(Path { link, remote: remote.unwrap_or(connection.address), local: None });
        connection.check = Some(self.checks.insert(now + self.settings.unused_max, slot));
        if connection.is_ending {
            self.refuse(link);
        }
    }

    /// A connection is gone, or never came; the way to its client.
    pub(crate) fn handle_closed(&mut self, slot: usize) -> Option<Path> {
        let connection = self.all.try_remove(slot)?;
        connection.check.map(|check| self.checks.cancel(check));
        self.strangers.leave(slot);
        self.ending -= usize::from(connection.is_ending);
        connection.path
    }

    /// Who is at the other end of a link.
    pub(crate) fn client(&self, token: Token, slot: usize, path: &Path) -> Option<Client> {
        let connection = self.all.get(slot).filter(|connection| connection.path.is_some_and(|own| own == *path))?;
        let Connection { address, server, transport, .. } = *connection;
        Some(Client { token, path: *path, address, server, transport })
    }

    /// The same, where the link is known to be its own.
    pub(crate) fn client_of(&self, token: Token, slot: usize) -> Option<Client> {
        let path = self.all.get(slot)?.path?;
        self.client(token, slot, &path)
    }

    /// Closes those on which nobody has an allocation, a portion at a time.
    pub(crate) fn handle_timeout(&mut self, now: Instant, is_used: impl Fn(&Path) -> bool) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        self.checks_at = None;
        for _ in 0..PORTION {
            let Some(slot) = self.checks.pop_due(now) else { return };
            let Some(connection) = self.all.get_mut(slot) else { continue };
            let Some(path) = connection.path else { continue };
            connection.check = is_used(&path).then(|| self.checks.insert(now + self.settings.unused_max, slot));
            if connection.check.is_none() {
                self.requests.push_back(LinkRequest::Close { link: path.link });
            }
        }
        self.checks_at = Some(now + PAUSE);
    }

    /// When that is next due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let at = self.checks.next_deadline()?;
        Some(self.checks_at.map_or(at, |not_before| not_before.max(at)))
    }

    /// The next request for the engine.
    pub(crate) fn requests(&mut self) -> &mut VecDeque<LinkRequest> {
        &mut self.requests
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
