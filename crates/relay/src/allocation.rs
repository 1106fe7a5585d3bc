//! One allocation: a client, what stands for it towards peers, and whom it has permitted (RFC 8656 §6).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use wheel::TimerId;
use wire::{LinkId, Path, Token};

use crate::answer::Seal;
use crate::channel::Channels;
use crate::ledger::Account;
use crate::message::{Family, TransactionId};
use crate::permission::Permissions;
use crate::reservation::ReservationToken;
use crate::rules::{self, Rules};
use crate::spec::{AllocationId, AllocationInfo, ClientTransport, Traffic};
use crate::story::{Happened, Story};

/// The client's side of a five-tuple (RFC 8656 §3.1): the way to it says the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// What the relay calls its link.
    pub(crate) token: Token,
    /// How it is reached. No two five-tuples have the same.
    pub(crate) path: Path,
    /// Its address, as it is told.
    pub(crate) address: SocketAddr,
    /// Ours, as it sees it.
    pub(crate) server: SocketAddr,
    /// Between the two.
    pub(crate) transport: ClientTransport,
}

impl Client {
    /// That of its address.
    pub(crate) fn family(&self) -> Family {
        Family::of(self.address.ip())
    }

    /// Whether it is at its address for sure: there was a handshake.
    pub(crate) fn is_proved(&self) -> bool {
        self.transport != ClientTransport::Udp
    }
}

/// What a worker keeps for one client.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) id: AllocationId,
    pub(crate) client: Client,
    /// Peers are reached by TCP (RFC 6062).
    pub(crate) is_tcp: bool,
    /// Whose it is: nobody else may change it (RFC 8656 §7.2, 441).
    pub(crate) user: Arc<str>,
    /// Its place among all of them, and its bandwidth.
    pub(crate) account: Account,
    pub(crate) begun: Instant,
    /// When it expires, and the timer that sees to it.
    pub(crate) until: Instant,
    pub(crate) timer: TimerId,
    /// The slots of its relayed transport addresses, IPv4 and IPv6.
    pub(crate) relayed: [Option<usize>; 2],
    /// What made it: the same request is answered again with the same words.
    pub(crate) transaction: TransactionId,
    /// What the client was told for the next port.
    pub(crate) reserved: Option<ReservationToken>,
    /// The family that was wanted as well and could not be had, and why (RFC 8656 §18.12).
    pub(crate) lacks: Option<(Family, u16)>,
    /// `None`: the client was told that it is there.
    pub(crate) opening: Option<Box<Opening>>,
    pub(crate) permissions: Permissions,
    pub(crate) channels: Channels,
    /// From the client to peers, and back.
    pub(crate) sent: Traffic,
    pub(crate) received: Traffic,
    /// What was over a bandwidth, both ways.
    pub(crate) dropped: u64,
    /// What became of it. Nothing on the way of data looks at that.
    pub(crate) story: Box<Story>,
}

/// What is kept until its sockets are open: then the client gets its answer.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Sockets that are not.
    pub(crate) waiting: usize,
    pub(crate) seal: Seal,
    pub(crate) has_fingerprint: bool,
}

impl Allocation {
    /// The slot of its relayed transport address of a family.
    #[inline]
    pub(crate) fn relayed(&self, family: Family) -> Option<usize> {
        self.relayed[family_index(family)]
    }

    /// Whether its time has come, though nobody saw to it yet.
    #[inline]
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// Permits a peer's address, for which there is room.
    pub(crate) fn permit(&mut self, now: Instant, ip: IpAddr, ports: rules::Ports) {
        if self.permissions.ports(now, &ip).is_none() {
            self.story.note(now, Happened::Permitted(ip));
        }
        self.permissions.permit(now, ip, ports);
    }

    /// The rules are others now: forgets permissions and channels of peers that are not allowed any more.
    pub(crate) fn apply(&mut self, now: Instant, rules: &Rules) {
        let before = (self.permissions.count(now), self.channels.count(now));
        self.permissions.apply(rules);
        self.channels.keep(|peer, _| rules.allows(peer));
        let after = (self.permissions.count(now), self.channels.count(now));
        if before != after {
            let (permissions, channels) = ((before.0 - after.0) as u32, (before.1 - after.1) as u32);
            self.story.note(now, Happened::Denied { permissions, channels });
        }
    }

    /// Sees to its story what it has carried.
    pub(crate) fn look(&mut self, now: Instant) {
        self.story.look(now, self.sent, self.received, self.dropped);
    }

    /// As control and the API show it.
    pub(crate) fn info(&self, now: Instant, relayed: Vec<SocketAddr>) -> AllocationInfo {
        AllocationInfo {
            id: self.id,
            user: Arc::clone(&self.user),
            client: self.client.address,
            server: self.client.server,
            transport: self.client.transport,
            relayed,
            age: now.saturating_duration_since(self.begun),
            expires_in: self.until.saturating_duration_since(now),
            permissions: self.permissions.count(now),
            channels: self.channels.count(now),
            sent: self.sent,
            received: self.received,
            dropped: self.dropped,
        }
    }
}

/// The place of a family among an allocation's relayed addresses.
pub(crate) fn family_index(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}

/// How peers are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerTransport {
    /// By datagrams.
    Udp,
    /// By datagrams that nobody takes apart: the client asked for DONT-FRAGMENT (RFC 8656 §18.9). It holds for all of an
    /// allocation's, also for Send indications without it.
    UdpWhole,
    /// By connections (RFC 6062).
    Tcp,
}

/// A relayed transport address: a socket of its own.
#[derive(Debug)]
pub(crate) struct Relayed {
    /// Whose it is; `None` when that is gone, and this about to.
    pub(crate) allocation: Option<usize>,
    /// What is bound, and what peers see.
    pub(crate) bound: SocketAddr,
    pub(crate) shown: SocketAddr,
    /// `None`: it is not open yet.
    pub(crate) link: Option<LinkId>,
    /// For TCP it is a listener for peers' connections.
    pub(crate) peers: PeerTransport,
    /// Its port was kept for who had this token.
    pub(crate) token: Option<ReservationToken>,
    /// Other ports that were tried for it.
    pub(crate) retries: usize,
    /// The port behind it is to be kept.
    pub(crate) is_pair: bool,
    /// That is kept: it is given back by itself.
    pub(crate) is_kept: bool,
}
