//! What all tracks of one session share: the keys, the way to the peer, and how fast it may be sent to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prefetch::prefetch;
use srtp::{KeyError, Opener, Sealer, SrtpError};
use wire::rtcp;
use wire::{Bitrate, Outbox, Path};

use crate::bwe::Estimator;
use crate::pacer::Pacer;
use crate::rate::RateMeter;
use crate::settings::Settings;
use crate::spec::{PeerSpec, SessionStats};
use crate::story::Story;

/// One peer: everything about it that is not of one track.
pub struct Transport {
    /// Where its packets come from and ours go to.
    pub path: Path,
    /// What seals our packets.
    pub sealer: Sealer,
    /// The number of the next packet that is sent (draft-holmer-rmcat-transport-wide-cc-extensions-01 §2).
    pub transport_seq: u16,
    /// When and how fast packets may leave.
    pub pacer: Pacer,
    /// When the pacer lets the next packet go, while some wait.
    pub paced_until: Option<Instant>,
    /// Its TCP connection is gone, and there is no other path yet.
    pub is_cut_off: bool,
    /// What may be sent again.
    pub resend: ResendBudget,
    /// Where there are down tracks.
    pub estimator: Option<Estimator>,
    /// Whether the peer gives transport-wide feedback.
    is_fed_back: bool,
    /// What its receiver reports say.
    reports: Reports,
    /// What was counted so far; `Session::stats` adds what is known of the tracks.
    pub stats: SessionStats,
    opener: Opener,
    /// Stands in each compound, where reduced size was not negotiated.
    cname: Option<Arc<str>>,
    /// When something authentic last came from the peer.
    pub last_heard: Instant,
    started: Instant,
    /// The peer's last measured round trip.
    pub rtt: Option<Duration>,
    /// What became of the session.
    pub story: Story,
}

/// Room for one RTCP packet of ours before it is sealed, in bytes.
const RTCP_MAX: usize = 1_200;

/// Reports tell of the path at most this often: what was sent between two of them has to be a rate.
const REPORT_SPAN_MIN: Duration = Duration::from_millis(500);

/// Bytes of IPv4 and UDP headers (RFC 791 §3.1, RFC 768), which are part of what a path carries. IPv6 has 20 more, which
/// are left out wherever these are counted.
pub const IP_UDP_HEADERS: usize = 28;

/// The bandwidth estimate never falls below this.
const ESTIMATE_MIN: Bitrate = Bitrate::from_kbps(50);

impl Transport {
    /// # Errors
    /// When the cryptographic library refuses a key.
    pub fn new(now: Instant, peer: &PeerSpec, settings: &Settings) -> Result<Self, KeyError> {
        let mut story = Story::new();
        story.note_path(now, &peer.path);
        Ok(Transport {
            path: peer.path,
            sealer: Sealer::new(&peer.keys)?,
            transport_seq: 0,
            pacer: Pacer::new(now, settings.burst),
            paced_until: None,
            is_cut_off: false,
            resend: ResendBudget::new(now),
            estimator: None,
            is_fed_back: false,
            reports: Reports::new(now),
            stats: SessionStats::default(),
            opener: Opener::new(&peer.keys)?,
            cname: peer.cname.clone(),
            last_heard: now,
            started: now,
            rtt: None,
            story,
        })
    }

    /// Opens an SRTP packet of the peer's in place and returns the plain packet's length.
    pub fn open_rtp(&mut self, now: Instant, packet: &mut [u8]) -> Result<usize, SrtpError> {
        let len = self.opener.open_rtp(packet)?;
        self.last_heard = now;
        Ok(len)
    }

    /// Opens an SRTCP packet of the peer's in place and returns the plain compound packet's length.
    pub fn open_rtcp(&mut self, now: Instant, packet: &mut [u8]) -> Result<usize, SrtpError> {
        let len = self.opener.open_rtcp(packet)?;
        self.last_heard = now;
        Ok(len)
    }

    /// Writes, seals and queues one RTCP packet of ours under `ssrc`, behind an empty report and our name where the peer
    /// wants whole compounds. False when there is no room or nothing to write.
    pub fn send_rtcp(&mut self, out: &mut Outbox, ssrc: u32, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        let Some(slot) = out.slot() else { return false };
        let Some(len) = write_compound(&mut slot[..RTCP_MAX], ssrc, self.cname.as_deref(), write) else { return false };
        let len = self.sealer.seal_rtcp(slot, len);
        out.commit(&self.path, len);
        len > 0
    }

    /// Queues a media packet of `len` bytes. `is_numbered`: it was sealed under `transport_seq`. A number that no packet
    /// carries would count as lost.
    #[inline]
    pub fn commit(&mut self, now: Instant, len: usize, is_numbered: bool, out: &mut Outbox) {
        out.commit(&self.path, len);
        let Some(estimator) = &mut self.estimator else { return };
        let len = len + IP_UDP_HEADERS;
        if is_numbered {
            estimator.on_sent(now, self.transport_seq, len);
            self.transport_seq = self.transport_seq.wrapping_add(1);
        } else {
            estimator.on_sent_without_number(len);
        }
    }

    /// Takes note of new packets that were queued one after the other.
    pub fn on_sent(&mut self, now: Instant, count: u64, bytes: usize, settings: &Settings) {
        self.pacer.on_sent(now, bytes);
        self.resend.on_sent(bytes, settings.resend_share * f64::from(resend_part(self.stats.loss)));
        self.stats.packets_sent += count;
        self.stats.bytes_sent += bytes as u64;
    }

    /// Takes note of a packet that was queued again.
    pub fn on_resent(&mut self, now: Instant, bytes: usize) {
        self.pacer.on_sent(now, bytes);
        self.stats.packets_resent += 1;
        self.stats.bytes_sent += bytes as u64;
    }

    /// The peer will give transport-wide feedback from now on, or nothing but receiver reports: then the path carries all
    /// until they tell of loss.
    pub fn expect_feedback(&mut self, now: Instant, is_transport_wide: bool, settings: &Settings) {
        if self.estimator.is_some() && (self.is_fed_back || !is_transport_wide) {
            return;
        }
        self.is_fed_back = is_transport_wide;
        let start = if is_transport_wide { settings.estimate_start } else { settings.estimate_max };
        self.estimator = Some(Estimator::new(now, start, ESTIMATE_MIN, settings.estimate_max));
    }

    /// What the path carries at most; `None` where nothing is sent.
    pub fn estimate(&self) -> Option<Bitrate> {
        self.estimator.as_ref().map(Estimator::estimate)
    }

    /// What the path is known to carry: receiver reports say only what it does not.
    pub fn measured_estimate(&self) -> Option<Bitrate> {
        self.estimate()
            .filter(|_| self.is_fed_back || self.estimator.as_ref().is_some_and(Estimator::is_bounded_by_remb))
    }

    /// Whether all that was tried so far fitted, so that as much as possible may be tried next.
    pub fn is_ramping(&self) -> bool {
        self.estimator.as_ref().is_some_and(Estimator::is_ramping)
    }

    /// Whether the path may be taken to carry what it is sent: it is heard of, and nothing has said yet that it is narrow.
    pub fn carries_what_is_sent(&self, now: Instant) -> bool {
        self.estimator.as_ref().is_none_or(|estimator| !estimator.is_narrow() && !estimator.is_silent(now))
    }

    /// Whether delay or loss have said that the path is narrow.
    pub fn is_congested(&self) -> bool {
        self.estimator.as_ref().is_some_and(Estimator::was_lowered)
    }

    /// `estimate` for decisions that are worse than loss, see `Estimator::patient_estimate`.
    pub fn patient_estimate(&self) -> Option<Bitrate> {
        self.estimator.as_ref().map(Estimator::patient_estimate)
    }

    /// What the path carries by its delay alone, see `Estimator::delay_estimate`.
    pub fn delay_estimate(&self) -> Option<Bitrate> {
        self.estimator.as_ref().and_then(Estimator::delay_estimate)
    }

    /// Whether its delay said lately that it carries no more, see `Estimator::is_held_by_delay`.
    pub fn is_held_by_delay(&self, now: Instant) -> bool {
        self.estimator.as_ref().is_some_and(|estimator| estimator.is_held_by_delay(now))
    }

    /// Takes what a report says of the path.
    pub fn on_report(&mut self, now: Instant, fraction_lost: u8, rtt: Option<Duration>) {
        let is_time = self.reports.add(now, fraction_lost, self.stats.bytes_sent);
        self.stats.loss = f32::from(self.reports.worst.max(self.reports.last_worst)) / 256.0;
        if let Some(estimator) = self.estimator.as_mut().filter(|_| is_time) {
            estimator.on_report(now, self.reports.last_worst, rtt, self.reports.sent);
        }
    }

    /// Takes the rate that the peer takes at most.
    pub fn on_remb(&mut self, now: Instant, said: Bitrate) {
        if let Some(estimator) = &mut self.estimator {
            estimator.on_remb(now, said, self.reports.sent);
        }
    }

    /// Time since the session began, in milliseconds that wrap.
    pub fn age_ms(&self, now: Instant) -> u16 {
        now.duration_since(self.started).as_millis() as u16
    }

    /// Asks for what sending needs.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(&self.sealer);
        prefetch(&self.pacer);
        prefetch(&self.resend);
        prefetch(&self.path);
        prefetch(&self.transport_seq);
        prefetch(&self.stats.packets_sent);
        self.estimator.as_ref().inspect(|estimator| estimator.prefetch());
    }
}

/// What receiver reports said since they were last looked at. Some receivers send one for each track: the path loses what the
/// worst of them lost.
#[derive(Debug)]
struct Reports {
    since: Instant,
    /// What had been sent then.
    bytes_sent: u64,
    /// The worst share since then, in 1/256.
    worst: u8,
    /// The same of the time before, and the rate of what was sent in it.
    last_worst: u8,
    sent: Bitrate,
}

impl Reports {
    fn new(now: Instant) -> Self {
        Reports { since: now, bytes_sent: 0, worst: 0, last_worst: 0, sent: Bitrate::ZERO }
    }

    /// Adds a share. Returns whether it is time to look.
    fn add(&mut self, now: Instant, fraction_lost: u8, bytes_sent: u64) -> bool {
        self.worst = self.worst.max(fraction_lost);
        let span = now.saturating_duration_since(self.since);
        if span < REPORT_SPAN_MIN {
            return false;
        }
        let sent = Bitrate::of(bytes_sent - self.bytes_sent, span);
        *self = Reports { since: now, bytes_sent, worst: 0, last_worst: self.worst, sent };
        true
    }
}

/// Writes a packet, with a `cname` as a whole compound (RFC 3550 §6.1). Returns the length.
fn write_compound(
    buf: &mut [u8],
    ssrc: u32,
    cname: Option<&str>,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let mut len = 0;
    if let Some(cname) = cname {
        len += rtcp::write_receiver_report(buf, ssrc, &[])?;
        len += rtcp::write_sdes_cname(&mut buf[len..], ssrc, cname)?;
    }
    Some(len + write(&mut buf[len..])?)
}

/// Bytes that may go into retransmissions: a share of what is sent, so that a viewer who NACKs everything gets no more
/// than its share of the worker.
#[derive(Debug)]
pub struct ResendBudget {
    bytes: i64,
    refilled_at: Instant,
    rate: RateMeter,
}

/// How much of `Settings::resend_share` is given when so much is lost. What repairs a third is half of what is sent; on a path
/// that loses half of everything, sending more again only loses more.
fn resend_part(loss: f32) -> f32 {
    (3.0 - 6.0 * loss).clamp(0.0, 1.0)
}

/// The most that is saved up, in bytes.
const RESEND_BYTES_MAX: i64 = 64 * 1_024;
/// What is given whatever is sent, in bytes per second: a quiet stream's losses are repaired, too.
const RESEND_BYTES_PER_SECOND: f64 = 16.0 * 1_024.0;

impl ResendBudget {
    fn new(now: Instant) -> Self {
        ResendBudget { bytes: RESEND_BYTES_MAX, refilled_at: now, rate: RateMeter::default() }
    }

    fn on_sent(&mut self, len: usize, share: f64) {
        self.bytes = (self.bytes + (len as f64 * share) as i64).min(RESEND_BYTES_MAX);
    }

    /// Takes what was sent again.
    pub fn on_resent(&mut self, now: Instant, len: usize) {
        self.bytes -= len as i64;
        self.rate.add(now, len + IP_UDP_HEADERS);
    }

    /// What is sent again takes so much of the path.
    pub fn rate(&self, now: Instant) -> Bitrate {
        self.rate.rate(now)
    }

    /// Less than half of what can be saved up: repeated wishes have to wait, so that first ones do not.
    pub fn is_short(&self) -> bool {
        self.bytes < RESEND_BYTES_MAX / 2
    }

    /// Whether something may be sent again.
    pub fn has_some(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.refilled_at).as_secs_f64() * RESEND_BYTES_PER_SECOND;
        if earned >= 1.0 {
            self.bytes = (self.bytes + earned as i64).min(RESEND_BYTES_MAX);
            self.refilled_at = now;
        }
        self.bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_reports_the_worst_counts_whichever_comes_first() {
        let start = Instant::now();
        let mut reports = Reports::new(start);
        // Each second one of sound and, 100 ms later, one of pictures.
        let mut looked_at = Vec::new();
        for second in 1..=3 {
            for (millis, fraction_lost) in [(0, 3), (100, 80)] {
                let now = start + Duration::from_millis(1_000 * second + millis);
                if reports.add(now, fraction_lost, 125_000 * second) {
                    looked_at.push(reports.last_worst);
                }
            }
        }
        assert_eq!(looked_at, [3, 80, 80]);
        assert_eq!(reports.sent, Bitrate::from_kbps(1_000));
    }

    #[test]
    fn the_share_for_retransmissions_repairs_a_third_and_gives_half_up() {
        assert_eq!([0.0, 0.2, 0.33, 0.5, 1.0].map(resend_part), [1.0, 1.0, 1.0, 0.0, 0.0]);
    }
}
