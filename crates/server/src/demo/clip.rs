//! Plays the built-in clip of VP8 and Opus as RTP payloads, over and over, without a seam in timestamps or picture ids.
//!
//! In: the time. Out: `MediaPacket`s, each at or after its due time, in the order in which they are due.
//! Cost: one copy of at most `PAYLOAD_MAX` bytes per packet, no allocation.
//! Source: RFC 7741 §4.2 (VP8 payload descriptor), RFC 7587 §4 (Opus: one packet per payload, 48 kHz), RFC 7845 §3 (Opus
//! in Ogg); IVF as in libvpx's `ivfdec.c`. `assets/make-demo.sh` makes the two files.

use std::io::Cursor;
use std::time::{Duration, Instant};

use wire::codec::MediaKind;

const IVF: &[u8] = include_bytes!("../../../../assets/demo.ivf");
const OGG: &[u8] = include_bytes!("../../../../assets/demo.ogg");

/// Largest payload, descriptor included: fits an Ethernet frame after RTP, SRTP, UDP, IPv6 and a tunnel's headers.
const PAYLOAD_MAX: usize = 1150;
const DESCRIPTOR_SIZE: usize = 4;
const FRAGMENT_MAX: usize = PAYLOAD_MAX - DESCRIPTOR_SIZE;
const VIDEO_CLOCK_HZ: u64 = 90_000;
const AUDIO_CLOCK_HZ: u64 = 48_000;
/// Units of the video clock in one of the clip's 30 frames per second.
const FRAME_TICKS: u64 = 3_000;
/// Samples of one Opus packet: 20 ms.
const AUDIO_PACKET_SAMPLES: u64 = 960;
/// A player that is polled later than this goes on from now, instead of sending all that it missed at once.
const LATENESS_MAX: Duration = Duration::from_secs(1);

/// The clip, taken apart: sound and picture last equally long, so that both begin anew together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clip {
    frames: Vec<&'static [u8]>,
    audio: Vec<Vec<u8>>,
}

impl Clip {
    fn built_in() -> Self {
        let mut ogg = ogg::PacketReader::new(Cursor::new(OGG));
        let packets = std::iter::from_fn(|| ogg.read_packet().expect("a whole file is built in"));
        // Two packets of headers come first.
        let mut audio: Vec<Vec<u8>> = packets.skip(2).map(|packet| packet.data).collect();
        let frames = ivf_frames(IVF);
        audio.truncate(
            frames.len() * (FRAME_TICKS * AUDIO_CLOCK_HZ / VIDEO_CLOCK_HZ) as usize / AUDIO_PACKET_SAMPLES as usize,
        );
        Clip { frames, audio }
    }
}

/// The frames of an IVF file, which has a header of 32 bytes, and 12 before each frame: its length (u32, little-endian)
/// and its time.
fn ivf_frames(file: &'static [u8]) -> Vec<&'static [u8]> {
    let mut rest = &file[32..];
    let mut frames = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (frame, others) = after[8..].split_at(u32::from_le_bytes(*len) as usize);
        frames.push(frame);
        rest = others;
    }
    frames
}

/// One RTP packet without header: the caller has the SSRC, the sequence number and the payload type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaPacket<'a> {
    /// Picture or sound.
    pub kind: MediaKind,
    /// Units of 1/90,000 s for video and 1/48,000 s for audio, from 0, wrapping.
    pub timestamp: u32,
    /// Set on the last packet of a video frame.
    pub marker: bool,
    /// What the RTP packet carries.
    pub payload: &'a [u8],
}

/// Where a clip stands that is being played. Counts on through the loops, so that nothing jumps.
#[derive(Clone, Debug)]
pub struct Player {
    clip: Clip,
    /// When frame 0 was due. Moves when the player was left alone for long.
    start: Instant,
    /// Frames that are wholly sent.
    frame_index: u64,
    /// Bytes of the frame that was begun.
    sent_bytes: usize,
    audio_index: u64,
    payload: [u8; PAYLOAD_MAX],
}

impl Player {
    /// Plays the clip from its beginning, the first packets being due at `start`.
    pub fn new(start: Instant) -> Self {
        Player {
            clip: Clip::built_in(),
            start,
            frame_index: 0,
            sent_bytes: 0,
            audio_index: 0,
            payload: [0; PAYLOAD_MAX],
        }
    }

    /// Returns the next packet if it is due. To be called until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<MediaPacket<'_>> {
        if self.sent_bytes == 0 {
            let late = now.saturating_duration_since(self.next_at());
            if late > LATENESS_MAX {
                self.start += late;
            }
        }
        if now < self.next_at() {
            return None;
        }
        Some(if self.video_at() <= self.audio_at() { self.video_packet() } else { self.audio_packet() })
    }

    /// When `poll` next has a packet.
    pub fn next_at(&self) -> Instant {
        self.video_at().min(self.audio_at())
    }

    /// The RTP timestamp of `kind` at `now`, for sender reports (RFC 3550 §6.4.1).
    pub fn timestamp_at(&self, kind: MediaKind, now: Instant) -> u32 {
        let clock_hz = match kind {
            MediaKind::Video => VIDEO_CLOCK_HZ,
            MediaKind::Audio => AUDIO_CLOCK_HZ,
        };
        let elapsed = now.saturating_duration_since(self.start);
        (elapsed.as_micros() * u128::from(clock_hz) / 1_000_000) as u32
    }

    fn video_at(&self) -> Instant {
        self.start + ticks(self.frame_index * FRAME_TICKS, VIDEO_CLOCK_HZ)
    }

    fn audio_at(&self) -> Instant {
        self.start + ticks(self.audio_index * AUDIO_PACKET_SAMPLES, AUDIO_CLOCK_HZ)
    }

    /// The next fragment of the frame that is due. All fragments of a frame have the same size, give or take one byte.
    fn video_packet(&mut self) -> MediaPacket<'_> {
        let frame = self.clip.frames[self.frame_index as usize % self.clip.frames.len()];
        let rest = frame.len() - self.sent_bytes;
        let size = rest.div_ceil(rest.div_ceil(FRAGMENT_MAX).max(1));
        let len = DESCRIPTOR_SIZE + size;
        self.payload[..DESCRIPTOR_SIZE].copy_from_slice(&descriptor(self.frame_index, self.sent_bytes == 0));
        self.payload[DESCRIPTOR_SIZE..len].copy_from_slice(&frame[self.sent_bytes..self.sent_bytes + size]);
        let timestamp = (self.frame_index * FRAME_TICKS) as u32;
        let marker = size == rest;
        if marker {
            self.frame_index += 1;
            self.sent_bytes = 0;
        } else {
            self.sent_bytes += size;
        }
        MediaPacket { kind: MediaKind::Video, timestamp, marker, payload: &self.payload[..len] }
    }

    fn audio_packet(&mut self) -> MediaPacket<'_> {
        let timestamp = (self.audio_index * AUDIO_PACKET_SAMPLES) as u32;
        let index = self.audio_index as usize % self.clip.audio.len();
        self.audio_index += 1;
        MediaPacket { kind: MediaKind::Audio, timestamp, marker: false, payload: &self.clip.audio[index] }
    }
}

// 0                 8         16          24
// ┌─┬─┬─┬─┬─┬─────┬─┬───────┬─┬─────────┬─────────┐   X: extended, S: starts a partition, PID: partition 0,
// │X│R│N│S│R│ PID │I│L T K R│M│ picture id, 15 bits│   I: picture id present, M: it has 15 bits.
// └─┴─┴─┴─┴─┴─────┴─┴───────┴─┴─────────┴─────────┘   RFC 7741 §4.2.
fn descriptor(frame_index: u64, starts_frame: bool) -> [u8; DESCRIPTOR_SIZE] {
    let [high, low] = (frame_index as u16 & 0x7fff).to_be_bytes();
    [0x80 | (u8::from(starts_frame) << 4), 0x80, 0x80 | high, low]
}

fn ticks(count: u64, clock_hz: u64) -> Duration {
    let (seconds, rest) = (count / clock_hz, count % clock_hz);
    Duration::new(seconds, (rest * 1_000_000_000 / clock_hz) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clip_lasts_ten_seconds_and_has_a_keyframe_each_second() {
        let clip = Clip::built_in();

        assert_eq!((clip.frames.len(), clip.audio.len()), (300, 500));
        assert_eq!(
            (&IVF[8..12], &IVF[16..24]),
            (&b"VP80"[..], &[30, 0, 0, 0, 1, 0, 0, 0][..]),
            "VP8, 30 frames per second"
        );
        for second in clip.frames.chunks(30) {
            assert_eq!(second[0][0] & 1, 0, "a keyframe's first bit (RFC 6386 §9.1)");
        }
    }

    #[test]
    fn two_loops_give_every_frame_and_every_audio_packet_on_time() {
        let clip = Clip::built_in();
        let start = Instant::now();
        let mut player = Player::new(start);
        let (mut frames, mut audio) = (0, 0);
        let mut frame: Vec<u8> = Vec::new();

        while player.next_at() < start + Duration::from_secs(20) {
            let at = player.next_at();
            assert_eq!(player.clone().poll(at - Duration::from_nanos(1)), None);
            let packet = player.poll(at).expect("it is due");
            assert!(packet.payload.len() <= PAYLOAD_MAX);
            if packet.kind == MediaKind::Audio {
                assert_eq!(packet.timestamp, audio * 960);
                assert_eq!(packet.payload, clip.audio[audio as usize % 500]);
                audio += 1;
                continue;
            }
            assert_eq!(packet.timestamp, frames * 3000);
            assert_eq!(packet.payload[..4], descriptor(u64::from(frames), frame.is_empty()));
            frame.extend(&packet.payload[4..]);
            if packet.marker {
                assert_eq!(std::mem::take(&mut frame), clip.frames[frames as usize % 300]);
                frames += 1;
            }
        }
        assert_eq!((frames, audio), (600, 1000));
    }

    #[test]
    fn fragments_of_a_frame_differ_by_at_most_one_byte() {
        let start = Instant::now();
        let mut player = Player::new(start);
        let mut sizes = Vec::new();

        while let Some(packet) = player.poll(start) {
            if packet.kind == MediaKind::Video {
                sizes.push(packet.payload.len());
            }
        }

        let (smallest, largest) = (sizes.iter().min().copied(), sizes.iter().max().copied());
        assert!(sizes.len() > 10, "the first frame is a keyframe");
        assert!(largest <= smallest.map(|size| size + 1), "{sizes:?}");
    }

    #[test]
    fn picture_id_has_15_bits_and_wraps() {
        assert_eq!(descriptor(0x7fff, true), [0x90, 0x80, 0xff, 0xff]);
        assert_eq!(descriptor(0x8000, false), [0x80, 0x80, 0x80, 0x00]);
    }

    #[test]
    fn player_that_was_left_alone_goes_on_from_now_without_a_burst() {
        let start = Instant::now();
        let mut player = Player::new(start);
        let late = start + Duration::from_secs(3600);

        let mut sent = 0;
        while let Some(packet) = player.poll(late) {
            sent += usize::from(packet.marker);
        }

        assert_eq!(sent, 1);
        assert_eq!(player.timestamp_at(MediaKind::Video, late), 0);
        assert!(player.next_at() > late);
    }
}
