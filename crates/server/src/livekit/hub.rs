//! All rooms, everybody's queue, and the time: what an input causes is put where it belongs under one lock.
//!
//! Nothing waits under the lock and nothing is encoded there; a message for many is one value in many queues. Who reads too
//! slowly is closed, and the rooms hear of it as of any other connection that ends. What the rooms ask of the packet path
//! waits until that takes it (`Hub::media`); while more than `MEDIA_WAITING_MAX` requests wait, nobody is let in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use livekit::admin::{Answer, Refusal, Request as Admin};
use livekit::config::{Config, Now};
use livekit::join::{Join, Refused};
use livekit::media::{Event, Request, SessionId};
use livekit::output::{ConnectionId, Outbox, Output};
use livekit::proto::{SignalRequest, WebhookEvent};
use livekit::rooms::{Rooms, Sizes};
use livekit::token::{Claims, Keys, TokenError, VideoGrant};
use livekit::view::{ParticipantView, RoomView};
use tokio::sync::{Notify, Semaphore};

use super::ice::IceServers;
use super::queue::{Inlet, Outlet, Shared, queue};
use super::settings::{CODECS, Settings};
use super::socket::PARTING_MAX;
use super::webhooks;

/// Requests to the packet path that wait, beyond which nobody is let in, and data messages are dropped.
pub const MEDIA_WAITING_MAX: usize = 100_000;

/// The version of LiveKit's server that this does as: clients tell by it what a server can do.
const VERSION: &str = "1.13.5";

/// Whether there is a place for somebody new just now.
pub type TakesNewcomers = Box<dyn Fn() -> bool + Send + Sync>;

/// All of it.
pub struct Hub {
    state: Mutex<State>,
    ice: IceServers,
    connections_max: usize,
    takes_newcomers: TakesNewcomers,
    /// For connections that have ended and wait for their clients to say so, too: they are counted nowhere else.
    pub(super) parting: Semaphore,
    /// Something is due earlier than it was.
    earlier: Notify,
    /// Something waits for the packet path.
    asked: Notify,
}

struct State {
    rooms: Rooms,
    inlets: HashMap<ConnectionId, Inlet>,
    media: Vec<Request>,
    /// What each webhook is told; that for which there is no room is dropped, and counted.
    webhooks: Vec<webhooks::Inlet>,
    webhooks_dropped: u64,
    /// What has happened since the log heard of it.
    untold: Vec<Arc<WebhookEvent>>,
    slow: u64,
    data_dropped: u64,
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNow {
    /// For what it is.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// For want of room.
    #[error("the server is full")]
    Full,
    /// For want of time.
    #[error("the server is busy, or about to stop")]
    Busy,
}

impl Hub {
    /// No room yet. `seed` is another one for each process; `ice` is what clients are told to use, `webhooks` where events go, and
    /// `takes_newcomers` whether there is a place for one.
    ///
    /// # Errors
    /// Without an API key.
    pub fn new(
        settings: &Settings,
        seed: u64,
        ice: IceServers,
        webhooks: Vec<webhooks::Inlet>,
        takes_newcomers: TakesNewcomers,
    ) -> Result<Self, TokenError> {
        let rooms = Rooms::new(Config {
            keys: Keys::new(settings.keys.iter().cloned())?,
            version: VERSION.to_owned(),
            node: settings.node.clone(),
            region: settings.region.clone(),
            auto_create: settings.auto_create,
            empty_timeout: settings.empty_timeout,
            departure_timeout: settings.departure_timeout,
            participants_max: settings.participants_max,
            remote_unmute: settings.remote_unmute,
            livestream_from: settings.livestream_from,
            loudest: settings.loudest,
            codecs: CODECS.map(str::to_owned).into(),
            seed,
        });
        let (inlets, media) = (HashMap::new(), Vec::new());
        let state =
            State { rooms, inlets, media, webhooks, webhooks_dropped: 0, untold: Vec::new(), slow: 0, data_dropped: 0 };
        let state = Mutex::new(state);
        let (earlier, asked) = (Notify::new(), Notify::new());
        let parting = Semaphore::new(PARTING_MAX);
        Ok(Hub { state, ice, connections_max: settings.connections_max, takes_newcomers, parting, earlier, asked })
    }

    /// These keys may sign tokens from now on, and no others. Who is here stays.
    pub fn set_keys(&self, keys: Keys) {
        self.locked(|state| state.rooms.set_keys(keys));
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When it does not hold.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        self.locked(|state| state.rooms.verify(token, now()))
    }

    /// Signs a token with the first key.
    pub fn sign(&self, claims: Claims) -> String {
        self.locked(|state| state.rooms.sign(claims))
    }

    /// Whether somebody would be let in.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, join: &Join) -> Result<(), NotNow> {
        self.admit(join)?;
        self.locked(|state| {
            if state.is_full(self.connections_max) { Err(NotNow::Full) } else { Ok(state.rooms.check(join)?) }
        })
    }

    /// Lets somebody in: the connection's name, and what is to be sent by it.
    ///
    /// # Errors
    /// Why not.
    pub fn join(&self, join: Join) -> Result<(ConnectionId, Outlet), NotNow> {
        self.join_then(join, |_| {})
    }

    /// The same; `then` hears of the peer connection on which the client counts, before anything becomes of it.
    ///
    /// # Errors
    /// As for `join`.
    pub fn join_then(
        &self,
        join: Join,
        then: impl FnOnce(Option<SessionId>),
    ) -> Result<(ConnectionId, Outlet), NotNow> {
        self.admit(&join)?;
        let join = Join { ice_servers: self.ice.of(&join.claims.sub), ..join };
        self.act(|state, now, out| {
            if state.is_full(self.connections_max) {
                return Err(NotNow::Full);
            }
            let connection = state.rooms.handle_join(now, join, out)?;
            then(state.rooms.primary(connection));
            let (inlet, outlet) = queue();
            state.inlets.insert(connection, inlet);
            Ok((connection, outlet))
        })
    }

    /// Newcomers are for a server that takes them; who was let in comes back whenever it has to.
    fn admit(&self, join: &Join) -> Result<(), NotNow> {
        if join.reconnect.is_some() || (self.takes_newcomers)() { Ok(()) } else { Err(NotNow::Busy) }
    }

    /// As `Rooms::session`.
    pub fn session(&self, connection: ConnectionId) -> Option<SessionId> {
        self.locked(|state| state.rooms.session(connection))
    }

    /// As `Rooms::has`.
    pub fn has(&self, session: SessionId) -> bool {
        self.locked(|state| state.rooms.has(session))
    }

    /// A client's request.
    pub fn request(&self, connection: ConnectionId, request: SignalRequest) {
        self.act(|state, now, out| state.rooms.handle_request(now, connection, request, out));
    }

    /// A client's connection has ended.
    pub fn closed(&self, connection: ConnectionId) {
        self.act(|state, now, out| {
            state.inlets.remove(&connection);
            state.rooms.handle_closed(now, connection, out);
        });
    }

    /// What an application asks for.
    ///
    /// # Errors
    /// Why it is not done.
    pub fn admin(&self, grant: &VideoGrant, request: Admin) -> Result<Answer, Refusal> {
        self.act(|state, now, out| state.rooms.handle_admin(now, grant, request, out))
    }

    /// As `Rooms::rooms_behind`. Everybody needs the lock, so `count` is to be small.
    pub fn rooms_behind(&self, after: u64, count: usize) -> Vec<RoomView> {
        self.locked(|state| state.rooms.rooms_behind(after, count))
    }

    /// As `Rooms::participants_behind`, and with the same lock.
    pub fn participants_behind(&self, room: &str, after: u64, count: usize) -> Option<Vec<ParticipantView>> {
        self.locked(|state| state.rooms.participants_behind(room, after, count))
    }

    /// As `Rooms::participant`.
    pub fn participant(&self, room: &str, identity: &str) -> Option<ParticipantView> {
        self.locked(|state| state.rooms.participant(room, identity))
    }

    /// What the packet path says.
    pub fn handle_media(&self, event: Event) {
        self.act(|state, now, out| state.rooms.handle_media(now, event, out));
    }

    /// Waits for what the packet path is asked, in order.
    pub async fn media(&self) -> Vec<Request> {
        loop {
            let asked = self.asked.notified();
            let requests = self.locked(|state| std::mem::take(&mut state.media));
            if !requests.is_empty() {
                return requests;
            }
            asked.await;
        }
    }

    /// Does what is due when it is due, for as long as it is polled.
    pub async fn keep_time(&self) {
        loop {
            let earlier = self.earlier.notified();
            match self.locked(|state| state.rooms.poll_timeout()) {
                None => earlier.await,
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => {
                        self.act(|state, now, out| state.rooms.handle_timeout(now, out));
                    }
                    () = earlier => {}
                },
            }
        }
    }

    /// Everybody leaves: the server ends.
    pub fn end(&self) {
        self.act(|state, now, out| state.rooms.close(now, out));
    }

    /// How much there is.
    pub fn sizes(&self) -> Sizes {
        self.locked(|state| state.rooms.sizes())
    }

    /// Clients that were closed because they read too slowly, webhooks and data messages that were dropped.
    pub fn losses(&self) -> (u64, u64, u64) {
        self.locked(|state| (state.slow, state.webhooks_dropped, state.data_dropped))
    }

    fn act<R>(&self, act: impl FnOnce(&mut State, Now, &mut Outbox) -> R) -> R {
        let (result, untold) = self.locked(|state| {
            let (now, mut out, before) = (now(), Outbox::new(), state.rooms.poll_timeout());
            let result = act(state, now, &mut out);
            state.deliver(now, out);
            let after = state.rooms.poll_timeout();
            if after.is_some() && (before.is_none() || after < before) {
                self.earlier.notify_one();
            }
            if !state.media.is_empty() {
                self.asked.notify_one();
            }
            (result, std::mem::take(&mut state.untold))
        });
        untold.iter().for_each(|event| log(event));
        result
    }

    fn locked<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().expect("nobody panics under this lock"))
    }
}

impl State {
    fn is_full(&self, connections_max: usize) -> bool {
        self.inlets.len() >= connections_max || self.media.len() >= MEDIA_WAITING_MAX
    }

    /// Puts everything where it belongs, and then what comes of those who were too slow for it.
    fn deliver(&mut self, now: Now, mut out: Outbox) {
        while !out.is_empty() {
            let mut slow = Vec::new();
            for output in out.drain() {
                match output {
                    Output::Send { to, message } => {
                        let message = Shared::new(message);
                        let full = |connection: &ConnectionId| {
                            self.inlets.get(connection).is_some_and(|inlet| inlet.push(&message).is_err())
                        };
                        slow.extend(to.into_iter().filter(full));
                    }
                    // What was put in is still sent; then the connection sees that no more will come.
                    Output::Close { connection, .. } => drop(self.inlets.remove(&connection)),
                    Output::Media(Request::Data { .. }) if self.media.len() >= MEDIA_WAITING_MAX => {
                        self.data_dropped += 1;
                    }
                    Output::Media(request) => self.media.push(request),
                    Output::Webhook(event) => self.tell(*event),
                }
            }
            for connection in slow {
                if let Some(inlet) = self.inlets.remove(&connection) {
                    inlet.give_up();
                    self.slow += 1;
                    self.rooms.handle_closed(now, connection, &mut out);
                }
            }
        }
    }

    fn tell(&mut self, event: WebhookEvent) {
        let event = Arc::new(event);
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.untold.push(event.clone());
        }
        for webhook in &self.webhooks {
            self.webhooks_dropped += u64::from(webhook.try_send(event.clone()).is_err());
        }
    }
}

/// Who comes, publishes and goes, as webhooks tell it. Names are for `debug` alone.
fn log(event: &WebhookEvent) {
    let room = event.room.as_ref().map(|room| &*room.name);
    let identity = event.participant.as_ref().map(|participant| &*participant.identity);
    let track = event.track.as_ref().map(|track| &*track.sid);
    tracing::debug!(event = %event.event, room, identity, track, "in a room");
}

fn now() -> Now {
    Now { at: Instant::now(), unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
}
