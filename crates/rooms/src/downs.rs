//! The down tracks of one session: what they share of its path, and what the peer reports about them.

mod announcements;
mod notes;
mod order;
mod pictures;
mod probing;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use prefetch::prefetch;
use slab::Slab;
use wire::codec::MediaKind;
use wire::rtcp::{self, Packet, Remb, ReportBlock};
use wire::{Bitrate, Random, Seq};

pub use self::notes::PathNote;
use self::order::Order;
use self::pictures::Pictures;
use crate::bwe::{self, room_for};
use crate::down_track::{Again, DownTrack, Progress};
use crate::drops::DropReason;
use crate::io::Io;
use crate::reports;
use crate::settings::Settings;
use crate::shares::{Need, divide};
use crate::spec::{DownTrackSpec, LayerLimit, LayerStats, SessionStats};
use crate::stream::{LAYERS_MAX, Stream, TRACKS_MAX, Track};
use crate::transport::Transport;

/// Down tracks of one session, of any streams. Audio stands first, and what is of one stream together.
#[derive(Debug)]
pub struct Downs {
    /// Keys of the streams that are watched, each once; perhaps without a track of theirs.
    streams: Vec<usize>,
    tracks: Vec<DownTrack>,
    order: Order,
    /// All SSRCs that were ever sent under the session's keys.
    ssrcs: Vec<u32>,
    /// What the peer asked for again and has not got: SSRC and number. It goes out at the pace, before new pictures.
    wanted: VecDeque<(u32, Seq)>,
    /// Streams of which the peer has to hear even if nothing comes of them, and how many packets say so still (`announce`).
    announced: Vec<(usize, u8)>,
    /// What tracks begin with that are added.
    limit: LayerLimit,
    /// Empty between two choices; its memory is used again.
    needs: Vec<Need>,
    /// Whether each track that is not held has a layer by the estimate: none has while nothing is known of the stream.
    has_chosen: bool,
    report_at: Instant,
    /// When to look for more bandwidth again, while there is a use for it.
    probe_at: Option<Instant>,
    /// As they were counted last.
    pictures: Pictures,
}

/// How many numbers of packets one compound of the peer's may still have us look at.
struct Room {
    /// Of what transport-wide feedback speaks of.
    feedback: usize,
    /// Of what is on its way while receiver reports are written.
    reports: usize,
}

/// Sender reports go out this often (RFC 3550 §6.2 allows less than 5 s where bandwidth does; browsers use 1 s).
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Reports are due at multiples of this, so that those of many viewers share a wake-up and a system call.
const REPORT_GRID: Duration = Duration::from_millis(20);

/// A report that is due waits so long for media to go with: then it takes no wake-up, and no system call of its own.
const REPORT_PATIENCE: Duration = Duration::from_millis(50);

/// Packets that wait to be sent again at most; what is asked for beyond that has to be asked for anew.
const WANTED_MAX: usize = 256;

/// What a peer takes of a track is said each second or so. What was not said again for so long does not count.
const REMB_KEPT: Duration = Duration::from_secs(4);

/// Sound of less than that is silence, of which Opus sends a packet each 400 ms (DTX, RFC 6716 §2.1.9).
const SPEAKS_MIN: Bitrate = Bitrate::from_kbps(8);

/// SSRCs under which one session is ever sent anything: a member that changes what it watches each second has enough for some
/// nine hours. Whoever needs more has to come anew, with other keys.
const SSRCS_MAX: usize = 65_536;

impl Downs {
    /// No tracks yet.
    pub fn new(now: Instant) -> Self {
        Downs {
            streams: Vec::new(),
            tracks: Vec::new(),
            order: Order::default(),
            ssrcs: Vec::new(),
            wanted: VecDeque::new(),
            announced: Vec::new(),
            limit: LayerLimit::NONE,
            needs: Vec::new(),
            has_chosen: false,
            report_at: now,
            probe_at: None,
            pictures: Pictures::default(),
        }
    }

    /// Takes the SSRCs of these tracks for them; false, and nothing is taken, when one was used before, or too many were. A track's numbers
    /// begin anywhere, and no number may come twice under one key and SSRC (RFC 3711 §9.1, RFC 7714 §10.1).
    pub fn claim(&mut self, specs: &[DownTrackSpec]) -> bool {
        let before = self.ssrcs.len();
        if before >= SSRCS_MAX {
            return false;
        }
        for ssrc in specs.iter().flat_map(|spec| [Some(spec.ssrc), spec.rtx.map(|(ssrc, _)| ssrc)]).flatten() {
            if self.ssrcs.contains(&ssrc) {
                self.ssrcs.truncate(before);
                return false;
            }
            self.ssrcs.push(ssrc);
        }
        true
    }

    /// Adds a stream and tracks of it; those that the stream does not have, or over `TRACKS_MAX`, are left out.
    pub fn add(
        &mut self,
        now: Instant,
        key: usize,
        stream: &Stream,
        specs: Vec<DownTrackSpec>,
        settings: &Settings,
        random: &mut Random,
    ) {
        debug_assert!(!self.watches(key), "a stream is watched once");
        self.streams.push(key);
        for spec in specs.into_iter().take(TRACKS_MAX) {
            if let Some(track) = stream.tracks.get(usize::from(spec.track)) {
                let mut down = DownTrack::new(now, key, spec, track, settings, random);
                down.set_limit(now, self.limit);
                down.follow_choice(now);
                self.tracks.push(down);
            }
        }
        self.order.sort(&mut self.tracks);
        self.has_chosen = false;
        self.probe_soon(now, stream.tracks.iter().any(|track| track.is_flowing(now)));
        if self.streams.len() == 1 {
            // Reports of many viewers that came together must not all be due together.
            let some_time = REPORT_INTERVAL.mul_f64((random.next_u64() % 1_000) as f64 / 1_000.0);
            self.report_at = on_grid(now + some_time, settings.ntp_epoch.0);
        }
    }

    /// Forgets a stream and its tracks. Returns the SSRCs under which these were sent.
    pub fn remove(&mut self, stream: usize) -> Vec<u32> {
        self.streams.retain(|watched| *watched != stream);
        self.announced.retain(|(announced, _)| *announced != stream);
        let gone = self.tracks.extract_if(.., |down| down.stream == stream);
        let ssrcs =
            gone.flat_map(|down| [Some(down.spec.ssrc), down.spec.rtx.map(|(ssrc, _)| ssrc)]).flatten().collect();
        self.order.sort(&mut self.tracks);
        ssrcs
    }

    /// Whether nothing is watched.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Whether that stream is watched.
    pub fn watches(&self, stream: usize) -> bool {
        self.streams.contains(&stream)
    }

    /// Whether it gets the sound of that stream.
    pub fn hears(&self, stream: usize) -> bool {
        self.tracks[self.order.range(MediaKind::Audio, Some(stream))].iter().any(|down| !down.is_held())
    }

    /// Streams of which it gets the sound.
    pub fn heard(&self) -> impl Iterator<Item = usize> {
        let sounds = &self.tracks[self.order.range(MediaKind::Audio, None)];
        sounds.iter().filter(|down| !down.is_held()).map(|down| down.stream)
    }

    /// Whether it gets sound of another stream than that one, too, in which somebody speaks now.
    pub fn hears_another(&self, stream: usize, streams: &Slab<Stream>, now: Instant) -> bool {
        let sounds = self.tracks[self.order.range(MediaKind::Audio, None)].iter();
        let mut others = sounds.filter(|down| down.stream != stream && !down.is_held());
        others.any(|down| down.track(streams).rate(0, now) >= SPEAKS_MIN)
    }

    /// Key of one of the streams that are watched.
    pub fn any_stream(&self) -> Option<usize> {
        self.streams.last().copied()
    }

    /// Asks for its tracks, as long as they are few.
    #[inline]
    pub fn prefetch(&self) {
        self.tracks.iter().take(2).for_each(prefetch);
    }

    /// Asks for what its tracks point to.
    #[inline]
    pub fn prefetch_sent(&self) {
        self.tracks.iter().take(2).for_each(DownTrack::prefetch_sent);
    }

    /// There is more to choose from: the next time that something is sent it is chosen anew.
    pub fn choose_again(&mut self, stream: usize) {
        self.has_chosen = false;
        self.tracks.iter_mut().filter(|down| down.stream == stream).for_each(|down| down.is_chosen = false);
    }

    /// Whether something came of a track for which nothing was chosen since.
    fn has_choice_to_make(&self, streams: &Slab<Stream>, now: Instant) -> bool {
        self.tracks.iter().any(|down| !down.is_chosen && !down.is_held() && down.track(streams).is_flowing(now))
    }

    /// Writes the packets of `stream`, or of all, that the peer has not had yet, until the outbox is full: what the peer lost,
    /// then pictures, both until the burst is spent; then sound, which is not paced, so that a packet of it is the shorter last
    /// one of a picture's send. On a path that is narrow it goes first: what is last is what a full queue there drops.
    pub fn send(&mut self, stream: Option<usize>, transport: &mut Transport, io: &mut Io<'_>) -> Progress {
        if !self.has_chosen && self.has_choice_to_make(io.streams, io.now) {
            self.choose_layers(transport, io.streams, io.now);
        }
        let has_sound = self.tracks.first().is_some_and(|down| down.kind == MediaKind::Audio);
        let sound_first = has_sound && transport.is_congested();
        if sound_first && self.send_tracks(MediaKind::Audio, stream, transport, io) == Progress::Full {
            return Progress::Full;
        }
        let paced = self.send_paced(stream, transport, io);
        let sound_last = has_sound && !sound_first && paced != Progress::Full;
        if sound_last && self.send_tracks(MediaKind::Audio, stream, transport, io) == Progress::Full {
            // Its turn goes on, and then finds out again whether something has to wait.
            return Progress::Full;
        }
        let Progress::Later(at) = paced else { return paced };
        // With what sound has taken of the pace meanwhile.
        let at = if sound_last { at.max(transport.pacer.free_at(io.now)) } else { at };
        transport.paced_until = Some(at);
        Progress::Later(at)
    }

    /// Writes the sound of these streams that the peer has not had yet, one behind the other, until the outbox is full.
    pub fn send_sound(&mut self, streams: &[usize], transport: &mut Transport, io: &mut Io<'_>) -> Progress {
        for stream in streams {
            if self.send_tracks(MediaKind::Audio, Some(*stream), transport, io) == Progress::Full {
                return Progress::Full;
            }
        }
        Progress::Done
    }

    fn send_paced(&mut self, stream: Option<usize>, transport: &mut Transport, io: &mut Io<'_>) -> Progress {
        if transport.paced_until.is_some_and(|until| until > io.now) {
            // Its turn comes with the timer; until then the log keeps what is new.
            return Progress::Done;
        }
        transport.paced_until = None;
        if self.has_wanted() {
            let progress = self.resend(transport, io);
            if progress != Progress::Done {
                return progress;
            }
        }
        self.send_tracks(MediaKind::Video, stream, transport, io)
    }

    fn send_tracks(
        &mut self,
        kind: MediaKind,
        stream: Option<usize>,
        transport: &mut Transport,
        io: &mut Io<'_>,
    ) -> Progress {
        let range = self.order.range(kind, stream);
        for down in &mut self.tracks[range] {
            let progress = down.send(transport, io);
            down.wish_for_keyframe(io);
            if progress != Progress::Done {
                return progress;
            }
        }
        Progress::Done
    }

    /// Takes a compound of the peer's, in plain text. What it says of the path has its consequences once, whatever it repeats.
    pub fn handle_rtcp(&mut self, compound: rtcp::Packets<'_>, transport: &mut Transport, io: &mut Io<'_>) {
        let mut is_of_path = false;
        let mut room = Room { feedback: bwe::LINES_MAX, reports: bwe::LINES_MAX };
        for packet in compound {
            is_of_path |= matches!(packet, Packet::TransportFeedback(_) | Packet::Remb(_));
            self.handle_report(&packet, &mut room, transport, io);
        }
        if is_of_path {
            self.choose_layers(transport, io.streams, io.now);
        }
    }

    fn handle_report(&mut self, packet: &Packet<'_>, room: &mut Room, transport: &mut Transport, io: &mut Io<'_>) {
        match packet {
            Packet::ReceiverReport(report) => self.on_blocks(report.blocks(), &mut room.reports, transport, io),
            Packet::SenderReport(report) => self.on_blocks(report.blocks(), &mut room.reports, transport, io),
            Packet::Nack(nack) => self.want(nack.media_ssrc, nack.lost(), transport, io),
            Packet::Pli { media_ssrc } => self.on_keyframe_request(*media_ssrc, transport, io),
            Packet::Fir(fir) => fir.media_ssrcs().for_each(|ssrc| self.on_keyframe_request(ssrc, transport, io)),
            Packet::TransportFeedback(feedback) => {
                let (base_seq, reference_time) = (feedback.base_seq, feedback.reference_time);
                if let Some(estimator) = &mut transport.estimator
                    && !estimator.on_feedback(io.now, base_seq, reference_time, feedback.arrivals(), &mut room.feedback)
                {
                    io.counters.drops.add(DropReason::FeedbackTooLong);
                }
            }
            Packet::Remb(remb) => self.on_remb(remb, transport, io.now),
            _ => {}
        }
    }

    /// Takes what one report says of our tracks. The path loses what the worst of them lost.
    fn on_blocks(
        &mut self,
        blocks: impl Iterator<Item = ReportBlock>,
        room: &mut usize,
        transport: &mut Transport,
        io: &Io<'_>,
    ) {
        let (mut fraction_lost, mut rtt) = (None, None);
        for block in blocks {
            let Some(down) = self.tracks.iter_mut().find(|down| down.spec.ssrc == block.ssrc) else { continue };
            fraction_lost = fraction_lost.max(down.on_report(io.now, &block, room));
            rtt = reports::round_trip(io.now, io.settings.ntp_epoch, &block).or(rtt);
        }
        transport.rtt = rtt.or(transport.rtt);
        if let Some(fraction_lost) = fraction_lost {
            transport.on_report(io.now, fraction_lost, rtt);
        }
    }

    /// Takes what the peer takes at most of the tracks that it names. Most name all of which they have heard lately; aiortc says
    /// it of each, by itself. What was said of a track that fell silent is no room for other pictures; where there is no other, it
    /// is what the next picture begins with.
    fn on_remb(&mut self, remb: &Remb<'_>, transport: &mut Transport, now: Instant) {
        let is_named = |down: &DownTrack| remb.ssrcs().any(|ssrc| ssrc == down.spec.ssrc);
        let names_none = !self.tracks.iter().any(is_named);
        let mut said = Some(remb.rate);
        for down in self.tracks.iter_mut().filter(|down| names_none || is_named(down)) {
            down.takes = Some((now, said.take().unwrap_or(Bitrate::ZERO)));
        }
        let is_new = |at: Instant| now.saturating_duration_since(at) < REMB_KEPT;
        let is_picture =
            |down: &DownTrack| down.kind == MediaKind::Video && down.takes.is_some_and(|(at, _)| is_new(at));
        let keeps_all = !self.tracks.iter().any(is_picture);
        let counted = self.tracks.iter().filter_map(|down| down.takes).filter(|(at, _)| keeps_all || is_new(*at));
        let sum = counted.map(|(_, rate)| rate.bps()).fold(0, u64::saturating_add);
        transport.on_remb(now, Bitrate::from_bps(sum));
    }

    fn on_keyframe_request(&mut self, ssrc: u32, transport: &mut Transport, io: &mut Io<'_>) {
        transport.stats.keyframe_requests_received += 1;
        if let Some(down) = self.tracks.iter_mut().find(|down| down.spec.ssrc == ssrc) {
            down.on_keyframe_request(transport.rtt, io);
        }
    }

    /// Takes a wish for lost packets. They go out with the next `send`.
    fn want(&mut self, ssrc: u32, lost: impl Iterator<Item = Seq>, transport: &mut Transport, io: &mut Io<'_>) {
        if !self.tracks.iter().any(|down| down.spec.ssrc == ssrc) {
            return io.counters.drops.add(DropReason::NackForUnknownPacket);
        }
        for seq in lost {
            transport.stats.nacks_received += 1;
            if self.wanted.len() < WANTED_MAX {
                self.wanted.push_back((ssrc, seq));
            } else {
                io.counters.drops.add(DropReason::ResendBudgetSpent);
            }
        }
    }

    /// Whether the peer waits for packets that it lost.
    pub fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Sends lost packets again, within the budget; the rest the viewer may ask for again.
    fn resend(&mut self, transport: &mut Transport, io: &mut Io<'_>) -> Progress {
        while let Some(&(ssrc, seq)) = self.wanted.front() {
            if let Err(at) = transport.pacer.budget(io.now) {
                return Progress::Later(at);
            }
            if !io.out.has_room() {
                return Progress::Full;
            }
            self.wanted.pop_front();
            if !transport.resend.has_some(io.now) {
                io.counters.drops.add(DropReason::ResendBudgetSpent);
                continue;
            }
            let down = self.tracks.iter_mut().find(|down| down.spec.ssrc == ssrc);
            match down.and_then(|down| down.send_again(seq.0, Again::Lost, transport, io)) {
                Some(len) => transport.resend.on_resent(io.now, len),
                None => io.counters.drops.add(DropReason::NackForUnknownPacket),
            }
        }
        Progress::Done
    }

    /// Takes what the peer may get at most of the video tracks of one stream, or of all and of those to come. A size that
    /// changes too often follows with the timer.
    pub fn set_limit(
        &mut self,
        stream: Option<usize>,
        limit: LayerLimit,
        transport: &mut Transport,
        streams: &Slab<Stream>,
        now: Instant,
    ) {
        if stream.is_none() {
            self.limit = limit;
        }
        for down in self.tracks.iter_mut().filter(|down| stream.is_none_or(|stream| down.stream == stream)) {
            down.set_limit(now, limit);
        }
        self.choose_layers(transport, streams, now);
    }

    /// Says which of the session's pictures have their part of the bandwidth first (`LayerChoice::priority`).
    pub fn set_priority(&mut self, stream: usize, priority: u32) {
        for down in self.tracks.iter_mut().filter(|down| down.stream == stream) {
            down.choice.priority = priority;
        }
    }

    /// Whether nothing of a stream is sent because nothing is to be.
    pub fn holds(&self, stream: usize) -> bool {
        self.tracks.iter().any(|down| down.stream == stream && down.is_held())
    }

    /// Sends nothing of a stream's tracks for now, whatever comes of them, or goes on: with sound at once, with pictures at a
    /// keyframe. The viewer's numbers go on without a gap.
    pub fn hold(&mut self, stream: usize, on: bool, transport: &mut Transport, streams: &Slab<Stream>, now: Instant) {
        let mut has_picture = false;
        for down in self.tracks.iter_mut().filter(|down| down.stream == stream) {
            down.hold(now, on);
            has_picture |= down.kind == MediaKind::Video;
        }
        // Of sound there is nothing to choose that could not wait for the next report.
        if has_picture {
            self.choose_layers(transport, streams, now);
        }
    }

    /// Chooses for each video track the best layer that is sent, that was asked for, and that its share of the estimate carries
    /// (see `divide`), beside the tracks that have but one and what is sent again. Where not even the smallest fits, temporal
    /// layers are left out. The pace follows.
    fn choose_layers(&mut self, transport: &mut Transport, streams: &Slab<Stream>, now: Instant) {
        let has_choice = |down: &DownTrack| down.track(streams).rank_count() > 1 && !down.is_held();
        let fixed = self.tracks.iter().filter(|down| !has_choice(down) && !down.is_held());
        let fixed = fixed.map(|down| down.rate(streams, now).bps());
        let beside = fixed.sum::<u64>() + transport.resend.rate(now).bps();
        let less = |estimate: Option<Bitrate>, beside: u64| {
            Bitrate::from_bps(estimate.map_or(u64::MAX, Bitrate::bps).saturating_sub(beside))
        };
        let sent = |down: &DownTrack| {
            let track = down.track(streams);
            down.current_rank(track).map_or(Bitrate::ZERO, |rank| track.rates(now)[usize::from(rank)])
        };
        let with_choice = (0..).zip(&self.tracks).filter(|(_, down)| has_choice(down));
        let carried = match transport.carries_what_is_sent(now) {
            true => with_choice.clone().map(|(_, down)| sent(down).bps()).sum(),
            false => 0,
        };
        let carried = room_for(Bitrate::from_bps(carried), true);
        let mut needs = std::mem::take(&mut self.needs);
        needs.extend(with_choice.map(|(index, down)| need(index, down, down.track(streams), now)));
        divide(less(transport.estimate(), beside).max(carried), &mut needs);
        let patient = transport.patient_estimate();
        let even = Bitrate::from_bps(less(patient, beside).bps() / needs.len().max(1) as u64);
        self.has_chosen = true;
        for need in needs.drain(..) {
            let down = &mut self.tracks[need.index];
            let track = down.track(streams);
            let rates = need.wanted();
            down.is_chosen = down.choice.choose(now, need.share, rates, track);
            self.has_chosen &= down.is_chosen;
            let rank = track.rank_of(down.choice.place);
            match rates.iter().take(rank.into()).all(|rate| *rate == Bitrate::ZERO) {
                true => down.choice.fit(now, even, &track.thinned_rates(rank, now)),
                false => down.choice.send_all(),
            }
            down.follow_choice(now);
        }
        self.needs = needs;
        for down in self.tracks.iter_mut().filter(|down| !has_choice(down) && !down.is_held()) {
            let track = down.track(streams);
            down.is_chosen = true;
            if down.kind == MediaKind::Audio {
                down.choose_redundancy(track, transport, now);
                continue;
            }
            let own = down.rate(streams, now).bps();
            let rank = track.rank_of(down.choice.place);
            down.choice.fit(now, less(patient, beside - own), &track.thinned_rates(rank, now));
            down.follow_choice(now);
        }
        let sent = self.sent_rate(streams, now).bps() + transport.resend.rate(now).bps();
        transport.pacer.follow(transport.measured_estimate(), Bitrate::from_bps(sent));
    }

    /// Streams of which the picture has begun to pause for want of bandwidth since this was asked last (true), or has ended that.
    pub fn take_pauses(&mut self) -> impl Iterator<Item = (usize, bool)> {
        self.tracks.iter_mut().filter_map(|down| Some((down.stream, down.take_pause()?)))
    }

    /// What all tracks together take now.
    fn sent_rate(&self, streams: &Slab<Stream>, now: Instant) -> Bitrate {
        let sent = self.tracks.iter().filter(|down| !down.choice.is_paused() && !down.is_held());
        Bitrate::from_bps(sent.map(|down| down.rate(streams, now).bps()).sum())
    }

    /// When `handle_timeout` next has work.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let report_at = self.report_at + REPORT_PATIENCE;
        let at = self.probe_at.map_or(report_at, |at| at.min(report_at));
        (!self.is_empty()).then_some(at)
    }

    /// When reports are due next.
    pub fn report_at(&self) -> Instant {
        self.report_at
    }

    /// Probes, and sends the sender reports with which no media went.
    pub fn handle_timeout(&mut self, transport: &mut Transport, io: &mut Io<'_>) {
        if self.probe_at.is_some_and(|at| at <= io.now) {
            self.probe(transport, io);
        }
        if self.report_at + REPORT_PATIENCE <= io.now && !self.is_empty() {
            self.report(transport, io);
        }
    }

    /// Sends sender reports, chooses layers anew and looks for more. Comes once a second, when reports are due.
    pub fn report(&mut self, transport: &mut Transport, io: &mut Io<'_>) {
        // From when they were due, not from now: those of many viewers would be drawn to the same picture, and stay there.
        self.report_at += REPORT_INTERVAL;
        if self.report_at <= io.now {
            self.report_at = on_grid(io.now + REPORT_INTERVAL, io.settings.ntp_epoch.0);
        }
        if let Some(estimator) = &mut transport.estimator {
            estimator.handle_timeout(io.now);
        }
        self.tracks.iter_mut().for_each(|down| down.limit.follow(io.now));
        self.choose_layers(transport, io.streams, io.now);
        self.send_reports(transport, io);
        self.send_announcements(transport, io);
        self.probe_between_pictures(transport, io);
        for down in &mut self.tracks {
            down.follow_rate();
            down.wish_for_keyframe(io);
        }
        for stream in &self.streams {
            io.streams[*stream].tidy(io.now);
        }
        self.count_pictures(io.streams, io.now, io.counters);
        self.take_notes(transport, io.streams, io.now);
    }

    fn send_reports(&self, transport: &mut Transport, io: &mut Io<'_>) {
        for down in &self.tracks {
            let track = down.track(io.streams);
            let clock = down.current().and_then(|layer| track.layers[usize::from(layer)].clock);
            let Some(clock) = clock.and_then(|clock| down.forwarder.map_clock(clock)) else { continue };
            let (ssrc, counts) = (down.spec.ssrc, (down.packet_count, down.octet_count));
            let (epoch, clock_rate) = (io.settings.ntp_epoch, track.spec.codec.clock_rate());
            let info = reports::sender_info(io.now, epoch, clock, clock_rate, ssrc, counts);
            transport.send_rtcp(io.out, ssrc, |buf| rtcp::write_sender_report(buf, &info, &[]));
        }
    }

    /// Adds how the tracks stand.
    pub fn add_stats(&self, stats: &mut SessionStats, streams: &Slab<Stream>) {
        stats.packets_skipped = self.tracks.iter().map(|down| down.skipped).sum();
        for down in self.tracks.iter().filter(|down| down.kind == MediaKind::Video) {
            let track = down.track(streams);
            let current = down.current();
            let target = track.rank_of(down.choice.place);
            stats.layers.push(LayerStats {
                mid: down.spec.mid.clone(),
                current: down.current_rank(track),
                target,
                layer_count: track.rank_count(),
                rid: current.and_then(|layer| track.spec.rids.get(usize::from(layer)).cloned()),
                temporal_max: down.choice.temporal_max(),
            });
        }
    }
}

/// What a track with a choice needs.
fn need(index: usize, down: &DownTrack, track: &Track, now: Instant) -> Need {
    let chosen = down.choice.has_chosen().then(|| track.rank_of(down.choice.place));
    Need::new(index, down.choice.priority, rates(down, track, now), chosen)
}

/// What each layer of a track takes, by rank, zero where nothing comes of it; and how many of them the viewer wants. Where all
/// that it wants are gone these are the smaller ones and the smallest that is sent.
fn rates(down: &DownTrack, track: &Track, now: Instant) -> ([Bitrate; LAYERS_MAX], usize) {
    let wanted = usize::from(down.limit.holds().spatial_max).saturating_add(1).min(LAYERS_MAX);
    let smallest = (0..track.rank_count()).position(|rank| !track.is_gone(rank)).unwrap_or(0);
    (track.rates(now), wanted.max(smallest + 1))
}

/// The last time on the grid that is not after `at`.
fn on_grid(at: Instant, epoch: Instant) -> Instant {
    let since_epoch = at.saturating_duration_since(epoch);
    at - Duration::from_nanos(since_epoch.as_nanos() as u64 % REPORT_GRID.as_nanos() as u64)
}
