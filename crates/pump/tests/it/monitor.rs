//! What the monitor says of streams that are sound, and of those that are not.

use pump::monitor::{Monitor, Report};
use pump::sample::{AUDIO_PID, PMT_PID, Sample, VIDEO_PID};
use wire::Bitrate;
use wire::Seq;
use wire::ts::{DATAGRAM_LEN, PACKET_LEN, Packet, Pid, set_discontinuity, set_pcr, write_null, write_rtp_header};

const RATE: Bitrate = Bitrate::from_kbps(4_500);
/// One datagram's time, exactly enough.
const STEP_NS: u64 = 2_339_556;

/// Ten seconds of a sound title, packet by packet.
fn packets() -> Vec<[u8; PACKET_LEN]> {
    Sample::default().make().as_chunks().0.to_vec()
}

/// Measures packets in datagrams that arrive evenly, but `late_ns` after their time.
fn measured(packets: &[[u8; PACKET_LEN]], late_ns: impl Fn(u64) -> u64) -> Report {
    let mut monitor = Monitor::new(Some(RATE));
    for (count, datagram) in packets.as_flattened().chunks(DATAGRAM_LEN).enumerate() {
        monitor.handle_datagram(count as u64 * STEP_NS + late_ns(count as u64), datagram);
    }
    monitor.report()
}

fn on_time(packets: &[[u8; PACKET_LEN]]) -> Report {
    measured(packets, |_| 0)
}

fn pid(packet: &[u8; PACKET_LEN]) -> Pid {
    Pid::from_bytes(packet[1], packet[2])
}

/// Changes the packets of a PID, counted among themselves.
fn change(which: Pid, mut change: impl FnMut(usize, &mut [u8; PACKET_LEN])) -> Vec<[u8; PACKET_LEN]> {
    let mut packets = packets();
    packets
        .iter_mut()
        .filter(|packet| pid(packet) == which)
        .enumerate()
        .for_each(|(count, packet)| change(count, packet));
    packets
}

#[test]
fn a_sound_stream_has_no_errors_and_the_ideal_delay_factor() {
    let report = on_time(&packets());
    assert_eq!((report.lost, report.malformed, report.priorities.sums()), (0, 0, (0, 0)), "{report:?}");
    assert!((2_339_000..2_341_000).contains(&report.delay_factor_max_ns.unwrap()), "{report:?}");
    assert!(report.pcr_accuracy_max_ns.unwrap() <= 75 && report.pcr_jitter_max_ns < STEP_NS);
    assert_eq!((report.packets, report.bytes), (29_920, 29_920 * 188));
}

#[test]
fn lateness_shows_in_delay_factor_and_jitter() {
    let report = measured(&packets(), |count| if count % 100 == 50 { 2_000_000 } else { 0 });
    assert!((4_300_000..4_400_000).contains(&report.delay_factor_max_ns.unwrap()), "{report:?}");
    let report = measured(&packets(), |count| count / 10 % 2 * 20_000_000);
    assert!(report.pcr_jitter_max_ns > 19_000_000 && report.lost == 0);
}

#[test]
fn lost_packets_are_counted_by_the_continuity_counters() {
    let mut packets = packets();
    let mut seen = 0;
    packets.retain(|packet| {
        seen += usize::from(pid(packet) == VIDEO_PID);
        // Three in a row, and one.
        pid(packet) != VIDEO_PID || !matches!(seen, 100..=102 | 5_000)
    });
    let report = on_time(&packets);
    assert_eq!((report.lost, report.priorities.continuity, report.loss_rate_max), (4, 2, 3));
}

#[test]
fn a_packet_may_come_twice_but_not_three_times() {
    let mut packets = packets();
    let at = packets.iter().position(|packet| pid(packet) == AUDIO_PID).unwrap();
    packets.insert(at, packets[at]);
    assert_eq!(on_time(&packets).priorities.continuity, 0);
    packets.insert(at, packets[at]);
    assert_eq!(on_time(&packets).priorities.continuity, 1);
}

#[test]
fn a_flagged_jump_is_none_and_an_unflagged_one_is() {
    for flag in [false, true] {
        let packets = change(VIDEO_PID, |count, packet| {
            let pcr = Packet::parse(packet).unwrap().pcr().filter(|_| count > 1_000);
            if let Some(pcr) = pcr {
                set_pcr(packet, pcr.plus(27_000_000 * 3_600));
                set_discontinuity(packet, flag);
            }
        });
        assert_eq!(on_time(&packets).priorities.pcr_discontinuity, u64::from(!flag));
    }
}

#[test]
fn references_off_their_place_are_inaccurate() {
    // From one place on they are later, which is one error; or each is off in turn.
    for alternates in [false, true] {
        let mut references = 0;
        let packets = change(VIDEO_PID, |count, packet| {
            if let Some(pcr) = Packet::parse(packet).unwrap().pcr().filter(|_| count > 1_000) {
                references += 1;
                set_pcr(packet, pcr.plus(if alternates && references % 2 == 0 { 0 } else { 27 * 2 }));
            }
        });
        let report = on_time(&packets);
        assert!((1_900..2_100).contains(&report.pcr_accuracy_max_ns.unwrap()));
        let errors = report.priorities.pcr_accuracy;
        assert!(if alternates { errors > 100 } else { errors == 1 }, "{errors}");
    }
}

#[test]
fn what_does_not_come_is_missed_once_a_period() {
    let without = |which: Pid| {
        on_time(&change(which, |count, packet| {
            if count > 0 {
                write_null(packet)
            }
        }))
        .priorities
    };
    // Nine seconds and more without a table that has to come every half second.
    assert!((17..=20).contains(&without(Pid::PAT).pat), "{:?}", without(Pid::PAT));
    assert!((17..=20).contains(&without(PMT_PID).pmt));
    assert_eq!((without(AUDIO_PID).pid, without(AUDIO_PID).continuity), (1, 0));
    let video = without(VIDEO_PID);
    assert!((60..=100).contains(&video.pcr_repetition) && (11..=14).contains(&video.pts), "{video:?}");
}

#[test]
fn damage_is_counted_by_its_kind() {
    let report = on_time(&change(VIDEO_PID, |count, packet| {
        if count == 7 {
            packet[1] |= 0x80
        }
    }));
    assert_eq!(report.priorities.transport, 1);
    let report = on_time(&change(PMT_PID, |count, packet| {
        if count == 3 {
            packet[20] ^= 1
        }
    }));
    assert_eq!((report.priorities.crc, report.priorities.pmt), (1, 0));
    let report = on_time(&change(Pid::PAT, |count, packet| {
        if count == 3 {
            packet[5] = 2
        }
    }));
    assert_eq!(report.priorities.pat + report.priorities.crc, 1);
    let report = on_time(&change(AUDIO_PID, |count, packet| {
        if count == 3 {
            packet[3] |= 0x80
        }
    }));
    assert_eq!(report.priorities.cat, 1);
    let mut packets = packets();
    for at in [100, 101, 500] {
        packets[at][0] = 0x48;
    }
    let priorities = on_time(&packets).priorities;
    assert_eq!((priorities.sync_byte, priorities.sync_loss), (3, 1));
}

#[test]
fn rtp_loss_and_reordering_are_told_apart() {
    let packets = packets();
    let mut monitor = Monitor::new(None);
    for (count, seq) in [0, 1, 4, 3, 5, 9].into_iter().enumerate() {
        let mut datagram = vec![0; 12];
        write_rtp_header(&mut datagram, Seq(65_533).plus(seq), 0, 1, false).unwrap();
        datagram.extend(packets[count * 7..][..7].as_flattened());
        monitor.handle_datagram(count as u64 * STEP_NS, &datagram);
    }
    monitor.handle_datagram(0, &[0x47; 100]);
    let report = monitor.report();
    assert_eq!((report.rtp_lost, report.rtp_reordered, report.malformed), (4, 1, 1));
}
