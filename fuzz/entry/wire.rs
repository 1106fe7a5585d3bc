//! What each fuzz target does with its bytes: parse them, read all there is, and where there is a writer, write what
//! was read and read it again. Shared by the fuzz targets and by `crates/wire/tests`, which replays the corpora.

use wire::codec::red::{self, Red};
use wire::codec::{self, Codec, dependency};
use wire::framing::{Frame, Framing};
use wire::proxy;
use wire::rtcp::{self, Packet};
use wire::rtp::{self, HeaderWriter, RtpPacket};
use wire::rtsp::{self, Item, Npt, Range, Start};
use wire::stun;

pub fn rtp(data: &[u8]) {
    let _ = rtp::classify(data);
    let header = RtpPacket::parse_header(data);
    let Ok(packet) = RtpPacket::parse(data) else { return };
    let header = header.expect("a good packet has a good header");
    assert_eq!(header.header(), packet.header());
    let padding = |packet: &RtpPacket<'_>, len: usize| len - packet.header_len() - packet.payload().len();

    let mut buf = vec![0; 2 * data.len() + 16];
    let mut writer = HeaderWriter::new(&mut buf, &packet.header()).expect("room for the fixed header");
    for (id, value) in packet.extensions() {
        assert!(writer.extension(id, value), "room for extension {id} of {} bytes", value.len());
    }
    let len = writer.finish();
    let len = rtp::pad(&mut buf, len, len + padding(&packet, data.len()));
    let again = RtpPacket::parse(&buf[..len]).expect("what was written can be read");
    assert_eq!(again.header(), packet.header());
    assert_eq!(padding(&again, len), padding(&packet, data.len()));
    assert!(again.extensions().eq(packet.extensions()));
}

pub fn rtcp(data: &[u8]) {
    let Ok(packets) = rtcp::packets(data) else { return };
    let mut buf = vec![0; 2 * data.len() + 64];
    for packet in packets {
        if let Some(len) = write_again(&mut buf, packet) {
            let mut again = rtcp::packets(&buf[..len]).expect("what was written can be read");
            let again = again.next().expect("one packet was written");
            assert_same(packet, again);
        }
    }
}

fn write_again(buf: &mut [u8], packet: Packet<'_>) -> Option<usize> {
    match packet {
        Packet::SenderReport(report) => {
            rtcp::write_sender_report(buf, &report.info, &report.blocks().collect::<Vec<_>>())
        }
        Packet::ReceiverReport(report) => {
            rtcp::write_receiver_report(buf, report.ssrc, &report.blocks().collect::<Vec<_>>())
        }
        Packet::Nack(nack) => rtcp::write_nack(buf, 1, nack.media_ssrc, nack.lost()),
        Packet::Pli { media_ssrc } => rtcp::write_pli(buf, 1, media_ssrc),
        Packet::Fir(fir) => {
            fir.media_ssrcs().for_each(drop);
            None
        }
        Packet::TransportFeedback(feedback) => {
            let arrivals: Vec<_> = feedback.arrivals().map(|(_, arrival)| arrival).collect();
            Some(rtcp::write_transport_feedback(buf, 1, 2, feedback.base_seq, 3, &arrivals)?.0)
        }
        Packet::Remb(remb) => rtcp::write_remb(buf, 1, remb.rate, &remb.ssrcs().collect::<Vec<_>>()),
        Packet::Bye(_) | Packet::Other | Packet::Malformed => None,
    }
}

fn assert_same(before: Packet<'_>, after: Packet<'_>) {
    match (before, after) {
        (Packet::SenderReport(before), Packet::SenderReport(after)) => {
            assert_eq!(before.info, after.info);
            assert!(before.blocks().eq(after.blocks()));
        }
        (Packet::Remb(before), Packet::Remb(after)) => {
            let (said, read) = (before.rate, after.rate);
            assert!(read <= said && said.bps() - read.bps() <= said.bps() >> 17);
            assert!(before.ssrcs().eq(after.ssrcs()));
        }
        (Packet::ReceiverReport(before), Packet::ReceiverReport(after)) => {
            assert_eq!(before.ssrc, after.ssrc);
            assert!(before.blocks().eq(after.blocks()));
        }
        (Packet::Nack(before), Packet::Nack(after)) => {
            // The writer may group the numbers otherwise, and leaves repetitions out.
            let sorted = |nack: rtcp::Nack<'_>| {
                let mut lost: Vec<_> = nack.lost().map(|seq| seq.0).collect();
                lost.sort_unstable();
                lost.dedup();
                lost
            };
            assert_eq!(sorted(before), sorted(after));
        }
        (Packet::Pli { media_ssrc: before }, Packet::Pli { media_ssrc: after }) => assert_eq!(before, after),
        (Packet::TransportFeedback(before), Packet::TransportFeedback(after)) => {
            // Arrivals are absolute, and the reference time wraps at 24 bits.
            let wrapped = |(seq, arrival): (u16, Option<i64>)| (seq, arrival.map(|ticks| ticks & 0xffff_ffff));
            let after: Vec<_> = after.arrivals().map(wrapped).collect();
            assert!(!after.is_empty() && after.len() <= before.arrivals().count());
            assert!(before.arrivals().map(wrapped).zip(after).all(|(before, after)| before == after));
        }
        (before, after) => panic!("{before:?} became {after:?}"),
    }
}

pub fn stun(data: &[u8]) {
    let Some(ufrag) = stun::local_ufrag(data) else { return };
    let username = [ufrag.as_bytes(), b":"].concat();
    assert!(!ufrag.contains(':') && data.windows(username.len()).any(|window| window == username));
}

/// The first byte chooses the codec, the second says how long a dependency descriptor stands before the payload.
pub fn codec(data: &[u8]) {
    let [which, descriptor_len, rest @ ..] = data else { return };
    let all = [Codec::Opus, Codec::Vp8, Codec::Vp9, Codec::H264, Codec::H265, Codec::Av1];
    let codec = all[usize::from(*which) % all.len()];
    let (descriptor, payload) = rest.split_at(rest.len().min(usize::from(*descriptor_len)));
    let with = codec::inspect(codec, payload, Some(descriptor));
    let without = codec::inspect(codec, payload, None);
    assert_eq!(with.temporal_id, without.temporal_id);
    assert!(without.temporal_id < 8);

    if let Some(red) = Red::parse(payload) {
        let blocks: Vec<_> = red.redundant().collect();
        let mut again = vec![0; payload.len()];
        let len = red::write(&mut again, &blocks, red.payload_type, red.primary);
        assert_eq!(again[..len.expect("room for the same blocks")], *payload);
    }
    if let Some(structure) = dependency::Structure::parse(descriptor) {
        for value in [descriptor, payload] {
            let Some(layer) = structure.layer(value) else { continue };
            assert!(layer.temporal_id < 8 && layer.spatial_id < 4);
        }
    }
    if let Some(numbers) = without.picture {
        let mut rewritten = payload.to_vec();
        codec::rewrite(codec, &mut rewritten, numbers.picture_id, numbers.tl0_pic_idx);
        assert_eq!(rewritten, payload);
        codec::rewrite(codec, &mut rewritten, Some(0x7fff), Some(0xff));
        let again = codec::inspect(codec, &rewritten, None).picture.expect("still a descriptor");
        assert_eq!(again.long_picture_id, numbers.long_picture_id);
        let all_ones = if numbers.long_picture_id { 0x7fff } else { 0x7f };
        assert_eq!(again.picture_id, numbers.picture_id.map(|_| all_ones));
        assert_eq!(again.tl0_pic_idx, numbers.tl0_pic_idx.map(|_| 0xff));
    }
}

pub fn framing(data: &[u8]) {
    let frame_max = 1_500;
    for framing in [Framing::Length16, Framing::Turn] {
        let mut rest = data;
        while let Frame::Datagram { range, end } = framing.next_frame(rest, frame_max) {
            assert!(range.end <= end && end <= frame_max);
            let wrapping = framing.wrap(range.len()).expect("what was found can be wrapped");
            assert_eq!(wrapping.header(), &rest[..range.start]);
            assert_eq!(wrapping.padding().len(), end - range.end);
            for cut in 0..end {
                let Frame::Incomplete { len } = framing.next_frame(&rest[..cut], frame_max) else {
                    panic!("it is whole with its last byte, not before");
                };
                assert!((cut + 1..=end).contains(&len), "who waits for as many bytes misses no frame");
            }
            rest = rest.get(end..).expect("a frame ends within the buffer");
        }
    }
}

pub fn proxy(data: &[u8]) {
    let proxy::Header::Whole { len, ends } = proxy::header(data) else { return };
    assert!((1..=proxy::HEADER_MAX).contains(&len) && len <= data.len());
    assert_eq!(proxy::header(&data[..len]), proxy::Header::Whole { len, ends }, "what follows changes nothing");
    for cut in 0..len {
        assert_eq!(
            proxy::header(&data[..cut]),
            proxy::Header::Incomplete,
            "it is whole with its last byte, not before"
        );
    }
}

pub fn rtsp(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((item, len))) = rtsp::next_item(rest) {
        assert_eq!(rtsp::next_item(&rest[..len]), Ok(Some((item, len))), "what follows changes nothing");
        assert_eq!(rtsp::next_item(&rest[..len - 1]), Ok(None), "it is whole with its last byte, not before");
        if let Item::Request(request) = item {
            rtsp_request(&request);
        }
        rest = &rest[len..];
    }
    assert!(rest.len() < rtsp::HEAD_MAX + rtsp::BODY_MAX || rest[0] == b'$' || rtsp::next_item(rest).is_err());
}

fn rtsp_request(request: &rtsp::Request<'_>) {
    let _ = (request.cseq(), request.header("Session").map(rtsp::session_id));
    assert!(rtsp::title_of(request.uri, "track").is_none_or(|title| !title.contains(char::is_control)));
    assert!(request.headers().all(|(name, value)| !name.is_empty() && !value.contains(['\r', '\n'])));
    if let Some(Range { start: Start::At(start), end }) = request.header("Range").and_then(Range::parse) {
        let text = format!("npt={}-{}", Npt(start), end.map(|end| Npt(end).to_string()).unwrap_or_default());
        let again = Range::parse(&text).expect("what was written can be read");
        assert_eq!(again.end.map(|end| end.as_millis()), end.map(|end| end.as_millis()));
    }
    assert_ne!(request.header("Scale").and_then(rtsp::scale_permille), Some(0));
    for (_, way) in rtsp::ways(request.header("Transport").unwrap_or_default(), [192, 0, 2, 1].into()) {
        assert!(!matches!(way, rtsp::Way::Datagrams { port: 0, .. } | rtsp::Way::Datagrams { rtcp_port: Some(0), .. }));
    }
}
