//! One publication as one worker knows it: the logs of its layers, who watches here, and who gets copies.

use std::time::Instant;

use wire::Bitrate;
use wire::codec::MediaKind;

use crate::batch::{Batch, BatchPool, Post};
use crate::keyframe::KeyframeThrottle;
use crate::log::{Log, LogSize};
use crate::packet::{PacketMeta, Place, SenderClock};
use crate::rate::RateMeter;
use crate::settings::Settings;
use crate::spec::{StreamId, StreamSpec, TrackSpec, WorkerId};

/// Tracks of a stream at most.
pub const TRACKS_MAX: usize = 8;
/// Simulcast layers of a track at most.
pub const LAYERS_MAX: usize = 4;

#[derive(Debug)]
pub struct Stream {
    pub id: StreamId,
    pub tracks: Vec<Track>,
    /// Keys of the sessions that watch here.
    pub viewers: Vec<usize>,
    /// Key of the session that publishes here.
    pub publisher: Option<usize>,
    /// The worker that has the publisher, learnt from its first batch.
    pub origin: Option<WorkerId>,
    feeds: Vec<Feed>,
    /// Whether packets came that not all viewers have been served with.
    pub is_dirty: bool,
    /// The viewer that is next while the stream is dirty.
    pub next_viewer: usize,
}

#[derive(Debug)]
pub struct Track {
    pub spec: TrackSpec,
    pub layers: Vec<Layer>,
}

#[derive(Debug)]
pub struct Layer {
    pub log: Log,
    pub clock: Option<SenderClock>,
    pub keyframes: KeyframeThrottle,
    rate: RateMeter,
}

/// Another worker that has viewers of the stream, and what is gathered for it.
#[derive(Debug)]
struct Feed {
    to: WorkerId,
    batch: Option<Box<Batch>>,
}

impl Stream {
    /// Makes a stream from what was negotiated; what is over `TRACKS_MAX` or `LAYERS_MAX` is left out.
    pub fn new(spec: StreamSpec, settings: &Settings) -> Self {
        let mut tracks: Vec<Track> = spec.tracks.into_iter().map(|spec| Track::new(spec, settings)).collect();
        tracks.truncate(TRACKS_MAX);
        Stream {
            id: spec.id,
            tracks,
            viewers: Vec::new(),
            publisher: None,
            origin: None,
            feeds: Vec::new(),
            is_dirty: false,
            next_viewer: 0,
        }
    }

    pub fn layer_mut(&mut self, track: u8, layer: u8) -> Option<&mut Layer> {
        self.tracks.get_mut(usize::from(track))?.layers.get_mut(usize::from(layer))
    }

    /// Stores a packet for the viewers here and gathers it for the other workers; `make_room` comes before.
    pub fn push(&mut self, place: Place, meta: &PacketMeta, extensions: &[u8], payload: &[u8]) {
        let Some(layer) = self.layer_mut(place.track, place.layer) else { return };
        layer.push(place.epoch, meta, extensions, payload);
        for feed in &mut self.feeds {
            if let Some(batch) = &mut feed.batch {
                batch.push(place, meta, extensions, payload);
            }
        }
    }

    /// Makes sure that each feed has a batch with room, handing out those that are full.
    pub fn make_room(&mut self, from: WorkerId, pool: &BatchPool, mut post: impl FnMut(WorkerId, Box<Batch>)) {
        for feed in &mut self.feeds {
            if let Some(full) = feed.batch.take_if(|batch| batch.is_full()) {
                post(feed.to, full);
            }
            if feed.batch.is_none() {
                feed.batch = Some(pool.take(self.id, from));
            }
        }
    }

    /// Hands out what was gathered for other workers.
    pub fn take_batches(&mut self, mut post: impl FnMut(WorkerId, Box<Batch>)) {
        for feed in &mut self.feeds {
            if let Some(batch) = feed.batch.take() {
                post(feed.to, batch);
            }
        }
    }

    /// Workers that get copies.
    pub fn feeds(&self) -> impl Iterator<Item = WorkerId> {
        self.feeds.iter().map(|feed| feed.to)
    }

    pub fn set_feed(&mut self, to: WorkerId, on: bool) {
        self.feeds.retain(|feed| feed.to != to);
        if on {
            self.feeds.push(Feed { to, batch: None });
        }
    }

    /// Hands out what is stored from each layer's last keyframe on, and the clocks, for a worker that has nothing yet: so
    /// its first viewer has a picture as soon as any other.
    pub fn replay(&self, from: WorkerId, pool: &BatchPool, mut post: impl FnMut(Post)) {
        for (track, layers) in (0..).zip(self.tracks.iter().map(|track| &track.layers)) {
            for (layer, Layer { log, clock, .. }) in (0..).zip(layers) {
                if let Some(clock) = *clock {
                    post(Post::Clock { stream: self.id, track, layer, clock });
                }
                let place = Place { track, layer, epoch: log.epoch() };
                let mut batch = pool.take(self.id, from);
                for packet in (log.keyframe().unwrap_or(log.head())..log.head()).filter_map(|at| log.at(at)) {
                    batch.push(place, packet.meta, packet.extensions, packet.payload);
                    if batch.is_full() {
                        post(Post::Packets(std::mem::replace(&mut batch, pool.take(self.id, from))));
                    }
                }
                post(Post::Packets(batch));
            }
        }
    }

    pub fn set_clock(&mut self, track: u8, layer: u8, clock: SenderClock) {
        if let Some(layer) = self.layer_mut(track, layer) {
            layer.clock = Some(clock);
        }
    }

    /// Forgets a viewer; who is next in a round that is under way stays next.
    pub fn remove_viewer(&mut self, key: usize) {
        let Some(index) = self.viewers.iter().rposition(|viewer| *viewer == key) else { return };
        self.viewers.remove(index);
        self.next_viewer -= usize::from(index < self.next_viewer);
    }

    /// Evens out the frames that came since the last call, so that each goes out in one send.
    pub fn even_out(&mut self) {
        for layer in self.tracks.iter_mut().flat_map(|track| &mut track.layers) {
            layer.log.even_out();
        }
    }
}

impl Track {
    fn new(spec: TrackSpec, settings: &Settings) -> Self {
        let size = match spec.kind {
            MediaKind::Video => LogSize::VIDEO,
            MediaKind::Audio => LogSize::AUDIO,
        };
        let count = spec.layer_count().min(LAYERS_MAX);
        let layers = (0..count).map(|_| Layer::new(size, settings)).collect();
        Track { spec, layers }
    }

    /// What each layer takes on the wire now; zero for one that is not sent.
    pub fn rates(&self, now: Instant) -> [Bitrate; LAYERS_MAX] {
        let mut rates = [Bitrate::ZERO; LAYERS_MAX];
        for (rate, layer) in rates.iter_mut().zip(&self.layers) {
            *rate = layer.rate.rate(now);
        }
        rates
    }
}

impl Layer {
    fn new(size: LogSize, settings: &Settings) -> Self {
        Layer {
            log: Log::new(size),
            clock: None,
            keyframes: KeyframeThrottle::new(settings.keyframe_interval_min),
            rate: RateMeter::default(),
        }
    }

    fn push(&mut self, epoch: u32, meta: &PacketMeta, extensions: &[u8], payload: &[u8]) {
        if self.log.epoch() != epoch {
            self.log.restart(epoch);
            self.clock = None;
        }
        self.rate.add(meta.arrival, payload.len());
        if meta.payload.keyframe && meta.payload.starts_frame {
            self.keyframes.on_keyframe();
        }
        self.log.push(meta, extensions, payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_viewer_is_passed_over_when_another_leaves_in_mid_round() {
        let spec = StreamSpec { id: StreamId(1), tracks: Vec::new() };
        let mut stream = Stream::new(spec, &Settings::new(1, (Instant::now(), 0)));
        stream.viewers = vec![10, 11, 12, 13];
        stream.next_viewer = 2;
        for (leaves, next) in [(10, Some(12)), (13, Some(12)), (99, Some(12)), (12, None), (11, None)] {
            stream.remove_viewer(leaves);
            assert_eq!(stream.viewers.get(stream.next_viewer).copied(), next, "after {leaves} left");
        }
    }
}
