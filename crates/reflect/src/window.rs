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

/// Headers in a window at most. Of one more the oldest is forgotten, with the start points that need it.
pub const HEADERS_MAX: usize = 16;

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

/// What stands before a start point for who begins there, or comes there from elsewhere: a container's header, PAT and PMT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// It holds for start points from here on, until the next.
    pub from: u64,
    /// It. Empty: there is none.
    pub bytes: Bytes,
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
    /// New headers.
    pub headers: Vec<Header>,
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
    headers: VecDeque<Header>,
}

impl Window {
    /// Of a stream without a byte.
    pub fn new(units: Units) -> Self {
        Window {
            units,
            extent: Extent::default(),
            starts: VecDeque::new(),
            boundaries: VecDeque::new(),
            headers: VecDeque::new(),
        }
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
        self.headers.extend(growth.headers.iter().cloned());
        let too_many = self.headers.len().saturating_sub(HEADERS_MAX);
        self.headers.drain(..too_many);
        if let Some(oldest) = self.headers.front().filter(|_| too_many > 0) {
            let lost = self.starts.partition_point(|start| start.at < oldest.from);
            self.boundaries.extend(self.starts.drain(..lost).map(|start| start.at));
            self.boundaries.make_contiguous().sort_unstable();
        }
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
        while self.headers.get(1).is_some_and(|next| next.from <= begin) {
            self.headers.pop_front();
        }
    }

    /// All of it, for who knows nothing.
    pub fn all(&self) -> Growth {
        Growth {
            extent: self.extent,
            starts: self.starts.iter().copied().collect(),
            boundaries: self.boundaries.iter().copied().collect(),
            headers: self.headers.iter().cloned().collect(),
            fresh: None,
        }
    }

    /// The newest start point.
    pub fn last_start(&self) -> Option<StartPoint> {
        self.starts.back().copied().filter(|start| start.at >= self.extent.begin)
    }

    /// The oldest start point.
    fn first_start(&self) -> Option<StartPoint> {
        self.starts.get(self.starts.partition_point(|start| start.at < self.extent.begin)).copied()
    }

    /// The newest start point that came at `time` or before; if there is none, the oldest that is there.
    pub fn start_at(&self, time: Instant) -> Option<StartPoint> {
        let later = self.starts.partition_point(|start| start.time <= time);
        let found = later.checked_sub(1).and_then(|index| self.starts.get(index)).copied();
        found.filter(|start| start.at >= self.extent.begin).or_else(|| self.first_start())
    }

    /// What stands before a start point, if anything does.
    pub fn header_of(&self, start: StartPoint) -> Option<&Header> {
        self.headers.get(self.headers.partition_point(|header| header.from <= start.at).checked_sub(1)?)
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
            headers: vec![],
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
        assert_eq!((at(window.first_start()), at(window.last_start())), (Some(0), Some(80)));
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
        fixed.grow(&Growth {
            extent: Extent { begin: 0, end: 376 },
            starts: vec![],
            boundaries: vec![],
            headers: vec![],
            fresh: None,
        });
        assert_eq!([0, 1, 188, 189].map(|at| fixed.unit_end(at)), [Some(0), Some(188), Some(188), Some(376)]);
    }

    #[test]
    fn a_start_point_has_the_header_that_held_when_it_came() {
        let now = Instant::now();
        let mut window = window(now);
        let header = |from| Header { from, bytes: Arc::new([7].into()) };
        let of = |window: &Window, at| window.header_of(StartPoint { at, time: now }).map(|header| header.from);
        let growth = |begin, headers: Vec<u64>| Growth {
            extent: Extent { begin, end: 100 },
            headers: headers.into_iter().map(header).collect(),
            ..window_all(now).without_places()
        };
        window.grow(&growth(0, vec![20, 80]));
        assert_eq!([0, 20, 79, 80].map(|at| of(&window, at)), [None, Some(20), Some(20), Some(80)]);
        window.grow(&growth(79, vec![]));
        window.forget();
        assert_eq!((of(&window, 79), of(&window, 80)), (Some(20), Some(80)));
        window.grow(&growth(80, (81..=81 + HEADERS_MAX as u64).collect()));
        window.forget();
        assert_eq!((window.last_start(), window.unit_end(80)), (None, Some(80)), "nobody knows its header any more");
    }

    fn window_all(now: Instant) -> Growth {
        window(now).all()
    }

    impl Growth {
        fn without_places(self) -> Self {
            Growth { starts: Vec::new(), boundaries: Vec::new(), ..self }
        }
    }
}
