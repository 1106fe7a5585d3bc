//! Writes the seeds of the fuzz corpus of transport streams, sound and broken ones:
//! `cargo run -p millrace-wire --example seed_ts`.

use std::fs;
use std::path::Path;

use wire::ts::{self, AdaptationSpec, PACKET_LEN, PacketSpec, Pcr, Pid, PmtStream, Timestamp};

const PMT: Pid = Pid::new(0x1000).unwrap();
const VIDEO: Pid = Pid::new(0x100).unwrap();

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ts");
    fs::create_dir_all(&folder)?;
    let sound = stream();
    let seeds = [
        ("sound", sound.concat()),
        ("m2ts", sound.iter().flat_map(|packet| [&[9; 4][..], packet].concat()).collect()),
        ("reed-solomon", sound.iter().flat_map(|packet| [packet, &[9; 16][..]].concat()).collect()),
        ("lost-sync", [&sound.concat()[..500], &[0x47; 3], &sound.concat()[600..]].concat()),
        ("garbage-first", [&[0x47, 0, 0x47][..], &sound.concat()].concat()),
        ("truncated-last-packet", sound.concat()[..sound.len() * PACKET_LEN - 100].to_vec()),
        ("zero-length-adaptation", zero_length_adaptation()),
        ("pcr-jumps-and-wraps", pcr_jumps()),
        ("all-adaptation-fields", all_adaptation_fields()),
        ("sections-share-packets", sections_share_packets()),
        ("pes-alone", vec![0, 0, 1, 0xe0, 0, 0, 0x84, 0xc0, 10, 0x31, 0, 1, 0, 1, 0x11, 0xff, 0xff, 0xff, 0xff, 0, 0]),
        ("pmt-alone", pmt()),
        ("rtp", [&[0x80, 33, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3][..], &sound[..2].concat()].concat()),
    ];
    for (name, data) in seeds {
        fs::write(folder.join(name), data)?;
    }
    Ok(())
}

fn pmt() -> Vec<u8> {
    let mut buf = [0; 1_024];
    let video = PmtStream { stream_type: 0x1b, pid: VIDEO, descriptors: &[] };
    let audio = PmtStream {
        stream_type: 0x0f,
        pid: Pid::new(0x101).expect("13 bits"),
        descriptors: &[10, 4, b'e', b'n', b'g', 0],
    };
    let len = ts::write_pmt(&mut buf, 1, 0, VIDEO, &[], [video, audio]).expect("room");
    buf[..len].to_vec()
}

fn video(continuity: u8, adaptation: AdaptationSpec, payload: &[u8]) -> [u8; PACKET_LEN] {
    let mut packet = [0; PACKET_LEN];
    let spec = PacketSpec { pid: VIDEO, payload_unit_start: payload.starts_with(&[0, 0, 1]), continuity };
    ts::write_packet(&mut packet, &spec, &adaptation, payload);
    packet
}

/// Tables, and a picture in three packets.
fn stream() -> Vec<[u8; PACKET_LEN]> {
    let mut packets = Vec::new();
    let mut buf = [0; 1_024];
    let len = ts::write_pat(&mut buf, 1, 0, [(1, PMT)]).expect("room");
    ts::section_packets(&buf[..len], Pid::PAT, 0, |packet| packets.push(*packet));
    ts::section_packets(&pmt(), PMT, 0, |packet| packets.push(*packet));
    let mut pes = vec![0; 400];
    let (pts, dts) = (Timestamp::from_ticks(93_600), Timestamp::from_ticks(90_000));
    let len = ts::write_pes_header(&mut pes, 0xe0, 381, Some(pts), Some(dts)).expect("room");
    pes[len..len + 5].copy_from_slice(&[0, 0, 0, 1, 0x65]);
    let pcr = Some(Pcr::from_ticks(27_000_000));
    packets.push(video(0, AdaptationSpec { random_access: true, pcr, ..AdaptationSpec::default() }, &pes));
    packets.push(video(1, AdaptationSpec::default(), &pes[176..]));
    packets.push(video(2, AdaptationSpec::default(), &pes[360..]));
    packets
}

fn zero_length_adaptation() -> Vec<u8> {
    let mut packets = stream();
    packets[3] = [0xff; PACKET_LEN];
    packets[3][..5].copy_from_slice(&[0x47, 1, 0, 0x31, 0]);
    // Too long, of the reserved kind, and with a PCR flag in a field that has no room for it.
    for (head, from) in
        [([0x47, 1, 0, 0x32, 184, 0], 2), ([0x47, 1, 0, 0x02, 0, 0], 2), ([0x47, 1, 0, 0x32, 1, 0x10], 2)]
    {
        let mut packet = packets[from];
        packet[..6].copy_from_slice(&head);
        packets.push(packet);
    }
    packets.concat()
}

fn pcr_jumps() -> Vec<u8> {
    let ticks = [Pcr::MODULUS - 100, 50, 1_000_000, 27, 1 << 41];
    let packet = |(count, ticks): (usize, u64)| {
        let fields = AdaptationSpec {
            pcr: Some(Pcr::from_ticks(ticks)),
            discontinuity: count == 3,
            ..AdaptationSpec::default()
        };
        video(count as u8, fields, &[7; 184])
    };
    ticks.into_iter().enumerate().flat_map(packet).collect()
}

fn all_adaptation_fields() -> Vec<u8> {
    let mut packets = stream();
    let field = [&[0x47, 1, 0, 0x32, 30, 0xff][..], &[1; 12], &[0xfe, 2, 8, 9, 3, 0x80, 0, 0]].concat();
    packets[3][..field.len()].copy_from_slice(&field);
    packets.concat()
}

fn sections_share_packets() -> Vec<u8> {
    let mut long = pmt();
    // Descriptors fill the section up beyond one packet.
    let streams = (0..40).map(|number| PmtStream {
        stream_type: 6,
        pid: Pid::new(300 + number).expect("13 bits"),
        descriptors: &[],
    });
    let mut buf = [0; 1_024];
    let len = ts::write_pmt(&mut buf, 2, 1, Pid::NULL, &[], streams).expect("room");
    long.extend(&buf[..len]);
    let mut packets = Vec::new();
    ts::section_packets(&long, PMT, 3, |packet| packets.extend(packet));
    packets
}
