//! WHIP and WHEP clients in LiveKit's rooms: participants whose signalling is HTTP.
//!
//! In: an offer, and what its sender may do. Out: the answer, and a participant for as long as the client is there.
//! Cost: a task for each, which reads what the rooms say to it, as a client's WebSocket would.
//!
//! A guest is to the rooms a client like any other: it joins by one peer connection, and its media takes the same way. What makes it
//! one is that nothing changes after its offer: a publisher's tracks are those of the offer, all layers of them, and a viewer has those
//! that its participant had then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use livekit::admin::{Answer as AdminAnswer, Refusal, Request as Admin};
use livekit::join::Join;
use livekit::media::SessionId;
use livekit::output::ConnectionId;
use livekit::proto::request_response::Reason;
use livekit::proto::signal_request::Message as Signal;
use livekit::proto::signal_response::Message;
use livekit::proto::{
    AddTrackRequest, LeaveRequest, ParticipantInfo, RoomParticipantIdentity, SessionDescription, SignalRequest,
    TrackInfo, TrackSource, TrackType, UpdateSubscription, VideoLayer, VideoQuality,
};
use livekit::token::{Claims, VideoGrant};
use tokio::sync::Mutex as Turn;
use tokio::time::timeout;
use webrtc::{Media, Purpose};
use wire::codec::{Codec, MediaKind};

use super::hub::{Hub, NotNow};
use super::queue::Outlet;
use super::stage::{Stage, codec_of};
use crate::plane::questions::ANSWER_TIMEOUT;
use crate::rooms::control::{ControlError, Opened, new_key};
use crate::rooms::directory::Role;
use crate::rooms::negotiator::{Answer, published_media};

/// All guests.
pub struct Guests {
    hub: Arc<Hub>,
    by_key: Mutex<HashMap<Arc<str>, Guest>>,
}

/// One of them, as its URL names it.
#[derive(Clone, Debug)]
pub struct Guest {
    /// Its peer connection.
    pub session: SessionId,
    /// Who sends fragments, one at a time.
    pub turn: Arc<Turn<()>>,
    connection: ConnectionId,
    place: Place,
}

/// What a URL says: what for, in which room, and who publishes or is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What for.
    pub role: Role,
    /// By its name.
    pub room: String,
    /// Of the participant that publishes or is watched.
    pub identity: String,
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    /// As where there is no room of LiveKit's protocol.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// By the rooms.
    #[error(transparent)]
    NotNow(#[from] NotNow),
    /// For what its token says (403).
    #[error("the token does not let its bearer publish a {0}")]
    MayNotPublish(&'static str),
    /// There is no such participant, or nothing of it to be watched by who asks (404).
    #[error("there is no such participant in this room, or it publishes nothing that may be watched")]
    NothingThere,
    /// The participant has no such track (404).
    #[error("the participant has no track {0:?}: name one by its sid or its source (camera, microphone, screen_share)")]
    NoTrack(String),
}

impl Guests {
    /// Nobody yet.
    pub fn new(hub: Arc<Hub>) -> Arc<Self> {
        Arc::new(Guests { hub, by_key: Mutex::default() })
    }

    /// Lets a publisher in. Who has its identity leaves.
    ///
    /// # Errors
    /// When the offer cannot be taken, or its sender is not let in.
    pub async fn publish(self: &Arc<Self>, claims: Claims, offer: String) -> Result<Opened, GuestError> {
        let media = check(&offer, published_media)?;
        let video = claims.video.clone().unwrap_or_default();
        let place = Place { role: Role::Publisher, room: video.room.clone(), identity: claims.sub.clone() };
        // It is asked for nothing, and cannot be.
        let video = VideoGrant { can_subscribe: Some(false), ..video };
        let claims = Claims { kind: "ingress".to_owned(), video: Some(video), ..claims };
        let join = Join { add_tracks: announcements(&media), ..guest(claims) };
        let caller = Caller::join(self.hub.clone(), join)?;
        self.open(place, caller, offer, None).await
    }

    /// Lets a viewer in, whom the others do not see: for all tracks that the participant has now, or for those that are named, by
    /// their sids or their sources.
    ///
    /// # Errors
    /// As for `publish`; `NothingThere`, `NoTrack`.
    pub async fn watch(
        self: &Arc<Self>,
        claims: Claims,
        identity: &str,
        tracks: &[&str],
        offer: String,
    ) -> Result<Opened, GuestError> {
        let video = claims.video.clone().unwrap_or_default();
        let place = Place { role: Role::Viewer, room: video.room.clone(), identity: identity.to_owned() };
        let watched = self.participant(&place)?;
        let tracks = choose(&watched, tracks)?;
        let codecs: Vec<Codec> = tracks.iter().filter_map(|track| codec_of(&track.mime_type)).collect();
        let purpose = Purpose::Send { tracks: &codecs, profiles: &[], chosen: &[], stream: "", transport_cc: true };
        check(&offer, |offer| webrtc::read_offer(offer, purpose))?;
        let track_sids: Vec<String> = tracks.iter().map(|track| track.sid.clone()).collect();
        let watched = Watched { participant: watched.sid.clone(), tracks: track_sids.clone() };
        // It is another one than the participant of the same token, who may be here.
        let (sub, name) = (format!("whep-{}", new_key()?), claims.sub.clone());
        let video = VideoGrant {
            can_publish: Some(false),
            can_publish_data: Some(false),
            can_update_own_metadata: Some(false),
            room_join: true,
            room: place.room.clone(),
            hidden: true,
            ..VideoGrant::default()
        };
        let claims = Claims { sub, name, exp: claims.exp, video: Some(video), ..Claims::default() };
        let caller = Caller::join(self.hub.clone(), guest(claims))?;
        caller.say(Signal::Subscription(UpdateSubscription {
            track_sids,
            subscribe: true,
            participant_tracks: vec![],
        }));
        self.open(place, caller, offer, Some(watched)).await
    }

    /// How many publish.
    pub fn publisher_count(&self) -> usize {
        self.locked().values().filter(|guest| guest.place.role == Role::Publisher).count()
    }

    /// The guest of a URL.
    ///
    /// # Errors
    /// Where there is none of this kind.
    pub fn find(&self, place: &Place, key: &str) -> Result<Guest, GuestError> {
        let found = self.locked().get(key).filter(|guest| guest.place == *place).cloned();
        Ok(found.ok_or(ControlError::Directory(crate::rooms::directory::DirectoryError::NoSession))?)
    }

    /// The guest of a URL leaves.
    ///
    /// # Errors
    /// As for `find`.
    pub fn close(&self, place: &Place, key: &str) -> Result<(), GuestError> {
        let Guest { connection, .. } = self.find(place, key)?;
        self.locked().remove(key);
        self.hub.request(connection, SignalRequest { message: Some(leave()) });
        Ok(())
    }

    async fn open(
        self: &Arc<Self>,
        place: Place,
        mut caller: Caller,
        offer: String,
        watched: Option<Watched>,
    ) -> Result<Opened, GuestError> {
        let key = new_key()?;
        caller.say(Signal::Offer(SessionDescription { r#type: "offer".to_owned(), sdp: offer, ..Default::default() }));
        let answered = timeout(ANSWER_TIMEOUT, caller.answer(watched.as_ref())).await;
        let sdp = answered.unwrap_or(Err(ControlError::Busy.into()))?;
        let connection = caller.connection;
        let session = self.hub.session(connection).ok_or(ControlError::Busy)?;
        let etag = sdp.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap_or_default().to_owned();
        self.locked().insert(key.clone(), Guest { session, connection, place, turn: Arc::default() });
        let (guests, known) = (self.clone(), key.clone());
        tokio::spawn(async move {
            caller.attend(watched).await;
            guests.locked().remove(&known);
        });
        Ok(Opened { session: Stage::spec_id(session), key, answer: Answer { sdp, etag } })
    }

    fn participant(&self, Place { room, identity, .. }: &Place) -> Result<ParticipantInfo, GuestError> {
        let grant = VideoGrant { room_admin: true, room: room.clone(), ..VideoGrant::default() };
        let request = RoomParticipantIdentity { room: room.clone(), identity: identity.clone(), ..Default::default() };
        match self.hub.admin(&grant, Admin::GetParticipant(request)) {
            Ok(AdminAnswer::Participant(info)) if !info.tracks.is_empty() => Ok(info),
            Ok(_) | Err(Refusal::NoSuchRoom | Refusal::NoSuchParticipant) => Err(GuestError::NothingThere),
            Err(_) => Err(ControlError::Busy.into()),
        }
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Arc<str>, Guest>> {
        self.by_key.lock().expect("nobody panics under this lock")
    }
}

/// What a viewer watches.
struct Watched {
    participant: String,
    tracks: Vec<String>,
}

impl Watched {
    /// Whether nothing is left of it, as this message says.
    fn is_over(&self, message: &Message) -> bool {
        let Message::Update(update) = message else { return false };
        let has_any = |info: &ParticipantInfo| info.tracks.iter().any(|track| self.tracks.contains(&track.sid));
        update.participants.iter().any(|info| info.sid == self.participant && !has_any(info))
    }
}

/// A guest's signalling connection. The rooms hear of its end.
struct Caller {
    hub: Arc<Hub>,
    connection: ConnectionId,
    outlet: Outlet,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.hub.closed(self.connection);
    }
}

impl Caller {
    fn join(hub: Arc<Hub>, join: Join) -> Result<Self, GuestError> {
        let (connection, outlet) = hub.join(join)?;
        Ok(Caller { hub, connection, outlet })
    }

    fn say(&self, signal: Signal) {
        self.hub.request(self.connection, SignalRequest { message: Some(signal) });
    }

    /// Waits for the answer to its offer.
    async fn answer(&mut self, watched: Option<&Watched>) -> Result<String, GuestError> {
        while let Some(message) = self.outlet.message().await {
            match message.said() {
                Some(Message::Answer(answer)) if watched.is_none() || !answer.mid_to_track_id.is_empty() => {
                    return Ok(answer.sdp.clone());
                }
                Some(Message::Answer(_)) => return Err(GuestError::NothingThere),
                Some(Message::RequestResponse(response)) if response.reason() == Reason::NotAllowed => {
                    return Err(GuestError::MayNotPublish(refused(response)));
                }
                Some(message) if watched.is_some_and(|watched| watched.is_over(message)) => {
                    return Err(GuestError::NothingThere);
                }
                _ => {}
            }
        }
        // What is wrong with an offer was looked at before, so it is the packet path that has no room.
        Err(ControlError::Busy.into())
    }

    /// Takes what the rooms say, until its participant has left; a viewer leaves when what it watches does.
    async fn attend(mut self, watched: Option<Watched>) {
        while let Some(message) = self.outlet.message().await {
            if let (Some(watched), Some(message)) = (&watched, message.said())
                && watched.is_over(message)
            {
                self.say(leave());
            }
        }
    }
}

fn leave() -> Signal {
    Signal::Leave(LeaveRequest::default())
}

fn guest(claims: Claims) -> Join {
    Join { claims, is_single: true, without_data: true, describes_once: true, ..Join::default() }
}

/// Reads an offer, and looks whether it can be one of a room's session.
fn check(
    offer: &str,
    read: impl FnOnce(&str) -> Result<Vec<Media>, webrtc::Error>,
) -> Result<Vec<Media>, ControlError> {
    let media = read(offer).and_then(|media| match offer.contains("a=group:BUNDLE") {
        true => Ok(media),
        false => Err(webrtc::Error::NotBundled),
    });
    media.map_err(|error| ControlError::Negotiation(error.into()))
}

/// How tracks are announced: the first of each kind as camera and microphone, the second as a screen and its sound.
fn announcements(media: &[Media]) -> Vec<AddTrackRequest> {
    let mut counts = [0_usize; 2];
    let announce = |media: &Media| {
        let (kind, sources) = match media.codec.kind() {
            MediaKind::Audio => (TrackType::Audio, [TrackSource::Microphone, TrackSource::ScreenShareAudio]),
            MediaKind::Video => (TrackType::Video, [TrackSource::Camera, TrackSource::ScreenShare]),
        };
        let count = &mut counts[usize::from(kind == TrackType::Video)];
        let source = sources.get(*count).copied().unwrap_or(TrackSource::Unknown);
        *count += 1;
        announcement(media, kind, source)
    };
    media.iter().map(announce).collect()
}

#[allow(deprecated, reason = "clients read these fields")]
fn announcement(media: &Media, kind: TrackType, source: TrackSource) -> AddTrackRequest {
    let qualities = [VideoQuality::Low, VideoQuality::Medium, VideoQuality::High];
    let layers = qualities.iter().take(media.rids.len());
    AddTrackRequest {
        cid: media.mid.clone(),
        r#type: kind as i32,
        source: source as i32,
        layers: layers.map(|quality| VideoLayer { quality: *quality as i32, ..VideoLayer::default() }).collect(),
        // It may be music.
        disable_dtx: true,
        stereo: media.fmtp.contains("stereo=1"),
        ..AddTrackRequest::default()
    }
}

/// What somebody may not publish.
fn refused(response: &livekit::proto::RequestResponse) -> &'static str {
    use livekit::proto::request_response::Request;
    match &response.request {
        Some(Request::AddTrack(request)) => match request.source() {
            TrackSource::Camera => "camera",
            TrackSource::Microphone => "microphone",
            TrackSource::ScreenShare | TrackSource::ScreenShareAudio => "screen",
            TrackSource::Unknown => "third track of a kind",
        },
        _ => "track",
    }
}

/// The tracks of a participant that are named, or all.
fn choose<'a>(participant: &'a ParticipantInfo, named: &[&str]) -> Result<Vec<&'a TrackInfo>, GuestError> {
    if named.is_empty() {
        return Ok(participant.tracks.iter().collect());
    }
    let is_it =
        |track: &&TrackInfo, name: &str| track.sid == name || track.source().as_str_name().eq_ignore_ascii_case(name);
    let find = |name: &&str| {
        let found = participant.tracks.iter().find(|track| is_it(track, name));
        found.ok_or_else(|| GuestError::NoTrack(name.chars().take(NAME_SHOWN_MAX).collect()))
    };
    named.iter().map(find).collect()
}

/// Characters of an unknown name that are said again.
const NAME_SHOWN_MAX: usize = 40;
