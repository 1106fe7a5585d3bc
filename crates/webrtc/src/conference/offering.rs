//! Makes offers on a connection on which the peer makes none, and reads their answers.
//!
//! In: the sections as they are, and what is wanted. Out: the sections as they shall be, and the offer; then, from the
//! answer, the sections as they are from now on.
//! Source: RFC 8829 §5.2.2 (subsequent offers), RFC 5763 §5 (who offers is `actpass`), RFC 8445 §9 (restarts).

use strum::VariantArray;
use wire::codec::{Codec, MediaKind, Profile};

use super::numbers::{Numbers, usual};
use super::slot::{Medium, Placed, Row, Slot};
use super::spec::{ConferenceOptions, Down};
use super::text::{Format, Head, feedback, message_bytes_max, write_data, write_media};
use crate::Error;
use crate::answer::{RemoteTransport, remote_transport};
use crate::media::{Direction, Extension, Media};
use crate::sdp::{self, CONFERENCE_SECTIONS_MAX, Flow, Limits, Section, Setup};
use crate::select;
use crate::write::{Transport, Writer, token};

/// The sections that an offer asks for.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub slots: Vec<Slot>,
    /// Tracks for which there is no section.
    pub left_out: Vec<u64>,
    /// Something is other than before.
    pub is_new: bool,
}

impl Plan {
    /// Puts what is wanted into sections: what is there stays, what is new comes into idle ones of its kind, then into the place
    /// of those that were refused, then behind all.
    pub fn new(
        options: &ConferenceOptions,
        slots: &[Slot],
        wanted: &[Down],
        (ssrcs, numbers, mids): (&mut Row, &mut Numbers, &mut u32),
    ) -> Self {
        let mut plan = Plan { slots: slots.to_vec(), left_out: Vec::new(), is_new: false };
        // Browsers tell of a new track where there was none before, so one that is gone is so for one round.
        let (mut resting, mut later): (Vec<(usize, Down)>, Vec<usize>) = (Vec::new(), Vec::new());
        for (index, slot) in plan.slots.iter_mut().enumerate() {
            if let Some(placed) = slot.down.take_if(|placed| !wanted.contains(&placed.down)) {
                // Of what the peer did not take, it need not hear that it is gone.
                if placed.is_taken {
                    plan.is_new = true;
                    resting.push((index, placed.down));
                }
            }
        }
        if options.wants_data && slots.is_empty() {
            plan.add(Medium::Data, mids);
        }
        for down in wanted {
            if plan.slots.iter().any(|slot| slot.holds(down)) {
                continue;
            }
            let numbered = numbers.of(down);
            let kind = down.codec.kind();
            let is_free = |slot: &Slot| slot.kind() == Some(kind) && slot.down.is_none();
            // Where the same track comes by another stream nothing is gone.
            let same = resting.iter().position(|(_, gone)| gone.is_same_track(down));
            let same = same.map(|place| resting.swap_remove(place).0);
            let mut free = (0..plan.slots.len()).filter(|index| is_free(&plan.slots[*index]));
            let rests = |index: &usize| resting.iter().any(|(resting, _)| resting == index) || later.contains(index);
            let idle = same.or_else(|| free.find(|index| !rests(index)));
            // It waits for one that is about to be free.
            if idle.is_none()
                && let Some(place) = resting.iter().position(|(index, _)| is_free(&plan.slots[*index]))
            {
                later.push(resting.swap_remove(place).0);
                continue;
            }
            let index = idle.or_else(|| plan.add(Medium::Rtp(kind), mids));
            let Some(slot) = index.and_then(|index| plan.slots.get_mut(index)) else {
                plan.left_out.push(down.id);
                continue;
            };
            let tx = ssrcs.ssrcs(None, numbered.rtx_payload_type.is_some());
            let media = Media { mid: slot.mid.clone(), tx, ..numbered };
            slot.down = Some(Placed { down: down.clone(), media, is_taken: false });
            plan.is_new = true;
        }
        plan
    }

    /// A new section, in the place of one that was refused where there is one; its index.
    fn add(&mut self, medium: Medium, mids: &mut u32) -> Option<usize> {
        let refused = self.slots.iter().position(|slot| slot.medium == Medium::Refused);
        if refused.is_none() && self.slots.len() >= CONFERENCE_SECTIONS_MAX {
            return None;
        }
        let slot = Slot::new(&mids.to_string(), medium);
        *mids += 1;
        self.is_new = true;
        match refused {
            Some(index) => self.slots[index] = slot,
            None => self.slots.push(slot),
        }
        refused.or(Some(self.slots.len() - 1))
    }

    /// Writes the offer.
    pub fn write(
        &self,
        (number, version): (u64, u64),
        transport: &Transport<'_>,
        options: &ConferenceOptions,
    ) -> String {
        let mut writer = Writer::new(number, version);
        writer.line("a=ice-lite");
        writer.bundle(self.slots.iter().filter(|slot| slot.medium != Medium::Refused).map(|slot| slot.mid.as_str()));
        writer.line("a=extmap-allow-mixed");
        writer.line("a=ice-options:trickle");
        writer.line("a=msid-semantic: WMS *");
        let mut candidates = &options.candidates[..];
        for slot in &self.slots {
            match slot.medium {
                // It keeps its place.
                Medium::Refused => {
                    writer.line("m=audio 0 UDP/TLS/RTP/SAVPF 0");
                    writer.line("c=IN IP4 0.0.0.0");
                    writer.line(format_args!("a=mid:{}", slot.mid));
                    writer.line("a=inactive");
                    continue;
                }
                Medium::Data => write_data(&mut writer, "UDP/DTLS/SCTP", &slot.mid, transport),
                Medium::Rtp(kind) => write_section(&mut writer, kind, slot, transport, options),
            }
            writer.candidates(std::mem::take(&mut candidates));
        }
        writer.finish()
    }
}

fn write_section(
    writer: &mut Writer,
    kind: MediaKind,
    slot: &Slot,
    transport: &Transport<'_>,
    options: &ConferenceOptions,
) {
    // The others, too: pion takes those of the first section for all.
    let own = slot.down.as_ref().map(|placed| placed.media.clone());
    let all: Vec<Media> = own.into_iter().chain(usual(kind)).collect();
    let format = |media| Format { media, fmtp: &media.fmtp, feedback: feedback(kind) };
    let formats: Vec<Format<'_>> = all.iter().map(format).collect();
    let head = Head {
        media: if kind == MediaKind::Audio { "audio" } else { "video" },
        protocol: "UDP/TLS/RTP/SAVPF",
        mid: &slot.mid,
        direction: if slot.down.is_some() { "sendonly" } else { "inactive" },
        reduced_size: true,
    };
    write_media(writer, &head, &formats, transport);
    if let Some(Placed { down, media, .. }) = &slot.down {
        writer.sources(&token(&options.cname), &token(&down.media_stream), &token(&down.track), &media.tx);
    }
}

/// The header extensions that we offer to send, each with the same number in all sections (RFC 8843 §9).
pub(super) fn extensions(kind: MediaKind) -> Vec<(u8, Extension)> {
    let is_sent =
        |extension: Extension| extension.suits(kind) && !matches!(extension, Extension::Rid | Extension::RepairedRid);
    let numbered = (1..).zip(Extension::VARIANTS).map(|(id, extension)| (id, *extension));
    numbered.filter(|(_, extension)| is_sent(*extension)).collect()
}

/// What an answer came to.
pub(super) struct Accepted {
    pub slots: Vec<Slot>,
    pub remote: RemoteTransport,
    pub is_dtls_client: bool,
    pub data: Option<usize>,
    pub refused: Vec<u64>,
}

impl Accepted {
    /// Reads the answer to an offer of these sections.
    pub fn new(offered: &[Slot], text: &str) -> Result<Self, Error> {
        let answer = sdp::parse(text, Limits::CONFERENCE)?;
        if answer.sections.len() != offered.len() {
            return Err(Error::AnswerMismatch("another number of media sections"));
        }
        let mut slots = Vec::with_capacity(offered.len());
        let (mut refused, mut data, mut first) = (Vec::new(), None, None);
        for (offered, section) in offered.iter().zip(&answer.sections) {
            let slot = accept(offered, section)?;
            if slot.medium == Medium::Data {
                data = Some(message_bytes_max(section));
            }
            if slot.medium != Medium::Refused {
                first = first.or(Some(section));
            }
            let is_taken = slot.down.as_ref().is_some_and(|placed| placed.is_taken);
            refused.extend(offered.down.as_ref().filter(|_| !is_taken).map(|placed| placed.down.id));
            slots.push(slot);
        }
        let first = first.ok_or(Error::NoMedia("use: the answer refuses all"))?;
        // pion has a lite agent always be the DTLS client, and str0m whoever offers.
        let is_dtls_client = match first.setup {
            Some(Setup::Active) => false,
            Some(Setup::Passive) => true,
            _ => return Err(Error::Invalid { what: "a=setup", why: "an answer says active or passive" }),
        };
        let named = answer.bundle.as_ref().and_then(|mids| mids.first().copied());
        let tagged = answer.sections.iter().find(|section| Some(section.mid) == named);
        Ok(Accepted { slots, remote: remote_transport(first, tagged)?, is_dtls_client, data, refused })
    }
}

/// What a section is after its answer. A track that is refused with its section loses that; one that the peer does not want to
/// have now keeps it, and is not offered again.
fn accept(offered: &Slot, section: &Section<'_>) -> Result<Slot, Error> {
    let mut slot = offered.clone();
    if offered.medium == Medium::Refused || !section.is_wanted() {
        slot.medium = Medium::Refused;
        slot.down = None;
        return Ok(slot);
    }
    let is_alike = match offered.medium {
        Medium::Rtp(kind) => select::kind_of(section) == Some(kind),
        Medium::Data => section.is_data(),
        Medium::Refused => true,
    };
    if !is_alike || section.mid != offered.mid {
        return Err(Error::AnswerMismatch("media sections in another order"));
    }
    let Some(placed) = &mut slot.down else { return Ok(slot) };
    let receives = matches!(section.flow, Flow::SendRecv | Flow::RecvOnly);
    let media = receives.then(|| taken(placed, section)).flatten();
    placed.is_taken = media.is_some();
    placed.media = media.unwrap_or_else(|| placed.media.clone());
    Ok(slot)
}

/// A track as the peer takes it.
fn taken(placed: &Placed, section: &Section<'_>) -> Option<Media> {
    let codec: Codec = placed.media.codec;
    let profile = Profile::of(codec, &placed.media.fmtp);
    let media = select::media(section, codec.kind(), (&[codec], profile), Direction::Send, 0)?;
    let without_rtx = |(ssrc, rtx): &(u32, Option<u32>)| (*ssrc, rtx.filter(|_| media.rtx_payload_type.is_some()));
    let tx = placed.media.tx.iter().map(without_rtx).collect();
    Some(Media { tx, red: media.red.filter(|_| placed.down.red), ..media })
}
