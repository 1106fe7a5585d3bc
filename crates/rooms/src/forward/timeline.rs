//! RTP timestamps of one down track: one row of them, whatever layer they come from.
//!
//! In: the publisher's timestamps, sender reports and arrival times. Out: timestamps that go on across a switch.
//! Cost: O(1); 32 bytes.
//! Source: RFC 3550 §5.1 (timestamps), §6.4.1 (sender reports tie them to a wall clock).

use std::time::Instant;

use super::SwitchClocks;
use crate::packet::{PacketMeta, SenderClock};

/// Sender clocks may disagree with arrival times by this much; what is over is a publisher's mistake.
const DISAGREEMENT_MAX_S: i64 = 3;

#[derive(Debug)]
pub(super) struct Timeline {
    clock_rate: u32,
    /// What is added to the publisher's timestamps; wraps.
    pub(super) shift: u32,
    /// The newest timestamp sent.
    pub(super) last: u32,
    /// When its packet came from the publisher, or was made here (`pad`); `None` before the first packet.
    pub(super) last_arrival: Option<Instant>,
}

impl Timeline {
    /// `first` is the timestamp that the first packet gets.
    pub(super) fn new(clock_rate: u32, first: u32) -> Self {
        Timeline { clock_rate, shift: 0, last: first, last_arrival: None }
    }

    /// The publisher's clock in units of the output.
    pub(super) fn map_clock(&self, clock: SenderClock) -> SenderClock {
        SenderClock { rtp: clock.rtp.wrapping_add(self.shift), ..clock }
    }

    /// Goes on at `packet`, as much later as it was sent later. `same_source` says that the layer is the one that was
    /// forwarded last, so that its timestamps may still count from the same start.
    pub(super) fn switch(&mut self, packet: &PacketMeta, same_source: bool, clocks: SwitchClocks) {
        let output = match self.last_arrival {
            None => self.last,
            Some(last_arrival) => {
                let by_arrival = self.ticks_since(last_arrival, packet.arrival);
                let by_clocks = match (same_source, clocks.from, clocks.to) {
                    (true, ..) => Some(packet.timestamp.wrapping_add(self.shift)),
                    (false, Some(from), Some(to)) => Some(self.translate(packet.timestamp, from, to)),
                    _ => None,
                };
                let elapsed = by_clocks.map(|output| i64::from(output.wrapping_sub(self.last) as i32));
                let disagreement_max = DISAGREEMENT_MAX_S * i64::from(self.clock_rate);
                let elapsed = elapsed.filter(|elapsed| elapsed.abs_diff(by_arrival) <= disagreement_max as u64);
                // Another frame has another timestamp, even where the new layer is a little behind the old.
                self.last.wrapping_add(elapsed.unwrap_or(by_arrival).max(1) as u32)
            }
        };
        self.shift = output.wrapping_sub(packet.timestamp);
    }

    /// The timestamp of a packet that is made now: as much later than the last one as time went by.
    pub(super) fn pad(&mut self, now: Instant) -> u32 {
        let elapsed = self.last_arrival.map_or(0, |at| self.ticks_since(at, now));
        (self.last, self.last_arrival) = (self.last.wrapping_add(elapsed as u32), Some(now));
        self.last
    }

    /// The output timestamp of a packet, which may be late.
    pub(super) fn forward(&mut self, packet: &PacketMeta) -> u32 {
        let output = packet.timestamp.wrapping_add(self.shift);
        if self.last_arrival.is_none() || output.wrapping_sub(self.last) as i32 > 0 {
            (self.last, self.last_arrival) = (output, Some(packet.arrival));
        }
        output
    }

    /// The other layer's timestamp as the output's, by way of the wall clock that both have.
    fn translate(&self, timestamp: u32, from: SenderClock, to: SenderClock) -> u32 {
        let since_from = (i128::from(to.ntp.wrapping_sub(from.ntp) as i64) * i128::from(self.clock_rate)) >> 32;
        let in_from = from.rtp.wrapping_add(since_from as u32).wrapping_add(timestamp.wrapping_sub(to.rtp));
        in_from.wrapping_add(self.shift)
    }

    /// Clock-rate units between two instants; negative when `to` is the earlier.
    fn ticks_since(&self, from: Instant, to: Instant) -> i64 {
        let ticks = |span: std::time::Duration| (span.as_nanos() * u128::from(self.clock_rate) / 1_000_000_000) as i64;
        match to.checked_duration_since(from) {
            Some(span) => ticks(span),
            None => -ticks(from.duration_since(to)),
        }
    }
}
