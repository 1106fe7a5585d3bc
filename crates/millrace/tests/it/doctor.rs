//! Faults of a host that are made on purpose are found, each by its name, and none of them where there is none.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::{RELAY, Server, millrace, relay_of};
use crate::own_process::is_alone_in_a_network;
use crate::skip::skip;

/// What it looked at.
struct Findings(Vec<Value>);

impl Findings {
    /// The worst of a check: its severity, and what it says, has seen, and mends.
    fn worst(&self, check: &str) -> (&str, String) {
        let of_check = self.0.iter().filter(|finding| finding["check"] == check);
        let rank =
            |finding: &&Value| ["ok", "note", "warning", "fault"].iter().position(|it| finding["severity"] == *it);
        let worst = of_check.max_by_key(rank).unwrap_or_else(|| panic!("{check} is not among {:?}", self.0));
        (worst["severity"].as_str().expect("a word"), worst.to_string())
    }
}

fn doctor(settings: &[&str]) -> Findings {
    run(millrace(), &[], settings)
}

/// By a command that ends in the program.
fn run(mut command: Command, flags: &[&str], settings: &[&str]) -> Findings {
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let ended = command.args(["doctor", "--json"]).args(flags).args(settings).output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    let findings: Vec<Value> = serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let is_bad = findings.iter().any(|finding| ["warning", "fault"].iter().any(|bad| finding["severity"] == *bad));
    assert_eq!(ended.status.code(), Some(i32::from(is_bad)), "{findings:?}");
    Findings(findings)
}

/// Behind a shell's words.
fn behind(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script} \"$0\" \"$@\"")]).arg(millrace().get_program());
    command
}

/// Makes a certificate that is good for so many days, and a key that is its own or not.
fn certificate(folder: &tempfile::TempDir, name: &str, days: u64, has_its_key: bool) -> String {
    let file = |end: &str| folder.path().join(format!("{name}.{end}")).display().to_string();
    let mut wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    wanted.not_after = (SystemTime::now() + Duration::from_secs(days * 86_400 + 3_600)).into();
    let [key, other] = [(); 2].map(|()| rcgen::KeyPair::generate().expect("a key"));
    std::fs::write(file("pem"), wanted.self_signed(&key).expect("one").pem()).expect("written");
    std::fs::write(file("key"), if has_its_key { key } else { other }.serialize_pem()).expect("written");
    format!("tls.certificates={} {}", file("pem"), file("key"))
}

#[test]
fn on_a_healthy_host_none_of_these_is_found() {
    const NAME: &str = "doctor::on_a_healthy_host_none_of_these_is_found";
    if !is_alone_in_a_network(NAME, "ip link set lo up", "iproute2") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let good = certificate(&folder, "good", 90, true);
    let small = ["workers.socket_buffer=64KiB", "http.connections_max=100", "workers.tcp=false", &good];
    let findings = doctor(&small);
    for check in ["buffers", "descriptors", "conntrack", "ports", "certificates"] {
        let (severity, text) = findings.worst(check);
        assert_eq!(severity, "ok", "{text}");
    }
}

#[test]
fn a_port_that_is_taken_is_a_fault_and_who_has_it_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = taken.local_addr().expect("an address");
    let findings = doctor(&[&format!("http.listen={addr}")]);
    assert_eq!(findings.worst("ports").0, "fault");
    let expected = format!("http.listen: {addr} is taken by ");
    let found =
        findings.0.iter().find(|finding| finding["says"].as_str().is_some_and(|says| says.starts_with(&expected)));
    let says = found.expect("it is said")["says"].to_string();
    assert!(says.contains(&format!("process {}", std::process::id())), "{says}");
}

#[test]
fn few_open_files_are_a_fault() {
    let findings = run(behind("ulimit -n 256 && exec"), &[], &[]);
    let (severity, text) = findings.worst("descriptors");
    assert_eq!(severity, "fault");
    assert!(text.contains("256 open files are too few") && text.contains("LimitNOFILE="), "{text}");
}

#[test]
fn certificates_that_end_soon_or_cannot_be_used_are_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let gone = folder.path().join("gone.pem").display().to_string();
    for (setting, expected, words) in [
        (certificate(&folder, "good", 90, true), "ok", "is good for 90 days".to_owned()),
        (certificate(&folder, "soon", 1, true), "warning", "soon.pem is good for one day".to_owned()),
        (certificate(&folder, "mixed", 90, false), "fault", "mixed.key with certificate".to_owned()),
        (format!("tls.certificates={gone} {gone}"), "fault", "No such file".to_owned()),
    ] {
        let findings = doctor(&[&setting]);
        let (severity, text) = findings.worst("certificates");
        assert_eq!(severity, expected, "{text}");
        assert!(text.contains(&words), "{text}");
    }
}

/// Who may go beyond the system's limit does, so that is given up here.
#[test]
fn buffers_that_the_system_does_not_allow_are_a_warning() {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("it is said");
    let is_admin = u64::from_str_radix(capabilities.trim(), 16).expect("digits") & 1 << 12 != 0;
    let without = "setpriv --bounding-set=-net_admin --inh-caps=-net_admin";
    let can_give_up =
        || Command::new("sh").args(["-c", &format!("{without} true")]).status().is_ok_and(|it| it.success());
    if is_admin && !can_give_up() {
        return skip("doctor: small buffers need setpriv (util-linux) where the test is root");
    }
    let command = behind(if is_admin { without } else { "exec" });
    let findings = run(command, &[], &["workers.socket_buffer=1024MiB"]);
    let (severity, text) = findings.worst("buffers");
    assert_eq!(severity, "warning", "{text}");
    assert!(text.contains("mem_max=1073741824"), "{text}");
}

#[test]
fn flows_that_are_followed_are_a_warning_until_it_is_mended_as_it_says() {
    const NAME: &str = "doctor::flows_that_are_followed_are_a_warning_until_it_is_mended_as_it_says";
    let script = "ip link set lo up && nft 'add table inet t; add chain inet t c { type filter hook input priority 0; }; \
                  add rule inet t c ct state new accept'";
    if !is_alone_in_a_network(NAME, script, "nftables and conntrack in the kernel") {
        return;
    }
    let findings = doctor(&["workers.count=2"]);
    let (severity, text) = findings.worst("conntrack");
    assert_eq!(severity, "warning", "{text}");
    let found = findings.0.iter().find(|finding| finding["check"] == "conntrack").expect("it is there");
    let mend = found["mend"].as_str().expect("a command");
    assert!(mend.contains("20000-20001"), "{mend}");

    assert!(Command::new("sh").args(["-c", mend]).status().expect("a shell").success(), "{mend}");
    let findings = doctor(&["workers.count=2"]);
    let (severity, text) = findings.worst("conntrack");
    assert_eq!(severity, "ok", "{text}");
}

#[test]
fn queues_and_cards_of_the_default_route_are_looked_at() {
    const NAME: &str = "doctor::queues_and_cards_of_the_default_route_are_looked_at";
    let script = "ip link set lo up && ip link add doctor0 txqueuelen 2 type veth peer name doctor1 && \
                  ip link set doctor0 up && ip link set doctor1 up && ip addr add 198.18.0.1/24 dev doctor0 && \
                  ip route add default dev doctor0 && tc qdisc replace dev doctor0 root pfifo_fast";
    if !is_alone_in_a_network(NAME, script, "iproute2 and veth") {
        return;
    }
    let findings = doctor(&[]);
    let (severity, text) = findings.worst("queues");
    assert_eq!(severity, "warning", "{text}");
    assert!(text.contains("doctor0 has a short queue") && text.contains("txqueuelen 2"), "{text}");
    assert!(findings.worst("offloads").1.contains("doctor0"));
    let names = findings.0.iter().map(Value::to_string).collect::<String>();
    assert!(!names.contains("doctor1"), "nothing goes out by it");
}

#[test]
fn a_server_of_our_own_that_runs_is_no_fault_and_answers_where_we_are() {
    let server = Server::start(&RELAY);
    let relay = relay_of(&server).to_string();
    let listen = format!("http.listen={}", server.addr);
    let settings = ["workers.udp_port=0", &listen];
    let ask = |more: &[&str]| run(millrace(), &["--stun", &relay], &[&settings, more].concat());

    let findings = ask(&[]);
    let (severity, text) = findings.worst("ports");
    assert_eq!(severity, "note", "{text}");
    assert!(text.contains("held by a millrace that runs") && text.contains(&server.addr), "{text}");
    assert_eq!(findings.worst("address").0, "ok", "{}", findings.worst("address").1);

    let findings = ask(&["rtc.public_addresses=192.0.2.7"]);
    let (severity, text) = findings.worst("address");
    assert_eq!(severity, "warning", "{text}");
    assert!(text.contains("others see this host at 127.0.0.1"), "{text}");
}

#[test]
fn what_hurts_comes_first_with_what_was_seen_and_what_mends_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = format!("http.listen={}", taken.local_addr().expect("an address"));
    let ended = millrace().args(["doctor", "--set", &listen]).output().expect("it runs");
    let text = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.starts_with("fault ") && text.contains("fault    ports: http.listen: 127.0.0.1:"), "{text}");
    assert!(text.contains("\n         seen: bind(TCP 127.0.0.1:") && text.contains("\n         mend: stop "), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("ok       ")), "{text}");
}

#[test]
fn settings_that_cannot_be_end_it_with_status_2() {
    for setting in ["workers.count=many", "http.tls_listen=127.0.0.1:0", "workers.udp_port=65535"] {
        let ended =
            millrace().args(["doctor", "--set", "workers.count=2", "--set", setting]).output().expect("it runs");
        assert_eq!(ended.status.code(), Some(2), "{setting}");
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty(), "{setting}");
    }
}
