//! The data channels of one peer connection: which of str0m's are those that a room has, and how much may wait in them.
//!
//! In: str0m's events about channels; messages to send. Out: messages that came, and which channels are open.
//! Cost: a message is copied into SCTP's buffer, and out of it.
//! Source: RFC 8831 (data channels), RFC 8832 (their protocol), RFC 8841 (their description).

use str0m::Rtc;
use str0m::channel::{ChannelConfig, ChannelId, Reliability};

/// The longest message, either way; the description says so. One that is longer ends the peer's association.
pub const MESSAGE_BYTES_MAX: usize = 65_535;

/// What may wait to be sent on both channels, before messages are refused.
pub const BUFFERED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// With so much on the reliable channel, what is on its way and not acknowledged yet among it, the peer is behind: some 20 Mbit/s
/// over a path of 100 ms. What still comes until others are told has the rest of the room.
pub const BEHIND_BYTES: usize = 256 * 1024;

/// When no more than this waits, it has caught up.
pub const CAUGHT_UP_BYTES: usize = 128 * 1024;

/// What may wait on the lossy channel: what is late is worth nothing.
pub const LOSSY_BYTES_MAX: usize = 64 * 1024;

/// Channels of one session, with those of other names; further ones are closed.
const CHANNELS_MAX: usize = 8;

/// How messages are delivered, which is how the channels of a room differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumString, strum::VariantArray)]
pub enum Delivery {
    /// In order, each once.
    #[strum(serialize = "_reliable")]
    Reliable,
    /// In any order, each once at most.
    #[strum(serialize = "_lossy")]
    Lossy,
}

/// What happens on a room's data channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// Messages may be sent.
    Opened(Delivery),
    /// By the peer, and for good.
    Closed(Delivery),
    /// `BEHIND_BYTES` wait on the reliable channel: who goes on sending there loses something before long.
    Behind,
    /// Hardly anything waits there any more.
    CaughtUp,
    /// From the peer.
    Message {
        /// On which channel.
        delivery: Delivery,
        /// All of it, `MESSAGE_BYTES_MAX` at most.
        data: Vec<u8>,
        /// It was sent as text.
        is_text: bool,
    },
    /// From the peer, on a channel of a name of its own.
    Other {
        /// As above.
        data: Vec<u8>,
    },
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum DataRefused {
    #[error("the channel is not open")]
    NotOpen,
    #[error("{got} bytes, more than the {max} that the peer takes")]
    TooLong { got: usize, max: usize },
    #[error("as much waits as may wait")]
    Full,
}

/// What becomes of what comes by a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Room(Delivery),
    Other,
    Unread,
}

/// The channels of one connection.
#[derive(Debug)]
pub(crate) struct Channels {
    open: Vec<(ChannelId, Use)>,
    is_behind: bool,
    /// The longest message that the peer takes.
    peer_takes: usize,
}

impl Channels {
    /// Waits for the peer's association, or as DTLS client makes one, and makes our channels in it where they are ours to make.
    pub fn start(rtc: &mut Rtc, peer_takes: usize, are_ours: bool, is_client: bool) -> Self {
        let mut api = rtc.direct_api();
        // Browsers and pion connect in any case, other libraries as DTLS clients alone.
        api.start_sctp(is_client);
        if are_ours {
            let reliable = ChannelConfig { label: name(Delivery::Reliable), ..ChannelConfig::default() };
            api.create_data_channel(reliable);
            let reliability = Reliability::MaxRetransmits { retransmits: 0 };
            api.create_data_channel(ChannelConfig {
                label: name(Delivery::Lossy),
                ordered: false,
                reliability,
                ..ChannelConfig::default()
            });
        }
        Channels { open: Vec::new(), is_behind: false, peer_takes: peer_takes.min(MESSAGE_BYTES_MAX) }
    }

    /// A channel is open. The first of a room's is the one; nobody reads others of its name, nor those whose names begin as those
    /// of the protocol do.
    pub fn handle_open(&mut self, rtc: &mut Rtc, id: ChannelId, label: &str) -> Option<ChannelEvent> {
        if self.open.len() >= CHANNELS_MAX {
            rtc.direct_api().close_data_channel(id);
            return None;
        }
        let delivery: Option<Delivery> = label.parse().ok();
        let delivery = delivery.filter(|delivery| self.id_of(*delivery).is_none());
        let other = if label.starts_with('_') { Use::Unread } else { Use::Other };
        if let (Some(Delivery::Reliable), Some(mut channel)) = (delivery, rtc.channel(id)) {
            channel.set_buffered_amount_low_threshold(CAUGHT_UP_BYTES);
        }
        self.open.push((id, delivery.map_or(other, Use::Room)));
        delivery.map(ChannelEvent::Opened)
    }

    pub fn handle_close(&mut self, id: ChannelId) -> Option<ChannelEvent> {
        let index = self.open.iter().position(|(known, _)| *known == id)?;
        match self.open.swap_remove(index).1 {
            Use::Room(delivery) => Some(ChannelEvent::Closed(delivery)),
            Use::Other | Use::Unread => None,
        }
    }

    pub fn handle_data(&self, id: ChannelId, data: Vec<u8>, is_text: bool) -> Option<ChannelEvent> {
        match self.open.iter().find(|(known, _)| *known == id)?.1 {
            Use::Room(delivery) => Some(ChannelEvent::Message { delivery, data, is_text }),
            Use::Other => Some(ChannelEvent::Other { data }),
            Use::Unread => None,
        }
    }

    /// Little waits on a channel any more.
    pub fn handle_low(&mut self, id: ChannelId) -> Option<ChannelEvent> {
        let has_caught_up = self.id_of(Delivery::Reliable) == Some(id) && std::mem::take(&mut self.is_behind);
        has_caught_up.then_some(ChannelEvent::CaughtUp)
    }

    /// Sends a message, or refuses it; says so when that has the peer fall behind.
    pub fn send(
        &mut self,
        rtc: &mut Rtc,
        delivery: Delivery,
        data: &[u8],
    ) -> Result<Option<ChannelEvent>, DataRefused> {
        let id = self.id_of(delivery).ok_or(DataRefused::NotOpen)?;
        if data.len() > self.peer_takes {
            return Err(DataRefused::TooLong { got: data.len(), max: self.peer_takes });
        }
        let mut channel = rtc.channel(id).ok_or(DataRefused::NotOpen)?;
        if delivery == Delivery::Lossy && channel.buffered_amount() + data.len() > LOSSY_BYTES_MAX {
            return Err(DataRefused::Full);
        }
        match channel.write(true, data) {
            Ok(true) => {}
            Ok(false) => return Err(DataRefused::Full),
            Err(_) => return Err(DataRefused::NotOpen),
        }
        let falls_behind =
            delivery == Delivery::Reliable && !self.is_behind && channel.buffered_amount() >= BEHIND_BYTES;
        self.is_behind |= falls_behind;
        Ok(falls_behind.then_some(ChannelEvent::Behind))
    }

    fn id_of(&self, delivery: Delivery) -> Option<ChannelId> {
        self.open.iter().find(|(_, known)| *known == Use::Room(delivery)).map(|(id, _)| *id)
    }
}

fn name(delivery: Delivery) -> String {
    <&str>::from(delivery).into()
}
