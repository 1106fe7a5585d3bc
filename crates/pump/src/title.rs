//! What is known of a title from its first bytes: where its packets stand, its tables, its clock; and how it is cut.
//!
//! In: the title's head (a megabyte is plenty) and its length. Out: a `Title`, shared by all who read or send it.
//! A title is read in chunks of a fixed number of packets, so that any chunk can be fetched alone, and cached for all.
//! Source: ISO/IEC 13818-1 §2.4.4 (tables).

use std::ops::Range;

use wire::Bitrate;
use wire::ts::{Layout, PACKET_LEN, Packet, Packets, Pat, Pid, Pmt, Section, SectionBuffer, Spacing, section_packets};

use crate::clock::{Mark, Slope, mean_slope};
use crate::cut::Cut;
use crate::picture::VideoCodec;

/// Packets of a chunk unless told otherwise: 523,768 bytes, whole datagrams.
pub const CHUNK_PACKETS: u32 = 2_786;

/// Packets of a small first chunk, with which a title that nobody has read begins soon: whole datagrams that lie within
/// the title's first 128 KiB, whatever stands between packets (119,756 bytes; 129,948 at 204 each).
pub const FIRST_CHUNK_PACKETS: u32 = 637;

/// Programs of one title that are told apart; more are left out.
const PROGRAMS_MAX: usize = 64;

/// Why a title cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum TitleError {
    /// Nothing looks like packets.
    #[error("no transport stream: no row of sync bytes, 188, 192 or 204 apart, in the first {got} bytes")]
    NoSync { got: usize },
    /// The chunks' numbers would not suffice.
    #[error("{len} bytes need more chunks than can be counted; take larger ones")]
    TooLong { len: u64 },
}

/// A program's map, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number in the PAT.
    pub number: u16,
    /// Where its map is.
    pub pmt_pid: Pid,
    /// The PMT section; empty when it was not among the first bytes.
    pub pmt: Vec<u8>,
}

/// A title, as far as its head tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Title {
    /// How its packets stand.
    pub spacing: Spacing,
    /// Byte offset of the first packet, of its prefix where there is one.
    pub first: u64,
    /// Its length.
    pub len_bytes: u64,
    cut: Cut,
    /// The PAT section; empty when there is none.
    pub pat: Vec<u8>,
    /// All programs of the PAT.
    pub programs: Vec<Program>,
    /// The program that paces the title, where there are tables.
    pub program_number: Option<u16>,
    /// `None`: nothing in the head carries a PCR, and the title can be sent at a given rate only.
    pub pcr_pid: Option<Pid>,
    /// The stream whose pictures are indexed.
    pub video: Option<(Pid, VideoCodec)>,
    /// Mean rate of the head.
    pub slope: Option<Slope>,
}

impl Title {
    /// Reads the head of a title that is `len_bytes` long, and is to be cut into chunks of so many packets; best a multiple
    /// of seven.
    ///
    /// # Errors
    /// When it is no transport stream, or too long for such chunks.
    pub fn probe(head: &[u8], len_bytes: u64, chunk_packets: u32) -> Result<Title, TitleError> {
        let layout = Layout::find(head).ok_or(TitleError::NoSync { got: head.len() })?;
        let (spacing, cut) = (layout.spacing, Cut::new(chunk_packets));
        if len_bytes / (cut.packets() * spacing.stride() as u64) >= u64::from(u32::MAX - 1) {
            return Err(TitleError::TooLong { len: len_bytes });
        }
        let mut title = Title {
            spacing,
            first: layout.first as u64,
            len_bytes,
            cut,
            pat: Vec::new(),
            programs: Vec::new(),
            program_number: None,
            pcr_pid: None,
            video: None,
            slope: None,
        };
        let head = &head[layout.first..];
        title.read_tables(head);
        title.choose_program(&marks_of(head, spacing));
        Ok(title)
    }

    fn read_tables(&mut self, head: &[u8]) {
        let mut pat_buffer = SectionBuffer::default();
        let mut pmt_buffers: Vec<SectionBuffer> = Vec::new();
        for (_, bytes) in Packets::new(head, self.spacing) {
            let Ok(packet) = Packet::parse(bytes) else { continue };
            if packet.pid() == Pid::PAT {
                pat_buffer.push(&packet, |section| self.take_pat(section));
                pmt_buffers.resize_with(self.programs.len(), SectionBuffer::default);
            }
            let programs = self.programs.iter_mut().zip(&mut pmt_buffers);
            for (program, buffer) in programs.filter(|(program, _)| program.pmt_pid == packet.pid()) {
                buffer.push(&packet, |section| program.take(section));
            }
            if !self.programs.is_empty() && self.programs.iter().all(|program| !program.pmt.is_empty()) {
                return;
            }
        }
    }

    fn take_pat(&mut self, bytes: &[u8]) {
        let Ok(pat) = Section::parse(bytes).and_then(Pat::parse) else { return };
        if !self.pat.is_empty() {
            return;
        }
        self.pat = bytes.to_vec();
        // Program 0 is the network's table.
        let programs = pat.programs().filter(|(number, _)| *number != 0).take(PROGRAMS_MAX);
        self.programs = programs.map(|(number, pmt_pid)| Program { number, pmt_pid, pmt: Vec::new() }).collect();
    }

    /// Takes the first program whose PCR PID carries PCRs, else the first; its clock, else that of any PID that has one.
    fn choose_program(&mut self, marks: &[(Pid, Mark)]) {
        let mut maps = self.programs.iter().filter_map(|program| Pmt::parse(Section::parse(&program.pmt).ok()?).ok());
        let has_clock = |pmt: &Pmt<'_>| marks.iter().any(|(pid, _)| *pid == pmt.pcr_pid());
        let chosen = maps.clone().find(has_clock).or_else(|| maps.next());
        self.pcr_pid = chosen.filter(has_clock).map(|pmt| pmt.pcr_pid()).or(marks.first().map(|(pid, _)| *pid));
        self.program_number = chosen.map(|pmt| pmt.program_number());
        self.video = chosen.and_then(|pmt| VideoCodec::find(&pmt));
        let clock = marks.iter().filter(|(pid, _)| Some(*pid) == self.pcr_pid).map(|(_, mark)| *mark);
        self.slope = mean_slope(&clock.collect::<Vec<_>>());
    }

    /// Cuts what was the first chunk in two: one of `packets`, rounded down to whole datagrams, and the rest. So it takes
    /// a short read until the first packet can be sent. A size of nothing, or of a whole chunk and more, cuts nothing.
    #[must_use]
    pub fn with_first_chunk(self, packets: u32) -> Title {
        Title { cut: self.cut.with_first(packets), ..self }
    }

    /// Packets of every chunk but the last, and the two of which the first is made (`with_first_chunk`).
    pub fn chunk_packets(&self) -> u32 {
        self.cut.packets() as u32
    }

    pub(crate) fn cut(&self) -> Cut {
        self.cut
    }

    /// Packets of a chunk, if none is damaged.
    pub(crate) fn packets_of(&self, chunk: u32) -> u64 {
        self.cut.end(chunk).min(self.packet_count()).saturating_sub(self.cut.start(chunk))
    }

    /// The chunk in which a packet is.
    pub fn chunk_of(&self, position: u64) -> u32 {
        self.cut.number(position)
    }

    /// Chunks that it is cut into.
    pub fn chunk_count(&self) -> u32 {
        let bytes = self.len_bytes.saturating_sub(self.first);
        match bytes.div_ceil(self.spacing.stride() as u64) {
            0 => 0,
            packets => self.cut.number(packets - 1) + 1,
        }
    }

    /// The bytes to read for a chunk. They overlap with the next chunk's by less than a packet: where bytes were lost or
    /// added, a packet lies across the border, and belongs to the chunk in which it begins.
    pub fn chunk_range(&self, number: u32) -> Range<u64> {
        let stride = self.spacing.stride() as u64;
        let start = self.first.saturating_add(self.cut.start(number).saturating_mul(stride));
        let end = self.first.saturating_add(self.cut.end(number).saturating_mul(stride));
        let overlap = PACKET_LEN - 1 + self.spacing.prefix();
        let end = end.saturating_add(overlap as u64);
        start.min(self.len_bytes)..end.min(self.len_bytes)
    }

    /// Packets of the whole title, if none is damaged: the position of its end.
    pub fn packet_count(&self) -> u64 {
        let bytes = self.len_bytes.saturating_sub(self.first);
        let stride = self.spacing.stride() as u64;
        // The suffix of the last packet may be missing.
        let needed = (PACKET_LEN + self.spacing.prefix()) as u64;
        bytes / stride + u64::from(bytes % stride >= needed)
    }

    /// Mean rate of the head; zero when it has no clock.
    pub fn rate(&self) -> Bitrate {
        self.slope.map_or(Bitrate::ZERO, Slope::rate)
    }

    /// The program that paces the title.
    pub fn program(&self) -> Option<&Program> {
        self.programs.iter().find(|program| Some(program.number) == self.program_number)
    }

    /// PAT and PMT of the chosen program in packets, to send before anything else of the title.
    pub fn table_packets(&self) -> Vec<[u8; PACKET_LEN]> {
        let mut packets = Vec::new();
        section_packets(&self.pat, Pid::PAT, 0, |packet| packets.push(*packet));
        if let Some(program) = self.program() {
            section_packets(&program.pmt, program.pmt_pid, 0, |packet| packets.push(*packet));
        }
        packets
    }
}

impl Program {
    /// Takes the section when it is this program's map; several may share a PID.
    fn take(&mut self, bytes: &[u8]) {
        let map = Section::parse(bytes).and_then(Pmt::parse);
        if self.pmt.is_empty() && map.is_ok_and(|pmt| pmt.program_number() == self.number) {
            self.pmt = bytes.to_vec();
        }
    }
}

/// All references, and the PIDs that carry them.
fn marks_of(head: &[u8], spacing: Spacing) -> Vec<(Pid, Mark)> {
    let marks = Packets::new(head, spacing).enumerate().filter_map(|(position, (_, bytes))| {
        let packet = Packet::parse(bytes).ok()?;
        let (pcr, discontinuity) = (packet.pcr()?, packet.discontinuity());
        Some((packet.pid(), Mark { position: position as u64, pcr, discontinuity }))
    });
    marks.collect()
}
