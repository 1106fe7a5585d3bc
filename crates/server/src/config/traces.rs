//! `[traces]`: what became of each join, for a collector of OpenTelemetry's.

use std::fmt;

use hyper::header::{HeaderName, HeaderValue};
use titles::Url;

use super::section::section;
use super::value::{Given, NOT_SHOWN, Setting, any, between, quoted};

section! {
    /// Traces of joins: where each one's time went, and why it failed, for a collector of OpenTelemetry's.
    Traces as "traces" {
        /// Collector to which they are sent (OTLP over HTTP, protobuf), such as "http://127.0.0.1:4318"; "/v1/traces" is added to its
        /// path. Not set: there are none.
        endpoint: Option<Url> = None, plain_http;
        /// What the collector is told as the name of this service (`service.name`).
        service_name: String = "millrace".to_owned(), not_empty;
        /// So many of all joins are traced, of those whose client does not say (W3C `traceparent`) whether it is.
        sample: f64 = 1.0, between(0.0, 1.0);
        /// What else stands in the head of each request to the collector, "name: value" each, such as "authorization: Bearer …".
        headers: Vec<Header> = vec![], any;
    }
}

/// What it is shows up in the log.
fn plain_http(endpoint: &Option<Url>) -> Result<(), String> {
    let is_fine = |url: &Url| {
        let has_secrets = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
        matches!(url.scheme(), "http" | "https") && url.has_host() && !has_secrets
    };
    let allowed =
        "allowed: an http or https URL without a user, a password and a query; secrets belong to traces.headers";
    if endpoint.as_ref().is_none_or(is_fine) { Ok(()) } else { Err(allowed.to_owned()) }
}

#[allow(clippy::ptr_arg, reason = "it is called with the setting itself")]
fn not_empty(name: &String) -> Result<(), String> {
    if name.is_empty() { Err("got \"\"; allowed: a name".to_owned()) } else { Ok(()) }
}

/// A line in the head of a request, whose value may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Header {
    /// In lower case.
    pub name: HeaderName,
    /// What it says.
    pub value: HeaderValue,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Header({}: …)", self.name)
    }
}

impl Setting for Header {
    const KIND: &str = "\"name: value\"";
    const HAS_COMMAS: bool = true;

    fn from_text(text: &str) -> Option<Self> {
        let (name, value) = text.split_once(':')?;
        let (name, mut value) = (name.trim().parse().ok()?, HeaderValue::from_str(value.trim()).ok()?);
        value.set_sensitive(true);
        Some(Header { name, value })
    }

    fn shown(_: Given<'_>) -> String {
        NOT_SHOWN.to_owned()
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&format!("{}: (not shown)", self.name)))
    }

    fn is_secret(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_of_http_and_has_no_secrets() {
        let check = |text: &str| plain_http(&Some(text.parse().expect("a URL"))).is_ok();
        for text in ["http://127.0.0.1:4318", "https://collector.example/otlp/"] {
            assert!(check(text), "{text}");
        }
        for text in ["ftp://a", "file:///a", "http://user:secret@a", "http://user@a", "https://a/?key=secret"] {
            assert!(!check(text), "{text}");
        }
        assert!(plain_http(&None).is_ok());
    }

    #[test]
    fn headers_are_read_and_never_shown() {
        let read = |text: &str| Header::from_text(text).map(|header| (header.name.to_string(), header.value));
        let value = |text| HeaderValue::from_static(text);
        assert_eq!(read("Authorization: Bearer a:b"), Some(("authorization".to_owned(), value("Bearer a:b"))));
        assert_eq!(read("x-scope-orgid:7"), Some(("x-scope-orgid".to_owned(), value("7"))));
        for text in ["", "Bearer", ": a", "a b: c", "a: b\nc: d"] {
            assert_eq!(read(text), None, "{text}");
        }
        let header = Header::from_text("authorization: secret").expect("a header");
        assert!(!format!("{header:?} {:?}", header.to_toml()).contains("secret"));
    }
}
