//! Sender reports towards viewers, and the round trip that comes back in their receiver reports.
//!
//! All times are NTP timestamps on our own clock: 32.32 fixed-point seconds since 1900 (RFC 3550 §4).

use std::time::{Duration, Instant};

use wire::rtcp::{ReportBlock, SenderInfo};

use crate::packet::SenderClock;

/// Round trips beyond this come from a confused peer.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(10);

/// The NTP time of `now`, by a known pair of both.
pub fn ntp_time(now: Instant, (at, ntp): (Instant, u64)) -> u64 {
    let since = now.saturating_duration_since(at);
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    ntp.wrapping_add((since.as_secs() << 32) + fraction)
}

/// What a report sent now says about a stream whose clock stood at `clock`.
pub fn sender_info(
    now: Instant,
    ntp_epoch: (Instant, u64),
    clock: SenderClock,
    clock_rate: u32,
    ssrc: u32,
    (packet_count, byte_count): (u32, u32),
) -> SenderInfo {
    let ntp = ntp_time(now, ntp_epoch);
    let elapsed = ntp.wrapping_sub(clock.ntp) as i64;
    let units = (i128::from(elapsed) * i128::from(clock_rate)) >> 32;
    SenderInfo { ssrc, ntp, rtp_timestamp: clock.rtp.wrapping_add(units as u32), packet_count, byte_count }
}

/// The round trip that a report block tells of (RFC 3550 §6.4.1, figure 2); `None` before the peer had a report of ours.
pub fn round_trip(now: Instant, ntp_epoch: (Instant, u64), block: &ReportBlock) -> Option<Duration> {
    if block.last_sr == 0 {
        return None;
    }
    let now = (ntp_time(now, ntp_epoch) >> 16) as u32;
    let trip = now.wrapping_sub(block.last_sr).wrapping_sub(block.delay_since_last_sr);
    // A clock that stands between two ticks can make it slightly negative.
    let trip = if trip > u32::MAX - 0x1_0000 { 0 } else { trip };
    let trip = Duration::from_nanos((u64::from(trip) * 1_000_000_000) >> 16);
    (trip <= ROUND_TRIP_MAX).then_some(trip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_trip_is_what_the_peer_did_not_wait() {
        let start = Instant::now();
        let epoch = (start, 100 << 32);
        let block = ReportBlock {
            last_sr: (ntp_time(start, epoch) >> 16) as u32,
            delay_since_last_sr: 1 << 15,
            ..ReportBlock::default()
        };
        let trip = round_trip(start + Duration::from_millis(540), epoch, &block).unwrap();
        assert!((39..=41).contains(&trip.as_millis()), "{trip:?}");
        assert_eq!(round_trip(start + Duration::from_secs(60), epoch, &block), None);
        assert_eq!(round_trip(start, epoch, &ReportBlock::default()), None);
    }

    #[test]
    fn a_report_counts_on_from_the_publishers_clock() {
        let start = Instant::now();
        let epoch = (start, 100 << 32);
        let clock = SenderClock { ntp: 100 << 32, rtp: u32::MAX };
        let info = sender_info(start + Duration::from_millis(500), epoch, clock, 90_000, 7, (1, 2));
        assert_eq!((info.rtp_timestamp, info.ntp), (44_999, (100 << 32) + (1 << 31)));
    }
}
