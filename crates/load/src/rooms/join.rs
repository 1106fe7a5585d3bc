//! Joins a client by HTTP: WHIP for a publisher, WHEP for a viewer.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use url::Url;
use webrtc::{Context, Direction, Media, OfferOptions, Peer};
use wire::Bitrate;
use wire::codec::{Codec, MediaKind};

use super::publisher::LAYERS;
use super::service::{Joining, Part};
use super::viewer::Check;
use crate::clients::{Answer, Api};

/// Where and as whom to join.
pub struct Target {
    pub api: Api,
    /// Where to publish and to watch, with [`STREAM`] in the place of the stream's name.
    pub whip_url: String,
    pub whep_url: String,
    pub context: Context,
}

/// What a publisher sends.
#[derive(Clone, Copy)]
pub struct Video {
    pub bitrate: Bitrate,
    pub frames_per_second: u32,
    pub simulcast: bool,
    /// Sound beside it.
    pub audio: bool,
    /// A microphone instead.
    pub speaks: Option<Speaks>,
    /// The packets of a frame leave over so much time.
    pub spread: Duration,
    pub epoch: Instant,
}

/// When a microphone is spoken into: it has its turn among all.
#[derive(Clone, Copy)]
pub struct Speaks {
    pub number: u32,
    /// At a time.
    pub speakers: u32,
    pub microphones: u32,
}

impl Speaks {
    /// How loud it is then, in dB below full scale (RFC 6464 §3).
    pub fn level(self, since: Duration) -> u8 {
        let first = since.as_secs() / TURN.as_secs() % u64::from(self.microphones.max(1));
        let behind =
            (u64::from(self.number) + u64::from(self.microphones) - first) % u64::from(self.microphones.max(1));
        if behind < u64::from(self.speakers) { SPEECH } else { NOISE }
    }
}

/// How often the first who speaks stops, and another begins.
const TURN: Duration = Duration::from_secs(2);
const SPEECH: u8 = 25;
const NOISE: u8 = 70;

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

/// What both ask for: one video.
pub const VIDEO: OfferOptions<'static> = OfferOptions {
    direction: Direction::Receive,
    audio: false,
    video: &[Codec::Vp8],
    rids: &[],
    stream: "",
    tcp: false,
};

/// Publishes `stream`. Returns the client, to be connected, and the URL of its resource.
pub fn publish(target: &Target, client: usize, stream: &str, video: Video) -> Result<(Joining, String)> {
    let rids: &[&str] = if video.simulcast { &LAYERS.map(|(rid, _)| rid) } else { &[] };
    let options = OfferOptions { direction: Direction::Send, rids, stream, audio: video.audio, ..VIDEO };
    let started = Instant::now();
    let (peer, media, resource) = exchange(target, &options, &target.whip_url.replace(STREAM, stream), started)?;
    Ok((Joining { client, peer, started, media, part: Part::Publish(video) }, resource))
}

/// Watches `stream`, and hears it where it is to have sound. Returns the client, to be connected, and the URL of its resource.
pub fn watch(target: &Target, client: usize, stream: &str, audio: bool, check: Check) -> Result<(Joining, String)> {
    let options = OfferOptions { stream, audio, ..VIDEO };
    let url = target.whep_url.replace(STREAM, stream);
    let first = Instant::now();
    let (started, (peer, media, resource)) = loop {
        let started = Instant::now();
        match exchange(target, &options, &url, started) {
            Err(error) if error.is::<NotFound>() && first.elapsed() < STREAM_TIMEOUT => std::thread::sleep(STREAM_POLL),
            joined => break (started, joined?),
        }
    };
    Ok((Joining { client, peer, started, media, part: Part::Watch(check) }, resource))
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
) -> Result<(Peer, Vec<Media>, String)> {
    let (mut peer, offer) = Peer::offer(&target.context, now, options)?;
    let Answer { status, location, body } = target.api.post(url, "application/sdp", &offer)?;
    match status {
        201 => {}
        404 => bail!(NotFound(format!("POST {url}: 404: {body}"))),
        _ => bail!("POST {url}: {status}: {body}"),
    }
    let resource = resolve(url, &location)?;
    match accepted(&mut peer, &body, options).with_context(|| format!("answer of {url}")) {
        Ok(media) => Ok((peer, media, resource)),
        Err(error) => {
            // What comes to nothing is not left open.
            target.api.delete(&resource).ok();
            Err(error)
        }
    }
}

/// The sections of an answer, in which there is all that was asked for.
fn accepted(peer: &mut Peer, answer: &str, options: &OfferOptions<'_>) -> Result<Vec<Media>> {
    let media = peer.accept_answer(&with_one_family(answer))?.media;
    let has = |kind| media.iter().any(|media| media.codec.kind() == kind);
    ensure!(has(MediaKind::Video), "it has no video");
    ensure!(!options.audio || has(MediaKind::Audio), "it has no audio");
    ensure!(options.direction == Direction::Send || media.iter().all(|media| !media.rx.is_empty()), "it names no SSRC");
    Ok(media)
}

/// The answer with its IPv4 candidates alone, where it has some. str0m checks one candidate in 50 ms, IPv6 first, so that a join
/// would seem to take so much longer where the network has but the other.
fn with_one_family(answer: &str) -> String {
    let family_of = |line: &str| {
        let address = line.strip_prefix("a=candidate:")?.split(' ').nth(4)?.parse::<IpAddr>().ok()?;
        Some(address.is_ipv4())
    };
    let has_ipv4 = answer.lines().any(|line| family_of(line) == Some(true));
    let kept = answer.split_inclusive('\n').filter(|line| !has_ipv4 || family_of(line.trim_end()) != Some(false));
    kept.collect()
}

/// Where a `Location` leads that came from `url` (RFC 3986 §5.2).
fn resolve(url: &str, location: &str) -> Result<String> {
    ensure!(!location.is_empty(), "POST {url}: the answer names no session");
    let resource = Url::parse(url).and_then(|url| url.join(location));
    Ok(resource.with_context(|| format!("the Location {location:?} of {url}"))?.into())
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
            assert_eq!(resolve(url, location).unwrap(), wanted);
        }
        assert_eq!(resolve("http://host", "x").unwrap(), "http://host/x");
        assert!(resolve(url, "").is_err(), "that would be all sessions");
    }

    #[test]
    fn so_many_speak_at_a_time_each_in_turn() {
        let speaking = |second: u64| -> Vec<u32> {
            let at = |number| Speaks { number, speakers: 2, microphones: 3 }.level(Duration::from_secs(second));
            (0..3).filter(|number| at(*number) == SPEECH).collect()
        };
        assert_eq!([0, 1, 2, 4, 6].map(speaking), [vec![0, 1], vec![0, 1], vec![1, 2], vec![0, 2], vec![0, 1]]);
    }

    #[test]
    fn of_two_families_a_client_gets_the_candidates_of_ipv4() {
        let candidate = |address: &str| format!("a=candidate:1 1 udp 2130706431 {address} 7000 typ host\r\n");
        let answer = |addresses: &[&str]| {
            let candidates: String = addresses.iter().map(|address| candidate(address)).collect();
            format!("v=0\r\nc=IN IP4 0.0.0.0\r\n{candidates}a=end-of-candidates\r\n")
        };
        assert_eq!(with_one_family(&answer(&["192.0.2.1", "2001:db8::1"])), answer(&["192.0.2.1"]));
        for all in [&["2001:db8::1"][..], &["x.local", "2001:db8::1"], &["192.0.2.1", "x.local"]] {
            assert_eq!(with_one_family(&answer(all)), answer(all));
        }
    }

    #[test]
    fn a_url_for_other_servers_needs_a_place_for_the_stream() {
        assert_eq!(template("http://h/{stream}/whip").as_deref(), Ok("http://h/{stream}/whip"));
        assert!(template("http://h/whip").unwrap_err().contains("{stream}"));
        assert!(template("https://h/{stream}").unwrap_err().contains("http://"));
    }
}
