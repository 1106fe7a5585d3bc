//! A meeting of microphones, each a stream of its own: what a listener hears of several speakers goes out in one send.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, ExtensionIds, SessionId, StreamId, StreamSpec, TrackSpec, UpTrackSpec, WorkerId,
};
use sim::bare::{SSRC, down_track, up_track};
use srtp::Sealer;
use wire::codec::Codec;
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{Outbox, Product, Seq};

use crate::world::{World, addr, keys, media_to};

const MS: Duration = Duration::from_millis(1);

/// Members who all have a microphone and hear each other.
struct Meeting {
    world: World,
    sealers: Vec<Sealer>,
    seq: u64,
}

fn session(member: u32) -> SessionId {
    SessionId(member.into())
}

/// Under which a member hears another.
fn ssrc(listener: u32, speaker: u32) -> u32 {
    1_000 * listener + speaker
}

impl Meeting {
    fn new(members: u32) -> Self {
        Meeting::with(members, |_| ())
    }

    fn with(members: u32, change: impl FnOnce(&mut Settings)) -> Self {
        let mut world = World::with(&[], change);
        for id in 1..=members {
            let sound = TrackSpec { codec: Codec::Opus, profile: Default::default(), rids: Vec::new() };
            world.command(Command::OpenStream(StreamSpec { id: StreamId(id), tracks: vec![sound] }));
            world.add_member(session(id));
            let microphone = UpTrackSpec {
                payload_type: 111,
                rtx_payload_type: None,
                ssrcs: vec![(SSRC, None)],
                extensions: ExtensionIds::default(),
                ..up_track()
            };
            let stream = StreamId(id);
            world.command(Command::Publish { session: session(id), stream, tracks: vec![microphone] });
        }
        let mut meeting = Meeting { world, sealers: Vec::new(), seq: 1 << 16 };
        for listener in 1..=members {
            (1..=members).filter(|speaker| *speaker != listener).for_each(|speaker| meeting.listen(listener, speaker));
        }
        let sealers = (1..=members).map(|id| Sealer::new(&keys(session(id)).0).expect("keys that fit"));
        meeting.sealers = sealers.collect();
        meeting
    }

    fn listen(&mut self, listener: u32, speaker: u32) {
        let track = DownTrackSpec {
            payload_type: 111,
            rtx: None,
            extensions: ExtensionIds::default(),
            ..down_track(ssrc(listener, speaker))
        };
        self.world.watch(session(listener), StreamId(speaker), track);
    }

    /// The same in which these have spoken for longer than it takes to see that they are several.
    fn under_way(members: u32, speakers: &[u32]) -> Self {
        let mut meeting = Meeting::new(members);
        meeting.talk(speakers);
        meeting
    }

    fn talk(&mut self, speakers: &[u32]) {
        for _ in 0..60 {
            speakers.iter().for_each(|speaker| self.speak(*speaker, 80));
            self.after(20 * MS);
        }
    }

    /// A packet with so many bytes comes of a member.
    fn speak(&mut self, speaker: u32, bytes: usize) {
        let header = RtpHeader {
            payload_type: 111,
            marker: false,
            seq: Seq(self.seq as u16),
            timestamp: self.seq as u32 * 960,
            ssrc: SSRC,
        };
        let mut buf = vec![0; 400];
        let header_len = HeaderWriter::new(&mut buf, &header).expect("room for a header").finish();
        let sealer = &mut self.sealers[speaker as usize - 1];
        let len = sealer.seal_rtp(&mut buf, header_len, header_len + bytes, SSRC, self.seq);
        self.world.receive(session(speaker), &mut buf[..len]);
        self.seq += 1;
    }

    /// What goes out at once.
    fn sent(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.world.drain()
    }

    /// What goes out then.
    fn after(&mut self, time: Duration) -> Vec<(SocketAddr, Vec<u8>)> {
        self.world.now += time;
        self.world.rooms.handle_timeout(self.world.now, &mut self.world.out);
        self.world.drain()
    }
}

/// The SSRCs of the media that a member gets, in their order.
fn heard(listener: u32, sent: &[(SocketAddr, Vec<u8>)]) -> Vec<u32> {
    media_to(session(listener), sent).iter().map(|media| media.ssrc).collect()
}

#[test]
fn of_three_speakers_each_listener_gets_all_in_one_send() {
    let mut meeting = Meeting::under_way(10, &[1, 2, 3]);
    for speaker in [3, 1, 2] {
        meeting.speak(speaker, 80);
        assert!(meeting.after(3 * MS).is_empty(), "it waits");
    }
    meeting.world.now += 2 * MS;
    meeting.world.rooms.handle_timeout(meeting.world.now, &mut meeting.world.out);
    assert!(!meeting.world.rooms.poll_transmit(meeting.world.now, &mut meeting.world.out));
    let sizes: HashMap<SocketAddr, usize> =
        meeting.world.out.runs().iter().map(|run| (run.path.remote, run.segment_count())).collect();
    assert_eq!((meeting.world.out.runs().len(), sizes.len()), (10, 10), "one send each");
    for member in 1..=10 {
        let others = if member <= 3 { 2 } else { 3 };
        assert_eq!(sizes[&addr(session(member))], others, "what member {member} hears");
    }
}

#[test]
fn nobody_waits_for_longer_than_10_ms() {
    let mut meeting = Meeting::under_way(10, &[1, 2, 3]);
    meeting.speak(1, 80);
    assert!(meeting.after(9 * MS).is_empty());
    // Who comes last waits for the least.
    meeting.speak(2, 80);
    let sent = meeting.after(2 * MS);
    assert_eq!(heard(10, &sent), [ssrc(10, 1), ssrc(10, 2)]);
    assert_eq!((heard(1, &sent), heard(2, &sent)), (vec![ssrc(1, 2)], vec![ssrc(2, 1)]));
    assert!(meeting.after(50 * MS).is_empty(), "all is said");
}

#[test]
fn shorter_packets_stand_behind_longer_ones() {
    let mut meeting = Meeting::under_way(10, &[1, 2, 3, 4]);
    for (speaker, bytes) in [(1, 60), (2, 90), (3, 40), (4, 90)] {
        meeting.speak(speaker, bytes);
    }
    meeting.world.now += 11 * MS;
    meeting.world.rooms.handle_timeout(meeting.world.now, &mut meeting.world.out);
    meeting.world.rooms.poll_transmit(meeting.world.now, &mut meeting.world.out);
    for listener in 5..=10 {
        let runs = meeting.world.out.runs().iter().filter(|run| run.path.remote == addr(session(listener)));
        assert_eq!(runs.map(|run| run.segment_count()).collect::<Vec<_>>(), [3, 1], "90, 90 and 60, then 40");
    }
}

#[test]
fn it_waits_for_nothing_where_that_is_of_no_use() {
    // A single speaker, and few who hear several.
    let mut alone = Meeting::under_way(10, &[1]);
    alone.speak(1, 80);
    assert_eq!(heard(2, &alone.sent()).len(), 1);
    let mut few = Meeting::under_way(8, &[1, 2]);
    few.speak(1, 80);
    assert_eq!(heard(2, &few.sent()).len(), 1);

    // Nothing is to wait.
    for set in [
        |settings: &mut Settings| settings.gather = Duration::ZERO,
        |settings: &mut Settings| settings.gather_speakers = Duration::ZERO,
    ] {
        let mut at_once = Meeting::with(10, set);
        at_once.talk(&[1, 2]);
        at_once.speak(1, 80);
        assert_eq!(heard(2, &at_once.sent()).len(), 1);
    }

    // The others have not been heard for more than a second.
    let mut last = Meeting::under_way(10, &[1, 2]);
    last.talk(&[1]);
    last.talk(&[1]);
    last.speak(1, 80);
    assert_eq!(heard(2, &last.sent()).len(), 1);
}

#[test]
fn two_meetings_on_one_worker_go_out_each_by_itself() {
    // Members 1 to 10 hear speakers 1 and 2, and 11 to 20 hear 11 and 12.
    let mut meeting = Meeting::under_way(20, &[1, 2, 11, 12]);
    for (listener, speaker) in (1..=20).flat_map(|listener| (1..=20).map(move |speaker| (listener, speaker))) {
        if (listener <= 10) != (speaker <= 10) {
            let stream = StreamId(speaker);
            meeting.world.command(Command::Unwatch { session: session(listener), stream });
        }
    }
    meeting.sent();
    meeting.speak(1, 80);
    assert!(meeting.after(5 * MS).is_empty());
    [11, 2, 12].into_iter().for_each(|speaker| meeting.speak(speaker, 80));
    let first = meeting.after(6 * MS);
    assert_eq!((heard(9, &first).len(), heard(19, &first).len()), (2, 0));
    let second = meeting.after(5 * MS);
    assert_eq!((heard(9, &second).len(), heard(19, &second).len()), (0, 2));
}

#[test]
fn each_gets_each_packet_once_however_small_the_outbox_is() {
    let mut meeting = Meeting::under_way(30, &[1, 2, 3, 4]);
    meeting.world.out = Outbox::new(5_000);
    let mut sent = Vec::new();
    for _ in 0..10 {
        [1, 2, 3, 4].into_iter().for_each(|speaker| meeting.speak(speaker, 80));
        meeting.world.now += 10 * MS;
        meeting.world.rooms.handle_timeout(meeting.world.now, &mut meeting.world.out);
        let (part, has_more) = meeting.world.turn();
        assert!(has_more, "it takes several turns");
        sent.extend(part);
        // Who speaks meanwhile is heard with the rest, or with the next.
        meeting.speak(1, 80);
        sent.extend(meeting.sent());
        sent.extend(meeting.after(10 * MS));
    }
    sent.extend(meeting.after(10 * MS));
    for listener in 5..=30 {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        heard(listener, &sent).into_iter().for_each(|ssrc| *counts.entry(ssrc).or_default() += 1);
        let expected = [(1, 20), (2, 10), (3, 10), (4, 10)].map(|(speaker, count)| (ssrc(listener, speaker), count));
        assert_eq!(counts, HashMap::from(expected), "member {listener}");
        let mut numbers: Vec<_> =
            media_to(session(listener), &sent).iter().map(|media| (media.ssrc, media.seq)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50, "each has a number of its own");
    }
}

#[test]
fn streams_and_listeners_may_go_while_it_waits() {
    let mut meeting = Meeting::under_way(12, &[1, 2, 3]);
    [1, 2, 3].into_iter().for_each(|speaker| meeting.speak(speaker, 80));
    meeting.world.command(Command::CloseStream(StreamId(1)));
    meeting.world.command(Command::RemoveSession(session(12)));
    meeting.world.command(Command::Unwatch { session: session(11), stream: StreamId(2) });
    meeting.sent();
    let sent = meeting.after(11 * MS);
    assert_eq!(heard(10, &sent), [ssrc(10, 2), ssrc(10, 3)]);
    assert_eq!((heard(11, &sent), heard(12, &sent)), (vec![ssrc(11, 3)], vec![]));
}

#[test]
fn other_workers_get_it_at_once_and_gather_it_themselves() {
    let mut here = Meeting::under_way(10, &[1, 2]);
    let mut there = Meeting::under_way(10, &[1, 2]);
    for id in 1..=2 {
        here.world.command(Command::Mirror { stream: StreamId(id), to: WorkerId(1), on: true });
    }
    here.sent();
    while here.world.rooms.poll_post().is_some() {}
    for speaker in [1, 2] {
        here.speak(speaker, 80);
        assert_eq!(here.sent(), []);
        let (to, post) = here.world.rooms.poll_post().expect("what another worker gets");
        assert_eq!(to, WorkerId(1));
        there.world.rooms.handle_post(there.world.now, post, &mut there.world.out);
        assert!(there.sent().is_empty());
    }
    let sent = there.after(11 * MS);
    assert_eq!(heard(10, &sent), [ssrc(10, 1), ssrc(10, 2)]);
}

/// Time passes, and the rooms write what one outbox takes.
fn turn_after(meeting: &mut Meeting, time: Duration) -> (Vec<(SocketAddr, Vec<u8>)>, bool) {
    meeting.world.now += time;
    meeting.world.rooms.handle_timeout(meeting.world.now, &mut meeting.world.out);
    meeting.world.turn()
}

#[test]
fn streams_and_listeners_may_go_in_mid_round() {
    let mut meeting = Meeting::under_way(30, &[1, 2, 3]);
    meeting.world.out = Outbox::new(5_000);
    [1, 2, 3].into_iter().for_each(|speaker| meeting.speak(speaker, 80));
    let (mut sent, has_more) = turn_after(&mut meeting, 11 * MS);
    assert!(has_more && heard(29, &sent).is_empty(), "the last have nothing yet");
    meeting.world.command(Command::CloseStream(StreamId(1)));
    for gone in [28, 30] {
        meeting.world.command(Command::RemoveSession(session(gone)));
    }
    // Whoever comes has the places of those who went.
    meeting.world.add_member(session(31));
    let sound = TrackSpec { codec: Codec::Opus, profile: Default::default(), rids: Vec::new() };
    meeting.world.command(Command::OpenStream(StreamSpec { id: StreamId(31), tracks: vec![sound] }));
    sent.extend(meeting.sent());
    sent.extend(meeting.after(11 * MS));
    assert_eq!(heard(29, &sent), [ssrc(29, 2), ssrc(29, 3)]);
    assert_eq!((heard(28, &sent), heard(30, &sent), heard(31, &sent)), (vec![], vec![], vec![]));
    meeting.speak(2, 80);
    assert_eq!(heard(29, &meeting.after(11 * MS)), [ssrc(29, 2)], "it goes on");
}

/// Members 1 to 15 hear speakers 1 and 2, and 16 to 30 hear 16 and 17.
fn two_rooms() -> Meeting {
    let mut meeting = Meeting::under_way(30, &[1, 2, 16, 17]);
    for (listener, speaker) in (1..=30).flat_map(|listener| (1..=30).map(move |speaker| (listener, speaker))) {
        if (listener <= 15) != (speaker <= 15) {
            meeting.world.command(Command::Unwatch { session: session(listener), stream: StreamId(speaker) });
        }
    }
    meeting.sent();
    meeting.talk(&[1, 2, 16, 17]);
    meeting
}

#[test]
fn one_that_says_very_much_holds_up_no_other_room() {
    let mut meeting = two_rooms();
    meeting.world.out = Outbox::new(5_000);
    (0..500).for_each(|_| meeting.speak(1, 80));
    [2, 16, 17].into_iter().for_each(|speaker| meeting.speak(speaker, 80));
    let mut turns = 0;
    let mut sent = Vec::new();
    while heard(30, &sent).len() < 2 {
        let (part, has_more) = turn_after(&mut meeting, if turns == 0 { 11 * MS } else { Duration::ZERO });
        assert!(has_more, "the first room is not through");
        sent.extend(part);
        turns += 1;
        assert!(turns < 5, "its turn comes after each outbox of the other room's");
    }
}

#[test]
fn what_comes_first_of_a_microphone_goes_out_at_once() {
    let mut meeting = Meeting::under_way(10, &[1, 2]);
    meeting.speak(3, 80);
    assert_eq!(heard(10, &meeting.sent()), [ssrc(10, 3)]);
    meeting.speak(3, 80);
    assert!(meeting.sent().is_empty());
}

#[test]
fn silence_is_no_company() {
    let mut meeting = Meeting::new(10);
    for round in 0..120 {
        meeting.speak(1, 80);
        // As with DTX.
        if round % 20 == 0 {
            meeting.speak(2, 3);
        }
        assert_eq!(heard(10, &meeting.sent()).first(), Some(&ssrc(10, 1)), "round {round}");
        meeting.after(20 * MS);
    }
}

#[test]
fn those_who_hear_nobody_else_do_not_speak_for_all() {
    let mut meeting = Meeting::new(12);
    for listener in 1..=3 {
        for speaker in (1..=12).filter(|speaker| *speaker != listener) {
            let (session, stream) = (session(listener), StreamId(speaker));
            meeting.world.command(Command::Pause { session, stream, on: true });
        }
    }
    meeting.talk(&[11, 12]);
    meeting.speak(11, 80);
    meeting.speak(12, 80);
    assert!(meeting.sent().is_empty());
    assert_eq!(heard(10, &meeting.after(11 * MS)), [ssrc(10, 11), ssrc(10, 12)]);
}

#[test]
fn few_here_wait_for_nothing_and_other_workers_get_what_came_together_in_one_batch() {
    let mut few = Meeting::under_way(5, &[1, 2]);
    few.world.command(Command::Mirror { stream: StreamId(1), to: WorkerId(1), on: true });
    few.sent();
    few.speak(1, 80);
    assert_eq!(heard(5, &few.sent()), [ssrc(5, 1)]);

    let mut many = Meeting::under_way(10, &[1, 2]);
    many.world.command(Command::Mirror { stream: StreamId(1), to: WorkerId(1), on: true });
    many.sent();
    while many.world.rooms.poll_post().is_some() {}
    (0..3).for_each(|_| many.speak(1, 80));
    assert!(many.sent().is_empty());
    let posts = std::iter::from_fn(|| many.world.rooms.poll_post());
    assert_eq!(posts.count(), 1);
}

#[test]
fn what_comes_in_mid_round_waits_no_longer_for_that() {
    let mut meeting = Meeting::under_way(30, &[1, 2, 3]);
    meeting.world.out = Outbox::new(5_000);
    [1, 2, 3].into_iter().for_each(|speaker| meeting.speak(speaker, 80));
    let (_, has_more) = turn_after(&mut meeting, 11 * MS);
    assert!(has_more);
    // The last listener has this one with the rest, the first ones have not.
    meeting.speak(1, 80);
    let rest = meeting.after(6 * MS);
    assert_eq!((heard(2, &rest).len(), heard(30, &rest).len()), (0, 4));
    assert_eq!(heard(2, &meeting.after(5 * MS)), [ssrc(2, 1)]);
}
