//! Matroska and WebM: start points are clusters whose first picture is a key frame.
//!
//! The header goes from the EBML header to the last element before the first cluster, without what says where things are
//! in the file (SeekHead, Cues, Void), and with a segment of unknown size: whoever starts later sees less of it. Of several
//! video tracks the first counts; without one each cluster is a start point.
//! An EBML header in mid-stream begins a new one. Elements are known by their ids alone, which differ on all levels, so it
//! does not matter where those of unknown size end. Ids that are not known are passed over; one that cannot be ends the
//! stream.
//! Source: RFC 8794 (EBML), RFC 9559 (Matroska) §5.1 and §10 (blocks).

use std::sync::Arc;
use std::time::Duration;

use crate::reader::{Error, Event, Header, Start, Step, passed, whole};
use crate::{Format, codecs};

const EBML: u32 = 0x1a45_dfa3;
const SEGMENT: u32 = 0x1853_8067;
const SEEK_HEAD: u32 = 0x114d_9b74;
const INFO: u32 = 0x1549_a966;
const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_TYPE: u32 = 0x83;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CUES: u32 = 0x1c53_bb6b;
const CLUSTER: u32 = 0x1f43_b675;
const TIMESTAMP: u32 = 0xe7;
const SIMPLE_BLOCK: u32 = 0xa3;
const BLOCK_GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const REFERENCE_BLOCK: u32 = 0xfb;
const VOID: u32 = 0xec;

/// Bytes of a block's head at most: the track's number, a time, flags.
const BLOCK_HEAD: usize = 8 + 3;

#[derive(Debug, Default)]
pub(crate) struct Matroska {
    header: Vec<u8>,
    tracks: Option<Tracks>,
    /// The header was told.
    is_told: bool,
    /// Nanoseconds of a unit of time.
    scale: Option<u64>,
    /// The cluster in which no picture was seen yet.
    cluster: Option<Cluster>,
    group: Option<Group>,
    /// Where the last cluster began.
    boundary: u64,
}

#[derive(Debug, Default)]
struct Tracks {
    /// The first one's number.
    video: Option<u64>,
    codecs: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    at: u64,
    time: u64,
}

/// A block that may depend on others, which is said behind it.
#[derive(Clone, Copy, Debug)]
struct Group {
    end: u64,
    /// Its time, when it is the one that tells.
    block: Option<i16>,
    depends: bool,
}

/// An element's first bytes.
struct Head {
    id: u32,
    /// Of what follows; `None`: unknown.
    size: Option<u64>,
    len: usize,
    /// Bytes of the id.
    id_len: usize,
}

impl Matroska {
    pub(crate) fn step(&mut self, at: u64, data: &[u8]) -> Result<Step, Error> {
        if let Some(group) = self.group.take_if(|group| at >= group.end) {
            let start = group.block.and_then(|time| self.tell(time, !group.depends));
            return Ok(Step::Take(0, start));
        }
        let head = match Head::parse(data) {
            Ok(head) => head,
            Err(Some(needed)) => return Ok(Step::Need(needed)),
            Err(None) => return Err(malformed(at, "no EBML element")),
        };
        if self.header.is_empty() && head.id != EBML {
            return Err(malformed(at, "no EBML header"));
        }
        let Some(size) = head.size else { return self.step_unknown(at, data, &head) };
        let len = size.saturating_add(head.len as u64);
        let rest_is = |len: u64| Ok(Step::Need(len as usize));
        match head.id {
            SEGMENT | CLUSTER => self.step_unknown(at, data, &head),
            EBML => {
                let Some(element) = whole(at, data, len, 0)? else { return rest_is(len) };
                *self = Matroska { header: element.to_vec(), ..Matroska::default() };
                Ok(Step::Take(len, None))
            }
            SEEK_HEAD | CUES | VOID => Ok(Step::Take(passed(at, len)?, None)),
            TIMESTAMP => {
                let Some(element) = whole(at, data, len, 0)? else { return rest_is(len) };
                let time = unsigned(&element[head.len..]).ok_or(malformed(at, "a timestamp of over 8 bytes"))?;
                self.cluster.iter_mut().for_each(|cluster| cluster.time = time);
                Ok(Step::Take(len, None))
            }
            SIMPLE_BLOCK | BLOCK => {
                let look = head.len + BLOCK_HEAD.min(usize::try_from(size).unwrap_or(usize::MAX));
                if data.len() < look {
                    return Ok(Step::Need(look));
                }
                let start = self.take_block(head.id, &data[head.len..look]);
                Ok(Step::Take(passed(at, len)?, start))
            }
            BLOCK_GROUP => {
                passed(at, len)?;
                self.group = Some(Group { end: at.saturating_add(len), block: None, depends: false });
                Ok(Step::Take(head.len as u64, None))
            }
            REFERENCE_BLOCK => {
                self.group.iter_mut().for_each(|group| group.depends = true);
                Ok(Step::Take(passed(at, len)?, None))
            }
            _ if self.is_told => Ok(Step::Take(passed(at, len)?, None)),
            _ => {
                let Some(element) = whole(at, data, len, self.header.len())? else { return rest_is(len) };
                self.header.extend_from_slice(element);
                let body = &element[head.len..];
                if head.id == INFO {
                    let scale = Elements(body).find(|(id, _)| *id == TIMESTAMP_SCALE);
                    self.scale = scale.and_then(|(_, scale)| unsigned(scale));
                } else if head.id == TRACKS {
                    self.tracks = Some(Tracks::parse(body));
                }
                Ok(Step::Take(len, None))
            }
        }
    }

    /// Where the last cluster began: the ones before are over.
    pub(crate) fn boundary(&self) -> u64 {
        self.boundary
    }

    /// Where the cluster begins of which nobody knows yet whether one may start with it.
    pub(crate) fn undecided(&self) -> Option<u64> {
        self.cluster.map(|cluster| cluster.at)
    }

    /// A segment or a cluster; no other element's end may be left open.
    fn step_unknown(&mut self, at: u64, data: &[u8], head: &Head) -> Result<Step, Error> {
        match head.id {
            SEGMENT if !self.is_told => {
                self.header.extend_from_slice(&data[..head.id_len]);
                // All bits set is the unknown size, in as many bytes as it had.
                let size_len = head.len - head.id_len;
                self.header.push((0xff_u16 >> (size_len - 1)) as u8);
                self.header.resize(self.header.len() + size_len - 1, 0xff);
            }
            SEGMENT => {}
            CLUSTER if !self.is_told => {
                let tracks = self.tracks.as_ref().ok_or(malformed(at, "a cluster before the tracks"))?;
                self.is_told = true;
                let has_video = tracks.video.is_some();
                let codecs = tracks.codecs.clone();
                let content_type = self.content_type(has_video);
                let bytes = self.header.clone();
                let header = Header { bytes, content_type, codecs, has_video };
                return Ok(Step::Take(0, Some(Event::Header(Arc::new(header)))));
            }
            CLUSTER => {
                self.cluster = Some(Cluster { at, time: 0 });
                self.boundary = at;
            }
            _ => return Err(malformed(at, "an element of unknown size")),
        }
        self.group = None;
        Ok(Step::Take(head.len as u64, None))
    }

    /// By the DocType, which stands near the front as a string.
    fn content_type(&self, has_video: bool) -> &'static str {
        let is_webm = self.header.windows(4).take(64).any(|bytes| bytes == b"webm");
        match (is_webm, has_video) {
            (true, true) => "video/webm",
            (true, false) => "audio/webm",
            (false, true) => "video/x-matroska",
            (false, false) => "audio/x-matroska",
        }
    }

    /// The head of a block: its track, its time from the cluster's, flags.
    fn take_block(&mut self, id: u32, head: &[u8]) -> Option<Event> {
        let (Some(track), len) = vint(head).ok()? else { return None };
        let &[high, low, flags, ..] = head.get(len..)? else { return None };
        let video = self.tracks.as_ref()?.video;
        if video.is_some_and(|video| video != track) {
            return None;
        }
        let time = i16::from_be_bytes([high, low]);
        match &mut self.group {
            Some(group) if id == BLOCK => group.block = Some(time),
            _ if id == SIMPLE_BLOCK => return self.tell(time, flags & 0x80 != 0),
            _ => {}
        }
        None
    }

    /// The first picture of a cluster says whether one may start with it.
    fn tell(&mut self, time: i16, stands_alone: bool) -> Option<Event> {
        let is_start = stands_alone || self.tracks.as_ref()?.video.is_none();
        let Cluster { at, time: from } = self.cluster.take().filter(|_| is_start)?;
        let units = from.saturating_add_signed(time.into());
        let time = Duration::from_nanos(units.saturating_mul(self.scale.unwrap_or(1_000_000)));
        Some(Event::Start(Start { at, time: Some(time) }))
    }
}

impl Tracks {
    fn parse(body: &[u8]) -> Tracks {
        let mut tracks = Tracks::default();
        for (_, entry) in Elements(body).filter(|(id, _)| *id == TRACK_ENTRY) {
            let field = |id| Elements(entry).find(|(found, _)| *found == id).map(|(_, body)| body);
            if field(TRACK_TYPE).and_then(unsigned) == Some(1) && tracks.video.is_none() {
                tracks.video = field(TRACK_NUMBER).and_then(unsigned);
            }
            let private = field(CODEC_PRIVATE).unwrap_or_default();
            tracks.codecs.extend(field(CODEC_ID).and_then(|id| codec(id, private)));
        }
        tracks
    }
}

fn codec(id: &[u8], private: &[u8]) -> Option<String> {
    match id {
        b"V_MPEG4/ISO/AVC" => codecs::avc(private),
        b"V_MPEGH/ISO/HEVC" => codecs::hevc("hvc1", private),
        b"V_AV1" => codecs::av1(private),
        b"V_VP9" => Some("vp9".to_owned()),
        b"V_VP8" => Some("vp8".to_owned()),
        b"A_OPUS" => Some("opus".to_owned()),
        b"A_VORBIS" => Some("vorbis".to_owned()),
        b"A_AAC" => codecs::aac(private),
        _ => None,
    }
}

impl Head {
    /// Reads id and size.
    ///
    /// # Errors
    /// How many bytes are needed, or `None` when there is no such id.
    fn parse(data: &[u8]) -> Result<Head, Option<usize>> {
        let first = *data.first().ok_or(Some(1))?;
        let id_len = first.leading_zeros() as usize + 1;
        if id_len > 4 {
            return Err(None);
        }
        let id = data.get(..id_len).ok_or(Some(id_len + 1))?.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
        let (size, size_len) = vint(&data[id_len..]).map_err(|needed| needed.map(|needed| id_len + needed))?;
        Ok(Head { id, size, len: id_len + size_len, id_len })
    }
}

/// A number of variable length, and the length; `None` when all its bits are set.
///
/// # Errors
/// How many bytes are needed, or `None` when the number is longer than eight.
fn vint(data: &[u8]) -> Result<(Option<u64>, usize), Option<usize>> {
    let first = *data.first().ok_or(Some(1))?;
    let len = first.leading_zeros() as usize + 1;
    if len > 8 {
        return Err(None);
    }
    let bytes = data.get(..len).ok_or(Some(len))?;
    let bits = bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let mask = (1_u64 << (7 * len)) - 1;
    Ok(((bits & mask != mask).then_some(bits & mask), len))
}

fn unsigned(body: &[u8]) -> Option<u64> {
    (body.len() <= 8).then(|| body.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Elements of known size behind each other; ends at the first that is none.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let head = Head::parse(self.0).ok()?;
        let body = self.0.split_off(head.len..)?;
        let size = usize::try_from(head.size?).ok()?;
        let (body, rest) = body.split_at_checked(size)?;
        self.0 = rest;
        Some((head.id, body))
    }
}

fn malformed(at: u64, what: &'static str) -> Error {
    Error::Malformed { format: Format::Matroska, at, what }
}
