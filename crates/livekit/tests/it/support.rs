//! Rooms on a bench: what they send is kept for each client, and nothing may come for a connection that is closed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use livekit::admin::{Answer, Refusal, Request as Admin};
use livekit::config::{Config, Now};
use livekit::join::{Join, Refused};
use livekit::media::{Down, Event, Kind, Request, Role, Section, SessionId, TrackId};
use livekit::output::{CloseReason, ConnectionId, Outbox, Output};
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    AddTrackRequest, ClientInfo, JoinResponse, LeaveRequest, ParticipantInfo, SessionDescription, SignalRequest,
    TrackSource, TrackType, WebhookEvent,
};
use livekit::rooms::Rooms;
use livekit::token::{Claims, Keys, VideoGrant};

/// In which everything happens unless a test says otherwise.
pub const ROOM: &str = "room";

pub struct Lab {
    pub rooms: Rooms,
    now: Now,
    inbox: HashMap<ConnectionId, Vec<Message>>,
    closed: HashMap<ConnectionId, CloseReason>,
    media: Vec<Request>,
    webhooks: Vec<WebhookEvent>,
    /// Each session's, the newest last.
    sections: HashMap<SessionId, Vec<Section>>,
}

/// One client, as the test knows it.
#[derive(Clone, Debug)]
pub struct Client {
    pub connection: ConnectionId,
    pub identity: String,
    pub sid: String,
    /// By which it watches; with a single one, all goes by it.
    pub down: SessionId,
}

impl Lab {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            keys: Keys::new([("key".to_owned(), "secret".to_owned())]).expect("a key"),
            version: "1.2.3".into(),
            node: "node".into(),
            region: String::new(),
            auto_create: true,
            empty_timeout: Duration::from_secs(300),
            departure_timeout: Duration::from_secs(20),
            participants_max: 0,
            remote_unmute: false,
            livestream_from: 0,
            loudest: 0,
            codecs: ["audio/opus", "video/VP8", "video/H264"].map(str::to_owned).into(),
            seed: 1,
        };
        change(&mut config);
        Lab {
            rooms: Rooms::new(config),
            now: Now { at: Instant::now(), unix: Duration::from_secs(1_000_000) },
            inbox: HashMap::new(),
            closed: HashMap::new(),
            media: Vec::new(),
            webhooks: Vec::new(),
            sections: HashMap::new(),
        }
    }

    pub fn now(&self) -> Now {
        self.now
    }

    /// Does everything that is due meanwhile, when it is due.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now.at + by;
        while let Some(at) = self.rooms.poll_timeout().filter(|at| *at <= end) {
            self.pass(at.saturating_duration_since(self.now.at));
            let now = self.now;
            self.act(|rooms, out| rooms.handle_timeout(now, out));
        }
        self.pass(end - self.now.at);
    }

    pub fn advance_seconds(&mut self, seconds: u64) {
        self.advance(Duration::from_secs(seconds));
    }

    pub fn try_join(&mut self, join: Join) -> Result<Client, Refused> {
        let (now, identity, before) = (self.now, join.claims.sub.clone(), self.media.len());
        let connection = self.act(|rooms, out| rooms.handle_join(now, join, out))?;
        let down = self.media[before..].iter().find_map(|request| match request {
            Request::Open { session, role: Role::Subscriber | Role::Both, .. } => Some(*session),
            _ => None,
        });
        let sid = self.seen(connection).iter().find_map(|message| match message {
            Message::Join(join) => join.participant.as_ref().map(|participant| participant.sid.clone()),
            _ => None,
        });
        let (sid, down) = (sid.unwrap_or_default(), down.unwrap_or(SessionId(0)));
        Ok(Client { connection, identity, sid, down })
    }

    /// Lets somebody in who is not connected yet.
    pub fn join(&mut self, identity: &str) -> Client {
        self.try_join(a_join(identity)).expect("somebody who is let in")
    }

    /// Lets somebody in, and connects it.
    pub fn enter(&mut self, identity: &str) -> Client {
        self.enter_as(a_join(identity))
    }

    pub fn enter_as(&mut self, join: Join) -> Client {
        let client = self.try_join(join).expect("somebody who is let in");
        self.connect(&client);
        client
    }

    pub fn connect(&mut self, client: &Client) {
        self.hear(Event::Connected { session: client.down });
        self.hear(Event::ChannelsOpen { session: client.down });
    }

    pub fn say(&mut self, client: &Client, signal: Signal) {
        let (now, connection) = (self.now, client.connection);
        let request = SignalRequest { message: Some(signal) };
        self.act(|rooms, out| rooms.handle_request(now, connection, request, out));
    }

    pub fn hear(&mut self, event: Event) {
        let now = self.now;
        self.act(|rooms, out| rooms.handle_media(now, event, out));
    }

    /// Its signalling connection ends.
    pub fn cut(&mut self, client: &Client) {
        let (now, connection) = (self.now, client.connection);
        self.closed.insert(connection, CloseReason::Left);
        self.act(|rooms, out| rooms.handle_closed(now, connection, out));
    }

    pub fn admin(&mut self, request: Admin) -> Result<Answer, Refusal> {
        let grant = VideoGrant {
            room_create: true,
            room_list: true,
            room_admin: true,
            room: ROOM.into(),
            ..VideoGrant::default()
        };
        self.admin_as(&grant, request)
    }

    pub fn admin_as(&mut self, grant: &VideoGrant, request: Admin) -> Result<Answer, Refusal> {
        let now = self.now;
        self.act(|rooms, out| rooms.handle_admin(now, grant, request, out))
    }

    /// Announces a track and gives it a section of its own; returns its sid.
    pub fn publish(&mut self, client: &Client, track: AddTrackRequest) -> String {
        let (cid, kind) =
            (track.cid.clone(), if track.r#type() == TrackType::Video { Kind::Video } else { Kind::Audio });
        let codec = track.simulcast_codecs.first().map(|first| format!("video/{}", first.codec.to_uppercase()));
        let before = self.seen(client.connection).len();
        self.say(client, Signal::AddTrack(track));
        let sid = self.seen(client.connection)[before..].iter().find_map(|message| match message {
            Message::TrackPublished(published) => published.track.as_ref().map(|track| track.sid.clone()),
            _ => None,
        });
        let session = self.offer(client);
        let sections = self.sections.entry(session).or_default();
        let section = section(&sections.len().to_string(), kind, &cid);
        sections.push(Section { codec: codec.unwrap_or(section.codec), ..section });
        self.answered(session);
        sid.expect("a track that is published")
    }

    /// The section of a track carries nothing any more.
    pub fn unpublish(&mut self, client: &Client, cid: &str) {
        let session = self.offer(client);
        let sections = self.sections.get_mut(&session).expect("sections");
        let mut sent = sections.iter_mut().filter(|section| section.is_sent);
        let section = sent.find(|section| section.cid.as_deref() == Some(cid)).expect("a section");
        section.is_sent = false;
        self.answered(session);
    }

    /// The client offers; returns the session.
    pub fn offer(&mut self, client: &Client) -> SessionId {
        let before = self.media.len();
        let offer = SessionDescription { r#type: "offer".into(), sdp: "offer".into(), ..SessionDescription::default() };
        self.say(client, Signal::Offer(offer));
        let asked = self.media[before..].iter().find_map(|request| match request {
            Request::Offer { session, .. } => Some(*session),
            _ => None,
        });
        asked.expect("an offer that is passed on")
    }

    /// The packet path answers with the sections that there are.
    pub fn answered(&mut self, session: SessionId) {
        let sections = self.sections.get(&session).cloned().unwrap_or_default();
        self.hear(Event::Answered { session, sdp: "answer".into(), sections, has_data: true });
    }

    /// What a client was sent since it was asked last.
    pub fn take(&mut self, client: &Client) -> Vec<Message> {
        self.inbox.remove(&client.connection).unwrap_or_default()
    }

    pub fn take_media(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.media)
    }

    pub fn take_webhooks(&mut self) -> Vec<String> {
        self.take_events().into_iter().map(|event| event.event).collect()
    }

    /// The same, with all that they say.
    pub fn take_events(&mut self) -> Vec<WebhookEvent> {
        std::mem::take(&mut self.webhooks)
    }

    /// Forgets everything that was sent.
    pub fn forget(&mut self) {
        self.inbox.clear();
        self.media.clear();
        self.webhooks.clear();
    }

    pub fn closed(&self, client: &Client) -> Option<CloseReason> {
        self.closed.get(&client.connection).copied()
    }

    /// The participants that a client heard of since it was asked last, the latest of each.
    pub fn take_updates(&mut self, client: &Client) -> Vec<ParticipantInfo> {
        let mut infos: Vec<ParticipantInfo> = Vec::new();
        for message in self.take(client) {
            let Message::Update(update) = message else { continue };
            for info in update.participants {
                infos.retain(|known| known.sid != info.sid);
                infos.push(info);
            }
        }
        infos
    }

    pub fn take_leave(&mut self, client: &Client) -> Option<LeaveRequest> {
        self.take(client).into_iter().find_map(|message| match message {
            Message::Leave(leave) => Some(leave),
            _ => None,
        })
    }

    pub fn take_join(&mut self, client: &Client) -> JoinResponse {
        let joined = self.take(client).into_iter().find_map(|message| match message {
            Message::Join(join) => Some(join),
            _ => None,
        });
        joined.expect("a join response")
    }

    /// The sids that the packet path is to send to a client, by the last that it was told.
    pub fn downs(&self, client: &Client) -> Vec<String> {
        self.down_tracks(client).iter().map(|down| down.sid.clone()).collect()
    }

    /// The same, whole.
    pub fn down_tracks(&self, client: &Client) -> &[Down] {
        let told = self.media.iter().rev().find_map(|request| match request {
            Request::SetDown { session, tracks } if *session == client.down => Some(&tracks[..]),
            _ => None,
        });
        told.unwrap_or_default()
    }

    /// What the packet path calls a track, by what it was told to publish last.
    pub fn last_track(&self) -> TrackId {
        let published = self.media.iter().rev().find_map(|request| match request {
            Request::Publish { track, .. } => Some(*track),
            _ => None,
        });
        published.expect("a track that is published")
    }

    pub fn act<R>(&mut self, act: impl FnOnce(&mut Rooms, &mut Outbox) -> R) -> R {
        let mut out = Outbox::new();
        let result = act(&mut self.rooms, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { to, message } => {
                    assert!(!to.is_empty(), "a message for nobody");
                    for connection in to {
                        assert!(!self.closed.contains_key(&connection), "{message:?} for a closed connection");
                        self.inbox.entry(connection).or_default().push(message.clone());
                    }
                }
                Output::Close { connection, why } => {
                    assert!(self.closed.insert(connection, why).is_none(), "closed twice");
                }
                Output::Media(request) => self.media.push(request),
                Output::Webhook(event) => self.webhooks.push(*event),
            }
        }
        result
    }

    fn seen(&self, connection: ConnectionId) -> &[Message] {
        self.inbox.get(&connection).map_or(&[], Vec::as_slice)
    }

    fn pass(&mut self, by: Duration) {
        self.now = Now { at: self.now.at + by, unix: self.now.unix + by };
    }
}

/// Somebody who may do what tokens allow without saying so.
pub fn a_join(identity: &str) -> Join {
    join_granted(identity, VideoGrant::default())
}

pub fn join_granted(identity: &str, grant: VideoGrant) -> Join {
    let video = VideoGrant { room_join: true, room: ROOM.into(), ..grant };
    Join {
        claims: Claims { sub: identity.into(), exp: u64::MAX, video: Some(video), ..Claims::default() },
        client: ClientInfo { protocol: 16, ..ClientInfo::default() },
        auto_subscribe: true,
        ..Join::default()
    }
}

/// Somebody who only watches.
pub fn a_viewer(identity: &str) -> Join {
    join_granted(identity, VideoGrant { can_publish: Some(false), ..VideoGrant::default() })
}

pub fn hidden(identity: &str) -> Join {
    join_granted(identity, VideoGrant { hidden: true, ..VideoGrant::default() })
}

pub fn microphone(cid: &str) -> AddTrackRequest {
    AddTrackRequest {
        cid: cid.into(),
        r#type: TrackType::Audio as i32,
        source: TrackSource::Microphone as i32,
        ..AddTrackRequest::default()
    }
}

pub fn camera(cid: &str) -> AddTrackRequest {
    AddTrackRequest {
        cid: cid.into(),
        r#type: TrackType::Video as i32,
        source: TrackSource::Camera as i32,
        width: 1280,
        height: 720,
        ..AddTrackRequest::default()
    }
}

pub fn section(mid: &str, kind: Kind, cid: &str) -> Section {
    Section {
        mid: mid.into(),
        kind,
        codec: if kind == Kind::Video { "video/VP8".into() } else { "audio/opus".into() },
        rids: Vec::new(),
        ssrcs: Vec::new(),
        cid: Some(cid.into()),
        is_sent: true,
        down: None,
    }
}
