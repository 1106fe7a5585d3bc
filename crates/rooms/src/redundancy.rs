//! How many of the packets before it go with each packet of a down track once more (RED), and such a payload.
//!
//! In: the loss that the peer's reports tell of; the log, in which lies what was sent before. Out: a payload for one viewer.
//! Nothing is kept for it: who loses nothing costs nothing, and who does one more copy of a few hundred bytes per packet.
//! Source: RFC 2198.

use std::time::{Duration, Instant};

use wire::Bitrate;
use wire::codec::red::{self, BLOCK_LEN_MAX, Block, OFFSET_MAX};

use crate::log::{Log, Logged};

/// Packets that go with each once more at most.
const BLOCKS_MAX: usize = 2;

/// So long after reports have told of loss less is repeated.
const HOLD: Duration = Duration::from_secs(10);

/// The largest payload, in bytes: with all headers it passes wherever 1,280 bytes do. Older packets are left out for it.
const PAYLOAD_MAX: usize = 1_100;

/// How many packets one down track repeats in each.
#[derive(Clone, Copy, Debug)]
pub struct Redundancy {
    /// In any case.
    least: u8,
    /// By the loss.
    needed: u8,
    /// When reports last told of so much loss.
    needed_at: Instant,
}

impl Redundancy {
    /// No loss was told of. `is_preferred`: one packet is repeated in any case.
    pub fn new(now: Instant, is_preferred: bool) -> Self {
        let least = u8::from(is_preferred);
        Redundancy { least, needed: least, needed_at: now }
    }

    /// Takes the share of its packets that the peer lost, in 256ths.
    pub fn on_report(&mut self, now: Instant, fraction_lost: u8) {
        let needed = needed(fraction_lost).max(self.least);
        if needed >= self.needed || now.saturating_duration_since(self.needed_at) >= HOLD {
            self.needed = needed;
            self.needed_at = now;
        }
    }

    /// How many packets to repeat where the track alone takes `rate`, and the path is known to carry `carried`: what fills a
    /// queue helps nobody. Unless `is_held`, one is tried beyond that: what is never sent is never known to fit, and a path is
    /// known to carry little more than what arrives.
    pub fn blocks(&self, rate: Bitrate, carried: Option<Bitrate>, is_held: bool) -> u8 {
        let times = carried.map_or(u64::MAX, |carried| carried.bps() / rate.bps().max(1));
        let fit = u8::try_from(times.saturating_sub(1)).unwrap_or(u8::MAX);
        fit.saturating_add(u8::from(!is_held)).min(self.needed)
    }
}

/// As many as it takes for less than one packet in a hundred to be lost with all its repetitions, where loss is random.
fn needed(fraction_lost: u8) -> u8 {
    match fraction_lost {
        // A hundredth.
        0..=2 => 0,
        // A tenth.
        3..=25 => 1,
        _ => BLOCKS_MAX as u8,
    }
}

/// Writes the packet at `position` and, before it, the `count` packets before it, as far as they follow each other and fit.
/// Returns the payload's length; `None` when there is no room.
pub fn write(
    buf: &mut [u8],
    log: &Log,
    (position, logged): (u64, &Logged<'_>),
    payload_type: u8,
    count: u8,
) -> Option<usize> {
    let mut blocks = [Block::default(); BLOCKS_MAX];
    let (mut first, mut len) = (BLOCKS_MAX, logged.payload.len());
    for back in 1..=u64::from(count) {
        let before = position.checked_sub(back).filter(|at| *at >= log.start()).and_then(|at| log.at(at));
        // RED names no numbers: the last block is the packet right before, and so on.
        let Some(before) = before.filter(|before| before.meta.seq + back == logged.meta.seq) else { break };
        let offset = logged.meta.timestamp.wrapping_sub(before.meta.timestamp);
        len += before.payload.len();
        let fits = (1..=OFFSET_MAX).contains(&offset) && (1..=BLOCK_LEN_MAX).contains(&before.payload.len());
        if !fits || len > PAYLOAD_MAX || first == 0 {
            break;
        }
        first -= 1;
        blocks[first] = Block { payload_type, offset, payload: before.payload };
    }
    red::write(buf, &blocks[first..], payload_type, logged.payload)
}

#[cfg(test)]
mod tests {
    use wire::codec::PayloadInfo;
    use wire::codec::red::Red;

    use super::*;
    use crate::log::LogSize;
    use crate::packet::PacketMeta;

    #[test]
    fn more_is_repeated_at_once_and_less_after_ten_quiet_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (is_preferred, expected) in [(false, [0, 1, 2, 2, 2, 1, 0]), (true, [1, 1, 2, 2, 2, 1, 1])] {
            let mut redundancy = Redundancy::new(start, is_preferred);
            assert_eq!(redundancy.needed, u8::from(is_preferred));
            let reports = [(0, 2), (1, 3), (2, 26), (3, 0), (11, 9), (12, 9), (22, 0)];
            let repeated = reports.map(|(seconds, fraction_lost)| {
                redundancy.on_report(at(seconds), fraction_lost);
                redundancy.blocks(Bitrate::from_kbps(70), None, false)
            });
            assert_eq!(repeated, expected);
        }
    }

    #[test]
    fn no_more_is_repeated_than_the_path_carries() {
        let mut redundancy = Redundancy::new(Instant::now(), true);
        redundancy.on_report(Instant::now(), 60);
        let blocks = [0, 69, 139, 140, 209, 210, 9_000]
            .map(|kbps| redundancy.blocks(Bitrate::from_kbps(70), Some(Bitrate::from_kbps(kbps)), true));
        assert_eq!(blocks, [0, 0, 0, 1, 1, 2, 2]);
        let carried = Some(Bitrate::from_kbps(9));
        assert_eq!(redundancy.blocks(Bitrate::ZERO, carried, true), 2, "nothing was sent yet");
        assert_eq!(redundancy.blocks(Bitrate::from_kbps(70), carried, false), 1, "it is tried");
        let tried = [75, 160, 230, 9_000].map(|kbps| {
            let carried = Some(Bitrate::from_kbps(kbps));
            redundancy.blocks(Bitrate::from_kbps(70), carried, false)
        });
        assert_eq!(
            tried,
            [1, 2, 2, 2],
            "one more than fits, as what is known to be carried is not much more than what is sent"
        );
    }

    /// The redundant blocks of the last packet of a log with such packets: number, timestamp and length.
    fn repeated(packets: &[(u64, u32, usize)]) -> Vec<(u32, usize)> {
        let mut log = Log::new(LogSize { span: Duration::from_secs(2), bytes_max: 1 << 20 });
        for (seq, timestamp, len) in packets {
            let meta = PacketMeta {
                seq: 65_536 + seq,
                timestamp: *timestamp,
                arrival: Instant::now(),
                marker: false,
                payload: PayloadInfo::default(),
            };
            log.push(&meta, &[], &vec![*seq as u8; *len]);
        }
        let last = log.head() - 1;
        let mut buf = [0; 1_500];
        let len = write(&mut buf, &log, (last, &log.at(last).unwrap()), 111, 2).unwrap();
        let red = Red::parse(&buf[..len]).unwrap();
        assert_eq!(red.primary, log.at(last).unwrap().payload);
        red.redundant().map(|block| (block.offset, block.payload.len())).collect()
    }

    #[test]
    fn what_was_sent_right_before_is_repeated_as_far_as_it_fits() {
        assert_eq!(repeated(&[(1, 960, 80), (2, 1_920, 90), (3, 2_880, 100)]), [(1_920, 80), (960, 90)]);
        assert_eq!(repeated(&[(3, 2_880, 100)]), []);
        // The one before is missing, or came out of order.
        assert_eq!(repeated(&[(1, 960, 80), (3, 2_880, 100)]), []);
        assert_eq!(repeated(&[(1, 960, 80), (3, 2_880, 100), (2, 1_920, 90)]), []);
        // Silence before it that is longer than 14 bits can say.
        assert_eq!(repeated(&[(1, 960, 80), (2, 960 + 19_200, 2), (3, 960 + 20_160, 100)]), [(960, 2)]);
        // Too long, and padding alone.
        assert_eq!(repeated(&[(1, 960, 500), (2, 1_920, 500), (3, 2_880, 500)]), [(960, 500)]);
        assert_eq!(repeated(&[(2, 1_920, 1_024), (3, 2_880, 10)]), []);
        assert_eq!(repeated(&[(1, 960, 80), (2, 1_920, 0), (3, 2_880, 100)]), []);
        // Timestamps wrap.
        assert_eq!(repeated(&[(1, 960_u32.wrapping_neg(), 7), (2, 0, 8)]), [(960, 7)]);
    }
}
