//! What is counted: one function per case, with what it needs made outside of the counted region.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use srtp::{Opener, Profile, Sealer, SessionKeys};
use wheel::Wheel;
use wire::rtp::{HeaderWriter, RtpHeader, RtpPacket};
use wire::stun;
use wire::{LinkId, Outbox, Path, Seq};

use crate::pumping;
use crate::region::Region;
use crate::world::World;

/// Units of the cases that do one thing again and again.
const TIMES: u64 = 1_000;

/// Something to count. Its name says what a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// A packet to one more viewer, from the batch to the outbox: `rooms::Rooms` with 32 viewers.
    FanOutGcm128,
    FanOutCmSha1,
    /// A publisher's packet, from the datagram to the log.
    PublishGcm128,
    /// A viewer's report with transport feedback about 15 packets, from the datagram on.
    TransportFeedback,
    /// A packet opened.
    SrtpOpenGcm128,
    SrtpOpenCmSha1,
    /// A header read, with one of its extensions.
    RtpParse,
    /// A binding request read, with its user name and its fingerprint.
    StunParse,
    /// A timer inserted, and fired.
    WheelTimer,
    /// A burst of four datagrams of a title to one of 32 receivers, from the wheel to the outbox: `pump::Pump`.
    PumpBurst,
    /// The same of streams that were paused once, so that all clocks are changed.
    PumpBurstChanged,
    /// A datagram of no content through slot and commit.
    OutboxCommit,
    /// One turn of the loop that slows a case down, to know how much it adds.
    IdleLoop,
}

impl Case {
    /// Those with a number that is checked in.
    pub fn measured() -> impl Iterator<Item = Case> {
        Case::value_variants().iter().copied().filter(|case| *case != Case::IdleLoop)
    }

    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Does it all, the counted part inside of `region`.
    ///
    /// # Errors
    /// When it did not do what it is named for.
    pub fn run(self, region: &mut Region) -> Result<()> {
        match self {
            Case::FanOutGcm128 => World::viewers(Profile::AeadAes128Gcm)?.fan_out(region),
            Case::FanOutCmSha1 => World::viewers(Profile::Aes128CmSha1_80)?.fan_out(region),
            Case::PublishGcm128 => {
                let (mut world, mut source) = World::publisher(Profile::AeadAes128Gcm)?;
                world.publish(&mut source, region)
            }
            Case::TransportFeedback => World::viewers(Profile::AeadAes128Gcm)?.report(region),
            Case::SrtpOpenGcm128 => srtp_open(region, Profile::AeadAes128Gcm),
            Case::SrtpOpenCmSha1 => srtp_open(region, Profile::Aes128CmSha1_80),
            Case::RtpParse => rtp_parse(region),
            Case::StunParse => stun_parse(region),
            Case::WheelTimer => wheel_timer(region),
            Case::OutboxCommit => outbox_commit(region),
            Case::PumpBurst => pumping::bursts(region, false),
            Case::PumpBurstChanged => pumping::bursts(region, true),
            Case::IdleLoop => {
                // The loop alone, once per unit.
                *region = Region::new(1.0);
                region.count(TIMES, || ());
                Ok(())
            }
        }
    }
}

/// Writes an RTP packet with two extensions and `payload_len` bytes; returns the header's length and the packet's.
fn write_rtp(buf: &mut [u8], seq: u64, payload_len: usize) -> Option<(usize, usize)> {
    let header = RtpHeader { payload_type: 96, marker: false, seq: Seq(seq as u16), timestamp: 3_000, ssrc: 7 };
    let mut writer = HeaderWriter::new(buf, &header)?;
    writer.extension(1, b"0");
    writer.extension(3, &(seq as u16).to_be_bytes());
    let header_len = writer.finish();
    buf.get_mut(header_len..header_len + payload_len)?.fill(seq as u8);
    Some((header_len, header_len + payload_len))
}

fn srtp_open(region: &mut Region, profile: Profile) -> Result<()> {
    let (ours, theirs) = SessionKeys::made_up_pair(profile, 1);
    let (sealer, mut opener) = (Sealer::new(&ours)?, Opener::new(&theirs)?);
    let mut packets: Vec<Vec<u8>> = (0..TIMES)
        .filter_map(|number| {
            let (mut buf, seq) = (vec![0; 1_200], (1 << 16) + number);
            let (header_len, len) = write_rtp(&mut buf, seq, 1_000)?;
            let len = sealer.seal_rtp(&mut buf, header_len, len, 7, seq);
            buf.truncate(len);
            Some(buf)
        })
        .collect();
    let opened = region.count(TIMES, || packets.iter_mut().filter_map(|packet| opener.open_rtp(packet).ok()).count());
    ensure!(opened as u64 == TIMES, "{opened} of {TIMES} packets opened");
    Ok(())
}

fn rtp_parse(region: &mut Region) -> Result<()> {
    let mut buf = [0; 1_200];
    let (_, len) = write_rtp(&mut buf, 9, 1_000).context("write a packet")?;
    let packet = &buf[..len];
    let parsed = region.count(TIMES, || {
        let parsed = (0..TIMES).filter(|_| {
            let Ok(packet) = RtpPacket::parse(black_box(packet)) else { return false };
            packet.extension(3).is_some() && black_box(packet.payload()).len() == 1_000
        });
        parsed.count()
    });
    ensure!(parsed as u64 == TIMES, "{parsed} of {TIMES} packets parsed");
    Ok(())
}

fn stun_parse(region: &mut Region) -> Result<()> {
    let request = binding_request();
    let parsed = region.count(TIMES, || {
        (0..TIMES).filter(|_| black_box(stun::local_ufrag(black_box(&request))) == Some("ours")).count()
    });
    ensure!(parsed as u64 == TIMES, "{parsed} of {TIMES} requests parsed");
    Ok(())
}

/// What a browser sends to check a pair of addresses, with a made-up integrity and fingerprint (RFC 8489, RFC 8445 §7).
fn binding_request() -> Vec<u8> {
    let attributes: [(u16, &[u8]); 6] = [
        (0x0006, b"ours:theirs"),
        (0x0024, &[0x6e, 0, 1, 0xff]),
        (0x802a, &[9; 8]),
        (0x0025, &[]),
        (0x0008, &[5; 20]),
        (0x8028, &[0; 4]),
    ];
    let mut body = Vec::new();
    for (kind, value) in attributes {
        body.extend(kind.to_be_bytes());
        body.extend((value.len() as u16).to_be_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = vec![0, 1];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(0x2112_a442_u32.to_be_bytes());
    message.extend([3; 12]);
    message.extend(body);
    message
}

fn wheel_timer(region: &mut Region) -> Result<()> {
    let start = Instant::now();
    let mut wheel = Wheel::new(start, Duration::from_micros(250));
    // The first time is not counted: it makes room.
    let warm_up = turn_wheel(&mut wheel, start);
    let fired = region.count(TIMES, || turn_wheel(&mut wheel, start + Duration::from_secs(10)));
    ensure!(warm_up == TIMES && fired == TIMES, "{fired} of {TIMES} timers fired");
    Ok(())
}

/// Inserts timers over a second and a half, in no order, and fires them as a worker would, every 5 ms.
fn turn_wheel(wheel: &mut Wheel<u64>, now: Instant) -> u64 {
    for number in 0..TIMES {
        let at = now + Duration::from_micros(number * 7_919 % 1_500 * 1_000);
        black_box(wheel.insert(at, number));
    }
    let mut fired = 0;
    for step in 0..=300 {
        while let Some(number) = wheel.pop_due(now + Duration::from_millis(5) * step) {
            black_box(number);
            fired += 1;
        }
    }
    fired
}

fn outbox_commit(region: &mut Region) -> Result<()> {
    let mut out = Outbox::new(256 << 10);
    let path = |number: u64| Path {
        link: LinkId::datagrams(0),
        remote: SocketAddr::from(([192, 0, 2, 1], number as u16)),
        local: None,
    };
    let paths: Vec<Path> = (0..20).map(path).collect();
    // Frames of five packets, for one viewer after the other.
    let runs = region.count(TIMES, || {
        let mut runs = 0;
        for _ in 0..TIMES / 100 {
            for path in &paths {
                for _ in 0..5 {
                    black_box(out.slot());
                    out.commit(path, black_box(1_200));
                }
            }
            runs += out.runs().len() as u64;
            out.clear();
        }
        runs
    });
    ensure!(runs == TIMES / 5, "{runs} runs of {TIMES} datagrams");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_does_what_it_is_named_for() {
        for case in Case::measured() {
            let mut region = Region::new(0.0);
            case.run(&mut region).unwrap_or_else(|error| panic!("{}: {error:#}", case.name()));
            assert!(region.units >= 100, "{}: {} units", case.name(), region.units);
        }
    }
}
