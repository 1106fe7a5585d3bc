//! VP8's payload descriptor (RFC 7741 §4.2).

use super::{NumberPlaces, PayloadInfo};

/// The descriptor's fields, and where those stand that a forwarder changes.
#[derive(Clone, Copy, Debug, Default)]
struct Descriptor {
    starts_partition: bool,
    partition: u8,
    numbers: NumberPlaces,
    temporal_id: u8,
    layer_sync: bool,
    len: usize,
}

impl Descriptor {
    fn parse(payload: &[u8]) -> Option<Self> {
        let first = *payload.first()?;
        let mut descriptor = Descriptor {
            starts_partition: first & 0x10 != 0,
            partition: first & 0x07,
            len: 1,
            ..Descriptor::default()
        };
        if first & 0x80 == 0 {
            return Some(descriptor);
        }
        let present = *payload.get(1)?;
        let mut at = 2;
        if present & 0x80 != 0 {
            let width = if payload.get(at)? & 0x80 != 0 { 2 } else { 1 };
            descriptor.numbers.picture_id = Some((at, width));
            at += width;
        }
        if present & 0x40 != 0 {
            descriptor.numbers.tl0_pic_idx = Some(at);
            at += 1;
        }
        if present & 0x30 != 0 {
            let layer = *payload.get(at)?;
            if present & 0x20 != 0 {
                descriptor.temporal_id = layer >> 6;
                descriptor.layer_sync = layer & 0x20 != 0;
            }
            at += 1;
        }
        descriptor.len = at;
        (at <= payload.len()).then_some(descriptor)
    }
}

pub(super) fn inspect(payload: &[u8]) -> PayloadInfo {
    let Some(descriptor) = Descriptor::parse(payload) else { return PayloadInfo::default() };
    let starts_frame = descriptor.starts_partition && descriptor.partition == 0;
    // The P bit of the frame header is 0 in keyframes (RFC 6386 §9.1).
    let is_key = payload.get(descriptor.len).is_some_and(|byte| byte & 1 == 0);
    PayloadInfo {
        starts_frame,
        keyframe: starts_frame && is_key,
        temporal_id: descriptor.temporal_id,
        switch_up: descriptor.layer_sync,
        picture: Some(descriptor.numbers.read(payload, false)),
        ..PayloadInfo::default()
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

    fn rewrite(payload: &mut [u8], picture_id: Option<u16>, tl0_pic_idx: Option<u8>) {
        super::super::rewrite(Codec::Vp8, payload, picture_id, tl0_pic_idx);
    }

    /// Start of the first partition; picture id 0x1234, TL0PICIDX 9, TID 2 with Y; an inter frame.
    const LAYERED: [u8; 7] = [0x90, 0xe0, 0x92, 0x34, 9, 0xa0, 0x01];

    #[test]
    fn every_field_of_the_descriptor_is_read() {
        let numbers =
            PictureNumbers { picture_id: Some(0x1234), long_picture_id: true, keeps_gaps: false, tl0_pic_idx: Some(9) };
        let expected = PayloadInfo {
            starts_frame: true,
            keyframe: false,
            temporal_id: 2,
            switch_up: true,
            switch_to: 0,
            picture: Some(numbers),
            ..PayloadInfo::default()
        };
        assert_eq!(inspect(&LAYERED), expected);
    }

    #[test]
    fn a_keyframe_starts_partition_0_with_the_p_bit_clear() {
        assert!(inspect(&[0x10, 0x00]).keyframe);
        assert!(!inspect(&[0x10, 0x01]).keyframe, "inter frame");
        assert!(!inspect(&[0x00, 0x00]).keyframe, "continuation");
        assert!(!inspect(&[0x11, 0x00]).starts_frame, "second partition");
        assert!(!inspect(&[0x10]).keyframe, "no frame header");
    }

    #[test]
    fn tid_counts_only_with_its_bit() {
        let key_idx_only = inspect(&[0x90, 0x10, 0xff, 0x01]);
        assert_eq!((key_idx_only.temporal_id, key_idx_only.switch_up), (0, false));
    }

    #[test]
    fn a_cut_descriptor_says_nothing() {
        for len in 1..6 {
            assert_eq!(inspect(&LAYERED[..len]), PayloadInfo::default(), "{len}");
        }
    }

    #[test]
    fn numbers_are_rewritten_in_their_own_width() {
        let mut long = LAYERED;
        rewrite(&mut long, Some(0xffff), Some(200));
        assert_eq!(long, [0x90, 0xe0, 0xff, 0xff, 200, 0xa0, 0x01]);
        let mut short = [0x90, 0x80, 0x05, 0x01];
        rewrite(&mut short, Some(0x1ff), Some(200));
        assert_eq!(short, [0x90, 0x80, 0x7f, 0x01]);
        let mut bare = [0x10, 0x01];
        rewrite(&mut bare, Some(1), Some(1));
        assert_eq!(bare, [0x10, 0x01]);
    }
}
