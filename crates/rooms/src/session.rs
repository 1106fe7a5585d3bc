//! One connected peer: the way to it, what it sends and what it receives.

use std::collections::VecDeque;
use std::time::Instant;

use slab::Slab;
use srtp::KeyError;
use wheel::TimerId;
use wire::Budget;
use wire::rtcp::{self, Packet};
use wire::rtp::RtpPacket;

use crate::consent::Consent;
use crate::downs::Downs;
use crate::drops::DropReason;
use crate::io::Io;
use crate::settings::Settings;
use crate::silence::Silence;
use crate::spec::{Event, LayerLimit, PeerSpec, SessionId, SessionStats};
use crate::stream::Stream;
use crate::transport::Transport;
use crate::ups::Ups;

/// A peer with its up tracks and down tracks, many of each and of any streams.
pub struct Session {
    /// Keys, path and pace.
    pub transport: Transport,
    /// What it receives.
    pub downs: Downs,
    /// What it sends.
    pub ups: Ups,
    /// How control calls it.
    pub id: SessionId,
    /// The wheel's entry for the session's next deadline.
    pub timer: Option<(Instant, TimerId)>,
    /// It stays though it neither sends nor receives anything.
    pub is_member: bool,
    /// What it may still send to the negotiator when others need the room, too.
    pub handshakes: Budget,
    /// Answers its peer's checks, once they are known.
    pub consent: Option<Consent>,
    /// Of a member: whether it is heard.
    pub silence: Silence,
}

impl Session {
    /// A peer without tracks.
    ///
    /// # Errors
    /// When the cryptographic library refuses a key.
    pub fn new(now: Instant, peer: &PeerSpec, settings: &Settings) -> Result<Self, KeyError> {
        Ok(Session {
            transport: Transport::new(now, peer, settings)?,
            downs: Downs::new(now),
            ups: Ups::new(now),
            id: peer.session,
            is_member: false,
            timer: None,
            handshakes: Budget::new(now),
            consent: None,
            silence: Silence::default(),
        })
    }

    /// Whether it neither sends nor receives anything.
    pub fn is_idle(&self) -> bool {
        self.ups.is_empty() && self.downs.is_empty()
    }

    /// Takes an SRTP packet and stores what is in it. Returns the key of the stream that it belongs to.
    pub fn handle_rtp(&mut self, data: &mut [u8], io: &mut Io<'_>) -> Result<usize, DropReason> {
        if self.ups.is_empty() {
            return Err(DropReason::NotAPublisher);
        }
        let len = self.transport.open_rtp(io.now, data)?;
        let packet = RtpPacket::parse(&data[..len]).map_err(|_| DropReason::MalformedRtp)?;
        self.ups.handle_rtp(&packet, &mut self.transport, io)
    }

    /// Takes an SRTCP packet.
    pub fn handle_rtcp(&mut self, data: &mut [u8], io: &mut Io<'_>) -> Result<(), DropReason> {
        let Session { transport, ups, downs, .. } = self;
        let len = transport.open_rtcp(io.now, data)?;
        let compound = rtcp::packets(&data[..len]).map_err(|_| DropReason::MalformedRtcp)?;
        if !ups.is_empty() {
            for packet in compound.clone() {
                match &packet {
                    Packet::SenderReport(report) => ups.handle_sender_report(report, io),
                    Packet::Bye(bye) => ups.handle_bye(bye),
                    _ => {}
                }
            }
        }
        if !downs.is_empty() {
            downs.handle_rtcp(compound, transport, io);
        }
        Ok(())
    }

    /// Takes what the peer may get at most, of one stream or of all.
    pub fn limit(&mut self, stream: Option<usize>, layers: LayerLimit, streams: &Slab<Stream>, now: Instant) {
        self.downs.set_limit(stream, layers, &mut self.transport, streams, now);
    }

    /// Sends nothing of a stream for now, or goes on.
    pub fn hold(&mut self, stream: usize, on: bool, streams: &Slab<Stream>, now: Instant) {
        self.downs.hold(stream, on, &mut self.transport, streams, now);
    }

    /// When `handle_timeout` next has work.
    pub fn poll_timeout(&self, settings: &Settings) -> Instant {
        let idle_at = self.transport.last_heard + settings.idle_timeout;
        let silent_at = self.is_member.then(|| self.silence.due(self.transport.last_heard));
        let deadlines = [self.ups.poll_timeout(), self.downs.poll_timeout(), silent_at];
        deadlines.into_iter().flatten().fold(idle_at, Instant::min)
    }

    /// Whether nothing authentic came for the idle time.
    pub fn is_silent(&self, now: Instant, settings: &Settings) -> bool {
        now.saturating_duration_since(self.transport.last_heard) >= settings.idle_timeout
    }

    /// Sends the NACKs, the feedback, the reports and the probes that are due.
    pub fn handle_timeout(&mut self, io: &mut Io<'_>) {
        self.ups.handle_timeout(&mut self.transport, io);
        self.downs.handle_timeout(&mut self.transport, io);
    }

    /// Tells of a member's pictures that have begun to pause for want of bandwidth, or have ended that.
    pub fn tell_of_pauses(&mut self, streams: &Slab<Stream>, events: &mut VecDeque<Event>) {
        if self.is_member {
            let (session, pauses) = (self.id, self.downs.take_pauses());
            events.extend(pauses.map(|(stream, on)| Event::Paused { session, stream: streams[stream].id, on }));
        }
    }

    /// Tells of a member that is not heard any more, or again.
    pub fn tell_of_silence(&mut self, now: Instant, events: &mut VecDeque<Event>) {
        if self.is_member {
            let news = self.silence.look(now, self.transport.last_heard);
            events.extend(news.map(|on| Event::Silent { session: self.id, on }));
        }
    }

    /// What was counted, and how its tracks stand.
    pub fn stats(&self, streams: &Slab<Stream>) -> SessionStats {
        let mut stats = self.transport.stats.clone();
        stats.round_trip_ms = self.transport.rtt.map(|rtt| rtt.as_secs_f32() * 1e3);
        stats.estimate = self.transport.measured_estimate();
        self.ups.add_stats(&mut stats);
        self.downs.add_stats(&mut stats, streams);
        stats
    }
}
