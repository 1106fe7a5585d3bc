//! The burst limit and rate of one destination.
//!
//! A burst goes out in one send; the next may follow when the link would have carried it at the pace. So a frame that
//! fits the burst leaves at once, and a large keyframe leaves in rows with gaps between them.
//! Cost: one multiplication per packet.
//! Source: libwebrtc modules/pacing/pacing_controller.cc (factor and bursts of a bounded time).

use std::time::{Duration, Instant};

use wire::Bitrate;

/// How many packets may follow each other at line rate, and how fast the rest may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Packets per send to one destination at most, at least 1.
    pub packets: usize,
    /// The pace of everything over one burst never falls below this.
    pub rate_min: Bitrate,
}

/// A packet as the burst counts it, in bytes.
const FULL_PACKET: usize = 1_200;

/// The pace is this much faster than the bandwidth estimate, as in libwebrtc's pacing controller.
const PACE_OVER_ESTIMATE: f64 = 2.5;

/// … and than what is sent anyway, or who is slower than the stream would lag ever further behind.
const PACE_OVER_SENT: f64 = 1.5;

/// The pace where nothing tells what the path carries.
const PACE_UNKNOWN: Bitrate = Bitrate::from_kbps(20_000);

/// A burst is what the pace carries in this time (`kDefaultSendBurstInterval`), so that a picture which is no keyframe leaves in one
/// send; and at least so many packets.
const BURST_TIME: Duration = Duration::from_millis(40);
const BURST_PACKETS_MIN: usize = 2;

/// When packets may leave.
#[derive(Debug)]
pub struct Pacer {
    /// When everything sent so far would be through, at the pace.
    through_at: Instant,
    /// How far `through_at` may lie ahead.
    allowance: Duration,
    nanos_per_1024_bytes: u64,
    rate: Bitrate,
    burst: Burst,
    waiting: bool,
}

impl Pacer {
    /// A full burst may leave at once.
    pub fn new(now: Instant, burst: Burst) -> Self {
        let (rate, allowance, nanos_per_1024_bytes) = (Bitrate::ZERO, Duration::ZERO, 0);
        let mut pacer = Pacer { through_at: now, allowance, nanos_per_1024_bytes, rate, burst, waiting: false };
        pacer.follow(None, Bitrate::ZERO);
        pacer
    }

    /// Takes what the path carries, where that is known, and the rate of what is sent. Most are the ones before.
    pub fn follow(&mut self, estimate: Option<Bitrate>, sent: Bitrate) {
        let by_estimate = estimate.map_or(PACE_UNKNOWN, |estimate| estimate.scale(PACE_OVER_ESTIMATE));
        let rate = by_estimate.max(sent.scale(PACE_OVER_SENT)).max(self.burst.rate_min);
        if rate != self.rate {
            self.set_rate(rate);
        }
    }

    fn set_rate(&mut self, rate: Bitrate) {
        self.rate = rate;
        let rate = rate.max(Bitrate::from_kbps(10));
        self.nanos_per_1024_bytes = rate.time_for(1_024).as_nanos() as u64;
        let most = self.burst.packets.max(1);
        let in_time = (rate.scale(BURST_TIME.as_secs_f64()).bps() / 8) as usize / FULL_PACKET;
        let packets = in_time.clamp(BURST_PACKETS_MIN.min(most), most);
        // The packet that crosses the line still goes, so the line is drawn one packet early.
        self.allowance = rate.time_for((packets - 1) * FULL_PACKET);
    }

    /// How many bytes may leave now; the packet that crosses the line still goes. After a full burst nothing may until all
    /// of it is through, so that the next burst can be a full one again.
    ///
    /// # Errors
    /// When nothing may leave: until when.
    pub fn budget(&mut self, now: Instant) -> Result<usize, Instant> {
        let allowance = if self.waiting { Duration::ZERO } else { self.allowance };
        self.waiting = self.through_at > now + allowance;
        if self.waiting {
            return Err(self.through_at);
        }
        let room = (now + self.allowance).saturating_duration_since(self.through_at.max(now));
        Ok(((room.as_nanos() as u64) << 10).checked_div(self.nanos_per_1024_bytes).unwrap_or(u64::MAX) as usize)
    }

    /// When the next packet may leave.
    pub fn free_at(&mut self, now: Instant) -> Instant {
        self.budget(now).err().unwrap_or(now)
    }

    /// Takes note of what left; several packets at once cost the same as one.
    pub fn on_sent(&mut self, now: Instant, bytes: usize) {
        let took = Duration::from_nanos((bytes as u64 * self.nanos_per_1024_bytes) >> 10);
        self.through_at = self.through_at.max(now) + took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: Burst = Burst { packets: 16, rate_min: Bitrate::from_kbps(1_000) };

    /// Sends all that may leave, three times, and returns packets and the wait after them in 0.1 ms.
    fn rows(mut pacer: Pacer, start: Instant) -> Vec<(usize, u128)> {
        let mut now = start;
        let mut rows = Vec::new();
        for _ in 0..3 {
            let budget = pacer.budget(now).unwrap();
            let mut sent = 0;
            while sent <= budget {
                sent += FULL_PACKET;
            }
            pacer.on_sent(now, sent);
            let wait = pacer.budget(now).unwrap_err();
            rows.push((sent / FULL_PACKET, (wait.duration_since(now).as_micros() + 50) / 100));
            now = wait;
        }
        rows
    }

    #[test]
    fn a_burst_leaves_at_once_and_the_next_when_it_is_through() {
        let start = Instant::now();
        let pacer = Pacer::new(start, Burst { packets: 4, rate_min: Bitrate::from_kbps(9_600) });
        assert_eq!(rows(pacer, start), [(4, 19); 3], "4 packets of 0.48 ms each, in 0.1 ms");
    }

    #[test]
    fn a_burst_of_one_waits_after_each_packet() {
        let now = Instant::now();
        let mut pacer = Pacer::new(now, Burst { packets: 1, rate_min: Bitrate::from_kbps(9_600) });
        assert_eq!(pacer.budget(now), Ok(0));
        pacer.on_sent(now, FULL_PACKET);
        assert!(pacer.budget(now).is_err());
        assert_eq!(pacer.budget(now + Duration::from_millis(2)), Ok(0));
    }

    #[test]
    fn the_pace_and_the_burst_follow_the_estimate() {
        let start = Instant::now();
        // Kilobits per second of the estimate and of what is sent; packets of a burst, and its time in 0.1 ms.
        for (estimate, sent, packets, time) in
            [(960, 0, 10, 400), (100, 0, 4, 384), (100, 1_600, 10, 400), (9_600, 0, 16, 64)]
        {
            let mut pacer = Pacer::new(start, BURST);
            pacer.follow(Some(Bitrate::from_kbps(estimate)), Bitrate::from_kbps(sent));
            assert_eq!(rows(pacer, start), [(packets, time); 3], "{estimate} kbit/s");
        }
    }
}
