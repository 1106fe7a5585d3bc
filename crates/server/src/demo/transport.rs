//! The clip as a transport stream: its packets in a loop, a picture's when it is due.
//!
//! In: the time. Out: packets, with counters and clocks that go on through the loops.
//! Cost: the clip stays in memory; each packet is copied once.
//! Source: ISO/IEC 13818-1 §2.4.3.3 (continuity counter), §2.4.3.5 (PCR), §2.4.3.7 (PTS, DTS).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use wire::ts::{PACKET_LEN, Packet, Pid, set_continuity, set_pcr, shift_timestamps};

const TS: &[u8] = include_bytes!("../../../../assets/demo.ts");

/// Ticks of 90 kHz of the clip.
const CLIP_TICKS: i64 = 900_000;

/// Ticks of 27 MHz in one of 90 kHz.
const FINE_TICKS: i64 = 300;

/// More than that behind, what was due is not caught up with.
const LATENESS_MAX: Duration = Duration::from_secs(1);

/// Where the clip stands that is being played.
#[derive(Clone, Debug)]
pub struct Transport {
    /// When the first picture was due. Moves when the player was left alone for long.
    start: Instant,
    /// How often it was played to its end.
    rounds: i64,
    /// Packets of this round that were sent.
    sent: usize,
    /// How many packets with a payload each PID had, modulo 16.
    counters: HashMap<Pid, u8>,
}

impl Transport {
    /// Plays the clip from its beginning.
    pub fn new(start: Instant) -> Self {
        Transport { start, rounds: 0, sent: 0, counters: HashMap::new() }
    }

    /// Appends the next picture's packets, and the sound between, if they are due. To be called until it returns false.
    pub fn poll(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let late = now.saturating_duration_since(self.next_at());
        if late > LATENESS_MAX {
            self.start += late;
        }
        if now < self.next_at() {
            return false;
        }
        // What stands before the clip's first reference goes with it.
        let mut has_reference = false;
        while let Some(packet) = packets().get(self.sent) {
            let is_next = has_reference && reference(packet).is_some();
            if is_next {
                return true;
            }
            has_reference |= reference(packet).is_some();
            self.write(packet, out);
            self.sent += 1;
        }
        (self.rounds, self.sent) = (self.rounds + 1, 0);
        true
    }

    /// When `poll` next has packets.
    pub fn next_at(&self) -> Instant {
        let ticks = |from: usize| packets()[from..].iter().find_map(reference).unwrap_or_default();
        let into = ticks(self.sent) - ticks(0) + self.rounds * CLIP_TICKS * FINE_TICKS;
        self.start + Duration::from_nanos(into.unsigned_abs() * 1_000 / 27)
    }

    fn write(&mut self, packet: &[u8; PACKET_LEN], out: &mut Vec<u8>) {
        let mut packet = *packet;
        let Ok(parsed) = Packet::parse(&packet) else { return };
        let (pid, pcr, has_payload) = (parsed.pid(), parsed.pcr(), parsed.has_payload());
        let payload_at = PACKET_LEN - parsed.payload().len();
        let starts_unit = parsed.payload_unit_start();
        let later = self.rounds * CLIP_TICKS;
        if let Some(pcr) = pcr {
            set_pcr(&mut packet, pcr.plus(later * FINE_TICKS));
        }
        if starts_unit {
            // Of a table there are none.
            shift_timestamps(&mut packet[payload_at..], later);
        }
        let counter = self.counters.entry(pid).or_default();
        if has_payload {
            *counter = counter.wrapping_add(1) & 0x0f;
        }
        set_continuity(&mut packet, *counter);
        out.extend_from_slice(&packet);
    }
}

fn packets() -> &'static [[u8; PACKET_LEN]] {
    TS.as_chunks().0
}

/// A packet's clock reference, in ticks of 27 MHz.
fn reference(packet: &[u8; PACKET_LEN]) -> Option<i64> {
    let pcr = Packet::parse(packet).ok()?.pcr()?;
    Some(pcr.ticks() as i64)
}

#[cfg(test)]
mod tests {
    use pump::monitor::{Monitor, Priorities};

    use super::*;

    #[test]
    fn pictures_come_when_they_are_due_and_nothing_breaks_at_a_seam() {
        let start = Instant::now();
        let (mut playing, mut monitor) = (Transport::new(start), Monitor::new(None));
        let mut out = Vec::new();
        for picture in 0..900_u64 {
            let due_ns = picture * 1_000_000_000 / 30;
            let due = playing.next_at();
            assert!((due - start).as_nanos().abs_diff(u128::from(due_ns)) < 1_000, "{picture}: {:?}", due - start);
            assert!(!playing.poll(due - Duration::from_nanos(1), &mut out), "{picture} is not due");
            assert!(playing.poll(due, &mut out), "{picture} is due");
            out.chunks(7 * PACKET_LEN).for_each(|datagram| monitor.handle_datagram(due_ns, datagram));
            out.clear();
        }
        let report = monitor.report();
        assert_eq!((report.references, report.lost, report.priorities), (900, 0, Priorities::default()));
        assert!(report.pcr_jitter_max_ns < 1_000, "{report:?}");
    }

    #[test]
    fn who_was_left_alone_goes_on_from_now_without_a_burst() {
        let start = Instant::now();
        let (mut playing, mut out) = (Transport::new(start), Vec::new());
        let late = start + Duration::from_secs(3_600);
        assert!(playing.poll(late, &mut out) && !playing.poll(late, &mut out));
        assert!(playing.next_at() > late);
    }
}
