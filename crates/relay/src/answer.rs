//! STUN messages as a relay writes them, into a caller's buffer.
//!
//! In: class, method and transaction, then attributes, then what proves it. Out: how many bytes that are.
//! Cost: no allocation; one HMAC where it is sealed, one CRC where it has a fingerprint.
//! Source: RFC 8489 §5, §14.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::hmac;

use crate::message::{COOKIE, Class, HEADER_LEN, Method, TransactionId, attribute, message_type, xor};

/// What an answer is sealed with: the key that the request was proved with (RFC 8489 §9.2.5).
#[derive(Clone, Debug)]
pub enum Seal {
    /// MESSAGE-INTEGRITY.
    Sha1(hmac::Key),
    /// MESSAGE-INTEGRITY-SHA256.
    Sha256(hmac::Key),
}

impl Seal {
    /// For MESSAGE-INTEGRITY.
    pub fn sha1(key: &[u8]) -> Self {
        Seal::Sha1(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key))
    }

    /// For MESSAGE-INTEGRITY-SHA256.
    pub fn sha256(key: &[u8]) -> Self {
        Seal::Sha256(hmac::Key::new(hmac::HMAC_SHA256, key))
    }
}

/// An error code and its reason (RFC 8489 §14.8).
pub type Code = (u16, &'static str);

/// A message that is being written. What finds no room makes it none.
#[derive(Debug)]
pub struct Writer<'a> {
    buf: &'a mut [u8],
    len: usize,
    is_full: bool,
    transaction: TransactionId,
}

impl<'a> Writer<'a> {
    /// Begins a message in `buf`.
    pub fn new(buf: &'a mut [u8], class: Class, method: Method, transaction: TransactionId) -> Self {
        let mut writer = Writer { buf, len: 0, is_full: false, transaction };
        writer.put(&message_type(class, method));
        writer.put(&[0; 2]);
        writer.put(&COOKIE);
        writer.put(&transaction);
        writer
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.buf.get_mut(self.len..self.len + bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => return self.is_full = true,
        }
        self.len += bytes.len();
    }

    /// Adds an attribute, and zeros up to a multiple of four: nothing that lay there before leaves.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.put(&kind.to_be_bytes());
        self.put(&(value.len() as u16).to_be_bytes());
        self.put(value);
        self.put(&[0; 3][..value.len().next_multiple_of(4) - value.len()]);
        self
    }

    /// Adds an attribute of one number.
    pub fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// Adds an address with cookie and transaction over it (RFC 8489 §14.2).
    pub fn xor_address(&mut self, kind: u16, address: SocketAddr) -> &mut Self {
        let port = (address.port() ^ u16::from_be_bytes([COOKIE[0], COOKIE[1]])).to_be_bytes();
        match address.ip() {
            IpAddr::V4(ip) => self.address(kind, 1, port, &xor(ip.octets(), self.transaction)),
            IpAddr::V6(ip) => self.address(kind, 2, port, &xor(ip.octets(), self.transaction)),
        }
    }

    /// Adds an address as it is (RFC 8489 §14.1).
    pub fn plain_address(&mut self, kind: u16, address: SocketAddr) -> &mut Self {
        let port = address.port().to_be_bytes();
        match address.ip() {
            IpAddr::V4(ip) => self.address(kind, 1, port, &ip.octets()),
            IpAddr::V6(ip) => self.address(kind, 2, port, &ip.octets()),
        }
    }

    fn address(&mut self, kind: u16, family: u8, port: [u8; 2], ip: &[u8]) -> &mut Self {
        self.put(&kind.to_be_bytes());
        self.put(&(4 + ip.len() as u16).to_be_bytes());
        self.put(&[0, family, port[0], port[1]]);
        self.put(ip);
        self
    }

    /// Adds ERROR-CODE.
    pub fn error(&mut self, (code, reason): Code) -> &mut Self {
        let len = 4 + reason.len();
        self.put(&attribute::ERROR_CODE.to_be_bytes());
        self.put(&(len as u16).to_be_bytes());
        self.put(&[0, 0, (code / 100) as u8, (code % 100) as u8]);
        self.put(reason.as_bytes());
        self.put(&[0; 3][..len.next_multiple_of(4) - len]);
        self
    }

    /// Adds what proves that it comes from who knows the key.
    pub fn seal(&mut self, seal: &Seal) -> &mut Self {
        let (kind, key, mac_len) = match seal {
            Seal::Sha1(key) => (attribute::MESSAGE_INTEGRITY, key, 20),
            Seal::Sha256(key) => (attribute::MESSAGE_INTEGRITY_SHA256, key, 32),
        };
        self.set_length(4 + mac_len);
        let mac = hmac::sign(key, &self.buf[..self.len]);
        self.attribute(kind, mac.as_ref())
    }

    /// Adds FINGERPRINT.
    pub fn fingerprint(&mut self) -> &mut Self {
        self.set_length(8);
        let crc = wire::stun::fingerprint(&self.buf[..self.len]);
        self.number(attribute::FINGERPRINT, crc)
    }

    /// As if `more` bytes were behind what there is.
    fn set_length(&mut self, more: usize) {
        let length = (self.len + more).saturating_sub(HEADER_LEN) as u16;
        if let Some(place) = self.buf.get_mut(2..4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    /// How many bytes it has; `None` when there was no room for all of it.
    pub fn finish(&mut self) -> Option<usize> {
        self.set_length(0);
        (!self.is_full).then_some(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    #[test]
    fn what_is_written_is_read_back() {
        let mut buf = [0xee; 200];
        let peer: SocketAddr = ([192, 0, 2, 1], 32_853).into();
        let transaction = [3; 12];
        let seal = Seal::sha1(b"key");
        let mut writer = Writer::new(&mut buf, Class::Request, Method::Refresh, transaction);
        writer.number(attribute::LIFETIME, 600).attribute(attribute::USERNAME, b"joe!?");
        writer.xor_address(attribute::XOR_PEER_ADDRESS, peer).seal(&seal).fingerprint();
        let len = writer.finish().expect("there is room");
        let message = Message::parse(&buf[..len]).expect("a message");
        assert_eq!((message.lifetime, message.username), (Some(600), Some(&b"joe!?"[..])));
        assert_eq!((message.peers().next(), message.transaction()), (Some(peer), transaction));
        assert!(message.has_fingerprint && !message.is_malformed);
        assert!(!buf[..len].contains(&0xee), "padding is zero");

        let integrity = message.integrity.expect("it is sealed");
        let mut covered = buf[..integrity.at].to_vec();
        covered[2..4].copy_from_slice(&integrity.covered_length().to_be_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"key");
        let mac: Vec<u8> = hmac::sign(&key, &covered).as_ref().to_vec();
        assert_eq!(mac, buf[integrity.at + 4..][..20]);
    }

    #[test]
    fn what_finds_no_room_is_no_message() {
        for len in 0..40 {
            let mut buf = vec![0; len];
            let mut writer = Writer::new(&mut buf, Class::Error, Method::Allocate, [0; 12]);
            writer.error((400, "Bad Request")).fingerprint();
            assert_eq!(writer.finish().is_some(), len >= 48, "{len}");
        }
    }
}
