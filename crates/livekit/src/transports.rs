//! The peer connections of one participant: two by protocol v0, one by v1.

use crate::media::SessionId;

/// One peer connection, and what is known of it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: SessionId,
    pub(crate) is_connected: bool,
    /// Nothing has been heard of it for a while.
    pub(crate) is_lost: bool,
    /// Whether data channels were agreed on; and whether they are open.
    pub(crate) has_data: bool,
    pub(crate) has_channels: bool,
    /// The number of the last offer of ours, by which the answer names it.
    pub(crate) offered: u32,
    /// The number of the client's last offer.
    pub(crate) asked: u32,
}

#[derive(Debug)]
pub(crate) struct Transports {
    pub(crate) is_single: bool,
    /// Of two, the client counts on the one by which it watches, as it was told when it joined: who may not subscribe does not.
    pub(crate) is_subscriber_primary: bool,
    /// By which the client publishes; with a single one, all goes by it.
    pub(crate) publisher: Option<Peer>,
    pub(crate) subscriber: Option<Peer>,
}

impl Peer {
    pub(crate) fn new(id: SessionId, has_data: bool) -> Self {
        Peer { id, is_connected: false, is_lost: false, has_data, has_channels: false, offered: 0, asked: 0 }
    }

    fn is_established(&self) -> bool {
        self.is_connected && (self.has_channels || !self.has_data)
    }
}

impl Transports {
    pub(crate) fn new(is_single: bool, can_subscribe: bool) -> Self {
        let is_subscriber_primary = !is_single && can_subscribe;
        Transports { is_single, is_subscriber_primary, publisher: None, subscriber: None }
    }

    pub(crate) fn peer_mut(&mut self, id: SessionId) -> Option<&mut Peer> {
        self.publisher.iter_mut().chain(&mut self.subscriber).find(|peer| peer.id == id)
    }

    /// Where tracks go down.
    pub(crate) fn down(&self) -> Option<&Peer> {
        if self.is_single { self.publisher.as_ref() } else { self.subscriber.as_ref() }
    }

    /// The one that the client counts on. Data goes down there.
    pub(crate) fn primary(&self) -> Option<&Peer> {
        if self.is_subscriber_primary { self.subscriber.as_ref() } else { self.publisher.as_ref() }
    }

    /// Whether the participant is there: the one that the client counts on has what it needs.
    pub(crate) fn is_established(&self) -> bool {
        self.primary().is_some_and(Peer::is_established)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.publisher.iter().chain(&self.subscriber).any(|peer| peer.is_connected)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.publisher.iter().chain(&self.subscriber).any(|peer| peer.is_lost)
    }

    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.publisher.iter().chain(&self.subscriber).map(|peer| peer.id).collect()
    }
}
