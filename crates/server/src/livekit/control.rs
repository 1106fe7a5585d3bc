//! LiveKit's rooms in the server: what they ask of the packet path goes there, and what comes of it comes back.
//!
//! In: requests of the rooms (`Hub::media`), notices of negotiators, events of workers. Out: requests to negotiators, commands to
//! workers, events for the rooms. Cost: one lock, held for a request or a notice. It is taken before those of `Plane`, and never
//! with that of the rooms (`Hub`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use counters::counters;
use futures_util::{StreamExt as _, stream};
use livekit::media::{Event, SessionId};
use livekit::token::{Keys, TokenError};
use rooms::spec::{self, LayerLimit, SessionStats};
use tokio::time::{MissedTickBehavior, interval};
use wire::WorkerId;

use super::attendance::Attendance;
use super::guests::{Guest, Guests};
use super::hub::Hub;
use super::ice::IceServers;
use super::settings::Settings;
use super::stage::{Ask, Stage};
use super::webhooks::{SharedKeys, Webhooks};
use crate::plane::ProductControl;
use crate::random::random;
use crate::rooms::control::{ControlError, RoomsControl, Told};
use crate::rooms::directory::DirectoryError;
use crate::rooms::negotiator::conference::ConferenceNotice;
use crate::rooms::negotiator::{Input, Patched, Request};
use crate::rooms::stories;
use crate::traces::Join;
use crate::worker::Message;

/// What a negotiator had no room for is offered again so often.
const AGAIN: Duration = Duration::from_millis(5);
/// How often it is looked how well sessions do, and how many are asked at once: each answer alone would wake three threads.
const QUALITY_EVERY: Duration = Duration::from_secs(5);
const LOOKS_AT_ONCE: usize = 128;

counters! {
    /// Rooms of LiveKit's protocol.
    pub struct Counters: "millrace_livekit_" {
        /// Rooms of LiveKit's protocol now.
        gauge rooms: u64 = "rooms",
        /// Participants of LiveKit's rooms now.
        gauge participants: u64 = "participants",
        /// Signalling connections of LiveKit's protocol now.
        gauge connections: u64 = "connections",
        /// Published tracks of LiveKit's rooms now.
        gauge tracks: u64 = "tracks",
        /// Signalling connections that were closed because their clients read too slowly.
        counter slow: u64 = "slow_total",
        /// Webhooks that were dropped, because too many waited.
        counter webhooks_dropped: u64 = "webhooks_dropped_total",
        /// Webhooks that nobody has taken, however often they were sent.
        counter webhooks_given_up: u64 = "webhooks_given_up_total",
        /// Data messages that were dropped, because they came faster than they could be handed on.
        counter data_dropped: u64 = "data_dropped_total",
        /// Times that nothing was read of somebody's data for a while, because somebody who gets it was behind.
        counter data_holds: u64 = "data_holds_total",
    }
}

/// All of it.
pub struct Control {
    hub: Arc<Hub>,
    guests: Arc<Guests>,
    /// Those of WHIP and WHEP: the ways to workers and negotiators are the same.
    broadcasts: Arc<RoomsControl>,
    stage: Mutex<Stage>,
    attendance: Mutex<Attendance>,
    webhooks_given_up: Arc<AtomicU64>,
    webhook_keys: SharedKeys,
}

impl Control {
    /// No rooms yet, on workers of which each takes so many sessions. To be called on a runtime, on which it goes on.
    ///
    /// # Errors
    /// Without an API key, with a webhook that is no URL, or when there is no randomness to be had.
    pub fn start(
        broadcasts: Arc<RoomsControl>,
        settings: &Settings,
        sessions_max: usize,
        ice: IceServers,
    ) -> anyhow::Result<Arc<Self>> {
        let Webhooks { inlets, tellers, given_up, keys } = Webhooks::new(settings)?;
        let seed = random().map(u64::from_ne_bytes).context("reading random numbers")?;
        let plane = broadcasts.plane().clone();
        let hub = Arc::new(Hub::new(settings, seed, ice, inlets, Box::new(move || plane.takes_newcomers()))?);
        let stage = Mutex::new(Stage::new(broadcasts.plane().workers().count(), sessions_max));
        let guests = Guests::new(hub.clone());
        let attendance = Mutex::default();
        let control = Arc::new(Control {
            hub: hub.clone(),
            guests,
            broadcasts,
            stage,
            attendance,
            webhooks_given_up: given_up,
            webhook_keys: keys,
        });
        for teller in tellers {
            tokio::spawn(teller.run());
        }
        tokio::spawn(async move { hub.keep_time().await });
        let (serving, looking) = (control.clone(), control.clone());
        tokio::spawn(async move { serving.serve().await });
        tokio::spawn(async move { looking.look().await });
        Ok(control)
    }

    /// The rooms, and where clients come in.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// These keys may sign tokens from now on, and no others; the first signs what the server gives out, and webhooks. Who is in a room
    /// stays.
    ///
    /// # Errors
    /// Without any: then nothing changes.
    pub fn set_keys(&self, keys: &[(String, String)]) -> Result<(), TokenError> {
        let read = || Keys::new(keys.iter().cloned());
        let (own, of_webhooks) = (read()?, read()?);
        self.hub.set_keys(own);
        self.webhook_keys.set(of_webhooks);
        Ok(())
    }

    /// Who comes by WHIP and WHEP.
    pub fn guests(&self) -> &Arc<Guests> {
        &self.guests
    }

    /// The join of a guest that was answered is traced by what becomes of its session, from here on.
    pub fn follow(&self, id: spec::SessionId, join: Join) {
        let is_there = || Stage::session_of(id).is_some_and(|session| self.hub.has(session));
        self.broadcasts.plane().traces().follow(id, "ice", join, is_there);
    }

    /// Hands a trickle fragment to a guest's session, when the one before it is done with.
    ///
    /// # Errors
    /// `NoSession`, `Busy`, and what the negotiator refuses.
    pub async fn patch(&self, guest: &Guest, fragment: String, if_match: String) -> Result<Patched, ControlError> {
        let (worker, session) = self.place_of(guest)?;
        self.broadcasts.patch_at(worker, session, guest.turn.clone(), (fragment, if_match)).await
    }

    /// What the worker has counted for a guest's session; `None` until it is connected.
    ///
    /// # Errors
    /// `NoSession`.
    pub async fn stats(&self, guest: &Guest) -> Result<Option<SessionStats>, ControlError> {
        let (worker, session) = self.place_of(guest)?;
        Ok(self.broadcasts.inspect(worker, session).await)
    }

    /// Limits the layers that a guest gets.
    ///
    /// # Errors
    /// `NoSession`, `Busy`.
    pub fn limit(&self, guest: &Guest, layers: LayerLimit) -> Result<(), ControlError> {
        let (worker, session) = self.place_of(guest)?;
        self.broadcasts.limit_at(worker, session, layers)
    }

    /// What became of a session of the rooms so far. `None`: it is none of these, or not there.
    pub async fn story(&self, id: spec::SessionId) -> Option<Told> {
        let session = Stage::session_of(id)?;
        let worker = self.stage().worker_of(session)?;
        let about = self.attendance().get(session)?.clone();
        Some(Told { about, ended: None, story: self.broadcasts.tell(worker, id).await.flatten() })
    }

    /// Where a session of the rooms is, and what its worker has counted for it. `None`: it is not connected.
    pub async fn inspect(&self, session: SessionId) -> Option<(WorkerId, SessionStats)> {
        let worker = self.stage().worker_of(session)?;
        Some((worker, self.broadcasts.inspect(worker, Stage::spec_id(session)).await?))
    }

    fn place_of(&self, guest: &Guest) -> Result<(WorkerId, spec::SessionId), ControlError> {
        let worker = self.stage().worker_of(guest.session);
        let worker = worker.ok_or(ControlError::Directory(DirectoryError::NoSession))?;
        Ok((worker, Stage::spec_id(guest.session)))
    }

    /// What there is now, and was since the start.
    pub fn counters(&self) -> Counters {
        let (sizes, (slow, webhooks_dropped, data_dropped)) = (self.hub.sizes(), self.hub.losses());
        let stage = self.stage();
        Counters {
            rooms: sizes.rooms as u64,
            participants: sizes.participants as u64,
            connections: sizes.connections as u64,
            tracks: sizes.tracks as u64,
            slow,
            webhooks_dropped,
            webhooks_given_up: self.webhooks_given_up.load(Ordering::Relaxed),
            data_dropped: data_dropped + stage.data_dropped(),
            data_holds: stage.data_holds(),
        }
    }

    /// Takes what a negotiator reports. There is room for whoever has connected: it had a place before.
    pub fn handle_notice(&self, session: spec::SessionId, notice: ConferenceNotice) -> bool {
        let traces = self.broadcasts.plane().traces();
        match &notice {
            ConferenceNotice::Answered(_) | ConferenceNotice::Accepted(_) => traces.described(session),
            ConferenceNotice::Connected => traces.connected(session),
            _ => {}
        }
        if let (ConferenceNotice::Ended(reason), Some(session)) = (&notice, Stage::session_of(session)) {
            self.attendance().note_end(session, stories::reason(reason));
        }
        let events = self.with_stage(|stage| stage.handle_notice(session, notice));
        self.tell(events);
        true
    }

    /// Takes what a worker reports; what is not about these rooms is left alone.
    pub fn handle_event(&self, event: &spec::Event) {
        let events = match event {
            spec::Event::Levels(levels) => self.stage().handle_levels(levels),
            spec::Event::Paused { session, stream, on } => self.stage().handle_pause(*session, *stream, *on),
            spec::Event::Silent { session, on } => Stage::handle_silence(*session, *on),
            _ => return,
        };
        self.tell(events);
    }

    /// Hands on what the rooms ask for, for as long as it is polled.
    async fn serve(&self) {
        let mut again = interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_waiting = false;
        loop {
            let requests = tokio::select! {
                requests = self.hub.media() => requests,
                _ = again.tick(), if has_waiting => Vec::new(),
            };
            for request in &requests {
                if let Some((session, about, why)) = self.attendance().handle(Instant::now(), request) {
                    self.broadcasts.note_end(Stage::spec_id(session), about, why);
                }
            }
            let events = self.with_stage(|stage| {
                let mut placement = self.broadcasts.plane().placement();
                requests.into_iter().filter_map(|request| stage.handle_request(&mut placement, request)).collect()
            });
            self.tell(events);
            has_waiting = self.stage().asks().any(|(_, asks)| !asks.is_empty());
        }
    }

    /// Looks now and then how well sessions do, and tells the rooms.
    async fn look(&self) {
        let mut tick = interval(QUALITY_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let connected = self.stage().connected();
            let looks = stream::iter(connected);
            looks.for_each_concurrent(LOOKS_AT_ONCE, |(session, worker)| self.look_at(session, worker)).await;
        }
    }

    async fn look_at(&self, session: SessionId, worker: WorkerId) {
        if let Some(stats) = self.broadcasts.inspect(worker, Stage::spec_id(session)).await {
            let rtt = Duration::from_secs_f32(stats.round_trip_ms.unwrap_or_default().max(0.0) / 1_000.0);
            self.hub.handle_media(Event::Quality { session, loss: stats.loss, rtt, jitter: Duration::ZERO });
        }
    }

    fn tell(&self, events: Vec<Event>) {
        for event in events {
            self.hub.handle_media(event);
        }
    }

    /// Changes the stage and hands on what follows from that, in order, under one lock.
    fn with_stage<T>(&self, change: impl FnOnce(&mut Stage) -> T) -> T {
        let mut stage = self.stage();
        let result = change(&mut stage);
        while let Some((worker, command)) = stage.poll_command() {
            self.broadcasts.plane().workers().post(worker, Message::Command(command));
        }
        for (worker, asks) in stage.asks() {
            let Some(negotiator) = self.broadcasts.negotiator(worker) else { continue };
            while let Some(Ask { session, request }) = asks.pop_front() {
                let input = Input::Request(Request::Conference { session, request });
                if let Err(Input::Request(Request::Conference { session, request })) = negotiator.send(input) {
                    asks.push_front(Ask { session, request });
                    break;
                }
            }
        }
        result
    }

    fn attendance(&self) -> MutexGuard<'_, Attendance> {
        self.attendance.lock().expect("nobody panics under this lock")
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().expect("nobody panics under this lock")
    }
}

impl ProductControl for Control {
    fn handle_timeout(&self, _now: Instant) {}

    fn has_receivers(&self) -> bool {
        self.hub.sizes().participants > self.guests.publisher_count()
    }

    fn close_all(&self) {
        self.hub.end();
    }
}
