//! Values of headers and URIs: times in a title, scale, session, the title's name.
//!
//! Source: RFC 2326 §3.6 (normal play time), §12.29 (Range), §12.34 (Scale), §12.37 (Session); RFC 3986 §2.1.

use std::fmt;
use std::time::Duration;

use super::digits;

/// Longest time that is read: 1,000 hours.
const SECONDS_MAX: u64 = 3_600_000;

/// What is to be played, in normal play time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where to begin.
    pub start: Start,
    /// `None`: to the end.
    pub end: Option<Duration>,
}

/// Where a range begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Where the session is.
    Now,
    /// So far into the title.
    At(Duration),
}

impl Range {
    /// Reads a Range header. `None`: another unit than npt, or not one range from a start on.
    pub fn parse(value: &str) -> Option<Range> {
        // "time=", when to begin, may follow.
        let spec = value.split(';').next()?.trim();
        let (start, end) = spec.strip_prefix("npt=")?.trim().split_once('-')?;
        let start = match start.trim() {
            "now" => Start::Now,
            start => Start::At(npt_time(start)?),
        };
        let end = match end.trim() {
            "" => None,
            end => Some(npt_time(end)?),
        };
        Some(Range { start, end })
    }
}

/// Seconds, or hours, minutes and seconds; both may have decimals.
fn npt_time(text: &str) -> Option<Duration> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let number = |text| digits::<u32>(text).map(u64::from);
    let mut parts = whole.split(':');
    let seconds = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(seconds), None, None, None) => number(seconds)?,
        (Some(hours), Some(minutes), Some(seconds), None) => {
            let (minutes, seconds) = (number(minutes)?, number(seconds)?);
            if minutes > 59 || seconds > 59 {
                return None;
            }
            3_600 * number(hours)? + 60 * minutes + seconds
        }
        _ => return None,
    };
    if seconds > SECONDS_MAX || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = decimals.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanos = digits.fold(0, |nanos, digit| 10 * nanos + u32::from(digit - b'0'));
    Some(Duration::new(seconds, nanos))
}

/// A time as it is written: seconds, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Npt(pub Duration);

impl fmt::Display for Npt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_secs(), self.0.subsec_millis())
    }
}

/// Reads a Scale header, in thousandths: 1,000 is the normal speed, negative is backwards. `None`: no number, or zero.
pub fn scale_permille(value: &str) -> Option<i64> {
    let (sign, size) = value.strip_prefix('-').map_or((1, value), |size| (-1, size));
    if size.contains(':') {
        return None;
    }
    let permille = i64::try_from(npt_time(size)?.as_millis()).ok()?;
    (permille != 0).then_some(sign * permille)
}

/// The id of a Session header, without its parameters.
pub fn session_id(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

/// The title that a URI names: its path without the first slash, without `track` and a slash behind it, unescaped.
/// `None`: it names none, or in an encoding other than UTF-8.
pub fn title_of(uri: &str, track: &str) -> Option<String> {
    let rest = uri.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("rtsp://")).and_then(|_| uri.get(7..))?;
    let (_, path) = rest.split_once('/')?;
    let path = path.split(['?', '#']).next()?;
    let path = path.strip_suffix(track).filter(|rest| rest.is_empty() || rest.ends_with('/')).unwrap_or(path);
    let name = unescape(path.strip_suffix('/').unwrap_or(path))?;
    (!name.is_empty() && !name.chars().any(char::is_control)).then_some(name)
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        (rest, bytes) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                (after, bytes)
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                (after, bytes)
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let at = |millis| Start::At(Duration::from_millis(millis));
        let end = |millis| Some(Duration::from_millis(millis));
        for (text, start, end) in [
            ("npt=0-", at(0), None),
            ("npt=0.000-", at(0), None),
            ("npt=now-", Start::Now, None),
            ("npt=10.5-20", at(10_500), end(20_000)),
            ("npt= 1:02:03.25 - 02:00:00 ;time=19970123T143720Z", at(3_723_250), end(7_200_000)),
            ("npt=7.-", at(7_000), None),
            ("npt=1.23456789012-", Start::At(Duration::new(1, 234_567_890)), None),
        ] {
            assert_eq!(Range::parse(text), Some(Range { start, end }), "{text}");
        }
        for text in [
            "",
            "npt=",
            "npt=-",
            "npt=-5",
            "npt=5",
            "npt=+5-",
            "npt=1:2-",
            "npt=1:60:00-",
            "npt=now",
            "npt=0-now",
            "npt=1e3-",
            "npt=99999999999999999999-",
            "npt=3600001-",
            "npt=0-1,2-3",
            "smpte=0:10:20-",
            "clock=19961108T142300Z-",
        ] {
            assert_eq!(Range::parse(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_written_to_the_millisecond() {
        assert_eq!(Npt(Duration::from_micros(61_002_999)).to_string(), "61.002");
    }

    #[test]
    fn scales_are_read() {
        for (text, expected) in [("1", 1_000), ("2.0", 2_000), ("-1", -1_000), ("0.5", 500), ("-8.25", -8_250)] {
            assert_eq!(scale_permille(text), Some(expected), "{text}");
        }
        for text in ["", "0", "-0.0", "x", "--1", "+1", "1:00:00", "1e9", "NaN"] {
            assert_eq!(scale_permille(text), None, "{text}");
        }
    }

    #[test]
    fn a_session_may_have_parameters() {
        assert_eq!(session_id("abc;timeout=60"), "abc");
        assert_eq!(session_id("abc"), "abc");
    }

    #[test]
    fn titles_are_named_by_the_path() {
        for (uri, expected) in [
            ("rtsp://host:554/a.ts", "a.ts"),
            ("RTSP://host/films/a%20b.ts/", "films/a b.ts"),
            ("rtsp://host/a.ts/track", "a.ts"),
            ("rtsp://host/a.ts/track?x=1", "a.ts"),
            ("rtsp://host/soundtrack", "soundtrack"),
            ("rtsp://host/%C3%A4", "ä"),
        ] {
            assert_eq!(title_of(uri, "track").as_deref(), Some(expected), "{uri}");
        }
        for uri in ["*", "", "rtsp://host", "rtsp://host/", "http://host/a", "rtsp://host/%", "rtsp://host/%f"] {
            assert_eq!(title_of(uri, "track"), None, "{uri}");
        }
        for uri in ["rtsp://host/%ff", "rtsp://host/a%00b", "rtsp://host/%gg", "rtsp://host/track"] {
            assert_eq!(title_of(uri, "track"), None, "{uri}");
        }
    }
}
