//! One client: its way to the server, its dialog, and how its messages look on that way.
//!
//! In: messages' bytes, and frames that the server sent. Out: frames, and what they hold.
//! Source: RFC 8656 §11 (Send and Data indications), §12.4 (ChannelData).

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use wire::{Outbox, Path};

use super::connection::Connection;
use super::dialog::{CHANNEL, Dialog};
use super::payload::{Payload, Stamp};
use super::seen::Seen;

const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const STUN_HEADER_BYTES: usize = 20;
const SEND_INDICATION: u16 = 0x0016;
const DATA_INDICATION: u16 = 0x0017;
const XOR_PEER_ADDRESS: u16 = 0x0012;
const DATA: u16 = 0x0013;

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its turn has not come.
    Waiting,
    /// It makes its connection or its allocation.
    SettingUp,
    /// It may send.
    Ready,
    /// It gives its allocation back.
    Freeing,
    /// It has none any more, or never had.
    Ended,
}

/// How it speaks to the server.
pub(super) enum Way {
    /// Datagrams, by this path.
    Datagrams(Path),
    /// A connection, which is not there yet while it is `None`.
    Stream(Option<Connection>),
}

/// One client.
pub(super) struct Client {
    pub(super) stage: Stage,
    pub(super) way: Way,
    pub(super) peer: SocketAddr,
    pub(super) dialog: Dialog,
    /// When it began to make its allocation.
    pub(super) started: Instant,
    /// When its allocation, and its channel or permission, are to be refreshed.
    pub(super) refresh_at: Instant,
    frame: Around,
    pub(super) seen: Seen,
    /// The number of its next message.
    pub(super) next_seq: u32,
    /// The number from which on messages count.
    pub(super) counted_from: u32,
    /// Messages below this number are no longer waited for.
    pub(super) given_up: u32,
    /// What `next_seq` of `seen` was when it was looked at last.
    pub(super) looked_at: u32,
    /// Whether it is among those that may have something to send.
    pub(super) is_hungry: bool,
}

impl Client {
    pub(super) fn new(now: Instant, way: Way, peer: SocketAddr, len: usize, indications: bool) -> Self {
        let is_stream = matches!(way, Way::Stream(_));
        Client {
            stage: Stage::Waiting,
            way,
            peer,
            dialog: Dialog::default(),
            started: now,
            refresh_at: now,
            frame: Around::new(peer, len, indications, is_stream),
            seen: Seen::default(),
            next_seq: 0,
            counted_from: 0,
            given_up: 0,
            looked_at: 0,
            is_hungry: false,
        }
    }

    /// Messages that are under way, as far as it is known.
    pub(super) fn in_flight(&self) -> u32 {
        self.next_seq - self.seen.next().max(self.given_up)
    }

    /// Sends its next message.
    pub(super) fn send(&mut self, number: u32, sent_ns: u64, payload: &Payload, out: &mut Outbox) -> Sent {
        let stamp = Stamp { client: number, seq: self.next_seq, sent_ns };
        match &mut self.way {
            Way::Datagrams(path) => {
                let Some(slot) = out.slot() else { return Sent::NoRoom };
                let len = self.frame.write(slot, payload, stamp);
                out.commit(path, len);
            }
            Way::Stream(Some(connection)) if !connection.has_room() => return Sent::NoRoom,
            Way::Stream(Some(connection)) => {
                let mut buf = [0; wire::DATAGRAM_MAX];
                let len = self.frame.write(&mut buf, payload, stamp);
                if connection.write(&buf[..len]).is_err() {
                    return Sent::Never;
                }
            }
            Way::Stream(None) => return Sent::Never,
        }
        self.next_seq += 1;
        Sent::Yes
    }

    /// Has no room for its next message, which counts as lost.
    pub(super) fn skip(&mut self) {
        self.next_seq += 1;
    }

    /// Sends what its dialog asks.
    pub(super) fn send_request(&mut self, out: &mut Outbox) {
        let bytes = self.dialog.bytes();
        match &mut self.way {
            // What finds no room is sent again in a while.
            Way::Datagrams(path) => drop(out.push(path, bytes)),
            Way::Stream(Some(connection)) => {
                if connection.write(bytes).is_ok() {
                    connection.flush(out);
                }
            }
            Way::Stream(None) => {}
        }
    }

    /// Hands over what waits for room. False when there is none.
    pub(super) fn flush(&mut self, out: &mut Outbox) -> bool {
        match &mut self.way {
            Way::Stream(Some(connection)) => connection.flush(out),
            Way::Datagrams(_) | Way::Stream(None) => true,
        }
    }
}

/// Whether a message was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// Not now.
    NoRoom,
    /// The connection is gone.
    Never,
}

/// What stands around each message of a client.
struct Around {
    head: Vec<u8>,
    /// Bytes behind it, up to a multiple of four.
    padding: usize,
}

impl Around {
    fn new(peer: SocketAddr, len: usize, indications: bool, is_stream: bool) -> Self {
        let head = if indications { send_indication(peer, len) } else { channel_data(len) };
        let padding = if indications || is_stream { len.next_multiple_of(4) - len } else { 0 };
        Around { head, padding }
    }

    /// Writes a message and what is around it to the front of `buf`; returns how many bytes that are.
    fn write(&self, buf: &mut [u8], payload: &Payload, stamp: Stamp) -> usize {
        let (start, end) = (self.head.len(), self.head.len() + payload.len());
        buf[..start].copy_from_slice(&self.head);
        payload.write(&mut buf[start..], stamp);
        buf[end..end + self.padding].fill(0);
        end + self.padding
    }
}

/// What a frame from the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// A message, at this place.
    Message(Range<usize>),
    /// Something of the dialog.
    Dialog,
    /// Neither.
    Other,
}

/// Looks what the server sent.
pub(super) fn look(frame: &[u8]) -> Frame {
    let Some([high, low, len_high, len_low]) = frame.first_chunk().copied() else { return Frame::Other };
    let (kind, len) = (u16::from_be_bytes([high, low]), usize::from(u16::from_be_bytes([len_high, len_low])));
    match kind {
        CHANNEL if frame.len() >= 4 + len => Frame::Message(4..4 + len),
        DATA_INDICATION => data_of(frame).map_or(Frame::Other, Frame::Message),
        _ if high < 0x40 => Frame::Dialog,
        _ => Frame::Other,
    }
}

/// Where the value of DATA lies.
fn data_of(message: &[u8]) -> Option<Range<usize>> {
    let mut at = STUN_HEADER_BYTES;
    loop {
        let [high, low, len_high, len_low] = *message.get(at..)?.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let start = at + 4;
        if u16::from_be_bytes([high, low]) == DATA {
            return (start + len <= message.len()).then_some(start..start + len);
        }
        at = start + len.next_multiple_of(4);
    }
}

fn channel_data(len: usize) -> Vec<u8> {
    [CHANNEL.to_be_bytes(), (len as u16).to_be_bytes()].concat()
}

/// A Send indication up to the data, of which there will be `len` bytes. All of a client have one transaction id, for which
/// nobody looks in an indication.
fn send_indication(peer: SocketAddr, len: usize) -> Vec<u8> {
    let transaction = [0x5a; 12];
    let port = (peer.port() ^ u16::from_be_bytes([MAGIC_COOKIE[0], MAGIC_COOKIE[1]])).to_be_bytes();
    let mask = MAGIC_COOKIE.into_iter().chain(transaction);
    let (family, address): (u8, Vec<u8>) = match peer.ip() {
        IpAddr::V4(ip) => (1, ip.octets().into_iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect()),
        IpAddr::V6(ip) => (2, ip.octets().into_iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect()),
    };
    let attribute = |kind: u16, len: usize| [kind.to_be_bytes(), (len as u16).to_be_bytes()].concat();
    let attributes =
        [&attribute(XOR_PEER_ADDRESS, 4 + address.len())[..], &[0, family], &port, &address, &attribute(DATA, len)];
    let attributes = attributes.concat();
    let message_len = attributes.len() + len.next_multiple_of(4);
    [&attribute(SEND_INDICATION, message_len)[..], &MAGIC_COOKIE, &transaction, &attributes].concat()
}

#[cfg(test)]
mod tests {
    use stun_types::message::{Message, MessageClass};
    use turn_types::attribute::{Data, XorPeerAddress};
    use turn_types::channel::ChannelData;
    use turn_types::message::SEND;
    use wire::LinkId;

    use super::*;

    fn sent(indications: bool, peer: SocketAddr) -> (Vec<u8>, Stamp) {
        let path = Path { link: LinkId::datagrams(0), remote: peer, local: None };
        let mut client = Client::new(Instant::now(), Way::Datagrams(path), peer, 21, indications);
        let mut out = Outbox::new(2_000);
        assert_eq!(client.send(3, 99, &Payload::new(21), &mut out), Sent::Yes);
        assert_eq!((client.next_seq, client.in_flight()), (1, 1));
        let bytes = out.datagrams().next().unwrap().1.to_vec();
        (bytes, Stamp { client: 3, seq: 0, sent_ns: 99 })
    }

    #[test]
    fn a_send_indication_is_what_others_take_for_one() {
        for peer in ["10.1.2.3:4567", "[2001:db8::7]:9"] {
            let peer = peer.parse().unwrap();
            let (bytes, stamp) = sent(true, peer);
            let message = Message::from_bytes(&bytes).unwrap();
            assert!(message.has_class(MessageClass::Indication) && message.has_method(SEND));
            let address = message.attribute::<XorPeerAddress>().unwrap();
            assert_eq!(address.addr(message.transaction_id()), peer);
            assert_eq!(Payload::new(21).read(message.attribute::<Data<'_>>().unwrap().data()), Some(stamp));
        }
    }

    #[test]
    fn channel_data_is_what_others_take_for_it_and_is_not_padded_in_datagrams() {
        let (bytes, stamp) = sent(false, "10.1.2.3:4567".parse().unwrap());
        let data = ChannelData::parse(&bytes).unwrap();
        assert_eq!((bytes.len(), data.id(), Payload::new(21).read(data.data())), (25, CHANNEL, Some(stamp)));
        assert_eq!(look(&bytes), Frame::Message(4..25));
        assert_eq!(look(&bytes[..24]), Frame::Other);
    }

    #[test]
    fn data_is_found_wherever_it_stands_and_where_it_is_cut_off_it_is_not() {
        let (mut bytes, _) = sent(true, "10.1.2.3:4567".parse().unwrap());
        bytes[1] = 0x17;
        assert_eq!(look(&bytes), Frame::Message(36..57));
        bytes[20..22].copy_from_slice(&DATA.to_be_bytes());
        assert_eq!(look(&bytes), Frame::Message(24..32));
        bytes[22..24].copy_from_slice(&100_u16.to_be_bytes());
        assert_eq!(look(&bytes), Frame::Other);
        assert_eq!(look(&bytes[..22]), Frame::Other);
        assert_eq!(
            [look(&[]), look(&[1, 1, 0, 0]), look(&[0x80, 0, 0, 0])],
            [Frame::Other, Frame::Dialog, Frame::Other]
        );
    }
}
