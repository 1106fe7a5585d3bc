//! `[reflect]`: live streams to very many HTTP viewers.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use reflect::coalesce::Intervals;
use reflect::spec::{Join, Lag, Pace};
use toml::de::DeValue;
use wire::{Bitrate, Sending};

use super::output::plain_name;
use super::section::section;
use super::value::{Bytes, Given, Secret, Setting, Wrong, any, between};
use super::{ReflectSource, duration, kbps, ms, secs};

section! {
    /// Live streams that are sent on to very many viewers by HTTP: what comes in once goes out to everybody.
    Reflect as "reflect" {
        /// The streams, a table each: [[reflect.streams]] with a name, and what stands below. SIGHUP has this section read again;
        /// who watches a stream that is still there goes on.
        streams: Vec<ReflectStream> = vec![], different;
        /// Viewers of all streams. Further ones are refused (503, to be tried again).
        viewers_max: usize = 50_000, between(0, 1_000_000);
        /// Viewers of one client, by its address (its /64 of IPv6). Further ones are refused (429). Those of `http.trusted_proxies`
        /// that do not say for whom they ask are not counted.
        viewers_per_client: usize = 1_000, between(0, 1_000_000);
        /// What all viewers together may take, by their streams' rates. Further ones are refused (503, to be tried again). Not
        /// set: no limit.
        bandwidth_max: Option<Bitrate> = None, rate;
        /// Keys of signed URLs (`millrace sign`): the first signs, and each is good. While there are any, a viewer needs such a
        /// URL, or a token that lets him watch a stream of this name. 32 bytes or more each.
        url_keys: Vec<Secret> = vec![], url_keys;
        /// File that has a line for each viewer when he is gone, in the combined form. SIGHUP has it opened anew. Not set: there is
        /// none.
        access_log: Option<String> = None, any;
        /// Congestion control of viewers' connections, such as "bbr". Not set: the system's.
        congestion: Option<String> = None, any;
        /// Class of service of what viewers are sent (DSCP, RFC 2474): 34 is AF41, usual for video.
        dscp: u8 = 0, between(0, 63);
        /// Mark of its packets, for the routing table and the firewall (SO_MARK); needs CAP_NET_ADMIN. 0: none.
        mark: u32 = 0, any;
    }
}

impl Reflect {
    /// How the kernel sends to viewers.
    pub fn sending(&self) -> Sending {
        Sending { congestion: self.congestion.as_deref().map(Into::into), dscp: self.dscp, mark: self.mark }
    }
}

section! {
    /// A stream.
    ReflectStream as "reflect.streams" {
        /// What it is called in the API, in metrics and in its path.
        name: String = String::new(), any;
        /// Where it is served. Not set: "/live/NAME".
        path: Option<String> = None, path;
        /// Where it comes from; the next is tried when one fails. Empty: it is pushed (PUT or POST to its path).
        source: Vec<ReflectSource> = vec![], any;
        /// Who pushes it has to show this: as a bearer's token, or as the password of Basic authentication, with any user name.
        /// Not set: a token of `[auth]` that lets its bearer publish a stream of this name.
        push_token: Option<Secret> = None, any;
        /// One that pushes and has sent nothing for so long gives way to another.
        push_silence: Duration = secs(10), between(ms(100), secs(3_600));
        /// Memory for what viewers may be behind by; twice as much while a worker is late.
        backlog: Bytes = Bytes::mib(20), between(Bytes::kib(64), Bytes::mib(4_096));
        /// Not set: as its source's content type or its first bytes say.
        format: Option<StreamFormat> = None, any;
        /// How fast a viewer is sent to who has caught up.
        pace: StreamPace = StreamPace::Percent(200), any;
        /// Fewer and larger sends, 57 ms apart instead of 33: for very many viewers on few cores.
        dense: bool = false, any;
        /// What becomes of a viewer who is further behind than the backlog: he goes on at the newest start point, or is closed.
        lag: StreamLag = StreamLag::Skip, any;
        /// Where a viewer begins: at the newest start point, at the next that comes, or so far back.
        join: StreamJoin = StreamJoin::Newest, any;
        /// It is served as HLS too, at PATH/index.m3u8. MPEG-TS and fragmented MP4 can be.
        hls: bool = false, any;
        /// For Cubemaps it is served in their framing too (Metacube 2), at PATH.metacube and with a backlog of its own.
        metacube: bool = false, any;
        /// How long the segments of HLS are to be.
        hls_segment: Duration = secs(2), between(secs(1), secs(60));
        /// How long the parts of segments are to be (low latency). Not set: there are none.
        hls_part: Option<Duration> = None, part;
        /// For how long one can go back with HLS. Not set: as far as the backlog lets it.
        hls_window: Option<Duration> = None, any;
        /// Viewers of it. Further ones are refused (503, to be tried again).
        viewers_max: usize = 50_000, between(0, 1_000_000);
    }
}

impl ReflectStream {
    /// Where it is served.
    pub fn path(&self) -> String {
        self.path.clone().unwrap_or_else(|| format!("/live/{}", self.name))
    }

    /// When workers are told of what came.
    pub fn intervals(&self) -> Intervals {
        if self.dense { Intervals::dense() } else { Intervals::default() }
    }

    fn check(self) -> Result<Self, Wrong> {
        let of_name = |says: &str| Wrong { element: None, key: Some("name".to_owned()), says: says.to_owned() };
        if self.name.is_empty() {
            return Err(of_name("is not set; allowed: a name of letters, digits, \"-\", \"_\" and \".\""));
        }
        if plain_name(&self.name).is_none() {
            let got =
                format!("got {:?}; allowed: letters, digits, \"-\", \"_\" and \".\", 64 of them at most", self.name);
            return Err(of_name(&got));
        }
        if !self.source.is_empty() && self.push_token.is_some() {
            let says = "stands beside source; allowed: one of them".to_owned();
            return Err(Wrong { element: None, key: Some("push_token".to_owned()), says });
        }
        let of_hls = [("hls_part", self.hls_part.is_some()), ("hls_window", self.hls_window.is_some())];
        if let Some((key, _)) = of_hls.into_iter().find(|(_, is_set)| *is_set && !self.hls) {
            let says = "is set; allowed: with hls = true".to_owned();
            return Err(Wrong { element: None, key: Some(key.to_owned()), says });
        }
        Ok(self)
    }

    fn set(&mut self, key: &str, given: Given<'_>) -> Result<(), Wrong> {
        self.table().set(key, given).map_err(|wrong| Wrong { element: None, key: Some(key.to_owned()), ..wrong })
    }
}

/// A table; or as a text the name, then words such as `pace=free`.
impl Setting for ReflectStream {
    const KIND: &str = "a table with a name; as a text \"news backlog=4MiB lag=close\"";
    const HAS_COMMAS: bool = true;

    fn from_text(text: &str) -> Option<Self> {
        Self::read(Given::Text(text)).ok()
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        Self::read(Given::Value(value)).ok()
    }

    fn read(given: Given<'_>) -> Result<Self, Wrong> {
        let mut stream = ReflectStream::default();
        let text: &str = match given {
            Given::Text(text) => text,
            Given::Value(DeValue::String(text)) => text,
            Given::Value(DeValue::Table(table)) => {
                for (key, value) in table {
                    stream.set(key.get_ref(), Given::Value(value.get_ref()))?;
                }
                return stream.check();
            }
            Given::Value(_) => return Err(format!("got {}; allowed: {}", Self::shown(given), Self::KIND).into()),
        };
        let mut words = text.split_ascii_whitespace();
        stream.set("name", Given::Text(words.next().unwrap_or_default()))?;
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| Wrong::from(format!("{word:?} is no key=value")))?;
            stream.set(key, Given::Text(value))?;
        }
        stream.check()
    }

    /// What differs from a stream of which nothing is said.
    fn to_toml(&self) -> Option<String> {
        let (mut own, mut usual) = (self.clone(), ReflectStream::default());
        let usual: Vec<_> = usual.table().entries.into_iter().map(|entry| entry.slot.to_toml()).collect();
        let own = own.table();
        let differ = own.entries.iter().zip(usual).filter_map(|(entry, usual)| {
            let value = entry.slot.to_toml().filter(|value| usual.as_ref() != Some(value))?;
            Some(format!("{} = {value}", entry.key))
        });
        Some(format!("{{ {} }}", differ.collect::<Vec<_>>().join(", ")))
    }

    fn is_secret(&self) -> bool {
        self.push_token.is_some()
    }
}

/// What a stream is made of, as an operator writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum StreamFormat {
    /// MPEG transport stream.
    Ts,
    /// Flash Video.
    Flv,
    /// WebM and Matroska.
    Webm,
    /// Fragmented MP4.
    Mp4,
    /// Anything else.
    Raw,
}

impl From<StreamFormat> for live::Format {
    fn from(format: StreamFormat) -> Self {
        match format {
            StreamFormat::Ts => live::Format::Ts,
            StreamFormat::Flv => live::Format::Flv,
            StreamFormat::Webm => live::Format::Matroska,
            StreamFormat::Mp4 => live::Format::Mp4,
            StreamFormat::Raw => live::Format::Raw,
        }
    }
}

/// What becomes of a viewer who is too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum StreamLag {
    /// He goes on at the newest start point.
    Skip,
    /// He is closed.
    Close,
}

impl From<StreamLag> for Lag {
    fn from(lag: StreamLag) -> Self {
        match lag {
            StreamLag::Skip => Lag::Skip,
            StreamLag::Close => Lag::Close,
        }
    }
}

/// How fast a viewer is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPace {
    /// As fast as his network lets it.
    Free,
    /// So much of the stream's rate, from 100 to 10,000.
    Percent(u16),
    /// That fast.
    Rate(Bitrate),
}

impl FromStr for StreamPace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "free" {
            return Ok(StreamPace::Free);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.trim().parse().ok().filter(|percent| (100..=10_000).contains(percent));
            return percent.map(StreamPace::Percent).ok_or(());
        }
        text.parse().ok().filter(|rate| *rate >= kbps(1)).map(StreamPace::Rate).ok_or(())
    }
}

impl fmt::Display for StreamPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamPace::Free => f.write_str("free"),
            StreamPace::Percent(percent) => write!(f, "{percent}%"),
            StreamPace::Rate(rate) => write!(f, "{}bps", rate.bps()),
        }
    }
}

impl From<StreamPace> for Pace {
    fn from(pace: StreamPace) -> Self {
        match pace {
            StreamPace::Free => Pace::Free,
            StreamPace::Percent(percent) => Pace::Percent(percent),
            StreamPace::Rate(rate) => Pace::Rate(rate),
        }
    }
}

/// Where a viewer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamJoin {
    /// At the newest start point.
    Newest,
    /// At the next that comes.
    Next,
    /// So far back.
    Back(Duration),
}

impl FromStr for StreamJoin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "newest" => Ok(StreamJoin::Newest),
            "next" => Ok(StreamJoin::Next),
            time => duration(time).map(StreamJoin::Back).ok_or(()),
        }
    }
}

impl fmt::Display for StreamJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamJoin::Newest => f.write_str("newest"),
            StreamJoin::Next => f.write_str("next"),
            StreamJoin::Back(time) => write!(f, "{}ms", time.as_millis()),
        }
    }
}

impl From<StreamJoin> for Join {
    fn from(join: StreamJoin) -> Self {
        match join {
            StreamJoin::Newest => Join::Newest,
            StreamJoin::Next => Join::Next,
            StreamJoin::Back(time) => Join::Back(time),
        }
    }
}

/// What is served at other paths already, or below them.
const TAKEN: [&str; 7] = ["/api", "/pump", "/whip", "/whep", "/metrics", "/healthz", "/ping"];

/// Characters that are written as they are in every URL.
fn path(path: &Option<String>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    let segments = path.strip_prefix('/').map(|rest| rest.split('/'));
    let is_fine = segments.is_some_and(|mut all| all.all(|one| !one.is_empty() && one != "." && one != ".."));
    let is_taken =
        TAKEN.iter().any(|taken| path.strip_prefix(taken).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    if is_fine && path.bytes().all(is_plain) && !is_taken && path.len() <= 256 {
        return Ok(());
    }
    Err(format!("got {path:?}; allowed: a path such as \"/live/news.ts\" that nothing else of this server has"))
}

/// Bytes of a key of HMAC-SHA-256 at least (RFC 2104 §3).
const KEY_BYTES_MIN: usize = 32;

#[allow(clippy::ptr_arg, reason = "the setting is a list, and its check is given that")]
fn url_keys(keys: &Vec<Secret>) -> Result<(), Wrong> {
    match keys.iter().map(|Secret(text)| text.len()).enumerate().find(|(_, len)| *len < KEY_BYTES_MIN) {
        Some((index, len)) => {
            let allowed = format!("{KEY_BYTES_MIN} bytes or more (try: openssl rand -base64 32)");
            Err(Wrong::at(index, format!("got {len} bytes; allowed: {allowed}")))
        }
        None => Ok(()),
    }
}

fn part(part: &Option<Duration>) -> Result<(), String> {
    part.as_ref().map_or(Ok(()), between(ms(100), secs(5)))
}

fn rate(rate: &Option<Bitrate>) -> Result<(), String> {
    rate.as_ref().map_or(Ok(()), between(kbps(100), kbps(10_000_000_000)))
}

/// Streams are told apart by their names, and by their paths. One in Cubemap's framing has a name and a path of its own.
#[allow(clippy::ptr_arg, reason = "the setting is a list, and its check is given that")]
fn different(streams: &Vec<ReflectStream>) -> Result<(), Wrong> {
    let all = |text: String, stream: &ReflectStream| {
        let framed = stream.metacube.then(|| format!("{text}.metacube"));
        std::iter::once(text).chain(framed).collect::<Vec<_>>()
    };
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (index, stream) in streams.iter().enumerate() {
        let wrong = |key: &str, says| Wrong { element: Some(index), key: Some(key.to_owned()), says };
        if let Some(name) = all(stream.name.clone(), stream).into_iter().find(|name| !names.insert(name.clone())) {
            return Err(wrong("name", format!("got two streams named {name:?}; allowed: a name each")));
        }
        if let Some(path) = all(stream.path(), stream).into_iter().find(|path| !paths.insert(path.clone())) {
            return Err(wrong("path", format!("got two streams at {path:?}; allowed: a path each")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> Result<Vec<ReflectStream>, String> {
        let mut config = Config::default();
        config.apply_toml("f", text).map_err(|error| error.to_string())?;
        Ok(config.reflect.streams)
    }

    #[test]
    fn a_stream_is_a_table_or_a_line() {
        let table =
            "[[reflect.streams]]\nname = \"news\"\npace = \"300%\"\njoin = \"10s\"\nhls = true\nbacklog = \"4MiB\"\n";
        let line = "[reflect]\nstreams = [\"news pace=300% join=10s hls=true backlog=4MiB\"]\n";
        let (one, other) = (read(table).expect("a stream"), read(line).expect("a stream"));
        assert_eq!(one, other);
        assert_eq!((one[0].pace, one[0].path()), (StreamPace::Percent(300), "/live/news".to_owned()));
        let written = one[0].to_toml().expect("set");
        assert_eq!(read(&format!("[reflect]\nstreams = [{written}]\n")), Ok(one), "{written}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key_and_its_line() {
        let begins = |text: &str, expected: &str| {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(expected), "{error}");
        };
        let stream = "[[reflect.streams]]\nname = \"a\"\n";
        begins(&format!("{stream}pace = \"50%\"\n"), "f:3: reflect.streams[0].pace: got \"50%\"; allowed: \"free\"");
        begins(&format!("{stream}\ncolour = 1\n"), "f:4: reflect.streams[0].colour: no such key; allowed: name, path");
        begins(&format!("{stream}{stream}"), "f:4: reflect.streams[1].name: got two streams");
        begins(&format!("{stream}path = \"/api/x\"\n"), "f:3: reflect.streams[0].path: got \"/api/x\"");
        begins(
            &format!("{stream}hls_part = \"300ms\"\n"),
            "f:3: reflect.streams[0].hls_part: is set; allowed: with hls",
        );
        begins("[[reflect.streams]]\nhls = true\n", "f:1: reflect.streams[0].name: is not set");
        begins("[reflect]\nstreams = 7\n", "f:2: reflect.streams: got 7");
    }

    #[test]
    fn paths_are_plain_and_nobody_elses() {
        let is_fine = |text: &str| path(&Some(text.to_owned())).is_ok();
        assert!(["/a", "/live/news.ts", "/apifel", "/x~1/_"].into_iter().all(is_fine));
        for text in ["", "/", "a", "/a/", "//a", "/a/../b", "/a b", "/a?b", "/%41", "/api", "/whep/x", "/metrics"] {
            assert!(!is_fine(text), "{text}");
        }
    }
}
