//! Sound beside a picture: it goes out behind the next one, and waits for nothing where that would be of no use.

use std::net::SocketAddr;
use std::time::Duration;

use rooms::pacer::Burst;
use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, ExtensionIds, SessionId, StreamId, StreamSpec, TrackSpec, UpTrackSpec, WorkerId,
};
use sim::bare::{SSRC, down_track, up_track};
use srtp::Sealer;
use wire::codec::Codec;
use wire::rtcp::{self, ReportBlock};
use wire::rtp::{HeaderWriter, Kind, RtpHeader, RtpPacket, classify};
use wire::{Bitrate, Product, Seq};

use crate::world::{PACKETS, World, keys, media_to};

const STREAM: StreamId = StreamId(1);
const PUBLISHER: SessionId = SessionId(1);
const FIRST_VIEWER: u64 = 2;
const SOUND_SSRC: u32 = SSRC + 1;
const MS: Duration = Duration::from_millis(1);

/// A stream of a picture and sound, with viewers of both.
struct Speaker {
    world: World,
    sealer: Sealer,
    seq: u64,
}

impl Speaker {
    fn new(viewers: u64) -> Self {
        Speaker::with(viewers, |_| ())
    }

    fn with(viewers: u64, change: impl FnOnce(&mut Settings)) -> Self {
        let mut world = World::with(&[], change);
        let track = |codec| TrackSpec { codec, profile: Default::default(), rids: Vec::new() };
        let spec = StreamSpec { id: STREAM, tracks: vec![track(Codec::Vp8), track(Codec::Opus)] };
        world.command(Command::OpenStream(spec));
        world.add_session(PUBLISHER);
        world.publish(PUBLISHER, STREAM);
        let sound = UpTrackSpec {
            track: 1,
            mid: "1".into(),
            payload_type: 111,
            rtx_payload_type: None,
            ssrcs: vec![(SOUND_SSRC, None)],
            extensions: ExtensionIds::default(),
            ..up_track()
        };
        world.command(Command::Publish { session: PUBLISHER, stream: STREAM, tracks: vec![up_track(), sound] });
        for session in (FIRST_VIEWER..FIRST_VIEWER + viewers).map(SessionId) {
            let picture = DownTrackSpec { extensions: ExtensionIds::default(), ..down_track(9) };
            let sound = DownTrackSpec {
                track: 1,
                mid: "1".into(),
                payload_type: 111,
                rtx: None,
                extensions: ExtensionIds::default(),
                ..down_track(10)
            };
            world.add_session(session);
            world.command(Command::Watch { session, stream: STREAM, tracks: vec![picture, sound] });
        }
        let sealer = Sealer::new(&keys(PUBLISHER).0).expect("keys that fit");
        Speaker { world, sealer, seq: 1 << 16 }
    }

    /// The same, of which a keyframe has come, and sound.
    fn shown(viewers: u64) -> Self {
        let mut speaker = Speaker::new(viewers);
        speaker.speak();
        speaker.world.frame(PUBLISHER, true);
        speaker.world.drain();
        speaker
    }

    /// The packet with this number arrives.
    fn speak_as(&mut self, seq: u64) {
        let (short, timestamp) = (Seq(seq as u16), seq as u32 * 960);
        let header = RtpHeader { payload_type: 111, marker: false, seq: short, timestamp, ssrc: SOUND_SSRC };
        let mut buf = vec![0; 200];
        let header_len = HeaderWriter::new(&mut buf, &header).expect("room for a header").finish();
        let len = self.sealer.seal_rtp(&mut buf, header_len, header_len + 80, SOUND_SSRC, seq);
        self.world.receive(PUBLISHER, &mut buf[..len]);
    }

    fn speak(&mut self) {
        self.speak_as(self.seq);
        self.seq += 1;
    }

    /// How many packets go out of the picture, and of sound.
    fn sent_of_each(&mut self) -> [usize; 2] {
        let sent = self.world.drain();
        let media = sent.iter().filter(|(_, datagram)| classify(datagram) == Kind::Rtp);
        let ssrcs: Vec<u32> =
            media.map(|(_, datagram)| RtpPacket::parse_header(datagram).expect("a header").ssrc()).collect();
        [9, 10].map(|of| ssrcs.iter().filter(|ssrc| **ssrc == of).count())
    }

    /// How many packets of both go out.
    fn sent(&mut self) -> usize {
        self.sent_of_each().iter().sum()
    }

    /// The same after so much time.
    fn sent_after(&mut self, time: Duration) -> usize {
        self.world.now += time;
        self.world.rooms.handle_timeout(self.world.now, &mut self.world.out);
        self.sent()
    }
}

#[test]
fn of_many_viewers_each_gets_it_as_the_last_datagram_of_a_pictures_send() {
    let mut speaker = Speaker::shown(8);
    speaker.speak();
    assert_eq!(speaker.sent_after(20 * MS), 0);
    speaker.world.frame(PUBLISHER, false);
    assert!(!speaker.world.rooms.poll_transmit(speaker.world.now, &mut speaker.world.out));
    let runs = speaker.world.out.runs();
    let mut viewers: Vec<SocketAddr> = runs.iter().map(|run| run.path.remote).collect();
    viewers.dedup();
    assert_eq!((runs.len(), viewers.len()), (8, 8), "one send each");
    for run in runs {
        let last = run.len_bytes() - PACKETS * run.segment_size();
        assert_eq!(run.segment_count(), PACKETS + 1);
        assert!((80..200).contains(&last), "the last has {last} bytes");
    }
}

#[test]
fn it_waits_40_ms_for_a_picture_and_no_longer() {
    let mut speaker = Speaker::shown(8);
    for _ in 0..3 {
        speaker.world.frame(PUBLISHER, false);
        speaker.sent();
        speaker.speak();
        assert_eq!(speaker.sent_after(20 * MS), 0);
        speaker.speak();
        assert_eq!(speaker.sent_after(19 * MS), 0);
        assert_eq!(speaker.sent_after(2 * MS), 2 * 8);
        assert_eq!(speaker.sent_after(100 * MS), 0);
    }
}

#[test]
fn what_a_picture_lacks_is_waited_for_no_longer_because_sound_waits_longer() {
    let mut speaker = Speaker::shown(8);
    speaker.speak();
    let [mut first, _, mut last] = speaker.world.next_frame(PUBLISHER, false);
    speaker.world.receive(PUBLISHER, &mut first);
    assert_eq!(speaker.sent_after(4 * MS), 0);
    assert_eq!(speaker.sent_after(2 * MS), 2 * 8);
    speaker.world.receive(PUBLISHER, &mut last);
    assert_eq!(speaker.sent(), 8);
}

#[test]
fn it_waits_for_nothing_where_that_is_of_no_use() {
    // Few viewers.
    let mut few = Speaker::shown(7);
    few.speak();
    assert_eq!(few.sent(), 7);

    // No picture yet, and none any more.
    let mut alone = Speaker::new(8);
    alone.speak();
    assert_eq!(alone.sent(), 8);
    for (apart, sent) in [(99, 0), (100, 8)] {
        let mut slow = Speaker::shown(8);
        slow.sent_after(apart * MS);
        slow.speak();
        assert_eq!(slow.sent(), sent, "{apart} ms behind a picture");
    }

    // Nothing is to wait.
    let mut at_once = Speaker::with(8, |settings| settings.gather = Duration::ZERO);
    at_once.world.frame(PUBLISHER, true);
    at_once.sent();
    at_once.speak();
    assert_eq!(at_once.sent(), 8);

    // Late already.
    let mut late = Speaker::shown(8);
    late.speak();
    late.speak_as(late.seq + 1);
    assert_eq!(late.sent_after(41 * MS), 2 * 8);
    late.speak();
    assert_eq!(late.sent(), 8);
}

/// A full queue on a narrow path drops what comes last.
#[test]
fn it_goes_first_on_a_path_that_is_narrow() {
    let mut speaker = Speaker::shown(8);
    let viewer = SessionId(FIRST_VIEWER);
    let mut sealer = Sealer::new(&keys(viewer).0).expect("keys that fit");
    for _ in 0..5 {
        speaker.sent_after(Duration::from_secs(1));
        (0..20).for_each(|_| speaker.world.frame(PUBLISHER, false));
        let last = media_to(viewer, &speaker.world.drain()).into_iter().rfind(|media| media.ssrc == 9);
        let highest_seq = last.expect("a picture").seq.into();
        let block = ReportBlock { ssrc: 9, fraction_lost: 100, highest_seq, ..ReportBlock::default() };
        let mut report = vec![0; 200];
        let len = rtcp::write_receiver_report(&mut report, 1, &[block]).expect("room");
        let len = sealer.seal_rtcp(&mut report, len);
        speaker.world.receive(viewer, &mut report[..len]);
    }
    speaker.speak();
    speaker.world.frame(PUBLISHER, false);
    let sent = speaker.world.drain();
    let first_to = |session| media_to(session, &sent).first().expect("media").ssrc;
    assert_eq!([first_to(viewer), first_to(SessionId(FIRST_VIEWER + 1))], [10, 9]);
}

#[test]
fn it_waits_on_the_publishers_worker_alone() {
    let mut speaker = Speaker::shown(8);
    speaker.world.command(Command::Mirror { stream: STREAM, to: WorkerId(1), on: true });
    speaker.world.drain();
    while speaker.world.rooms.poll_post().is_some() {}
    speaker.speak();
    assert_eq!(speaker.sent(), 0);
    speaker.world.frame(PUBLISHER, false);
    speaker.world.drain();
    let (_, post) = speaker.world.rooms.poll_post().expect("what was gathered");

    // There all of it is new: who waits there again would wait for the frame after this one.
    let mut other = Speaker::new(8);
    other.world.rooms.handle_post(other.world.now, post, &mut other.world.out);
    assert_eq!(other.sent(), 8, "sound; the picture begins with a keyframe");
}

#[test]
fn it_is_not_held_back_where_a_picture_is_paced() {
    let slow = Burst { packets: 2, rate_min: Bitrate::from_kbps(1_000) };
    let mut speaker = Speaker::with(8, |settings| settings.burst = slow);
    speaker.world.frame(PUBLISHER, true);
    speaker.speak();
    speaker.world.frame(PUBLISHER, false);
    let sent = speaker.sent_of_each();
    assert_eq!(sent[1], 8, "sound");
    assert!(sent[0] < 8 * 2 * PACKETS, "{} of the picture, and nothing waits", sent[0]);
    speaker.speak();
    let rest: usize = (0..10).map(|_| speaker.sent_after(20 * MS)).sum();
    assert_eq!(rest, 8 + (8 * 2 * PACKETS - sent[0]));
}
