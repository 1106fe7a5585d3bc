//! The samples of RFC 5769 and RFC 8489, by which other implementations were tested.

use super::*;
use crate::message::HEADER_LEN;

/// RFC 5769 §2.4 and RFC 8489 appendix B.1 (as its errata have it): the same user, by MD5 and SHA-1, and by SHA-256.
const NAME: &str = "\u{30de}\u{30c8}\u{30ea}\u{30c3}\u{30af}\u{30b9}";
const RFC_5769: &[u8] = b"\x00\x01\x00\x60\x21\x12\xa4\x42\x78\xad\x34\x33\xc6\xad\x72\xc0\x29\xda\x41\x2e\
    \x00\x06\x00\x12\xe3\x83\x9e\xe3\x83\x88\xe3\x83\xaa\xe3\x83\x83\xe3\x82\xaf\xe3\x82\xb9\x00\x00\
    \x00\x15\x00\x1cf//499k954d6OL34oL9FSTvy64sA\
    \x00\x14\x00\x0bexample.org\x00\
    \x00\x08\x00\x14\xf6\x70\x24\x65\x6d\xd6\x4a\x3e\x02\xb8\xe0\x71\x2e\x85\xc9\xa2\x8c\xa8\x96\x66";
const RFC_8489: &[u8] = b"\x00\x01\x00\x90\x21\x12\xa4\x42\x78\xad\x34\x33\xc6\xad\x72\xc0\x29\xda\x41\x2e\
    \x00\x1e\x00\x20\x4a\x3c\xf3\x8f\xef\x69\x92\xbd\xa9\x52\xc6\x78\x04\x17\xda\x0f\x24\x81\x94\x15\x56\x9e\x60\xb2\
    \x05\xc4\x6e\x41\x40\x7f\x17\x04\
    \x00\x15\x00\x29obMatJos2AAACf//499k954d6OL34oL9FSTvy64sA\x00\x00\x00\
    \x00\x14\x00\x0bexample.org\x00\
    \x00\x1d\x00\x04\x00\x02\x00\x00\
    \x00\x1c\x00\x20\xb5\xc7\xbf\x00\x5b\x6c\x52\xa2\x1c\x51\xc5\xe8\x92\xf8\x19\x24\x13\x62\x96\xcb\x92\x7c\x43\x14\
    \x93\x09\x27\x8c\xc6\x51\x8e\x65";

#[test]
fn the_long_term_samples_of_rfc_5769_and_rfc_8489_are_proved() {
    let keys = UserKeys::new(NAME, "example.org", "TheMatrIX");
    for (bytes, algorithm) in [(RFC_5769, Algorithm::Md5), (RFC_8489, Algorithm::Sha256)] {
        let request = Message::parse(bytes).expect("a message");
        assert_eq!(Algorithm::of(&request, Default::default()), Some(algorithm));
        let proof = request.integrity().expect("it is there");
        assert!(proof.proved_by(&request, keys.key(algorithm).expect("both")).is_ok());
        assert!(proof.proved_by(&request, b"another key").is_err());
    }
    let request = Message::parse(RFC_8489).expect("a message");
    let known = Credentials::new("example.org", [(NAME.into(), keys)], []);
    assert_eq!(known.by_hash(&request.userhash.expect("it is there")).map(|name| &**name), Some(NAME));
}

/// RFC 5769 §2.1 to §2.3: sealed by a password itself, as ICE does, with FINGERPRINT; the answers tell an address by IPv4 and IPv6.
const RFC_5769_REQUEST: &[u8] = b"\x00\x01\x00\x58\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
    \x80\x22\x00\x10STUN test client\
    \x00\x24\x00\x04\x6e\x00\x01\xff\
    \x80\x29\x00\x08\x93\x2f\xf9\xb1\x51\x26\x3b\x36\
    \x00\x06\x00\x09evtj:h6vY\x20\x20\x20\
    \x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\
    \x80\x28\x00\x04\xe5\x7a\x3b\xcf";
const RFC_5769_V4: &[u8] = b"\x01\x01\x00\x3c\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
    \x80\x22\x00\x0btest vector\x20\
    \x00\x20\x00\x08\x00\x01\xa1\x47\xe1\x12\xa6\x43\
    \x00\x08\x00\x14\x2b\x91\xf5\x99\xfd\x9e\x90\xc3\x8c\x74\x89\xf9\x2a\xf9\xba\x53\xf0\x6b\xe7\xd7\
    \x80\x28\x00\x04\xc0\x7d\x4c\x96";
const RFC_5769_V6: &[u8] = b"\x01\x01\x00\x48\x21\x12\xa4\x42\xb7\xe7\xa7\x01\xbc\x34\xd6\x86\xfa\x87\xdf\xae\
    \x80\x22\x00\x0btest vector\x20\
    \x00\x20\x00\x14\x00\x02\xa1\x47\x01\x13\xa9\xfa\xa5\xd3\xf1\x79\xbc\x25\xf4\xb5\xbe\xd2\xb9\xd9\
    \x00\x08\x00\x14\xa3\x82\x95\x4e\x4b\xe6\x7b\xf1\x17\x84\xc9\x7c\x82\x92\xc2\x75\xbf\xe3\xed\x41\
    \x80\x28\x00\x04\xc8\xfb\x0b\x4c";

#[test]
fn the_short_term_samples_of_rfc_5769_are_proved_and_their_addresses_written_alike() {
    let told = |ip: &str| Some(SocketAddr::new(ip.parse().expect("an address"), 32_853));
    let v6 = told("2001:db8:1234:5678:11:2233:4455:6677");
    for (bytes, mapped) in [(RFC_5769_REQUEST, None), (RFC_5769_V4, told("192.0.2.1")), (RFC_5769_V6, v6)] {
        let message = Message::parse(bytes).expect("its fingerprint is right");
        assert!(message.has_fingerprint && !message.is_malformed);
        assert!(message.integrity().expect("it is there").proved_by(&message, b"VOkJxbRl1RmTxUk/WvJxBt").is_ok());
        let Some(mapped) = mapped else { continue };
        let mut buf = [0; 64];
        let mut writer = Writer::new(&mut buf, Class::Success, Method::Binding, message.transaction());
        let len = writer.xor_address(attribute::XOR_MAPPED_ADDRESS, mapped).finish().expect("there is room");
        let behind_software = HEADER_LEN + 16;
        assert_eq!(buf[HEADER_LEN..len], bytes[behind_software..][..len - HEADER_LEN]);
    }
}
