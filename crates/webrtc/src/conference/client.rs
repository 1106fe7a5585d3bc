//! Answers a server's offers, as a client that takes all that they send: for the load generator and for tests.
//!
//! In: the offers of a connection on which the server makes all of them. Out: answers, and what comes by them.
//! Source: RFC 8829 §5.3 (answers), RFC 8843 §7.3 (BUNDLE answers), RFC 8445 §6.1.1 (who nominates).

use std::time::Instant;

use str0m::IceCreds;
use wire::codec::{Codec, Profile};

use super::text::{Format, Head, message_bytes_max, write_data, write_media};
use crate::Error;
use crate::answer::{RemoteTransport, is_usable, remote_transport, tagged, write_refused};
use crate::context::Context;
use crate::media::{Direction, Media, Negotiated};
use crate::peer::Peer;
use crate::peer::state::Kind;
use crate::random;
use crate::sdp::{self, Description, Flow, Limits, Section};
use crate::select;
use crate::write::{Transport, Writer};

/// What a client's answers have in common. Its `Peer` begins with the first one, and need not know of the others.
#[derive(Clone, Debug)]
pub struct ConferenceClient {
    codecs: Vec<Codec>,
    local: IceCreds,
    fingerprint: String,
    remote: IceCreds,
    has_data: bool,
    /// Of the session, and how many answers there were (RFC 8829 §5.2.2).
    number: u64,
    version: u64,
}

impl ConferenceClient {
    /// Answers the first offer: with full ICE, and as the DTLS client. What is sent in one of `codecs` is taken, and so are data
    /// channels. Candidates that come later go to `Peer::add_candidate`.
    ///
    /// # Errors
    /// What is wrong with the offer; `SetUp`, where the system has no random numbers.
    pub fn join(
        context: &Context,
        now: Instant,
        offer: &str,
        codecs: &[Codec],
    ) -> Result<(Peer, ConferenceClient, Negotiated), Error> {
        let plan = Plan::new(offer, codecs, true)?;
        // A lite agent never nominates; of two full ones it is who offers that does.
        let is_controlling = plan.offer.ice_lite;
        let has_data = plan.data.is_some();
        let mut peer = Peer::new(context, now, Kind { is_controlling, has_data, ..Kind::CLIENT })?;
        peer.start(&plan.remote, Some(true))?;
        if let Some(peer_takes) = plan.data {
            peer.start_channels(peer_takes, false);
        }
        for candidate in plan.offer.sections.iter().flat_map(|section| &section.candidates) {
            peer.add_candidate(candidate);
        }
        let mut client = ConferenceClient {
            codecs: codecs.to_vec(),
            local: peer.local_credentials().clone(),
            fingerprint: peer.fingerprint().to_owned(),
            remote: plan.remote.credentials.clone(),
            has_data,
            number: random::session_number()?,
            version: 0,
        };
        let negotiated = client.write(plan);
        Ok((peer, client, negotiated))
    }

    /// Answers an offer after the first.
    ///
    /// # Errors
    /// What is wrong with the offer. One that restarts ICE is not followed.
    pub fn answer(&mut self, offer: &str) -> Result<Negotiated, Error> {
        let plan = Plan::new(offer, &self.codecs, self.has_data)?;
        if plan.remote.credentials != self.remote {
            return Err(Error::Invalid { what: "a=ice-ufrag", why: "this client does not restart ICE" });
        }
        Ok(self.write(plan))
    }

    fn write(&mut self, plan: Plan<'_>) -> Negotiated {
        self.version += 1;
        let IceCreds { ufrag, pass: pwd } = &self.local;
        let transport = Transport { ufrag, pwd, fingerprint: &self.fingerprint, setup: "active" };
        let sdp = plan.write((self.number, self.version), &transport);
        let coming = plan.sections.into_iter().filter_map(|taken| match taken {
            Taken::Media { media, is_sent: true } => Some(media),
            _ => None,
        });
        Negotiated { sdp, media: coming.collect() }
    }
}

/// An offer that can be answered.
struct Plan<'a> {
    offer: Description<'a>,
    /// What each section becomes.
    sections: Vec<Taken>,
    remote: RemoteTransport,
    /// Where there are data channels: the longest message that the server takes.
    data: Option<usize>,
}

enum Taken {
    Media { media: Media, is_sent: bool },
    Data,
    Refused,
}

impl<'a> Plan<'a> {
    fn new(text: &'a str, codecs: &[Codec], takes_data: bool) -> Result<Self, Error> {
        let offer = sdp::parse(text, Limits::CONFERENCE)?;
        let (mut sections, mut data) = (Vec::with_capacity(offer.sections.len()), None);
        for section in &offer.sections {
            sections.push(match media(&offer, section, codecs) {
                Some(media) => Taken::Media { media, is_sent: matches!(section.flow, Flow::SendOnly | Flow::SendRecv) },
                None if takes_data && data.is_none() && section.is_data() && section.is_wanted() => {
                    data = Some(message_bytes_max(section));
                    Taken::Data
                }
                None => Taken::Refused,
            });
        }
        let first = sections.iter().position(|taken| !matches!(taken, Taken::Refused));
        let first = first.and_then(|index| offer.sections.get(index)).ok_or(Error::NoMedia("take: none is"))?;
        let remote = remote_transport(first, tagged(&offer))?;
        Ok(Plan { offer, sections, remote, data })
    }

    fn write(&self, (number, version): (u64, u64), transport: &Transport<'_>) -> String {
        let mut writer = Writer::new(number, version);
        let all = || self.sections.iter().zip(&self.offer.sections);
        let accepted = all().filter(|(taken, _)| !matches!(taken, Taken::Refused));
        writer.bundle(accepted.map(|(_, section)| section.mid));
        if self.offer.sections.iter().any(|section| section.allow_mixed) {
            writer.line("a=extmap-allow-mixed");
        }
        writer.line("a=ice-options:trickle");
        writer.line("a=msid-semantic: WMS *");
        for (taken, section) in all() {
            match taken {
                Taken::Refused => write_refused(&mut writer, section),
                Taken::Data => write_data(&mut writer, section.protocol, section.mid, transport),
                Taken::Media { media, is_sent } => {
                    let head = Head {
                        media: section.media,
                        protocol: section.protocol,
                        mid: section.mid,
                        direction: if *is_sent { "recvonly" } else { "inactive" },
                        reduced_size: section.rtcp_rsize,
                    };
                    let format = section.format(media.payload_type);
                    let feedback = format.map(|format| select::feedback(format, false)).unwrap_or_default();
                    write_media(&mut writer, &head, &[Format { media, fmtp: &media.fmtp, feedback }], transport);
                }
            }
        }
        writer.finish()
    }
}

/// What comes in a section, in the first of its codecs that is taken; `None` where there is none, or no place in the bundle.
fn media(offer: &Description<'_>, section: &Section<'_>, codecs: &[Codec]) -> Option<Media> {
    let kind = select::kind_of(section).filter(|_| is_usable(offer, section))?;
    let media = select::media(section, kind, (codecs, Profile::Any), Direction::Receive, 0)?;
    Some(Media { rx: select::ssrcs(section), ..media })
}
