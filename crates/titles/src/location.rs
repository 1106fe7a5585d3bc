//! What a location means, and which are not even looked at.
//!
//! In: what a client or an operator typed. Out: a name below the folder and the origins, a path, or a URL.

use std::path::PathBuf;

use url::Url;

use crate::error::{Error, Refusal};
use crate::settings::Settings;

/// No file system has longer ones (Linux: NAME_MAX, PATH_MAX), and no origin needs any.
const LOCATION_LEN_MAX: usize = 4_096;
const PART_LEN_MAX: usize = 255;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    /// Plain components with `/` between.
    Name(String),
    /// Absolute.
    Path(PathBuf),
    Url(Url),
}

impl Location {
    /// # Errors
    /// `Refused`.
    pub fn parse(location: &str, settings: &Settings) -> Result<Location, Error> {
        let refused = |reason| Error::Refused { location: shown(location), reason };
        let is_name = !is_url(location);
        if location.len() > LOCATION_LEN_MAX || (is_name && location.split('/').any(|part| part.len() > PART_LEN_MAX)) {
            return Err(refused(Refusal::TooLong));
        }
        if location.chars().any(char::is_control) {
            return Err(refused(Refusal::Path));
        }
        if is_url(location) {
            if !settings.allow_urls {
                return Err(refused(Refusal::UrlsNotAllowed));
            }
            let mut url = Url::parse(location).map_err(|_| refused(Refusal::Url))?;
            url.set_fragment(None);
            check_url(&url).map_err(refused)?;
            return Ok(Location::Url(url));
        }
        if location.starts_with('/') {
            let is_allowed = settings.allow_paths;
            return is_allowed.then(|| Location::Path(location.into())).ok_or(refused(Refusal::PathsNotAllowed));
        }
        if location.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(refused(Refusal::Path));
        }
        Ok(Location::Name(location.to_owned()))
    }
}

/// Http or https, with a host, and without a password that would show up in logs.
pub(crate) fn check_url(url: &Url) -> Result<(), Refusal> {
    let is_plain = url.username().is_empty() && url.password().is_none();
    let is_http = matches!(url.scheme(), "http" | "https");
    (is_http && is_plain && url.has_host()).then_some(()).ok_or(Refusal::Url)
}

/// The title `name` at an origin: its components below the origin's path, whatever characters they have.
pub(crate) fn join(origin: &Url, name: &str) -> Url {
    let mut url = origin.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(name.split('/'));
    }
    url
}

/// For messages: a query may have secrets.
pub(crate) fn shown_url(url: &Url) -> String {
    let mut url = url.clone();
    if url.query().is_some() {
        url.set_query(Some("…"));
    }
    url.into()
}

fn is_url(location: &str) -> bool {
    let starts = |scheme: &str| location.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("http://") || starts("https://")
}

/// For messages: not longer than a line, and without a query.
pub(crate) fn shown(location: &str) -> String {
    let location = if is_url(location) { location.split(['?', '#']).next().unwrap_or_default() } else { location };
    location.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(location: &str) -> Result<Location, Refusal> {
        let settings = Settings { allow_urls: true, allow_paths: true, ..Settings::default() };
        parse_with(location, &settings)
    }

    fn parse_with(location: &str, settings: &Settings) -> Result<Location, Refusal> {
        Location::parse(location, settings).map_err(|error| match error {
            Error::Refused { reason, .. } => reason,
            other => panic!("{other}"),
        })
    }

    #[test]
    fn a_name_stays_below_where_it_is_looked_for() {
        for name in ["a.ts", "news/a b.ts", "..a.ts", "a..ts", "%2e%2e/a.ts", "a\\..\\b.ts", "ünï.ts", "file:a.ts"] {
            assert_eq!(parse(name), Ok(Location::Name(name.to_owned())), "{name}");
        }
        for name in
            ["", ".", "..", "../a.ts", "a/../b.ts", "a//b.ts", "a/", "a/.", "file:///etc/passwd", "a\0.ts", "a\n"]
        {
            assert_eq!(parse(name), Err(Refusal::Path), "{name:?}");
        }
        for long in ["a/".repeat(LOCATION_LEN_MAX), "a".repeat(256), format!("/a/{}", "ü".repeat(128))] {
            assert_eq!(parse(&long), Err(Refusal::TooLong));
        }
        assert!(parse(&"a".repeat(255)).is_ok());
    }

    #[test]
    fn paths_and_urls_are_for_those_who_are_allowed_to() {
        let settings = Settings::default();

        assert_eq!(parse_with("/etc/passwd", &settings), Err(Refusal::PathsNotAllowed));
        assert_eq!(parse_with("http://host/a.ts", &settings), Err(Refusal::UrlsNotAllowed));
        assert_eq!(parse_with("HTTPS://host/a.ts", &settings), Err(Refusal::UrlsNotAllowed));
        assert_eq!(parse("/a.ts"), Ok(Location::Path("/a.ts".into())));
        assert!(matches!(parse("HTTPS://host/a.ts?key=1#part"), Ok(Location::Url(url)) if url.fragment().is_none()));
    }

    #[test]
    fn urls_are_http_without_a_password() {
        for url in ["http://", "http://user@host/a.ts", "https://user:secret@host/a.ts", "http://host:99999/"] {
            assert_eq!(parse(url), Err(Refusal::Url), "{url}");
        }
        assert_eq!(parse("ftp://host/a.ts"), Err(Refusal::Path));
    }

    #[test]
    fn a_name_is_joined_to_an_origin_letter_by_letter() {
        let origin: Url = "http://host/vod/".parse().unwrap();

        assert_eq!(join(&origin, "a.ts").as_str(), "http://host/vod/a.ts");
        assert_eq!(join(&origin, "n/a b?c#d.ts").as_str(), "http://host/vod/n/a%20b%3Fc%23d.ts");
        assert_eq!(join(&origin, "%2e%2e/a.ts").as_str(), "http://host/vod/%252e%252e/a.ts");
        assert_eq!(join(&"http://host".parse().unwrap(), "a.ts").as_str(), "http://host/a.ts");
    }

    #[test]
    fn messages_have_no_query() {
        let url: Url = "http://host/a.ts?token=secret".parse().unwrap();

        assert!(!shown_url(&url).contains("secret"));
        assert!(!shown("http://host/a.ts?token=secret").contains("secret"));
    }
}
