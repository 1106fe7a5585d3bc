//! Which worker each session and each track of LiveKit's rooms is on, and what follows from that.
//!
//! In: requests of the rooms (`livekit::media`), notices of negotiators, what workers hear. Out: commands to workers and requests
//! to negotiators, each in the order in which they have to arrive, and events for the rooms.
//! Cost: some map lookups for each; a look at what a subscriber gets when that changes. It has no clock, no lock, no thread.
//!
//! A track is a stream of one track, open from when it is published: who publishes has shown a token and holds a signalling
//! connection. A worker gets it with the first session there that is to get it. That session counts as a viewer until the stream
//! is neither wanted nor in its description any more: the negotiator may be about to describe what is wanted no more.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use livekit::media::{Channel, Event, Kind, Layer, Request, Role, Section, SessionId, TrackId, Up};
use livekit::proto::{DataPacket, UserPacket, data_packet};
use prost::Message as _;
use rooms::spec::{self, Command, LayerLimit, Level, StreamId, StreamSpec};
use webrtc::{ChannelEvent, Delivery, Described, Media, UpWish};
use wire::codec::{Codec, MediaKind};
use wire::{Bitrate, WorkerId};

use crate::plane::placement::Placement;
use crate::rooms::client::Client;
use crate::rooms::negotiator::conference::{Choice, ConferenceNotice, ConferenceRequest, Open, Watched};
use crate::rooms::negotiator::{EndReason, ssrcs, track};
use crate::rooms::spread::{Commands, Spread};

/// Sessions of these rooms have numbers from here on; others have lower ones.
const SESSIONS_FROM: u64 = 1 << 63;
/// The same of streams.
const STREAMS_FROM: u32 = 1 << 31;
/// What a session is expected to take, for the placement.
const COST: Bitrate = Bitrate::from_kbps(2_500);
/// How often workers say how loud streams are.
const LEVELS_EVERY: Duration = Duration::from_millis(100);
/// Messages for the data channels of one worker's sessions that wait for its negotiator at most. Further ones are dropped.
const DATA_WAITING_MAX: usize = 4_096;

/// All sessions and tracks.
pub struct Stage {
    sessions_max: usize,
    sessions: HashMap<SessionId, Session>,
    tracks: HashMap<TrackId, Track>,
    by_stream: HashMap<StreamId, TrackId>,
    /// Where the first session of each room is, and how many there are.
    rooms: HashMap<Arc<str>, (WorkerId, usize)>,
    /// Sessions of each worker.
    counts: Vec<usize>,
    next_stream: u32,
    commands: Commands,
    /// What waits for each worker's negotiator.
    asks: Vec<VecDeque<Ask>>,
    data_dropped: u64,
    data_holds: u64,
}

/// A request to a negotiator.
#[derive(Debug)]
pub struct Ask {
    /// For which session.
    pub session: spec::SessionId,
    /// What.
    pub request: ConferenceRequest,
}

struct Session {
    worker: WorkerId,
    room: Arc<str>,
    role: Role,
    wants_data: bool,
    wants_packets: bool,
    /// The negotiator has it; where the client offers, that is from its first offer on.
    is_open: bool,
    is_connected: bool,
    /// Data channels that are open.
    channels: HashSet<Delivery>,
    wanted: Vec<livekit::media::Down>,
    choices: HashMap<TrackId, Choice>,
    /// Streams of which it counts as a viewer.
    entered: BTreeSet<StreamId>,
    /// As they were described last.
    sections: Vec<webrtc::Section>,
    /// Sections by which the client has published: nothing goes down there.
    published: HashSet<String>,
    /// Sections that the client was asked for, and has not offered yet: for sound and for pictures.
    asked: [u32; 2],
}

struct Track {
    stream: StreamId,
    publisher: SessionId,
    media: Media,
    spread: Spread,
    is_muted: bool,
    /// Others are louder.
    is_quiet: bool,
    /// Sessions that count as viewers of it.
    viewers: BTreeSet<SessionId>,
}

impl Track {
    /// Whether nobody gets it.
    fn is_silent(&self) -> bool {
        self.is_muted || self.is_quiet
    }
}

impl Session {
    /// Sections of a kind that the client offers and by which nothing comes or goes.
    fn free(&self, kind: MediaKind) -> u32 {
        let is_free = |section: &&webrtc::Section| {
            section.kind == Some(kind)
                && section.up.is_none()
                && section.down.is_none()
                && !self.published.contains(&section.mid)
        };
        self.sections.iter().filter(is_free).count() as u32
    }
}

impl Stage {
    /// Nobody is there yet.
    pub fn new(workers: usize, sessions_max: usize) -> Self {
        Stage {
            sessions_max,
            sessions: HashMap::new(),
            tracks: HashMap::new(),
            by_stream: HashMap::new(),
            rooms: HashMap::new(),
            counts: vec![0; workers],
            next_stream: STREAMS_FROM,
            commands: Commands::new(),
            asks: (0..workers).map(|_| VecDeque::new()).collect(),
            data_dropped: 0,
            data_holds: 0,
        }
    }

    /// Does what the rooms ask for; what comes of it at once is returned.
    pub fn handle_request(&mut self, placement: &mut Placement, request: Request) -> Option<Event> {
        match request {
            Request::Open { session, room, role, wants_data, wants_packets, .. } => {
                return self.open(placement, session, room.into(), role, (wants_data, wants_packets));
            }
            Request::Close { session } => self.close(placement, session),
            Request::Offer { session, sdp, ups } => self.offer(session, sdp, &ups),
            Request::Answer { session, sdp } => self.ask(session, ConferenceRequest::Answer { sdp }),
            // We are ICE-lite: clients come to us, and prove themselves by their checks.
            Request::Trickle { .. } => {}
            Request::Restart { session } => self.ask(session, ConferenceRequest::Restart),
            Request::SetDown { session, tracks } => return self.set_down(session, tracks),
            Request::Publish { session, mid, track } => self.publish(session, mid, track),
            Request::Unpublish { track, .. } => self.unpublish(track),
            Request::Mute { track, is_muted } => self.silence(track, |track| &mut track.is_muted, is_muted),
            Request::Quiet { track, is_quiet } => self.silence(track, |track| &mut track.is_quiet, is_quiet),
            Request::Pause { session, track, is_paused } => {
                self.choose(session, track, |choice| Choice { is_paused, ..choice });
            }
            Request::Limit { session, track, layer, fps, priority } => {
                let layers = LayerLimit { spatial_max: spatial(layer), temporal_max: temporal(fps) };
                self.choose(session, track, |choice| Choice { layers, priority, ..choice });
            }
            Request::Data { to, channel, bytes } => self.send_data(&to, channel, &bytes),
            Request::Hold { session, on } => {
                self.data_holds += u64::from(on);
                self.ask(session, ConferenceRequest::Hold(on));
            }
        }
        None
    }

    /// Takes what a negotiator says, for the rooms.
    pub fn handle_notice(&mut self, session: spec::SessionId, notice: ConferenceNotice) -> Vec<Event> {
        let session = SessionId(session.0 - SESSIONS_FROM);
        let Some(entry) = self.sessions.get_mut(&session) else { return Vec::new() };
        match notice {
            ConferenceNotice::Answered(described) => return self.answered(session, described),
            ConferenceNotice::Accepted(described) => {
                entry.sections = described.sections;
                let events = self.refuse(session, &described.refused);
                self.settle(session);
                return events;
            }
            ConferenceNotice::Offered { sdp } => return vec![Event::Offered { session, sdp, tracks: Vec::new() }],
            ConferenceNotice::Refused(why) => {
                tracing::debug!(session = session.0, %why, "a description of a room's session is refused");
                return vec![Event::Refused { session, why: why.to_string() }];
            }
            ConferenceNotice::Connected => {
                entry.is_connected = true;
                return vec![Event::Connected { session }];
            }
            ConferenceNotice::Channel(ChannelEvent::Opened(delivery)) => {
                let is_news = entry.channels.insert(delivery) && entry.channels.len() == 2;
                return Vec::from_iter(is_news.then_some(Event::ChannelsOpen { session }));
            }
            ConferenceNotice::Channel(ChannelEvent::Closed(delivery)) => _ = entry.channels.remove(&delivery),
            ConferenceNotice::Channel(ChannelEvent::Message { delivery, data, .. }) => {
                let channel = match delivery {
                    Delivery::Reliable => Channel::Reliable,
                    Delivery::Lossy => Channel::Lossy,
                };
                return vec![Event::Data { session, channel, bytes: data }];
            }
            ConferenceNotice::Channel(ChannelEvent::Behind) => return vec![Event::Behind { session, is_behind: true }],
            ConferenceNotice::Channel(ChannelEvent::CaughtUp) => {
                return vec![Event::Behind { session, is_behind: false }];
            }
            // As by LiveKit's server: for everybody else, under no topic.
            ConferenceNotice::Channel(ChannelEvent::Other { data }) => {
                let user = UserPacket { payload: data, ..UserPacket::default() };
                let packet = DataPacket { value: Some(data_packet::Value::User(user)), ..DataPacket::default() };
                return vec![Event::Data { session, channel: Channel::Reliable, bytes: packet.encode_to_vec() }];
            }
            ConferenceNotice::Ended(reason) => {
                tracing::debug!(session = session.0, ?reason, "a session of a room has ended");
                entry.is_open = false;
                let by_client = reason == EndReason::Peer(webrtc::EndReason::Closed);
                return vec![Event::Ended { session, by_client }];
            }
        }
        Vec::new()
    }

    /// Takes how loud streams were, for the rooms.
    pub fn handle_levels(&self, levels: &[Level]) -> Vec<Event> {
        let event = |level: &Level| {
            let track = self.by_stream.get(&level.stream)?;
            Some(Event::Level { track: *track, level_dbov: level.level, over: LEVELS_EVERY })
        };
        levels.iter().filter_map(event).collect()
    }

    /// Takes that somebody gets nothing of a track for want of bandwidth, or gets it again.
    pub fn handle_pause(&self, session: spec::SessionId, stream: StreamId, on: bool) -> Vec<Event> {
        let (Some(session), Some(track)) = (session.0.checked_sub(SESSIONS_FROM), self.by_stream.get(&stream)) else {
            return Vec::new();
        };
        vec![Event::Active { session: SessionId(session), track: *track, is_active: !on }]
    }

    /// Takes that nothing comes from somebody, or something comes again.
    pub fn handle_silence(session: spec::SessionId, on: bool) -> Vec<Event> {
        let session = session.0.checked_sub(SESSIONS_FROM).map(SessionId);
        session.map(|session| if on { Event::Lost { session } } else { Event::Heard { session } }).into_iter().collect()
    }

    /// The next command to a worker.
    pub fn poll_command(&mut self) -> Option<(WorkerId, Command)> {
        self.commands.pop_front()
    }

    /// What waits for each worker's negotiator, oldest first.
    pub fn asks(&mut self) -> impl Iterator<Item = (WorkerId, &mut VecDeque<Ask>)> {
        WorkerId::all(self.asks.len()).zip(&mut self.asks)
    }

    /// What workers and negotiators call a session.
    pub fn spec_id(session: SessionId) -> spec::SessionId {
        spec::SessionId(SESSIONS_FROM + session.0)
    }

    /// What the rooms call a session; `None`: it is none of theirs.
    pub fn session_of(id: spec::SessionId) -> Option<SessionId> {
        id.0.checked_sub(SESSIONS_FROM).map(SessionId)
    }

    /// Where a session is.
    pub fn worker_of(&self, session: SessionId) -> Option<WorkerId> {
        self.sessions.get(&session).map(|session| session.worker)
    }

    /// Sessions that are connected, and where.
    pub fn connected(&self) -> Vec<(SessionId, WorkerId)> {
        let connected = self.sessions.iter().filter(|(_, session)| session.is_connected && session.is_open);
        connected.map(|(id, session)| (*id, session.worker)).collect()
    }

    /// Messages that were dropped because they came faster than a negotiator takes them.
    pub fn data_dropped(&self) -> u64 {
        self.data_dropped
    }

    /// How often nothing was read of somebody's data for a while.
    pub fn data_holds(&self) -> u64 {
        self.data_holds
    }

    fn open(
        &mut self,
        placement: &mut Placement,
        session: SessionId,
        room: Arc<str>,
        role: Role,
        (wants_data, wants_packets): (bool, bool),
    ) -> Option<Event> {
        let near = self.rooms.get(&room).map(|(worker, _)| *worker);
        let has_room =
            |worker: WorkerId| self.counts.get(worker.index()).is_some_and(|count| *count < self.sessions_max);
        let Some(worker) = placement.find_anyhow(near, has_room) else {
            return Some(Event::Refused { session, why: "no worker of this server has room".to_owned() });
        };
        placement.take(worker, COST);
        self.counts[worker.index()] += 1;
        self.rooms.entry(room.clone()).or_insert((worker, 0)).1 += 1;
        let entry = Session {
            worker,
            room,
            role,
            wants_data,
            wants_packets,
            is_open: false,
            is_connected: false,
            channels: HashSet::new(),
            wanted: Vec::new(),
            choices: HashMap::new(),
            entered: BTreeSet::new(),
            sections: Vec::new(),
            published: HashSet::new(),
            asked: [0; 2],
        };
        self.sessions.insert(session, entry);
        if role == Role::Subscriber {
            self.begin(session, None);
        }
        None
    }

    /// The negotiator gets the session.
    fn begin(&mut self, session: SessionId, offer: Option<(String, Vec<UpWish>)>) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        entry.is_open = true;
        let (cname, wants_data, wants_packets) = (entry.room.clone(), entry.wants_data, entry.wants_packets);
        let wanted: Vec<TrackId> = entry.wanted.iter().map(|down| down.track).collect();
        let downs = self.watched(session);
        let open = Open { client: Client::default(), offer, downs, wants_data, wants_packets, cname };
        self.ask(session, ConferenceRequest::Open(Box::new(open)));
        for track in wanted {
            self.tell_choice(session, track);
        }
    }

    fn close(&mut self, placement: &mut Placement, session: SessionId) {
        self.ask(session, ConferenceRequest::Close);
        let Some(entry) = self.sessions.remove(&session) else { return };
        placement.release(entry.worker, COST);
        self.counts[entry.worker.index()] -= 1;
        if let Some((_, count)) = self.rooms.get_mut(&entry.room) {
            *count -= 1;
            if *count == 0 {
                self.rooms.remove(&entry.room);
            }
        }
        for stream in entry.entered {
            self.leave(stream, session, entry.worker);
        }
    }

    fn offer(&mut self, session: SessionId, sdp: String, ups: &[Up]) {
        let wishes: Vec<UpWish> = ups.iter().map(wish).collect();
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        entry.asked = [0; 2];
        match entry.is_open {
            true => self.ask(session, ConferenceRequest::Offer { sdp, ups: wishes }),
            false => self.begin(session, Some((sdp, wishes))),
        }
    }

    fn set_down(&mut self, session: SessionId, tracks: Vec<livekit::media::Down>) -> Option<Event> {
        let entry = self.sessions.get_mut(&session)?;
        let worker = entry.worker;
        let is_known = |down: &livekit::media::Down| {
            entry.wanted.iter().any(|known| (known.track, known.subscription) == (down.track, down.subscription))
        };
        let new: Vec<TrackId> = tracks.iter().filter(|down| !is_known(down)).map(|down| down.track).collect();
        // Of a new subscription nothing was chosen yet, whatever was of the last one.
        entry.choices.retain(|track, _| !new.contains(track) && tracks.iter().any(|down| down.track == *track));
        entry.wanted = tracks;
        for down in &entry.wanted {
            let Some(track) = self.tracks.get_mut(&down.track) else { continue };
            let Track { stream, media, spread, viewers, .. } = track;
            if entry.entered.insert(*stream) {
                viewers.insert(session);
                spread.enter(worker, || spec_of(*stream, media), &mut self.commands);
            }
        }
        let (is_open, role) = (entry.is_open, entry.role);
        if !is_open {
            return None;
        }
        self.silence_unwanted(session);
        // It may be muted, or have been wanted before.
        for track in new {
            self.tell_choice(session, track);
        }
        self.ask(session, ConferenceRequest::SetDowns(self.watched(session)));
        // Where the client offers, nothing changes before it does.
        if role == Role::Both { self.need(session, true) } else { None }
    }

    /// What is not wanted any more is sent no more, whenever its section goes.
    fn silence_unwanted(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let wanted = entry.wanted.iter().filter_map(|down| Some(self.tracks.get(&down.track)?.stream));
        let wanted: HashSet<StreamId> = wanted.collect();
        let placed = entry.sections.iter().filter_map(stream_of);
        let unwanted: Vec<StreamId> = placed.filter(|stream| !wanted.contains(stream)).collect();
        for stream in unwanted {
            let choice = Choice { is_paused: true, ..Choice::default() };
            self.ask(session, ConferenceRequest::Choose { stream, choice });
        }
    }

    /// What a session is to get, as its negotiator is told.
    fn watched(&self, session: SessionId) -> Vec<Watched> {
        let Some(entry) = self.sessions.get(&session) else { return Vec::new() };
        let of = |down: &livekit::media::Down| {
            let Track { stream, media, .. } = self.tracks.get(&down.track)?;
            let down = webrtc::Down {
                id: u64::from(stream.0),
                codec: media.codec,
                fmtp: media.fmtp.clone(),
                red: media.red.is_some(),
                media_stream: down.stream.clone(),
                track: down.sid.clone(),
                subscription: down.subscription,
            };
            Some(Watched { stream: *stream, down })
        };
        entry.wanted.iter().filter_map(of).collect()
    }

    /// What a client has to offer so that it gets what it is to get; with `is_changed` also when it has sections enough.
    fn need(&mut self, session: SessionId, is_changed: bool) -> Option<Event> {
        let entry = self.sessions.get_mut(&session)?;
        if entry.sections.is_empty() {
            return None;
        }
        let placed: HashSet<StreamId> = entry.sections.iter().filter_map(stream_of).collect();
        let mut needed = [0_u32; 2];
        for down in &entry.wanted {
            let is_unplaced = self.tracks.get(&down.track).is_some_and(|track| !placed.contains(&track.stream));
            needed[down.kind as usize] += u32::from(is_unplaced);
        }
        let has_unplaced = needed != [0; 2];
        for (index, kind) in [MediaKind::Audio, MediaKind::Video].into_iter().enumerate() {
            needed[index] = needed[index].saturating_sub(entry.free(kind) + entry.asked[index]);
            entry.asked[index] += needed[index];
        }
        let [audio, video] = needed;
        let is_due = is_changed || has_unplaced;
        is_due.then_some(Event::NeedSections { session, audio, video })
    }

    fn answered(&mut self, session: SessionId, described: Described) -> Vec<Event> {
        let sections = described.sections.iter().filter_map(|section| self.section(session, section)).collect();
        let Some(entry) = self.sessions.get_mut(&session) else { return Vec::new() };
        let has_data = described.sections.iter().any(|section| section.kind.is_none());
        let published = described.sections.iter().filter(|section| section.up.is_some());
        entry.published.extend(published.map(|section| section.mid.clone()));
        entry.sections = described.sections;
        let role = entry.role;
        let refused = self.refuse(session, &described.refused);
        self.settle(session);
        let answered = Event::Answered { session, sdp: described.sdp, sections, has_data };
        let need = if role == Role::Both { self.need(session, false) } else { None };
        std::iter::once(answered).chain(refused).chain(need).collect()
    }

    /// What a client cannot take is wanted no more. Where the client offers, it may still have room for it in another section,
    /// unless one is free.
    fn refuse(&mut self, session: SessionId, refused: &[u64]) -> Vec<Event> {
        let Some(entry) = self.sessions.get_mut(&session) else { return Vec::new() };
        let mut events = Vec::new();
        for id in refused {
            let track = u32::try_from(*id).ok().and_then(|id| self.by_stream.get(&StreamId(id)));
            let Some((track, kind)) = track.and_then(|id| Some((*id, self.tracks.get(id)?.media.codec.kind()))) else {
                continue;
            };
            if entry.role == Role::Subscriber || entry.free(kind) > 0 {
                entry.wanted.retain(|down| down.track != track);
                events.push(Event::Unsupported { session, track });
            }
        }
        events
    }

    /// A section as the rooms know it; none is the one of data channels.
    fn section(&self, session: SessionId, section: &webrtc::Section) -> Option<Section> {
        let kind = match section.kind? {
            MediaKind::Audio => Kind::Audio,
            MediaKind::Video => Kind::Video,
        };
        let entry = self.sessions.get(&session)?;
        let track = stream_of(section).and_then(|stream| self.by_stream.get(&stream));
        let down = track.and_then(|track| entry.wanted.iter().find(|down| down.track == *track));
        Some(Section {
            mid: section.mid.clone(),
            kind,
            codec: section.up.as_ref().map_or(String::new(), |up| sent_as(&up.media)),
            rids: section.up.as_ref().map_or(Vec::new(), |up| rids(&up.media)),
            ssrcs: section.up.as_ref().map_or(Vec::new(), |up| ssrcs(&up.media)),
            // Who names no track has one in each section.
            cid: section.up.as_ref().map(|up| up.cid.clone()).filter(|cid| !cid.is_empty()),
            is_sent: section.up.is_some(),
            down: down.map(|down| down.sid.clone()),
        })
    }

    /// What is neither wanted nor described any more, the session's worker need not have for it.
    fn settle(&mut self, session: SessionId) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let mut kept: HashSet<StreamId> = entry.sections.iter().filter_map(stream_of).collect();
        kept.extend(entry.wanted.iter().filter_map(|down| Some(self.tracks.get(&down.track)?.stream)));
        let worker = entry.worker;
        let left: Vec<StreamId> = entry.entered.extract_if(.., |stream| !kept.contains(stream)).collect();
        for stream in left {
            self.leave(stream, session, worker);
        }
    }

    fn leave(&mut self, stream: StreamId, session: SessionId, worker: WorkerId) {
        let track = self.by_stream.get(&stream).and_then(|track| self.tracks.get_mut(track));
        if let Some(track) = track {
            track.viewers.remove(&session);
            track.spread.leave(stream, worker, &mut self.commands);
        }
    }

    fn publish(&mut self, session: SessionId, mid: String, track: TrackId) {
        let Some(entry) = self.sessions.get(&session) else { return };
        let section = entry.sections.iter().find(|section| section.mid == mid);
        // The rooms ask for what they were told of; a later description may have taken it away.
        let Some(up) = section.and_then(|section| section.up.as_ref()) else { return };
        let Some(number) = self.next_stream.checked_add(1) else { return };
        let (stream, media) = (StreamId(self.next_stream), up.media.clone());
        self.next_stream = number;
        let mut spread = Spread::new(entry.worker, self.counts.len());
        spread.open(|| spec_of(stream, &media), &mut self.commands);
        if media.codec.kind() == MediaKind::Audio {
            self.commands.push_back((entry.worker, Command::Observe { stream }));
        }
        self.by_stream.insert(stream, track);
        let request = ConferenceRequest::Publish { mid, stream };
        let (is_muted, is_quiet, viewers) = (false, false, BTreeSet::new());
        self.tracks.insert(track, Track { stream, publisher: session, media, spread, is_muted, is_quiet, viewers });
        self.ask(session, request);
    }

    fn unpublish(&mut self, track: TrackId) {
        let Some(Track { stream, publisher, spread, .. }) = self.tracks.remove(&track) else { return };
        self.by_stream.remove(&stream);
        self.ask(publisher, ConferenceRequest::Unpublish { stream });
        spread.close(stream, &mut self.commands);
    }

    /// Who gets a track gets nothing of it for any of two reasons. Its publisher goes on publishing: by which SSRC which layer comes, it
    /// says but once.
    fn silence(&mut self, track: TrackId, reason: fn(&mut Track) -> &mut bool, is_so: bool) {
        let Some(entry) = self.tracks.get_mut(&track) else { return };
        let was_silent = entry.is_silent();
        *reason(entry) = is_so;
        if entry.is_silent() == was_silent {
            return;
        }
        let gets = |session: &Session| session.wanted.iter().any(|down| down.track == track);
        let viewers: Vec<SessionId> = entry.viewers.iter().copied().collect();
        for session in viewers {
            if self.sessions.get(&session).is_some_and(gets) {
                self.tell_choice(session, track);
            }
        }
    }

    fn choose(&mut self, session: SessionId, track: TrackId, change: impl FnOnce(Choice) -> Choice) {
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let choice = entry.choices.entry(track).or_default();
        *choice = change(*choice);
        self.tell_choice(session, track);
    }

    fn tell_choice(&mut self, session: SessionId, track: TrackId) {
        let Some(of) = self.tracks.get(&track) else { return };
        let Some(entry) = self.sessions.get(&session) else { return };
        let chosen = entry.choices.get(&track).copied().unwrap_or_default();
        let choice = Choice { is_paused: chosen.is_paused || of.is_silent(), ..chosen };
        let stream = of.stream;
        self.ask(session, ConferenceRequest::Choose { stream, choice });
    }

    fn send_data(&mut self, to: &[SessionId], channel: Channel, bytes: &Arc<[u8]>) {
        let delivery = match channel {
            Channel::Reliable => Delivery::Reliable,
            Channel::Lossy => Delivery::Lossy,
        };
        let mut room: Vec<usize> = self.asks.iter().map(|asks| room_for_data(asks, to.len())).collect();
        for session in to {
            let Some(entry) = self.sessions.get(session).filter(|entry| entry.is_open) else { continue };
            let room = &mut room[entry.worker.index()];
            if *room == 0 {
                self.data_dropped += 1;
                continue;
            }
            *room -= 1;
            self.ask(*session, ConferenceRequest::Data { delivery, bytes: bytes.clone() });
        }
    }

    fn ask(&mut self, session: SessionId, request: ConferenceRequest) {
        let Some(entry) = self.sessions.get(&session).filter(|entry| entry.is_open) else { return };
        let session = Self::spec_id(session);
        self.asks[entry.worker.index()].push_back(Ask { session, request });
    }
}

/// How many of `count` messages for data channels may wait with what does. Only where that is much is it looked what it is.
fn room_for_data(asks: &VecDeque<Ask>, count: usize) -> usize {
    if asks.len() + count <= DATA_WAITING_MAX {
        return count;
    }
    let waiting = asks.iter().filter(|ask| matches!(ask.request, ConferenceRequest::Data { .. })).count();
    DATA_WAITING_MAX.saturating_sub(waiting)
}

fn spec_of(stream: StreamId, media: &Media) -> StreamSpec {
    StreamSpec { id: stream, tracks: vec![track(media)] }
}

/// The stream that the client gets by a section.
fn stream_of(section: &webrtc::Section) -> Option<StreamId> {
    let (id, _) = section.down.as_ref()?;
    u32::try_from(*id).ok().map(StreamId)
}

fn mime(codec: Codec) -> String {
    let kind = match codec.kind() {
        MediaKind::Audio => "audio",
        MediaKind::Video => "video",
    };
    format!("{kind}/{}", codec.name())
}

/// The names of a publisher's layers, the smallest picture first.
fn rids(media: &Media) -> Vec<String> {
    track(media).rids.iter().map(ToString::to_string).collect()
}

/// As LiveKit calls Opus with redundancy (RFC 2198).
const RED: &str = "audio/red";

/// What a publisher sends: who names redundancy before the codec sends that.
fn sent_as(media: &Media) -> String {
    match media.red {
        Some(red) if red.is_preferred => RED.to_owned(),
        _ => mime(media.codec),
    }
}

/// The codec of a name such as "video/VP8".
pub(super) fn codec_of(mime: &str) -> Option<Codec> {
    match mime.eq_ignore_ascii_case(RED) {
        true => Some(Codec::Opus),
        false => Codec::ALL.into_iter().find(|codec| self::mime(*codec).eq_ignore_ascii_case(mime)),
    }
}

fn wish(up: &Up) -> UpWish {
    UpWish {
        cid: up.cid.clone(),
        codecs: up.codecs.iter().filter_map(|mime| codec_of(mime)).collect(),
        others: up.others.iter().filter_map(|mime| codec_of(mime)).collect(),
        red: up.red,
        dtx: up.dtx,
        stereo: up.stereo,
    }
}

/// Of three layers; with fewer the largest stands for those above it.
fn spatial(layer: Layer) -> u8 {
    match layer {
        Layer::Low => 0,
        Layer::Medium => 1,
        Layer::High => u8::MAX,
    }
}

/// Clients send three temporal layers of some 30 pictures a second, of which each has twice those of the one below.
fn temporal(fps: u32) -> u8 {
    match fps {
        1..=8 => 0,
        9..=16 => 1,
        _ => u8::MAX,
    }
}

#[cfg(test)]
mod tests;
