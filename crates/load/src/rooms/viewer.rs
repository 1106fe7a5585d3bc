//! A viewer as the load generator plays it: it counts what comes, asks again for what is missing, and reports like a
//! browser does. Some viewers decrypt and check every packet; the others read headers, which is all that counting takes.

use std::time::{Duration, Instant};

use rooms::receive::{Receiver, TransportRecorder};
use srtp::{Opener, Sealer};
use webrtc::{Extension, Media, Ssrcs};
use wire::codec::{Codec, MediaKind};
use wire::rtcp;
use wire::rtp::RtpPacket;
use wire::{Bitrate, Outbox, Path, Seq};

use super::frames::Stamp;

/// What one viewer has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub packets: u64,
    pub bytes: u64,
    /// Packets that came after one with a higher number, retransmissions not counted.
    pub reordered: u64,
    pub duplicates: u64,
    /// Packets that came as retransmissions.
    pub repaired: u64,
    /// Packets that did not come the first time: never, or as retransmissions.
    pub lost: u64,
    /// Packets that came damaged or with a wrong tag, among those that were decrypted.
    pub damaged: u64,
    pub decrypted: u64,
    /// Times that a picture stood still.
    pub freezes: u64,
    /// Videos and sounds of which nothing came.
    pub silent: usize,
    pub first_packet: Option<Instant>,
    pub first_keyframe: Option<Instant>,
}

impl Seen {
    /// Counts what another has seen as well, but for what only says something of who is still there.
    pub fn add(&mut self, other: &Seen) {
        let Seen { packets, bytes, reordered, duplicates, repaired, lost, damaged, decrypted, freezes, .. } = *other;
        self.packets += packets;
        self.bytes += bytes;
        self.reordered += reordered;
        self.duplicates += duplicates;
        self.repaired += repaired;
        self.lost += lost;
        self.damaged += damaged;
        self.decrypted += decrypted;
        self.freezes += freezes;
    }
}

/// What a viewer looks into.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Decrypts every packet, not just retransmissions.
    pub is_sample: bool,
    /// Checks and times the last packet of each frame only, by its end.
    pub by_frame: bool,
}

pub struct Viewer {
    tracks: Vec<Track>,
    transport_cc: Option<u8>,
    opener: Opener,
    sealer: Sealer,
    recorder: TransportRecorder,
    check: Check,
    report_at: Instant,
    /// What came since the last report, in bytes.
    bytes: u64,
    /// What was said last that it takes.
    takes: Bitrate,
    /// Without the losses of tracks that are still there.
    seen: Seen,
}

/// Whether a packet is a retransmission.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    First,
    Again,
}

/// One video that comes, or sound.
struct Track {
    ssrc: u32,
    kind: MediaKind,
    rtx_ssrc: Option<u32>,
    receiver: Receiver,
    highest: Option<Seq>,
    frame: Option<Frame>,
    /// Since the counting began.
    packets: u64,
    /// Packets that were missing when the counting began.
    missing_before: u64,
}

/// The newest frame of which something has come.
#[derive(Clone, Copy)]
struct Frame {
    timestamp: u32,
    at: Instant,
    /// Mean time between frames, of the last `FRAMES` or so; `None` for the first.
    interval: Option<Duration>,
}

/// A frame freezes the one before it when it comes by so much later than the mean, and after three times that
/// (W3C webrtc-stats, freezeCount).
const FREEZE_MIN: Duration = Duration::from_millis(150);
const FRAMES: u32 = 30;

fn is_frozen(mean: Option<Duration>, took: Duration) -> bool {
    mean.is_some_and(|mean| took > (mean * 3).max(mean + FREEZE_MIN))
}

impl Track {
    /// Of which nothing has come.
    fn new(now: Instant, codec: Codec, (ssrc, rtx_ssrc): Ssrcs) -> Self {
        Track {
            ssrc,
            kind: codec.kind(),
            rtx_ssrc,
            receiver: Receiver::new(now, ssrc, codec),
            highest: None,
            frame: None,
            packets: 0,
            missing_before: 0,
        }
    }

    /// Takes a packet's timestamp. True where it begins a frame before which the picture stood still.
    fn see_frame(&mut self, now: Instant, timestamp: u32) -> bool {
        if self.kind == MediaKind::Audio {
            return false;
        }
        let Some(Frame { timestamp: last, at, interval }) = self.frame else {
            self.frame = Some(Frame { timestamp, at: now, interval: None });
            return false;
        };
        if timestamp.wrapping_sub(last) as i32 <= 0 {
            return false;
        }
        let took = now.saturating_duration_since(at);
        let mean = interval.map_or(took, |mean| (mean * (FRAMES - 1) + took) / FRAMES);
        self.frame = Some(Frame { timestamp, at: now, interval: Some(mean) });
        is_frozen(interval, took)
    }

    /// The next frame is so late that the picture stands still.
    fn stands_still(&self, now: Instant) -> bool {
        self.frame.is_some_and(|Frame { at, interval, .. }| is_frozen(interval, now.saturating_duration_since(at)))
    }

    fn lost(&self) -> u64 {
        self.receiver.lost().saturating_sub(self.missing_before)
    }
}

/// What a receiver on a path without limits takes at most: libwebrtc's estimate grows to one and a half of what comes, and does not
/// fall with it. Before anything comes there is none.
fn grown(takes: Bitrate, came: Bitrate) -> Bitrate {
    if came == Bitrate::ZERO { takes } else { takes.max(Bitrate::from_bps(came.scale(1.5).bps() + 10_000)) }
}

/// Of who sends nothing but reports.
const OWN_SSRC: u32 = 0x5555_5555;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const RTCP_MAX: usize = 1_200;

/// What one report has room for (RFC 3550 §6.4.2).
const REPORT_BLOCKS_MAX: usize = 31;

impl Viewer {
    pub fn new(now: Instant, opener: Opener, sealer: Sealer, check: Check) -> Self {
        Viewer {
            tracks: Vec::new(),
            transport_cc: None,
            opener,
            sealer,
            recorder: TransportRecorder::new(now),
            check,
            report_at: now + REPORT_INTERVAL,
            bytes: 0,
            takes: Bitrate::ZERO,
            seen: Seen::default(),
        }
    }

    /// What comes from now on, by the SSRCs that the server names; what comes already goes on.
    pub fn set_tracks(&mut self, now: Instant, media: &[Media]) {
        self.transport_cc = media.iter().find_map(|media| media.extension_id(Extension::TransportCc));
        let named = |ssrc| media.iter().any(|media| media.rx.first().is_some_and(|(named, _)| *named == ssrc));
        for ended in self.tracks.extract_if(.., |track| !named(track.ssrc)) {
            self.seen.lost += ended.lost();
        }
        for media in media {
            let Some((ssrc, rtx_ssrc)) = media.rx.first().copied() else { continue };
            if self.tracks.iter().all(|track| track.ssrc != ssrc) {
                self.tracks.push(Track::new(now, media.codec, (ssrc, rtx_ssrc)));
            }
        }
    }

    /// Takes a media datagram. Returns the stamp of a packet that was decrypted and came the first time.
    pub fn handle_rtp(&mut self, now: Instant, data: &mut [u8]) -> Option<Stamp> {
        let packet = RtpPacket::parse_header(data).ok()?;
        if let Some(value) = self.transport_cc.and_then(|id| packet.extension(id))
            && let Some(seq) = value.first_chunk()
        {
            self.recorder.on_packet(now, u16::from_be_bytes(*seq));
        }
        let (ssrc, seq, timestamp, len) = (packet.ssrc(), packet.seq(), packet.timestamp(), data.len());
        let index = self.tracks.iter().position(|track| track.ssrc == ssrc || track.rtx_ssrc == Some(ssrc))?;
        if self.tracks[index].rtx_ssrc == Some(ssrc) {
            return self.handle_rtx(now, index, data);
        }
        if self.tracks[index].receiver.on_packet(now, seq, timestamp, false).is_err() {
            self.seen.duplicates += 1;
            return None;
        }
        self.count(now, index, (seq, timestamp), len, Came::First);
        if !self.check.is_sample {
            return None;
        }
        let Ok(len) = self.opener.open_rtp(data) else {
            self.seen.damaged += 1;
            return None;
        };
        self.read(now, data.get(..len)?, 0)
    }

    /// A retransmission: its payload says which packet it is (RFC 4588 §4).
    fn handle_rtx(&mut self, now: Instant, index: usize, data: &mut [u8]) -> Option<Stamp> {
        let len = self.opener.open_rtp(data).ok()?;
        let plain = data.get(..len)?;
        let packet = RtpPacket::parse(plain).ok()?;
        let original = Seq(u16::from_be_bytes(*packet.payload().first_chunk()?));
        if self.tracks[index].receiver.on_packet(now, original, packet.timestamp(), true).is_err() {
            // Probes are made of packets that came already.
            return None;
        }
        self.seen.repaired += 1;
        self.count(now, index, (original, packet.timestamp()), len, Came::Again);
        self.read(now, plain, 2)
    }

    fn count(&mut self, now: Instant, index: usize, (seq, timestamp): (Seq, u32), len: usize, came: Came) {
        self.seen.packets += 1;
        self.seen.bytes += len as u64;
        self.bytes += len as u64;
        self.seen.first_packet.get_or_insert(now);
        let track = &mut self.tracks[index];
        track.packets += 1;
        self.seen.freezes += u64::from(track.see_frame(now, timestamp));
        let step = track.highest.map_or(1, |highest| highest.distance_to(seq));
        if step > 0 {
            track.highest = Some(seq);
        } else if came == Came::First {
            self.seen.reordered += 1;
        }
    }

    fn read(&mut self, now: Instant, plain: &[u8], offset: usize) -> Option<Stamp> {
        let packet = RtpPacket::parse(plain).ok()?;
        // Some servers send packets of padding alone.
        let payload = packet.payload().get(offset..).filter(|payload| !payload.is_empty())?;
        self.seen.decrypted += 1;
        let info = wire::codec::inspect(wire::codec::Codec::Vp8, payload, None);
        if info.keyframe && info.starts_frame {
            self.seen.first_keyframe.get_or_insert(now);
        }
        if self.check.by_frame && !packet.marker() {
            return None;
        }
        let stamp = if self.check.by_frame { Stamp::read_end(payload) } else { Stamp::read(payload) };
        self.seen.damaged += u64::from(stamp.is_none());
        stamp
    }

    /// Takes the server's reports.
    pub fn handle_rtcp(&mut self, now: Instant, data: &mut [u8]) {
        let Ok(len) = self.opener.open_rtcp(data) else { return };
        let Ok(packets) = rtcp::packets(&data[..len]) else { return };
        for packet in packets {
            if let rtcp::Packet::SenderReport(report) = packet
                && let Some(track) = self.tracks.iter_mut().find(|track| track.ssrc == report.info.ssrc)
            {
                track.receiver.on_sender_report(now, report.info.ntp);
            }
        }
    }

    pub fn poll_timeout(&self) -> Instant {
        let nacks = self.tracks.iter().filter_map(|track| track.receiver.next_nack_at());
        nacks.chain(self.recorder.poll_timeout()).fold(self.report_at, Instant::min)
    }

    /// Sends the NACKs, the transport feedback and the reports that are due.
    pub fn handle_timeout(&mut self, now: Instant, path: &Path, out: &mut Outbox) {
        let Viewer { sealer, tracks, recorder, transport_cc, bytes, takes, .. } = self;
        for Track { ssrc, receiver, .. } in tracks.iter_mut() {
            if receiver.next_nack_at().is_some_and(|at| at <= now) {
                let mut lost = Vec::new();
                receiver.poll_nacks(now, &mut |seq| lost.push(Seq(seq)));
                if !lost.is_empty() {
                    send(path, sealer, out, |buf| rtcp::write_nack(buf, OWN_SSRC, *ssrc, lost));
                }
            }
            if receiver.take_keyframe_needed() {
                send(path, sealer, out, |buf| rtcp::write_pli(buf, OWN_SSRC, *ssrc));
            }
        }
        if recorder.poll_timeout().is_some_and(|at| at <= now) {
            let ssrc = tracks.first().map_or(0, |track| track.ssrc);
            send(path, sealer, out, |buf| recorder.write_feedback(now, buf, OWN_SSRC, ssrc));
        }
        if self.report_at <= now {
            self.report_at = now + REPORT_INTERVAL;
            let blocks: Vec<_> = tracks.iter_mut().map(|track| track.receiver.report(now)).collect();
            let ssrcs: Vec<u32> = tracks.iter().map(|track| track.ssrc).take(REPORT_BLOCKS_MAX).collect();
            let came = Bitrate::of(std::mem::take(bytes), REPORT_INTERVAL);
            // As browsers do, who says by itself what it takes says so in the same datagram.
            *takes = grown(*takes, came);
            let mut said = Some(*takes).filter(|takes| transport_cc.is_none() && *takes > Bitrate::ZERO);
            for blocks in blocks.chunks(REPORT_BLOCKS_MAX) {
                send(path, sealer, out, |buf| {
                    let len = rtcp::write_receiver_report(buf, OWN_SSRC, blocks)?;
                    let Some(rate) = said.take() else { return Some(len) };
                    Some(len + rtcp::write_remb(&mut buf[len..], OWN_SSRC, rate, &ssrcs)?)
                });
            }
        }
    }

    /// Forgets the counts, but not when the first packets came.
    pub fn reset(&mut self) {
        let Seen { first_packet, first_keyframe, .. } = self.seen;
        for track in &mut self.tracks {
            (track.missing_before, track.packets) = (track.receiver.lost(), 0);
        }
        self.seen = Seen { first_packet, first_keyframe, ..Seen::default() };
    }

    /// What was seen until now, with what did not come the first time and the pictures that stand still.
    pub fn finish(&self, now: Instant) -> Seen {
        let lost = self.seen.lost + self.tracks.iter().map(Track::lost).sum::<u64>();
        let silent = self.tracks.iter().filter(|track| track.packets == 0).count();
        let frozen = self.tracks.iter().filter(|track| track.stands_still(now)).count() as u64;
        Seen { lost, silent, freezes: self.seen.freezes + frozen, ..self.seen.clone() }
    }
}

fn send(path: &Path, sealer: &mut Sealer, out: &mut Outbox, write: impl FnOnce(&mut [u8]) -> Option<usize>) {
    let Some(slot) = out.slot() else { return };
    let Some(len) = write(&mut slot[..RTCP_MAX]) else { return };
    let len = sealer.seal_rtcp(slot, len);
    out.commit(path, len);
}

#[cfg(test)]
mod tests {
    use srtp::{Profile, SessionKeys};
    use wire::LinkId;

    use super::*;

    #[test]
    fn a_picture_stands_still_where_the_next_one_comes_150_ms_later_than_usual() {
        let start = Instant::now();
        let mut track = Track::new(start, Codec::Vp8, (1, None));
        let mut at = start;
        let mut see = |later_ms, timestamp| {
            at += Duration::from_millis(later_ms);
            track.see_frame(at, timestamp)
        };
        // It wraps.
        let first = u32::MAX - 15 * 3_000;
        let frame = |number: u32| first.wrapping_add(number * 3_000);
        assert!((0..30).all(|number| !see(33, frame(number))));
        assert!(!see(170, frame(30)), "137 ms late");
        assert!(see(230, frame(31)));
        assert!(!see(300, frame(31)), "the same one");
        assert!(!see(1, frame(29)), "one before");
        see(1, frame(32));
        assert!(!track.stands_still(at + Duration::from_millis(40)));
        assert!(track.stands_still(at + Duration::from_secs(1)), "none comes after it");
    }

    /// What a viewer says in its reports of three seconds, in which nothing comes, 100 packets of 1,000 bytes, and 50.
    fn reported(transport_cc: Option<u8>) -> Vec<Option<Bitrate>> {
        let (ours, theirs) = SessionKeys::made_up_pair(Profile::AeadAes128Gcm, 7);
        let start = Instant::now();
        let check = Check { is_sample: false, by_frame: false };
        let mut viewer = Viewer::new(start, Opener::new(&ours).unwrap(), Sealer::new(&ours).unwrap(), check);
        viewer.transport_cc = transport_cc;
        viewer.tracks.push(Track::new(start, Codec::Vp8, (9, None)));
        let (mut opener, mut out) = (Opener::new(&theirs).unwrap(), Outbox::new(10_000));
        let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], 9).into(), local: None };
        [0..0, 0..100, 100..150]
            .into_iter()
            .zip(1..)
            .map(|(seqs, second)| {
                let now = start + REPORT_INTERVAL * second;
                seqs.for_each(|seq| viewer.count(now, 0, (Seq(seq), 0), 1_000, Came::First));
                viewer.handle_timeout(now, &path, &mut out);
                let mut datagram = out.datagrams().last().expect("a report").1.to_vec();
                out.clear();
                let len = opener.open_rtcp(&mut datagram).expect("sealed");
                let packets = rtcp::packets(&datagram[..len]).expect("a compound");
                packets
                    .filter_map(|packet| if let rtcp::Packet::Remb(remb) = packet { Some(remb.rate) } else { None })
                    .next()
            })
            .collect()
    }

    #[test]
    fn who_is_not_asked_for_transport_feedback_says_what_it_takes() {
        // One and a half of 800 kbit/s, and 10.
        let takes = Some(Bitrate::from_kbps(1_210));
        assert_eq!(reported(None), [None, takes, takes]);
        assert_eq!(reported(Some(3)), [None; 3]);
    }
}
