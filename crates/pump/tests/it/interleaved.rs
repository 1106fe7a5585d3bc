//! Sessions whose packets go into a client's connection, between what control says there.

use std::fs::File;
use std::time::Duration;

use crate::common::{Source, World};
use pump::sample::Sample;
use pump::spec::{Command, Settings, Target, Transport, UNHEARD_MAX};
use wire::rtp::RtpPacket;
use wire::rtsp::{Item, next_item};
use wire::{Adopted, CloseReason, LinkEvent, LinkId, LinkKind, LinkRequest, Seq, Token};

const CONNECTION: Token = Token { owner: 9, number: 4 };
const LINK: LinkId = LinkId::new(LinkKind::Stream, 3, 1);
const CHANNEL: u8 = 6;

/// Bytes of a packet with what stands before it.
const FRAME: usize = 4 + 12 + 7 * 188;

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
    let (mut words, mut seqs) = (Vec::new(), Vec::new());
    for (link, bytes) in world.pieces.drain(..) {
        assert_eq!(link, LINK);
        let Ok(Some((Item::Interleaved { channel, data }, FRAME))) = next_item(&bytes) else {
            words.push(String::from_utf8(bytes).expect("text"));
            continue;
        };
        let packet = RtpPacket::parse(data).expect("RTP");
        assert_eq!((channel, packet.header().ssrc), (CHANNEL, 7));
        seqs.push(packet.header().seq.0);
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
    world.pieces.clear();
    world.run(Duration::from_millis(100));
    let (words, seqs) = take(&mut world);
    assert!(words.is_empty() && !seqs.is_empty(), "packets go on meanwhile");
    world.link(CONNECTION, LinkEvent::Writable { link: LINK });
    assert_eq!(take(&mut world).0, ["onetwo"]);
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
        say(&mut world, "", 1);
        world.link(CONNECTION, LinkEvent::Bytes { link: LINK, bytes: &mut [0; 100] });
    }
    assert!(world.requests.is_empty(), "control hears it");
    for _ in 0..UNHEARD_MAX {
        world.link(CONNECTION, LinkEvent::Bytes { link: LINK, bytes: &mut [0; 100] });
    }
    let [LinkRequest::Close { link: LINK }, LinkRequest::Close { link: LINK }] = world.requests[..] else {
        panic!("{:?}", world.requests)
    };
}

#[test]
fn too_much_to_say_ends_the_connection() {
    let (mut world, _) = playing();
    let word = "x".repeat(100_000);
    (0..5).for_each(|_| say(&mut world, &word, 0));
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
fn a_connection_that_is_gone_is_told_and_its_packets_go_nowhere() {
    let (mut world, _) = playing();
    world.run(Duration::from_millis(100));
    world.link(CONNECTION, LinkEvent::InputEnded { link: LINK });
    assert_eq!((&world.heard[..], &world.hung_up[..]), (&[(CONNECTION, vec![])][..], &[][..]), "it may still read");
    world.link(CONNECTION, LinkEvent::Closed { link: LINK, reason: CloseReason::Failed });
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
