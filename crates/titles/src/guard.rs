//! Panics of the libraries below HTTP end one request, or one connection to an origin, and nobody else's.
//!
//! In: a future. Out: what it gives, or that it panicked. Cost: nothing while it does not.
//!
//! That a panic is caught has two conditions: the program unwinds (`panic` in its profile), and whoever has panics end the
//! process otherwise, by a hook, asks `is_guarded`.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use hyper::rt::Executor;

use crate::stats::Counts;

tokio::task_local! {
    static IS_GUARDED: ();
}

/// Whether a panic of a library would be caught now, and end one request or connection only.
pub fn is_guarded() -> bool {
    IS_GUARDED.try_with(|()| ()).is_ok()
}

/// Does what may panic, and has tasks in which something may. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    counts: Arc<Counts>,
    has_panicked: Arc<AtomicBool>,
}

impl Guard {
    pub fn new(counts: Arc<Counts>) -> Self {
        Guard { counts, has_panicked: Arc::default() }
    }

    /// Does what may panic; `None`: it did.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let caught = async {
            let mut work = pin!(work);
            poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
                Ok(poll) => poll.map(Some),
                Err(_) => Poll::Ready(None),
            })
            .await
        };
        let done = IS_GUARDED.scope((), caught).await;
        if done.is_none() {
            self.counts.count(|stats| stats.panics += 1);
            self.has_panicked.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Whether something has panicked since this was asked before.
    pub fn take_panicked(&self) -> bool {
        self.has_panicked.swap(false, Ordering::Relaxed)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Guard {
    fn execute(&self, work: F) {
        let guard = self.clone();
        tokio::spawn(async move { guard.run(work).await });
    }
}
