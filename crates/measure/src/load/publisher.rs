//! A publisher as the load generator plays it: frames on time, and an answer to every NACK and keyframe request.

use std::time::{Duration, Instant};

use rooms::srtp::{Opener, Sealer};
use wire::rtcp::{self, Packet, SenderInfo};
use wire::{Outbox, Path};

use super::frames::{Frames, Made};

/// One layer that is sent.
#[derive(Clone, Debug)]
pub struct LayerNumbers {
    pub ssrc: u32,
    pub rtx_ssrc: Option<u32>,
    pub rid: Option<String>,
}

/// What the publisher's section of the answer says.
#[derive(Clone, Debug)]
pub struct Numbers {
    pub mid: String,
    pub payload_type: u8,
    pub rtx_payload_type: Option<u8>,
    pub mid_id: Option<u8>,
    pub rid_id: Option<u8>,
    pub transport_cc: Option<u8>,
}

pub struct Publisher {
    numbers: Numbers,
    opener: Opener,
    sealer: Sealer,
    layers: Vec<Layer>,
    transport_seq: u16,
    epoch: Instant,
    report_at: Instant,
    pub keyframe_requests: u64,
}

struct Layer {
    numbers: LayerNumbers,
    frames: Frames,
    /// Packets made that found no room in the outbox yet.
    waiting: std::collections::VecDeque<Made>,
    rtx_seq: u64,
    bytes: u32,
}

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const RTCP_MAX: usize = 1_200;

impl Publisher {
    pub fn new(
        now: Instant,
        epoch: Instant,
        numbers: Numbers,
        layers: Vec<(LayerNumbers, Frames)>,
        opener: Opener,
        sealer: Sealer,
    ) -> Self {
        let layers = layers.into_iter().map(|(numbers, frames)| Layer {
            numbers,
            frames,
            waiting: Default::default(),
            rtx_seq: 1 << 16,
            bytes: 0,
        });
        Publisher {
            numbers,
            opener,
            sealer,
            layers: layers.collect(),
            transport_seq: 0,
            epoch,
            report_at: now,
            keyframe_requests: 0,
        }
    }

    pub fn poll_timeout(&self) -> Instant {
        self.layers.iter().map(|layer| layer.frames.next_at()).fold(self.report_at, Instant::min)
    }

    /// Makes the frames that are due and sends what there is room for.
    pub fn handle_timeout(&mut self, now: Instant, path: &Path, out: &mut Outbox) {
        for index in 0..self.layers.len() {
            while self.layers[index].frames.next_at() <= now {
                let sent_ns = now.duration_since(self.epoch).as_nanos() as u64;
                let Layer { frames, waiting, .. } = &mut self.layers[index];
                frames.make_frame(sent_ns, |made| waiting.push_back(*made));
            }
        }
        self.send_waiting(path, out);
        if self.report_at <= now {
            self.report_at = now + REPORT_INTERVAL;
            self.send_reports(now, path, out);
        }
    }

    /// True when more waits.
    pub fn send_waiting(&mut self, path: &Path, out: &mut Outbox) -> bool {
        for index in 0..self.layers.len() {
            while let Some(made) = self.layers[index].waiting.front().copied() {
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
        let Publisher { numbers, layers, sealer, transport_seq, .. } = self;
        let layer = &mut layers[index];
        let Some(slot) = out.slot() else { return };
        let twcc = transport_seq.to_be_bytes();
        let mut extensions: [(u8, &[u8]); 3] = [(0, &[]); 3];
        extensions[0] = (numbers.transport_cc.unwrap_or(0), &twcc);
        if made.seq < (1 << 16) + 100 || again {
            extensions[1] = (numbers.mid_id.unwrap_or(0), numbers.mid.as_bytes());
            if let (Some(id), Some(rid), false) = (numbers.rid_id, &layer.numbers.rid, again) {
                extensions[2] = (id, rid.as_bytes());
            }
        }
        let (header, original) = match (again, numbers.rtx_payload_type, layer.numbers.rtx_ssrc) {
            (false, ..) => ((numbers.payload_type, layer.numbers.ssrc, made.seq), None),
            (true, Some(payload_type), Some(ssrc)) => {
                layer.rtx_seq += 1;
                ((payload_type, ssrc, layer.rtx_seq - 1), Some(made.seq as u16))
            }
            (true, ..) => return,
        };
        let written = layer.frames.write(made, slot, header, original, &extensions);
        let Some((header_len, len)) = written else { return };
        layer.bytes = layer.bytes.wrapping_add((len - header_len) as u32);
        let len = sealer.seal_rtp(slot, header_len, len, header.1, header.2);
        out.commit(path, len);
        *transport_seq = transport_seq.wrapping_add(1);
    }

    fn send_reports(&mut self, now: Instant, path: &Path, out: &mut Outbox) {
        let since = now.duration_since(self.epoch);
        let ntp = (since.as_nanos() << 32) / 1_000_000_000;
        for layer in &self.layers {
            let Some(slot) = out.slot() else { return };
            let info = SenderInfo {
                ssrc: layer.numbers.ssrc,
                ntp: ntp as u64,
                rtp_timestamp: layer.frames.timestamp_at(now),
                packet_count: layer.frames.packet_count() as u32,
                byte_count: layer.bytes,
            };
            let Some(len) = rtcp::write_sender_report(&mut slot[..RTCP_MAX], &info, &[]) else { return };
            let len = self.sealer.seal_rtcp(slot, len);
            out.commit(path, len);
        }
    }

    /// Takes the server's NACKs and keyframe requests.
    pub fn handle_rtcp(&mut self, data: &mut [u8], path: &Path, out: &mut Outbox) {
        let Ok(len) = self.opener.open_rtcp(data) else { return };
        let Ok(packets) = rtcp::packets(&data[..len]) else { return };
        for packet in packets {
            match packet {
                Packet::Nack(nack) => {
                    let Some(index) = self.layer_of(nack.media_ssrc) else { continue };
                    for made in nack.lost().filter_map(|seq| self.layers[index].frames.sent(seq)).collect::<Vec<_>>() {
                        self.send(index, &made, true, path, out);
                    }
                }
                Packet::Pli(pli) => {
                    if let Some(index) = self.layer_of(pli.media_ssrc) {
                        self.keyframe_requests += 1;
                        self.layers[index].frames.want_keyframe();
                    }
                }
                _ => {}
            }
        }
    }

    fn layer_of(&self, ssrc: u32) -> Option<usize> {
        self.layers.iter().position(|layer| layer.numbers.ssrc == ssrc)
    }
}
