//! One room: who is in it, what is published, and how all of them hear of changes.
//!
//! What clients and admins ask for is in modules of its own (`presence`, `negotiate`, `publish`, `subscribe`, `profile`,
//! `data`, `resume`, `admin`, `tick`), each a handful of functions over a room and a `Turn`.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use livekit_protocol::signal_response::Message;
use livekit_protocol::{Codec, ParticipantInfo, ParticipantUpdate, Room as RoomInfo, RoomUpdate};

use crate::behind::Behind;
use crate::config::{Config, Now};
use crate::directory::{Number, Place, RoomNumber};
use crate::forwarding::Forward;
use crate::limits;
use crate::loudest::Loudest;
use crate::media::{SessionId, TrackId};
use crate::output::ConnectionId;
use crate::participant::Participant;
use crate::sid::Sids;
use crate::speakers::Speakers;
use crate::timers::Timers;
use crate::token::RoomConfig;
use crate::track::Track;
use crate::turn::Turn;
use crate::updates::Updates;

#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) number: RoomNumber,
    pub(crate) sid: String,
    pub(crate) name: String,
    pub(crate) metadata: String,
    pub(crate) created: Now,
    pub(crate) empty_timeout: Duration,
    pub(crate) departure_timeout: Duration,
    /// 0 is as many as are possible.
    pub(crate) participants_max: u32,
    /// Those that may be published.
    pub(crate) codecs: Vec<Codec>,
    /// By which clients know frames that a server has put in.
    pub(crate) trailer: Vec<u8>,
    pub(crate) members: BTreeMap<Number, Participant>,
    pub(crate) by_identity: HashMap<String, Number>,
    pub(crate) by_sid: HashMap<String, Number>,
    pub(crate) tracks: BTreeMap<String, Track>,
    pub(crate) updates: Updates,
    pub(crate) speakers: Speakers<Number>,
    pub(crate) loudest: Loudest,
    /// Of data packets, the newest last.
    pub(crate) nonces: VecDeque<Vec<u8>>,
    pub(crate) timers: Timers<Timer>,
    /// Sessions that are behind with reliable data.
    pub(crate) behind: Behind,
    /// Who of them stands in other rooms, too.
    pub(crate) forwards: Vec<Forward>,
    /// Whose set of tracks has changed since the packet path was told.
    pub(crate) changed_downs: BTreeSet<Number>,
    pub(crate) has_been_joined: bool,
    /// Whether viewers are not told of to others; it stays so once it is.
    pub(crate) is_livestream: bool,
    pub(crate) is_closed: bool,
}

/// What is due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Close,
    Updates,
    Room,
    Speakers,
    Quality,
    Token(Number),
    Connect(Number),
    Resume(Number),
    Behind(SessionId),
    Demand(TrackId),
}

/// When others hear of a change of somebody who publishes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Now,
    Gathered,
}

impl Room {
    pub(crate) fn new(
        number: RoomNumber,
        name: &str,
        wanted: &RoomConfig,
        now: Now,
        config: &Config,
        sids: &mut Sids,
    ) -> Self {
        let seconds = |wanted: u32, otherwise| match wanted {
            0 => otherwise,
            seconds => Duration::from_secs(u64::from(seconds)),
        };
        let mut room = Room {
            number,
            sid: sids.next("RM_"),
            name: name.to_owned(),
            metadata: wanted.metadata.clone(),
            created: now,
            empty_timeout: seconds(wanted.empty_timeout, config.empty_timeout),
            departure_timeout: seconds(wanted.departure_timeout, config.departure_timeout),
            participants_max: if wanted.max_participants == 0 {
                config.participants_max
            } else {
                wanted.max_participants
            },
            codecs: config.codecs.iter().map(|mime| Codec { mime: mime.clone(), ..Codec::default() }).collect(),
            trailer: sids.next("").into_bytes(),
            members: BTreeMap::new(),
            by_identity: HashMap::new(),
            by_sid: HashMap::new(),
            tracks: BTreeMap::new(),
            updates: Updates::default(),
            speakers: Speakers::new(),
            loudest: Loudest::new(config.loudest),
            nonces: VecDeque::new(),
            timers: Timers::new(),
            behind: Behind::default(),
            forwards: Vec::new(),
            changed_downs: BTreeSet::new(),
            has_been_joined: false,
            is_livestream: false,
            is_closed: false,
        };
        room.close_when_empty(now);
        room
    }

    pub(crate) fn place(&self, who: Number) -> Place {
        Place { room: self.number, who }
    }

    /// What clients and the application hear of it.
    pub(crate) fn info(&self) -> RoomInfo {
        RoomInfo {
            sid: self.sid.clone(),
            name: self.name.clone(),
            empty_timeout: self.empty_timeout.as_secs() as u32,
            departure_timeout: self.departure_timeout.as_secs() as u32,
            max_participants: self.participants_max,
            creation_time: self.created.unix.as_secs() as i64,
            creation_time_ms: self.created.unix.as_millis() as i64,
            enabled_codecs: self.codecs.clone(),
            metadata: self.metadata.clone(),
            num_participants: self.members.values().filter(|member| !member.is_dependent()).count() as u32,
            num_publishers: self.members.values().filter(|member| member.is_publisher).count() as u32,
            active_recording: self.members.values().any(Participant::is_recorder),
            ..RoomInfo::default()
        }
    }

    pub(crate) fn member_info(&self, who: Number) -> Option<ParticipantInfo> {
        self.members.get(&who).map(|member| member.info(&self.tracks))
    }

    pub(crate) fn find(&self, identity: &str) -> Option<Number> {
        self.by_identity.get(identity).copied()
    }

    /// All connections that are there, but one's.
    pub(crate) fn audience(&self, but: Option<Number>) -> Vec<ConnectionId> {
        let others = self.members.values().filter(|member| Some(member.number) != but);
        others.filter_map(|member| member.connection).collect()
    }

    pub(crate) fn send(&self, who: Number, message: Message, turn: &mut Turn<'_>) {
        if let Some(connection) = self.members.get(&who).and_then(|member| member.connection) {
            turn.out.send(connection, message);
        }
    }

    /// Says how somebody is now: publishers at once, who publishes nothing when it is time. Of hidden ones nobody hears
    /// but they themselves, and of viewers nobody else in a room with a big audience.
    pub(crate) fn announce(&mut self, who: Number, when: When, to_itself: bool, turn: &mut Turn<'_>) {
        let is_livestream = self.is_livestream;
        let Some(member) = self.members.get_mut(&who) else { return };
        member.is_announced |= !member.is_hidden() && (!is_livestream || member.is_of_interest());
        let is_told_of = member.is_announced && !member.is_hidden();
        let is_urgent = when == When::Now || member.is_publisher;
        let info = member.info(&self.tracks);
        let update = |info| Message::Update(ParticipantUpdate { participants: vec![info] });
        if is_told_of && is_urgent {
            self.updates.forget(&info.sid);
            let to = self.audience((!to_itself).then_some(who));
            turn.out.send_all(to, update(info));
            return;
        }
        if to_itself {
            self.send(who, update(info.clone()), turn);
        }
        if is_told_of {
            self.gather(info, turn);
        }
    }

    /// Others hear of it when it is time.
    pub(crate) fn gather(&mut self, info: ParticipantInfo, turn: &Turn<'_>) {
        self.updates.push(info);
        self.timers.set_if_none(Timer::Updates, turn.now.at + limits::UPDATES_GATHERED);
    }

    /// Everybody hears of the room's numbers when it is time.
    pub(crate) fn gather_room(&mut self, now: Now) {
        self.timers.set_if_none(Timer::Room, now.at + limits::ROOM_GATHERED);
    }

    pub(crate) fn send_room_update(&mut self, turn: &mut Turn<'_>) {
        self.timers.clear(&Timer::Room);
        turn.out.send_all(self.audience(None), Message::RoomUpdate(RoomUpdate { room: Some(self.info()) }));
    }

    /// Whether there is no place for one more. Who has the same identity leaves, and recorders and agents do not count.
    pub(crate) fn is_full_for(&self, identity: &str, is_dependent: bool) -> bool {
        let others = self.members.values().filter(|member| !member.is_dependent() && member.identity != identity);
        let is_full = self.participants_max > 0 && others.count() >= self.participants_max as usize;
        (is_full && !is_dependent) || self.members.len() >= limits::PARTICIPANTS_MAX
    }

    /// It closes some time after nobody is in it but recorders and agents.
    pub(crate) fn close_when_empty(&mut self, now: Now) {
        if self.members.values().any(|member| !member.is_dependent()) {
            self.timers.clear(&Timer::Close);
            return;
        }
        let after = if self.has_been_joined { self.departure_timeout } else { self.empty_timeout };
        self.timers.set_if_none(Timer::Close, now.at + after);
    }
}
