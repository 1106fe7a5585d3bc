//! When to tell workers that a stream has grown, and how many viewers get it then.
//!
//! In: that bytes came, and the time. Out: whether to tell now, and whose turn it is, or when to ask again.
//!
//! A send costs about the same whether it carries one segment or five, so how often each viewer is sent to is the strongest
//! lever there is. What nobody is sent is late. So what comes after a pause goes to all at once, and otherwise each viewer
//! has a turn once in an interval (`Intervals::all`), which is longer where a worker has very many viewers (`TURN`), and where
//! it is busy, whatever with: what a send costs differs by a factor of three from machine to machine.
//!
//! **Turns come when bytes do**: who is sent to just behind some gets all of them fresh, and what waits for him is younger by
//! half of their distance. So a clock of ours decides only where nothing comes.
//! **Many viewers have their turns in shares**, one share in a step: a worker that sends to a thousand at once takes as long
//! as half an interval, for which the last of them waits.
//! Cost: some 60 bytes per stream.

use std::time::{Duration, Instant};

use wire::Bitrate;

/// So many viewers of a stream have their turns in shares: to send to all of them at once takes milliseconds.
const MANY: usize = 200;

/// Of a worker's time, for each of its viewers. To send to one takes it half of that, or less.
const TURN: Duration = Duration::from_micros(22);

/// An interval grows as far as this. A connection that was idle for longer than its retransmission timeout, which is 200 ms at
/// least, begins with a small window again (RFC 5681 §4.1), and then each send costs more.
const CROWDED: Duration = Duration::from_millis(160);

/// An interval in which a stream brings more than this is shorter, a step at least: a send of more is no cheaper, and what does
/// not fit into a core's cache is read from further away for each viewer.
const ENOUGH_BYTES: u64 = 512 * 1_024;

/// How much waiting is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intervals {
    /// From one share of many viewers to the next, about.
    pub step: Duration,
    /// From one turn of a viewer to his next, about. After a pause of this length nothing waits.
    pub all: Duration,
    /// A worker that is at work for a larger share of its time than this sends less often, by as much as it is larger.
    pub busy: f64,
}

impl Default for Intervals {
    /// What is sent has waited for fifteen milliseconds on average where it comes all ten, for twenty where it flows.
    fn default() -> Self {
        Intervals { step: Duration::from_millis(10), all: Duration::from_millis(33), busy: 0.3 }
    }
}

impl Intervals {
    /// For very many viewers on few cores.
    pub fn dense() -> Self {
        Intervals { all: Duration::from_millis(57), busy: 0.25, ..Intervals::default() }
    }
}

/// What workers with viewers of a stream have to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Crowd {
    /// Viewers of the stream that one of them has, at most.
    pub own: usize,
    /// Viewers of all streams that one of them has, at most.
    pub all: usize,
    /// The share of its time for which one of them is at work, at most.
    pub busy: f64,
    /// Of the stream; zero: nobody knows.
    pub rate: Bitrate,
}

/// How many of a stream's viewers have a turn, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// All of them.
    pub const ALL: Share = Share(1_000);

    /// So much of them, all at most.
    pub fn of(part: Duration, whole: Duration) -> Self {
        let thousandths = part.as_micros() * 1_000 / whole.as_micros().max(1);
        Share(thousandths.min(1_000) as u16)
    }

    /// In thousandths.
    pub fn thousandths(self) -> usize {
        self.0.into()
    }
}

/// What one stream has that not all viewers had a turn for.
#[derive(Clone, Debug)]
pub struct Coalescer {
    intervals: Intervals,
    /// Viewers who have not had a turn since bytes came last, in thousandths.
    owed: u16,
    /// Bytes came since it was last told.
    is_new: bool,
    /// `None`: nobody was ever told.
    told_at: Option<Instant>,
    /// From one turn of a viewer to his next.
    all: Duration,
    in_shares: bool,
}

impl Coalescer {
    /// Of a stream without a byte or a viewer.
    pub fn new(intervals: Intervals) -> Self {
        Coalescer { intervals, owed: 0, is_new: false, told_at: None, all: intervals.all, in_shares: false }
    }

    /// What the workers have to do that have viewers of the stream. To be called every 100 ms or so.
    pub fn set_crowd(&mut self, crowd: Crowd) {
        let turns = TURN * u32::try_from(crowd.all).unwrap_or(u32::MAX);
        let stretch = (crowd.busy / self.intervals.busy).max(1.0);
        let wanted = self.intervals.all.max(turns).mul_f64(stretch).min(CROWDED).min(self.enough(crowd.rate));
        // A longer interval makes the share smaller, which is known a second later: a step at a time it comes to rest.
        self.all = if wanted <= self.intervals.all { wanted } else { (9 * self.all + wanted) / 10 };
        self.in_shares = crowd.own >= MANY;
    }

    /// The time in which a stream brings enough for a send.
    fn enough(&self, rate: Bitrate) -> Duration {
        let nanos = ENOUGH_BYTES * 8 * 1_000_000_000 / rate.bps().max(1);
        Duration::from_nanos(nanos).max(self.intervals.step)
    }

    /// From one turn of a viewer to his next.
    pub fn interval(&self) -> Duration {
        self.all
    }

    /// Whether not all viewers have their turns together.
    pub fn is_in_shares(&self) -> bool {
        self.in_shares
    }

    /// Bytes came. To be asked by `take` now; `poll_timeout` says when again.
    pub fn handle_bytes(&mut self) {
        (self.owed, self.is_new) = (Share::ALL.0, true);
    }

    /// What waits or comes next goes to all at once.
    pub fn hurry(&mut self) {
        self.told_at = None;
    }

    /// Who is to have a turn now.
    pub fn take(&mut self, now: Instant) -> Option<Share> {
        if self.owed == 0 {
            return None;
        }
        let share = match self.told_at.map(|told_at| now.saturating_duration_since(told_at)) {
            None => Share::ALL,
            Some(since) if since < if self.is_new { self.step() * 3 / 4 } else { self.patience() } => return None,
            Some(_) if !self.in_shares => Share::ALL,
            Some(since) => Share::of(since, self.all),
        };
        self.owed = self.owed.saturating_sub(share.0);
        (self.told_at, self.is_new) = (Some(now), false);
        Some(share)
    }

    /// When `take` next has something that no bytes bring; a time that is over means at once. `None`: when more comes.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        (self.owed > 0).then(|| self.told_at.map_or(now, |told_at| told_at + self.patience()))
    }

    /// How long after a turn the next one is.
    fn step(&self) -> Duration {
        if self.in_shares { self.intervals.step } else { self.all }
    }

    /// The same where nothing comes: so much longer that what comes once in a step is there before.
    fn patience(&self) -> Duration {
        self.step() + self.intervals.step / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: (usize, usize) = (199, 199);

    /// Ten seconds in which nothing changes.
    fn settle(coalescer: &mut Coalescer, crowd: Crowd) {
        (0..100).for_each(|_| coalescer.set_crowd(crowd));
    }

    /// Tells when it was told and of how many, in ms and thousandths, with bytes that come at these times.
    fn told((own, all): (usize, usize), came: impl Fn(u64) -> bool) -> Vec<(u64, u16)> {
        let start = Instant::now();
        let mut coalescer = Coalescer::new(Intervals::default());
        settle(&mut coalescer, Crowd { own, all, ..Crowd::default() });
        let mut told = Vec::new();
        for at_ms in 0..400 {
            let now = start + Duration::from_millis(at_ms);
            let has_come = came(at_ms);
            if has_come {
                coalescer.handle_bytes();
            }
            let is_due = coalescer.poll_timeout(now).is_some_and(|at| at <= now);
            let share = if has_come || is_due { coalescer.take(now) } else { None };
            assert!(share.is_some() || !is_due, "{at_ms}");
            told.extend(share.map(|share| (at_ms, share.0)));
        }
        told
    }

    #[test]
    fn the_first_bytes_after_a_pause_go_to_all_at_once() {
        for viewers in [1, 1_000] {
            let told = told((viewers, viewers), |at| [3, 103, 143].contains(&at));
            assert_eq!(told, [(3, 1_000), (103, 1_000), (143, 1_000)]);
        }
    }

    #[test]
    fn few_viewers_have_their_turns_together_when_bytes_come() {
        assert_eq!(told(FEW, |at| at % 10 == 0 && at <= 70), [(0, 1_000), (30, 1_000), (60, 1_000), (98, 1_000)]);
        let flowing: Vec<u64> = told(FEW, |_| true).into_iter().map(|(at, _)| at).collect();
        assert_eq!(flowing, (0..400).step_by(25).collect::<Vec<_>>());
        // Where there are thousands of others, less often.
        let beside: Vec<u64> = told((9, 4_000), |at| at % 10 == 0).into_iter().map(|(at, _)| at).collect();
        assert_eq!(beside, (0..400).step_by(70).collect::<Vec<_>>());
    }

    #[test]
    fn many_viewers_have_them_in_shares_that_come_to_one_turn_in_an_interval() {
        let ticks = told((200, 200), |at| at % 10 == 0);
        assert_eq!(ticks[0], (0, 1_000));
        assert!(ticks.iter().enumerate().skip(1).all(|(index, told)| *told == (10 * index as u64, 303)), "{ticks:?}");
        for (viewers, interval) in [(200, 33), (2_000, 44), (4_000, 88), (5_000, 110), (50_000, 160)] {
            for gap in [1, 7, 13, 25] {
                let told = told((viewers, viewers), |at| at % gap == 0);
                let (from, to) = (told[1].0, told.last().unwrap().0);
                let turns: u64 = told.iter().skip(2).map(|(_, share)| u64::from(*share)).sum();
                let expected = (to - from) * 1_000 / interval;
                assert!(
                    turns.abs_diff(expected) <= expected / 50 + 20,
                    "{turns} of {expected} with bytes all {gap} ms: {told:?}"
                );
            }
        }
    }

    #[test]
    fn a_busy_worker_sends_less_often_and_comes_to_rest() {
        let mut coalescer = Coalescer::new(Intervals::default());
        let interval = |coalescer: &mut Coalescer, busy| {
            settle(coalescer, Crowd { own: 1_000, all: 1_000, busy, ..Crowd::default() });
            coalescer.all.as_secs_f64() * 1_000.0
        };
        for (busy, expected) in [(0.3, 33.0), (0.45, 49.5), (1.0, 110.0), (0.0, 33.0)] {
            let came_to = interval(&mut coalescer, busy);
            assert!((came_to - expected).abs() < 0.1, "{came_to} ms where it is busy for {busy}");
        }
        // How busy it is follows from the interval: a second later, and for a part of it not at all.
        let (mut busy, mut last) = (0.0, Vec::new());
        for tick in 0..400 {
            coalescer.set_crowd(Crowd { own: 1_000, all: 1_000, busy, ..Crowd::default() });
            busy += 0.095 * ((0.1 + 0.018 / coalescer.all.as_secs_f64()).min(1.0) - busy);
            if tick >= 200 {
                last.push(coalescer.all);
            }
        }
        let (least, most) = (last.iter().min().unwrap(), last.iter().max().unwrap());
        assert!(
            *most - *least < Duration::from_micros(100) && *least > Duration::from_millis(48),
            "{least:?} {most:?}"
        );
    }

    #[test]
    fn a_fast_stream_is_sent_more_often_than_would_be_cheaper_for_a_slow_one() {
        let mut coalescer = Coalescer::new(Intervals::default());
        for (mbps, expected_ms) in [(2, 110.0), (50, 84.0), (100, 42.0), (1_000, 10.0)] {
            settle(&mut coalescer, Crowd { own: 200, all: 200, busy: 1.0, rate: Bitrate::from_kbps(mbps * 1_000) });
            let interval_ms = coalescer.interval().as_secs_f64() * 1e3;
            assert_eq!(interval_ms.round(), expected_ms, "{mbps} Mbit/s");
        }
    }

    #[test]
    fn what_came_last_goes_to_all_within_one_and_a_half_intervals() {
        let told = told((1_000, 1_000), |at| at % 10 == 0 && at <= 50);
        assert_eq!(&told[told.len() - 3..], [(50, 303), (65, 454), (80, 454)]);
    }
}
