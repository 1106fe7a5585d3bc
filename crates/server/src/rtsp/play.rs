//! PLAY: where a session goes on, at which speed and up to where, and what it says of that.
//!
//! Source: RFC 2326 §10.5, §12.29 (Range), §12.33 (RTP-Info), §12.34 (Scale).

use std::time::{Duration, Instant};

use wire::rtsp::{Extent, Npt, Range, Request, Response, Start, Status, scale_permille};

use super::interleaved::Interleaved;
use super::sessions::{Delivery, Session, State};
use super::{Refused, Rtsp, scale_text};
use crate::pump::control::{PumpError, Started};
use crate::pump::request::{ChangeRequest, OpenRequest};
use crate::pump::sessions as pumped;

/// Players ask for the end that DESCRIBE told, to a millisecond or a frame; that means all there is.
const END_SLACK: Duration = Duration::from_millis(50);

/// Behind the end of every title.
const FAR: Duration = Duration::from_secs(1_000 * 3_600);

/// What a PLAY asks for.
struct Wanted {
    start: Option<Duration>,
    end: Option<Duration>,
    /// `None`: there is only one.
    scale: Option<f64>,
}

impl Wanted {
    fn read(request: &Request<'_>, extent: Extent) -> Result<Self, Refused> {
        let range = read(request, "Range", Range::parse, (Status::InvalidRange, RANGES))?;
        let scale = read(request, "Scale", scale_permille, (Status::BadRequest, SCALES))?;
        let Extent::Stored(duration) = extent else {
            // Whatever is asked for, the present is what there is (§12.29).
            return Ok(Wanted { start: None, end: None, scale: None });
        };
        let start = range.and_then(|range| match range.start {
            Start::At(at) => Some(at),
            Start::Now => None,
        });
        // Backwards a title's begin is the end that there is.
        let is_backward = scale.is_some_and(|permille| permille < 0);
        let end = range.and_then(|range| range.end).filter(|_| !is_backward);
        if start.zip(end).is_some_and(|(start, end)| start >= end) {
            return Err(Refused::new(Status::InvalidRange, "the range ends before it begins"));
        }
        let end = end.filter(|end| duration.is_none_or(|duration| *end + END_SLACK < duration));
        Ok(Wanted { start, end, scale: Some(scale.unwrap_or(1_000) as f64 / 1_000.0) })
    }
}

const RANGES: &str = "a Range is \"npt=\", seconds, H:MM:SS or now, \"-\", and perhaps an end";
const SCALES: &str = "a Scale is a number other than 0, and negative backwards";

/// A header's value; `None` without it.
fn read<T>(
    request: &Request<'_>,
    name: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    (status, words): (Status, &str),
) -> Result<Option<T>, Refused> {
    let value = request.header(name);
    value.map(|value| parse(value).ok_or_else(|| Refused::new(status, words))).transpose()
}

impl Rtsp {
    pub(super) async fn play(
        &self,
        now: Instant,
        interleaved: &Interleaved,
        request: &Request<'_>,
        session: &Session,
    ) -> Result<Response, Refused> {
        let wanted = Wanted::read(request, session.extent)?;
        let mut state = session.state.lock().await;
        if !self.sessions.has(&session.id) {
            // It ended while this waited.
            return Err(Status::SessionNotFound.into());
        }
        let playing = match self.go_on(interleaved, session, &state, &wanted).await? {
            Some(playing) => playing,
            None => self.begin(now, interleaved, session, &wanted).await?,
        };
        (state.has_played, state.has_end) = (true, wanted.end.is_some());
        let started = self.pump.started(playing.id).await.ok().flatten();
        let range = match session.extent {
            Extent::Live => "npt=now-".to_owned(),
            Extent::Stored(duration) => self.range(&playing, &wanted, started, duration).await?,
        };
        let mut response = Response::new(Status::Ok).with("Range", range);
        if request.header("Scale").is_some() {
            // Who asks for a speed that there is not is told which there is (§12.34).
            response = response.with("Scale", scale_text(playing.scale_permille));
        }
        Ok(match started.and_then(|started| started.rtp) {
            None => response,
            Some(rtp) => {
                let (seq, timestamp) = (rtp.seq, rtp.timestamp);
                response.with("RTP-Info", format!("url={};seq={seq};rtptime={timestamp}", session.track))
            }
        })
    }

    /// Goes on with the pump session that there is; `None` when a new one is needed.
    async fn go_on(
        &self,
        interleaved: &Interleaved,
        session: &Session,
        state: &State,
        wanted: &Wanted,
    ) -> Result<Option<pumped::Session>, Refused> {
        let Some(source) = self.sessions.source(&session.id) else { return Ok(None) };
        // What plays already goes on meanwhile.
        if !self.pump.is_playing(source.pump) {
            self.hold(interleaved, session);
        }
        let change = ChangeRequest {
            paused: Some(false),
            // One that has not begun stands at the start, and need not go there.
            seek: wanted.start.filter(|start| state.has_played || !start.is_zero()),
            scale: wanted.scale,
            // An end holds for the PLAY that set it.
            end: wanted.end.or(state.has_end.then_some(FAR)),
        };
        match self.pump.change(source.pump, change).await {
            Ok(playing) => Ok(Some(playing)),
            Err(PumpError::Ended | PumpError::NoSession) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a pump session in place of one that has ended.
    async fn begin(
        &self,
        now: Instant,
        interleaved: &Interleaved,
        session: &Session,
        wanted: &Wanted,
    ) -> Result<pumped::Session, Refused> {
        self.hold(interleaved, session);
        let start = wanted.start.unwrap_or(Duration::ZERO);
        let request = OpenRequest { start, end: wanted.end, ..session.opening(interleaved.worker) };
        let opened = self.pump.open(&request).await?;
        self.set_source(now, session, &opened)?;
        let Some(scale) = wanted.scale.filter(|scale| *scale != 1.0) else { return Ok(opened) };
        let change = ChangeRequest { seek: Some(start), scale: Some(scale), ..ChangeRequest::default() };
        Ok(self.pump.change(opened.id, change).await?)
    }

    /// Its packets come behind the answer, as some players take none before it: `Connection` lets them go.
    fn hold(&self, interleaved: &Interleaved, session: &Session) {
        if let (Some(worker), Delivery::Interleaved { connection, channels }) = (interleaved.worker, &session.delivery)
        {
            self.pump.hold(worker, *connection, channels.0);
        }
    }

    /// What is played, as a Range header says it.
    async fn range(
        &self,
        playing: &pumped::Session,
        wanted: &Wanted,
        started: Option<Started>,
        duration: Option<Duration>,
    ) -> Result<String, Refused> {
        let at = match (started, wanted.start) {
            (Some(started), _) => started.at,
            // It begins late; this is where it will.
            (None, Some(start)) => start,
            (None, None) => self.pump.inspect(playing.id).await?.at,
        };
        let until = match playing.scale_permille {
            ..0 => Some(Duration::ZERO),
            _ => wanted.end.or(duration),
        };
        Ok(format!("npt={}-{}", Npt(at), until.map(|until| Npt(until).to_string()).unwrap_or_default()))
    }
}
