//! Writes the lines of a session description that offers and answers have in common.

use std::fmt::{Display, Write};
use std::net::SocketAddr;

use wire::codec::Codec;

use crate::media::{Media, Red, Ssrcs};

/// A host candidate (RFC 8445 §5.1.1): an address at which this process is reached. TCP candidates are passive (RFC 6544).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// As the other side sees it.
    pub addr: SocketAddr,
    /// Takes connections, with RFC 4571 framing; else UDP.
    pub tcp: bool,
}

/// What each section repeats about the transport.
pub(crate) struct Transport<'a> {
    pub ufrag: &'a str,
    pub pwd: &'a str,
    pub fingerprint: &'a str,
    /// "passive" for the DTLS server, "actpass" in offers.
    pub setup: &'a str,
}

/// A session description, or a part of one, under construction. Lines end in CRLF (RFC 8866 §5).
#[derive(Default)]
pub(crate) struct Writer {
    text: String,
}

impl Writer {
    pub fn new(session_number: u64, version: u64) -> Self {
        let mut writer = Writer { text: String::with_capacity(2_048) };
        writer.line("v=0");
        // No address of ours stands here; candidates say where we are (RFC 8829 §5.2.1).
        writer.line(format_args!("o=- {session_number} {version} IN IP4 127.0.0.1"));
        writer.line("s=-");
        writer.line("t=0 0");
        writer
    }

    pub fn line(&mut self, line: impl Display) {
        write!(self.text, "{line}\r\n").expect("writing to a String cannot fail");
    }

    pub fn bundle<'a>(&mut self, mids: impl Iterator<Item = &'a str>) {
        let mids: Vec<&str> = mids.collect();
        self.line(format_args!("a=group:BUNDLE {}", mids.join(" ")));
    }

    pub fn transport(&mut self, transport: &Transport<'_>) {
        self.line(format_args!("a=ice-ufrag:{}", transport.ufrag));
        self.line(format_args!("a=ice-pwd:{}", transport.pwd));
        self.line(format_args!("a=fingerprint:{}", transport.fingerprint));
        self.line(format_args!("a=setup:{}", transport.setup));
    }

    pub fn extensions(&mut self, media: &Media) {
        for (id, extension) in &media.extensions {
            self.line(format_args!("a=extmap:{id} {}", extension.uri()));
        }
    }

    /// One codec with its parameters, feedback and retransmission format.
    pub fn codec(&mut self, codec: Codec, payload_type: u8, rtx: Option<u8>, fmtp: &str, feedback: &[&str]) {
        // Opus always says that it has two channels (RFC 7587 §7).
        let channels = if codec == Codec::Opus { "/2" } else { "" };
        self.line(format_args!("a=rtpmap:{payload_type} {}/{}{channels}", codec.name(), codec.clock_rate()));
        for value in feedback {
            self.line(format_args!("a=rtcp-fb:{payload_type} {value}"));
        }
        if !fmtp.is_empty() {
            self.line(format_args!("a=fmtp:{payload_type} {fmtp}"));
        }
        if let Some(rtx) = rtx {
            self.line(format_args!("a=rtpmap:{rtx} rtx/90000"));
            self.line(format_args!("a=fmtp:{rtx} apt={payload_type}"));
        }
    }

    /// Redundancy of the packets of `payload_type`.
    pub fn red(&mut self, red: Red, payload_type: u8) {
        self.line(format_args!("a=rtpmap:{} red/48000/2", red.payload_type));
        self.line(format_args!("a=fmtp:{} {payload_type}/{payload_type}", red.payload_type));
    }

    /// What we send: a media stream has the tracks that belong together (RFC 8830), and one CNAME all that one clock counts.
    pub fn sources(&mut self, cname: &str, media_stream: &str, track: &str, tx: &[Ssrcs]) {
        self.line(format_args!("a=msid:{media_stream} {track}"));
        for (ssrc, rtx) in tx {
            if let Some(rtx) = rtx {
                self.line(format_args!("a=ssrc-group:FID {ssrc} {rtx}"));
            }
        }
        for ssrc in tx.iter().flat_map(|(ssrc, rtx)| [Some(*ssrc), *rtx]).flatten() {
            self.line(format_args!("a=ssrc:{ssrc} cname:{cname}"));
        }
    }

    pub fn simulcast(&mut self, direction: &str, rids: &[String]) {
        if rids.is_empty() {
            return;
        }
        for rid in rids {
            self.line(format_args!("a=rid:{rid} {direction}"));
        }
        self.line(format_args!("a=simulcast:{direction} {}", rids.join(";")));
    }

    pub fn candidates(&mut self, candidates: &[Candidate]) {
        for (index, candidate) in candidates.iter().enumerate() {
            self.line(format_args!("a={}", candidate_value(index, *candidate)));
        }
        if !candidates.is_empty() {
            self.line("a=end-of-candidates");
        }
    }

    pub fn finish(self) -> String {
        self.text
    }
}

/// "candidate:…" (RFC 8839 §5.1). Earlier candidates get the higher priority, and UDP before TCP.
fn candidate_value(index: usize, candidate: Candidate) -> String {
    let Candidate { addr, tcp } = candidate;
    let local_preference = 65_535_u32.saturating_sub(index as u32);
    // RFC 8445 §5.1.2.1: 126 is the recommended type preference of host candidates; RFC 6544 §4.2 wants TCP below UDP.
    let type_preference: u32 = if tcp { 90 } else { 126 };
    let priority = type_preference << 24 | local_preference << 8 | 255;
    let (protocol, suffix) = if tcp { ("tcp", " tcptype passive") } else { ("udp", "") };
    let (ip, port) = (addr.ip(), addr.port());
    // Foundations differ by address and protocol; the index is unique for both.
    format!("candidate:{} 1 {protocol} {priority} {ip} {port} typ host{suffix}", index + 1)
}

/// Keeps of a name what may stand in `a=msid` (RFC 8830 §2: 1 to 64 token characters).
pub(crate) fn token(name: &str) -> String {
    let is_token = |c: &char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`{|}~".contains(*c);
    let token: String = name.chars().filter(is_token).take(64).collect();
    if token.is_empty() { "-".into() } else { token }
}
