//! How fast a stream comes.
//!
//! In: how many bytes came, and when. Out: the mean of the last seconds, for the pace of viewers. What comes at once when a
//! source begins is what it had stored, and does not count. Nor does a silence: who goes on after one is not slower.
//! Cost: `SPANS_MAX` pairs of numbers per stream.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::Bitrate;

/// Bytes are counted together for so long at least.
const SPAN: Duration = Duration::from_secs(1);

/// A source that writes whole fragments is silent between them; it is not for so long.
const SILENCE: Duration = Duration::from_secs(10);

/// The mean is over so many spans.
const SPANS_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When the span that is under way began, and the bytes in it.
    began: Option<Instant>,
    bytes: u64,
    /// The first span of a source is under way.
    is_first: bool,
    spans: VecDeque<(u64, Duration)>,
    rate: Bitrate,
}

impl Meter {
    /// What was measured elsewhere.
    pub(super) fn of(rate: Bitrate) -> Self {
        Meter { rate, ..Meter::default() }
    }

    /// Another source begins. Until more is known, the rate is that of the one before.
    pub(super) fn begin(&mut self) {
        (self.began, self.bytes, self.is_first) = (None, 0, true);
        self.spans.clear();
    }

    pub(super) fn add(&mut self, now: Instant, bytes: usize) {
        let began = *self.began.get_or_insert(now);
        let time = now.saturating_duration_since(began);
        if time >= SPAN {
            if !self.is_first {
                self.spans.push_back((self.bytes, time.min(SILENCE)));
                if self.spans.len() > SPANS_MAX {
                    self.spans.pop_front();
                }
                let (bytes, time) =
                    self.spans.iter().fold((0, Duration::ZERO), |sum, span| (sum.0 + span.0, sum.1 + span.1));
                self.rate = Bitrate::of(bytes, time);
            }
            (self.began, self.bytes, self.is_first) = (Some(now), 0, false);
        }
        self.bytes += bytes as u64;
    }

    /// Zero when nobody knows.
    pub(super) fn rate(&self) -> Bitrate {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many bytes each 100 ms, from `from` on.
    fn fill(meter: &mut Meter, from: Instant, seconds: u64, bytes: usize) -> Instant {
        (0..seconds * 10).for_each(|tenth| meter.add(from + Duration::from_millis(100 * tenth), bytes));
        from + Duration::from_secs(seconds)
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds_without_what_came_at_once() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        meter.begin();
        meter.add(start, 10_000_000);
        assert_eq!(meter.rate(), Bitrate::ZERO);
        let later = fill(&mut meter, start, 20, 25_000);
        assert_eq!(meter.rate(), Bitrate::from_kbps(2_000));
        let later = fill(&mut meter, later + Duration::from_secs(3_600), 30, 50_000);
        assert_eq!(meter.rate(), Bitrate::from_kbps(4_000));
        meter.begin();
        assert_eq!(meter.rate(), Bitrate::from_kbps(4_000), "it is still the best that is known");
        fill(&mut meter, later, 5, 1_250);
        assert_eq!(meter.rate(), Bitrate::from_kbps(100));
    }

    #[test]
    fn fragments_of_some_seconds_have_the_rate_of_the_stream() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        meter.begin();
        for fragment in 0..8 {
            meter.add(start + Duration::from_secs(4 * fragment), 1_000_000);
        }
        assert_eq!(meter.rate(), Bitrate::from_kbps(2_000));
    }
}
