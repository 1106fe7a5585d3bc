//! H.265 payloads (RFC 7798 §4.4): single units, aggregation packets, fragmentation units, without DONL fields
//! (`sprop-max-don-diff` 0, as in WebRTC).
//!
//! Limits: as with H.264, an access unit that sends its parameter sets in packets of their own has several "starts",
//! all of one timestamp; the first of them is the real one.

use super::{PayloadInfo, units};

/// Temporal and stepwise temporal sub-layer access: from here on, higher sub-layers can be decoded.
const SUBLAYER_ACCESS: std::ops::RangeInclusive<u8> = 2..=5;
/// Random access pictures: BLA, IDR, CRA.
const RANDOM_ACCESS: std::ops::RangeInclusive<u8> = 16..=21;
/// The types below this are slices.
const VPS: u8 = 32;
const SPS: u8 = 33;
const PPS: u8 = 34;
const DELIMITER: u8 = 35;
const SEI_PREFIX: u8 = 39;
const AGGREGATION: u8 = 48;
const FRAGMENTATION: u8 = 49;

pub(super) fn inspect(payload: &[u8]) -> PayloadInfo {
    let Some((&[high, low], body)) = payload.split_first_chunk() else { return PayloadInfo::default() };
    let temporal_id = (low & 0x07).saturating_sub(1);
    let info = match unit_type(high) {
        AGGREGATION => inspect_aggregation(body),
        FRAGMENTATION => match body.split_first() {
            Some((head, rest)) => info(head & 0x3f, head & 0x80 != 0, rest),
            None => PayloadInfo::default(),
        },
        single => info(single, true, body),
    };
    PayloadInfo { temporal_id, ..info }
}

fn inspect_aggregation(rest: &[u8]) -> PayloadInfo {
    let mut all = PayloadInfo::default();
    for (index, unit) in units(rest).enumerate() {
        if let Some((&[high, _], body)) = unit.split_first_chunk() {
            let one = info(unit_type(high), index == 0, body);
            all.starts_frame |= one.starts_frame;
            all.keyframe |= one.keyframe;
            all.switch_up |= one.switch_up;
        }
    }
    all
}

fn unit_type(high: u8) -> u8 {
    high >> 1 & 0x3f
}

/// What one unit says; `is_first` when its beginning stands first in the packet.
fn info(unit_type: u8, is_first: bool, body: &[u8]) -> PayloadInfo {
    let may_start = match unit_type {
        VPS | SPS | PPS | DELIMITER | SEI_PREFIX => true,
        // A slice header begins with first_slice_segment_in_pic_flag.
        ..VPS => body.first().is_some_and(|byte| byte & 0x80 != 0),
        _ => false,
    };
    PayloadInfo {
        starts_frame: is_first && may_start,
        keyframe: RANDOM_ACCESS.contains(&unit_type) || matches!(unit_type, VPS | SPS),
        switch_up: SUBLAYER_ACCESS.contains(&unit_type),
        ..PayloadInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(payload: &[u8]) -> (bool, bool) {
        let info = inspect(payload);
        (info.starts_frame, info.keyframe)
    }

    #[test]
    fn single_units_are_told_by_their_type() {
        assert_eq!(flags(&[32 << 1, 1, 0]), (true, true), "VPS");
        assert_eq!(flags(&[34 << 1, 1, 0]), (true, false), "PPS");
        assert_eq!(flags(&[19 << 1, 1, 0x80]), (true, true), "IDR");
        assert_eq!(flags(&[21 << 1, 1, 0x00]), (false, true), "later slice of a CRA");
        assert_eq!(flags(&[1 << 1, 1, 0x80]), (true, false), "trailing picture");
        assert_eq!(flags(&[40 << 1, 1, 0x80]), (false, false), "SEI suffix");
    }

    #[test]
    fn the_temporal_id_is_one_less_than_the_header_says() {
        let access = inspect(&[3 << 1, 3, 0x80]);
        assert_eq!((access.temporal_id, access.switch_up), (2, true));
        let forbidden_zero = inspect(&[1 << 1, 0, 0x80]);
        assert_eq!((forbidden_zero.temporal_id, forbidden_zero.switch_up), (0, false));
    }

    #[test]
    fn an_aggregate_starts_with_its_first_unit_and_is_key_by_any() {
        assert_eq!(flags(&[48 << 1, 1, 0, 3, 35 << 1, 1, 0, 0, 3, 33 << 1, 1, 0]), (true, true));
        assert_eq!(flags(&[48 << 1, 1, 0, 3, 1 << 1, 1, 0, 0, 3, 1 << 1, 1, 0x80]), (false, false));
        assert_eq!(flags(&[48 << 1, 1, 0, 9, 33 << 1]), (false, false), "cut");
    }

    #[test]
    fn only_the_first_fragment_starts_a_frame() {
        assert_eq!(flags(&[49 << 1, 1, 0x80 | 19, 0x80]), (true, true));
        assert_eq!(flags(&[49 << 1, 1, 19, 0x80]), (false, true));
        assert_eq!(flags(&[49 << 1, 1]), (false, false));
        assert_eq!(flags(&[49 << 1]), (false, false));
        assert!(inspect(&[49 << 1, 2, 0x80 | 4, 0x80]).switch_up);
    }
}
