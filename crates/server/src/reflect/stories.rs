//! What became of viewers, of those who are gone too, for as long as there is room.
//!
//! In: viewers who are gone, with what their workers have noted. Out: the same, for who asks.
//! Cost: a map lookup each; the memory of `KEPT_MAX` and `BRIEF_KEPT_MAX` of some 250 bytes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reflect::course::Course;
use reflect::spec::{EndReason, ViewerId};
use wire::{Bitrate, WorkerId};

use crate::kept::Kept;

/// Viewers who are gone and still known, at most: the one who went first is forgotten for the next.
const KEPT_MAX: usize = 4_096;

/// The same of those who were here for less than `BRIEF`: they are cheap to make, and are not to push the others out.
const BRIEF_KEPT_MAX: usize = 512;
const BRIEF: Duration = Duration::from_secs(10);

/// What became of a viewer.
#[derive(Clone, Debug)]
pub struct Told {
    /// Who.
    pub id: ViewerId,
    /// What he watches.
    pub stream: Arc<str>,
    /// What that takes, as measured; zero where nobody knows.
    pub rate: Bitrate,
    /// Where he is.
    pub client: Option<IpAddr>,
    /// Which worker sends; `None`: HTTP does.
    pub worker: Option<WorkerId>,
    /// A player of HLS.
    pub is_hls: bool,
    /// For how long he has been here, or was.
    pub age: Duration,
    /// When and why he went.
    pub ended: Option<(Instant, EndReason)>,
    /// What the kernel took for him, the response's head included. `None`: that is known at the end.
    pub sent_bytes: Option<u64>,
    /// What is there that he has still to get. `None`: nobody knows.
    pub behind: Option<u64>,
    /// What his worker has noted; of others only how often they fell out of the window, and that at the end.
    pub course: Course,
}

/// Those who are gone and still known.
#[derive(Debug)]
pub struct Stories {
    long: Kept<ViewerId, Arc<Told>>,
    brief: Kept<ViewerId, Arc<Told>>,
}

impl Default for Stories {
    fn default() -> Self {
        Stories { long: Kept::new(KEPT_MAX), brief: Kept::new(BRIEF_KEPT_MAX) }
    }
}

impl Stories {
    /// A viewer is gone.
    pub fn end(&mut self, told: Told) {
        let kept = if told.age >= BRIEF { &mut self.long } else { &mut self.brief };
        kept.entry(told.id, || Arc::new(told));
    }

    /// One who is gone.
    pub fn get(&self, id: ViewerId) -> Option<Arc<Told>> {
        self.long.get(&id).or_else(|| self.brief.get(&id)).cloned()
    }

    /// The last ones of a stream or of all, so many at most, the last first.
    pub fn latest(&self, stream: Option<&str>, count: usize) -> Vec<Arc<Told>> {
        let at = |told: &Arc<Told>| told.ended.map(|(at, _)| at);
        let all = self.long.latest_with(&self.brief, at).map(|(_, told)| told);
        all.filter(|told| stream.is_none_or(|stream| *stream == *told.stream)).take(count).cloned().collect()
    }
}
