//! Finds pictures that need no other (I-frames) in a video stream.
//!
//! In: the packets of one PID, in order. Out: where each picture begins, and whether it stands alone.
//! The multiplexer may say so (random_access_indicator); where it does not, the start codes of the elementary stream are
//! looked at, up to the first that tells the picture's kind.
//! Cost: per picture, the bytes up to its first slice.
//! Source: ISO/IEC 13818-1 §2.4.3.5 (random_access_indicator); H.262 §6.2.3, H.264 §7.3 and table 7-1, H.265 table 7-1.

use wire::ts::{Packet, PesHeader, Pid, Pmt};

/// How a video stream is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoCodec {
    /// H.262, and MPEG-1 video, whose start codes are the same.
    H262,
    /// AVC.
    H264,
    /// HEVC.
    H265,
}

impl VideoCodec {
    /// By the stream type of the PMT (table 2-34); `None` when it is no video that we can look into.
    pub fn of_stream_type(stream_type: u8) -> Option<Self> {
        match stream_type {
            0x01 | 0x02 => Some(VideoCodec::H262),
            0x1b => Some(VideoCodec::H264),
            0x24 => Some(VideoCodec::H265),
            _ => None,
        }
    }

    /// The first of a program's streams that is video.
    pub(crate) fn find(pmt: &Pmt<'_>) -> Option<(Pid, VideoCodec)> {
        pmt.streams().find_map(|stream| Some((stream.pid, VideoCodec::of_stream_type(stream.stream_type)?)))
    }

    /// What a start code and the bytes behind it say of the picture; `None`: nothing, look further. With `has_set` parameters
    /// of a sequence stood before it.
    fn verdict(self, unit: &[u8; UNIT_LEN], has_set: bool) -> Option<bool> {
        match self {
            // picture_start_code, ten bits of temporal_reference, three of picture_coding_type.
            VideoCodec::H262 => (unit[0] == 0).then_some(unit[2] >> 3 & 7 == 1),
            VideoCodec::H264 => match unit[0] & 0x1f {
                5 => Some(true),
                // slice_type behind first_mb_in_slice; 2, 4, 7 and 9 are intra.
                1 | 2 => Some(has_set && matches!(second_exp_golomb(&unit[1..]), Some(2 | 4 | 7 | 9))),
                _ => None,
            },
            VideoCodec::H265 => match unit[0] >> 1 & 0x3f {
                16..=21 => Some(true),
                0..=15 => Some(false),
                _ => None,
            },
        }
    }
}

/// Bytes behind a start code that are looked at.
const UNIT_LEN: usize = 6;

/// Bytes of a picture in which its kind must be told; parameter sets and messages stand before.
const LOOK_MAX: usize = 64 * 1_024;

/// What a packet said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A picture, or what comes before it, begins with this packet.
    Start,
    /// It begins, and stands alone.
    StartAlone,
    /// The picture that began last stands alone.
    Alone,
}

/// Looks at the packets of one video stream.
#[derive(Clone, Debug)]
pub struct Finder {
    codec: VideoCodec,
    /// Bytes looked at since the picture began; `None`: its kind is told, or given up.
    looked: Option<usize>,
    /// The bytes up to the last one looked at, shifted in from the right.
    last: u32,
    /// Of the unit behind a start code, as far as it is there.
    unit: [u8; UNIT_LEN],
    unit_len: Option<usize>,
    /// Only pictures that those behind them do not reach over are looked for.
    entries_only: bool,
    /// Parameters of a sequence stood in this picture.
    has_set: bool,
}

impl Finder {
    /// Begins in front of a stream of that codec.
    pub fn new(codec: VideoCodec) -> Self {
        let unit = [0; UNIT_LEN];
        Finder { codec, looked: None, last: u32::MAX, unit, unit_len: None, entries_only: false, has_set: false }
    }

    /// The same, for who plays on from there: in H.264 pictures behind an I-frame may need those before it. Encoders say that
    /// they do not by making it an IDR, or, in an open group, by repeating the parameters of the sequence.
    pub fn of_entries(codec: VideoCodec) -> Self {
        Finder { entries_only: true, ..Finder::new(codec) }
    }

    /// What it looks for pictures in.
    pub fn codec(&self) -> VideoCodec {
        self.codec
    }

    /// Whether nothing that comes of the last picture says more of it: it was told, or given up.
    pub fn is_decided(&self) -> bool {
        self.looked.is_none()
    }

    /// Takes the next packet of the stream.
    pub fn push(&mut self, packet: &Packet<'_>) -> Option<Found> {
        if !packet.payload_unit_start() {
            let alone = self.looked.is_some() && self.look(packet.payload());
            return alone.then_some(Found::Alone);
        }
        self.looked = None;
        let header = PesHeader::parse(packet.payload()).filter(|_| !packet.is_scrambled());
        if packet.adaptation().is_some_and(|field| field.random_access()) {
            return Some(Found::StartAlone);
        }
        let Some(header) = header else { return Some(Found::Start) };
        (self.looked, self.last, self.unit_len, self.has_set) = (Some(0), u32::MAX, None, false);
        if self.look(header.data) { Some(Found::StartAlone) } else { Some(Found::Start) }
    }

    /// Looks for the unit that tells the kind; true when it says that the picture stands alone.
    fn look(&mut self, data: &[u8]) -> bool {
        let looked = self.looked.unwrap_or(0) + data.len();
        self.looked = (looked <= LOOK_MAX).then_some(looked);
        for &byte in data {
            if let Some(len) = self.unit_len {
                self.unit[len] = byte;
                self.unit_len = Some(len + 1).filter(|len| *len < UNIT_LEN);
                if len + 1 == UNIT_LEN {
                    let has_set = self.has_set || !self.entries_only;
                    if let Some(verdict) = self.codec.verdict(&self.unit, has_set) {
                        self.looked = None;
                        return verdict;
                    }
                    self.has_set |= self.codec == VideoCodec::H264 && self.unit[0] & 0x1f == 7;
                }
            }
            self.last = self.last << 8 | u32::from(byte);
            if self.last & 0x00ff_ffff == 1 {
                self.unit_len = Some(0);
            }
        }
        false
    }
}

/// The second of two numbers ue(v) (H.264 §9.1).
fn second_exp_golomb(data: &[u8]) -> Option<u32> {
    let bytes = data.iter().take(5).fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut bits = bytes << (64 - 8 * data.len().min(5));
    let mut number = None;
    for _ in 0..2 {
        let zeros = bits.leading_zeros();
        if zeros > 15 {
            return None;
        }
        number = Some((bits << zeros >> (63 - zeros)) as u32 - 1);
        bits <<= 2 * zeros + 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ts::{AdaptationSpec, PACKET_LEN, PacketSpec, Timestamp, write_packet, write_pes_header};

    /// A picture of these bytes, in packets.
    fn packets(data: &[u8], random_access: bool) -> Vec<[u8; PACKET_LEN]> {
        let mut pes = vec![0; 14];
        write_pes_header(&mut pes, 0xe0, 0, Some(Timestamp::from_ticks(900)), None).unwrap();
        pes.extend(data);
        let mut packets = Vec::new();
        let mut rest = &pes[..];
        while !rest.is_empty() {
            let starts = packets.is_empty();
            let spec = PacketSpec { pid: Pid::new(256).unwrap(), payload_unit_start: starts, continuity: 0 };
            let fields = AdaptationSpec { random_access: random_access && starts, ..AdaptationSpec::default() };
            let mut packet = [0; PACKET_LEN];
            let taken = write_packet(&mut packet, &spec, &fields, rest);
            packets.push(packet);
            rest = &rest[taken..];
        }
        packets
    }

    fn stands_alone(codec: VideoCodec, data: &[u8]) -> bool {
        is_found(Finder::new(codec), data)
    }

    fn is_found(mut finder: Finder, data: &[u8]) -> bool {
        let found: Vec<_> =
            packets(data, false).iter().filter_map(|packet| finder.push(&Packet::parse(packet).unwrap())).collect();
        assert!(matches!(found[0], Found::Start | Found::StartAlone));
        found.iter().any(|found| matches!(found, Found::StartAlone | Found::Alone))
    }

    #[test]
    fn h264_pictures_are_told_by_their_first_slice() {
        let delimiter = [0, 0, 0, 1, 9, 0xf0];
        let with = |unit: &[u8]| [&delimiter[..], &[0, 0, 1], unit, &[0; 20]].concat();
        assert!(stands_alone(VideoCodec::H264, &with(&[0x65, 0x88, 0x84, 0, 0x10, 0])), "IDR");
        // first_mb_in_slice 0 is "1"; slice_type 7 is "0001000", 5 is "00110", 2 is "011".
        assert!(stands_alone(VideoCodec::H264, &with(&[0x41, 0b1000_1000, 0, 0, 0, 0])), "all slices are I");
        assert!(stands_alone(VideoCodec::H264, &with(&[0x01, 0b1011_0000, 0, 0, 0, 0])), "this slice is I");
        assert!(!stands_alone(VideoCodec::H264, &with(&[0x41, 0b1001_1000, 0, 0, 0, 0])), "P");
    }

    #[test]
    fn an_intra_picture_of_h264_is_an_entry_when_it_is_an_idr_or_brings_its_parameters() {
        let set = [0, 0, 1, 0x67, 0x64, 0, 0x1f, 0xac, 0xd9, 0x40];
        let intra = [0, 0, 1, 0x41, 0b1000_1000, 0, 0, 0, 0, 0];
        let with_set = [set, intra].concat();
        let is_entry = |data: &[u8]| is_found(Finder::of_entries(VideoCodec::H264), data);
        assert!(!is_entry(&intra) && is_entry(&with_set) && is_entry(&[0, 0, 1, 0x65, 0x88, 0x84, 0, 0x10, 0]));
        let mut finder = Finder::of_entries(VideoCodec::H264);
        let found = [&with_set[..], &intra].map(|data| finder.push(&Packet::parse(&packets(data, false)[0]).unwrap()));
        assert_eq!(found, [Some(Found::StartAlone), Some(Found::Start)], "parameters count for one picture");
    }

    #[test]
    fn parameter_sets_of_any_length_may_come_first() {
        for len in (100..1_000).step_by(7) {
            let data = [&[0, 0, 1, 0x67][..], &vec![0x55; len], &[0, 0, 1, 0x65, 1, 2, 3, 4, 5, 6]].concat();
            assert!(stands_alone(VideoCodec::H264, &data), "{len}");
        }
    }

    #[test]
    fn h262_and_h265_pictures_are_told_by_their_headers() {
        let sequence = [0, 0, 1, 0xb3, 1, 2, 3, 4, 5, 6, 7, 8];
        assert!(stands_alone(VideoCodec::H262, &[&sequence[..], &[0, 0, 1, 0, 0, 0x0f, 0xff, 0xf8, 0, 0]].concat()));
        assert!(!stands_alone(VideoCodec::H262, &[0, 0, 1, 0, 0, 0x57, 0xff, 0xf8, 0, 0]));
        assert!(stands_alone(VideoCodec::H265, &[0, 0, 1, 0x40, 1, 9, 9, 9, 9, 0, 0, 1, 0x26, 1, 0, 0, 0, 0]), "IDR");
        assert!(stands_alone(VideoCodec::H265, &[0, 0, 1, 0x2a, 1, 0, 0, 0, 0]), "CRA");
        assert!(!stands_alone(VideoCodec::H265, &[0, 0, 1, 0x02, 1, 0, 0, 0, 0]), "trailing");
    }

    #[test]
    fn the_multiplexers_word_is_enough() {
        let packet = packets(&[0; 30], true)[0];
        let found = Finder::new(VideoCodec::H264).push(&Packet::parse(&packet).unwrap());
        assert_eq!(found, Some(Found::StartAlone));
    }

    #[test]
    fn stream_types_name_their_codec() {
        assert_eq!(
            [2, 0x1b, 0x24, 0x0f].map(VideoCodec::of_stream_type),
            [Some(VideoCodec::H262), Some(VideoCodec::H264), Some(VideoCodec::H265), None]
        );
    }
}
