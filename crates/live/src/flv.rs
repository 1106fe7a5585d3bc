//! Flash Video: start points are tags with a key frame.
//!
//! The header is the file's, the last onMetaData, and the last configuration of each track. Without video each tag of
//! sound is a start point; so it is when video was promised and none came for five seconds.
//! Wrong lengths behind tags are not looked at: writers differ. A tag of a type that there is not ends the stream.
//! Source: Adobe Flash Video File Format Specification 10.1 annex E, Enhanced RTMP 2 (multitrack, ModEx).

use std::sync::Arc;
use std::time::Duration;

use crate::codecs;
use crate::reader::{Error, Event, Header, Start, Step, passed, whole};
use crate::{Format, HEADER_LEN_MAX};

/// Bytes before a tag's data, and behind it: the length of the tag.
const TAG_HEAD: usize = 11;
const TAG_TAIL: usize = 4;

/// Bytes of a tag's data that say what it is.
const LOOK: usize = 32;

/// Sound alone makes start points once it has gone on for so long.
const VIDEO_PATIENCE: Duration = Duration::from_secs(5);

const AUDIO: u8 = 8;
const VIDEO: u8 = 9;
const SCRIPT: u8 = 18;

#[derive(Debug, Default)]
pub(crate) struct Flv {
    /// Up to the first tag.
    head: Vec<u8>,
    parts: Vec<Part>,
    /// The file's header says that there is video, or there was some.
    has_video: bool,
    seen_video: bool,
    /// When sound began.
    sound_from: Option<Duration>,
}

/// A tag of the header.
#[derive(Debug)]
struct Part {
    tag_type: u8,
    track: u8,
    tag: Vec<u8>,
}

/// What a tag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Configuration of a track.
    Config {
        track: u8,
    },
    /// A newcomer may start; milliseconds from its decoding to its presentation.
    Entry {
        offset_ms: i32,
    },
    Other,
}

impl Flv {
    pub(crate) fn step(&mut self, at: u64, data: &[u8]) -> Result<Step, Error> {
        if self.head.is_empty() {
            return self.step_head(at, data);
        }
        if data.len() < TAG_HEAD {
            return Ok(Step::Need(TAG_HEAD));
        }
        let tag_type = data[0] & 0x1f;
        let data_len = u32::from_be_bytes([0, data[1], data[2], data[3]]) as usize;
        let time_ms = u32::from_be_bytes([data[7], data[4], data[5], data[6]]);
        let look = TAG_HEAD + data_len.min(LOOK);
        let len = TAG_HEAD + data_len + TAG_TAIL;
        if data.len() < look {
            return Ok(Step::Need(look));
        }
        let body = &data[TAG_HEAD..look];
        let kind = match tag_type {
            VIDEO => video(body),
            AUDIO => audio(body),
            // A string of ten bytes: the name of the event.
            SCRIPT if body.starts_with(b"\x02\0\x0aonMetaData") => Some(Kind::Config { track: 0 }),
            SCRIPT | 15 => Some(Kind::Other),
            _ => return Err(malformed(at, "a tag of unknown type")),
        };
        let kind = kind.unwrap_or(Kind::Other);
        if let Kind::Config { track } = kind {
            let Some(tag) = whole(at, data, len as u64, self.kept_len((tag_type, track)))? else {
                return Ok(Step::Need(len));
            };
            return Ok(Step::Take(len as u64, self.configure(tag_type, track, tag)));
        }
        let time = Duration::from_millis(time_ms.into());
        let start = match (tag_type, kind) {
            (VIDEO, Kind::Entry { offset_ms }) => {
                Some(Duration::from_millis(u64::from(time_ms).saturating_add_signed(offset_ms.into())))
            }
            (AUDIO, Kind::Entry { .. }) => {
                let from = *self.sound_from.get_or_insert(time);
                let is_alone = !self.has_video || time.saturating_sub(from) > VIDEO_PATIENCE;
                (is_alone && !self.seen_video).then_some(time)
            }
            _ => None,
        };
        self.seen_video |= tag_type == VIDEO;
        let start = start.map(|time| Event::Start(Start { at, time: Some(time) }));
        Ok(Step::Take(passed(at, len as u64)?, start))
    }

    /// Whether what comes begins with a tag.
    pub(crate) fn is_between(&self) -> bool {
        !self.head.is_empty()
    }

    fn step_head(&mut self, at: u64, data: &[u8]) -> Result<Step, Error> {
        let Some(fields) = data.first_chunk::<9>() else { return Ok(Step::Need(9)) };
        let offset = u32::from_be_bytes([fields[5], fields[6], fields[7], fields[8]]);
        if !fields.starts_with(b"FLV") || offset < 9 {
            return Err(malformed(at, "no FLV header"));
        }
        let len = u64::from(offset) + TAG_TAIL as u64;
        let Some(head) = whole(at, data, len, 0)? else { return Ok(Step::Need(len as usize)) };
        self.head = head.to_vec();
        self.has_video = fields[4] & 1 != 0;
        Ok(Step::Take(len, Some(self.header())))
    }

    /// Bytes of the header but for the part that is to be replaced.
    fn kept_len(&self, key: (u8, u8)) -> usize {
        let others = self.parts.iter().filter(|part| (part.tag_type, part.track) != key);
        self.head.len() + others.map(|part| part.tag.len()).sum::<usize>()
    }

    fn configure(&mut self, tag_type: u8, track: u8, tag: &[u8]) -> Option<Event> {
        self.has_video |= tag_type == VIDEO;
        let known = self.parts.iter_mut().find(|part| (part.tag_type, part.track) == (tag_type, track));
        match known {
            // Some senders repeat it; all but the time is the same.
            Some(part) if part.tag[TAG_HEAD..] == tag[TAG_HEAD..] => return None,
            Some(part) => part.tag = tag.to_vec(),
            None => self.parts.push(Part { tag_type, track, tag: tag.to_vec() }),
        }
        Some(self.header())
    }

    fn header(&self) -> Event {
        let mut bytes = self.head.clone();
        let (scripts, tracks): (Vec<&Part>, Vec<&Part>) = self.parts.iter().partition(|part| part.tag_type == SCRIPT);
        scripts.iter().chain(&tracks).for_each(|part| bytes.extend_from_slice(&part.tag));
        debug_assert!(bytes.len() <= HEADER_LEN_MAX);
        let codecs = tracks.iter().filter_map(|part| part.codec()).collect();
        Event::Header(Arc::new(Header { bytes, content_type: "video/x-flv", codecs, has_video: self.has_video }))
    }
}

impl Part {
    fn codec(&self) -> Option<String> {
        let body = &self.tag[TAG_HEAD..self.tag.len() - TAG_TAIL];
        match (self.tag_type, body) {
            (AUDIO, [first, 0, config @ ..]) if first >> 4 == 10 => codecs::aac(config),
            (AUDIO, [0x90, b'm', b'p', b'4', b'a', config @ ..]) => codecs::aac(config),
            (AUDIO, [0x90, b'O', b'p', b'u', b's', ..]) => Some("opus".to_owned()),
            (VIDEO, [0x17, 0, _, _, _, record @ ..]) => codecs::avc(record),
            (VIDEO, [0x1c, 0, _, _, _, record @ ..]) => codecs::hevc("hvc1", record),
            (VIDEO, [0x90, b'a', b'v', b'c', b'1', record @ ..]) => codecs::avc(record),
            (VIDEO, [0x90, b'h', b'v', b'c', b'1', record @ ..]) => codecs::hevc("hvc1", record),
            (VIDEO, [0x90, b'a', b'v', b'0', b'1', record @ ..]) => codecs::av1(record),
            (VIDEO, [0x90, b'v', b'p', b'0', b'9', record @ ..]) => codecs::vp9(record),
            _ => None,
        }
    }
}

/// What a video tag is, by the first bytes of its data. `None`: they are cut off.
fn video(body: &[u8]) -> Option<Kind> {
    let (&first, rest) = body.split_first()?;
    if first & 0x80 != 0 {
        return enhanced(first >> 4 & 7 == 1, first & 0x0f, rest, [0, 5], true);
    }
    let is_key = first >> 4 == 1;
    // AVC, and HEVC and AV1 as some wrote them before there was a standard.
    if !matches!(first & 0x0f, 7 | 12 | 13) {
        return Some(if is_key { Kind::Entry { offset_ms: 0 } } else { Kind::Other });
    }
    match *rest {
        [0, ..] => Some(Kind::Config { track: 0 }),
        [1, high, middle, low, ..] if is_key => Some(Kind::Entry { offset_ms: signed_24([high, middle, low]) }),
        _ => Some(Kind::Other),
    }
}

fn audio(body: &[u8]) -> Option<Kind> {
    let (&first, rest) = body.split_first()?;
    match first >> 4 {
        9 => enhanced(true, first & 0x0f, rest, [0, 4], false),
        10 if rest.first() == Some(&0) => Some(Kind::Config { track: 0 }),
        _ => Some(Kind::Entry { offset_ms: 0 }),
    }
}

/// Enhanced RTMP: modifiers, tracks, the codec's name. `configs` are the packet types of configurations.
fn enhanced(is_key: bool, packet_type: u8, body: &[u8], configs: [u8; 2], is_video: bool) -> Option<Kind> {
    let (mut packet_type, mut rest) = (packet_type, body);
    // ModEx: a length less one, as many bytes, and the next packet type.
    while packet_type == 7 {
        let mut len = usize::from(*rest.split_off_first()?) + 1;
        if len == 256 {
            len = usize::from(u16::from_be_bytes(*rest.split_off(..2)?.first_chunk()?)) + 1;
        }
        rest.split_off(..len)?;
        packet_type = rest.split_off_first()? & 0x0f;
    }
    let is_many = packet_type == if is_video { 6 } else { 5 };
    if is_many {
        packet_type = rest.split_off_first()? & 0x0f;
    }
    let codec = rest.split_off(..4)?;
    // With more than one track in a tag the first of them counts.
    let track = if is_many { *rest.split_off_first()? } else { 0 };
    if configs.contains(&packet_type) {
        return Some(Kind::Config { track });
    }
    if !is_key || track != 0 || !matches!(packet_type, 1 | 3) {
        return Some(Kind::Other);
    }
    // These two have a composition time; behind several tracks it stands behind a length.
    let has_offset = is_video && packet_type == 1 && !is_many && matches!(codec, b"avc1" | b"hvc1");
    let offset_ms = if has_offset { signed_24(*rest.first_chunk()?) } else { 0 };
    Some(Kind::Entry { offset_ms })
}

fn signed_24([high, middle, low]: [u8; 3]) -> i32 {
    i32::from_be_bytes([high, middle, low, 0]) >> 8
}

fn malformed(at: u64, what: &'static str) -> Error {
    Error::Malformed { format: Format::Flv, at, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn video_tags_are_told_by_their_first_bytes() {
        assert_eq!(video(&[0x17, 0, 0, 0, 0, 1]), Some(Kind::Config { track: 0 }));
        assert_eq!(video(&[0x17, 1, 0, 0, 80]), Some(Kind::Entry { offset_ms: 80 }));
        assert_eq!(video(&[0x17, 1, 0xff, 0xff, 0xff]), Some(Kind::Entry { offset_ms: -1 }));
        assert_eq!(video(&[0x27, 1, 0, 0, 80]), Some(Kind::Other));
        assert_eq!(video(&[0x17, 2, 0, 0, 0]), Some(Kind::Other), "end of the sequence");
        assert_eq!(video(&[0x12, 1]), Some(Kind::Entry { offset_ms: 0 }), "H.263");
        assert_eq!(video(b"\x90hvc1\x01"), Some(Kind::Config { track: 0 }));
        assert_eq!(video(b"\x91hvc1\0\0\x28"), Some(Kind::Entry { offset_ms: 40 }));
        assert_eq!(video(b"\x93hvc1"), Some(Kind::Entry { offset_ms: 0 }));
        assert_eq!(video(b"\xa1av01"), Some(Kind::Other));
        assert_eq!(video(b"\x96\x11hvc1\x01"), Some(Kind::Other), "a key frame of another track");
        assert_eq!(video(b"\x97\x02\0\0\x05\x01av01"), Some(Kind::Entry { offset_ms: 0 }), "behind a modifier");
        assert_eq!(video(b"\x91hv"), None);
    }

    #[test]
    fn sound_tags_are_told_by_their_first_bytes() {
        assert_eq!(audio(&[0xaf, 0, 0x12, 0x10]), Some(Kind::Config { track: 0 }));
        assert_eq!(audio(&[0xaf, 1]), Some(Kind::Entry { offset_ms: 0 }));
        assert_eq!(audio(&[0x2f]), Some(Kind::Entry { offset_ms: 0 }), "MP3");
        assert_eq!(audio(b"\x90Opus"), Some(Kind::Config { track: 0 }));
        assert_eq!(audio(b"\x95\x00Opus\x02"), Some(Kind::Config { track: 2 }));
        assert_eq!(audio(b"\x91Opus"), Some(Kind::Entry { offset_ms: 0 }));
    }
}
