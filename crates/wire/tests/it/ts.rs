//! Transport streams: what is written is read; no bytes make the parsers panic; the corpus of broken streams is replayed.

use proptest::array::{uniform5, uniform6};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::ts::{
    self, AdaptationSpec, Layout, PACKET_LEN, Packet, PacketSpec, Packets, Pat, Pcr, PesHeader, Pid, Pmt, PmtStream,
    SECTION_LEN_MAX, Section, SectionBuffer, Spacing, Timestamp,
};

use crate::replay::replay;

#[path = "../../../../fuzz/entry/ts.rs"]
mod entry;

#[test]
fn ts_corpus_holds() {
    replay("../../fuzz/corpus/ts", 1_000, entry::ts);
}

fn pids() -> impl Strategy<Value = Pid> {
    (0..Pid::COUNT as u16).prop_map(|number| Pid::new(number).unwrap())
}

fn streams() -> impl Strategy<Value = Vec<(u8, Pid, Vec<u8>)>> {
    vec((any::<u8>(), pids(), vec(any::<u8>(), 0..40)), 0..20)
}

/// Every section that is gathered from the packets.
fn gathered(packets: &[[u8; PACKET_LEN]]) -> Vec<Vec<u8>> {
    let (mut buffer, mut sections) = (SectionBuffer::default(), Vec::new());
    for packet in packets {
        buffer.push(&Packet::parse(packet).unwrap(), |section| sections.push(section.to_vec()));
    }
    sections
}

proptest! {
    #[test]
    fn packets_are_read_as_they_were_written(
        pid in pids(),
        flags in any::<[bool; 3]>(),
        continuity in 0..16_u8,
        pcr in proptest::option::of(0..Pcr::MODULUS),
        payload in vec(any::<u8>(), 0..200),
    ) {
        let [payload_unit_start, discontinuity, random_access] = flags;
        let pcr = pcr.map(Pcr::from_ticks);
        let fields = AdaptationSpec { discontinuity, random_access, pcr };
        let mut bytes = [0; PACKET_LEN];
        let taken = ts::write_packet(&mut bytes, &PacketSpec { pid, payload_unit_start, continuity }, &fields, &payload);

        let packet = Packet::parse(&bytes).unwrap();
        prop_assert_eq!((packet.pid(), packet.continuity()), (pid, continuity));
        prop_assert_eq!((packet.payload_unit_start(), packet.discontinuity()), (payload_unit_start, discontinuity));
        prop_assert_eq!((packet.pcr(), packet.payload()), (pcr, &payload[..taken]));
    }

    #[test]
    fn clock_fields_are_read_as_they_were_written(pcr in uniform6(any::<u8>()), timestamp in uniform5(any::<u8>())) {
        let read = Pcr::from_field(&pcr);
        prop_assert!(read.ticks() < Pcr::MODULUS);
        prop_assert_eq!(Pcr::from_field(&read.to_field()), read);
        let read = Timestamp::from_field(&timestamp);
        prop_assert_eq!(Timestamp::from_field(&read.to_field(timestamp[0] >> 4)), read);
    }

    #[test]
    fn clocks_go_there_and_back(from in 0..Pcr::MODULUS, step in -(Pcr::MODULUS as i64) / 2 + 1..Pcr::MODULUS as i64 / 2) {
        let from = Pcr::from_ticks(from);
        prop_assert_eq!(from.ticks_to(from.plus(step)), step);
        prop_assert_eq!(from.plus(step).plus(-step), from);
    }

    #[test]
    fn tables_are_read_as_they_were_written(number in any::<u16>(), version in 0..32_u8, pcr in pids(), streams in streams()) {
        let entries = streams.iter().map(|(stream_type, pid, descriptors)| PmtStream { stream_type: *stream_type, pid: *pid, descriptors });
        let mut buf = [0; SECTION_LEN_MAX];
        let Some(len) = ts::write_pmt(&mut buf, number, version, pcr, &[1, 0], entries.clone()) else {
            return Ok(());
        };
        let mut packets = Vec::new();
        ts::section_packets(&buf[..len], pcr, 9, |packet| packets.push(*packet));
        let sections = gathered(&packets);
        prop_assert_eq!(sections.len(), 1);
        let section = Section::parse(&sections[0]).unwrap();
        let pmt = Pmt::parse(section).unwrap();
        prop_assert_eq!((pmt.program_number(), section.version(), pmt.pcr_pid()), (number, version, pcr));
        prop_assert!(pmt.streams().eq(entries));

        let programs: Vec<_> = streams.iter().map(|(number, pid, _)| (u16::from(*number), *pid)).collect();
        let len = ts::write_pat(&mut buf, number, version, programs.iter().copied()).unwrap();
        prop_assert!(Pat::parse(Section::parse(&buf[..len]).unwrap()).unwrap().programs().eq(programs));
    }

    #[test]
    fn pes_headers_are_read_as_they_were_written(
        pts in proptest::option::of(0..Timestamp::MODULUS),
        dts in proptest::option::of(0..Timestamp::MODULUS),
        data in vec(any::<u8>(), 0..30),
    ) {
        let (pts, dts) = (pts.map(Timestamp::from_ticks), dts.map(Timestamp::from_ticks));
        let mut buf = [0; 60];
        let len = ts::write_pes_header(&mut buf, 0xe0, data.len(), pts, dts).unwrap();
        buf[len..len + data.len()].copy_from_slice(&data);
        let header = PesHeader::parse(&buf[..len + data.len()]).unwrap();
        let dts = dts.filter(|_| pts.is_some() && dts != pts);
        prop_assert_eq!((header.pts, header.dts, header.data), (pts, dts, &data[..]));
    }

    #[test]
    fn packets_are_found_again_wherever_bytes_were_lost(
        which in 0..3_usize,
        start in 0..188_usize,
        cut in 1_300..6_000_usize,
        cut_len in 1..600_usize,
    ) {
        let spacing = [Spacing::Ts188, Spacing::M2ts192, Spacing::Rs204][which];
        let mut row = vec![0; start];
        for number in 0..60_u8 {
            row.resize(row.len() + spacing.prefix(), 0);
            row.extend([ts::SYNC_BYTE, 0, number, 0x10]);
            row.resize(row.len() + spacing.stride() - spacing.prefix() - 4, 0);
        }
        row.drain(cut..cut + cut_len);
        let layout = Layout::find(&row).unwrap();
        prop_assert_eq!(layout, Layout { spacing, first: start });
        let found: Vec<u8> = Packets::new(&row[start..], spacing).map(|(_, packet)| packet[2]).collect();
        let lost = cut_len / spacing.stride() + 3;
        let after: Vec<u8> = (40..60).collect();
        prop_assert!(found.len() + lost >= 60 && found.ends_with(&after), "{:?}", found);
    }

    #[test]
    fn ts_takes_any_bytes(data in vec(any::<u8>(), 0..600)) {
        entry::ts(&data);
    }

    #[test]
    fn ts_takes_any_packets(packets in vec((uniform5(any::<u8>()), vec(any::<u8>(), 183)), 0..12), few_pids in any::<bool>()) {
        let mut data = Vec::new();
        for (head, rest) in &packets {
            let mut head = *head;
            head[0] = ts::SYNC_BYTE;
            if few_pids {
                (head[1], head[2]) = (head[1] & 0xe0, head[2] & 1);
            }
            data.extend(head);
            data.extend(rest);
        }
        entry::ts(&data);
    }

    #[test]
    fn sections_take_any_body(table_id in 0..4_u8, body in vec(any::<u8>(), 0..200)) {
        let length = body.len() as u16 + 9;
        let mut bytes = vec![table_id, 0xb0 | (length >> 8) as u8, length as u8, 0, 1, 0xc1, 0, 0];
        bytes.extend(body);
        bytes.extend(ts::crc32(&bytes).to_be_bytes());
        entry::ts(&bytes);
    }

    #[test]
    fn pes_takes_any_header(stream_id in any::<u8>(), rest in vec(any::<u8>(), 0..60)) {
        let mut bytes = vec![0, 0, 1, stream_id];
        bytes.extend(rest);
        entry::ts(&bytes);
    }
}
