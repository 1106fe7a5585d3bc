//! RTSP 1.0 for set-top boxes and players: titles by name, played by the pump to the one who asks.
//!
//! In: requests, who sent them, and when. Out: responses; pump sessions that open, seek, pause and close.
//! A pump session opens with the first PLAY, so a SETUP takes nothing but memory. Packets go to the address of the
//! client's TCP connection, which has shown that it is there, and `pump.destinations` has to allow it.
//! Source: RFC 2326 §10 (methods), appendix A (states).

pub mod listener;
mod sessions;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::spec::SessionId;
use wire::rtsp::{Carrier, Description, Method, Npt, Range, Request, Response, Start, Status};
use wire::rtsp::{scale_permille, session_id, title_of, transports};

use crate::pump::control::{PumpControl, PumpError};
use crate::pump::destination::{Destination, DestinationError};
use crate::pump::request::{ChangeRequest, OpenRequest};
use sessions::{Playing, Session, Sessions};

/// A session without a request for this long ends (§12.37).
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// What a title's only stream is called, behind the title's name.
const TRACK: &str = "track";

const PUBLIC: &str = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER";

/// The two ends of the connection that a request came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub client: IpAddr,
    pub server: IpAddr,
}

/// All RTSP sessions. They belong to no connection, and outlive it until they time out.
pub struct Rtsp {
    pump: Arc<PumpControl>,
    sessions: Sessions,
}

impl Rtsp {
    pub fn new(pump: Arc<PumpControl>) -> Self {
        Rtsp { pump, sessions: Sessions::default() }
    }

    /// Answers a request.
    pub async fn answer(&self, now: Instant, ends: Ends, request: &Request<'_>) -> Response {
        let known = match request.header("Session").map(session_id) {
            None => None,
            Some(id) => match self.sessions.touch(now, id, ends.client) {
                None => return Response::new(Status::SessionNotFound),
                found => found.map(|session| (id, session)),
            },
        };
        let answer = match (request.method, &known) {
            _ if request.cseq().is_none() => Err(Status::BadRequest),
            (Method::Options, _) => Ok(Response::new(Status::Ok).with("Public", PUBLIC)),
            (Method::Describe, _) => self.describe(ends, request).await,
            (Method::Setup, None) => self.setup(now, ends, request).await,
            (Method::Setup, Some(_)) => Err(Status::MethodNotValidInThisState),
            (Method::GetParameter, _) if request.body.is_empty() => Ok(Response::new(Status::Ok)),
            (Method::GetParameter | Method::SetParameter, _) => Err(Status::ParameterNotUnderstood),
            (Method::Play, Some((_, session))) => self.play(request, session).await,
            (Method::Pause, Some((_, session))) => self.pause(session).await,
            (Method::Teardown, Some((id, session))) => {
                self.sessions.remove(id);
                self.end(session).await;
                return Response::new(Status::Ok);
            }
            (Method::Play | Method::Pause | Method::Teardown, None) => Err(Status::SessionNotFound),
            (Method::Other, _) => Err(Status::NotImplemented),
        };
        let response = answer.unwrap_or_else(Response::new);
        match known {
            Some((id, _)) => response.with("Session", id),
            None => response,
        }
    }

    /// Ends the sessions that are due. To be called every second or so.
    pub async fn handle_timeout(&self, now: Instant) {
        for session in self.sessions.take_due(now) {
            tracing::debug!(title = session.title, client = %session.client, "an RTSP session timed out");
            self.end(&session).await;
        }
    }

    async fn describe(&self, ends: Ends, request: &Request<'_>) -> Result<Response, Status> {
        let accepts = |value: &str| value.split(',').any(|kind| kind.trim_start().starts_with("application/sdp"));
        if request.header("Accept").is_some_and(|value| !accepts(value) && !value.contains("*/*")) {
            return Err(Status::NotAcceptable);
        }
        let (name, duration) = self.look_up(request.uri).await?;
        let sdp = Description { id: 1, origin: ends.server, name: &name, duration, track: TRACK }.to_sdp();
        let path = request.uri.split(['?', '#']).next().unwrap_or_default();
        let base = format!("{}/", path.trim_end_matches('/'));
        Ok(Response::new(Status::Ok).with("Content-Base", base).with_body("application/sdp", sdp))
    }

    /// The name of the title, and how long it is.
    async fn look_up(&self, uri: &str) -> Result<(String, Option<Duration>), Status> {
        let name = title_of(uri, TRACK).ok_or(Status::NotFound)?;
        // Anybody may ask, so nobody makes this server ask other hosts.
        if name.contains("://") {
            return Err(Status::NotFound);
        }
        let title = self.pump.library().open(&name).await.map_err(|error| title_status(&error))?;
        Ok((name, self.pump.library().duration(&title)))
    }

    async fn setup(&self, now: Instant, ends: Ends, request: &Request<'_>) -> Result<Response, Status> {
        let offered = request.header("Transport").ok_or(Status::BadRequest)?;
        let chosen = transports(offered).find_map(|offer| Some((offer, offer.for_client(ends.client)?)));
        let (offer, (carrier, port)) = chosen.ok_or(Status::UnsupportedTransport)?;
        let (title, duration) = self.look_up(request.uri).await?;
        let destination = Destination { is_rtp: carrier == Carrier::Rtp, host: ends.client.to_string(), port };
        let session = Session { title, duration, client: ends.client, destination, playing: Default::default() };
        let id = self.sessions.add(now, session).ok_or(Status::ServiceUnavailable)?;
        let second = offer.client_port.and_then(|(_, second)| second).map(|port| format!("-{port}"));
        let (name, second) = (offer.name, second.unwrap_or_default());
        Ok(Response::new(Status::Ok)
            .with("Session", format!("{id};timeout={}", SESSION_TIMEOUT.as_secs()))
            .with("Transport", format!("{name};unicast;destination={};client_port={port}{second}", ends.client)))
    }

    async fn play(&self, request: &Request<'_>, session: &Session) -> Result<Response, Status> {
        let range = request.header("Range").map(|value| Range::parse(value).ok_or(Status::InvalidRange)).transpose()?;
        let scale = request.header("Scale").map(|value| scale_permille(value).ok_or(Status::BadRequest)).transpose()?;
        let start = match range.map(|range| range.start) {
            Some(Start::At(at)) => Some(at),
            Some(Start::Now) | None => None,
        };
        let end = range.and_then(|range| range.end);
        let mut playing = session.playing.lock().await;
        if playing.is_gone {
            return Err(Status::SessionNotFound);
        }
        let at = match self.go_on(&playing, start, end).await? {
            Some(at) => at,
            None => self.begin(session, &mut playing, start, end).await?,
        };
        let until = end.or(session.duration).map(|end| Npt(end).to_string()).unwrap_or_default();
        let response = Response::new(Status::Ok).with("Range", format!("npt={}-{until}", Npt(at)));
        // Who asks for a speed that there is not is told which there is (§12.34).
        Ok(if scale.is_some() { response.with("Scale", "1.000") } else { response })
    }

    /// Goes on with the pump session there is, and returns where; `None` when a new one is needed.
    async fn go_on(
        &self,
        playing: &Playing,
        start: Option<Duration>,
        end: Option<Duration>,
    ) -> Result<Option<Duration>, Status> {
        let Some(id) = playing.pump.filter(|_| end.is_none() && playing.end.is_none()) else { return Ok(None) };
        match self.pump.change(id, ChangeRequest { paused: Some(false), seek: start, ..ChangeRequest::default() }).await {
            Ok(_) => Ok(Some(match start {
                Some(at) => at,
                None => self.position(id).await?,
            })),
            Err(PumpError::Ended | PumpError::NoSession) => Ok(None),
            Err(error) => Err(status(&error)),
        }
    }

    async fn position(&self, id: SessionId) -> Result<Duration, Status> {
        Ok(self.pump.inspect(id).await.map_err(|error| status(&error))?.at)
    }

    /// Opens a pump session, in place of the one there is.
    async fn begin(
        &self,
        session: &Session,
        playing: &mut Playing,
        start: Option<Duration>,
        end: Option<Duration>,
    ) -> Result<Duration, Status> {
        let start = match (start, playing.pump) {
            (Some(start), _) => start,
            (None, Some(id)) if self.pump.change(id, ChangeRequest::default()).await.is_ok() => {
                self.position(id).await?
            }
            (None, _) => Duration::ZERO,
        };
        self.stop(playing);
        let request = OpenRequest::new(session.title.clone(), session.destination.clone());
        let opened = self.pump.open(&OpenRequest { start, end, ..request }).await.map_err(|error| status(&error))?;
        (playing.pump, playing.end) = (Some(opened.id), end);
        Ok(start)
    }

    async fn pause(&self, session: &Session) -> Result<Response, Status> {
        let playing = session.playing.lock().await;
        let id = playing.pump.ok_or(Status::MethodNotValidInThisState)?;
        match self.pump.change(id, ChangeRequest { paused: Some(true), ..ChangeRequest::default() }).await {
            // At its end it sends nothing anyway.
            Ok(_) | Err(PumpError::Ended | PumpError::NoSession) => Ok(Response::new(Status::Ok)),
            Err(error) => Err(status(&error)),
        }
    }

    /// Ends the session, behind whatever request it has.
    async fn end(&self, session: &Session) {
        let mut playing = session.playing.lock().await;
        playing.is_gone = true;
        self.stop(&mut playing);
    }

    fn stop(&self, playing: &mut Playing) {
        if let Some(id) = playing.pump.take() {
            // It may have ended by itself.
            self.pump.close(id).ok();
        }
        playing.end = None;
    }
}

fn status(error: &PumpError) -> Status {
    match error {
        PumpError::Overloaded => Status::NotEnoughBandwidth,
        PumpError::Draining | PumpError::Busy => Status::ServiceUnavailable,
        PumpError::Destination(DestinationError::NotAllowed(_)) => Status::Forbidden,
        PumpError::Destination(_) => Status::UnsupportedTransport,
        PumpError::Title(error) => title_status(error),
        PumpError::Empty => Status::InvalidRange,
        PumpError::NoSession | PumpError::Ended => Status::MethodNotValidInThisState,
        _ => Status::InternalServerError,
    }
}

fn title_status(error: &titles::Error) -> Status {
    match error {
        titles::Error::NotFound { .. } | titles::Error::Refused { .. } => Status::NotFound,
        titles::Error::Http { .. } => Status::BadGateway,
        titles::Error::Stopped => Status::ServiceUnavailable,
        _ => Status::InternalServerError,
    }
}
