//! A publisher as the load generator plays it: frames on time, and an answer to every NACK and keyframe request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Packet, SEQ_FIRST, Source};
use srtp::{Opener, Sealer};
use webrtc::{Extension, Media};
use wire::codec::MediaKind;
use wire::rtcp;
use wire::{Outbox, Path, Seq};

use super::frames::{Frames, Made, PAYLOAD_MAX};
use super::join::{Speaks, Video};

/// Simulcast layers, smallest picture first, with their share of the rate.
pub const LAYERS: [(&str, f64); 3] = [("q", 0.1), ("h", 0.3), ("f", 0.6)];

pub struct Publisher {
    opener: Opener,
    sealer: Sealer,
    layers: Vec<Layer>,
    transport_seq: u16,
    speaks: Option<Speaks>,
    spread: Duration,
    epoch: Instant,
    report_at: Instant,
    pub keyframe_requests: u64,
}

struct Layer {
    /// What its section of the answer says.
    media: Arc<Media>,
    source: Source,
    rid: Option<String>,
    frames: Frames,
    /// Packets made that are not due, or found no room in the outbox yet.
    waiting: VecDeque<Made>,
}

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

impl Publisher {
    /// Of the sections of its answer, each a video or sound.
    pub fn new(now: Instant, video: Video, media: &[Media], opener: Opener, sealer: Sealer) -> Self {
        let layers = media.iter().flat_map(|media| {
            let media = Arc::new(media.clone());
            (0..media.tx.len()).filter_map(move |index| {
                let source = Source::new(&media, index, SEQ_FIRST)?;
                let rid = media.rids.get(index).cloned();
                let share = LAYERS.iter().find(|(name, _)| rid.as_deref() == Some(name));
                let share = share.map_or(1.0, |(_, share)| *share);
                let frames = match media.codec.kind() {
                    MediaKind::Video => Frames::new(now, video.bitrate.scale(share), video.frames_per_second),
                    MediaKind::Audio => Frames::sound(now),
                };
                Some(Layer { media: media.clone(), source, rid, frames, waiting: VecDeque::new() })
            })
        });
        Publisher {
            layers: layers.collect(),
            opener,
            sealer,
            transport_seq: 0,
            speaks: video.speaks,
            spread: video.spread,
            epoch: video.epoch,
            report_at: now,
            keyframe_requests: 0,
        }
    }

    pub fn poll_timeout(&self) -> Instant {
        let frames = self.layers.iter().map(|layer| layer.frames.next_at);
        let packets = self.layers.iter().filter_map(|layer| layer.waiting.front());
        let packets = packets.map(|made| self.epoch + Duration::from_nanos(made.sent_ns));
        frames.chain(packets).fold(self.report_at, Instant::min)
    }

    /// Makes the frames that are due and sends what there is room for.
    pub fn handle_timeout(&mut self, now: Instant, path: &Path, out: &mut Outbox) {
        for index in 0..self.layers.len() {
            while self.layers[index].frames.next_at <= now {
                let (sent_ns, spread_ns) = (self.nanos(now), self.spread.as_nanos() as u64);
                let Layer { frames, waiting, .. } = &mut self.layers[index];
                frames.make_frame(sent_ns, spread_ns, |made| waiting.push_back(*made));
            }
        }
        self.send_waiting(now, path, out);
        if self.report_at <= now {
            self.report_at = now + REPORT_INTERVAL;
            self.send_reports(now, path, out);
        }
    }

    fn nanos(&self, now: Instant) -> u64 {
        now.duration_since(self.epoch).as_nanos() as u64
    }

    /// Sends what is due. True when more of it waits for room.
    pub fn send_waiting(&mut self, now: Instant, path: &Path, out: &mut Outbox) -> bool {
        let now_ns = self.nanos(now);
        for index in 0..self.layers.len() {
            while let Some(made) = self.layers[index].waiting.front().filter(|made| made.sent_ns <= now_ns).copied() {
                if !out.has_room() {
                    return true;
                }
                self.layers[index].waiting.pop_front();
                self.send(index, &made, false, path, out);
            }
        }
        false
    }

    fn send(&mut self, index: usize, made: &Made, again: bool, path: &Path, out: &mut Outbox) {
        let Publisher { layers, sealer, transport_seq, speaks, .. } = self;
        let layer = &mut layers[index];
        let media = &layer.media;
        let Some(slot) = out.slot() else { return };
        let twcc = transport_seq.to_be_bytes();
        // As long as a receiver may not know the SSRC.
        let is_named = again || made.seq < SEQ_FIRST + 100;
        let rid = layer.rid.as_deref().filter(|_| is_named && !again);
        let level = speaks.map(|speaks| speaks.level(Duration::from_nanos(made.sent_ns)));
        let id = |extension, is_wanted: bool| media.extension_id(extension).filter(|_| is_wanted);
        let extensions = [
            (id(Extension::TransportCc, true), &twcc[..]),
            (id(Extension::Mid, is_named), media.mid.as_bytes()),
            (id(Extension::Rid, rid.is_some()), rid.unwrap_or_default().as_bytes()),
            (id(Extension::AudioLevel, level.is_some()), &[level.unwrap_or_default()]),
        ];
        let mut buf = [0; PAYLOAD_MAX];
        let payload = layer.frames.payload(made, &mut buf);
        let packet = Packet { timestamp: made.timestamp, marker: made.marker, extensions: &extensions, payload };
        let written = match again {
            false => layer.source.write(slot, &packet, sealer),
            true => layer.source.write_again(slot, Seq(made.seq as u16), &packet, sealer),
        };
        let Some(len) = written else { return };
        out.commit(path, len);
        *transport_seq = transport_seq.wrapping_add(1);
    }

    fn send_reports(&mut self, now: Instant, path: &Path, out: &mut Outbox) {
        let since = now.duration_since(self.epoch);
        let ntp = (since.as_nanos() << 32) / 1_000_000_000;
        for layer in &self.layers {
            let Some(slot) = out.slot() else { return };
            let rtp_timestamp = layer.frames.timestamp_at(now);
            if let Some(len) = layer.source.write_report(slot, ntp as u64, rtp_timestamp, &mut self.sealer) {
                out.commit(path, len);
            }
        }
    }

    /// Takes the server's NACKs and keyframe requests.
    pub fn handle_rtcp(&mut self, data: &mut [u8], path: &Path, out: &mut Outbox) {
        let Ok(len) = self.opener.open_rtcp(data) else { return };
        let Ok(packets) = rtcp::packets(&data[..len]) else { return };
        for packet in packets {
            match packet {
                rtcp::Packet::Nack(nack) => {
                    let Some(index) = self.layer_of(nack.media_ssrc) else { continue };
                    for made in nack.lost().filter_map(|seq| self.layers[index].frames.sent(seq)).collect::<Vec<_>>() {
                        self.send(index, &made, true, path, out);
                    }
                }
                rtcp::Packet::Pli { media_ssrc } => {
                    if let Some(index) = self.layer_of(media_ssrc) {
                        self.keyframe_requests += 1;
                        self.layers[index].frames.keyframe_wanted = true;
                    }
                }
                _ => {}
            }
        }
    }

    fn layer_of(&self, ssrc: u32) -> Option<usize> {
        self.layers.iter().position(|layer| layer.source.ssrc() == ssrc)
    }
}
