//! How many requests to one origin are under way.
//!
//! In: who is asked, and a request. Out: its result. Others wait for their turn. A request that takes long moves to a
//! second row of the same length, so that a few slow titles do not keep the fast ones of their origin waiting; when that
//! row is full, it is given up. Origins do not know of each other.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use url::Url;

use crate::error::HttpError;
use crate::flight::lock;

/// A request that takes longer counts as slow.
const SLOW: Duration = Duration::from_secs(1);

/// Origins whose rows are kept while nobody is in them.
const IDLE_MAX: usize = 256;

pub(crate) struct Slots {
    per_origin: usize,
    rows: Mutex<HashMap<String, Arc<Rows>>>,
}

struct Rows {
    fast: Semaphore,
    slow: Semaphore,
}

impl Slots {
    pub fn new(per_origin: usize) -> Self {
        Slots { per_origin: per_origin.clamp(1, Semaphore::MAX_PERMITS), rows: Mutex::default() }
    }

    /// Waits for a turn, then for the request.
    pub async fn run<T>(&self, url: &Url, request: impl Future<Output = Result<T, HttpError>>) -> Result<T, HttpError> {
        let rows = self.rows_of(url);
        // The semaphores are never closed.
        let turn = rows.fast.acquire().await.ok();
        let mut request = pin!(request);
        if let Ok(result) = tokio::time::timeout(SLOW, &mut request).await {
            return result;
        }
        let Ok(_slow) = rows.slow.try_acquire() else { return Err(HttpError::Crowded) };
        drop(turn);
        request.await
    }

    fn rows_of(&self, url: &Url) -> Arc<Rows> {
        let origin = url.origin().ascii_serialization();
        let mut rows = lock(&self.rows);
        if rows.len() >= IDLE_MAX && !rows.contains_key(&origin) {
            rows.retain(|_, rows| Arc::strong_count(rows) > 1);
        }
        let new = || Arc::new(Rows { fast: Semaphore::new(self.per_origin), slow: Semaphore::new(self.per_origin) });
        rows.entry(origin).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    async fn forever() -> Result<(), HttpError> {
        pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn slow_requests_make_room_for_fast_ones_and_are_limited_themselves() {
        let slots = Arc::new(Slots::new(2));
        let url: Url = "http://origin/a.ts".parse().unwrap();
        let start = |count: usize| {
            let each = (0..count).map(|_| {
                let (slots, url) = (slots.clone(), url.clone());
                tokio::spawn(async move { slots.run(&url, forever()).await })
            });
            each.collect::<Vec<_>>()
        };

        let stuck = start(2);
        // They have all turns, and after a second they have none.
        assert_eq!(slots.run(&url, ready(Ok(7))).await, Ok(7));
        let too_many = start(2);
        assert_eq!(slots.run(&url, ready(Ok(8))).await, Ok(8));

        for each in too_many {
            assert_eq!(each.await.unwrap(), Err(HttpError::Crowded));
        }
        assert!(stuck.iter().all(|each| !each.is_finished()));
    }

    #[tokio::test(start_paused = true)]
    async fn one_origin_does_not_wait_for_another() {
        let slots = Slots::new(1);
        let (stuck, good): (Url, Url) = ("http://a/x.ts".parse().unwrap(), "http://b/x.ts".parse().unwrap());

        let before = tokio::time::Instant::now();
        tokio::select! {
            biased;
            _ = slots.run(&stuck, forever()) => panic!("it never ends"),
            result = slots.run(&good, ready(Ok(1))) => assert_eq!(result, Ok(1)),
        }
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn origins_that_nobody_asks_are_forgotten() {
        let slots = Slots::new(1);
        for port in 1..2_000 {
            let url: Url = format!("http://host:{port}/").parse().unwrap();
            slots.run(&url, ready(Ok(()))).await.unwrap();
        }
        assert!(lock(&slots.rows).len() <= IDLE_MAX);
    }
}
