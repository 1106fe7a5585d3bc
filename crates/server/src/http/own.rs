//! Whose requests are answered where no token is needed (`auth.dev`).
//!
//! In: a request's headers. Out: whether a page of somebody else may have sent it.
//!
//! Whoever reaches such a server may administer it. A browser that reaches it would do so for any page that it shows: for one
//! of another origin, though that cannot read the answer, and for one whose name was made to point here (DNS rebinding),
//! which can. No address is anybody's name, and a name without a dot, such as localhost or that of a container, is found by
//! the machine or its network alone: who asks by these was not led here.
//! Source: RFC 9110 §7.2 (Host), RFC 6454 §7 (Origin).

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;

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
pub(super) fn check(headers: &HeaderMap, listed: &[Origin]) -> Result<(), &'static str> {
    // A browser always says it.
    let Some(host) = headers.get(HOST) else { return Ok(()) };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    let is_own = |host: &Authority| is_address(host) || is_local(host) || listed.iter().any(|it| names(it, host));
    let Some(host) = host.filter(is_own) else {
        return Err(
            "no token is needed here, so ask by address or by a name without a dot, or name the origin in http.cors_origins",
        );
    };
    let origins = headers.get_all(ORIGIN).iter();
    let may_ask = |origin: Origin| listed.contains(&origin) || names(&origin, &host) || is_of_this_machine(&origin);
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

fn is_address(host: &Authority) -> bool {
    ip(host).is_some()
}

/// A name that no public name server has (RFC 7085 §1 tells of the few top-level domains that were hosts).
fn is_local(host: &Authority) -> bool {
    !host.host().is_empty() && !host.host().contains(['.', ':', '@'])
}

fn is_localhost(host: &Authority) -> bool {
    host.host().eq_ignore_ascii_case("localhost")
}

fn ip(host: &Authority) -> Option<IpAddr> {
    let host = host.host();
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).parse().ok()
}
