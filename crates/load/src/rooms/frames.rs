//! A made-up video: frames of a given rate and size, cut into packets that say when they were sent.
//!
//! In: the clock, NACKs and keyframe requests. Out: RTP packets, VP8 by their payload descriptor (RFC 7741) so that a
//! server treats them as video. Every packet ends in a stamp, by which a viewer knows how long it took and whether it
//! is whole.

use std::time::{Duration, Instant};

use client::SEQ_FIRST;
use wire::{Bitrate, Seq};

/// What a packet ends in: a mark, when it was sent, and a running number from which its other bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds since the run's own zero.
    pub sent_ns: u64,
    pub number: u32,
}

const MARK: [u8; 4] = *b"mlrc";
const STAMP_LEN: usize = 16;

impl Stamp {
    fn write(&self, place: &mut [u8; STAMP_LEN]) {
        place[..4].copy_from_slice(&MARK);
        place[4..12].copy_from_slice(&self.sent_ns.to_be_bytes());
        place[12..].copy_from_slice(&self.number.to_be_bytes());
    }

    /// Reads the stamp at the end of a payload and checks the bytes before it. `None` for what is not ours, or damaged.
    pub fn read(payload: &[u8]) -> Option<Stamp> {
        let stamp = Stamp::read_end(payload)?;
        let body = payload.get(DESCRIPTOR_LEN..payload.len() - STAMP_LEN)?;
        body.iter().all(|byte| *byte == stamp.number as u8 | 1).then_some(stamp)
    }

    /// Reads the stamp at the end of a payload, whatever stands before it.
    pub fn read_end(payload: &[u8]) -> Option<Stamp> {
        let (before, number) = payload.split_last_chunk()?;
        let (before, sent_ns) = before.split_last_chunk()?;
        let stamp = Stamp { sent_ns: u64::from_be_bytes(*sent_ns), number: u32::from_be_bytes(*number) };
        before.ends_with(&MARK).then_some(stamp)
    }
}

/// VP8 payload descriptor with a 15-bit picture id, and the frame header's first byte.
const DESCRIPTOR_LEN: usize = 5;
/// Payload bytes of a packet at most.
pub const PAYLOAD_MAX: usize = 1_160;
/// A keyframe is so many times as large as another frame.
const KEYFRAME_FACTOR: usize = 4;
/// Packets that can be sent again.
const HISTORY: usize = 1_024;
const CLOCK_RATE: u32 = 90_000;

/// Sound as browsers send it: a packet of Opus each 20 ms (RFC 7587 §4.2), at 32 kbit/s.
const SOUND_INTERVAL: Duration = Duration::from_millis(20);
const SOUND_BYTES: usize = 80;
const SOUND_CLOCK_RATE: u32 = 48_000;

/// One packet of the video: all that is needed to write it, as often as wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// Extended sequence number.
    pub seq: u64,
    pub timestamp: u32,
    payload_len: usize,
    pub marker: bool,
    keyframe: bool,
    starts_frame: bool,
    picture_id: u16,
    /// When it leaves, since the run's own zero.
    pub sent_ns: u64,
}

/// The frames of one video, or of one simulcast layer, or of sound.
#[derive(Debug)]
pub struct Frames {
    interval: Duration,
    frame_bytes: usize,
    clock_rate: u32,
    /// Its last packet ends a frame, which the marker bit says; sound has none.
    has_marker: bool,
    /// When the next frame is due.
    pub next_at: Instant,
    seq: u64,
    frame: u32,
    /// The next frame is to be a keyframe.
    pub keyframe_wanted: bool,
    history: Box<[Made]>,
}

impl Frames {
    pub fn new(start: Instant, bitrate: Bitrate, frames_per_second: u32) -> Self {
        let frames_per_second = frames_per_second.max(1);
        Frames {
            interval: Duration::from_secs(1) / frames_per_second,
            frame_bytes: (bitrate.bps() / 8 / u64::from(frames_per_second)).max(64) as usize,
            clock_rate: CLOCK_RATE,
            has_marker: true,
            next_at: start,
            seq: SEQ_FIRST,
            frame: 0,
            keyframe_wanted: true,
            history: vec![Made::default(); HISTORY].into(),
        }
    }

    /// Sound: one packet for each frame, in which no picture begins.
    pub fn sound(start: Instant) -> Self {
        Frames {
            interval: SOUND_INTERVAL,
            frame_bytes: SOUND_BYTES,
            clock_rate: SOUND_CLOCK_RATE,
            has_marker: false,
            keyframe_wanted: false,
            ..Frames::new(start, Bitrate::ZERO, 1)
        }
    }

    /// Makes the packets of the frame that is due, which leave over `spread_ns` from `sent_ns` on, or until the next frame. A late
    /// caller skips no frame.
    pub fn make_frame(&mut self, sent_ns: u64, spread_ns: u64, mut each: impl FnMut(&Made)) {
        self.next_at += self.interval;
        let spread_ns = spread_ns.min(self.interval.as_nanos() as u64);
        let keyframe = std::mem::take(&mut self.keyframe_wanted);
        let bytes = self.frame_bytes * if keyframe { KEYFRAME_FACTOR } else { 1 };
        let count = bytes.div_ceil(PAYLOAD_MAX);
        for index in 0..count {
            // Spread evenly, as packetisers do: sizes differ by one byte at most.
            let payload_len = (bytes * (index + 1) / count - bytes * index / count).max(DESCRIPTOR_LEN + STAMP_LEN);
            let made = Made {
                seq: self.seq,
                timestamp: self.timestamp(),
                payload_len,
                marker: self.has_marker && index + 1 == count,
                keyframe,
                starts_frame: index == 0,
                picture_id: self.frame as u16 & 0x7fff,
                sent_ns: sent_ns + spread_ns * index as u64 / count as u64,
            };
            self.history[(self.seq % HISTORY as u64) as usize] = made;
            self.seq += 1;
            each(&made);
        }
        self.frame += 1;
    }

    /// The packet with `seq`, while it is remembered.
    pub fn sent(&self, seq: Seq) -> Option<Made> {
        let newest = self.seq.checked_sub(1)?;
        let back = u64::from((newest as u16).wrapping_sub(seq.0));
        let wanted = newest.checked_sub(back)?;
        let made = self.history[(wanted % HISTORY as u64) as usize];
        (made.seq == wanted).then_some(made)
    }

    /// The RTP timestamp of the instant `now`, by the frame that is next.
    pub fn timestamp_at(&self, now: Instant) -> u32 {
        let ahead = self.next_at.saturating_duration_since(now).as_secs_f64() * f64::from(self.clock_rate);
        self.timestamp().wrapping_sub(ahead as u32)
    }

    fn timestamp(&self) -> u32 {
        self.frame.wrapping_mul((self.interval.as_secs_f64() * f64::from(self.clock_rate)) as u32)
    }

    /// Writes a packet's payload into `buf`, and returns it.
    pub fn payload<'a>(&self, made: &Made, buf: &'a mut [u8; PAYLOAD_MAX]) -> &'a [u8] {
        let payload = &mut buf[..made.payload_len];
        let number = made.seq as u32;
        payload.fill(number as u8 | 1);
        let starts = if made.starts_frame { 0x10 } else { 0 };
        let [id_high, id_low] = made.picture_id.to_be_bytes();
        let frame_header = u8::from(!made.keyframe);
        payload[..DESCRIPTOR_LEN].copy_from_slice(&[0x80 | starts, 0x80, 0x80 | id_high, id_low, frame_header]);
        if let Some(end) = payload.last_chunk_mut() {
            Stamp { sent_ns: made.sent_ns, number }.write(end);
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use wire::codec::{self, Codec};

    use super::*;

    #[test]
    fn a_stamp_is_read_back_and_damage_is_seen() {
        let mut frames = Frames::new(Instant::now(), Bitrate::from_kbps(1_500), 30);
        let mut made = Vec::new();
        frames.make_frame(123, 0, |packet| made.push(*packet));
        frames.make_frame(456, 0, |packet| made.push(*packet));
        assert_eq!(made.len(), 22 + 6, "a keyframe and another frame");
        for packet in &made {
            let mut buf = [0; PAYLOAD_MAX];
            let payload = frames.payload(packet, &mut buf);
            let info = codec::inspect(Codec::Vp8, payload, None);
            assert_eq!(info.picture.unwrap().picture_id, Some(packet.picture_id));
            assert_eq!(info.keyframe && info.starts_frame, packet.keyframe && packet.starts_frame);
            assert_eq!(Stamp::read(payload).unwrap().sent_ns, packet.sent_ns);
            let mut damaged = payload.to_vec();
            damaged[40] ^= 4;
            assert_eq!(Stamp::read(&damaged), None);
            assert_eq!(Stamp::read_end(&damaged), Stamp::read(payload), "the end is whole");
        }
        assert_eq!(frames.sent(Seq(2)).unwrap().seq, 65_538);
        assert!(frames.sent(Seq(28)).is_none());
    }

    #[test]
    fn the_rate_is_kept() {
        let mut frames = Frames::new(Instant::now(), Bitrate::from_kbps(1_500), 30);
        frames.make_frame(0, 0, |_| ());
        let mut bytes = 0;
        for _ in 0..30 {
            frames.make_frame(0, 0, |packet| bytes += packet.payload_len);
        }
        assert_eq!(bytes * 8 / 10_000, 150);
    }

    #[test]
    fn sound_is_a_small_packet_each_20_ms_by_its_own_clock() {
        let mut frames = Frames::sound(Instant::now());
        let mut made = Vec::new();
        (0..3).for_each(|n| frames.make_frame(n, 0, |packet| made.push(*packet)));
        assert_eq!(made.iter().map(|packet| packet.timestamp).collect::<Vec<_>>(), [0, 960, 1_920]);
        assert!(made.iter().all(|packet| packet.payload_len == 80 && !packet.marker && !packet.keyframe));
    }

    #[test]
    fn packets_of_a_spread_frame_leave_evenly() {
        let mut frames = Frames::new(Instant::now(), Bitrate::from_kbps(1_500), 30);
        frames.make_frame(0, 0, |_| ());
        let mut times = Vec::new();
        frames.make_frame(1_000, 6_000, |packet| times.push(packet.sent_ns));
        assert_eq!(times, [1_000, 2_000, 3_000, 4_000, 5_000, 6_000]);
    }
}
