//! No parser panics on any bytes, and what it reads out of them survives being written and read again.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::entry;

proptest! {
    #[test]
    fn rtp_takes_any_bytes(first in 0x80..=0xbf_u8, rest in vec(any::<u8>(), 0..200)) {
        entry::rtp(&rest);
        entry::rtp(&[&[first], &rest[..]].concat());
    }

    #[test]
    fn rtp_takes_any_extension_block(block in vec(any::<[u8; 4]>(), 0..20), two_byte in any::<bool>()) {
        let profile = if two_byte { [0x10, 0] } else { [0xbe, 0xde] };
        let mut data = vec![0x90, 96, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, profile[0], profile[1], 0, block.len() as u8];
        data.extend(block.as_flattened());
        entry::rtp(&data);
    }

    #[test]
    fn rtcp_takes_any_bytes(data in vec(any::<u8>(), 0..200)) {
        entry::rtcp(&data);
    }

    #[test]
    fn rtcp_takes_any_body(count in 0..32_u8, packet_type in 200..208_u8, body in vec(any::<[u8; 4]>(), 0..60)) {
        let mut data = vec![0x80 | count, packet_type, 0, body.len() as u8];
        data.extend(body.as_flattened());
        entry::rtcp(&data);
    }

    #[test]
    fn transport_feedback_takes_any_chunks(count in 0..400_u16, body in vec(any::<[u8; 4]>(), 0..60)) {
        let mut data = vec![0x8f, 205, 0, 4 + body.len() as u8, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xf0];
        data.extend(count.to_be_bytes());
        data.extend([1, 2, 3, 4]);
        data.extend(body.as_flattened());
        entry::rtcp(&data);
    }

    #[test]
    fn stun_takes_any_attributes(data in vec(any::<u8>(), 0..200)) {
        entry::stun(&data);
        let mut message = vec![0, 1, 0, data.len() as u8, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        message.extend(&data);
        entry::stun(&message);
    }

    #[test]
    fn codecs_take_any_bytes(which in 0..6_u8, descriptor_len in 0..40_u8, rest in vec(any::<u8>(), 0..100)) {
        entry::codec(&[&[which, descriptor_len], &rest[..]].concat());
    }

    #[test]
    fn rtsp_takes_any_bytes(
        data in vec(any::<u8>(), 0..200),
        line in "[ -~]{0,40}",
        headers in "([A-Za-z]{1,9}: ?[ -~]{0,20}\r?\n){0,4}",
    ) {
        entry::rtsp(&data);
        let head = format!("{line} RTSP/1.0\r\n{headers}\r\n");
        entry::rtsp(&[head.as_bytes(), &data[..]].concat());
        entry::rtsp(&[b"$", &data[..]].concat());
        for name in ["Range: npt=", "Scale: ", "Transport: RTP/AVP;", "Session: "] {
            entry::rtsp(format!("PLAY rtsp://{line} RTSP/1.0\r\n{name}{line}\r\n\r\n").as_bytes());
        }
    }

    #[test]
    fn framing_takes_any_bytes(data in vec(any::<u8>(), 0..200), len in 0..300_u16) {
        entry::framing(&data);
        entry::framing(&[&len.to_be_bytes(), &data[..]].concat());
    }
}
