//! Header extensions that viewers get as the publisher sent them.
//!
//! In the log they stand before the payload as `kind, length, value` each, because publisher and viewers number their
//! extensions differently (RFC 8285 §6).

use std::ops::Range;

use wire::rtp::{HeaderWriter, RtpPacket};

use crate::spec::ExtensionIds;

/// Room for the extensions of one packet, in bytes. What does not fit is not passed on.
pub const PASSED_MAX: usize = 256;

/// Which of the negotiated ids each kind has, in the order of the kind's number.
fn passed_ids(ids: &ExtensionIds) -> [Option<u8>; 4] {
    [ids.audio_level, ids.video_orientation, ids.playout_delay, ids.dependency_descriptor]
}

/// The kind of the dependency descriptor.
const DESCRIPTOR: usize = 3;

/// How a publisher's extensions are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The ids that the publisher uses.
    pub ids: ExtensionIds,
    /// What is added to the frame numbers of dependency descriptors; wraps.
    pub frame_shift: u16,
}

/// Gathers what is passed on of a packet from a publisher. Returns the bytes used of `buf`.
pub fn gather(packet: &RtpPacket<'_>, passage: &Passage, buf: &mut [u8; PASSED_MAX]) -> usize {
    let mut used = 0;
    for (id, value) in packet.extensions() {
        let Some(kind) = passed_ids(&passage.ids).iter().position(|passed| *passed == Some(id)) else { continue };
        let Ok(len) = u8::try_from(value.len()) else { continue };
        let Some(place) = buf.get_mut(used..used + 2 + value.len()) else { continue };
        place[0] = kind as u8;
        place[1] = len;
        place[2..].copy_from_slice(value);
        if let (DESCRIPTOR, Some(number)) = (kind, place.get_mut(FRAME_NUMBER)) {
            let shifted = u16::from_be_bytes([number[0], number[1]]).wrapping_add(passage.frame_shift);
            number.copy_from_slice(&shifted.to_be_bytes());
        }
        used += place.len();
    }
    used
}

/// Where the frame number stands in a gathered descriptor: behind kind, length, and the byte with the template's id.
const FRAME_NUMBER: Range<usize> = 3..5;

/// The frame number that was passed on, where there was a descriptor.
pub fn frame_number(gathered: &[u8]) -> Option<u16> {
    let mut rest = gathered;
    while let [kind, len, tail @ ..] = rest {
        if usize::from(*kind) == DESCRIPTOR && usize::from(*len) >= 3 {
            return rest.get(FRAME_NUMBER)?.try_into().ok().map(u16::from_be_bytes);
        }
        rest = tail.get(usize::from(*len)..)?;
    }
    None
}

/// Writes what was gathered into the header of a packet for a viewer with `ids`.
pub fn scatter(gathered: &[u8], ids: &ExtensionIds, header: &mut HeaderWriter<'_>) {
    let mut rest = gathered;
    while let [kind, len, tail @ ..] = rest {
        let Some((value, tail)) = tail.split_at_checked((*len).into()) else { return };
        if let Some(Some(id)) = passed_ids(ids).get(usize::from(*kind)) {
            header.extension(*id, value);
        }
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use wire::Seq;
    use wire::rtp::RtpHeader;

    use super::*;

    #[test]
    fn a_viewer_gets_the_publishers_values_under_its_own_ids() {
        let header = RtpHeader { payload_type: 111, marker: false, seq: Seq(1), timestamp: 2, ssrc: 3 };
        let mut sent = [0; 100];
        let mut writer = HeaderWriter::new(&mut sent, &header).unwrap();
        writer.extension(1, &[0x85]);
        writer.extension(2, &[1, 2, 3]);
        writer.extension(13, &[2]);
        let len = writer.finish();

        let ids = ExtensionIds { audio_level: Some(1), video_orientation: Some(13), ..Default::default() };
        let publisher = Passage { ids, frame_shift: 0 };
        let mut gathered = [0; PASSED_MAX];
        let used = gather(&RtpPacket::parse(&sent[..len]).unwrap(), &publisher, &mut gathered);

        let viewer = ExtensionIds { audio_level: Some(7), ..Default::default() };
        let mut received = [0; 100];
        let mut writer = HeaderWriter::new(&mut received, &header).unwrap();
        scatter(&gathered[..used], &viewer, &mut writer);
        let len = writer.finish();
        let packet = RtpPacket::parse(&received[..len]).unwrap();
        assert_eq!(packet.extensions().collect::<Vec<_>>(), [(7, &[0x85][..])]);
    }

    #[test]
    fn frame_numbers_are_shifted_and_found_again() {
        let header = RtpHeader { payload_type: 45, marker: false, seq: Seq(1), timestamp: 2, ssrc: 3 };
        let ids = ExtensionIds { playout_delay: Some(1), dependency_descriptor: Some(2), ..Default::default() };
        for (descriptor, expected) in
            [(&[0x80, 0xff, 0xfe][..], Some(1)), (&[0xc5, 0, 9, 0x80, 1, 2], Some(12)), (&[0x80, 1], None)]
        {
            let mut sent = [0; 100];
            let mut writer = HeaderWriter::new(&mut sent, &header).unwrap();
            writer.extension(1, &[1, 2, 3]);
            writer.extension(2, descriptor);
            let len = writer.finish();
            let mut gathered = [0; PASSED_MAX];
            let passage = Passage { ids, frame_shift: 3 };
            let used = gather(&RtpPacket::parse(&sent[..len]).unwrap(), &passage, &mut gathered);
            assert_eq!(frame_number(&gathered[..used]), expected, "{descriptor:?}");
        }
        assert_eq!((frame_number(&[]), frame_number(&[3]), frame_number(&[0, 9, 1])), (None, None, None));
    }
}
