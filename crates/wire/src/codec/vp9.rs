//! VP9's payload descriptor (RFC 9628 §4.2).
//!
//! A frame here is a picture with all its spatial layers, which share a timestamp: it starts with spatial layer 0.

use super::{NumberPlaces, PayloadInfo};

/// The descriptor's fields, as far as a forwarder reads them.
struct Descriptor {
    first: u8,
    numbers: NumberPlaces,
    /// TID, U, SID and D; 0 without layers.
    layers: u8,
}

impl Descriptor {
    fn parse(payload: &[u8]) -> Option<Self> {
        let first = *payload.first()?;
        let [has_picture_id, has_layers, is_flexible] = [0x80, 0x20, 0x10].map(|bit| first & bit != 0);
        let mut descriptor = Descriptor { first, numbers: NumberPlaces::default(), layers: 0 };
        let mut at = 1;
        if has_picture_id {
            let width = if payload.get(at)? & 0x80 != 0 { 2 } else { 1 };
            descriptor.numbers.picture_id = Some((at, width));
            at += width;
        }
        if has_layers {
            descriptor.layers = *payload.get(at)?;
            at += 1;
            if !is_flexible {
                descriptor.numbers.tl0_pic_idx = Some(at);
                at += 1;
            }
        }
        (at <= payload.len()).then_some(descriptor)
    }
}

pub(super) fn inspect(payload: &[u8]) -> PayloadInfo {
    let Some(Descriptor { first, numbers, layers }) = Descriptor::parse(payload) else { return PayloadInfo::default() };
    let (is_inter, begins) = (first & 0x40 != 0, first & 0x08 != 0);
    let spatial_id = layers >> 1 & 0x07;
    PayloadInfo {
        starts_frame: begins && spatial_id == 0,
        keyframe: begins && spatial_id == 0 && !is_inter,
        temporal_id: layers >> 5,
        switch_up: layers & 0x10 != 0,
        switch_to: 0,
        spatial_id,
        ends_layer: first & 0x04 != 0,
        picture: Some(numbers.read(payload, true)),
    }
}

/// Where the running numbers stand.
pub(super) fn places(payload: &[u8]) -> Option<NumberPlaces> {
    Descriptor::parse(payload).map(|descriptor| descriptor.numbers)
}

#[cfg(test)]
mod tests {
    use super::super::{Codec, PictureNumbers};
    use super::*;

    #[test]
    fn layer_indices_follow_the_picture_id() {
        let numbers = |picture_id, long_picture_id| PictureNumbers {
            picture_id: Some(picture_id),
            long_picture_id,
            keeps_gaps: true,
            tl0_pic_idx: Some(7),
        };
        let expected = |numbers| PayloadInfo {
            starts_frame: true,
            keyframe: false,
            temporal_id: 2,
            switch_up: true,
            picture: Some(numbers),
            ..PayloadInfo::default()
        };
        assert_eq!(inspect(&[0xe8, 0x81, 0x23, 0x50, 7]), expected(numbers(0x123, true)));
        assert_eq!(inspect(&[0xe8, 0x01, 0x50, 7]), expected(numbers(1, false)), "short picture id");
    }

    #[test]
    fn numbers_are_rewritten_in_their_own_width() {
        for (before, after) in [
            (&[0xe8, 0x81, 0x23, 0x50, 7, 1][..], &[0xe8, 0xff, 0xff, 0x50, 200, 1][..]),
            (&[0xe8, 0x01, 0x50, 7, 1], &[0xe8, 0x7f, 0x50, 200, 1]),
            (&[0xf8, 0x01, 0x50, 7, 1], &[0xf8, 0x7f, 0x50, 7, 1]),
            (&[0x88, 0x01, 7, 1], &[0x88, 0x7f, 7, 1]),
            (&[0x08, 7, 1], &[0x08, 7, 1]),
        ] {
            let mut payload = before.to_vec();
            super::super::rewrite(Codec::Vp9, &mut payload, Some(0x7fff), Some(200));
            assert_eq!(payload, after);
        }
    }

    #[test]
    fn a_keyframe_begins_on_spatial_layer_0_without_prediction() {
        assert!(inspect(&[0x08, 0]).keyframe);
        assert!(!inspect(&[0x48, 0]).keyframe, "inter picture");
        assert!(!inspect(&[0x00, 0]).keyframe, "continuation");
        let upper_layer = inspect(&[0x28, 0x02, 0]);
        assert!(!upper_layer.keyframe && !upper_layer.starts_frame);
    }

    #[test]
    fn spatial_layers_have_an_end_each() {
        let info = |first, layers| {
            let PayloadInfo { spatial_id, ends_layer, .. } = inspect(&[first, layers, 0, 1]);
            (spatial_id, ends_layer)
        };
        assert_eq!(info(0x28, 0x03), (1, false));
        assert_eq!(info(0x24, 0x05), (2, true));
        assert_eq!(info(0x2c, 0x00), (0, true));
    }

    #[test]
    fn a_cut_descriptor_says_nothing() {
        for cut in [&[0xa8][..], &[0xa8, 0x81], &[0xa8, 0x81, 0x23], &[0x28]] {
            assert_eq!(inspect(cut), PayloadInfo::default(), "{cut:?}");
        }
    }
}
