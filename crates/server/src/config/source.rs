//! Where a reflected stream comes from.
//!
//! In: `http://host/path`, `udp://@239.1.1.1:5000`, `pump:live/news` and the like. Out: the source, or what is wrong with it.

use std::fmt;
use std::str::FromStr;

use url::Url;

use super::LiveInput;

/// Before the name of what the pump plays.
const PUMP: &str = "pump:";

/// And this it is alone.
const DEMO: &str = "demo:";

/// A source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectSource {
    /// The body of a response, by HTTP or HTTPS.
    Pull(PullSource),
    /// A transport stream that comes by UDP, or RTP.
    Datagrams(LiveInput),
    /// What the pump plays: a title, over and over, or one of its live inputs.
    Pump(String),
    /// The built-in clip, over and over, as a transport stream.
    Demo,
}

/// Where to ask for a stream, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullSource {
    /// Without a user.
    pub url: Url,
    /// User and password, for Basic authentication.
    pub user: Option<(String, String)>,
}

/// It is no source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a source is http://…, https://…, udp://[SOURCE@]ADDRESS:PORT, rtp://…, pump: and a title, or demo:")]
pub struct NoSource;

impl FromStr for ReflectSource {
    type Err = NoSource;

    fn from_str(text: &str) -> Result<Self, NoSource> {
        if text == DEMO {
            return Ok(ReflectSource::Demo);
        }
        if let Some(title) = text.strip_prefix(PUMP) {
            return if title.is_empty() { Err(NoSource) } else { Ok(ReflectSource::Pump(title.to_owned())) };
        }
        if let Some(input) = LiveInput::new("source", text) {
            return Ok(ReflectSource::Datagrams(input));
        }
        let mut url = Url::parse(text).map_err(|_| NoSource)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(NoSource);
        }
        url.set_fragment(None);
        let part = |text: &str| percent_decoded(text).ok_or(NoSource);
        let user = match (url.username(), url.password()) {
            ("", None) => None,
            (name, password) => Some((part(name)?, part(password.unwrap_or_default())?)),
        };
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| NoSource)?;
        Ok(ReflectSource::Pull(PullSource { url, user }))
    }
}

/// As in a form, but that a plus is one.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// For people: without the password, and what a query may have.
impl fmt::Display for ReflectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReflectSource::Pull(PullSource { url, .. }) => {
                let mut url = url.clone();
                if url.query().is_some() {
                    url.set_query(Some("..."));
                }
                f.write_str(url.as_str())
            }
            ReflectSource::Datagrams(input) => input.fmt(f),
            ReflectSource::Pump(title) => write!(f, "{PUMP}{title}"),
            ReflectSource::Demo => f.write_str(DEMO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_told_by_its_scheme() {
        let shown = |text: &str| text.parse::<ReflectSource>().map(|source| source.to_string());
        assert_eq!(shown("http://example.org:9094/a.ts").as_deref(), Ok("http://example.org:9094/a.ts"));
        assert_eq!(shown("https://me:pass@example.org/a?key=secret").as_deref(), Ok("https://example.org/a?..."));
        assert_eq!(shown("udp://@239.1.1.1:5000?interface=lo").as_deref(), Ok("udp://@239.1.1.1:5000"));
        assert_eq!(shown("rtp://127.0.0.1:5000").as_deref(), Ok("rtp://127.0.0.1:5000"));
        assert_eq!(shown("pump:live/news").as_deref(), Ok("pump:live/news"));
        assert_eq!(shown("demo:").as_deref(), Ok("demo:"));
        for wrong in ["", "pump:", "ftp://example.org/a", "http://", "udp://name:5000", "/a.ts", "example.org/a.ts"] {
            assert_eq!(shown(wrong), Err(NoSource), "{wrong}");
        }
    }

    #[test]
    fn user_and_password_are_what_was_meant() {
        let Ok(ReflectSource::Pull(pull)) = "http://a%40b:c%3Ad+e@example.org/".parse() else { panic!("it is one") };
        assert_eq!(pull.user, Some(("a@b".to_owned(), "c:d+e".to_owned())));
        assert_eq!(pull.url.as_str(), "http://example.org/");
        assert_eq!("http://a%4:b@example.org/".parse::<ReflectSource>(), Err(NoSource));
    }
}
