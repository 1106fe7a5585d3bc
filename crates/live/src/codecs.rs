//! Names of codecs, as players and playlists want them, from the configurations that containers carry.
//!
//! In: decoder configuration records. Out: strings; `None` when a record is cut off.
//! Source: RFC 6381 §3.3, ISO/IEC 14496-15 §5.3.3 and annex E, the codec bindings of AV1 and VP9 for ISO media.

use std::fmt::Write as _;

/// An AVCDecoderConfigurationRecord: profile, constraints, level.
pub(crate) fn avc(record: &[u8]) -> Option<String> {
    let &[_, profile, constraints, level, ..] = record else { return None };
    Some(format!("avc1.{profile:02x}{constraints:02x}{level:02x}"))
}

/// An HEVCDecoderConfigurationRecord: profile, compatible profiles in the reverse order of bits, tier and level,
/// constraints without the zeros behind them. `name` is `hvc1` or `hev1`.
pub(crate) fn hevc(name: &str, record: &[u8]) -> Option<String> {
    let fields = record.get(1..)?.first_chunk::<12>()?;
    let space = ["", "A", "B", "C"][usize::from(fields[0] >> 6)];
    let tier = if fields[0] & 0x20 == 0 { 'L' } else { 'H' };
    let compatible = u32::from_be_bytes([fields[1], fields[2], fields[3], fields[4]]).reverse_bits();
    let mut text = format!("{name}.{space}{}.{compatible:X}.{tier}{}", fields[0] & 0x1f, fields[11]);
    let constraints = &fields[5..11];
    let len = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in &constraints[..len] {
        write!(text, ".{byte:X}").ok()?;
    }
    Some(text)
}

/// An AV1CodecConfigurationRecord.
pub(crate) fn av1(record: &[u8]) -> Option<String> {
    let &[_, second, third, ..] = record else { return None };
    let (profile, level) = (second >> 5, second & 0x1f);
    let tier = if third & 0x80 == 0 { 'M' } else { 'H' };
    let depth = match (third & 0x40 != 0, third & 0x20 != 0) {
        (false, _) => 8,
        (true, false) => 10,
        (true, true) => 12,
    };
    Some(format!("av01.{profile}.{level:02}{tier}.{depth:02}"))
}

/// A VPCodecConfigurationRecord, with version and flags before it.
pub(crate) fn vp9(record: &[u8]) -> Option<String> {
    let &[_, _, _, _, profile, level, depth, ..] = record else { return None };
    Some(format!("vp09.{profile:02}.{level:02}.{:02}", depth >> 4))
}

/// An AudioSpecificConfig: the audio object type; 31 says that six more bits follow.
pub(crate) fn aac(config: &[u8]) -> Option<String> {
    let &[first, ref rest @ ..] = config else { return None };
    let object = match first >> 3 {
        31 => 32 + u16::from((first & 7) << 3 | rest.first()? >> 5),
        object => object.into(),
    };
    Some(format!("mp4a.40.{object}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_standards_examples() {
        assert_eq!(avc(&[1, 0x64, 0, 0x1f, 0xff]).as_deref(), Some("avc1.64001f"));
        // ISO/IEC 14496-15 annex E: Main profile, level 3.1, progressive.
        let main = [1, 1, 0x60, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93];
        assert_eq!(hevc("hvc1", &main).as_deref(), Some("hvc1.1.6.L93.B0"));
        assert_eq!(av1(&[0x81, 0x04, 0x0c, 0]).as_deref(), Some("av01.0.04M.08"));
        assert_eq!(vp9(&[1, 0, 0, 0, 0, 31, 0x82]).as_deref(), Some("vp09.00.31.08"));
        assert_eq!(aac(&[0x12, 0x10]).as_deref(), Some("mp4a.40.2"));
        assert_eq!(aac(&[0xf9, 0x40]).as_deref(), Some("mp4a.40.42"), "xHE-AAC");
    }

    #[test]
    fn what_is_cut_off_has_no_name() {
        assert!(avc(&[1, 2, 3]).is_none() && hevc("hvc1", &[1; 12]).is_none() && av1(&[1]).is_none());
        assert!(vp9(&[1; 6]).is_none() && aac(&[]).is_none() && aac(&[0xf8]).is_none());
    }
}
