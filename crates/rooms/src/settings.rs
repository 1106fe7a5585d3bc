//! What an operator may choose about rooms, and what the outside world hands in.

use std::time::{Duration, Instant};

use wire::Bitrate;

use crate::pacer::Burst;
use crate::packet::REPAIRED_FOR;

/// The limits and dials of one worker's rooms.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A session from which nothing authentic came for so long is removed.
    pub idle_timeout: Duration,
    /// At most one keyframe request per layer reaches a publisher in this time.
    pub keyframe_interval_min: Duration,
    /// A new viewer starts at a stored keyframe that is no older than this.
    pub keyframe_age_max: Duration,
    /// Bytes that one worker keeps of one layer's recent packets at most. Layers of rates at which that is less than two
    /// seconds have less to send again, and viewers fall out of them sooner.
    pub log_bytes_max: usize,
    /// What came of a frame waits so long for the rest of it, where there are several viewers. Zero: it waits for nothing.
    pub gather: Duration,
    /// Sound waits so long for the next picture, to go out behind it. Zero: it waits for nothing.
    pub gather_sound: Duration,
    /// Sound where no picture is to be expected soon waits so long for that of others that its listeners hear. Zero: it waits for
    /// nothing.
    pub gather_speakers: Duration,
    /// Pads the packets of a frame to one size, so that they go out in one GSO send.
    pub equal_size_padding: bool,
    /// How the packets of one viewer are paced.
    pub burst: Burst,
    /// The playout delay that viewers are told, as the header extension has it: two times of 12 bits, from and to, in 10 ms.
    /// `None`: what publishers say.
    pub playout_delay: Option<[u8; 3]>,
    /// Retransmissions may take this share of a viewer's rate.
    pub resend_share: f64,
    /// A viewer's picture is not sent where the path does not carry half of the least of it.
    pub pause: bool,
    /// The bandwidth estimate of a new viewer.
    pub estimate_start: Bitrate,
    /// The bandwidth estimate never exceeds this.
    pub estimate_max: Bitrate,
    /// Sessions on one worker at most; newcomers are refused.
    pub sessions_max: usize,
    /// Seed of the random numbers in here (first sequence numbers, timestamps). Must differ between processes.
    pub seed: u64,
    /// An instant and the NTP time (32.32 fixed-point seconds since 1900) at it, for sender reports.
    pub ntp_epoch: (Instant, u64),
}

impl Settings {
    /// The defaults, with the clock and the seed that the caller brings.
    pub fn new(seed: u64, ntp_epoch: (Instant, u64)) -> Self {
        Settings {
            idle_timeout: Duration::from_secs(30),
            keyframe_interval_min: Duration::from_millis(500),
            keyframe_age_max: Duration::from_millis(1_500),
            log_bytes_max: 16 << 20,
            gather: Duration::from_millis(5),
            gather_sound: Duration::from_millis(40),
            gather_speakers: Duration::from_millis(10),
            equal_size_padding: true,
            burst: Burst { packets: 16, rate_min: Bitrate::from_kbps(1_000) },
            playout_delay: None,
            resend_share: 0.5,
            pause: false,
            estimate_start: Bitrate::from_kbps(1_000),
            estimate_max: Bitrate::from_kbps(50_000),
            sessions_max: 20_000,
            seed,
            ntp_epoch,
        }
    }

    /// So much of a layer is kept. A viewer who is further behind goes on at a keyframe. Somewhat longer than newcomers start in
    /// the past.
    pub(crate) fn log_span(&self) -> Duration {
        REPAIRED_FOR.max(self.keyframe_age_max + Duration::from_millis(500))
    }
}
