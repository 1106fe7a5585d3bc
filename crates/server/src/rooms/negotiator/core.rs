//! The sessions of one worker, from the offer to the goodbye.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rooms::spec::{Command, Event, PeerSpec, SessionId};
use rustc_hash::FxHashMap;
use slab::Slab;
use srtp::SessionKeys;
use webrtc::{
    AnswerOptions, Conference, ConferenceOptions, Context, Negotiated, Output, Peer, Received, Refused, Remote,
};
use wire::codec::Codec;
use wire::{LinkId, LinkKind, Path};

use crate::crowd::Crowd;
use crate::plane::workers::Posted;
use crate::random::random;
use crate::rooms::client::{Client, Key};
use crate::rooms::directory::{Admitted, Role};
use crate::worker::Message;

use super::conference::{ConferenceNotice, ConferenceRequest, Open};
use super::member::{Effects, Member};
use super::session::{Kind, Phase, Progress, Session, Tag, Way, begins, shared};
use super::{
    Answer, Counters, EndReason, Input, NegotiationError, Notice, PUBLISH, Patched, Reply, Request, Settings, convert,
    formats, to_send,
};

/// Addresses of one peer that are remembered; of more the one goes from which nothing came for longest.
const PATHS_MAX: usize = 64;

/// A session sleeps at least this long, lest one that always wants to be woken keeps the thread busy.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// A peer answers our first offer within this, or is dropped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What an overloaded server tells clients.
const RETRY_AFTER_SECONDS: u32 = 2;

/// Sessions of one worker that are being set up or are up. It has no thread, no socket and no clock.
///
/// `C` hands a message to the worker, behind what control has for it; `N` tells the control plane, and is told whether that
/// has room for a session that has connected.
pub struct Negotiator<C, N> {
    settings: Settings,
    context: Context,
    send: C,
    notify: N,
    sessions: Slab<Session>,
    by_id: FxHashMap<SessionId, usize>,
    /// By our user fragment, which peers put first in USERNAME.
    by_ufrag: HashMap<String, usize>,
    /// By what the ids of our own checks begin with, and so those of answers to them. Drawn, as who answers is not known yet.
    by_tag: HashMap<Tag, usize>,
    /// By where authenticated checks came from: one session at a place (`claim`).
    by_remote: HashMap<(LinkId, SocketAddr), usize>,
    /// When each session next wants `handle_timeout`; one entry per session.
    deadlines: BTreeSet<(Instant, usize)>,
    /// The steps on which sessions that are up are driven are counted from here.
    start: Instant,
    handshakes: usize,
    /// Those of these that have yet to prove an address, and whose they are.
    strangers: Crowd<Key, [Option<Key>; 2]>,
    /// The others of these.
    proved: Crowd<Key, ()>,
    counters: Counters,
}

impl<C, N> Negotiator<C, N>
where
    C: FnMut(Message) -> Posted,
    N: FnMut(Notice) -> bool,
{
    /// Without sessions.
    pub fn new(now: Instant, settings: Settings, context: Context, send: C, notify: N) -> Self {
        Negotiator {
            settings,
            context,
            send,
            notify,
            sessions: Slab::new(),
            by_id: FxHashMap::default(),
            by_ufrag: HashMap::new(),
            by_tag: HashMap::new(),
            by_remote: HashMap::new(),
            deadlines: BTreeSet::new(),
            start: now,
            handshakes: 0,
            strangers: Crowd::default(),
            proved: Crowd::default(),
            counters: Counters::default(),
        }
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    #[cfg(test)]
    pub(super) fn peer_mut(&mut self, session: SessionId) -> &mut Peer {
        &mut self.sessions[self.by_id[&session]].peer
    }

    /// Takes what comes into its mailbox.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Datagram { path, data, .. } => self.handle_datagram(now, path, &data),
            Input::Event(Event::SessionEnded { session, reason }) => {
                if let Some(key) = self.by_id.get(&session).copied() {
                    self.remove(key, EndReason::Worker(reason));
                }
            }
            // What workers tell of else is for the control plane.
            Input::Event(_) => {}
            Input::Request(request) => self.handle_request(now, request),
        }
    }

    /// Drives the sessions that are due, and drops those that take too long.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, key)) = self.deadlines.first().copied()
            && at <= now
        {
            if let Phase::Handshaking { until, .. } = self.sessions[key].phase
                && until <= now
            {
                self.counters.timed_out += 1;
                self.remove(key, EndReason::HandshakeTimeout);
                continue;
            }
            self.sessions[key].peer.handle_timeout(now);
            self.drive(now, key);
        }
    }

    /// When `handle_timeout` next has work.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn handle_request(&mut self, now: Instant, request: Request) {
        match request {
            Request::Open { place, offer, reply } => {
                let session = place.session;
                // An answer is work, and nobody waits for it any more.
                if reply.is_closed() {
                    return self.abandon(session);
                }
                let result = self.open(now, place, &offer);
                self.answer(session, result, reply);
            }
            Request::Patch { session, fragment, if_match, reply, turn: _ } => {
                let result = self.patch(now, session, &fragment, &if_match);
                if matches!(result, Err(NegotiationError::Sdp(_))) {
                    self.counters.refused += 1;
                }
                // Whoever asked may be gone; the fragment has done its work all the same.
                let _ = reply.send(result);
            }
            Request::Close { session } => {
                if let Some(key) = self.by_id.get(&session).copied() {
                    self.remove(key, EndReason::Asked);
                }
            }
            Request::Conference { session, request } => self.handle_member(now, session, request),
        }
    }

    fn handle_member(&mut self, now: Instant, id: SessionId, request: ConferenceRequest) {
        let key = match (request, self.by_id.get(&id).copied()) {
            (ConferenceRequest::Open(open), None) => {
                if let Err(error) = self.open_member(now, id, *open) {
                    self.counters.refused += 1;
                    self.tell(id, ConferenceNotice::Refused(error));
                }
                return;
            }
            (ConferenceRequest::Close, Some(key)) => return self.remove(key, EndReason::Asked),
            (request, Some(key)) => {
                let Session { peer, member, .. } = &mut self.sessions[key];
                let Some(member) = member else { return };
                let effects = member.handle(now, id, peer, request);
                self.take_effects(now, key, effects);
                key
            }
            (_, None) => return,
        };
        self.drive(now, key);
    }

    fn open_member(&mut self, now: Instant, id: SessionId, open: Open) -> Result<(), NegotiationError> {
        let Open { client, offer, downs, wants_data, wants_packets, cname } = open;
        let makes_room = self.find_room(id, &client)?;
        let tag = self.free_tag().ok_or(NegotiationError::Overloaded { retry_after_seconds: RETRY_AFTER_SECONDS })?;
        let candidates = self.settings.candidates.as_slice().into();
        let options = ConferenceOptions { candidates, cname: cname.clone(), wants_data, codecs: Codec::ALL.into() };
        let make = if offer.is_some() { Conference::answerer } else { Conference::offerer };
        let (mut peer, conference) = make(&self.context, now, options)?;
        let mut member = Member::new(conference, cname, wants_packets);
        member.set_downs(downs)?;
        let first = match offer {
            Some((sdp, ups)) => ConferenceRequest::Offer { sdp, ups },
            // There is nothing to restart: it offers what there is.
            None => ConferenceRequest::Restart,
        };
        let answered_in =
            if matches!(first, ConferenceRequest::Restart) { ANSWER_TIMEOUT } else { self.settings.proof_timeout };
        let mut effects = member.handle(now, id, &mut peer, first);
        if let Some(ConferenceNotice::Refused(error)) =
            effects.notices.pop_if(|notice| matches!(notice, ConferenceNotice::Refused(_)))
        {
            return Err(error);
        }
        if let Some(other) = makes_room {
            self.counters.made_room += 1;
            self.remove(other, EndReason::MadeRoom);
        }
        peer.set_tag(tag);
        let session = Session::new(now, (id, tag), peer, Some(Box::new(member)), begins(now + answered_in, None));
        self.insert(now, &client, session);
        self.counters.answered += 1;
        if let Some(key) = self.by_id.get(&id).copied() {
            self.take_effects(now, key, effects);
        }
        Ok(())
    }

    /// Does and says what a member's request has come to. Who has a description has time for what comes next.
    fn take_effects(&mut self, now: Instant, key: usize, effects: Effects) {
        let session = &mut self.sessions[key];
        let (id, ufrag) = (session.id, session.peer.ufrag().to_owned());
        if let Phase::Handshaking { until, progress: Progress::Answered, .. } = &mut session.phase {
            *until = (*until).max(now + self.settings.proof_timeout);
        }
        let is_connected = matches!(session.phase, Phase::Connected { .. });
        self.rename(key, ufrag);
        self.counters.messages_dropped += effects.dropped;
        for command in effects.commands.into_iter().filter(|_| is_connected) {
            self.command(command);
        }
        for notice in effects.notices {
            self.tell(id, notice);
        }
    }

    fn tell(&mut self, session: SessionId, notice: ConferenceNotice) -> bool {
        (self.notify)(Notice::Conference { session, notice })
    }

    /// The session's checks begin with another user fragment.
    fn rename(&mut self, key: usize, ufrag: String) {
        if ufrag != self.sessions[key].ufrag {
            self.by_ufrag.insert(ufrag.clone(), key);
            let old = std::mem::replace(&mut self.sessions[key].ufrag, ufrag);
            self.by_ufrag.remove(&old);
            self.counters.restarts += 1;
            let Session { id, phase, .. } = &mut self.sessions[key];
            if let Phase::Connected { answers_checks, .. } = phase
                && std::mem::take(answers_checks)
            {
                let session = *id;
                self.command(Command::AnswerChecks { session, credentials: None });
            }
        }
    }

    fn open(&mut self, now: Instant, place: Admitted, offer: &str) -> Result<Answer, NegotiationError> {
        let Admitted { session, role, stream, name, tracks, chosen, client, .. } = place;
        let makes_room = self.find_room(session, &client)?;
        let overloaded = NegotiationError::Overloaded { retry_after_seconds: RETRY_AFTER_SECONDS };
        let tag = self.free_tag().ok_or(overloaded)?;
        let formats = formats(&tracks);
        let purpose = match role {
            Role::Publisher => PUBLISH,
            Role::Viewer => to_send(&formats, &chosen, &name, self.settings.takes_transport_cc(&tracks, &chosen)),
        };
        let options = AnswerOptions { purpose, candidates: &self.settings.candidates };
        let (mut peer, Negotiated { sdp, media }) = Peer::answer(&self.context, now, offer, &options)?;
        let begin = match role {
            Role::Publisher => {
                Command::Publish { session, stream, tracks: media.iter().map(convert::up_track).collect() }
            }
            Role::Viewer => {
                Command::Watch { session, stream, tracks: media.iter().filter_map(convert::down_track).collect() }
            }
        };
        let cname = convert::cname(&media, &name);
        if let Some(other) = makes_room {
            self.counters.made_room += 1;
            self.remove(other, EndReason::MadeRoom);
        }
        peer.set_tag(tag);
        let session = Session {
            cname,
            ..Session::new(now, (session, tag), peer, None, begins(now + self.settings.proof_timeout, Some(begin)))
        };
        Ok(Answer { sdp, etag: self.insert(now, &client, session) })
    }

    /// A tag that no session has; some draws at most, since one of the first is free.
    fn free_tag(&self) -> Option<Tag> {
        std::iter::repeat_with(random).take(4).flatten().find(|tag| !self.by_tag.contains_key(tag))
    }

    /// Whether there is room for a new session, and who makes it if that is what it takes: one who has proved nothing, of the
    /// client or the token that has most of these, so that offers which never connect do not keep others out. Where all have,
    /// one of a client that has more of them than the newcomer, so that handshakes which go no further do not either.
    fn find_room(&self, id: SessionId, client: &Client) -> Result<Option<usize>, NegotiationError> {
        if self.by_id.contains_key(&id) {
            return Err(NegotiationError::SessionExists);
        }
        if !self.is_full() {
            return Ok(None);
        }
        let overloaded = NegotiationError::Overloaded { retry_after_seconds: RETRY_AFTER_SECONDS };
        let makes_room = self.strangers.first_to_go().or_else(|| self.proved.first_to_go_for(&client.keys()));
        makes_room.ok_or(overloaded).map(Some)
    }

    fn is_full(&self) -> bool {
        self.sessions.len() >= self.settings.sessions_max || self.handshakes >= self.settings.handshakes_max
    }

    /// Keeps a new session and returns its ETag.
    fn insert(&mut self, now: Instant, client: &Client, session: Session) -> String {
        let (id, tag, ufrag, deadline) = (session.id, session.tag, session.ufrag.clone(), session.deadline);
        let key = self.sessions.insert(session);
        self.by_id.insert(id, key);
        self.by_ufrag.insert(ufrag.clone(), key);
        self.by_tag.insert(tag, key);
        self.deadlines.insert((deadline, key));
        self.strangers.enter(key, now, client.keys(), client.keys());
        self.handshakes += 1;
        self.count_sessions();
        // Where the worker has no room for it, the first check waits a little.
        (self.send)(Message::Expect);
        self.drive(now, key);
        ufrag
    }

    fn answer(&mut self, id: SessionId, result: Result<Answer, NegotiationError>, reply: Reply<Answer>) {
        match &result {
            Ok(_) => self.counters.answered += 1,
            Err(NegotiationError::Overloaded { .. }) => self.counters.overloaded += 1,
            Err(_) => self.counters.refused += 1,
        }
        if reply.send(result).is_err() {
            self.abandon(id);
        }
    }

    /// Whoever asked for a session has gone.
    fn abandon(&mut self, id: SessionId) {
        tracing::debug!(session = id.0, "nobody waits for the answer");
        match self.by_id.get(&id).copied() {
            Some(key) => self.remove(key, EndReason::Abandoned),
            None => _ = (self.notify)(Notice::Ended { session: id, reason: EndReason::Abandoned }),
        }
    }

    fn patch(
        &mut self,
        now: Instant,
        id: SessionId,
        fragment: &str,
        if_match: &str,
    ) -> Result<Patched, NegotiationError> {
        let key = self.by_id.get(&id).copied().ok_or(NegotiationError::NoSession)?;
        let session = &mut self.sessions[key];
        if !matches_etag(if_match, &session.ufrag) {
            return Err(NegotiationError::EtagMismatch);
        }
        let fragment = session.peer.handle_fragment(fragment)?;
        let etag = session.peer.ufrag().to_owned();
        self.rename(key, etag.clone());
        self.drive(now, key);
        Ok(Patched { fragment, etag })
    }

    fn handle_datagram(&mut self, now: Instant, path: Path, data: &[u8]) {
        self.counters.datagrams += 1;
        let remote = Remote { addr: path.remote, tcp: path.link.kind() == LinkKind::Framed };
        let (key, kind) = match data.first() {
            // RFC 7983: STUN. Checks, and answers to those of ours.
            Some(0..=3) => match (wire::stun::local_ufrag(data), wire::stun::answered_transaction(data)) {
                (Some(ufrag), _) => (self.by_ufrag.get(ufrag), Kind::Check),
                (None, Some([a, b, c, d, ..])) => (self.by_tag.get(&[a, b, c, d]), Kind::Answer),
                (None, None) => return self.counters.malformed += 1,
            },
            _ => (self.by_remote.get(&(path.link, path.remote)), Kind::Record),
        };
        let Some(key) = key.copied() else {
            return self.counters.unknown += 1;
        };
        if !self.sessions[key].may_read(now, kind, remote) {
            return match kind {
                Kind::Record => self.counters.too_many_records += 1,
                Kind::Check | Kind::Answer => self.counters.too_many_checks += 1,
            };
        }
        match self.sessions[key].peer.handle_datagram(now, remote, data) {
            Ok(Received::Consent) => {
                self.learn(now, key, remote, path);
                self.note(now, key, Progress::Proved);
                self.pass_consent(now, key);
            }
            Ok(Received::Check) => {
                self.learn(now, key, remote, path);
                self.note(now, key, Progress::Checked);
            }
            Ok(Received::Proof) => {
                self.counters.proved += 1;
                self.learn(now, key, remote, path);
                self.note(now, key, Progress::Proved);
            }
            Ok(Received::Handshake) | Err(Refused::Ended) => {}
            // DTLS that is wrong may still have changed something in its state, so it is driven like what is right.
            Err(Refused::BadDtls) => self.counters.malformed += 1,
            Err(Refused::NotHandshake | Refused::Malformed) => return self.counters.malformed += 1,
            Err(Refused::NotAuthentic) => return self.counters.not_authentic += 1,
            Err(Refused::NotProved) => return self.counters.not_proved += 1,
        }
        self.drive(now, key);
    }

    /// Remembers where an authenticated check or answer came from, and which way.
    fn learn(&mut self, now: Instant, key: usize, remote: Remote, path: Path) {
        let session = &mut self.sessions[key];
        match session.paths.iter_mut().find(|way| way.remote == remote) {
            // The same address may come in by another socket, or at another address of ours.
            Some(way) => {
                let before = std::mem::replace(&mut way.path, path);
                way.heard = now;
                if before.link != path.link {
                    self.leave(key, &before);
                }
            }
            None => {
                let oldest = session.paths.iter().enumerate().min_by_key(|(_, way)| way.heard).map(|(index, _)| index);
                let oldest = oldest.filter(|_| session.paths.len() >= PATHS_MAX);
                let left = oldest.map(|index| session.paths.swap_remove(index).path);
                session.paths.push(Way { remote, path, heard: now });
                if let Some(left) = left {
                    self.leave(key, &left);
                }
            }
        }
        self.claim(now, key, remote, &path);
    }

    /// Who is at a place, which is where DTLS comes from: one session at a time. It is who was there first, but who has proved
    /// the place comes before who has not, and later proof before earlier unless that one is shaking hands just now. A
    /// session that was displaced claims the place again with each of its checks.
    fn claim(&mut self, now: Instant, key: usize, remote: Remote, path: &Path) {
        let place = (path.link, path.remote);
        let is_proved = self.sessions[key].peer.is_proved(now, remote);
        let holder = self.by_remote.get(&place).and_then(|holder| self.sessions.get(*holder));
        let is_held = holder.is_some_and(|holder| !is_proved || holder.holds(now, remote));
        if !is_held {
            self.by_remote.insert(place, key);
        }
    }

    /// A session's DTLS comes from there no more. Another session's may: then the place is that one's.
    fn leave(&mut self, key: usize, path: &Path) {
        let place = (path.link, path.remote);
        if self.by_remote.get(&place) == Some(&key) {
            self.by_remote.remove(&place);
        }
    }

    /// A peer that has come further has time for what comes next.
    fn note(&mut self, now: Instant, key: usize, reached: Progress) {
        if let Phase::Handshaking { until, progress, .. } = &mut self.sessions[key].phase
            && *progress < reached
        {
            (*until, *progress) = (now + self.settings.handshake_timeout, reached);
            if reached == Progress::Proved
                && let Some(names) = self.strangers.leave(key)
            {
                self.proved.enter(key, now, names, ());
            }
            (self.send)(Message::Expect);
            (self.notify)(Notice::Reached { session: self.sessions[key].id, progress: reached });
        }
    }

    /// Tells the worker now and then that a connected peer is there, and once how to answer its checks.
    fn pass_consent(&mut self, now: Instant, key: usize) {
        let Session { id, peer, phase, .. } = &mut self.sessions[key];
        let session = *id;
        let Phase::Connected { last_consent, answers_checks } = phase else { return };
        let credentials = if *answers_checks { None } else { convert::credentials(peer) };
        *answers_checks |= credentials.is_some();
        let is_time = now.saturating_duration_since(*last_consent) >= self.settings.consent_interval;
        if is_time {
            *last_consent = now;
            self.command(Command::Consent { session });
        }
        if credentials.is_some() {
            self.command(Command::AnswerChecks { session, credentials });
        }
    }

    /// Does what a session's peer wants done, and notes when it wants to be woken.
    fn drive(&mut self, now: Instant, key: usize) {
        loop {
            let session = &mut self.sessions[key];
            match session.peer.poll() {
                Output::Transmit { remote, data } => {
                    if let Some(path) = session.path(remote) {
                        self.transmit(path, data);
                    }
                }
                Output::Connected { keys, remote } => {
                    // Its checks came from there, and checks are what `paths` is made from.
                    let Some(path) = session.path(remote) else { continue };
                    if !self.connect(now, key, path, keys) {
                        return self.remove(key, EndReason::Refused);
                    }
                }
                Output::Channel(event) => {
                    let id = session.id;
                    self.tell(id, ConferenceNotice::Channel(event));
                }
                Output::PathChanged(remote) => {
                    if let Some(path) = session.path(remote) {
                        let session = session.id;
                        self.command(Command::MovePath { session, path });
                    }
                }
                Output::Ended(reason) => {
                    if reason == webrtc::EndReason::Panicked {
                        // One line for each session, beside what the panic itself has said.
                        tracing::error!(
                            session = session.id.0,
                            "a library panicked over this session, which has ended"
                        );
                        self.counters.panicked += 1;
                    }
                    if reason == webrtc::EndReason::ConsentLapsed {
                        self.counters.consent_lapsed += 1;
                    }
                    if let Phase::Handshaking { .. } = session.phase {
                        self.counters.failed += 1;
                        if reason == webrtc::EndReason::CertificateRefused {
                            self.counters.certificates_refused += 1;
                        }
                    }
                    return self.remove(key, EndReason::Peer(reason));
                }
                Output::Timeout(at) => return self.set_deadline(now, key, at.max(now + SLEEP_MIN)),
            }
        }
    }

    /// Hands a session to the worker. False: control has no room for it any more.
    fn connect(&mut self, now: Instant, key: usize, path: Path, keys: SessionKeys) -> bool {
        let id = self.sessions[key].id;
        // First, because control opens the stream there for it: what it commands comes before what we do.
        let has_room = match self.sessions[key].member {
            Some(_) => self.tell(id, ConferenceNotice::Connected),
            None => (self.notify)(Notice::Connected { session: id }),
        };
        if !has_room {
            return false;
        }
        let before = std::mem::replace(
            &mut self.sessions[key].phase,
            Phase::Connected { last_consent: now, answers_checks: false },
        );
        let Phase::Handshaking { begin, .. } = before else {
            debug_assert!(false, "a session is connected once");
            return true;
        };
        self.handshakes -= 1;
        self.forget_handshake(key);
        self.counters.connected += 1;
        self.count_sessions();
        let Session { cname, member, .. } = &self.sessions[key];
        let commands = match (member, begin) {
            (Some(member), _) => {
                let peer = PeerSpec { session: id, path, keys, cname: member.cname() };
                [Command::AddMember(peer)].into_iter().chain(member.standing(id)).collect::<Vec<Command>>()
            }
            (None, begin) => {
                let peer = PeerSpec { session: id, path, keys, cname: cname.clone() };
                [Command::AddSession(peer)].into_iter().chain(begin).collect()
            }
        };
        for command in commands {
            self.command(command);
        }
        if let Session { peer, member: Some(member), .. } = &mut self.sessions[key] {
            let effects = member.handle_connected(peer);
            self.take_effects(now, key, effects);
        }
        true
    }

    /// A session makes no room any more.
    fn forget_handshake(&mut self, key: usize) {
        self.strangers.leave(key);
        self.proved.leave(key);
    }

    fn set_deadline(&mut self, now: Instant, key: usize, at: Instant) {
        let session = &mut self.sessions[key];
        // Who is driven for another reason meanwhile stays with those whose turn it shares. A deadline that has come never stays.
        if std::mem::replace(&mut session.asked_for, at) == at && session.deadline > now {
            return;
        }
        let at = match session.phase {
            Phase::Handshaking { until, .. } => at.min(until),
            Phase::Connected { .. } => shared(self.start, now, at),
        };
        if at != session.deadline {
            let was_there = self.deadlines.remove(&(session.deadline, key));
            debug_assert!(was_there, "a deadline is where its session says");
            session.deadline = at;
            self.deadlines.insert((at, key));
        }
    }

    /// Forgets a session: says goodbye to the peer, takes it from the worker, and tells the control plane.
    fn remove(&mut self, key: usize, reason: EndReason) {
        let mut session = self.sessions.remove(key);
        self.by_id.remove(&session.id);
        self.by_ufrag.remove(&session.ufrag);
        self.by_tag.remove(&session.tag);
        self.deadlines.remove(&(session.deadline, key));
        for way in &session.paths {
            self.leave(key, &way.path);
        }
        session.peer.close();
        loop {
            match session.peer.poll() {
                Output::Transmit { remote, data } => {
                    if let Some(path) = session.path(remote) {
                        self.transmit(path, data);
                    }
                }
                Output::Timeout(_) => break,
                Output::Connected { .. } | Output::PathChanged(_) | Output::Channel(_) | Output::Ended(_) => {}
            }
        }
        match session.phase {
            Phase::Handshaking { .. } => {
                self.handshakes -= 1;
                self.forget_handshake(key);
            }
            Phase::Connected { .. } if matches!(reason, EndReason::Worker(_)) => {}
            Phase::Connected { .. } => self.command(Command::RemoveSession(session.id)),
        }
        self.count_sessions();
        tracing::debug!(session = session.id.0, ?reason, "session ended");
        match session.member {
            Some(_) => _ = self.tell(session.id, ConferenceNotice::Ended(reason)),
            None => _ = (self.notify)(Notice::Ended { session: session.id, reason }),
        }
    }

    /// Sends a datagram, or drops it when there is no room: peers repeat theirs, and then we ours.
    fn transmit(&mut self, path: Path, data: Box<[u8]>) {
        if (self.send)(Message::Transmit { path, data }) == Posted::Refused {
            self.counters.transmits_dropped += 1;
        }
    }

    /// Sends a command that must not be lost.
    fn command(&mut self, command: Command) {
        if (self.send)(Message::Command(command)) == Posted::Waits {
            self.counters.commands_delayed += 1;
        }
    }

    /// Counts what there is after each change, which left every session in every table.
    fn count_sessions(&mut self) {
        debug_assert_eq!(self.by_id.len(), self.sessions.len(), "each session has its number");
        debug_assert_eq!(self.by_tag.len(), self.sessions.len(), "each session has a tag");
        debug_assert_eq!(self.deadlines.len(), self.sessions.len(), "each session has one deadline");
        debug_assert!(self.handshakes <= self.sessions.len(), "{} of {}", self.handshakes, self.sessions.len());
        let handshakes = self.strangers.len() + self.proved.len();
        debug_assert_eq!(handshakes, self.handshakes, "each is a stranger or has proved an address");
        self.counters.sessions = self.sessions.len() as u64;
        self.counters.handshakes = self.handshakes as u64;
    }
}

/// Whether an If-Match value (RFC 9110 §13.1.1) holds for an ETag.
fn matches_etag(value: &str, etag: &str) -> bool {
    // RFC 9725 §4.3.1 writes the wildcard with quotes in its example, RFC 9110 §13.1.1 without.
    value.split(',').map(|tag| tag.trim().trim_matches('"')).any(|tag| tag == "*" || tag == etag)
}
