//! Sound of several speakers: what a listener hears of all of them goes out together.
//!
//! Where each track is a stream of its own, as in LiveKit's rooms, a speaker's packet alone would be a send for every
//! listener. So it waits `Settings::gather_speakers` at most for those of others whom its listeners hear as well. Then these
//! get the packets of all, listener by listener, the longest first: so every run of equal ones takes a shorter one behind it.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use wire::Outbox;

use super::turns::{Turn, What};
use super::{Rooms, Timer};
use crate::down_track::Progress;

/// How often it is looked whether the listeners of a stream hear another as well.
const LOOK: Duration = Duration::from_secs(1);

/// Listeners of a stream who tell what is heard with it. Who speaks hears all but himself, so one is not enough.
const ASKED: usize = 2;

/// What came of speakers and waits for that of others, and what of it goes out now.
#[derive(Debug, Default)]
pub(super) struct Speakers {
    /// Streams of which something came, and until when it waits; the first is the next.
    waiting: Vec<(Instant, usize)>,
    /// Whether there is a timer for it.
    is_timed: bool,
    /// Those that go out together.
    together: Vec<usize>,
    /// Who gets them, each once, and how many of these have them already.
    listeners: Vec<usize>,
    served: usize,
    /// By sessions' keys: the number of the last round in which it was among the listeners.
    rounds: Vec<u64>,
    round: u64,
}

impl Speakers {
    /// The stream is closed.
    pub(super) fn forget(&mut self, stream: usize) {
        self.waiting.retain(|(_, waiting)| *waiting != stream);
        self.together.retain(|going| *going != stream);
    }

    fn add_listener(&mut self, session: usize) {
        if self.rounds.len() <= session {
            self.rounds.resize(session + 1, 0);
        }
        if std::mem::replace(&mut self.rounds[session], self.round) != self.round {
            self.listeners.push(session);
        }
    }
}

impl Rooms {
    /// Sound came of a stream that has no picture: it waits for that of others, where its listeners hear some.
    pub(super) fn gather_speaker(&mut self, now: Instant, key: usize) {
        let patience = self.settings.gather_speakers;
        let stream = &self.streams[key];
        let may_wait = !patience.is_zero() && !self.settings.gather.is_zero();
        if !may_wait || !stream.is_wanted() || !stream.has_many_readers() || !self.has_company(now, key) {
            return self.queue_stream(key);
        }
        // Each worker gathers for its own.
        self.streams[key].post_batches(&mut self.posts);
        if !self.speakers.waiting.iter().any(|(_, waiting)| *waiting == key) {
            self.speakers.waiting.push((now + patience, key));
        }
        self.set_speakers_timer();
    }

    fn set_speakers_timer(&mut self) {
        let Speakers { waiting, is_timed, .. } = &mut self.speakers;
        if let Some((until, _)) = waiting.first()
            && !std::mem::replace(is_timed, true)
        {
            self.wheel.insert(*until, Timer::Speakers);
        }
    }

    /// Whether who hears this stream hears another at the same time, as far as two listeners tell.
    fn has_company(&mut self, now: Instant, key: usize) -> bool {
        let stream = &self.streams[key];
        let (looked_at, had_company) = stream.company;
        if looked_at.is_some_and(|at| now.saturating_duration_since(at) < LOOK) {
            return had_company;
        }
        let mut asked = stream.viewers.iter().take(ASKED).map(|listener| &self.sessions[*listener].downs);
        let has_company = asked.any(|downs| downs.hears_another(key, &self.streams, now));
        self.streams[key].company = (Some(now), has_company);
        has_company
    }

    /// The first that wait have waited for long enough.
    pub(super) fn handle_speakers_timeout(&mut self) {
        self.speakers.is_timed = false;
        if !self.turns.contains(&Turn::Speakers) {
            self.turns.push_back(Turn::Speakers);
        }
    }

    /// Sends listeners what they have not had of speakers whose time has come, and of those who are heard with them.
    pub(super) fn serve_speakers(&mut self, now: Instant, out: &mut Outbox) -> Progress {
        while self.gather_listeners(now) {
            let together = std::mem::take(&mut self.speakers.together);
            let progress = self.serve_listeners(now, &together, out);
            self.speakers.together = together;
            if progress == Progress::Full {
                return progress;
            }
        }
        self.set_speakers_timer();
        Progress::Done
    }

    fn serve_listeners(&mut self, now: Instant, together: &[usize], out: &mut Outbox) -> Progress {
        while let Some(&listener) = self.speakers.listeners.get(self.speakers.served) {
            let is_there = self.sessions.contains(listener);
            if is_there && self.send_to(now, listener, What::Sound(together), out) == Progress::Full {
                return Progress::Full;
            }
            self.speakers.served += 1;
        }
        Progress::Done
    }

    /// Finds who gets what next; false when nobody does for now.
    fn gather_listeners(&mut self, now: Instant) -> bool {
        let Rooms { speakers, sessions, streams, .. } = self;
        if speakers.served < speakers.listeners.len() {
            return true;
        }
        let Some(&(_, first)) = speakers.waiting.first().filter(|(until, _)| *until <= now) else { return false };
        let asked = &streams[first].viewers;
        let asked = &asked[..asked.len().min(ASKED)];
        let is_heard = |stream| asked.iter().any(|listener| sessions[*listener].downs.hears(stream));
        speakers.together.clear();
        speakers.waiting.retain(|(_, stream)| {
            let goes = *stream == first || is_heard(*stream);
            if goes {
                speakers.together.push(*stream);
            }
            !goes
        });
        speakers.together.sort_by_key(|stream| Reverse(streams[*stream].last_len()));
        (speakers.round, speakers.served) = (speakers.round + 1, 0);
        speakers.listeners.clear();
        let together = std::mem::take(&mut speakers.together);
        for listener in together.iter().flat_map(|stream| &streams[*stream].viewers) {
            speakers.add_listener(*listener);
        }
        speakers.together = together;
        true
    }
}
