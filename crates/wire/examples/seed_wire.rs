//! Writes the seeds of the fuzz corpora, a few small files per target: `cargo run -p millrace-wire --example seed_wire`.

use std::fs;
use std::path::Path;

use wire::Seq;
use wire::rtcp::{self, ReportBlock, SenderInfo};
use wire::rtp::{self, HeaderWriter, RtpHeader};

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, seeds) in
        [("rtp", rtp()), ("rtcp", rtcp()), ("stun", stun()), ("codec", codec()), ("framing", framing())]
    {
        fs::create_dir_all(corpus.join(target))?;
        for (name, data) in seeds {
            fs::write(corpus.join(target).join(name), data)?;
        }
    }
    Ok(())
}

/// What a writer puts into a buffer that is large enough.
fn written(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut buf = vec![0; 1_500];
    let len = write(&mut buf).expect("a seed fits a datagram");
    buf.truncate(len);
    buf
}

fn rtp() -> Seeds {
    let header = RtpHeader { payload_type: 96, marker: true, seq: Seq(65_535), timestamp: 90_000, ssrc: 0x1234_5678 };
    let packet = |extensions: &[(u8, &[u8])], padding: usize| {
        written(|buf| {
            let mut writer = HeaderWriter::new(buf, &header)?;
            extensions.iter().for_each(|(id, value)| assert!(writer.extension(*id, value)));
            let len = writer.finish();
            buf[len..len + 4].copy_from_slice(&[0x90, 0x80, 5, 1]);
            Some(rtp::pad(buf, len + 4, len + 4 + padding))
        })
    };
    let mut with_csrcs = packet(&[], 0);
    with_csrcs[0] |= 2;
    vec![
        ("plain", packet(&[], 0)),
        ("one-byte-extensions", packet(&[(1, &[0]), (3, &[1, 2, 3]), (5, &[0, 9])], 0)),
        ("two-byte-extensions", packet(&[(1, b"video"), (200, &[7; 20]), (2, &[])], 0)),
        ("padded", packet(&[(1, &[0])], 9)),
        ("csrcs", with_csrcs),
        ("unknown-profile", [&[0x90, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0xab, 0xac, 0, 1][..], &[1; 8]].concat()),
    ]
}

fn rtcp() -> Seeds {
    let block = ReportBlock {
        ssrc: 7,
        fraction_lost: 12,
        cumulative_lost: -3,
        highest_seq: 65_540,
        jitter: 90,
        last_sr: 0x1234_5678,
        delay_since_last_sr: 6_553,
    };
    let info =
        SenderInfo { ssrc: 1, ntp: 0x83aa_7e80_8000_0000, rtp_timestamp: 90_000, packet_count: 9, byte_count: 99 };
    let sender_report = written(|buf| rtcp::write_sender_report(buf, &info, &[block, block]));
    let sdes = written(|buf| rtcp::write_sdes_cname(buf, 1, "millrace"));
    let receiver_report = written(|buf| rtcp::write_receiver_report(buf, 1, &[block]));
    let nack = written(|buf| rtcp::write_nack(buf, 1, 7, [65_530, 65_535, 2, 40].map(Seq)));
    let steady: Vec<_> = (0..20).map(|n| Some(1_000 + 8 * n)).collect();
    let holes: Vec<_> = (0..60).map(|n| (n % 4 > 0).then_some(8 * n)).collect();
    let uneven: Vec<_> = (0..30).map(|n| (n % 5 > 0).then_some(-1_000 + n * n % 19 * 90)).collect();
    let feedback = |arrivals: &[Option<i64>]| {
        written(|buf| rtcp::write_transport_feedback(buf, 1, 7, 65_530, 3, arrivals).map(|(len, _)| len))
    };
    vec![
        ("sender-report-sdes", [sender_report, sdes].concat()),
        ("receiver-report-nack", [receiver_report, nack].concat()),
        ("bye", written(|buf| rtcp::write_bye(buf, &[1, 2]))),
        ("pli", written(|buf| rtcp::write_pli(buf, 1, 7))),
        ("fir", vec![0x84, 206, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 200, 0, 0, 0]),
        ("feedback-steady", feedback(&steady)),
        ("feedback-holes", feedback(&holes)),
        ("feedback-uneven", feedback(&uneven)),
        ("padded-report", vec![0xa0, 201, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4]),
        ("application", vec![0x80, 204, 0, 2, 0, 0, 0, 1, b'n', b'a', b'm', b'e']),
    ]
}

fn stun() -> Seeds {
    let message = |message_type: u16, attributes: &[u8]| {
        let mut data = message_type.to_be_bytes().to_vec();
        data.extend((attributes.len() as u16).to_be_bytes());
        data.extend([0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        data.extend(attributes);
        data
    };
    // The sample request of RFC 5769 §2.1 from its user name on, with another header.
    let request = b"\x00\x06\x00\x09evtj:h6vY\x20\x20\x20\x00\x24\x00\x04\x6e\x00\x01\xff\x00\x25\x00\x00\
        \x00\x08\x00\x14\x9a\xea\xa7\x0c\xbf\xd8\xcb\x56\x78\x1e\xf2\xb5\xb2\xd3\xf2\x49\xc1\xb5\x71\xa2\
        \x80\x28\x00\x04\xe5\x7a\x3b\xcf";
    vec![
        ("request", message(0x0001, request)),
        ("success", message(0x0101, b"\x00\x20\x00\x08\x00\x01\xa1\x47\xe1\x12\xa6\x43")),
        ("empty-indication", message(0x0011, &[])),
    ]
}

fn codec() -> Seeds {
    let case =
        |codec: u8, descriptor: &[u8], payload: &[u8]| [&[codec, descriptor.len() as u8], descriptor, payload].concat();
    // One spatial and three temporal layers, as in the tests of `codec::dependency`.
    let structure = [0x8a, 0x12, 0x34, 0x81, 0x44, 0xba, 0xa2, 0x40, 0x80];
    vec![
        ("opus", case(0, &[], &[0xfc, 1, 2])),
        ("vp8-layers", case(1, &[], &[0x90, 0xe0, 0x92, 0x34, 9, 0xa0, 0x01])),
        ("vp8-short-picture-id", case(1, &[], &[0x90, 0x80, 0x05, 0x00])),
        ("vp9-layers", case(2, &[], &[0xe8, 0x81, 0x23, 0x50, 7, 1])),
        ("vp9-key", case(2, &[], &[0x0a, 0x18, 0, 0, 0])),
        ("h264-stap-a", case(3, &[], &[0x78, 0, 2, 0x09, 0x10, 0, 2, 0x67, 1, 0, 1, 0x68])),
        ("h264-fu-a", case(3, &[], &[0x7c, 0x85, 0x88, 1])),
        ("h265-aggregation", case(4, &[], &[0x60, 1, 0, 3, 0x46, 1, 0, 0, 3, 0x42, 1, 0])),
        ("h265-fragment", case(4, &[], &[0x62, 2, 0x84, 0x80])),
        ("av1-key", case(5, &structure, &[0x28, 2, 0x08, 0, 0x34, 0x40, 9])),
        ("av1-continuation", case(5, &[0x4b, 0, 1], &[0xa0, 1, 0xff, 0x34, 0x20, 9])),
        ("av1-no-count", case(5, &[], &[0x00, 1, 0x08, 3, 0x34, 0x20, 9])),
    ]
}

fn framing() -> Seeds {
    vec![
        ("two-datagrams", vec![0, 3, 7, 8, 9, 0, 1, 5]),
        ("incomplete", vec![0, 0, 0, 2, 1]),
        ("too-long", vec![0xff, 0xff, 1, 2, 3]),
    ]
}
