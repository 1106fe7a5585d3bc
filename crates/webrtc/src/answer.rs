//! Answers a WHIP or WHEP offer: which sections are taken, with which codec, and the text that says so.
//!
//! In: an offer, and what the session is for. Out: the answer's text, the accepted media, and the offerer's transport.
//! Source: RFC 8829 §5.3 (answers), RFC 8843 §7.3 (BUNDLE answers), RFC 9725 §4.2, §4.4 (WHIP).

use wire::codec::{Codec, Profile};

use str0m::IceCreds;
use str0m::crypto::Fingerprint;

use crate::Error;
use crate::media::{Direction, Extension, Media, Ssrcs};
use crate::sdp::{self, Description, Flow, Section, Setup, credentials};
use crate::select::{self, TRANSPORT_CC};
use crate::write::{Candidate, Transport, Writer, token};

/// The most tracks of one stream; a publisher's further sections are refused.
pub const TRACKS_MAX: usize = 4;

/// The most simulcast layers of a track; further ones are left out of the answer.
pub const LAYERS_MAX: usize = 4;

/// How an offer is answered.
#[derive(Clone, Debug)]
pub struct AnswerOptions<'a> {
    /// What is taken of the offer.
    pub purpose: Purpose<'a>,
    /// Where we are reached, the best first. They go into the answer as they are.
    pub candidates: &'a [Candidate],
}

/// What the session is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// WHIP: takes what the offerer sends, with the first of its codecs that is in `codecs`.
    Receive {
        /// In any order: the offerer's preference decides.
        codecs: &'a [Codec],
    },
    /// WHEP: sends these tracks, each in the first section of its kind that is still free.
    Send {
        /// Of the stream, in its order; an offer without the codec of one is refused.
        tracks: &'a [Codec],
        /// Of the tracks, in the same order; where one is missing, any will do.
        profiles: &'a [Profile],
        /// Indices of those that are wanted, in the order of the wish; empty for all.
        chosen: &'a [usize],
        /// The stream's name, which becomes the CNAME and the first media stream's (`media_stream`).
        stream: &'a str,
        /// Takes transport-wide feedback where it is offered. Otherwise, too, unless the viewer can say itself what it takes of a
        /// picture (REMB).
        transport_cc: bool,
    },
}

/// What ICE and DTLS need of the offerer.
#[derive(Debug)]
pub(crate) struct RemoteTransport {
    pub credentials: IceCreds,
    pub fingerprint: Fingerprint,
}

/// An offer that can be answered.
pub(crate) struct Plan<'a> {
    offer: Description<'a>,
    /// Per section of the offer: what it became, or `None` where it is refused.
    accepted: Vec<Option<Media>>,
    pub remote: RemoteTransport,
}

impl<'a> Plan<'a> {
    /// Reads an offer and chooses. `new_ssrc` gives random SSRCs for what we send.
    pub fn new(text: &'a str, purpose: Purpose<'_>, new_ssrc: impl FnMut() -> u32) -> Result<Self, Error> {
        let offer = sdp::parse(text, sdp::Limits::BROADCAST)?;
        if offer.ice_lite {
            return Err(Error::Invalid { what: "a=ice-lite", why: "this server is ICE-lite itself (RFC 8445 §2.5)" });
        }
        if offer.sections.is_empty() {
            return Err(Error::Missing { what: "a media section" });
        }
        let accepted = match purpose {
            Purpose::Receive { codecs } => choose_to_receive(&offer, codecs)?,
            Purpose::Send { tracks, profiles, chosen, transport_cc, .. } => {
                let mut accepted = choose_to_send(&offer, (tracks, profiles, chosen), new_ssrc)?;
                let sent = || offer.sections.iter().zip(&accepted).filter_map(|(s, media)| Some((s, media.as_ref()?)));
                if !transport_cc && sent().any(|(section, media)| select::offers_remb(section, media)) {
                    let sections = offer.sections.iter().zip(&mut accepted);
                    let sent = sections.filter_map(|(section, media)| Some((section, media.as_mut()?)));
                    sent.for_each(|(section, media)| select::leave_out_transport_cc(section, media));
                }
                accepted
            }
        };
        let first = accepted.iter().position(Option::is_some);
        let Some(section) = first.and_then(|index| offer.sections.get(index)) else {
            return Err(Error::NoMedia(match purpose {
                Purpose::Receive { .. } => "receive from",
                Purpose::Send { .. } => "send on",
            }));
        };
        check_bundle(&offer, &accepted)?;
        let remote = remote_transport(section, tagged(&offer))?;
        if section.setup.or(tagged(&offer).and_then(|tagged| tagged.setup)) == Some(Setup::Passive) {
            return Err(Error::Invalid { what: "a=setup:passive", why: "this server is always the DTLS server" });
        }
        Ok(Plan { offer, accepted, remote })
    }

    /// Writes the answer.
    pub fn write(&self, session_number: u64, transport: &Transport<'_>, options: &AnswerOptions<'_>) -> String {
        let mut writer = Writer::new(session_number, 1);
        writer.line("a=ice-lite");
        writer.bundle(self.media().map(|media| media.mid.as_str()));
        if self.offer.sections.iter().any(|section| section.allow_mixed) {
            writer.line("a=extmap-allow-mixed");
        }
        // Trickle is taken, as WHIP wants it (RFC 9725 §4.3.2), though candidates of the other side change nothing here.
        writer.line("a=ice-options:trickle");
        writer.line("a=msid-semantic: WMS *");
        let mut candidates = options.candidates;
        let is_numbered = |media: &Media| media.transport_cc && media.extension_id(Extension::TransportCc).is_some();
        let takes_remb = matches!(options.purpose, Purpose::Send { .. }) && !self.media().any(is_numbered);
        for (section, media) in self.offer.sections.iter().zip(&self.accepted) {
            let Some(media) = media else {
                write_refused(&mut writer, section);
                continue;
            };
            let is_before = |other: &&Media| other.mid != media.mid;
            let is_alike = |other: &&Media| other.codec.kind() == media.codec.kind();
            let number = self.media().take_while(is_before).filter(is_alike).count();
            write_accepted(&mut writer, section, (media, number), transport, options.purpose, takes_remb);
            // In a bundle the first section's candidates hold for all (RFC 8843 §10.2).
            writer.candidates(std::mem::take(&mut candidates));
        }
        writer.finish()
    }

    pub fn media(&self) -> impl Iterator<Item = &Media> {
        self.accepted.iter().flatten()
    }
}

/// Reads an offer and chooses as the answer to it will, without a session for it; SSRCs of ours are yet to be made.
///
/// # Errors
/// As for `Peer::answer`, but for what has to do with the session itself.
pub fn read_offer(offer: &str, purpose: Purpose<'_>) -> Result<Vec<Media>, Error> {
    Ok(Plan::new(offer, purpose, || 0)?.media().cloned().collect())
}

fn choose_to_receive(offer: &Description<'_>, codecs: &[Codec]) -> Result<Vec<Option<Media>>, Error> {
    let mut track = 0;
    let choose = |section: &Section<'_>| {
        let sends = matches!(section.flow, Flow::SendRecv | Flow::SendOnly);
        let kind = select::kind_of(section).filter(|_| sends && is_usable(offer, section) && track < TRACKS_MAX);
        let Some(kind) = kind else { return Ok(None) };
        let media = select::media(section, kind, (codecs, Profile::Any), Direction::Receive, track)
            .ok_or_else(|| Error::NoCodec { kind, mid: section.mid.into() })?;
        let rids = select::rids(section, LAYERS_MAX).into_iter().map(Into::into).collect();
        track += 1;
        Ok(Some(Media { rids, rx: select::ssrcs(section), ..media }))
    };
    offer.sections.iter().map(choose).collect()
}

fn choose_to_send(
    offer: &Description<'_>,
    (tracks, profiles, chosen): (&[Codec], &[Profile], &[usize]),
    mut new_ssrc: impl FnMut() -> u32,
) -> Result<Vec<Option<Media>>, Error> {
    let mut waiting: Vec<usize> = if chosen.is_empty() { (0..tracks.len()).collect() } else { chosen.to_vec() };
    let choose = |section: &Section<'_>| {
        let receives = matches!(section.flow, Flow::SendRecv | Flow::RecvOnly);
        let kind = select::kind_of(section).filter(|_| receives && is_usable(offer, section));
        let is_fitting = |place: &usize| tracks.get(*place).map(|codec| codec.kind()) == kind;
        let Some(next) = waiting.iter().position(is_fitting).filter(|_| kind.is_some()) else { return Ok(None) };
        let place = waiting.remove(next);
        let codec = &tracks[place];
        let profile = profiles.get(place).copied().unwrap_or_default();
        let media = select::media(section, codec.kind(), (&[*codec], profile), Direction::Send, place)
            .ok_or(Error::CodecNotOffered { codec: *codec })?;
        let tx = vec![(new_ssrc(), media.rtx_payload_type.map(|_| new_ssrc()))];
        Ok(Some(Media { tx, ..media }))
    };
    offer.sections.iter().map(choose).collect()
}

/// Whether a section may become part of the one transport that we have.
pub(crate) fn is_usable(offer: &Description<'_>, section: &Section<'_>) -> bool {
    let is_bundled = offer.bundle.as_ref().is_none_or(|mids| !section.mid.is_empty() && mids.contains(&section.mid));
    let is_secure = section.protocol.ends_with("RTP/SAVPF") || section.protocol.ends_with("RTP/SAVP");
    let has_mux = section.rtcp_mux || tagged(offer).is_some_and(|tagged| tagged.rtcp_mux);
    section.is_wanted() && has_mux && is_bundled && is_secure
}

/// The first section of the bundle, whose transport is everybody's: others may leave those lines out (RFC 8829 §5.2.1).
pub(crate) fn tagged<'s, 'a>(offer: &'s Description<'a>) -> Option<&'s Section<'a>> {
    let mid = offer.bundle.as_ref()?.first()?;
    offer.sections.iter().find(|section| section.mid == *mid)
}

/// One transport carries everything, so several sections have to be bundled.
fn check_bundle(offer: &Description<'_>, accepted: &[Option<Media>]) -> Result<(), Error> {
    let count = accepted.iter().flatten().count();
    if offer.bundle.is_none() && count > 1 {
        return Err(Error::NotBundled);
    }
    let mut mids: Vec<&str> = accepted.iter().flatten().map(|media| media.mid.as_str()).collect();
    mids.sort_unstable();
    mids.dedup();
    if mids.len() != count {
        return Err(Error::Invalid { what: "a=mid", why: "two media sections have the same" });
    }
    Ok(())
}

/// Where the other side's ICE and DTLS stand: in the section itself, else in the one that is tagged for its bundle.
pub(crate) fn remote_transport(section: &Section<'_>, tagged: Option<&Section<'_>>) -> Result<RemoteTransport, Error> {
    let source = if section.ufrag.is_some() { section } else { tagged.unwrap_or(section) };
    let ufrag = source.ufrag.ok_or(Error::Missing { what: "a=ice-ufrag" })?;
    let pwd = source.pwd.ok_or(Error::Missing { what: "a=ice-pwd" })?;
    let fingerprint = section.fingerprint.as_ref().or(source.fingerprint.as_ref());
    let fingerprint = fingerprint.cloned().ok_or(Error::Missing { what: "a=fingerprint" })?;
    if fingerprint.hash_func != "sha-256" {
        return Err(Error::Invalid {
            what: "a=fingerprint",
            why: "none is SHA-256, which everybody has (RFC 8122 §5)",
        });
    }
    Ok(RemoteTransport { credentials: credentials(ufrag, pwd)?, fingerprint })
}

/// A refused section keeps its place, with port 0 (RFC 8829 §5.3.1).
pub(crate) fn write_refused(writer: &mut Writer, section: &Section<'_>) {
    let format = section.format_names.first().copied().unwrap_or("0");
    writer.line(format_args!("m={} 0 {} {format}", section.media, section.protocol));
    writer.line("c=IN IP4 0.0.0.0");
    if !section.mid.is_empty() {
        writer.line(format_args!("a=mid:{}", section.mid));
    }
    if section.media != "application" {
        writer.line("a=inactive");
    }
}

/// The media stream (RFC 8830) of the sound and the picture of that number, counted from 0 in the answer: browsers play what
/// is in one together, and each further pair apart.
fn media_stream(stream: &str, number: usize) -> String {
    match number {
        0 => token(stream),
        number => token(&format!("{number}.{stream}")),
    }
}

fn write_accepted(
    writer: &mut Writer,
    section: &Section<'_>,
    (media, number): (&Media, usize),
    transport: &Transport<'_>,
    purpose: Purpose<'_>,
    takes_remb: bool,
) {
    let payload_type = media.payload_type;
    let formats: String = media.payload_types().map(|format| format!(" {format}")).collect();
    writer.line(format_args!("m={} 9 {}{formats}", section.media, section.protocol));
    writer.line("c=IN IP4 0.0.0.0");
    if !media.mid.is_empty() {
        writer.line(format_args!("a=mid:{}", media.mid));
    }
    writer.transport(transport);
    writer.extensions(media);
    match media.direction {
        Direction::Send => writer.line("a=sendonly"),
        Direction::Receive => writer.line("a=recvonly"),
    }
    writer.line("a=rtcp-mux");
    if section.rtcp_rsize {
        writer.line("a=rtcp-rsize");
    }
    let format = section.format(payload_type);
    let mut feedback = format.map(|format| select::feedback(format, takes_remb)).unwrap_or_default();
    feedback.retain(|value| media.transport_cc || *value != TRANSPORT_CC);
    writer.codec(media.codec, payload_type, media.rtx_payload_type, &media.fmtp, &feedback);
    if let Some(red) = media.red {
        writer.red(red, payload_type);
    }
    if let Purpose::Send { stream, .. } = purpose {
        let track = format!("{}{}", section.media, media.track);
        let tx: &[Ssrcs] = &media.tx;
        writer.sources(&token(stream), &media_stream(stream, number), &track, tx);
    }
    writer.simulcast("recv", &media.rids);
}
