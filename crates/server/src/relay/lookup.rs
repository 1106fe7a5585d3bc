//! Users whom the server does not know itself: who is asked for them, and how much at a time.
//!
//! In: questions of workers. Out: an answer to each of them, whatever happens.
//! Cost: a task per question; no more at a time than the store may take, and no more that wait than fit the queue. What is
//! more than that is answered at once: it could not be found out.

use std::sync::Arc;
use std::time::Duration;

use relay::auth::Found;
use tokio::sync::{Semaphore, mpsc};
use wire::WorkerId;

/// Questions under way at a time.
const ASKED_MAX: usize = 64;
/// Questions that wait. A worker has no more than a thousand at a time.
const WAITING_MAX: usize = 4_096;
/// A question that takes longer could not be answered. Clients ask again after half a second (RFC 8489 §6.2.1).
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Where users are that somebody else keeps.
pub trait UserStore: Send + Sync + 'static {
    /// What there is of a user.
    fn find(&self, name: &str) -> impl Future<Output = Found> + Send;

    /// The secrets of who hands out credentials for a time; `None` when they could not be read.
    fn secrets(&self) -> impl Future<Output = Option<Vec<Vec<u8>>>> + Send;
}

/// Takes questions for a store.
pub struct Lookups {
    questions: mpsc::Sender<Question>,
}

type Question = (WorkerId, Arc<str>);

impl Lookups {
    /// Begins to answer, by tasks of this runtime.
    pub fn start(
        store: Arc<impl UserStore>,
        answer: impl Fn(WorkerId, Arc<str>, Found) + Clone + Send + Sync + 'static,
    ) -> Self {
        let (questions, waiting) = mpsc::channel(WAITING_MAX);
        tokio::spawn(answer_all(waiting, store, answer));
        Lookups { questions }
    }

    /// Passes on a worker's question. False when there are too many.
    pub fn ask(&self, worker: WorkerId, user: Arc<str>) -> bool {
        self.questions.try_send((worker, user)).is_ok()
    }
}

async fn answer_all(
    mut waiting: mpsc::Receiver<Question>,
    store: Arc<impl UserStore>,
    answer: impl Fn(WorkerId, Arc<str>, Found) + Clone + Send + Sync + 'static,
) {
    let places = Arc::new(Semaphore::new(ASKED_MAX));
    while let Some((worker, user)) = waiting.recv().await {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (store, answer) = (store.clone(), answer.clone());
        tokio::spawn(async move {
            let found = tokio::time::timeout(ANSWERED_WITHIN, store.find(&user)).await;
            drop(place);
            answer(worker, user, found.unwrap_or(Found::Unavailable));
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use relay::auth::UserKeys;

    use super::*;

    /// Knows `ada`, and never answers for names that begin with `slow`.
    #[derive(Default)]
    struct Store {
        under_way: AtomicUsize,
        most: AtomicUsize,
    }

    /// A question under way.
    struct Asked<'a>(&'a Store);

    impl Drop for Asked<'_> {
        fn drop(&mut self) {
            self.0.under_way.fetch_sub(1, SeqCst);
        }
    }

    impl UserStore for Store {
        async fn find(&self, name: &str) -> Found {
            self.most.fetch_max(self.under_way.fetch_add(1, SeqCst) + 1, SeqCst);
            let _asked = Asked(self);
            if name.starts_with("slow") {
                std::future::pending::<()>().await;
            }
            if name == "ada" { Found::Keys(UserKeys::new("ada", "r", "p")) } else { Found::Nobody }
        }

        async fn secrets(&self) -> Option<Vec<Vec<u8>>> {
            None
        }
    }

    fn start(store: &Arc<Store>) -> (Lookups, mpsc::Receiver<(WorkerId, Arc<str>, Found)>) {
        let (answers, heard) = mpsc::channel(WAITING_MAX + ASKED_MAX);
        let answer = move |worker, user, found| answers.try_send((worker, user, found)).expect("there is room");
        (Lookups::start(store.clone(), answer), heard)
    }

    #[tokio::test]
    async fn each_question_is_answered_to_who_asked() {
        let (lookups, mut heard) = start(&Arc::default());
        assert!(lookups.ask(WorkerId(1), "ada".into()) && lookups.ask(WorkerId(0), "eve".into()));
        let mut answers = [heard.recv().await.expect("one"), heard.recv().await.expect("another")];
        answers.sort_by_key(|(worker, ..)| worker.0);
        assert_eq!(answers[0], (WorkerId(0), "eve".into(), Found::Nobody));
        assert_eq!(answers[1], (WorkerId(1), "ada".into(), Found::Keys(UserKeys::new("ada", "r", "p"))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_answered_and_no_more_are_asked_at_a_time_than_may_be() {
        let store = Arc::default();
        let (lookups, mut heard) = start(&store);
        let asked = (0..5_000).filter(|n| lookups.ask(WorkerId(0), format!("slow-{n}").into())).count();
        assert_eq!(asked, WAITING_MAX);
        for _ in 0..asked {
            let (_, _, found) = heard.recv().await.expect("an answer");
            assert_eq!(found, Found::Unavailable);
        }
        assert_eq!((store.most.load(SeqCst), store.under_way.load(SeqCst)), (ASKED_MAX, 0));
    }
}
