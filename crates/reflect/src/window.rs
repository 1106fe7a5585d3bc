//! What of a stream is there: how far it reaches, where one may begin, where one may stop.
//!
//! In: `Growth`, which the writer makes and every reader takes. Out: places in the stream, as bytes since it began.
//! Cost: `STARTS_MAX` start points and `BOUNDARIES_MAX` boundaries at most, as the writer keeps no closer ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Start points in a window at most, each of 24 bytes. Of those that are closer to each other than that, the first is kept.
pub const STARTS_MAX: u64 = 1_024;

/// Boundaries in a window at most, each of 8 bytes. The same.
pub const BOUNDARIES_MAX: u64 = 8_192;

/// Bytes that nobody changes any more, and many may send.
pub type Bytes = Arc<Box<[u8]>>;

/// From where to where a stream is there, in bytes since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Nobody may read before this.
    pub begin: u64,
    /// The next byte will stand here.
    pub end: u64,
}

/// A place from which a stream can be played: a random-access point, with all that its pictures need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartPoint {
    /// Bytes since the stream began.
    pub at: u64,
    /// When it came.
    pub time: Instant,
}

/// What a container cannot be cut within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Units of so many bytes, not 0, from the stream's first byte on: 188 of MPEG-TS, 1 of what knows no units.
    Fixed(u64),
    /// Units of any size, whose boundaries are told: FLV tags, clusters, fragments.
    Marked,
}

/// How a stream has grown since the last time. What is new stands in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// What is there by now.
    pub extent: Extent,
    /// New places to begin at.
    pub starts: Vec<StartPoint>,
    /// New places between two units, beside the start points; none of `Units::Fixed`.
    pub boundaries: Vec<u64>,
    /// The last bytes, if they are few (`backlog::FRESH_MAX`): who has all before them gets them by a copy.
    pub fresh: Option<Bytes>,
}

/// All that is known of what is there.
#[derive(Clone, Debug)]
pub struct Window {
    units: Units,
    extent: Extent,
    starts: VecDeque<StartPoint>,
    boundaries: VecDeque<u64>,
}

impl Window {
    /// Of a stream without a byte.
    pub fn new(units: Units) -> Self {
        Window { units, extent: Extent::default(), starts: VecDeque::new(), boundaries: VecDeque::new() }
    }

    /// What is there.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// What cannot be cut.
    pub fn units(&self) -> Units {
        self.units
    }

    /// Takes what is new. What is over stays known until `forget`: somebody may be there.
    pub fn grow(&mut self, growth: &Growth) {
        debug_assert!(
            growth.extent.end >= self.extent.end && growth.extent.begin >= self.extent.begin,
            "it only grows"
        );
        self.extent = growth.extent;
        self.starts.extend(&growth.starts);
        self.boundaries.extend(&growth.boundaries);
    }

    /// Forgets places before the beginning.
    pub fn forget(&mut self) {
        let begin = self.extent.begin;
        while self.starts.front().is_some_and(|start| start.at < begin) {
            self.starts.pop_front();
        }
        while self.boundaries.front().is_some_and(|at| *at < begin) {
            self.boundaries.pop_front();
        }
    }

    /// All of it, for who knows nothing.
    pub fn all(&self) -> Growth {
        let (starts, boundaries) = (self.starts.iter().copied().collect(), self.boundaries.iter().copied().collect());
        Growth { extent: self.extent, starts, boundaries, fresh: None }
    }

    /// The newest start point.
    pub fn last_start(&self) -> Option<StartPoint> {
        self.starts.back().copied().filter(|start| start.at >= self.extent.begin)
    }

    /// The first start point that is not before `at`.
    pub fn start_from(&self, at: u64) -> Option<StartPoint> {
        let at = at.max(self.extent.begin);
        self.starts.get(self.starts.partition_point(|start| start.at < at)).copied()
    }

    /// The newest start point that came at `time` or before; if there is none, the oldest that is there.
    pub fn start_at(&self, time: Instant) -> Option<StartPoint> {
        let later = self.starts.partition_point(|start| start.time <= time);
        let found = later.checked_sub(1).and_then(|index| self.starts.get(index)).copied();
        found.filter(|start| start.at >= self.extent.begin).or_else(|| self.start_from(0))
    }

    /// The end of the unit that `at` is in, which is `at` itself between two units. `None`: it has none yet.
    pub fn unit_end(&self, at: u64) -> Option<u64> {
        let end = match self.units {
            Units::Fixed(len) => at.next_multiple_of(len),
            Units::Marked => {
                let start = self.starts.get(self.starts.partition_point(|start| start.at < at)).map(|start| start.at);
                let boundary = self.boundaries.get(self.boundaries.partition_point(|other| *other < at)).copied();
                start.into_iter().chain(boundary).min()?
            }
        };
        (end <= self.extent.end).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn window(now: Instant) -> Window {
        let mut window = Window::new(Units::Marked);
        let start = |(at, seconds)| StartPoint { at, time: now + Duration::from_secs(seconds) };
        window.grow(&Growth {
            extent: Extent { begin: 0, end: 100 },
            starts: [(0, 0), (40, 4), (80, 8)].map(start).into(),
            boundaries: vec![20, 60, 90],
            fresh: None,
        });
        window
    }

    #[test]
    fn places_are_found_and_what_is_over_is_not() {
        let now = Instant::now();
        let mut window = window(now);
        let at = |start: Option<StartPoint>| start.map(|start| start.at);
        let of = |window: &Window, seconds| at(window.start_at(now + Duration::from_secs(seconds)));
        assert_eq!(
            [at(window.last_start()), at(window.start_from(40)), at(window.start_from(41))],
            [Some(80), Some(40), Some(80)]
        );
        assert_eq!(at(window.start_from(81)), None);
        assert_eq!([of(&window, 3), of(&window, 4), of(&window, 99)], [Some(0), Some(40), Some(80)]);
        window.grow(&Growth { extent: Extent { begin: 50, end: 120 }, ..window.all() }.without_places());
        assert_eq!([of(&window, 3), of(&window, 4)], [Some(80); 2]);
        assert_eq!(window.unit_end(10), Some(20), "somebody may be there still");
        window.forget();
        assert_eq!((window.all().starts.len(), window.all().boundaries), (1, vec![60, 90]));
    }

    #[test]
    fn a_unit_ends_at_the_next_boundary_or_start_point() {
        let window = window(Instant::now());
        let ends = [0, 1, 20, 21, 61, 81, 90, 91].map(|at| window.unit_end(at));
        assert_eq!(ends, [Some(0), Some(20), Some(20), Some(40), Some(80), Some(90), Some(90), None]);
        let mut fixed = Window::new(Units::Fixed(188));
        fixed.grow(&Growth { extent: Extent { begin: 0, end: 376 }, starts: vec![], boundaries: vec![], fresh: None });
        assert_eq!([0, 1, 188, 189].map(|at| fixed.unit_end(at)), [Some(0), Some(188), Some(188), Some(376)]);
    }

    impl Growth {
        fn without_places(self) -> Self {
            Growth { starts: Vec::new(), boundaries: Vec::new(), ..self }
        }
    }
}
