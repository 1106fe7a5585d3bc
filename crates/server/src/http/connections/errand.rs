//! Requests that are under way: how many there may be, and who waits for whom, since when nothing was done.
//!
//! In: requests as they come, answers as they are taken piece by piece. Out: whether there is room for a request, and whether its
//! connection is idle.
//! Cost: a lock of the connection's own per piece; a look at the places when a request comes, is answered and is done with,
//! and one a second between.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use hyper::body::{Frame, SizeHint};
use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::Problem;
use super::line::Line;
use crate::accept::{PerAddress, Place};

/// Bytes of an answer that are taken at a time: who reads slowly is seen to read.
const PIECE_MAX: usize = 64 * 1024;

/// While pieces are taken the place hears of it so often.
const PLACE_HEARS: Duration = Duration::from_secs(1);

/// Requests beside another of their connection, as HTTP/2 has them, of all connections. Each connection may have one without
/// being counted here, so nobody who has a place can be kept from asking.
#[derive(Debug)]
pub(super) struct Requests {
    max: usize,
    per_client: usize,
    beside: Mutex<Beside>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Beside {
    count: usize,
    of: PerAddress,
}

/// Why a request is refused at once, before its body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    OfClient,
    OfAll,
}

impl Requests {
    /// So many in all and of one client.
    pub(super) fn new(max: usize, per_client: usize) -> Arc<Self> {
        Arc::new(Requests { max, per_client, beside: Mutex::default(), refused: AtomicU64::new(0) })
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn enter(&self, network: Option<IpAddr>) -> Result<(), Full> {
        let mut beside = self.beside();
        let entered = if beside.count >= self.max {
            Err(Full::OfAll)
        } else if network.is_none_or(|network| beside.of.enter(network, self.per_client)) {
            beside.count += 1;
            Ok(())
        } else {
            Err(Full::OfClient)
        };
        self.refused.fetch_add(u64::from(entered.is_err()), Ordering::Relaxed);
        entered
    }

    fn leave(&self, network: Option<IpAddr>) {
        let mut beside = self.beside();
        beside.count -= 1;
        if let Some(network) = network {
            beside.of.leave(network);
        }
    }

    fn beside(&self) -> MutexGuard<'_, Beside> {
        self.beside.lock().expect("nobody panics under this lock")
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Self {
        match full {
            Full::OfClient => {
                Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many requests of this client are under way")
            }
            Full::OfAll => Problem::unavailable("too many requests are under way", 1),
        }
    }
}

/// A connection, as its requests know it.
#[derive(Debug)]
pub(super) struct Guest {
    place: Place,
    requests: Arc<Requests>,
    activity: Mutex<Activity>,
    /// Answers, or bodies of requests, that go on for as long as they like.
    staying: watch::Sender<usize>,
    /// Those of these that are of no use when the client sends no more.
    watching: watch::Sender<usize>,
}

#[derive(Debug)]
struct Activity {
    /// Requests that are under way.
    count: usize,
    /// Requests that wait for us: for an answer, or for the next piece of one.
    owed: usize,
    /// When one came, or a piece was taken.
    last: Instant,
    /// When the place heard of it.
    told: Instant,
}

impl Guest {
    pub(super) fn new(place: Place, requests: Arc<Requests>) -> Arc<Self> {
        let now = Instant::now();
        let activity = Mutex::new(Activity { count: 0, owed: 0, last: now, told: now });
        let [staying, watching] = [watch::Sender::new(0), watch::Sender::new(0)];
        Arc::new(Guest { place, requests, activity, staying, watching })
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

    /// Returns when a connection has that age and nothing of it is to last.
    pub(super) async fn is_old(&self, age: Duration) {
        sleep(age).await;
        self.staying.subscribe().wait_for(|count| *count == 0).await.ok();
    }

    /// Returns when the client of somebody who watches has ended its side of the connection, which nothing else may ever tell: a
    /// stream that has no source sends nothing.
    pub(super) async fn has_left<S: AsyncRead + Unpin>(&self, line: Line<S>) {
        let mut watching = self.watching.subscribe();
        // The sender is here.
        while watching.wait_for(|count| *count > 0).await.is_ok() {
            tokio::select! {
                () = poll_fn(|context| line.poll_ended(context)) => return,
                _ = watching.wait_for(|count| *count == 0) => {}
            }
        }
    }

    /// Something was done. The place hears of it at once where that `is_news`.
    fn touch(&self, is_news: bool, change: impl FnOnce(&mut Activity)) {
        let now = Instant::now();
        let mut activity = self.activity();
        change(&mut activity);
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

/// By what a request may keep its connection for longer than others have theirs.
#[derive(Clone, Debug)]
pub(in crate::http) struct Lasting(Arc<Guest>);

impl Lasting {
    pub(super) fn new(guest: Arc<Guest>) -> Self {
        Lasting(guest)
    }

    /// From now on the connection makes no room and does not get too old.
    pub(in crate::http) fn stay(&self) -> Stay {
        self.0.staying.send_modify(|count| {
            *count += 1;
            self.0.place.keep(true);
        });
        Stay { guest: self.0.clone(), is_watching: false }
    }

    /// The same for an answer without an end: when its client sends no more the connection is over.
    pub(in crate::http) fn watch(&self) -> Stay {
        self.0.watching.send_modify(|count| *count += 1);
        let mut stay = self.stay();
        stay.is_watching = true;
        stay
    }
}

/// Keeps a connection until it is dropped.
#[derive(Debug)]
pub(in crate::http) struct Stay {
    guest: Arc<Guest>,
    is_watching: bool,
}

impl Drop for Stay {
    fn drop(&mut self) {
        if self.is_watching {
            self.guest.watching.send_modify(|count| *count -= 1);
        }
        self.guest.staying.send_modify(|count| {
            *count -= 1;
            self.guest.place.keep(*count > 0);
        });
    }
}

/// A request, until all of its answer was taken, or nobody wants it any more.
#[derive(Debug)]
pub(super) struct Errand {
    guest: Arc<Guest>,
    /// It waits for us.
    is_owed: bool,
    /// Whether it is counted among those beside another.
    is_beside: bool,
}

impl Errand {
    /// Another one, and whether it may be answered.
    pub(super) fn new(guest: Arc<Guest>) -> (Self, Result<(), Full>) {
        let mut is_alone = true;
        guest.touch(true, |activity| {
            is_alone = activity.count == 0;
            activity.count += 1;
            activity.owed += 1;
        });
        let entered = if is_alone { Ok(()) } else { guest.requests.enter(guest.place.network()) };
        let is_beside = !is_alone && entered.is_ok();
        (Errand { guest, is_owed: true, is_beside }, entered)
    }

    /// There is an answer, of which this is the body.
    pub(super) fn answer(mut self, body: Body) -> Attended {
        self.give(true);
        Attended { body, rest: Bytes::new(), errand: self }
    }

    /// The client has what it waited for.
    fn give(&mut self, is_news: bool) {
        let was_owed = std::mem::take(&mut self.is_owed);
        self.guest.touch(is_news, |activity| activity.owed -= usize::from(was_owed));
    }

    /// The client has taken what there was, and waits for more.
    fn owe(&mut self) {
        if !std::mem::replace(&mut self.is_owed, true) {
            self.guest.touch(false, |activity| activity.owed += 1);
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        let was_owed = self.is_owed;
        self.guest.touch(true, |activity| {
            activity.owed -= usize::from(was_owed);
            activity.count -= 1;
        });
        if self.is_beside {
            self.guest.requests.leave(self.guest.place.network());
        }
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
