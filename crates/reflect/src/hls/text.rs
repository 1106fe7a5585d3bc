//! A media playlist as text (RFC 8216 §4).

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::parts::Part;
use super::{Container, Playlist, Segment};

/// Seconds as a playlist has them. Cut, not rounded: 4.4999 is 4 when a player rounds it.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_secs(), self.0.subsec_millis())
    }
}

/// Writes what is listed; every address ends in `query`.
pub(super) fn write(playlist: &Playlist, target_seconds: u64, query: &str) -> String {
    let mut text = String::with_capacity(256 + playlist.listed().len() * (48 + query.len()));
    // Writing to a string cannot fail.
    let _ = write_to(&mut text, playlist, target_seconds, query);
    text
}

fn write_to(text: &mut String, playlist: &Playlist, target_seconds: u64, query: &str) -> fmt::Result {
    let Playlist { settings, cutter, .. } = playlist;
    let extension = settings.container.extension();
    // §7: EXT-X-MAP of what are no I-frames is of version 6, and seconds with decimals are of version 3.
    let version = if settings.container == Container::Mp4 { 6 } else { 3 };
    writeln!(text, "#EXTM3U\n#EXT-X-VERSION:{version}\n#EXT-X-TARGETDURATION:{target_seconds}")?;
    if let Some(part) = settings.part_target {
        let hold_back = Seconds(3 * part);
        writeln!(text, "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={hold_back}")?;
        writeln!(text, "#EXT-X-PART-INF:PART-TARGET={}", Seconds(part))?;
    }
    writeln!(text, "#EXT-X-MEDIA-SEQUENCE:{}", playlist.listed_from)?;
    if playlist.discontinuities > 0 {
        writeln!(text, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", playlist.discontinuities)?;
    }
    if playlist.listed().all(|(_, segment)| segment.is_independent) {
        writeln!(text, "#EXT-X-INDEPENDENT-SEGMENTS")?;
    }
    let mut map = None;
    let mut begin = |text: &mut String, is_discontinuous: bool, own: u64| {
        if is_discontinuous {
            writeln!(text, "#EXT-X-DISCONTINUITY")?;
        }
        if settings.container == Container::Mp4 && map.replace(own) != Some(own) {
            writeln!(text, "#EXT-X-MAP:URI=\"init-{own}.mp4{query}\"")?;
        }
        Ok(())
    };
    let write_parts = |text: &mut String, number: u64, parts: &[Part]| {
        for (index, Part { duration, is_independent, .. }) in parts.iter().enumerate() {
            let independent = if *is_independent { ",INDEPENDENT=YES" } else { "" };
            let duration = Seconds(*duration);
            writeln!(text, "#EXT-X-PART:DURATION={duration},URI=\"{number}.{index}.{extension}{query}\"{independent}")?;
        }
        Ok(())
    };
    for (number, Segment { is_discontinuous, duration, map, parts, .. }) in playlist.listed() {
        begin(text, *is_discontinuous, *map)?;
        write_parts(text, number, parts)?;
        writeln!(text, "#EXTINF:{},\n{number}.{extension}{query}", Seconds(*duration))?;
    }
    if let Some((is_discontinuous, _, parts)) = cutter.open_parts() {
        begin(text, is_discontinuous, playlist.open_map())?;
        write_parts(text, playlist.next_number(), parts)?;
    }
    if playlist.is_ended {
        writeln!(text, "#EXT-X-ENDLIST")?;
    } else if let (number, Some(index)) = playlist.next_part() {
        writeln!(text, "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{number}.{index}.{extension}{query}\"")?;
    }
    Ok(())
}
