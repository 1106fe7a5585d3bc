//! What format a stream is in, by its first bytes and by what its source calls it.

/// Formats that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// MPEG transport stream, in packets of 188 bytes.
    Ts,
    /// Flash Video, also with the codecs of Enhanced RTMP.
    Flv,
    /// Matroska and WebM.
    Matroska,
    /// Fragmented MP4 (ISO base media file format), CMAF among it.
    Mp4,
    /// Anything else. Whoever starts somewhere finds the next frame alone, as in MP3 and ADTS, or not at all.
    Raw,
}

/// With so many bytes `Format::detect` always has an answer: three sync bytes, wherever the first one stands.
pub const DETECT_LEN: usize = 3 * PACKET_LEN;

const PACKET_LEN: usize = wire::ts::PACKET_LEN;

impl Format {
    /// Looks at the first bytes of a stream, and at the media type that its source gave. `None`: more bytes are needed,
    /// never more than `DETECT_LEN`. What the bytes say counts before the type.
    pub fn detect(head: &[u8], content_type: Option<&str>) -> Option<Format> {
        let magic = head.first_chunk::<8>()?;
        match magic {
            [b'F', b'L', b'V', 1, ..] => return Some(Format::Flv),
            [0x1a, 0x45, 0xdf, 0xa3, ..] => return Some(Format::Matroska),
            [.., b'f' | b's', b't', b'y', b'p'] | [.., b'm', b'o', b'o', b'v'] => return Some(Format::Mp4),
            _ => {}
        }
        if let Some(format) = content_type.and_then(Format::of_content_type) {
            return Some(format);
        }
        let is_row = |at: usize| (0..3).all(|packet| head.get(at + packet * PACKET_LEN) == Some(&wire::ts::SYNC_BYTE));
        if head.len() < DETECT_LEN {
            return None;
        }
        Some(if (0..PACKET_LEN).any(is_row) { Format::Ts } else { Format::Raw })
    }

    /// `None` when the type says nothing, or a format whose first bytes would have been seen.
    fn of_content_type(text: &str) -> Option<Format> {
        let essence = text.split(';').next()?.trim().to_ascii_lowercase();
        match &essence[..] {
            "video/mp2t" | "video/mpeg2-ts" => Some(Format::Ts),
            "audio/mpeg" | "audio/mp3" | "audio/aac" | "audio/aacp" | "application/ogg" | "audio/ogg" | "video/ogg" => {
                Some(Format::Raw)
            }
            _ => None,
        }
    }
}

/// The media type of a raw stream, by its first bytes, for sources that give none.
pub fn raw_content_type(head: &[u8]) -> &'static str {
    match head {
        [b'O', b'g', b'g', b'S', ..] => "application/ogg",
        [b'I', b'D', b'3', ..] => "audio/mpeg",
        // Twelve bits of sync, MPEG version, layer 0: ADTS. Any other layer is MPEG audio.
        [0xff, second, ..] if second & 0xf6 == 0xf0 => "audio/aac",
        [0xff, second, ..] if second & 0xe0 == 0xe0 && second & 0x06 != 0 => "audio/mpeg",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_say_the_format() {
        assert_eq!(Format::detect(b"FLV\x01\x05\0\0\0", None), Some(Format::Flv));
        assert_eq!(Format::detect(&[0x1a, 0x45, 0xdf, 0xa3, 1, 0, 0, 0], None), Some(Format::Matroska));
        assert_eq!(Format::detect(b"\0\0\0\x18ftypiso5", Some("video/mp2t")), Some(Format::Mp4));
        assert_eq!(Format::detect(b"FLV\x01", None), None, "more is needed");
    }

    #[test]
    fn a_transport_stream_is_seen_wherever_it_begins() {
        for first in [0, 1, 187] {
            let mut head = vec![0; first + 3 * PACKET_LEN];
            head[first..].iter_mut().step_by(PACKET_LEN).for_each(|byte| *byte = 0x47);
            assert_eq!(Format::detect(&head, None), Some(Format::Ts), "{first}");
        }
        assert_eq!(Format::detect(&[0x47; 8], None), None);
        assert_eq!(Format::detect(&[0; DETECT_LEN], None), Some(Format::Raw));
    }

    #[test]
    fn the_type_decides_where_bytes_say_nothing() {
        assert_eq!(Format::detect(&[0; 8], Some("Video/MP2T; x=1")), Some(Format::Ts));
        assert_eq!(Format::detect(&[0; 8], Some("audio/mpeg")), Some(Format::Raw));
        assert_eq!(Format::detect(&[0; 8], Some("video/x-unknown")), None);
    }

    #[test]
    fn raw_sound_is_named() {
        assert_eq!(raw_content_type(&[0xff, 0xf1, 0x50]), "audio/aac");
        assert_eq!(raw_content_type(&[0xff, 0xfb, 0x90]), "audio/mpeg");
        assert_eq!(raw_content_type(b"ID3\x04"), "audio/mpeg");
        assert_eq!(raw_content_type(b"OggS"), "application/ogg");
        assert_eq!(raw_content_type(&[]), "application/octet-stream");
    }
}
