//! How many pictures the viewers of a worker get, and in which size, for whoever runs it.
//!
//! In: the tracks of one session, once a second. Out: what changed since the last time, in the worker's counters.

use std::time::Instant;

use slab::Slab;
use wire::codec::MediaKind;

use super::Downs;
use super::probing::largest;
use crate::counters::Counters;
use crate::down_track::DownTrack;
use crate::stream::Stream;

/// Pictures of one session. What its publishers do not send, and what it does not want, is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pictures {
    shown: u64,
    small: u64,
    missing: u64,
}

impl Pictures {
    fn add(&mut self, down: &DownTrack, streams: &Slab<Stream>, now: Instant) {
        let track = down.track(streams);
        let Some((largest, _)) = largest(down, track, now) else { return };
        match down.current_rank(track) {
            Some(rank) => {
                self.shown += 1;
                self.small += u64::from(rank < largest);
            }
            None => self.missing += 1,
        }
    }

    /// Takes the place of what was counted before.
    fn replace(self, before: Pictures, counters: &mut Counters) {
        counters.pictures = counters.pictures + self.shown - before.shown;
        counters.pictures_small = counters.pictures_small + self.small - before.small;
        counters.pictures_missing = counters.pictures_missing + self.missing - before.missing;
    }
}

impl Downs {
    /// Counts the session's pictures. Comes once a second.
    pub(super) fn count_pictures(&mut self, streams: &Slab<Stream>, now: Instant, counters: &mut Counters) {
        let mut pictures = Pictures::default();
        let wanted = self.tracks.iter().filter(|down| down.kind == MediaKind::Video && !down.is_held());
        wanted.for_each(|down| pictures.add(down, streams, now));
        pictures.replace(std::mem::replace(&mut self.pictures, pictures), counters);
    }

    /// There are none any more.
    pub fn forget_pictures(&mut self, counters: &mut Counters) {
        Pictures::default().replace(std::mem::take(&mut self.pictures), counters);
    }
}
