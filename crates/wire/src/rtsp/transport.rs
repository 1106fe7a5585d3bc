//! How a client wants to receive: the Transport header.
//!
//! Source: RFC 2326 §12.39. MPEG-TS right in UDP has the names that set-top boxes (MP2T/H2221/UDP) and players
//! (RAW/RAW/UDP) gave it.

use std::net::IpAddr;

/// What packets come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// RTP in UDP.
    Rtp,
    /// MPEG-TS right in UDP.
    Udp,
    /// RTP between the requests of the connection (§10.12).
    Interleaved,
}

/// One of the transports that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport<'a> {
    /// Protocol, profile and lower transport as they were sent.
    pub name: &'a str,
    /// `None`: one that is not known here.
    pub carrier: Option<Carrier>,
    /// To one receiver, and not to a group.
    pub is_unicast: bool,
    /// Where to send to; the second, for RTCP, may be missing.
    pub client_port: Option<(u16, Option<u16>)>,
    /// Channels for RTP and RTCP.
    pub interleaved: Option<(u8, u8)>,
    /// As it was sent: an address, mostly.
    pub destination: Option<&'a str>,
}

/// How to send to the one who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Datagrams to one of its ports, and RTCP to the other. The stream right in UDP has no other.
    Datagrams {
        /// With RTP headers; else the packets as they are.
        is_rtp: bool,
        /// For the stream, at the address that asks.
        port: u16,
        /// For RTCP.
        rtcp_port: Option<u16>,
    },
    /// By its connection, on these channels; `None` leaves the choice to the server.
    Interleaved {
        /// For RTP, and for RTCP.
        channels: Option<(u8, u8)>,
    },
}

impl Transport<'_> {
    /// How to send to the one who asks, and to nobody else; `None` when that is not what is offered.
    pub fn for_client(&self, client: IpAddr) -> Option<Way> {
        let is_own = |text: &str| text.parse() == Ok(client);
        let carrier = self.carrier.filter(|_| self.is_unicast && self.destination.is_none_or(is_own))?;
        let (is_rtp, (port, second)) = match carrier {
            Carrier::Interleaved => return Some(Way::Interleaved { channels: self.interleaved }),
            Carrier::Rtp => (true, self.client_port?),
            Carrier::Udp => (false, self.client_port?),
        };
        // RTCP has the port above, unless they say otherwise (RFC 3550 §11).
        let rtcp_port = second.or(port.checked_add(1)).filter(|_| is_rtp);
        Some(Way::Datagrams { is_rtp, port, rtcp_port })
    }
}

/// Reads a Transport header: all that are offered, the best first. One with parameters that make no sense is left out.
pub fn transports(value: &str) -> impl Iterator<Item = Transport<'_>> {
    value.split(',').filter_map(transport)
}

fn transport(text: &str) -> Option<Transport<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?;
    let is = |names: &[&str]| names.iter().any(|other| name.eq_ignore_ascii_case(other));
    let carrier = match () {
        () if is(&["RTP/AVP", "RTP/AVP/UDP"]) => Some(Carrier::Rtp),
        () if is(&["MP2T/H2221/UDP", "RAW/RAW/UDP"]) => Some(Carrier::Udp),
        () if is(&["RTP/AVP/TCP"]) => Some(Carrier::Interleaved),
        () => None,
    };
    // Without a word it is multicast (§12.39), but who gives ports or channels means unicast.
    let mut found =
        Transport { name, carrier, is_unicast: true, client_port: None, interleaved: None, destination: None };
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key {
            _ if key.eq_ignore_ascii_case("multicast") => found.is_unicast = false,
            _ if key.eq_ignore_ascii_case("client_port") => found.client_port = Some(ports(value)?),
            _ if key.eq_ignore_ascii_case("interleaved") => found.interleaved = Some(channels(value)?),
            _ if key.eq_ignore_ascii_case("destination") && !value.is_empty() => found.destination = Some(value),
            // A title is not recorded to.
            _ if key.eq_ignore_ascii_case("mode") && !value.trim_matches('"').eq_ignore_ascii_case("play") => {
                return None;
            }
            _ => {}
        }
    }
    Some(found)
}

fn ports(text: &str) -> Option<(u16, Option<u16>)> {
    let port = |text| number(text).filter(|port| *port != 0);
    match text.split_once('-') {
        None => Some((port(text)?, None)),
        Some((first, second)) => Some((port(first)?, Some(port(second)?))),
    }
}

/// Two that are not the same; the second is the next one when it is not given.
fn channels(text: &str) -> Option<(u8, u8)> {
    let channel = |text| number(text).and_then(|channel| u8::try_from(channel).ok());
    let (first, second) = match text.split_once('-') {
        None => (channel(text)?, channel(text)?.checked_add(1)?),
        Some((first, second)) => (channel(first)?, channel(second)?),
    };
    (first != second).then_some((first, second))
}

fn number(text: &str) -> Option<u16> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn chosen(value: &str) -> Option<Way> {
        transports(value).find_map(|transport| transport.for_client(CLIENT))
    }

    #[test]
    fn what_players_and_boxes_offer_is_understood() {
        let rtp = |port, rtcp_port| Some(Way::Datagrams { is_rtp: true, port, rtcp_port });
        let udp = |port| Some(Way::Datagrams { is_rtp: false, port, rtcp_port: None });
        let interleaved = |channels| Some(Way::Interleaved { channels });
        for (value, expected) in [
            ("RTP/AVP;unicast;client_port=5000-5001", rtp(5_000, Some(5_001))),
            ("RTP/AVP;unicast;client_port=5000", rtp(5_000, Some(5_001))),
            ("RTP/AVP;unicast;client_port=65535", rtp(65_535, None)),
            ("RTP/AVP/UDP;unicast;client_port=5000-6000;mode=\"PLAY\"", rtp(5_000, Some(6_000))),
            ("MP2T/H2221/UDP;unicast;client_port=1234", udp(1_234)),
            ("RAW/RAW/UDP;unicast;client_port=1234-1235", udp(1_234)),
            ("MP2T/H2221/UDP;unicast;destination=192.0.2.7;client_port=9", udp(9)),
            ("RTP/AVP/TCP;unicast;interleaved=0-1", interleaved(Some((0, 1)))),
            ("RTP/AVP/TCP;unicast;interleaved=254", interleaved(Some((254, 255)))),
            ("RTP/AVP/TCP;unicast", interleaved(None)),
            ("RTP/AVP/TCP;interleaved=6-7, RTP/AVP;unicast;client_port=6-7", interleaved(Some((6, 7)))),
            ("RTP/AVP/TCP;interleaved=256-257, RTP/AVP;unicast;client_port=6-7", rtp(6, Some(7))),
            ("RTP/AVP/TCP;interleaved=255", None),
            ("RTP/AVP/TCP;interleaved=3-3", None),
            ("RTP/AVP;multicast;client_port=6-7", None),
            ("RTP/AVP;unicast;client_port=6-7;mode=record", None),
            ("RTP/AVP;unicast", None),
            ("RTP/AVP;unicast;client_port=0", None),
            ("RTP/AVP;unicast;client_port=65536", None),
            ("RTP/AVP;unicast;client_port=+5", None),
            ("RTP/AVP;unicast;client_port=5-", None),
            ("RTP/SAVP;unicast;client_port=5-6", None),
            ("", None),
        ] {
            assert_eq!(chosen(value), expected, "{value}");
        }
    }

    #[test]
    fn nothing_is_sent_to_a_third_party() {
        for destination in ["192.0.2.8", "host.example.org", "224.0.0.1", "::1"] {
            assert_eq!(chosen(&format!("RTP/AVP;unicast;destination={destination};client_port=5-6")), None);
        }
    }
}
