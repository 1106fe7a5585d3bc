//! Writes packets, and changes single fields of finished ones in place.
//!
//! In: a packet's 188 bytes. Out: the same bytes with one field changed, or a packet built from its parts.
//! Cost: a few bytes stored; no allocation.

use super::adaptation::{DISCONTINUITY, PCR, RANDOM_ACCESS};
use super::{PACKET_LEN, Packet, Pcr, Pid, SYNC_BYTE};

/// Header fields of a packet to write (§2.4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSpec {
    /// Its PID.
    pub pid: Pid,
    /// A PES packet or a section begins in it.
    pub payload_unit_start: bool,
    /// 4 bits.
    pub continuity: u8,
}

/// Adaptation field of a packet to write (§2.4.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptationSpec {
    /// The continuity counter may jump here; with a PCR, so does the time base.
    pub discontinuity: bool,
    /// A decoder may begin with the next PES packet.
    pub random_access: bool,
    /// The program's clock.
    pub pcr: Option<Pcr>,
}

impl AdaptationSpec {
    /// Bytes that the fields take behind the length byte; 0 when there are none.
    fn len(&self) -> usize {
        match self {
            AdaptationSpec { discontinuity: false, random_access: false, pcr: None } => 0,
            _ => 1 + 6 * usize::from(self.pcr.is_some()),
        }
    }
}

/// Writes a packet with as much of `payload` as fits, and returns how many bytes of it that is. A payload that does not
/// fill the packet is stuffed by the adaptation field. With an empty payload the packet has an adaptation field alone.
pub fn write_packet(
    packet: &mut [u8; PACKET_LEN],
    spec: &PacketSpec,
    adaptation: &AdaptationSpec,
    payload: &[u8],
) -> usize {
    let fields_len = adaptation.len();
    let room = if fields_len == 0 { PACKET_LEN - 4 } else { PACKET_LEN - 5 - fields_len };
    let taken = payload.len().min(room);
    let has_adaptation = fields_len > 0 || taken < PACKET_LEN - 4;
    let [pid_high, pid_low] = spec.pid.number().to_be_bytes();
    packet[0] = SYNC_BYTE;
    packet[1] = u8::from(spec.payload_unit_start) << 6 | pid_high;
    packet[2] = pid_low;
    packet[3] = u8::from(has_adaptation) << 5 | u8::from(taken > 0) << 4 | spec.continuity & 0x0f;
    if has_adaptation {
        let (head, _) = packet.split_at_mut(PACKET_LEN - taken);
        write_adaptation(&mut head[4..], adaptation);
    }
    packet[PACKET_LEN - taken..].copy_from_slice(&payload[..taken]);
    taken
}

/// Fills `area`, length byte included, with the fields, then stuffing.
fn write_adaptation(area: &mut [u8], spec: &AdaptationSpec) {
    let (len_byte, field) = area.split_first_mut().expect("an adaptation field has a length byte");
    *len_byte = field.len() as u8;
    let Some((flags, mut rest)) = field.split_first_mut() else { return };
    *flags = flag(spec.discontinuity, DISCONTINUITY) | flag(spec.random_access, RANDOM_ACCESS);
    if let Some(pcr) = spec.pcr {
        *flags |= PCR;
        let (place, behind) = rest.split_at_mut(6);
        place.copy_from_slice(&pcr.to_field());
        rest = behind;
    }
    rest.fill(0xff);
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

/// Writes a packet that carries a PCR and nothing else. Its counter is that of the packet before: only payload counts.
pub fn write_pcr_only(packet: &mut [u8; PACKET_LEN], pid: Pid, continuity: u8, pcr: Pcr, discontinuity: bool) {
    let spec = PacketSpec { pid, payload_unit_start: false, continuity };
    write_packet(packet, &spec, &AdaptationSpec { discontinuity, pcr: Some(pcr), ..AdaptationSpec::default() }, &[]);
}

/// Writes a null packet (§2.4.3.3, PID 0x1fff): it fills the stream up, and means nothing.
#[inline]
pub fn write_null(packet: &mut [u8; PACKET_LEN]) {
    packet.fill(0xff);
    packet[..4].copy_from_slice(&[SYNC_BYTE, 0x1f, 0xff, 0x10]);
}

/// Gives a packet another PID.
#[inline]
pub fn set_pid(packet: &mut [u8; PACKET_LEN], pid: Pid) {
    let [high, low] = pid.number().to_be_bytes();
    packet[1] = packet[1] & 0xe0 | high;
    packet[2] = low;
}

/// Writes the continuity counter, 4 bits.
#[inline]
pub fn set_continuity(packet: &mut [u8; PACKET_LEN], continuity: u8) {
    packet[3] = packet[3] & 0xf0 | continuity & 0x0f;
}

/// Writes another PCR over the one that is there. Returns whether there was one.
#[inline]
pub fn set_pcr(packet: &mut [u8; PACKET_LEN], pcr: Pcr) -> bool {
    if Packet::parse(packet).ok().and_then(|packet| packet.pcr()).is_none() {
        return false;
    }
    packet[6..12].copy_from_slice(&pcr.to_field());
    true
}

/// Sets or clears the discontinuity indicator. Returns whether there was a place for it: an adaptation field that is not
/// empty.
#[inline]
pub fn set_discontinuity(packet: &mut [u8; PACKET_LEN], discontinuity: bool) -> bool {
    let has_flags = packet[3] & 0x20 != 0 && packet[4] > 0;
    if has_flags {
        packet[5] = packet[5] & !DISCONTINUITY | flag(discontinuity, DISCONTINUITY);
    }
    has_flags
}

/// Splits a section into packets of its PID, and hands each to `found`. Returns the counter for the next packet.
pub fn section_packets(section: &[u8], pid: Pid, mut continuity: u8, mut found: impl FnMut(&[u8; PACKET_LEN])) -> u8 {
    let mut rest = section;
    let mut starts = true;
    while !rest.is_empty() {
        let mut packet = [0xff; PACKET_LEN];
        let [pid_high, pid_low] = pid.number().to_be_bytes();
        packet[..4].copy_from_slice(&[SYNC_BYTE, u8::from(starts) << 6 | pid_high, pid_low, 0x10 | continuity & 0x0f]);
        // The pointer field of a packet in which a section begins (§2.4.4.1). Sections are stuffed with 0xff.
        let start = if starts { 5 } else { 4 };
        packet[4..start].fill(0);
        let len = rest.len().min(PACKET_LEN - start);
        packet[start..start + len].copy_from_slice(&rest[..len]);
        found(&packet);
        (rest, starts, continuity) = (&rest[len..], false, continuity.wrapping_add(1) & 0x0f);
    }
    continuity
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid::new(0x123).unwrap();
    const SPEC: PacketSpec = PacketSpec { pid: PID, payload_unit_start: true, continuity: 5 };

    #[test]
    fn a_payload_that_does_not_fill_the_packet_is_stuffed() {
        let data: Vec<u8> = (0..=255).collect();
        for len in [0, 1, 100, 182, 183, 184, 200] {
            for pcr in [None, Some(Pcr::from_ticks(77))] {
                let mut bytes = [0; PACKET_LEN];
                let fields = AdaptationSpec { pcr, ..AdaptationSpec::default() };
                let taken = write_packet(&mut bytes, &SPEC, &fields, &data[..len]);
                assert_eq!(taken, len.min(if pcr.is_some() { 176 } else { 184 }));
                let packet = Packet::parse(&bytes).unwrap();
                assert_eq!(packet.payload(), &data[..taken]);
                assert_eq!((packet.pcr(), packet.pid(), packet.continuity()), (pcr, PID, 5));
                assert_eq!(packet.has_payload(), taken > 0);
            }
        }
    }

    #[test]
    fn every_adaptation_field_that_is_written_is_read() {
        let mut bytes = [0; PACKET_LEN];
        let pcr = Some(Pcr::from_ticks(1));
        let fields = AdaptationSpec { discontinuity: true, random_access: true, pcr };
        write_packet(&mut bytes, &SPEC, &fields, &[9; 300]);
        let field = Packet::parse(&bytes).unwrap().adaptation().unwrap();
        assert!(field.discontinuity() && field.random_access());
        assert_eq!(field.pcr(), pcr);
    }

    #[test]
    fn single_fields_change_and_nothing_else() {
        let mut bytes = [0; PACKET_LEN];
        write_pcr_only(&mut bytes, PID, 15, Pcr::from_ticks(5), false);
        let before = bytes;
        set_pid(&mut bytes, Pid::new(0x1001).unwrap());
        set_continuity(&mut bytes, 18);
        assert!(set_pcr(&mut bytes, Pcr::from_ticks(Pcr::MODULUS - 1)));
        assert!(set_discontinuity(&mut bytes, true));
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.pid().number(), packet.continuity()), (0x1001, 2));
        assert_eq!(packet.pcr().map(Pcr::ticks), Some(Pcr::MODULUS - 1));
        assert!(packet.discontinuity());
        set_pid(&mut bytes, PID);
        set_continuity(&mut bytes, 15);
        set_pcr(&mut bytes, Pcr::from_ticks(5));
        set_discontinuity(&mut bytes, false);
        assert_eq!(bytes, before);
    }

    #[test]
    fn what_has_no_place_for_a_field_stays_as_it_is() {
        let mut bytes = [0; PACKET_LEN];
        write_null(&mut bytes);
        let before = bytes;
        assert!(!set_pcr(&mut bytes, Pcr::from_ticks(5)) && !set_discontinuity(&mut bytes, true));
        bytes[3..5].copy_from_slice(&[0x30, 0]);
        assert!(!set_discontinuity(&mut bytes, true));
        assert_eq!((bytes[5..] == before[5..], Packet::parse(&before).unwrap().pid()), (true, Pid::NULL));
    }
}
