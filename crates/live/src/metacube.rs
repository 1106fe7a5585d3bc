//! Metacube 2, the framing between Cubemaps and their encoders: blocks that say what they are.
//!
//! In: the body of a response with `Content-Encoding: metacube`, cut anywhere; or a block to send. Out: parts of blocks as
//! they come, without a copy; or headers of blocks.
//! Damage, and blocks over [`BLOCK_LEN_MAX`], are passed over up to the next right block header, and counted.
//! Source: `metacube2.h` of Cubemap, which is its description.
//!
//! ```text
//! 0          8      12      14     16
//! ┌──────────┬──────┬───────┬──────┬──────────┐
//! │ cube!map │ size │ flags │ CRC  │ data …   │   all big-endian; the size is that of the data
//! └──────────┴──────┴───────┴──────┴──────────┘
//! ```

use std::time::Duration;

/// Bytes before a block's data.
pub const BLOCK_HEAD_LEN: usize = 16;

/// A longer block is damage.
pub const BLOCK_LEN_MAX: u32 = 64 << 20;

/// The value of the header field `Content-Encoding` that says that a body is framed so.
pub const CONTENT_ENCODING: &str = "metacube";

const MAGIC: [u8; 8] = *b"cube!map";

/// Flags of a block.
const HEADER: u16 = 1;
const NOT_SUITABLE_FOR_STREAM_START: u16 = 2;
const METADATA: u16 = 4;

/// A longer piece of metadata is none that is known.
const METADATA_LEN_MAX: usize = 32;

/// Types of metadata: seconds and nanoseconds since the epoch; time and time base of the next block.
const ENCODER_TIMESTAMP: u64 = 1;
const NEXT_BLOCK_PTS: u64 = 2;

/// What a block of data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The stream's header, in place of the one before; it is no part of the stream itself.
    Header,
    /// A newcomer may start with it.
    Start,
    /// It goes on.
    Continuation,
}

/// What is said of a stream beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// When the encoder made what comes now: time since the epoch.
    EncoderTimestamp(Duration),
    /// When the next block is shown, in units of `num / den` seconds.
    NextBlockPts {
        /// Units since the stream's zero.
        pts: i64,
        /// Over and under the line of the time base.
        num: u64,
        /// Never 0.
        den: u64,
    },
}

/// A part of what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A block begins, of so many bytes.
    Block {
        /// What it is.
        kind: Kind,
        /// Bytes of data; may be 0.
        len: u32,
    },
    /// Data of the block that began last.
    Data(&'a [u8]),
    /// Metadata of a type that is known.
    Metadata(Metadata),
}

/// Reads blocks.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Of a header or of metadata, as far as it is there.
    held: [u8; METADATA_LEN_MAX],
    held_len: usize,
    state: State,
    lost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    /// Bytes of data to come.
    Data(u32),
    /// Bytes of metadata to be gathered.
    Metadata(usize),
    /// Bytes of something unknown to come.
    Unknown(u32),
}

impl Reader {
    /// Bytes that were passed over because they were no block.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes bytes from the front of `bytes` until there is something to tell. `None`: all of them are taken.
    pub fn read<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Part<'a>> {
        loop {
            match self.state {
                State::Data(0) | State::Unknown(0) => self.state = State::Head,
                State::Data(left) => {
                    let data = take(bytes, left as usize);
                    self.state = State::Data(left - data.len() as u32);
                    return (!data.is_empty()).then_some(Part::Data(data));
                }
                State::Unknown(left) => {
                    let passed = take(bytes, left as usize).len() as u32;
                    self.state = State::Unknown(left - passed);
                    if passed == 0 {
                        return None;
                    }
                }
                State::Metadata(len) => {
                    if !self.gather(bytes, len) {
                        return None;
                    }
                    (self.state, self.held_len) = (State::Head, 0);
                    if let Some(metadata) = Metadata::parse(&self.held[..len]) {
                        return Some(Part::Metadata(metadata));
                    }
                }
                State::Head => {
                    if !self.gather(bytes, BLOCK_HEAD_LEN) {
                        return None;
                    }
                    if let Some(part) = self.take_head() {
                        return Some(part);
                    }
                }
            }
        }
    }

    /// Whether so many bytes are held, after some were taken.
    fn gather(&mut self, bytes: &mut &[u8], len: usize) -> bool {
        let part = take(bytes, len - self.held_len);
        self.held[self.held_len..self.held_len + part.len()].copy_from_slice(part);
        self.held_len += part.len();
        self.held_len == len
    }

    fn take_head(&mut self) -> Option<Part<'static>> {
        let Some((len, flags)) = parse_head(&self.held) else {
            // The next place where one may begin.
            let next = (1..BLOCK_HEAD_LEN).find(|at| {
                let rest = &self.held[*at..BLOCK_HEAD_LEN];
                let compared = rest.len().min(MAGIC.len());
                rest[..compared] == MAGIC[..compared]
            });
            let passed = next.unwrap_or(BLOCK_HEAD_LEN);
            self.held.copy_within(passed..BLOCK_HEAD_LEN, 0);
            self.held_len = BLOCK_HEAD_LEN - passed;
            self.lost += passed as u64;
            return None;
        };
        self.held_len = 0;
        if flags & METADATA != 0 {
            let is_known = len as usize <= METADATA_LEN_MAX;
            self.state = if is_known { State::Metadata(len as usize) } else { State::Unknown(len) };
            return None;
        }
        self.state = State::Data(len);
        let kind = match flags & (HEADER | NOT_SUITABLE_FOR_STREAM_START) {
            0 => Kind::Start,
            NOT_SUITABLE_FOR_STREAM_START => Kind::Continuation,
            _ => Kind::Header,
        };
        Some(Part::Block { kind, len })
    }
}

impl Metadata {
    fn parse(data: &[u8]) -> Option<Metadata> {
        let (fields, _) = data.as_chunks::<8>();
        match *fields {
            [kind, seconds, nanos, ..] if u64::from_be_bytes(kind) == ENCODER_TIMESTAMP => {
                let nanos = u32::try_from(u64::from_be_bytes(nanos)).ok().filter(|nanos| *nanos < 1_000_000_000)?;
                Some(Metadata::EncoderTimestamp(Duration::new(u64::from_be_bytes(seconds), nanos)))
            }
            [kind, pts, num, den, ..] if u64::from_be_bytes(kind) == NEXT_BLOCK_PTS => {
                let (pts, num, den) = (i64::from_be_bytes(pts), u64::from_be_bytes(num), u64::from_be_bytes(den));
                (den != 0).then_some(Metadata::NextBlockPts { pts, num, den })
            }
            _ => None,
        }
    }
}

/// The header of a block with so many bytes of data.
pub fn block_head(kind: Kind, len: u32) -> [u8; BLOCK_HEAD_LEN] {
    let flags = match kind {
        Kind::Header => HEADER,
        Kind::Start => 0,
        Kind::Continuation => NOT_SUITABLE_FOR_STREAM_START,
    };
    head(len, flags)
}

/// A whole block of metadata, appended to `out`.
pub fn write_metadata(out: &mut Vec<u8>, metadata: Metadata) {
    let fields = match metadata {
        Metadata::EncoderTimestamp(time) => vec![ENCODER_TIMESTAMP, time.as_secs(), time.subsec_nanos().into()],
        Metadata::NextBlockPts { pts, num, den } => vec![NEXT_BLOCK_PTS, pts.cast_unsigned(), num, den],
    };
    out.extend(head(8 * fields.len() as u32, METADATA));
    out.extend(fields.into_iter().flat_map(u64::to_be_bytes));
}

fn head(len: u32, flags: u16) -> [u8; BLOCK_HEAD_LEN] {
    let mut head = [0; BLOCK_HEAD_LEN];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&len.to_be_bytes());
    head[12..14].copy_from_slice(&flags.to_be_bytes());
    head[14..].copy_from_slice(&checksum(len, flags).to_be_bytes());
    head
}

/// Length and flags, when the checksum is right.
fn parse_head(head: &[u8]) -> Option<(u32, u16)> {
    let rest = head.strip_prefix(&MAGIC)?;
    let &[a, b, c, d, e, f, g, h, ..] = rest else { return None };
    let (len, flags) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
    (u16::from_be_bytes([g, h]) == checksum(len, flags) && len <= BLOCK_LEN_MAX).then_some((len, flags))
}

/// The remainder of 0x1234, size, flags and 16 zeros, as one polynomial over GF(2), by x^16 + 0x8fdb. That of metadata is
/// inverted, so that who does not know it takes it for damage.
fn checksum(len: u32, flags: u16) -> u16 {
    const DIVISOR: u128 = 0x1_8fdb;
    let mut rest = 0x1234 << 64 | u128::from(len) << 32 | u128::from(flags) << 16;
    for bit in (16..80).rev() {
        if rest >> bit & 1 != 0 {
            rest ^= DIVISOR << (bit - 16);
        }
    }
    let rest = rest as u16;
    if flags & METADATA == 0 { rest } else { !rest }
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let part;
    (part, *bytes) = bytes.split_at(bytes.len().min(len));
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    type Block = (Kind, Vec<u8>);

    /// What a reader says of it, data of a block put together, when it comes in pieces of so many bytes.
    fn read(stream: &[u8], piece: usize) -> (Vec<Block>, Vec<Metadata>, u64) {
        let (mut reader, mut blocks, mut metadata) = (Reader::default(), Vec::new(), Vec::new());
        for mut bytes in stream.chunks(piece) {
            while let Some(part) = reader.read(&mut bytes) {
                match part {
                    Part::Block { kind, .. } => blocks.push((kind, Vec::new())),
                    Part::Data(data) => blocks.last_mut().unwrap().1.extend(data),
                    Part::Metadata(found) => metadata.push(found),
                }
            }
            assert!(bytes.is_empty());
        }
        (blocks, metadata, reader.lost())
    }

    fn block(kind: Kind, data: &[u8]) -> Vec<u8> {
        [&block_head(kind, data.len() as u32)[..], data].concat()
    }

    #[test]
    fn checksums_are_those_of_a_shift_register() {
        for (len, flags, expected) in VECTORS {
            assert_eq!(checksum(len, flags), expected, "{len} {flags}");
        }
    }

    #[test]
    fn blocks_come_out_as_they_went_in_however_they_are_cut() {
        let time = Metadata::EncoderTimestamp(Duration::new(1_700_000_000, 999_999_999));
        let pts = Metadata::NextBlockPts { pts: -5, num: 1, den: 90_000 };
        let mut stream = block(Kind::Header, b"head");
        write_metadata(&mut stream, time);
        stream.extend(block(Kind::Start, &[7; 300]));
        stream.extend(block(Kind::Continuation, b""));
        write_metadata(&mut stream, pts);
        stream.extend(block(Kind::Continuation, b"cube!map"));
        let blocks = vec![
            (Kind::Header, b"head".to_vec()),
            (Kind::Start, vec![7; 300]),
            (Kind::Continuation, Vec::new()),
            (Kind::Continuation, b"cube!map".to_vec()),
        ];
        for piece in (1..40).chain([stream.len()]) {
            assert_eq!(read(&stream, piece), (blocks.clone(), vec![time, pts], 0), "{piece}");
        }
    }

    #[test]
    fn damage_is_passed_over() {
        let mut wrong = block_head(Kind::Start, 5);
        wrong[15] ^= 1;
        let stream = [b"cubcube!cube!ma", &wrong[..], b"abcde", &block(Kind::Start, b"right")].concat();
        for piece in 1..40 {
            let expected = (vec![(Kind::Start, b"right".to_vec())], Vec::new(), 15 + 16 + 5);
            assert_eq!(read(&stream, piece), expected, "{piece}");
        }
    }

    #[test]
    fn unknown_metadata_and_blocks_too_long_are_no_data() {
        let mut stream = head(1_000, METADATA).to_vec();
        stream.resize(16 + 1_000, 9);
        stream.extend([&head(8, METADATA)[..], &77_u64.to_be_bytes(), &head(0, METADATA)].concat());
        stream.extend(head(BLOCK_LEN_MAX + 1, 0));
        stream.extend(block(Kind::Start, b"data"));
        for piece in [1, 7, 5_000] {
            assert_eq!(read(&stream, piece), (vec![(Kind::Start, b"data".to_vec())], Vec::new(), 16));
        }
    }

    /// Size, flags, CRC: worked out by a shift register that is fed bit by bit, in another language.
    const VECTORS: [(u32, u16, u16); 8] = [
        (0, 0, 0xd4f2),
        (1, 0, 0x8b53),
        (1_316, 0, 0xbb16),
        (4, 1, 0xaa76),
        (65_536, 2, 0x8b51),
        (4_294_967_295, 3, 0xa184),
        (24, 4, 0x33a3),
        (32, 4, 0xbe43),
    ];
}
