//! A title of which nothing comes for a while: when it is asked for again.
//!
//! In: what became of each request for a part. Out: when the next may leave: at once while parts come; while none does, one
//! at a time, with pauses that grow. So an origin that fails is asked once per title, however many sessions play it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::{Instant, sleep_until};

use crate::error::Error;
use crate::flight::lock;
use crate::origins::backoff;

/// The longest pause between requests for a title of which nothing comes.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A part that failed so often, or since so long, is given up when others of its title could be had meanwhile.
const PART_TRIES: u32 = 5;
const PART_PATIENCE: Duration = Duration::from_secs(5);

/// Parts of one title that failed and are remembered; the one that failed first is forgotten.
const MISSED_MAX: usize = 64;

/// What keeps a title's parts from coming.
#[derive(Clone, Debug)]
pub struct Trouble {
    /// For how long none came.
    pub since: Duration,
    /// What became of the last request.
    pub error: Error,
}

/// Of one title.
#[derive(Debug)]
pub(crate) struct Recovery {
    first_pause: Duration,
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    failing: Option<Failing>,
    missed: VecDeque<Missed>,
}

/// A part that has failed since it came last.
#[derive(Debug)]
struct Missed {
    number: u32,
    since: Instant,
    tries: u32,
    /// Others can be had: one came that stands behind it, or was asked for when this one had failed. What was on its way before
    /// says nothing of an origin that fails from then on.
    others_come: bool,
}

#[derive(Debug)]
struct Failing {
    since: Instant,
    rounds: u32,
    /// No request before this.
    next: Instant,
    error: Error,
}

impl Recovery {
    pub fn new(first_pause: Duration) -> Self {
        Recovery { first_pause, state: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// A part came from where the title is, and not from a copy.
    pub fn handle_part(&self, number: u32, asked: Instant) {
        let mut state = lock(&self.state);
        state.failing = None;
        state.missed.retain(|missed| missed.number != number);
        for missed in &mut state.missed {
            missed.others_come |= number > missed.number || asked > missed.since;
        }
    }

    /// A part failed once more. True when it is given up: it cannot be had, and others can.
    pub fn gives_up(&self, number: u32) -> bool {
        let (now, mut state) = (Instant::now(), lock(&self.state));
        if let Some(missed) = state.missed.iter_mut().find(|missed| missed.number == number) {
            missed.tries += 1;
            let is_tried = missed.tries >= PART_TRIES || now - missed.since >= PART_PATIENCE;
            return is_tried && missed.others_come;
        }
        if state.missed.len() >= MISSED_MAX {
            state.missed.pop_front();
        }
        state.missed.push_back(Missed { number, since: now, tries: 1, others_come: false });
        false
    }

    /// Whether nothing came since something failed.
    pub fn is_failing(&self) -> bool {
        lock(&self.state).failing.is_some()
    }

    /// True when it is the first failure after parts that came.
    pub fn handle_failure(&self, error: &Error) -> bool {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let (since, rounds) = match &mut state.failing {
            // It left together with one that failed already.
            Some(failing) if now < failing.next => {
                failing.error = error.clone();
                return false;
            }
            Some(failing) => (failing.since, failing.rounds + 1),
            None => (now, 0),
        };
        let next = now + self.pause(rounds);
        state.failing = Some(Failing { since, rounds, next, error: error.clone() });
        rounds == 0
    }

    /// Before request number `retry`, counted from 0, for what failed before.
    pub fn pause(&self, retry: u32) -> Duration {
        backoff(self.first_pause, PAUSE_MAX, retry)
    }

    /// Waits until a request may leave. What it returns is to be kept until that is answered, or hangs.
    pub async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.next()?;
        let turn = self.turn.lock().await;
        // A part may have come while this waited.
        sleep_until(self.next()?).await;
        Some(turn)
    }

    pub fn trouble(&self) -> Option<Trouble> {
        let state = lock(&self.state);
        let failing = state.failing.as_ref()?;
        Some(Trouble { since: failing.since.elapsed(), error: failing.error.clone() })
    }

    fn next(&self) -> Option<Instant> {
        Some(lock(&self.state).failing.as_ref()?.next)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thousand_who_want_parts_of_a_title_of_which_none_comes_ask_one_at_a_time() {
        let recovery = Arc::new(Recovery::new(Duration::from_millis(100)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();
        recovery.handle_failure(&Error::Stopped);
        let wanting: Vec<_> = (0..1_000)
            .map(|_| {
                let (recovery, asked) = (recovery.clone(), asked.clone());
                tokio::spawn(async move {
                    while let Some(_turn) = recovery.turn().await {
                        lock(&asked).push(start.elapsed());
                        if start.elapsed() >= Duration::from_secs(10) {
                            return recovery.handle_part(0, start);
                        }
                        recovery.handle_failure(&Error::Stopped);
                    }
                })
            })
            .collect();
        for each in wanting {
            each.await.expect("it ends");
        }
        let asked = lock(&asked);
        assert!((10..30).contains(&asked.len()), "{asked:?}");
        assert!(asked[0] <= Duration::from_millis(100), "{asked:?}");
        assert!(asked.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(50)), "{asked:?}");
        assert!(start.elapsed() < Duration::from_secs(12), "all went on with the first part that came");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_requests_that_left_together_make_one_pause() {
        let recovery = Recovery::new(Duration::from_millis(100));
        assert!(recovery.trouble().is_none());
        let firsts = (0..64).filter(|_| recovery.handle_failure(&Error::Stopped)).count();
        assert_eq!(firsts, 1);
        let start = Instant::now();
        assert!(recovery.turn().await.is_some());
        assert!(start.elapsed() <= Duration::from_millis(101), "{:?}", start.elapsed());
        assert!(recovery.trouble().is_some_and(|trouble| trouble.since == start.elapsed()));
        recovery.handle_part(0, start);
        assert!(recovery.turn().await.is_none() && recovery.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_is_given_up_after_five_tries_or_seconds_when_others_came_meanwhile() {
        let recovery = Recovery::new(Duration::from_millis(100));
        let start = Instant::now();
        assert!((0..20).all(|_| !recovery.gives_up(3)), "nothing came at all");
        recovery.handle_part(2, start);
        assert!(!recovery.gives_up(3), "what was on its way came");
        recovery.handle_part(4, start);
        assert!(recovery.gives_up(3) && recovery.gives_up(3), "it stays so");
        recovery.handle_part(3, start);
        assert!(!recovery.gives_up(3), "until it comes");

        assert!(!recovery.gives_up(7));
        tokio::time::advance(Duration::from_millis(1)).await;
        recovery.handle_part(6, Instant::now());
        assert!(!recovery.gives_up(7));
        tokio::time::advance(PART_PATIENCE).await;
        assert!(recovery.gives_up(7), "its tries take long");
        (100..100 + MISSED_MAX as u32).for_each(|number| assert!(!recovery.gives_up(number)));
        assert!(!recovery.gives_up(7), "too many others failed since");
    }
}
