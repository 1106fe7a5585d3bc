//! Trickle ICE fragments, the bodies of WHIP and WHEP PATCH requests (`application/trickle-ice-sdpfrag`, RFC 8840 §9).

use str0m::IceCreds;

use crate::Error;
use crate::sdp::{OFFER_BYTES_MAX, credentials, ice_chars};
use crate::write::{Candidate, Writer};

/// The most candidates that are read from one fragment.
const CANDIDATES_MAX: usize = 64;

/// What one PATCH says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The sender's user fragment, 4 to 256 characters; there with `pwd` or not at all.
    pub ufrag: Option<&'a str>,
    /// Its password, 22 to 256 characters.
    pub pwd: Option<&'a str>,
    /// The section that the candidates are for. With BUNDLE it does not matter.
    pub mid: Option<&'a str>,
    /// What follows "a=", for instance "candidate:1 1 udp …".
    pub candidates: Vec<&'a str>,
    /// No more candidates follow (`a=end-of-candidates`, RFC 8840 §8.2).
    pub is_last: bool,
}

impl<'a> Fragment<'a> {
    /// Reads a fragment. In bundles the first credentials hold.
    pub fn parse(text: &'a str) -> Result<Self, Error> {
        if text.len() > OFFER_BYTES_MAX {
            return Err(Error::TooLong { got: text.len(), max: OFFER_BYTES_MAX });
        }
        let mut fragment = Fragment::default();
        for (index, line) in text.lines().enumerate() {
            let at = |what| Error::Syntax { line: index + 1, what };
            let line = line.trim_end();
            if line.is_empty() {
                continue;
            }
            // m-lines only mark sections here; their content means nothing (RFC 8840 §9).
            let Some(attribute) = line.strip_prefix("a=") else { continue };
            let (name, rest) = attribute.split_once(':').unwrap_or((attribute, ""));
            match name {
                "ice-ufrag" if fragment.ufrag.is_none() => {
                    fragment.ufrag =
                        Some(ice_chars(rest, 4).ok_or_else(|| at("a=ice-ufrag: 4 to 256 ICE characters"))?);
                }
                "ice-pwd" if fragment.pwd.is_none() => {
                    fragment.pwd = Some(ice_chars(rest, 22).ok_or_else(|| at("a=ice-pwd: 22 to 256 ICE characters"))?);
                }
                "mid" if fragment.mid.is_none() => fragment.mid = Some(rest),
                "candidate" if fragment.candidates.len() == CANDIDATES_MAX => {
                    return Err(Error::TooMany { what: "candidates", max: CANDIDATES_MAX });
                }
                "candidate" => fragment.candidates.push(attribute),
                "end-of-candidates" => fragment.is_last = true,
                _ => {}
            }
        }
        if fragment.ufrag.is_some() != fragment.pwd.is_some() {
            return Err(Error::Missing { what: "a=ice-ufrag or a=ice-pwd beside the other" });
        }
        if fragment.ufrag.is_none() && fragment.candidates.is_empty() && !fragment.is_last {
            return Err(Error::Missing { what: "a candidate or credentials" });
        }
        Ok(fragment)
    }

    /// User fragment and password, where the fragment has them.
    pub(crate) fn credentials(&self) -> Result<Option<IceCreds>, Error> {
        self.ufrag.zip(self.pwd).map(|(ufrag, pwd)| credentials(ufrag, pwd)).transpose()
    }

    /// Writes a fragment with credentials and host candidates: what answers an ICE restart, or asks for one.
    pub fn write(ufrag: &str, pwd: &str, mid: Option<&str>, candidates: &[Candidate]) -> String {
        let mut writer = Writer::default();
        writer.line(format_args!("a=ice-ufrag:{ufrag}"));
        writer.line(format_args!("a=ice-pwd:{pwd}"));
        if let Some(mid) = mid {
            // The m-line is there for form; receivers look at the MID only (RFC 8840 §9).
            writer.line("m=audio 9 UDP/TLS/RTP/SAVPF 0");
            writer.line(format_args!("a=mid:{mid}"));
        }
        writer.candidates(candidates);
        writer.finish()
    }
}
