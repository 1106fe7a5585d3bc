//! Two hours by the clock that is set: what is sent neither gains nor loses time, over hundreds of loops and a wrap.

use std::time::Duration;

use crate::common::{Source, World};
use pump::sample::Sample;
use pump::spec::{Pacing, Settings, Transport};
use wire::Bitrate;
use wire::ts::{Packet, Pcr, datagram_packets};

const MINUTES: u64 = 120;

const RATE: Bitrate = Bitrate::from_kbps(450);

#[test]
fn what_is_sent_for_two_hours_is_as_late_in_the_last_minute_as_in_the_first() {
    // It wraps within the first minute.
    let constant = Sample { rate: RATE, pictures: 500, first_pcr: Pcr::MODULUS - 30 * Pcr::HZ, ..Sample::default() };
    let variable = Sample { is_constant: false, ..constant.clone() };
    let cases = [
        (&constant, Pacing::Clock),
        (&variable, Pacing::Clock),
        (&variable, Pacing::Padded(Bitrate::from_kbps(1_000))),
    ];
    for (sample, pacing) in cases {
        let source = Source::sample(sample);
        let mut world = World::new(Settings { tick: Duration::from_nanos(1), ..Settings::default() });
        world.open(1, &source, |spec| {
            (spec.play.looped, spec.play.pacing, spec.play.burst) = (true, pacing, Some(1));
            spec.transport = Transport::Rtp { ssrc: 1, first_seq: 65_000, first_timestamp: u32::MAX - 1_000_000 };
        });
        let mut watch = Watch::default();
        let minutes: Vec<[i64; 4]> = (0..MINUTES).map(|_| minute(&mut world, &mut watch)).collect();

        let first = minutes[1];
        for minute in &minutes[1..] {
            // References change by whole ticks of 90 kHz, 11 µs, at each seam.
            let apart = first.iter().zip(minute).map(|(first, this)| (first - this).abs()).max().unwrap();
            assert!(apart < 30_000, "{pacing:?}: {first:?} ns in the first minute, {minute:?} later");
        }
        assert!(watch.references > MINUTES * 60 * 20, "{}", watch.references);
        let counters = world.counters();
        assert_eq!((counters.underruns, counters.shifts), (0, 0), "{pacing:?}");
    }
}

/// How references and RTP's times compare with the clock.
#[derive(Default)]
struct Watch {
    pcr: Option<(Pcr, i128)>,
    timestamp: Option<(u32, i128)>,
    start_ns: u64,
    references: u64,
}

/// Plays for a minute: how much later, in nanoseconds, references came than they say, least and most; and the same of RTP.
fn minute(world: &mut World, watch: &mut Watch) -> [i64; 4] {
    world.run(Duration::from_secs(60));
    let [mut pcr_least, mut pcr_most, mut rtp_least, mut rtp_most] = [i64::MAX, i64::MIN, i64::MAX, i64::MIN];
    for sent in world.sent.remove(&1).expect("it is sent") {
        if watch.timestamp.is_none() {
            watch.start_ns = sent.ns;
        }
        let at_ns = (sent.ns - watch.start_ns) as i64;
        let timestamp = u32::from_be_bytes(sent.bytes[4..8].try_into().expect("an RTP header"));
        let (before, passed) = watch.timestamp.unwrap_or((timestamp, 0));
        let passed = passed + i128::from(timestamp.wrapping_sub(before) as i32);
        watch.timestamp = Some((timestamp, passed));
        let late = at_ns - (passed * 1_000_000 / 90) as i64;
        (rtp_least, rtp_most) = (rtp_least.min(late), rtp_most.max(late));
        for packet in datagram_packets(&sent.bytes).expect("whole packets").1 {
            let Some(pcr) = Packet::parse(packet).expect("a packet").pcr() else { continue };
            let (before, passed) = watch.pcr.unwrap_or((pcr, 0));
            let passed = passed + i128::from(before.ticks_to(pcr));
            watch.pcr = Some((pcr, passed));
            let late = at_ns - (passed * 1_000 / 27) as i64;
            (pcr_least, pcr_most) = (pcr_least.min(late), pcr_most.max(late));
            watch.references += 1;
        }
    }
    [pcr_least, pcr_most, rtp_least, rtp_most]
}
