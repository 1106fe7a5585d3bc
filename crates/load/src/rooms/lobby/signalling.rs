//! One client's signalling connection: what it says to join, and what it answers as long as it is there.
//!
//! In: the server's messages. Out: ours, and for the load thread the client itself, its tracks and where its server is.
//! Source: LiveKit's client protocol in the messages of `livekit-protocol`. A publisher, who offers, has the one peer connection
//! of v1; a viewer, whom the server offers to, has of the two of v0 that by which it watches.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use livekit::proto::leave_request::Action;
use livekit::proto::signal_request::Message as Request;
use livekit::proto::signal_response::Message as Response;
use livekit::proto::{
    AddTrackRequest, DisconnectReason, LeaveRequest, Ping, SessionDescription, SignalRequest, SignalResponse,
    SignalTarget, TrackSource, TrackType, TrickleRequest, VideoLayer, VideoQuality,
};
use prost::Message as _;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::interval;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as Frame};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use webrtc::{ConferenceClient, Direction, Media, OfferOptions, Peer};
use wire::codec::{Codec, MediaKind};

use super::Seat;
use crate::rooms::join::{VIDEO, Video};
use crate::rooms::publisher::LAYERS;
use crate::rooms::service::{Joining, Message, Part};

/// What viewers take: sound, too, though nobody counts it.
const CODECS: [Codec; 2] = [Codec::Vp8, Codec::Opus];

/// What a publisher's offer calls its track (`a=msid`).
const TRACK: &str = "track";

/// What a publisher says of the size of its pictures; smaller layers have a half and a quarter of it.
const SIZE: (u32, u32) = (1280, 720);

/// Of the only candidate (RFC 8445 §5.1.2.1).
const PRIORITY: u32 = 126 << 24 | 65_535 << 8 | 255;

/// How often a server wants a sign of life that does not say so.
const PING_EVERY: Duration = Duration::from_secs(10);

pub struct Signalling {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    seat: Seat,
    part: Part,
    /// Of the tracks that it is for.
    kind: MediaKind,
    context: webrtc::Context,
    started: Instant,
    ping_every: Duration,
    /// Of a viewer, once it was offered something.
    answers: Option<ConferenceClient>,
    /// What came of the server's candidates before there was a client to know them; `None` when that has gone to its thread.
    early: Option<Vec<String>>,
}

impl Signalling {
    /// Connects, and hears that the client is in the room.
    pub async fn open(url: &str, seat: Seat, part: Part, kind: MediaKind, context: webrtc::Context) -> Result<Self> {
        let started = Instant::now();
        let (socket, _) = connect_async_with_config(url, None, true).await.map_err(refusal)?;
        let mut signalling = Signalling {
            socket,
            seat,
            part,
            kind,
            context,
            started,
            ping_every: PING_EVERY,
            answers: None,
            early: Some(Vec::new()),
        };
        loop {
            if let Response::Join(join) = signalling.next().await? {
                if let Ok(seconds @ 1..) = u64::try_from(join.ping_interval) {
                    signalling.ping_every = Duration::from_secs(seconds);
                }
                return Ok(signalling);
            }
        }
    }

    /// Announces a video or a microphone, offers it, and hands the client over when it is answered.
    pub async fn publish(&mut self, video: Video, stream: &str) -> Result<()> {
        self.send(Request::AddTrack(announcement(video))).await?;
        while !matches!(self.next().await?, Response::TrackPublished(published) if published.cid == TRACK) {}
        let rids: &[&str] = if video.simulcast { &LAYERS.map(|(rid, _)| rid) } else { &[] };
        let options = OfferOptions { direction: Direction::Send, rids, stream, ..VIDEO };
        let options = match self.kind {
            MediaKind::Video => options,
            MediaKind::Audio => OfferOptions { audio: true, video: &[], ..options },
        };
        let (mut peer, offer) = Peer::offer(&self.context, Instant::now(), &options)?;
        self.send(Request::Offer(description("offer", offer, 1))).await?;
        self.send(Request::Trickle(self.own_candidate())).await?;
        let answer = loop {
            if let Response::Answer(answer) = self.next().await? {
                break answer;
            }
        };
        let negotiated = peer.accept_answer(&answer.sdp).context("the server's answer")?;
        let media = self.own(negotiated.media);
        self.hand_over(peer, media)
    }

    /// Takes offers until so many tracks come; the client is handed over with the first one.
    pub async fn watch(&mut self, count: usize) -> Result<()> {
        loop {
            if let Response::Offer(offer) = self.next().await?
                && self.answer(offer).await? >= count
            {
                return Ok(());
            }
        }
    }

    /// Does what is to be done for somebody who is there, until it is to leave or the server does not want it any more.
    pub async fn attend(mut self, left: oneshot::Receiver<()>) {
        if let Err(error) = self.stay(left).await {
            // A thread that does not keep up shows it by other numbers, too.
            let _ = self.seat.inlet.send(Message::Ended { client: self.seat.client, why: format!("{error:#}") });
        }
    }

    async fn stay(&mut self, mut left: oneshot::Receiver<()>) -> Result<()> {
        let mut pings = interval(self.ping_every);
        loop {
            tokio::select! {
                message = self.next() => if let Response::Offer(offer) = message? {
                    self.answer(offer).await?;
                },
                _ = pings.tick() => self.send(Request::PingReq(ping())).await?,
                _ = &mut left => {
                    self.leave().await;
                    return Ok(());
                }
            }
        }
    }

    async fn leave(&mut self) {
        let (reason, action) = (DisconnectReason::ClientInitiated as i32, Action::Disconnect as i32);
        // Who has gone before needs no goodbye.
        let _ = self.send(Request::Leave(LeaveRequest { reason, action, ..LeaveRequest::default() })).await;
        let _ = self.socket.close(None).await;
        // Who closes while something is on its way has the server's kernel forget what the server has not read yet.
        while let Some(Ok(_)) = self.socket.next().await {}
    }

    /// The next message that is neither about candidates nor a goodbye.
    async fn next(&mut self) -> Result<Response> {
        loop {
            let frame = self.socket.next().await.context("the server has closed the signalling connection")??;
            let Frame::Binary(bytes) = frame else { continue };
            match SignalResponse::decode(&*bytes).context("a message of the server's")?.message {
                Some(Response::Trickle(trickle)) => self.take_candidate(&trickle)?,
                Some(Response::Leave(leave)) => bail!("the server says goodbye: {}", leave.reason().as_str_name()),
                Some(message) => return Ok(message),
                None => {}
            }
        }
    }

    async fn send(&mut self, request: Request) -> Result<()> {
        let request = SignalRequest { message: Some(request) };
        Ok(self.socket.send(Frame::Binary(request.encode_to_vec().into())).await?)
    }

    /// Answers an offer of the server's; returns how many tracks come by it.
    async fn answer(&mut self, offer: SessionDescription) -> Result<usize> {
        // Who publishes has no use for what it may be offered.
        if !matches!(self.part, Part::Watch(_)) {
            return Ok(0);
        }
        let offered = "an offer of the server's";
        let (peer, negotiated) = match &mut self.answers {
            Some(answers) => (None, answers.answer(&offer.sdp).context(offered)?),
            None => {
                let now = Instant::now();
                let joined = ConferenceClient::join(&self.context, now, &offer.sdp, &CODECS).context(offered)?;
                let (peer, answers, negotiated) = joined;
                self.answers = Some(answers);
                (Some(peer), negotiated)
            }
        };
        let media = self.own(negotiated.media);
        let count = media.len();
        let answer = Request::Answer(description("answer", negotiated.sdp, offer.id));
        match peer {
            // The server is to know it when it hears from the client.
            Some(peer) => {
                self.send(answer).await?;
                self.send(Request::Trickle(self.own_candidate())).await?;
                self.hand_over(peer, media)?;
            }
            // The client is to know what comes before the server may send it.
            None => {
                let (done, is_done) = oneshot::channel();
                self.tell(Message::Tracks { client: self.seat.client, media, done })?;
                // It is let go of, not sent.
                let _ = is_done.await;
                self.send(answer).await?;
            }
        }
        Ok(count)
    }

    fn hand_over(&mut self, peer: Peer, media: Vec<Media>) -> Result<()> {
        let (client, started, part) = (self.seat.client, self.started, self.part);
        ensure!(matches!(part, Part::Watch(_)) || !media.is_empty(), "the server takes nothing of that kind");
        self.tell(Message::Join(Box::new(Joining { client, peer, started, media, part })))?;
        let early = self.early.take().unwrap_or_default();
        early.into_iter().try_for_each(|candidate| self.tell(Message::Candidate { client, candidate }))
    }

    /// The sections that it is there for.
    fn own(&self, media: Vec<Media>) -> Vec<Media> {
        media.into_iter().filter(|media| media.codec.kind() == self.kind).collect()
    }

    /// Which of the two peer connections it has.
    fn target(&self) -> SignalTarget {
        match self.part {
            Part::Publish(_) => SignalTarget::Publisher,
            Part::Watch(_) => SignalTarget::Subscriber,
        }
    }

    /// Where the client is. A server with full ICE finds out by itself, but would wait for a second whether there is no better
    /// address.
    fn own_candidate(&self) -> TrickleRequest {
        let (ip, port) = (self.seat.addr.ip(), self.seat.addr.port());
        let candidate = format!("candidate:1 1 udp {PRIORITY} {ip} {port} typ host");
        let init = json!({ "candidate": candidate, "sdpMid": "0", "sdpMLineIndex": 0 });
        TrickleRequest { candidate_init: init.to_string(), target: self.target() as i32, r#final: true }
    }

    fn take_candidate(&mut self, trickle: &TrickleRequest) -> Result<()> {
        if trickle.target() != self.target() {
            return Ok(());
        }
        let Candidate { candidate } = serde_json::from_str(&trickle.candidate_init).context("a candidate")?;
        match &mut self.early {
            Some(early) => early.push(candidate),
            None => self.tell(Message::Candidate { client: self.seat.client, candidate })?,
        }
        Ok(())
    }

    fn tell(&self, message: Message) -> Result<()> {
        self.seat.inlet.send(message).ok().context("the load thread does not keep up")
    }
}

/// As browsers write one (RTCIceCandidateInit); empty for the last.
#[derive(Deserialize)]
struct Candidate {
    #[serde(default)]
    candidate: String,
}

fn description(kind: &str, sdp: String, id: u32) -> SessionDescription {
    SessionDescription { r#type: kind.to_owned(), sdp, id, ..SessionDescription::default() }
}

fn announcement(video: Video) -> AddTrackRequest {
    if video.speaks.is_some() {
        return AddTrackRequest {
            cid: TRACK.to_owned(),
            name: TRACK.to_owned(),
            r#type: TrackType::Audio as i32,
            source: TrackSource::Microphone as i32,
            ..AddTrackRequest::default()
        };
    }
    let (width, height) = SIZE;
    let layer = |quality: VideoQuality, part: u32, share: f64| VideoLayer {
        quality: quality as i32,
        width: width / part,
        height: height / part,
        bitrate: video.bitrate.scale(share).bps() as u32,
        ..VideoLayer::default()
    };
    let parts = [(VideoQuality::Low, 4), (VideoQuality::Medium, 2), (VideoQuality::High, 1)];
    let layers = match video.simulcast {
        true => {
            parts.into_iter().zip(LAYERS).map(|((quality, part), (_, share))| layer(quality, part, share)).collect()
        }
        false => vec![layer(VideoQuality::High, 1, 1.0)],
    };
    AddTrackRequest {
        cid: TRACK.to_owned(),
        name: TRACK.to_owned(),
        r#type: TrackType::Video as i32,
        source: TrackSource::Camera as i32,
        width,
        height,
        layers,
        ..AddTrackRequest::default()
    }
}

fn ping() -> Ping {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ping { timestamp: since_1970.as_millis() as i64, rtt: 0 }
}

/// Why a server lets nobody in: what it says, where it answers at all.
fn refusal(error: SocketError) -> anyhow::Error {
    match error {
        SocketError::Http(answer) => {
            let said = answer.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            anyhow!("{}: {}", answer.status(), said.trim())
        }
        error => anyhow::Error::new(error).context("connecting by WebSocket"),
    }
}
