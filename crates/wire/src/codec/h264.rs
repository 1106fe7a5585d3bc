//! H.264 payloads (RFC 6184 §5): single units, STAP-A and FU-A, which are all that packetization modes 0 and 1 use.
//!
//! Limits: the payload does not say where an access unit starts. What passes for a start is a delimiter, parameter
//! sets, SEI, or a slice that begins at the first macroblock. An access unit that sends several of these in packets of
//! their own has several "starts", all of one timestamp; the first of them is the real one. Temporal layers are not
//! read, as plain H.264 does not carry them.

use super::{PayloadInfo, units};

const SLICE: u8 = 1;
const SLICE_PARTITION_A: u8 = 2;
const SLICE_IDR: u8 = 5;
const SEI: u8 = 6;
const SPS: u8 = 7;
const PPS: u8 = 8;
const DELIMITER: u8 = 9;
const STAP_A: u8 = 24;
const FU_A: u8 = 28;

pub(super) fn inspect(payload: &[u8]) -> PayloadInfo {
    match *payload {
        [head, ref rest @ ..] if head & 0x1f == STAP_A => inspect_stap_a(rest),
        // The fragment's header: start bit, end bit, type; behind the start's stands what follows the unit's header.
        [head, fragment, ref rest @ ..] if head & 0x1f == FU_A => {
            let unit_type = fragment & 0x1f;
            info(fragment & 0x80 != 0 && starts(unit_type, rest), is_key(unit_type))
        }
        [head, ref rest @ ..] => info(starts(head & 0x1f, rest), is_key(head & 0x1f)),
        [] => PayloadInfo::default(),
    }
}

fn inspect_stap_a(rest: &[u8]) -> PayloadInfo {
    let mut starts_frame = false;
    let mut keyframe = false;
    for (index, unit) in units(rest).enumerate() {
        if let Some((head, body)) = unit.split_first() {
            starts_frame |= index == 0 && starts(head & 0x1f, body);
            keyframe |= is_key(head & 0x1f);
        }
    }
    info(starts_frame, keyframe)
}

fn info(starts_frame: bool, keyframe: bool) -> PayloadInfo {
    PayloadInfo { starts_frame, keyframe, ..PayloadInfo::default() }
}

/// Whether a unit of this type, with these bytes behind its header, may be the first of an access unit.
fn starts(unit_type: u8, body: &[u8]) -> bool {
    match unit_type {
        SEI | SPS | PPS | DELIMITER => true,
        // A slice header begins with first_mb_in_slice in Exp-Golomb code, in which 0 is a single set bit.
        SLICE | SLICE_PARTITION_A | SLICE_IDR => body.first().is_some_and(|byte| byte & 0x80 != 0),
        _ => false,
    }
}

fn is_key(unit_type: u8) -> bool {
    matches!(unit_type, SLICE_IDR | SPS)
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
        assert_eq!(flags(&[0x67, 1, 2]), (true, true), "SPS");
        assert_eq!(flags(&[0x68, 1]), (true, false), "PPS");
        assert_eq!(flags(&[0x65, 0x88]), (true, true), "IDR, first macroblock");
        assert_eq!(flags(&[0x65, 0x40]), (false, true), "IDR, later slice");
        assert_eq!(flags(&[0x41, 0x9a]), (true, false), "P slice");
        assert_eq!(flags(&[0x41, 0x20]), (false, false), "later P slice");
        assert_eq!(flags(&[0x09, 0x10]), (true, false), "delimiter");
    }

    #[test]
    fn an_aggregate_starts_with_its_first_unit_and_is_key_by_any() {
        assert_eq!(flags(&[0x78, 0, 2, 0x09, 0x10, 0, 2, 0x67, 1, 0, 1, 0x68]), (true, true));
        assert_eq!(flags(&[0x78, 0, 2, 0x41, 0x20, 0, 2, 0x41, 0x9a]), (false, false));
        assert_eq!(flags(&[0x78, 0, 9, 0x67]), (false, false), "cut");
    }

    #[test]
    fn only_the_first_fragment_starts_a_frame() {
        assert_eq!(flags(&[0x7c, 0x85, 0x88]), (true, true));
        assert_eq!(flags(&[0x7c, 0x05, 0x88]), (false, true));
        assert_eq!(flags(&[0x7c, 0x81, 0x9a]), (true, false));
        assert_eq!(flags(&[0x7c, 0x85]), (false, true), "no slice header");
        assert_eq!(flags(&[0x7c]), (false, false));
    }
}
