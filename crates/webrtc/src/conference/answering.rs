//! Answers an offer of a peer that makes all of them: what each section becomes, and the text that says so.
//!
//! In: an offer, the sections as they were, and what is wanted. Out: the sections as they will be, and the answer.
//! Source: RFC 8829 §5.3.2 (subsequent answers), §5.2.2 (recycled m-lines), RFC 8843 §7.3 (BUNDLE answers).

use str0m::crypto::Fingerprint;
use wire::codec::{Codec, MediaKind, Profile};

use super::slot::{Medium, Placed, Row, Slot};
use super::spec::{ConferenceOptions, Down, Up, UpWish};
use super::text::{Format, Head, message_bytes_max, write_data, write_media};
use crate::Error;
use crate::answer::{LAYERS_MAX, RemoteTransport, is_usable, remote_transport, tagged, write_refused};
use crate::media::{Direction, Extension, Media, Red};
use crate::sdp::{self, Description, Flow, Limits, Section, Setup};
use crate::select;
use crate::write::{Transport, Writer, token};

/// What an offer is answered with.
pub(super) struct Known<'a> {
    pub options: &'a ConferenceOptions,
    pub slots: &'a [Slot],
    pub wishes: &'a [UpWish],
    pub wanted: &'a [Down],
}

/// An offer that can be answered.
pub(super) struct Plan<'a> {
    offer: Description<'a>,
    pub slots: Vec<Slot>,
    pub remote: RemoteTransport,
    /// Where there are data channels: the longest message that the peer takes.
    pub data: Option<usize>,
    pub unplaced: Vec<u64>,
    pub refused: Vec<u64>,
}

impl<'a> Plan<'a> {
    pub fn new(text: &'a str, known: &Known<'_>, ssrcs: &mut Row) -> Result<Self, Error> {
        let offer = sdp::parse(text, Limits::CONFERENCE)?;
        if offer.ice_lite {
            return Err(Error::Invalid { what: "a=ice-lite", why: "this server is ICE-lite itself (RFC 8445 §2.5)" });
        }
        if offer.sections.len() < known.slots.len() {
            return Err(Error::Invalid { what: "the offer", why: "it has fewer media sections than before" });
        }
        let mut slots = Vec::with_capacity(offer.sections.len());
        for (index, section) in offer.sections.iter().enumerate() {
            let before = known.slots.get(index).filter(|slot| slot.medium != Medium::Refused);
            slots.push(slot(&offer, section, before, known, has_data(&slots))?);
        }
        check_mids(&offer, &slots)?;
        let accepted = slots.iter().position(|slot| slot.medium != Medium::Refused);
        let first = accepted.and_then(|index| offer.sections.get(index)).ok_or(Error::NoMedia("use: none is"))?;
        let remote = remote_transport(first, tagged(&offer))?;
        if first.setup.or(tagged(&offer).and_then(|tagged| tagged.setup)) == Some(Setup::Passive) {
            return Err(Error::Invalid { what: "a=setup:passive", why: "this server is always the DTLS server" });
        }
        let is_data = |(slot, _): &(&Slot, &Section<'_>)| slot.medium == Medium::Data;
        let data = slots.iter().zip(&offer.sections).find(is_data).map(|(_, section)| message_bytes_max(section));
        let mut plan = Plan { offer, slots, remote, data, unplaced: Vec::new(), refused: Vec::new() };
        plan.place(known, ssrcs);
        Ok(plan)
    }

    /// Gives each down track a section: the one that it has, or a free one of its kind, those before others in which the peer
    /// sends nothing.
    fn place(&mut self, known: &Known<'_>, ssrcs: &mut Row) {
        let mut waiting: Vec<&Down> = Vec::new();
        for down in known.wanted {
            let index = known.slots.iter().position(|slot| slot.holds(down));
            let index = index.or_else(|| known.slots.iter().position(|slot| slot.holds_track_of(down)));
            if index.is_none_or(|index| self.try_place(index, down, known, ssrcs) != Tried::Placed) {
                waiting.push(down);
            }
        }
        for down in waiting {
            let mut tried = Tried::NoSection;
            let is_both_ways = |index: &usize| self.offer.sections[*index].flow == Flow::SendRecv;
            let (last, first): (Vec<_>, Vec<_>) = (0..self.slots.len()).partition(is_both_ways);
            for index in first.into_iter().chain(last) {
                tried = tried.max(self.try_place(index, down, known, ssrcs));
                if tried == Tried::Placed {
                    break;
                }
            }
            match tried {
                Tried::NoSection | Tried::Rests => self.unplaced.push(down.id),
                Tried::NoCodec => self.refused.push(down.id),
                Tried::Placed => {}
            }
        }
    }

    fn try_place(&mut self, index: usize, down: &Down, known: &Known<'_>, ssrcs: &mut Row) -> Tried {
        let (slot, section) = (&mut self.slots[index], &self.offer.sections[index]);
        let receives = matches!(section.flow, Flow::SendRecv | Flow::RecvOnly);
        let before = known.slots.get(index).filter(|before| before.mid == slot.mid);
        let before = before.and_then(|before| before.down.as_ref());
        // Browsers tell of a new track where there was none before, so one that is gone is so for one answer.
        let rests = before.is_some_and(|placed| !placed.down.is_same_track(down));
        if !receives || slot.down.is_some() || slot.kind() != Some(down.codec.kind()) {
            return Tried::NoSection;
        }
        let profile = Profile::of(down.codec, &down.fmtp);
        let formats = (&[down.codec][..], profile);
        let Some(media) = select::media(section, down.codec.kind(), formats, Direction::Send, 0) else {
            return Tried::NoCodec;
        };
        if rests {
            return Tried::Rests;
        }
        let before = before.filter(|placed| placed.down == *down);
        let tx = ssrcs.ssrcs(before.map(|placed| &placed.media), media.rtx_payload_type.is_some());
        let media = Media { tx, red: media.red.filter(|_| down.red), ..media };
        slot.down = Some(Placed { down: down.clone(), media, is_taken: true });
        Tried::Placed
    }

    /// Writes the answer.
    pub fn write(&self, (number, version): (u64, u64), transport: &Transport<'_>, known: &Known<'_>) -> String {
        let mut writer = Writer::new(number, version);
        writer.line("a=ice-lite");
        let accepted = self.slots.iter().filter(|slot| slot.medium != Medium::Refused);
        writer.bundle(accepted.map(|slot| slot.mid.as_str()));
        if self.offer.sections.iter().any(|section| section.allow_mixed) {
            writer.line("a=extmap-allow-mixed");
        }
        writer.line("a=ice-options:trickle");
        writer.line("a=msid-semantic: WMS *");
        let mut candidates = &known.options.candidates[..];
        for (slot, section) in self.slots.iter().zip(&self.offer.sections) {
            match slot.medium {
                Medium::Refused => {
                    write_refused(&mut writer, section);
                    continue;
                }
                Medium::Data => write_data(&mut writer, section.protocol, &slot.mid, transport),
                Medium::Rtp(kind) => self.write_section(&mut writer, kind, (slot, section), transport, known),
            }
            // In a bundle the first section's candidates hold for all (RFC 8843 §10.2).
            writer.candidates(std::mem::take(&mut candidates));
        }
        writer.finish()
    }

    fn write_section(
        &self,
        writer: &mut Writer,
        kind: MediaKind,
        (slot, section): (&Slot, &Section<'_>),
        transport: &Transport<'_>,
        known: &Known<'_>,
    ) {
        let wish = wish(known.wishes, section);
        let up = slot.up.as_ref().map(|up| (&up.media, own_fmtp(up, wish)));
        let down = slot.down.as_ref();
        let direction = match (&up, down) {
            (Some(_), Some(_)) => "sendrecv",
            (Some(_), None) => "recvonly",
            (None, Some(_)) => "sendonly",
            (None, None) => "inactive",
        };
        // In a section in which the peer sends nothing all codecs are kept, as pion takes those of the first one for all. So they
        // are where it is not known yet what it will send: pion starts nothing at all when a track's codec is not among them.
        let is_kept = |media: &Media| match &up {
            None => true,
            Some((own, _)) => own.codec != media.codec && wish.is_none_or(|wish| wish.others.contains(&media.codec)),
        };
        let kept: Vec<Media> = all(section, kind).into_iter().filter(is_kept).collect();
        let feedback = |media: &Media| {
            let takes_remb = media.direction == Direction::Send && !self.is_numbered();
            section.format(media.payload_type).map(|format| select::feedback(format, takes_remb)).unwrap_or_default()
        };
        let others = down.map(|placed| &placed.media).into_iter().chain(&kept);
        let others = others.map(|media| Format { media, fmtp: &media.fmtp, feedback: feedback(media) });
        let own = up.iter().map(|(media, fmtp)| Format { media, fmtp, feedback: feedback(media) });
        let formats: Vec<Format<'_>> = own.chain(others).collect();
        let head = Head {
            media: section.media,
            protocol: section.protocol,
            mid: &slot.mid,
            direction,
            reduced_size: section.rtcp_rsize,
        };
        write_media(writer, &head, &formats, transport);
        if let Some(Placed { down, media, .. }) = down {
            let (stream, track) = (token(&down.media_stream), token(&down.track));
            writer.sources(&token(&known.options.cname), &stream, &track, &media.tx);
        }
        writer.simulcast("recv", up.map_or(&[][..], |(media, _)| &media.rids[..]));
    }

    /// Whether what we send is numbered over all sections, for feedback.
    fn is_numbered(&self) -> bool {
        let sent = self.slots.iter().filter_map(|slot| slot.down.as_ref());
        sent.into_iter()
            .any(|Placed { media, .. }| media.transport_cc && media.extension_id(Extension::TransportCc).is_some())
    }
}

/// How far it came with a section for a down track.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tried {
    NoSection,
    NoCodec,
    /// It suits, with the next answer.
    Rests,
    Placed,
}

fn has_data(slots: &[Slot]) -> bool {
    slots.iter().any(|slot| slot.medium == Medium::Data)
}

/// What a section becomes, but for what is sent in it.
fn slot(
    offer: &Description<'_>,
    section: &Section<'_>,
    before: Option<&Slot>,
    known: &Known<'_>,
    has_data: bool,
) -> Result<Slot, Error> {
    if before.is_some_and(|before| before.mid != section.mid) {
        return Err(Error::Invalid { what: "a=mid", why: "a section that is in use has another name than before" });
    }
    let medium = medium(offer, section, known, has_data);
    if before.is_some_and(|before| medium != before.medium && medium != Medium::Refused) {
        return Err(Error::Invalid { what: "m=", why: "a section that is in use has another medium than before" });
    }
    let mut slot = Slot::new(section.mid, medium);
    slot.up = up(section, slot.kind(), before, known);
    Ok(slot)
}

fn medium(offer: &Description<'_>, section: &Section<'_>, known: &Known<'_>, has_data: bool) -> Medium {
    let is_named = !section.mid.is_empty() && offer.bundle.as_ref().is_some_and(|mids| mids.contains(&section.mid));
    if !is_named || !section.is_wanted() {
        return Medium::Refused;
    }
    if section.is_data() {
        return if known.options.wants_data && !has_data { Medium::Data } else { Medium::Refused };
    }
    let kind = select::kind_of(section).filter(|_| is_usable(offer, section));
    let has_codec = |kind: &MediaKind| !all(section, *kind).is_empty();
    kind.filter(has_codec).map_or(Medium::Refused, Medium::Rtp)
}

/// The codecs of a section that we know, in the offer's order.
fn all(section: &Section<'_>, kind: MediaKind) -> Vec<Media> {
    let of = |codec| select::media(section, kind, (&[codec], Profile::Any), Direction::Send, 0);
    let mut found: Vec<Media> = Codec::ALL.into_iter().filter_map(of).collect();
    let place = |media: &Media| section.formats.iter().position(|format| format.payload_type == media.payload_type);
    found.sort_by_key(place);
    found
}

/// What the peer sends in a section: with the codec that is wished for, else with the one that it has, else with its first.
fn up(section: &Section<'_>, kind: Option<MediaKind>, before: Option<&Slot>, known: &Known<'_>) -> Option<Up> {
    let kind = kind.filter(|_| matches!(section.flow, Flow::SendRecv | Flow::SendOnly))?;
    let (media_stream, cid) = section.msid.unwrap_or_default();
    let before = before.and_then(|before| before.up.as_ref()).filter(|up| up.cid == cid);
    let wish = wish(known.wishes, section);
    let wished = wish.into_iter().flat_map(|wish| &wish.codecs).filter(|codec| known.options.codecs.contains(codec));
    let of = |codecs: &[Codec]| select::media(section, kind, (codecs, Profile::Any), Direction::Receive, 0);
    let first = wished.chain(before.map(|up| &up.media.codec)).find_map(|codec| of(&[*codec]));
    let media = first.or_else(|| of(&known.options.codecs))?;
    let rids = select::rids(section, LAYERS_MAX).into_iter().map(Into::into).collect();
    // What comes first in an answer is what a browser sends, whatever its own order is. A track that was published before may have
    // another name in the offer than it is wished for by.
    let is_wished = wish.map_or(!known.wishes.is_empty() && known.wishes.iter().all(|wish| wish.red), |wish| wish.red);
    let red = media.red.filter(|_| wish.is_none_or(|wish| wish.red));
    let red = red.map(|red| Red { is_preferred: red.is_preferred || is_wished, ..red });
    let media = Media { rids, red, rx: select::ssrcs(section), ..media };
    Some(Up { media, media_stream: media_stream.into(), cid: cid.into() })
}

fn wish<'w>(wishes: &'w [UpWish], section: &Section<'_>) -> Option<&'w UpWish> {
    let cid = section.msid.map(|(_, track)| track).unwrap_or_default();
    let is_named = |name: &str| wishes.iter().find(|wish| !name.is_empty() && wish.cid == name);
    is_named(cid).or_else(|| is_named(section.mid))
}

/// The parameters with which we take a track: what its sender says, and what it is asked for (RFC 7587 §6.1).
fn own_fmtp(up: &Up, wish: Option<&UpWish>) -> String {
    let mut fmtp = up.media.fmtp.clone();
    let asked =
        wish.filter(|_| up.media.codec == Codec::Opus).map(|wish| [("usedtx", wish.dtx), ("stereo", wish.stereo)]);
    for (name, _) in asked.into_iter().flatten().filter(|(_, is_asked)| *is_asked) {
        let has = fmtp.split(';').any(|pair| pair.trim().starts_with(name));
        if !has {
            let separator = if fmtp.is_empty() { "" } else { ";" };
            fmtp.push_str(&format!("{separator}{name}=1"));
        }
    }
    fmtp
}

fn check_mids(offer: &Description<'_>, slots: &[Slot]) -> Result<(), Error> {
    if offer.bundle.is_none() {
        return Err(Error::NotBundled);
    }
    let mut mids: Vec<&str> =
        slots.iter().filter(|slot| slot.medium != Medium::Refused).map(|slot| slot.mid.as_str()).collect();
    let count = mids.len();
    mids.sort_unstable();
    mids.dedup();
    if mids.len() == count {
        Ok(())
    } else {
        Err(Error::Invalid { what: "a=mid", why: "two media sections have the same" })
    }
}

/// A connection has one certificate for good.
pub(super) fn check_fingerprint(before: Option<&Fingerprint>, now: &Fingerprint) -> Result<(), Error> {
    if before.is_some_and(|before| before != now) {
        return Err(Error::Invalid { what: "a=fingerprint", why: "it is another one than before" });
    }
    Ok(())
}
