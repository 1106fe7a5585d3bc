//! Members of a conference: what they publish and watch comes and goes, and they stay.

use std::net::SocketAddr;
use std::time::Duration;

use rooms::observer;
use rooms::spec::{
    Command, EndReason, Event, ExtensionIds, Level, SessionId, StreamId, StreamSpec, TrackSpec, UpTrackSpec,
};
use sim::bare::down_track;
use srtp::{Opener, Sealer};
use wire::Product;
use wire::Seq;
use wire::codec::Codec;
use wire::rtp::{HeaderWriter, Kind, RtpHeader, RtpPacket, classify};

use crate::world::{Media, PACKETS, World, addr, keys, media_to};

const FIRST: StreamId = StreamId(1);
const SECOND: StreamId = StreamId(2);
const ANN: SessionId = SessionId(1);
const BEN: SessionId = SessionId(2);
const EVE: SessionId = SessionId(3);

/// Ann publishes the first stream and Ben the second; Eve watches the first. All are members.
fn meeting() -> World {
    let mut world = World::new(&[FIRST, SECOND]);
    [ANN, BEN, EVE].into_iter().for_each(|session| world.add_member(session));
    world.publish(ANN, FIRST);
    world.publish(BEN, SECOND);
    world.watch(EVE, FIRST, down_track(21));
    world.drain();
    world
}

fn has_ended(world: &mut World, session: SessionId) -> bool {
    let events: Vec<Event> = std::iter::from_fn(|| world.poll_event()).collect();
    events.iter().any(|event| matches!(event, Event::SessionEnded { session: ended, .. } if *ended == session))
}

#[test]
fn a_member_stays_while_all_that_it_has_goes_and_others_end_with_their_last_stream() {
    let mut world = meeting();
    let ordinary = SessionId(4);
    world.add_session(ordinary);
    world.watch(ordinary, FIRST, down_track(41));
    for session in [EVE, ordinary] {
        world.command(Command::Unwatch { session, stream: FIRST });
    }
    world.command(Command::Unpublish { session: ANN, stream: FIRST });
    world.command(Command::CloseStream(SECOND));
    let ended: Vec<Event> = std::iter::from_fn(|| world.poll_event()).collect();
    let [Event::SessionEnded { session, reason: EndReason::StreamClosed }] = ended[..] else { panic!("{ended:?}") };
    assert_eq!((session, world.rooms.counters().sessions), (ordinary, 3));

    // They begin anew.
    world.publish(ANN, FIRST);
    world.watch(EVE, FIRST, down_track(22));
    world.frame(ANN, true);
    assert_eq!(media_to(EVE, &world.drain()).len(), PACKETS);
    world.command(Command::RemoveSession(EVE));
    assert_eq!(world.rooms.counters().sessions, 2);
    assert!(!has_ended(&mut world, EVE), "who removes a session need not hear of it");
}

#[test]
fn what_is_not_so_is_not_undone() {
    let mut world = meeting();
    world.command(Command::Unwatch { session: ANN, stream: FIRST });
    world.command(Command::Unpublish { session: EVE, stream: FIRST });
    world.command(Command::Unpublish { session: SessionId(99), stream: FIRST });
    world.command(Command::Unwatch { session: EVE, stream: StreamId(99) });
    world.command(Command::Pause { session: BEN, stream: FIRST, on: true });
    world.frame(ANN, true);
    assert_eq!(media_to(EVE, &world.drain()).len(), PACKETS);
}

#[test]
fn a_pause_leaves_no_gap_and_ends_with_a_keyframe() {
    let mut world = meeting();
    world.watch(EVE, SECOND, down_track(22));
    let mut media = Vec::new();
    let frame = |world: &mut World, is_keyframe: bool, media: &mut Vec<Media>| {
        world.now += Duration::from_millis(40);
        world.rooms.handle_timeout(world.now, &mut wire::Outbox::new(64 * 1_024));
        world.frame(ANN, is_keyframe);
        world.frame(BEN, is_keyframe);
        let sent = media_to(EVE, &world.drain());
        media.extend(sent.iter().filter(|packet| packet.ssrc == 21));
        [21, 22].map(|ssrc| sent.iter().filter(|packet| packet.ssrc == ssrc).count())
    };
    assert_eq!(frame(&mut world, true, &mut media), [PACKETS, PACKETS]);
    world.command(Command::Pause { session: EVE, stream: FIRST, on: true });
    for is_keyframe in [false, true, false] {
        assert_eq!(frame(&mut world, is_keyframe, &mut media), [0, PACKETS], "the other stream goes on");
    }
    world.command(Command::Pause { session: EVE, stream: FIRST, on: false });
    assert_eq!(frame(&mut world, true, &mut media), [PACKETS, PACKETS]);
    assert_eq!(frame(&mut world, false, &mut media), [PACKETS, PACKETS]);
    let numbers: Vec<u16> = media.iter().map(|packet| packet.seq).collect();
    assert_eq!(numbers.len(), 3 * PACKETS);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{numbers:?}");
}

/// Payload's length, number and timestamp of the packets that went to a session.
fn read(session: SessionId, sent: &[(SocketAddr, Vec<u8>)], opener: &mut Opener) -> Vec<(usize, u16, u32)> {
    let media = sent.iter().filter(|(to, data)| *to == addr(session) && classify(data) == Kind::Rtp);
    let read = media.map(|(_, data)| {
        let mut data = data.clone();
        let len = opener.open_rtp(&mut data).expect("one that is sealed for it, under a number of its own");
        let packet = RtpPacket::parse(&data[..len]).expect("a packet");
        (packet.payload().len(), packet.seq().0, packet.timestamp())
    });
    read.collect()
}

#[test]
fn who_hears_of_a_track_by_its_packets_gets_some_though_nothing_comes_and_numbers_and_time_go_on() {
    for is_paused in [false, true] {
        let mut world = meeting();
        world.watch(BEN, FIRST, down_track(31));
        world.command(Command::Announce { session: EVE, stream: FIRST });
        // It watches nothing of the kind.
        world.command(Command::Announce { session: EVE, stream: SECOND });
        world.command(Command::Pause { session: EVE, stream: FIRST, on: is_paused });
        let [mut eve, mut ben] = [EVE, BEN].map(|session| Opener::new(&keys(session).0).unwrap());
        let mut got = Vec::new();
        // A second, and for as long as reports wait for media.
        let mut pass = |world: &mut World, count: u32| {
            world.now += Duration::from_millis(1_100) * count;
            world.rooms.handle_timeout(world.now, &mut world.out);
            let sent = world.drain();
            assert!(read(BEN, &sent, &mut ben).iter().all(|(len, ..)| *len > 0), "who did not ask gets no padding");
            got.extend(read(EVE, &sent, &mut eve));
            got.len()
        };
        for count in [1, 2, 3, 4, 5, 5, 5] {
            assert_eq!(pass(&mut world, 1), count);
        }
        world.command(Command::Pause { session: EVE, stream: FIRST, on: false });
        world.frame(ANN, true);
        assert_eq!(pass(&mut world, 0), 5 + PACKETS);
        // There is nothing to make known any more.
        assert_eq!(pass(&mut world, 1), 5 + PACKETS);
        assert!(got[..5].iter().all(|(len, ..)| *len == 0) && got[5..].iter().all(|(len, ..)| *len > 0), "{got:?}");
        assert!(got.windows(2).all(|pair| pair[1].1 == pair[0].1.wrapping_add(1)), "{got:?}");
        let since_first: Vec<u32> = got.iter().map(|(.., at)| at.wrapping_sub(got[0].2) / 90_000).collect();
        assert_eq!(since_first, [0, 1, 2, 3, 4, 6, 6, 6], "as much later as it came later");
    }
}

#[test]
fn what_came_of_a_track_makes_it_known_and_nothing_else_does_then() {
    let mut world = meeting();
    world.frame(ANN, true);
    assert_eq!(media_to(EVE, &world.drain()).len(), PACKETS);
    world.command(Command::Announce { session: EVE, stream: FIRST });
    for _ in 0..3 {
        world.now += Duration::from_secs(1);
        world.rooms.handle_timeout(world.now, &mut world.out);
        assert!(media_to(EVE, &world.drain()).is_empty());
    }
}

/// Members that publish sound of so many dB below full scale, each its own stream.
struct Speakers {
    world: World,
    sealers: Vec<Sealer>,
    seq: u64,
}

const LEVEL_ID: u8 = 5;

impl Speakers {
    fn new(count: u32) -> Self {
        let mut world = World::new(&[]);
        let mut sealers = Vec::new();
        for number in 1..=count {
            let (stream, session) = (StreamId(number), SessionId(number.into()));
            let track = TrackSpec { codec: Codec::Opus, profile: Default::default(), rids: Vec::new() };
            world.command(Command::OpenStream(StreamSpec { id: stream, tracks: vec![track] }));
            world.command(Command::Observe { stream });
            world.add_member(session);
            let tracks = vec![UpTrackSpec {
                track: 0,
                mid: "0".into(),
                payload_type: 111,
                rtx_payload_type: None,
                red_payload_type: None,
                ssrcs: vec![(1_000, None)],
                other_ssrcs: Vec::new(),
                extensions: ExtensionIds { audio_level: Some(LEVEL_ID), ..ExtensionIds::default() },
            }];
            world.command(Command::Publish { session, stream, tracks });
            sealers.push(Sealer::new(&keys(session).0).unwrap());
        }
        Speakers { world, sealers, seq: 1 << 16 }
    }

    /// One packet of each that has a level; then the time passes until all is told.
    fn speak(&mut self, levels: &[Option<u8>]) -> Vec<Event> {
        for (index, level) in levels.iter().enumerate() {
            let Some(level) = level else { continue };
            let header = RtpHeader {
                payload_type: 111,
                marker: false,
                seq: Seq(self.seq as u16),
                timestamp: self.seq as u32 * 960,
                ssrc: 1_000,
            };
            let mut buf = vec![0; 200];
            let mut writer = HeaderWriter::new(&mut buf, &header).unwrap();
            writer.extension(LEVEL_ID, &[*level]);
            let header_len = writer.finish();
            let len = self.sealers[index].seal_rtp(&mut buf, header_len, header_len + 80, 1_000, self.seq);
            buf.truncate(len);
            self.world.receive(SessionId(index as u64 + 1), &mut buf);
        }
        self.seq += 1;
        self.pass()
    }

    fn pass(&mut self) -> Vec<Event> {
        self.world.now += observer::INTERVAL;
        let World { rooms, now, out, .. } = &mut self.world;
        rooms.handle_timeout(*now, out);
        out.clear();
        std::iter::from_fn(|| rooms.poll_event()).collect()
    }
}

fn levels_in(events: &[Event]) -> Vec<(u32, u8)> {
    let levels = events.iter().filter_map(|event| match event {
        Event::Levels(levels) => Some(levels.iter().map(|Level { stream, level }| (stream.0, *level))),
        _ => None,
    });
    levels.flatten().collect()
}

#[test]
fn it_is_told_ten_times_a_second_who_is_heard_and_how_loud() {
    let mut speakers = Speakers::new(3);
    // The highest bit says that it is speech; 127 is nothing at all.
    let events = speakers.speak(&[Some(0x80 | 30), Some(127), None]);
    assert_eq!(levels_in(&events), [(1, 30)]);
    assert_eq!(levels_in(&speakers.speak(&[Some(20), Some(40), None])), [(1, 20), (2, 40)]);
    assert_eq!(levels_in(&speakers.pass()), []);
}

#[test]
fn however_many_are_heard_it_is_told_of_each() {
    let count = observer::LEVELS_MAX + 10;
    let mut speakers = Speakers::new(count as u32);
    let levels: Vec<Option<u8>> = (0..count).map(|index| Some(if index < 10 { 90 } else { 10 })).collect();
    let events = speakers.speak(&levels);
    assert_eq!(levels_in(&events).len(), count);
    let sizes = events.iter().filter_map(|event| match event {
        Event::Levels(levels) => Some(levels.len()),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [observer::LEVELS_MAX, 10]);
}

#[test]
fn it_is_told_which_layers_come_and_when_none_does_any_more() {
    let mut speakers = Speakers::new(1);
    let layers = |events: &[Event]| {
        let told = events.iter().filter_map(|event| match event {
            Event::Layers { stream: StreamId(1), flowing } => Some(*flowing),
            _ => None,
        });
        told.collect::<Vec<u8>>()
    };
    assert_eq!(layers(&speakers.pass()), []);
    assert_eq!(layers(&speakers.speak(&[Some(30)])), [1]);
    let mut told = Vec::new();
    for _ in 0..30 {
        told.extend(layers(&speakers.pass()));
    }
    assert_eq!(told, [0]);
    // A stream that is closed is looked at no more.
    speakers.world.command(Command::CloseStream(StreamId(1)));
    assert!(speakers.pass().is_empty());
}
