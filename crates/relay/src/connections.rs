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
use wire::framing::Framing;
use wire::{Adopted, LinkId, LinkRequest, Path, StreamOptions, Token};

use crate::allocation::Client;
use crate::names::Name;
use crate::settings::Settings;
use crate::spec::{self, ClientTransport};

/// Bytes of the longest message: ChannelData with all the data that its length can tell, and padding (RFC 8656 §12.4).
const FRAME_MAX: usize = (1 << 16) + 4;

/// How much longer than an allocation lives without a refresh a connection may be silent.
const SILENCE_MORE: Duration = Duration::from_secs(60);

/// What the client was sent and does not acknowledge for so long ends the connection.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(60);

/// Connections that are looked at before everything else gets its turn; the next portion waits for `PAUSE`.
const PORTION: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// How fine the wheel turns.
const TICK: Duration = Duration::from_millis(100);

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
}

#[derive(Debug)]
struct Connection {
    /// `None`: it is not open yet.
    path: Option<Path>,
    check: Option<TimerId>,
    address: SocketAddr,
    server: SocketAddr,
    transport: ClientTransport,
}

impl Connections {
    pub(crate) fn new(now: Instant, settings: &Arc<Settings>) -> Self {
        Connections {
            settings: Arc::clone(settings),
            all: Slab::new(),
            requests: VecDeque::new(),
            checks: Wheel::new(now, TICK),
            checks_at: None,
        }
    }

    /// Takes a connection over. One too many is closed.
    pub(crate) fn add(&mut self, connection: spec::Connection) {
        if self.all.len() >= self.settings.connections_max {
            return;
        }
        let spec::Connection { descriptor, client, server, transport, begun } = connection;
        let slot = self.all.insert(Connection { path: None, check: None, address: client, server, transport });
        let options = StreamOptions {
            framing: Some(Framing::Turn),
            frame_max: FRAME_MAX,
            backlog_max: self.settings.backlog_max,
            silence_max: Some(self.settings.lifetime_max + SILENCE_MORE),
            unacknowledged_max: Some(UNACKNOWLEDGED_MAX),
            ..StreamOptions::default()
        };
        let token = Token { owner: self.settings.owner, number: Name::Client(slot).number() };
        self.requests.push_back(LinkRequest::Adopt { token, descriptor, kind: Adopted::Begun(options, begun) });
    }

    /// A connection is there.
    pub(crate) fn handle_opened(&mut self, now: Instant, slot: usize, link: LinkId, remote: Option<SocketAddr>) {
        let Some(connection) = self.all.get_mut(slot) else { return };
        connection.path = Some(Path { link, remote: remote.unwrap_or(connection.address), local: None });
        connection.check = Some(self.checks.insert(now + self.settings.unused_max, slot));
    }

    /// A connection is gone, or never came; the way to its client.
    pub(crate) fn handle_closed(&mut self, slot: usize) -> Option<Path> {
        let connection = self.all.try_remove(slot)?;
        connection.check.map(|check| self.checks.cancel(check));
        connection.path
    }

    /// Who is at the other end of a link.
    pub(crate) fn client(&self, token: Token, slot: usize, path: &Path) -> Option<Client> {
        let connection = self.all.get(slot).filter(|connection| connection.path.is_some_and(|own| own == *path))?;
        let Connection { address, server, transport, .. } = *connection;
        Some(Client { token, path: *path, address, server, transport })
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
