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
fn passed_ids(ids: &ExtensionIds) -> [Option<u8>; 7] {
    let of_video = [ids.video_orientation, ids.playout_delay, ids.dependency_descriptor];
    let [orientation, delay, descriptor] = of_video;
    [ids.audio_level, orientation, delay, descriptor, ids.abs_capture_time, ids.color_space, ids.video_content_type]
}

const PLAYOUT_DELAY: usize = 2;
const DESCRIPTOR: usize = 3;
const CAPTURE_TIME: usize = 4;

/// Bytes of a capture time; the offset of its clock may follow, and takes as many.
const CAPTURE_TIME_LEN: usize = 8;

/// How a publisher's extensions are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The ids that the publisher uses.
    pub ids: ExtensionIds,
    /// What is added to the frame numbers of dependency descriptors; wraps.
    pub frame_shift: u16,
    /// Our NTP time less the publisher's, where known: our reports are by our clock, so the offset of the capturing clock
    /// is told from ours.
    pub ntp_offset: Option<u64>,
    /// What viewers get for a playout delay, instead of what the publisher says.
    pub playout_delay: Option<[u8; 3]>,
}

/// Gathers what is passed on of a packet from a publisher. Returns the bytes used of `buf`.
pub fn gather(packet: &RtpPacket<'_>, passage: &Passage, buf: &mut [u8; PASSED_MAX]) -> usize {
    let mut used = 0;
    if let Some(delay) = passage.playout_delay {
        buf[..5].copy_from_slice(&[PLAYOUT_DELAY as u8, 3, delay[0], delay[1], delay[2]]);
        used = 5;
    }
    let ids = passed_ids(&passage.ids);
    for (id, value) in packet.extensions() {
        let Some(kind) = ids.iter().position(|passed| *passed == Some(id)) else { continue };
        if kind == PLAYOUT_DELAY && passage.playout_delay.is_some() {
            continue;
        }
        let offset =
            value.get(CAPTURE_TIME_LEN..).and_then(|offset| offset.first_chunk()).filter(|_| kind == CAPTURE_TIME);
        let offset =
            offset.zip(passage.ntp_offset).map(|(offset, ours)| u64::from_be_bytes(*offset).wrapping_sub(ours));
        // An offset from a clock that the viewer does not know says nothing.
        let is_cut = kind == CAPTURE_TIME && offset.is_none() && value.len() > CAPTURE_TIME_LEN;
        let value = if is_cut { &value[..CAPTURE_TIME_LEN] } else { value };
        let Ok(len) = u8::try_from(value.len()) else { continue };
        let Some(place) = buf.get_mut(used..used + 2 + value.len()) else { continue };
        place[0] = kind as u8;
        place[1] = len;
        place[2..].copy_from_slice(value);
        if let (DESCRIPTOR, Some(number)) = (kind, place.get_mut(FRAME_NUMBER)) {
            let shifted = u16::from_be_bytes([number[0], number[1]]).wrapping_add(passage.frame_shift);
            number.copy_from_slice(&shifted.to_be_bytes());
        }
        if let (Some(offset), Some(behind)) = (offset, place.get_mut(2 + CAPTURE_TIME_LEN..)) {
            behind[..8].copy_from_slice(&offset.to_be_bytes());
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
    let ids = passed_ids(ids);
    while let [kind, len, tail @ ..] = rest {
        let Some((value, tail)) = tail.split_at_checked((*len).into()) else { return };
        if let Some(Some(id)) = ids.get(usize::from(*kind)) {
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
        let publisher = Passage { ids, frame_shift: 0, ntp_offset: None, playout_delay: None };
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
    fn capture_times_pass_with_the_offset_from_our_clock_or_none() {
        let header = RtpHeader { payload_type: 111, marker: false, seq: Seq(1), timestamp: 2, ssrc: 3 };
        let ids = ExtensionIds { abs_capture_time: Some(1), ..Default::default() };
        let captured = [1, 2, 3, 4, 5, 6, 7, 8];
        let with = |offset: u64| [&captured[..], &offset.to_be_bytes()].concat();
        for (value, ntp_offset, expected) in [
            (captured.to_vec(), Some(5), captured.to_vec()),
            (with(7), Some(5), with(2)),
            (with(7), Some(9), with(2_u64.wrapping_neg())),
            (with(7), None, captured.to_vec()),
        ] {
            let mut sent = [0; 100];
            let mut writer = HeaderWriter::new(&mut sent, &header).unwrap();
            writer.extension(1, &value);
            let len = writer.finish();
            let mut gathered = [0; PASSED_MAX];
            let passage = Passage { ids, frame_shift: 0, ntp_offset, playout_delay: None };
            let used = gather(&RtpPacket::parse(&sent[..len]).unwrap(), &passage, &mut gathered);
            assert_eq!(gathered[2..used], expected);
        }
    }

    #[test]
    fn what_says_how_a_picture_is_to_be_shown_passes_as_it_came() {
        let header = RtpHeader { payload_type: 96, marker: true, seq: Seq(1), timestamp: 2, ssrc: 3 };
        let ids = |first: u8| ExtensionIds {
            video_orientation: Some(first),
            color_space: Some(first + 1),
            video_content_type: Some(first + 2),
            ..Default::default()
        };
        // Primaries, transfer, matrix and range; HDR metadata makes 28 bytes of it, for which the two-byte form is.
        for color_space in [&[9, 16, 9, 1][..], &[7; 28]] {
            let mut sent = [0; 100];
            let mut writer = HeaderWriter::new(&mut sent, &header).unwrap();
            for (id, value) in [(4, &[2][..]), (5, color_space), (6, &[1])] {
                assert!(writer.extension(id, value));
            }
            let len = writer.finish();
            let passage = Passage { ids: ids(4), frame_shift: 0, ntp_offset: Some(5), playout_delay: None };
            let mut gathered = [0; PASSED_MAX];
            let used = gather(&RtpPacket::parse(&sent[..len]).unwrap(), &passage, &mut gathered);
            let mut received = [0; 100];
            let mut writer = HeaderWriter::new(&mut received, &header).unwrap();
            scatter(&gathered[..used], &ids(11), &mut writer);
            let len = writer.finish();
            let packet = RtpPacket::parse(&received[..len]).unwrap();
            let expected = [(11, &[2][..]), (12, color_space), (13, &[1])];
            assert_eq!(packet.extensions().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn the_operator_s_playout_delay_stands_for_the_publisher_s() {
        let header = RtpHeader { payload_type: 96, marker: false, seq: Seq(1), timestamp: 2, ssrc: 3 };
        let ids = ExtensionIds { playout_delay: Some(1), color_space: Some(2), ..Default::default() };
        let mut sent = [0; 100];
        let mut writer = HeaderWriter::new(&mut sent, &header).unwrap();
        writer.extension(1, &[1, 2, 3]);
        writer.extension(2, &[9; 4]);
        let len = writer.finish();
        let packet = RtpPacket::parse(&sent[..len]).unwrap();
        for (playout_delay, expected) in [(None, [1, 2, 3]), (Some([7, 8, 9]), [7, 8, 9])] {
            let mut gathered = [0; PASSED_MAX];
            let passage = Passage { ids, frame_shift: 0, ntp_offset: None, playout_delay };
            let used = gather(&packet, &passage, &mut gathered);
            let mut received = [0; 100];
            let mut writer = HeaderWriter::new(&mut received, &header).unwrap();
            scatter(&gathered[..used], &ids, &mut writer);
            let len = writer.finish();
            let packet = RtpPacket::parse(&received[..len]).unwrap();
            assert_eq!(packet.extensions().collect::<Vec<_>>(), [(1, &expected[..]), (2, &[9; 4])]);
        }
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
            let passage = Passage { ids, frame_shift: 3, ntp_offset: None, playout_delay: None };
            let used = gather(&RtpPacket::parse(&sent[..len]).unwrap(), &passage, &mut gathered);
            assert_eq!(frame_number(&gathered[..used]), expected, "{descriptor:?}");
        }
        assert_eq!((frame_number(&[]), frame_number(&[3]), frame_number(&[0, 9, 1])), (None, None, None));
    }
}
