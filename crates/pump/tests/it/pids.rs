//! PIDs that are left out or have other numbers, and the tables that say so.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Source, World};
use pump::monitor::Monitor;
use pump::pids::{PidMap, RenameError, check_rename};
use pump::sample::{AUDIO_PID, PMT_PID, Sample, VIDEO_PID};
use pump::spec::{Command, Settings};
use wire::ts::{PACKET_LEN, Packet, Pat, Pid, Pmt, Section, SectionBuffer};

fn pid(number: u16) -> Pid {
    Pid::new(number).unwrap()
}

/// Packets by PID, and the programs and streams that the tables name.
fn read(packets: &[[u8; PACKET_LEN]]) -> (std::collections::BTreeMap<Pid, usize>, Vec<Pid>, Vec<Pid>) {
    let (mut counts, mut programs, mut streams) = (std::collections::BTreeMap::new(), Vec::new(), Vec::new());
    let (mut pat, mut pmt) = (SectionBuffer::default(), SectionBuffer::default());
    for bytes in packets {
        let packet = Packet::parse(bytes).unwrap();
        *counts.entry(packet.pid()).or_insert(0) += 1;
        if packet.pid() == Pid::PAT {
            pat.push(&packet, |section| {
                programs =
                    Pat::parse(Section::parse(section).unwrap()).unwrap().programs().map(|(_, pid)| pid).collect();
            });
        }
        if programs.contains(&packet.pid()) {
            pmt.push(&packet, |section| {
                let pmt = Pmt::parse(Section::parse(section).unwrap()).unwrap();
                streams = [pmt.pcr_pid()].into_iter().chain(pmt.streams().map(|stream| stream.pid)).collect();
            });
        }
    }
    (counts, programs, streams)
}

fn play(keep: Option<&[Pid]>, rename: &[(Pid, Pid)]) -> (Arc<Source>, World) {
    let source = Source::sample(&Sample { pictures: 60, ..Sample::default() });
    let mut world = World::new(Settings::default());
    let pids = PidMap::new(&source.title, keep, rename);
    let session = world.open(1, &source, |spec| (spec.pids, spec.play.looped) = (Some(Arc::new(pids)), true));
    world.run(Duration::from_millis(4_000));
    world.command(Command::Seek { session, to: 4_321 });
    world.run(Duration::from_millis(1_000));
    (source, world)
}

fn assert_sound(world: &World) {
    let mut monitor = Monitor::new(None);
    for sent in &world.sent[&1] {
        assert_eq!(sent.bytes.len(), 7 * PACKET_LEN);
        monitor.handle_datagram(sent.ns, &sent.bytes);
    }
    let report = monitor.report();
    assert_eq!((report.lost, report.priorities.sums()), (0, (0, 0)), "{report:?}");
}

#[test]
fn renamed_pids_have_their_names_in_the_tables() {
    let rename = [(PMT_PID, pid(0x30)), (VIDEO_PID, pid(0x31)), (AUDIO_PID, pid(0x32))];
    let (_, world) = play(None, &rename);
    assert_sound(&world);
    let (counts, programs, streams) = read(&world.packets(1));
    assert_eq!(counts.keys().map(|pid| pid.number()).collect::<Vec<_>>(), [0, 0x30, 0x31, 0x32, 0x1fff]);
    assert_eq!((programs, streams), (vec![pid(0x30)], vec![pid(0x31), pid(0x31), pid(0x32)]));
}

#[test]
fn a_pid_is_renamed_to_one_that_is_free_or_not_at_all() {
    let title = &Source::sample(&Sample::default()).title;
    let pid = |number| Pid::new(number).unwrap();
    let (video, audio) = (VIDEO_PID.number(), AUDIO_PID.number());
    let check = |keep: Option<&[Pid]>, rename: &[(u16, u16)]| {
        let rename: Vec<_> = rename.iter().map(|(from, to)| (pid(*from), pid(*to))).collect();
        check_rename(title, [pid(500)], keep, &rename)
    };
    for number in [0, 1, 17, 31, 8_191] {
        assert_eq!(check(None, &[(video, number)]), Err(RenameError::Reserved(number)));
        assert_eq!(check(None, &[(number, 700)]), Err(RenameError::Reserved(number)));
    }
    for taken in [audio, PMT_PID.number(), 500] {
        assert_eq!(check(None, &[(video, taken)]), Err(RenameError::Taken(taken)));
    }
    assert_eq!(check(None, &[(video, 600), (audio, 600)]), Err(RenameError::Twice(600)));
    assert_eq!(check(None, &[(video, 32), (audio, 8_190)]), Ok(()));
    assert_eq!(check(None, &[(video, audio), (audio, video)]), Ok(()), "they change places");
    assert_eq!(check(Some(&[VIDEO_PID]), &[(video, audio)]), Ok(()), "what is left out takes no place");
}

#[test]
fn pids_that_are_left_out_are_neither_sent_nor_named() {
    let (source, world) = play(Some(&[VIDEO_PID]), &[]);
    assert_sound(&world);
    let (counts, programs, streams) = read(&world.packets(1));
    // The only null packets fill the last datagram of a loop.
    assert!(counts.get(&Pid::NULL).is_none_or(|count| *count < 30), "{counts:?}");
    assert!(!counts.contains_key(&AUDIO_PID));
    assert_eq!((programs, streams), (vec![PMT_PID], vec![VIDEO_PID, VIDEO_PID]));
    // The title's pace stays, so there are fewer datagrams in its time.
    let (plain, _, _) = read(source.bytes.as_chunks().0);
    let share = counts[&VIDEO_PID] as f64 / plain[&VIDEO_PID] as f64;
    assert!((1.9..2.3).contains(&share), "5 s of 2.4: {share}");
}
