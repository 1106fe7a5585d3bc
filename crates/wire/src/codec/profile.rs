//! Which part of a codec a stream uses and a decoder has, by SDP's format parameters.
//!
//! Levels are not compared: who answers in SDP may decode a higher one than it sends (RFC 6184 §8.2.2,
//! level-asymmetry-allowed), and decoders take what they can.
//! Source: RFC 6184 §8.1 (H.264), RFC 9628 §7 (VP9), the AV1 RTP specification §7.2.

use super::Codec;

/// A profile, as far as it decides who decodes whose streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// None is named, or none that matters.
    #[default]
    Any,
    /// H.264's, by what it takes: 0 baseline, as all its encoders keep to the constrained one; 1 main; 2 high; then those of
    /// more bits and colours.
    H264(u8),
    /// VP9's `profile-id`; each is a format of its own.
    Vp9(u8),
    /// AV1's `profile`; each holds those before it.
    Av1(u8),
}

impl Profile {
    /// What a format's parameters ("key=value;key=value") say.
    pub fn of(codec: Codec, parameters: &str) -> Self {
        let parameter = |key: &str| {
            let pairs = parameters.split(';').filter_map(|pair| pair.split_once('='));
            pairs.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
        };
        let number = |key| parameter(key).map_or(Some(0), |value| value.parse().ok());
        match codec {
            Codec::H264 => parameter("profile-level-id").and_then(h264).map_or(Profile::Any, Profile::H264),
            Codec::Vp9 => number("profile-id").map_or(Profile::Any, Profile::Vp9),
            Codec::Av1 => number("profile").map_or(Profile::Any, Profile::Av1),
            Codec::Opus | Codec::Pcmu | Codec::Pcma | Codec::Vp8 | Codec::H265 => Profile::Any,
        }
    }

    /// Whether a decoder of this profile takes streams of another of the same codec.
    pub fn decodes(self, stream: Profile) -> bool {
        match (self, stream) {
            (Profile::H264(own), Profile::H264(stream)) | (Profile::Av1(own), Profile::Av1(stream)) => own >= stream,
            (Profile::Vp9(own), Profile::Vp9(stream)) => own == stream,
            _ => true,
        }
    }
}

/// Reads profile_idc and the constraint flags of a `profile-level-id` of six hexadecimal digits.
fn h264(text: &str) -> Option<u8> {
    let value = u32::from_str_radix(text, 16).ok().filter(|_| text.len() == 6)?;
    let [_, profile_idc, constraints, _] = value.to_be_bytes();
    // constraint_set0_flag: the stream is one of the baseline profile, too.
    let is_baseline = constraints & 0x80 != 0;
    match profile_idc {
        66 => Some(0),
        77 | 88 if is_baseline => Some(0),
        77 | 88 => Some(1),
        100 => Some(2),
        110 => Some(3),
        122 => Some(4),
        244 => Some(5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_from_format_parameters() {
        for (codec, parameters, profile) in [
            (Codec::H264, "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f", Profile::H264(0)),
            (Codec::H264, "Profile-Level-Id=4d801f", Profile::H264(0)),
            (Codec::H264, "profile-level-id=4d001f", Profile::H264(1)),
            (Codec::H264, "profile-level-id=640c1f", Profile::H264(2)),
            (Codec::H264, "profile-level-id=64001", Profile::Any),
            (Codec::H264, "", Profile::Any),
            (Codec::Vp9, "", Profile::Vp9(0)),
            (Codec::Vp9, "profile-id=2", Profile::Vp9(2)),
            (Codec::Vp9, "profile-id=x", Profile::Any),
            (Codec::Av1, "level-idx=5; profile=1; tier=0", Profile::Av1(1)),
            (Codec::Vp8, "profile=1", Profile::Any),
        ] {
            assert_eq!(Profile::of(codec, parameters), profile, "{parameters}");
        }
    }

    #[test]
    fn a_decoder_takes_what_its_profile_holds() {
        use Profile::*;
        for (decoder, stream, takes) in [
            (H264(2), H264(0), true),
            (H264(0), H264(2), false),
            (Vp9(2), Vp9(0), false),
            (Vp9(2), Vp9(2), true),
            (Av1(1), Av1(0), true),
            (Av1(0), Av1(1), false),
            (Any, H264(2), true),
            (H264(0), Any, true),
        ] {
            assert_eq!(decoder.decodes(stream), takes, "{decoder:?} {stream:?}");
        }
    }
}
