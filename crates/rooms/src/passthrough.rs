//! Header extensions that viewers get as the publisher sent them.
//!
//! In the log they stand before the payload as `kind, length, value` each, because publisher and viewers number their
//! extensions differently (RFC 8285 §6).

use wire::rtp::{HeaderWriter, RtpPacket};

use crate::spec::ExtensionIds;

/// Room for the extensions of one packet, in bytes. What does not fit is not passed on.
pub const PASSED_MAX: usize = 256;

/// Which of the negotiated ids each kind has, in the order of the kind's number.
fn passed_ids(ids: &ExtensionIds) -> [Option<u8>; 4] {
    [ids.audio_level, ids.video_orientation, ids.playout_delay, ids.dependency_descriptor]
}

/// Gathers what is passed on of a packet from a publisher with `ids`. Returns the bytes used of `buf`.
pub fn gather(packet: &RtpPacket<'_>, ids: &ExtensionIds, buf: &mut [u8; PASSED_MAX]) -> usize {
    let mut used = 0;
    for (id, value) in packet.extensions() {
        let Some(kind) = passed_ids(ids).iter().position(|passed| *passed == Some(id)) else { continue };
        let Ok(len) = u8::try_from(value.len()) else { continue };
        let Some(place) = buf.get_mut(used..used + 2 + value.len()) else { continue };
        place[0] = kind as u8;
        place[1] = len;
        place[2..].copy_from_slice(value);
        used += place.len();
    }
    used
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

        let publisher = ExtensionIds { audio_level: Some(1), video_orientation: Some(13), ..Default::default() };
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
}
