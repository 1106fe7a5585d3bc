//! Requests that are under way, as their connection knows them: who waits for whom, and since when nothing was done.
//!
//! In: requests as they come, answers as they are taken piece by piece. Out: whether the connection is idle.
//! Cost: a lock of the connection's own per piece, and one look at the places a second.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use crate::accept::Place;

/// Bytes of an answer that are taken at a time: who reads slowly is seen to read.
const PIECE_MAX: usize = 64 * 1024;

/// While pieces are taken the place hears of it so often.
const PLACE_HEARS: Duration = Duration::from_secs(1);

/// A connection, as its requests know it.
#[derive(Debug)]
pub(super) struct Guest {
    place: Place,
    activity: Mutex<Activity>,
}

#[derive(Debug)]
struct Activity {
    /// Requests that wait for us: for an answer, or for the next piece of one.
    owed: usize,
    /// When one came, or a piece was taken.
    last: Instant,
    /// When the place heard of it.
    told: Instant,
}

impl Guest {
    pub(super) fn new(place: Place) -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Guest { place, activity: Mutex::new(Activity { owed: 0, last: now, told: now }) })
    }

    /// Returns when for so long nothing was done that the client wanted, and it is not we for whom it waits.
    pub(super) async fn is_idle(&self, time: Duration) {
        loop {
            let Activity { owed, last, .. } = *self.activity();
            let now = Instant::now();
            let until = if owed > 0 { now } else { last } + time;
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Something was done. The place hears of it at once where that `is_news`.
    fn touch(&self, is_news: bool, change: impl FnOnce(&mut usize)) {
        let now = Instant::now();
        let mut activity = self.activity();
        change(&mut activity.owed);
        activity.last = now;
        if is_news || now.saturating_duration_since(activity.told) >= PLACE_HEARS {
            activity.told = now;
            drop(activity);
            self.place.touch();
        }
    }

    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().expect("nobody panics under this lock")
    }
}

/// A request, until all of its answer was taken, or nobody wants it any more.
#[derive(Debug)]
pub(super) struct Errand {
    guest: Arc<Guest>,
    /// It waits for us.
    is_owed: bool,
}

impl Errand {
    pub(super) fn new(guest: Arc<Guest>) -> Self {
        guest.touch(true, |owed| *owed += 1);
        Errand { guest, is_owed: true }
    }

    /// There is an answer, of which this is the body.
    pub(super) fn answer(mut self, body: Body) -> Attended {
        self.give(true);
        Attended { body, rest: Bytes::new(), errand: self }
    }

    /// The client has what it waited for.
    fn give(&mut self, is_news: bool) {
        let was_owed = std::mem::take(&mut self.is_owed);
        self.guest.touch(is_news, |owed| *owed -= usize::from(was_owed));
    }

    /// The client has taken what there was, and waits for more.
    fn owe(&mut self) {
        if !std::mem::replace(&mut self.is_owed, true) {
            self.guest.touch(false, |owed| *owed += 1);
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.give(true);
    }
}

/// The body of an answer, in pieces that are noticed when they are taken.
#[derive(Debug)]
pub(super) struct Attended {
    body: Body,
    /// Of what the body gave last.
    rest: Bytes,
    errand: Errand,
}

impl HttpBody for Attended {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Attended { body, rest, errand } = &mut *self;
        if rest.is_empty() {
            let came = Pin::new(body).poll_frame(context);
            if came.is_pending() {
                errand.owe();
            }
            match ready!(came).map(|came| came.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => *rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        errand.give(false);
        let piece = rest.split_to(rest.len().min(PIECE_MAX));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
