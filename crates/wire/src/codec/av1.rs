//! AV1 payloads (RTP Payload Format For AV1 §4.4: aggregation header, §4.5: OBU elements).
//!
//! Limits: without a dependency descriptor a frame is taken to start where a packet starts with a sequence header,
//! metadata or a frame of spatial layer 0. The temporal layer stands in the OBU extension header; a packet with
//! nothing but the continuation of a fragment has none and reads as 0.

use super::{PayloadInfo, UNITS_MAX};

const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const METADATA: u8 = 5;
const FRAME: u8 = 6;

pub(super) fn inspect(payload: &[u8]) -> PayloadInfo {
    let Some((&aggregation, rest)) = payload.split_first() else { return PayloadInfo::default() };
    let continues = aggregation & 0x80 != 0;
    let mut elements = Elements { element_count: aggregation >> 4 & 3, index: 0, rest };
    let first = if continues {
        elements.next();
        None
    } else {
        elements.clone().next().and_then(Obu::parse)
    };
    let layers = elements.take(UNITS_MAX).filter_map(Obu::parse).find_map(|obu| obu.layers);
    let is_base = first.is_some_and(|obu| obu.layers.is_none_or(|layers| layers.spatial_id == 0));
    PayloadInfo {
        starts_frame: is_base && first.is_some_and(|obu| obu.may_start_frame()),
        // N: the packet starts a new coded video sequence.
        keyframe: aggregation & 0x08 != 0,
        temporal_id: layers.map_or(0, |layers| layers.temporal_id),
        ..PayloadInfo::default()
    }
}

/// The OBU elements of a payload, each behind its length, but for the last one where the header counts them.
#[derive(Clone, Debug)]
struct Elements<'a> {
    /// W: 0 when the header does not count them.
    element_count: u8,
    index: u8,
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.index = self.index.saturating_add(1);
        if self.index == self.element_count {
            return Some(std::mem::take(&mut self.rest));
        }
        let (element, rest) = split_leb128(self.rest).and_then(|(len, rest)| rest.split_at_checked(len))?;
        self.rest = rest;
        Some(element)
    }
}

/// Splits a LEB128 number of up to four bytes off the front (AV1 §4.10.5): a datagram holds no longer element.
fn split_leb128(data: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (index, byte) in data.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &data[index + 1..]));
        }
    }
    None
}

/// The header of one OBU (AV1 §5.3.2).
#[derive(Clone, Copy, Debug)]
struct Obu {
    obu_type: u8,
    layers: Option<Layers>,
}

/// The OBU extension header (AV1 §5.3.3).
#[derive(Clone, Copy, Debug)]
struct Layers {
    temporal_id: u8,
    spatial_id: u8,
}

impl Obu {
    fn parse(element: &[u8]) -> Option<Self> {
        let head = *element.first()?;
        let layers = if head & 0x04 != 0 {
            let extension = *element.get(1)?;
            Some(Layers { temporal_id: extension >> 5, spatial_id: extension >> 3 & 3 })
        } else {
            None
        };
        Some(Obu { obu_type: head >> 3 & 0x0f, layers })
    }

    fn may_start_frame(&self) -> bool {
        matches!(self.obu_type, SEQUENCE_HEADER | TEMPORAL_DELIMITER | FRAME_HEADER | METADATA | FRAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_HEAD: u8 = FRAME << 3;
    const SEQUENCE_HEAD: u8 = SEQUENCE_HEADER << 3;

    fn flags(payload: &[u8]) -> (bool, bool) {
        let info = inspect(payload);
        (info.starts_frame, info.keyframe)
    }

    #[test]
    fn a_new_coded_video_sequence_is_a_keyframe() {
        assert_eq!(flags(&[0x28, 2, SEQUENCE_HEAD, 0, FRAME_HEAD, 1]), (true, true));
        assert_eq!(flags(&[0x10, FRAME_HEAD, 1]), (true, false));
    }

    #[test]
    fn a_continuation_does_not_start_a_frame() {
        assert_eq!(flags(&[0x90, FRAME_HEAD, 1]), (false, false));
        assert_eq!(flags(&[0x10, 4 << 3, 1]), (false, false), "tile group");
    }

    #[test]
    fn layers_come_from_the_first_element_that_has_an_extension() {
        assert_eq!(inspect(&[0x20, 1, SEQUENCE_HEAD, FRAME_HEAD | 4, 0x40, 9]).temporal_id, 2);
        assert_eq!(inspect(&[0x00, 1, SEQUENCE_HEAD, 3, FRAME_HEAD | 4, 0x20, 9]).temporal_id, 1, "no count");
        assert_eq!(inspect(&[0xa0, 1, 0xff, FRAME_HEAD | 4, 0x20, 9]).temporal_id, 1, "behind a continuation");
    }

    #[test]
    fn a_higher_spatial_layer_does_not_start_the_picture() {
        assert!(!inspect(&[0x10, FRAME_HEAD | 4, 0x08, 9]).starts_frame);
    }

    #[test]
    fn elements_over_the_end_are_not_read() {
        assert_eq!(flags(&[0x00, 9, FRAME_HEAD]), (false, false));
        assert_eq!(flags(&[0x00, 0xff, 0xff, 0xff, 0xff, 0xff]), (false, false));
        assert_eq!(flags(&[0x10]), (false, false));
    }
}
