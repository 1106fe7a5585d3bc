//! Clients' TCP connections that carry sessions' packets between what control says there.
//!
//! In: connections that control hands over, and what it says on them; packets; what the engine tells of their links.
//! Out: byte streams on which packets and words stand whole, one behind the other; what clients say, for control.
//!
//! Of a client that takes too little, what the kernel leaves waits in the engine, up to `BACKLOG_MAX`. A packet that finds
//! no room there is dropped whole and counted, and so are those behind it until all that waited has left: the client sees a
//! gap in their numbers, as on a network, and nobody else waits for it. What control says is not dropped: it waits until there
//! is room for all of it, and packets that are due meanwhile wait behind it, up to `HELD_MAX`. Where more than `SAID_MAX` of it
//! waits, or more than `UNHEARD_MAX` of what the client says, the connection ends.
//! Packets that are to come behind what control will say, as some players take none before the answer to PLAY, wait for that
//! within the same limit, those of one channel.
//! Cost: a lookup and a copy per packet. Source: RFC 2326 §10.12 (interleaved data).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use wire::rtp::FIXED_HEADER_LEN;
use wire::rtsp::FRAME_HEADER_LEN;
use wire::ts::DATAGRAM_LEN;
use wire::{Adopted, DATAGRAM_MAX, LinkEvent, LinkId, LinkRequest, Outbox, StreamOptions, Token};

use crate::spec::{Counters, Event, UNHEARD_MAX, heard_len};

/// What waits in the engine for a client at most: a second of 4 Mbit/s. What waits here has room there once the engine has told
/// of room.
const BACKLOG_MAX: usize = 512 * 1_024;

/// What control may say before any of it is written. On a connection on which it says more, nobody takes anything.
const SAID_MAX: usize = 64 * 1_024;

/// Packets that wait behind what was said or is to be said: half a second of 4 Mbit/s. Those beyond are dropped.
const HELD_MAX: usize = 256 * 1_024;

const _: () = assert!(SAID_MAX + HELD_MAX <= BACKLOG_MAX, "what is told of has room");

/// Where a frame names its channel (RFC 2326 §10.12).
const CHANNEL_AT: usize = 1;

/// Bytes of a packet and what stands before it.
const FRAME_LEN: usize = FRAME_HEADER_LEN + FIXED_HEADER_LEN + DATAGRAM_LEN;

/// All connections of one worker, by what control calls them.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: HashMap<Token, Connection, FxBuildHasher>,
    requests: VecDeque<LinkRequest>,
    /// Those that have room for what waits to be said, or for the end.
    ready: VecDeque<Token>,
}

#[derive(Debug, Default)]
struct Connection {
    /// `None`: it is not open yet, or not any more.
    link: Option<LinkId>,
    room: Room,
    /// What control said, and packets behind it, that are not written.
    waiting: VecDeque<u8>,
    /// How much of that has room: all that was there when the engine told of it.
    writable: usize,
    /// How much of the rest control said.
    said: usize,
    /// How much of the rest, and of what is kept, are packets.
    held: usize,
    /// What the client said and control has not looked at, by `heard_len`.
    unheard: usize,
    /// Packets on this channel wait until control lets them go.
    kept: Option<(u8, Vec<u8>)>,
    /// Behind what is said comes the end.
    is_ending: bool,
}

/// Whether packets have room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Room {
    #[default]
    Free,
    /// The engine was asked to tell of it, for the sake of what is to be said. Until then they wait behind that.
    Asked,
    /// They have not, until the engine says so.
    Full,
}

impl Connections {
    /// Takes a connection over.
    pub(crate) fn adopt(&mut self, token: Token, descriptor: OwnedFd, patience: Duration) {
        let unacknowledged_max = Some(patience);
        let options = StreamOptions { backlog_max: BACKLOG_MAX, unacknowledged_max, ..StreamOptions::default() };
        self.all.insert(token, Connection::default());
        self.requests.push_back(LinkRequest::Adopt { token, descriptor, kind: Adopted::Stream(options) });
    }

    /// Control has looked at what came, and says something.
    pub(crate) fn say(&mut self, token: Token, bytes: &[u8], heard: usize) {
        let Some(connection) = self.all.get_mut(&token).filter(|connection| !connection.is_ending) else { return };
        connection.unheard = connection.unheard.saturating_sub(heard);
        if connection.said + bytes.len() > SAID_MAX {
            return self.abort(token);
        }
        connection.said += bytes.len();
        connection.waiting.extend(bytes);
        self.ask_for_room(token);
    }

    /// Packets on a channel wait for what control is about to say. Those of another that do so wait no longer.
    pub(crate) fn hold(&mut self, token: Token, channel: u8) {
        let is_held = |connection: &Connection| connection.kept.as_ref().is_some_and(|(held, _)| *held == channel);
        if self.all.get(&token).is_some_and(is_held) {
            return;
        }
        self.let_go(token);
        if let Some(connection) = self.all.get_mut(&token) {
            connection.kept = Some((channel, Vec::new()));
        }
    }

    /// It was said, and they follow it.
    pub(crate) fn let_go(&mut self, token: Token) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        if let Some((_, packets)) = connection.kept.take() {
            connection.waiting.extend(packets);
            self.ask_for_room(token);
        }
    }

    /// Control says no more, and hears no more; when it says so again, it does not wait for the client any longer.
    pub(crate) fn hang_up(&mut self, token: Token) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        if std::mem::replace(&mut connection.is_ending, true) {
            return self.abort(token);
        }
        self.ask_for_room(token);
    }

    /// Has the engine tell when all that waits has left, if there is something to follow.
    fn ask_for_room(&mut self, token: Token) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        let Connection { link: Some(link), room: Room::Free, .. } = *connection else { return };
        if connection.has_more() {
            connection.room = Room::Asked;
            self.requests.push_back(LinkRequest::WatchWritable { link });
        }
    }

    /// Ends a connection, whatever waits there.
    fn abort(&mut self, token: Token) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        *connection = Connection { link: connection.link, is_ending: true, ..Connection::default() };
        if let Some(link) = connection.link.take() {
            self.requests.extend([LinkRequest::Close { link }, LinkRequest::Close { link }]);
        }
    }

    /// Takes what the engine tells of a link.
    pub(crate) fn handle_link(
        &mut self,
        token: Token,
        event: LinkEvent<'_>,
        events: &mut VecDeque<Event>,
        counters: &mut Counters,
    ) {
        let Some(connection) = self.all.get_mut(&token) else { return };
        match event {
            LinkEvent::Opened { link, .. } => {
                connection.link = Some(link);
                connection.take_room();
                self.ready.push_back(token);
            }
            LinkEvent::Bytes { bytes, .. } if !connection.is_ending => {
                connection.unheard += heard_len(bytes);
                if connection.unheard > UNHEARD_MAX {
                    return self.abort(token);
                }
                events.push_back(Event::Heard { connection: token, bytes: (&*bytes).into() });
            }
            LinkEvent::InputEnded { .. } if !connection.is_ending => {
                events.push_back(Event::Heard { connection: token, bytes: Box::default() });
            }
            // What waits here has room when it is written, so these are packets.
            LinkEvent::Unsent { bytes, .. } => {
                connection.room = Room::Full;
                counters.interleaved_lost += bytes.div_ceil(FRAME_LEN) as u64;
            }
            LinkEvent::Writable { .. } => {
                connection.take_room();
                self.ready.push_back(token);
            }
            LinkEvent::Failed { .. } | LinkEvent::Closed { .. } => {
                self.all.remove(&token);
                events.push_back(Event::HungUp { connection: token });
            }
            LinkEvent::Bytes { .. } | LinkEvent::InputEnded { .. } => {}
            // Nobody asks for these.
            LinkEvent::Refused { .. } | LinkEvent::Released { .. } => {}
        }
    }

    /// Sends the frame of `len` bytes that stands in the slot.
    pub(crate) fn send(&mut self, token: Token, out: &mut Outbox, len: usize, counters: &mut Counters) {
        let is_taken = self.all.get_mut(&token).is_some_and(|connection| connection.send(out, len));
        *if is_taken { &mut counters.interleaved } else { &mut counters.interleaved_lost } += 1;
    }

    /// Writes what waits, and asks the engine for what is to be done; true when there is more. **To be called before
    /// packets are written.**
    pub(crate) fn transmit(&mut self, out: &mut Outbox) -> bool {
        while let Some(&token) = self.ready.front() {
            if let Some(connection) = self.all.get_mut(&token) {
                if !connection.write(out) {
                    return true;
                }
                self.requests.extend(connection.end());
            }
            self.ready.pop_front();
            // Something may have been said meanwhile.
            self.ask_for_room(token);
        }
        while let Some(request) = self.requests.pop_front() {
            if let Err(request) = out.request(request) {
                self.requests.push_front(request);
                return true;
            }
        }
        false
    }
}

impl Connection {
    fn has_more(&self) -> bool {
        self.is_ending || !self.waiting.is_empty()
    }

    /// The engine has room for all that waits.
    fn take_room(&mut self) {
        self.held = self.kept.as_ref().map_or(0, |(_, packets)| packets.len());
        (self.room, self.writable, self.said) = (Room::Free, self.waiting.len(), 0);
    }

    /// Sends or holds the frame of `len` bytes that stands in the slot; false when it is dropped.
    fn send(&mut self, out: &mut Outbox, len: usize) -> bool {
        let (Some(link), false, Some(slot)) = (self.link, self.is_ending, out.slot()) else { return false };
        let has_room = self.room != Room::Full && self.held + len <= HELD_MAX;
        if let Some((_, packets)) = self.kept.as_mut().filter(|(channel, _)| *channel == slot[CHANNEL_AT]) {
            if has_room {
                packets.extend_from_slice(&slot[..len]);
                self.held += len;
            }
            return has_room;
        }
        if self.room == Room::Free {
            return out.commit_bytes(link, len);
        }
        if has_room {
            self.waiting.extend(&slot[..len]);
            self.held += len;
        } else {
            self.room = Room::Full;
        }
        has_room
    }

    /// Writes what has room; false when the outbox has none for all of it.
    fn write(&mut self, out: &mut Outbox) -> bool {
        let Some(link) = self.link else { return true };
        while self.writable > 0 && out.has_room_for_piece() {
            let (first, _) = self.waiting.as_slices();
            let len = first.len().min(self.writable).min(DATAGRAM_MAX);
            out.push_bytes(link, &first[..len]);
            self.waiting.drain(..len);
            self.writable -= len;
        }
        if self.waiting.is_empty() {
            // Most connections have nothing to say most of the time.
            self.waiting = VecDeque::new();
        }
        self.writable == 0
    }

    /// The end, if that is what follows.
    fn end(&mut self) -> Option<LinkRequest> {
        let link = self.link.take_if(|_| self.is_ending && self.waiting.is_empty())?;
        Some(LinkRequest::Close { link })
    }
}
