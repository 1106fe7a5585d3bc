//! Chooses what an answer keeps of a media section: one codec, its retransmissions, feedback, extensions, layers.

use wire::codec::{Codec, MediaKind};

use crate::media::{Direction, Extension, Media, Ssrcs};
use crate::sdp::{Format, Section};

/// Feedback that the forwarder gives or takes (RFC 4585, RFC 5104, draft-holmer-rmcat-transport-wide-cc-extensions-01).
pub(crate) const FEEDBACK: [&str; 4] = ["transport-cc", "ccm fir", "nack", "nack pli"];

/// The kind of an m-line's medium, where it carries RTP.
pub(crate) fn kind_of(section: &Section<'_>) -> Option<MediaKind> {
    match section.media {
        "audio" => Some(MediaKind::Audio),
        "video" => Some(MediaKind::Video),
        _ => None,
    }
}

/// The codec of a format, if it is one that is passed on. VP9 and AV1 count in their profile 0 only, which is what every
/// decoder has.
fn codec_of(format: &Format<'_>) -> Option<Codec> {
    let has_profile_0 = |key| format.parameter(key).is_none_or(|profile| profile == "0");
    let is_named =
        |codec: &Codec| format.name.eq_ignore_ascii_case(codec.name()) && format.clock_rate == codec.clock_rate();
    Codec::ALL.into_iter().find(is_named).filter(|codec| match codec {
        Codec::Vp9 => has_profile_0("profile-id"),
        Codec::Av1 => has_profile_0("profile"),
        Codec::Opus | Codec::Vp8 | Codec::H264 | Codec::H265 => true,
    })
}

/// The first format in the offer's order whose codec is among `wanted`.
///
/// H.264 is matched by packetization mode alone: the first format with mode 1 (RFC 6184 §6.3), in which every sender
/// fragments large frames, else the first of all. The profile in the stream's parameter sets is what decoders go by.
fn choose<'s, 'a>(section: &'s Section<'a>, wanted: &[Codec]) -> Option<(Codec, &'s Format<'a>)> {
    let known = || section.formats.iter().filter_map(|format| Some((codec_of(format)?, format)));
    let first = known().find(|(codec, _)| wanted.contains(codec))?;
    if first.0 != Codec::H264 {
        return Some(first);
    }
    let has_mode_1 = |format: &Format<'_>| format.parameter("packetization-mode") == Some("1");
    known().find(|(codec, format)| *codec == Codec::H264 && has_mode_1(format)).or(Some(first))
}

/// What a section comes to with the first of its codecs that is among `wanted`, without anybody's SSRCs and layers; `None`
/// when it has none of them.
pub(crate) fn media(
    section: &Section<'_>,
    kind: MediaKind,
    wanted: &[Codec],
    direction: Direction,
    track: usize,
) -> Option<Media> {
    let (codec, format) = choose(section, wanted).filter(|(codec, _)| codec.kind() == kind)?;
    let has_feedback = feedback(format).contains(&"transport-cc");
    Some(Media {
        mid: section.mid.into(),
        direction,
        track,
        codec,
        payload_type: format.payload_type,
        rtx_payload_type: section.rtx_for(format.payload_type),
        fmtp: format.fmtp.into(),
        extensions: extensions(section, kind, direction, has_feedback),
        tx: Vec::new(),
        rx: Vec::new(),
        rids: Vec::new(),
        transport_cc: has_feedback,
        reduced_size: section.rtcp_rsize,
    })
}

/// The offered feedback that we take part in.
pub(crate) fn feedback<'a>(format: &Format<'a>) -> Vec<&'a str> {
    format.feedback.iter().copied().filter(|value| FEEDBACK.contains(value)).collect()
}

/// The offered header extensions that we know. Ids above 14 need the two-byte form (RFC 8285 §4.3), which is only used
/// where the offerer lets both forms be mixed. Send times are for receivers that estimate by themselves: with transport-wide
/// feedback they would be four bytes per packet for nothing, and of a publisher's nobody here reads.
fn extensions(
    section: &Section<'_>,
    kind: MediaKind,
    direction: Direction,
    has_feedback: bool,
) -> Vec<(u8, Extension)> {
    let is_numbered = section.extensions.iter().any(|(_, uri)| *uri == Extension::TransportCc.uri());
    let wants_send_time = direction == Direction::Send && !(is_numbered && has_feedback);
    let suits =
        |extension: &Extension| extension.suits(kind) && (*extension != Extension::AbsSendTime || wants_send_time);
    let id_max = if section.allow_mixed { 255 } else { 14 };
    let mut chosen: Vec<(u8, Extension)> = Vec::new();
    for (id, uri) in &section.extensions {
        let Some(extension) = uri.parse().ok().filter(&suits) else { continue };
        let is_free = chosen.iter().all(|(other_id, other)| other_id != id && *other != extension);
        if is_free && (1..=id_max).contains(id) && *id != 15 {
            chosen.push((*id, extension));
        }
    }
    chosen
}

/// The simulcast layers that a section offers to send, in its order. One layer is no simulcast.
pub(crate) fn rids<'a>(section: &Section<'a>, max: usize) -> Vec<&'a str> {
    let is_declared = |rid: &&&str| section.rids_send.contains(rid);
    let rids: Vec<&str> = section.simulcast_send.iter().filter(is_declared).take(max).copied().collect();
    if rids.len() < 2 { Vec::new() } else { rids }
}

/// The SSRCs that a section names, those of retransmissions beside their originals.
pub(crate) fn ssrcs(section: &Section<'_>) -> Vec<Ssrcs> {
    let is_rtx = |ssrc: &u32| section.fid_groups.iter().any(|(_, rtx)| rtx == ssrc);
    let rtx_of = |ssrc: u32| section.fid_groups.iter().find(|(original, _)| *original == ssrc).map(|(_, rtx)| *rtx);
    section.ssrcs.iter().filter(|ssrc| !is_rtx(ssrc)).map(|ssrc| (*ssrc, rtx_of(*ssrc))).collect()
}
