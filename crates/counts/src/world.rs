//! One worker's rooms with sessions, on a clock of their own; there is no network, and what is sent has arrived.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rooms::batch::{BatchPool, Post};
use rooms::drops::DropCounters;
use rooms::pacer::Burst;
use rooms::packet::{LayerStart, PacketMeta};
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{Command, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, WorkerId};
use sim::bare::{FRAME_MS, Sink, Source, down_track, path, up_track};
use srtp::{Profile, SessionKeys};
use wire::codec::{Codec, PayloadInfo, PictureNumbers};
use wire::{Bitrate, Datagram, Outbox, Path, Product};

use crate::region::Region;

const VIEWERS: u16 = 32;
const STREAM: StreamId = StreamId(1);
const FRAME: Duration = Duration::from_millis(FRAME_MS as u64);
const PACKETS_PER_FRAME: u64 = 5;
/// Frames before counting begins, and while it goes on.
const WARM_UP: u32 = 30;
const FRAMES: u32 = 60;
/// Frames from one report of a viewer to the next.
const FRAMES_PER_REPORT: u32 = 3;

/// Calls of `poll_transmit` for one frame at most; it needs two.
const TURNS_MAX: usize = 16;

pub struct World {
    now: Instant,
    rooms: Rooms,
    out: Outbox,
    pool: BatchPool,
    /// Extended number of the next packet that another worker posts, and its frame.
    seq: u64,
    frame: u32,
    viewers: Vec<(Path, Sink)>,
}

impl World {
    /// A stream that comes from another worker, and viewers.
    pub fn viewers(profile: Profile) -> Result<Self> {
        let mut world = World::new();
        for number in 0..VIEWERS {
            let (ours, theirs) = SessionKeys::made_up_pair(profile, 1 + number as u8);
            let (path, ssrc) = (path(2, number), 2_000 + u32::from(number));
            let session = SessionId(1 + u64::from(number));
            world.command(Command::AddSession(PeerSpec { session, path, keys: theirs, cname: None }));
            world.command(Command::Watch { session, stream: STREAM, tracks: vec![down_track(ssrc)] });
            world.viewers.push((path, Sink::new(&ours, ssrc)?));
        }
        Ok(world)
    }

    /// A publisher that nobody watches.
    pub fn publisher(profile: Profile) -> Result<(Self, Source)> {
        let mut world = World::new();
        let (ours, theirs) = SessionKeys::made_up_pair(profile, 0);
        let session = SessionId(0);
        world.command(Command::AddSession(PeerSpec { session, path: path(1, 9), keys: theirs, cname: None }));
        world.command(Command::Publish { session, stream: STREAM, tracks: vec![up_track()] });
        Ok((world, Source::new(&ours)?))
    }

    fn new() -> Self {
        let now = Instant::now();
        let pool = BatchPool::new(4);
        // The pacer would hold back what a clock of our own brings at once.
        let burst = Burst { packets: 64, rate_min: Bitrate::from_kbps(1_000_000_000) };
        let settings = Settings { burst, ..Settings::new(1, (now, 100 << 32)) };
        let rooms = Rooms::new(now, WorkerId(1), settings, pool.clone());
        let (out, viewers) = (Outbox::new(1 << 20), Vec::new());
        let mut world = World { now, rooms, out, pool, seq: 1 << 16, frame: 0, viewers };
        let track = TrackSpec { codec: Codec::Vp8, profile: Default::default(), rids: Vec::new() };
        world.command(Command::OpenStream(StreamSpec { id: STREAM, tracks: vec![track] }));
        world
    }

    fn command(&mut self, command: Command) {
        self.rooms.handle_command(self.now, command, &mut self.out);
        self.out.clear();
    }

    /// Frames to all viewers; a unit is a packet to one viewer.
    pub fn fan_out(&mut self, region: &mut Region) -> Result<()> {
        self.play(&mut Region::uncounted(), WARM_UP)?;
        self.play(region, FRAMES)
    }

    fn play(&mut self, region: &mut Region, frames: u32) -> Result<()> {
        for frame in 1..=frames {
            self.frame_to_all(region)?;
            if frame % FRAMES_PER_REPORT == 0 {
                self.report_all(&mut Region::uncounted())?;
            }
        }
        Ok(())
    }

    /// Reports of all viewers, with frames between; a unit is one report.
    pub fn report(&mut self, region: &mut Region) -> Result<()> {
        self.play(&mut Region::uncounted(), WARM_UP)?;
        for _ in 0..FRAMES / FRAMES_PER_REPORT {
            for _ in 0..FRAMES_PER_REPORT {
                self.frame_to_all(&mut Region::uncounted())?;
            }
            self.report_all(region)?;
        }
        Ok(())
    }

    fn frame_to_all(&mut self, region: &mut Region) -> Result<()> {
        let units = PACKETS_PER_FRAME * u64::from(VIEWERS);
        let (post, before) = (self.gather(), self.rooms.counters().packets_out);
        region.count(units, || {
            self.rooms.handle_post(self.now, post, &mut self.out);
            transmit(&mut self.rooms, self.now, &mut self.out);
        });
        let sent = self.rooms.counters().packets_out - before;
        ensure!(sent == units, "{sent} of {units} packets were sent");
        self.take_sent();
        self.advance();
        Ok(())
    }

    fn report_all(&mut self, region: &mut Region) -> Result<()> {
        for (path, viewer) in &mut self.viewers {
            let mut report = viewer.report(self.frame, &[]);
            let datagram = Datagram { path: *path, data: &mut report };
            region.count(1, || self.rooms.handle_datagram(self.now, datagram, &mut self.out));
        }
        let drops = self.rooms.counters().drops;
        ensure!(drops == DropCounters::default(), "{drops:?}");
        self.take_sent();
        Ok(())
    }

    /// Frames of the publisher, as datagrams; a unit is one packet.
    pub fn publish(&mut self, source: &mut Source, region: &mut Region) -> Result<()> {
        for frame in 0..WARM_UP + FRAMES {
            for mut packet in source.next_frame(PACKETS_PER_FRAME as usize, frame == 0) {
                let datagram = Datagram { path: path(1, 9), data: &mut packet };
                if frame < WARM_UP {
                    self.rooms.handle_datagram(self.now, datagram, &mut self.out);
                } else {
                    region.count(1, || self.rooms.handle_datagram(self.now, datagram, &mut self.out));
                }
            }
            self.advance();
        }
        let (taken, sent) = (self.rooms.counters().packets_in, u64::from(WARM_UP + FRAMES) * PACKETS_PER_FRAME);
        ensure!(taken == sent, "{taken} of {sent} packets were taken");
        Ok(())
    }

    /// The next frame as another worker posts it.
    fn gather(&mut self) -> Post {
        let mut batch = self.pool.take(STREAM, WorkerId(0));
        let start = LayerStart { track: 0, layer: 0, epoch: 1 };
        for index in 0..PACKETS_PER_FRAME {
            let picture_id = Some(self.frame as u16 & 0x7fff);
            let payload = PayloadInfo {
                starts_frame: index == 0,
                keyframe: self.frame == 0,
                picture: Some(PictureNumbers {
                    picture_id,
                    long_picture_id: true,
                    keeps_gaps: false,
                    tl0_pic_idx: None,
                }),
                ..PayloadInfo::default()
            };
            let meta = PacketMeta {
                seq: self.seq,
                timestamp: self.frame.wrapping_mul(2_970),
                arrival: self.now,
                marker: index + 1 == PACKETS_PER_FRAME,
                payload,
            };
            batch.push(start, &meta, &[], &[self.frame as u8; 1_000]);
            self.seq += 1;
        }
        self.frame += 1;
        Post::Packets(batch)
    }

    /// On to the next frame's time; what timers bring is thrown away.
    fn advance(&mut self) {
        self.now += FRAME;
        if self.rooms.poll_timeout().is_some_and(|at| at <= self.now) {
            self.rooms.handle_timeout(self.now, &mut self.out);
        }
        transmit(&mut self.rooms, self.now, &mut self.out);
        self.take_sent();
    }

    /// All that is in the outbox arrives.
    fn take_sent(&mut self) {
        for (path, datagram) in self.out.datagrams() {
            if let Some((_, viewer)) = self.viewers.iter_mut().find(|(known, _)| known == path) {
                viewer.take(datagram);
            }
        }
        self.out.clear();
    }
}

/// What the engine does when the input is used up; the outbox has room for all of it.
fn transmit(rooms: &mut Rooms, now: Instant, out: &mut Outbox) {
    for _ in 0..TURNS_MAX {
        if !rooms.poll_transmit(now, out) {
            return;
        }
    }
}
