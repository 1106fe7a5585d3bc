//! STUN messages, as far as telling whose a connectivity check is takes.
//!
//! In: one datagram. Out: the user fragment of the session that it is for, borrowed; of an answer, which request's it is.
//! Cost: one pass over the attribute headers; no copy, no allocation.
//! Source: RFC 8489 §5 (header), §14 (attributes), RFC 8445 §7.2.2 (ICE's user name).

const HEADER_LEN: usize = 20;

/// The magic cookie (RFC 8489 §5).
pub const COOKIE: [u8; 4] = 0x2112_a442_u32.to_be_bytes();

/// FINGERPRINT's polynomial, that of ITU V.42.
const CRC: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISO_HDLC);

/// The value of FINGERPRINT (RFC 8489 §14.7) behind a message, whose length counts it already.
pub fn fingerprint(message: &[u8]) -> u32 {
    CRC.checksum(message) ^ 0x5354_554e
}

/// Attribute type (RFC 8489 §14.3).
const USERNAME: u16 = 0x0006;

/// The receiver's user fragment: the first half of the USERNAME of a connectivity check, which is a Binding request whose
/// attributes fill the datagram. `None` for everything else; nothing is proved by it.
pub fn local_ufrag(datagram: &[u8]) -> Option<&str> {
    let (header, mut rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
    // A Binding request is type 1; then come the length and the magic cookie.
    let [0, 1, length_high, length_low, 0x21, 0x12, 0xa4, 0x42, ..] = *header else { return None };
    if usize::from(u16::from_be_bytes([length_high, length_low])) != rest.len() {
        return None;
    }
    let mut username = None;
    while !rest.is_empty() {
        let (&[type_high, type_low, len_high, len_low], after) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let (padded, behind) = after.split_at_checked(len.next_multiple_of(4))?;
        // Of repeated ones only the first counts (RFC 8489 §14).
        if u16::from_be_bytes([type_high, type_low]) == USERNAME && username.is_none() {
            username = Some(&padded[..len]);
        }
        rest = behind;
    }
    Some(str::from_utf8(username?).ok()?.split_once(':')?.0)
}

/// The transaction id of an answer to a connectivity check: a Binding success response. `None` for everything else.
pub fn answered_transaction(datagram: &[u8]) -> Option<[u8; 12]> {
    let (header, rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
    let [1, 1, length_high, length_low, 0x21, 0x12, 0xa4, 0x42, id @ ..] = *header else { return None };
    (usize::from(u16::from_be_bytes([length_high, length_low])) == rest.len()).then_some(id)
}

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
        assert_eq!(local_ufrag(REQUEST), Some("evtj"));
    }

    fn with_attributes(message_type: u16, attributes: &[u8]) -> Vec<u8> {
        let mut data = message_type.to_be_bytes().to_vec();
        data.extend((attributes.len() as u16).to_be_bytes());
        data.extend([0x21, 0x12, 0xa4, 0x42]);
        data.extend([7; 12]);
        data.extend(attributes);
        data
    }

    #[test]
    fn only_binding_requests_are_checks() {
        let username = b"\x00\x06\x00\x03a:b\x00";
        assert_eq!(local_ufrag(&with_attributes(0x0001, username)), Some("a"));
        for message_type in [0x0011, 0x0101, 0x0111, 0x0003, 0x3eef, 0x4001] {
            assert_eq!(local_ufrag(&with_attributes(message_type, username)), None, "{message_type:#x}");
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_refused() {
        for len in 0..REQUEST.len() {
            assert_eq!(local_ufrag(&REQUEST[..len]), None, "{len}");
        }
    }

    #[test]
    fn the_first_user_name_counts_and_has_two_halves() {
        let ufrag = |attributes: &[u8]| local_ufrag(&with_attributes(1, attributes)).map(str::to_owned);
        assert_eq!(ufrag(b"\x00\x06\x00\x03a:b\x00\x00\x06\x00\x03c:d\x00").as_deref(), Some("a"));
        assert_eq!(ufrag(b"\x00\x06\x00\x01a\x00\x00\x00"), None);
        assert_eq!(ufrag(b"\x00\x06\x00\x02\xff:\x00\x00"), None);
        assert_eq!(ufrag(&[0, 0x25, 0, 0]), None);
    }

    #[test]
    fn an_attribute_over_the_end_is_refused() {
        let username = b"\x00\x06\x00\x03a:b\x00";
        for behind in [&[0, 6, 0, 5, 1, 2, 3, 4][..], &[0, 6, 0, 1, 1, 2, 3], &[0]] {
            assert_eq!(local_ufrag(&with_attributes(1, &[username, behind].concat())), None, "{behind:?}");
        }
    }

    #[test]
    fn a_success_response_says_which_request_it_answers_and_nothing_else_does() {
        let response = with_attributes(0x0101, &[0, 0x20, 0, 0]);
        assert_eq!(answered_transaction(&response), Some([7; 12]));
        assert_eq!(answered_transaction(&response[..20]), None);
        assert_eq!(answered_transaction(REQUEST), None);
        assert_eq!(answered_transaction(&with_attributes(0x0111, &[])), None);
    }

    #[test]
    fn what_lacks_the_cookie_is_not_stun() {
        let mut data = REQUEST.to_vec();
        data[4] = 0;
        assert_eq!(local_ufrag(&data), None);
    }
}
