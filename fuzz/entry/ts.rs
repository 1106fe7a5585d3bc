//! What the fuzz target of transport streams does with its bytes: find the packets, read all there is in them, write it
//! again, and gather the tables. Shared by the fuzz target and by `crates/wire/tests/ts.rs`, which replays the corpus.

use wire::ts::{
    self, Layout, PACKET_LEN, Packet, Packets, Pat, Pcr, PesHeader, Pid, Pmt, SECTION_LEN_MAX, Section, SectionBuffer,
    Spacing, Timestamp,
};

pub fn ts(data: &[u8]) {
    let _ = ts::datagram_packets(data);
    let layout = Layout::find(data).unwrap_or(Layout { spacing: Spacing::Ts188, first: 0 });
    let mut packets = Packets::new(&data[layout.first..], layout.spacing);
    let mut sections = SectionBuffer::default();
    let mut end = 0;
    for (at, bytes) in packets.by_ref() {
        assert!(at >= end && bytes[0] == ts::SYNC_BYTE);
        end = at + PACKET_LEN;
        let Ok(packet) = Packet::parse(bytes) else { continue };
        read(&packet);
        change(&packet);
        sections.push(&packet, section);
    }
    assert!(packets.next().is_none());
    section(data);
    pes(data);
}

fn read(packet: &Packet<'_>) {
    let _ = (packet.transport_error(), packet.is_scrambled(), packet.continuity(), packet.discontinuity());
    let header_len = packet.adaptation().map_or(4, |field| {
        let _ = (field.random_access(), field.pcr());
        5 + usize::from(packet.bytes()[4])
    });
    if packet.has_payload() {
        assert_eq!(header_len + packet.payload().len(), PACKET_LEN);
    } else {
        assert!(packet.payload().is_empty());
    }
    pes(packet.payload());
}

/// What is changed in place reads as it was written, and the way back restores the packet.
fn change(packet: &Packet<'_>) {
    let mut bytes = *packet.bytes();
    if let Some(pcr) = packet.pcr() {
        let other = pcr.plus(-12_345_678_901);
        assert!(ts::set_pcr(&mut bytes, other));
        assert_eq!(Packet::parse(&bytes).expect("still a packet").pcr(), Some(other));
        assert_eq!(other.ticks_to(pcr), 12_345_678_901);
        ts::set_pcr(&mut bytes, pcr);
        assert_eq!(Packet::parse(&bytes).expect("still a packet").pcr(), Some(pcr));
    }
    let mut bytes = *packet.bytes();
    if ts::set_discontinuity(&mut bytes, !packet.discontinuity()) {
        assert_ne!(Packet::parse(&bytes).expect("still a packet").discontinuity(), packet.discontinuity());
        ts::set_discontinuity(&mut bytes, packet.discontinuity());
    }
    ts::set_pid(&mut bytes, Pid::NULL);
    ts::set_continuity(&mut bytes, packet.continuity() ^ 0x0f);
    ts::set_pid(&mut bytes, packet.pid());
    ts::set_continuity(&mut bytes, packet.continuity());
    assert_eq!(&bytes, packet.bytes());
}

fn pes(payload: &[u8]) {
    let Some(header) = PesHeader::parse(payload) else { return };
    let mut bytes = payload.to_vec();
    let shifted = ts::shift_timestamps(&mut bytes, 90_001);
    assert_eq!(shifted, header.pts.is_some());
    let again = PesHeader::parse(&bytes).expect("still a PES header");
    assert_eq!(again.data, header.data);
    assert_eq!(again.pts, header.pts.map(|pts| pts.plus(90_001)));
    assert_eq!(again.dts.map(Timestamp::ticks), header.dts.map(|dts| dts.plus(90_001).ticks()));
    assert!(header.pts.is_none_or(|pts| pts.ticks() < Timestamp::MODULUS));
}

fn section(bytes: &[u8]) {
    let Ok(section) = Section::parse(bytes) else { return };
    let mut buf = [0; SECTION_LEN_MAX];
    if let Ok(pat) = Pat::parse(section)
        && let Some(len) = ts::rewrite_pat(&mut buf, &pat, Some)
    {
        let again = Pat::parse(Section::parse(&buf[..len]).expect("a right CRC")).expect("a PAT");
        assert!(again.programs().eq(pat.programs()));
        let none = ts::rewrite_pat(&mut buf, &pat, |_| None).expect("shorter");
        assert_eq!(none, 12);
    }
    if let Ok(pmt) = Pmt::parse(section) {
        let _ = Pcr::from_ticks(pmt.pcr_pid().number().into());
        if let Some(len) = ts::rewrite_pmt(&mut buf, &pmt, Some) {
            let again = Pmt::parse(Section::parse(&buf[..len]).expect("a right CRC")).expect("a PMT");
            assert_eq!((again.pcr_pid(), again.descriptors()), (pmt.pcr_pid(), pmt.descriptors()));
            assert!(again.streams().eq(pmt.streams()));
        }
    }
}
