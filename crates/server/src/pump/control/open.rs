//! Opens sessions: from what was asked for to the command that a worker gets.
//!
//! In: a request that was looked at already. Out: the session, or why there is none.
//! Everything that has to be read is read before a place is taken, so nobody holds one while an origin is slow.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pump::fec::Fec;
use pump::pids::PidMap;
use pump::spec::{Command, Pacing, SessionSpec, Target, Transport};
use pump::title::Title;
use wire::{Bitrate, Path};

use super::{PumpControl, PumpError};
use crate::pump::destination::DestinationError;
use crate::pump::live::Input;
use crate::pump::request::{Channel, OpenRequest};
use crate::pump::sessions::{Overloaded, Session};
use crate::pump::times;
use crate::random::random;

/// What a datagram has beside its packets: IPv4 and UDP headers. 1,316 bytes of packets become 1,344 and more.
const OVERHEAD: f64 = 1_344.0 / 1_316.0;

/// A session that is about to be opened.
pub(super) struct Newcomer<'a> {
    /// When it was asked for.
    pub(super) asked: Instant,
    pub(super) request: &'a OpenRequest,
    /// Where it sends to.
    pub(super) remote: SocketAddr,
    pub(super) title: Arc<Title>,
    pub(super) rate: Bitrate,
    /// The title's first reference.
    pub(super) zero: Option<wire::ts::Pcr>,
    /// The packets that it plays; `end` when that was asked for.
    pub(super) start: u64,
    pub(super) end: Option<u64>,
    pub(super) end_packet: u64,
    /// What it plays, when that is a live input.
    pub(super) input: Option<&'a Arc<Input>>,
}

impl PumpControl {
    /// Opens a session: it begins as soon as its first chunks are with the worker.
    ///
    /// # Errors
    /// Why it cannot be.
    pub async fn open(&self, request: &OpenRequest) -> Result<Session, PumpError> {
        if self.plane.is_draining() {
            return Err(PumpError::Draining);
        }
        let asked = Instant::now();
        let output = request.output.as_deref();
        if let Some(name) = output.filter(|name| !self.outputs.get().is_some_and(|outputs| outputs.has(name))) {
            return Err(PumpError::NoOutput(name.to_owned()));
        }
        let remote = request.destination.resolve(|ip| self.may_send_to(ip, output)).await?;
        if let Some(input) = self.live.find(&request.title) {
            return self.open_live(asked, request, remote, &input);
        }
        self.admit(&self.in_time(self.look_up(asked, request, remote)).await?)
    }

    /// Finds a session's title, and its begin and end there.
    async fn look_up<'a>(
        &self,
        asked: Instant,
        request: &'a OpenRequest,
        remote: SocketAddr,
    ) -> Result<Newcomer<'a>, PumpError> {
        let title = self.library.open(&request.title).await?;
        let rate = rate_of(request, &title, self.library.rate(&title))?;
        let zero = times::zero(&self.library, &title).await?;
        let place = |at, at_picture| self.position(&title, zero, request.play.pacing, at, at_picture);
        let start = place(request.start, true).await?;
        let end = match request.end {
            Some(end) => Some(place(end, false).await?),
            None => None,
        };
        let end_packet = end.unwrap_or(u64::MAX).min(title.packet_count());
        if start >= end_packet {
            return Err(PumpError::Empty);
        }
        Ok(Newcomer { asked, request, remote, title, rate, zero, start, end, end_packet, input: None })
    }

    /// Finds a worker for a session, and hands it over.
    pub(super) fn admit(&self, newcomer: &Newcomer<'_>) -> Result<Session, PumpError> {
        let Newcomer { asked, request, remote, ref title, rate, zero, start, end, end_packet, input } = *newcomer;
        let transport = transport(request.destination.is_rtp)?;
        self.with_state(|state| {
            let placement = &mut *self.plane.placement();
            let on = request.channel.and_then(|channel| channel.worker);
            let place = state.sessions.place(placement, rate, on).map_err(|Overloaded| PumpError::Overloaded)?;
            let session = Session::new(place, request, title.clone(), remote, rate, transport);
            let (id, worker) = (session.id, session.worker);
            let to = match request.channel {
                Some(Channel { connection, number, .. }) => Target::Interleaved { connection, channel: number },
                None => {
                    let link = self.link(worker, request.output.as_deref(), remote.ip());
                    let link = link.ok_or(DestinationError::NoSocket(remote.ip()))?;
                    Target::Datagrams(Path { link, remote, local: None })
                }
            };
            let live = input.map(|input| self.live.begin(input, id, worker, self.plane.workers())).transpose()?;
            let session = state.sessions.open(placement, Session { zero, start, end_packet, ..session }).clone();
            state.sessions.renew(asked, id);
            let spec = SessionSpec {
                transport,
                play: request.play.clone(),
                start,
                end,
                pids: pid_map(request, title),
                not_before: (!request.delay.is_zero()).then(|| asked + request.delay),
                live,
                ..SessionSpec::new(id, title.clone(), to)
            };
            state.post(worker, Command::Open(Box::new(spec)));
            Ok(session)
        })
    }

    /// Whether sessions may send there.
    fn may_send_to(&self, ip: IpAddr, output: Option<&str>) -> Result<(), DestinationError> {
        self.settings.destinations.as_ref().map_or(Ok(()), |allowed| allowed.check(ip))?;
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

/// What a session takes on the wire, by the title's mean rate.
pub(super) fn rate_of(request: &OpenRequest, title: &Title, mean: Option<Bitrate>) -> Result<Bitrate, PumpError> {
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
