//! Who of a worker's sessions is sent what it has not had yet, and in which order.

use std::time::{Duration, Instant};

use prefetch::prefetch;
use wire::Outbox;

use super::{Rooms, Timer};
use crate::down_track::Progress;
use crate::session::Session;
use crate::settings::Settings;
use crate::stream::WaitsFor;

/// Whose turn it is to fill the outbox. Whoever has filled one goes to the end of the row, so that a stream of very many
/// viewers holds up nobody for longer than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Packets of this stream came that not all viewers have had.
    Stream(usize),
    /// What several speakers said: a round of `Rooms::speakers`.
    Speakers(usize),
    /// The sessions of `Rooms::due`.
    Due,
}

/// What a session is sent of what it has not had.
#[derive(Clone, Copy, Debug)]
pub(super) enum What<'a> {
    /// All.
    All,
    /// All of a stream.
    Stream(usize),
    /// The sound of these.
    Sound(&'a [usize]),
}

impl Rooms {
    /// Sends each viewer of a stream what it has not had yet. The round goes on where the outbox was full.
    pub(super) fn serve_stream(&mut self, now: Instant, stream: usize, out: &mut Outbox) -> Progress {
        let round = &mut self.streams[stream].round;
        debug_assert!(round.is_queued, "its turn has come");
        if round.next_viewer == 0 {
            round.has_more = false;
            let gathered = &mut self.streams[stream].gathered;
            gathered.until = None;
            if let Some((_, timer)) = gathered.timer.take() {
                self.wheel.cancel(timer);
            }
            if std::mem::take(&mut self.streams[stream].has_new_layer) {
                // Its first keyframe is among what waits: who takes it up with that has to ask for none.
                for &viewer in &self.streams[stream].viewers {
                    self.sessions[viewer].downs.choose_again(stream);
                }
            }
        }
        while self.streams[stream].is_wanted()
            && let Some(&key) = self.streams[stream].viewers.get(self.streams[stream].round.next_viewer)
        {
            self.look_ahead(stream);
            if self.send_to(now, key, What::Stream(stream), out) == Progress::Full {
                return Progress::Full;
            }
            self.streams[stream].round.next_viewer += 1;
        }
        // More came meanwhile: there is another round.
        if std::mem::take(&mut self.streams[stream].round).has_more {
            self.queue_stream(stream);
        }
        Progress::Done
    }

    pub(super) fn serve_due(&mut self, now: Instant, out: &mut Outbox) -> Progress {
        while let Some(&key) = self.due.front() {
            if self.sessions.contains(key) && self.send_to(now, key, What::All, out) == Progress::Full {
                return Progress::Full;
            }
            self.due.pop_front();
        }
        Progress::Done
    }

    /// A packet of the stream came from its publisher: its viewers get it with the rest of its frame, sound with the next
    /// picture, or when that takes long.
    pub(super) fn gather(&mut self, now: Instant, key: usize) {
        let stream = &mut self.streams[key];
        let Settings { gather, gather_sound, .. } = self.settings;
        let patience = match std::mem::take(&mut stream.gathered.waits_for) {
            WaitsFor::Speakers => return self.gather_speaker(now, key),
            WaitsFor::Picture if !gather.is_zero() => gather_sound,
            WaitsFor::Frame => gather,
            WaitsFor::Nothing | WaitsFor::Picture => Duration::ZERO,
        };
        if patience.is_zero() || !stream.has_many_readers() {
            return self.queue_stream(key);
        }
        let at = now + patience;
        stream.gathered.until = Some(stream.gathered.until.map_or(at, |until| until.min(at)));
        self.set_gather_timer(key);
    }

    /// The same of what came from another worker, where it has waited for the rest of its frame.
    pub(super) fn gather_from_worker(&mut self, now: Instant, key: usize) {
        match std::mem::take(&mut self.streams[key].gathered.waits_for) {
            WaitsFor::Speakers => self.gather_speaker(now, key),
            _ => self.queue_stream(key),
        }
    }

    pub(super) fn handle_gather_timeout(&mut self, now: Instant, key: usize) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.gathered.timer = None;
        match stream.gathered.until {
            Some(until) if until <= now => self.queue_stream(key),
            _ => self.set_gather_timer(key),
        }
    }

    /// Sees that a timer comes no later than what was gathered has to go out.
    fn set_gather_timer(&mut self, key: usize) {
        let gathered = &mut self.streams[key].gathered;
        let Some(until) = gathered.until else { return };
        if gathered.timer.is_some_and(|(at, _)| at <= until) {
            return;
        }
        if let Some((_, later)) = gathered.timer {
            self.wheel.cancel(later);
        }
        gathered.timer = Some((until, self.wheel.insert(until, Timer::Gather(key))));
    }

    /// Packets of the stream came that its viewers have not had.
    pub(super) fn queue_stream(&mut self, key: usize) {
        let round = &mut self.streams[key].round;
        round.has_more = true;
        if !round.is_queued {
            round.is_queued = true;
            self.turns.push_back(Turn::Stream(key));
        }
    }

    /// The session has something to send for a reason of its own.
    pub(super) fn queue_due(&mut self, key: usize) {
        if self.due.is_empty() && !self.turns.contains(&Turn::Due) {
            self.turns.push_back(Turn::Due);
        }
        self.due.push_back(key);
    }

    /// Sends a session nothing of a stream for now, or goes on.
    pub(super) fn hold(&mut self, now: Instant, key: usize, stream: usize, on: bool) {
        let session = &mut self.sessions[key];
        let held_before = session.downs.holds(stream);
        session.hold(stream, on, &self.streams, now);
        if session.downs.holds(stream) != held_before {
            self.streams[stream].note_hold(on);
        }
        self.queue_due(key);
    }

    /// Asks for what the next viewers need, so that it comes into the caches while one seals for those before them: of the third
    /// what says where the rest is, of the second its tracks, of the first what these point to.
    fn look_ahead(&self, stream: usize) {
        let stream = &self.streams[stream];
        let session = |ahead: usize| {
            let key = stream.viewers.get(stream.round.next_viewer + ahead)?;
            self.sessions.get(*key)
        };
        if let Some(third) = session(3) {
            prefetch(&third.downs);
        }
        if let Some(second) = session(2) {
            second.transport.prefetch();
            second.downs.prefetch();
        }
        if let Some(first) = session(1) {
            first.downs.prefetch_sent();
        }
    }

    /// Hands what was gathered for other workers over, before the viewers here are served.
    pub(super) fn post_batches(&mut self) {
        self.post_speakers();
        for turn in &self.turns {
            let Turn::Stream(key) = *turn else { continue };
            let stream = &mut self.streams[key];
            stream.post_batches(&mut self.posts);
            if self.settings.equal_size_padding {
                stream.even_out(!self.settings.gather_sound.is_zero());
            }
        }
    }

    /// Sends the session's reports with its media: its timer would come for nothing.
    #[cold]
    fn report(&mut self, now: Instant, key: usize, out: &mut Outbox) {
        let (sessions, mut io) = self.split(now, out);
        let Session { transport, downs, .. } = &mut sessions[key];
        downs.report(transport, &mut io);
        let session = &mut self.sessions[key];
        if let Some((_, timer)) = session.timer.take() {
            self.wheel.cancel(timer);
        }
        session.tell_of_pauses(&self.streams, &mut self.events);
        self.reschedule(key);
    }

    /// Sends a session what it has not had yet.
    pub(super) fn send_to(&mut self, now: Instant, key: usize, what: What<'_>, out: &mut Outbox) -> Progress {
        let (sessions, mut io) = self.split(now, out);
        let Session { transport, downs, .. } = &mut sessions[key];
        if transport.is_cut_off {
            // Its turn comes with another path; until then the log keeps what is new.
            return Progress::Done;
        }
        let progress = match what {
            What::All => downs.send(None, transport, &mut io),
            What::Stream(stream) => downs.send(Some(stream), transport, &mut io),
            What::Sound(streams) => downs.send_sound(streams, transport, &mut io),
        };
        let is_report_due = downs.report_at() <= now;
        match progress {
            Progress::Later(at) => drop(self.wheel.insert(at, Timer::Paced(key))),
            Progress::Done if is_report_due && out.has_room() => self.report(now, key, out),
            Progress::Done | Progress::Full => {}
        }
        self.take_wishes(now);
        progress
    }
}
