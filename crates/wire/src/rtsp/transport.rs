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
}

/// One of the transports that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport<'a> {
    /// Protocol, profile and lower transport as they were sent.
    pub name: &'a str,
    /// `None`: one that is not known here, TCP among them.
    pub carrier: Option<Carrier>,
    pub is_unicast: bool,
    /// Where to send to; the second, for RTCP, may be missing.
    pub client_port: Option<(u16, Option<u16>)>,
    /// As it was sent: an address, mostly.
    pub destination: Option<&'a str>,
}

impl Transport<'_> {
    /// What to send and to which port, when it can be sent to the one who asks, and to nobody else.
    pub fn for_client(&self, client: IpAddr) -> Option<(Carrier, u16)> {
        let is_own = |text: &str| text.parse() == Ok(client);
        let (carrier, (port, _)) = (self.carrier?, self.client_port?);
        (self.is_unicast && self.destination.is_none_or(is_own)).then_some((carrier, port))
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
        () => None,
    };
    // Without a word it is multicast (§12.39), but who gives ports means unicast.
    let mut found = Transport { name, carrier, is_unicast: true, client_port: None, destination: None };
    for part in parts {
        match part.split_once('=') {
            None if part.eq_ignore_ascii_case("multicast") => found.is_unicast = false,
            Some((key, value)) if key.eq_ignore_ascii_case("client_port") => found.client_port = Some(ports(value)?),
            Some((key, value)) if key.eq_ignore_ascii_case("destination") => found.destination = Some(value),
            _ => {}
        }
    }
    Some(found)
}

fn ports(text: &str) -> Option<(u16, Option<u16>)> {
    let port = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse().ok().filter(|port| *port != 0),
        false => None,
    };
    match text.split_once('-') {
        None => Some((port(text)?, None)),
        Some((first, second)) => Some((port(first)?, Some(port(second)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn chosen(value: &str) -> Option<(Carrier, u16)> {
        transports(value).find_map(|transport| transport.for_client(CLIENT))
    }

    #[test]
    fn what_players_and_boxes_offer_is_understood() {
        for (value, expected) in [
            ("RTP/AVP;unicast;client_port=5000-5001", Some((Carrier::Rtp, 5_000))),
            ("RTP/AVP/UDP;unicast;client_port=5000-5001;mode=\"PLAY\"", Some((Carrier::Rtp, 5_000))),
            ("MP2T/H2221/UDP;unicast;client_port=1234", Some((Carrier::Udp, 1_234))),
            ("RAW/RAW/UDP;unicast;client_port=1234-1235", Some((Carrier::Udp, 1_234))),
            ("MP2T/H2221/UDP;unicast;destination=192.0.2.7;client_port=9", Some((Carrier::Udp, 9))),
            ("RTP/AVP/TCP;unicast;interleaved=0-1", None),
            ("RTP/AVP/TCP;interleaved=0-1, RTP/AVP;unicast;client_port=6-7", Some((Carrier::Rtp, 6))),
            ("RTP/AVP;multicast;client_port=6-7", None),
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
        for destination in ["192.0.2.8", "host.example.org", "", "224.0.0.1"] {
            assert_eq!(chosen(&format!("RTP/AVP;unicast;destination={destination};client_port=5-6")), None);
        }
    }
}
