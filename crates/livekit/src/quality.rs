//! How well somebody is connected: a score of 100, less for loss and delay.
//!
//! In: what sessions report of the last seconds. Out, every 5 s: excellent from 80, good from 40, else poor; lost when
//! nothing answers. It falls at once and rises by half of the way, so that it does not flicker.

use std::time::Duration;

use livekit_protocol::ConnectionQuality;

/// Of 100, for each percent of packets lost.
const PER_PERCENT_LOST: f32 = 10.0;
const EXCELLENT_FROM: f32 = 80.0;
const GOOD_FROM: f32 = 40.0;
const SCORE_MAX: f32 = 100.0;

#[derive(Debug)]
pub(crate) struct Quality {
    score: f32,
    /// The worst that was reported since the last look.
    worst: Option<f32>,
    is_lost: bool,
    told: Option<ConnectionQuality>,
}

impl Quality {
    pub(crate) fn new() -> Self {
        Quality { score: SCORE_MAX, worst: None, is_lost: false, told: None }
    }

    pub(crate) fn observe(&mut self, loss: f32, rtt: Duration, jitter: Duration) {
        let score = score(loss, rtt, jitter);
        self.worst = Some(self.worst.map_or(score, |worst| worst.min(score)));
    }

    pub(crate) fn set_lost(&mut self, is_lost: bool) {
        self.is_lost = is_lost;
    }

    /// Takes what was reported into account; whether the grade differs from the one at the last look.
    pub(crate) fn look(&mut self) -> bool {
        if let Some(worst) = self.worst.take() {
            self.score = if worst < self.score { worst } else { (self.score + worst) / 2.0 };
        }
        let grade = self.grade();
        self.told.replace(grade) != Some(grade)
    }

    /// The grade at the last look.
    pub(crate) fn told(&self) -> Option<ConnectionQuality> {
        self.told
    }

    pub(crate) fn grade(&self) -> ConnectionQuality {
        match self.score {
            _ if self.is_lost => ConnectionQuality::Lost,
            score if score >= EXCELLENT_FROM => ConnectionQuality::Excellent,
            score if score >= GOOD_FROM => ConnectionQuality::Good,
            _ => ConnectionQuality::Poor,
        }
    }

    /// As LiveKit shows it, of 5.
    pub(crate) fn stars(&self) -> f32 {
        1.0 + 4.0 * self.score / SCORE_MAX
    }
}

fn score(loss: f32, rtt: Duration, jitter: Duration) -> f32 {
    // ITU-T G.107's slope of delay: gentle up to 160 ms one way, steep beyond.
    let delay_ms = (rtt / 2 + jitter * 2).as_secs_f32() * 1e3;
    let for_delay = if delay_ms < 160.0 { delay_ms / 40.0 } else { (delay_ms - 120.0) / 10.0 };
    let for_loss = loss.clamp(0.0, 1.0) * 100.0 * PER_PERCENT_LOST;
    (SCORE_MAX - for_delay - for_loss).clamp(0.0, SCORE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(20);

    #[test]
    fn loss_lowers_the_grade_at_once_and_it_rises_slowly() {
        let mut quality = Quality::new();
        quality.look();
        quality.observe(0.08, QUICK, Duration::ZERO);
        assert!(quality.look());
        assert_eq!(quality.grade(), ConnectionQuality::Poor);

        quality.observe(0.0, QUICK, Duration::ZERO);
        quality.look();
        assert_eq!(quality.grade(), ConnectionQuality::Good);
    }

    #[test]
    fn a_long_delay_lowers_the_grade() {
        let mut quality = Quality::new();
        quality.observe(0.0, Duration::from_millis(900), Duration::ZERO);
        quality.look();
        assert_eq!(quality.grade(), ConnectionQuality::Good);
    }

    #[test]
    fn the_worst_of_several_reports_counts() {
        let mut quality = Quality::new();
        quality.observe(0.05, QUICK, Duration::ZERO);
        quality.observe(0.0, QUICK, Duration::ZERO);
        quality.look();
        assert_eq!(quality.grade(), ConnectionQuality::Good);
    }

    #[test]
    fn what_stays_is_no_news() {
        let mut quality = Quality::new();
        assert!(quality.look());
        assert!(!quality.look());
    }
}
