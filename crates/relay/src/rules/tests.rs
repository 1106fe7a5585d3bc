//! What attackers did to other relays, and what operators write.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

/// As an operator writes them.
fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    rules_of(allow, deny, &Own::default())
}

fn rules_of(allow: &[&str], deny: &[&str], own: &Own) -> Rules {
    let parse = |lines: &[&str]| lines.iter().map(|line| line.parse().expect("a line")).collect();
    Rules::new(&Lists { allow: parse(allow), deny: parse(deny) }, own)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn at(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip(text), port)
}

/// All ways to write an IPv4 address into an IPv6 address.
fn forms_of(v4: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b] =
        [u16::from_be_bytes([v4.octets()[0], v4.octets()[1]]), u16::from_be_bytes([v4.octets()[2], v4.octets()[3]])];
    let public = [0x0808, 0x0808];
    vec![
        v4.to_ipv6_mapped(),
        Ipv6Addr::new(0, 0, 0, 0, 0, 0, a, b),
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, a, b),
        Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2002, public[0], public[1], 0, 0, 0x5efe, a, b),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
        Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, a, b),
        Ipv6Addr::new(0x2001, 0, public[0], public[1], 0, 0, !a, !b),
        Ipv6Addr::new(0x2001, 0, a, b, 0, 0, !public[0], !public[1]),
        Ipv6Addr::new(0x2a00, 1, 2, 3, 0, 0x5efe, a, b),
        Ipv6Addr::new(0x2a00, 1, 2, 3, 0x200, 0x5efe, a, b),
    ]
}

#[test]
fn a_public_address_is_allowed() {
    let rules = rules(&[], &[]);
    for peer in ["8.8.8.8", "1.1.1.1", "2a00:1450::1", "64:ff9b::8.8.8.8", "2002:808:808::1", "::ffff:8.8.8.8"] {
        assert!(rules.allows(at(peer, 1)), "{peer}");
        assert_eq!(rules.ports(ip(peer)), Ports::All, "{peer}");
    }
}

#[test]
fn loopback_and_the_unspecified_address_are_refused_cve_2018_4058_cve_2020_26262() {
    let rules = rules(&[], &[]);
    for peer in ["127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "::1", "::"] {
        assert!(!rules.allows(at(peer, 80)), "{peer}");
        assert_eq!(rules.ports(ip(peer)), Ports::None, "{peer}");
    }
}

#[test]
fn no_form_of_a_refused_address_is_allowed_cve_2026_27624_cve_2026_53450() {
    let rules = rules(&[], &[]);
    for refused in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "192.168.1.1", "100.64.0.1", "224.0.0.1"] {
        for form in forms_of(refused.parse().expect("IPv4")) {
            assert!(!rules.allows(SocketAddr::new(form.into(), 80)), "{form} carries {refused}");
            assert_eq!(rules.ports(form.into()), Ports::None, "{form} carries {refused}");
        }
    }
}

#[test]
fn what_an_operator_denies_is_denied_in_every_form() {
    let rules = rules(&[], &["9.9.9.0/24"]);
    for form in forms_of(Ipv4Addr::new(9, 9, 9, 9)) {
        assert!(!rules.allows(SocketAddr::new(form.into(), 80)), "{form}");
    }
    assert!(rules.allows(at("9.9.8.9", 80)));
}

#[test]
fn a_denial_written_as_mapped_addresses_is_one_of_ipv4_addresses() {
    let rules = rules(&[], &["::ffff:9.9.9.0/120"]);
    assert!(!rules.allows(at("9.9.9.9", 80)));
    assert!(!rules.allows(at("::ffff:9.9.9.9", 80)));
}

#[test]
fn addresses_with_a_special_meaning_are_refused() {
    let rules = rules(&[], &[]);
    let refused = [
        "10.255.255.255",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.255.255",
        "100.127.255.255",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "192.0.2.1",
        "198.51.100.1",
        "203.0.113.1",
        "198.19.255.255",
        "192.88.99.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "feff::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "3fff::1",
        "2001:2::1",
        "100::1",
        "64:ff9b:1::8.8.8.8",
        "5f00::1",
    ];
    for peer in refused {
        assert!(!rules.allows(at(peer, 80)), "{peer}");
    }
    // Their neighbours are somebody's.
    for peer in
        ["9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0", "223.0.0.1"]
    {
        assert!(rules.allows(at(peer, 80)), "{peer}");
    }
}

#[test]
fn port_0_is_refused_whatever_a_rule_says() {
    assert!(!rules(&["8.8.8.8:0-10", "0.0.0.0/0"], &[]).allows(at("8.8.8.8", 0)));
}

#[test]
fn a_refused_network_is_opened_by_a_rule_for_it_or_for_a_part_and_not_by_one_for_everything() {
    assert!(!rules(&["0.0.0.0/0", "::/0"], &[]).allows(at("10.1.2.3", 80)));
    assert!(rules(&["10.0.0.0/8"], &[]).allows(at("10.1.2.3", 80)));
    let part = rules(&["10.1.0.0/16:5000-5999"], &[]);
    assert!(part.allows(at("10.1.2.3", 5_000)) && part.allows(at("10.1.2.3", 5_999)));
    assert!(!part.allows(at("10.1.2.3", 6_000)) && !part.allows(at("10.2.2.3", 5_000)));
    assert_eq!(part.ports(ip("10.1.2.3")), Ports::Some);
    assert_eq!(part.ports(ip("10.2.2.3")), Ports::None);
}

#[test]
fn the_longest_prefix_decides_then_the_fewest_ports_then_a_denial() {
    let rules = rules(
        &["0.0.0.0/0:443", "9.1.0.0/16", "9.1.1.1:53", "9.2.0.0/16"],
        &["0.0.0.0/0", "9.1.1.0/24", "9.1.1.1", "9.2.0.0/16"],
    );
    assert!(!rules.allows(at("9.9.9.9", 80)));
    assert!(rules.allows(at("9.9.9.9", 443)), "fewer ports");
    assert!(rules.allows(at("9.1.2.3", 80)), "longer prefix");
    assert!(!rules.allows(at("9.1.1.2", 80)), "longer still");
    assert!(rules.allows(at("9.1.1.1", 53)), "fewer ports");
    assert!(!rules.allows(at("9.2.0.1", 80)), "a tie");
}

fn own() -> Own {
    Own {
        addresses: vec![ip("9.0.0.1"), ip("10.0.0.5"), ip("2a00::5")],
        sockets: vec![at("0.0.0.0", 3_478), at("9.0.0.1", 50_001), at("::", 9_090)],
        ..Own::default()
    }
}

#[test]
fn the_server_itself_is_refused_but_for_what_a_rule_names() {
    let relayed = ["9.0.0.1:49152-59999", "9.0.0.1:7000", "[2a00::5]:49152-59999", "[2a00::5]:7000"];
    let rules = rules_of(&relayed, &[], &own());
    for port in [22, 80, 3_478, 6_999, 7_001, 9_090, 49_151, 60_000, 65_535] {
        assert!(!rules.allows(at("9.0.0.1", port)) && !rules.allows(at("2a00::5", port)), "{port}");
        assert!(!rules.allows(at("::ffff:9.0.0.1", port)) && !rules.allows(at("2002:900:1::", port)), "{port}");
    }
    for port in [7_000, 49_152, 49_999, 50_000, 59_999] {
        assert!(rules.allows(at("9.0.0.1", port)) && rules.allows(at("2a00::5", port)), "{port}");
    }
    assert!(!rules.allows(at("9.0.0.1", 50_001)), "something else listens among the relayed ports");
    assert!(!rules.allows(at("10.0.0.5", 50_000)), "private, and the server's own");
    assert_eq!(rules.ports(ip("9.0.0.1")), Ports::Some);
}

#[test]
fn a_rule_for_the_server_s_address_opens_it_but_for_where_it_listens() {
    let rules = rules_of(&["9.0.0.1", "10.0.0.0/8", "127.0.0.0/8", "::1"], &[], &own());
    assert!(rules.allows(at("9.0.0.1", 22)));
    assert!(!rules.allows(at("9.0.0.1", 3_478)));
    assert!(!rules.allows(at("10.0.0.5", 22)), "the network's rule is less specific than the server's address");
    assert!(!rules.allows(at("10.0.0.5", 50_000)) && rules.allows(at("10.0.0.6", 22)));
    assert!(
        rules.allows(at("127.0.0.1", 22))
            && !rules.allows(at("127.0.0.1", 3_478))
            && !rules.allows(at("127.9.9.9", 9_090))
    );
    assert!(rules.allows(at("::1", 22)) && !rules.allows(at("::1", 9_090)));
    assert!(rules_of(&["9.0.0.1:3478"], &[], &Own { sockets: vec![], ..own() }).allows(at("9.0.0.1", 3_478)));
}

#[test]
fn the_ports_of_relayed_addresses_are_allowed_while_these_are_there() {
    let relayed = ["9.0.0.1:50000-50999", "[2a00::5]:50000-50999"].map(|line| line.parse().expect("a line"));
    let own = Own { relayed: relayed.into(), ..own() };
    let rules = rules_of(&[], &[], &own);
    let allowed = |rules: &Rules| {
        let peers = [at("9.0.0.1", 50_002), at("9.0.0.1", 50_004), at("2a00::5", 50_002), at("9.0.0.1", 50_001)];
        peers.map(|peer| (rules.allows(peer), rules.allows_by_tcp(peer)))
    };
    assert_eq!(allowed(&rules), [(false, false); 4]);
    own.opened.set(at("9.0.0.1", 50_002), false, true);
    own.opened.set(at("9.0.0.1", 50_004), true, true);
    own.opened.set(at("9.0.0.1", 50_001), false, true);
    assert_eq!(allowed(&rules), [(true, false), (false, true), (false, false), (false, false)]);
    own.opened.set(at("9.0.0.1", 50_002), false, false);
    assert_eq!(allowed(&rules)[0], (false, false));
    assert_eq!((rules.ports(ip("9.0.0.1")), rules.ports(ip("9.0.0.2"))), (Ports::Some, Ports::All));
}

/// A permission is for an address: where all of its ports are refused, in one rule or in many, there is none.
#[test]
fn an_address_of_which_no_port_is_allowed_is_none_to_be_permitted() {
    let rules = rules_of(&["9.7.0.0/16:80", "9.8.0.0/16"], &["9.7.0.0/16:1-79", "9.7.0.0/16:81-65535"], &own());
    for peer in ["127.0.0.1", "::1", "2002:7f00::", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "10.0.0.5", "9.0.0.1"] {
        assert_eq!(rules.ports(ip(peer)), Ports::None, "{peer}");
    }
    assert_eq!((rules.ports(ip("9.7.0.1")), rules.ports(ip("9.8.0.1"))), (Ports::Some, Ports::All));
    let closed = rules_of(&[], &["9.7.0.0/16:1-79", "9.7.0.0/16:80-65535"], &own());
    assert_eq!(closed.ports(ip("9.7.0.1")), Ports::None);
}

#[test]
fn lines_are_read_as_they_are_written() {
    let line = |text: &str| text.parse::<Peers>();
    let peers = |addresses: &str, ports| Ok(Peers { addresses: addresses.parse().expect("a prefix"), ports });
    assert_eq!(line("10.0.0.0/8"), peers("10.0.0.0/8", 0..=65_535));
    assert_eq!(line("10.0.0.1"), peers("10.0.0.1/32", 0..=65_535));
    assert_eq!(line("10.0.0.0/8:53"), peers("10.0.0.0/8", 53..=53));
    assert_eq!(line("192.0.2.7:5000-5999"), peers("192.0.2.7/32", 5_000..=5_999));
    assert_eq!(line("fd00::/8"), peers("fd00::/8", 0..=65_535));
    assert_eq!(line("[fd00::/8]"), peers("fd00::/8", 0..=65_535));
    assert_eq!(line("[fd00::1]:5000-5999"), peers("fd00::1/128", 5_000..=5_999));
    assert_eq!(line("::1"), peers("::1/128", 0..=65_535));
    for wrong in
        ["", "10.0.0.0/33", "10.0.0.0:x", "10.0.0.1:2-1", "10.0.0.1:70000", "[::1", "[::1]5", "[::1]:", "host:5"]
    {
        assert!(line(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_prefix_off_its_boundary_is_no_line() {
    let error = "10.0.0.5/8".parse::<Peers>().expect_err("bits behind the prefix");
    assert_eq!(error.to_string(), "10.0.0.5/8 is no prefix: its first address is 10.0.0.0/8");
}

/// A rule among few addresses and ports, so that rules meet.
fn line() -> impl Strategy<Value = Peers> {
    let prefix = (0_u8..8, 0_u8..4, 24_u8..=32)
        .prop_map(|(last, third, len)| IpNet::from(Ipv4Net::new_assert(Ipv4Addr::new(9, 9, third, last), len)).trunc());
    let ports = prop_oneof![Just(ALL_PORTS), (1_u16..6, 0_u16..3).prop_map(|(first, more)| first..=first + more)];
    (prefix, ports).prop_map(|(addresses, ports)| Peers::new(addresses, ports).expect("on its boundary"))
}

proptest! {
    #[test]
    fn the_most_specific_rule_decides(
        allow in prop::collection::vec(line(), 0..6),
        deny in prop::collection::vec(line(), 0..6),
        (third, last, port) in (0_u8..4, 0_u8..8, 1_u16..9),
    ) {
        let peer = at(&format!("9.9.{third}.{last}"), port);
        let fits = |peers: &&Peers| peers.addresses.contains(&peer.ip()) && peers.ports.contains(&port);
        let rank = |peers: &Peers| (peers.addresses.prefix_len(), Reverse(peers.ports.len()));
        let (best_allow, best_deny) = (allow.iter().filter(fits).map(rank).max(), deny.iter().filter(fits).map(rank).max());
        let expected = best_deny.is_none() || best_allow > best_deny;
        let rules = Rules::new(&Lists { allow, deny }, &Own::default());
        prop_assert_eq!(rules.allows(peer), expected);
        let allowed = (1..=20).chain([u16::MAX]).map(|port| rules.allows(SocketAddr::new(peer.ip(), port)));
        let ports = match allowed.fold((true, false), |(all, any), allowed| (all && allowed, any || allowed)) {
            (true, _) => Ports::All,
            (_, any) => if any { Ports::Some } else { Ports::None },
        };
        prop_assert_eq!(rules.ports(peer.ip()), ports);
    }

    #[test]
    fn no_form_passes_where_the_address_does_not(v4 in any::<u32>(), port in 1..=u16::MAX) {
        let (rules, v4) = (rules(&[], &["9.0.0.0/8:1-40000"]), Ipv4Addr::from(v4));
        let plain = rules.allows(SocketAddr::new(v4.into(), port));
        for form in forms_of(v4) {
            let allowed = rules.allows(SocketAddr::new(form.into(), port));
            prop_assert!(plain || !allowed, "{}", form);
        }
        prop_assert_eq!(rules.allows(SocketAddr::new(v4.to_ipv6_mapped().into(), port)), plain);
    }
}
