//! What clients ask for, once it is known who they are: RFC 8656 §7 to §12, in the order of their steps.
//!
//! In: a request, whose it is. Out: what has changed, and what the answer says, or the code of a refusal.
//! Nothing here is on the way of data.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::LinkKind;

use crate::allocation::{Allocation, Client, PeerTransport, family_index};
use crate::allocations::{Allocations, NO_ROOM, Wish};
use crate::alternates::Alternates;
use crate::answer::{Code, Writer};
use crate::auth;
use crate::blocked::Blocked;
use crate::channel::{BindError, CHANNEL_NUMBERS};
use crate::ledger::Full;
use crate::message::{Family, Message, Method, attribute};
use crate::ports::Wanted;
use crate::rules;
use crate::settings::Settings;
use crate::spec::EndReason;
use crate::story::Happened;
use crate::tcp::{Asked, PeerConnections};

pub(crate) const BAD_REQUEST: Code = (400, "Bad Request");
const FORBIDDEN: Code = (403, "Forbidden");
pub(crate) const UNKNOWN_ATTRIBUTE: Code = (420, "Unknown Attribute");
const MISMATCH: Code = (437, "Allocation Mismatch");
const UNSUPPORTED_FAMILY: Code = (440, "Address Family not Supported");
const WRONG_CREDENTIALS: Code = (441, "Wrong Credentials");
const UNSUPPORTED_TRANSPORT: Code = (442, "Unsupported Transport Protocol");
const FAMILY_MISMATCH: Code = (443, "Peer Address Family Mismatch");
const CONNECTION_EXISTS: Code = (446, "Connection Already Exists");
pub(crate) const CONNECTION_FAILURE: Code = (447, "Connection Timeout or Failure");
const QUOTA: Code = (486, "Allocation Quota Reached");
const TRY_ALTERNATE: Code = (300, "Try Alternate");

/// The numbers of protocols (REQUESTED-TRANSPORT).
const UDP: u8 = 17;
const TCP: u8 = 6;

/// Peers that one CreatePermission names at most; what is longer is a mistake, or worse.
const PEERS_MAX: usize = 64;

/// What a request that is granted is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    /// Nothing yet: the answer follows when sockets are open.
    Later,
    /// The allocation that is there.
    Allocated(usize),
    /// The lifetime that is left.
    Refreshed(Duration),
    /// Nothing but that.
    Done,
}

/// Why a request is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A code.
    Code(Code),
    /// Somebody else takes newcomers (RFC 8489 §10).
    Alternate(SocketAddr),
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Refusal::Code(code)
    }
}

impl Refusal {
    /// Its code.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Refusal::Code((code, _)) => *code,
            Refusal::Alternate(_) => TRY_ALTERNATE.0,
        }
    }

    /// Writes what it says.
    pub(crate) fn write(&self, message: &Message<'_>, writer: &mut Writer<'_>) {
        match self {
            Refusal::Code(code) => writer.error(*code),
            Refusal::Alternate(to) => writer.error(TRY_ALTERNATE).plain_address(attribute::ALTERNATE_SERVER, *to),
        };
        if *self == Refusal::Code(UNKNOWN_ATTRIBUTE) {
            write_unknown(message, None, writer);
        }
    }
}

/// Says which attributes were not understood (RFC 8489 §14.10).
pub(crate) fn write_unknown(message: &Message<'_>, other: Option<u16>, writer: &mut Writer<'_>) {
    let mut list = [0; 18];
    let types = message.unknown().iter().chain(&other).flat_map(|kind| kind.to_be_bytes());
    let len = list.iter_mut().zip(types).map(|(place, byte)| *place = byte).count();
    writer.attribute(attribute::UNKNOWN_ATTRIBUTES, &list[..len]);
}

/// Says what an allocation has (RFC 8656 §7.3).
pub(crate) fn write_allocated(now: Instant, allocation: &Allocation, shown: &[SocketAddr], writer: &mut Writer<'_>) {
    for address in shown {
        writer.xor_address(attribute::XOR_RELAYED_ADDRESS, *address);
    }
    writer.number(attribute::LIFETIME, seconds(allocation.until.saturating_duration_since(now)));
    if let Some(token) = &allocation.reserved {
        writer.attribute(attribute::RESERVATION_TOKEN, token);
    }
    writer.xor_address(attribute::XOR_MAPPED_ADDRESS, allocation.client.address);
    if let Some((family, code)) = allocation.lacks {
        let value = [family.number(), 0, (code / 100) as u8, (code % 100) as u8];
        writer.attribute(attribute::ADDRESS_ERROR_CODE, &value);
    }
}

/// Whole seconds, the last one counted too.
pub(crate) fn seconds(left: Duration) -> u32 {
    u32::try_from(left.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// One request, and all that it is about.
pub(crate) struct Requests<'a> {
    pub(crate) now: Instant,
    pub(crate) settings: &'a Settings,
    pub(crate) rules: &'a rules::Rules,
    pub(crate) blocked: &'a Blocked,
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) peers: &'a mut PeerConnections,
    /// Newcomers are sent away.
    pub(crate) is_draining: bool,
    pub(crate) alternates: &'a mut Alternates,
    pub(crate) client: Client,
    /// Whose it is.
    pub(crate) proof: auth::Granted,
}

impl Requests<'_> {
    /// Does what a proved request asks for.
    pub(crate) fn handle(&mut self, message: &Message<'_>) -> Result<Granted, Refusal> {
        if self.blocked.has(self.now, &self.proof.user) {
            return Err(FORBIDDEN.into());
        }
        if !message.unknown().is_empty() {
            return Err(UNKNOWN_ATTRIBUTE.into());
        }
        if message.is_malformed {
            return Err(BAD_REQUEST.into());
        }
        // A connection that carries data does nothing else (RFC 6062 §4.3).
        let is_data = self.client.path.link.kind() == LinkKind::Stream;
        if is_data != (message.method == Some(Method::ConnectionBind)) {
            return Err(BAD_REQUEST.into());
        }
        match message.method {
            Some(Method::Allocate) => self.allocate(message),
            Some(Method::Refresh) => Ok(self.refresh(message)?),
            Some(Method::CreatePermission) => Ok(self.create_permission(message)?),
            Some(Method::ChannelBind) => Ok(self.bind_channel(message)?),
            Some(Method::Connect) => Ok(self.connect(message)?),
            Some(Method::ConnectionBind) => Ok(self.bind_connection(message)?),
            _ => Err(BAD_REQUEST.into()),
        }
    }

    /// RFC 8656 §7.2.
    fn allocate(&mut self, message: &Message<'_>) -> Result<Granted, Refusal> {
        if let Some(key) = self.allocations.find(self.now, &self.client.path) {
            return Ok(self.answer_again(key, message)?);
        }
        let peers = self.peer_transport(message)?;
        let (family, additional) = self.families(message)?;
        let wanted = match message.even_port {
            Some(true) if additional.is_some() => return Err(BAD_REQUEST.into()),
            Some(true) => Wanted::Pair,
            Some(false) => Wanted::Even,
            None => Wanted::Any,
        };
        if self.settings.alternates.take_all
            && let Some(server) = self.alternate()
        {
            return Err(Refusal::Alternate(server));
        }
        if self.is_draining {
            return Err(self.send_away(NO_ROOM));
        }
        let account = match self.settings.ledger.open(&self.proof.user) {
            Ok(account) => account,
            Err(Full::User) => return Err(QUOTA.into()),
            Err(Full::Total) => return Err(self.send_away(NO_ROOM)),
        };
        let kept = match message.reservation_token {
            Some(token) => {
                let address = self.settings.reservations.take(self.now, &token, &self.proof.user);
                Some((token, address.ok_or(NO_ROOM)?))
            }
            None => None,
        };
        let wish = Wish {
            client: self.client,
            user: Arc::clone(&self.proof.user),
            account,
            lifetime: self.lifetime(message),
            family,
            additional,
            peers,
            wanted,
            kept,
            transaction: message.transaction(),
            seal: self.proof.seal.clone(),
            has_fingerprint: message.has_fingerprint,
        };
        match self.allocations.begin(self.now, wish) {
            Ok(()) => Ok(Granted::Later),
            Err(code) => {
                if let Some((token, _)) = kept {
                    self.settings.reservations.put_back(&token);
                }
                Err(self.send_away(code))
            }
        }
    }

    /// How peers are to be reached: by TCP only for who came by TCP (RFC 6062 §5.1).
    fn peer_transport(&self, message: &Message<'_>) -> Result<PeerTransport, Code> {
        match message.requested_transport {
            Some(UDP) if message.dont_fragment => Ok(PeerTransport::UdpWhole),
            Some(UDP) => Ok(PeerTransport::Udp),
            Some(TCP) if self.settings.allows_tcp => {
                let is_of_udp =
                    message.even_port.is_some() || message.reservation_token.is_some() || message.dont_fragment;
                let is_stream = self.client.path.link.kind() == LinkKind::Framed;
                if is_of_udp || !is_stream { Err(BAD_REQUEST) } else { Ok(PeerTransport::Tcp) }
            }
            Some(_) => Err(UNSUPPORTED_TRANSPORT),
            None => Err(BAD_REQUEST),
        }
    }

    /// A five-tuple has one allocation. The request that made it may come again, as its answer was lost (RFC 8489 §6.3.1).
    fn answer_again(&self, key: usize, message: &Message<'_>) -> Result<Granted, Code> {
        let allocation = self.allocations.get(key).ok_or(MISMATCH)?;
        if allocation.transaction != message.transaction() || allocation.user != self.proof.user {
            return Err(MISMATCH);
        }
        Ok(if allocation.opening.is_some() { Granted::Later } else { Granted::Allocated(key) })
    }

    /// The families that are wanted, as far as they can be had.
    fn families(&self, message: &Message<'_>) -> Result<(Family, Option<Family>), Code> {
        let (requested, additional) = (message.requested_family, message.additional_family);
        let has_family = requested.is_some() || additional.is_some();
        if message.reservation_token.is_some() && (has_family || message.even_port.is_some()) {
            return Err(BAD_REQUEST);
        }
        if (requested.is_some() && additional.is_some()) || additional == Some(Some(Family::V4)) {
            return Err(BAD_REQUEST);
        }
        let own = Some(Family::of(self.client.address.ip()));
        let own = own.filter(|own| self.settings.keeps_family && self.settings.relay(*own).is_some());
        let first = self.settings.relays.first().map_or(Family::V4, |relay| Family::of(relay.bind));
        let family = match (requested, additional) {
            (Some(requested), _) => requested.ok_or(UNSUPPORTED_FAMILY)?,
            (None, Some(_)) => Family::V4,
            (None, None) => own.unwrap_or(first),
        };
        if self.settings.relay(family).is_none() {
            return Err(UNSUPPORTED_FAMILY);
        }
        match additional {
            Some(None) => Err(UNSUPPORTED_FAMILY),
            Some(additional) => Ok((family, additional)),
            None => Ok((family, None)),
        }
    }

    /// What a client asks for, within what it may have. 0 is not meant here.
    fn lifetime(&self, message: &Message<'_>) -> Duration {
        let wanted = message.lifetime.map(|seconds| Duration::from_secs(seconds.into())).unwrap_or_default();
        wanted.max(self.settings.lifetime_default).min(self.settings.lifetime_max)
    }

    /// To another server, or away.
    fn send_away(&mut self, code: Code) -> Refusal {
        self.alternate().map_or(code.into(), Refusal::Alternate)
    }

    /// The server whose turn it is to take such a client.
    fn alternate(&mut self) -> Option<SocketAddr> {
        self.alternates.next(self.client.transport, self.client.family())
    }

    /// The allocation that a request is about, which has to be its user's (RFC 8656 §5).
    fn own(&self) -> Result<usize, Code> {
        let key = self.allocations.find(self.now, &self.client.path).ok_or(MISMATCH)?;
        let allocation = self.allocations.get(key).filter(|it| it.opening.is_none()).ok_or(MISMATCH)?;
        if allocation.user == self.proof.user { Ok(key) } else { Err(WRONG_CREDENTIALS) }
    }

    /// RFC 8656 §8.2.
    fn refresh(&mut self, message: &Message<'_>) -> Result<Granted, Code> {
        let key = self.own()?;
        let allocation = self.allocations.get(key).ok_or(MISMATCH)?;
        let family = match message.requested_family {
            Some(family) => Some(family.ok_or(UNSUPPORTED_FAMILY)?),
            None => None,
        };
        if family.is_some_and(|family| allocation.relayed[family_index(family)].is_none()) {
            return Err(FAMILY_MISMATCH);
        }
        if message.lifetime != Some(0) {
            let lifetime = self.lifetime(message);
            self.allocations.refresh(self.now, key, lifetime);
            return Ok(Granted::Refreshed(lifetime));
        }
        match family {
            Some(family) if allocation.relayed.iter().all(Option::is_some) => {
                self.allocations.release_family(key, family);
                if let Some(allocation) = self.allocations.get_mut(key) {
                    allocation.story.note(self.now, Happened::GaveBack(family));
                }
            }
            _ => self.allocations.remove(self.now, key, EndReason::Released),
        }
        Ok(Granted::Refreshed(Duration::ZERO))
    }

    /// RFC 8656 §10.2. All of it, or nothing.
    fn create_permission(&mut self, message: &Message<'_>) -> Result<Granted, Code> {
        let key = self.own()?;
        let mut ips = [IpAddr::from([0, 0, 0, 0]); PEERS_MAX];
        let mut count = 0;
        for peer in message.peers() {
            let place = ips.get_mut(count).ok_or(NO_ROOM)?;
            *place = peer.ip();
            count += 1;
        }
        let ips = &ips[..count];
        if ips.is_empty() {
            return Err(BAD_REQUEST);
        }
        let (now, max) = (self.now, self.settings.permissions_max);
        let allocation = self.allocations.get_mut(key).ok_or(MISMATCH)?;
        for ip in ips {
            if allocation.relayed(Family::of(*ip)).is_none() {
                return Err(FAMILY_MISMATCH);
            }
            if self.rules.ports(*ip) == rules::Ports::None {
                return Err(FORBIDDEN);
            }
        }
        if !allocation.permissions.has_room_for(now, ips, max) {
            return Err(NO_ROOM);
        }
        ips.iter().for_each(|ip| allocation.permit(now, *ip, self.rules.ports(*ip)));
        Ok(Granted::Done)
    }

    /// RFC 8656 §12.2.
    fn bind_channel(&mut self, message: &Message<'_>) -> Result<Granted, Code> {
        let key = self.own()?;
        let (Some(number), Some(peer)) = (message.channel, message.peers().next()) else { return Err(BAD_REQUEST) };
        if !CHANNEL_NUMBERS.contains(&number) {
            return Err(BAD_REQUEST);
        }
        let now = self.now;
        let allocation = self.allocations.get_mut(key).ok_or(MISMATCH)?;
        if allocation.is_tcp {
            return Err(BAD_REQUEST);
        }
        if allocation.relayed(Family::of(peer.ip())).is_none() {
            return Err(FAMILY_MISMATCH);
        }
        if !self.rules.allows(peer) {
            return Err(FORBIDDEN);
        }
        let ip = peer.ip();
        if !allocation.permissions.has_room_for(now, &[ip], self.settings.permissions_max) {
            return Err(NO_ROOM);
        }
        let is_new = allocation.channels.peer(now, number).is_none();
        allocation.channels.bind(now, number, peer, self.settings.channels_max).map_err(|error| match error {
            BindError::Taken => BAD_REQUEST,
            BindError::Full => NO_ROOM,
        })?;
        if is_new {
            allocation.story.note(now, Happened::Bound { channel: number, peer });
        }
        allocation.permissions.permit(now, ip, self.rules.ports(ip));
        Ok(Granted::Done)
    }

    /// RFC 6062 §5.2. The answer waits for the peer's.
    fn connect(&mut self, message: &Message<'_>) -> Result<Granted, Code> {
        let key = self.own()?;
        let allocation = self.allocations.get(key).filter(|it| it.is_tcp).ok_or(BAD_REQUEST)?;
        let peer = message.peers().next().ok_or(BAD_REQUEST)?;
        let slot = allocation.relayed(Family::of(peer.ip())).ok_or(FAMILY_MISMATCH)?;
        if !self.rules.allows_by_tcp(peer) {
            return Err(FORBIDDEN);
        }
        if self.peers.peers(key).any(|other| other == peer) {
            return Err(CONNECTION_EXISTS);
        }
        if self.peers.peers(key).count() >= self.settings.peer_connections_max {
            return Err(NO_ROOM);
        }
        if !self.peers.has_place(&allocation.user) {
            return Err(NO_ROOM);
        }
        let from = self.allocations.socket(slot).ok_or(NO_ROOM)?.bound;
        let asked = Asked {
            path: self.client.path,
            transaction: message.transaction(),
            seal: self.proof.seal.clone(),
            has_fingerprint: message.has_fingerprint,
        };
        self.peers.connect(self.now, (key, &allocation.user), from, peer, asked);
        if let Some(allocation) = self.allocations.get_mut(key) {
            allocation.story.note(self.now, Happened::Connects(peer));
        }
        Ok(Granted::Later)
    }

    /// RFC 6062 §5.4. The connection that asks is data from now on.
    fn bind_connection(&mut self, message: &Message<'_>) -> Result<Granted, Code> {
        let id = message.connection_id.ok_or(BAD_REQUEST)?;
        let (slot, connection) = self.peers.find(id).ok_or(BAD_REQUEST)?;
        let allocation = connection.allocation.and_then(|key| self.allocations.get(key)).ok_or(BAD_REQUEST)?;
        if allocation.user != self.proof.user {
            return Err(WRONG_CREDENTIALS);
        }
        self.peers.bind(slot, self.client.path.link);
        Ok(Granted::Done)
    }
}
