//! Writes the seeds of the pump's fuzz corpora, sound and broken titles, clocks and live inputs:
//! `cargo run -p millrace-pump --example seed_pump`.

#[path = "../../../fuzz/entry/live.rs"]
#[allow(dead_code, reason = "the layout alone is of use")]
mod live;

use std::fs;
use std::path::Path;

use pump::sample::Sample;
use wire::Bitrate;
use wire::ts::{PACKET_LEN, Packet, Pcr, set_discontinuity, set_pcr};

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pump");
    fs::create_dir_all(&folder)?;
    let constant =
        Sample { rate: Bitrate::from_kbps(450), pictures: 5, group: 2, first_pcr: 27_000_000, ..Sample::default() };
    let variable = Sample { is_constant: false, says_random_access: false, ..constant.clone() };
    let (sound, other) = (constant.make(), variable.make());
    let seeds = [
        ("constant", [0, 0, 2, 0, 0, 0], sound.clone()),
        ("variable-looped", [0, 3, 1, 0, 0x44, 7], other.clone()),
        ("given-rate-rtp", [0x41, 6, 7, 3, 0x21, 3], sound.clone()),
        ("padded", [0x42, 11, 1, 0, 0x30, 9], other.clone()),
        ("other-pids", [0, 0x33, 4, 0, 0x80, 1], sound.clone()),
        ("pictures", [0, 2, 2, 0, 0x24, 5], other.clone()),
        ("wraps", [0, 3, 2, 0, 0, 0], Sample { first_pcr: Pcr::MODULUS - 1_000_000, ..constant }.make()),
        ("m2ts", [0, 0, 2, 0, 0, 0], spaced(&sound, 4, 0)),
        ("reed-solomon", [0, 0, 2, 0, 0, 0], spaced(&sound, 0, 16)),
        ("lost-sync", [0, 3, 2, 0, 0, 0], [&sound[..2_000], &[0x47; 70], &sound[2_500..]].concat()),
        ("truncated-last-packet", [0, 3, 2, 0, 0, 0], sound[..sound.len() - 90].to_vec()),
        ("clock-jumps", [0, 3, 2, 0, 0, 0], jumping(&sound)),
        ("zero-length-adaptation", [0, 3, 2, 0, 0, 0], zero_length_adaptation(&sound)),
    ];
    for (name, how, title) in seeds {
        fs::write(folder.join(name), [&how[..], &title].concat())?;
    }
    clocks()?;
    lives()
}

/// A name, the first reference, and the steps to the others.
type ClockSeed<'a> = (&'a str, u64, &'a [(i64, bool)]);

/// References every 100 packets, each with the ticks that it adds and whether it says that it does not continue.
fn clocks() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/clock");
    fs::create_dir_all(&folder)?;
    let (even, second) = (902_400, 27_000_000);
    let seeds: [ClockSeed<'_>; 8] = [
        ("constant", 0, &[(even, false); 9]),
        ("variable", 5_000, &[(even, false), (even / 4, false), (even * 7, false), (even, false)]),
        ("wraps", Pcr::MODULUS - 2_000_000, &[(even, false); 9]),
        ("jumps", 0, &[(even, false), (1 << 40, false), (even, false), (-(1 << 39), false), (even, false)]),
        ("says-so", 0, &[(even, false), (1 << 40, true), (even, false), (-second, true), (even, false)]),
        ("stands-still", 9, &[(even, false), (0, false), (0, false), (even, false)]),
        ("long-gaps", 9, &[(even, false), (second, false), (20 * second, false), (40 * second, false), (even, false)]),
        ("runs-back-a-little", second as u64, &[(even, false), (-300, false), (even, false), (-27_000, false)]),
    ];
    for (name, first, steps) in seeds {
        let mut clock = vec![0, 34, 1, 8];
        let mut pcr = Pcr::from_ticks(first);
        for (ticks, says_so) in [(0, false)].iter().chain(steps) {
            pcr = pcr.plus(*ticks);
            clock.extend([100, 0, 0]);
            clock.extend(&pcr.ticks().to_le_bytes()[..6]);
            clock.push(u8::from(*says_so));
        }
        fs::write(folder.join(name), clock)?;
    }
    Ok(())
}

/// Live inputs of 1.6 s. What changes is how the session is sent, and the flags, times and places of the datagrams.
fn lives() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/live");
    fs::create_dir_all(&folder)?;
    let sample = |is_constant| Sample { rate: Bitrate::from_kbps(450), pictures: 40, is_constant, ..Sample::default() };
    let (constant, variable) = (sample(true).make(), sample(false).make());
    let second = Sample { first_pcr: 5, ..sample(true) }.make();
    let even = datagrams(&constant, 0, |_| (117, None));
    // Nothing for 1.6 s, and then an empty datagram of the other.
    let silence = [1 | live::LONG, 80];
    let seeds = [
        ("even", [0, 10], even.clone()),
        (
            "uneven-rtp",
            [1, 3],
            datagrams(&constant, live::RTP, |at| ((at * 37 % 234) as u8, (at % 9 == 4).then_some(-2))),
        ),
        ("lost-and-late-rtp", [3, 5], datagrams(&constant, live::RTP, |at| (117, (at % 13 == 4).then_some(50)))),
        ("variable-padded", [0x46, 10], datagrams(&variable, 0, |_| (117, None))),
        ("too-fast", [2, 10], datagrams(&constant, 0, |at| (if at > 30 { 4 } else { 117 }, None))),
        ("another-source", [8, 10], [&even[..], &silence, &datagrams(&second, 1, |_| (117, None))].concat()),
        ("other-tables", [1, 10], [even, datagrams(&variable, 0, |_| (117, None))].concat()),
    ];
    for (name, how, datagrams) in seeds {
        fs::write(folder.join(name), [&how[..], &datagrams].concat())?;
    }
    Ok(())
}

/// A stream as `live` takes it: of each datagram the time since the one before, and how far it is from its place.
fn datagrams(stream: &[u8], flags: u8, change: impl Fn(usize) -> (u8, Option<i8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, packets) in stream.as_chunks::<PACKET_LEN>().0.chunks(7).enumerate() {
        let (time, moved) = change(at);
        let moved_flag = if moved.is_some() { live::MOVED } else { 0 };
        bytes.extend([flags | moved_flag | (packets.len() as u8) << 5, time]);
        bytes.extend(moved.map(|places| places as u8));
        packets.iter().for_each(|packet| bytes.extend(&packet[..live::HEAD]));
    }
    bytes
}

fn spaced(title: &[u8], before: usize, behind: usize) -> Vec<u8> {
    title.chunks(PACKET_LEN).flat_map(|packet| [&vec![9; before][..], packet, &vec![8; behind]].concat()).collect()
}

/// References that jump ahead, run back, and jump with a word of it.
fn jumping(title: &[u8]) -> Vec<u8> {
    let mut title = title.to_vec();
    for (count, packet) in title.as_chunks_mut::<PACKET_LEN>().0.iter_mut().enumerate() {
        let Some(pcr) = Packet::parse(packet).ok().and_then(|packet| packet.pcr()) else { continue };
        let by = [0, 1 << 40, -270_000, 27_000_000_000][count % 4];
        set_pcr(packet, pcr.plus(by));
        set_discontinuity(packet, count % 8 == 3);
    }
    title
}

/// Adaptation fields of no length, of too much, and of the reserved kind.
fn zero_length_adaptation(title: &[u8]) -> Vec<u8> {
    let mut title = title.to_vec();
    for (count, packet) in title.as_chunks_mut::<PACKET_LEN>().0.iter_mut().enumerate() {
        match count % 5 {
            0 => (packet[3], packet[4]) = (packet[3] | 0x30, 0),
            2 if count % 10 == 2 => (packet[3], packet[4]) = (packet[3] | 0x30, 200),
            4 if count % 20 == 4 => packet[3] &= 0x0f,
            _ => {}
        }
    }
    title
}
