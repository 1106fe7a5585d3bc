//! Fragmented MP4: start points are fragments whose first picture is a sync sample.
//!
//! The header is `ftyp` and `moov`; what belongs to a fragment and stands before it (`styp`, `sidx`, `emsg`, `prft`) is
//! sent with it. Of several video tracks the first counts; a fragment without it is no start point, unless there is none.
//! A `ftyp` in mid-stream begins a new header. Times are those of the media: an edit list, which shifts all by the same,
//! is not looked at. A box whose type is no text ends the stream.
//! Source: ISO/IEC 14496-12 §4.2 (boxes), §8.3 (tracks), §8.8 (fragments).

use std::sync::Arc;
use std::time::Duration;

use crate::reader::{Error, Event, Header, Start, Step, passed, whole};
use crate::{Format, codecs};

/// sample_is_non_sync_sample (§8.8.3.1).
const NON_SYNC: u32 = 0x1_0000;

#[derive(Debug, Default)]
pub(crate) struct Mp4 {
    ftyp: Vec<u8>,
    movie: Option<Movie>,
    /// Where the boxes before a fragment began.
    fragment_at: Option<u64>,
    /// A fragment's `moof` came, and not yet its data.
    is_open: bool,
}

#[derive(Debug)]
struct Movie {
    tracks: Vec<Track>,
    /// Place of the one that start points are in.
    lead: usize,
    has_video: bool,
}

#[derive(Debug)]
struct Track {
    id: u32,
    /// Units in a second.
    timescale: u32,
    is_video: bool,
    codec: Option<String>,
    default_flags: u32,
}

impl Mp4 {
    pub(crate) fn step(&mut self, at: u64, data: &[u8]) -> Result<Step, Error> {
        let Some(head) = data.first_chunk::<8>() else { return Ok(Step::Need(8)) };
        let [a, b, c, d, kind @ ..] = *head;
        let (len, head_len) = match u32::from_be_bytes([a, b, c, d]) {
            1 => match data.get(8..).and_then(<[u8]>::first_chunk) {
                Some(len) => (u64::from_be_bytes(*len), 16),
                None => return Ok(Step::Need(16)),
            },
            len => (u64::from(len), 8),
        };
        if len < head_len as u64 || !kind.iter().all(|byte| (0x20..0x7f).contains(byte)) {
            return Err(malformed(at, "no box"));
        }
        match &kind {
            b"ftyp" | b"moov" | b"moof" => {
                let kept = if kind == *b"moov" { self.ftyp.len() } else { 0 };
                let Some(element) = whole(at, data, len, kept)? else { return Ok(Step::Need(len as usize)) };
                let event = match &kind {
                    b"ftyp" => {
                        *self = Mp4 { ftyp: element.to_vec(), ..Mp4::default() };
                        None
                    }
                    b"moov" => Some(self.take_moov(at, element, head_len)?),
                    _ => self.take_moof(at, &element[head_len..])?,
                };
                Ok(Step::Take(len, event))
            }
            b"styp" | b"sidx" | b"emsg" | b"prft" => {
                self.fragment_at.get_or_insert(at);
                Ok(Step::Take(passed(at, len)?, None))
            }
            b"mdat" if self.movie.is_none() => Err(Error::NotFragmented),
            b"mdat" => {
                (self.fragment_at, self.is_open) = (None, false);
                Ok(Step::Take(passed(at, len)?, None))
            }
            _ => Ok(Step::Take(passed(at, len)?, None)),
        }
    }

    /// Whether what comes is no part of the fragment before.
    pub(crate) fn is_between(&self) -> bool {
        self.movie.is_some() && self.fragment_at.is_none() && !self.is_open
    }

    /// Where the fragment begins whose `moof` is still to come.
    pub(crate) fn undecided(&self) -> Option<u64> {
        self.fragment_at
    }

    fn take_moov(&mut self, at: u64, moov: &[u8], head_len: usize) -> Result<Event, Error> {
        let body = &moov[head_len..];
        let mvex = child(body, b"mvex").ok_or(Error::NotFragmented)?;
        let mut tracks: Vec<Track> = children(body, b"trak").filter_map(Track::parse).collect();
        for trex in children(mvex, b"trex") {
            let (Some(id), Some(flags)) = (number(trex, 4), number(trex, 20)) else { continue };
            tracks.iter_mut().filter(|track| track.id == id).for_each(|track| track.default_flags = flags);
        }
        if tracks.is_empty() {
            return Err(malformed(at, "no track"));
        }
        let video = tracks.iter().position(|track| track.is_video);
        let has_video = video.is_some();
        let content_type = if has_video { "video/mp4" } else { "audio/mp4" };
        let codecs = tracks.iter().filter_map(|track| track.codec.clone()).collect();
        self.movie = Some(Movie { tracks, lead: video.unwrap_or(0), has_video });
        let bytes = [&self.ftyp[..], moov].concat();
        Ok(Event::Header(Arc::new(Header { bytes, content_type, codecs, has_video })))
    }

    fn take_moof(&mut self, at: u64, moof: &[u8]) -> Result<Option<Event>, Error> {
        let from = self.fragment_at.take().unwrap_or(at);
        self.is_open = true;
        let movie = self.movie.as_ref().ok_or(malformed(at, "a fragment before the tracks"))?;
        let track = &movie.tracks[movie.lead];
        let fragment = children(moof, b"traf").find_map(|traf| Fragment::parse(traf, track));
        let start = fragment.filter(|fragment| fragment.is_sync || !movie.has_video);
        Ok(start.map(|fragment| Event::Start(Start { at: from, time: fragment.time(track.timescale) })))
    }
}

impl Track {
    fn parse(trak: &[u8]) -> Option<Track> {
        let tkhd = child(trak, b"tkhd")?;
        // Behind version, flags and two times, of which version 1 has longer ones.
        let id = number(tkhd, if *tkhd.first()? == 1 { 20 } else { 12 })?;
        let mdia = child(trak, b"mdia")?;
        let mdhd = child(mdia, b"mdhd")?;
        let timescale = number(mdhd, if *mdhd.first()? == 1 { 20 } else { 12 })?;
        let is_video = child(mdia, b"hdlr")?.get(8..12)? == b"vide";
        let codec = || {
            let stsd = child(child(child(mdia, b"minf")?, b"stbl")?, b"stsd")?;
            let (kind, entry) = Boxes(stsd.get(8..)?).next()?;
            codec(kind, entry)
        };
        Some(Track { id, timescale, is_video, codec: codec(), default_flags: 0 })
    }
}

/// By a sample entry: its fields, of which pictures have 78 bytes and sound 28, and boxes behind them.
fn codec(kind: [u8; 4], entry: &[u8]) -> Option<String> {
    let config = |kind| child(entry.get(78..)?, kind);
    match &kind {
        b"avc1" | b"avc3" => codecs::avc(config(b"avcC")?),
        b"hvc1" => codecs::hevc("hvc1", config(b"hvcC")?),
        b"hev1" => codecs::hevc("hev1", config(b"hvcC")?),
        b"av01" => codecs::av1(config(b"av1C")?),
        b"vp09" => codecs::vp9(config(b"vpcC")?),
        b"Opus" => Some("opus".to_owned()),
        b"fLaC" => Some("flac".to_owned()),
        b"ac-3" => Some("ac-3".to_owned()),
        b"ec-3" => Some("ec-3".to_owned()),
        b"mp4a" => {
            let descriptors = child(entry.get(28..)?, b"esds")?.get(4..)?;
            codecs::aac(audio_config(descriptors)?)
        }
        _ => None,
    }
}

/// The DecoderSpecificInfo of an MPEG-4 audio stream (ISO/IEC 14496-1 §7.2.6): descriptor 5 in 4 in 3.
fn audio_config(mut rest: &[u8]) -> Option<&[u8]> {
    for (tag, fields_len) in [(3, 3), (4, 13), (5, 0)] {
        if *rest.split_off_first()? != tag {
            return None;
        }
        // The length: seven bits a byte, at most four of them.
        for _ in 0..4 {
            if rest.split_off_first()? & 0x80 == 0 {
                break;
            }
        }
        rest = rest.get(fields_len..)?;
    }
    Some(rest)
}

/// What the first sample of a track in a fragment is.
struct Fragment {
    is_sync: bool,
    decode_time: Option<u64>,
    /// From its decoding to its presentation.
    offset: i32,
}

impl Fragment {
    /// `None` when it is another track's, or empty.
    fn parse(traf: &[u8], track: &Track) -> Option<Fragment> {
        let tfhd = child(traf, b"tfhd")?;
        let flags = number(tfhd, 0)?;
        if number(tfhd, 4)? != track.id {
            return None;
        }
        // base_data_offset, sample_description_index, default duration, default size stand before the default flags.
        let before = [(0x1, 8), (0x2, 4), (0x8, 4), (0x10, 4)];
        let at = 8 + before.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, len)| len).sum::<usize>();
        let default = if flags & 0x20 != 0 { number(tfhd, at)? } else { track.default_flags };
        let tfdt = child(traf, b"tfdt");
        let decode_time = tfdt.and_then(|tfdt| match tfdt.first()? {
            1 => Some(u64::from_be_bytes(*tfdt.get(4..)?.first_chunk()?)),
            _ => number(tfdt, 4).map(u64::from),
        });
        let trun = children(traf, b"trun").find(|trun| number(trun, 4).is_some_and(|count| count > 0))?;
        let flags = number(trun, 0)?;
        let first_at = 8 + if flags & 0x1 != 0 { 4 } else { 0 };
        let sample_at = first_at + if flags & 0x4 != 0 { 4 } else { 0 };
        // Duration, size, flags, composition time offset of the first sample.
        let field = |flag: u32| {
            let before = [0x100, 0x200, 0x400].iter().filter(|other| **other < flag && flags & **other != 0).count();
            (flags & flag != 0).then(|| number(trun, sample_at + 4 * before)).flatten()
        };
        let first_flags = if flags & 0x4 != 0 { number(trun, first_at)? } else { field(0x400).unwrap_or(default) };
        Some(Fragment { is_sync: first_flags & NON_SYNC == 0, decode_time, offset: field(0x800).unwrap_or(0) as i32 })
    }

    fn time(&self, timescale: u32) -> Option<Duration> {
        let (units, scale) = (self.decode_time?.saturating_add_signed(self.offset.into()), u64::from(timescale));
        let nanos = (units % scale.max(1)) * 1_000_000_000 / scale.max(1);
        (scale > 0).then(|| Duration::from_secs(units / scale) + Duration::from_nanos(nanos))
    }
}

/// The 32 bits at an offset.
fn number(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*data.get(at..)?.first_chunk()?))
}

fn child<'a>(body: &'a [u8], kind: &'static [u8; 4]) -> Option<&'a [u8]> {
    children(body, kind).next()
}

fn children<'a>(body: &'a [u8], kind: &'static [u8; 4]) -> impl Iterator<Item = &'a [u8]> {
    Boxes(body).filter(move |(found, _)| found == kind).map(|(_, body)| body)
}

/// Boxes behind each other, with lengths of 32 bits as all within headers have; ends at the first that is none.
struct Boxes<'a>(&'a [u8]);

impl<'a> Iterator for Boxes<'a> {
    type Item = ([u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let &[a, b, c, d, kind @ ..] = self.0.first_chunk::<8>()?;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let (element, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some((kind, element.get(8..)?))
    }
}

fn malformed(at: u64, what: &'static str) -> Error {
    Error::Malformed { format: Format::Mp4, at, what }
}
