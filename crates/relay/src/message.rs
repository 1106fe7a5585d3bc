//! STUN messages as a relay reads them: one pass over the attributes, borrowed, without a copy.
//!
//! In: one datagram, or one frame of a connection. Out: its method, class and transaction, and the attributes that TURN
//! knows; what is wrong with it.
//! Cost: one pass, and one more for peers' addresses; no allocation.
//! Source: RFC 8489 §5 (header), §14 (attributes), RFC 8656 §18, RFC 6062 §6.2, RFC 5780 §7.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;
pub use wire::stun::COOKIE;
use wire::stun::fingerprint;

/// Bytes of a message without attributes.
pub const HEADER_LEN: usize = 20;

/// Names a transaction (RFC 8489 §5).
pub type TransactionId = [u8; 12];

/// What a message asks for or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Method {
    /// RFC 8489 §2.
    Binding,
    /// RFC 8656 §7.
    Allocate,
    /// RFC 8656 §8.
    Refresh,
    /// RFC 8656 §11.2.
    Send,
    /// RFC 8656 §11.4.
    Data,
    /// RFC 8656 §10.
    CreatePermission,
    /// RFC 8656 §12.1.
    ChannelBind,
    /// RFC 6062 §4.3.
    Connect,
    /// RFC 6062 §4.3.
    ConnectionBind,
    /// RFC 6062 §4.4.
    ConnectionAttempt,
}

impl Method {
    /// Its number.
    pub const fn number(self) -> u16 {
        match self {
            Method::Binding => 0x001,
            Method::Allocate => 0x003,
            Method::Refresh => 0x004,
            Method::Send => 0x006,
            Method::Data => 0x007,
            Method::CreatePermission => 0x008,
            Method::ChannelBind => 0x009,
            Method::Connect => 0x00a,
            Method::ConnectionBind => 0x00b,
            Method::ConnectionAttempt => 0x00c,
        }
    }

    fn of(number: u16) -> Option<Self> {
        Some(match number {
            0x001 => Method::Binding,
            0x003 => Method::Allocate,
            0x004 => Method::Refresh,
            0x006 => Method::Send,
            0x007 => Method::Data,
            0x008 => Method::CreatePermission,
            0x009 => Method::ChannelBind,
            0x00a => Method::Connect,
            0x00b => Method::ConnectionBind,
            0x00c => Method::ConnectionAttempt,
            _ => return None,
        })
    }
}

/// What a message is to its receiver. The values are the two bits of the type, at their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Class {
    /// An answer is due.
    Request = 0x000,
    /// None is.
    Indication = 0x010,
    /// It is an answer.
    Success = 0x100,
    /// It is a refusal.
    Error = 0x110,
}

/// The first two bytes of a message. The bits of the class stand between those of the method.
pub const fn message_type(class: Class, method: Method) -> [u8; 2] {
    let method = method.number();
    let spread = method & 0xf | (method & 0x70) << 1 | (method & 0xf80) << 2;
    (spread | class as u16).to_be_bytes()
}

/// Attribute types that are known here. Those below 0x8000 must be understood (RFC 8489 §14).
pub mod attribute {
    #![allow(missing_docs, reason = "they are named as in RFC 8489 §18.3, RFC 8656 §18, RFC 6062 §6.2 and RFC 5780 §7")]

    pub const MAPPED_ADDRESS: u16 = 0x0001;
    pub const CHANGE_REQUEST: u16 = 0x0003;
    pub const USERNAME: u16 = 0x0006;
    pub const MESSAGE_INTEGRITY: u16 = 0x0008;
    pub const ERROR_CODE: u16 = 0x0009;
    pub const UNKNOWN_ATTRIBUTES: u16 = 0x000a;
    pub const CHANNEL_NUMBER: u16 = 0x000c;
    pub const LIFETIME: u16 = 0x000d;
    pub const XOR_PEER_ADDRESS: u16 = 0x0012;
    pub const DATA: u16 = 0x0013;
    pub const REALM: u16 = 0x0014;
    pub const NONCE: u16 = 0x0015;
    pub const XOR_RELAYED_ADDRESS: u16 = 0x0016;
    pub const REQUESTED_ADDRESS_FAMILY: u16 = 0x0017;
    pub const EVEN_PORT: u16 = 0x0018;
    pub const REQUESTED_TRANSPORT: u16 = 0x0019;
    pub const DONT_FRAGMENT: u16 = 0x001a;
    pub const MESSAGE_INTEGRITY_SHA256: u16 = 0x001c;
    pub const PASSWORD_ALGORITHM: u16 = 0x001d;
    pub const USERHASH: u16 = 0x001e;
    pub const XOR_MAPPED_ADDRESS: u16 = 0x0020;
    pub const RESERVATION_TOKEN: u16 = 0x0022;
    pub const RESPONSE_PORT: u16 = 0x0027;
    pub const CONNECTION_ID: u16 = 0x002a;
    pub const ADDITIONAL_ADDRESS_FAMILY: u16 = 0x8000;
    pub const ADDRESS_ERROR_CODE: u16 = 0x8001;
    pub const PASSWORD_ALGORITHMS: u16 = 0x8002;
    pub const ICMP: u16 = 0x8004;
    pub const ALTERNATE_SERVER: u16 = 0x8023;
    pub const FINGERPRINT: u16 = 0x8028;
    pub const RESPONSE_ORIGIN: u16 = 0x802b;
    pub const OTHER_ADDRESS: u16 = 0x802c;
    /// ADDITIONAL-ADDRESS-FAMILY as a draft had it, and coturn's client until 2025. The number is nobody else's.
    pub const ADDITIONAL_ADDRESS_FAMILY_OF_DRAFT: u16 = 0x8032;
}

/// What is wrong with a message: the sender's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StunError {
    /// It ends before its header does.
    #[error("{got} bytes, shorter than the 20-byte header")]
    Truncated {
        /// Bytes that are there.
        got: usize,
    },
    /// It is none.
    #[error("no magic cookie, or no STUN type")]
    NotStun,
    /// The length is another one than that of the datagram, or no multiple of four.
    #[error("length field says {said} bytes, {got} are there")]
    LengthMismatch {
        /// As the header has it.
        said: u16,
        /// Bytes behind the header.
        got: usize,
    },
    /// An attribute reaches over the end.
    #[error("the attribute at {at} ends behind the message")]
    AttributeTooLong {
        /// Where it begins.
        at: usize,
    },
    /// It has a fingerprint, and that is not its own.
    #[error("the fingerprint is another message's")]
    Fingerprint,
}

/// Address families as REQUESTED-ADDRESS-FAMILY has them (RFC 8656 §18.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
pub enum Family {
    /// 1.
    #[strum(serialize = "ipv4")]
    V4,
    /// 2.
    #[strum(serialize = "ipv6")]
    V6,
}

impl Family {
    /// That of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Its number.
    pub fn number(self) -> u8 {
        match self {
            Family::V4 => 1,
            Family::V6 => 2,
        }
    }
}

/// Where an integrity attribute stands, and its bytes. What it covers is all that stands before it, with a length in the
/// header as if the message ended with it (RFC 8489 §14.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integrity<'a> {
    /// Where the attribute begins.
    pub at: usize,
    /// The HMAC as it was sent: 20 bytes, or 16 to 32 of SHA-256.
    pub mac: &'a [u8],
}

impl Integrity<'_> {
    /// The length that the header has to have for it.
    pub fn covered_length(&self) -> u16 {
        (self.at + 4 + self.mac.len() - HEADER_LEN) as u16
    }
}

/// How many unknown attributes are told of at most.
const UNKNOWN_MAX: usize = 8;

/// A message, and what it says. Of an attribute that is there more than once the first counts; what stands behind an
/// integrity attribute does not, but for a stronger one and FINGERPRINT.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// What it is.
    pub class: Class,
    /// `None`: one that nobody here knows.
    pub method: Option<Method>,
    /// USERNAME.
    pub username: Option<&'a [u8]>,
    /// USERHASH.
    pub userhash: Option<[u8; 32]>,
    /// REALM.
    pub realm: Option<&'a [u8]>,
    /// NONCE.
    pub nonce: Option<&'a [u8]>,
    /// MESSAGE-INTEGRITY.
    pub integrity: Option<Integrity<'a>>,
    /// MESSAGE-INTEGRITY-SHA256.
    pub integrity_sha256: Option<Integrity<'a>>,
    /// PASSWORD-ALGORITHM: number and parameters.
    pub password_algorithm: Option<&'a [u8]>,
    /// PASSWORD-ALGORITHMS, as the client says that we offered them.
    pub password_algorithms: Option<&'a [u8]>,
    /// LIFETIME, in seconds.
    pub lifetime: Option<u32>,
    /// REQUESTED-TRANSPORT: the number of the protocol, 17 or 6.
    pub requested_transport: Option<u8>,
    /// REQUESTED-ADDRESS-FAMILY; `Some(None)` is one that is unknown.
    pub requested_family: Option<Option<Family>>,
    /// ADDITIONAL-ADDRESS-FAMILY.
    pub additional_family: Option<Option<Family>>,
    /// EVEN-PORT, and whether the next one is to be reserved.
    pub even_port: Option<bool>,
    /// RESERVATION-TOKEN.
    pub reservation_token: Option<[u8; 8]>,
    /// DONT-FRAGMENT.
    pub dont_fragment: bool,
    /// CHANNEL-NUMBER.
    pub channel: Option<u16>,
    /// CONNECTION-ID (RFC 6062 §6.2.1).
    pub connection_id: Option<u32>,
    /// CHANGE-REQUEST: another address, another port (RFC 5780 §7.2).
    pub change: Option<(bool, bool)>,
    /// RESPONSE-PORT (RFC 5780 §7.5).
    pub response_port: Option<u16>,
    /// FINGERPRINT is there, and right.
    pub has_fingerprint: bool,
    /// Some attribute has not the length that it must have.
    pub is_malformed: bool,
    first_peer: Option<usize>,
    /// Where the attributes that count end.
    end: usize,
    unknown: [u16; UNKNOWN_MAX],
    unknown_count: usize,
}

impl<'a> Message<'a> {
    /// Takes a datagram for a message. Its attributes have to fill it.
    ///
    /// # Errors
    /// When that is none, or its fingerprint is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, StunError> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(StunError::Truncated { got: bytes.len() });
        };
        let [type_high, type_low, length_high, length_low, cookie @ ..] = *header;
        let message_type = u16::from_be_bytes([type_high, type_low]);
        if message_type & 0xc000 != 0 || cookie[..4] != COOKIE {
            return Err(StunError::NotStun);
        }
        let (said, got) = (u16::from_be_bytes([length_high, length_low]), bytes.len() - HEADER_LEN);
        if usize::from(said) != got || !got.is_multiple_of(4) {
            return Err(StunError::LengthMismatch { said, got });
        }
        let number = message_type & 0xf | (message_type >> 1) & 0x70 | (message_type >> 2) & 0xf80;
        let class = match message_type & 0x110 {
            0x000 => Class::Request,
            0x010 => Class::Indication,
            0x100 => Class::Success,
            _ => Class::Error,
        };
        let mut message = Message::empty(bytes, class, Method::of(number));
        message.read_attributes()?;
        Ok(message)
    }

    fn empty(bytes: &'a [u8], class: Class, method: Option<Method>) -> Self {
        Message {
            bytes,
            class,
            method,
            username: None,
            userhash: None,
            realm: None,
            nonce: None,
            integrity: None,
            integrity_sha256: None,
            password_algorithm: None,
            password_algorithms: None,
            lifetime: None,
            requested_transport: None,
            requested_family: None,
            additional_family: None,
            even_port: None,
            reservation_token: None,
            dont_fragment: false,
            channel: None,
            connection_id: None,
            change: None,
            response_port: None,
            has_fingerprint: false,
            is_malformed: false,
            first_peer: None,
            end: bytes.len(),
            unknown: [0; UNKNOWN_MAX],
            unknown_count: 0,
        }
    }

    fn read_attributes(&mut self) -> Result<(), StunError> {
        let mut at = HEADER_LEN;
        while at < self.bytes.len() {
            let (kind, value, next) = attribute_at(self.bytes, at).ok_or(StunError::AttributeTooLong { at })?;
            match kind {
                attribute::FINGERPRINT => {
                    self.check_fingerprint(at, value)?;
                    // Nothing stands behind it.
                    self.is_malformed |= next != self.bytes.len();
                    self.has_fingerprint = true;
                    self.end = self.end.min(at);
                    return Ok(());
                }
                attribute::MESSAGE_INTEGRITY_SHA256 if self.integrity_sha256.is_none() => {
                    self.is_malformed |= !(16..=32).contains(&value.len()) || !value.len().is_multiple_of(4);
                    self.integrity_sha256 = Some(Integrity { at, mac: value });
                    self.end = self.end.min(at);
                }
                _ if self.integrity.is_some() || self.integrity_sha256.is_some() => {}
                attribute::MESSAGE_INTEGRITY => {
                    self.is_malformed |= value.len() != 20;
                    self.integrity = Some(Integrity { at, mac: value });
                    self.end = at;
                }
                _ => self.read(kind, value, at),
            }
            at = next;
        }
        Ok(())
    }

    fn check_fingerprint(&self, at: usize, value: &[u8]) -> Result<(), StunError> {
        let crc = fingerprint(&self.bytes[..at]);
        if value == crc.to_be_bytes() { Ok(()) } else { Err(StunError::Fingerprint) }
    }

    fn read(&mut self, kind: u16, value: &'a [u8], at: usize) {
        match kind {
            attribute::USERNAME => self.username = self.username.or(Some(value)),
            attribute::USERHASH => take(&mut self.userhash, value, &mut self.is_malformed, |hash: [u8; 32]| hash),
            attribute::REALM => self.realm = self.realm.or(Some(value)),
            attribute::NONCE => self.nonce = self.nonce.or(Some(value)),
            attribute::PASSWORD_ALGORITHM => self.password_algorithm = self.password_algorithm.or(Some(value)),
            attribute::PASSWORD_ALGORITHMS => self.password_algorithms = self.password_algorithms.or(Some(value)),
            attribute::LIFETIME => take(&mut self.lifetime, value, &mut self.is_malformed, u32::from_be_bytes),
            attribute::REQUESTED_TRANSPORT => {
                take(&mut self.requested_transport, value, &mut self.is_malformed, |[protocol, _, _, _]| protocol)
            }
            attribute::REQUESTED_ADDRESS_FAMILY => {
                take(&mut self.requested_family, value, &mut self.is_malformed, family)
            }
            attribute::ADDITIONAL_ADDRESS_FAMILY | attribute::ADDITIONAL_ADDRESS_FAMILY_OF_DRAFT => {
                take(&mut self.additional_family, value, &mut self.is_malformed, family)
            }
            attribute::EVEN_PORT => take(&mut self.even_port, value, &mut self.is_malformed, |[bits]| bits & 0x80 != 0),
            attribute::RESERVATION_TOKEN => {
                take(&mut self.reservation_token, value, &mut self.is_malformed, |token| token)
            }
            attribute::DONT_FRAGMENT => self.dont_fragment = true,
            attribute::CHANNEL_NUMBER => {
                let number = |[high, low, _, _]: [u8; 4]| u16::from_be_bytes([high, low]);
                take(&mut self.channel, value, &mut self.is_malformed, number)
            }
            attribute::CONNECTION_ID => {
                take(&mut self.connection_id, value, &mut self.is_malformed, u32::from_be_bytes)
            }
            attribute::CHANGE_REQUEST => {
                let bits = |[_, _, _, bits]: [u8; 4]| (bits & 4 != 0, bits & 2 != 0);
                take(&mut self.change, value, &mut self.is_malformed, bits)
            }
            attribute::RESPONSE_PORT => {
                // Two bytes and padding in RFC 5780 §7.5; some send four.
                let port = value.first_chunk().map(|port| u16::from_be_bytes(*port));
                self.is_malformed |= port.is_none();
                self.response_port = self.response_port.or(port);
            }
            attribute::XOR_PEER_ADDRESS => {
                self.first_peer = self.first_peer.or(Some(at));
                self.is_malformed |= xor_address(value, self.transaction()).is_none();
            }
            attribute::MAPPED_ADDRESS
            | attribute::ERROR_CODE
            | attribute::UNKNOWN_ATTRIBUTES
            | attribute::DATA
            | attribute::XOR_RELAYED_ADDRESS
            | attribute::XOR_MAPPED_ADDRESS => {}
            _ if kind >= 0x8000 => {}
            _ => {
                if let Some(place) = self.unknown.get_mut(self.unknown_count) {
                    *place = kind;
                    self.unknown_count += 1;
                }
            }
        }
    }

    /// Names the transaction.
    pub fn transaction(&self) -> TransactionId {
        std::array::from_fn(|index| self.bytes[8 + index])
    }

    /// XOR-PEER-ADDRESS, each in turn; those that are no addresses are left out.
    pub fn peers(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let transaction = self.transaction();
        let mut at = self.first_peer.unwrap_or(self.end);
        let attributes = std::iter::from_fn(move || {
            let (kind, value, next) = attribute_at(&self.bytes[..self.end], at)?;
            at = next;
            Some((kind, value))
        });
        attributes
            .filter(|(kind, _)| *kind == attribute::XOR_PEER_ADDRESS)
            .filter_map(move |(_, value)| xor_address(value, transaction))
    }

    /// Attributes that must be understood, and are not.
    pub fn unknown(&self) -> &[u16] {
        &self.unknown[..self.unknown_count]
    }
}

/// Sets what an attribute says, unless one before it did.
fn take<const N: usize, T>(
    field: &mut Option<T>,
    value: &[u8],
    is_malformed: &mut bool,
    read: impl FnOnce([u8; N]) -> T,
) {
    match <[u8; N]>::try_from(value) {
        Ok(value) if field.is_none() => *field = Some(read(value)),
        Ok(_) => {}
        Err(_) => *is_malformed = true,
    }
}

fn family([number, _, _, _]: [u8; 4]) -> Option<Family> {
    match number {
        1 => Some(Family::V4),
        2 => Some(Family::V6),
        _ => None,
    }
}

/// The attribute that begins at `at`: type, value, and where the next one begins. `None` at the end, or when it reaches over
/// that.
pub(crate) fn attribute_at(bytes: &[u8], at: usize) -> Option<(u16, &[u8], usize)> {
    let (&[type_high, type_low, len_high, len_low], rest) = bytes.get(at..)?.split_first_chunk()?;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let padded = len.next_multiple_of(4);
    (padded <= rest.len()).then(|| (u16::from_be_bytes([type_high, type_low]), &rest[..len], at + 4 + padded))
}

/// An address as the XOR attributes have it (RFC 8489 §14.2).
pub(crate) fn xor_address(value: &[u8], transaction: TransactionId) -> Option<SocketAddr> {
    let (&[_, family, port_high, port_low], ip) = value.split_first_chunk()?;
    let port = u16::from_be_bytes([port_high ^ COOKIE[0], port_low ^ COOKIE[1]]);
    let ip: IpAddr = match family {
        1 => Ipv4Addr::from(xor(<[u8; 4]>::try_from(ip).ok()?, transaction)).into(),
        2 => Ipv6Addr::from(xor(<[u8; 16]>::try_from(ip).ok()?, transaction)).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The bytes of an address with cookie and transaction over them, or without.
pub(crate) fn xor<const N: usize>(mut ip: [u8; N], transaction: TransactionId) -> [u8; N] {
    ip.iter_mut().zip(COOKIE.iter().chain(&transaction)).for_each(|(byte, mask)| *byte ^= mask);
    ip
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The long-term sample of RFC 5769 §2.4.
    const LONG_TERM: &[u8] = b"\x00\x01\x00\x60\x21\x12\xa4\x42\x78\xad\x34\x33\xc6\xad\x72\xc0\x29\xda\x41\x2e\
        \x00\x06\x00\x12\xe3\x83\x9e\xe3\x83\x88\xe3\x83\xaa\xe3\x83\x83\xe3\x82\xaf\xe3\x82\xb9\x00\x00\
        \x00\x15\x00\x1cf//499k954d6OL34oL9FSTvy64sA\
        \x00\x14\x00\x0bexample.org\x00\
        \x00\x08\x00\x14\xf6\x70\x24\x65\x6d\xd6\x4a\x3e\x02\xb8\xe0\x71\x2e\x85\xc9\xa2\x8c\xa8\x96\x66";

    #[test]
    fn the_long_term_sample_of_rfc_5769_is_read() {
        let message = Message::parse(LONG_TERM).expect("a message");
        assert_eq!((message.class, message.method), (Class::Request, Some(Method::Binding)));
        assert_eq!(message.username, Some("\u{30de}\u{30c8}\u{30ea}\u{30c3}\u{30af}\u{30b9}".as_bytes()));
        assert_eq!(message.realm, Some(&b"example.org"[..]));
        assert_eq!(message.nonce.map(<[u8]>::len), Some(28));
        let integrity = message.integrity.expect("it is there");
        assert_eq!((integrity.at, integrity.covered_length(), integrity.mac[0]), (92, 96, 0xf6));
        assert!(!message.is_malformed && message.unknown().is_empty() && !message.has_fingerprint);
    }

    fn with_attributes(attributes: &[u8]) -> Vec<u8> {
        let mut bytes = message_type(Class::Request, Method::CreatePermission).to_vec();
        bytes.extend((attributes.len() as u16).to_be_bytes());
        bytes.extend(COOKIE);
        bytes.extend([7; 12]);
        bytes.extend(attributes);
        bytes
    }

    #[test]
    fn each_type_is_found_again() {
        for method in [Method::Binding, Method::Allocate, Method::Data, Method::ChannelBind, Method::ConnectionAttempt]
        {
            for class in [Class::Request, Class::Indication, Class::Success, Class::Error] {
                let mut bytes = with_attributes(&[]);
                bytes[..2].copy_from_slice(&message_type(class, method));
                let message = Message::parse(&bytes).expect("a message");
                assert_eq!((message.class, message.method), (class, Some(method)));
            }
        }
    }

    #[test]
    fn what_stands_behind_the_integrity_does_not_count() {
        let lifetime = [0, 0x0d, 0, 4, 0, 0, 0, 9];
        let peer = [0, 0x12, 0, 8, 0, 1, 0x21, 0x12, 0x21, 0x12, 0xa4, 0x43];
        let integrity = [&[0, 8, 0, 20][..], &[1; 20]].concat();
        let bytes = with_attributes(&[&peer[..], &integrity, &lifetime, &peer].concat());
        let message = Message::parse(&bytes).expect("a message");
        assert_eq!((message.lifetime, message.peers().count()), (None, 1));
        assert_eq!(message.peers().next(), Some(([0, 0, 0, 1], 0).into()));
        let bytes = with_attributes(&[&lifetime[..], &peer, &peer].concat());
        let message = Message::parse(&bytes).expect("a message");
        assert_eq!((message.lifetime, message.peers().count()), (Some(9), 2));
    }

    #[test]
    fn a_message_cut_anywhere_is_none() {
        for len in 0..LONG_TERM.len() {
            assert!(Message::parse(&LONG_TERM[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_message_is_the_same_wherever_it_lies_cve_2026_40613() {
        let expected = format!("{:?}", Message::parse(LONG_TERM));
        for at in 0..16 {
            let memory = [&[0xff; 16][..at], LONG_TERM].concat();
            assert_eq!(format!("{:?}", Message::parse(&memory[at..])), expected, "{at}");
        }
    }

    #[test]
    fn a_wrong_fingerprint_makes_it_none_and_unknown_attributes_are_told() {
        let unknown = [0x7f, 1, 0, 1, 9, 0, 0, 0, 0x00, 0x24, 0, 0, 0xff, 1, 0, 0];
        let mut bytes = with_attributes(&[&unknown[..], &[0x80, 0x28, 0, 4, 0, 0, 0, 0]].concat());
        assert_eq!(Message::parse(&bytes).err(), Some(StunError::Fingerprint));
        let at = bytes.len() - 8;
        let crc = fingerprint(&bytes[..at]).to_be_bytes();
        bytes[at + 4..].copy_from_slice(&crc);
        let message = Message::parse(&bytes).expect("a message");
        assert_eq!((message.unknown(), message.has_fingerprint), (&[0x7f01, 0x24][..], true));
    }

    #[test]
    fn an_attribute_of_a_wrong_length_is_told() {
        for attributes in [&[0, 0x0d, 0, 3, 0, 0, 0, 0][..], &[0, 0x12, 0, 4, 0, 1, 0, 0], &[0, 8, 0, 4, 0, 0, 0, 0]] {
            let bytes = with_attributes(attributes);
            assert!(Message::parse(&bytes).expect("a message").is_malformed, "{attributes:?}");
        }
    }
}
