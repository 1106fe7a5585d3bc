//! Plays the clip into the server: an ordinary WebRTC client on a thread of its own, over loopback.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use client::{Packet, SEQ_FIRST, Source};
use srtp::Sealer;
use webrtc::{Context, Direction, Media, OfferOptions, Output, Peer, Remote};
use wire::codec::{Codec, MediaKind};

use super::clip::{MediaPacket, Player};
use crate::host::ntp;

/// Publishes the clip as `stream` from now on. `publish` takes our offer and brings the server's answer.
///
/// # Errors
/// When the server refuses the offer, or there is no socket or thread to be had.
pub fn start(
    context: &Context,
    stream: &str,
    publish: impl FnOnce(String) -> anyhow::Result<String>,
) -> anyhow::Result<JoinHandle<()>> {
    let options =
        OfferOptions { direction: Direction::Send, audio: true, video: &[Codec::Vp8], rids: &[], stream, tcp: false };
    let (mut peer, offer) = Peer::offer(context, Instant::now(), &options)?;
    let answer = publish(offer).context("publishing the demo clip")?;
    let media = peer.accept_answer(&answer).context("reading the answer to the demo's offer")?.media;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("binding the demo's socket")?;
    let publisher = Publisher { peer, socket, media, playing: None };
    std::thread::Builder::new().name("demo".into()).spawn(|| publisher.run()).context("starting the demo")
}

struct Publisher {
    peer: Peer,
    socket: UdpSocket,
    media: Vec<Media>,
    playing: Option<Playing>,
}

struct Playing {
    player: Player,
    sealer: Sealer,
    remote: Remote,
    tracks: Vec<Track>,
    report_at: Instant,
}

/// One track as it is sent.
struct Track {
    kind: MediaKind,
    source: Source,
}

const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const DATAGRAM_MAX: usize = 1_500;

impl Publisher {
    /// Plays until the server says goodbye.
    fn run(mut self) {
        loop {
            let now = Instant::now();
            self.peer.handle_timeout(now);
            let Some(mut wake_at) = self.drive(now) else { return };
            if let Some(playing) = &mut self.playing {
                playing.send(now, &self.socket);
                wake_at = wake_at.min(playing.player.next_at());
            }
            self.receive(wake_at);
        }
    }

    /// Lets ICE and DTLS go on. Returns when to call again, or `None` when the session is over.
    fn drive(&mut self, now: Instant) -> Option<Instant> {
        loop {
            match self.peer.poll() {
                // A datagram that cannot be sent is a datagram lost, which ICE and DTLS repeat.
                Output::Transmit { remote, data } => drop(self.socket.send_to(&data, remote.addr)),
                Output::Connected { keys, remote } => {
                    let sealer = Sealer::new(&keys).ok()?;
                    let track = |media: &Media| {
                        Some(Track { kind: media.codec.kind(), source: Source::new(media, 0, SEQ_FIRST)? })
                    };
                    let tracks = self.media.iter().filter_map(track).collect();
                    self.playing = Some(Playing { player: Player::new(now), sealer, remote, tracks, report_at: now });
                }
                Output::PathChanged(_) | Output::Channel(_) => {}
                Output::Ended(reason) => {
                    tracing::info!(?reason, "the demo ends");
                    return None;
                }
                Output::Timeout(at) => return Some(at),
            }
        }
    }

    /// Takes one datagram, or waits until `wake_at`.
    fn receive(&mut self, wake_at: Instant) {
        let wait = wake_at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut buf = [0; DATAGRAM_MAX];
        let received = self.socket.set_read_timeout(Some(wait)).and_then(|()| self.socket.recv_from(&mut buf));
        match received {
            Ok((len, from)) => {
                let remote = Remote { addr: from, tcp: false };
                // Reports about our media, and whatever else is refused, need no answer.
                let _ = self.peer.handle_datagram(Instant::now(), remote, &buf[..len]);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => std::thread::sleep(wait),
        }
    }
}

impl Playing {
    fn send(&mut self, now: Instant, socket: &UdpSocket) {
        let Playing { player, sealer, remote, tracks, .. } = self;
        while let Some(MediaPacket { kind, timestamp, marker, payload }) = player.poll(now) {
            let Some(track) = tracks.iter_mut().find(|track| track.kind == kind) else { continue };
            let packet = Packet { timestamp, marker, extensions: &[], payload };
            let mut buf = [0; DATAGRAM_MAX];
            if let Some(len) = track.source.write(&mut buf, &packet, sealer) {
                // As on any network, a packet that was not sent is lost.
                let _ = socket.send_to(&buf[..len], remote.addr);
            }
        }
        if self.report_at <= now {
            self.report_at = now + REPORT_INTERVAL;
            self.report(now, socket);
        }
    }

    /// Sends the sender reports by which viewers keep sound and picture together (RFC 3550 §6.4.1).
    fn report(&mut self, now: Instant, socket: &UdpSocket) {
        let ntp = ntp(SystemTime::now());
        for track in &self.tracks {
            let mut buf = [0; DATAGRAM_MAX];
            let rtp_timestamp = self.player.timestamp_at(track.kind, now);
            if let Some(len) = track.source.write_report(&mut buf, ntp, rtp_timestamp, &mut self.sealer) {
                let _ = socket.send_to(&buf[..len], self.remote.addr);
            }
        }
    }
}
