//! Headers of PES packets (§2.4.3.6, §2.4.3.7): when what follows is decoded and shown.
//!
//! In: the payload of a TS packet with payload_unit_start_indicator. Out: the header's fields, or those changed in place.

use super::Timestamp;

/// Bytes before the optional header: start code prefix, stream id, length.
const FIXED_LEN: usize = 6;
/// Bytes before the timestamps: two of flags and one of length more.
const OPTIONAL_LEN: usize = FIXED_LEN + 3;
/// The two highest bits of PTS_DTS_flags.
const HAS_PTS: u8 = 0x80;
const HAS_DTS: u8 = 0x40;

/// A PES header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PesHeader<'a> {
    /// When it is shown.
    pub pts: Option<Timestamp>,
    /// When it is decoded, where that is not when it is shown.
    pub dts: Option<Timestamp>,
    /// Elementary stream bytes behind the header, as far as this TS packet has them.
    pub data: &'a [u8],
}

impl<'a> PesHeader<'a> {
    /// `None` when the payload does not begin with a whole PES header.
    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let ([0, 0, 1, stream_id, ..], rest) = payload.split_first_chunk::<FIXED_LEN>()? else { return None };
        if !has_optional_header(*stream_id) {
            return Some(PesHeader { pts: None, dts: None, data: rest });
        }
        let ([marks, flags, header_len], rest) = rest.split_first_chunk::<3>()?;
        let (fields, data) = rest.split_at_checked((*header_len).into())?;
        if marks & 0xc0 != 0x80 {
            return None;
        }
        let pts = fields.first_chunk().filter(|_| flags & HAS_PTS != 0).map(Timestamp::from_field);
        let both = flags & (HAS_PTS | HAS_DTS) == HAS_PTS | HAS_DTS;
        let dts = fields.get(5..).and_then(<[u8]>::first_chunk).filter(|_| both).map(Timestamp::from_field);
        Some(PesHeader { pts, dts, data })
    }
}

/// Whether flags and timestamps follow the length (the list in the syntax table of §2.4.3.6).
fn has_optional_header(stream_id: u8) -> bool {
    // Program stream map, padding, private stream 2, ECM, EMM, directory, DSM-CC, H.222.1 type E.
    !matches!(stream_id, 0xbc | 0xbe | 0xbf | 0xf0 | 0xf1 | 0xff | 0xf2 | 0xf8)
}

/// Makes PTS and DTS of the PES header at the start of `payload` later by `ticks` of 90 kHz. Returns whether there were
/// any.
pub fn shift_timestamps(payload: &mut [u8], ticks: i64) -> bool {
    let Some(PesHeader { pts: Some(pts), dts, .. }) = PesHeader::parse(payload) else { return false };
    let fields = &mut payload[OPTIONAL_LEN..];
    let prefix = fields[0] >> 4;
    fields[..5].copy_from_slice(&pts.plus(ticks).to_field(prefix));
    if let Some(dts) = dts {
        let prefix = fields[5] >> 4;
        fields[5..10].copy_from_slice(&dts.plus(ticks).to_field(prefix));
    }
    true
}

/// Writes a PES header for `data_len` bytes of elementary stream, and returns its length; `None` when `buf` has no room.
/// A length over 16 bits is written as 0, "until the next". DTS is left out where it is the PTS or there is no PTS.
pub fn write_pes_header(
    buf: &mut [u8],
    stream_id: u8,
    data_len: usize,
    pts: Option<Timestamp>,
    dts: Option<Timestamp>,
) -> Option<usize> {
    let dts = dts.filter(|_| pts.is_some() && dts != pts);
    let fields_len = 5 * (usize::from(pts.is_some()) + usize::from(dts.is_some()));
    let len = OPTIONAL_LEN + fields_len;
    let header = buf.get_mut(..len)?;
    let packet_len = u16::try_from(3 + fields_len + data_len).unwrap_or(0);
    header[..FIXED_LEN].copy_from_slice(&[0, 0, 1, stream_id, (packet_len >> 8) as u8, packet_len as u8]);
    let flags = if dts.is_some() { HAS_PTS | HAS_DTS } else { HAS_PTS };
    // data_alignment_indicator: what follows begins an access unit.
    header[FIXED_LEN..OPTIONAL_LEN].copy_from_slice(&[0x84, pts.map_or(0, |_| flags), fields_len as u8]);
    if let Some(pts) = pts {
        header[9..14].copy_from_slice(&pts.to_field(flags >> 6));
    }
    if let Some(dts) = dts {
        header[14..19].copy_from_slice(&dts.to_field(1));
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTS: Timestamp = Timestamp::from_ticks(180_000);
    const DTS: Timestamp = Timestamp::from_ticks(176_400);

    #[test]
    fn both_timestamps_are_read_and_shifted() {
        let mut buf = [0; 30];
        assert_eq!(write_pes_header(&mut buf, 0xe0, 11, Some(PTS), Some(DTS)), Some(19));
        let header = PesHeader::parse(&buf).unwrap();
        assert_eq!((header.pts, header.dts, header.data.len(), &buf[4..6]), (Some(PTS), Some(DTS), 11, &[0, 24][..]));

        assert!(shift_timestamps(&mut buf, -180_001));
        let header = PesHeader::parse(&buf).unwrap();
        assert_eq!(header.pts.map(Timestamp::ticks), Some(Timestamp::MODULUS - 1));
        assert_eq!(header.dts.map(Timestamp::ticks), Some(Timestamp::MODULUS - 3_601));
        assert_eq!((buf[9] >> 4, buf[14] >> 4), (3, 1), "the prefixes stay");
    }

    #[test]
    fn a_dts_that_is_the_pts_is_left_out() {
        let mut buf = [0; 30];
        assert_eq!(write_pes_header(&mut buf, 0xc0, 0, Some(PTS), Some(PTS)), Some(14));
        assert_eq!(buf[7], 0x80);
        assert_eq!(buf[9] >> 4, 2);
    }

    #[test]
    fn streams_without_an_optional_header_have_their_data_behind_the_length() {
        let header = PesHeader::parse(&[0, 0, 1, 0xbf, 0, 2, 7, 8]).unwrap();
        assert_eq!((header.pts, header.data), (None, &[7, 8][..]));
    }

    #[test]
    fn what_is_no_pes_header_stays_as_it_is() {
        for payload in [&[0, 0, 2, 0xe0, 0, 0, 0x80, 0, 0][..], &[0, 0, 1, 0xe0, 0, 0, 0x40, 0, 0], &[0, 0, 1], &[]] {
            assert_eq!(PesHeader::parse(payload), None);
            assert!(!shift_timestamps(&mut payload.to_vec(), 1));
        }
        // The flags say PTS and DTS, but the header ends before.
        let mut short = [0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 3, 1, 2, 3, 4, 5, 6];
        assert_eq!(PesHeader::parse(&short).unwrap().pts, None);
        assert!(!shift_timestamps(&mut short, 1));
    }
}
