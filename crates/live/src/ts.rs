//! Transport streams: start points are where a picture that needs none before it begins.
//!
//! The header is the PAT and the PMTs, written anew whenever one changes. The multiplexer may mark where one can begin
//! (random_access_indicator); of a stream in which it never did, the start codes are looked at. Without video, each PES
//! packet of the first stream is a start point.
//! Bytes out of step are passed over, up to three sync bytes in a row.
//! Limits: 32 programs; of several the first that has video counts, and those that are not listed in the first section of
//! the PAT are not seen. Without tables there is no start point.
//! Source: ISO/IEC 13818-1 §2.4.3 and §2.4.4, ETSI TS 101 154 §4.1.5 (random access).

use std::sync::Arc;
use std::time::Duration;

use pump::picture::{Finder, Found, VideoCodec};
use wire::ts::{PACKET_LEN, Packet, Pat, PesHeader, Pid, Pmt, SYNC_BYTE, Section, SectionBuffer, Timestamp};

use crate::reader::{Event, Header, Start, Step};

/// Programs whose tables are kept.
const PROGRAMS_MAX: usize = 32;

/// Bytes in which three packets show that they are in step.
const ROW_LEN: usize = 2 * PACKET_LEN + 1;

#[derive(Debug, Default)]
pub(crate) struct Ts {
    in_step: bool,
    pat_buffer: SectionBuffer,
    pat: Vec<u8>,
    programs: Vec<Program>,
    lead: Option<Lead>,
    clock: Clock,
}

#[derive(Debug)]
struct Program {
    number: u16,
    pid: Pid,
    buffer: SectionBuffer,
    pmt: Vec<u8>,
}

/// The stream that start points are in.
#[derive(Debug)]
struct Lead {
    pid: Pid,
    stream_type: u8,
    is_video: bool,
    /// `None` of codecs that are not looked into, and without video.
    finder: Option<Finder>,
    /// The multiplexer marks where one can begin.
    is_marked: bool,
    /// Where the last picture began, while nobody knows whether one may start with it.
    begun: Option<Start>,
    /// Where the last picture began, or the last frames of sound where there is no video.
    seam: Option<u64>,
}

impl Ts {
    pub(crate) fn step(&mut self, at: u64, data: &[u8]) -> Step {
        if !self.in_step {
            if data.len() < ROW_LEN {
                return Step::Need(ROW_LEN);
            }
            let is_row = |row: &[u8]| [0, PACKET_LEN, 2 * PACKET_LEN].iter().all(|at| row[*at] == SYNC_BYTE);
            let first = data.windows(ROW_LEN).position(is_row);
            self.in_step = first.is_some();
            return Step::Take(first.unwrap_or(data.len() + 1 - ROW_LEN) as u64, None);
        }
        if data.first().is_some_and(|first| *first != SYNC_BYTE) {
            self.in_step = false;
            return Step::Take(0, None);
        }
        if data.len() < PACKET_LEN {
            return Step::Need(PACKET_LEN);
        }
        let event = Packet::parse(data).ok().and_then(|packet| self.take(at, &packet));
        Step::Take(PACKET_LEN as u64, event)
    }

    /// Whether what comes begins with a packet.
    pub(crate) fn is_in_step(&self) -> bool {
        self.in_step
    }

    /// Where the picture begins of which nobody knows yet whether one may start with it.
    pub(crate) fn undecided(&self) -> Option<u64> {
        self.lead.as_ref()?.begun.map(|begun| begun.at)
    }

    /// Where the last picture began; without video, the last frames of sound.
    pub(crate) fn seam(&self) -> Option<u64> {
        self.lead.as_ref()?.seam
    }

    fn take(&mut self, at: u64, packet: &Packet<'_>) -> Option<Event> {
        if packet.transport_error() {
            return None;
        }
        let pid = packet.pid();
        let has_changed = if pid == Pid::PAT { self.take_pat(packet) } else { self.take_pmt(packet) };
        if has_changed {
            return self.header();
        }
        let lead = self.lead.as_mut().filter(|lead| lead.pid == pid)?;
        lead.take(at, packet, &mut self.clock).map(Event::Start)
    }

    fn take_pat(&mut self, packet: &Packet<'_>) -> bool {
        let Ts { pat_buffer, pat, programs, .. } = self;
        let mut has_changed = false;
        pat_buffer.push(packet, |bytes| {
            let Ok(section) = Section::parse(bytes) else { return };
            let Ok(read) = Pat::parse(section) else { return };
            if !section.is_current() || bytes == pat {
                return;
            }
            *pat = bytes.to_vec();
            let listed: Vec<_> = read.programs().filter(|(number, _)| *number != 0).take(PROGRAMS_MAX).collect();
            let mut before = std::mem::take(programs);
            for (number, pid) in listed {
                let known = before.iter().position(|program| (program.number, program.pid) == (number, pid));
                programs.push(known.map_or_else(|| Program::new(number, pid), |known| before.swap_remove(known)));
            }
            has_changed = true;
        });
        has_changed
    }

    fn take_pmt(&mut self, packet: &Packet<'_>) -> bool {
        let mut has_changed = false;
        // Several programs may have their tables on one PID.
        for program in self.programs.iter_mut().filter(|program| program.pid == packet.pid()) {
            let Program { number, buffer, pmt, .. } = program;
            buffer.push(packet, |bytes| {
                let Ok(section) = Section::parse(bytes) else { return };
                let is_own = Pmt::parse(section).is_ok_and(|read| read.program_number() == *number);
                if is_own && section.is_current() && bytes != pmt {
                    *pmt = bytes.to_vec();
                    has_changed = true;
                }
            });
        }
        has_changed
    }

    /// The header as the tables now are, and what start points are looked for in; `None` before the first PMT.
    fn header(&mut self) -> Option<Event> {
        let mut bytes = Vec::new();
        let mut write = |section: &[u8], pid| {
            wire::ts::section_packets(section, pid, 0, |packet| bytes.extend_from_slice(packet));
        };
        write(&self.pat, Pid::PAT);
        let known = || self.programs.iter().filter(|program| !program.pmt.is_empty());
        known().for_each(|program| write(&program.pmt, program.pid));
        let leads: Vec<Lead> = known().filter_map(Program::lead).collect();
        let chosen = leads.iter().position(|lead| lead.is_video).unwrap_or(0);
        let lead = leads.into_iter().nth(chosen);
        let key = |lead: &Lead| (lead.pid, lead.stream_type);
        if lead.as_ref().map(key) != self.lead.as_ref().map(key) {
            self.lead = lead;
        }
        let has_video = self.lead.as_ref()?.is_video;
        Some(Event::Header(Arc::new(Header { bytes, content_type: "video/mp2t", codecs: Vec::new(), has_video })))
    }
}

impl Program {
    fn new(number: u16, pid: Pid) -> Self {
        Program { number, pid, buffer: SectionBuffer::default(), pmt: Vec::new() }
    }

    fn lead(&self) -> Option<Lead> {
        let pmt = Pmt::parse(Section::parse(&self.pmt).ok()?).ok()?;
        let video = pmt.streams().find(|stream| is_video(stream.stream_type));
        let stream = video.or_else(|| pmt.streams().next())?;
        let codec = VideoCodec::of_stream_type(stream.stream_type);
        Some(Lead {
            pid: stream.pid,
            stream_type: stream.stream_type,
            is_video: is_video(stream.stream_type),
            finder: codec.map(Finder::of_entries),
            is_marked: false,
            begun: None,
            seam: None,
        })
    }
}

/// By the stream types of table 2-34, and VC-1's: MPEG-1, -2 and -4, AVC and its kin, JPEG 2000, HEVC, JPEG XS, VVC, AVS.
fn is_video(stream_type: u8) -> bool {
    matches!(stream_type, 0x01 | 0x02 | 0x10 | 0x1b | 0x1e..=0x21 | 0x24 | 0x25 | 0x32..=0x34 | 0x42 | 0xd2 | 0xea)
}

impl Lead {
    fn take(&mut self, at: u64, packet: &Packet<'_>, clock: &mut Clock) -> Option<Start> {
        let begins = packet.payload_unit_start();
        if begins {
            let pts = PesHeader::parse(packet.payload()).filter(|_| !packet.is_scrambled()).and_then(|pes| pes.pts);
            self.begun = Some(Start { at, time: pts.map(|pts| clock.take(pts)) });
            self.seam = Some(at);
        }
        if !self.is_video {
            return self.begun.take();
        }
        let is_mark = begins && packet.adaptation().is_some_and(|field| field.random_access());
        self.is_marked |= is_mark;
        let found = self.finder.as_mut().and_then(|finder| finder.push(packet));
        let is_found = matches!(found, Some(Found::StartAlone | Found::Alone));
        let is_start = if self.is_marked { is_mark } else { is_found };
        if is_start {
            return self.begun.take();
        }
        if self.is_marked || self.finder.as_ref().is_none_or(Finder::is_decided) {
            self.begun = None;
        }
        None
    }
}

/// Counts on through the wraps of time stamps.
#[derive(Debug, Default)]
struct Clock {
    last: Option<(Timestamp, u64)>,
}

/// Ticks of a time stamp in a second.
const TICKS: u64 = 90_000;

impl Clock {
    fn take(&mut self, next: Timestamp) -> Duration {
        let ticks = self.last.map_or(next.ticks(), |(last, ticks)| ticks.saturating_add_signed(last.ticks_to(next)));
        self.last = Some((next, ticks));
        Duration::from_secs(ticks / TICKS) + Duration::from_nanos(ticks % TICKS * 1_000_000_000 / TICKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_counts_on_through_its_wrap() {
        let mut clock = Clock::default();
        let first = clock.take(Timestamp::from_ticks(Timestamp::MODULUS - 90_000));
        assert_eq!(clock.take(Timestamp::from_ticks(90_000)), first + Duration::from_secs(2));
        assert_eq!(clock.take(Timestamp::from_ticks(0)), first + Duration::from_secs(1));
    }
}
