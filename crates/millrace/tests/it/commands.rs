//! The commands that answer and end, by the binary itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Output, Stdio};

use livekit::config::Now;

#[test]
fn the_reference_is_a_configuration_that_check_takes() {
    let reference = millrace(&["check", "--reference"]);
    let file = std::env::temp_dir().join(format!("millrace-reference-{}.toml", std::process::id()));
    std::fs::write(&file, &reference.stdout).expect("written");

    let checked = millrace(&["check", &file.display().to_string()]);
    std::fs::remove_file(&file).expect("removed");

    assert!(checked.status.success());
    assert!(text(&checked.stdout).contains("idle_timeout = \"30s\""));
    assert!(text(&checked.stderr).contains("note: `millrace serve` would refuse, as nobody could get in"));
}

#[test]
fn a_wrong_configuration_ends_check_and_serve_with_status_2() {
    let file = std::env::temp_dir().join(format!("millrace-wrong-{}.toml", std::process::id()));
    std::fs::write(&file, "[rooms]\nidle_timeout = 3\n").expect("written");
    let path = file.display().to_string();

    let outputs = [
        millrace(&["check", &path]),
        millrace(&["check", "--config", &path]),
        millrace(&["serve", "--dev", "--config", &path]),
    ];
    std::fs::remove_file(&file).expect("removed");

    for output in outputs {
        assert_eq!(output.status.code(), Some(2));
        let expected = format!("millrace: {path}:2: rooms.idle_timeout: got 3; allowed: a duration such as ");
        assert!(text(&output.stderr).starts_with(&expected), "{}", text(&output.stderr));
    }
}

#[test]
fn check_refuses_what_serve_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, days) in [("good", 100_000), ("old", 1)] {
        let mut wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        wanted.not_before = std::time::UNIX_EPOCH.into();
        wanted.not_after = (std::time::UNIX_EPOCH + std::time::Duration::from_secs(days * 86_400)).into();
        let key = rcgen::KeyPair::generate().expect("a key");
        std::fs::write(path(&format!("{name}.pem")), wanted.self_signed(&key).expect("one").pem()).expect("written");
        std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).expect("written");
    }
    // As RSA is, which takes long to make.
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    let wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    std::fs::write(path("other.pem"), wanted.self_signed(&key).expect("one").pem()).expect("written");
    std::fs::write(path("other.key"), key.serialize_pem()).expect("written");
    let certificate = |name, key| format!("tls.certificates={} {}", path(name), path(key));
    let tls = "http.tls_listen=127.0.0.1:0";
    let good = certificate("good.pem", "good.key");
    let (gone, mixed) = (certificate("gone.pem", "good.key"), certificate("good.pem", "old.key"));
    let media = format!("pump.media={}", path("gone"));
    let ports = ["workers.udp_port=65535", "workers.count=2"];
    for (settings, expected) in [
        (&[tls][..], "http.tls_listen, relay.tls_listen: TLS needs tls.certificates".to_owned()),
        (&[tls, &gone], format!("tls.certificates: certificate {}: ", path("gone.pem"))),
        (&[tls, &mixed], format!("tls.certificates: key {} with certificate {}: ", path("old.key"), path("good.pem"))),
        (
            &[&good, "http.listen=127.0.0.1:8443", "http.tls_listen=127.0.0.1:8443"],
            "http.listen, http.tls_listen: 127.0.0.1:8443 is to be with TLS and without".to_owned(),
        ),
        (
            &[
                &certificate("other.pem", "other.key"),
                "relay.listen=127.0.0.1:0",
                "relay.users=a:b",
                "relay.dtls_listen=127.0.0.1:0",
            ],
            "relay.dtls_listen: none of tls.certificates has an ECDSA key".to_owned(),
        ),
        (&[&media], "reading the titles of [pump]: ".to_owned()),
        (&ports, "workers.udp_port: 65535 and 2 workers need".to_owned()),
    ] {
        let free = ["http.listen=127.0.0.1:0", "workers.udp_port=0"];
        let settings: Vec<&str> = free.iter().chain(settings).flat_map(|setting| ["--set", setting]).collect();
        for command in [&["check"][..], &["serve", "--dev"]] {
            // It would take a port that may be somebody's.
            if command[0] == "serve" && settings.contains(&ports[0]) {
                continue;
            }
            let ended = millrace(&[command, &settings].concat());
            let said = text(&ended.stderr);
            assert_eq!(ended.status.code(), Some(2), "{command:?} {settings:?}: {said}");
            assert!(said.contains(&format!("millrace: {expected}")), "{command:?} {settings:?}: {said}");
        }
    }
    // Who has no other can serve with one that is out of date.
    let old = millrace(&["check", "--set", tls, "--set", &certificate("old.pem", "old.key")]);
    assert!(old.status.success());
    let expected = format!("warning: tls.certificates: certificate {} has been out of date for ", path("old.pem"));
    assert!(text(&old.stderr).contains(&expected), "{}", text(&old.stderr));
}

#[test]
fn users_are_added_listed_and_removed_and_no_password_is_an_argument() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.toml").display().to_string();
    let users = |arguments: &[&str], input: &str| {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args(["users", "--file", &file])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        // Commands that need no password end without reading.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        child.wait_with_output().expect("it ends")
    };

    assert!(users(&["add", "ada"], "lovelace\n").status.success());
    let made = users(&["add", "bob", "--generate"], "");
    assert_eq!(text(&made.stdout).trim().len(), 24);
    assert_eq!(text(&users(&["list"], "").stdout), "ada\nbob\n");
    assert!(users(&["remove", "bob"], "").status.success());
    assert_eq!(users(&["remove", "bob"], "").status.code(), Some(2));
    assert_eq!(users(&["add", "eve"], "").status.code(), Some(2), "without a password");
    assert_eq!(text(&users(&["list"], "").stdout), "ada\n");
    let written = std::fs::read_to_string(&file).expect("read");
    assert!(!written.contains("lovelace") && written.contains("sha256"), "{written}");
}

#[test]
fn a_configuration_of_coturn_becomes_one_that_check_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let [theirs, ours] =
        ["turnserver.conf", "millrace.toml"].map(|name| folder.path().join(name).display().to_string());
    std::fs::write(&theirs, "realm=example.org\nlt-cred-mech\nuser=ada:lovelace\nmobility\n").expect("written");

    let imported = millrace(&["import", "coturn", &theirs]);
    std::fs::write(&ours, &imported.stdout).expect("written");

    assert!(text(&imported.stderr).starts_with(&format!("{theirs}:4: mobility: ")), "{}", text(&imported.stderr));
    let checked = millrace(&["check", &ours]);
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("realm = \"example.org\""));
}

#[test]
fn serve_names_the_setting_whose_address_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = taken.local_addr().expect("an address").to_string();

    let output = millrace(&["serve", "--dev", "--listen", &addr]);

    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&format!("http.listen {addr}: ")), "{}", text(&output.stderr));
}

#[test]
fn serve_without_keys_says_how_to_start() {
    let output = millrace(&["serve", "--listen", "127.0.0.1:0"]);

    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("start with --dev"), "{}", text(&output.stderr));
}

#[test]
fn a_token_that_would_allow_nothing_is_not_made() {
    let secret = "auth.hs256_secret=0123456789abcdef0123456789abcdef";
    let output = millrace(&["token", "--set", secret]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("would allow nothing"), "{}", text(&output.stderr));

    let output = millrace(&["token", "--set", secret, "--watch", "*"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout).trim().split('.').count(), 3);
}

#[test]
fn a_key_of_livekit_with_a_short_secret_is_warned_of_but_where_everybody_may_come_in() {
    let weak = r#"livekit.keys: the secret of "weak" has less than 32 bytes"#;
    let keys = "livekit.keys=good: 0123456789abcdef0123456789abcdef,weak: 0123456789abcdef0123456789abcde";
    let checked = millrace(&["check", "--set", keys]);
    let said = text(&checked.stderr);
    assert!(checked.status.success(), "{said}");
    assert_eq!((said.matches(&format!("millrace: warning: {weak}")).count(), said.contains(r#""good""#)), (1, false));
    let of_dev = millrace(&["check", "--set", keys, "--set", "auth.dev=true"]);
    assert!(of_dev.status.success() && !text(&of_dev.stderr).contains("less than 32"), "{}", text(&of_dev.stderr));

    let mut server = crate::common::millrace();
    server.args(["serve", "--listen", "127.0.0.1:0", "--set", "workers.udp_port=0", "--set", keys]);
    let mut server = server.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.expect("text").contains("metrics, health")), "it is all there");
    server.kill().expect("it runs");
    let said = text(&server.wait_with_output().expect("it ends").stderr);
    assert_eq!(said.matches("less than 32 bytes").count(), 1, "{said}");
}

#[test]
fn a_token_for_a_room_is_signed_with_the_first_key_of_livekit() {
    let ask = ["token", "--room", "standup", "--identity", "ada"];
    let without = millrace(&ask);
    assert_eq!(without.status.code(), Some(2));
    assert!(text(&without.stderr).contains("set livekit.keys"), "{}", text(&without.stderr));
    assert_eq!(millrace(&ask[..3]).status.code(), Some(2), "a room is joined by somebody");

    let made = millrace(&[&ask[..], &["--set", "livekit.keys=id: a secret of ours"]].concat());
    let token = text(&made.stdout);
    let keys = livekit::token::Keys::new([("id".to_owned(), "a secret of ours".to_owned())]).expect("a key");
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("later");
    let claims = keys.verify(token.trim(), Now { at: std::time::Instant::now(), unix }).expect("a token");
    let grant = claims.video.expect("a grant");
    assert_eq!((claims.sub.as_str(), grant.room.as_str(), grant.room_join), ("ada", "standup", true));
}

fn millrace(args: &[&str]) -> Output {
    crate::common::millrace().args(args).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
