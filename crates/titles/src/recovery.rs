//! A title of which nothing comes for a while: when it is asked for again.
//!
//! In: what became of each request for a part. Out: when the next may leave: at once while parts come; while none does, one
//! at a time, with pauses that grow. So an origin that fails is asked once per title, however many sessions play it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::time::{Instant, sleep_until};

use crate::error::Error;
use crate::flight::lock;
use crate::origins::backoff;

/// The longest pause between requests for a title of which nothing comes.
const PAUSE_MAX: Duration = Duration::from_secs(1);

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
    /// Parts that came.
    came: u64,
    failing: Option<Failing>,
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

    pub fn handle_part(&self) {
        let mut state = lock(&self.state);
        state.came += 1;
        state.failing = None;
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

    /// Waits until a request may leave. What it returns is to be kept until that is answered.
    pub async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.next()?;
        let turn = self.turn.lock().await;
        // A part may have come while this waited.
        sleep_until(self.next()?).await;
        Some(turn)
    }

    pub fn came(&self) -> u64 {
        lock(&self.state).came
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
                            return recovery.handle_part();
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
        recovery.handle_part();
        assert!(recovery.turn().await.is_none() && recovery.trouble().is_none());
    }
}
