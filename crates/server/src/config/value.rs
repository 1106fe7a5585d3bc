//! The types of settings: how each is read from TOML or plain text, written, and named in an error.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use titles::Url;
use toml::de::{DeTable, DeValue};
use wire::Bitrate;

use super::{ReflectSource, StreamFormat, StreamJoin, StreamLag, StreamPace};

pub(super) trait Setting: Sized {
    /// What is allowed, for people.
    const KIND: &str = "";

    /// A comma may belong to it, so a text that is a list of such is not taken apart at commas.
    const HAS_COMMAS: bool = false;

    /// The same, where it depends on another type.
    fn kind() -> String {
        Self::KIND.to_owned()
    }

    /// Reads the environment's or a flag's text. Inverse of what a TOML string holds.
    fn from_text(text: &str) -> Option<Self>;

    /// Reads a TOML value; by default a string.
    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().and_then(Self::from_text)
    }

    /// Reads either, or says what is wrong with it.
    fn read(given: Given<'_>) -> Result<Self, Wrong> {
        let read = match given {
            Given::Text(text) => Self::from_text(text),
            Given::Value(value) => Self::from_value(value),
        };
        read.ok_or_else(|| format!("got {}; allowed: {}", Self::shown(given), Self::kind()).into())
    }

    /// What an error shows of what could not be read. Of a secret that is nothing.
    fn shown(given: Given<'_>) -> String {
        given.to_string()
    }

    /// TOML of the value; `None` when it is not set.
    fn to_toml(&self) -> Option<String>;

    /// Whether nobody but the operator may know it.
    fn is_secret(&self) -> bool {
        false
    }
}

/// What a setting is to be read from.
#[derive(Clone, Copy)]
pub(super) enum Given<'a> {
    /// The environment's or a flag's text.
    Text(&'a str),
    /// A value of the file.
    Value(&'a DeValue<'a>),
}

/// As an error message shows it.
impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::Text(text) => write!(f, "{text:?}"),
            Given::Value(DeValue::String(text)) => write!(f, "{text:?}"),
            Given::Value(DeValue::Integer(number)) => f.write_str(number.as_str()),
            Given::Value(DeValue::Float(number)) => f.write_str(number.as_str()),
            Given::Value(DeValue::Boolean(truth)) => write!(f, "{truth}"),
            Given::Value(DeValue::Datetime(date)) => write!(f, "{date}"),
            Given::Value(DeValue::Array(_)) => f.write_str("a list"),
            Given::Value(DeValue::Table(_)) => f.write_str("one that does not fit"),
        }
    }
}

/// What is wrong with a setting.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Which element of a list it is about, from 0.
    pub(super) element: Option<usize>,
    /// Which key of a table it is about, or of that element where that is one.
    pub(super) key: Option<String>,
    /// What was found, and what is allowed.
    pub(super) says: String,
}

impl Wrong {
    /// It is about one element of a list.
    pub(super) fn at(element: usize, says: String) -> Self {
        Wrong { element: Some(element), key: None, says }
    }
}

impl From<String> for Wrong {
    fn from(says: String) -> Self {
        Wrong { element: None, key: None, says }
    }
}

/// Every value will do.
pub(super) fn any<T>(_: &T) -> Result<(), Wrong> {
    Ok(())
}

/// Values from `low` to `high`, both included.
pub(super) fn between<T: Setting + PartialOrd>(low: T, high: T) -> impl Fn(&T) -> Result<(), String> {
    move |value| {
        if *value >= low && *value <= high {
            return Ok(());
        }
        let [got, low, high] = [value, &low, &high].map(|bound| bound.to_toml().unwrap_or_default());
        Err(format!("got {got}; allowed: {low} to {high}"))
    }
}

/// HS256 wants a key as long as its hash (RFC 7518 §3.2).
pub(super) fn long_enough(secret: &Option<Secret>) -> Result<(), String> {
    match secret {
        Some(Secret(text)) if text.len() < 32 => {
            Err(format!("got {} bytes; allowed: 32 bytes or more (try: openssl rand -base64 32)", text.len()))
        }
        _ => Ok(()),
    }
}

/// A text that is not printed.
#[derive(Clone, PartialEq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Setting for Secret {
    const KIND: &str = "a text";
    const HAS_COMMAS: bool = true;

    fn from_text(text: &str) -> Option<Self> {
        Some(Secret(text.to_owned()))
    }

    fn shown(_: Given<'_>) -> String {
        NOT_SHOWN.to_owned()
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted("(set, not shown)"))
    }

    fn is_secret(&self) -> bool {
        true
    }
}

/// What stands in an error instead of what may be a secret.
pub(super) const NOT_SHOWN: &str = "something else, which is not shown";

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub usize);

impl Bytes {
    /// So many KiB.
    pub const fn kib(count: usize) -> Self {
        Bytes(count << 10)
    }

    /// So many MiB.
    pub const fn mib(count: usize) -> Self {
        Bytes(count << 20)
    }
}

impl Setting for Bytes {
    const KIND: &str = "a size such as \"64KiB\" or \"8MiB\"";

    fn from_text(text: &str) -> Option<Self> {
        let bytes = read(text, &[("B", 1.0), ("KiB", 1_024.0), ("MiB", 1_024.0 * 1_024.0)])?;
        Some(Bytes(bytes as usize))
    }

    fn to_toml(&self) -> Option<String> {
        written(self.0 as u64, &[("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)])
    }
}

/// An origin of web pages (RFC 6454), or "*".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(pub String);

impl Origin {
    /// Every origin.
    pub fn any() -> Self {
        Origin("*".to_owned())
    }

    /// Whether it is every origin.
    pub fn is_any(&self) -> bool {
        self.0 == "*"
    }
}

impl Setting for Origin {
    const KIND: &str = "\"*\", or scheme and host such as \"https://example.org\", with the port where it is not the \
         usual one, no path";

    fn from_text(text: &str) -> Option<Self> {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let fits =
            |host: &str| !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-:[]".contains(&b));
        (text == "*" || host.is_some_and(fits)).then(|| Origin(text.to_owned()))
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.0))
    }
}

/// A STUN or TURN server for clients, as a `Link` header names it (RFC 9725 §4.6).
#[derive(Clone, PartialEq, Eq)]
pub struct IceServer {
    /// RFC 7064 or RFC 7065.
    pub url: String,
    /// User name and credential.
    pub login: Option<(String, String)>,
}

impl fmt::Debug for IceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Setting for IceServer {
    const KIND: &str =
        "\"stun:host:port\", or \"turn:host:port?transport=udp user credential\" (also stuns: and turns:)";
    const HAS_COMMAS: bool = true;

    fn shown(_: Given<'_>) -> String {
        NOT_SHOWN.to_owned()
    }

    fn is_secret(&self) -> bool {
        self.login.is_some()
    }

    fn from_text(text: &str) -> Option<Self> {
        // The text ends up in a header, within quotes.
        let mut words = text.split_ascii_whitespace();
        let clean = text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && !b"\"\\<>".contains(&byte));
        let url = words.next().filter(|_| clean)?;
        let login = words.next().zip(words.next()).map(|(user, credential)| (user.to_owned(), credential.to_owned()));
        let needs_login = match url.split_once(':')? {
            ("stun" | "stuns", host) if !host.is_empty() => false,
            ("turn" | "turns", host) if !host.is_empty() => true,
            _ => return None,
        };
        let words_fit = text.split_ascii_whitespace().count() == if needs_login { 3 } else { 1 };
        words_fit.then(|| IceServer { url: url.to_owned(), login })
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&match &self.login {
            Some((user, _)) => format!("{} {user} (not shown)", self.url),
            None => self.url.clone(),
        }))
    }
}

/// For whom the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    /// People.
    Text,
    /// Machines: an object on each line.
    Json,
}

/// The header by which a proxy says for whom it asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum ForwardedBy {
    /// What nearly all proxies write.
    #[default]
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
}

impl ForwardedBy {
    /// In lower case.
    pub fn header(self) -> &'static str {
        match self {
            ForwardedBy::XForwardedFor => "x-forwarded-for",
            ForwardedBy::Forwarded => "forwarded",
        }
    }
}

impl Setting for Duration {
    const KIND: &str = "a duration such as \"500ms\", \"30s\", \"5m\" or \"1h\", or 0";

    fn from_text(text: &str) -> Option<Self> {
        // Nothing is as long in each unit.
        if text == "0" {
            return Some(Duration::ZERO);
        }
        let seconds = read(text, &[("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0)])?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        match value.as_integer() {
            Some(number) => Self::from_text(number.as_str()),
            None => value.as_str().and_then(Self::from_text),
        }
    }

    fn to_toml(&self) -> Option<String> {
        written(self.as_millis() as u64, &[("s", 1_000), ("ms", 1)])
    }
}

/// Reads a duration as settings have it: "500ms", "30s", "5m" or "1h".
pub fn duration(text: &str) -> Option<Duration> {
    Setting::from_text(text)
}

impl Setting for Bitrate {
    const KIND: &str = "a rate such as \"800k\", \"1.5M\", \"20Mbps\" or 2_000_000 (bit/s)";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        match value.as_integer() {
            Some(number) if number.radix() == 10 => Self::from_text(number.as_str()),
            _ => value.as_str().and_then(Self::from_text),
        }
    }

    fn to_toml(&self) -> Option<String> {
        written(self.bps(), &[("Mbps", 1_000_000), ("kbps", 1_000), ("bps", 1)])
    }
}

impl Setting for bool {
    const KIND: &str = "true or false";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }

    fn to_toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Setting for f64 {
    const KIND: &str = "a number";

    fn from_text(text: &str) -> Option<Self> {
        text.replace('_', "").parse().ok().filter(|number: &f64| number.is_finite())
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        match value {
            DeValue::Float(number) => Self::from_text(number.as_str()),
            DeValue::Integer(number) => Self::from_text(number.as_str()),
            _ => None,
        }
    }

    fn to_toml(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

macro_rules! whole_number {
    ($($type:ty),*) => {$(
        impl Setting for $type {
            fn kind() -> String {
                match u32::try_from(<$type>::MAX) {
                    Ok(max) => format!("a whole number up to {max}"),
                    Err(_) => "a whole number".to_owned(),
                }
            }

            fn from_text(text: &str) -> Option<Self> {
                text.replace('_', "").parse().ok()
            }

            fn from_value(value: &DeValue<'_>) -> Option<Self> {
                value.as_integer().filter(|number| number.radix() == 10).and_then(|number| Self::from_text(number.as_str()))
            }

            fn to_toml(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}
whole_number!(u8, u16, u32, usize);

macro_rules! quoted_text {
    ($($type:ty: $kind:literal),*) => {$(
        impl Setting for $type {
            const KIND: &str = $kind;

            fn from_text(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn to_toml(&self) -> Option<String> {
                Some(quoted(&self.to_string()))
            }
        }
    )*};
}
quoted_text!(
    String: "a text",
    LogFormat: "\"text\" or \"json\"",
    ForwardedBy: "\"x-forwarded-for\" or \"forwarded\"",
    IpAddr: "an IP address such as \"192.0.2.1\" or \"2001:db8::1\"",
    ReflectSource: "\"http://…\", \"https://…\", \"udp://[SOURCE@]ADDRESS:PORT\", \"rtp://…\", or \"pump:\" and a title",
    StreamFormat: "\"ts\", \"flv\", \"webm\", \"mp4\" or \"raw\"",
    StreamLag: "\"skip\" or \"close\"",
    StreamPace: "\"free\", a share of the stream's rate such as \"200%\", or a rate such as \"8Mbps\"",
    StreamJoin: "\"newest\", \"next\" or a time such as \"10s\"",
    Url: "an http or https URL",
    SocketAddr: "address and port such as \"0.0.0.0:8080\" or \"[::]:8080\""
);

/// A network, or a single address, which is one too.
pub fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))
}

impl Setting for IpNet {
    const KIND: &str = "a network such as \"192.0.2.0/24\" or \"2001:db8::/32\", or a single address";

    fn from_text(text: &str) -> Option<Self> {
        network(text)
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl<T: Setting> Setting for Option<T> {
    fn kind() -> String {
        T::kind()
    }

    fn from_text(text: &str) -> Option<Self> {
        if text.is_empty() { Some(None) } else { T::from_text(text).map(Some) }
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        T::from_value(value).map(Some)
    }

    fn shown(given: Given<'_>) -> String {
        T::shown(given)
    }

    fn to_toml(&self) -> Option<String> {
        self.as_ref().and_then(T::to_toml)
    }

    fn is_secret(&self) -> bool {
        self.as_ref().is_some_and(T::is_secret)
    }
}

/// As a text its elements stand between commas, or it is written as the file has it: `["a,b", "c"]`. Elements in which a comma
/// may be meant are not taken apart.
impl<T: Setting> Setting for Vec<T> {
    fn kind() -> String {
        format!("a list, each {}", T::kind())
    }

    fn from_text(text: &str) -> Option<Self> {
        Self::read(Given::Text(text)).ok()
    }

    fn from_value(value: &DeValue<'_>) -> Option<Self> {
        Self::read(Given::Value(value)).ok()
    }

    fn read(given: Given<'_>) -> Result<Self, Wrong> {
        match given {
            Given::Value(DeValue::Array(array)) => elements(array.iter().map(|each| Given::Value(each.get_ref()))),
            Given::Value(_) => Err(format!("got {}; allowed: {}", T::shown(given), Self::kind()).into()),
            Given::Text(text) if is_array(text) => {
                let document = format!("list = {text}");
                let read = DeTable::parse(&document).ok();
                let list = read.as_ref().filter(|table| table.get_ref().len() == 1);
                match list.and_then(|table| table.get_ref().get("list")) {
                    Some(list) => Self::read(Given::Value(list.get_ref())),
                    None => Err("begins as a TOML array, and is none".to_owned().into()),
                }
            }
            Given::Text(text) if T::HAS_COMMAS && text.contains(',') => {
                Err("has a comma, which may belong to an entry or \
                 stand between two: write a list as in the file, '[\"one\", \"another\"]'"
                    .to_owned()
                    .into())
            }
            Given::Text(text) => {
                elements(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Given::Text))
            }
        }
    }

    fn to_toml(&self) -> Option<String> {
        let elements: Vec<String> = self.iter().filter_map(T::to_toml).collect();
        Some(format!("[{}]", elements.join(", ")))
    }

    fn is_secret(&self) -> bool {
        self.iter().any(T::is_secret)
    }
}

fn elements<'a, T: Setting>(given: impl Iterator<Item = Given<'a>>) -> Result<Vec<T>, Wrong> {
    let read = |(index, each)| T::read(each).map_err(|wrong| Wrong { element: Some(index), ..wrong });
    given.enumerate().map(read).collect()
}

/// Whether a text is meant as a TOML array: addresses of IPv6 begin with a bracket, too.
fn is_array(text: &str) -> bool {
    let rest = text.trim_start().strip_prefix('[').map(str::trim_start);
    rest.is_some_and(|rest| rest.starts_with(['"', '\'', '{', ']']))
}

/// "1.5s" is 1.5 times what one of the units "s" is.
fn read(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    Some(number.parse::<f64>().ok()? * scale)
}

/// A whole number of the first unit that leaves nothing over; the last one is 1.
fn written(value: u64, units: &[(&str, u64)]) -> Option<String> {
    let (unit, size) = units.iter().find(|(_, size)| value.is_multiple_of(*size))?;
    Some(quoted(&format!("{}{unit}", value / size)))
}

pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_written() {
        for (text, written) in [("10.0.0.0/8", "10.0.0.0/8"), ("::/0", "::/0"), ("192.0.2.1", "192.0.2.1/32")] {
            assert_eq!(network(text).expect(text).to_string(), written);
        }
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.0/"] {
            assert_eq!(network(text), None, "{text}");
        }
    }
}
