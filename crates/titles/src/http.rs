//! One request for a range of a title, checked to the byte.
//!
//! In: a URL, a range, and what is known of the title. Out: exactly the bytes of that range, or which promise was broken.
//! Connections are kept and used again. Redirects are followed, but never from https to http.
//! Source: RFC 9110 §13.1.5 (If-Range), §14 (ranges), §15.4 (redirects).

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Pool, Error as PoolError};
use hyper_util::rt::TokioTimer;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use url::Url;

use crate::error::{Error, HttpError};
use crate::flight::lock;
use crate::guard::Guard;
use crate::location::check_url;
use crate::settings::Settings;
use crate::stats::Counts;

/// Redirects of one request.
const REDIRECTS_MAX: u32 = 5;

/// What is read of what a redirect says to people.
const REDIRECT_BODY_MAX: usize = 16 << 10;

/// A connection that was not used for so long is closed.
const IDLE: Duration = Duration::from_secs(30);

/// Memory that is taken for a body before any of it is there.
const RESERVE_MAX: u64 = 4 << 20;

const USER_AGENT: &str = concat!("millrace/", env!("CARGO_PKG_VERSION"));

/// What an origin says a title's state is by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validator {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

impl Validator {
    fn of(headers: &HeaderMap) -> Validator {
        let text = |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Validator { etag: text(header::ETAG), last_modified: text(header::LAST_MODIFIED) }
    }

    pub fn is_some(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Whether this may be the same state. What only one of them has tells nothing.
    pub fn agrees(&self, other: &Validator) -> bool {
        let opaque = |etag: &str| etag.trim_start_matches("W/").to_owned();
        match (&self.etag, &other.etag, &self.last_modified, &other.last_modified) {
            (Some(one), Some(other), ..) => opaque(one) == opaque(other),
            (_, _, Some(one), Some(other)) => one == other,
            _ => true,
        }
    }

    /// What If-Range may carry: no weak ETag, and a date only where there is no ETag.
    fn if_range(&self) -> Option<&str> {
        match &self.etag {
            Some(etag) => (!etag.starts_with("W/")).then_some(etag),
            None => self.last_modified.as_deref(),
        }
    }
}

/// What is asked for, and what is known of the title before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub range: Range<u64>,
    /// Bytes of the whole title.
    pub len: Option<u64>,
    pub validator: Validator,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub bytes: Vec<u8>,
    /// Of the whole title.
    pub len: u64,
    pub validator: Validator,
}

/// The connections to all origins.
type Connections = Pool<HttpsConnector<HttpConnector>, Empty<Bytes>>;

pub(crate) struct Client {
    connections: Mutex<Connections>,
    tls: ClientConfig,
    guard: Guard,
    settings: Arc<Settings>,
    counts: Arc<Counts>,
}

impl Client {
    /// # Errors
    /// When the certificates of `ca_file` cannot be read.
    pub fn new(settings: Arc<Settings>, counts: Arc<Counts>) -> Result<Client, Error> {
        let tls = tls(roots(settings.ca_file.as_deref())?)?;
        Ok(Client::with_tls(tls, settings, counts))
    }

    fn with_tls(tls: ClientConfig, settings: Arc<Settings>, counts: Arc<Counts>) -> Client {
        let guard = Guard::new(counts.clone());
        let connections = Mutex::new(connections(tls.clone(), &settings, &guard));
        Client { connections, tls, guard, settings, counts }
    }

    /// Fetches the part of the range that the title has.
    ///
    /// # Errors
    /// Everything but exactly those bytes of that title.
    pub async fn fetch(&self, url: &Url, wish: &Wish) -> Result<Part, HttpError> {
        let mut part = Part::default();
        let patience = self.settings.fetch_timeout;
        let result = timeout(patience, self.guard.run(self.fetch_into(&mut part, url, wish))).await;
        let got = part.bytes.len() as u64;
        self.counts.count(|stats| stats.fetched_bytes += got);
        match result {
            Ok(done) => done.unwrap_or(Err(HttpError::Panicked)).map(|()| part),
            Err(_) => Err(HttpError::Slow { ms: millis(patience), got }),
        }
    }

    async fn fetch_into(&self, part: &mut Part, url: &Url, wish: &Wish) -> Result<(), HttpError> {
        let response = self.follow(url, wish.headers()).await?;
        part.validator = Validator::of(response.headers());
        let body_len;
        (body_len, part.len) = wish.check(response.status(), response.headers(), &part.validator)?;
        part.bytes.reserve_exact(body_len.min(RESERVE_MAX) as usize);
        self.read_body(&mut part.bytes, response.into_body(), body_len).await
    }

    /// A response of status 200 that may have no end: its head, and its body piece by piece.
    ///
    /// # Errors
    /// When there is none.
    pub async fn open(&self, url: &Url, headers: HeaderMap) -> Result<Response<Incoming>, HttpError> {
        let response = self.guard.run(self.follow(url, headers)).await.unwrap_or(Err(HttpError::Panicked))?;
        match response.status() {
            StatusCode::OK => Ok(response),
            status => Err(HttpError::Status(status.as_u16())),
        }
    }

    /// The next piece of a body; `None` at its end.
    ///
    /// # Errors
    /// When none comes in time, or the connection breaks.
    pub async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, HttpError> {
        let patience = self.settings.stall_timeout;
        loop {
            let frame = timeout(patience, self.guard.run(body.frame())).await;
            let frame = frame.map_err(|_| HttpError::Stalled { ms: millis(patience) })?.ok_or(HttpError::Panicked)?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|error| HttpError::Connection(causes(&error)))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The response at the end of all redirects. Another host is not told a password.
    async fn follow(&self, url: &Url, mut headers: HeaderMap) -> Result<Response<Incoming>, HttpError> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.request(&url, &headers).await?;
            if !is_redirect(response.status()) {
                return Ok(response);
            }
            self.counts.count(|stats| stats.redirects += 1);
            let from = url.origin();
            url = redirected(&url, response.headers())?;
            if url.origin() != from {
                headers.remove(header::AUTHORIZATION);
            }
            // A connection whose response was not read to its end cannot be used again.
            let body = Limited::new(response.into_body(), REDIRECT_BODY_MAX).collect();
            drop(timeout(self.settings.stall_timeout, body).await);
        }
        Err(HttpError::Redirects(REDIRECTS_MAX))
    }

    async fn request(&self, url: &Url, headers: &HeaderMap) -> Result<Response<Incoming>, HttpError> {
        let request = Request::get(url.as_str())
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, USER_AGENT)
            .body(Empty::new());
        let mut request = request.map_err(|error| HttpError::Connect(error.to_string()))?;
        request.headers_mut().extend(headers.clone());
        let patience = self.settings.connect_timeout + self.settings.stall_timeout;
        match timeout(patience, self.connections().request(request)).await {
            Ok(response) => response.map_err(|error| not_answered(&error)),
            Err(_) => Err(HttpError::Stalled { ms: millis(patience) }),
        }
    }

    /// The connections; when something has panicked over them, others: a lock may be poisoned.
    fn connections(&self) -> Connections {
        let mut kept = lock(&self.connections);
        if self.guard.take_panicked() {
            let mut tls = self.tls.clone();
            // It has one too.
            tls.resumption = Resumption::default();
            *kept = connections(tls, &self.settings, &self.guard);
        }
        kept.clone()
    }

    async fn read_body(&self, bytes: &mut Vec<u8>, mut body: Incoming, expected: u64) -> Result<(), HttpError> {
        let patience = self.settings.stall_timeout;
        loop {
            let frame = timeout(patience, body.frame()).await;
            let got = bytes.len() as u64;
            let Some(frame) = frame.map_err(|_| HttpError::Stalled { ms: millis(patience) })? else {
                return if got == expected { Ok(()) } else { Err(HttpError::Truncated { expected, got }) };
            };
            let frame = frame.map_err(|error| match is_early_end(&error) {
                true => HttpError::Truncated { expected, got },
                false => HttpError::Connection(causes(&error)),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if got + data.len() as u64 > expected {
                let asked = format!("{expected} bytes");
                return Err(HttpError::WrongRange { asked, got: "more".to_owned() });
            }
            bytes.extend_from_slice(&data);
        }
    }
}

fn connections(tls: ClientConfig, settings: &Settings, guard: &Guard) -> Connections {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(settings.connect_timeout));
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
    Pool::builder(guard.clone())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(settings.fetches_per_origin)
        .build(https.wrap_connector(http))
}

impl Wish {
    fn headers(&self) -> HeaderMap {
        let range = format!("bytes={}-{}", self.range.start, self.range.end.saturating_sub(1));
        let fields = [(header::RANGE, Some(&*range)), (header::IF_RANGE, self.validator.if_range())];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?.parse().ok()?)));
        fields.collect()
    }

    /// What a response promises: bytes of its body, and of the whole title.
    fn check(&self, status: StatusCode, headers: &HeaderMap, validator: &Validator) -> Result<(u64, u64), HttpError> {
        let range = &self.range;
        let said = headers.get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
        let content_len = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let is_success = matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
        if is_success && !validator.agrees(&self.validator) {
            return Err(HttpError::Changed);
        }
        let (body_len, len) = match status {
            StatusCode::PARTIAL_CONTENT => partial(said, range)?,
            // All of a title that is no longer than what was asked for.
            StatusCode::OK => match content_len {
                Some(len) if range.start == 0 && len <= range.end => (len, len),
                _ => return Err(HttpError::RangeIgnored),
            },
            StatusCode::RANGE_NOT_SATISFIABLE => match (self.len, said.and_then(unsatisfied_len)) {
                (Some(expected), Some(got)) if expected != got => {
                    return Err(HttpError::OtherLength { expected, got });
                }
                _ => return Err(HttpError::Status(status.as_u16())),
            },
            _ => return Err(HttpError::Status(status.as_u16())),
        };
        if let Some(expected) = self.len.filter(|expected| *expected != len) {
            return Err(HttpError::OtherLength { expected, got: len });
        }
        match content_len {
            Some(got) if got != body_len => Err(HttpError::Truncated { expected: body_len, got }),
            _ => Ok((body_len, len)),
        }
    }
}

/// Bytes of the part, and of the whole.
fn partial(said: Option<&str>, range: &Range<u64>) -> Result<(u64, u64), HttpError> {
    let wrong = || HttpError::WrongRange {
        asked: format!("bytes {}-{}", range.start, range.end.saturating_sub(1)),
        got: said.unwrap_or("no Content-Range").chars().take(80).collect(),
    };
    let (first, last, len) = said.and_then(content_range).ok_or_else(wrong)?;
    let is_asked =
        first == range.start && first <= last && last < len && last.checked_add(1) == Some(range.end.min(len));
    if is_asked { Ok((last + 1 - first, len)) } else { Err(wrong()) }
}

/// `bytes 0-99/1000`: first and last byte, and the length of the whole. An unknown length is of no use here.
fn content_range(said: &str) -> Option<(u64, u64, u64)> {
    let (range, len) = bytes_unit(said)?.split_once('/')?;
    let (first, last) = range.trim().split_once('-')?;
    Some((digits(first)?, digits(last)?, digits(len)?))
}

/// `bytes */1000`.
fn unsatisfied_len(said: &str) -> Option<u64> {
    digits(bytes_unit(said)?.trim().strip_prefix("*/")?)
}

fn bytes_unit(said: &str) -> Option<&str> {
    let (unit, rest) = said.trim().split_once(' ')?;
    unit.eq_ignore_ascii_case("bytes").then_some(rest)
}

fn digits(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn redirected(from: &Url, headers: &HeaderMap) -> Result<Url, HttpError> {
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| HttpError::BadRedirect("nowhere".to_owned()))?;
    let bad =
        || HttpError::BadRedirect(location.split(['?', '#']).next().unwrap_or_default().chars().take(200).collect());
    let mut to = from.join(location).map_err(|_| bad())?;
    to.set_fragment(None);
    let is_downgrade = from.scheme() == "https" && to.scheme() != "https";
    if is_downgrade || check_url(&to).is_err() { Err(bad()) } else { Ok(to) }
}

fn not_answered(error: &PoolError) -> HttpError {
    let text = causes(error);
    if error.is_connect() { HttpError::Connect(text) } else { HttpError::Connection(text) }
}

/// Whether the connection was closed before its time, and not broken.
fn is_early_end(error: &(dyn std::error::Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) || error.source().is_some_and(is_early_end)
}

/// An error with what is behind it: the outer ones alone say little.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn tls(roots: RootCertStore) -> Result<ClientConfig, Error> {
    let config = ClientConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Settings { what: format!("TLS: {error}") })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// The system's certificates, and those of the file. A system without any is fine where all origins are http.
fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = ca_file {
        let what = |error: String| Error::Settings { what: format!("{}: {error}", path.display()) };
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| what(error.to_string()))? {
            let certificate = certificate.map_err(|error| what(error.to_string()))?;
            roots.add(certificate).map_err(|error| what(error.to_string()))?;
        }
    }
    if roots.is_empty() {
        tracing::warn!("no certificates to trust: https origins will not work");
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
    use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
    use rustls::{NamedGroup, ServerConfig};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    fn check(status: u16, range: Range<u64>, headers: &[(HeaderName, String)]) -> Result<(u64, u64), HttpError> {
        let pairs = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let wish = Wish { range, ..Wish::default() };
        wish.check(StatusCode::from_u16(status).unwrap(), &pairs.collect(), &Validator::default())
    }

    fn said(content_range: &str) -> Result<(u64, u64), HttpError> {
        let headers = [(header::CONTENT_RANGE, content_range.to_owned())];
        check(206, 100..200, &headers)
    }

    #[test]
    fn a_range_is_what_was_asked_for_or_an_error() {
        assert_eq!(said("bytes 100-199/1000"), Ok((100, 1_000)));
        assert_eq!(said("Bytes 100-199/1000"), Ok((100, 1_000)));
        assert_eq!(said("bytes 100-149/150"), Ok((50, 150)), "up to the end");
        for wrong in [
            "bytes 100-198/1000",
            "bytes 101-199/1000",
            "bytes 99-199/1000",
            "bytes 100-200/1000",
            "bytes 100-199/*",
            "bytes 100-199/150",
            "bytes 100-4/5",
            "bytes 100-18446744073709551615/18446744073709551615",
            "bytes 100-199",
            "bytes */1000",
            "bytes +100-199/1000",
            "items 100-199/1000",
            "",
        ] {
            assert!(matches!(said(wrong), Err(HttpError::WrongRange { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_length_that_does_not_fit_the_range_is_told_before_the_body_comes() {
        let headers = [(header::CONTENT_RANGE, "bytes 0-99/100".into()), (header::CONTENT_LENGTH, "99".into())];

        assert_eq!(check(206, 0..500, &headers), Err(HttpError::Truncated { expected: 100, got: 99 }));
    }

    #[test]
    fn validators_disagree_only_by_what_both_have() {
        let of = |etag: &str, date: &str| {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            Validator { etag: some(etag), last_modified: some(date) }
        };

        assert!(of("\"1\"", "").agrees(&of("W/\"1\"", "Monday")));
        assert!(of("\"1\"", "Monday").agrees(&of("\"1\"", "Tuesday")), "the ETag knows better");
        assert!(!of("\"1\"", "Monday").agrees(&of("\"2\"", "Monday")));
        assert!(!of("", "Monday").agrees(&of("\"1\"", "Tuesday")));
        assert!(of("", "Monday").agrees(&of("\"1\"", "")));
        assert_eq!(of("W/\"1\"", "Monday").if_range(), None);
        assert_eq!(of("", "Monday").if_range(), Some("Monday"));
    }

    /// Where TLS sessions are kept by one that panics when there is one to be kept: in the task of a connection, as the server
    /// tells of them behind the handshake. It does as a lock does that is poisoned.
    #[derive(Debug)]
    struct Poisoned;

    impl ClientSessionStore for Poisoned {
        fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

        fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
            None
        }

        fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

        fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
            None
        }

        fn remove_tls12_session(&self, _: &ServerName<'static>) {}

        fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {
            drop(Bytes::new().slice(1..));
        }

        fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
            None
        }
    }

    /// An https origin that answers each request by four bytes, and its certificate.
    async fn origin() -> (Url, RootCertStore) {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let config = ServerConfig::builder_with_provider(rustls::crypto::aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.into()], PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/a.ts", listener.local_addr().unwrap().port()).parse().unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let mut stream = BufReader::new(stream);
                let mut line = String::new();
                while stream.read_line(&mut line).await.is_ok_and(|len| len > 2) {
                    line.clear();
                }
                let answer = "HTTP/1.1 206 \r\nContent-Range: bytes 0-3/4\r\nContent-Length: 4\r\n\r\nabcd";
                // The client may have gone.
                drop(stream.write_all(answer.as_bytes()).await);
            }
        });
        (url, roots)
    }

    #[tokio::test]
    async fn a_panic_of_a_library_in_a_connection_ends_that_connection_and_the_next_has_nothing_of_it() {
        let (url, roots) = origin().await;
        let mut tls = tls(roots).unwrap();
        tls.resumption = Resumption::store(Arc::new(Poisoned));
        let counts = Arc::<Counts>::default();
        let client = Client::with_tls(tls, Arc::default(), counts.clone());
        let wish = Wish { range: 0..4, ..Wish::default() };

        let failed = client.fetch(&url, &wish).await;
        assert!(matches!(failed, Err(HttpError::Connection(_) | HttpError::Truncated { .. })), "{failed:?}");
        assert_eq!(counts.read().panics, 1);

        assert_eq!(client.fetch(&url, &wish).await.unwrap().bytes, b"abcd");
        assert_eq!(counts.read().panics, 1);
    }

    proptest! {
        #[test]
        fn whatever_a_head_says_the_body_is_what_was_asked_for(
            status in prop_oneof![Just(200_u16), Just(206), Just(416), 100_u16..600],
            numbers in prop::array::uniform4(prop_oneof![0_u64..300, any::<u64>()]),
            start in 0_u64..200,
            span in 1_u64..200,
            text in "[ -~]{0,20}",
            is_text in any::<bool>(),
        ) {
            let [first, last, len, content_len] = numbers;
            let said = if is_text { text } else { format!("bytes {first}-{last}/{len}") };
            let headers = [(header::CONTENT_RANGE, said), (header::CONTENT_LENGTH, content_len.to_string())];
            if let Ok((body_len, len)) = check(status, start..start + span, &headers) {
                prop_assert!(body_len <= span + start && body_len <= len);
                prop_assert_eq!(start + body_len, (start + span).min(len));
            }
        }
    }
}
