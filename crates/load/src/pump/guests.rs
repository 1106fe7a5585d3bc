//! Sessions that come while others are measured: newcomers, whose start times count, and titles that break.
//!
//! In: titles, places, and over how long they come. Out: when each was asked for, or that it was refused. Newcomers are
//! there for a short time each, so that there are the same number all the while.

use std::net::SocketAddrV4;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::sessions::{Opened, Server, in_parallel};

/// How long a newcomer is there.
pub(super) const STAY: Duration = Duration::from_secs(2);

/// Sessions that are to come, evenly over a time.
#[derive(Default)]
pub(super) struct Guests {
    /// Of each its title, and where it is to be sent to.
    pub(super) sessions: Vec<(String, SocketAddrV4)>,
    /// Over how long they come.
    pub(super) span: Duration,
    /// How long each stays, at most to the end.
    pub(super) stay: Duration,
}

impl Guests {
    /// Opens each at its time since `start`, and closes all of them in the end. What it gives has a place for each: `None`
    /// for one that the server refused, or that it was too late for.
    pub(super) fn visit(&self, server: &Server, start: Instant) -> Vec<Option<Opened>> {
        let count = self.sessions.len();
        let end = start + self.span;
        let stay = (count as f64 * self.stay.as_secs_f64() / self.span.as_secs_f64().max(1e-9)).ceil() as usize;
        let there: Mutex<Vec<Option<Opened>>> = Mutex::new(vec![None; count]);
        let asked: Mutex<Vec<Option<Opened>>> = Mutex::new(vec![None; count]);
        let leave = |number: usize| {
            let session = there.lock().expect("no thread panics with it")[number].take();
            // One whose title broke may have ended by itself.
            let _ = session.map(|session| server.close(&session));
        };
        let come = |number: usize| {
            let at = start + self.span.mul_f64(number as f64 / count as f64);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if let Some(gone) = number.checked_sub(stay.max(1)) {
                leave(gone);
            }
            let (title, to) = &self.sessions[number];
            // A refusal is among what is measured.
            let session = if Instant::now() < end { server.open(title, *to).ok() } else { None };
            asked.lock().expect("no thread panics with it")[number].clone_from(&session);
            there.lock().expect("no thread panics with it")[number] = session;
        };
        let each = |work: &(dyn Fn(usize) + Sync)| {
            let done = in_parallel(count, |number| {
                work(number);
                Ok(())
            });
            debug_assert!(done.is_ok(), "nothing of it fails");
        };
        each(&come);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        each(&leave);
        asked.into_inner().unwrap_or_default()
    }
}
