//! What the writers write, the parsers read.

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use wire::Seq;
use wire::rtcp::{self, Packet, ReportBlock, SenderInfo};
use wire::rtp::{self, HeaderWriter, RtpHeader, RtpPacket};

/// The only packet of a compound.
fn only(compound: &[u8]) -> Packet<'_> {
    let mut packets = rtcp::packets(compound).expect("a writer writes good RTCP");
    let first = packets.next().expect("not empty");
    assert!(packets.next().is_none());
    first
}

fn headers() -> impl Strategy<Value = RtpHeader> {
    (0..128_u8, any::<bool>(), any::<u16>(), any::<u32>(), any::<u32>()).prop_map(
        |(payload_type, marker, seq, timestamp, ssrc)| RtpHeader {
            payload_type,
            marker,
            seq: Seq(seq),
            timestamp,
            ssrc,
        },
    )
}

fn blocks() -> impl Strategy<Value = Vec<ReportBlock>> {
    let lost = -0x80_0000..0x80_0000;
    let block = (any::<u32>(), any::<u8>(), lost, any::<[u32; 4]>()).prop_map(
        |(ssrc, fraction_lost, cumulative_lost, [highest_seq, jitter, last_sr, delay_since_last_sr])| ReportBlock {
            ssrc,
            fraction_lost,
            cumulative_lost,
            highest_seq,
            jitter,
            last_sr,
            delay_since_last_sr,
        },
    );
    vec(block, 0..32)
}

proptest! {
    #[test]
    fn rtp_headers_with_any_extensions(
        header in headers(),
        small in vec((1..15_u8, vec(any::<u8>(), 1..17)), 0..6),
        any_size in vec((1..=255_u8, vec(any::<u8>(), 0..=255)), 0..3),
        padding in 0..256_usize,
    ) {
        let mut buf = vec![0xff; 2_000];
        let mut writer = HeaderWriter::new(&mut buf, &header).unwrap();
        let extensions: Vec<_> = small.into_iter().chain(any_size).collect();
        for (id, value) in &extensions {
            prop_assert!(writer.extension(*id, value));
        }
        let header_len = writer.finish();
        let len = rtp::pad(&mut buf, header_len, header_len + padding);

        let packet = RtpPacket::parse(&buf[..len]).unwrap();
        prop_assert_eq!(packet.header(), header);
        prop_assert_eq!((packet.header_len(), packet.payload()), (header_len, &[][..]));
        let read: Vec<_> = packet.extensions().map(|(id, value)| (id, value.to_vec())).collect();
        prop_assert_eq!(read, extensions);
    }

    #[test]
    fn reports(words in any::<[u32; 4]>(), ntp in any::<u64>(), blocks in blocks()) {
        let [ssrc, rtp_timestamp, packet_count, byte_count] = words;
        let info = SenderInfo { ssrc, ntp, rtp_timestamp, packet_count, byte_count };
        let mut buf = [0; 1_500];
        let len = rtcp::write_sender_report(&mut buf, &info, &blocks).unwrap();
        let Packet::SenderReport(report) = only(&buf[..len]) else { panic!() };
        prop_assert_eq!(report.info, info);
        prop_assert!(report.blocks().eq(blocks.iter().copied()));

        let len = rtcp::write_receiver_report(&mut buf, ssrc, &blocks).unwrap();
        let Packet::ReceiverReport(report) = only(&buf[..len]) else { panic!() };
        prop_assert_eq!(report.ssrc, ssrc);
        prop_assert!(report.blocks().eq(blocks));
    }

    #[test]
    fn source_descriptions_and_goodbyes(ssrcs in vec(any::<u32>(), 1..32), cname in "[ -~]{0,255}") {
        let mut buf = [0; 1_500];
        let len = rtcp::write_sdes_cname(&mut buf, ssrcs[0], &cname).unwrap();
        prop_assert!(matches!(only(&buf[..len]), Packet::Other));

        let len = rtcp::write_bye(&mut buf, &ssrcs).unwrap();
        prop_assert!(matches!(only(&buf[..len]), Packet::Bye(_)));
        prop_assert_eq!(&buf[4..len], ssrcs.iter().flat_map(|ssrc| ssrc.to_be_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn nacks_across_the_wrap(base in any::<u16>(), steps in btree_set(0..2_000_u16, 1..100)) {
        let lost: Vec<_> = steps.into_iter().map(|step| Seq(base).plus(step)).collect();
        let mut buf = [0; 1_500];
        let len = rtcp::write_nack(&mut buf, 1, 2, lost.iter().copied()).unwrap();
        let Packet::Nack(nack) = only(&buf[..len]) else { panic!() };
        prop_assert_eq!(nack.media_ssrc, 2);
        prop_assert_eq!(nack.lost().collect::<Vec<_>>(), lost);
    }

    #[test]
    fn keyframe_requests(sender in any::<u32>(), media in any::<u32>()) {
        let mut buf = [0; 100];
        let len = rtcp::write_pli(&mut buf, sender, media).unwrap();
        let Packet::Pli { media_ssrc } = only(&buf[..len]) else { panic!() };
        prop_assert_eq!(media_ssrc, media);
    }

    /// Feedback after feedback covers all arrivals, each once.
    #[test]
    fn transport_feedback_in_as_many_packets_as_it_takes(
        base in any::<u16>(),
        start in -1_000_000_i64..1_000_000,
        steps in vec(prop_oneof![
            3 => Just(None),
            8 => (0..256_i64).prop_map(Some),
            2 => (-3_000..9_000_i64).prop_map(Some),
            1 => (-90_000..90_000_i64).prop_map(Some),
        ], 1..600),
        room in 28..600_usize,
    ) {
        let mut now = start;
        let arrivals: Vec<_> = steps.into_iter().map(|step| step.map(|step| { now += step; now })).collect();
        let mut at = 0;
        let mut buf = vec![0; room];
        while arrivals[at..].iter().any(Option::is_some) {
            let seq = Seq(base).plus(at as u16).0;
            let (len, covered) =
                rtcp::write_transport_feedback(&mut buf, 1, 2, seq, 9, &arrivals[at..]).expect("there is room");
            prop_assert!(covered > 0 && len <= room);
            let Packet::TransportFeedback(feedback) = only(&buf[..len]) else { panic!() };
            let expected = (0..covered).map(|step| (Seq(seq).plus(step as u16).0, arrivals[at + step]));
            prop_assert!(feedback.arrivals().eq(expected));
            at += covered;
        }
    }
}
