use std::net::SocketAddr;

use proptest::prelude::*;
use relay::rules::{Lists, Own, Rules};

use super::*;
use crate::config::{self, Config};

/// What ours has after it.
fn relay(text: &str) -> (config::Relay, Vec<Note>) {
    let Imported { toml, notes } = import(text);
    let mut config = Config::default();
    if let Err(error) = config.apply_toml("imported", &toml) {
        panic!("{error}\n{toml}");
    }
    (config.relay, notes)
}

fn said<'a>(notes: &'a [Note], option: &str) -> &'a str {
    notes.iter().find(|note| note.option == option).map_or("", |note| &note.says)
}

#[test]
fn what_most_have_becomes_the_same() {
    let (relay, notes) = relay(
        "# a comment
        listening-ip=10.0.0.5
        listening-port 3479
        external-ip=203.0.113.7/10.0.0.5
        min-port=50000
        max-port=50999
        fingerprint
        use-auth-secret
        static-auth-secret=0123456789abcdef
        static-auth-secret = \"fedcba9876543210\"
        realm=example.org
        user-quota=12
        total-quota=1200
        max-bps=125000
        stale-nonce=300
        denied-peer-ip=10.0.0.0-10.255.255.255
        allowed-peer-ip=10.1.0.0-10.1.255.255
        no-multicast-peers
        no-cli
        ",
    );
    assert_eq!(relay.listen, ["10.0.0.5:3479".parse::<SocketAddr>().expect("an address")]);
    assert_eq!(relay.addresses.len(), 1);
    assert_eq!(
        (relay.addresses[0].bind.to_string(), relay.addresses[0].external.to_string()),
        ("10.0.0.5".into(), "203.0.113.7".into())
    );
    assert_eq!((relay.ports.first, relay.ports.last), (50_000, 50_999));
    assert_eq!(
        relay.secrets.iter().map(|secret| &*secret.0).collect::<Vec<_>>(),
        ["0123456789abcdef", "fedcba9876543210"]
    );
    assert_eq!((&*relay.realm, relay.allocations_per_user, relay.allocations_max), ("example.org", 12, 1_200));
    assert_eq!(relay.bandwidth_per_user.map(|rate| rate.bps()), Some(1_000_000));
    assert_eq!(relay.nonce_age.as_secs(), 300);
    assert_eq!(relay.allowed_peers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.1.0.0/16"]);
    assert_eq!(relay.denied_peers.len(), 8, "10.0.0.0/8 without 10.1.0.0/16");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(said(&notes, "max-bps").contains("all of a user"));
}

#[test]
fn users_and_their_keys_are_taken_as_they_are() {
    let key = format!("0x{}", "0f".repeat(16));
    let (relay, _) = relay(&format!("realm=r\nlt-cred-mech\nuser=ada:love lace=\nuser = \"bob:{key}\"\n"));
    assert_eq!(relay.users.len(), 2);
    assert!(relay.users[0].name == "ada" && relay.users[0].secret == config::UserSecret::Password("love lace=".into()));
    assert!(relay.users[1].name == "bob" && relay.users[1].secret == config::UserSecret::Md5([15; 16]));
}

#[test]
fn who_listens_everywhere_does_so_here() {
    let (relay, notes) = relay("realm=r\nuser=a:b\naux-server=[2001:db8::1]:33478\nexternal-ip=203.0.113.7\n");
    let listen: Vec<String> = relay.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["0.0.0.0:3478", "[::]:3478", "[2001:db8::1]:33478"]);
    assert!(said(&notes, "external-ip").contains("ADDRESS=203.0.113.7"));
    assert!(said(&notes, "allowed-peer-ip").contains("private networks"));
}

#[test]
fn clients_connect_where_they_did() {
    let addresses = |listen: &[SocketAddr]| listen.iter().map(ToString::to_string).collect::<Vec<_>>();
    let both = "realm=r\nuser=a:b\nlistening-ip=192.0.2.1\nlistening-ip=2001:db8::1\n";
    let files = "cert=/etc/cert.pem\npkey=/etc/key.pem\ntls-listening-port=443\n";
    let (all, notes) = relay(&format!("{both}{files}"));
    assert_eq!(addresses(&all.listen), ["192.0.2.1:3478", "[2001:db8::1]:3478"]);
    assert_eq!(
        (&all.tcp_listen, addresses(&all.tls_listen)),
        (&all.listen, vec!["192.0.2.1:443".to_owned(), "[2001:db8::1]:443".to_owned()])
    );
    assert!(all.tcp_allocations && notes.iter().all(|note| note.line.is_none()), "{notes:?}");
    let (some, notes) = relay(&format!("{both}{files}no-tcp\nno-tls\nno-tcp-relay\nno-udp\n"));
    assert!(some.tcp_listen.is_empty() && some.tls_listen.is_empty() && !some.tcp_allocations);
    assert!(some.listen.len() == 2 && said(&notes, "no-udp").contains("always come by UDP"));
    assert!(relay(both).0.tls_listen.is_empty(), "there is no certificate");
}

#[test]
fn discovery_and_families_are_as_they_were() {
    let two = "realm=r\nuser=a:b\nlistening-ip=192.0.2.1\nlistening-ip=2001:db8::1\nlistening-ip=192.0.2.2\n";
    let second = |more: &str| relay(&format!("{two}{more}")).0.second_address.map(|addr| addr.to_string());
    assert_eq!(second("rfc5780\n").as_deref(), Some("192.0.2.2:3479"));
    assert_eq!(second("rfc5780\nalt-listening-port=3500\n").as_deref(), Some("192.0.2.2:3500"));
    assert_eq!((second(""), second("rfc5780\nno-rfc5780\n"), second("alt-listening-port=3500\n")), (None, None, None));
    let (one, notes) = relay("realm=r\nuser=a:b\nrfc5780\n");
    assert!(one.second_address.is_none() && said(&notes, "rfc5780").contains("relay.second_address"));
    let keeps = |line: &str| relay(&format!("realm=r\nuser=a:b\n{line}\n")).0.keep_family;
    let lines =
        ["keep-address-family", "allocation-default-address-family=keep", "allocation-default-address-family=ipv4", ""];
    assert_eq!(lines.map(keeps), [true, true, false, false]);
}

#[test]
fn a_redis_is_the_same_redis() {
    let line = "redis-userdb=\"ip=10.0.0.9 dbname=2 password=p@ss/word port=6380 connect_timeout=30\"";
    let (relay, _) = relay(&format!("realm=r\n{line}\n"));
    assert_eq!(relay.redis.map(|url| url.0).as_deref(), Some("redis://:p%40ss%2Fword@10.0.0.9:6380/2"));
}

#[test]
fn what_has_no_counterpart_is_said_with_its_line_and_without_secrets() {
    let text =
        "realm=r\nuser=a:b\nmobility\nno-dtls\ncli-password=hush\nstatic-auth-secret=hush\nnonsense=1\nverbose=off\n";
    let (relay, notes) = relay(text);
    assert!(relay.secrets.is_empty());
    let lines: Vec<_> = notes.iter().filter_map(|note| Some((note.line?, note.option.as_str()))).collect();
    assert_eq!(lines, [(3, "mobility"), (5, "cli-password"), (6, "static-auth-secret"), (7, "nonsense")]);
    assert!(!format!("{notes:?}").contains("hush"));
    assert!(said(&notes, "static-auth-secret").contains("got 4 bytes; allowed: 16 bytes or more"));
}

#[test]
fn dtls_is_spoken_of_where_coturn_speaks_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let files = format!("realm=r\nuser=a:b\ncert={0}/a\npkey={0}/b\n", dir.path().display());
    let speaks = |text: &str| relay(text).1.iter().any(|note| note.option == "dtls");
    assert_eq!([&files, &format!("{files}no-dtls\n"), "realm=r\nuser=a:b\n"].map(speaks), [true, false, false]);
}

#[test]
fn nobody_relays_without_credentials() {
    let (_, notes) = relay("no-auth\n");
    assert!(said(&notes, "no-auth").contains("nobody relays"));
    assert!(said(&notes, "user").contains("nobody in this file") && said(&notes, "realm").contains("domain"));
}

proptest! {
    #[test]
    fn no_file_makes_ours_none(lines in prop::collection::vec(line(), 0..12)) {
        relay(&lines.join("\n"));
    }

    #[test]
    fn ranges_mean_the_same(
        allowed in prop::collection::vec((0_u8..40, 0_u8..20), 0..4),
        denied in prop::collection::vec((0_u8..40, 0_u8..20), 0..4),
        peer in 0_u8..64,
    ) {
        let lines = |option: &str, ranges: &[(u8, u8)]| -> String {
            let line = |(from, count): &(u8, u8)| format!("{option}=9.0.0.{from}-9.0.0.{}\n", from + count);
            ranges.iter().map(line).collect()
        };
        let fits = |ranges: &[(u8, u8)]| ranges.iter().any(|(from, count)| (*from..=from + count).contains(&peer));
        let expected = fits(&allowed) || !fits(&denied);
        let text = lines("allowed-peer-ip", &allowed) + &lines("denied-peer-ip", &denied);
        let (relay, _) = relay(&text);
        let rules = Rules::new(&Lists { allow: relay.allowed_peers, deny: relay.denied_peers }, &Own::default());
        prop_assert_eq!(rules.allows(([9, 0, 0, peer], 80).into()), expected);
    }
}

/// Lines that somebody might write.
fn line() -> impl Strategy<Value = String> {
    let option = prop::sample::select(vec![
        "listening-ip",
        "listening-port",
        "external-ip",
        "relay-ip",
        "aux-server",
        "min-port",
        "max-port",
        "realm",
        "user",
        "static-auth-secret",
        "redis-userdb",
        "user-quota",
        "total-quota",
        "max-bps",
        "bps-capacity",
        "stale-nonce",
        "max-allocate-lifetime",
        "alternate-server",
        "cpus",
        "prometheus",
        "prometheus-port",
        "denied-peer-ip",
        "allowed-peer-ip",
        "allow-loopback-peers",
        "no-udp",
        "no-tcp",
        "no-tcp-relay",
        "tls-listening-port",
        "alt-listening-port",
        "rfc5780",
        "keep-address-family",
        "cert",
        "pkey",
    ]);
    let value = prop_oneof![
        Just(String::new()),
        "[0-9]{1,12}",
        "[a-z:/=\" .\\\\-]{0,20}",
        "[0-9]{1,3}\\.0\\.0\\.[0-9]{1,3}(-9\\.9\\.9\\.9)?",
        prop::sample::select(vec!["::1", "0.0.0.0", "2001:db8::1", "9.0.0.1/10.0.0.1", "a:b", "[::1]:5"])
            .prop_map(str::to_owned),
    ];
    (option, value).prop_map(|(option, value)| format!("{option}={value}"))
}
