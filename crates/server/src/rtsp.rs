//! RTSP 1.0 for set-top boxes and players: titles by name, played by the pump to the one who asks.
//!
//! In: requests and reports, who sent them, and when. Out: responses and reports; pump sessions that open, seek, pause
//! and close. A pump session opens with SETUP, paused, so that admission is decided there and PLAY is quick.
//! Packets go to the address of the client's TCP connection, which has shown that it is there, or into it;
//! `pump.destinations` has to allow it.
//! Source: RFC 2326 §10 (methods), §11.3 (which error when), appendix A (states).

mod connection;
mod interleaved;
mod limits;
pub mod listener;
mod play;
mod rtcp;
mod sessions;
mod stats;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime};

use pump::spec::{self, PlaySpec};
use tokio::task::JoinSet;
use wire::rtsp::{Description, Extent, Method, Npt, Request, Response, Status, Way, session_id, title_of, ways};

use crate::accept::{PerAddress, Places, household};
use crate::pump::control::{PumpControl, PumpError};
use crate::pump::destination::{Destination, DestinationError};
use crate::pump::request::{ChangeRequest, OpenRequest};
use crate::pump::sessions as pumped;
use crate::random::{hex, random};
use interleaved::{Ends, Interleaved, frame};
pub use limits::Limits;
use rtcp::Sockets;
use sessions::{Delivery, Due, Session, Sessions, Source};
pub use stats::{Requests, Stats, Transports};

/// What a title's only stream is called, behind the title's name: as SAT>IP does, which is what VLC speaks to servers
/// where it is built without another RTSP client. It asks for no description.
const TRACK: &str = "stream=0";

/// Methods that there are, and those that need no title.
const PUBLIC: &str = "OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER, SET_PARAMETER";
const PUBLIC_WITHOUT_TITLE: &str = "OPTIONS, GET_PARAMETER, SET_PARAMETER";

/// Reports that wait for their sessions' numbers at a time.
const REPORTS_AT_A_TIME: usize = 256;

/// Seconds after which one who was refused may try again.
const RETRY_SECONDS: u32 = 5;

/// All RTSP sessions. Those that are not interleaved belong to no connection, and outlive it until they time out.
pub struct Rtsp {
    pump: Arc<PumpControl>,
    sessions: Sessions,
    sockets: Sockets,
    limits: Limits,
    /// Of connections.
    places: Arc<Places>,
    /// Requests under way that look something up.
    lookups: Mutex<PerAddress>,
    counters: Mutex<Stats>,
}

impl Rtsp {
    /// Binds the sockets for RTCP, so it needs a runtime.
    pub fn new(pump: Arc<PumpControl>, limits: Limits) -> Self {
        let sockets = Sockets::bind(pump.senders());
        Rtsp {
            pump,
            sessions: Sessions::new(limits.clone()),
            sockets,
            places: Places::new(limits.connections_max),
            limits,
            lookups: Mutex::default(),
            counters: Mutex::default(),
        }
    }

    /// So many sessions of one client's address there may be from now on. Those that are there go on.
    pub fn set_sessions_per_client(&self, count: usize) {
        self.sessions.set_sessions_per_client(count);
    }

    /// Sessions that there are.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// What there is now, and was since the start.
    pub fn stats(&self) -> Stats {
        let mut stats = self.count(|stats| stats.clone());
        stats.sessions = self.sessions.by_transport();
        (_, stats.made_room) = self.places.totals();
        for (_, numbers) in self.pump.plane().workers().numbers() {
            let pump = numbers.pump.load();
            stats.carried += pump.interleaved;
            stats.lost += pump.interleaved_lost;
        }
        stats
    }

    fn count<T>(&self, count: impl FnOnce(&mut Stats) -> T) -> T {
        count(&mut self.counters.lock().expect("nobody panics under this lock"))
    }

    /// Answers a request.
    async fn answer(&self, now: Instant, interleaved: &mut Interleaved, request: &Request<'_>) -> Response {
        if request.cseq().is_none() {
            return refusal(Refused::new(Status::BadRequest, "a request has a number (CSeq)"));
        }
        if let Some(options) = request.header("Require").or(request.header("Proxy-Require")) {
            return Response::new(Status::OptionNotSupported).with("Unsupported", options);
        }
        let known = match request.header("Session").map(session_id) {
            None => None,
            Some(id) => match self.find(now, interleaved, id) {
                None => return Response::new(Status::SessionNotFound),
                found => found,
            },
        };
        let response = self.carry_out(now, interleaved, request, known.as_deref()).await.unwrap_or_else(refusal);
        match known {
            Some(session) => response.with("Session", &session.id),
            None => response,
        }
    }

    /// The session of that id, when the one who asks may speak for it.
    fn find(&self, now: Instant, interleaved: &Interleaved, id: &str) -> Option<Arc<Session>> {
        self.sessions.touch(now, id, interleaved.ends.client).filter(|session| match session.delivery {
            Delivery::Interleaved { connection, .. } => connection == interleaved.connection,
            Delivery::Datagrams { .. } => true,
        })
    }

    async fn carry_out(
        &self,
        now: Instant,
        interleaved: &mut Interleaved,
        request: &Request<'_>,
        known: Option<&Session>,
    ) -> Result<Response, Refused> {
        let client = interleaved.ends.client;
        let looks_up = matches!(request.method, Method::Describe | Method::Setup | Method::Play);
        let _turn = looks_up.then(|| self.look(client)).transpose()?;
        match (request.method, known) {
            (Method::Options, _) => Ok(Response::new(Status::Ok).with("Public", PUBLIC)),
            (Method::GetParameter, _) if request.body.is_empty() => Ok(Response::new(Status::Ok)),
            (Method::GetParameter, Some(session)) => self.parameters(session, request.body).await,
            (Method::GetParameter, None) => Err(Status::SessionNotFound.into()),
            (Method::SetParameter, _) if request.body.is_empty() => Ok(Response::new(Status::Ok)),
            (Method::SetParameter, _) => Err(Status::ParameterNotUnderstood.into()),
            (Method::Other, _) => Err(Status::NotImplemented.into()),
            _ if request.uri == "*" => Err(Status::MethodNotAllowed.into()),
            (Method::Describe, _) => self.describe(interleaved.ends.server, request).await,
            (Method::Setup, None) => self.setup(now, interleaved, request).await,
            (Method::Setup, Some(session)) if is_of(request, session) => Err(Status::MethodNotValidInThisState.into()),
            // Titles are not bundled (§10.4).
            (Method::Setup, Some(_)) => Err(Status::AggregateNotAllowed.into()),
            (Method::Play | Method::Pause | Method::Teardown, None) => Err(Status::SessionNotFound.into()),
            (_, Some(session)) if !is_of(request, session) => Err(Status::NotFound.into()),
            (Method::Play, Some(session)) => self.play(now, interleaved, request, session).await,
            (Method::Pause, Some(session)) => self.pause(session).await,
            (Method::Teardown, Some(session)) => {
                interleaved.remove(&session.id);
                self.end(&session.id);
                Ok(Response::new(Status::Ok))
            }
        }
    }

    /// A client's turn to have something looked up in a title.
    fn look(&self, client: IpAddr) -> Result<Lookup<'_>, Status> {
        let client = household(client);
        let has_room = self.lookups().enter(client, self.limits.lookups_per_client);
        if has_room { Ok(Lookup { rtsp: self, client }) } else { Err(Status::ServiceUnavailable) }
    }

    fn lookups(&self) -> MutexGuard<'_, PerAddress> {
        self.lookups.lock().expect("nobody panics under this lock")
    }

    async fn describe(&self, server: IpAddr, request: &Request<'_>) -> Result<Response, Refused> {
        let accepts = |value: &str| value.split(',').any(|kind| kind.trim_start().starts_with("application/sdp"));
        if request.header("Accept").is_some_and(|value| !accepts(value) && !value.contains("*/*")) {
            return Err(Status::NotAcceptable.into());
        }
        let (name, extent) = self.look_up(request.uri).await?;
        let sdp = Description { id: 1, origin: server, name: &name, extent, track: TRACK }.to_sdp();
        Ok(Response::new(Status::Ok).with("Content-Base", base_of(request.uri)).with_body("application/sdp", sdp))
    }

    /// The name of the title, and how long it is.
    async fn look_up(&self, uri: &str) -> Result<(String, Extent), Refused> {
        let name = title_of(uri, TRACK).ok_or(Status::NotFound)?;
        // Anybody may ask, so nobody makes this server ask other hosts.
        if name.contains("://") {
            return Err(Status::NotFound.into());
        }
        if self.pump.is_live(&name) {
            return Ok((name, Extent::Live));
        }
        let title = self.pump.title(&name).await?;
        if title.slope.is_none() {
            return Err(PumpError::NoClock.into());
        }
        // Who is told too short a time stops there.
        Ok((name, Extent::Stored(self.pump.library().measure(&title).await)))
    }

    async fn setup(
        &self,
        now: Instant,
        interleaved: &mut Interleaved,
        request: &Request<'_>,
    ) -> Result<Response, Refused> {
        let client = interleaved.ends.client;
        let offered = request.header("Transport").unwrap_or_default();
        let (name, way) = ways(offered, client).next().ok_or_else(|| match offered {
            "" => Refused::new(Status::BadRequest, "SETUP needs a Transport header"),
            _ => Refused::new(Status::UnsupportedTransport, WAYS),
        })?;
        let (title, extent) = self.look_up(request.uri).await?;
        let (destination, delivery) = self.delivery(interleaved, way)?;
        let id = hex(&random::<16>().ok_or(Status::ServiceUnavailable)?);
        let (track, state) = (request.uri.to_owned(), Default::default());
        let session = Session { id, title, extent, track, client, destination, delivery, state };
        let session = self.sessions.add(now, session).ok_or(Status::ServiceUnavailable)?;
        let id = &session.id;
        let opening = session.opening(interleaved.worker);
        let play = PlaySpec { is_paused: true, ..opening.play };
        let opened = self.pump.open(&OpenRequest { play, ..opening }).await;
        let opened = opened.inspect_err(|_| drop(self.sessions.remove(id)))?;
        let source = self.set_source(now, &session, &opened)?;
        let mut transport = format!("{name};unicast;{}", session.delivery.words(client, &session.destination));
        if let Some(ssrc) = source.ssrc {
            transport += &format!(";ssrc={ssrc:08X}");
        }
        match (&session.delivery, self.sockets.server_ports(source.worker, client)) {
            (Delivery::Interleaved { channels, .. }, _) => interleaved.add(id.clone(), source.worker, *channels),
            (Delivery::Datagrams { rtcp: Some(_) }, Some((rtp, rtcp))) => {
                transport += &format!(";server_port={rtp}-{rtcp}")
            }
            (Delivery::Datagrams { rtcp: None }, Some((port, _))) => transport += &format!(";server_port={port}"),
            (Delivery::Datagrams { .. }, None) => {}
        }
        Ok(Response::new(Status::Ok)
            .with("Session", format!("{id};timeout={}", self.limits.session_timeout.as_secs()))
            .with("Transport", transport)
            .with("Content-Base", base_of(request.uri)))
    }

    fn delivery(&self, interleaved: &mut Interleaved, way: Way) -> Result<(Destination, Delivery), Status> {
        let Ends { client, client_port, .. } = interleaved.ends;
        let to = |is_rtp, port| Destination { is_rtp, host: client.to_string(), port };
        match way {
            Way::Datagrams { is_rtp, port, rtcp_port } => {
                let rtcp = rtcp_port.map(|port| SocketAddr::new(client, port));
                Ok((to(is_rtp, port), Delivery::Datagrams { rtcp }))
            }
            Way::Interleaved { channels } => {
                interleaved.retain(|id| self.sessions.has(id));
                if interleaved.is_short_of(channels) {
                    self.end_those_that_ended(interleaved);
                }
                let channels = interleaved.free_channels(channels).ok_or(Status::ServiceUnavailable)?;
                // The port is only shown.
                Ok((to(true, client_port), Delivery::Interleaved { connection: interleaved.connection, channels }))
            }
        }
    }

    /// Sessions that have played to their end, and could be played anew, make room for others of their connection.
    fn end_those_that_ended(&self, interleaved: &mut Interleaved) {
        let ended: Vec<String> =
            interleaved.sessions().filter(|id| self.sessions.has_ended(id)).map(str::to_owned).collect();
        for id in ended {
            interleaved.remove(&id);
            self.end(&id);
        }
    }

    /// What clients ask of a session (§10.8), each on a line of its own.
    async fn parameters(&self, session: &Session, body: &[u8]) -> Result<Response, Refused> {
        let names = str::from_utf8(body).map_err(|_| Refused::new(Status::BadRequest, "the body is no UTF-8"))?;
        let source = self.sessions.source(&session.id).ok_or(Status::MethodNotValidInThisState)?;
        let inspected = self.pump.inspect(source.pump).await?;
        let mut text = String::new();
        for name in names.lines().map(|line| line.trim().trim_end_matches(':')).filter(|name| !name.is_empty()) {
            let value = match name.to_ascii_lowercase().as_str() {
                "position" => Npt(inspected.at).to_string(),
                "scale" => scale_text(inspected.session.scale_permille),
                "activity" => <&str>::from(inspected.stats.activity).to_owned(),
                // Not where titles come from: that is nobody's business here.
                "trouble" => inspected.trouble.as_ref().map_or("", |trouble| trouble.error.kind().into()).to_owned(),
                _ => return Err(Status::ParameterNotUnderstood.into()),
            };
            text += &format!("{name}: {value}\r\n");
        }
        Ok(Response::new(Status::Ok).with_body("text/parameters", text))
    }

    async fn pause(&self, session: &Session) -> Result<Response, Refused> {
        let _state = session.state.lock().await;
        let Some(source) = self.sessions.source(&session.id) else { return Ok(Response::new(Status::Ok)) };
        let change = ChangeRequest { paused: Some(true), ..ChangeRequest::default() };
        match self.pump.change(source.pump, change).await {
            // At its end it sends nothing anyway.
            Ok(_) | Err(PumpError::Ended | PumpError::NoSession) => Ok(Response::new(Status::Ok)),
            Err(error) => Err(error.into()),
        }
    }

    /// From `now` on the session plays what was opened for it.
    ///
    /// # Errors
    /// When it has ended meanwhile. Then nothing is played.
    fn set_source(&self, now: Instant, session: &Session, opened: &pumped::Session) -> Result<Source, Status> {
        let source = source_of(opened);
        if !self.sessions.set_source(now, &session.id, source) {
            self.close(Some(source));
            return Err(Status::SessionNotFound);
        }
        Ok(source)
    }

    /// Ends a session. A request of it that is under way finds that out.
    fn end(&self, id: &str) {
        if let Some((_, source)) = self.sessions.remove(id) {
            self.close(source);
        }
    }

    fn close(&self, source: Option<Source>) {
        if let Some(source) = source {
            // It may have ended by itself.
            self.pump.close(source.pump).ok();
        }
    }

    /// Ends the sessions that are due, and sends the reports that are. To be called every half second or so.
    pub async fn handle_timeout(self: &Arc<Self>, now: Instant) {
        let is_playing = |connection, id| self.pump.is_connected(connection) && self.pump.is_playing(id);
        for (session, source) in self.sessions.take_due(now, is_playing) {
            tracing::debug!(title = session.title, client = %session.client, "an RTSP session timed out");
            self.close(source);
        }
        // A worker that is slow to answer keeps others' reports waiting no longer than its own.
        let mut reports = JoinSet::new();
        for due in self.sessions.take_reports(now, |id| self.pump.is_open(id)) {
            let rtsp = self.clone();
            reports.spawn(async move { rtsp.report(due).await });
            if reports.len() >= REPORTS_AT_A_TIME {
                reports.join_next().await;
            }
        }
        while reports.join_next().await.is_some() {}
    }

    /// Reports on a stream to its receiver, or says goodbye.
    async fn report(&self, due: Due) {
        if due.is_last {
            self.sessions.clear_source(&due.session.id, due.source.pump);
        }
        let Some(ssrc) = due.source.ssrc else { return };
        let stats = if due.is_last {
            None
        } else {
            let Ok(inspected) = self.pump.inspect(due.source.pump).await else { return };
            Some(inspected.stats)
        };
        let Some(compound) = self.sockets.compound(SystemTime::now(), ssrc, stats.as_deref()) else { return };
        match &due.session.delivery {
            Delivery::Datagrams { rtcp: Some(to) } => self.sockets.send(due.source.worker, *to, &compound),
            Delivery::Datagrams { rtcp: None } => {}
            Delivery::Interleaved { connection, channels } => {
                self.pump.say(due.source.worker, *connection, frame(channels.1, &compound));
            }
        }
    }

    /// Takes a receiver's report: its sessions live on, or end soon when it says goodbye.
    fn handle_report(&self, now: Instant, client: IpAddr, compound: &[u8]) {
        let (ssrcs, is_leaving) = rtcp::read(compound);
        for ssrc in ssrcs {
            let Some(id) = self.sessions.touch_by_ssrc(now, ssrc, client) else { continue };
            if is_leaving {
                self.close(self.sessions.part(now, &id));
            }
        }
    }
}

/// Until it is dropped, a request of that client looks something up.
struct Lookup<'a> {
    rtsp: &'a Rtsp,
    client: IpAddr,
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        self.rtsp.lookups().leave(self.client);
    }
}

/// What the stream's name is relative to.
fn base_of(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    format!("{}/", path.strip_suffix(TRACK).unwrap_or(path).trim_end_matches('/'))
}

/// Whether a request's URI names the session's title, or its only stream.
fn is_of(request: &Request<'_>, session: &Session) -> bool {
    request.uri == "*" || title_of(request.uri, TRACK).is_some_and(|name| name == session.title)
}

fn source_of(opened: &pumped::Session) -> Source {
    let ssrc = match opened.transport {
        spec::Transport::Udp => None,
        spec::Transport::Rtp { ssrc, .. } => Some(ssrc),
    };
    Source { pump: opened.id, worker: opened.worker, ssrc }
}

fn scale_text(permille: i32) -> String {
    format!("{:.3}", f64::from(permille) / 1_000.0)
}

/// What a Transport header may ask for.
const WAYS: &str = "a Transport is RTP/AVP/TCP, or to the client's own address RTP/AVP, MP2T/H2221/UDP or RAW/RAW/UDP with \
                    client_port, and neither multicast nor for recording";

/// Why a request is not carried out.
#[derive(Debug)]
struct Refused {
    status: Status,
    /// The API's or our own, where they say more than the status and nothing of this server's inside.
    words: Option<String>,
}

impl Refused {
    fn new(status: Status, words: impl Into<String>) -> Self {
        Refused { status, words: Some(words.into()) }
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Refused { status, words: None }
    }
}

impl From<PumpError> for Refused {
    fn from(error: PumpError) -> Self {
        let words = error.to_string();
        let status = Status::from(error);
        let is_clients = (400..500).contains(&status.code());
        Refused { status, words: is_clients.then_some(words) }
    }
}

/// The answer to what cannot be, with what that status has to say beside (§11.3, §12).
fn refusal(Refused { status, words }: Refused) -> Response {
    let mut response = Response::new(status);
    if let Some(words) = words {
        response = response.with_body("text/plain", words);
    }
    match status {
        Status::MethodNotAllowed => response.with("Allow", PUBLIC_WITHOUT_TITLE),
        Status::NotImplemented => response.with("Public", PUBLIC),
        Status::MethodNotValidInThisState => response.with("Allow", PUBLIC),
        Status::ServiceUnavailable => response.with("Retry-After", RETRY_SECONDS),
        _ => response,
    }
}

impl From<PumpError> for Status {
    fn from(error: PumpError) -> Self {
        match error {
            PumpError::Overloaded => Status::NotEnoughBandwidth,
            PumpError::Draining | PumpError::Busy => Status::ServiceUnavailable,
            PumpError::Destination(DestinationError::NotAllowed(_)) => Status::Forbidden,
            PumpError::Destination(_) => Status::UnsupportedTransport,
            PumpError::Title(titles::Error::NotFound { .. } | titles::Error::Refused { .. }) => Status::NotFound,
            PumpError::Title(titles::Error::Title { .. }) | PumpError::NoClock => Status::UnsupportedMediaType,
            PumpError::Title(titles::Error::Http { .. }) => Status::BadGateway,
            PumpError::Title(titles::Error::Stopped) => Status::ServiceUnavailable,
            PumpError::Empty | PumpError::Live(_) => Status::InvalidRange,
            // It may come again.
            PumpError::NoSignal | PumpError::Slow => Status::ServiceUnavailable,
            PumpError::NoSession | PumpError::Ended => Status::MethodNotValidInThisState,
            _ => Status::InternalServerError,
        }
    }
}
