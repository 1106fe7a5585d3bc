//! Connectivity checks as whoever likes may write them.
//!
//! In: user fragments and a password, as SDP names them. Out: a binding request (RFC 8445 §7.2.2) that nominates.
//! Source: RFC 8489 §5, §14.5 (MESSAGE-INTEGRITY), §14.7 (FINGERPRINT); RFC 8445 §16.1 for the attributes of ICE.

use aws_lc_rs::hmac;
use wire::Random;

/// RFC 8489 §5.
pub(super) const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

const HEADER_BYTES: usize = 20;

/// A check that nominates the pair that it comes by, of the highest priority. `username` is the receiver's user fragment, a
/// colon, and the sender's; without the receiver's password its integrity is wrong. Its fingerprint is right, which says
/// that this is STUN, and nothing of who sent it.
pub fn nominating_check(username: &str, password: Option<&str>, random: &mut Random) -> Vec<u8> {
    let mut message = [&[0, 1, 0, 0][..], &MAGIC_COOKIE].concat();
    message.extend((0..12).map(|_| random.next_u64() as u8));
    add(&mut message, 0x0006, username.as_bytes());
    // PRIORITY, ICE-CONTROLLING, USE-CANDIDATE.
    add(&mut message, 0x0024, &0x7eff_ffff_u32.to_be_bytes());
    add(&mut message, 0x802a, &[7; 8]);
    add(&mut message, 0x0025, &[]);
    // MESSAGE-INTEGRITY and FINGERPRINT are made with a length that reaches to their own ends.
    set_len(&mut message, 4 + 20);
    let integrity = match password {
        Some(password) => {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password.as_bytes());
            hmac::sign(&key, &message).as_ref().to_vec()
        }
        None => (0..20).map(|_| random.next_u64() as u8).collect(),
    };
    add(&mut message, 0x0008, &integrity);
    set_len(&mut message, 4 + 4);
    let fingerprint = crc32(&message) ^ 0x5354_554e;
    add(&mut message, 0x8028, &fingerprint.to_be_bytes());
    message
}

/// Adds an attribute, which is padded to four bytes.
fn add(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(kind.to_be_bytes());
    message.extend((value.len() as u16).to_be_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
    set_len(message, 0);
}

/// Says how long a message is with `more` bytes.
fn set_len(message: &mut [u8], more: usize) {
    let len = (message.len() - HEADER_BYTES + more) as u16;
    message[2..4].copy_from_slice(&len.to_be_bytes());
}

/// The checksum of ITU-T V.42 (CRC-32).
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_v42() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_check_says_how_long_it_is_and_whom_it_is_for() {
        for password in [None, Some("a password of the receiver")] {
            let check = nominating_check("receiver:sender", password, &mut Random::new(1));
            assert_eq!(usize::from(u16::from_be_bytes([check[2], check[3]])), check.len() - HEADER_BYTES);
            assert_eq!(wire::stun::local_ufrag(&check), Some("receiver"));
        }
    }
}
