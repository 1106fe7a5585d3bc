//! Streams to test with, as short as they can be: groups of pictures that no decoder would like.

use live::Format;
use pump::sample::Sample;

/// Pictures of a group; the first stands alone.
const GROUP: usize = 5;

/// A stream, and where one may start in it.
pub(super) struct Made {
    pub(super) format: Format,
    pub(super) bytes: Vec<u8>,
    pub(super) starts: Vec<u64>,
}

/// One of each format that has a header.
pub(super) fn all(groups: usize, seed: u8) -> [Made; 4] {
    [ts(groups, seed), flv(groups, seed), webm(groups, seed), mp4(groups, seed)]
}

pub(super) fn ts(groups: usize, seed: u8) -> Made {
    let sample =
        Sample { pictures: (GROUP * groups) as u32, group: GROUP as u32, seed: seed.into(), ..Sample::default() };
    let bytes = sample.make();
    let is_start = |packet: &[u8]| {
        packet[1] & 0x5f == 0x41 && packet[2] == 0 && packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x40 != 0
    };
    let packets = bytes.chunks(188).enumerate();
    let starts = packets.filter(|(_, packet)| is_start(packet)).map(|(index, _)| index as u64 * 188).collect();
    Made { format: Format::Ts, bytes, starts }
}

pub(super) fn flv(groups: usize, seed: u8) -> Made {
    let mut bytes = b"FLV\x01\x01\0\0\0\x09\0\0\0\0".to_vec();
    bytes.extend(flv_tag(0, &[&[0x17, 0, 0, 0, 0, 1, 0x64, 0, 0x1f, 0xff][..], &[seed; 20]].concat()));
    let mut starts = Vec::new();
    for picture in 0..groups * GROUP {
        let is_key = picture.is_multiple_of(GROUP);
        if is_key {
            starts.push(bytes.len() as u64);
        }
        let data = [&[if is_key { 0x17 } else { 0x27 }, 1, 0, 0, 0][..], &content(picture, seed)].concat();
        bytes.extend(flv_tag(picture as u32 * 200, &data));
    }
    Made { format: Format::Flv, bytes, starts }
}

fn flv_tag(time_ms: u32, data: &[u8]) -> Vec<u8> {
    let (len, time) = ((data.len() as u32).to_be_bytes(), time_ms.to_be_bytes());
    let head = [9, len[1], len[2], len[3], time[1], time[2], time[3], time[0], 0, 0, 0];
    [&head[..], data, &(data.len() as u32 + 11).to_be_bytes()].concat()
}

pub(super) fn webm(groups: usize, seed: u8) -> Made {
    let element = |id: &[u8], body: &[u8]| [id, &(body.len() as u32 | 0x1000_0000).to_be_bytes(), body].concat();
    const UNKNOWN: [u8; 8] = [1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let mut bytes = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"webm"));
    bytes.extend([&[0x18, 0x53, 0x80, 0x67][..], &UNKNOWN].concat());
    bytes.extend(element(&[0x15, 0x49, 0xa9, 0x66], &element(&[0x2a, 0xd7, 0xb1], &1_000_000_u32.to_be_bytes())));
    let track =
        [element(&[0xd7], &[1]), element(&[0x83], &[1]), element(&[0x86], b"V_VP8"), element(&[0xec], &[seed; 9])];
    bytes.extend(element(&[0x16, 0x54, 0xae, 0x6b], &element(&[0xae], &track.concat())));
    let mut starts = Vec::new();
    for picture in 0..groups * GROUP {
        let is_key = picture.is_multiple_of(GROUP);
        if is_key {
            starts.push(bytes.len() as u64);
            bytes.extend([&[0x1f, 0x43, 0xb6, 0x75][..], &UNKNOWN].concat());
            bytes.extend(element(&[0xe7], &(picture as u32 * 200).to_be_bytes()));
        }
        let head = [0x81, 0, 0, if is_key { 0x80 } else { 0 }];
        bytes.extend(element(&[0xa3], &[&head[..], &content(picture, seed)].concat()));
    }
    Made { format: Format::Matroska, bytes, starts }
}

pub(super) fn mp4(groups: usize, seed: u8) -> Made {
    let atom = |kind: &[u8; 4], body: &[u8]| [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let mdia = [
        atom(b"mdhd", &words(&[0, 0, 0, 1_000, 0, 0])),
        atom(b"hdlr", &[&[0; 8][..], b"vide", &[0; 13]].concat()),
        atom(b"free", &[seed; 9]),
    ];
    let trak = [atom(b"tkhd", &words(&[0, 0, 0, 1, 0])), atom(b"mdia", &mdia.concat())];
    let mvex = atom(b"mvex", &atom(b"trex", &words(&[0, 1, 1, 0, 0, 0])));
    let mut bytes = atom(b"ftyp", b"iso5\0\0\0\0");
    bytes.extend(atom(b"moov", &[atom(b"trak", &trak.concat()), mvex].concat()));
    let mut starts = Vec::new();
    for picture in 0..groups * GROUP {
        let is_key = picture.is_multiple_of(GROUP);
        if is_key {
            starts.push(bytes.len() as u64);
            bytes.extend(atom(b"styp", b"msdh\0\0\0\0"));
        }
        let flags = if is_key { 0 } else { 0x1_0000 };
        let traf = [
            atom(b"tfhd", &words(&[0x20, 1, flags])),
            atom(b"tfdt", &words(&[0, picture as u32 * 200])),
            atom(b"trun", &words(&[0, 1])),
        ];
        bytes.extend(atom(
            b"moof",
            &[atom(b"mfhd", &words(&[0, picture as u32])), atom(b"traf", &traf.concat())].concat(),
        ));
        bytes.extend(atom(b"mdat", &content(picture, seed)));
    }
    Made { format: Format::Mp4, bytes, starts }
}

/// Some bytes; those of a picture that stands alone are more.
fn content(picture: usize, seed: u8) -> Vec<u8> {
    let len = if picture.is_multiple_of(GROUP) { 9_000 } else { 700 + 13 * (picture % 7) };
    (0..len).map(|byte| (byte as u8).wrapping_mul(31) ^ seed ^ picture as u8).collect()
}
