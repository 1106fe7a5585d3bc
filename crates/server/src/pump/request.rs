//! What a client may ask for: JSON in, checked values out.

use std::ops::RangeInclusive;
use std::time::Duration;

use pump::fec::Fec;
use pump::spec::{Pacing, PlaySpec, WhenStarved};
use serde::Deserialize;
use serde_json::Value;
use wire::ts::Pid;
use wire::{Bitrate, Token, WorkerId};

use super::destination::{Destination, DestinationError};

/// Longest start, end and delay.
const SECONDS_MAX: f64 = 30.0 * 86_400.0;

/// Longest start at twice the pace, in seconds.
const BURST_START_MAX: f64 = 30.0;

/// Longest wait for the next part of a title, in seconds.
const STARVED_TIMEOUT_MAX: f64 = 86_400.0;

/// Seconds of a lease: long enough to be renewed in time.
const LEASE: RangeInclusive<f64> = 1.0..=86_400.0;

/// Slowest and fastest, in thousandths.
const SPEED_PERMILLE: RangeInclusive<f64> = 100.0..=10_000.0;

/// Highest rate of a session.
const RATE_MAX: Bitrate = Bitrate::from_kbps(10_000_000);

/// Parity goes up to four ports above.
const PORT_MAX_WITH_FEC: u16 = u16::MAX - 4;

/// A session to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// Its name in the folder or at the origins, a URL, or "live/" and the name of an input.
    pub title: String,
    /// As it was typed; resolved and checked when the session is opened.
    pub destination: Destination,
    /// It goes there in the client's connection, and not by UDP. RTSP's alone.
    pub channel: Option<Channel>,
    /// Time in the title to begin at; the nearest picture that stands alone, at it or before, is the first.
    pub start: Duration,
    /// Time in the title to end at; `None` is the title's own end.
    pub end: Option<Duration>,
    /// Not before this has passed.
    pub delay: Duration,
    /// It ends when nobody asks for it for this long.
    pub lease: Option<Duration>,
    /// A way to send, of `pump.outputs`.
    pub output: Option<String>,
    /// PIDs that are sent; `None`: all.
    pub keep: Option<Vec<Pid>>,
    /// PIDs that are sent as others.
    pub rename: Vec<(Pid, Pid)>,
    /// How it is played.
    pub play: PlaySpec,
    /// The server itself gets what it sends.
    pub is_own: bool,
}

/// A way into a client's connection (RFC 2326 §10.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Which connection.
    pub connection: Token,
    /// Of packets.
    pub number: u8,
    /// Where the connection is. `None`: it will be handed over to wherever the session is.
    pub worker: Option<WorkerId>,
}

/// What to change of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChangeRequest {
    /// Stops it where it is, or lets it go on from there.
    pub paused: Option<bool>,
    /// Time in the title to go on at.
    pub seek: Option<Duration>,
    /// Speed of viewing: 1 is normal, others show the pictures that stand alone, negative ones backwards. Not 0.
    pub scale: Option<f64>,
    /// Time in the title to end at.
    pub end: Option<Duration>,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each says itself what it is")]
pub enum RequestError {
    #[error("{0}")]
    Json(String),
    #[error("{key} is {allowed}")]
    Value { key: &'static str, allowed: &'static str },
    #[error(transparent)]
    Destination(#[from] DestinationError),
}

impl OpenRequest {
    /// The defaults: the whole title once, by its own clock.
    pub fn new(title: String, destination: Destination) -> Self {
        OpenRequest {
            title,
            destination,
            channel: None,
            start: Duration::ZERO,
            end: None,
            delay: Duration::ZERO,
            lease: None,
            output: None,
            keep: None,
            rename: Vec::new(),
            play: PlaySpec::default(),
            is_own: false,
        }
    }

    /// # Errors
    /// What is not as it may be.
    pub fn from_json(text: &str) -> Result<Self, RequestError> {
        let typed: Open = serde_json::from_str(text).map_err(|error| RequestError::Json(error.to_string()))?;
        let pacing = match (typed.rate, typed.pad) {
            (None, None) => Pacing::Clock,
            (Some(typed), None) => Pacing::Rate(rate("rate", &typed)?),
            (None, Some(typed)) => Pacing::Padded(rate("pad", &typed)?),
            (Some(_), Some(_)) => return Err(wrong("pad", "not given together with rate")),
        };
        let destination = typed.destination.parse()?;
        let play = PlaySpec {
            pacing,
            fec: typed.fec.map(|matrix| fec_of(&matrix, &destination)).transpose()?,
            burst: typed.burst.map(|typed| burst(small(&typed).unwrap_or(0))).transpose()?,
            looped: typed.looped,
            speed_permille: typed.speed.map_or(Ok(1_000), |typed| speed_permille(typed.as_f64().unwrap_or(0.0)))?,
            when_starved: typed.when_starved,
            starved_timeout: starved_timeout(typed.starved_timeout)?,
            restamp: typed.restamp,
            is_paused: typed.paused,
            holds_at_end: typed.hold,
            burst_start: burst_start(typed.burst_start, pacing)?,
            is_monitored: typed.monitor,
        };
        Ok(OpenRequest {
            start: span("start", typed.start)?.unwrap_or_default(),
            end: span("end", typed.end)?,
            delay: span("delay", typed.delay)?.unwrap_or_default(),
            lease: seconds("lease", typed.lease, LEASE, "1 to 86400 seconds")?,
            output: typed.output,
            keep: typed.pids.map(|typed| pids(&typed)).transpose()?,
            rename: typed.rename.map(|typed| renamed(&typed)).transpose()?.unwrap_or_default(),
            play,
            ..OpenRequest::new(typed.title, destination)
        })
    }
}

impl ChangeRequest {
    /// # Errors
    /// What is not as it may be.
    pub fn from_json(text: &str) -> Result<Self, RequestError> {
        let typed: Change = serde_json::from_str(text).map_err(|error| RequestError::Json(error.to_string()))?;
        let speed = |typed: Value| typed.as_f64().filter(|scale| scale.is_finite() && *scale != 0.0);
        let scale =
            |typed| speed(typed).ok_or(wrong("scale", "a speed, such as 1, 2, 8, -1 or -4; to stand still, pause"));
        Ok(ChangeRequest {
            paused: typed.paused,
            seek: span("seek", typed.seek)?,
            scale: typed.scale.map(scale).transpose()?,
            end: span("end", typed.end)?,
        })
    }
}

/// Thousandths of a speed.
///
/// # Errors
/// When it is out of range.
pub fn speed_permille(speed: f64) -> Result<u32, RequestError> {
    let permille = (speed * 1_000.0).round();
    if SPEED_PERMILLE.contains(&permille) { Ok(permille as u32) } else { Err(wrong("speed", "0.1 to 10")) }
}

/// A matrix of parity for a destination.
///
/// # Errors
/// When it is of no size that SMPTE 2022-1 has, or the destination takes none.
pub fn fec(columns: u8, rows: u8, covers_rows: bool, destination: &Destination) -> Result<Fec, RequestError> {
    let fec = Fec::new(columns, rows, covers_rows);
    let has_ports = destination.is_rtp && destination.port <= PORT_MAX_WITH_FEC;
    fec.filter(|_| has_ports).ok_or(wrong(
        "fec",
        "1 to 20 columns (4 to 20 with two_dimensional) and 4 to 20 rows, of 100 datagrams at most, \
         and for rtp:// to a port up to 65531",
    ))
}

/// # Errors
/// When it is none of 1 to 7.
pub fn burst(count: u8) -> Result<u8, RequestError> {
    if (1..=7).contains(&count) { Ok(count) } else { Err(wrong("burst", "1 to 7 datagrams")) }
}

fn fec_of(typed: &Value, destination: &Destination) -> Result<Fec, RequestError> {
    let no_size = Value::Null;
    let is_known = |key: &String| matches!(&**key, "columns" | "rows" | "two_dimensional");
    let matrix = typed.as_object().filter(|matrix| matrix.keys().all(is_known));
    let size = |key| small(matrix.and_then(|matrix| matrix.get(key)).unwrap_or(&no_size)).unwrap_or(0);
    let covers_rows = matrix.and_then(|matrix| matrix.get("two_dimensional")).map_or(Some(false), Value::as_bool);
    fec(size("columns"), covers_rows.map_or(0, |_| size("rows")), covers_rows.unwrap_or(false), destination)
}

fn starved_timeout(typed: Option<Value>) -> Result<Option<Duration>, RequestError> {
    seconds("starved_timeout", typed, 1.0..=STARVED_TIMEOUT_MAX, "1 to 86400 seconds")
}

fn span(key: &'static str, typed: Option<Value>) -> Result<Option<Duration>, RequestError> {
    seconds(key, typed, 0.0..=SECONDS_MAX, "a number of seconds, 0 to 2592000")
}

fn burst_start(typed: Option<Value>, pacing: Pacing) -> Result<Duration, RequestError> {
    let max = if matches!(pacing, Pacing::Padded(_)) { 0.0 } else { BURST_START_MAX };
    let allowed = "0 to 30 seconds, and not given together with pad";
    Ok(seconds("burst_start", typed, 0.0..=max, allowed)?.unwrap_or_default())
}

fn seconds(
    key: &'static str,
    typed: Option<Value>,
    range: RangeInclusive<f64>,
    allowed: &'static str,
) -> Result<Option<Duration>, RequestError> {
    let Some(typed) = typed else { return Ok(None) };
    let seconds = typed.as_f64().filter(|seconds| range.contains(seconds)).ok_or(wrong(key, allowed))?;
    Ok(Some(Duration::from_secs_f64(seconds)))
}

/// 4500000 or "4.5Mbps".
fn rate(key: &'static str, typed: &Value) -> Result<Bitrate, RequestError> {
    let rate = match typed {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64().map(Bitrate::from_bps),
    };
    let allowed = "a rate of 1 kbit/s to 10 Gbit/s, such as \"4.5Mbps\" or 4500000";
    rate.and_then(in_range).ok_or(wrong(key, allowed))
}

fn small(typed: &Value) -> Option<u8> {
    typed.as_u64()?.try_into().ok()
}

fn pid(typed: u64) -> Option<Pid> {
    Pid::new(typed.try_into().ok()?)
}

fn pids(typed: &Value) -> Result<Vec<Pid>, RequestError> {
    let numbers = typed.as_array().and_then(|list| list.iter().map(|typed| pid(typed.as_u64()?)).collect());
    numbers.ok_or(wrong("pids", "a list of numbers, 0 to 8191"))
}

fn renamed(typed: &Value) -> Result<Vec<(Pid, Pid)>, RequestError> {
    let pair = |(from, to): (&String, &Value)| Some((pid(from.parse().ok()?)?, pid(to.as_u64()?)?));
    let pairs = typed.as_object().and_then(|table| table.iter().map(pair).collect());
    pairs.ok_or(wrong("rename", "a table of PIDs, 32 to 8190 both, such as {\"256\": 512}"))
}

fn wrong(key: &'static str, allowed: &'static str) -> RequestError {
    RequestError::Value { key, allowed }
}

/// As it was typed. What is no number where one is wanted gets the same answer as a number that may not be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Open {
    title: String,
    destination: String,
    start: Option<Value>,
    end: Option<Value>,
    #[serde(default, rename = "loop")]
    looped: bool,
    speed: Option<Value>,
    delay: Option<Value>,
    #[serde(default)]
    paused: bool,
    #[serde(default)]
    hold: bool,
    lease: Option<Value>,
    burst_start: Option<Value>,
    output: Option<String>,
    #[serde(default)]
    monitor: bool,
    rate: Option<Value>,
    pad: Option<Value>,
    fec: Option<Value>,
    burst: Option<Value>,
    #[serde(default = "yes")]
    restamp: bool,
    #[serde(default, with = "Starved")]
    when_starved: WhenStarved,
    starved_timeout: Option<Value>,
    pids: Option<Value>,
    rename: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Change {
    paused: Option<bool>,
    seek: Option<Value>,
    scale: Option<Value>,
    end: Option<Value>,
}

/// A rate that a session may have.
pub fn in_range(rate: Bitrate) -> Option<Bitrate> {
    (Bitrate::from_kbps(1)..=RATE_MAX).contains(&rate).then_some(rate)
}

/// As JSON has it.
#[derive(Deserialize)]
#[serde(remote = "WhenStarved", rename_all = "lowercase")]
enum Starved {
    Pause,
    Nulls,
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_and_a_destination_are_enough() {
        let read = OpenRequest::from_json(r#"{"title": "a.ts", "destination": "udp://192.0.2.1:5000"}"#);
        let destination = "udp://192.0.2.1:5000".parse().expect("a destination");
        assert_eq!(read, Ok(OpenRequest::new("a.ts".to_owned(), destination)));
    }

    #[test]
    fn everything_can_be_said() {
        let text = r#"{"title": "a.ts", "destination": "rtp://[2001:db8::1]:5004", "start": 10.5, "end": 20, "loop": true,
            "speed": 1.5, "delay": 2, "pad": "6Mbps", "burst": 4,
            "fec": {"columns": 10, "rows": 5, "two_dimensional": true}, "restamp": false, "when_starved": "nulls",
            "pids": [256, 257], "rename": {"256": 512}}"#;
        let read = OpenRequest::from_json(text).expect("all is well");
        assert_eq!((read.start, read.end), (Duration::from_millis(10_500), Some(Duration::from_secs(20))));
        assert_eq!(read.delay, Duration::from_secs(2));
        let play = PlaySpec {
            pacing: Pacing::Padded(Bitrate::from_kbps(6_000)),
            fec: Fec::new(10, 5, true),
            burst: Some(4),
            looped: true,
            speed_permille: 1_500,
            when_starved: WhenStarved::Nulls,
            restamp: false,
            ..PlaySpec::default()
        };
        assert_eq!(read.play, play);
        assert_eq!(read.keep.map(|keep| keep.len()), Some(2));
        assert_eq!(read.rename, [(Pid::new(256).expect("a PID"), Pid::new(512).expect("a PID"))]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |more: &str| format!(r#"{{"title": "a", "destination": "udp://h:1"{more}}}"#);
        for (text, expected) in [
            (r#"{"title": "a"}"#.to_owned(), "missing field `destination`"),
            (with(r#", "color": 1"#), "unknown field `color`"),
            (with(r#", "start": -1"#), "start is a number of seconds"),
            (with(r#", "end": 1e300"#), "end is a number of seconds"),
            (with(r#", "speed": 0"#), "speed is 0.1 to 10"),
            (with(r#", "burst": 8"#), "burst is 1 to 7"),
            (with(r#", "starved_timeout": 0"#), "starved_timeout is 1 to 86400 seconds"),
            (with(r#", "starved_timeout": 86401"#), "starved_timeout is 1 to 86400 seconds"),
            (with(r#", "lease": 0.5"#), "lease is 1 to 86400 seconds"),
            (with(r#", "burst_start": 31"#), "burst_start is 0 to 30 seconds"),
            (with(r#", "burst_start": 1, "pad": 2000000"#), "burst_start is 0 to 30 seconds"),
            (with(r#", "fec": {"columns": 10, "rows": 10}"#), "fec is 1 to 20 columns"),
            (
                r#"{"title": "a", "destination": "rtp://h:65532", "fec": {"columns": 10, "rows": 10}}"#.to_owned(),
                "fec is",
            ),
            (r#"{"title": "a", "destination": "rtp://h:1", "fec": {"columns": 10, "rows": 11}}"#.to_owned(), "fec is"),
            (with(r#", "rate": "fast""#), "rate is a rate"),
            (with(r#", "rate": 0"#), "rate is a rate"),
            (with(r#", "rate": 1000000, "pad": 2000000"#), "pad is not given together with rate"),
            (with(r#", "pids": [8192]"#), "pids is a list of numbers"),
            (with(r#", "pids": [70000]"#), "pids is a list of numbers, 0 to 8191"),
            (with(r#", "rename": {"x": 5}"#), "rename is a table of PIDs, 32 to 8190"),
            (with(r#", "rename": {"5": 70000}"#), "rename is a table of PIDs, 32 to 8190"),
            (with(r#", "burst": "many""#), "burst is 1 to 7"),
            (with(r#", "burst": 300"#), "burst is 1 to 7"),
            (with(r#", "start": "soon""#), "start is a number of seconds, 0 to 2592000"),
            (with(r#", "rate": [1]"#), "rate is a rate of 1 kbit/s to 10 Gbit/s"),
            (with(r#", "fec": {"columns": 300, "rows": 10}"#), "fec is 1 to 20 columns"),
            (with(r#", "fec": {"columns": 5, "rows": 5, "depth": 1}"#), "fec is 1 to 20 columns"),
            ("[]".to_owned(), "invalid length 0, expected an object"),
            ("7".to_owned(), "invalid type: integer `7`, expected an object"),
            (r#"{"title": "a", "destination": "http://h"}"#.to_owned(), "a destination is udp://host:port"),
        ] {
            let error = OpenRequest::from_json(&text).expect_err(&text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
        for text in ["[]", r#"{"seek": -3}"#, r#"{"speed": 2}"#, r#"{"scale": 0}"#, r#"{"end": -1}"#] {
            assert!(ChangeRequest::from_json(text).is_err(), "{text}");
        }
    }
}
