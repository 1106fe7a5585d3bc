//! A piece of a title, ready to be sent: whole packets in a row, and what was seen in them.
//!
//! In: the bytes of a chunk's range. Out: an immutable `Chunk`, made off the packet path, shared by all streams.
//! What stood between packets, and damage, is left out; the packets then lie 188 bytes apart.
//! Cost: one pass, on whatever thread reads; no copy when the bytes are packets and nothing else.

use std::time::Instant;

use wire::ts::set_discontinuity;
use wire::ts::{PACKET_LEN, Packet, Packets, Pat, Pid, Pmt, Section, SectionBuffer, Spacing};

use crate::clock::{Clock, Mark, Slope, mean_slope};
use crate::picture::{Finder, Found, VideoCodec};
use crate::title::Title;

/// A picture that needs no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its first packet, counted from the chunk's start.
    pub start: u32,
    /// The first packet of the next picture. `None`: that is in a later chunk.
    pub end: Option<u32>,
}

/// When a packet of a live input is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Packets from the input's start.
    pub position: u64,
    /// When it leaves.
    pub at: Instant,
}

/// A piece of a title.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Its number in the title or input, from 0.
    pub number: u32,
    /// Position of the first packet: packets from the title's start.
    pub first: u64,
    /// Whole packets.
    bytes: Vec<u8>,
    /// The references of the program that paces the title.
    pub marks: Vec<Mark>,
    /// Mean rate; `None` without two marks that continue each other.
    pub slope: Option<Slope>,
    /// Pictures that need no other.
    pub pictures: Vec<Picture>,
    /// The first packet with which a picture of any kind begins: where one that began before ends.
    pub first_start: Option<u32>,
    /// The last continuity counter of each PID that has payload here.
    pub continuity: Vec<(Pid, u8)>,
    /// Packets whose continuity counter does not follow that of the one before, and which do not say so.
    pub continuity_errors: u32,
    /// Of a live input: when its first packet, the one behind its last, and some between are due.
    pub dues: Vec<Due>,
}

impl Chunk {
    /// Reads the bytes of a chunk's range (`Title::chunk_range`). Fewer than that is what a truncated title has.
    pub fn scan(title: &Title, number: u32, bytes: Vec<u8>) -> Chunk {
        let mut chunk = Chunk::of_packets(title, number, title.cut().start(number), compact(title, number, bytes));
        chunk.flag_jumps(title);
        chunk
    }

    /// A clock that jumps within the chunk without saying so is made to say it. The marks stay as they were read.
    fn flag_jumps(&mut self, title: &Title) {
        let (Some(first), Some(slope)) = (self.marks.first(), self.slope.or(title.slope)) else { return };
        let mut clock = Clock::new(*first, slope);
        let (packets, _) = self.bytes.as_chunks_mut::<PACKET_LEN>();
        for next in &self.marks[1..] {
            if clock.jumps_to(*next)
                && let Some(packet) = packets.get_mut((next.position - self.first) as usize)
            {
                set_discontinuity(packet, true);
            }
            clock.aim(*next);
            clock.reach();
        }
    }

    /// A piece of a live input: `bytes` are packets, the first of them `first` behind the input's start. The first packet
    /// and the one behind the last are among `dues`, which are in order.
    pub fn live(title: &Title, number: u32, first: u64, bytes: Vec<u8>, dues: Vec<Due>) -> Chunk {
        Chunk { dues, ..Chunk::of_packets(title, number, first, bytes) }
    }

    fn of_packets(title: &Title, number: u32, first: u64, bytes: Vec<u8>) -> Chunk {
        let mut scan = Scan::new(title, Chunk { number, first, ..Chunk::default() });
        let (packets, _) = bytes.as_chunks::<PACKET_LEN>();
        for (index, packet) in packets.iter().enumerate() {
            if let Ok(packet) = Packet::parse(packet) {
                scan.take(index as u32, &packet);
            }
        }
        let continuity = scan.continuity();
        let marks = choose_marks(title.pcr_pid, &scan.marks, &scan.maps);
        Chunk { bytes, slope: mean_slope(&marks), marks, continuity, ..scan.chunk }
    }

    /// A chunk without packets: what stands in for one that cannot be had.
    pub fn hole(title: &Title, number: u32) -> Chunk {
        Chunk::scan(title, number, Vec::new())
    }

    /// Packets in it.
    pub fn packet_count(&self) -> u32 {
        (self.bytes.len() / PACKET_LEN) as u32
    }

    /// The packets, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that it takes, those of fixed size aside: what was read, and what was seen in it.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + size_of_val(&self.marks[..]) + size_of_val(&self.pictures[..])
    }

    /// The packet of that index in the chunk.
    pub fn packet(&self, index: u32) -> Option<&[u8; PACKET_LEN]> {
        self.bytes.as_chunks().0.get(index as usize)
    }

    /// The first mark at `position` or behind it.
    pub fn mark_from(&self, position: u64) -> Option<Mark> {
        self.marks.get(self.mark_index(position)).copied()
    }

    /// The last mark at `position` or before it.
    pub fn mark_before(&self, position: u64) -> Option<Mark> {
        self.marks[..self.mark_index(position.saturating_add(1))].last().copied()
    }

    /// Marks before `position`. They are spread about evenly, so the search begins where the last of them ought to stand,
    /// and widens from there: it waits for memory once or twice, where halving does eight times.
    fn mark_index(&self, position: u64) -> usize {
        let marks = &self.marks[..];
        let (at, count) = (position.saturating_sub(self.first), u64::from(self.packet_count()));
        let guess = (at.min(count) * marks.len() as u64 / count.max(1)) as usize;
        let (mut low, mut high) = (guess, guess);
        let mut step = 1;
        while low > 0 && marks[low - 1].position >= position {
            (low, step) = (low.saturating_sub(step), 2 * step);
        }
        let mut step = 1;
        while high < marks.len() && marks[high].position < position {
            (high, step) = ((high + step).min(marks.len()), 2 * step);
        }
        low + marks[low..high].partition_point(|mark| mark.position < position)
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Leaves out all that is not packets, and packets that begin in the next chunk.
fn compact(title: &Title, number: u32, mut bytes: Vec<u8>) -> Vec<u8> {
    let is_last = number + 1 >= title.chunk_count();
    let own_packets = (title.cut().end(number) - title.cut().start(number)) as usize;
    let own_len = own_packets * title.spacing.stride();
    // Packets that begin behind this belong to the next chunk.
    let end = if is_last { usize::MAX } else { own_len + title.spacing.prefix() };
    let is_clean = title.spacing == Spacing::Ts188 && bytes.iter().step_by(PACKET_LEN).all(|byte| *byte == 0x47);
    if is_clean {
        let whole = bytes.len().min(own_len) / PACKET_LEN * PACKET_LEN;
        bytes.truncate(whole);
        return bytes;
    }
    let packets = Packets::new(&bytes, title.spacing);
    let starts: Vec<usize> = packets.map(|(at, _)| at).take_while(|at| *at < end).collect();
    let count = starts.len().min(own_packets);
    for (index, start) in starts[..count].iter().enumerate() {
        bytes.copy_within(*start..start + PACKET_LEN, index * PACKET_LEN);
    }
    bytes.truncate(count * PACKET_LEN);
    bytes
}

/// The marks of the PID that the last map before them named; up to the first map, of the title's own PID, or, when that
/// has none here, of the PID that the first map names, or of any.
fn choose_marks(own: Option<Pid>, marks: &[(Pid, Mark)], maps: &[(u64, Pid)]) -> Vec<Mark> {
    let has_marks = |pid: &Pid| marks.iter().any(|(marked, _)| marked == pid);
    let named = maps.first().map(|(_, pid)| *pid);
    let start = own.filter(has_marks).or(named.filter(has_marks)).or(marks.first().map(|(pid, _)| *pid));
    let Some(mut pid) = start else { return Vec::new() };
    let mut maps = maps.iter().filter(|(_, pid)| has_marks(pid)).peekable();
    let mut chosen: Vec<Mark> = Vec::new();
    for (marked, mark) in marks {
        while let Some((_, named)) = maps.next_if(|(position, _)| *position <= mark.position) {
            pid = *named;
        }
        if *marked == pid {
            chosen.push(*mark);
        }
    }
    chosen
}

/// The pass over a chunk's packets.
struct Scan<'a> {
    title: &'a Title,
    /// What was seen so far.
    chunk: Chunk,
    marks: Vec<(Pid, Mark)>,
    /// Where a map of the chosen program was seen, and the PCR PID that it names.
    maps: Vec<(u64, Pid)>,
    finder: Option<(Pid, Finder)>,
    pmt_pid: Option<Pid>,
    pat_buffer: SectionBuffer,
    pmt_buffer: SectionBuffer,
    /// By PID: 0x10 and the last continuity counter, or 0.
    continuity: Box<[u8; Pid::COUNT]>,
    /// The last picture that began, while its kind is not told.
    last_start: Option<u32>,
}

impl<'a> Scan<'a> {
    fn new(title: &'a Title, chunk: Chunk) -> Self {
        Scan {
            title,
            chunk,
            marks: Vec::new(),
            maps: Vec::new(),
            finder: title.video.map(|(pid, codec)| (pid, Finder::new(codec))),
            pmt_pid: title.program().map(|program| program.pmt_pid),
            pat_buffer: SectionBuffer::default(),
            pmt_buffer: SectionBuffer::default(),
            continuity: Box::new([0; Pid::COUNT]),
            last_start: None,
        }
    }

    fn take(&mut self, index: u32, packet: &Packet<'_>) {
        let pid = packet.pid();
        if pid == Pid::NULL {
            return;
        }
        if packet.has_payload() {
            let last = std::mem::replace(&mut self.continuity[usize::from(pid.number())], 0x10 | packet.continuity());
            let step = packet.continuity().wrapping_sub(last) & 0x0f;
            // A packet may come twice (§2.4.3.3).
            self.chunk.continuity_errors += u32::from(last != 0 && step > 1 && !packet.discontinuity());
        }
        let position = self.chunk.first + u64::from(index);
        if let Some(pcr) = packet.pcr() {
            self.marks.push((pid, Mark { position, pcr, discontinuity: packet.discontinuity() }));
        }
        self.take_table(position, packet);
        if let Some((video, finder)) = &mut self.finder
            && *video == pid
            && let Some(found) = finder.push(packet)
        {
            self.take_found(index, found);
        }
    }

    fn take_table(&mut self, position: u64, packet: &Packet<'_>) {
        let Some(number) = self.title.program_number else { return };
        if packet.pid() == Pid::PAT {
            let pmt_pid = &mut self.pmt_pid;
            self.pat_buffer.push(packet, |section| {
                let Ok(pat) = Section::parse(section).and_then(Pat::parse) else { return };
                *pmt_pid = pat.programs().find(|(program, _)| *program == number).map(|(_, pid)| pid).or(*pmt_pid);
            });
        }
        if self.pmt_pid == Some(packet.pid()) {
            let (title, maps, finder) = (self.title, &mut self.maps, &mut self.finder);
            self.pmt_buffer.push(packet, |section| {
                let Ok(pmt) = Section::parse(section).and_then(Pmt::parse) else { return };
                if pmt.program_number() != number {
                    return;
                }
                if maps.last().map(|(_, pid)| *pid) != Some(pmt.pcr_pid()) {
                    maps.push((position, pmt.pcr_pid()));
                }
                let video = VideoCodec::find(&pmt);
                if video != finder.as_ref().map(|(pid, finder)| (*pid, finder.codec())) && title.video.is_some() {
                    *finder = video.map(|(pid, codec)| (pid, Finder::new(codec)));
                }
            });
        }
    }

    fn take_found(&mut self, index: u32, found: Found) {
        if let Found::Start | Found::StartAlone = found {
            self.chunk.first_start.get_or_insert(index);
            if let Some(last) = self.chunk.pictures.last_mut().filter(|last| last.end.is_none()) {
                last.end = Some(index);
            }
        }
        match found {
            Found::Start => self.last_start = Some(index),
            Found::StartAlone => self.chunk.pictures.push(Picture { start: index, end: None }),
            Found::Alone => {
                let started = self.last_start.take();
                self.chunk.pictures.extend(started.map(|start| Picture { start, end: None }));
            }
        }
    }

    fn continuity(&self) -> Vec<(Pid, u8)> {
        let seen = self.continuity.iter().enumerate().filter(|(_, counter)| **counter != 0);
        seen.filter_map(|(pid, counter)| Some((Pid::new(pid as u16)?, counter & 0x0f))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::ts::Pcr;

    use super::*;
    use crate::sample::Sample;

    proptest! {
        #[test]
        fn marks_are_found_however_they_are_spread(
            places in proptest::collection::btree_set(1_000_u64..1_700, 0..40),
            position in 0_u64..2_000,
        ) {
            let bytes = Sample::default().make();
            let title = Title::probe(&bytes, bytes.len() as u64, 700).unwrap();
            let mut chunk = Chunk::scan(&title, 1, bytes[..700 * PACKET_LEN].to_vec());
            chunk.first = 1_000;
            let mark = |position| Mark { position, pcr: Pcr::from_ticks(position), discontinuity: false };
            chunk.marks = places.iter().copied().map(mark).collect();
            prop_assert_eq!(chunk.mark_from(position), places.range(position..).next().copied().map(mark));
            prop_assert_eq!(chunk.mark_before(position), places.range(..=position).next_back().copied().map(mark));
        }
    }
}
