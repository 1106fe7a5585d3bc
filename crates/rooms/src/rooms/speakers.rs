//! Sound of several speakers: what a listener hears of all of them goes out together.
//!
//! Where each track is a stream of its own, as in LiveKit's rooms, a speaker's packet alone would be a send for every
//! listener. So it waits `Settings::gather_speakers` at most for those of others whom its listeners hear as well. Then these
//! get the packets of all in a round, listener by listener, the longest first: so every run of equal ones takes a shorter one
//! behind it.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use slab::Slab;
use wheel::TimerId;
use wire::Outbox;

use super::turns::{Turn, What};
use super::{Rooms, Timer};
use crate::down_track::Progress;
use crate::stream::Speaking;

/// How often it is looked whether the listeners of a stream hear another as well.
const LOOK: Duration = Duration::from_secs(1);

/// Listeners of a stream who tell what is heard with it. Who speaks hears all but himself, so one is not enough.
const ASKED: usize = 2;

/// Viewers of a stream that are looked at for some who hear it.
const LOOKED_AT: usize = 16;

/// What came of speakers and waits for that of others, and what of it goes out now.
#[derive(Debug, Default)]
pub(super) struct Speakers {
    /// Streams of which something came, and until when it waits, in order. One that went with others is among them still.
    waiting: VecDeque<(Instant, usize)>,
    /// For the first, or for one that has gone by now.
    timer: Option<(Instant, TimerId)>,
    rounds: Slab<Round>,
    /// Rounds that are over; their memory is used again.
    spare: Vec<Round>,
    /// By sessions' keys: the number of the last round that it is in.
    seen: Vec<u64>,
    round_count: u64,
    /// Streams of which something came that other workers have not been sent.
    unposted: Vec<usize>,
}

/// Streams of which the sound goes out together, to whom, and how many of these have it.
#[derive(Debug, Default)]
struct Round {
    streams: Vec<usize>,
    listeners: Vec<usize>,
    served: usize,
}

impl Speakers {
    /// The stream is closed.
    pub(super) fn forget(&mut self, stream: usize) {
        self.waiting.retain(|(_, waiting)| *waiting != stream);
        self.unposted.retain(|unposted| *unposted != stream);
        self.rounds.iter_mut().for_each(|(_, round)| round.streams.retain(|going| *going != stream));
    }

    /// Takes a session among the listeners of the newest round, where it is not yet.
    fn add_listener(&mut self, listeners: &mut Vec<usize>, session: usize) {
        if self.seen.len() <= session {
            self.seen.resize(session + 1, 0);
        }
        if std::mem::replace(&mut self.seen[session], self.round_count) != self.round_count {
            listeners.push(session);
        }
    }
}

impl Rooms {
    /// Sound came of a stream that has no picture: it waits for that of others, where its listeners hear some.
    pub(super) fn gather_speaker(&mut self, now: Instant, key: usize) {
        let may_wait = !self.settings.gather_speakers.is_zero() && !self.settings.gather.is_zero();
        let stream = &self.streams[key];
        if !may_wait || !stream.is_wanted() || !stream.has_many_viewers() || !self.has_company(now, key) {
            return self.queue_stream(key);
        }
        // Each worker gathers for its own.
        if self.speakers.unposted.last() != Some(&key) {
            self.speakers.unposted.push(key);
        }
        let until = now + self.settings.gather_speakers;
        match &mut self.streams[key].speaking {
            Speaking::Going { more_until } => *more_until = more_until.or(Some(until)),
            Speaking::Waiting { .. } => {}
            Speaking::Not => self.wait_for_others(until, key),
        }
    }

    fn wait_for_others(&mut self, until: Instant, key: usize) {
        self.streams[key].speaking = Speaking::Waiting { until };
        let waiting = &mut self.speakers.waiting;
        waiting.insert(waiting.partition_point(|(at, _)| *at <= until), (until, key));
        self.set_speakers_timer();
    }

    fn set_speakers_timer(&mut self) {
        let Speakers { waiting, timer, .. } = &mut self.speakers;
        let Some(&(until, _)) = waiting.front() else { return };
        if timer.is_some_and(|(at, _)| at <= until) {
            return;
        }
        if let Some((_, later)) = timer.replace((until, self.wheel.insert(until, Timer::Speakers))) {
            self.wheel.cancel(later);
        }
    }

    /// Whether who hears this stream hears another at the same time, as far as two listeners tell. What comes first of a stream
    /// waits for nothing: its listeners begin with it.
    fn has_company(&mut self, now: Instant, key: usize) -> bool {
        let company = self.streams[key].company;
        let has_company = match company {
            Some((until, has_company)) if now < until => return has_company,
            Some(_) => {
                let mut asked = self.asked(key).map(|listener| &self.sessions[listener].downs);
                asked.any(|downs| downs.hears_another(key, &self.streams, now))
            }
            None => false,
        };
        self.streams[key].company = Some((company.map_or(now, |_| now + LOOK), has_company));
        has_company
    }

    /// The first who hear a stream.
    fn asked(&self, key: usize) -> impl Iterator<Item = usize> {
        let viewers = self.streams[key].viewers.iter().take(LOOKED_AT).copied();
        viewers.filter(move |viewer| self.sessions[*viewer].downs.hears(key)).take(ASKED)
    }

    /// The first that wait have waited for long enough: these go out, each with those who are heard with it.
    pub(super) fn handle_speakers_timeout(&mut self, now: Instant) {
        self.speakers.timer = None;
        while let Some((until, key)) = self.speakers.waiting.pop_front_if(|(until, _)| *until <= now) {
            if self.streams[key].speaking == (Speaking::Waiting { until }) {
                self.begin_round(key);
            }
        }
        self.set_speakers_timer();
    }

    fn begin_round(&mut self, first: usize) {
        let mut round = self.speakers.spare.pop().unwrap_or_default();
        round.streams.push(first);
        for listener in self.asked(first) {
            round.streams.extend(self.sessions[listener].downs.heard().filter(|stream| self.streams[*stream].waits()));
        }
        round.streams.sort_unstable();
        round.streams.dedup();
        round.streams.sort_by_key(|stream| Reverse(self.streams[*stream].last_sound_len()));
        self.speakers.round_count += 1;
        let Round { streams, listeners, .. } = &mut round;
        for &stream in streams.iter() {
            self.streams[stream].speaking = Speaking::Going { more_until: None };
            for &listener in &self.streams[stream].viewers {
                self.speakers.add_listener(listeners, listener);
            }
        }
        self.turns.push_back(Turn::Speakers(self.speakers.rounds.insert(round)));
    }

    /// Sends the listeners of a round what they have not had of its streams.
    pub(super) fn serve_speakers(&mut self, now: Instant, key: usize, out: &mut Outbox) -> Progress {
        let mut round = std::mem::take(&mut self.speakers.rounds[key]);
        while let Some(&listener) = round.listeners.get(round.served) {
            // It may have left since the round began.
            let is_there = self.sessions.contains(listener);
            if is_there && self.send_to(now, listener, What::Sound(&round.streams), out) == Progress::Full {
                self.speakers.rounds[key] = round;
                return Progress::Full;
            }
            round.served += 1;
        }
        self.speakers.rounds.remove(key);
        for stream in round.streams.drain(..) {
            let before = std::mem::replace(&mut self.streams[stream].speaking, Speaking::Not);
            if let Speaking::Going { more_until: Some(until) } = before {
                self.wait_for_others(until, stream);
            }
        }
        round.listeners.clear();
        round.served = 0;
        self.speakers.spare.push(round);
        Progress::Done
    }

    /// Hands what waits here over to other workers.
    pub(super) fn post_speakers(&mut self) {
        for stream in self.speakers.unposted.drain(..) {
            self.streams[stream].post_batches(&mut self.posts);
        }
    }
}
