//! Whether a member's peer is heard at all: told once when it is not, and once when it is again.
//!
//! In: when it was heard last. Cost: nothing for a packet; a timer that fires when nothing came for a while.

use std::time::{Duration, Instant};

/// Who has nothing else to say checks its path every 4 to 6 s (RFC 7675 §5.1), and one such check may be lost.
pub const SILENT_AFTER: Duration = Duration::from_secs(12);

/// How often it is looked whether somebody is heard again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What was told of one peer.
#[derive(Debug, Default)]
pub struct Silence {
    /// When it was found silent last; `None` where it is heard.
    seen: Option<Instant>,
}

impl Silence {
    /// When to look next.
    pub fn due(&self, last_heard: Instant) -> Instant {
        self.seen.map_or(last_heard + SILENT_AFTER, |seen| seen + LOOK_EVERY)
    }

    /// Looks; returns whether it is silent where that is news.
    pub fn look(&mut self, now: Instant, last_heard: Instant) -> Option<bool> {
        let is_silent = now.saturating_duration_since(last_heard) >= SILENT_AFTER;
        let was_silent = self.seen.is_some();
        self.seen = is_silent.then_some(now);
        (is_silent != was_silent).then_some(is_silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_once_and_so_is_its_end() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::default();
        assert_eq!(silence.due(start), at(12));
        assert_eq!([11, 12, 13].map(|now| silence.look(at(now), start)), [None, Some(true), None]);
        assert_eq!(silence.due(start), at(14));
        assert_eq!([14, 15].map(|now| silence.look(at(now), at(13))), [Some(false), None]);
        assert_eq!(silence.due(at(13)), at(25));
    }
}
