//! Signed URLs: who has one may watch one stream until a time, from one address if it says so.
//!
//! In: a stream's path, a time, as needed a network; the keys (`reflect.url_keys`). Out: what stands behind the question
//! mark; and whether what a viewer shows is that.
//!
//! `signature` is Base64url without padding (RFC 4648 §5) of HMAC-SHA-256 (RFC 2104) over three lines with a line feed
//! between them: the stream's path, `expires` in seconds since 1970, and `client` as it stands in the URL, without its
//! percent signs; that line is empty where there is none. Whatever is below a stream's path, its playlist and segments, is
//! good with its signature.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;
use url::form_urlencoded;

use super::request::QueryError;
use crate::config::{Secret, network};

/// Bytes of a signature.
const SIGNATURE_LEN: usize = 32;

/// Sign and check.
#[derive(Debug)]
pub struct UrlKeys {
    /// The first signs, each is good.
    keys: Vec<hmac::Key>,
}

/// What a viewer shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    expires: u64,
    client: Option<String>,
    signature: [u8; SIGNATURE_LEN],
}

/// Why somebody may not watch (403).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// There is none.
    #[error("this stream needs a signed address, or a token")]
    Missing,
    /// It is not of one of our keys, or of something else.
    #[error("the signature is not this address's")]
    Wrong,
    /// It was.
    #[error("the signed address is no longer good")]
    Expired,
    /// It is somebody else's.
    #[error("the signed address is for a client elsewhere")]
    Elsewhere,
}

impl Signed {
    /// What stands in a URL, percent signs taken off.
    ///
    /// # Errors
    /// When it cannot have been made by `UrlKeys::sign`.
    pub(super) fn new(expires: u64, client: Option<String>, signature: &str) -> Result<Self, QueryError> {
        if client.as_deref().is_some_and(|client| network(client).is_none()) {
            return Err(QueryError::Client);
        }
        let decoded = URL_SAFE_NO_PAD.decode(signature).ok().and_then(|bytes| bytes.try_into().ok());
        Ok(Signed { expires, client, signature: decoded.ok_or(QueryError::Signature)? })
    }
}

impl UrlKeys {
    /// `None` without keys: then nobody needs a signature.
    pub fn new(keys: &[Secret]) -> Option<Self> {
        let keys: Vec<_> = keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key.0.as_bytes())).collect();
        (!keys.is_empty()).then_some(UrlKeys { keys })
    }

    /// Returns what lets its bearer watch the stream at `path` until `expires`, in seconds since 1970: a query without its
    /// question mark. `client` is an address or a network; nobody elsewhere may use it.
    pub fn sign(&self, path: &str, expires: u64, client: Option<&str>) -> String {
        let signature = hmac::sign(&self.keys[0], &message(path, expires, client));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("expires", &expires.to_string());
        client.map(|client| query.append_pair("client", client));
        query.append_pair("signature", &URL_SAFE_NO_PAD.encode(signature)).finish()
    }

    /// Lets those through who may watch the stream at `path`. Who is there already goes on after the time.
    ///
    /// # Errors
    /// Why this is not one of them.
    pub fn check(
        &self,
        path: &str,
        signed: Option<&Signed>,
        client: Option<IpAddr>,
        now: SystemTime,
    ) -> Result<(), SignatureError> {
        let Signed { expires, client: wanted, signature } = signed.ok_or(SignatureError::Missing)?;
        let message = message(path, *expires, wanted.as_deref());
        // Each takes the same time, wherever the signatures differ.
        if !self.keys.iter().any(|key| hmac::verify(key, &message, signature).is_ok()) {
            return Err(SignatureError::Wrong);
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now > *expires {
            return Err(SignatureError::Expired);
        }
        let Some(wanted) = wanted else { return Ok(()) };
        let is_there = |client: IpAddr| network(wanted).is_some_and(|wanted| wanted.contains(&client.to_canonical()));
        if client.is_some_and(is_there) { Ok(()) } else { Err(SignatureError::Elsewhere) }
    }
}

/// What is signed.
fn message(path: &str, expires: u64, client: Option<&str>) -> Vec<u8> {
    format!("{path}\n{expires}\n{}", client.unwrap_or_default()).into_bytes()
}

/// Adds a signature to the address of a stream, or of its playlist.
///
/// # Errors
/// A sentence, when it is no such address, or is signed already.
pub fn sign_url(keys: &UrlKeys, url: &str, expires: u64, client: Option<&str>) -> Result<String, String> {
    let (address, fragment) = url.split_once('#').map_or((url, None), |(address, fragment)| (address, Some(fragment)));
    let (base, query) = address.split_once('?').unwrap_or((address, ""));
    let path = match base.split_once("://") {
        Some((_, rest)) => rest.find('/').map(|at| &rest[at..]),
        None => base.starts_with('/').then_some(base),
    };
    let path = path.map(|path| path.strip_suffix("/index.m3u8").unwrap_or(path));
    let path = path.filter(|path| path.len() > 1 && path.bytes().all(|byte| byte.is_ascii_graphic()));
    let path =
        path.ok_or_else(|| format!("{url:?} is no address of a stream, as http://localhost:8080/live/news is"))?;
    if form_urlencoded::parse(query.as_bytes()).any(|(key, _)| SIGNED_BY.contains(&&*key)) {
        return Err(format!("{url:?} has a signature, or a part of one"));
    }
    let kept = if query.is_empty() { String::new() } else { format!("{query}&") };
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    Ok(format!("{base}?{kept}{}{fragment}", keys.sign(path, expires, client)))
}

/// The keys of a signature in a query.
const SIGNED_BY: [&str; 3] = ["expires", "client", "signature"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::request::Query;
    use super::*;

    const PATH: &str = "/live/news";
    const NEW: &str = "a key that is long enough, or so they say";
    const OLD: &str = "another key that is long enough, they say";

    fn keys(texts: &[&str]) -> UrlKeys {
        UrlKeys::new(&texts.iter().map(|text| Secret((*text).to_owned())).collect::<Vec<_>>()).expect("a key")
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Whether a query lets somebody watch, at 1,000 s.
    fn check(keys: &UrlKeys, path: &str, query: &str, client: &str) -> Result<(), SignatureError> {
        let signed = Query::parse(query).expect("a query").signed;
        keys.check(path, signed.as_ref(), Some(client.parse().expect("an address")), at(1_000))
    }

    #[test]
    fn the_signature_is_what_others_would_make() {
        // printf '/live/news\n1000\n10.0.0.0/8' | openssl dgst -sha256 -hmac KEY -binary | basenc --base64url
        let query = keys(&[NEW]).sign(PATH, 1_000, Some("10.0.0.0/8"));
        let signature = "EhABbQ1iZqTBL3a2mkgCnEk2luZ_B86MgCVTdv0xZbg";
        assert_eq!(query, format!("expires=1000&client=10.0.0.0%2F8&signature={signature}"));
    }

    #[test]
    fn a_signature_is_good_for_one_stream_until_its_time() {
        let keys = keys(&[NEW]);
        let query = keys.sign(PATH, 1_000, None);
        assert_eq!(check(&keys, PATH, &query, "192.0.2.1"), Ok(()));
        assert_eq!(check(&keys, "/live/other", &query, "192.0.2.1"), Err(SignatureError::Wrong));
        assert_eq!(check(&keys, PATH, &keys.sign(PATH, 999, None), "192.0.2.1"), Err(SignatureError::Expired));
        let longer = query.replace("expires=1000", "expires=2000");
        assert_eq!(check(&keys, PATH, &longer, "192.0.2.1"), Err(SignatureError::Wrong));
        assert_eq!(check(&keys, PATH, "join=next", "192.0.2.1"), Err(SignatureError::Missing));
    }

    #[test]
    fn who_signs_for_one_address_lets_in_nobody_else() {
        let keys = keys(&[NEW]);
        for (network, here, elsewhere) in [
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("192.0.2.7", "::ffff:192.0.2.7", "::ffff:192.0.2.8"),
            ("10.0.0.0/8", "10.1.2.3", "11.0.0.0"),
            ("2001:db8::/64", "2001:db8::9", "2001:db8:0:1::9"),
        ] {
            let query = keys.sign(PATH, 2_000, Some(network));
            assert_eq!(check(&keys, PATH, &query, here), Ok(()), "{network}");
            assert_eq!(check(&keys, PATH, &query, elsewhere), Err(SignatureError::Elsewhere), "{network}");
            let (without, _) = query.split_once("&client=").expect("it stands there");
            let (_, signature) = query.split_once("&signature=").expect("it stands there");
            let anybody = format!("{without}&signature={signature}");
            assert_eq!(check(&keys, PATH, &anybody, elsewhere), Err(SignatureError::Wrong), "{network}");
        }
        let signed = Query::parse(&keys.sign(PATH, 2_000, Some("10.0.0.0/8"))).expect("a query").signed;
        assert_eq!(keys.check(PATH, signed.as_ref(), None, at(1)), Err(SignatureError::Elsewhere));
    }

    #[test]
    fn what_an_old_key_has_signed_is_good_until_it_is_gone() {
        let (old, both, new) = (keys(&[OLD]), keys(&[NEW, OLD]), keys(&[NEW]));
        let before = old.sign(PATH, 2_000, None);
        assert_eq!(check(&both, PATH, &before, "::1"), Ok(()));
        assert_eq!(check(&new, PATH, &before, "::1"), Err(SignatureError::Wrong));
        assert_eq!(both.sign(PATH, 2_000, None), new.sign(PATH, 2_000, None));
        assert!(UrlKeys::new(&[]).is_none());
    }

    #[test]
    fn addresses_are_signed_as_people_have_them() {
        let keys = keys(&[NEW]);
        let query = keys.sign(PATH, 5, None);
        let signed = |url: &str| sign_url(&keys, url, 5, None);
        assert_eq!(signed("/live/news"), Ok(format!("/live/news?{query}")));
        assert_eq!(signed("https://a.example/live/news"), Ok(format!("https://a.example/live/news?{query}")));
        let playlist = "http://[::1]:8080/live/news/index.m3u8?a=b#t=5";
        assert_eq!(signed(playlist), Ok(format!("http://[::1]:8080/live/news/index.m3u8?a=b&{query}#t=5")));
        for wrong in [
            "",
            "live/news",
            "https://a.example",
            "https://a.example/",
            "/index.m3u8",
            "/live/a b",
            "/live/news?expires=1",
        ] {
            assert!(signed(wrong).is_err(), "{wrong}");
        }
    }
}
