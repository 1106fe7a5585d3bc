//! One task per thing that is wanted, however many want it.
//!
//! In: a key, and how to get the thing. Out: a clone of the one result for everyone who asked while it was on its way.
//! The task goes on when those who asked are gone. A failure is told to all who wait, and is not kept.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::error::Error;

type Outcome<V> = Option<Result<V, Error>>;

pub(crate) struct Flight<K, V> {
    waiting: Arc<Mutex<HashMap<K, watch::Receiver<Outcome<V>>>>>,
}

impl<K, V> Default for Flight<K, V> {
    fn default() -> Self {
        Flight { waiting: Arc::default() }
    }
}

impl<K, V> Flight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Waits for the result of `work`, or of the one that is under way for this key; `joined` is called for that.
    pub async fn run<W>(&self, key: K, joined: impl FnOnce(), work: W) -> Result<V, Error>
    where
        W: Future<Output = Result<V, Error>> + Send + 'static,
    {
        let (mut receiver, begun) = {
            let mut waiting = lock(&self.waiting);
            match waiting.get(&key) {
                Some(receiver) => {
                    joined();
                    (receiver.clone(), None)
                }
                None => {
                    let (sender, receiver) = watch::channel(None);
                    waiting.insert(key.clone(), receiver.clone());
                    (receiver, Some((sender, Landing { key, waiting: self.waiting.clone() })))
                }
            }
        };
        // Not under the lock: a runtime that is at its end drops the task at once, and that takes the key out.
        if let Some((sender, landing)) = begun {
            tokio::spawn(async move {
                let result = work.await;
                drop(landing);
                sender.send_replace(Some(result));
            });
        }
        let outcome = receiver.wait_for(Option::is_some).await.map_err(|_| Error::Stopped)?;
        outcome.clone().unwrap_or(Err(Error::Stopped))
    }
}

/// Takes the key out, also when the task is ended.
struct Landing<K: Eq + Hash, V> {
    key: K,
    waiting: Arc<Mutex<HashMap<K, watch::Receiver<Outcome<V>>>>>,
}

impl<K: Eq + Hash, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        lock(&self.waiting).remove(&self.key);
    }
}

/// What is behind these locks is whole between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn a_hundred_who_want_the_same_cause_one_task() {
        let flight: Arc<Flight<u32, u32>> = Arc::default();
        let (runs, joins) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let gate = Arc::new(Semaphore::new(0));

        let asked: Vec<_> = (0..100)
            .map(|_| {
                let (flight, runs, joins, gate) = (flight.clone(), runs.clone(), joins.clone(), gate.clone());
                tokio::spawn(async move {
                    let joined = || {
                        joins.fetch_add(1, Ordering::Relaxed);
                    };
                    let work = async move {
                        let _permit = gate.acquire().await;
                        Ok(runs.fetch_add(1, Ordering::Relaxed))
                    };
                    flight.run(7, joined, work).await
                })
            })
            .collect();
        while joins.load(Ordering::Relaxed) < 99 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(100);

        for each in asked {
            assert_eq!(each.await.unwrap().unwrap(), 0);
        }
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        assert!(lock(&flight.waiting).is_empty());
    }

    #[tokio::test]
    async fn a_failure_is_told_to_all_and_then_forgotten() {
        let flight: Flight<u32, u32> = Flight::default();

        let failed = flight.run(1, || (), async { Err(Error::UnknownTitle) }).await;
        assert!(matches!(failed, Err(Error::UnknownTitle)));
        assert_eq!(flight.run(1, || (), async { Ok(5) }).await.unwrap(), 5);
    }

    #[tokio::test]
    async fn a_task_goes_on_when_nobody_waits() {
        let flight: Flight<u32, u32> = Flight::default();
        let gate = Arc::new(Semaphore::new(0));
        let done = Arc::new(Semaphore::new(0));
        let (gate_of_task, done_of_task) = (gate.clone(), done.clone());
        let work = async move {
            let _permit = gate_of_task.acquire().await;
            done_of_task.add_permits(1);
            Ok(1)
        };

        tokio::select! {
            biased;
            _ = flight.run(1, || (), work) => panic!("nothing is there yet"),
            () = tokio::task::yield_now() => (),
        }
        gate.add_permits(1);

        assert!(done.acquire().await.is_ok());
    }

    #[test]
    fn a_runtime_at_its_end_answers_nothing_and_holds_up_nobody() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let _entered = handle.enter();
        let flight: Flight<u32, u32> = Flight::default();

        let mut asked = pin!(flight.run(1, || (), async { Ok(5) }));
        let answer = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));

        assert!(matches!(answer, Poll::Ready(Err(Error::Stopped))));
        assert!(lock(&flight.waiting).is_empty());
    }

    #[tokio::test]
    async fn a_task_that_panics_leaves_nothing_behind() {
        let flight: Flight<u32, u32> = Flight::default();

        let failed = flight.run(1, || (), async { panic!("as the test wants") }).await;

        assert!(matches!(failed, Err(Error::Stopped)));
        assert_eq!(flight.run(1, || (), async { Ok(5) }).await.unwrap(), 5);
    }
}
