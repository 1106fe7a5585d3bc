//! How loud streams are, and which of their layers come: what a conference tells its members.
//!
//! In: once in a while, the streams that are observed and that are published here.
//! Out: `Event::Levels` of those that can be heard, and `Event::Layers` of those whose layers have changed.
//! Cost: a look at each observed stream ten times a second; nothing for others.
//! Source: RFC 6464 (the level in the header extension).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::spec::{Event, Level};
use crate::stream::Stream;

/// How often it looks.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Levels in one event.
pub const LEVELS_MAX: usize = 256;

/// Quieter than anything: what the extension has for digital silence.
const SILENCE: u8 = 127;

/// The streams that are observed.
#[derive(Debug, Default)]
pub struct Observer {
    /// Keys, and which layers came when it last looked.
    streams: Vec<(usize, u8)>,
    /// Its timer is set.
    is_awake: bool,
}

impl Observer {
    /// Adds a stream. True when the timer is to be set.
    pub fn add(&mut self, stream: usize) -> bool {
        if !self.streams.iter().any(|(known, _)| *known == stream) {
            self.streams.push((stream, 0));
        }
        !std::mem::replace(&mut self.is_awake, true)
    }

    /// The stream is closed.
    pub fn forget(&mut self, stream: usize) {
        self.streams.retain(|(known, _)| *known != stream);
    }

    /// Tells of what has been since it looked last. True when the timer is to be set again.
    pub fn look(&mut self, now: Instant, streams: &mut Slab<Stream>, events: &mut VecDeque<Event>) -> bool {
        let mut levels: Vec<Level> = Vec::new();
        for (key, known) in &mut self.streams {
            let Some(stream) = streams.get_mut(*key) else { continue };
            // Where it comes from another worker, that one tells.
            if stream.publisher.is_none() && *known == 0 {
                continue;
            }
            if let Some(level) = stream.level.take().filter(|level| *level < SILENCE) {
                levels.push(Level { stream: stream.id, level });
            }
            let flowing = if stream.publisher.is_some() { flowing(stream, now) } else { 0 };
            if *known != flowing {
                *known = flowing;
                events.push_back(Event::Layers { stream: stream.id, flowing });
            }
        }
        events.extend(levels.chunks(LEVELS_MAX).map(|levels| Event::Levels(levels.to_vec())));
        self.is_awake = !self.streams.is_empty();
        self.is_awake
    }
}

/// The sizes of which something comes, of all tracks: one bit each, the smallest picture's the lowest.
fn flowing(stream: &Stream, now: Instant) -> u8 {
    stream.tracks.iter().fold(0, |flowing, track| flowing | track.flowing(now))
}
