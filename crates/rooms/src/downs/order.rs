//! Where a session's tracks of a stream stand: who gets hundreds finds them without a look at each.

use std::ops::Range;

use wire::codec::MediaKind;

use crate::down_track::DownTrack;

/// The order of a session's tracks: sound first, and by their streams' keys in either part.
#[derive(Debug, Default)]
pub struct Order {
    /// The stream of each track.
    streams: Vec<usize>,
    /// How many of them are sound.
    sounds: usize,
    /// The only stream, if it is one: most sessions get no other.
    only: Option<usize>,
}

impl Order {
    /// Puts the tracks in order.
    pub fn sort(&mut self, tracks: &mut [DownTrack]) {
        tracks.sort_by_key(|down| (down.kind == MediaKind::Video, down.stream));
        self.set(tracks.iter().map(|down| (down.kind, down.stream)));
    }

    fn set(&mut self, tracks: impl Iterator<Item = (MediaKind, usize)> + Clone) {
        self.sounds = tracks.clone().filter(|(kind, _)| *kind == MediaKind::Audio).count();
        self.streams.clear();
        self.streams.extend(tracks.map(|(_, stream)| stream));
        self.only = self.streams.first().copied().filter(|first| self.streams.iter().all(|stream| stream == first));
    }

    /// Where the tracks of a kind and of one stream stand, or of all.
    #[inline]
    pub fn range(&self, kind: MediaKind, stream: Option<usize>) -> Range<usize> {
        let all = match kind {
            MediaKind::Audio => 0..self.sounds,
            MediaKind::Video => self.sounds..self.streams.len(),
        };
        if stream.is_none() || stream == self.only {
            return all;
        }
        let (stream, part) = (stream.unwrap_or_default(), &self.streams[all.clone()]);
        let start = all.start + part.partition_point(|other| *other < stream);
        start..all.start + part.partition_point(|other| *other <= stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracks_of_a_stream_stand_in_one_place_of_each_kind() {
        use MediaKind::{Audio, Video};
        let mut order = Order::default();
        assert_eq!((order.range(Video, None), order.range(Audio, Some(2))), (0..0, 0..0));
        let tracks = [(Audio, 2), (Audio, 7), (Audio, 7), (Video, 2), (Video, 9)];
        order.set(tracks.into_iter());
        for (kind, stream, found) in [
            (Audio, None, 0..3),
            (Video, None, 3..5),
            (Audio, Some(2), 0..1),
            (Audio, Some(7), 1..3),
            (Audio, Some(9), 3..3),
            (Video, Some(2), 3..4),
            (Video, Some(7), 4..4),
            (Video, Some(9), 4..5),
            (Video, Some(10), 5..5),
        ] {
            assert_eq!(order.range(kind, stream), found, "{kind:?} {stream:?}");
        }
        order.set([(Audio, 7), (Video, 7)].into_iter());
        let of = |stream| (order.range(Audio, stream), order.range(Video, stream));
        assert_eq!((of(Some(7)), of(None)), ((0..1, 1..2), (0..1, 1..2)));
        assert_eq!((of(Some(6)), of(Some(8))), ((0..0, 1..1), (1..1, 2..2)), "others");
    }
}
