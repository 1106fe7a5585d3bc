//! Makes frames that look like VP8, VP9, AV1, H.264, Opus or G.711 to a forwarder, and that a receiver can check.
//!
//! In: a plan of one layer, and when it is time for a frame. Out: the frame's RTP payloads.
//! Each payload starts with the codec's own header and ends with a `Tag`, which says where it belongs, when it was sent and
//! what bytes stand before it. So a viewer knows of each frame whether it is whole, in whatever layer it comes.
//! Source: RFC 7741 §4.2, RFC 6386 §9.1 (VP8); RFC 9628 §4.2 (VP9); RTP Payload Format For AV1 (AV1); RFC 6184 §5.4–5.8 (H.264); RFC 7587 §4.2 (Opus).

use std::cmp::Ordering;
use std::time::Duration;

use wire::codec::{Codec, MediaKind};
use wire::{Bitrate, Random};

/// Bytes of a `Tag`.
const TAG_LEN: usize = 24;
const TAG_MAGIC: [u8; 4] = *b"mill";
/// The largest payload, in bytes.
const PAYLOAD_MAX: usize = 1_100;
/// A keyframe is so many times as large as another frame.
const KEYFRAME_SCALE: f64 = 4.0;

/// What one layer of a track sends.
#[derive(Clone, Debug)]
pub struct LayerPlan {
    /// Mean rate of the payloads; keyframes are larger than other frames.
    pub bitrate: Bitrate,
    /// At even intervals; not 0.
    pub frames_per_second: u32,
    /// 1 to 3; only VP8 says so in its payload.
    pub temporal_layers: u8,
    /// More than one only of VP9 and AV1.
    pub spatial: Spatial,
}

/// The spatial layers that one SSRC brings (SVC). Each takes three times what the ones below take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spatial {
    /// How many, 1 to 3.
    pub layers: u8,
    /// Only those of a keyframe depend on each other (L3T3_KEY in the W3C's names).
    pub key_only: bool,
}

impl Spatial {
    /// No other layers.
    pub const ONE: Spatial = Spatial { layers: 1, key_only: false };

    /// The share of a picture's bytes that a layer takes.
    fn share(self, layer: u8) -> f64 {
        let below = 4_f64.powi(i32::from(layer) + 1 - i32::from(self.layers));
        if layer == 0 { below } else { 0.75 * below }
    }
}

/// The last bytes of each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Index of the track in the stream.
    pub track: u8,
    /// Index of the layer in the track, simulcast or spatial, 0 the smallest picture.
    pub layer: u8,
    /// Frames of this layer, counted from where its encoder began; the spatial layers of a picture have one number.
    pub frame: u32,
    /// The packet's place in its frame, from 0.
    pub index: u16,
    /// Packets of the frame.
    pub count: u16,
    /// Decoding may start at this frame.
    pub keyframe: bool,
    /// Temporal layer of the frame, 0 the lowest.
    pub temporal_id: u8,
    /// When the frame was made, in µs since the world began.
    pub sent_us: u64,
}

impl Tag {
    /// Reads the tag at the end of a payload, and checks the bytes before it. `None`: it is not ours, or was changed.
    pub fn parse(payload: &[u8]) -> Option<Tag> {
        let (body, tag) = payload.split_last_chunk::<TAG_LEN>()?;
        let [m0, m1, m2, m3, track, layer, flags, fill_len, ..] = *tag;
        if [m0, m1, m2, m3] != TAG_MAGIC {
            return None;
        }
        let number =
            |at: usize, len: usize| tag[at..at + len].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let tag = Tag {
            track,
            layer,
            frame: number(8, 4) as u32,
            index: number(12, 2) as u16,
            count: number(14, 2) as u16,
            keyframe: flags & 0x80 != 0,
            temporal_id: flags & 0x03,
            sent_us: number(16, 8),
        };
        let fill = &body[body.len().checked_sub(fill_len.into())?..];
        fill.iter().all(|byte| *byte == tag.fill()).then_some(tag)
    }

    /// The byte that the payload is filled with.
    fn fill(&self) -> u8 {
        (self.frame as u8).wrapping_mul(31).wrapping_add(self.index as u8)
    }

    /// Fills `payload` up to `len` bytes, the tag included.
    fn finish(&self, payload: &mut Vec<u8>, len: usize) {
        let fill_len = len.saturating_sub(payload.len() + TAG_LEN);
        payload.resize(payload.len() + fill_len, self.fill());
        let flags = u8::from(self.keyframe) << 7 | self.temporal_id;
        payload.extend(TAG_MAGIC);
        payload.extend([self.track, self.layer, flags, fill_len.min(255) as u8]);
        payload.extend(self.frame.to_be_bytes());
        payload.extend(self.index.to_be_bytes());
        payload.extend(self.count.to_be_bytes());
        payload.extend(self.sent_us.to_be_bytes());
    }
}

/// One frame, ready for RTP headers.
#[derive(Clone, Debug)]
pub struct Frame {
    /// RTP timestamp.
    pub timestamp: u32,
    /// Decoding may start here.
    pub keyframe: bool,
    /// One per packet, in sending order, at least one.
    pub payloads: Vec<Vec<u8>>,
    /// The dependency descriptor of each, of AV1.
    pub descriptors: Vec<Vec<u8>>,
}

/// The encoder of one layer.
#[derive(Debug)]
pub struct Encoder {
    codec: Codec,
    track: u8,
    layer: u8,
    plan: LayerPlan,
    first_frame: u32,
    pub(crate) frame_count: u32,
    first_timestamp: u32,
    picture_id: u16,
    tl0_pic_idx: u8,
    /// Frames since the last keyframe, which gives the temporal pattern.
    in_group: u32,
    /// Of the next frame's dependency descriptor.
    frame_number: u16,
    random: Random,
}

impl Encoder {
    /// Starts with timestamps and picture ids anywhere, as real encoders do.
    pub fn new(codec: Codec, track: u8, layer: u8, plan: LayerPlan, mut random: Random) -> Self {
        assert!(codec != Codec::H265, "no factory for {codec:?}");
        Encoder {
            codec,
            track,
            layer,
            plan,
            first_frame: 0,
            frame_count: 0,
            first_timestamp: random.next_u64() as u32,
            picture_id: random.below(1 << 15) as u16,
            tl0_pic_idx: random.next_u64() as u8,
            in_group: 0,
            frame_number: 65_500,
            random,
        }
    }

    /// Counts frames from `number` on, so that those of two encoders are told apart.
    pub fn starting_at(mut self, number: u32) -> Self {
        self.first_frame = number;
        self
    }

    /// Time from one frame to the next.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.plan.frames_per_second
    }

    /// Whether so much has passed since the last keyframe, or less than a frame's half is missing of it.
    pub(crate) fn is_due_for_keyframe(&self, interval: Duration) -> bool {
        self.interval() * self.in_group + self.interval() / 2 >= interval
    }

    /// Makes the next frame; the first one is a keyframe in any case.
    pub fn next_frame(&mut self, sent_us: u64, keyframe: bool) -> Frame {
        let keyframe = keyframe || self.frame_count == 0 || self.codec.kind() == MediaKind::Audio;
        if keyframe {
            self.in_group = 0;
        }
        let (temporal_id, layer_sync) = temporal_place(self.plan.temporal_layers, self.in_group);
        if temporal_id == 0 {
            self.tl0_pic_idx = self.tl0_pic_idx.wrapping_add(1);
        }
        let picture_bytes = self.frame_bytes(keyframe);
        let (mut payloads, mut descriptors) = (Vec::new(), Vec::new());
        for spatial_id in 0..self.plan.spatial.layers {
            let bytes = ((picture_bytes as f64 * self.plan.spatial.share(spatial_id)) as usize).max(TAG_LEN + 40);
            let count = bytes.div_ceil(PAYLOAD_MAX).max(1);
            let mut tag = Tag {
                track: self.track,
                layer: self.layer + spatial_id,
                frame: self.first_frame + self.frame_count,
                index: 0,
                count: count as u16,
                keyframe,
                temporal_id,
                sent_us,
            };
            for index in 0..count {
                tag.index = index as u16;
                let mut payload = self.payload_header(&tag, layer_sync);
                tag.finish(&mut payload, bytes / count);
                payloads.push(payload);
                descriptors.push(if self.codec == Codec::Av1 { self.descriptor(&tag) } else { Vec::new() });
            }
            self.frame_number = self.frame_number.wrapping_add(1);
        }
        let frame = Frame { timestamp: self.timestamp(sent_us), keyframe, payloads, descriptors };
        self.frame_count += 1;
        self.in_group += 1;
        self.picture_id = (self.picture_id + 1) & 0x7fff;
        frame
    }

    /// Follows the clock, so that it also says how long a pause was.
    pub(crate) fn timestamp(&self, sent_us: u64) -> u32 {
        let ticks = (sent_us * u64::from(self.codec.clock_rate()) + 500_000) / 1_000_000;
        self.first_timestamp.wrapping_add(ticks as u32)
    }

    /// The plan's mean, up to a fifth more or less.
    fn frame_bytes(&mut self, keyframe: bool) -> usize {
        let mean = self.plan.bitrate.bps() as f64 / 8.0 / f64::from(self.plan.frames_per_second);
        let scale = if keyframe && self.codec.kind() == MediaKind::Video { KEYFRAME_SCALE } else { 1.0 };
        let bytes = mean * scale * (0.8 + 0.4 * self.random.unit());
        (bytes as usize).max(TAG_LEN + 40)
    }

    fn payload_header(&self, tag: &Tag, layer_sync: bool) -> Vec<u8> {
        match self.codec {
            Codec::Vp8 => self.vp8_header(tag, layer_sync),
            Codec::Vp9 => self.vp9_header(tag),
            Codec::Av1 => av1_header(tag),
            Codec::H264 => h264_header(tag),
            // 20 ms, CELT, stereo (RFC 6716 §3.1).
            Codec::Opus => vec![0xfc],
            // Samples, and nothing before them.
            _ => Vec::new(),
        }
    }

    /// I, L, B and E, and P and D by what the frame refers to.
    fn vp9_header(&self, tag: &Tag) -> Vec<u8> {
        let (starts, ends) = (tag.index == 0, tag.index + 1 == tag.count);
        let refers_below = tag.layer > 0 && (tag.keyframe || !self.plan.spatial.key_only);
        let first = 0xa0 | u8::from(!tag.keyframe) << 6 | u8::from(starts) << 3 | u8::from(ends) << 2;
        let [high, low] = (0x8000 | self.picture_id).to_be_bytes();
        let layers = tag.temporal_id << 5 | tag.layer << 1 | u8::from(refers_below);
        vec![first, high, low, layers, self.tl0_pic_idx]
    }

    /// Template 2 s of `svc_structure` is that of spatial layer s, and the one behind it that of its keyframes.
    fn descriptor(&self, tag: &Tag) -> Vec<u8> {
        let (starts, ends) = (tag.index == 0, tag.index + 1 == tag.count);
        let [high, low] = self.frame_number.to_be_bytes();
        let template_id = 2 * tag.layer + u8::from(tag.keyframe);
        let mut value = vec![u8::from(starts) << 7 | u8::from(ends) << 6 | template_id, high, low];
        if tag.keyframe && tag.layer == 0 && starts {
            value.extend(svc_structure(self.plan.spatial));
        }
        value
    }

    fn vp8_header(&self, tag: &Tag, layer_sync: bool) -> Vec<u8> {
        let starts_frame = tag.index == 0;
        let not_referred_to = tag.temporal_id > 0 && tag.temporal_id + 1 == self.plan.temporal_layers;
        // X, N, S; then I, L, T and K, as libwebrtc writes them.
        let mut header = vec![0x80 | u8::from(not_referred_to) << 5 | u8::from(starts_frame) << 4, 0xf0];
        header.extend((0x8000 | self.picture_id).to_be_bytes());
        header.push(self.tl0_pic_idx);
        header.push(tag.temporal_id << 6 | u8::from(layer_sync) << 5 | (self.frame_count & 0x1f) as u8);
        if starts_frame {
            // The frame tag: inverse keyframe bit, version 0, shown; then, in keyframes, start code and 640 × 360.
            header.extend([0x10 | u8::from(!tag.keyframe), 0, 0]);
            if tag.keyframe {
                header.extend([0x9d, 0x01, 0x2a, 0x80, 0x02, 0x68, 0x01]);
            }
        }
        header
    }
}

/// One OBU element, of a frame; N in a keyframe's first packet, Z in continuations.
fn av1_header(tag: &Tag) -> Vec<u8> {
    let is_new = tag.keyframe && tag.layer == 0 && tag.index == 0;
    vec![0x10 | u8::from(is_new) << 3 | u8::from(tag.index > 0) << 7, 0x30]
}

/// Temporal layer of a frame, and whether it depends on the lowest layer only.
fn temporal_place(layers: u8, in_group: u32) -> (u8, bool) {
    match (layers, in_group % 4) {
        (..=1, _) | (_, 0) | (2, 2) => (0, false),
        (2, _) => (1, true),
        (_, 1) => (2, true),
        (_, 2) => (1, true),
        (_, _) => (2, false),
    }
}

/// A slice in one NAL unit or in FU-A fragments. A keyframe begins with an STAP-A of SPS, PPS and its first slice, and
/// what follows is its second slice.
fn h264_header(tag: &Tag) -> Vec<u8> {
    const SPS: [u8; 8] = [0x67, 0x42, 0xe0, 0x1f, 0x8c, 0x8d, 0x40, 0x50];
    const PPS: [u8; 4] = [0x68, 0xce, 0x3c, 0x80];
    /// First bytes of a slice at the first macroblock (a set bit: number 0), and at a later one.
    const FIRST_MACROBLOCK: u8 = 0x88;
    const LATER_MACROBLOCK: u8 = 0x40;
    let slice = if tag.keyframe { 0x65 } else { 0x61 };
    if tag.index == 0 && tag.keyframe {
        let mut header = vec![0x78];
        for unit in [&SPS[..], &PPS[..]] {
            header.extend((unit.len() as u16).to_be_bytes());
            header.extend(unit);
        }
        // Nobody here decodes the slice: its length is what every payload has at least.
        header.extend([0, TAG_LEN as u8, slice, FIRST_MACROBLOCK]);
        return header;
    }
    if tag.count == 1 {
        return vec![slice, FIRST_MACROBLOCK];
    }
    let starts = tag.index == u16::from(tag.keyframe);
    let ends = tag.index + 1 == tag.count;
    let mut header = vec![slice & 0x60 | 28, u8::from(starts) << 7 | u8::from(ends) << 6 | slice & 0x1f];
    if starts {
        header.push(if tag.keyframe { LATER_MACROBLOCK } else { FIRST_MACROBLOCK });
    }
    header
}

/// The structure in the dependency descriptor of a keyframe, behind its first three bytes (RTP Payload Format For AV1,
/// appendix A): one spatial and three temporal layers as libwebrtc writes them, with template ids from `offset` on. Of its
/// four templates the first is the keyframe's, the others' are layers 0, 1 and 2.
pub fn l1t3(offset: u8) -> Vec<u8> {
    pack_bits(&[
        (0b10000, 5), // a structure is attached
        (offset.into(), 6),
        (2, 5), // three decode targets
        (0, 2), // templates of layer 0, 0, 1, 2
        (1, 2),
        (1, 2),
        (3, 2),
        (0b10_10_10, 6), // indications of each for the three targets: S S S
        (0b10_10_10, 6), // S S S
        (0b00_01_10, 6), // - D S
        (0b00_00_01, 6), // - - D
    ])
}

/// The same for spatial layers with one temporal layer each, as libwebrtc writes it, with template ids from 0 on: two for
/// each layer, that of its frames and that of its keyframes.
pub fn svc_structure(spatial: Spatial) -> Vec<u8> {
    let Spatial { layers, key_only } = spatial;
    let (not_present, switch, required) = (0, 2, 3);
    let mut fields = vec![(0b10000, 5), (0, 6), (u64::from(layers) - 1, 5)];
    for layer in 0..layers {
        fields.extend([(0, 2), (if layer + 1 == layers { 3 } else { 2 }, 2)]);
    }
    for layer in 0..layers {
        for is_key in [false, true] {
            fields.extend((0..layers).map(|target| match target.cmp(&layer) {
                Ordering::Less => (not_present, 2),
                Ordering::Equal => (switch, 2),
                Ordering::Greater if is_key => (switch, 2),
                Ordering::Greater => (if key_only { not_present } else { required }, 2),
            }));
        }
    }
    for layer in 0..layers {
        // Its last frame is one picture back, and the frame below is the one before it.
        fields.extend([(1, 1), (u64::from(layers) - 1, 4)]);
        fields.extend((layer > 0 && !key_only).then_some([(1, 1), (0, 4)]).into_iter().flatten());
        fields.push((0, 1));
        fields.extend((layer > 0).then_some([(1, 1), (0, 4)]).into_iter().flatten());
        fields.push((0, 1));
    }
    pack_bits(&fields)
}

/// Packs (value, width) fields from the highest bit on.
pub fn pack_bits(fields: &[(u64, usize)]) -> Vec<u8> {
    let bits = fields.iter().flat_map(|(value, width)| (0..*width).rev().map(move |bit| (value >> bit & 1) as u8));
    let bits: Vec<u8> = bits.collect();
    bits.chunks(8).map(|byte| byte.iter().enumerate().fold(0, |all, (at, bit)| all | bit << (7 - at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(temporal_layers: u8) -> LayerPlan {
        LayerPlan { bitrate: Bitrate::from_kbps(1_000), frames_per_second: 30, temporal_layers, spatial: Spatial::ONE }
    }

    #[test]
    fn what_a_forwarder_reads_is_what_was_meant() {
        for codec in [Codec::Vp8, Codec::H264, Codec::Opus] {
            let bitrate = Bitrate::from_kbps(if codec == Codec::Opus { 48 } else { 1_000 });
            let mut encoder = Encoder::new(codec, 1, 2, LayerPlan { bitrate, ..plan(3) }, Random::new(1));
            for number in 0..40 {
                let frame = encoder.next_frame(number, number == 20);
                for (index, payload) in frame.payloads.iter().enumerate() {
                    let tag = Tag::parse(payload).unwrap();
                    let info = wire::codec::inspect(codec, payload, None);
                    assert_eq!((u64::from(tag.frame), usize::from(tag.index)), (number, index));
                    assert_eq!(info.starts_frame, index == 0, "{codec:?} frame {number} packet {index}");
                    assert!(index > 0 || info.keyframe == frame.keyframe, "{codec:?} frame {number}");
                    if codec == Codec::Vp8 {
                        assert_eq!(info.temporal_id, tag.temporal_id);
                        assert!(info.picture.is_some_and(|numbers| numbers.picture_id.is_some()));
                    }
                }
            }
        }
    }

    #[test]
    fn the_mean_rate_is_the_plan_s() {
        let mut encoder = Encoder::new(Codec::Vp8, 0, 0, plan(1), Random::new(1));
        let bytes: usize =
            (0..300).map(|i| encoder.next_frame(i, false).payloads.iter().map(Vec::len).sum::<usize>()).sum();
        let rate = Bitrate::of(bytes as u64, Duration::from_secs(10));
        assert!((950_000..1_080_000).contains(&rate.bps()), "{rate}");
    }

    #[test]
    fn a_changed_payload_has_no_tag() {
        let mut encoder = Encoder::new(Codec::Vp8, 0, 0, plan(1), Random::new(1));
        let mut payload = encoder.next_frame(0, true).payloads.remove(0);
        let middle = payload.len() - TAG_LEN - 10;
        payload[middle] ^= 1;
        assert_eq!(Tag::parse(&payload), None);
    }
}
