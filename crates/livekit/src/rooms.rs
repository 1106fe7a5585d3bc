//! All rooms of the process.
//!
//! In: joins with a token that holds, requests of clients and applications, what the packet path says, the time. Out,
//! by an `Outbox`: messages for clients, connections to close, requests to the packet path, webhooks. After each input
//! `poll_timeout` says when `handle_timeout` has work next.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use livekit_protocol::leave_request::Action;
use livekit_protocol::request_response::{Reason, Request as Asked};
use livekit_protocol::signal_request::Message as Signal;
use livekit_protocol::signal_response::Message;
use livekit_protocol::{
    DisconnectReason, ForwardParticipantRequest, GetDataBlobRequest, ListParticipantsResponse, ListRoomsResponse,
    MoveParticipantRequest, Ping, Pong, RequestResponse, RoomEndReason, SignalRequest, StoreDataBlobRequest,
    TrackSource,
};

use crate::admin::{self, Answer, Refusal};
use crate::config::{Config, Now};
use crate::directory::{Directory, Number, RoomNumber};
use crate::forwarding::{Forward, Look};
use crate::join::{Join, Refused};
use crate::limits::{self, TooLong};
use crate::media::{Event, SessionId};
use crate::output::{ConnectionId, Outbox};
use crate::room::{Room, Timer};
use crate::sid::Sids;
use crate::timers::Timers;
use crate::token::{RoomConfig, TokenError, VideoGrant};
use crate::turn::Turn;
use crate::{
    behind, data, forwarding, moving, negotiate, presence, profile, publish, resume, subscribe, tick, webhook,
};

/// All rooms, and who is in them.
pub struct Rooms {
    config: Config,
    sids: Sids,
    directory: Directory,
    rooms: BTreeMap<RoomNumber, Room>,
    by_name: HashMap<String, RoomNumber>,
    /// Of all rooms together.
    participants: usize,
    due: Timers<RoomNumber>,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub struct Sizes {
    pub rooms: usize,
    pub participants: usize,
    pub connections: usize,
    pub sessions: usize,
    pub tracks: usize,
}

impl Rooms {
    /// No room yet.
    pub fn new(config: Config) -> Self {
        Rooms {
            sids: Sids::new(config.seed),
            config,
            directory: Directory::default(),
            rooms: BTreeMap::new(),
            by_name: HashMap::new(),
            participants: 0,
            due: Timers::new(),
        }
    }

    /// What holds for all of them.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// These keys may sign tokens from now on, and no others. Who is here stays.
    pub fn set_keys(&mut self, keys: crate::token::Keys) {
        self.config.keys = keys;
    }

    /// Reads a token.
    ///
    /// # Errors
    /// When it does not hold.
    pub fn verify(&self, token: &str, now: Now) -> Result<crate::token::Claims, TokenError> {
        self.config.keys.verify(token, now)
    }

    /// Signs a token with the first key.
    pub fn sign(&self, claims: crate::token::Claims) -> String {
        self.config.keys.sign(claims)
    }

    /// Whether somebody would be let in.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, join: &Join) -> Result<(), Refused> {
        join.check()?;
        let may_open = self.config.auto_create || join.claims.video.as_ref().is_some_and(|video| video.room_create);
        match self.by_name.get(join.room()) {
            None if !may_open => Err(Refused::NoSuchRoom),
            None if self.rooms.len() >= limits::ROOMS_MAX => Err(Refused::TooManyRooms),
            Some(number) if self.rooms[number].is_full_for(&join.claims.sub, join.is_dependent()) => {
                Err(Refused::RoomFull)
            }
            _ => Ok(()),
        }
    }

    /// Lets somebody in, or back in, by a new signalling connection. What is to be said to it goes to `out`, and that may
    /// be no more than that it is to join anew.
    ///
    /// # Errors
    /// When somebody like this is not let in; nothing has changed then.
    pub fn handle_join(&mut self, now: Now, join: Join, out: &mut Outbox) -> Result<ConnectionId, Refused> {
        if let Some(sid) = &join.reconnect {
            join.check()?;
            let number = self.by_name.get(join.room()).copied();
            let there = number.and_then(|number| {
                let who = self.rooms[&number].find(&join.claims.sub)?;
                let is_the_same = sid.is_empty() || self.rooms[&number].members[&who].sid == *sid;
                is_the_same.then_some((number, who))
            });
            return Ok(match there {
                Some((number, who)) => {
                    let resumed = self.with(number, now, out, |room, turn| resume::resume(room, who, join, turn));
                    resumed.unwrap_or(ConnectionId(0))
                }
                None => resume::refuse(&join, &mut turn(&self.config, &mut self.sids, &mut self.directory, now, out)),
            });
        }
        self.check(&join)?;
        let wanted = join.claims.room_config.clone().unwrap_or_default();
        let number = self.open(join.room(), &wanted, now, out);
        self.with(number, now, out, |room, turn| presence::join(room, join, turn)).ok_or(Refused::NoSuchRoom)
    }

    /// The peer connection by which who has this signalling connection publishes, and with a single one watches, too.
    pub fn session(&self, connection: ConnectionId) -> Option<SessionId> {
        let place = self.directory.of_connection(connection)?;
        let member = self.rooms.get(&place.room)?.members.get(&place.who)?;
        member.transports.publisher.as_ref().map(|peer| peer.id)
    }

    /// The peer connection on which who has this signalling connection counts.
    pub fn primary(&self, connection: ConnectionId) -> Option<SessionId> {
        let place = self.directory.of_connection(connection)?;
        let member = self.rooms.get(&place.room)?.members.get(&place.who)?;
        member.transports.primary().map(|peer| peer.id)
    }

    /// Whether a peer connection is still somebody's.
    pub fn has(&self, session: SessionId) -> bool {
        self.directory.of_session(session).is_some()
    }

    /// A client's request. Of a connection that is closed it is not heard.
    pub fn handle_request(&mut self, now: Now, connection: ConnectionId, request: SignalRequest, out: &mut Outbox) {
        let (Some(place), Some(signal)) = (self.directory.of_connection(connection), request.message) else { return };
        self.with(place.room, now, out, |room, turn| {
            let Some(member) = room.members.get_mut(&place.who) else { return };
            match member.takes_request(turn.now.at) {
                true => handle_signal(room, place.who, signal, turn),
                false => {
                    let action = Some(Action::Disconnect);
                    presence::leave(room, place.who, DisconnectReason::StateMismatch, action, turn);
                }
            }
        });
    }

    /// A signalling connection has ended, on its own or because it was too slow.
    pub fn handle_closed(&mut self, now: Now, connection: ConnectionId, out: &mut Outbox) {
        let Some(place) = self.directory.close_connection(connection) else { return };
        self.with(place.room, now, out, |room, turn| presence::handle_connection_closed(room, place.who, turn));
    }

    /// What the packet path says.
    pub fn handle_media(&mut self, now: Now, event: Event, out: &mut Outbox) {
        let place = match &event {
            Event::Level { track, .. } => self.directory.of_track(*track).map(|(place, _)| place),
            event => session_of(event).and_then(|session| self.directory.of_session(session)),
        };
        let Some(place) = place else { return };
        self.with(place.room, now, out, |room, turn| handle_event(room, place.who, event, turn));
    }

    /// What an application asks for; `grant` is its token's.
    ///
    /// # Errors
    /// Why it is not done.
    pub fn handle_admin(
        &mut self,
        now: Now,
        grant: &VideoGrant,
        request: admin::Request,
        out: &mut Outbox,
    ) -> Result<Answer, Refusal> {
        if !request.is_allowed(grant) {
            return Err(Refusal::NotAllowed);
        }
        match &request {
            admin::Request::CreateRoom(request) => {
                let wanted = admin::wanted(request)?;
                if !self.by_name.contains_key(&request.name) && self.rooms.len() >= limits::ROOMS_MAX {
                    return Err(Refusal::TooManyRooms);
                }
                // One that is there stays as it is.
                let number = self.open(&request.name, &wanted, now, out);
                let info = self.rooms.get(&number).map(Room::info);
                info.map(Answer::Room).ok_or(Refusal::NoSuchRoom)
            }
            admin::Request::ListRooms(request) => {
                let is_named = |room: &&Room| request.names.is_empty() || request.names.contains(&room.name);
                let rooms = self.rooms.values().filter(is_named).map(Room::info).collect();
                Ok(Answer::Rooms(ListRoomsResponse { rooms }))
            }
            admin::Request::MoveParticipant(request) => self.move_participant(now, request, out),
            admin::Request::ForwardParticipant(request) => self.forward_participant(now, request, out),
            admin::Request::ListParticipants(request) if !self.by_name.contains_key(&request.room) => {
                // Nobody is in a room that is not there.
                Ok(Answer::Participants(ListParticipantsResponse::default()))
            }
            _ => {
                let number = request.room().and_then(|name| self.by_name.get(name)).copied();
                let number = number.ok_or(Refusal::NoSuchRoom)?;
                let answer = self.with(number, now, out, |room, turn| admin::handle(room, request, turn));
                answer.unwrap_or(Err(Refusal::NoSuchRoom))
            }
        }
    }

    fn move_participant(
        &mut self,
        now: Now,
        request: &MoveParticipantRequest,
        out: &mut Outbox,
    ) -> Result<Answer, Refusal> {
        let MoveParticipantRequest { room, identity, destination_room } = request;
        let (from, who, to) = self.both(now, (room, identity), destination_room, out)?;
        let moved = self.with(from, now, out, |room, turn| moving::take_out(room, who, turn)).flatten();
        let moved = moved.ok_or(Refusal::NoSuchParticipant)?;
        self.with(to, now, out, |room, turn| moving::put_in(room, moved, turn));
        Ok(Answer::Nothing)
    }

    fn forward_participant(
        &mut self,
        now: Now,
        request: &ForwardParticipantRequest,
        out: &mut Outbox,
    ) -> Result<Answer, Refusal> {
        let ForwardParticipantRequest { room, identity, destination_room } = request;
        let (from, who, to) = self.both(now, (room, identity), destination_room, out)?;
        let room = &self.rooms[&from];
        let stands_there = |forward: &&Forward| self.rooms[&to].members.contains_key(&forward.there);
        if room.forwards.iter().filter(stands_there).any(|forward| (forward.who, forward.to) == (who, to)) {
            return Ok(Answer::Nothing);
        }
        let claims = room.members[&who].claims(destination_room, now);
        let there = self.with(to, now, out, |room, turn| forwarding::stand_in(room, claims, turn));
        let there = there.ok_or(Refusal::NoSuchRoom)?;
        self.with(from, now, out, |room, _| room.forwards.push(Forward { who, to, there, seen: None }));
        Ok(Answer::Nothing)
    }

    /// Somebody in its room, and another room to which it shall come, opened if it is not there.
    fn both(
        &mut self,
        now: Now,
        (room, identity): (&str, &str),
        destination: &str,
        out: &mut Outbox,
    ) -> Result<(RoomNumber, Number, RoomNumber), Refusal> {
        let from = self.by_name.get(room).copied().ok_or(Refusal::NoSuchRoom)?;
        let room_of = &self.rooms[&from];
        let who = room_of.find(identity).ok_or(Refusal::NoSuchParticipant)?;
        let member = &room_of.members[&who];
        if destination.is_empty() || destination == room {
            return Err(Refusal::NoName);
        }
        match self.by_name.get(destination).map(|to| &self.rooms[to]) {
            // Who only stands in a room goes nowhere from there.
            _ if member.transports.sessions().is_empty() => return Err(Refusal::NoSuchParticipant),
            Some(to) if to.is_full_for(identity, member.is_dependent()) => return Err(Refusal::RoomFull),
            None if self.rooms.len() >= limits::ROOMS_MAX => return Err(Refusal::TooManyRooms),
            None => TooLong::check("the name", destination.len(), limits::NAME_BYTES_MAX)?,
            Some(_) => {}
        }
        let to = self.open(destination, &RoomConfig::default(), now, out);
        Ok((from, who, to))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        while let Some(number) = self.due.pop(now.at) {
            self.with(number, now, out, tick::handle_timeout);
        }
    }

    /// When something is due next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.first()
    }

    /// Everybody leaves: the server ends.
    pub fn close(&mut self, now: Now, out: &mut Outbox) {
        let numbers: Vec<_> = self.rooms.keys().copied().collect();
        for number in numbers {
            self.with(number, now, out, |room, turn| {
                presence::close(room, RoomEndReason::RoomEndServerShutdown, turn);
            });
        }
    }

    pub(crate) fn rooms(&self) -> &BTreeMap<RoomNumber, Room> {
        &self.rooms
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Room> {
        self.rooms.get(self.by_name.get(name)?)
    }

    /// How much there is.
    pub fn sizes(&self) -> Sizes {
        let (connections, sessions, tracks) = self.directory.sizes();
        Sizes { rooms: self.rooms.len(), participants: self.participants, connections, sessions, tracks }
    }

    /// The room of that name, opened if it is not there.
    fn open(&mut self, name: &str, wanted: &RoomConfig, now: Now, out: &mut Outbox) -> RoomNumber {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = RoomNumber(self.directory.number());
        let room = Room::new(number, name, wanted, now, &self.config, &mut self.sids);
        self.by_name.insert(name.to_owned(), number);
        self.rooms.insert(number, room);
        self.with(number, now, out, |room, turn| webhook::room("room_started", room, turn));
        number
    }

    /// Does something in a room, and sees to what comes of it: the packet path is told, the room's time is noted.
    fn with<R>(
        &mut self,
        number: RoomNumber,
        now: Now,
        out: &mut Outbox,
        act: impl FnOnce(&mut Room, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let room = self.rooms.get_mut(&number)?;
        let mut turn = turn(&self.config, &mut self.sids, &mut self.directory, now, out);
        let before = room.members.len();
        let result = act(room, &mut turn);
        let news = forwarding::look(room, &mut turn);
        subscribe::flush(room, &mut turn);
        let left = if room.is_closed { 0 } else { room.members.len() };
        self.participants = self.participants + left - before;
        match room.timers.first() {
            _ if room.is_closed => {
                self.due.clear(&number);
                self.by_name.remove(&room.name);
                self.rooms.remove(&number);
            }
            Some(at) => self.due.set(number, at),
            None => self.due.clear(&number),
        }
        for (forward, look) in news {
            self.follow(number, forward, look, now, out);
        }
        Some(result)
    }

    /// Has somebody who stands in another room be there as it is in its own.
    fn follow(&mut self, from: RoomNumber, forward: Forward, look: Option<Look>, now: Now, out: &mut Outbox) {
        let Forward { who, to, there, .. } = forward;
        let is_there = self.with(to, now, out, |room, turn| forwarding::follow(room, there, look, turn));
        if is_there != Some(true) {
            self.with(from, now, out, |room, turn| forwarding::end(room, who, there, turn));
        }
    }
}

fn turn<'a>(
    config: &'a Config,
    sids: &'a mut Sids,
    directory: &'a mut Directory,
    now: Now,
    out: &'a mut Outbox,
) -> Turn<'a> {
    Turn { now, config, sids, directory, out }
}

fn handle_signal(room: &mut Room, who: Number, signal: Signal, turn: &mut Turn<'_>) {
    match signal {
        Signal::Offer(offer) => negotiate::handle_offer(room, who, offer, turn),
        Signal::Answer(answer) => negotiate::handle_answer(room, who, answer, turn),
        Signal::Trickle(trickle) => negotiate::handle_trickle(room, who, &trickle, turn),
        Signal::AddTrack(request) => publish::add_track(room, who, request, turn),
        Signal::Mute(request) => publish::handle_mute(room, who, request, turn),
        Signal::UpdateAudioTrack(request) => publish::handle_update_audio(room, who, request, turn),
        Signal::UpdateVideoTrack(request) => publish::handle_update_video(room, who, request, turn),
        Signal::Subscription(request) => subscribe::handle_subscription(room, who, &request, turn),
        Signal::TrackSetting(request) => subscribe::handle_settings(room, who, request, turn),
        Signal::SubscriptionPermission(update) => subscribe::handle_permission(room, who, &update, turn),
        Signal::UpdateMetadata(update) => profile::handle_update(room, who, update, turn),
        Signal::SyncState(state) => resume::handle_sync_state(room, who, &state, turn),
        Signal::Simulate(simulate) => {
            if let Some(scenario) = simulate.scenario {
                resume::handle_simulate(room, who, scenario, turn);
            }
        }
        Signal::Leave(request) => {
            let reason = match request.reason() {
                DisconnectReason::UnknownReason => DisconnectReason::ClientInitiated,
                reason => reason,
            };
            presence::leave(room, who, reason, None, turn);
        }
        Signal::Ping(_) => room.send(who, Message::Pong(unix_ms(turn)), turn),
        Signal::PingReq(Ping { timestamp, .. }) => {
            let pong = Pong { last_ping_timestamp: timestamp, timestamp: unix_ms(turn) };
            room.send(who, Message::PongResp(pong), turn);
        }
        // As by a server of LiveKit's on which data tracks and blobs are turned off.
        Signal::PublishDataTrackRequest(request) => {
            publish::answer(room, who, Reason::NotAllowed, Asked::PublishDataTrack(request), turn);
        }
        Signal::UnpublishDataTrackRequest(request) => {
            publish::answer(room, who, Reason::NotFound, Asked::UnpublishDataTrack(request), turn);
        }
        Signal::StoreDataBlobRequest(StoreDataBlobRequest { request_id, .. }) => {
            answer_by_number(room, who, request_id, Reason::NotAllowed, turn);
        }
        Signal::GetDataBlobRequest(GetDataBlobRequest { request_id, .. }) => {
            answer_by_number(room, who, request_id, Reason::NotFound, turn);
        }
        // There are no data tracks to subscribe to; `update_layers` is not sent by any client that is still in use.
        Signal::UpdateDataSubscription(_) => {}
        #[allow(deprecated, reason = "to name it here is to leave it out")]
        Signal::UpdateLayers(_) => {}
    }
}

fn answer_by_number(room: &Room, who: Number, request_id: u32, reason: Reason, turn: &mut Turn<'_>) {
    let response = RequestResponse { request_id, reason: reason as i32, ..RequestResponse::default() };
    room.send(who, Message::RequestResponse(response), turn);
}

fn unix_ms(turn: &Turn<'_>) -> i64 {
    turn.now.unix.as_millis() as i64
}

fn session_of(event: &Event) -> Option<SessionId> {
    match event {
        Event::Answered { session, .. }
        | Event::Refused { session, .. }
        | Event::Offered { session, .. }
        | Event::NeedSections { session, .. }
        | Event::Candidate { session, .. }
        | Event::Connected { session }
        | Event::ChannelsOpen { session }
        | Event::Lost { session }
        | Event::Heard { session }
        | Event::Ended { session, .. }
        | Event::Data { session, .. }
        | Event::Behind { session, .. }
        | Event::Active { session, .. }
        | Event::Unsupported { session, .. }
        | Event::Quality { session, .. } => Some(*session),
        Event::Level { .. } => None,
    }
}

fn handle_event(room: &mut Room, who: Number, event: Event, turn: &mut Turn<'_>) {
    match event {
        Event::Answered { session, sdp, sections, has_data } => {
            negotiate::handle_answered(room, who, session, sdp, &sections, has_data, turn);
        }
        Event::Refused { .. } => negotiate::handle_refused(room, who, turn),
        Event::Offered { session, sdp, tracks } => negotiate::handle_offered(room, who, session, sdp, tracks, turn),
        Event::NeedSections { audio, video, .. } => negotiate::handle_need(room, who, audio, video, turn),
        Event::Candidate { session, init } => negotiate::handle_candidate(room, who, session, init, turn),
        Event::Connected { session } => {
            let Some(member) = room.members.get_mut(&who) else { return };
            let Some(peer) = member.transports.peer_mut(session) else { return };
            peer.is_connected = true;
            resume::handle_heard(room, who, session);
            presence::handle_established(room, who, turn);
        }
        Event::ChannelsOpen { session } => {
            let peer = room.members.get_mut(&who).and_then(|member| member.transports.peer_mut(session));
            if let Some(peer) = peer {
                peer.has_channels = true;
                data::handle_open(room, who, session, turn);
                presence::handle_established(room, who, turn);
            }
        }
        Event::Lost { session } => resume::handle_lost(room, who, session, turn),
        Event::Heard { session } => resume::handle_heard(room, who, session),
        Event::Ended { by_client, .. } => {
            // Who leaves closes its connections, and says so by signalling, which may come later.
            let why = if by_client { DisconnectReason::ClientInitiated } else { DisconnectReason::ConnectionTimeout };
            presence::leave(room, who, why, Some(Action::Reconnect), turn);
        }
        Event::Data { session, channel, bytes } => data::handle(room, (who, session), channel, &bytes, turn),
        Event::Behind { session, is_behind: true } => behind::begin(room, session, turn),
        Event::Behind { session, is_behind: false } => behind::end(room, session, turn),
        Event::Level { track, level_dbov, over } => {
            // Who shows a film does not speak.
            let sid = turn.directory.of_track(track).map(|(_, sid)| sid);
            let of = sid.and_then(|sid| room.tracks.get(sid));
            if let Some(of) = of.filter(|track| track.info.source() == TrackSource::Microphone) {
                // Of one that is muted nothing is sent, whatever comes of it.
                let changes = (!of.info.muted).then(|| room.loudest.observe(track, level_dbov, turn.now.at));
                changes.flatten().into_iter().flatten().for_each(|it| turn.out.media(it));
                room.speakers.observe(who, track, level_dbov, over, turn.now.at);
                room.timers.set_if_none(Timer::Speakers, turn.now.at + limits::SPEAKERS_EVERY);
            }
        }
        Event::Active { track, is_active, .. } => subscribe::handle_active(room, who, track, is_active, turn),
        Event::Unsupported { track, .. } => subscribe::handle_unsupported(room, who, track, turn),
        Event::Quality { loss, rtt, jitter, .. } => {
            if let Some(member) = room.members.get_mut(&who) {
                member.quality.observe(loss, rtt, jitter);
            }
        }
    }
}
