//! A server's relay, with clients and peers on loopback.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use relay::message::{Method, attribute};
use serde_json::Value;

use crate::common::{Echo, PATIENCE, RELAY, Server, TurnClient, free_addr, millrace, relay_of, wait_until};

/// How long nothing has to come before it counts as nothing.
const SILENCE: Duration = Duration::from_millis(300);

#[test]
fn clients_of_every_worker_reach_peers_by_channels_and_by_indications() {
    let server = Server::start(&RELAY);
    let (relay, echo) = (relay_of(&server), Echo::start());
    // The kernel spreads them over two workers: that one gets none is as likely as 1 in 2^31.
    let clients: Vec<_> = (0..32_u16)
        .map(|index| {
            let mut client = TurnClient::new(relay);
            let relayed = client.allocate();
            assert!(relayed.port() >= 49_152, "{relayed}");
            assert_eq!(client.bind(0x4000, echo.addr), 0);
            assert_eq!(client.echo_on(0x4000, &index.to_be_bytes()), index.to_be_bytes());
            client
        })
        .collect();
    // Workers tell their numbers some milliseconds later.
    let used = || [0, 1].map(|worker| server.metric(&format!("millrace_relay_allocations{{worker=\"{worker}\"}}")));
    wait_until("all are counted", || used().iter().sum::<f64>() == 32.0);
    assert!(used().iter().all(|count| *count > 0.0), "{:?}", used());

    let mut client = TurnClient::new(relay);
    client.allocate();
    assert_eq!(client.permit(echo.addr), 0);
    client.send_to(echo.addr, b"hello");
    let came = client.receive(PATIENCE).expect("it comes back");
    assert!(
        came[..2] == [0x00, 0x17] && came.windows(5).any(|window| window == b"hello"),
        "a Data indication: {came:?}"
    );
    drop(clients);
}

#[test]
fn what_load_s_clients_send_comes_back_whole_by_every_transport() {
    let (tcp, tls) = (free_addr(), free_addr());
    let more =
        [format!("relay.tcp_listen={tcp}"), format!("relay.tls_listen={tls}"), "tls.self_signed=true".to_owned()];
    let settings: Vec<&str> = RELAY.into_iter().chain(more.iter().map(String::as_str)).collect();
    let server = Server::start(&settings);
    let udp = relay_of(&server).to_string();
    for (transport, addr) in [("udp", &udp), ("tcp", &tcp), ("tls", &tls)] {
        for flags in ["", "--indications"] {
            let mut load = millrace();
            load.args(["load", "relay", "--json", "--user", "alice", "--password", "open-sesame", "--length", "101"]);
            load.args(["--clients", "6", "--peers", "2", "--in-flight", "8", "--seconds", "0.5", "--warm-up", "0"]);
            load.args(["--server", addr, "--transport", transport, "--url", &server.url()]);
            let output = load.args(flags.split_whitespace()).output().expect("it runs");
            let told = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{transport} {flags}: {told:?}");
            let report: Value = serde_json::from_str(&told.0).expect("JSON");
            let sound = ["failed", "damaged", "duplicates", "reordered"].map(|name| report[name] == 0);
            assert_eq!((sound, &report["clients"]), ([true; 4], &Value::from(6)), "{transport} {flags}: {report}");
        }
    }
}

/// Until it is used, the second port of a pair is nobody else's: others on the host that ask for any port may get this one.
#[test]
fn the_port_that_is_kept_for_a_client_can_be_bound_by_nobody_else_and_then_by_whichever_worker_the_client_is_at() {
    let server = Server::start(&RELAY);
    let (relay, echo) = (relay_of(&server), Echo::start());
    for index in 0..16_u16 {
        let mut first = TurnClient::new(relay);
        let said = first.request(Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24).attribute(attribute::EVEN_PORT, &[0x80]);
        });
        let (even, token) = (said.relayed[0], said.reservation_token.expect("a token"));
        let odd = SocketAddr::new(even.ip(), even.port() + 1);
        assert!(UdpSocket::bind(odd).is_err(), "{odd} is kept");

        let mut second = TurnClient::new(relay);
        let said = second.request(Method::Allocate, |writer| {
            writer.number(attribute::REQUESTED_TRANSPORT, 17 << 24).attribute(attribute::RESERVATION_TOKEN, &token);
        });
        assert_eq!((said.code, said.relayed), (0, vec![odd]));
        assert_eq!(second.bind(0x4000, echo.addr), 0);
        // All that comes there is the client's: nothing else reads the port.
        for number in 0..4_u16 {
            let data = [index.to_be_bytes(), number.to_be_bytes()].concat();
            second.send_on(0x4000, &data);
            let came = second.receive(PATIENCE).expect("it comes back");
            assert_eq!(came[4..], data);
        }
    }
}

#[test]
fn two_clients_meet_at_their_relayed_addresses() {
    let server = Server::start(&RELAY);
    let relay = relay_of(&server);
    let (mut one, mut other) = (TurnClient::new(relay), TurnClient::new(relay));
    let (at_one, at_other) = (one.allocate(), other.allocate());
    assert_eq!((one.bind(0x4001, at_other), other.bind(0x4002, at_one)), (0, 0));
    let hears = |from: &mut TurnClient, channel: u16, to: &mut TurnClient| {
        let mut came = None;
        wait_until("it comes", || {
            from.send_on(channel, b"over there");
            came = to.receive(SILENCE);
            came.is_some()
        });
        came.expect("it came")
    };
    assert_eq!(hears(&mut one, 0x4001, &mut other)[..4], [0x40, 0x02, 0, 10]);
    assert_eq!(hears(&mut other, 0x4002, &mut one)[..4], [0x40, 0x01, 0, 10]);
}

#[test]
fn allocations_are_listed_with_what_they_carried_and_end_when_an_admin_says_so() {
    let server = Server::start(&RELAY);
    let (relay, echo) = (relay_of(&server), Echo::start());
    let mut client = TurnClient::new(relay);
    let relayed = client.allocate();
    client.bind(0x4000, echo.addr);
    client.echo_on(0x4000, &[7; 100]);

    let json = |path: &str| -> Value { serde_json::from_str(&server.ask("GET", path, &[], "").body).expect("JSON") };
    let list = json("/api/relay/allocations");
    let shown = &list[0];
    let local = client.line.local_addr().to_string();
    assert_eq!(shown["user"], "alice");
    assert_eq!((&shown["client"], &shown["server"]), (&Value::from(local), &Value::from(relay.to_string())));
    assert_eq!((&shown["relayed"][0], &shown["transport"]), (&Value::from(relayed.to_string()), &Value::from("udp")));
    assert_eq!((&shown["channels"], &shown["permissions"]), (&Value::from(1), &Value::from(1)));
    let sent = shown["sent"]["bytes"].as_u64().expect("a number");
    assert!(sent >= 100 && sent.is_multiple_of(100), "{shown}");
    let users = json("/api/relay/users");
    assert_eq!((&users[0]["user"], &users[0]["allocations"]), (&Value::from("alice"), &Value::from(1)));
    assert_eq!(json("/api/relay")["allocations"], 1);

    let path = format!("/api/relay/allocations/{}", shown["id"].as_str().expect("a number as text"));
    let story = json(&format!("{path}/story"));
    let names = |story: &Value| -> Vec<String> {
        let events = story["events"].as_array().expect("a list").iter();
        events.map(|event| event["event"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(
        (names(&story), &story["ended"]),
        (["began", "bound", "flows"].map(str::to_owned).to_vec(), &Value::Null)
    );
    assert_eq!(server.ask("DELETE", &path, &[], "").status, 204);
    wait_until("it is gone", || json("/api/relay")["allocations"] == 0);
    assert_eq!(server.ask("DELETE", &path, &[], "").status, 404);
    let ended = json("/api/relay/allocations/ended");
    let told = json(&format!("{path}/story"));
    assert_eq!((&ended[0]["allocation"], &told["ended"]["why"]), (&shown["id"], &Value::from("deleted")));
    assert_eq!(client.refresh(600).code, 437);
    wait_until("its port is free", || UdpSocket::bind(relayed).is_ok());
    assert_eq!(json("/api/relay/users"), Value::Array(Vec::new()));
}

#[test]
fn a_credential_that_the_api_made_is_good_until_its_time_and_a_wrong_one_is_not() {
    let server = Server::start(&["relay.listen=127.0.0.1:0", "relay.secrets=a secret of some length"]);
    let relay = relay_of(&server);
    let made = server.ask("POST", "/api/relay/credentials", &["Content-Type: application/json"], r#"{"ttl": 600}"#);
    let made: Value = serde_json::from_str(&made.body).expect("JSON");
    assert_eq!(made["uris"][0], format!("turn:{relay}?transport=udp"));
    let text = |key: &str| made[key].as_str().expect("text").to_owned();
    TurnClient::of(relay, &text("username"), &text("password")).allocate();
    let users: Value = serde_json::from_str(&server.ask("GET", "/api/relay/users", &[], "").body).expect("JSON");
    assert_eq!(users[0]["user"], "anybody", "quotas go by what stands behind the time");

    let refused = |user: &str, password: &str| TurnClient::of(relay, user, password).ask_for_allocation().code;
    assert_eq!(refused(&text("username"), "guessed"), 401);
    let expired = relay::auth::Secret::new(b"a secret of some length").password("1700000000:alice");
    assert_eq!(refused("1700000000:alice", &expired), 401);
}

#[test]
fn loopback_and_private_networks_are_no_peers_unless_they_are_allowed() {
    let server = Server::start(&RELAY[..2]);
    let mut client = TurnClient::new(relay_of(&server));
    client.allocate();
    for peer in ["127.0.0.1:53", "127.0.0.2:53", "10.0.0.1:53", "192.168.1.1:53", "169.254.169.254:80", "0.0.0.0:53"] {
        let peer = peer.parse().expect("an address");
        assert_eq!((client.permit(peer), client.bind(0x4000, peer)), (403, 403), "{peer}");
    }
    for peer in [relay_of(&server), server.addr.parse().expect("an address")] {
        assert_eq!((client.permit(peer), client.bind(0x4000, peer)), (403, 403), "{peer}");
    }
    assert_eq!(client.permit("9.9.9.9:53".parse().expect("an address")), 0);
}

#[test]
fn a_relay_that_drains_takes_no_newcomers_and_serves_those_who_are_there() {
    let server = Server::start(&RELAY);
    let (relay, echo) = (relay_of(&server), Echo::start());
    let mut client = TurnClient::new(relay);
    client.allocate();
    client.bind(0x4000, echo.addr);
    assert_eq!(server.ask("POST", "/api/relay/drain", &[], "").status, 204);
    // Workers hear of it one after the other.
    for _ in 0..8 {
        wait_until("newcomers are refused", || {
            let mut newcomer = TurnClient::new(relay);
            let code = newcomer.ask_for_allocation().code;
            assert!([0, 508].contains(&code), "{code}");
            newcomer.refresh(0);
            code == 508
        });
    }
    assert_eq!(client.echo_on(0x4000, b"still here"), b"still here");
    assert_eq!(client.refresh(600).lifetime, Some(600));
}

#[test]
fn the_end_waits_for_allocations_and_no_longer_than_for_the_last() {
    let mut server = Server::start(&[&RELAY[..], &["http.drain_timeout=0s", "relay.drain_timeout=60s"]].concat());
    let (relay, echo) = (relay_of(&server), Echo::start());
    let mut client = TurnClient::new(relay);
    client.allocate();
    client.bind(0x4000, echo.addr);
    let listed = || server.ask("GET", "/api/relay", &[], "").body.contains("\"allocations\":1");
    // Who has it is told a moment later.
    wait_until("the server knows of it", listed);
    server.terminate();
    wait_until("the server drains", || server.ask("GET", "/healthz", &[], "").status == 503);
    assert_eq!(client.echo_on(0x4000, b"still here"), b"still here");
    assert!(server.ended().is_none());

    assert_eq!(client.refresh(0).code, 0);
    wait_until("it ends", || server.ended().is_some());
    assert_eq!(server.ended().and_then(|status| status.code()), Some(0));
}

#[test]
fn a_relay_that_cannot_be_is_refused_by_check_and_by_serve_alike() {
    let run = |command: &str, settings: &[&str]| {
        let mut run = millrace();
        run.arg(command).args(settings.iter().flat_map(|setting| ["--set", setting]));
        let output = run.args(["--set", "auth.dev=true"]).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let listen = format!("relay.listen={}", taken.local_addr().expect("bound"));
    for settings in [
        &["relay.listen=127.0.0.1:0"][..],
        &["relay.listen=127.0.0.1:0", "relay.users=a:b", "relay.ports=50000-50003", "workers.count=3"],
    ] {
        let (checked, served) = (run("check", settings), run("serve", settings));
        assert_eq!((checked.0, &checked.1), (Some(2), &served.1), "{settings:?}");
        assert!(checked.1.contains("relay."), "{checked:?}");
    }
    let users = "relay.users=a:b";
    assert_eq!(run("check", &[&listen, users]).0, Some(0), "it does not open sockets");
    let (status, said) = run("serve", &[&listen, users, "http.listen=127.0.0.1:0"]);
    assert!(status == Some(2) && said.contains(&listen.replace('=', " ")), "{said}");
}

#[test]
fn who_does_not_prove_himself_is_answered_little_and_costs_nothing() {
    let server = Server::start(&RELAY);
    let relay = relay_of(&server);
    let mut stranger = TurnClient::of(relay, "mallory", "guessed");
    let allocate = |writer: &mut relay::answer::Writer<'_>| {
        writer.number(relay::message::attribute::REQUESTED_TRANSPORT, 17 << 24);
    };
    let challenged = stranger.exchange(Method::Allocate, allocate);
    assert_eq!(challenged.code, 401);
    let request_len = 20 + 8;
    assert!(challenged.bytes.len() * 10 <= request_len * 26, "{} bytes for {request_len}", challenged.bytes.len());
    let bound = stranger.exchange(Method::Binding, |_| {});
    assert!(bound.bytes.len() <= 32, "{} bytes for 20", bound.bytes.len());
    assert_eq!(stranger.ask_for_allocation().code, 401);
    assert_eq!(server.metric("millrace_relay_allocations"), 0.0);
}
