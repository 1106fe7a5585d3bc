//! Payload types for what we offer: in a bundle a number means one codec with the same parameters in all sections (RFC 8843 §9.1).

use wire::codec::{Codec, MediaKind};

use super::offering::extensions;
use super::spec::Down;
use crate::media::{Direction, Media, Red};
use crate::offer::{format_parameters, payload_types};

/// What each codec has that comes again with other parameters: numbers that are dynamic whatever is sent beside (RFC 5761 §4),
/// and none of those that `payload_types` has.
const OTHERS: [u8; 22] =
    [104, 105, 106, 107, 108, 109, 110, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126];

/// That of redundancy.
const RED: u8 = 63;

/// The longest parameters that are offered; of others the usual ones are.
const FMTP_BYTES_MAX: usize = 256;

/// The numbers of one connection, which stay what they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    given: Vec<Numbered>,
    others: usize,
}

#[derive(Clone, Debug)]
struct Numbered {
    codec: Codec,
    fmtp: String,
    numbers: (u8, Option<u8>),
}

impl Numbers {
    /// A track as it is offered, without its section and SSRCs. When no number is left for its parameters, the usual ones hold:
    /// a decoder looks into the packets.
    pub fn of(&mut self, down: &Down) -> Media {
        let (codec, fmtp) = (down.codec, parameters(down));
        let usual = format_parameters(codec);
        let own = if fmtp == usual { None } else { self.known(codec, &fmtp).or_else(|| self.give(codec, fmtp)) };
        let media = match own {
            Some(Numbered { fmtp, numbers, .. }) => media(codec, fmtp, numbers),
            None => media(codec, usual.into(), payload_types(codec)),
        };
        Media { red: media.red.filter(|_| down.red), ..media }
    }

    fn known(&self, codec: Codec, fmtp: &str) -> Option<Numbered> {
        self.given.iter().find(|known| (known.codec, known.fmtp.as_str()) == (codec, fmtp)).cloned()
    }

    fn give(&mut self, codec: Codec, fmtp: String) -> Option<Numbered> {
        let has_rtx = payload_types(codec).1.is_some();
        let count = 1 + usize::from(has_rtx);
        let numbers = OTHERS.get(self.others..self.others + count)?;
        self.others += count;
        let numbered = Numbered { codec, fmtp, numbers: (numbers[0], numbers.get(1).copied()) };
        self.given.push(numbered.clone());
        Some(numbered)
    }
}

/// The codecs of a kind with the parameters that most have.
pub(super) fn usual(kind: MediaKind) -> impl Iterator<Item = Media> {
    let of_kind = Codec::ALL.into_iter().filter(move |codec| codec.kind() == kind);
    of_kind.map(|codec| media(codec, format_parameters(codec).into(), payload_types(codec)))
}

fn media(codec: Codec, fmtp: String, (payload_type, rtx_payload_type): (u8, Option<u8>)) -> Media {
    Media {
        mid: String::new(),
        direction: Direction::Send,
        track: 0,
        codec,
        payload_type,
        rtx_payload_type,
        red: (codec == Codec::Opus).then_some(Red { payload_type: RED, is_preferred: false }),
        fmtp,
        extensions: extensions(codec.kind()),
        tx: Vec::new(),
        rx: Vec::new(),
        rids: Vec::new(),
        transport_cc: true,
        reduced_size: true,
    }
}

/// The publisher's parameters, as far as they are harmless in another's description; of sound the usual ones, and stereo.
fn parameters(down: &Down) -> String {
    let usual = format_parameters(down.codec).to_owned();
    let is_harmless = down.fmtp.len() <= FMTP_BYTES_MAX && down.fmtp.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if down.fmtp.is_empty() || !is_harmless {
        return usual;
    }
    match down.codec.kind() {
        MediaKind::Video => down.fmtp.clone(),
        MediaKind::Audio if down.fmtp.contains("stereo=1") => format!("{usual};sprop-stereo=1;stereo=1"),
        MediaKind::Audio => usual,
    }
}
