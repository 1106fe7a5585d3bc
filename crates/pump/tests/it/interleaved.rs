//! Sessions whose packets go into a client's connection, between what control says there.

use std::fs::File;
use std::time::Duration;

use crate::common::{Source, World};
use pump::sample::Sample;
use pump::spec::{Command, Settings, Target, Transport, UNHEARD_MAX, heard_len};
use wire::rtp::RtpPacket;
use wire::rtsp::{Item, next_item};
use wire::{Adopted, CloseReason, LinkEvent, LinkId, LinkKind, LinkRequest, Seq, Token};

const CONNECTION: Token = Token { owner: 9, number: 4 };
const LINK: LinkId = LinkId::new(LinkKind::Stream, 3, 1);
const CHANNEL: u8 = 6;

/// Bytes of a packet with what stands before it.
const FRAME: usize = 4 + 12 + 7 * 188;

/// Packets that wait behind what was said or is to be said, at most.
const HELD: usize = (256 << 10) / FRAME;

/// A session in a connection that is open, and its title.
fn playing() -> (World, std::sync::Arc<Source>) {
    let mut world = World::new(Settings::default());
    adopt(&mut world);
    open(&mut world);
    let source = play(&mut world, 1);
    (world, source)
}

fn adopt(world: &mut World) {
    let descriptor = File::open("/dev/null").expect("it is there").into();
    world.command(Command::Adopt { connection: CONNECTION, descriptor, patience: Duration::from_secs(10) });
    let [LinkRequest::Adopt { token: CONNECTION, kind: Adopted::Stream(options), .. }] = &world.requests[..] else {
        panic!("{:?}", world.requests)
    };
    assert_eq!((options.framing, options.unacknowledged_max), (None, Some(Duration::from_secs(10))));
    world.requests.clear();
}

fn open(world: &mut World) {
    let addr = ([127, 0, 0, 1], 1).into();
    world.link(CONNECTION, LinkEvent::Opened { link: LINK, local: addr, remote: Some(addr) });
}

fn play(world: &mut World, number: u64) -> std::sync::Arc<Source> {
    let source = Source::sample(&Sample { pictures: 100, ..Sample::default() });
    world.open(number, &source, |spec| {
        spec.to = Target::Interleaved { connection: CONNECTION, channel: CHANNEL };
        spec.transport = Transport::Rtp { ssrc: 7, first_seq: 100, first_timestamp: 0 };
    });
    source
}

fn say(world: &mut World, text: &str, heard: usize) {
    world.command(Command::Say { connection: CONNECTION, bytes: text.as_bytes().to_vec(), heard });
}

/// What was written since the last time, as the client reads it: words, and numbers of packets.
fn take(world: &mut World) -> (Vec<String>, Vec<u16>) {
    let pieces = world.pieces.drain(..);
    let bytes: Vec<u8> = pieces.inspect(|(link, _)| assert_eq!(*link, LINK)).flat_map(|(_, bytes)| bytes).collect();
    let (mut words, mut seqs, mut rest) = (Vec::new(), Vec::new(), &bytes[..]);
    while !rest.is_empty() {
        let word = rest.iter().take_while(|byte| **byte != b'$').count();
        if word > 0 {
            words.push(String::from_utf8(rest[..word].to_vec()).expect("text"));
            rest = &rest[word..];
            continue;
        }
        let Ok(Some((Item::Interleaved { channel, data }, FRAME))) = next_item(rest) else { panic!("a whole packet") };
        let packet = RtpPacket::parse(data).expect("RTP");
        assert_eq!((channel, packet.header().ssrc), (CHANNEL, 7));
        seqs.push(packet.header().seq.0);
        rest = &rest[FRAME..];
    }
    (words, seqs)
}

fn follow_each_other(seqs: &[u16]) -> bool {
    seqs.windows(2).all(|pair| Seq(pair[0]).distance_to(Seq(pair[1])) == 1)
}

#[test]
fn all_of_a_title_arrives_in_frames() {
    let (mut world, source) = playing();
    world.run_to_the_end();
    let frames = world.pieces.iter().map(|(_, bytes)| bytes);
    let packets: Vec<u8> = frames.flat_map(|frame| frame[FRAME - 7 * 188..].to_vec()).collect();
    assert_eq!(packets[..source.bytes.len()], source.bytes);
    let (words, seqs) = take(&mut world);
    assert!(words.is_empty() && follow_each_other(&seqs) && seqs[0] == 100);
    let counters = world.counters();
    assert_eq!((counters.interleaved, counters.interleaved_lost), (seqs.len() as u64, 0));
    assert!(world.sent.is_empty());
}

#[test]
fn what_is_said_is_written_when_there_is_room_and_before_the_packets() {
    let mut world = World::new(Settings::default());
    adopt(&mut world);
    say(&mut world, "welcome", 0);
    assert!(world.pieces.is_empty(), "it is not open yet");
    open(&mut world);
    assert_eq!(take(&mut world).0, ["welcome"]);

    play(&mut world, 1);
    say(&mut world, "one", 0);
    say(&mut world, "two", 0);
    let [LinkRequest::WatchWritable { link: LINK }] = world.requests[..] else { panic!("{:?}", world.requests) };
    let (_, before) = take(&mut world);
    world.run(Duration::from_millis(100));
    assert!(world.pieces.is_empty(), "what is due meanwhile waits behind it");
    say(&mut world, "three", 0);
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    world.run(Duration::from_millis(100));
    let [(_, first), ..] = &world.pieces[..] else { panic!("it is written") };
    assert!(first.starts_with(b"onetwo$"), "{first:?}");
    let (words, after) = take(&mut world);
    assert_eq!(words, ["onetwo", "three"]);
    assert!(follow_each_other(&[before, after].concat()));
    assert_eq!(world.counters().interleaved_lost, 0);
}

#[test]
fn packets_wait_behind_what_is_said_up_to_a_limit_and_are_dropped_from_there_on() {
    let (mut world, _) = playing();
    world.run(Duration::from_millis(500));
    let (_, before) = take(&mut world);
    say(&mut world, "wait", 0);
    world.run(Duration::from_secs(3));
    assert!(world.pieces.is_empty());
    let lost = world.counters().interleaved_lost;
    assert!(lost > 100, "{lost}");

    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    let (words, held) = take(&mut world);
    assert_eq!((words, held.len()), (vec!["wait".to_owned()], HELD));
    world.run(Duration::from_millis(500));
    let (_, after) = take(&mut world);
    assert!(follow_each_other(&[before, held.clone()].concat()) && follow_each_other(&after));
    let gap = Seq(held[held.len() - 1]).distance_to(Seq(after[0])) - 1;
    assert_eq!(gap as u64, lost);
}

#[test]
fn packets_come_behind_an_answer_that_takes_its_time() {
    let mut world = World::new(Settings::default());
    adopt(&mut world);
    open(&mut world);
    world.command(Command::Hold { connection: CONNECTION, channel: CHANNEL });
    play(&mut world, 1);
    world.run(Duration::from_millis(300));
    assert!(world.pieces.is_empty());
    // What is said of other things does not let them go.
    say(&mut world, "report", 0);
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    world.run(Duration::from_millis(50));
    assert_eq!(take(&mut world), (vec!["report".to_owned()], Vec::new()));
    say(&mut world, "answer", 0);
    world.command(Command::LetGo(CONNECTION));
    world.run(Duration::from_millis(50));
    assert!(world.pieces.is_empty(), "there is no room yet");
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    world.run(Duration::from_millis(50));
    let [(_, first), ..] = &world.pieces[..] else { panic!("it is written") };
    assert!(first.starts_with(b"answer$"), "{first:?}");
    let (words, held) = take(&mut world);
    world.run(Duration::from_millis(300));
    let (_, after) = take(&mut world);
    assert_eq!((words, held[0]), (vec!["answer".to_owned()], 100));
    assert!(!after.is_empty() && follow_each_other(&[held, after].concat()));
    assert_eq!(world.counters().interleaved_lost, 0);
}

#[test]
fn other_channels_go_on_while_one_is_held_and_what_is_held_has_a_limit() {
    let (mut world, _) = playing();
    world.command(Command::Hold { connection: CONNECTION, channel: CHANNEL + 2 });
    world.run(Duration::from_millis(300));
    let (_, before) = take(&mut world);
    assert!(!before.is_empty());
    world.command(Command::Hold { connection: CONNECTION, channel: CHANNEL });
    world.run(Duration::from_secs(3));
    let lost = world.counters().interleaved_lost;
    assert!(world.pieces.is_empty() && lost > 0);
    world.command(Command::LetGo(CONNECTION));
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    let (_, held) = take(&mut world);
    assert_eq!(held.len(), HELD);
    assert!(follow_each_other(&[before, held.clone()].concat()));
    world.run(Duration::from_millis(300));
    let (_, after) = take(&mut world);
    let gap = Seq(held[held.len() - 1]).distance_to(Seq(after[0])) - 1;
    assert_eq!(gap as u64, lost, "they go on");
}

#[test]
fn who_reads_nothing_has_no_more_held_for_him_by_asking_again() {
    let (mut world, _) = playing();
    say(&mut world, "answer", 0);
    for _ in 0..7 {
        world.command(Command::Hold { connection: CONNECTION, channel: CHANNEL });
        world.run(Duration::from_millis(500));
        say(&mut world, "answer", 0);
        world.command(Command::LetGo(CONNECTION));
    }
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    assert_eq!(take(&mut world).1.len(), HELD);
}

#[test]
fn to_hold_again_lets_nothing_go_and_to_hold_another_channel_does() {
    let (mut world, _) = playing();
    let hold = |world: &mut World, channel| {
        world.command(Command::Hold { connection: CONNECTION, channel });
        world.run(Duration::from_millis(50));
        world.link(CONNECTION, LinkEvent::Writable { link: LINK });
        world.run(Duration::from_millis(50));
        take(world).1
    };
    assert_eq!([hold(&mut world, CHANNEL), hold(&mut world, CHANNEL)], [[], []]);
    let all = hold(&mut world, CHANNEL + 1);
    assert!(all[0] == 100 && follow_each_other(&all), "{all:?}");
}

#[test]
fn what_is_held_ends_with_its_connection() {
    let (mut world, _) = playing();
    world.command(Command::Hold { connection: CONNECTION, channel: CHANNEL });
    world.run(Duration::from_millis(300));
    say(&mut world, "bye", 0);
    world.command(Command::HangUp(CONNECTION));
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    assert_eq!(take(&mut world), (vec!["bye".to_owned()], Vec::new()));
    assert!(matches!(world.requests[1..], [LinkRequest::Close { link: LINK }]));
    world.link(CONNECTION, LinkEvent::Closed { link: LINK, remote: None, reason: CloseReason::Failed });
    world.command(Command::LetGo(CONNECTION));
    world.command(Command::Hold { connection: CONNECTION, channel: CHANNEL });
    world.run(Duration::from_millis(300));
    assert!(world.pieces.is_empty());
}

#[test]
fn packets_without_room_are_dropped_and_counted_until_there_is_some_and_words_are_not() {
    let (mut world, _) = playing();
    world.run(Duration::from_millis(500));
    let (_, before) = take(&mut world);
    let unsent = 3;
    world.link(CONNECTION, LinkEvent::Unsent { link: LINK, bytes: unsent * FRAME });
    say(&mut world, "sorry", 0);
    world.run(Duration::from_millis(500));
    assert!(world.pieces.is_empty());

    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    world.run(Duration::from_millis(500));
    let [(_, first), ..] = &world.pieces[..] else { panic!("it goes on") };
    assert_eq!(first, b"sorry");
    let (_, after) = take(&mut world);
    assert!(follow_each_other(&after));
    let gap = Seq(before[before.len() - 1]).distance_to(Seq(after[0])) - 1;
    assert!(gap > 10, "{gap}");
    assert_eq!(world.counters().interleaved_lost, gap as u64 + unsent as u64);
}

#[test]
fn what_clients_say_is_told_and_too_much_of_it_ends_the_connection() {
    let (mut world, _) = playing();
    let mut text = *b"PLAY";
    world.link(CONNECTION, LinkEvent::Bytes { link: LINK, bytes: &mut text });
    assert_eq!(world.heard, [(CONNECTION, b"PLAY".to_vec())]);
    for _ in 0..1_000 {
        say(&mut world, "", heard_len(&[0; 100]));
        world.link(CONNECTION, LinkEvent::Bytes { link: LINK, bytes: &mut [0; 100] });
    }
    assert!(world.requests.is_empty(), "control hears it");
    for _ in 0..4 {
        world.link(CONNECTION, LinkEvent::Bytes { link: LINK, bytes: &mut vec![0; UNHEARD_MAX / 4 - 256] });
    }
    assert!(world.requests.is_empty(), "so much may wait");
    world.link(CONNECTION, LinkEvent::Bytes { link: LINK, bytes: &mut [0; 100] });
    let [LinkRequest::Close { link: LINK }, LinkRequest::Close { link: LINK }] = world.requests[..] else {
        panic!("{:?}", world.requests)
    };
}

#[test]
fn too_much_to_say_ends_the_connection() {
    let (mut world, _) = playing();
    let word = "x".repeat(13_000);
    (0..5).for_each(|_| say(&mut world, &word, 0));
    world.run(Duration::from_secs(1));
    assert!(matches!(world.requests[..], [LinkRequest::WatchWritable { .. }]));
    say(&mut world, &word, 0);
    assert!(matches!(world.requests[1..], [LinkRequest::Close { .. }, LinkRequest::Close { .. }]));
}

#[test]
fn who_hangs_up_is_heard_out() {
    let (mut world, _) = playing();
    say(&mut world, "bye", 0);
    world.command(Command::HangUp(CONNECTION));
    assert!(matches!(world.requests[..], [LinkRequest::WatchWritable { .. }]));
    take(&mut world);
    world.run(Duration::from_millis(100));
    assert!(world.pieces.is_empty(), "nothing but that is sent any more");
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    assert_eq!(take(&mut world).0, ["bye"]);
    assert!(matches!(world.requests[1..], [LinkRequest::Close { link: LINK }]));
    world.link(CONNECTION, LinkEvent::Bytes { link: LINK, bytes: &mut [0; 10] });
    assert!(world.heard.is_empty());
}

#[test]
fn who_hangs_up_again_waits_no_longer() {
    let (mut world, _) = playing();
    say(&mut world, "bye", 0);
    world.command(Command::HangUp(CONNECTION));
    take(&mut world);
    world.command(Command::HangUp(CONNECTION));
    assert!(matches!(world.requests[1..], [LinkRequest::Close { link: LINK }, LinkRequest::Close { link: LINK }]));
    world.link(CONNECTION, LinkEvent::Closed { link: LINK, remote: None, reason: CloseReason::Failed });
    assert!(world.pieces.is_empty() && world.hung_up == [CONNECTION]);
}

#[test]
fn a_connection_that_is_gone_is_told_and_its_packets_go_nowhere() {
    let (mut world, _) = playing();
    world.run(Duration::from_millis(100));
    world.link(CONNECTION, LinkEvent::InputEnded { link: LINK });
    assert_eq!((&world.heard[..], &world.hung_up[..]), (&[(CONNECTION, vec![])][..], &[][..]), "it may still read");
    world.link(CONNECTION, LinkEvent::Closed { link: LINK, remote: None, reason: CloseReason::Failed });
    assert_eq!(world.hung_up, [CONNECTION]);
    take(&mut world);
    world.run(Duration::from_millis(100));
    assert!(world.pieces.is_empty() && world.counters().interleaved_lost > 0);

    // It has failed before it was open.
    adopt(&mut world);
    world.link(CONNECTION, LinkEvent::Failed { error: std::io::ErrorKind::NotConnected.into() });
    assert_eq!(world.hung_up.len(), 2);
    say(&mut world, "hello", 0);
    assert!(world.pieces.is_empty() && world.requests.is_empty());
}
