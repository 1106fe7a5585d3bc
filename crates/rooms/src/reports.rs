//! Sender reports towards viewers, and what their receiver reports tell: the round trip, and what of ours was lost.
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

/// What a peer's reports tell of one track. Cost: 32 bytes per down track.
///
/// What was lost before it came to us is a hole in our numbers, and the peer reports that as lost, too. But it says nothing
/// about the peer's path.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// The highest number that was reported, extended.
    highest: u64,
    /// Numbers up to it under which nothing was sent.
    holes: u64,
    /// Packets that were reported since losses were last told of, and what was lost of them.
    sent: u64,
    lost: u64,
}

/// Fewer packets are no share: with pauses in speech (DTX) two are sent in a second, and one of them would be the half
/// (`kLimitNumPackets` in send_side_bandwidth_estimation.cc).
const PACKETS_MIN: u64 = 20;

impl Losses {
    /// The first packet gets the number after `last`.
    pub fn new(last: u64) -> Self {
        Losses { highest: last, holes: 0, sent: 0, lost: 0 }
    }

    /// Takes a report on the packets up to `highest`. Among all that were sent there were so many `holes` since the beginning, of
    /// which `later` counts those after `highest`, as the peer says nothing of them yet. Returns the share that the
    /// path lost, in 256ths, once it is of enough packets.
    pub fn on_report(
        &mut self,
        highest: u64,
        fraction_lost: u8,
        holes: u64,
        later: impl FnOnce() -> Option<u64>,
    ) -> Option<u8> {
        let expected = highest.checked_sub(self.highest).filter(|expected| *expected > 0)?;
        let later = if holes == 0 { Some(0) } else { later() };
        // Where they cannot be counted, new ones may be before or after: then nothing is known of these packets.
        let Some(holes) =
            later.map(|later| holes.saturating_sub(later)).or(Some(holes).filter(|all| *all <= self.holes))
        else {
            self.highest = highest;
            return None;
        };
        // The peer has rounded down.
        let missing = expected.saturating_mul(fraction_lost.into()).div_ceil(256);
        let holes_since = holes.saturating_sub(self.holes).min(expected);
        (self.highest, self.holes) = (highest, holes);
        self.sent += expected - holes_since;
        self.lost += missing.saturating_sub(holes_since).min(expected - holes_since);
        if self.sent < PACKETS_MIN {
            return None;
        }
        let share = self.lost.saturating_mul(256) / self.sent;
        (self.sent, self.lost) = (0, 0);
        Some(u8::try_from(share).unwrap_or(u8::MAX))
    }
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

    #[test]
    fn a_share_is_of_what_was_sent_and_of_enough() {
        let mut losses = Losses::new(999);
        let mut report = |highest, holes, fraction_lost| losses.on_report(highest, fraction_lost, holes, || Some(0));
        assert_eq!(report(1_099, 0, 64), Some(64));
        assert_eq!(report(1_099, 0, 64), None, "nothing new");
        assert_eq!(report(1_000, 0, 64), None, "it came late");
        // All that is missing, was never sent; then half of it; then nothing is missing that was not sent.
        assert_eq!(report(1_199, 20, 51), Some(0));
        assert_eq!(report(1_299, 30, 51), Some(28));
        assert_eq!(report(1_399, 90, 0), Some(0));
        // What came late has filled holes.
        assert_eq!(report(1_499, 0, 128), Some(128));
        // Five times the half of two, and the half of ten.
        for count in 1..=5 {
            assert_eq!(report(1_499 + 2 * count, 0, 128), None);
        }
        assert_eq!(report(1_519, 0, 128), Some(128));
        // A peer that makes things up.
        assert_eq!(report(u64::MAX, u64::MAX, 255), None);
        assert_eq!(report(u64::MAX, 0, 255), None);
    }
}
