//! What settings become.

use std::net::{Ipv4Addr, Ipv6Addr};

use relay::rules::Ports;

use super::*;

fn config(lines: &str) -> Config {
    let mut config = Config::default();
    config.apply_toml("test", &format!("[relay]\n{lines}\n")).expect("valid");
    config
}

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

const HOSTS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V4(Ipv4Addr::new(192, 168, 1, 5)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 5)),
];

#[test]
fn a_relay_that_nobody_could_use_is_none_and_none_that_is_not_asked_for_is_one() {
    check(&Config::default()).expect("there is no relay");
    let wrong = |lines: &str| check(&config(lines)).expect_err(lines).to_string();
    assert!(wrong(r#"listen = ["0.0.0.0:3478"]"#).contains("relay.users or relay.secrets"));
    let users = r#"users = ["alice:secret"]"#;
    let twice = format!("{users}\nlisten = [\"0.0.0.0:3478\", \"0.0.0.0:3478\"]");
    assert!(wrong(&twice).contains("relay.listen: got 0.0.0.0:3478 twice"));
    let mut few = config(&format!("{users}\nlisten = [\"0.0.0.0:3478\"]\nports = \"50000-50005\""));
    few.workers.count = 4;
    assert!(check(&few).expect_err("too few").to_string().contains("relay.ports: 50000-50005 has no two ports"));
    few.workers.count = 3;
    check(&few).expect("two each");
}

#[test]
fn allocations_are_where_it_listens_or_where_clients_find_this_host() {
    let shown = |lines: &str| {
        let addresses = relay_addresses(&config(lines), &HOSTS);
        addresses.iter().map(|it| (it.bind.to_string(), it.shown().to_string())).collect::<Vec<_>>()
    };
    let same = |ip: &str| (ip.to_owned(), ip.to_owned());
    assert_eq!(shown(r#"listen = ["10.0.0.5:3478"]"#), [same("10.0.0.5")]);
    assert_eq!(shown(r#"listen = ["0.0.0.0:3478"]"#), [same("192.168.1.5")]);
    let early = |lines: &str| relay_addresses(&config(lines), &HOSTS[..1]).len();
    assert_eq!([r#"listen = ["0.0.0.0:3478"]"#, r#"listen = ["127.0.0.1:3478"]"#].map(early), [0, 1]);
    assert_eq!(shown(r#"listen = ["[::]:3478", "0.0.0.0:3478"]"#), [same("192.168.1.5"), same("2001:db8::5")]);
    let mapped = r#"listen = ["0.0.0.0:3478"]
        addresses = ["10.0.0.5=203.0.113.7"]"#;
    assert_eq!(shown(mapped), [("10.0.0.5".to_owned(), "203.0.113.7".to_owned())]);
}

#[test]
fn rooms_and_relays_of_one_server_reach_each_other_and_nothing_else_of_it() {
    let config = config(r#"listen = ["0.0.0.0:3478"]"#);
    let (listen, rooms) = ([addr("0.0.0.0:3478")], [addr("0.0.0.0:20000")]);
    let shared = Shared::new(&config, 100, &listen, &HOSTS, &rooms).expect("addresses");
    for (peer, is_allowed) in [
        ("192.168.1.5:20000", true),
        ("127.0.0.1:20000", false),
        ("192.168.1.5:50000", false),
        ("127.0.0.1:50000", false),
        ("192.168.1.5:8080", false),
        ("192.168.1.5:3478", false),
        ("192.168.1.6:20000", false),
        ("9.9.9.9:5000", true),
    ] {
        assert_eq!(shared.settings.rules.allows(addr(peer)), is_allowed, "{peer}");
    }
    let relayed = shared.settings.rules.ports("192.168.1.5".parse().expect("an address"));
    assert_eq!(relayed, Ports::Some, "a relayed address is allowed once it is there");
    for ip in ["127.0.0.1", "127.0.0.2", "::1", "2002:7f00::", "2002:7f00:1::", "::ffff:127.0.0.1", "0.0.0.0"] {
        assert_eq!(shared.settings.rules.ports(ip.parse().expect("an address")), Ports::None, "{ip}");
    }
    let at_loopback = Shared::new(&config, 100, &listen, &HOSTS, &[addr("127.0.0.1:20000")]).expect("addresses");
    assert!(at_loopback.settings.rules.allows(addr("127.0.0.1:20000")), "rooms are there and nowhere else");
}

/// HTTP, its metrics, RTSP, TURN and Redis: who may use the relay does not get there, by UDP or by TCP, at whatever address
/// of the host, and also where a rule allows its networks.
#[test]
fn no_service_of_this_host_is_reached_through_its_relay() {
    let mut config = config(
        r#"listen = ["0.0.0.0:3478"]
        tls_listen = ["0.0.0.0:5349"]
        redis = "redis://:password@10.0.0.9/2"
        allowed_peers = ["10.0.0.0/8", "127.0.0.0/8", "192.168.0.0/16", "2001:db8::/32"]
        tcp_allocations = true"#,
    );
    config.http.listen = addr("0.0.0.0:8080");
    config.http.metrics_listen = Some(addr("192.168.1.5:50001"));
    config.pump.rtsp_listen = Some(addr("[::]:554"));
    let shared = Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[addr("0.0.0.0:20000")]).expect("addresses");
    let rules = shared.rules().clone().renew(HOSTS.to_vec()).expect("others than this host has");
    for service in [
        "192.168.1.5:8080",
        "127.0.0.1:8080",
        "127.5.5.5:8080",
        "192.168.1.5:50001",
        "192.168.1.5:5349",
        "127.0.0.1:3478",
        "[2001:db8::5]:554",
        "[::1]:554",
        "10.0.0.9:6379",
        "192.168.1.5:22",
        "[::ffff:192.168.1.5]:8080",
        "[2002:c0a8:105::]:8080",
        "[64:ff9b::192.168.1.5]:22",
        "[2001:db8::5]:22",
    ] {
        assert!(!rules.allows(addr(service)), "{service}");
    }
    for peer in ["10.0.0.9:6380", "10.0.0.8:6379", "192.168.1.6:8080", "127.0.0.1:5000"] {
        assert!(rules.allows(addr(peer)), "{peer}: the rules say so");
    }
}

#[test]
fn a_rule_for_loopback_opens_it_but_for_where_this_server_listens() {
    let tcp = "tcp_listen = [\"127.0.0.1:3479\"]\ntls_listen = [\"0.0.0.0:5349\"]";
    let config = config(&format!("listen = [\"127.0.0.1:3478\"]\n{tcp}\nallowed_peers = [\"127.0.0.0/8\"]"));
    let shared = Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[]).expect("addresses");
    let allowed = ["127.0.0.1:5000", "127.0.0.1:3478", "127.0.0.1:8080", "127.9.9.9:8080"]
        .map(|peer| shared.settings.rules.allows(addr(peer)));
    assert_eq!(allowed, [true, false, false, true], "HTTP is at 127.0.0.1:8080");
    for peer in ["127.0.0.1:3479", "127.0.0.1:5349"] {
        assert!(!shared.settings.rules.allows(addr(peer)), "{peer}");
    }
}

#[test]
fn an_address_that_the_host_gets_later_is_refused_from_then_on() {
    let config = config(r#"listen = ["0.0.0.0:3478"]"#);
    let shared = Shared::new(&config, 100, &[addr("0.0.0.0:3478")], &HOSTS, &[]).expect("addresses");
    let mut source = shared.rules().clone();
    let (ssh, elsewhere) = (addr("9.9.9.9:22"), addr("9.9.9.8:22"));
    assert!(shared.settings.rules.allows(ssh));
    let later: Vec<IpAddr> = vec![ssh.ip()];
    let rules = source.renew(later.clone()).expect("others");
    assert!(!rules.allows(ssh) && rules.allows(elsewhere) && !rules.allows(addr("9.9.9.9:50000")));
    assert!(source.renew(later).is_none(), "nothing has changed");
    assert!(source.renew(Vec::new()).expect("others").allows(ssh));
}

#[test]
fn addresses_that_nobody_may_reach_anyway_make_no_other_rules() {
    let shared = |lines: &str| {
        let config = config(&format!("listen = [\"0.0.0.0:3478\"]\n{lines}"));
        Shared::new(&config, 100, &[addr("0.0.0.0:3478")], &HOSTS, &[]).expect("addresses")
    };
    let later = || ["127.0.0.1", "fe80::42:1", "172.17.0.1", "::1"].map(|ip| ip.parse().expect("an address")).to_vec();
    let mut source = shared("").rules().clone();
    source.renew(Vec::new());
    assert!(source.renew(later()).is_none());
    let mut source = shared("allowed_peers = [\"172.16.0.0/12\"]").rules().clone();
    source.renew(Vec::new());
    let rules = source.renew(later()).expect("one of them could be reached");
    assert!(!rules.allows(addr("172.17.0.1:22")) && rules.allows(addr("172.17.0.2:22")));
}

#[test]
fn other_lists_hold_beside_what_is_this_servers_own_and_for_the_hosts_addresses() {
    let with = |lines: &str| config(&format!("listen = [\"0.0.0.0:3478\"]\n{lines}"));
    let shared =
        Shared::new(&with(""), 100, &[addr("0.0.0.0:3478")], &HOSTS, &[addr("0.0.0.0:20000")]).expect("addresses");
    let mut source = shared.rules().clone();
    source.renew(vec![HOSTS[1], "172.17.0.1".parse().expect("an address")]);
    assert!(source.change(&with("").relay).is_none(), "nothing has changed");
    let lists = with("allowed_peers = [\"172.16.0.0/12\"]\ndenied_peers = [\"9.9.9.0/24\"]").relay;
    let rules = source.change(&lists).expect("others");
    let allowed = ["172.17.0.2:5000", "9.9.8.9:5000", "192.168.1.5:20000"];
    assert!(allowed.iter().all(|peer| rules.allows(addr(peer))));
    assert!(!rules.allows(addr("9.9.9.9:5000")) && !rules.allows(addr("172.17.0.1:22")), "the host has it");
    assert!(source.change(&lists).is_none());
    let rules = source.change(&with("").relay).expect("as before");
    assert!(rules.allows(addr("9.9.9.9:5000")) && !rules.allows(addr("172.17.0.2:5000")));
}

#[test]
fn clients_are_told_where_the_relay_is_from_outside() {
    let uris = |lines: &str| {
        let config = config(&format!("secrets = [\"a secret of some length\"]\n{lines}"));
        let shared = Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[]).expect("addresses");
        shared.issuer(&config).expect("a secret").make("alice", None, std::time::Duration::ZERO).uris
    };
    let wildcards = r#"listen = ["0.0.0.0:3478", "[::]:3478"]"#;
    assert_eq!(uris(wildcards), ["turn:192.168.1.5:3478?transport=udp", "turn:[2001:db8::5]:3478?transport=udp"]);
    let mapped = "listen = [\"10.0.0.5:3478\"]\naddresses = [\"10.0.0.5=203.0.113.7\"]";
    assert_eq!(uris(mapped), ["turn:203.0.113.7:3478?transport=udp"]);
    let all = "listen = [\"0.0.0.0:3478\"]\ntcp_listen = [\"0.0.0.0:3478\"]\ntls_listen = [\"192.168.1.5:443\", \"[::]:443\"]";
    let expected = ["turn:192.168.1.5:3478?transport=udp", "turn:192.168.1.5:3478?transport=tcp"];
    assert_eq!(uris(all), [&expected[..], &["turns:192.168.1.5:443?transport=tcp"]].concat());
    let named = "listen = [\"10.0.0.5:3478\"]\nuris = [\"turn:turn.example.org:3478\"]";
    assert_eq!(uris(named), ["turn:turn.example.org:3478"]);
}

#[test]
fn clients_by_dtls_have_sockets_of_their_own_behind_the_others() {
    let by = |listen: &str, dtls: &str| {
        let mut config = config(&format!("users = [\"a:b\"]\nlisten = [{listen}]\ndtls_listen = [{dtls}]"));
        config.tls.self_signed = true;
        config
    };
    let mut config = by(r#""192.0.2.1:3478""#, r#""192.0.2.1:5349""#);
    check(&config).expect("another port");
    let sockets = listen(&config);
    let shared = Shared::new(&config, 100, &sockets, &HOSTS, &[]).expect("addresses");
    let [udp, dtls] = [ClientTransport::Udp, ClientTransport::Dtls].map(|by| shared.listen(by).collect::<Vec<_>>());
    assert_eq!((udp, dtls), (vec![addr("192.0.2.1:3478")], vec![addr("192.0.2.1:5349")]));
    assert!(!shared.settings.rules.allows(addr("192.0.2.1:5349")), "it is this server's own");
    config.tls.self_signed = false;
    assert!(check(&config).expect_err("no certificate").to_string().starts_with("relay.dtls_listen: DTLS needs tls."));
    let twice = by(r#""192.0.2.1:3478""#, r#""192.0.2.1:3478""#);
    assert!(check(&twice).expect_err("twice").to_string().starts_with("relay.dtls_listen: got 192.0.2.1:3478 twice"));
    let alone = by("", r#""192.0.2.1:5349""#);
    assert!(check(&alone).expect_err("alone").to_string().ends_with("there is no relay without relay.listen"));
    assert!(listen(&alone).is_empty());
}

#[test]
fn limits_and_dials_reach_every_worker() {
    let lines = "listen = [\"127.0.0.1:0\"]\nstrict_expiry = true\nconnections_max = 17\nstrangers_per_source = 18\n\
                 peer_connections_max = 19";
    let config = config(lines);
    let shared = Shared::new(&config, 100, &config.relay.listen, &HOSTS, &[]).expect("addresses");
    let worker = shared.settings(&config, WorkerId(1), 2).expect("ports");
    let counts = [worker.connections_max, worker.strangers_per_source_max, worker.peer_connections_of_all_max];
    assert!(counts == [17, 18, 19] && worker.auth.strict_expiry, "{counts:?}");
}

#[test]
fn discovery_has_four_addresses_and_none_twice() {
    let second = |listen: &str, second: &str| {
        config(&format!("users = [\"a:b\"]\nlisten = [{listen}]\nsecond_address = \"{second}\""))
    };
    let good = second(r#""192.0.2.1:3478", "192.0.2.1:3479""#, "192.0.2.2:3479");
    check(&good).expect("another address and port");
    let expected = ["192.0.2.1:3478", "192.0.2.1:3479", "192.0.2.2:3478", "192.0.2.2:3479"].map(addr);
    assert_eq!(listen(&good), expected);
    for (first, other) in [
        (r#""0.0.0.0:3478""#, "192.0.2.2:3479"),
        (r#""192.0.2.1:3478""#, "192.0.2.1:3479"),
        (r#""192.0.2.1:3478""#, "192.0.2.2:3478"),
        (r#""192.0.2.1:3478""#, "[2001:db8::1]:3479"),
        (r#""192.0.2.1:0""#, "192.0.2.2:3479"),
    ] {
        let error = check(&second(first, other)).expect_err(other).to_string();
        assert!(error.starts_with("relay.second_address: got "), "{error}");
    }
    let mut behind_nat = good;
    behind_nat.apply_toml("test", "[relay]\naddresses = [\"192.0.2.2=203.0.113.2\"]").expect("valid");
    let error = check(&behind_nat).expect_err("clients do not reach it").to_string();
    assert!(error.starts_with("relay.second_address: 192.0.2.2 is behind a NAT"), "{error}");
}

#[test]
fn allocations_leave_half_of_the_open_files_to_others() {
    let config = config("listen = [\"127.0.0.1:0\"]\nallocations_max = 10000");
    assert_eq!([1_024, 20_000, u64::MAX].map(|files| allocations_max(&config, files)), [512, 10_000, 10_000]);
    assert_eq!(allocations_max(&Config::default(), 1_024), 0, "there is no relay");
}

#[test]
fn an_address_that_this_machine_lacks_is_named_with_its_setting() {
    let config = |address: &str| config(&format!("listen = [\"127.0.0.1:0\"]\naddresses = [\"{address}\"]"));
    probe(&config("127.0.0.1=203.0.113.7")).expect("loopback is here");
    let error = probe(&config("192.0.2.77")).expect_err("nobody has it").to_string();
    assert!(error.starts_with("relay.addresses[0]: allocations cannot be had at 192.0.2.77"), "{error}");
}

#[test]
fn connections_of_clients_leave_three_quarters_of_the_open_files_to_others() {
    let udp = config("listen = [\"127.0.0.1:0\"]");
    assert_eq!(connections_max(&udp, 1_024), 0);
    let tcp = config("listen = [\"127.0.0.1:0\"]\ntcp_listen = [\"127.0.0.1:0\"]");
    let max = connections_max(&tcp, 1_024);
    assert_eq!(max, 256);
    let each = |max| {
        let shared = Shared::new(&tcp, 100, &tcp.relay.listen, &HOSTS, &[]).expect("addresses").with_connections(max);
        (shared.settings.connections_max, shared.settings.associations_max)
    };
    assert_eq!([0, max / 2, 1 << 20].map(each), [(0, 20_000), (128, 20_000), (20_000, 20_000)], "DTLS takes no files");
}

#[test]
fn an_address_that_somebody_has_is_not_shared_with_him() {
    // No other test is on this host.
    let taken = std::net::UdpSocket::bind("127.77.6.1:0").expect("a socket").local_addr().expect("bound");
    claim(&Config::default(), &[taken]).expect("it is free again");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let error = claim(&Config::default(), &[socket.local_addr().expect("bound")]).expect_err("it is taken");
    assert!(error.to_string().starts_with("relay.listen 127.0.0.1:"), "{error}");
}
