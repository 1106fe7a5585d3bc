//! What one session of a conference publishes and watches, as its descriptions have it and as the worker is told.
//!
//! In: requests. Out: commands to the worker, which are for sessions that are connected; notices.
//! Cost: a look at each section for each description.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use rooms::spec::{Command, SessionId, StreamId};
use webrtc::{Conference, Described, Media, Peer, Section};

use super::conference::{Choice, ConferenceNotice, ConferenceRequest, Watched};
use super::{NegotiationError, convert};

/// A session of a conference, beside its peer.
pub(super) struct Member {
    conference: Conference,
    cname: Arc<str>,
    /// See `Open`.
    wants_packets: bool,
    /// Sections that are published, with what the peer sends there.
    published: Vec<Published>,
    /// Streams that the peer gets, and how.
    watched: Vec<(StreamId, Media)>,
    /// How, of those that it is to get and those that it gets; where nothing was said, there is none.
    choices: HashMap<StreamId, Choice>,
    is_connected: bool,
}

struct Published {
    mid: String,
    stream: StreamId,
    media: Media,
}

/// What a request comes to.
#[derive(Default)]
pub(super) struct Effects {
    /// What the worker is told, if it has the session.
    pub commands: Vec<Command>,
    pub notices: Vec<ConferenceNotice>,
    /// Messages for which there was no room.
    pub dropped: u64,
}

impl Member {
    pub fn new(conference: Conference, cname: Arc<str>, wants_packets: bool) -> Self {
        Member {
            conference,
            cname,
            wants_packets,
            published: Vec::new(),
            watched: Vec::new(),
            choices: HashMap::new(),
            is_connected: false,
        }
    }

    /// Does what is asked; `Open` and `Close` are its caller's.
    pub fn handle(&mut self, now: Instant, id: SessionId, peer: &mut Peer, request: ConferenceRequest) -> Effects {
        let mut effects = Effects::default();
        let result = self.try_handle(now, id, peer, request, &mut effects);
        effects.notices.extend(result.err().map(ConferenceNotice::Refused));
        effects
    }

    /// Its peer has connected: what is new since the first offer is offered.
    pub fn handle_connected(&mut self, peer: &mut Peer) -> Effects {
        let mut effects = Effects::default();
        self.is_connected = true;
        let result = self.offer(peer, &mut effects);
        effects.notices.extend(result.err().map(ConferenceNotice::Refused));
        effects
    }

    fn try_handle(
        &mut self,
        now: Instant,
        id: SessionId,
        peer: &mut Peer,
        request: ConferenceRequest,
        effects: &mut Effects,
    ) -> Result<(), NegotiationError> {
        match request {
            ConferenceRequest::Open(_) => return Err(NegotiationError::SessionExists),
            ConferenceRequest::Offer { sdp, ups } => {
                self.conference.set_ups(ups)?;
                let described = self.conference.answer(peer, now, &sdp)?;
                self.follow(id, &described, &mut effects.commands);
                effects.notices.push(ConferenceNotice::Answered(described));
            }
            ConferenceRequest::Answer { sdp } => {
                let described = self.conference.accept_answer(peer, now, &sdp)?;
                self.follow(id, &described, &mut effects.commands);
                effects.notices.push(ConferenceNotice::Accepted(described));
                self.offer_again(peer, effects)?;
            }
            ConferenceRequest::SetDowns(downs) => {
                self.set_downs(downs)?;
                self.offer_again(peer, effects)?;
            }
            ConferenceRequest::Choose { stream, choice } => {
                let before = self.choices.insert(stream, choice).unwrap_or_default();
                if self.watched.iter().any(|(watched, _)| *watched == stream) {
                    effects.commands.extend(choose(id, stream, before, choice));
                }
            }
            ConferenceRequest::Publish { mid, stream } => effects.commands.extend(self.publish(id, mid, stream)?),
            ConferenceRequest::Unpublish { stream } => {
                effects.commands.extend(self.forget(id, |published| published.stream == stream));
            }
            ConferenceRequest::Restart => {
                self.conference.restart();
                self.offer(peer, effects)?;
            }
            ConferenceRequest::Data { delivery, bytes } => {
                effects.dropped += u64::from(peer.send_data(now, delivery, &bytes).is_err());
            }
            ConferenceRequest::Hold(on) => peer.hold_data(now, on),
            ConferenceRequest::Close => {}
        }
        Ok(())
    }

    /// Takes what the peer is to get.
    ///
    /// # Errors
    /// Where these are too many.
    pub fn set_downs(&mut self, downs: Vec<Watched>) -> Result<(), NegotiationError> {
        let is_kept = |stream: &StreamId| {
            downs.iter().any(|down| down.stream == *stream) || self.watched.iter().any(|(watched, _)| watched == stream)
        };
        self.choices.retain(|stream, _| is_kept(stream));
        let named = |Watched { stream, down }: Watched| webrtc::Down { id: stream.0.into(), ..down };
        Ok(self.conference.set_downs(downs.into_iter().map(named).collect())?)
    }

    /// Offers what is new, where that is ours to do and no offer waits.
    fn offer(&mut self, peer: &mut Peer, effects: &mut Effects) -> Result<(), NegotiationError> {
        let offer = self.conference.offer(peer)?;
        effects.notices.extend(offer.map(|sdp| ConferenceNotice::Offered { sdp }));
        Ok(())
    }

    /// The same behind the first offer. To pion an offer that comes before its checks have begun is a restart of ICE, to which it
    /// answers with other credentials than to the first; media could not go before either.
    fn offer_again(&mut self, peer: &mut Peer, effects: &mut Effects) -> Result<(), NegotiationError> {
        if self.is_connected { self.offer(peer, effects) } else { Ok(()) }
    }

    /// What the worker is told of a session that has connected, behind its keys.
    pub fn standing(&self, id: SessionId) -> Vec<Command> {
        let published = self.published.iter().map(|published| published.command(id));
        published.chain(self.watched.iter().flat_map(|(stream, media)| self.watch(id, *stream, media))).collect()
    }

    /// Our CNAME, for a peer that takes no RTCP of reduced size.
    pub fn cname(&self) -> Option<Arc<str>> {
        let media: Vec<Media> = self.conference.sections().into_iter().flat_map(media_of).collect();
        convert::cname(&media, &self.cname)
    }

    fn publish(&mut self, id: SessionId, mid: String, stream: StreamId) -> Result<Vec<Command>, NegotiationError> {
        let section = self.conference.sections().into_iter().find(|section| section.mid == mid);
        let up = section
            .and_then(|section| section.up)
            .ok_or(webrtc::Error::NoMedia("publish: there is none of this name"))?;
        let mut commands = self.forget(id, |published| published.mid == mid || published.stream == stream);
        let published = Published { mid, stream, media: up.media };
        commands.push(published.command(id));
        self.published.push(published);
        Ok(commands)
    }

    /// What is published so is not any more.
    fn forget(&mut self, id: SessionId, is_gone: impl Fn(&Published) -> bool) -> Vec<Command> {
        let gone = self.published.extract_if(.., |published| is_gone(published));
        gone.map(|published| Command::Unpublish { session: id, stream: published.stream }).collect()
    }

    /// Has the worker do as a description says. What goes comes first.
    fn follow(&mut self, id: SessionId, described: &Described, commands: &mut Vec<Command>) {
        let sections = &described.sections;
        let up = |mid: &str| sections.iter().find(|section| section.mid == mid).and_then(|section| section.up.as_ref());
        commands.extend(self.forget(id, |published| up(&published.mid).is_none()));
        for published in &mut self.published {
            if let Some(up) = up(&published.mid).filter(|up| up.media != published.media) {
                published.media = up.media.clone();
                commands.push(published.command(id));
            }
        }
        let down = |section: &Section| {
            let (stream, media) = section.down.clone()?;
            Some((StreamId(u32::try_from(stream).ok()?), media))
        };
        let watched: Vec<(StreamId, Media)> = sections.iter().filter_map(down).collect();
        let is_new = |(stream, media): &&(StreamId, Media)| {
            let before = self.watched.iter().find(|(known, _)| known == stream);
            // Under SSRCs that it had, nothing begins anew.
            before.is_none_or(|(_, before)| before.tx != media.tx)
        };
        let gone = self.watched.iter().filter(|(known, _)| !watched.iter().any(|(stream, _)| stream == known));
        commands.extend(gone.map(|(stream, _)| Command::Unwatch { session: id, stream: *stream }));
        commands.extend(watched.iter().filter(is_new).flat_map(|(stream, media)| self.watch(id, *stream, media)));
        self.watched = watched;
    }

    /// The peer gets a stream, as was chosen for it.
    fn watch(&self, session: SessionId, stream: StreamId, media: &Media) -> Vec<Command> {
        let Some(track) = convert::down_track(media) else { return Vec::new() };
        let watch = Command::Watch { session, stream, tracks: vec![track] };
        let choice = self.choices.get(&stream).copied().unwrap_or_default();
        let announce = self.wants_packets.then_some(Command::Announce { session, stream });
        std::iter::once(watch).chain(announce).chain(choose(session, stream, Choice::default(), choice)).collect()
    }
}

impl Published {
    fn command(&self, session: SessionId) -> Command {
        Command::Publish { session, stream: self.stream, tracks: vec![convert::up_track(&self.media)] }
    }
}

/// What the worker is told of another choice.
fn choose(session: SessionId, stream: StreamId, before: Choice, choice: Choice) -> impl Iterator<Item = Command> {
    let Choice { is_paused, layers, priority } = choice;
    let is_other = (layers, priority) != (before.layers, before.priority);
    let limit = is_other.then_some(Command::LimitStream { session, stream, layers, priority });
    let pause = (is_paused != before.is_paused).then_some(Command::Pause { session, stream, on: is_paused });
    limit.into_iter().chain(pause)
}

fn media_of(section: Section) -> impl Iterator<Item = Media> {
    section.up.map(|up| up.media).into_iter().chain(section.down.map(|(_, media)| media))
}
