//! What a participant wants of others' tracks: which, how large, and which comes first.

use std::collections::HashMap;

use livekit_protocol::{TrackInfo, UpdateTrackSettings, VideoLayer, VideoQuality};

use crate::limits::WISHES_MAX;
use crate::media::Layer;

/// What one participant has said of tracks, whether there are such tracks or not yet.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    by_track: HashMap<String, Wish>,
}

#[derive(Debug, Default)]
struct Wish {
    /// Nothing said is as the participant has it for all tracks.
    subscribes: Option<bool>,
    /// It cannot decode it, and there is no backup of use to it.
    is_refused: bool,
    /// Whether it cannot decode its first codec, and its second.
    lacks: [bool; 2],
    settings: Option<UpdateTrackSettings>,
    /// Whether it was told that it may not.
    is_told_of_denial: bool,
}

/// How a track is to be sent to one subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) is_paused: bool,
    pub(crate) layer: Layer,
    pub(crate) fps: u32,
    pub(crate) priority: u32,
}

impl Wishes {
    /// False when there are too many; nothing has changed then.
    pub(crate) fn subscribe(&mut self, track: &str, subscribes: bool) -> bool {
        self.entry(track).map(|wish| (wish.subscribes, wish.is_refused) = (Some(subscribes), false)).is_some()
    }

    /// The participant cannot decode a track. It does not subscribe to it until it says anew that it does.
    pub(crate) fn refuse(&mut self, track: &str) {
        if let Some(wish) = self.entry(track) {
            wish.is_refused = true;
        }
    }

    /// The participant cannot decode a track's first codec, or its second, for good. See `subscribe`.
    pub(crate) fn lack(&mut self, track: &str, is_first: bool) -> bool {
        self.entry(track).map(|wish| wish.lacks[usize::from(!is_first)] = true).is_some()
    }

    /// Whether it cannot decode the first codec, and the second.
    pub(crate) fn lacks(&self, track: &str) -> [bool; 2] {
        self.by_track.get(track).map_or([false; 2], |wish| wish.lacks)
    }

    /// A track comes in its second codec, too: who lacks the first alone refuses it no more.
    pub(crate) fn reconsider(&mut self, track: &str) {
        if let Some(wish) = self.by_track.get_mut(track).filter(|wish| wish.lacks == [true, false]) {
            wish.is_refused = false;
        }
    }

    /// See `subscribe`.
    pub(crate) fn set(&mut self, track: &str, settings: UpdateTrackSettings) -> bool {
        self.entry(track).map(|wish| wish.settings = Some(settings)).is_some()
    }

    /// Notes whether the participant may have a track; returns what it is to be told, when that is news.
    pub(crate) fn tell_allowed(&mut self, track: &str, is_allowed: bool) -> Option<bool> {
        match self.by_track.get_mut(track) {
            Some(wish) if wish.is_told_of_denial == is_allowed => wish.is_told_of_denial = !is_allowed,
            Some(_) => return None,
            None if is_allowed => return None,
            None => self.entry(track)?.is_told_of_denial = true,
        }
        Some(is_allowed)
    }

    pub(crate) fn subscribes(&self, track: &str, unless_said: bool) -> bool {
        self.by_track.get(track).map_or(unless_said, |wish| !wish.is_refused && wish.subscribes.unwrap_or(unless_said))
    }

    /// How the participant wants a track; `adaptive` clients begin with the smallest picture, and say more when they show it.
    pub(crate) fn settings(&self, track: &TrackInfo, is_adaptive: bool) -> Settings {
        match self.by_track.get(&track.sid).and_then(|wish| wish.settings.as_ref()) {
            None => Settings { layer: if is_adaptive { Layer::Low } else { Layer::High }, ..Settings::default() },
            Some(said) => {
                Settings { is_paused: said.disabled, layer: layer(said, track), fps: said.fps, priority: said.priority }
            }
        }
    }

    /// A track that there is no more.
    pub(crate) fn forget(&mut self, track: &str) {
        self.by_track.remove(track);
    }

    fn entry(&mut self, track: &str) -> Option<&mut Wish> {
        if self.by_track.len() >= WISHES_MAX && !self.by_track.contains_key(track) {
            return None;
        }
        Some(self.by_track.entry(track.to_owned()).or_default())
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings { is_paused: false, layer: Layer::High, fps: 0, priority: 0 }
    }
}

/// The shorter side of a picture whose publisher does not say how large it is, in pixels: that of a good camera.
const SIDE_UNKNOWN: u32 = 720;

/// A layer with so many tenths of what is shown fills it, as with LiveKit's server 1.13.5.
const FILLS_TENTHS: u32 = 9;

/// The smallest layer that fills what is shown, else the one that is asked for by name.
#[allow(deprecated, reason = "older clients say layers there")]
fn layer(said: &UpdateTrackSettings, track: &TrackInfo) -> Layer {
    if said.width == 0 || said.height == 0 {
        return match said.quality() {
            VideoQuality::Low | VideoQuality::Off => Layer::Low,
            VideoQuality::Medium => Layer::Medium,
            VideoQuality::High => Layer::High,
        };
    }
    let layers = track.codecs.first().map_or(&track.layers, |codec| &codec.layers);
    let known = |layer: &&VideoLayer| layer.height > 0;
    // Heights where they are known, as LiveKit's server compares them, whatever stands upright.
    let is_by_width = track.width < track.height && !layers.iter().any(|layer| known(&layer));
    let side = |width: u32, height: u32| if is_by_width { width } else { height };
    let whole = Some(side(track.width, track.height)).filter(|side| *side > 0).unwrap_or(SIDE_UNKNOWN);
    let of = |quality: VideoQuality, of_whole: u32| {
        let layer = layers.iter().filter(known).find(|layer| layer.quality() == quality);
        layer.map_or(whole / of_whole, |layer| layer.height)
    };
    let shown = side(said.width, said.height);
    let [low, medium, high] = [(VideoQuality::Low, 4), (VideoQuality::Medium, 2), (VideoQuality::High, 1)]
        .map(|(quality, of_whole)| of(quality, of_whole));
    let fills = |size: u32| u64::from(size) * 10 >= u64::from(shown) * u64::from(FILLS_TENTHS);
    // Of two that are equally large the one with the higher rate.
    match () {
        () if fills(low) && low != medium => Layer::Low,
        () if fills(medium) && medium != high => Layer::Medium,
        () => Layer::High,
    }
}

#[cfg(test)]
mod tests {
    use livekit_protocol::SimulcastCodecInfo;

    use super::*;

    fn video(width: u32, height: u32) -> TrackInfo {
        TrackInfo { sid: "TR_1".into(), width, height, ..TrackInfo::default() }
    }

    fn shown(width: u32, height: u32) -> Wishes {
        let mut wishes = Wishes::default();
        wishes.set("TR_1", UpdateTrackSettings { width, height, ..UpdateTrackSettings::default() });
        wishes
    }

    #[test]
    fn the_smallest_layer_that_fills_what_is_shown_is_chosen() {
        let layers = [(320, 180), (356, 200), (358, 201), (711, 400), (713, 401), (4000, 3000)]
            .map(|(width, height)| shown(width, height).settings(&video(1280, 720), false).layer);
        assert_eq!(layers, [Layer::Low, Layer::Low, Layer::Medium, Layer::Medium, Layer::High, Layer::High]);
    }

    /// A track whose layers have these heights.
    fn layered(heights: [u32; 3]) -> TrackInfo {
        let layers = [VideoQuality::Low, VideoQuality::Medium, VideoQuality::High].into_iter().zip(heights);
        let layers =
            layers.map(|(quality, height)| VideoLayer { quality: quality as i32, height, ..VideoLayer::default() });
        let codec = SimulcastCodecInfo { layers: layers.collect(), ..SimulcastCodecInfo::default() };
        TrackInfo { codecs: vec![codec], ..video(540, 720) }
    }

    #[test]
    fn of_layers_whose_heights_are_known_the_height_counts_though_they_stand_upright() {
        let layers = [(320, 180), (640, 360), (1280, 720)]
            .map(|(width, height)| shown(width, height).settings(&layered([240, 480, 720]), false).layer);
        assert_eq!(layers, [Layer::Low, Layer::Medium, Layer::High]);
    }

    #[test]
    fn of_two_layers_of_one_size_the_upper_is_chosen() {
        assert_eq!(shown(640, 360).settings(&layered([270, 720, 720]), false).layer, Layer::High);
        assert_eq!(shown(320, 180).settings(&layered([270, 270, 720]), false).layer, Layer::Medium);
    }

    #[test]
    fn of_a_picture_that_stands_upright_and_whose_layers_are_not_known_the_width_counts() {
        assert_eq!(shown(180, 4000).settings(&video(720, 1280), false).layer, Layer::Low);
    }

    #[test]
    #[allow(deprecated)]
    fn a_picture_of_a_size_that_is_not_said_counts_as_a_good_camera_s() {
        let layers = [(320, 180), (640, 360), (720, 405)].map(|(width, height)| {
            let mut track = video(0, 0);
            track.layers = vec![VideoLayer::default()];
            shown(width, height).settings(&track, false).layer
        });
        assert_eq!(layers, [Layer::Low, Layer::Medium, Layer::High]);
    }

    #[test]
    fn who_says_nothing_gets_the_best_unless_it_adapts() {
        let wishes = Wishes::default();
        assert_eq!(wishes.settings(&video(1, 1), false).layer, Layer::High);
        assert_eq!(wishes.settings(&video(1, 1), true).layer, Layer::Low);
    }

    #[test]
    fn there_are_no_more_wishes_than_are_kept() {
        let mut wishes = Wishes::default();
        assert!((0..WISHES_MAX).all(|number| wishes.subscribe(&format!("TR_{number}"), true)));
        assert!(!wishes.subscribe("TR_more", true) && wishes.subscribe("TR_1", false));
    }

    #[test]
    fn a_denial_is_told_once_and_so_is_its_end() {
        let mut wishes = Wishes::default();
        let told = [true, false, false, true, true].map(|is_allowed| wishes.tell_allowed("TR_1", is_allowed));
        assert_eq!(told, [None, Some(false), None, Some(true), None]);
    }
}
