//! VP9's payload descriptor (RFC 9628 §4.2).
//!
//! A frame here is a picture with all its spatial layers, which share a timestamp: it starts with spatial layer 0.

use super::PayloadInfo;

pub(super) fn inspect(payload: &[u8]) -> PayloadInfo {
    parse(payload).unwrap_or_default()
}

fn parse(payload: &[u8]) -> Option<PayloadInfo> {
    let (&first, mut rest) = payload.split_first()?;
    let [has_picture_id, is_inter, has_layers] = [0x80, 0x40, 0x20].map(|bit| first & bit != 0);
    let begins = first & 0x08 != 0;
    if has_picture_id {
        let width = if rest.first()? & 0x80 != 0 { 2 } else { 1 };
        rest = rest.get(width..)?;
    }
    let layers = if has_layers { *rest.first()? } else { 0 };
    let spatial_id = layers >> 1 & 0x07;
    Some(PayloadInfo {
        starts_frame: begins && spatial_id == 0,
        keyframe: begins && spatial_id == 0 && !is_inter,
        temporal_id: layers >> 5,
        switch_up: layers & 0x10 != 0,
        switch_to: 0,
        vp8: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_indices_follow_the_picture_id() {
        let expected = PayloadInfo {
            starts_frame: true,
            keyframe: false,
            temporal_id: 2,
            switch_up: true,
            switch_to: 0,
            vp8: None,
        };
        assert_eq!(inspect(&[0xe8, 0x81, 0x23, 0x50, 7]), expected);
        assert_eq!(inspect(&[0xe8, 0x01, 0x50, 7]), expected, "short picture id");
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
    fn a_cut_descriptor_says_nothing() {
        for cut in [&[0xa8][..], &[0xa8, 0x81], &[0xa8, 0x81, 0x23], &[0x28]] {
            assert_eq!(inspect(cut), PayloadInfo::default(), "{cut:?}");
        }
    }
}
