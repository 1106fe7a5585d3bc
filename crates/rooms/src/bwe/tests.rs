//! The bandwidth estimator against a simulated link: capacity, delay, a queue with a limit, and seeded loss.

use super::*;
use std::collections::VecDeque;
use wire::Random;

const PACKET: usize = 1_200;
const PROBE_PACKET: usize = 600;
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(50);

const STEP: Duration = Duration::from_millis(1);

#[test]
fn the_reference_clock_goes_on_across_its_wrap() {
    let mut clock = ReferenceClock::default();
    let top = (1 << 23) - 1;
    assert_eq!(clock.wrapped_ticks(top), 0);
    assert_eq!(clock.wrapped_ticks(-top - 1), TICKS_PER_REFERENCE << 24);
    assert_eq!(clock.wrapped_ticks(top), 0);
    assert_eq!(clock.wrapped_ticks(-top), TICKS_PER_REFERENCE << 24);
}

#[test]
fn an_idle_viewer_takes_less_than_2_kib() {
    assert!(size_of::<Estimator>() < 2_048, "{}", size_of::<Estimator>());
}

#[test]
fn a_saturated_link_is_found_to_within_15_percent() {
    for mbps in [1, 5] {
        let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(mbps * 1_000), ..Link::default() });
        path.saturate(Duration::from_secs(20));
        let mean = path.mean_estimate_while_saturated(Duration::from_secs(20));
        let share = mean / (mbps as f64 * 1e6);
        assert!((0.85..=1.15).contains(&share), "{mbps} Mbit/s: {share:.3} of the capacity");
    }
}

#[test]
fn without_probes_growth_finds_the_link_too() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(1_000), ..Link::default() });
    path.wanted = None;
    path.saturate(Duration::from_secs(30));
    let share = path.mean_estimate_while_saturated(Duration::from_secs(20)) / 1e6;
    assert!((0.85..=1.15).contains(&share), "{share:.3} of the capacity");
}

#[test]
fn a_capacity_that_halves_is_followed_within_a_second() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(3_000), ..Link::default() });
    path.saturate(Duration::from_secs(20));
    path.link.capacity = Bitrate::from_kbps(1_500);
    path.saturate(Duration::from_secs(1));
    assert!(path.estimate() < Bitrate::from_kbps(1_650), "{}", path.estimate());
    path.saturate(Duration::from_secs(5));
    assert!(path.estimate() > Bitrate::from_kbps(900), "{}", path.estimate());
}

#[test]
fn two_percent_of_random_loss_is_no_congestion() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(3_000), loss: 0.02, ..Link::default() });
    path.saturate(Duration::from_secs(20));
    let share = path.mean_estimate_while_saturated(Duration::from_secs(20)) / 3e6;
    assert!(share > 0.7, "{share:.3} of the capacity");
    assert!((0.005..0.06).contains(&path.estimator.loss), "{}", path.estimator.loss);
}

#[test]
fn heavy_loss_without_delay_lowers_the_estimate() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(50_000), ..Link::default() });
    path.saturate(Duration::from_secs(10));
    let before = path.estimate();
    path.link.loss = 0.3;
    path.saturate(Duration::from_secs(3));
    assert!(path.estimate() < before.scale(0.7), "{before} to {}", path.estimate());
}

#[test]
fn lost_late_and_repeated_feedback_does_little_harm() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(3_000), ..Link::default() });
    path.feedback_mischief = true;
    path.saturate(Duration::from_secs(20));
    let share = path.mean_estimate_while_saturated(Duration::from_secs(20)) / 3e6;
    assert!((0.7..=1.2).contains(&share), "{share:.3} of the capacity");
}

#[test]
fn a_probe_discovers_3_mbps_while_300_kbps_are_sent() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(3_000), ..Link::default() });
    path.wanted = Some(Bitrate::from_kbps(2_300));
    path.send_frames(Bitrate::from_kbps(300), Duration::from_secs(5));
    assert!(path.estimate() >= Bitrate::from_kbps(2_500), "{}", path.estimate());
    assert!(path.estimate() <= Bitrate::from_kbps(3_200), "{}", path.estimate());
}

#[test]
fn probes_that_a_receiver_ignores_do_no_harm() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(50_000), ..Link::default() });
    path.probes_ignored = true;
    path.wanted = Some(Bitrate::from_kbps(5_000));
    path.send_frames(Bitrate::from_kbps(500), Duration::from_secs(5));
    let before = path.estimate();
    path.send_frames(Bitrate::from_kbps(500), Duration::from_secs(60));
    assert!(path.probe_count > 3, "{} probes", path.probe_count);
    assert!(path.estimate() >= before, "{before} to {}", path.estimate());
}

#[test]
fn a_path_whose_first_probes_failed_is_tried_again() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(10_000), ..Link::default() });
    path.probes_ignored = true;
    path.wanted = Some(Bitrate::from_kbps(2_300));
    path.send_frames(Bitrate::from_kbps(500), Duration::from_secs(20));
    path.probes_ignored = false;
    path.send_frames(Bitrate::from_kbps(500), Duration::from_secs(60));
    assert!(path.estimate() >= Bitrate::from_kbps(2_500), "{}", path.estimate());
}

#[test]
fn packets_that_arrive_together_prove_nothing_until_the_probe_is_longer() {
    let capacity = Bitrate::from_kbps(2_000);
    let mut path = PathTest::new(Link { capacity, aggregation: Duration::from_millis(40), ..Link::default() });
    path.wanted = Some(Bitrate::from_kbps(5_000));
    for _ in 0..30 {
        path.send_frames(Bitrate::from_kbps(500), Duration::from_secs(1));
        assert!(path.estimate() < capacity.scale(1.15), "{}", path.estimate());
    }
    assert!(path.estimate() > Bitrate::from_kbps(1_200), "{}", path.estimate());
}

#[test]
fn a_link_too_fast_to_measure_carries_what_was_asked_for() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(10_000_000), ..Link::default() });
    path.wanted = Some(Bitrate::from_kbps(2_000));
    path.send_frames(Bitrate::from_kbps(300), Duration::from_secs(3));
    assert!(path.estimate() >= Bitrate::from_kbps(2_390), "{}", path.estimate());
}

#[test]
fn a_layer_that_does_not_fit_is_not_promised_and_probed_ever_less() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(700), ..Link::default() });
    path.wanted = Some(Bitrate::from_kbps(2_000));
    path.send_frames(Bitrate::from_kbps(300), Duration::from_secs(60));
    assert!(path.estimate() < Bitrate::from_kbps(1_000), "{}", path.estimate());
    assert!(path.estimate() > Bitrate::from_kbps(300), "{}", path.estimate());
    assert!(path.probe_count < 20, "{} probes", path.probe_count);
    let before = path.probe_count;
    path.send_frames(Bitrate::from_kbps(300), Duration::from_secs(60));
    assert!(path.probe_count - before < 8, "{} more probes", path.probe_count - before);
}

#[test]
fn keyframes_and_jitter_do_not_take_a_fitting_layer_away() {
    let link = Link { capacity: Bitrate::from_kbps(5_000), jitter: Duration::from_millis(8), ..Link::default() };
    let mut path = PathTest::new(link);
    path.wanted = Some(Bitrate::from_kbps(2_500));
    path.send_frames(Bitrate::from_kbps(300), Duration::from_secs(5));
    for _ in 0..30 {
        // A keyframe of six ordinary frames, then the others.
        path.send_frames(Bitrate::from_kbps(7_200), Duration::from_millis(34));
        path.send_frames(Bitrate::from_kbps(1_200), Duration::from_millis(1_966));
        assert!(path.estimate() > Bitrate::from_kbps(1_500), "{}", path.estimate());
    }
}

#[test]
fn without_probes_the_estimate_stays_near_what_was_sent() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(10_000), ..Link::default() });
    path.wanted = None;
    path.send_frames(Bitrate::from_kbps(300), Duration::from_secs(60));
    assert!(path.estimate() < Bitrate::from_kbps(550), "{}", path.estimate());
}

#[test]
fn sequence_numbers_wrap_unnoticed() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(3_000), ..Link::default() });
    path.next_seq = 65_000;
    path.saturate(Duration::from_secs(20));
    let share = path.mean_estimate_while_saturated(Duration::from_secs(10)) / 3e6;
    assert!((0.85..=1.15).contains(&share), "{share:.3} of the capacity");
}

#[test]
fn a_viewer_that_stops_its_feedback_is_sent_less() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(3_000), ..Link::default() });
    path.saturate(Duration::from_secs(10));
    let before = path.estimate();
    path.feedback_silent = true;
    path.saturate(Duration::from_secs(10));
    assert!(path.estimate() < before.scale(0.4), "{before} to {}", path.estimate());
}

#[test]
fn a_publisher_that_pauses_does_not_make_the_path_narrow() {
    let mut path = PathTest::new(Link { capacity: Bitrate::from_kbps(3_000), ..Link::default() });
    path.send_frames(Bitrate::from_kbps(300), Duration::from_secs(5));
    let before = path.estimate();
    for pause in [4, 30] {
        // The last packet before the pause is lost.
        path.link.loss = 1.0;
        path.send(PACKET);
        path.link.loss = 0.0;
        path.wanted = None;
        (0..pause * 1_000).for_each(|_| path.step());
        path.wanted = Some(Bitrate::from_kbps(10_000));
        path.frame_due = path.now;
        path.send_frames(Bitrate::from_kbps(300), Duration::from_millis(20));
        assert_eq!(path.estimate(), before, "after {pause} s");
        path.send_frames(Bitrate::from_kbps(300), Duration::from_millis(200));
        assert!(path.estimate() >= before && !path.estimator.rate.was_lowered, "after {pause} s");
    }
}

#[test]
fn what_the_viewer_says_is_measured_where_it_is_the_bound() {
    let now = Instant::now();
    let second = Duration::from_secs(1);
    let kbps = Bitrate::from_kbps;
    let mut estimator = Estimator::new(now, kbps(50_000), kbps(50), kbps(50_000));
    assert!(!estimator.is_bounded_by_remb());
    // Receivers begin with what they got.
    estimator.on_remb(now, kbps(3_000), kbps(2_500));
    assert!(!estimator.is_bounded_by_remb());
    estimator.on_remb(now + second, kbps(600), kbps(2_500));
    assert!(estimator.is_bounded_by_remb());
    // What does not fall is believed less and less.
    (2..100).for_each(|seconds| estimator.on_remb(now + seconds * second, kbps(600), kbps(500)));
    assert!(!estimator.is_bounded_by_remb());
}

#[test]
fn a_compound_has_us_look_at_so_many_numbers_and_no_more() {
    let now = Instant::now();
    let mut estimator = estimator(now);
    (0..2_048).for_each(|seq| estimator.on_sent(now, seq, PACKET));
    estimator.on_feedback(now, 0, 0, [(0, Some(0))].into_iter(), &mut { LINES_MAX });
    // Each message leaves out as many numbers as the history has, and has 8,191 more.
    let (mut room, mut looked_at) = (LINES_MAX, 0);
    let heard = (1..=47_u16).filter(|message| {
        let base_seq = message * 700;
        let lines = (0..8_191).map(|line| (base_seq.wrapping_add(line), None)).inspect(|_| looked_at += 1);
        estimator.on_feedback(now, base_seq, 0, lines, &mut room)
    });
    assert_eq!(heard.count(), 0);
    assert_eq!((room, looked_at), (0, LINES_MAX - 699));
    // What was left out is not left out again.
    let mut room = LINES_MAX;
    let left_out = estimator.next_seq.map(|next_seq| next_seq.wrapping_add(100));
    for _ in 0..5 {
        estimator.on_feedback(now, left_out.unwrap(), 0, std::iter::empty(), &mut room);
    }
    assert_eq!(room, LINES_MAX - 100);
}

#[test]
fn hostile_feedback_neither_panics_nor_leaves_the_bounds() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let start = Instant::now();
        let mut estimator = estimator(start);
        let mut now = start;
        for seq in 0..3_000u32 {
            now += Duration::from_micros(random.next_u64() % 20_000);
            estimator.on_sent(now, seq as u16, (random.next_u64() % 70_000) as usize);
            if random.next_u64().is_multiple_of(8) {
                let base_seq = random.next_u64() as u16;
                let base_seq = if random.next_u64().is_multiple_of(2) { seq as u16 } else { base_seq };
                let reference_time = (random.next_u64() as i32) >> (random.next_u64() % 32);
                let arrivals: Vec<_> = (0..random.next_u64() % 300)
                    .map(|i| {
                        let ticks = (random.next_u64() as i64) >> (random.next_u64() % 64);
                        (base_seq.wrapping_sub(i as u16), (!random.next_u64().is_multiple_of(3)).then_some(ticks))
                    })
                    .collect();
                let room = &mut (random.next_u64() % 4_096) as &mut u64;
                estimator.on_feedback(now, base_seq, reference_time, arrivals.into_iter(), &mut (*room as usize));
                estimator.on_report(
                    now,
                    random.next_u64() as u8,
                    Some(Duration::from_micros(random.next_u64())),
                    Bitrate::from_bps(random.next_u64()),
                );
                estimator.poll_probe(now, Bitrate::from_bps(random.next_u64()), true);
            }
            assert!(
                (50_000..=20_000_000).contains(&estimator.estimate().bps()),
                "seed {seed}: {}",
                estimator.estimate()
            );
        }
    }
}

fn estimator(now: Instant) -> Estimator {
    Estimator::new(now, Bitrate::from_kbps(300), Bitrate::from_kbps(50), Bitrate::from_kbps(20_000))
}

/// One direction of a path.
struct Link {
    capacity: Bitrate,
    delay: Duration,
    /// Packets that would wait longer than this are dropped.
    queue: Duration,
    /// Each packet is late by up to this much more, but order stays.
    jitter: Duration,
    /// Packets arrive at multiples of this only.
    aggregation: Duration,
    loss: f64,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            capacity: Bitrate::from_kbps(1_000),
            delay: Duration::from_millis(25),
            queue: Duration::from_millis(300),
            jitter: Duration::ZERO,
            aggregation: Duration::ZERO,
            loss: 0.0,
        }
    }
}

/// When it comes, the number that it starts from, and its lines.
type Feedback = (Instant, u16, Vec<(u16, Option<i64>)>);

/// A sender with an estimator, a link, and a receiver that sends feedback.
struct PathTest {
    now: Instant,
    start: Instant,
    link: Link,
    random: Random,
    estimator: Estimator,
    next_seq: u16,
    /// When the link has sent all that it took.
    link_free: Instant,
    /// Arrived packets that no feedback has spoken of: number and time.
    arrived: VecDeque<(u16, Instant)>,
    next_reported: Option<u16>,
    feedback_due: Instant,
    /// Feedback on its way.
    feedback: Vec<Feedback>,
    feedback_mischief: bool,
    feedback_silent: bool,
    wanted: Option<Bitrate>,
    probe_count: u32,
    is_probing: bool,
    /// Numbers of all packets sent for a probe.
    probes: Vec<u16>,
    /// The receiver takes no packets of probes, and says that they are lost.
    probes_ignored: bool,
    /// Bytes that may be sent now.
    budget: f64,
    frame_due: Instant,
}

impl PathTest {
    fn new(link: Link) -> Self {
        let start = Instant::now();
        PathTest {
            now: start,
            start,
            link,
            random: Random::new(7),
            estimator: estimator(start),
            next_seq: 0,
            link_free: start,
            arrived: VecDeque::new(),
            next_reported: None,
            feedback_due: start + FEEDBACK_INTERVAL,
            feedback: Vec::new(),
            feedback_mischief: false,
            feedback_silent: false,
            wanted: Some(Bitrate::from_kbps(10_000)),
            probe_count: 0,
            is_probing: false,
            probes: Vec::new(),
            probes_ignored: false,
            budget: 0.0,
            frame_due: start,
        }
    }

    fn estimate(&self) -> Bitrate {
        self.estimator.estimate()
    }

    /// Sends just as fast as the estimate says.
    fn saturate(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.step_saturated();
        }
    }

    fn mean_estimate_while_saturated(&mut self, span: Duration) -> f64 {
        let until = self.now + span;
        let (mut sum, mut count) = (0.0, 0.0);
        while self.now < until {
            self.step_saturated();
            sum += self.estimate().bps() as f64;
            count += 1.0;
        }
        sum / count
    }

    fn step_saturated(&mut self) {
        self.budget += self.estimate().bps() as f64 / 8.0 * STEP.as_secs_f64();
        while self.budget >= PACKET as f64 {
            self.budget -= PACKET as f64;
            self.send(PACKET);
        }
        self.step();
    }

    /// Sends 30 frames per second at `rate`, each as a burst, and probes on demand.
    fn send_frames(&mut self, rate: Bitrate, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            if self.now >= self.frame_due {
                self.frame_due += Duration::from_micros(33_333);
                let mut bytes = (rate.bps() / 8 / 30) as usize;
                while bytes > 0 {
                    let packet = bytes.min(PACKET);
                    self.send(packet);
                    bytes -= packet;
                }
            }
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        let slice = self.wanted.and_then(|wanted| self.estimator.poll_probe(self.now, wanted, true));
        self.probe_count += u32::from(slice.is_some() && !self.is_probing);
        self.is_probing = slice.is_some();
        let mut left = slice.unwrap_or(0) as i64;
        while left > 0 {
            self.probes.push(self.next_seq);
            self.send(PROBE_PACKET);
            left -= PROBE_PACKET as i64;
        }
        self.estimator.handle_timeout(self.now);
        if self.now >= self.feedback_due {
            self.feedback_due = self.now + FEEDBACK_INTERVAL;
            self.make_feedback();
        }
        let now = self.now;
        while let Some(index) = self.feedback.iter().position(|(at, ..)| *at <= now) {
            let (_, base_seq, lines) = self.feedback.remove(index);
            self.estimator.on_feedback(now, base_seq, 0, lines.into_iter(), &mut { LINES_MAX });
        }
    }

    fn send(&mut self, bytes: usize) {
        let seq = self.next_seq;
        self.next_seq = seq.wrapping_add(1);
        self.estimator.on_sent(self.now, seq, bytes);
        let is_ignored = self.probes_ignored && self.probes.last() == Some(&seq);
        if is_ignored || self.chance() < self.link.loss || self.link_free > self.now + self.link.queue {
            return;
        }
        self.link_free = self.link_free.max(self.now) + self.link.capacity.time_for(bytes);
        let arrival = self.link_free + self.link.delay + self.link.jitter.mul_f64(self.chance());
        let passed_us = arrival.duration_since(self.start).as_micros() as u64;
        let grid_us = (self.link.aggregation.as_micros() as u64).max(1);
        let arrival = self.start + Duration::from_micros(passed_us.next_multiple_of(grid_us));
        let before = self.arrived.back().map_or(arrival, |(_, at)| *at);
        self.arrived.push_back((seq, arrival.max(before)));
    }

    fn make_feedback(&mut self) {
        let mut lines: Vec<(u16, Option<i64>)> = Vec::new();
        while let Some((seq, at)) = self.arrived.front().copied()
            && at <= self.now
        {
            self.arrived.pop_front();
            let mut next = self.next_reported.unwrap_or(seq);
            while next != seq {
                lines.push((next, None));
                next = next.wrapping_add(1);
            }
            self.next_reported = Some(seq.wrapping_add(1));
            lines.push((seq, Some((at - self.start).as_micros() as i64 / 250)));
        }
        if lines.is_empty() || self.feedback_silent {
            return;
        }
        let comes = self.now + self.link.delay;
        let base_seq = lines[0].0;
        let message = |at| (at, base_seq, lines.clone());
        if !self.feedback_mischief {
            self.feedback.push(message(comes));
            return;
        }
        match self.random.next_u64() % 10 {
            0 => {}
            1 => self.feedback.push(message(comes + Duration::from_millis(120))),
            2 => self.feedback.extend([message(comes), message(comes + Duration::from_millis(30))]),
            _ => self.feedback.push(message(comes)),
        }
    }

    fn chance(&mut self) -> f64 {
        self.random.unit()
    }
}
