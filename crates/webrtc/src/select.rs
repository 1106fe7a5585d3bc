//! Chooses what an answer keeps of a media section: one codec, its retransmissions, feedback, extensions, layers.

use wire::codec::{Codec, MediaKind, Profile};

use crate::media::{Direction, Extension, Media, Ssrcs};
use crate::sdp::{Format, Section};

/// Reports of when each packet of all tracks arrived.
pub(crate) const TRANSPORT_CC: &str = "transport-cc";

/// Feedback that the forwarder gives or takes (RFC 4585, RFC 5104, draft-holmer-rmcat-transport-wide-cc-extensions-01).
pub(crate) const FEEDBACK: [&str; 4] = [TRANSPORT_CC, "ccm fir", "nack", "nack pli"];

/// The kind of an m-line's medium, where it carries RTP.
pub(crate) fn kind_of(section: &Section<'_>) -> Option<MediaKind> {
    match section.media {
        "audio" => Some(MediaKind::Audio),
        "video" => Some(MediaKind::Video),
        _ => None,
    }
}

/// The codec of a format, if it is one that is passed on.
fn codec_of(format: &Format<'_>) -> Option<Codec> {
    let is_named =
        |codec: &Codec| format.name.eq_ignore_ascii_case(codec.name()) && format.clock_rate == codec.clock_rate();
    Codec::ALL.into_iter().find(is_named)
}

/// The first format in the offer's order whose codec is among `wanted` and decodes `profile`.
///
/// H.264 in packetization mode 1 comes first (RFC 6184 §6.3), in which every sender fragments large frames; then the
/// stream's own profile, then one that holds it. Where there is none the first is taken all the same: nearly all decoders
/// take more than their offers say, and senders less than theirs.
fn choose<'s, 'a>(section: &'s Section<'a>, wanted: &[Codec], profile: Profile) -> Option<(Codec, &'s Format<'a>)> {
    let known = || section.formats.iter().filter_map(|format| Some((codec_of(format)?, format)));
    let own = |codec: Codec, format: &Format<'_>| Profile::of(codec, format.fmtp);
    let is_wanted = |(codec, format): &(Codec, &Format<'_>)| {
        wanted.contains(codec) && (*codec == Codec::H264 || own(*codec, format).decodes(profile))
    };
    let first = known().find(is_wanted)?;
    if first.0 != Codec::H264 {
        return Some(first);
    }
    let worth = |format: &Format<'_>| {
        let own = own(Codec::H264, format);
        let has_mode_1 = format.parameter("packetization-mode") == Some("1");
        (has_mode_1, profile == Profile::Any || own == profile, own.decodes(profile))
    };
    // Of equals the last is the greatest, and the first is wanted.
    let formats: Vec<_> = known().filter(|(codec, _)| *codec == Codec::H264).collect();
    formats.into_iter().rev().max_by_key(|(_, format)| worth(format))
}

/// What a section comes to with the first of its codecs that is among `wanted` and decodes `profile`, without anybody's SSRCs and layers; `None`
/// when it has none of them.
pub(crate) fn media(
    section: &Section<'_>,
    kind: MediaKind,
    (wanted, profile): (&[Codec], Profile),
    direction: Direction,
    track: usize,
) -> Option<Media> {
    let (codec, format) = choose(section, wanted, profile).filter(|(codec, _)| codec.kind() == kind)?;
    let has_feedback = format.feedback.contains(&TRANSPORT_CC);
    Some(Media {
        mid: section.mid.into(),
        direction,
        track,
        codec,
        payload_type: format.payload_type,
        rtx_payload_type: section.rtx_for(format.payload_type),
        // Of G.711 nobody makes any.
        red: section.red_for(format.payload_type).filter(|_| codec == Codec::Opus),
        fmtp: format.fmtp.into(),
        extensions: extensions(section, kind, direction, has_feedback),
        tx: Vec::new(),
        rx: Vec::new(),
        rids: Vec::new(),
        transport_cc: has_feedback,
        reduced_size: section.rtcp_rsize,
    })
}

/// Makes of it what it is where the receiver gives no transport-wide feedback: that one may estimate by itself.
pub(crate) fn leave_out_transport_cc(section: &Section<'_>, media: &mut Media) {
    media.transport_cc = false;
    media.extensions = extensions(section, media.codec.kind(), media.direction, false);
    media.extensions.retain(|(_, extension)| *extension != Extension::TransportCc);
}

/// Whether the receiver can say what it takes, and gets the send times that it needs for that.
pub(crate) fn offers_remb(section: &Section<'_>, media: &Media) -> bool {
    let has_send_times = section.extensions.iter().any(|(_, uri)| *uri == Extension::AbsSendTime.uri());
    has_send_times && section.format(media.payload_type).is_some_and(|format| format.feedback.contains(&REMB))
}

/// What a receiver without transport-wide feedback may say of its path: the rate that it takes at most
/// (draft-alvestrand-rmcat-remb-03 §2.1).
pub(crate) const REMB: &str = "goog-remb";

/// The offered feedback that we take part in. Of sound nothing is sent again, in neither direction.
pub(crate) fn feedback<'a>(format: &Format<'a>, takes_remb: bool) -> Vec<&'a str> {
    let is_sound = codec_of(format).is_some_and(|codec| codec.kind() == MediaKind::Audio);
    let is_known = |value: &str| FEEDBACK.contains(&value) || takes_remb && value == REMB;
    let suits = |value: &&str| is_known(value) && !(is_sound && value.starts_with("nack"));
    format.feedback.iter().copied().filter(suits).collect()
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
