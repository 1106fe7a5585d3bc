//! One publication as one worker knows it: the logs of its layers, who watches here, and who gets copies.

use std::time::{Duration, Instant};

use wheel::TimerId;
use wire::Bitrate;
use wire::codec::MediaKind;

use crate::batch::{Batch, Post, Posts};
use crate::keyframe::KeyframeThrottle;
use crate::layer_order::LayerOrder;
use crate::log::{Log, LogSize};
use crate::packet::{LayerStart, PacketMeta, SenderClock};
use crate::rate::RateMeter;
use crate::settings::Settings;
use crate::spec::{StreamId, StreamSpec, TrackSpec, WorkerId};
use crate::transport::IP_UDP_HEADERS;

/// Tracks of a stream at most.
pub const TRACKS_MAX: usize = 8;
/// Simulcast layers of a track at most.
pub const LAYERS_MAX: usize = 4;

/// Pictures that are further apart are not waited for with sound.
const PICTURES_APART: Duration = Duration::from_millis(100);

/// Viewers from which on frames are gathered.
const MANY: usize = 8;

/// Bytes around a payload on a viewer's path: RTP header and extensions, SRTP tag, and what is below.
const PACKET_OVERHEAD: usize = 12 + 8 + 16 + IP_UDP_HEADERS;

/// A stream that sessions here publish or watch.
#[derive(Debug)]
pub struct Stream {
    /// How control calls it.
    pub id: StreamId,
    /// As they were negotiated.
    pub tracks: Vec<Track>,
    /// Keys of the sessions that watch here.
    pub viewers: Vec<usize>,
    /// So many of them get nothing of it for now.
    holding: usize,
    /// Key of the session that publishes here.
    pub publisher: Option<usize>,
    /// The worker that has the publisher, learnt from its first batch.
    pub origin: Option<WorkerId>,
    mirrors: Vec<Mirror>,
    /// The loudest that came of it since that was last told, in dB below full scale (RFC 6464); published here.
    pub level: Option<u8>,
    /// Where it stands in its turn to serve its viewers.
    pub round: Round,
    /// When a packet came last of a picture of one layer. Of several layers each has viewers of its own, and they end one by one.
    picture_at: Option<Instant>,
    /// What came and waits to go out with more.
    pub gathered: Gathered,
    /// A layer has begun since viewers chose among them.
    pub has_new_layer: bool,
    /// Until when its listeners are taken to hear another stream as well, or none; `None`: nothing has come yet.
    pub company: Option<(Instant, bool)>,
    /// Whether sound of it waits for that of others.
    pub speaking: Speaking,
}

/// A round serves each viewer of a stream once with all that it has not had yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Whether the stream waits for its turn, or has it.
    pub is_queued: bool,
    /// Whether packets came since the round began: then another follows.
    pub has_more: bool,
    /// Index of the viewer that is next.
    pub next_viewer: usize,
}

/// Packets that wait to go out with others. Of what comes one by one, each packet alone would cost every viewer a send.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The least that those that came since this was last taken wait for.
    pub waits_for: WaitsFor,
    /// When the first of them waits no longer.
    pub until: Option<Instant>,
    /// What is set, and for when: for these, or for some that have left.
    pub timer: Option<(Instant, TimerId)>,
}

/// What a packet waits for, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitsFor {
    /// The end of a frame, what came late.
    Nothing,
    /// A packet of a picture, for the rest of it.
    Frame,
    /// Sound where no picture is to be expected soon, for that of other speakers.
    Speakers,
    /// Sound, for the next picture.
    #[default]
    Picture,
}

/// Whether sound of a stream waits for that of others (`Rooms::speakers`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaking {
    /// All has gone out.
    Not,
    /// It waits until then.
    Waiting {
        /// No longer than that.
        until: Instant,
    },
    /// It goes out now.
    Going {
        /// More came meanwhile, and waits until then.
        more_until: Option<Instant>,
    },
}

/// One track of a stream.
#[derive(Debug)]
pub struct Track {
    /// As it was negotiated.
    pub spec: TrackSpec,
    /// At least one, in the order of the specification.
    pub layers: Vec<Layer>,
    /// Which is the smallest picture and which the largest.
    pub order: LayerOrder,
}

/// One layer of a track.
#[derive(Debug)]
pub struct Layer {
    /// What came of it lately.
    pub log: Log,
    /// By the publisher's last sender report.
    pub clock: Option<SenderClock>,
    /// Requests for a keyframe of it.
    pub keyframes: KeyframeThrottle,
    rate: RateMeter,
    /// Of it, packets of the temporal layers from 1 on, and from 2 on.
    upper: [RateMeter; TEMPORAL_CHOICES - 1],
    /// Of it, packets of the spatial layers from 1 on, from 2 on, and from 3 on.
    upper_spatial: [RateMeter; LAYERS_MAX - 1],
    spatial: SpatialCount,
}

/// How many spatial layers one SSRC brings: as many as since the last keyframe but one.
#[derive(Clone, Copy, Debug, Default)]
struct SpatialCount {
    /// The highest.
    top: u8,
    /// The highest since the last keyframe.
    seen: u8,
}

/// So many ways there are to send a layer: with its lowest temporal layer, with two, and with all.
pub const TEMPORAL_CHOICES: usize = 3;

/// What is sent of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the simulcast layer.
    pub layer: u8,
    /// The highest of the spatial layers that share its SSRC; `u8::MAX` for all.
    pub spatial_max: u8,
}

/// Another worker that has viewers of the stream, and what is gathered for it.
#[derive(Debug)]
struct Mirror {
    to: WorkerId,
    batch: Option<Box<Batch>>,
}

impl Stream {
    /// Whether somebody publishes or watches it here.
    pub fn has_sessions(&self) -> bool {
        self.publisher.is_some() || !self.viewers.is_empty()
    }

    /// Layers of which nothing comes any more give their memory back. Comes once a second or so.
    pub fn tidy(&mut self, now: Instant) {
        self.tracks.iter_mut().flat_map(|track| &mut track.layers).for_each(|layer| layer.log.tidy(now));
    }

    /// Makes a stream from what was negotiated; what is over `TRACKS_MAX` or `LAYERS_MAX` is left out.
    pub fn new(spec: StreamSpec, settings: &Settings) -> Self {
        let mut tracks: Vec<Track> = spec.tracks.into_iter().map(|spec| Track::new(spec, settings)).collect();
        tracks.truncate(TRACKS_MAX);
        Stream {
            id: spec.id,
            tracks,
            viewers: Vec::new(),
            holding: 0,
            publisher: None,
            origin: None,
            mirrors: Vec::new(),
            level: None,
            round: Round::default(),
            picture_at: None,
            gathered: Gathered::default(),
            has_new_layer: false,
            company: None,
            speaking: Speaking::Not,
        }
    }

    /// The layer by its place, if there is such a one.
    pub fn layer_mut(&mut self, track: u8, layer: u8) -> Option<&mut Layer> {
        self.tracks.get_mut(usize::from(track))?.layers.get_mut(usize::from(layer))
    }

    /// Stores a packet for the viewers here, and gathers it for the other workers.
    pub fn push(&mut self, start: LayerStart, meta: &PacketMeta, extensions: &[u8], payload: &[u8], posts: &mut Posts) {
        let Some(track) = self.tracks.get_mut(usize::from(start.track)) else { return };
        let has_others = track.layers.len() > 1;
        let Some(layer) = track.layers.get_mut(usize::from(start.layer)) else { return };
        if layer.log.epoch() != start.epoch {
            self.company = None;
        }
        self.has_new_layer |= layer.push(start.epoch, meta, extensions, payload) && has_others;
        // What was lost and comes again may be all that a frame lacks.
        let is_late = layer.log.newest() != Some(meta.seq);
        let is_picture = track.spec.codec.kind() == MediaKind::Video;
        if is_picture && !has_others {
            self.picture_at = Some(meta.arrival);
        }
        if let Some(since) = track.order.due_since(meta.arrival) {
            track.look_at_rates(since, meta.arrival);
        }
        for mirror in &mut self.mirrors {
            let batch = mirror.batch.get_or_insert_with(|| posts.batch(self.id));
            batch.push(start, meta, extensions, payload);
            if let Some(full) = mirror.batch.take_if(|batch| batch.is_full()) {
                posts.push(mirror.to, Post::Packets(full));
            }
        }
        let waits_for = match is_picture {
            _ if is_late => WaitsFor::Nothing,
            true if meta.marker => WaitsFor::Nothing,
            true => WaitsFor::Frame,
            false if self.picture_at.is_some_and(|at| meta.arrival < at + PICTURES_APART) => WaitsFor::Picture,
            false => WaitsFor::Speakers,
        };
        self.gathered.waits_for = self.gathered.waits_for.min(waits_for);
    }

    /// Hands out what was gathered for other workers.
    pub fn post_batches(&mut self, posts: &mut Posts) {
        for mirror in &mut self.mirrors {
            if let Some(batch) = mirror.batch.take() {
                posts.push(mirror.to, Post::Packets(batch));
            }
        }
    }

    /// Another worker gets copies from now on, or no more. True when it did not before.
    pub fn set_mirror(&mut self, to: WorkerId, on: bool) -> bool {
        let was_on = self.mirrors.iter().any(|mirror| mirror.to == to);
        match (was_on, on) {
            (false, true) => self.mirrors.push(Mirror { to, batch: None }),
            (true, false) => self.mirrors.retain(|mirror| mirror.to != to),
            _ => {}
        }
        on && !was_on
    }

    /// Posts what is stored from each layer's last keyframe on, and the clocks, to a worker that has nothing yet: so its
    /// first viewer has a picture as soon as any other.
    pub fn replay(&self, to: WorkerId, posts: &mut Posts) {
        for (track, layers) in (0..).zip(self.tracks.iter().map(|track| &track.layers)) {
            for (layer, Layer { log, clock, .. }) in (0..).zip(layers) {
                if let Some(clock) = *clock {
                    posts.push(to, Post::Clock { stream: self.id, track, layer, clock });
                }
                let start = LayerStart { track, layer, epoch: log.epoch() };
                let mut batch = posts.batch(self.id);
                for packet in (log.keyframe().unwrap_or(log.head())..log.head()).filter_map(|at| log.at(at)) {
                    batch.push(start, packet.meta, packet.extensions, packet.payload);
                    if batch.is_full() {
                        let next = posts.batch(self.id);
                        posts.push(to, Post::Packets(std::mem::replace(&mut batch, next)));
                    }
                }
                posts.push(to, Post::Packets(batch));
            }
        }
    }

    /// Takes a layer's clock, for the viewers here and for the other workers.
    pub fn set_clock(&mut self, track: u8, layer: u8, clock: SenderClock, posts: &mut Posts) {
        if let Some(layer) = self.layer_mut(track, layer) {
            layer.clock = Some(clock);
        }
        // Behind the packets that came before it: with a new start of the layer, a clock of the one before is forgotten.
        self.post_batches(posts);
        for mirror in &self.mirrors {
            posts.push(mirror.to, Post::Clock { stream: self.id, track, layer, clock });
        }
    }

    /// Whether many watch it here.
    pub fn has_many_viewers(&self) -> bool {
        self.viewers.len() >= MANY
    }

    /// Whether sending to all who want it costs much.
    pub fn has_many_readers(&self) -> bool {
        self.has_many_viewers() || !self.mirrors.is_empty()
    }

    /// Whether sound of it waits for that of others.
    pub fn waits(&self) -> bool {
        matches!(self.speaking, Speaking::Waiting { .. })
    }

    /// Whether somebody who watches here gets what comes.
    pub fn is_wanted(&self) -> bool {
        self.holding < self.viewers.len()
    }

    /// Bytes of the last packet of its sound.
    pub fn last_sound_len(&self) -> usize {
        let sound = self.tracks.iter().find(|track| track.spec.codec.kind() == MediaKind::Audio);
        let log = sound.and_then(|track| track.layers.first()).map(|layer| &layer.log);
        let last = log.and_then(|log| log.at(log.head().checked_sub(1)?));
        last.map_or(0, |packet| packet.extensions.len() + packet.payload.len())
    }

    /// One of the viewers gets nothing of it for now, or again.
    pub fn note_hold(&mut self, on: bool) {
        self.holding = if on { self.holding + 1 } else { self.holding.saturating_sub(1) };
    }

    /// Takes a session that watches here from now on.
    pub fn add_viewer(&mut self, key: usize) {
        debug_assert!(!self.viewers.contains(&key), "a session stands once among the viewers");
        self.viewers.push(key);
    }

    /// Forgets a viewer; who is next in a round that is under way stays next.
    pub fn remove_viewer(&mut self, key: usize) {
        let Some(index) = self.viewers.iter().rposition(|viewer| *viewer == key) else { return };
        self.viewers.remove(index);
        self.round.next_viewer -= usize::from(index < self.round.next_viewer);
    }

    /// Evens out the frames that came since the last call, so that each goes out in one send; where sound waits for them, with a
    /// packet of that behind it.
    pub fn even_out(&mut self, sound_waits: bool) {
        let has_sound = self.tracks.iter().any(|track| track.spec.codec.kind() == MediaKind::Audio);
        let with_last = sound_waits && has_sound && self.has_many_readers();
        for layer in self.tracks.iter_mut().flat_map(|track| &mut track.layers) {
            layer.log.even_out(with_last);
        }
    }
}

impl Track {
    fn new(spec: TrackSpec, settings: &Settings) -> Self {
        let count = spec.layer_count().min(LAYERS_MAX);
        let layers = (0..count).map(|_| Layer::new(settings)).collect();
        let order = LayerOrder::of(&spec.rids, count);
        Track { spec, layers, order }
    }

    /// How many sizes of its picture there are: simulcast layers, or spatial layers of the only one.
    pub fn rank_count(&self) -> u8 {
        match &self.layers[..] {
            [only] => only.spatial.top + 1,
            layers => layers.len() as u8,
        }
    }

    /// The simulcast layer of a rank, and the highest spatial layer of it.
    pub fn place_of(&self, rank: u8) -> Place {
        if self.layers.len() > 1 {
            return Place { layer: self.order.index(rank), spatial_max: u8::MAX };
        }
        Place { layer: 0, spatial_max: if rank + 1 < self.rank_count() { rank } else { u8::MAX } }
    }

    /// The rank of what is sent of these layers.
    pub fn rank_of(&self, place: Place) -> u8 {
        match self.layers.len() {
            1 => place.spatial_max.min(self.rank_count() - 1),
            _ => self.order.rank(place.layer),
        }
    }

    /// Whether anything of it came within about the last second.
    pub fn is_flowing(&self, now: Instant) -> bool {
        self.layers.iter().any(|layer| layer.rate.is_flowing(now))
    }

    /// What a rank takes on the wire now.
    pub fn rate(&self, rank: u8, now: Instant) -> Bitrate {
        let Place { layer, spatial_max } = self.place_of(rank);
        let Some(layer) = self.layers.get(usize::from(layer)) else { return Bitrate::ZERO };
        layer.without_above(layer.rate.rate(now), spatial_max, now)
    }

    /// What each rank takes on the wire now, the smallest picture first; zero for one that is not sent. Of one that has just begun
    /// little has come: it will take twice as much as the next smaller one, or more.
    pub fn rates(&self, now: Instant) -> [Bitrate; LAYERS_MAX] {
        let count = self.rank_count();
        let mut rates =
            std::array::from_fn(|rank| if rank < count.into() { self.rate(rank as u8, now) } else { Bitrate::ZERO });
        for rank in 1..usize::from(count).min(LAYERS_MAX) {
            let Place { layer, .. } = self.place_of(rank as u8);
            let is_young = self.layers.len() > 1 && self.layers[usize::from(layer)].rate.is_young(now);
            if is_young && rates[rank] > Bitrate::ZERO {
                rates[rank] = rates[rank].max(rates[rank - 1].scale(2.0));
            }
        }
        rates
    }

    /// What a rank takes with its lowest temporal layer, with two, and with all; zero where that is what all take. Of spatial
    /// layers each is taken to have the same share of temporal ones.
    pub fn thinned_rates(&self, rank: u8, now: Instant) -> [Bitrate; TEMPORAL_CHOICES] {
        let Place { layer, spatial_max } = self.place_of(rank);
        let Some(layer) = self.layers.get(usize::from(layer)) else { return [Bitrate::ZERO; TEMPORAL_CHOICES] };
        let whole = layer.rate.rate(now);
        let all = layer.without_above(whole, spatial_max, now);
        let [from_1, from_2] = layer.upper.each_ref().map(|upper| upper.rate(now));
        let without = |upper: Bitrate| match (upper, whole) {
            (Bitrate::ZERO, _) | (_, Bitrate::ZERO) => Bitrate::ZERO,
            (upper, whole) if whole == all => Bitrate::from_bps(all.bps().saturating_sub(upper.bps())),
            (upper, whole) => all.scale(1.0 - (upper.bps() as f64 / whole.bps() as f64).min(1.0)),
        };
        [without(from_1), without(from_2), all]
    }

    /// The ranks of which something came within about the last second: one bit each, the smallest picture's the lowest.
    pub fn flowing(&self, now: Instant) -> u8 {
        let count = usize::from(self.rank_count());
        let comes = |rank: usize| match &self.layers[..] {
            [only] if rank == 0 => only.rate.is_flowing(now),
            [only] => only.upper_spatial[rank - 1].is_flowing(now),
            layers => layers[usize::from(self.order.index(rank as u8))].rate.is_flowing(now),
        };
        (0..count.min(LAYERS_MAX)).filter(|rank| comes(*rank)).fold(0, |flowing, rank| flowing | 1 << rank)
    }

    /// Whether a rank has begun to come less than a second ago.
    pub fn is_young(&self, rank: u8, now: Instant) -> bool {
        self.layers.get(usize::from(self.order.index(rank))).is_some_and(|layer| layer.rate.is_young(now))
    }

    /// Whether a rank is sent no more, see `LayerOrder::is_gone`.
    pub fn is_gone(&self, rank: u8) -> bool {
        self.order.is_gone(rank)
    }

    fn look_at_rates(&mut self, since: Instant, now: Instant) {
        let (mut rates, mut gone) = ([Bitrate::ZERO; LAYERS_MAX], [false; LAYERS_MAX]);
        for ((rate, gone), layer) in rates.iter_mut().zip(&mut gone).zip(&self.layers) {
            (*rate, *gone) = (layer.rate.rate(now), layer.rate.is_silent_since(since));
        }
        self.order.follow(&rates);
        self.order.set_gone(gone);
    }
}

impl Layer {
    fn new(settings: &Settings) -> Self {
        Layer {
            log: Log::new(LogSize { span: settings.log_span(), bytes_max: settings.log_bytes_max }),
            clock: None,
            keyframes: KeyframeThrottle::new(settings.keyframe_interval_min),
            rate: RateMeter::default(),
            upper: Default::default(),
            upper_spatial: Default::default(),
            spatial: SpatialCount::default(),
        }
    }

    /// What is left of its rate without the spatial layers above the given one.
    fn without_above(&self, whole: Bitrate, spatial_max: u8, now: Instant) -> Bitrate {
        match self.upper_spatial.get(usize::from(spatial_max)) {
            Some(above) => Bitrate::from_bps(whole.bps().saturating_sub(above.rate(now).bps())),
            None => whole,
        }
    }

    /// Returns whether it is the first for a while.
    fn push(&mut self, epoch: u32, meta: &PacketMeta, extensions: &[u8], payload: &[u8]) -> bool {
        if self.log.epoch() != epoch {
            self.log.restart(epoch);
            self.clock = None;
        }
        let bytes = payload.len() + PACKET_OVERHEAD;
        let begins = self.rate.add(meta.arrival, bytes);
        for rate in self.upper.iter_mut().take(meta.payload.temporal_id.into()) {
            rate.add(meta.arrival, bytes);
        }
        let spatial_id = meta.payload.spatial_id;
        for rate in self.upper_spatial.iter_mut().take(spatial_id.into()) {
            rate.add(meta.arrival, bytes);
        }
        if meta.payload.keyframe && meta.payload.starts_frame {
            self.keyframes.on_keyframe(meta.arrival);
            self.spatial = SpatialCount { top: self.spatial.seen, seen: 0 };
        }
        self.spatial.add(spatial_id);
        self.log.push(meta, extensions, payload);
        begins
    }
}

impl SpatialCount {
    fn add(&mut self, spatial_id: u8) {
        let spatial_id = spatial_id.min(LAYERS_MAX as u8 - 1);
        (self.top, self.seen) = (self.top.max(spatial_id), self.seen.max(spatial_id));
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
        stream.round.next_viewer = 2;
        for (leaves, next) in [(10, Some(12)), (13, Some(12)), (99, Some(12)), (12, None), (11, None)] {
            stream.remove_viewer(leaves);
            assert_eq!(stream.viewers.get(stream.round.next_viewer).copied(), next, "after {leaves} left");
        }
    }
}
