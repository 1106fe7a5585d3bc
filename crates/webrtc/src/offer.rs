//! Makes offers and reads their answers: the client's side, for the load generator and for tests.
//!
//! In: what to send or receive. Out: an offer like a browser's, but without codecs that nobody asked for; then, from
//! the answer, the same `Media` that the answerer has, seen from here.

use strum::VariantArray;
use wire::codec::{Codec, MediaKind, Profile};

use crate::Error;
use crate::answer::{RemoteTransport, remote_transport};
use crate::media::{Direction, Extension, Media, Ssrcs};
use crate::sdp::{self, Setup};
use crate::select;
use crate::write::{Transport, Writer, token};

/// What a client wants.
#[derive(Clone, Copy, Debug)]
pub struct OfferOptions<'a> {
    /// `Send` publishes (WHIP), `Receive` watches (WHEP).
    pub direction: Direction,
    /// Whether there is a section for Opus.
    pub audio: bool,
    /// Offered video codecs, the best first; empty for no video.
    pub video: &'a [Codec],
    /// Simulcast layers to send, in the order of sending; empty or one for none.
    pub rids: &'a [&'a str],
    /// Name of the sent media stream.
    pub stream: &'a str,
    /// Checks TCP candidates too (RFC 6544, active side).
    pub tcp: bool,
}

/// What was offered, kept until the answer is here.
#[derive(Debug)]
pub(crate) struct Pending {
    direction: Direction,
    sections: Vec<Offered>,
}

#[derive(Debug)]
struct Offered {
    mid: String,
    kind: MediaKind,
    tx: Vec<Ssrcs>,
    rids: Vec<String>,
}

/// What an answer came to.
pub(crate) struct Accepted {
    pub media: Vec<Media>,
    pub remote: RemoteTransport,
    /// Candidates as they stand in the answer, for instance "candidate:1 1 udp …".
    pub candidates: Vec<String>,
    pub is_dtls_client: bool,
}

/// Writes an offer.
pub(crate) fn make(
    options: &OfferOptions<'_>,
    transport: &Transport<'_>,
    session_number: u64,
    mut new_ssrc: impl FnMut() -> u32,
) -> (String, Pending) {
    let mut sections = Vec::new();
    let is_sender = options.direction == Direction::Send;
    let kinds = [(MediaKind::Audio, options.audio), (MediaKind::Video, !options.video.is_empty())];
    for (kind, _) in kinds.into_iter().filter(|(_, wanted)| *wanted) {
        let rids: Vec<String> = match kind {
            MediaKind::Video if is_sender && options.rids.len() > 1 => {
                options.rids.iter().map(|rid| (*rid).into()).collect()
            }
            _ => Vec::new(),
        };
        let tx_count = if is_sender { rids.len().max(1) } else { 0 };
        let mut ssrcs = || (new_ssrc(), (kind == MediaKind::Video).then(&mut new_ssrc));
        let tx = (0..tx_count).map(|_| ssrcs()).collect();
        sections.push(Offered { mid: sections.len().to_string(), kind, tx, rids });
    }

    let mut writer = Writer::new(session_number, 1);
    writer.bundle(sections.iter().map(|section| section.mid.as_str()));
    writer.line("a=extmap-allow-mixed");
    writer.line("a=ice-options:trickle");
    writer.line("a=msid-semantic: WMS *");
    for section in &sections {
        write_section(&mut writer, section, options, transport);
    }
    (writer.finish(), Pending { direction: options.direction, sections })
}

fn write_section(writer: &mut Writer, section: &Offered, options: &OfferOptions<'_>, transport: &Transport<'_>) {
    let (medium, codecs) = match section.kind {
        MediaKind::Audio => ("audio", &[Codec::Opus][..]),
        MediaKind::Video => ("video", options.video),
    };
    let formats: Vec<String> = codecs
        .iter()
        .flat_map(|codec| {
            let (payload_type, rtx) = payload_types(*codec);
            [Some(payload_type), rtx].into_iter().flatten().map(|number| number.to_string())
        })
        .collect();
    writer.line(format_args!("m={medium} 9 UDP/TLS/RTP/SAVPF {}", formats.join(" ")));
    writer.line("c=IN IP4 0.0.0.0");
    writer.line(format_args!("a=mid:{}", section.mid));
    writer.transport(transport);
    for (index, extension) in Extension::VARIANTS.iter().enumerate() {
        if extension.suits(section.kind) {
            writer.line(format_args!("a=extmap:{} {}", index + 1, extension.uri()));
        }
    }
    writer.line(if options.direction == Direction::Send { "a=sendonly" } else { "a=recvonly" });
    writer.line("a=rtcp-mux");
    writer.line("a=rtcp-rsize");
    for codec in codecs {
        let (payload_type, rtx) = payload_types(*codec);
        let feedback = match (section.kind, options.direction) {
            (MediaKind::Audio, _) => vec!["transport-cc"],
            (MediaKind::Video, Direction::Receive) => [&select::FEEDBACK[..], &[select::REMB]].concat(),
            (MediaKind::Video, Direction::Send) => select::FEEDBACK.to_vec(),
        };
        writer.codec(*codec, payload_type, rtx, format_parameters(*codec), &feedback);
    }
    if options.direction == Direction::Send {
        // With RIDs, SSRCs are learnt from header extensions; browsers do not list them either.
        let named = if section.rids.is_empty() { &section.tx[..] } else { &[] };
        let stream = token(options.stream);
        writer.sources(&stream, &stream, medium, named);
    }
    writer.simulcast("send", &section.rids);
}

/// Payload type and that of retransmissions, as Chromium numbers them.
pub(crate) fn payload_types(codec: Codec) -> (u8, Option<u8>) {
    match codec {
        Codec::Opus => (111, None),
        Codec::Pcmu => (0, None),
        Codec::Pcma => (8, None),
        Codec::Vp8 => (96, Some(97)),
        Codec::Vp9 => (98, Some(99)),
        Codec::H264 => (102, Some(103)),
        Codec::Av1 => (45, Some(46)),
        Codec::H265 => (49, Some(50)),
    }
}

pub(crate) fn format_parameters(codec: Codec) -> &'static str {
    match codec {
        Codec::Opus => "minptime=10;useinbandfec=1",
        Codec::Pcmu | Codec::Pcma | Codec::Vp8 => "",
        Codec::Vp9 => "profile-id=0",
        Codec::H264 => "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f",
        Codec::Av1 => "level-idx=5;profile=0;tier=0",
        Codec::H265 => "level-id=93;profile-id=1;tier-flag=0;tx-mode=SRST",
    }
}

/// Reads the answer to a pending offer.
pub(crate) fn read_answer(pending: &Pending, text: &str) -> Result<Accepted, Error> {
    let answer = sdp::parse(text, sdp::Limits::BROADCAST)?;
    if answer.sections.len() != pending.sections.len() {
        return Err(Error::AnswerMismatch("another number of media sections"));
    }
    let mut media = Vec::new();
    let mut first = None;
    for (offered, section) in pending.sections.iter().zip(&answer.sections) {
        if !section.is_wanted() {
            continue;
        }
        if select::kind_of(section) != Some(offered.kind) || section.mid != offered.mid {
            return Err(Error::AnswerMismatch("media sections in another order"));
        }
        first = first.or(Some(section));
        let one = select::media(section, offered.kind, (&Codec::ALL, Profile::Any), pending.direction, media.len())
            .ok_or_else(|| Error::NoCodec { kind: offered.kind, mid: offered.mid.clone() })?;
        let rids: Vec<String> =
            offered.rids.iter().filter(|rid| section.rids_recv.contains(&rid.as_str())).cloned().collect();
        // An answerer without simulcast gets the first layer, and its SSRC is enough to tell it.
        let tx = offered.tx.iter().take(rids.len().max(1)).copied().collect();
        media.push(Media { tx, rx: select::ssrcs(section), rids, ..one });
    }
    let section = first.ok_or(Error::NoMedia("use: the answer refuses all"))?;
    let is_dtls_client = match section.setup {
        Some(Setup::Passive) => true,
        Some(Setup::Active) => false,
        _ => return Err(Error::Invalid { what: "a=setup", why: "an answer says active or passive" }),
    };
    let candidates = answer.sections.iter().flat_map(|section| &section.candidates);
    Ok(Accepted {
        media,
        remote: remote_transport(section, None)?,
        candidates: candidates.map(|candidate| (*candidate).into()).collect(),
        is_dtls_client,
    })
}
