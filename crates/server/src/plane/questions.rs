//! Questions to workers: asked by a command that carries a token, answered by an event that has the same.
//!
//! Cost: one lock, held for a map lookup. A question is forgotten when nobody waits for its answer any more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a worker or a negotiator may take to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Questions of one kind that wait for their answers.
#[derive(Debug)]
pub(crate) struct Questions<T> {
    waiting: Mutex<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    by_token: HashMap<u64, oneshot::Sender<T>>,
    next: u64,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Questions { waiting: Mutex::new(Waiting { by_token: HashMap::new(), next: 0 }) }
    }
}

impl<T> Questions<T> {
    /// Asks by `send`, which is given the token and says whether it is on its way, and waits. `None` when it is not, or
    /// there is no answer in time.
    pub(crate) async fn ask(&self, send: impl FnOnce(u64) -> bool) -> Option<T> {
        let asked = self.begin();
        if send(asked.token) { asked.answer().await } else { None }
    }

    /// Takes an answer. Who asked may have gone.
    pub(crate) fn handle_answer(&self, token: u64, answer: T) {
        if let Some(reply) = self.lock().by_token.remove(&token) {
            reply.send(answer).ok();
        }
    }

    fn begin(&self) -> Asked<'_, T> {
        let (reply, answer) = oneshot::channel();
        let mut waiting = self.lock();
        let token = waiting.next;
        waiting.next += 1;
        waiting.by_token.insert(token, reply);
        Asked { questions: self, token, answer }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().expect("nobody panics under this lock")
    }
}

struct Asked<'a, T> {
    questions: &'a Questions<T>,
    token: u64,
    answer: oneshot::Receiver<T>,
}

impl<T> Asked<'_, T> {
    async fn answer(mut self) -> Option<T> {
        timeout(ANSWER_TIMEOUT, &mut self.answer).await.ok()?.ok()
    }
}

impl<T> Drop for Asked<'_, T> {
    fn drop(&mut self) {
        self.questions.lock().by_token.remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_gets_its_own_answer_and_a_question_is_forgotten_with_the_one_who_asked() {
        let questions = Questions::default();
        let answered = questions.ask(|token| {
            questions.handle_answer(token, 5);
            true
        });
        assert_eq!(answered.await, Some(5));
        assert_eq!(questions.ask(|_| false).await, None, "it was not on its way");

        let asked = std::cell::Cell::new(None);
        let unanswered = questions.ask(|token| {
            asked.set(Some(token));
            true
        });
        assert!(timeout(Duration::from_millis(1), unanswered).await.is_err());
        assert!(questions.lock().by_token.is_empty());
        questions.handle_answer(asked.get().expect("it was asked"), 7);
    }
}
