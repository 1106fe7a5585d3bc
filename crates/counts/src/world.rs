//! One worker's rooms with sessions, on a clock of their own; there is no network, and what is sent has arrived.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rooms::batch::{BatchPool, Post};
use rooms::drops::DropCounters;
use rooms::pacer::Burst;
use rooms::packet::{PacketMeta, Place};
use rooms::rooms::Rooms;
use rooms::settings::Settings;
use rooms::spec::{
    Command, DownTrackSpec, ExtensionIds, PeerSpec, SessionId, StreamId, StreamSpec, TrackSpec, UpTrackSpec, WorkerId,
};
use rooms::srtp::{Profile, Sealer, SessionKeys};
use wire::codec::{Codec, MediaKind, PayloadInfo, Vp8Numbers};
use wire::rtcp::{self, ReportBlock};
use wire::rtp::{HeaderWriter, RtpHeader};
use wire::{Bitrate, Datagram, Ecn, LinkId, Outbox, Path, Seq};

use crate::region::Region;

const VIEWERS: u16 = 32;
const STREAM: StreamId = StreamId(1);
const UP_SSRC: u32 = 1_000;
const TRANSPORT_CC: u8 = 3;
const FRAME: Duration = Duration::from_millis(33);
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
    /// Extended number of the publisher's next packet.
    seq: u64,
    frame: u32,
    publisher: Sealer,
    viewers: Vec<Viewer>,
}

struct Viewer {
    path: Path,
    ssrc: u32,
    sealer: Sealer,
    /// The newest number that came.
    highest: Seq,
    /// Packets that came since the last feedback, by their transport-wide numbers from here on.
    arrived: u16,
    transport_seq: u16,
    feedback_count: u8,
}

impl World {
    /// A stream that comes from another worker, and viewers.
    pub fn viewers(profile: Profile) -> Result<Self> {
        let mut world = World::new(profile)?;
        for number in 0..VIEWERS {
            let (ours, theirs) = SessionKeys::made_up_pair(profile, 1 + number as u8);
            let (path, ssrc) = (path(2, number), 2_000 + u32::from(number));
            let peer = PeerSpec { session: SessionId(1 + u64::from(number)), path, keys: theirs };
            world.command(Command::AddViewer { stream: STREAM, peer, tracks: vec![down_track(ssrc)] });
            let sealer = Sealer::new(&ours)?;
            let highest = Seq(0);
            let (arrived, transport_seq, feedback_count) = (0, 0, 0);
            world.viewers.push(Viewer { path, ssrc, sealer, highest, arrived, transport_seq, feedback_count });
        }
        Ok(world)
    }

    /// A publisher that nobody watches.
    pub fn publisher(profile: Profile) -> Result<Self> {
        let mut world = World::new(profile)?;
        let (ours, theirs) = SessionKeys::made_up_pair(profile, 0);
        world.publisher = Sealer::new(&ours)?;
        let peer = PeerSpec { session: SessionId(0), path: path(1, 9), keys: theirs };
        world.command(Command::AddPublisher { stream: STREAM, peer, tracks: vec![up_track()] });
        Ok(world)
    }

    fn new(profile: Profile) -> Result<Self> {
        let now = Instant::now();
        let pool = BatchPool::new(4);
        // The pacer would hold back what a clock of our own brings at once.
        let burst = Burst { packets: 64, rate_min: Bitrate::from_kbps(1_000_000_000) };
        let settings = Settings { burst, ..Settings::new(1, (now, 100 << 32)) };
        let rooms = Rooms::new(now, WorkerId(1), settings, pool.clone());
        let (publisher, _) = SessionKeys::made_up_pair(profile, 0);
        let mut world = World {
            now,
            rooms,
            out: Outbox::new(1 << 20),
            pool,
            seq: 1 << 16,
            frame: 0,
            publisher: Sealer::new(&publisher)?,
            viewers: Vec::new(),
        };
        let track = TrackSpec { kind: MediaKind::Video, codec: Codec::Vp8, clock_rate: 90_000, rids: Vec::new() };
        world.command(Command::OpenStream(StreamSpec { id: STREAM, tracks: vec![track] }));
        Ok(world)
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
        // In units of 250 µs, as the feedback counts.
        let ticks = i64::from(self.frame) * 33 * 4;
        for viewer in &mut self.viewers {
            let mut report = viewer.report(ticks).context("write a report")?;
            let datagram = Datagram { path: viewer.path, ecn: Ecn::NotEct, data: &mut report };
            region.count(1, || self.rooms.handle_datagram(self.now, datagram, &mut self.out));
        }
        let drops = self.rooms.counters().drops;
        ensure!(drops == DropCounters::default(), "{drops:?}");
        self.take_sent();
        Ok(())
    }

    /// Frames of the publisher, as datagrams; a unit is one packet.
    pub fn publish(&mut self, region: &mut Region) -> Result<()> {
        for frame in 0..WARM_UP + FRAMES {
            for index in 0..PACKETS_PER_FRAME {
                let mut packet = self.seal_packet(index).context("write a packet")?;
                let datagram = Datagram { path: path(1, 9), ecn: Ecn::NotEct, data: &mut packet };
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
        let place = Place { track: 0, layer: 0, epoch: 1 };
        for index in 0..PACKETS_PER_FRAME {
            let picture_id = Some(self.frame as u16 & 0x7fff);
            let payload = PayloadInfo {
                starts_frame: index == 0,
                keyframe: self.frame == 0,
                vp8: Some(Vp8Numbers { picture_id, long_picture_id: true, tl0_pic_idx: None }),
                ..PayloadInfo::default()
            };
            let meta = PacketMeta {
                seq: self.seq,
                timestamp: self.frame.wrapping_mul(2_970),
                arrival: self.now,
                marker: index + 1 == PACKETS_PER_FRAME,
                payload,
            };
            batch.push(place, &meta, &[], &[self.frame as u8; 1_000]);
            self.seq += 1;
        }
        self.frame += 1;
        Post::Packets(batch)
    }

    /// The publisher's next packet, one of a frame.
    fn seal_packet(&mut self, index: u64) -> Option<Vec<u8>> {
        let header = RtpHeader {
            payload_type: 96,
            marker: index + 1 == PACKETS_PER_FRAME,
            seq: Seq(self.seq as u16),
            timestamp: self.frame * 2_970,
            ssrc: UP_SSRC,
        };
        let mut buf = vec![0; 1_400];
        let mut writer = HeaderWriter::new(&mut buf, &header)?;
        writer.extension(TRANSPORT_CC, &(self.seq as u16).to_be_bytes());
        let header_len = writer.finish();
        // VP8 with a picture id (RFC 7741 §4.2).
        let starts = if index == 0 { 0x90 } else { 0x80 };
        let picture_id = 0x8000 | self.frame as u16;
        let descriptor = [starts, 0x80, (picture_id >> 8) as u8, picture_id as u8, u8::from(self.frame > 0)];
        buf[header_len..header_len + 5].copy_from_slice(&descriptor);
        let len = self.publisher.seal_rtp(&mut buf, header_len, header_len + 1_000, UP_SSRC, self.seq);
        buf.truncate(len);
        self.seq += 1;
        self.frame += u32::from(header.marker);
        Some(buf)
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

    /// All that is in the outbox arrives: media takes a transport-wide number, RTCP does not.
    fn take_sent(&mut self) {
        for (path, datagram) in self.out.datagrams() {
            let is_rtcp = (192..=223).contains(&datagram[1]);
            let viewer = self.viewers.iter_mut().find(|viewer| viewer.path == *path);
            if let Some(viewer) = viewer.filter(|_| !is_rtcp) {
                viewer.arrived += 1;
                if datagram[8..12] == viewer.ssrc.to_be_bytes() {
                    viewer.highest = Seq(u16::from_be_bytes([datagram[2], datagram[3]]));
                }
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

impl Viewer {
    /// A compound packet with a receiver report and transport-wide feedback about all that came since the last one.
    fn report(&mut self, ticks: i64) -> Option<Vec<u8>> {
        let mut buf = vec![0; 1_400];
        let block = ReportBlock { ssrc: self.ssrc, highest_seq: self.highest.0.into(), ..ReportBlock::default() };
        let mut len = rtcp::write_receiver_report(&mut buf, 1, &[block])?;
        let arrivals = vec![Some(ticks); self.arrived.into()];
        let (base, count) = (self.transport_seq, self.feedback_count);
        len += rtcp::write_transport_feedback(&mut buf[len..1_300], 1, self.ssrc, base, count, &arrivals)?.0;
        self.transport_seq = base.wrapping_add(self.arrived);
        self.feedback_count = count.wrapping_add(1);
        self.arrived = 0;
        let len = self.sealer.seal_rtcp(&mut buf, len);
        buf.truncate(len);
        Some(buf)
    }
}

fn path(host: u8, port: u16) -> Path {
    Path { link: LinkId(0), remote: ([192, 0, 2, host], port).into(), local: None }
}

fn extensions() -> ExtensionIds {
    ExtensionIds { transport_cc: Some(TRANSPORT_CC), ..ExtensionIds::default() }
}

fn up_track() -> UpTrackSpec {
    let ssrcs = vec![(UP_SSRC, None)];
    let (payload_type, rtx_payload_type) = (96, Some(97));
    UpTrackSpec { track: 0, mid: Arc::from("0"), payload_type, rtx_payload_type, ssrcs, extensions: extensions() }
}

fn down_track(ssrc: u32) -> DownTrackSpec {
    let rtx = Some((ssrc + 10_000, 97));
    DownTrackSpec { track: 0, mid: Arc::from("0"), ssrc, payload_type: 96, rtx, extensions: extensions() }
}
