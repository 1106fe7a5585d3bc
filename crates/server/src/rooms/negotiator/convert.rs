//! From what was negotiated to what a worker's rooms take.

use std::sync::Arc;

use rooms::spec::{DownTrackSpec, ExtensionIds, IceCredentials, RedSpec, TrackSpec, UpTrackSpec};
use webrtc::{Extension, Media, Peer, Ssrcs};
use wire::codec::Profile;

/// Names of simulcast layers whose order is known, from the smallest picture to the largest. Browsers leave the names
/// to the page: q, h, f (quarter, half, full) and l, m, h are what libraries for them use, 1, 2, 3 is Jitsi's. OBS
/// numbers from 0, its full picture.
const LAYER_NAMES: [&[&str]; 5] =
    [&["q", "h", "f"], &["l", "m", "h"], &["low", "mid", "high"], &["1", "2", "3"], &["3", "2", "1", "0"]];

/// The places of `rids`, from the smallest picture to the largest.
///
/// Names of no known set stand as they were offered. Chromium offers the order of `sendEncodings`, which by custom goes
/// from small to large; nothing in the SDP says so.
fn layer_order(rids: &[String]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rids.len()).collect();
    let rank = |names: &[&str], rid: &str| names.iter().position(|name| name.eq_ignore_ascii_case(rid));
    let known = LAYER_NAMES.iter().find(|names| rids.iter().all(|rid| rank(names, rid).is_some()));
    if let Some(names) = known {
        order.sort_by_key(|place| rids.get(*place).and_then(|rid| rank(names, rid)));
    }
    order
}

/// What the worker answers a peer's checks by, once they are settled.
pub(super) fn credentials(peer: &Peer) -> Option<IceCredentials> {
    let (username, password) = peer.settled_credentials()?;
    Some(IceCredentials { username: username.into(), password: password.into() })
}

fn sorted<T: Clone>(items: &[T], order: &[usize]) -> Vec<T> {
    order.iter().filter_map(|place| items.get(*place).cloned()).collect()
}

/// A publisher's section as a track of the stream.
pub fn track(media: &Media) -> TrackSpec {
    let rids = sorted(&media.rids, &layer_order(&media.rids));
    TrackSpec {
        codec: media.codec,
        profile: Profile::of(media.codec, &media.fmtp),
        rids: rids.iter().map(|rid| rid.as_str().into()).collect(),
    }
}

/// By which SSRCs a publisher's layers come, in the order of the track's; empty where the offer does not tell.
pub fn ssrcs(media: &Media) -> Vec<Ssrcs> {
    // Named SSRCs belong to layers in the order of the offer; without simulcast only the first is the track.
    match media.rids.len() {
        0 => media.rx.iter().take(1).copied().collect(),
        layers if layers == media.rx.len() => sorted(&media.rx, &layer_order(&media.rids)),
        _ => Vec::new(),
    }
}

/// A publisher's section as what it sends.
pub(super) fn up_track(media: &Media) -> UpTrackSpec {
    let ssrcs = ssrcs(media);
    let all =
        |ssrcs: &[Ssrcs]| ssrcs.iter().flat_map(|(ssrc, rtx)| [Some(*ssrc), *rtx]).flatten().collect::<Vec<u32>>();
    let taken = all(&ssrcs);
    // With RIDs, SSRCs whose layer is not known are told by their packets.
    let is_other = |ssrc: &u32| media.rids.is_empty() && !taken.contains(ssrc);
    UpTrackSpec {
        other_ssrcs: all(&media.rx).into_iter().filter(is_other).collect(),
        track: media.track as u8,
        mid: media.mid.as_str().into(),
        payload_type: media.payload_type,
        rtx_payload_type: media.rtx_payload_type,
        red_payload_type: media.red.map(|red| red.payload_type),
        ssrcs,
        extensions: extension_ids(media),
    }
}

/// A viewer's section as what it gets; `None` for one that gets nothing.
pub(super) fn down_track(media: &Media) -> Option<DownTrackSpec> {
    let (ssrc, rtx_ssrc) = media.tx.first().copied()?;
    Some(DownTrackSpec {
        track: media.track as u8,
        mid: media.mid.as_str().into(),
        ssrc,
        payload_type: media.payload_type,
        rtx: rtx_ssrc.zip(media.rtx_payload_type),
        red: media.red.map(|red| RedSpec { payload_type: red.payload_type, is_preferred: red.is_preferred }),
        extensions: extension_ids(media),
    })
}

/// The CNAME of our RTCP where a section does not take packets of reduced size: the stream's name, as in the answer.
pub(super) fn cname(media: &[Media], stream: &str) -> Option<Arc<str>> {
    let is_whole = media.iter().any(|media| !media.reduced_size);
    is_whole.then(|| stream.chars().filter(char::is_ascii_graphic).take(CNAME_MAX).collect::<String>().into())
}

/// Bytes of a CNAME.
const CNAME_MAX: usize = 64;

fn extension_ids(media: &Media) -> ExtensionIds {
    ExtensionIds {
        mid: media.extension_id(Extension::Mid),
        rid: media.extension_id(Extension::Rid),
        repaired_rid: media.extension_id(Extension::RepairedRid),
        audio_level: media.extension_id(Extension::AudioLevel),
        // Numbers without feedback would never be acknowledged.
        transport_cc: media.extension_id(Extension::TransportCc).filter(|_| media.transport_cc),
        video_orientation: media.extension_id(Extension::VideoOrientation),
        playout_delay: media.extension_id(Extension::PlayoutDelay),
        dependency_descriptor: media.extension_id(Extension::DependencyDescriptor),
        abs_send_time: media.extension_id(Extension::AbsSendTime),
        abs_capture_time: media.extension_id(Extension::AbsCaptureTime),
        color_space: media.extension_id(Extension::ColorSpace),
        video_content_type: media.extension_id(Extension::VideoContentType),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(rids: &[&str]) -> Vec<String> {
        let rids: Vec<String> = rids.iter().map(|rid| (*rid).to_owned()).collect();
        sorted(&rids, &layer_order(&rids))
    }

    #[test]
    fn layers_with_known_names_stand_from_small_to_large() {
        assert_eq!(ordered(&["f", "h", "q"]), ["q", "h", "f"]);
        assert_eq!(ordered(&["h", "l"]), ["l", "h"]);
        assert_eq!(ordered(&["High", "low"]), ["low", "High"]);
        assert_eq!(ordered(&["3", "1", "2"]), ["1", "2", "3"]);
        assert_eq!(ordered(&["0", "1", "2"]), ["2", "1", "0"]);
    }

    #[test]
    fn without_rids_the_first_ssrc_is_the_track_and_the_others_are_not() {
        let media = |rids: &[&str]| Media {
            mid: "0".into(),
            direction: webrtc::Direction::Receive,
            track: 0,
            codec: wire::codec::Codec::Vp8,
            payload_type: 96,
            rtx_payload_type: Some(97),
            red: None,
            fmtp: String::new(),
            extensions: Vec::new(),
            tx: Vec::new(),
            rx: vec![(1, Some(11)), (2, Some(12)), (3, None)],
            rids: rids.iter().map(|rid| (*rid).to_owned()).collect(),
            transport_cc: false,
            reduced_size: true,
        };
        let alone = up_track(&media(&[]));
        assert_eq!((alone.ssrcs, alone.other_ssrcs), (vec![(1, Some(11))], vec![2, 12, 3]));
        let layers = up_track(&media(&["h", "m", "l"]));
        assert_eq!((layers.ssrcs, layers.other_ssrcs), (vec![(3, None), (2, Some(12)), (1, Some(11))], vec![]));
        assert!(up_track(&media(&["h", "l"])).other_ssrcs.is_empty());
    }

    #[test]
    fn layers_with_other_names_keep_the_order_of_the_offer() {
        assert_eq!(ordered(&["b", "a", "f"]), ["b", "a", "f"]);
        assert_eq!(ordered(&[]), Vec::<String>::new());
    }
}
