//! Joins a client by HTTP: WHIP for a publisher, WHEP for a viewer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use webrtc::{Context, Direction, Extension, Media, OfferOptions, Peer};
use wire::Bitrate;
use wire::codec::{Codec, MediaKind};

use super::publisher::{LAYERS, Publisher};
use super::service::{Joining, JoiningRole, Role};
use super::viewer;

/// Where and as whom to join.
#[derive(Clone)]
pub struct Target {
    pub agent: ureq::Agent,
    /// For instance "http://127.0.0.1:8080".
    pub url: String,
    /// Where to publish and to watch, with [`STREAM`] in the place of the stream's name.
    pub whip_url: String,
    pub whep_url: String,
    pub token: Option<String>,
    /// Viewers check and time the last packet of each frame only.
    pub by_frame: bool,
    pub context: Context,
}

/// What a publisher sends.
#[derive(Clone, Copy)]
pub struct Video {
    pub bitrate: Bitrate,
    pub frames_per_second: u32,
    pub simulcast: bool,
    pub run: u32,
    pub epoch: Instant,
}

/// Stands in a URL for the stream's name.
pub const STREAM: &str = "{stream}";

/// Takes a URL in which [`STREAM`] stands for the stream's name.
pub fn template(text: &str) -> Result<String, String> {
    match text {
        text if !text.starts_with("http://") => Err("only http:// is understood here".into()),
        text if !text.contains(STREAM) => Err(format!("{STREAM} is missing, in whose place the stream's name goes")),
        text => Ok(text.into()),
    }
}

/// Some servers know a stream only once its publisher has connected and sent: how long viewers wait for that, and how
/// long between two tries.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);
const STREAM_POLL: Duration = Duration::from_millis(100);

/// Publishes `stream`. Returns the client, to be connected, and the URL of its resource.
pub fn publish(target: &Target, client: u32, stream: &str, video: Video) -> anyhow::Result<(Joining, String)> {
    let rids: Vec<&str> = LAYERS.iter().map(|(rid, _)| *rid).collect();
    let options = OfferOptions {
        direction: Direction::Send,
        audio: false,
        video: &[Codec::Vp8],
        rids: if video.simulcast { &rids } else { &[] },
        stream,
        tcp: false,
    };
    let started = Instant::now();
    let (peer, media, resource) = exchange(target, &options, &target.whip_url.replace(STREAM, stream), started)??;
    let role: JoiningRole =
        Box::new(move |now, opener, sealer| Role::Publisher(Publisher::new(now, video, media, opener, sealer)));
    Ok((Joining { client, peer, started, role }, resource))
}

/// Watches `stream`. Returns the client, to be connected, and the URL of its resource.
pub fn watch(target: &Target, client: u32, stream: &str, is_sample: bool) -> anyhow::Result<(Joining, String)> {
    let options = OfferOptions {
        direction: Direction::Receive,
        audio: false,
        video: &[Codec::Vp8],
        rids: &[],
        stream,
        tcp: false,
    };
    let url = target.whep_url.replace(STREAM, stream);
    let first = Instant::now();
    let (started, (peer, media, resource)) = loop {
        let started = Instant::now();
        match exchange(target, &options, &url, started)? {
            Ok(joined) => break (started, joined),
            Err(NotFound(_)) if first.elapsed() < STREAM_TIMEOUT => std::thread::sleep(STREAM_POLL),
            Err(not_found) => return Err(not_found.into()),
        }
    };
    let Some((ssrc, rtx_ssrc)) = media.rx.first().copied() else {
        bail!("the answer for {stream} names no SSRC");
    };
    let numbers = viewer::Numbers {
        ssrc,
        rtx_ssrc,
        clock_rate: media.clock_rate,
        transport_cc: media.extension_id(Extension::TransportCc),
    };
    let check = viewer::Check { is_sample, by_frame: target.by_frame };
    let role: JoiningRole =
        Box::new(move |now, opener, sealer| Role::Viewer(viewer::Viewer::new(now, numbers, opener, sealer, check)));
    Ok((Joining { client, peer, started, role }, resource))
}

/// Ends a session (RFC 9725 §4.2).
pub fn leave(target: &Target, resource: &str) -> anyhow::Result<()> {
    let mut request = target.agent.delete(resource);
    if let Some(token) = &target.token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    request.call().with_context(|| format!("DELETE {resource}"))?;
    Ok(())
}

/// There is no such stream, at least not yet; with what the server says.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotFound(String);

fn exchange(
    target: &Target,
    options: &OfferOptions<'_>,
    url: &str,
    now: Instant,
) -> anyhow::Result<Result<(Peer, Media, String), NotFound>> {
    let (mut peer, offer) = Peer::offer(&target.context, now, options)?;
    let mut request = target.agent.post(url).header("Content-Type", "application/sdp");
    if let Some(token) = &target.token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut response = request.send(&offer).with_context(|| format!("POST {url}"))?;
    let body = response.body_mut().read_to_string().with_context(|| format!("POST {url}"))?;
    match response.status().as_u16() {
        201 => {}
        404 => return Ok(Err(NotFound(format!("POST {url}: 404: {body}")))),
        _ => bail!("POST {url}: {}: {body}", response.status()),
    }
    let location = response.headers().get("Location").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let resource = resolve(url, location);
    let negotiated = peer.accept_answer(&body).with_context(|| format!("answer of {url}"))?;
    let media = negotiated.media.into_iter().find(|media| media.kind == MediaKind::Video);
    let Some(media) = media else { bail!("POST {url}: the answer has no video") };
    Ok(Ok((peer, media, resource)))
}

/// Where a `Location` leads that came from `url` (RFC 3986 §5.2, without dot segments).
fn resolve(url: &str, location: &str) -> String {
    if location.contains("://") {
        return location.into();
    }
    let path = url.find("://").map_or(0, |scheme| scheme + 3);
    let origin = url[path..].find('/').map_or(url, |slash| &url[..path + slash]);
    if location.starts_with('/') {
        return format!("{origin}{location}");
    }
    let directory = url.rfind('/').filter(|slash| *slash >= origin.len()).map_or(origin, |slash| &url[..slash]);
    format!("{directory}/{location}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_leads_where_the_url_rules_say() {
        let url = "http://127.0.0.1:8889/live/load-0/whep";
        let cases = [
            ("/live/load-0/whep/1", "http://127.0.0.1:8889/live/load-0/whep/1"),
            ("session/1", "http://127.0.0.1:8889/live/load-0/session/1"),
            ("http://other:1/x", "http://other:1/x"),
        ];
        for (location, wanted) in cases {
            assert_eq!(resolve(url, location), wanted);
        }
        assert_eq!(resolve("http://host", "x"), "http://host/x");
    }

    #[test]
    fn a_url_for_other_servers_needs_a_place_for_the_stream() {
        assert_eq!(template("http://h/{stream}/whip").as_deref(), Ok("http://h/{stream}/whip"));
        assert!(template("http://h/whip").unwrap_err().contains("{stream}"));
        assert!(template("https://h/{stream}").unwrap_err().contains("http://"));
    }
}
