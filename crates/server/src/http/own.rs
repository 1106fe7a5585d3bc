//! Whose requests are answered where no token is needed (`auth.dev`).
//!
//! In: a request's headers. Out: whether a page of somebody else may have sent it.
//!
//! Whoever reaches such a server may administer it. A browser that reaches it would do so for any page that it shows: for one
//! of another origin, though that cannot read the answer, and for one whose name was made to point here (DNS rebinding),
//! which can. No address is anybody's name, and nobody else has localhost or this machine's own: who asks by these was not led
//! here. Any other name may be somebody's who answers for it in the network (LLMNR, a search domain).
//! Source: RFC 9110 §7.2 (Host), RFC 9113 §8.3.1 (":authority"), RFC 6454 §7 (Origin).

use std::net::IpAddr;
use std::sync::LazyLock;

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use rustix::system::uname;

use crate::config::Origin;

/// Where that is for which tokens of admins are needed elsewhere, or secrets are given out. Media is for every page that
/// `http.cors_origins` has.
const PARTS: [&str; 2] = ["/api/", "/pump/"];

/// Whether a path is such a part.
pub(super) fn is_for_own(path: &str) -> bool {
    PARTS.iter().any(|part| path.starts_with(part))
}

/// Refuses what a page of somebody else may have sent.
///
/// # Errors
/// Why it is refused.
pub(super) fn check(uri: &Uri, headers: &HeaderMap, listed: &[Origin]) -> Result<(), &'static str> {
    let is_own = |host: &Authority| {
        !host.as_str().contains('@')
            && (ip(host).is_some() || is_this_machine(host) || listed.iter().any(|it| names(it, host)))
    };
    let said = headers.get_all(HOST).iter().map(|host| host.to_str().ok()?.parse().ok());
    let hosts = uri.authority().cloned().map(Some).into_iter().chain(said);
    let mut hosts: Option<Vec<Authority>> = hosts.map(|host| host.filter(is_own)).collect();
    hosts.iter_mut().for_each(Vec::dedup);
    // A browser says it, and one.
    let Some(hosts) = hosts.filter(|hosts| hosts.len() <= 1) else {
        return Err(
            "no token is needed here, so ask by address, for localhost or by this machine's name, or name the origin in \
                    http.cors_origins",
        );
    };
    let origins = headers.get_all(ORIGIN).iter();
    let may_ask = |origin: Origin| {
        listed.contains(&origin) || hosts.iter().any(|host| names(&origin, host)) || is_of_this_machine(&origin)
    };
    let is_ours = |text: &str| may_ask(Origin(text.to_owned()));
    if origins.map(|origin| origin.to_str().ok()).all(|origin| origin.is_some_and(is_ours)) {
        return Ok(());
    }
    Err("no token is needed here, so pages of other origins may not ask; name theirs in http.cors_origins")
}

/// Whether the origin's host and port are these.
fn names(origin: &Origin, host: &Authority) -> bool {
    authority(origin).is_some_and(|authority| authority == *host)
}

/// Whoever shows pages on the machine that the browser is on could ask without it.
fn is_of_this_machine(origin: &Origin) -> bool {
    authority(origin)
        .is_some_and(|host| is_localhost(&host) || ip(&host).is_some_and(|ip| ip.to_canonical().is_loopback()))
}

fn authority(origin: &Origin) -> Option<Authority> {
    let (_, rest) = origin.0.split_once("://")?;
    rest.parse().ok()
}

fn is_localhost(host: &Authority) -> bool {
    let host = host.host();
    host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case("localhost")
}

/// By a name that it knows itself by.
fn is_this_machine(host: &Authority) -> bool {
    static NAME: LazyLock<String> =
        LazyLock::new(|| uname().nodename().to_str().map(ToOwned::to_owned).unwrap_or_default());
    is_localhost(host) || host.host().eq_ignore_ascii_case(&NAME)
}

fn ip(host: &Authority) -> Option<IpAddr> {
    let host = host.host();
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).parse().ok()
}
