//! A published track, and one that is announced.

use std::collections::BTreeMap;

use livekit_protocol::{
    AddTrackRequest, AudioTrackFeature, BackupCodecPolicy, SimulcastCodecInfo, SubscribedCodec, SubscribedQuality,
    SubscribedQualityUpdate, TrackInfo, TrackSource, TrackType, VideoLayer, VideoQuality, video_layer,
};

use crate::demand::Demand;
use crate::directory::Number;
use crate::limits;
use crate::media::{Kind, Layer, Section, SessionId, TrackId};
use crate::sid::Sids;

/// Published: media comes, or may come.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) publisher: Number,
    pub(crate) first: Encoding,
    /// The same in its second codec, while that is published.
    pub(crate) backup: Option<Encoding>,
    pub(crate) info: TrackInfo,
    /// Who has subscribed to it, and the number of that subscription.
    pub(crate) subscribers: BTreeMap<Number, u64>,
    pub(crate) demand: Demand,
    /// Whether the publisher knows that somebody watches.
    pub(crate) is_told_of_subscriber: bool,
    /// Its publisher is in another room, and stands here: it begins and ends there.
    pub(crate) is_of_another_room: bool,
    /// Its publisher stands in another room, too, so it is wanted whole.
    pub(crate) is_shown_elsewhere: bool,
}

/// What of a track comes by one section: all of it, in one codec.
#[derive(Clone, Debug)]
pub(crate) struct Encoding {
    pub(crate) media: TrackId,
    pub(crate) session: SessionId,
    pub(crate) mid: String,
    /// The client's id in that section.
    pub(crate) cid: String,
}

/// Announced: its media is waited for.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) cid: String,
    pub(crate) info: TrackInfo,
    /// Whether it waits for another track of its cid to end.
    pub(crate) is_queued: bool,
}

impl Encoding {
    /// Whether it still comes, if these are the sections of a session.
    pub(crate) fn is_carried(&self, session: SessionId, sections: &[Section]) -> bool {
        let section = sections.iter().find(|section| section.mid == self.mid);
        let carries = |section: &Section| section.is_sent && section.cid.as_ref().is_none_or(|cid| *cid == self.cid);
        self.session != session || section.is_some_and(carries)
    }
}

impl Track {
    pub(crate) fn kind(&self) -> Kind {
        kind(&self.info)
    }

    /// What the publisher is told of what is wanted, the first codec first: of each all layers up to the one that is wanted.
    #[allow(deprecated, reason = "older clients read these fields")]
    pub(crate) fn quality_update(&self) -> SubscribedQualityUpdate {
        let backup = self.backup_codec().map(|codec| &codec.mime_type);
        let codecs = std::iter::once(&self.info.mime_type).chain(backup).zip(self.demand.told());
        let subscribed_codecs: Vec<_> = codecs.map(|(mime, layer)| subscribed(mime, layer)).collect();
        SubscribedQualityUpdate {
            track_sid: self.info.sid.clone(),
            subscribed_qualities: subscribed_codecs[0].qualities.clone(),
            subscribed_codecs,
        }
    }

    /// The codec in which it may be published beside the first.
    pub(crate) fn backup_codec(&self) -> Option<&SimulcastCodecInfo> {
        backup_codec(&self.info)
    }

    /// The client's id of the backup's section, once it was said.
    pub(crate) fn backup_cid(&self) -> Option<&str> {
        backup_cid(&self.info)
    }

    pub(crate) fn encodings(&self) -> impl Iterator<Item = &Encoding> {
        std::iter::once(&self.first).chain(&self.backup)
    }

    /// Whether everybody gets the backup.
    pub(crate) fn is_regressed(&self) -> bool {
        self.backup.is_some() && self.info.backup_codec_policy() != BackupCodecPolicy::Simulcast
    }
}

impl Pending {
    /// Whether a section with this id of a track is where it comes.
    pub(crate) fn is_at(&self, cid: &str) -> bool {
        self.cid == cid || self.info.codecs.first().is_some_and(|codec| codec.cid == cid)
    }
}

/// See `Track::backup_codec`.
fn backup_codec(info: &TrackInfo) -> Option<&SimulcastCodecInfo> {
    info.codecs.get(1).filter(|_| kind(info) == Kind::Video)
}

/// See `Track::backup_cid`.
pub(crate) fn backup_cid(info: &TrackInfo) -> Option<&str> {
    backup_codec(info).map(|codec| codec.cid.as_str()).filter(|cid| !cid.is_empty())
}

/// Whether a codec as a client names it ("vp8") is the one of a MIME type.
pub(crate) fn is_of_codec(name: &str, mime: &str) -> bool {
    let last = |name: &'_ str| name.rsplit('/').next().unwrap_or_default().to_lowercase();
    last(name) == last(mime)
}

fn subscribed(mime: &str, wanted: Option<Layer>) -> SubscribedCodec {
    let qualities =
        [(VideoQuality::Low, Layer::Low), (VideoQuality::Medium, Layer::Medium), (VideoQuality::High, Layer::High)];
    let enabled = |(quality, layer)| SubscribedQuality { quality: quality as i32, enabled: Some(layer) <= wanted };
    let codec = mime.rsplit('/').next().unwrap_or_default().to_lowercase();
    SubscribedCodec { codec, qualities: qualities.map(enabled).into() }
}

pub(crate) fn kind(info: &TrackInfo) -> Kind {
    if info.r#type() == TrackType::Video { Kind::Video } else { Kind::Audio }
}

/// What becomes of an announcement; `codecs` are those that may be published, the preferred first.
#[allow(deprecated, reason = "older clients say and read these fields")]
pub(crate) fn announced(request: &AddTrackRequest, codecs: &[String], sids: &mut Sids) -> TrackInfo {
    let layers = sorted(&request.layers);
    let mut features = request.audio_features.clone();
    for (is_set, feature) in
        [(request.stereo, AudioTrackFeature::TfStereo), (request.disable_dtx, AudioTrackFeature::TfNoDtx)]
    {
        if is_set {
            features.push(feature as i32);
        }
    }
    features.sort_unstable();
    features.dedup();
    features.truncate(limits::LAYERS_MAX);
    let mut info = TrackInfo {
        sid: sids.next(prefix(request)),
        r#type: request.r#type,
        name: request.name.clone(),
        muted: request.muted,
        width: request.width,
        height: request.height,
        disable_dtx: request.disable_dtx,
        source: request.source,
        layers: layers.clone(),
        stereo: request.stereo,
        disable_red: request.disable_red,
        encryption: request.encryption,
        stream: if request.stream.is_empty() { stream(request.source()) } else { request.stream.clone() },
        audio_features: features,
        backup_codec_policy: request.backup_codec_policy,
        packet_trailer_features: request.packet_trailer_features.iter().copied().take(limits::LAYERS_MAX).collect(),
        ..TrackInfo::default()
    };
    info.codecs = codec_infos(request, codecs, &layers);
    let has_several = |codec: &SimulcastCodecInfo| {
        codec.video_layer_mode() != video_layer::Mode::MultipleSpatialLayersPerStream && codec.layers.len() > 1
    };
    info.simulcast = info.codecs.first().is_some_and(has_several);
    info
}

fn codec_infos(request: &AddTrackRequest, enabled: &[String], layers: &[VideoLayer]) -> Vec<SimulcastCodecInfo> {
    if request.simulcast_codecs.is_empty() {
        let mode = video_layer::Mode::OneSpatialLayerPerStream as i32;
        let cid = request.cid.clone();
        return vec![SimulcastCodecInfo { cid, layers: layers.to_vec(), video_layer_mode: mode, ..Default::default() }];
    }
    let family = if request.r#type() == TrackType::Video { "video/" } else { "audio/" };
    let mut codecs: Vec<SimulcastCodecInfo> = Vec::new();
    for asked in request.simulcast_codecs.iter().take(limits::CODECS_MAX) {
        let mut mime = asked.codec.clone();
        if !mime.to_lowercase().starts_with(family) {
            mime = format!("{family}{mime}");
        }
        // A codec that is not taken here is replaced by one that is.
        let known = enabled.iter().find(|enabled| enabled.eq_ignore_ascii_case(&mime));
        let Some(mime) = known.or_else(|| enabled.iter().find(|enabled| enabled.starts_with(family))) else { continue };
        if codecs.iter().any(|codec| codec.mime_type == *mime) {
            continue;
        }
        let mode = match asked.video_layer_mode() {
            video_layer::Mode::Unused if ["video/VP9", "video/AV1"].contains(&mime.as_str()) => {
                video_layer::Mode::MultipleSpatialLayersPerStream
            }
            video_layer::Mode::Unused => video_layer::Mode::OneSpatialLayerPerStream,
            mode => mode,
        };
        let own = sorted(&asked.layers);
        // What comes by the first codec's id is that.
        let is_first_s = codecs.first().is_some_and(|first| asked.cid == first.cid || asked.cid == request.cid);
        codecs.push(SimulcastCodecInfo {
            mime_type: mime.clone(),
            cid: if is_first_s { String::new() } else { asked.cid.clone() },
            layers: if own.is_empty() { layers.to_vec() } else { own },
            video_layer_mode: mode as i32,
            ..SimulcastCodecInfo::default()
        });
    }
    codecs
}

pub(crate) fn sorted(layers: &[VideoLayer]) -> Vec<VideoLayer> {
    let mut layers: Vec<_> = layers.iter().take(limits::LAYERS_MAX).cloned().collect();
    layers.sort_by_key(|layer| layer.quality);
    layers
}

fn prefix(request: &AddTrackRequest) -> &'static str {
    let is_video = request.r#type() == TrackType::Video;
    match (request.source(), is_video) {
        (TrackSource::Camera, true) => "TR_VC",
        (TrackSource::ScreenShare, true) => "TR_VS",
        (_, true) => "TR_V",
        (TrackSource::Microphone, false) => "TR_AM",
        (TrackSource::ScreenShareAudio, false) => "TR_As",
        (_, false) => "TR_A",
    }
}

/// What is played together: the camera with the microphone, the screen with its sound.
fn stream(source: TrackSource) -> String {
    let name = match source {
        TrackSource::Camera | TrackSource::Microphone => "camera",
        TrackSource::ScreenShare | TrackSource::ScreenShareAudio => "screen_share",
        TrackSource::Unknown => "unknown",
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use livekit_protocol::SimulcastCodec;

    use super::*;

    fn camera() -> AddTrackRequest {
        let layers = [VideoQuality::High, VideoQuality::Low, VideoQuality::Medium]
            .map(|quality| VideoLayer { quality: quality as i32, ..VideoLayer::default() });
        AddTrackRequest {
            cid: "cid".into(),
            r#type: TrackType::Video as i32,
            source: TrackSource::Camera as i32,
            layers: layers.into(),
            ..AddTrackRequest::default()
        }
    }

    fn codec(name: &str) -> SimulcastCodec {
        SimulcastCodec { codec: name.into(), cid: name.into(), ..SimulcastCodec::default() }
    }

    fn enabled() -> Vec<String> {
        ["audio/opus", "video/VP8", "video/AV1"].map(str::to_owned).into()
    }

    #[test]
    #[allow(deprecated)]
    fn layers_are_sorted_and_several_of_them_are_simulcast() {
        let request = AddTrackRequest { simulcast_codecs: vec![codec("vp8")], ..camera() };
        let info = announced(&request, &enabled(), &mut Sids::new(1));
        assert!(info.simulcast && info.sid.starts_with("TR_VC"));
        assert_eq!(info.codecs[0].layers.iter().map(|layer| layer.quality).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    #[allow(deprecated)]
    fn a_codec_with_layers_in_one_stream_is_no_simulcast() {
        let request = AddTrackRequest { simulcast_codecs: vec![codec("av1"), codec("vp8")], ..camera() };
        let info = announced(&request, &enabled(), &mut Sids::new(1));
        assert!(!info.simulcast);
        assert_eq!(
            info.codecs.iter().map(|codec| codec.mime_type.as_str()).collect::<Vec<_>>(),
            ["video/AV1", "video/VP8"]
        );
    }

    #[test]
    fn a_codec_that_is_not_taken_is_replaced_by_the_preferred_one() {
        let request = AddTrackRequest { simulcast_codecs: vec![codec("h265"), codec("vp8")], ..camera() };
        let info = announced(&request, &enabled(), &mut Sids::new(1));
        assert_eq!(info.codecs.len(), 1);
        assert_eq!((info.codecs[0].mime_type.as_str(), info.codecs[0].cid.as_str()), ("video/VP8", "h265"));
    }

    #[test]
    fn ten_thousand_layers_are_cut_short() {
        let layers = vec![VideoLayer::default(); 10_000];
        let codecs = vec![codec("vp8"); 10_000];
        let request = AddTrackRequest { layers, simulcast_codecs: codecs, ..camera() };
        let info = announced(&request, &enabled(), &mut Sids::new(1));
        assert!(info.codecs.len() <= limits::LAYERS_MAX && info.codecs[0].layers.len() <= limits::LAYERS_MAX);
    }
}
