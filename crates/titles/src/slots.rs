//! How many requests to one origin, or reads of one disk, are under way.
//!
//! In: who is asked, and a request. Out: its result. Others wait for their turn. A request that takes long moves to a
//! second row of the same length, while there is room, so that slow titles do not keep the fast ones of their origin
//! waiting. Origins do not know of each other.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;

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
    pub async fn run<T>(&self, origin: String, request: impl Future<Output = T>) -> T {
        let rows = self.rows_of(origin);
        // The semaphores are never closed.
        let turn = rows.fast.acquire().await.ok();
        let mut request = pin!(request);
        if let Ok(result) = tokio::time::timeout(SLOW, &mut request).await {
            return result;
        }
        if let Ok(_slow) = rows.slow.try_acquire() {
            drop(turn);
            return request.await;
        }
        // To end it here would make an origin that is busy busier: its bytes would be asked for again.
        request.await
    }

    fn rows_of(&self, origin: String) -> Arc<Rows> {
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

    #[tokio::test(start_paused = true)]
    async fn slow_requests_make_room_for_fast_ones_and_are_limited_themselves() {
        let slots = Arc::new(Slots::new(2));
        let stick = |count: usize| {
            let each = (0..count).map(|_| {
                let slots = slots.clone();
                tokio::spawn(async move { slots.run("a".to_owned(), pending::<()>()).await })
            });
            each.collect::<Vec<_>>()
        };

        let mut stuck = stick(2);
        tokio::task::yield_now().await;
        // They have all turns, and after a second they have none.
        assert_eq!(slots.run("a".to_owned(), ready(7)).await, 7);
        stuck.extend(stick(2));
        tokio::task::yield_now().await;
        let late = tokio::time::timeout(SLOW * 100, slots.run("a".to_owned(), ready(8))).await;

        assert!(late.is_err(), "both rows are full of requests that hang");
        assert_eq!(slots.run("b".to_owned(), ready(9)).await, 9);
        stuck.into_iter().for_each(|each| each.abort());
        assert_eq!(slots.run("a".to_owned(), ready(10)).await, 10);
    }

    #[tokio::test]
    async fn origins_that_nobody_asks_are_forgotten() {
        let slots = Slots::new(1);
        for number in 0..2_000 {
            slots.run(number.to_string(), ready(())).await;
        }
        assert!(lock(&slots.rows).len() <= IDLE_MAX);
    }
}
