//! Writes the seeds of the fuzz corpora, a few small files per target: `cargo run -p millrace-rooms --example seed_rooms`.
//! `fuzz/entry/rooms.rs` says what the bytes mean.

use std::fs;
use std::path::Path;

use wire::Seq;
use wire::rtcp::{self, ReportBlock, SenderInfo};
use wire::rtp::{HeaderWriter, RtpHeader};

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, seeds) in [("srtp", srtp()), ("rooms", rooms())] {
        fs::create_dir_all(corpus.join(target))?;
        for (name, data) in seeds {
            fs::write(corpus.join(target).join(name), data)?;
        }
    }
    Ok(())
}

/// Puts records behind the bytes that choose what they are played on.
fn played(choice: &[u8], records: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut data = choice.to_vec();
    for (action, bytes) in records {
        data.push(*action);
        data.extend((bytes.len() as u16).to_be_bytes());
        data.extend(bytes);
    }
    data
}

/// What a writer puts into a buffer that is large enough.
fn written(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut buf = vec![0; 1_500];
    let len = write(&mut buf).expect("a seed fits a datagram");
    buf.truncate(len);
    buf
}

fn rtp(seq: u16, ssrc: u32) -> Vec<u8> {
    let header = RtpHeader { payload_type: 96, marker: true, seq: Seq(seq), timestamp: 90_000, ssrc };
    let mut packet = written(|buf| {
        let mut writer = HeaderWriter::new(buf, &header)?;
        assert!(writer.extension(1, b"1") && writer.extension(2, b"h"));
        Some(writer.finish())
    });
    packet.extend([0x10, 0, 1, 2, 3]);
    packet
}

fn srtp() -> Seeds {
    let bye = written(|buf| rtcp::write_bye(buf, &[1]));
    let records = [
        (2, rtp(65_535, 1)),
        (0x12, rtp(0, 1)),
        (2, rtp(65_534, 1)),
        (3, rtp(7, 2)),
        (0, vec![0x80; 30]),
        (4, bye.clone()),
        (5, bye),
        (1, vec![0x80; 30]),
        (6, vec![0, 0, 0, 1]),
        (2, rtp(3, 1)),
    ];
    [("gcm-128", 0), ("gcm-256", 1), ("cm-128", 2)].map(|(name, profile)| (name, played(&[profile], &records))).into()
}

/// One packet of a lane, as `publish` takes it.
fn media(lane: u8, how: u8, payload: &[u8]) -> (u8, Vec<u8>) {
    let mut bytes = vec![lane, how, 0];
    bytes.extend(payload);
    (9, bytes)
}

fn rooms() -> Seeds {
    // VP8: start of a keyframe with picture id and TL0PICIDX, and of one that leans on it (RFC 7741 §4.2).
    let (key, delta): (&[u8], &[u8]) =
        (&[0x90, 0xe0, 0x81, 1, 1, 0x20, 0, 0, 0], &[0x90, 0xe0, 0x82, 2, 1, 0x20, 1, 0]);
    let time = |ms: u8| (7, vec![ms]);
    // A report and a NACK for the last packet but one, and feedback with one hole.
    let feedback = |viewer: u8, track| (6 | viewer << 7, vec![track, 2, 3, 10, 0, 1, 0, 5, 5, 0xff, 5, 40]);
    let simulcast = [
        media(1, 0, key),
        media(1, 1, delta),
        media(2, 3, key),
        media(0, 1, &[1, 2, 3]),
        media(3, 1, key),
        time(20),
        media(1, 3, delta),
        media(2, 3, delta),
        media(2, 0xa3, delta),
        feedback(0, 1),
        feedback(1, 1),
        // A retransmission: the original number, then the payload (RFC 4588 §4).
        media(4, 1, &[0xff, 0xfc, 0x90, 0x80, 1, 1]),
        time(250),
        feedback(0, 2),
        media(3, 3, delta),
    ];
    let control = [
        media(2, 1, key),
        (8, vec![0, 0, 1]),
        time(40),
        media(1, 1, key),
        (8, vec![1, 3]),
        media(1, 3, delta),
        (0x88, vec![3]),
        (8, vec![2, 1]),
        media(1, 3, delta),
        (8, vec![4]),
        media(1, 1, key),
        (8, vec![6]),
        (0x88, vec![5]),
        (8, vec![7]),
        media(2, 1, key),
        (7, vec![255; 40]),
    ];
    let padding = [
        media(2, 1, &[0x90, 0x80, 1, 0x10, 0, 0]),
        media(2, 0x61, &[0x90, 0x80, 1, 1]),
        media(2, 0x81, &[0x90, 0x80, 2, 1]),
        media(2, 0xc1, &[0x90, 0x80, 3, 1]),
        media(2, 0xe1, &[0x90, 0x80, 4, 1]),
        time(100),
    ];
    // Long enough for retransmissions and for the estimate to move.
    let mut steady = Vec::new();
    for frame in 0..20 {
        for lane in 0..4 {
            let payload: &[u8] = if frame == 0 { key } else { &[0x90, 0x80, frame, 1] };
            steady.push(media(lane, 3, payload));
        }
        steady.push(time(33));
        if frame % 4 == 3 {
            steady.push(feedback(0, 1));
            steady.push(feedback(1, 2));
        }
    }
    vec![
        ("steady", played(&[0, 0], &steady)),
        ("simulcast", played(&[0, 0], &simulcast)),
        ("control", played(&[0, 2], &control)),
        ("gaps", played(&[0, 1], &padding)),
        ("plain", played(&[0, 0], &plain())),
        ("h264", played(&[2, 0], &[media(2, 0, &[0x67, 1, 2]), media(2, 1, &[0x65, 1]), time(20), feedback(0, 1)])),
        ("av1", played(&[4, 0], &av1())),
    ]
}

/// Whole packets of the peers' own.
fn plain() -> Vec<(u8, Vec<u8>)> {
    let info = SenderInfo { ssrc: 0x22, ntp: 100 << 32, rtp_timestamp: 3_000, packet_count: 1, byte_count: 100 };
    let report = written(|buf| rtcp::write_sender_report(buf, &info, &[]));
    let bye = written(|buf| rtcp::write_bye(buf, &[0x22]));
    let pli = written(|buf| rtcp::write_pli(buf, 1, 0x101));
    let fir = vec![0x84, 206, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0, 0, 0];
    let block = ReportBlock { ssrc: 0x101, fraction_lost: 200, highest_seq: 70_000, ..ReportBlock::default() };
    let receiver = written(|buf| rtcp::write_receiver_report(buf, 1, &[block]));
    vec![
        (3, rtp(1, 0x22)),
        (4, report),
        (7, vec![20]),
        (3, rtp(2, 0x22)),
        (3, rtp(5, 0x22)),
        (5, pli),
        (0x85, fir),
        (5, receiver),
        (7, vec![250]),
        (4, bye),
        (0, vec![0x80; 40]),
        (1, vec![0x80; 40]),
        (2, vec![22, 1, 2]),
    ]
}

/// With a dependency descriptor that has no structure.
fn av1() -> Vec<(u8, Vec<u8>)> {
    let key: &[u8] = &[0x18, 0x0a, 1, 0, 0x32, 1, 0];
    let with = |descriptor: &[u8]| {
        let mut bytes = vec![2, 1, descriptor.len() as u8];
        bytes.extend(descriptor);
        bytes.extend([0x10, 0x32, 1, 0]);
        (9, bytes)
    };
    vec![media(2, 1, key), with(&[0xc0, 0, 1]), (7, vec![30]), with(&[0xc0, 0, 2])]
}
