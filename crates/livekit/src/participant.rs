//! One participant: who it is, what it may do, what it publishes, wants and gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use livekit_protocol::participant_info::{Kind, KindDetail, State};
use livekit_protocol::{ClientInfo, DisconnectReason, IceServer, ParticipantInfo, ParticipantPermission, TrackSource};

use crate::allowance::Allowance;
use crate::config::Now;
use crate::directory::Number;
use crate::join::Join;
use crate::media::TrackId;
use crate::output::ConnectionId;
use crate::permission::Permissions;
use crate::quality::Quality;
use crate::subscription::{Settings, Wishes};
use crate::token::{Claims, VideoGrant};
use crate::track::{Pending, Track};
use crate::transports::Transports;
use crate::turn::Turn;

#[derive(Debug)]
pub(crate) struct Participant {
    pub(crate) number: Number,
    pub(crate) sid: String,
    pub(crate) identity: String,
    pub(crate) name: String,
    pub(crate) metadata: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) permission: ParticipantPermission,
    pub(crate) kind: Kind,
    /// What more its token says of that (`KindDetail`).
    pub(crate) kind_details: Vec<i32>,
    /// That of the server to which it is connected.
    pub(crate) region: String,
    pub(crate) client: ClientInfo,
    pub(crate) joined: Now,
    /// Counts what has changed, for clients.
    pub(crate) version: u32,
    pub(crate) state: State,
    /// None while it is without one, and its media goes on.
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) transports: Transports,
    pub(crate) ice_servers: Vec<IceServer>,
    pub(crate) auto_subscribe: bool,
    pub(crate) is_adaptive: bool,
    /// See `Join`.
    pub(crate) describes_once: bool,
    /// Whether others have heard of it.
    pub(crate) is_announced: bool,
    pub(crate) pending: Vec<Pending>,
    /// Sids of what it publishes, in order.
    pub(crate) tracks: Vec<String>,
    /// It has published, perhaps nothing any more, and may still.
    pub(crate) is_publisher: bool,
    pub(crate) permissions: Permissions,
    pub(crate) wishes: Wishes,
    pub(crate) downs: BTreeMap<TrackId, Down>,
    pub(crate) quality: Quality,
    pub(crate) allowance: Allowance,
    /// Data packets for when its channels are open.
    pub(crate) kept: Vec<Arc<[u8]>>,
    /// The number of the last reliable data packet that came.
    pub(crate) last_reliable: u32,
    /// For tests of clients: the next resumption is cut off.
    pub(crate) cuts_resume: bool,
}

/// A track that it gets.
#[derive(Debug)]
pub(crate) struct Down {
    pub(crate) sid: String,
    /// What the packet path was told; `None` is nothing yet.
    pub(crate) settings: Option<Settings>,
    /// It was told that nothing comes for want of bandwidth.
    pub(crate) is_starved: bool,
}

impl Participant {
    pub(crate) fn new(number: Number, sid: String, join: Join, turn: &Turn<'_>) -> Self {
        let Join { claims, client, metadata, attributes, .. } = join;
        let permission = claims.video.as_ref().map(VideoGrant::permission).unwrap_or_default();
        let (kind, kind_details) = (claims.participant_kind(), claims.kind_details());
        Participant {
            number,
            sid,
            identity: claims.sub,
            name: claims.name,
            metadata: if metadata.is_empty() { claims.metadata } else { metadata },
            attributes: claims.attributes.into_iter().chain(attributes).collect(),
            transports: Transports::new(join.is_single, permission.can_subscribe),
            permission,
            kind,
            kind_details: kind_details.into_iter().map(|detail| detail as i32).collect(),
            region: turn.config.region.clone(),
            client,
            joined: turn.now,
            version: 0,
            state: State::Joined,
            connection: None,
            ice_servers: join.ice_servers,
            auto_subscribe: join.auto_subscribe,
            is_adaptive: join.adaptive_stream,
            describes_once: join.describes_once,
            is_announced: false,
            pending: Vec::new(),
            tracks: Vec::new(),
            is_publisher: false,
            permissions: Permissions::default(),
            wishes: Wishes::default(),
            downs: BTreeMap::new(),
            quality: Quality::new(),
            allowance: Allowance::new(turn.now.at),
            kept: Vec::new(),
            last_reliable: 0,
            cuts_resume: false,
        }
    }

    pub(crate) fn takes_request(&mut self, now: Instant) -> bool {
        self.allowance.take(now)
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.permission.hidden
    }

    /// Recorders and agents: a room with nobody else is empty, and they do not count.
    pub(crate) fn is_dependent(&self) -> bool {
        is_dependent(self.kind, &self.permission)
    }

    #[allow(deprecated, reason = "older tokens say it so")]
    pub(crate) fn is_recorder(&self) -> bool {
        self.kind == Kind::Egress || self.permission.recorder
    }

    pub(crate) fn is_agent(&self) -> bool {
        self.kind == Kind::Agent
    }

    /// Whether others have to know of it even in a room with a big audience.
    pub(crate) fn is_of_interest(&self) -> bool {
        self.permission.can_publish || !self.metadata.is_empty() || !self.attributes.is_empty()
    }

    pub(crate) fn may_publish(&self, source: TrackSource) -> bool {
        let sources = &self.permission.can_publish_sources;
        self.permission.can_publish && (sources.is_empty() || sources.contains(&(source as i32)))
    }

    /// Clients from protocol 13 on read what to do after a leave.
    pub(crate) fn reads_actions(&self) -> bool {
        self.client.protocol > 12
    }

    /// Clients from protocol 12 on know that an identity has one session at a time.
    pub(crate) fn goes_by_identity(&self) -> bool {
        self.client.protocol > 11
    }

    /// What others and the application hear of it.
    pub(crate) fn info(&self, tracks: &BTreeMap<String, Track>) -> ParticipantInfo {
        let tracks = self.tracks.iter().filter_map(|sid| tracks.get(sid));
        ParticipantInfo {
            sid: self.sid.clone(),
            identity: self.identity.clone(),
            state: self.state as i32,
            tracks: tracks.map(|track| track.info.clone()).collect(),
            metadata: self.metadata.clone(),
            joined_at: self.joined.unix.as_secs() as i64,
            joined_at_ms: self.joined.unix.as_millis() as i64,
            name: self.name.clone(),
            version: self.version,
            permission: Some(self.permission.clone()),
            region: self.region.clone(),
            is_publisher: self.is_publisher,
            kind: self.kind as i32,
            kind_details: self.kind_details.clone(),
            attributes: self.attributes.clone().into_iter().collect(),
            client_protocol: self.client.client_protocol,
            capabilities: self.client.capabilities.clone(),
            ..ParticipantInfo::default()
        }
    }

    /// The same, when it has left.
    pub(crate) fn last_info(&self, reason: DisconnectReason) -> ParticipantInfo {
        ParticipantInfo {
            state: State::Disconnected as i32,
            disconnect_reason: reason as i32,
            ..self.info(&BTreeMap::new())
        }
    }

    /// A token for it as it is now.
    pub(crate) fn claims(&self, room: &str, now: Now) -> Claims {
        let unix = now.unix.as_secs();
        let details = self.kind_details.iter().filter_map(|detail| KindDetail::try_from(*detail).ok());
        Claims {
            sub: self.identity.clone(),
            exp: unix + crate::limits::TOKEN_HOLDS.as_secs(),
            nbf: Some(unix),
            name: self.name.clone(),
            kind: kind_name(self.kind).to_owned(),
            kind_details: details.map(|detail| detail.as_str_name().to_lowercase()).collect(),
            metadata: self.metadata.clone(),
            attributes: self.attributes.clone(),
            video: Some(VideoGrant::to_join(room, &self.permission)),
            ..Claims::default()
        }
    }
}

/// As tokens have it.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Standard => "standard",
        Kind::Ingress => "ingress",
        Kind::Egress => "egress",
        Kind::Sip => "sip",
        Kind::Agent => "agent",
        Kind::Connector => "connector",
        Kind::Bridge => "bridge",
    }
}

/// See `Participant::is_dependent`.
#[allow(deprecated, reason = "older tokens say it so")]
pub(crate) fn is_dependent(kind: Kind, permission: &ParticipantPermission) -> bool {
    matches!(kind, Kind::Agent | Kind::Egress) || permission.agent || permission.recorder
}
