//! Samples as they are made, for everybody who looks: `text/event-stream`.
//!
//! In: a sample, once. Out: the same bytes to each reader. A reader has the newest sample or none: who takes too long misses those in
//! between, and nothing waits for anybody. Cost: one encoding a sample, a reference to it for each reader; `READERS_MAX` readers.
//! Source: WHATWG HTML §9.2 (server-sent events).

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::http::connections::Stay;

/// Readers at a time. Further ones are refused (503).
pub(super) const READERS_MAX: usize = 32;

/// A reader hears something at least so often, so that it and all proxies between know that the connection lives.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Nobody looks at it (WHATWG HTML §9.2.6).
const COMMENT: &[u8] = b":\n\n";

/// Who has the readers.
#[derive(Debug)]
pub(super) struct Feed {
    /// `None`: it has ended.
    newest: Mutex<Option<watch::Sender<Bytes>>>,
    places: Arc<Semaphore>,
}

/// A reader's place.
#[derive(Debug)]
pub(super) struct Place {
    newest: watch::Receiver<Bytes>,
    _permit: OwnedSemaphorePermit,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPlace {
    #[error("{READERS_MAX} readers follow the samples already")]
    Full,
    #[error("the server is about to stop")]
    Ended,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            newest: Mutex::new(Some(watch::Sender::new(Bytes::new()))),
            places: Arc::new(Semaphore::new(READERS_MAX)),
        }
    }
}

impl Feed {
    /// The next sample, as JSON.
    pub(super) fn tell(&self, at_ms: u64, sample: &str) {
        if let Some(newest) = &*self.newest.lock().unwrap_or_else(PoisonError::into_inner) {
            newest.send_replace(format!("id: {at_ms}\ndata: {sample}\n\n").into());
        }
    }

    /// Ends it for everybody, behind what they have.
    pub(super) fn end(&self) {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// A place for another reader.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn enter(&self) -> Result<Place, NoPlace> {
        let permit = self.places.clone().try_acquire_owned().map_err(|_| NoPlace::Full)?;
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = newest.as_ref().ok_or(NoPlace::Ended)?.subscribe();
        Ok(Place { newest, _permit: permit })
    }
}

impl Place {
    /// The names of the numbers, and then samples: the newest, and each that follows and for which there is time, until `ends`,
    /// and as long as the reader may have them.
    pub(super) fn body(
        mut self,
        fields: &str,
        stay: Option<Stay>,
        ends: Option<Instant>,
        may: impl Fn() -> bool + Send + 'static,
    ) -> Body {
        let first = Bytes::from(format!("event: fields\ndata: {fields}\n\n"));
        if !self.newest.borrow().is_empty() {
            self.newest.mark_changed();
        }
        let state = (self, Some(first), stay, may);
        let events = stream::unfold(state, move |(mut place, first, stay, may)| async move {
            let event = match first {
                Some(first) => first,
                None => tokio::select! {
                    next = timeout(SILENCE_MAX, place.next()) => next.unwrap_or(Some(Bytes::from_static(COMMENT)))?,
                    () = until(ends) => return None,
                },
            };
            may().then_some((Ok::<_, Infallible>(event), (place, None, stay, may)))
        });
        Body::from_stream(events)
    }

    async fn next(&mut self) -> Option<Bytes> {
        self.newest.changed().await.ok()?;
        Some(self.newest.borrow_and_update().clone())
    }
}

async fn until(ends: Option<Instant>) {
    match ends {
        Some(ends) => sleep_until(ends).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http_body_util::BodyExt as _;

    use super::*;

    async fn next(body: &mut Body) -> Option<String> {
        let frame = body.frame().await?.expect("it cannot fail");
        Some(String::from_utf8(frame.into_data().expect("data").into()).expect("text"))
    }

    #[tokio::test]
    async fn who_is_slow_gets_the_newest_and_nothing_waits_for_him() {
        let feed = Feed::default();
        feed.tell(1, "{}");
        let mut body = feed.enter().expect("a place").body("{\"machine\":[]}", None, None, || true);
        assert_eq!(next(&mut body).await.as_deref(), Some("event: fields\ndata: {\"machine\":[]}\n\n"));
        assert_eq!(next(&mut body).await.as_deref(), Some("id: 1\ndata: {}\n\n"));
        (2..=100_000).for_each(|at| feed.tell(at, "{\"at\":0}"));
        assert_eq!(next(&mut body).await.as_deref(), Some("id: 100000\ndata: {\"at\":0}\n\n"));
        feed.end();
        assert_eq!(next(&mut body).await, None);
        assert_eq!(feed.enter().expect_err("it has ended"), NoPlace::Ended);
    }

    #[tokio::test]
    async fn one_encoding_is_for_all() {
        let feed = Feed::default();
        let mut places = [feed.enter().expect("a place"), feed.enter().expect("a place")];
        feed.tell(1, "{}");
        let [first, second] = &mut places;
        let (first, second) = (first.next().await.expect("a sample"), second.next().await.expect("a sample"));
        assert_eq!(first.as_ptr(), second.as_ptr());
    }

    #[tokio::test]
    async fn there_are_so_many_places_and_each_is_free_when_its_reader_is_gone() {
        let feed = Feed::default();
        let mut places: Vec<_> = (0..READERS_MAX).map(|_| feed.enter().expect("a place")).collect();
        assert_eq!(feed.enter().expect_err("there are no more"), NoPlace::Full);
        let body = places.pop().expect("one").body("{}", None, None, || true);
        assert!(feed.enter().is_err(), "its reader has it still");
        drop(body);
        assert!(feed.enter().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_hears_something_when_nothing_is_told_and_nothing_when_its_time_is_over() {
        let feed = Feed::default();
        let ends = Instant::now() + Duration::from_secs(20);
        let mut body = feed.enter().expect("a place").body("{}", None, Some(ends), || true);
        next(&mut body).await;
        assert_eq!(next(&mut body).await.as_deref(), Some(":\n\n"));
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test]
    async fn who_may_not_have_them_any_more_gets_none() {
        let feed = Feed::default();
        let may = Arc::new(AtomicBool::new(true));
        let asked = may.clone();
        let place = feed.enter().expect("a place");
        let mut body = place.body("{}", None, None, move || asked.load(Ordering::Relaxed));
        next(&mut body).await;
        feed.tell(1, "{}");
        assert!(next(&mut body).await.is_some());
        may.store(false, Ordering::Relaxed);
        feed.tell(2, "{}");
        assert_eq!(next(&mut body).await, None);
    }
}
