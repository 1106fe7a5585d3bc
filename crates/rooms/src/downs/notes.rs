//! What the session's story is told of what it receives.

use std::time::{Duration, Instant};

use slab::Slab;
use wire::codec::MediaKind;

use super::Downs;
use crate::stream::Stream;
use crate::transport::Transport;

/// Who watches says something each second, and checks its path each few.
const SILENT: Duration = Duration::from_secs(4);

/// Where so much is lost, and a keyframe is asked for, some was not repaired in time; where so much more is, not all can be.
const LOSSY: f32 = 0.05;
const VERY_LOSSY: f32 = 0.3;

/// What one path does to all of a session's pictures.
#[derive(Clone, Copy, Debug)]
pub struct PathNote {
    /// Nothing has come from the viewer for `SILENT`.
    pub is_silent: bool,
    /// It loses more than can be repaired in time.
    pub is_lossy: bool,
    /// Its TCP connection is gone.
    pub is_cut_off: bool,
}

impl Downs {
    /// Notes what is otherwise than the last time. Comes once a second.
    pub(super) fn take_notes(&mut self, transport: &mut Transport, streams: &Slab<Stream>, now: Instant) {
        let estimate = transport.measured_estimate();
        let Transport { story, stats, .. } = transport;
        if let Some(estimate) = estimate {
            story.note_estimate(now, estimate);
        }
        let wants_keyframe = story.note_requests(now, stats.nacks_received, stats.keyframe_requests_received);
        story.note_skipped(now, self.tracks.iter().map(|down| down.skipped).sum());
        let path = PathNote {
            is_silent: now.saturating_duration_since(transport.last_heard) >= SILENT,
            is_lossy: wants_keyframe && stats.loss >= LOSSY || stats.loss >= VERY_LOSSY,
            is_cut_off: transport.is_cut_off,
        };
        for down in self.tracks.iter_mut().filter(|down| down.kind == MediaKind::Video) {
            down.take_note(now, streams, path, &mut transport.story);
        }
    }
}
