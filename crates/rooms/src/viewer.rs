//! The receiving half of a session: its down tracks, what it reports about them, and how fast it may be sent to.

use std::time::{Duration, Instant};

use wire::codec::MediaKind;
use wire::rtcp::{self, Packet, ReportBlock};
use wire::{Bitrate, Seq};

use crate::bwe::{self, Estimator};
use crate::down_track::{DownTrack, Seal};
use crate::drops::DropReason;
use crate::keyframe::KeyframeWishes;
use crate::pacer::Pacer;
use crate::reports;
use crate::session::Link;
use crate::settings::{Random, Settings};
use crate::spec::{DownTrackSpec, LayerLimit, LayerStats, SessionStats};
use crate::stream::{LAYERS_MAX, Stream, TRACKS_MAX};

/// Down tracks of one viewer. Audio stands first: it is small, and late audio is heard.
#[derive(Debug)]
pub struct Viewer {
    /// Key of the stream on this worker.
    pub stream: usize,
    downs: Vec<DownTrack>,
    /// Where the viewer gives transport-wide feedback.
    estimator: Option<Estimator>,
    transport_seq: u16,
    pacer: Pacer,
    resend: ResendBudget,
    limit: LayerLimit,
    started: Instant,
    rtt: Option<Duration>,
    report_at: Instant,
    /// When to look for more bandwidth again, while there is a use for it.
    probe_at: Option<Instant>,
    /// When the pacer lets the next packet go, while some wait.
    pub paced_until: Option<Instant>,
    stats: SessionStats,
}

/// How far `Viewer::send` came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Everything is written.
    Done,
    /// The outbox is full; more waits.
    Full,
    /// The burst is spent; more waits until then.
    Later(Instant),
}

/// Sender reports go out this often (RFC 3550 §6.2 allows less than 5 s where bandwidth does; browsers use 1 s).
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Reports leave at multiples of this, so that those of many viewers share a wake-up and a system call.
const REPORT_GRID: Duration = Duration::from_millis(20);

/// How often a viewer who could use more is considered for a probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Packets of one probe at most.
const PROBE_PACKETS_MAX: u16 = 64;

impl Viewer {
    pub fn new(
        now: Instant,
        stream_key: usize,
        stream: &Stream,
        specs: Vec<DownTrackSpec>,
        settings: &Settings,
        random: &mut Random,
    ) -> Self {
        let has_feedback = specs.iter().any(|spec| spec.extensions.transport_cc.is_some());
        let mut downs: Vec<DownTrack> = specs
            .into_iter()
            .take(TRACKS_MAX)
            .filter_map(|spec| {
                let track = stream.tracks.get(usize::from(spec.track))?;
                Some(DownTrack::new(now, spec, track, settings, random))
            })
            .collect();
        downs.sort_by_key(|down| stream.tracks[usize::from(down.spec.track)].spec.kind == MediaKind::Video);
        let start = settings.estimate_start;
        let estimator = has_feedback.then(|| Estimator::new(now, start, Bitrate::from_kbps(50), settings.estimate_max));
        // Reports of many viewers that came together must not all be due together.
        let some_time = REPORT_INTERVAL.mul_f64((random.next_u64() % 1_000) as f64 / 1_000.0);
        let report_at = on_grid(now + some_time, settings.ntp_epoch.0);
        Viewer {
            stream: stream_key,
            downs,
            estimator,
            transport_seq: 0,
            pacer: Pacer::new(now, settings.burst),
            resend: ResendBudget::new(now),
            limit: LayerLimit::NONE,
            started: now,
            rtt: None,
            report_at,
            probe_at: None,
            paced_until: None,
            stats: SessionStats::default(),
        }
    }

    /// Reads a value from each of the cache lines that `send` needs first.
    pub fn touch(&self) -> u64 {
        let sending = u64::from(self.transport_seq) ^ self.stats.packets_sent ^ self.resend.bytes as u64;
        sending ^ self.pacer.touch() ^ self.estimator.as_ref().map_or(0, Estimator::touch)
    }

    /// Reads a value from each of the cache lines that `send` needs then, and finds by what `touch` has read.
    pub fn touch_tracks(&self) -> u64 {
        self.downs.iter().fold(0, |sum, down| sum ^ down.touch())
    }

    /// Writes the packets that the viewer has not had yet, until the outbox is full or the burst is spent.
    pub fn send(&mut self, stream: &Stream, link: &mut Link<'_>, wishes: &mut KeyframeWishes) -> Progress {
        self.paced_until = None;
        for index in 0..self.downs.len() {
            let progress = self.send_track(index, stream, link);
            let down = &mut self.downs[index];
            down.wish_for_keyframe(link.now, &stream.tracks[usize::from(down.spec.track)], wishes);
            if let Progress::Later(at) = progress {
                self.paced_until = Some(at);
            }
            if progress != Progress::Done {
                return progress;
            }
        }
        Progress::Done
    }

    fn send_track(&mut self, index: usize, stream: &Stream, link: &mut Link<'_>) -> Progress {
        let Viewer { downs, estimator, transport_seq, pacer, resend, stats, .. } = self;
        let down = &mut downs[index];
        let track = &stream.tracks[usize::from(down.spec.track)];
        down.update(track);
        if !down.is_behind(track) {
            return Progress::Done;
        }
        let budget = match pacer.budget(link.now) {
            Ok(budget) => budget,
            Err(at) => return Progress::Later(at),
        };
        let (mut sent, mut count) = (0, 0);
        let progress = loop {
            if sent > budget {
                break Progress::Later(link.now);
            }
            let Some(slot) = link.out.slot() else { break Progress::Full };
            let Some(next) = down.next(link.now, track, &mut link.counters.drops) else { break Progress::Done };
            let seal = Seal { sealer: link.sealer, transport_seq: *transport_seq };
            let len = down.write(slot, &next, &seal);
            if len == 0 {
                link.counters.drops.add(DropReason::DatagramTooLarge);
                continue;
            }
            link.out.commit(link.path, len);
            sent += len;
            count += 1;
            if let Some(estimator) = estimator {
                estimator.on_sent(link.now, *transport_seq, len);
                *transport_seq = transport_seq.wrapping_add(1);
            }
        };
        pacer.on_sent(link.now, sent);
        // On a path that loses half of everything, sending more again only loses more.
        let share = link.settings.resend_share * f64::from((1.0 - 2.0 * stats.loss).max(0.0));
        resend.on_sent(sent, share);
        stats.packets_sent += count;
        stats.bytes_sent += sent as u64;
        link.counters.packets_out += count;
        match progress {
            Progress::Later(now) => Progress::Later(pacer.budget(now).err().unwrap_or(now)),
            progress => progress,
        }
    }

    /// Takes the viewer's reports, in plain text.
    pub fn handle_rtcp(
        &mut self,
        packet: &Packet<'_>,
        stream: &Stream,
        link: &mut Link<'_>,
        wishes: &mut KeyframeWishes,
    ) {
        match packet {
            Packet::ReceiverReport(report) => self.on_blocks(report.blocks(), link),
            Packet::SenderReport(report) => self.on_blocks(report.blocks(), link),
            Packet::Nack(nack) => self.resend(nack.media_ssrc, nack.lost(), stream, link),
            Packet::Pli(pli) => self.on_keyframe_request(pli.media_ssrc, wishes),
            Packet::Fir(fir) => fir.requests().for_each(|(ssrc, _)| self.on_keyframe_request(ssrc, wishes)),
            Packet::TransportFeedback(feedback) => {
                if let Some(estimator) = &mut self.estimator {
                    estimator.on_feedback(link.now, feedback);
                    self.choose_layers(stream, link.now);
                }
            }
            _ => {}
        }
    }

    /// Takes what one report says of our tracks. The path loses what the worst of them lost.
    fn on_blocks(&mut self, blocks: impl Iterator<Item = ReportBlock>, link: &Link<'_>) {
        let (mut fraction_lost, mut rtt) = (None, None);
        for block in blocks.filter(|block| self.downs.iter().any(|down| down.spec.ssrc == block.ssrc)) {
            fraction_lost = fraction_lost.max(Some(block.fraction_lost));
            rtt = reports::round_trip(link.now, link.settings.ntp_epoch, &block).or(rtt);
        }
        let Some(fraction_lost) = fraction_lost else { return };
        self.stats.loss = f32::from(fraction_lost) / 256.0;
        self.rtt = rtt.or(self.rtt);
        if let Some(estimator) = &mut self.estimator {
            estimator.on_report(link.now, fraction_lost, rtt);
        }
    }

    fn on_keyframe_request(&mut self, ssrc: u32, wishes: &mut KeyframeWishes) {
        self.stats.keyframe_requests_received += 1;
        let down = self.downs.iter().find(|down| down.spec.ssrc == ssrc);
        if let Some((down, layer)) = down.and_then(|down| Some((down, down.current()?))) {
            wishes.add(down.spec.track, layer);
        }
    }

    /// Sends lost packets again, within the budget; the rest the viewer may ask for again.
    fn resend(&mut self, ssrc: u32, lost: impl Iterator<Item = Seq>, stream: &Stream, link: &mut Link<'_>) {
        let Some(index) = self.downs.iter().position(|down| down.spec.ssrc == ssrc) else {
            return link.counters.drops.add(DropReason::NackForUnknownPacket);
        };
        for seq in lost {
            self.stats.nacks_received += 1;
            if !self.resend.has_some(link.now) {
                link.counters.drops.add(DropReason::ResendBudgetSpent);
                continue;
            }
            match self.send_again(index, seq.0, stream, link) {
                Some(len) => self.resend.on_resent(len),
                None => link.counters.drops.add(DropReason::NackForUnknownPacket),
            }
        }
    }

    fn send_again(&mut self, index: usize, seq: u16, stream: &Stream, link: &mut Link<'_>) -> Option<usize> {
        let pause =
            self.rtt.unwrap_or(Duration::from_millis(20)).clamp(Duration::from_millis(5), Duration::from_millis(200));
        let now_ms = link.now.duration_since(self.started).as_millis() as u32;
        let down = &mut self.downs[index];
        let track = &stream.tracks[usize::from(down.spec.track)];
        let slot = link.out.slot()?;
        let seal = Seal { sealer: link.sealer, transport_seq: self.transport_seq };
        let len = down.write_again(slot, seq, track, &seal, link.now, now_ms, pause, self.resend.is_short())?;
        link.out.commit(link.path, len);
        self.pacer.on_sent(link.now, len);
        if let Some(estimator) = &mut self.estimator {
            estimator.on_sent(link.now, self.transport_seq, len);
            self.transport_seq = self.transport_seq.wrapping_add(1);
        }
        self.stats.packets_resent += 1;
        link.counters.packets_resent += 1;
        self.stats.bytes_sent += len as u64;
        Some(len)
    }

    /// Finds out by sending old packets again whether a larger layer would fit.
    fn probe(&mut self, stream: &Stream, link: &mut Link<'_>) {
        self.probe_at = None;
        let Some(wanted) = self.wanted_rate(stream, link.now) else { return };
        self.probe_at = Some(link.now + PROBE_INTERVAL);
        let probe = self.estimator.as_mut().and_then(|estimator| estimator.poll_probe(link.now, wanted));
        let (Some(probe), Some(index)) = (probe, self.downs.iter().rposition(|down| down.spec.rtx.is_some())) else {
            return;
        };
        let mut sent = 0;
        for back in 0..PROBE_PACKETS_MAX {
            if sent >= probe.bytes {
                return;
            }
            let seq = self.downs[index].last_sent(back);
            sent += self.send_again(index, seq, stream, link).unwrap_or(0);
        }
    }

    /// What would be sent if the next larger layer of a track were; `None` when the viewer has all that it may have.
    fn wanted_rate(&self, stream: &Stream, now: Instant) -> Option<Bitrate> {
        self.estimator.as_ref()?;
        let mut now_sent = 0;
        let mut more = None;
        for down in &self.downs {
            let rates = self.rates(down, stream, now);
            let current = down.current().map_or(0, |layer| rates[usize::from(layer)].bps());
            now_sent += current;
            let next = down.current().and_then(|layer| bwe::wanted_rate(&rates, layer));
            more = more.or(next.map(|rate| rate.bps().saturating_sub(current)));
        }
        more.map(|more| Bitrate::from_bps(now_sent + more))
    }

    /// What each layer of a track takes; zero where it is not sent or the viewer does not want it.
    fn rates(&self, down: &DownTrack, stream: &Stream, now: Instant) -> [Bitrate; LAYERS_MAX] {
        let mut rates = stream.tracks[usize::from(down.spec.track)].rates(now);
        let wanted = usize::from(self.limit.spatial_max).saturating_add(1).min(LAYERS_MAX);
        rates[wanted..].fill(Bitrate::ZERO);
        rates
    }

    pub fn set_limit(&mut self, limit: LayerLimit, stream: &Stream, now: Instant) {
        self.limit = limit;
        for down in &mut self.downs {
            down.set_temporal_max(limit.temporal_max);
        }
        self.choose_layers(stream, now);
    }

    /// Chooses for each video track the best layer that is sent, that was asked for, and that the estimate carries.
    fn choose_layers(&mut self, stream: &Stream, now: Instant) {
        let estimate = self.estimator.as_ref().map(Estimator::estimate);
        self.pacer.set_estimate(estimate.unwrap_or(Bitrate::ZERO));
        let estimate = estimate.unwrap_or(Bitrate::from_bps(u64::MAX));
        let is_simulcast = |down: &DownTrack| stream.tracks[usize::from(down.spec.track)].layers.len() > 1;
        let count = self.downs.iter().filter(|down| is_simulcast(down)).count().max(1) as u64;
        let share = Bitrate::from_bps(estimate.bps() / count);
        for index in 0..self.downs.len() {
            if is_simulcast(&self.downs[index]) {
                let rates = self.rates(&self.downs[index], stream, now);
                self.downs[index].choose_target(now, share, &rates);
            }
        }
    }

    pub fn poll_timeout(&self) -> Instant {
        self.probe_at.map_or(self.report_at, |at| at.min(self.report_at))
    }

    /// Sends the sender reports that are due, chooses layers anew and probes.
    pub fn handle_timeout(&mut self, stream: &Stream, link: &mut Link<'_>, wishes: &mut KeyframeWishes) {
        if self.probe_at.is_some_and(|at| at <= link.now) {
            self.probe(stream, link);
        }
        if link.now < self.report_at {
            return;
        }
        self.report_at = on_grid(link.now + REPORT_INTERVAL, link.settings.ntp_epoch.0);
        if let Some(estimator) = &mut self.estimator {
            estimator.handle_timeout(link.now);
        }
        self.choose_layers(stream, link.now);
        self.send_reports(stream, link);
        self.probe_at.get_or_insert(link.now);
        for down in &mut self.downs {
            down.wish_for_keyframe(link.now, &stream.tracks[usize::from(down.spec.track)], wishes);
        }
    }

    fn send_reports(&mut self, stream: &Stream, link: &mut Link<'_>) {
        for down in &self.downs {
            let track = &stream.tracks[usize::from(down.spec.track)];
            let clock = down.current().and_then(|layer| track.layers[usize::from(layer)].clock);
            let Some(clock) = clock.and_then(|clock| down.forwarder().map_clock(clock)) else { continue };
            let (ssrc, counts) = (down.spec.ssrc, (down.packet_count, down.octet_count));
            let (epoch, clock_rate) = (link.settings.ntp_epoch, track.spec.clock_rate);
            let info = reports::sender_info(link.now, epoch, clock, clock_rate, ssrc, counts);
            link.send_rtcp(|buf| rtcp::write_sender_report(buf, &info, &[]));
        }
    }

    pub fn stats(&self, stream: &Stream) -> SessionStats {
        let mut stats = self.stats.clone();
        stats.round_trip_ms = self.rtt.map(|rtt| rtt.as_secs_f32() * 1e3);
        stats.estimate = self.estimator.as_ref().map(Estimator::estimate);
        stats.packets_skipped = self.downs.iter().map(|down| down.skipped).sum();
        for down in &self.downs {
            let track = &stream.tracks[usize::from(down.spec.track)];
            if track.spec.kind == MediaKind::Video {
                let current = down.current();
                stats.layers.push(LayerStats {
                    mid: down.spec.mid.clone(),
                    current,
                    target: Some(down.target()),
                    layer_count: track.layers.len() as u8,
                    rid: current.and_then(|layer| track.spec.rids.get(usize::from(layer)).cloned()),
                    temporal_max: self.limit.temporal_max,
                });
            }
        }
        stats
    }
}

/// The last time on the grid that is not after `at`.
fn on_grid(at: Instant, epoch: Instant) -> Instant {
    let since_epoch = at.saturating_duration_since(epoch);
    at - Duration::from_nanos(since_epoch.as_nanos() as u64 % REPORT_GRID.as_nanos() as u64)
}

/// Bytes that may go into retransmissions: a share of what is sent, so that a viewer who NACKs everything gets no more
/// than its share of the worker.
#[derive(Debug)]
struct ResendBudget {
    bytes: i64,
    refilled_at: Instant,
}

/// The most that is saved up, in bytes.
const RESEND_BYTES_MAX: i64 = 64 * 1_024;
/// What is given whatever is sent, in bytes per second: a quiet stream's losses are repaired, too.
const RESEND_BYTES_PER_SECOND: f64 = 16.0 * 1_024.0;

impl ResendBudget {
    fn new(now: Instant) -> Self {
        ResendBudget { bytes: RESEND_BYTES_MAX, refilled_at: now }
    }

    fn on_sent(&mut self, len: usize, share: f64) {
        self.bytes = (self.bytes + (len as f64 * share) as i64).min(RESEND_BYTES_MAX);
    }

    fn on_resent(&mut self, len: usize) {
        self.bytes -= len as i64;
    }

    /// Less than half of what can be saved up: repeated wishes have to wait, so that first ones do not.
    fn is_short(&self) -> bool {
        self.bytes < RESEND_BYTES_MAX / 2
    }

    fn has_some(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.refilled_at).as_secs_f64() * RESEND_BYTES_PER_SECOND;
        if earned >= 1.0 {
            self.bytes = (self.bytes + earned as i64).min(RESEND_BYTES_MAX);
            self.refilled_at = now;
        }
        self.bytes > 0
    }
}
