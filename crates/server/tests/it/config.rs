//! Settings: what is read, what goes before what, and what a wrong one is answered with.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use server::config::{Config, IceServer, Origin, Secret};
use wire::Bitrate;

#[test]
fn the_reference_reads_back_as_the_default() {
    let mut config = Config::default();
    config.rooms.idle_timeout = Duration::from_secs(77);

    config.apply_toml("reference", &Config::reference()).expect("the reference is valid");

    assert_eq!(config, Config::default());
}

#[test]
fn what_is_in_effect_prints_as_toml_that_reads_back() {
    let mut config = Config::default();
    config.rooms.estimate_start = Bitrate::from_kbps(1_234);
    config.rooms.estimate_max = Bitrate::from_bps(2_000_001);
    config.rtc.public_addresses = vec!["2001:db8::1".parse().expect("an address")];

    let mut again = Config::default();
    again.apply_toml("printed", &config.to_string()).expect("what is printed is valid");

    assert_eq!(again, config);
}

#[test]
fn every_kind_of_value_is_read() {
    let mut config = Config::default();
    let text = r#"
        [http]
        listen = "[::1]:9000"
        cors_origins = ["https://example.org", "http://localhost:3000"]
        [auth]
        issuer = "https://issuer.example"
        [workers]
        count = 4
        pin = true
        [rtc]
        ice_servers = ["stun:stun.example.org:3478", "turn:turn.example.org?transport=udp me secret"]
        [rooms]
        idle_timeout = "1.5m"
        estimate_max = "2.5Mbps"
        resend_share = 1
    "#;
    config.apply_toml("test.toml", text).expect("valid");

    assert_eq!(config.http.listen, "[::1]:9000".parse::<SocketAddr>().expect("an address"));
    assert_eq!(config.http.cors_origins[1], Origin("http://localhost:3000".to_owned()));
    assert_eq!((config.workers.count, config.workers.pin), (4, true));
    assert_eq!(config.rooms.idle_timeout, Duration::from_secs(90));
    assert_eq!(config.rooms.estimate_max, Bitrate::from_kbps(2_500));
    assert_eq!(config.rooms.resend_share, 1.0);
    let turn = IceServer {
        url: "turn:turn.example.org?transport=udp".to_owned(),
        login: Some(("me".to_owned(), "secret".to_owned())),
    };
    assert_eq!(config.rtc.ice_servers[1], turn);
}

#[test]
fn live_inputs_are_a_table_each_or_a_line() {
    let text = r#"
        [[pump.live]]
        name = "news"
        url = "udp://@239.1.1.1:5000"
        [[pump.live]]
        name = "sport"
        url = "rtp://@[ff3e::7]:5004"
        source = "2001:db8::1"
        interface = "eth1"
        delay = "400ms"
    "#;
    let mut config = Config::default();
    config.apply_toml("test.toml", text).expect("valid");
    assert_eq!(config.pump.live[0].to_string(), "udp://@239.1.1.1:5000");
    let sport = &config.pump.live[1];
    assert_eq!((sport.delay, sport.interface.as_deref()), (Duration::from_millis(400), Some("eth1")));
    assert_eq!(sport.source, Some("2001:db8::1".parse().expect("an address")));

    let mut again = Config::default();
    again.apply_toml("printed", &config.to_string()).expect("what is printed is valid");
    assert_eq!(again, config);
    let line = "news=udp://@239.1.1.1:5000, sport=rtp://2001:db8::1@[ff3e::7]:5004?interface=eth1&delay=400ms";
    let by_flag = Config::load(None, [], &[format!("pump.live={line}")]).expect("valid");
    assert_eq!(by_flag, config);

    for (wrong, expected) in [
        ("name = \"a\"", "m.toml:1: pump.live[0].url: is missing; allowed: a table with name and url"),
        ("name = \"a\"\nurl = \"udp://h:1\"", "m.toml:3: pump.live[0].url: got \"udp://h:1\"; allowed: a table"),
        ("url = \"udp://:1\"\nname = \"a b\"", "m.toml:3: pump.live[0].name: got \"a b\"; allowed: a table"),
        ("name = \"a\"\nurl = \"udp://:1\"\nttl = 3", "m.toml:4: pump.live[0].ttl: got 3; allowed: a table"),
        (
            "name = \"a\"\nurl = \"udp://:1\"\n[[pump.live]]\nname = \"a\"\nurl = \"udp://:2\"",
            "m.toml:4: pump.live[1]: got two inputs named \"a\"",
        ),
    ] {
        let text = format!("[[pump.live]]\n{wrong}\n");
        let error = Config::default().apply_toml("m.toml", &text).expect_err(&text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn a_relay_is_set_up_and_its_secrets_are_not_shown() {
    let text = r#"
        [relay]
        listen = ["0.0.0.0:3478", "[::]:3478"]
        users = ["alice:open:sesame", "bob:0x0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"]
        secrets = ["a secret that nobody knows"]
        addresses = ["10.0.0.5=203.0.113.7", "2001:db8::1"]
        ports = "50000-50999"
        bandwidth_per_user = "5Mbps"
        allowed_peers = ["10.1.0.0/16", "[fd00::/64]:443", "127.0.0.1:20000-20001"]
        uris = ["turn:turn.example.org:3478?transport=udp", "stun:[2001:db8::1]:3478"]
    "#;
    let mut config = Config::default();
    config.apply_toml("test.toml", text).expect("valid");
    let relay = &config.relay;
    assert_eq!((relay.listen.len(), relay.ports.count(), relay.users[0].name.as_str()), (2, 1_000, "alice"));
    assert_eq!(relay.addresses[0].external.to_string(), "203.0.113.7");
    assert_eq!(relay.allowed_peers[1].to_string(), "[fd00::/64]:443");

    let shown = config.to_string();
    assert!(["sesame", "0f0f", "nobody knows"].iter().all(|secret| !shown.contains(secret)), "{shown}");
    assert!(
        shown.contains(r#"allowed_peers = ["10.1.0.0/16", "[fd00::/64]:443", "127.0.0.1/32:20000-20001"]"#),
        "{shown}"
    );
}

#[test]
fn what_a_relay_cannot_be_is_named_with_its_line() {
    for (line, expected) in [
        ("users = [\"alice\"]", "relay.users[0]: got something else, which is not shown; allowed: \"name:"),
        ("users = [\"a:1\", \"a:2\"]", "relay.users[1]: got two users named \"a\""),
        ("secrets = [\"short\"]", "relay.secrets[0]: got 5 bytes; allowed: 16 bytes"),
        ("addresses = [\"0.0.0.0\"]", "relay.addresses[0]: got \"0.0.0.0\""),
        ("addresses = [\"10.0.0.5=2001:db8::1\"]", "relay.addresses[0]: got \"10.0.0.5=2001:db8::1\""),
        ("addresses = [\"10.0.0.5\", \"10.0.0.6\"]", "relay.addresses[1]: got 10.0.0.6 beside another of its family"),
        ("ports = \"80-90\"", "relay.ports: got 80-90; allowed: an even port"),
        ("ports = \"50001-50002\"", "relay.ports: got 50001-50002; allowed: an even port"),
        ("ports = \"9-5\"", "relay.ports: got \"9-5\"; allowed: ports such as"),
        ("realm = \"\"", "relay.realm: got \"\"; allowed: 1 to 64 bytes"),
        ("bandwidth_max = \"1k\"", "relay.bandwidth_max: got \"1kbps\"; allowed: \"10kbps\" to"),
        ("denied_peers = [\"10.0.0.0/8:0x5\"]", "relay.denied_peers[0]: got \"10.0.0.0/8:0x5\""),
        ("uris = [\"turn.example.org\"]", "relay.uris[0]: got \"turn.example.org\""),
        ("allowed_peers = [\"10.0.0.5/8\"]", "relay.allowed_peers[0]: got \"10.0.0.5/8\""),
        ("listen = [\"3478\"]", "relay.listen[0]: got \"3478\""),
    ] {
        let text = format!("[relay]\n{line}\n");
        let error = Config::default().apply_toml("m.toml", &text).expect_err(line).to_string();
        assert!(error.starts_with(&format!("m.toml:2: {expected}")), "{line}: {error}");
    }
}

#[test]
fn an_element_of_a_list_that_cannot_be_is_named_with_its_place_and_line() {
    let text = "[relay]\nlisten = [\n  \"0.0.0.0:3478\",\n  # the other family\n  \"[::]\",\n]\n";
    let error = Config::default().apply_toml("m.toml", text).expect_err("no port").to_string();
    assert!(error.starts_with("m.toml:5: relay.listen[1]: got \"[::]\"; allowed: address and port"), "{error}");
    let error = by_flag("relay.listen=0.0.0.0:3478, 3479").expect_err("no address");
    assert!(error.starts_with("--set: relay.listen[1]: got \"3479\"; allowed: address and port"), "{error}");
}

#[test]
fn a_comma_never_makes_two_secrets_of_one() {
    for one in ["relay.secrets=[\"north wind, and sun\"]", "relay.secrets= ['north wind, and sun'] "] {
        let secrets = by_flag(one).expect("valid").relay.secrets;
        assert_eq!(secrets, [Secret("north wind, and sun".to_owned())]);
    }
    let environment = ("MILLRACE_RELAY_USERS".to_owned(), "[\"alice:a,b\", \"bob:c,eve:d\"]".to_owned());
    let users = Config::load(None, [environment], &[]).expect("valid").relay.users;
    assert_eq!(users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>(), ["alice", "bob"]);
    for unclear in ["relay.secrets=a secret of some length,another of some length", "relay.users=alice:a,bob:b"] {
        let error = by_flag(unclear).expect_err("one or two");
        assert!(error.contains(": has a comma, which may belong to an entry") && !error.contains("alice"), "{error}");
    }
    let error = by_flag("relay.secrets=[\"a secret of some length\"").expect_err("not closed");
    assert_eq!(error, "--set: relay.secrets: begins as a TOML array, and is none");
    let of_ipv6 = by_flag("relay.listen=[::1]:3478, [::1]:3479").expect("no TOML").relay.listen;
    assert_eq!(of_ipv6.len(), 2);
    let flags = ["alice:a,b".to_owned(), "bob:\"c\"".to_owned()];
    let mut config = Config::default();
    config.apply_flags("--user", "relay.users", &flags).expect("valid");
    assert_eq!(config.relay.users.len(), 2);
    let error = config.apply_flags("--user", "relay.users", &["alice:a".to_owned(), "bob".to_owned()]);
    assert!(error.expect_err("no password").to_string().starts_with("--user: relay.users[1]: got something else"));
}

#[test]
fn what_may_be_a_secret_stands_in_no_error() {
    let key = "ab".repeat(15);
    for (line, expected) in [
        ("users = [\"alice:hush\", \"hush\"]".to_owned(), "relay.users[1]: got something else"),
        (format!("users = [\"alice:0x{key}\"]"), "relay.users[0]: got an entry of \"alice\""),
        ("users = \"alice:hush\"".to_owned(), "relay.users: got an entry of \"alice\""),
        ("users = [\"alice:hush\", \"alice:hush\"]".to_owned(), "relay.users[1]: got two users named \"alice\""),
        ("secrets = \"hush\"".to_owned(), "relay.secrets: got something else"),
        ("secrets = [\"hush\"]".to_owned(), "relay.secrets[0]: got 4 bytes"),
        ("secrets = [123456789012345]".to_owned(), "relay.secrets[0]: got something else"),
        ("redis = \"hush://:hush@h\"".to_owned(), "relay.redis: got no such URL"),
        ("redis = [\"redis://:hush@h\"]".to_owned(), "relay.redis: got something else"),
    ] {
        let text = format!("[relay]\n{line}\n");
        let error = Config::default().apply_toml("m.toml", &text).expect_err(&line).to_string();
        assert!(error.starts_with(&format!("m.toml:2: {expected}")), "{line}: {error}");
        assert!(["hush", &key, "12345"].iter().all(|secret| !error.contains(secret)), "{error}");
    }
    for text in ["[auth]\nhs256_secret = 1234512345", "[rtc]\nice_servers = [\"turn:host me 12345 6\"]"] {
        let error = Config::default().apply_toml("m.toml", text).expect_err(text).to_string();
        assert!(!error.contains("12345"), "{error}");
    }
}

#[test]
fn secrets_in_a_file_that_everybody_reads_are_told_of_by_the_names_of_their_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("millrace.toml");
    let told = |text: &str, mode: u32| {
        fs::write(&file, text).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        Config::exposed(&file)
    };
    let secrets = "[relay]\nusers = [\"alice:hush\"]\nrealm = \"r\"\n[http]\nmetrics_token = \"hush\"\n";
    let said = told(secrets, 0o644).expect("everybody reads it");
    assert!(said.contains("which has http.metrics_token, relay.users (try") && !said.contains("hush"), "{said}");
    assert_eq!((told(secrets, 0o640), told(secrets, 0o600)), (None, None));
    let public = "[relay]\nrealm = \"r\"\n[rtc]\nice_servers = [\"stun:192.0.2.1:3478\"]\n";
    assert_eq!(told(public, 0o644), None);
    assert!(told("[rtc]\nice_servers = [\"turn:192.0.2.1 me hush\"]\n", 0o644).is_some());
}

fn by_flag(assignment: &str) -> Result<Config, String> {
    Config::load(None, [], &[assignment.to_owned()]).map_err(|error| error.to_string())
}

#[test]
fn rates_are_spelled_as_everywhere_else() {
    for value in ["\"2.5Mbps\"", "\"2.5M\"", "\"2500k\"", "\"2500 kbps\"", "\"2_500_000\"", "2_500_000", "2500000"] {
        let mut config = Config::default();
        let text = format!("[rooms]\nestimate_max = {value}\n");
        config.apply_toml("test.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.rooms.estimate_max, Bitrate::from_kbps(2_500), "{value}");
    }
}

#[test]
fn no_time_needs_no_unit() {
    for value in ["\"0s\"", "\"0ms\"", "\"0\"", "0"] {
        let mut config = Config::default();
        let text = format!("[pump]\nrefused_timeout = {value}\n");
        config.apply_toml("test.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.pump.refused_timeout, Duration::ZERO, "{value}");
    }
    assert_eq!(by_flag("pump.refused_timeout=0").map(|config| config.pump.refused_timeout), Ok(Duration::ZERO));
    assert!(
        by_flag("rooms.idle_timeout=0").is_err_and(|error| error.contains("allowed: \"5s\" to")),
        "where it may not be so"
    );
}

#[test]
fn a_wrong_setting_is_named_with_file_line_key_and_what_is_allowed() {
    let cases = [
        ("[rooms]\n\nidle_timeout = 30", "m.toml:3: rooms.idle_timeout: got 30; allowed: a duration such as \"500ms\""),
        ("[rooms]\nidle_timeout = \"1s\"", "m.toml:2: rooms.idle_timeout: got \"1s\"; allowed: \"5s\" to \"3600s\""),
        ("[rooms]\nidle = \"30s\"", "m.toml:2: rooms.idle: no such key; allowed: idle_timeout, reconnect_grace,"),
        (
            "[room]\nidle_timeout = \"30s\"",
            "m.toml:1: room: no such table; allowed: http, tls, acme, auth, workers, rtc, rooms, livekit, log",
        ),
        ("idle_timeout = \"30s\"", "m.toml:1: idle_timeout: stands outside of a table; tables: http,"),
        ("[http]\nlisten = \"localhost\"", "m.toml:2: http.listen: got \"localhost\"; allowed: address and port"),
        ("[http]\ncors_origins = [\"https://a/b\"]", "m.toml:2: http.cors_origins[0]: got \"https://a/b\""),
        ("[workers]\ncount = -1", "m.toml:2: workers.count: got -1; allowed: a whole number up to 65535"),
        ("[workers]\ncount = 1000", "m.toml:2: workers.count: got 1000; allowed: 0 to 256"),
        ("[workers]\npin = \"yes\"", "m.toml:2: workers.pin: got \"yes\"; allowed: true or false"),
        ("[workers]\nbind = [\"any\"]", "m.toml:2: workers.bind[0]: got \"any\"; allowed: an IP address such as"),
        ("[workers]\nsocket_buffer = \"8MB\"", "m.toml:2: workers.socket_buffer: got \"8MB\"; allowed: a size such as"),
        ("[auth]\nhs256_secret = \"short\"", "m.toml:2: auth.hs256_secret: got 5 bytes; allowed: 32 bytes or more"),
        (
            "[rtc]\nice_servers = [\"turn:host\"]",
            "m.toml:2: rtc.ice_servers[0]: got something else, which is not shown",
        ),
        ("[log]\nformat = \"xml\"", "m.toml:2: log.format: got \"xml\"; allowed: \"text\" or \"json\""),
        (
            "[rooms]\nestimate_max = 2.5",
            "m.toml:2: rooms.estimate_max: got 2.5; allowed: a rate such as \"800k\", \"1.5M\"",
        ),
        ("[log]\nformat = ", "m.toml:2: "),
        (
            "[rooms]\nestimate_max = \"99999999999Gbps\"",
            "m.toml:2: rooms.estimate_max: got \"99999999999Gbps\"; allowed: a rate such as",
        ),
        ("[rooms]\nresend_share = 2.0", "m.toml:2: rooms.resend_share: got 2.0; allowed: 0.0 to 1.0"),
    ];
    for (text, expected) in cases {
        let error = Config::default().apply_toml("m.toml", text).expect_err(text).to_string();
        assert!(error.starts_with(expected), "for {text:?}\n     got {error}\nexpected {expected}…");
    }
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let file = std::env::temp_dir().join(format!("millrace-config-{}.toml", std::process::id()));
    std::fs::write(&file, "[rooms]\nidle_timeout = \"10s\"\nreconnect_grace = \"11s\"\nsessions_max = 12\n")
        .expect("written");
    let environment = [
        ("MILLRACE_ROOMS_RECONNECT_GRACE".to_owned(), "21s".to_owned()),
        ("MILLRACE_ROOMS_SESSIONS_MAX".to_owned(), "22".to_owned()),
        ("MILLRACE_HTTP_CORS_ORIGINS".to_owned(), "https://a.example, https://b.example".to_owned()),
        ("MILLRACE_CHROMIUM".to_owned(), "not ours".to_owned()),
        ("HOME".to_owned(), "/root".to_owned()),
    ];

    let config = Config::load(Some(&file), environment, &["rooms.sessions_max=32".to_owned()]).expect("valid");
    std::fs::remove_file(&file).expect("removed");

    assert_eq!(config.rooms.idle_timeout, Duration::from_secs(10));
    assert_eq!(config.rooms.reconnect_grace, Duration::from_secs(21));
    assert_eq!(config.rooms.sessions_max, 32);
    assert_eq!(config.http.cors_origins.len(), 2);
}

#[test]
fn wrong_variables_flags_and_files_are_named() {
    let variable = ("MILLRACE_ROOMS_IDLE".to_owned(), "1".to_owned());
    let error = Config::load(None, [variable], &[]).expect_err("no such key").to_string();
    assert!(error.starts_with("environment, MILLRACE_ROOMS_IDLE: rooms.idle: no such key; allowed: "), "{error}");

    let error = Config::load(None, [], &["workers.gso=maybe".to_owned()]).expect_err("no bool").to_string();
    assert_eq!(error, "--set: workers.gso: got \"maybe\"; allowed: true or false");

    let error = Config::load(Some("/no/such/file".as_ref()), [], &[]).expect_err("no file").to_string();
    assert!(error.starts_with("/no/such/file: cannot be read: "), "{error}");
}

#[test]
fn secrets_are_not_printed() {
    let mut config = Config::default();
    let text = "[auth]\nhs256_secret = \"0123456789abcdef0123456789abcdef\"\n\
                [rtc]\nice_servers = [\"turn:host me hush-hush\"]";
    config.apply_toml("test.toml", text).expect("valid");

    for printed in [config.to_string(), format!("{config:?}")] {
        assert!(!printed.contains("0123456789abcdef") && !printed.contains("hush-hush"), "{printed}");
    }
}

#[test]
fn outputs_are_a_table_each_or_a_line() {
    let text = "[[pump.outputs]]\nname = \"iptv\"\nttl = 8\ndscp = 34\nsource = \"192.0.2.1\"\nsource_port = 4000\n\
                [[pump.outputs]]\nname = \"lab\"\ninterface = \"eth1\"\n";
    let mut config = Config::default();
    config.apply_toml("test.toml", text).expect("valid");
    let [iptv, lab] = &config.pump.outputs[..] else { panic!("{:?}", config.pump.outputs) };
    assert_eq!((iptv.name.as_str(), iptv.ttl, iptv.dscp, iptv.source_port), ("iptv", Some(8), Some(34), 4_000));
    assert_eq!((lab.interface.as_deref(), lab.ttl, lab.source), (Some("eth1"), None, None));
    let mut again = Config::default();
    again.apply_toml("printed", &config.to_string()).expect("what is printed is valid");
    assert_eq!(again, config);
    let line = "iptv ttl=8 dscp=34 source=192.0.2.1 source_port=4000, lab interface=eth1";
    let by_flag = Config::load(None, [], &[format!("pump.outputs={line}")]).expect("valid");
    assert_eq!(by_flag, config);
    for (wrong, message) in [
        ("ttl = 8", "pump.outputs[0].name: is missing; allowed: a table"),
        ("name = \"a b\"", "pump.outputs[0].name: got \"a b\"; allowed: a table"),
        ("name = \"a\"\nttl = 0", "pump.outputs[0].ttl: got 0; allowed: a table"),
        ("name = \"a\"\ncolor = 1", "pump.outputs[0].color: got 1; allowed: a table"),
        ("name = \"a\"\n[[pump.outputs]]\nname = \"a\"", "two outputs named \"a\""),
    ] {
        let text = format!("[[pump.outputs]]\n{wrong}\n");
        let error = Config::default().apply_toml("m.toml", &text).expect_err(&text).to_string();
        assert!(error.contains(message), "{wrong}: {error}");
    }
}
