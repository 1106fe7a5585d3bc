//! What a server does when it is told to by signals, and goes on.

use std::fs;
use std::net::SocketAddr;

use crate::common::{RELAY, Server, Service, TurnClient, relay_of, tell, wait_until};

#[test]
fn a_hang_up_has_certificates_and_users_read_again_and_ends_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key, users] = ["cert.pem", "key.pem", "users.toml"].map(|name| folder.path().join(name));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    fs::write(&certificate, made.cert.pem()).expect("written");
    fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    fs::write(&users, "realm = \"millrace\"\n").expect("written");
    let mut server = Service::start(&[
        &format!("tls.certificates={} {}", certificate.display(), key.display()),
        "http.tls_listen=127.0.0.1:0",
        "relay.listen=127.0.0.1:0",
        &format!("relay.users_file={}", users.display()),
    ]);
    for signal in ["HUP", "USR2"] {
        server.tell(signal);
        let said = [
            &format!("SIG{signal}: certificates and users are read again"),
            "certificates were read again",
            "users read again",
        ];
        wait_until(signal, || said.iter().all(|line| server.has_said(line)));
        server.forget_what_was_said();
    }
    fs::write(&certificate, "none").expect("written");
    server.tell("HUP");
    wait_until("it is told", || server.has_said("certificates stay as they are"));
    assert!(!server.has_ended());
}

#[test]
fn a_drain_by_signal_takes_nobody_new_and_ends_with_the_last() {
    let mut server = Server::start(&RELAY);
    let relay: SocketAddr = relay_of(&server);
    let mut client = TurnClient::new(relay);
    client.allocate();
    wait_until("control knows of it", || server.ask("GET", "/api/relay", &[], "").body.contains("\"allocations\":1,"));
    tell(server.pid(), "USR1");
    wait_until("it drains", || server.ask("GET", "/healthz", &[], "").status == 503);
    wait_until("newcomers are refused", || {
        let mut newcomer = TurnClient::new(relay);
        let code = newcomer.ask_for_allocation().code;
        newcomer.refresh(0);
        code == 508
    });
    assert_eq!(client.refresh(600).lifetime, Some(600));
    assert!(server.ended().is_none(), "somebody is there");

    assert_eq!(client.refresh(0).code, 0);
    wait_until("it ends", || server.ended().is_some());
    assert_eq!(server.ended().and_then(|status| status.code()), Some(0));
}
