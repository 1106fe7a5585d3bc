//! What DESCRIBE answers: one MPEG-TS in RTP.
//!
//! Source: RFC 4566; RFC 2326 appendix C (control, range); RFC 3551 §6 (payload type 33).

use std::net::IpAddr;
use std::time::Duration;

use super::Npt;

/// Which times a title has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// From zero to an end; to one that is not known, players do not seek.
    Stored(Option<Duration>),
    /// The present alone.
    Live,
}

/// A title for SDP.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// Tells versions of the description apart.
    pub id: u64,
    /// The server's address.
    pub origin: IpAddr,
    /// What the title is called.
    pub name: &'a str,
    /// Which times it has.
    pub extent: Extent,
    /// The stream's URI, relative to that of the title.
    pub track: &'a str,
}

impl Description<'_> {
    /// Writes it.
    pub fn to_sdp(&self) -> String {
        let Description { id, origin, track, .. } = self;
        let (family, any) = if origin.is_ipv4() { ("IP4", "0.0.0.0") } else { ("IP6", "::") };
        let name: String = self.name.chars().filter(|character| !character.is_control()).collect();
        let range = match self.extent {
            Extent::Stored(Some(end)) => format!("0-{}", Npt(end)),
            Extent::Stored(None) => "0-".to_owned(),
            Extent::Live => "now-".to_owned(),
        };
        format!(
            "v=0\r\no=- {id} {id} IN {family} {origin}\r\ns={name}\r\nc=IN {family} {any}\r\nt=0 0\r\n\
             a=control:*\r\na=range:npt={range}\r\n\
             m=video 0 RTP/AVP 33\r\na=rtpmap:33 MP2T/90000\r\na=control:{track}\r\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_stream_of_payload_type_33() {
        let origin = IpAddr::from([192, 0, 2, 1]);
        let description = Description {
            id: 7,
            origin,
            name: "a\n.ts",
            extent: Extent::Stored(Some(Duration::from_millis(61_500))),
            track: "track",
        };
        let expected = "v=0\r\no=- 7 7 IN IP4 192.0.2.1\r\ns=a.ts\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\n\
            a=range:npt=0-61.500\r\nm=video 0 RTP/AVP 33\r\na=rtpmap:33 MP2T/90000\r\na=control:track\r\n";
        assert_eq!(description.to_sdp(), expected);
        let ipv6 = Description { origin: "2001:db8::1".parse().expect("an address"), ..description };
        assert!(ipv6.to_sdp().contains("c=IN IP6 ::\r\n"));
        for (extent, range) in [(Extent::Stored(None), "npt=0-"), (Extent::Live, "npt=now-")] {
            let sdp = Description { extent, ..description }.to_sdp();
            assert!(sdp.contains(&format!("a=range:{range}\r\n")), "{sdp}");
        }
    }
}
