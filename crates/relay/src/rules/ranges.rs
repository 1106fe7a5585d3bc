//! What is refused by default: addresses that mean something else to this host, or to its network, than to the client.
//!
//! Source: the registries of RFC 6890 (special-purpose addresses), RFC 5771 and RFC 4291 (multicast), and for the forms
//! that carry an IPv4 address the RFCs named beside them.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8), // this host on this network: RFC 1122 §3.2.1.3; Linux takes 0.0.0.0 for itself
    (Ipv4Addr::new(10, 0, 0, 0), 8), // private: RFC 1918
    (Ipv4Addr::new(100, 64, 0, 0), 10), // carrier-grade NAT: RFC 6598
    (Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // Azure's host, from inside a guest: public by number only
    (Ipv4Addr::new(169, 254, 0, 0), 16), // link-local: RFC 3927; 169.254.169.254 is a cloud's metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12), // private
    (Ipv4Addr::new(192, 0, 0, 0), 24), // protocol assignments: RFC 6890
    (Ipv4Addr::new(192, 0, 2, 0), 24), // documentation: RFC 5737
    (Ipv4Addr::new(192, 88, 99, 0), 24), // relays of 6to4: RFC 7526
    (Ipv4Addr::new(192, 168, 0, 0), 16), // private
    (Ipv4Addr::new(198, 18, 0, 0), 15), // benchmarking: RFC 2544
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4), // multicast: RFC 5771
    (Ipv4Addr::new(240, 0, 0, 0), 4), // reserved, and broadcast: RFC 1112 §4, RFC 919
];

const V6: [(Ipv6Addr, u8); 14] = [
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96), // unspecified, loopback, IPv4-compatible: RFC 4291 §2.5
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96), // IPv4-translated: RFC 2765
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48), // NAT64 of one's own network: RFC 8215
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 63), // discard, and its dummy: RFC 6666, RFC 9780
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48), // benchmarking: RFC 5180
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28), // ORCHID: RFC 4843
    (Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0), 28), // ORCHIDv2: RFC 7343
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation: RFC 3849
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation: RFC 9637
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16), // segment routing: RFC 9602
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7), // unique local: RFC 4193
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10), // link-local: RFC 4291 §2.5.6
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10), // site-local: RFC 3879
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8), // multicast: RFC 4291 §2.7
];

/// All of them.
pub(super) fn refused() -> impl Iterator<Item = IpNet> {
    let v4 = V4.iter().map(|&(address, len)| IpNet::V4(Ipv4Net::new_assert(address, len)));
    let v6 = V6.iter().map(|&(address, len)| IpNet::V6(Ipv6Net::new_assert(address, len)));
    v4.chain(v6)
}

/// The IPv4 addresses that an IPv6 address carries: where a packet to it may come out, on a host or in a network that
/// translates or tunnels.
pub(super) fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let [_, _, b2, b3, b4, b5, b6, b7, _, _, _, _, b12, b13, b14, b15] = address.octets();
    let last = Some(Ipv4Addr::new(b12, b13, b14, b15));
    match address.segments() {
        // Unspecified and loopback only look so.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None, None],
        // IPv4-compatible (RFC 4291 §2.5.5.1) and IPv4-translated (RFC 2765 §2.1).
        [0, 0, 0, 0, 0, 0, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => [last, None],
        // NAT64 (RFC 6052 §2.1, RFC 8215). Of the second the length of the prefix is the network's choice; 96 is what is used.
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] | [0x64, 0xff9b, 1, _, _, _, _, _] => [last, None],
        // Teredo (RFC 4380 §4): the server, and the client with its bits inverted.
        [0x2001, 0, _, _, _, _, _, _] => {
            [Some(Ipv4Addr::new(b4, b5, b6, b7)), Some(Ipv4Addr::new(!b12, !b13, !b14, !b15))]
        }
        // 6to4 (RFC 3056 §2), in which ISATAP may lie.
        [0x2002, _, _, _, high, 0x5efe, _, _] if high & !0x200 == 0 => [Some(Ipv4Addr::new(b2, b3, b4, b5)), last],
        [0x2002, ..] => [Some(Ipv4Addr::new(b2, b3, b4, b5)), None],
        // ISATAP (RFC 5214 §6.1), its bit for globally unique addresses set or not.
        [_, _, _, _, high, 0x5efe, _, _] if high & !0x200 == 0 => [last, None],
        _ => [None, None],
    }
}
