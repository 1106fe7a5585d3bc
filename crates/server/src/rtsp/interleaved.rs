//! What one connection carries beside requests and responses: whose packets and reports go on which channels.
//!
//! From its first interleaved session on, the connection is that session's worker's, and so are all further ones of it.
//! Source: RFC 2326 §10.12.

use std::net::IpAddr;

use wire::rtsp::frame_header;
use wire::{Token, WorkerId};

/// Sessions of one connection at most: each has two of 256 channels, and a player has one session.
const SESSIONS_MAX: usize = 16;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) client: IpAddr,
    pub(super) client_port: u16,
    pub(super) server: IpAddr,
}

/// One connection's sessions.
#[derive(Debug)]
pub(super) struct Interleaved {
    /// What it is called.
    pub(super) connection: Token,
    pub(super) ends: Ends,
    /// Where it is.
    pub(super) worker: Option<WorkerId>,
    channels: Vec<Channels>,
}

#[derive(Debug)]
struct Channels {
    session: String,
    rtp: u8,
    rtcp: u8,
}

impl Interleaved {
    pub(super) fn new(connection: Token, ends: Ends) -> Self {
        Interleaved { connection, ends, worker: None, channels: Vec::new() }
    }

    /// The channels that were asked for, when they are free; else the first two that are. `None`: there are too many
    /// sessions.
    pub(super) fn free_channels(&self, asked: Option<(u8, u8)>) -> Option<(u8, u8)> {
        if self.channels.len() >= SESSIONS_MAX {
            return None;
        }
        let is_free = |channel: u8| self.channels.iter().all(|taken| taken.rtp != channel && taken.rtcp != channel);
        let pairs = (0..=254).step_by(2).map(|first| (first, first + 1));
        asked.into_iter().chain(pairs).find(|(rtp, rtcp)| is_free(*rtp) && is_free(*rtcp))
    }

    /// Whether those that were asked for are taken, or all that there may be.
    pub(super) fn is_short_of(&self, asked: Option<(u8, u8)>) -> bool {
        let free = self.free_channels(asked);
        free.is_none() || asked.is_some_and(|asked| free != Some(asked))
    }

    /// A session on a worker has these channels.
    pub(super) fn add(&mut self, session: String, worker: WorkerId, (rtp, rtcp): (u8, u8)) {
        self.worker = Some(worker);
        self.channels.push(Channels { session, rtp, rtcp });
    }

    pub(super) fn remove(&mut self, session: &str) {
        self.retain(|other| other != session);
    }

    /// Forgets the sessions that are not to be kept.
    pub(super) fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.channels.retain(|channels| keeps(&channels.session));
    }

    /// The interleaved sessions, which end with the connection.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(|channels| &*channels.session)
    }
}

/// A channel's data as it stands in the connection. It is shorter than 64 KiB.
pub(super) fn frame(channel: u8, data: &[u8]) -> Vec<u8> {
    [&frame_header(channel, data.len() as u16), data].concat()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn channels_are_those_that_were_asked_for_unless_they_are_taken() {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let ends = Ends { client: localhost, client_port: 1, server: localhost };
        let mut interleaved = Interleaved::new(Token::default(), ends);
        assert_eq!(interleaved.free_channels(Some((4, 5))), Some((4, 5)));
        assert_eq!(interleaved.free_channels(None), Some((0, 1)));
        interleaved.add("a".into(), WorkerId(0), (0, 1));
        assert_eq!(interleaved.free_channels(Some((1, 2))), Some((2, 3)));
        interleaved.remove("a");
        assert_eq!(interleaved.free_channels(Some((1, 2))), Some((1, 2)));
        (0..16).for_each(|first| interleaved.add(first.to_string(), WorkerId(0), (first, first)));
        assert_eq!(interleaved.free_channels(None), None);
    }
}
