//! The two tables that say what a transport stream carries: PAT (§2.4.4.3) and PMT (§2.4.4.8).
//!
//! In: a checked section. Out: its entries; or the section written anew, with other PIDs and without what was left out.

use super::super::Pid;
use super::{CRC_LEN, HEADER_LEN, SECTION_LEN_MAX, Section, SectionError, crc32};

const PAT_TABLE_ID: u8 = 0;
const PMT_TABLE_ID: u8 = 2;

/// Program association: which PID has the map of which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pat<'a> {
    section: Section<'a>,
}

impl<'a> Pat<'a> {
    /// # Errors
    /// When it is another table's section, or one that is sent ahead of its time.
    pub fn parse(section: Section<'a>) -> Result<Self, SectionError> {
        expect_table(&section, PAT_TABLE_ID)?;
        Ok(Pat { section })
    }

    /// Program number and PID of its map. Number 0 is no program: its PID has the network information.
    pub fn programs(&self) -> impl Iterator<Item = (u16, Pid)> + 'a {
        let (entries, _) = self.section.body().as_chunks::<4>();
        entries.iter().map(|&[a, b, c, d]| (u16::from_be_bytes([a, b]), Pid::from_bytes(c, d)))
    }
}

/// Program map: what a program consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pmt<'a> {
    section: Section<'a>,
    pcr_pid: Pid,
    descriptors: &'a [u8],
    streams: &'a [u8],
}

/// One elementary stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmtStream<'a> {
    /// Table 2-34: 0x02 is H.262, 0x1b H.264, 0x24 H.265, 0x0f AAC in ADTS.
    pub stream_type: u8,
    /// Its packets' PID.
    pub pid: Pid,
    /// What is said of it, undivided.
    pub descriptors: &'a [u8],
}

impl<'a> Pmt<'a> {
    /// # Errors
    /// When it is another table's section, or one that is sent ahead of its time, or the lengths inside do not fit.
    pub fn parse(section: Section<'a>) -> Result<Self, SectionError> {
        expect_table(&section, PMT_TABLE_ID)?;
        let ([a, b, rest_head @ ..], rest) = section.body().split_first_chunk::<4>().ok_or(SectionError::Truncated)?;
        let (descriptors, streams) = rest.split_at_checked(length(*rest_head)).ok_or(SectionError::Truncated)?;
        let mut entries = PmtStreams { rest: streams };
        while entries.next().is_some() {}
        if !entries.rest.is_empty() {
            return Err(SectionError::Truncated);
        }
        Ok(Pmt { section, pcr_pid: Pid::from_bytes(*a, *b), descriptors, streams })
    }

    /// Of which program it is the map.
    pub fn program_number(&self) -> u16 {
        self.section.id()
    }

    /// `Pid::NULL`: the program has no PCR.
    pub fn pcr_pid(&self) -> Pid {
        self.pcr_pid
    }

    /// Descriptors of the program as a whole.
    pub fn descriptors(&self) -> &'a [u8] {
        self.descriptors
    }

    /// The program's elementary streams.
    pub fn streams(&self) -> impl Iterator<Item = PmtStream<'a>> {
        PmtStreams { rest: self.streams }
    }
}

/// Iterates over elementary streams; stops in front of one that does not fit.
struct PmtStreams<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for PmtStreams<'a> {
    type Item = PmtStream<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let ([stream_type, high, low, len @ ..], rest) = self.rest.split_first_chunk::<5>()?;
        let (descriptors, rest) = rest.split_at_checked(length(*len))?;
        self.rest = rest;
        Some(PmtStream { stream_type: *stream_type, pid: Pid::from_bytes(*high, *low), descriptors })
    }
}

/// A 12-bit length behind four reserved bits.
fn length([high, low]: [u8; 2]) -> usize {
    u16::from_be_bytes([high & 0x0f, low]).into()
}

fn expect_table(section: &Section<'_>, expected: u8) -> Result<(), SectionError> {
    match section.table_id() {
        got if got != expected => Err(SectionError::TableId { expected, got }),
        _ if !section.is_current() => Err(SectionError::NotCurrent),
        _ => Ok(()),
    }
}

/// Writes a PAT section and returns its length; `None` when `buf` or a section has no room.
pub fn write_pat(
    buf: &mut [u8],
    transport_stream_id: u16,
    version: u8,
    programs: impl IntoIterator<Item = (u16, Pid)>,
) -> Option<usize> {
    let mut writer = SectionWriter::new(buf, PAT_TABLE_ID, transport_stream_id, version)?;
    for (number, pid) in programs {
        let [a, b] = number.to_be_bytes();
        let [c, d] = with_reserved_bits(pid);
        writer.put(&[a, b, c, d])?;
    }
    Some(writer.finish())
}

/// Writes a PMT section and returns its length; `None` when `buf` or a section has no room.
pub fn write_pmt<'a>(
    buf: &mut [u8],
    program_number: u16,
    version: u8,
    pcr_pid: Pid,
    descriptors: &[u8],
    streams: impl IntoIterator<Item = PmtStream<'a>>,
) -> Option<usize> {
    let mut writer = SectionWriter::new(buf, PMT_TABLE_ID, program_number, version)?;
    writer.put(&with_reserved_bits(pcr_pid))?;
    writer.put_counted(descriptors)?;
    for PmtStream { stream_type, pid, descriptors } in streams {
        writer.put(&[stream_type])?;
        writer.put(&with_reserved_bits(pid))?;
        writer.put_counted(descriptors)?;
    }
    Some(writer.finish())
}

/// Writes `pat` with other PIDs; programs whose PID has no other are left out. `None` when `buf` has no room.
pub fn rewrite_pat(buf: &mut [u8], pat: &Pat<'_>, pid: impl Fn(Pid) -> Option<Pid>) -> Option<usize> {
    let programs = pat.programs().filter_map(|(number, from)| Some((number, pid(from)?)));
    write_pat(buf, pat.section.id(), pat.section.version(), programs)
}

/// Writes `pmt` with other PIDs; streams whose PID has no other are left out. PIDs inside of descriptors stay.
/// `None` when `buf` has no room.
pub fn rewrite_pmt(buf: &mut [u8], pmt: &Pmt<'_>, pid: impl Fn(Pid) -> Option<Pid>) -> Option<usize> {
    let pcr_pid = pid(pmt.pcr_pid()).unwrap_or(Pid::NULL);
    let streams = pmt.streams().filter_map(|stream| Some(PmtStream { pid: pid(stream.pid)?, ..stream }));
    write_pmt(buf, pmt.program_number(), pmt.section.version(), pcr_pid, pmt.descriptors(), streams)
}

fn with_reserved_bits(pid: Pid) -> [u8; 2] {
    (0xe000 | pid.number()).to_be_bytes()
}

/// A section in the making.
struct SectionWriter<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> SectionWriter<'a> {
    fn new(buf: &'a mut [u8], table_id: u8, id: u16, version: u8) -> Option<Self> {
        let len_max = buf.len().min(SECTION_LEN_MAX);
        let buf = &mut buf[..len_max];
        let [id_high, id_low] = id.to_be_bytes();
        let head = buf.first_chunk_mut::<HEADER_LEN>()?;
        *head = [table_id, 0, 0, id_high, id_low, 0xc1 | (version & 0x1f) << 1, 0, 0];
        let writer = SectionWriter { buf, len: HEADER_LEN };
        writer.has_room(0).then_some(writer)
    }

    fn has_room(&self, len: usize) -> bool {
        self.len + len + CRC_LEN <= self.buf.len()
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        if !self.has_room(bytes.len()) {
            return None;
        }
        self.buf[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    /// Puts bytes behind their 12-bit length.
    fn put_counted(&mut self, bytes: &[u8]) -> Option<()> {
        let len = u16::try_from(bytes.len()).ok().filter(|len| *len < 1 << 12)?;
        self.put(&(0xf000 | len).to_be_bytes())?;
        self.put(bytes)
    }

    /// Writes length and CRC. There is room for them, as `put` kept it.
    fn finish(self) -> usize {
        let end = self.len + CRC_LEN;
        // section_syntax_indicator, a zero, two reserved bits, and what follows the length field.
        let length = 0xb000 | (end - 3) as u16;
        self.buf[1..3].copy_from_slice(&length.to_be_bytes());
        let crc = crc32(&self.buf[..self.len]);
        self.buf[self.len..end].copy_from_slice(&crc.to_be_bytes());
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: u16) -> Pid {
        Pid::new(number).unwrap()
    }

    fn pmt_section(buf: &mut [u8]) -> usize {
        let video = PmtStream { stream_type: 0x1b, pid: pid(0x101), descriptors: &[] };
        let audio = PmtStream { stream_type: 0x0f, pid: pid(0x102), descriptors: &[0x0a, 4, b'e', b'n', b'g', 0] };
        write_pmt(buf, 1, 3, pid(0x101), &[5, 2, 1, 2], [video, audio]).unwrap()
    }

    /// The PAT and PMT that a widely used multiplexer writes for one H.264 and one AAC stream.
    #[test]
    fn tables_from_another_multiplexer_are_read() {
        let pat = [0x00, 0xb0, 0x0d, 0, 1, 0xc1, 0, 0, 0, 1, 0xf0, 0, 0x2a, 0xb1, 0x04, 0xb2];
        let section = Section::parse(&pat).unwrap();
        assert!(Pat::parse(section).unwrap().programs().eq([(1, pid(0x1000))]));
        let pmt = [
            0x02, 0xb0, 0x1d, 0, 1, 0xc1, 0, 0, 0xe1, 0x00, 0xf0, 0, 0x1b, 0xe1, 0x00, 0xf0, 0, 0x0f, 0xe1, 0x01, 0xf0,
            0x06, 0x0a, 4, 0x75, 0x6e, 0x64, 0, 0x08, 0x7d, 0xe8, 0x77,
        ];
        let pmt = Pmt::parse(Section::parse(&pmt).unwrap()).unwrap();
        let streams: Vec<_> = pmt.streams().map(|stream| (stream.stream_type, stream.pid)).collect();
        assert_eq!((pmt.pcr_pid(), streams), (pid(0x100), vec![(0x1b, pid(0x100)), (0x0f, pid(0x101))]));
    }

    #[test]
    fn what_is_written_is_read() {
        let mut buf = [0; SECTION_LEN_MAX];
        let len = write_pat(&mut buf, 9, 31, [(0, pid(16)), (1, pid(0x1ffe))]).unwrap();
        let pat = Pat::parse(Section::parse(&buf[..len]).unwrap()).unwrap();
        assert_eq!((pat.section.id(), pat.section.version()), (9, 31));
        assert!(pat.programs().eq([(0, pid(16)), (1, pid(0x1ffe))]));

        let len = pmt_section(&mut buf);
        let section = Section::parse(&buf[..len]).unwrap();
        let pmt = Pmt::parse(section).unwrap();
        assert_eq!((pmt.program_number(), pmt.section.version(), pmt.descriptors()), (1, 3, &[5, 2, 1, 2][..]));
        let types: Vec<_> = pmt.streams().map(|stream| (stream.stream_type, stream.descriptors.len())).collect();
        assert_eq!(types, [(0x1b, 0), (0x0f, 6)]);
        assert_eq!(Pat::parse(section), Err(SectionError::TableId { expected: 0, got: 2 }));
    }

    #[test]
    fn a_table_that_is_sent_ahead_of_its_time_is_not_read() {
        let later = |mut section: Vec<u8>| {
            section[5] &= !1;
            let end = section.len() - CRC_LEN;
            let crc = crc32(&section[..end]);
            section[end..].copy_from_slice(&crc.to_be_bytes());
            section
        };
        let mut buf = [0; SECTION_LEN_MAX];
        let len = pmt_section(&mut buf);
        let pmt = later(buf[..len].to_vec());
        assert_eq!(Pmt::parse(Section::parse(&pmt).unwrap()), Err(SectionError::NotCurrent));
        let len = write_pat(&mut buf, 9, 31, [(1, pid(16))]).unwrap();
        let pat = later(buf[..len].to_vec());
        assert_eq!(Pat::parse(Section::parse(&pat).unwrap()), Err(SectionError::NotCurrent));
    }

    #[test]
    fn rewritten_tables_have_other_pids_and_leave_streams_out() {
        let (mut buf, mut other) = ([0; SECTION_LEN_MAX], [0; SECTION_LEN_MAX]);
        let len = pmt_section(&mut buf);
        let pmt = Pmt::parse(Section::parse(&buf[..len]).unwrap()).unwrap();
        let len = rewrite_pmt(&mut other, &pmt, |from| (from == pid(0x102)).then_some(pid(0x202))).unwrap();
        let pmt = Pmt::parse(Section::parse(&other[..len]).unwrap()).unwrap();
        assert_eq!(pmt.pcr_pid(), Pid::NULL);
        assert!(pmt.streams().map(|stream| stream.pid).eq([pid(0x202)]));

        let len = write_pat(&mut buf, 9, 0, [(1, pid(0x30)), (2, pid(0x31))]).unwrap();
        let pat = Pat::parse(Section::parse(&buf[..len]).unwrap()).unwrap();
        let len = rewrite_pat(&mut other, &pat, |from| (from == pid(0x31)).then_some(from)).unwrap();
        let pat = Pat::parse(Section::parse(&other[..len]).unwrap()).unwrap();
        assert!(pat.programs().eq([(2, pid(0x31))]));
    }

    #[test]
    fn a_section_without_room_is_not_written() {
        let mut buf = [0; SECTION_LEN_MAX];
        let many = (0..300).map(|number| (number, pid(number)));
        assert_eq!(write_pat(&mut buf, 1, 0, many), None);
        let whole = write_pat(&mut buf, 1, 0, [(1, pid(1))]).unwrap();
        for room in 0..whole {
            assert_eq!(write_pat(&mut buf[..room], 1, 0, [(1, pid(1))]), None);
        }
    }

    #[test]
    fn lengths_that_run_over_the_end_are_refused() {
        let mut buf = [0; 64];
        for body in [&[0xe1, 0, 0xf0][..], &[0xe1, 0, 0xf0, 1], &[0xe1, 0, 0xf0, 0, 0x1b, 0xe1, 0, 0xf0, 1]] {
            let mut writer = SectionWriter::new(&mut buf, PMT_TABLE_ID, 1, 0).unwrap();
            writer.put(body).unwrap();
            let len = writer.finish();
            assert_eq!(Pmt::parse(Section::parse(&buf[..len]).unwrap()), Err(SectionError::Truncated));
        }
    }
}
