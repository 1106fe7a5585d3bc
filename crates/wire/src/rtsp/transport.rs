//! How a client wants to receive: the Transport header.
//!
//! Source: RFC 2326 §12.39. MPEG-TS right in UDP has the names that set-top boxes (MP2T/H2221/UDP) and players
//! (RAW/RAW/UDP) gave it.

use std::net::IpAddr;

use super::digits;

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

/// Reads a Transport header: the ways that are offered to send to the one who asks, and to nobody else, the best first;
/// each with the name that it is offered by. One with parameters that make no sense is left out.
pub fn ways(value: &str, client: IpAddr) -> impl Iterator<Item = (&str, Way)> {
    value.split(',').filter_map(move |text| way(text, client))
}

fn way(text: &str, client: IpAddr) -> Option<(&str, Way)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next()?;
    let (mut client_port, mut interleaved) = (None, None);
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let is = |other: &str| key.eq_ignore_ascii_case(other);
        // Without a word it is multicast (§12.39), but who gives ports or channels means unicast. A title is not recorded
        // to.
        let is_other = is("multicast")
            || is("destination") && !value.is_empty() && value.parse() != Ok(client)
            || is("mode") && !value.trim_matches('"').eq_ignore_ascii_case("play");
        if is_other {
            return None;
        }
        if is("client_port") {
            client_port = Some(ports(value)?);
        } else if is("interleaved") {
            interleaved = Some(channels(value)?);
        }
    }
    let is = |names: &[&str]| names.iter().any(|other| name.eq_ignore_ascii_case(other));
    if is(&["RTP/AVP/TCP"]) {
        return Some((name, Way::Interleaved { channels: interleaved }));
    }
    let is_rtp = is(&["RTP/AVP", "RTP/AVP/UDP"]);
    let (port, second) = client_port.filter(|_| is_rtp || is(&["MP2T/H2221/UDP", "RAW/RAW/UDP"]))?;
    // RTCP has the port above, unless they say otherwise (RFC 3550 §11).
    let rtcp_port = second.or(port.checked_add(1)).filter(|_| is_rtp);
    Some((name, Way::Datagrams { is_rtp, port, rtcp_port }))
}

fn ports(text: &str) -> Option<(u16, Option<u16>)> {
    let port = |text| digits(text).filter(|port| *port != 0);
    match text.split_once('-') {
        None => Some((port(text)?, None)),
        Some((first, second)) => Some((port(first)?, Some(port(second)?))),
    }
}

/// Two that are not the same; the second is the next one when it is not given.
fn channels(text: &str) -> Option<(u8, u8)> {
    let (first, second): (u8, u8) = match text.split_once('-') {
        None => (digits(text)?, digits::<u8>(text)?.checked_add(1)?),
        Some((first, second)) => (digits(first)?, digits(second)?),
    };
    (first != second).then_some((first, second))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn chosen(value: &str) -> Option<Way> {
        ways(value, CLIENT).next().map(|(_, way)| way)
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
            let own = "destination=192.0.2.7";
            for several in [format!("{own};destination={destination}"), format!("destination={destination};{own}")] {
                assert_eq!(chosen(&format!("RTP/AVP;unicast;{several};client_port=5-6")), None);
            }
        }
    }
}
