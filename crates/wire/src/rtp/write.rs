//! Writes RTP headers, with extensions, into a buffer in place.
//!
//! In: the fixed fields, then extensions one by one.
//! Out: header bytes from the start of the buffer. One-byte form (RFC 8285 §4.2) as long as every element fits it;
//! an element that does not turns the block into the two-byte form (§4.3), which the receiver has to have accepted.
//! Cost: one bounds check per element.

use super::{FIXED_HEADER_LEN, Form, ONE_BYTE_PROFILE, RtpHeader, TWO_BYTE_PROFILE};

/// Where the elements of the extension block begin, as no CSRCs are written.
const ELEMENTS_START: usize = FIXED_HEADER_LEN + 4;

/// The largest multiple of four that a 16-bit count of words can say.
const BLOCK_LEN_MAX: usize = 4 * u16::MAX as usize;

/// An RTP header in the making.
#[derive(Debug)]
pub struct HeaderWriter<'a> {
    buf: &'a mut [u8],
    /// Bytes written: the fixed header alone, or all up to the last element.
    len: usize,
    form: Form,
}

impl<'a> HeaderWriter<'a> {
    /// Writes the fixed header at the start of `buf`; `None` when it has no room.
    #[inline]
    pub fn new(buf: &'a mut [u8], header: &RtpHeader) -> Option<Self> {
        let fixed = buf.first_chunk_mut::<FIXED_HEADER_LEN>()?;
        fixed[0] = 0x80;
        fixed[1] = u8::from(header.marker) << 7 | header.payload_type & 0x7f;
        fixed[2..4].copy_from_slice(&header.seq.0.to_be_bytes());
        fixed[4..8].copy_from_slice(&header.timestamp.to_be_bytes());
        fixed[8..12].copy_from_slice(&header.ssrc.to_be_bytes());
        Some(HeaderWriter { buf, len: FIXED_HEADER_LEN, form: Form::OneByte })
    }

    /// Appends one extension. Returns false, and appends nothing, when the buffer has no room for it, the id is 0, or
    /// the value exceeds 255 bytes.
    #[inline]
    pub fn extension(&mut self, id: u8, value: &[u8]) -> bool {
        let fits_one_byte = matches!(id, 1..=14) && matches!(value.len(), 1..=16);
        if self.form == Form::TwoByte || !fits_one_byte {
            return self.extension_two_byte(id, value);
        }
        let start = self.len.max(ELEMENTS_START);
        if !self.has_room(start + 1 + value.len()) {
            return false;
        }
        let element = &mut self.buf[start..start + 1 + value.len()];
        element[0] = id << 4 | (value.len() - 1) as u8;
        element[1..].copy_from_slice(value);
        self.len = start + 1 + value.len();
        true
    }

    /// Ends the header and returns its length. The payload goes behind it.
    #[inline]
    pub fn finish(self) -> usize {
        if self.len == FIXED_HEADER_LEN {
            return FIXED_HEADER_LEN;
        }
        let end = self.len.next_multiple_of(4);
        self.buf[self.len..end].fill(0);
        let profile = match self.form {
            Form::OneByte => ONE_BYTE_PROFILE,
            Form::TwoByte => TWO_BYTE_PROFILE,
        };
        let words = ((end - ELEMENTS_START) / 4) as u16;
        self.buf[0] |= 0x10;
        self.buf[FIXED_HEADER_LEN..FIXED_HEADER_LEN + 2].copy_from_slice(&profile.to_be_bytes());
        self.buf[FIXED_HEADER_LEN + 2..ELEMENTS_START].copy_from_slice(&words.to_be_bytes());
        end
    }

    /// Whether elements may reach to `end`, with the padding to whole words that `finish` writes.
    #[inline]
    fn has_room(&self, end: usize) -> bool {
        end <= ELEMENTS_START + BLOCK_LEN_MAX && end.next_multiple_of(4) <= self.buf.len()
    }

    #[cold]
    fn extension_two_byte(&mut self, id: u8, value: &[u8]) -> bool {
        let Ok(value_len) = u8::try_from(value.len()) else { return false };
        let start = self.len.max(ELEMENTS_START);
        let widened_by = if self.form == Form::OneByte { self.element_count() } else { 0 };
        if id == 0 || !self.has_room(start + widened_by + 2 + value.len()) {
            return false;
        }
        if self.form == Form::OneByte {
            self.widen();
        }
        let start = self.len.max(ELEMENTS_START);
        self.buf[start] = id;
        self.buf[start + 1] = value_len;
        self.buf[start + 2..start + 2 + value.len()].copy_from_slice(value);
        self.len = start + 2 + value.len();
        true
    }

    /// Elements so far, which are in the one-byte form.
    fn element_count(&self) -> usize {
        let mut at = ELEMENTS_START;
        let mut count = 0;
        while at < self.len {
            at += 2 + usize::from(self.buf[at] & 0x0f);
            count += 1;
        }
        count
    }

    /// Turns what is written from the one-byte into the two-byte form. The caller saw to the room.
    fn widen(&mut self) {
        let mut at = ELEMENTS_START;
        while at < self.len {
            let (id, value_len) = (self.buf[at] >> 4, (self.buf[at] & 0x0f) + 1);
            self.buf.copy_within(at + 1..self.len, at + 2);
            self.buf[at] = id;
            self.buf[at + 1] = value_len;
            at += 2 + usize::from(value_len);
            self.len += 1;
        }
        self.form = Form::TwoByte;
    }
}

/// Pads the plain packet `packet[..len]` to `target_len` bytes and sets its P bit (RFC 3550 §5.1).
///
/// Returns the new length. Where the target is out of reach (not longer, more than 255 bytes away, beyond the buffer)
/// or the packet is padded already, nothing changes, and that is `len`.
#[inline]
pub fn pad(packet: &mut [u8], len: usize, target_len: usize) -> usize {
    let Some(count @ 1..=255) = target_len.checked_sub(len) else { return len };
    if len < FIXED_HEADER_LEN || target_len > packet.len() || packet[0] & 0x20 != 0 {
        return len;
    }
    packet[0] |= 0x20;
    packet[len..target_len].fill(0);
    packet[target_len - 1] = count as u8;
    target_len
}

#[cfg(test)]
mod tests {
    use super::super::RtpPacket;
    use super::*;
    use crate::Seq;

    const HEADER: RtpHeader =
        RtpHeader { payload_type: 111, marker: true, seq: Seq(65_535), timestamp: 0xffff_fffe, ssrc: 7 };

    fn write(buf: &mut [u8], extensions: &[(u8, &[u8])]) -> (usize, usize) {
        let mut writer = HeaderWriter::new(buf, &HEADER).unwrap();
        let taken = extensions.iter().filter(|(id, value)| writer.extension(*id, value)).count();
        (writer.finish(), taken)
    }

    #[test]
    fn without_extensions_the_header_is_12_bytes() {
        let mut buf = [0xff; 12];
        assert_eq!(write(&mut buf, &[]), (12, 0));
        assert_eq!(RtpPacket::parse(&buf).unwrap().header(), HEADER);
    }

    #[test]
    fn small_elements_take_the_one_byte_form() {
        let mut buf = [0xff; 64];
        assert_eq!(write(&mut buf, &[(1, &[9]), (14, &[8; 16])]), (36, 2));
        assert_eq!(buf[12..18], [0xbe, 0xde, 0, 5, 0x10, 9]);
        assert_eq!(buf[35], 0, "padded to whole words");
    }

    #[test]
    fn a_large_element_turns_earlier_ones_into_the_two_byte_form() {
        for odd_one in [(2, &[5; 17][..]), (15, &[5]), (2, &[])] {
            let mut buf = [0xff; 64];
            let all = [(1, &[9][..]), (4, &[6, 7, 8]), odd_one, (5, &[4])];
            let (len, taken) = write(&mut buf, &all);
            assert_eq!(taken, 4);
            assert_eq!(buf[12..14], [0x10, 0]);
            let packet = RtpPacket::parse(&buf[..len]).unwrap();
            assert_eq!(packet.extensions().collect::<Vec<_>>(), all);
            assert_eq!(packet.header_len(), len);
        }
    }

    #[test]
    fn an_element_without_room_is_refused_and_the_rest_stays() {
        for room in 12..40 {
            let mut buf = vec![0xff; room];
            let all = [(1, &[9, 9][..]), (2, &[7; 5]), (20, &[6])];
            let (len, taken) = write(&mut buf, &all);
            let packet = RtpPacket::parse(&buf[..len]).unwrap();
            assert_eq!(packet.extensions().count(), taken);
        }
        assert!(HeaderWriter::new(&mut [0; 11], &HEADER).is_none());
    }

    #[test]
    fn id_0_and_more_than_255_bytes_are_refused() {
        let mut buf = [0; 600];
        assert_eq!(write(&mut buf, &[(0, &[1]), (1, &[0; 256])]), (12, 0));
    }

    #[test]
    fn padding_ends_with_its_own_length() {
        let mut buf = [0xff; 300];
        let len = write(&mut buf, &[]).0;
        assert_eq!(pad(&mut buf, len, 20), 20);
        assert_eq!(buf[12..20], [0, 0, 0, 0, 0, 0, 0, 8]);
        assert_eq!(RtpPacket::parse(&buf[..20]).unwrap().payload(), []);
        assert_eq!(pad(&mut buf, 20, 30), 20, "padded already");
    }

    #[test]
    fn a_target_out_of_reach_changes_nothing() {
        let mut buf = [0; 300];
        let len = write(&mut buf, &[]).0;
        let before = buf;
        for target in [0, len, len + 256, 301] {
            assert_eq!(pad(&mut buf, len, target), len);
        }
        assert_eq!(buf, before);
        assert_eq!(pad(&mut buf, len, len + 255), len + 255);
    }
}
