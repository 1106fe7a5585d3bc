//! STUN messages, as far as telling whose they are takes.
//!
//! In: one datagram. Out: its class, method, transaction and attributes, borrowed.
//! Cost: one pass over the attribute headers on construction; no copy, no allocation. The fingerprint takes one table
//! lookup per byte.
//! Source: RFC 8489 §5 (header), §14 (attributes), RFC 8445 §7.1 and §7.2.2 (ICE's attributes and user name).

const HEADER_LEN: usize = 20;
const MAGIC_COOKIE: u32 = 0x2112_a442;

/// The method of every message in ICE (RFC 8489 §3).
pub const BINDING: u16 = 1;

/// Attribute types (RFC 8489 §18.3, RFC 8445 §16.1).
pub mod attribute {
    /// RFC 8489 §14.3; in ICE see `Message::username`.
    pub const USERNAME: u16 = 0x0006;
    /// HMAC-SHA1 of what stands before it (RFC 8489 §14.5).
    pub const MESSAGE_INTEGRITY: u16 = 0x0008;
    /// RFC 8445 §7.1.1.
    pub const PRIORITY: u16 = 0x0024;
    /// RFC 8445 §7.1.2.
    pub const USE_CANDIDATE: u16 = 0x0025;
    /// CRC-32 of what stands before it (RFC 8489 §14.7).
    pub const FINGERPRINT: u16 = 0x8028;
}

/// What is wrong with a STUN message. The sender's doing, so never a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum StunError {
    #[error("{got} bytes, shorter than the 20-byte header")]
    Truncated { got: usize },
    #[error("the two highest bits are not zero, or the magic cookie is {cookie:#x}")]
    NotStun { cookie: u32 },
    #[error("length field says {said} bytes after the header, datagram has {got}")]
    Length { said: u16, got: usize },
    #[error("attribute {attribute:#06x} runs over the end of the message")]
    Attribute { attribute: u16 },
}

/// What a message is of its method (RFC 8489 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Wants an answer, and is repeated until it has one.
    Request,
    /// Wants no answer.
    Indication,
    /// Answers a request that was granted.
    Success,
    /// Answers a request that was refused.
    Error,
}

/// A checked message.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    message_type: u16,
    transaction_id: &'a [u8; 12],
    data: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a message that fills the datagram.
    ///
    /// # Errors
    /// When the header, the length or an attribute does not fit.
    pub fn parse(data: &'a [u8]) -> Result<Self, StunError> {
        let Some((header, body)) = data.split_first_chunk::<HEADER_LEN>() else {
            return Err(StunError::Truncated { got: data.len() });
        };
        let [type_high, type_low, length_high, length_low, a, b, c, d, transaction_id @ ..] = header;
        let message_type = u16::from_be_bytes([*type_high, *type_low]);
        let said = u16::from_be_bytes([*length_high, *length_low]);
        let cookie = u32::from_be_bytes([*a, *b, *c, *d]);
        if cookie != MAGIC_COOKIE || message_type & 0xc000 != 0 {
            return Err(StunError::NotStun { cookie });
        }
        if usize::from(said) != body.len() {
            return Err(StunError::Length { said, got: body.len() });
        }
        let mut attributes = Attributes { rest: body };
        while attributes.next().is_some() {}
        match attributes.rest {
            [] => Ok(Message { message_type, transaction_id, data }),
            [high, low, ..] => Err(StunError::Attribute { attribute: u16::from_be_bytes([*high, *low]) }),
            [_] => Err(StunError::Length { said, got: body.len() }),
        }
    }

    /// Of bits 4 and 8 of the message type.
    pub fn class(&self) -> Class {
        // The class is bits 8 and 4, in between the bits of the method (RFC 8489 §5).
        match (self.message_type & 0x100 != 0, self.message_type & 0x10 != 0) {
            (false, false) => Class::Request,
            (false, true) => Class::Indication,
            (true, false) => Class::Success,
            (true, true) => Class::Error,
        }
    }

    /// 12 bits.
    pub fn method(&self) -> u16 {
        let bits = self.message_type;
        bits & 0x0f | bits >> 1 & 0x70 | bits >> 2 & 0xf80
    }

    /// The same in a request, its repetitions and its answer.
    pub fn transaction_id(&self) -> &'a [u8; 12] {
        self.transaction_id
    }

    /// The attributes in order, as (type, value without padding).
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes { rest: &self.data[HEADER_LEN..] }
    }

    /// The value of the first attribute of a type; of repeated ones only the first counts (RFC 8489 §14).
    pub fn attribute(&self, attribute: u16) -> Option<&'a [u8]> {
        self.attributes().find(|&(found, _)| found == attribute).map(|(_, value)| value)
    }

    /// ICE's user name of a request, split: the receiver's ufrag, then the sender's (RFC 8445 §7.2.2).
    pub fn username(&self) -> Option<(&'a str, &'a str)> {
        str::from_utf8(self.attribute(attribute::USERNAME)?).ok()?.split_once(':')
    }

    /// Priority that the candidate would have if it were new to us.
    pub fn priority(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.attribute(attribute::PRIORITY)?.try_into().ok()?))
    }

    /// Whether the controlling side nominates the pair.
    pub fn use_candidate(&self) -> bool {
        self.attribute(attribute::USE_CANDIDATE).is_some()
    }

    /// Whether the fingerprint, which is the last attribute, is right (RFC 8489 §14.7); `None` without one.
    pub fn fingerprint_is_right(&self) -> Option<bool> {
        let (before, last) = self.data.split_last_chunk::<8>()?;
        let [0x80, 0x28, 0, 4, value @ ..] = last else { return None };
        (before.len() >= HEADER_LEN).then(|| crc32(before) ^ 0x5354_554e == u32::from_be_bytes(*value))
    }
}

/// Iterates over attributes; stops in front of one that does not fit.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([type_high, type_low, len_high, len_low], after) = self.rest.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
        let (padded, rest) = after.split_at_checked(len.next_multiple_of(4))?;
        self.rest = rest;
        Some((u16::from_be_bytes([*type_high, *type_low]), &padded[..len]))
    }
}

/// The CRC-32 of ITU V.42, which is also Ethernet's.
fn crc32(data: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| CRC32_TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    !data.iter().fold(u32::MAX, step)
}

/// The remainder of every byte by the reversed polynomial.
const CRC32_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut remainder = index as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = if remainder & 1 == 1 { 0xedb8_8320 ^ remainder >> 1 } else { remainder >> 1 };
            bit += 1;
        }
        table[index] = remainder;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample request of RFC 5769 §2.1.
    const REQUEST: &[u8] = b"\x00\x01\x00\x58\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
        \x80\x22\x00\x10STUN test client\
        \x00\x24\x00\x04\x6e\x00\x01\xff\
        \x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\
        \x00\x06\x00\x09\x65\x76\x74\x6a\x3a\x68\x36\x76\x59\x20\x20\x20\
        \x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\
        \x80\x28\x00\x04\xe5\x7a\x3b\xcf";

    #[test]
    fn the_sample_request_of_rfc_5769_is_read() {
        let message = Message::parse(REQUEST).unwrap();
        assert_eq!((message.class(), message.method()), (Class::Request, BINDING));
        assert_eq!(message.transaction_id()[..4], [0xb7, 0xe7, 0xa7, 0x01]);
        assert_eq!(message.username(), Some(("evtj", "h6vY")));
        assert_eq!(message.priority(), Some(0x6e00_01ff));
        assert!(!message.use_candidate());
        assert_eq!(message.attributes().count(), 6);
        assert_eq!(message.attribute(attribute::MESSAGE_INTEGRITY).unwrap().len(), 20);
    }

    #[test]
    fn the_fingerprint_covers_every_byte_before_it() {
        assert_eq!(Message::parse(REQUEST).unwrap().fingerprint_is_right(), Some(true));
        let mut data = REQUEST.to_vec();
        data[30] ^= 1;
        assert_eq!(Message::parse(&data).unwrap().fingerprint_is_right(), Some(false));
    }

    fn with_attributes(message_type: u16, attributes: &[u8]) -> Vec<u8> {
        let mut data = message_type.to_be_bytes().to_vec();
        data.extend((attributes.len() as u16).to_be_bytes());
        data.extend(MAGIC_COOKIE.to_be_bytes());
        data.extend([7; 12]);
        data.extend(attributes);
        data
    }

    #[test]
    fn a_nomination_is_seen() {
        let data = with_attributes(1, &[0, 0x25, 0, 0]);
        let message = Message::parse(&data).unwrap();
        assert!(message.use_candidate());
        assert_eq!((message.username(), message.priority(), message.fingerprint_is_right()), (None, None, None));
    }

    #[test]
    fn class_and_method_share_their_bits_as_in_rfc_8489() {
        for (message_type, class, method) in [
            (0x0001, Class::Request, 1),
            (0x0011, Class::Indication, 1),
            (0x0101, Class::Success, 1),
            (0x0113, Class::Error, 3),
            (0x3eef, Class::Request, 0xfff),
        ] {
            let data = with_attributes(message_type, &[]);
            let message = Message::parse(&data).unwrap();
            assert_eq!((message.class(), message.method()), (class, method), "{message_type:#x}");
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_refused() {
        for len in 0..REQUEST.len() {
            assert!(Message::parse(&REQUEST[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn an_attribute_over_the_end_is_refused() {
        let refused = |attributes: &[u8]| Message::parse(&with_attributes(1, attributes)).unwrap_err();
        assert_eq!(refused(&[0, 6, 0, 5, 1, 2, 3, 4]), StunError::Attribute { attribute: 6 });
        assert_eq!(refused(&[0, 6, 0, 1, 1, 2, 3]), StunError::Attribute { attribute: 6 });
        assert_eq!(refused(&[0]), StunError::Length { said: 1, got: 1 });
    }

    #[test]
    fn what_lacks_the_cookie_is_not_stun() {
        let mut data = REQUEST.to_vec();
        data[4] = 0;
        assert_eq!(Message::parse(&data).unwrap_err(), StunError::NotStun { cookie: 0x0012_a442 });
    }
}
