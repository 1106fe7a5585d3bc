//! The layers of packets whose own header does not name them: their dependency descriptors do.
//!
//! In: packets of one SSRC as they arrive. Structures come with keyframes, and each holds until the next.
//! Out: `PayloadInfo` with layers and switching points. Without the structure that a packet belongs to it stays
//! as the payload says, so that more is forwarded rather than less.
//! Cost: a table look-up per packet; 1.1 KB per layer with descriptors, allocated once.
//! Source: RTP Payload Format For AV1, appendix A.

use wire::codec::dependency::{Descriptor, Structure};
use wire::codec::{self, Codec, PayloadInfo};

/// What the descriptors of one SSRC have said so far.
#[derive(Debug, Default)]
pub struct Layers {
    /// Boxed, since most sources have none.
    structure: Option<Box<Structure>>,
    /// The packet that brought the structure.
    since: u64,
    unknown: u64,
}

impl Layers {
    /// Reads the payload header and the descriptor of the packet with the extended number `seq`.
    pub fn inspect(&mut self, codec: Codec, seq: u64, payload: &[u8], descriptor: Option<&[u8]>) -> PayloadInfo {
        let info = codec::inspect(codec, payload, descriptor);
        let Some(value) = descriptor.filter(|_| is_silent(codec) && !payload.is_empty()) else { return info };
        self.learn(seq, value);
        let layer = self.structure.as_ref().and_then(|structure| structure.layer(value));
        let Some((layer, descriptor)) = layer.zip(Descriptor::parse(value)) else {
            self.unknown += 1;
            return info;
        };
        PayloadInfo {
            spatial_id: layer.spatial_id,
            ends_layer: descriptor.end_of_frame,
            // The frames of higher spatial layers belong to the picture that the lowest has begun.
            starts_frame: info.starts_frame && layer.spatial_id == 0,
            temporal_id: layer.temporal_id,
            switch_to: layer.switch_to,
            ..info
        }
    }

    /// Packets whose descriptor was broken, or named a template that no structure at hand has.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Takes the structure that is attached, unless a packet of an older keyframe brings it late. One that cannot be read
    /// ends the one before all the same, which is another sequence's.
    fn learn(&mut self, seq: u64, value: &[u8]) {
        if seq < self.since || !Descriptor::parse(value).is_some_and(|descriptor| descriptor.has_structure) {
            return;
        }
        self.since = seq;
        match (Structure::parse(value), &mut self.structure) {
            (Some(new), Some(place)) => **place = new,
            (new, place) => *place = new.map(Box::new),
        }
    }
}

/// Whether the codec's own header leaves the temporal layer open: H.264's always does, and AV1's as a rule.
fn is_silent(codec: Codec) -> bool {
    match codec {
        Codec::Av1 | Codec::H264 => true,
        Codec::Opus | Codec::Pcmu | Codec::Pcma | Codec::Vp8 | Codec::Vp9 | Codec::H265 => false,
    }
}

#[cfg(test)]
mod tests {
    use sim::media::{Spatial, l1t3, pack_bits, svc_structure};

    use super::*;

    /// A keyframe's descriptor: template ids from `offset` on.
    fn keyframe(offset: u8) -> Vec<u8> {
        [&[0x80 | offset, 0, 7][..], &l1t3(offset)].concat()
    }

    fn frame(template_id: u8) -> Vec<u8> {
        vec![0x80 | template_id & 0x3f, 0, 8]
    }

    /// An AV1 payload that says nothing of layers.
    const PAYLOAD: [u8; 3] = [0x10, 0x30, 1];

    fn inspect(layers: &mut Layers, seq: u64, descriptor: &[u8]) -> (u8, u8) {
        let info = layers.inspect(Codec::Av1, seq, &PAYLOAD, Some(descriptor));
        (info.temporal_id, info.switch_to)
    }

    #[test]
    fn layers_come_from_the_last_structure() {
        let mut layers = Layers::default();
        assert_eq!(inspect(&mut layers, 1, &keyframe(60)), (0, 0b111));
        assert!(layers.inspect(Codec::Av1, 1, &PAYLOAD, Some(&keyframe(60))).keyframe);
        for (template, layer) in [(61, (0, 0b111)), (62, (1, 0b100)), (63, (2, 0))] {
            assert_eq!(inspect(&mut layers, 2, &frame(template)), layer, "template {template}");
        }
        assert_eq!(inspect(&mut layers, 3, &keyframe(0)), (0, 0b111));
        assert_eq!(inspect(&mut layers, 4, &frame(3)), (2, 0));
        assert_eq!(layers.unknown(), 0);
        assert_eq!(layers.inspect(Codec::H264, 5, &[0x41, 0x9a], Some(&frame(2))).temporal_id, 1);
    }

    #[test]
    fn without_its_structure_a_packet_is_counted_and_stays_as_its_payload_says() {
        let mut layers = Layers::default();
        assert_eq!(inspect(&mut layers, 1, &frame(2)), (0, 0), "none came yet");
        let with_obu_layer = [0x10, 0x34, 0x40, 1];
        assert_eq!(layers.inspect(Codec::Av1, 2, &with_obu_layer, Some(&frame(2))).temporal_id, 2);
        inspect(&mut layers, 3, &keyframe(0));
        assert_eq!(inspect(&mut layers, 4, &frame(4)), (0, 0), "a template beyond the last");
        assert_eq!(inspect(&mut layers, 4, &frame(63)), (0, 0), "a template before the first");
        assert_eq!(inspect(&mut layers, 5, &[0x82]), (0, 0), "a cut descriptor");
        assert_eq!(inspect(&mut layers, 5, &[]), (0, 0));
        assert_eq!(layers.unknown(), 6);
    }

    #[test]
    fn a_structure_that_comes_late_changes_nothing() {
        let mut layers = Layers::default();
        inspect(&mut layers, 10, &keyframe(8));
        inspect(&mut layers, 5, &keyframe(0));
        assert_eq!(inspect(&mut layers, 11, &frame(11)), (2, 0));
        assert_eq!(layers.unknown(), 1, "the late keyframe itself");
    }

    #[test]
    fn a_broken_structure_ends_the_one_before() {
        let mut layers = Layers::default();
        inspect(&mut layers, 1, &keyframe(0));
        inspect(&mut layers, 2, &keyframe(0)[..6]);
        assert_eq!(inspect(&mut layers, 3, &frame(3)), (0, 0));
        assert_eq!(layers.unknown(), 2);
        inspect(&mut layers, 4, &keyframe(0));
        assert_eq!(inspect(&mut layers, 5, &frame(3)), (2, 0));
    }

    #[test]
    fn codecs_that_name_their_layers_and_packets_without_descriptors_are_left_alone() {
        let mut layers = Layers::default();
        inspect(&mut layers, 1, &keyframe(0));
        for codec in [Codec::Opus, Codec::Vp8, Codec::Vp9, Codec::H265] {
            let payload = [0x10; 4];
            let info = layers.inspect(codec, 2, &payload, Some(&frame(3)));
            assert_eq!(info, codec::inspect(codec, &payload, Some(&frame(3))));
        }
        assert_eq!(layers.inspect(Codec::Av1, 2, &PAYLOAD, None), codec::inspect(Codec::Av1, &PAYLOAD, None));
        assert_eq!(layers.inspect(Codec::Av1, 2, &[], Some(&frame(3))), PayloadInfo::default(), "padding");
        assert_eq!(layers.unknown(), 0);
    }

    #[test]
    fn the_frames_of_higher_spatial_layers_start_no_picture() {
        let mut layers = Layers::default();
        let structure = pack_bits(&[
            (0b10, 2),
            (0, 6),
            (7, 16),
            (0b10000, 5),
            (0, 6),
            (1, 5),
            (2, 2),
            (3, 2),
            (0b10_10, 4),
            (0b00_10, 4),
        ]);
        assert!(layers.inspect(Codec::Av1, 1, &PAYLOAD, Some(&structure)).starts_frame);
        assert!(!layers.inspect(Codec::Av1, 2, &PAYLOAD, Some(&frame(1))).starts_frame);
    }

    #[test]
    fn packets_know_their_spatial_layer_and_where_its_frame_ends() {
        let mut layers = Layers::default();
        let structure = svc_structure(Spatial { layers: 3, key_only: true });
        let mut inspect = |first: u8, rest: &[u8]| {
            let info = layers.inspect(Codec::Av1, 1, &PAYLOAD, Some(&[&[first, 0, 7], rest].concat()));
            (info.spatial_id, info.ends_layer, info.starts_frame)
        };
        // Of each layer template 2 s is that of its frames, and the one behind it that of its keyframes.
        assert_eq!(inspect(0x81, &structure), (0, false, true));
        assert_eq!(inspect(0x41, &[]), (0, true, false));
        assert_eq!(inspect(0xc3, &[]), (1, true, false));
        assert_eq!(inspect(0xc4, &[]), (2, true, false));
    }
}
