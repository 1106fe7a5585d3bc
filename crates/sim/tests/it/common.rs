//! Streams and paths that several tests use.

use std::ops::Range;
use std::time::Duration;

use sim::media::{LayerPlan, Spatial};
use sim::network::LinkConfig;
use sim::publisher::TrackPlan;
use sim::world::{PeerId, World};
use wire::Bitrate;
use wire::codec::Codec;

pub const VIDEO_CLOCK: u32 = 90_000;
pub const AUDIO_CLOCK: u32 = 48_000;

/// One 600 kbit/s layer at 30 frames per second, with two temporal layers.
pub fn vp8() -> TrackPlan {
    video(Codec::Vp8, &[600])
}

pub fn h264() -> TrackPlan {
    video(Codec::H264, &[600])
}

/// Three layers, as a browser would send.
pub fn simulcast() -> TrackPlan {
    video(Codec::Vp8, &[150, 500, 1_500])
}

pub fn video(codec: Codec, layers_kbps: &[u64]) -> TrackPlan {
    let layers = layers_kbps.iter().map(|kbps| LayerPlan {
        bitrate: Bitrate::from_kbps(*kbps),
        frames_per_second: 30,
        temporal_layers: 2,
        spatial: Spatial::ONE,
    });
    TrackPlan { codec, layers: layers.collect() }
}

pub fn opus() -> TrackPlan {
    sound(48)
}

pub fn sound(kbps: u64) -> TrackPlan {
    let layer = LayerPlan {
        bitrate: Bitrate::from_kbps(kbps),
        frames_per_second: 50,
        temporal_layers: 1,
        spatial: Spatial::ONE,
    };
    TrackPlan { codec: Codec::Opus, layers: vec![layer] }
}

pub fn quiet() -> LinkConfig {
    LinkConfig::default()
}

/// A tenth is lost, a tenth is overtaken by what was sent up to 15 ms later.
pub fn rough() -> LinkConfig {
    LinkConfig { loss: 0.1, reordering: 0.1, duplication: 0.02, jitter: Duration::from_millis(4), ..quiet() }
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// These seeds, or so many more as are asked for: `MILLRACE_SEEDS=300 cargo test …`.
pub fn seeds(seeds: Range<u64>) -> Range<u64> {
    let asked: Option<u64> = std::env::var("MILLRACE_SEEDS").ok().and_then(|count| count.parse().ok());
    seeds.start..asked.map_or(seeds.end, |count| seeds.end.max(seeds.start + count))
}

/// The value below which nine in ten lie.
pub fn nine_in_ten(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 9 / 10]
}

/// The layer of the newest picture that the viewer has something of.
pub fn layer_now(world: &mut World, viewer: PeerId) -> u8 {
    let track = &world.viewer(viewer).tracks[0];
    track.records.values().next_back().expect("something came").tag.layer
}
