//! Reads a session description line by line into what an answer depends on.
//!
//! In: SDP text (RFC 8866) with the attributes of JSEP; lines end in LF or CRLF.
//! Out: a `Description` that borrows from the text, or the first line that cannot be read and why.
//! Cost: linear in the text; limits on its size, on sections and on formats.
//! Source: RFC 8866 (SDP), RFC 8829 §5.8 (what JSEP parses), RFC 8285 §5 (extmap), RFC 8851 (rid), RFC 8853
//! (simulcast), RFC 5576 (ssrc), RFC 4585 §4.2 (rtcp-fb), RFC 8843 (BUNDLE).
//!
//! Unknown lines and attributes are skipped, as RFC 8866 §5 wants it.

use str0m::IceCreds;
use str0m::crypto::Fingerprint;
use strum::EnumString;

use crate::Error;
use crate::checks::UFRAG_MAX;
use crate::media::Red;

/// The longest text that is read, in bytes. Chromium's largest offers have about 10 KB.
pub(crate) const OFFER_BYTES_MAX: usize = 64 * 1024;

/// The most media sections in one description.
pub const SECTIONS_MAX: usize = 32;

/// The most media sections in one description of a conference: a meeting of a hundred, with sound and picture.
pub const CONFERENCE_SECTIONS_MAX: usize = 256;

/// How much is read of a description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub bytes_max: usize,
    pub sections_max: usize,
}

impl Limits {
    /// Of WHIP and WHEP.
    pub const BROADCAST: Limits = Limits { bytes_max: OFFER_BYTES_MAX, sections_max: SECTIONS_MAX };

    /// Of conferences, where Chromium's sections have some 4 KB each.
    pub const CONFERENCE: Limits = Limits { bytes_max: 1024 * 1024, sections_max: CONFERENCE_SECTIONS_MAX };
}

/// The most formats on one m-line. Chromium lists about 50.
const FORMATS_MAX: usize = 128;

/// The most entries of one kind of list (extensions, RIDs, SSRCs, groups, feedback, candidates) in a section.
const LIST_MAX: usize = 128;

/// The longest RID or MID that is used. Longer ones do not fit a one-byte header extension (RFC 8285 §4.2).
const ID_BYTES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Description<'a> {
    pub ice_lite: bool,
    /// MIDs of the first BUNDLE group.
    pub bundle: Option<Vec<&'a str>>,
    pub sections: Vec<Section<'a>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Flow {
    #[default]
    SendRecv,
    SendOnly,
    RecvOnly,
    Inactive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Setup {
    ActPass,
    Active,
    Passive,
    HoldConn,
}

/// One m-line and what stands below it; what stood at session level is inherited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section<'a> {
    /// "audio", "video" or "application".
    pub media: &'a str,
    pub port: u16,
    pub protocol: &'a str,
    /// As they stand on the m-line.
    pub format_names: Vec<&'a str>,
    pub formats: Vec<Format<'a>>,
    pub mid: &'a str,
    pub flow: Flow,
    pub ufrag: Option<&'a str>,
    pub pwd: Option<&'a str>,
    pub fingerprint: Option<Fingerprint>,
    pub setup: Option<Setup>,
    pub rtcp_mux: bool,
    pub rtcp_rsize: bool,
    pub bundle_only: bool,
    /// One-byte and two-byte header extensions may be mixed (RFC 8285 §6).
    pub allow_mixed: bool,
    pub extensions: Vec<(u8, &'a str)>,
    /// RIDs with direction "send".
    pub rids_send: Vec<&'a str>,
    /// RIDs with direction "recv".
    pub rids_recv: Vec<&'a str>,
    /// What follows "a=simulcast:send", one RID per stream; alternatives are left out.
    pub simulcast_send: Vec<&'a str>,
    pub ssrcs: Vec<u32>,
    /// SSRC and its RTX SSRC.
    pub fid_groups: Vec<(u32, u32)>,
    /// What follows "a=", for instance "candidate:1 1 udp …".
    pub candidates: Vec<&'a str>,
    /// Media stream and track of what is sent (RFC 8830); "-" is no media stream.
    pub msid: Option<(&'a str, &'a str)>,
    /// The longest message that is taken on data channels (RFC 8841 §6); 0 is any.
    pub max_message_size: Option<u32>,
}

/// One payload type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Format<'a> {
    pub payload_type: u8,
    pub name: &'a str,
    pub clock_rate: u32,
    pub channels: &'a str,
    pub fmtp: &'a str,
    /// For instance "nack pli".
    pub feedback: Vec<&'a str>,
}

impl<'a> Format<'a> {
    /// The value of one "key=value" in the format parameters, by key without regard to case.
    pub fn parameter(&self, key: &str) -> Option<&'a str> {
        self.fmtp.split(';').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
        })
    }
}

impl<'a> Section<'a> {
    /// Whether the offerer means it: port 0 is a refused section unless it is bundle-only (RFC 8843 §6).
    pub fn is_wanted(&self) -> bool {
        self.port != 0 || self.bundle_only
    }

    pub fn format(&self, payload_type: u8) -> Option<&Format<'a>> {
        self.formats.iter().find(|format| format.payload_type == payload_type)
    }

    /// Whether it has data channels (RFC 8841 §4).
    pub fn is_data(&self) -> bool {
        self.media == "application"
            && self.protocol.ends_with("DTLS/SCTP")
            && self.format_names[0] == "webrtc-datachannel"
    }

    /// The retransmission payload type for another one (RFC 4588 §8.6).
    pub fn rtx_for(&self, payload_type: u8) -> Option<u8> {
        let is_rtx = |format: &&Format<'_>| {
            format.name.eq_ignore_ascii_case("rtx")
                && format.parameter("apt").and_then(|apt| apt.parse().ok()) == Some(payload_type)
        };
        self.formats.iter().find(is_rtx).map(|format| format.payload_type)
    }

    /// Redundancy of which all blocks are of one payload type ("111/111", RFC 2198 §5), with that one's clock.
    pub fn red_for(&self, payload_type: u8) -> Option<Red> {
        let place = self.formats.iter().position(|format| format.payload_type == payload_type)?;
        let clock_rate = self.formats[place].clock_rate;
        let is_red = |format: &Format<'_>| {
            format.name.eq_ignore_ascii_case("red")
                && format.clock_rate == clock_rate
                && format.fmtp.split('/').all(|block| block.trim().parse() == Ok(payload_type))
        };
        let red = self.formats.iter().position(is_red)?;
        Some(Red { payload_type: self.formats[red].payload_type, is_preferred: red < place })
    }
}

/// Reads a whole description.
pub(crate) fn parse(text: &str, limits: Limits) -> Result<Description<'_>, Error> {
    if text.len() > limits.bytes_max {
        return Err(Error::TooLong { got: text.len(), max: limits.bytes_max });
    }
    let mut description = Description::default();
    // What stands before the first m-line holds for all sections.
    let mut session = Section::default();
    let mut seen_version = false;
    for (index, line) in text.lines().enumerate() {
        let at = |what| Error::Syntax { line: index + 1, what };
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        let (letter, value) = line.split_once('=').ok_or_else(|| at("no \"=\""))?;
        match letter {
            "v" => seen_version = true,
            _ if !seen_version => return Err(at("the first line is not \"v=0\"")),
            "m" if description.sections.len() == limits.sections_max => {
                return Err(Error::TooMany { what: "media sections", max: limits.sections_max });
            }
            "m" => {
                let section = media_line(value, &session).map_err(at)?;
                description.sections.push(section);
            }
            "a" => {
                let (name, rest) = value.split_once(':').unwrap_or((value, ""));
                match description.sections.last_mut() {
                    Some(section) => section_attribute(section, name, rest, value).map_err(at)?,
                    None if name == "ice-lite" => description.ice_lite = true,
                    None if name == "group" => {
                        if let Some(mids) = rest.strip_prefix("BUNDLE")
                            && description.bundle.is_none()
                        {
                            description.bundle =
                                Some(mids.split_ascii_whitespace().take(limits.sections_max).collect());
                        }
                    }
                    None => section_attribute(&mut session, name, rest, value).map_err(at)?,
                }
            }
            _ => {}
        }
    }
    if !seen_version {
        return Err(Error::Missing { what: "v=0" });
    }
    Ok(description)
}

/// "video 9 UDP/TLS/RTP/SAVPF 96 97" (RFC 8866 §5.14).
fn media_line<'a>(value: &'a str, session: &Section<'a>) -> Result<Section<'a>, &'static str> {
    let mut words = value.split_ascii_whitespace();
    let media = words.next().ok_or("m-line without a medium")?;
    let port = words.next().ok_or("m-line without a port")?;
    // "9/2" would mean two ports; nobody bundles that.
    let port = port.parse().map_err(|_| "m-line with a bad port")?;
    let protocol = words.next().ok_or("m-line without a protocol")?;
    let format_names: Vec<&str> = words.take(FORMATS_MAX + 1).collect();
    if format_names.len() > FORMATS_MAX {
        return Err("m-line with too many formats");
    }
    if format_names.is_empty() {
        return Err("m-line without a format");
    }
    let is_rtp = protocol.contains("RTP/");
    let mut formats = Vec::new();
    for name in format_names.iter().filter(|_| is_rtp) {
        let payload_type: u8 = name.parse().map_err(|_| "m-line with a bad payload type")?;
        if payload_type > 127 {
            return Err("m-line with a payload type above 127");
        }
        formats.push(Format { payload_type, ..Format::default() });
    }
    Ok(Section { media, port, protocol, format_names, formats, ..session.clone() })
}

fn section_attribute<'a>(
    section: &mut Section<'a>,
    name: &str,
    rest: &'a str,
    whole: &'a str,
) -> Result<(), &'static str> {
    match name {
        "mid" => section.mid = id(rest).ok_or("a=mid that is empty, too long or not a token")?,
        "sendrecv" | "sendonly" | "recvonly" | "inactive" => section.flow = name.parse().unwrap_or_default(),
        "ice-ufrag" => section.ufrag = Some(ice_chars(rest, 4).ok_or("a=ice-ufrag: 4 to 256 ICE characters")?),
        "ice-pwd" => section.pwd = Some(ice_chars(rest, 22).ok_or("a=ice-pwd: 22 to 256 ICE characters")?),
        "fingerprint" => add_fingerprint(section, rest)?,
        "setup" => section.setup = Some(rest.trim().parse().map_err(|_| "a=setup with an unknown role")?),
        "rtcp-mux" => section.rtcp_mux = true,
        "rtcp-rsize" => section.rtcp_rsize = true,
        "bundle-only" => section.bundle_only = true,
        "extmap-allow-mixed" => section.allow_mixed = true,
        "extmap" => push(&mut section.extensions, extmap(rest)?)?,
        "rtpmap" => rtpmap(section, rest)?,
        "fmtp" => {
            let (payload_type, parameters) = payload_type_and(rest).ok_or("a=fmtp without a payload type")?;
            if let Some(format) = format_mut(section, payload_type) {
                format.fmtp = parameters;
            }
        }
        "rtcp-fb" => rtcp_fb(section, rest)?,
        "rid" => rid(section, rest)?,
        "simulcast" => simulcast(section, rest)?,
        "ssrc" => {
            let number = rest.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
            let ssrc = number.ok_or("a=ssrc without a number")?;
            if !section.ssrcs.contains(&ssrc) {
                push(&mut section.ssrcs, ssrc)?;
            }
        }
        "ssrc-group" => {
            if let Some(members) = rest.strip_prefix("FID") {
                let mut numbers = members.split_ascii_whitespace().map(str::parse);
                let (Some(Ok(ssrc)), Some(Ok(rtx))) = (numbers.next(), numbers.next()) else {
                    return Err("a=ssrc-group:FID without two SSRCs");
                };
                push(&mut section.fid_groups, (ssrc, rtx))?;
            }
        }
        "candidate" => push(&mut section.candidates, whole)?,
        "msid" if section.msid.is_none() => section.msid = msid(rest),
        // What does not fit 32 bits is any.
        "max-message-size" => section.max_message_size = Some(rest.trim().parse().unwrap_or(0)),
        _ => {}
    }
    Ok(())
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), &'static str> {
    if list.len() >= LIST_MAX {
        return Err("more attributes of a kind than are read");
    }
    list.push(item);
    Ok(())
}

/// A MID or RID that we can carry in a header extension.
fn id(text: &str) -> Option<&str> {
    let fits = (1..=ID_BYTES_MAX).contains(&text.len());
    (fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.{}+~!#$%&'*^`|".contains(&byte)))
        .then_some(text)
}

/// ICE user fragments and passwords (RFC 8839 §5.4).
pub(crate) fn ice_chars(text: &str, min: usize) -> Option<&str> {
    let fits = (min..=256).contains(&text.len());
    // Some senders use base64url, so '-', '_' and '=' are let through beside RFC 8839's '+' and '/'.
    (fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_=".contains(&byte))).then_some(text)
}

/// What the other side's checks are told by.
pub(crate) fn credentials(ufrag: &str, pwd: &str) -> Result<IceCreds, Error> {
    if ufrag.len() > UFRAG_MAX {
        return Err(Error::Invalid { what: "a=ice-ufrag", why: "this server takes no more than 115 characters" });
    }
    Ok(IceCreds { ufrag: ufrag.into(), pass: pwd.into() })
}

/// Keeps the first SHA-256 fingerprint, or the first of all where there is none (RFC 8122 §5.1).
fn add_fingerprint(section: &mut Section<'_>, text: &str) -> Result<(), &'static str> {
    let mut fingerprint: Fingerprint = text.trim().parse().map_err(|_| "a=fingerprint that is not hexadecimal")?;
    fingerprint.hash_func.make_ascii_lowercase();
    let is_better = |old: &Fingerprint| old.hash_func != "sha-256" && fingerprint.hash_func == "sha-256";
    if section.fingerprint.as_ref().is_none_or(is_better) {
        section.fingerprint = Some(fingerprint);
    }
    Ok(())
}

/// "3/sendrecv urn:ietf:params:rtp-hdrext:sdes:mid" (RFC 8285 §5).
fn extmap(rest: &str) -> Result<(u8, &str), &'static str> {
    let (number, uri) = rest.split_once(' ').ok_or("a=extmap without a URI")?;
    let number = number.split('/').next().unwrap_or(number);
    // Values from 4096 on are offered for the answerer to choose from; like all above 255 they match nothing.
    let number: u16 = number.parse().map_err(|_| "a=extmap with a bad number")?;
    let uri = uri.split_ascii_whitespace().next().ok_or("a=extmap without a URI")?;
    Ok((u8::try_from(number).unwrap_or(0), uri))
}

/// Splits "96 VP8/90000" behind the payload type.
fn payload_type_and(rest: &str) -> Option<(u8, &str)> {
    let (number, text) = rest.split_once(' ')?;
    Some((number.parse().ok()?, text.trim()))
}

fn format_mut<'s, 'a>(section: &'s mut Section<'a>, payload_type: u8) -> Option<&'s mut Format<'a>> {
    section.formats.iter_mut().find(|format| format.payload_type == payload_type)
}

fn rtpmap<'a>(section: &mut Section<'a>, rest: &'a str) -> Result<(), &'static str> {
    let (payload_type, encoding) = payload_type_and(rest).ok_or("a=rtpmap without a payload type")?;
    let mut parts = encoding.split('/');
    let name = parts.next().unwrap_or_default();
    let clock_rate = parts.next().and_then(|rate| rate.parse().ok()).ok_or("a=rtpmap without a clock rate")?;
    if let Some(format) = format_mut(section, payload_type) {
        format.name = name;
        format.clock_rate = clock_rate;
        format.channels = parts.next().unwrap_or("1");
    }
    Ok(())
}

fn rtcp_fb<'a>(section: &mut Section<'a>, rest: &'a str) -> Result<(), &'static str> {
    let (number, feedback) = rest.split_once(' ').ok_or("a=rtcp-fb without a value")?;
    let payload_type: Option<u8> = match number {
        "*" => None,
        number => Some(number.parse().map_err(|_| "a=rtcp-fb with a bad payload type")?),
    };
    for format in &mut section.formats {
        if payload_type.is_none_or(|number| number == format.payload_type) {
            push(&mut format.feedback, feedback.trim())?;
        }
    }
    Ok(())
}

/// "q send pt=96;max-width=320" (RFC 8851 §4).
fn rid<'a>(section: &mut Section<'a>, rest: &'a str) -> Result<(), &'static str> {
    let mut words = rest.split_ascii_whitespace();
    let name = words.next().and_then(id).ok_or("a=rid that is empty, too long or not a token")?;
    match words.next() {
        Some("send") => push(&mut section.rids_send, name),
        Some("recv") => push(&mut section.rids_recv, name),
        _ => Err("a=rid without a direction"),
    }
}

/// "stream track" (RFC 8830 §2). Who names no track has no name for it.
fn msid(rest: &str) -> Option<(&str, &str)> {
    let mut words = rest.split_ascii_whitespace();
    let (stream, track) = (words.next()?, words.next().unwrap_or_default());
    (stream.len() <= MSID_BYTES_MAX && track.len() <= MSID_BYTES_MAX).then_some((stream, track))
}

/// The longest name of a media stream or track. RFC 8830 §2 has 64 characters.
const MSID_BYTES_MAX: usize = 128;

/// "send q;h,~i;f" (RFC 8853 §5.1): of alternatives the first is taken, and a paused stream counts.
fn simulcast<'a>(section: &mut Section<'a>, rest: &'a str) -> Result<(), &'static str> {
    let mut words = rest.split_ascii_whitespace();
    while let Some(direction) = words.next() {
        let streams = words.next().ok_or("a=simulcast without streams")?;
        if direction != "send" {
            continue;
        }
        for stream in streams.split(';') {
            let first = stream.split(',').next().unwrap_or_default();
            let name = id(first.trim_start_matches('~')).ok_or("a=simulcast with a bad RID")?;
            push(&mut section.simulcast_send, name)?;
        }
    }
    Ok(())
}
