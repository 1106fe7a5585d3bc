//! Opens sessions: from what was asked for to the command that a worker gets.
//!
//! In: a request that was looked at already. Out: the session, or why there is none.
//! Everything that has to be read is read before a place is taken, so nobody holds one while an origin is slow.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::clock::Slope;
use pump::fec::Fec;
use pump::pids::{PidMap, check_rename};
use pump::spec::{Command, Pacing, SessionSpec, Target, Transport};
use pump::title::Title;
use wire::{Bitrate, Path};

use super::{PumpControl, PumpError};
use crate::pump::destination::DestinationError;
use crate::pump::live::{Input, check_open};
use crate::pump::request::{Channel, OpenRequest};
use crate::pump::sessions::{Content, Session};
use crate::pump::times;
use crate::random::random;

/// What a datagram has beside its packets: IPv4 and UDP headers. 1,316 bytes of packets become 1,344 and more.
const OVERHEAD: f64 = 1_344.0 / 1_316.0;

/// A rate that a title's mean exceeds by less than one percent may do: the mean is not known better.
const PAD_SLACK: f64 = 1.01;

/// Parts of a title whose rate is looked at to say what its peak is.
const PEAK_LOOKS: u64 = 16;

impl PumpControl {
    /// Opens a session: it begins as soon as its first chunks are with the worker.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn open(&self, request: &OpenRequest) -> Result<Session, PumpError> {
        let allowed = self.lock().destinations.clone();
        self.open_to(request, |ip| allowed.as_ref().map_or(Ok(()), |allowed| allowed.check(ip))).await
    }

    /// The same for the server itself, wherever it goes.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn open_own(&self, request: &OpenRequest) -> Result<Session, PumpError> {
        self.open_to(&OpenRequest { is_own: true, ..request.clone() }, |_| Ok(())).await
    }

    async fn open_to(
        &self,
        request: &OpenRequest,
        may: impl Fn(IpAddr) -> Result<(), DestinationError> + Send + Sync,
    ) -> Result<Session, PumpError> {
        if self.plane.is_draining() {
            return Err(PumpError::Draining);
        }
        let asked = Instant::now();
        let output = request.output.as_deref();
        if let Some(name) = output.filter(|name| !self.outputs.has(name)) {
            return Err(PumpError::NoOutput(name.to_owned()));
        }
        let remote = request.destination.resolve(|ip| may(ip).and_then(|()| self.can_send_to(ip, output))).await?;
        let content = match self.input(&request.title) {
            Some(input) => live_content(request, input)?,
            None => self.in_time(self.look_up(request)).await?,
        };
        self.admit(asked, request, remote, content)
    }

    /// Finds a session's title, and its begin and end there.
    async fn look_up(&self, request: &OpenRequest) -> Result<Content, PumpError> {
        let title = self.library.open(&request.title).await?;
        let rate = rate_of(request, &title, self.library.rate(&title))?;
        let zero = times::zero(&self.library, &title).await?;
        if !request.rename.is_empty() {
            let first = self.library.chunk(&title, 0).await?;
            let seen = first.continuity.iter().map(|(pid, _)| *pid);
            check_rename(&title, seen, request.keep.as_deref(), &request.rename)?;
        }
        self.check_pad(request, &title).await?;
        let place = |at, at_picture| self.position(&title, zero, request.play.pacing, at, at_picture);
        let start = place(request.start, true).await?;
        let end = match request.end {
            Some(end) => place(end, false).await?.min(title.packet_count()),
            None => title.packet_count(),
        };
        if start >= end {
            return Err(PumpError::Empty);
        }
        Ok(Content { title, input: None, zero, start, end, rate })
    }

    /// A title that is known to have more than it is padded to would only get later. Where that is not known, it is counted
    /// while it plays (`SessionStats::pad_late`).
    async fn check_pad(&self, request: &OpenRequest, title: &Arc<Title>) -> Result<(), PumpError> {
        let Pacing::Padded(pad) = request.play.pacing else { return Ok(()) };
        let Some(mean) = self.library.known_rate(title).filter(|_| request.keep.is_none()) else { return Ok(()) };
        let speed = f64::from(request.play.speed_permille) / 1_000.0;
        if pad.scale(PAD_SLACK) >= mean.scale(speed) {
            return Ok(());
        }
        let (mut peak, count) = (mean, u64::from(title.chunk_count()));
        for look in 0..PEAK_LOOKS.min(count) {
            let chunk = self.library.chunk(title, look * count / PEAK_LOOKS.min(count)).await?;
            peak = peak.max(chunk.slope.map_or(Bitrate::ZERO, Slope::rate));
        }
        let [pad, mean, peak] = [pad, mean.scale(speed), peak.scale(speed)].map(Bitrate::bps);
        Err(PumpError::PadTooLow { pad, mean, peak })
    }

    /// Finds a worker for a session, and hands it over.
    fn admit(
        &self,
        asked: Instant,
        request: &OpenRequest,
        remote: SocketAddr,
        content: Content,
    ) -> Result<Session, PumpError> {
        let transport = transport(request.destination.is_rtp)?;
        let mut state = self.lock();
        // While its title was looked up the operator may have changed his mind.
        if let Some(allowed) = state.destinations.as_ref().filter(|_| !request.is_own) {
            allowed.check(remote.ip())?;
        }
        let placement = &mut *self.plane.placement();
        let on = request.channel.and_then(|channel| channel.worker);
        let place = state.sessions.place(placement, content.rate, on).ok_or(PumpError::Overloaded)?;
        let session = Session::new(place, request, content, remote, transport);
        let Session { id, worker, ref content, .. } = session;
        let to = match request.channel {
            Some(Channel { connection, number, .. }) => Target::Interleaved { connection, channel: number },
            None => {
                let link = self.link(worker, request.output.as_deref(), remote.ip());
                let link = link.ok_or(DestinationError::NoSocket(remote.ip()))?;
                Target::Datagrams(Path { link, remote, local: None })
            }
        };
        let input = content.input.as_ref();
        let live = input.map(|input| input.add_session(worker, self.plane.workers())).transpose()?;
        let spec = SessionSpec {
            transport,
            play: request.play.clone(),
            start: content.start,
            end: request.end.map(|_| content.end),
            pids: pid_map(request, &content.title),
            not_before: (!request.delay.is_zero()).then(|| asked + request.delay),
            live,
            ..SessionSpec::new(id, content.title.clone(), to)
        };
        let session = state.sessions.open(placement, session).clone();
        state.sessions.renew(asked, id);
        self.post(worker, Command::Open(Box::new(spec)));
        Ok(session)
    }

    /// Whether sessions may send there.
    fn can_send_to(&self, ip: IpAddr, output: Option<&str>) -> Result<(), DestinationError> {
        let has_socket = self.plane.workers().ids().all(|worker| self.link(worker, output, ip).is_some());
        if has_socket { Ok(()) } else { Err(DestinationError::NoSocket(ip)) }
    }

    async fn position(
        &self,
        title: &Arc<Title>,
        zero: Option<wire::ts::Pcr>,
        pacing: Pacing,
        at: Duration,
        at_picture: bool,
    ) -> Result<u64, PumpError> {
        if let (Pacing::Rate(rate), None) = (pacing, zero) {
            let packets = at.as_nanos() * u128::from(rate.bps()) / (8 * wire::ts::PACKET_LEN as u128 * 1_000_000_000);
            return Ok(u64::try_from(packets).unwrap_or(u64::MAX).min(title.packet_count()));
        }
        Ok(times::position_at(&self.library, title, zero, at, at_picture).await?)
    }
}

/// What comes in, from the newest picture that stands alone.
fn live_content(request: &OpenRequest, input: &Arc<Input>) -> Result<Content, PumpError> {
    check_open(request)?;
    let title = input.title()?;
    check_rename(&title, [], request.keep.as_deref(), &request.rename)?;
    let rate = rate_of(request, &title, None)?;
    Ok(Content { title, input: Some(input.clone()), zero: None, start: 0, end: u64::MAX, rate })
}

/// What a session takes on the wire, by the title's mean rate.
fn rate_of(request: &OpenRequest, title: &Title, mean: Option<Bitrate>) -> Result<Bitrate, PumpError> {
    let overhead = OVERHEAD * (1.0 + request.play.fec.map_or(0.0, Fec::overhead));
    let rate = match request.play.pacing {
        Pacing::Rate(rate) => rate,
        // Padded, speed is that of what lies between.
        Pacing::Padded(rate) if title.slope.is_some() => return Ok(rate.scale(overhead)),
        Pacing::Clock | Pacing::Padded(_) => {
            let slope = title.slope.ok_or(PumpError::NoClock)?;
            mean.unwrap_or_else(|| slope.rate())
        }
    };
    Ok(rate.scale(overhead * f64::from(request.play.speed_permille) / 1_000.0))
}

/// RTP begins with random numbers (RFC 3550 §5.1).
fn transport(is_rtp: bool) -> Result<Transport, PumpError> {
    if !is_rtp {
        return Ok(Transport::Udp);
    }
    let [a, b, c, d, e, f, g, h, i, j] = random().ok_or(PumpError::Busy)?;
    Ok(Transport::Rtp {
        ssrc: u32::from_ne_bytes([a, b, c, d]),
        first_timestamp: u32::from_ne_bytes([e, f, g, h]),
        first_seq: u16::from_ne_bytes([i, j]),
    })
}

fn pid_map(request: &OpenRequest, title: &Title) -> Option<Arc<PidMap>> {
    let is_plain = request.keep.is_none() && request.rename.is_empty();
    (!is_plain).then(|| Arc::new(PidMap::new(title, request.keep.as_deref(), &request.rename)))
}
