//! Changes of a session that plays: pauses, another place, another speed, another end; and where it then goes on.
//!
//! A speed other than 1 is a row of pictures, which `Planner` finds ahead of the session: the worker says when the last
//! ones that it knows are about to be sent (`Event::PicturesWanted`), a task finds more, and they are added. When the
//! pictures are used up the session goes on at normal speed: backwards from the first place it may play, forwards behind
//! the last one, which is its end, or a loop's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::spec::{Command, RtpPoint, SessionId};
use pump::trick::Pick;
use tokio::sync::Mutex;

use super::fast::{Planner, nearest};
use super::{End, PumpControl, PumpError, Session, times};
use crate::pump::request::ChangeRequest;
use crate::pump::sessions::Content;

/// Pictures that are found before the first one is shown, and later at a time.
const FIRST_PICTURES: usize = 4;
const MORE_PICTURES: usize = 24;

/// A session that is shown at another speed.
#[derive(Clone, Debug)]
pub(in crate::pump) struct Fast {
    /// The worker's number for these pictures.
    run: u64,
    planner: Arc<Mutex<Planner>>,
    /// How often pictures were sent to the worker.
    parts: u32,
    /// All of these are shown.
    is_shown: bool,
    /// There are no more.
    is_over: bool,
}

/// Where a session began, or goes on: its next datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Time in the title.
    pub at: Duration,
    /// The next sequence number and timestamp, of a session with RTP.
    pub rtp: Option<RtpPoint>,
}

/// Where a session is to go on.
enum Place {
    Here,
    At(u64),
    Pictures(Planner, Vec<Pick>),
}

impl PumpControl {
    /// Pauses, resumes, goes on elsewhere or at another speed, ends elsewhere. The session that is returned says at which
    /// speed: 1 in a title without pictures that stand alone. Going elsewhere without a speed is at normal speed.
    ///
    /// # Errors
    /// `NoSession`, `Ended`; `Empty` behind the end; what keeps the new place from being found.
    pub async fn change(&self, id: SessionId, change: ChangeRequest) -> Result<Session, PumpError> {
        let session = self.running(id)?;
        if let Some(input) = &session.content.input {
            return self.change_live(id, input, &change);
        }
        let (end, place) = self.in_time(self.find(&session, &change)).await?;
        let state = &mut *self.lock();
        state.sessions.renew(Instant::now(), id);
        let session = state.sessions.running(id).ok_or(PumpError::Ended)?;
        if end.is_some() {
            // Meanwhile there is none: the place where it is may lie behind the new end, the new place behind the old.
            self.post(session.worker, Command::SetEnd { session: id, end: None });
        }
        state.next_run += 1;
        self.go(session, place, state.next_run);
        if end.is_some() {
            self.post(session.worker, Command::SetEnd { session: id, end });
        }
        session.content.end = end.unwrap_or(session.content.end);
        self.set_paused(session, change.paused);
        Ok(session.clone())
    }

    /// Pauses a session, lets it go on, or leaves it as it is.
    pub(super) fn set_paused(&self, session: &mut Session, paused: Option<bool>) {
        let Some(paused) = paused else { return };
        session.is_paused = paused;
        self.post(session.worker, if paused { Command::Pause(session.id) } else { Command::Resume(session.id) });
    }

    /// Where a session is to end from now on, and where it goes on.
    async fn find(&self, session: &Session, change: &ChangeRequest) -> Result<(Option<u64>, Place), PumpError> {
        let Content { title, zero, start, .. } = &session.content;
        let position = |at, at_picture| times::position_at(&self.library, title, *zero, at, at_picture);
        let end = match change.end {
            Some(at) => Some(position(at, false).await?.min(title.packet_count())),
            None => None,
        };
        let bounds = (*start, end.unwrap_or(session.content.end));
        let seek = match change.seek {
            Some(at) => Some(position(at, true).await?),
            None => None,
        };
        if seek.is_some_and(|seek| seek >= bounds.1) || end.is_some_and(|end| end <= *start) {
            return Err(PumpError::Empty);
        }
        Ok((end, self.place(session, bounds, seek, change.scale).await?))
    }

    async fn place(
        &self,
        session: &Session,
        (low, high): (u64, u64),
        seek: Option<u64>,
        scale: Option<f64>,
    ) -> Result<Place, PumpError> {
        let title = &session.content.title;
        let permille = scale.map_or(1_000, nearest);
        let is_fast = session.scale_permille != 1_000;
        let from = match seek {
            Some(to) => to,
            None if scale.is_none() || permille == session.scale_permille => return Ok(Place::Here),
            None => {
                let stats = self.ask_stats(session.worker, session.id).await?;
                stats.ok_or(PumpError::Ended)?.position.min(high.saturating_sub(1))
            }
        };
        if permille != 1_000
            && let Some(mut planner) = Planner::new(title, from, (low.min(from), high), permille)
        {
            let picks = planner.plan(&self.library, FIRST_PICTURES).await?;
            if !picks.is_empty() {
                return Ok(Place::Pictures(planner, picks));
            }
        }
        match seek {
            Some(to) => Ok(Place::At(to)),
            None if is_fast => Ok(Place::At(times::picture_before(&self.library, title, from).await?)),
            None => Ok(Place::Here),
        }
    }

    /// Waits until the session plays, and says where it began. Meant to follow `open`, or a `change` that made it go on.
    /// `None` when it does not begin within five seconds, ends before, or somebody else asks as well.
    ///
    /// # Errors
    /// `NoSession`, `Ended`.
    pub async fn started(&self, id: SessionId) -> Result<Option<Started>, PumpError> {
        let session = self.running(id)?;
        let ask = |token| self.offer(session.worker, Command::AwaitStart { session: id, token });
        let Some(start) = self.starts.ask(ask).await.flatten() else { return Ok(None) };
        let session = self.lock().sessions.get(id).cloned().unwrap_or(session);
        Ok(Some(Started { at: session.time_at(start.position), rtp: start.rtp }))
    }

    /// Finds more pictures for a session, if there are more.
    pub(super) async fn find_pictures(&self, session: Session, run: u64) {
        let Some(fast) = session.fast.filter(|fast| fast.run == run) else { return };
        let mut planner = fast.planner.lock().await;
        planner.is_patient = true;
        let picks = loop {
            match planner.plan(&self.library, MORE_PICTURES).await {
                Ok(picks) => break picks,
                Err(error) if error.is_passing() && self.is_open(session.id) => {}
                Err(error) => return self.close_because(session.id, End::Unreadable(error.to_string())),
            }
        };
        let behind = planner.place_behind();
        let mut state = self.lock();
        let Some(session) = state.sessions.running(session.id) else { return };
        let Some(fast) = session.fast.as_mut().filter(|fast| fast.run == run) else { return };
        if picks.is_empty() {
            fast.is_over = true;
            self.go_on_behind(session, behind);
        } else {
            (fast.parts, fast.is_shown) = (fast.parts + 1, false);
            self.post(session.worker, Command::MorePictures { session: session.id, picks: picks.into(), run });
        }
    }

    /// The worker has shown all pictures of the first `parts` parts.
    pub(super) async fn handle_shown(&self, session: Session, run: u64, parts: u32) {
        let Some(fast) = session.fast.filter(|fast| fast.run == run) else { return };
        let behind = fast.planner.lock().await.place_behind();
        let mut state = self.lock();
        let Some(session) = state.sessions.running(session.id) else { return };
        let Some(fast) = session.fast.as_mut().filter(|fast| fast.run == run) else { return };
        fast.is_shown = fast.parts == parts;
        self.go_on_behind(session, behind);
    }

    fn go(&self, session: &mut Session, place: Place, run: u64) {
        match place {
            Place::Here => {}
            Place::At(to) => self.go_to(session, to),
            Place::Pictures(planner, picks) => {
                session.scale_permille = planner.scale_permille();
                let planner = Arc::new(Mutex::new(planner));
                session.fast = Some(Fast { run, planner, parts: 1, is_shown: false, is_over: false });
                self.post(session.worker, Command::Trick { session: session.id, picks: picks.into(), run });
            }
        }
    }

    fn go_to(&self, session: &mut Session, to: u64) {
        (session.fast, session.scale_permille) = (None, 1_000);
        self.post(session.worker, Command::Seek { session: session.id, to });
    }

    /// When all pictures were shown, and there are no more.
    fn go_on_behind(&self, session: &mut Session, to: u64) {
        if session.fast.as_ref().is_some_and(|fast| fast.is_shown && fast.is_over) {
            self.go_to(session, to);
        }
    }
}
