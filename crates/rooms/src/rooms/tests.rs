use srtp::{Profile, SessionKeys};
use wire::LinkId;
use wire::codec::{Codec, PayloadInfo};

use super::*;
use crate::packet::{LayerStart, PacketMeta};
use crate::spec::{DownTrackSpec, TrackSpec};

#[test]
fn a_stream_that_everybody_has_left_gives_its_memory_back() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let mut rooms = Rooms::new(start, WorkerId(0), Settings::new(1, (start, 0)), BatchPool::new(1));
    let mut out = Outbox::new(64 * 1_024);
    let (id, session) = (StreamId(1), SessionId(1));
    let track = TrackSpec { codec: Codec::Vp8, profile: Default::default(), rids: Vec::new() };
    let path = Path { link: LinkId::datagrams(0), remote: ([10, 0, 0, 2], 1).into(), local: None };
    let (keys, _) = SessionKeys::made_up_pair(Profile::AeadAes128Gcm, 1);
    for command in [
        Command::OpenStream(StreamSpec { id, tracks: vec![track] }),
        Command::AddSession(PeerSpec { session, path, keys, cname: None }),
        Command::Publish { session, stream: id, tracks: Vec::new() },
    ] {
        rooms.handle_command(start, command, &mut out);
    }
    let key = rooms.stream_by_id[&id];
    for packet in 0..2_000 {
        let payload = PayloadInfo::default();
        let meta = PacketMeta { seq: 65_536 + packet, timestamp: 0, arrival: at(packet), marker: false, payload };
        let start = LayerStart { track: 0, layer: 0, epoch: 1 };
        rooms.streams[key].push(start, &meta, &[], &[0; 1_000], &mut rooms.posts);
    }
    rooms.handle_command(at(2_000), Command::RemoveSession(session), &mut out);
    let bytes = |rooms: &Rooms| rooms.streams[key].tracks[0].layers[0].log.bytes();
    assert!(bytes(&rooms) > 2_000_000, "{} bytes", bytes(&rooms));
    while let Some(due) = rooms.poll_timeout().filter(|due| *due <= at(12_000)) {
        rooms.handle_timeout(due, &mut out);
    }
    assert!(bytes(&rooms) < 300_000, "{} bytes", bytes(&rooms));
    assert_eq!(rooms.poll_timeout(), None, "that was all");
}

/// Whatever sessions are told, in whatever order, a stream knows how many of its viewers want nothing of it.
#[test]
fn a_stream_knows_whether_anybody_gets_it() {
    let start = Instant::now();
    let mut rooms = Rooms::new(start, WorkerId(0), Settings::new(1, (start, 0)), BatchPool::new(1));
    let mut out = Outbox::new(64 * 1_024);
    let stream = StreamId(1);
    let track = TrackSpec { codec: Codec::Opus, profile: Default::default(), rids: Vec::new() };
    rooms.handle_command(start, Command::OpenStream(StreamSpec { id: stream, tracks: vec![track] }), &mut out);
    let key = rooms.stream_by_id[&stream];
    let mut random = Random::new(7);
    for step in 0..2_000_u32 {
        out.clear();
        let number = random.next_u64() % 4;
        let session = SessionId(number);
        let command = match random.next_u64() % 7 {
            0 if rooms.session_by_id.contains_key(&session) => continue,
            0 => {
                let remote = ([10, 0, 0, number as u8], 1).into();
                let path = Path { link: LinkId::datagrams(0), remote, local: None };
                let (keys, _) = SessionKeys::made_up_pair(Profile::AeadAes128Gcm, 1);
                Command::AddMember(PeerSpec { session, path, keys, cname: None })
            }
            1 => {
                let spec = DownTrackSpec { ssrc: step, ..down_track() };
                // Of some of them it has no track.
                let tracks = if step % 5 == 0 { Vec::new() } else { vec![spec] };
                Command::Watch { session, stream, tracks }
            }
            2 => Command::Unwatch { session, stream },
            3 => Command::RemoveSession(session),
            other => Command::Pause { session, stream, on: other < 6 },
        };
        let told = format!("step {step}: {command:?}");
        rooms.handle_command(start, command, &mut out);
        let stream = &rooms.streams[key];
        let gets = |viewer: &usize| !rooms.sessions[*viewer].downs.holds(key);
        assert_eq!(stream.is_wanted(), stream.viewers.iter().any(gets), "{told}");
    }
}

fn down_track() -> DownTrackSpec {
    DownTrackSpec {
        track: 0,
        ssrc: 0,
        rtx: None,
        payload_type: 111,
        red: None,
        mid: "0".into(),
        extensions: Default::default(),
    }
}
