//! What a server does when it is told to by signals, and goes on.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{RELAY, Server, TurnClient, millrace, relay_of, wait_until};

#[test]
fn a_hang_up_has_certificates_and_users_read_again_and_ends_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key, users] = ["cert.pem", "key.pem", "users.toml"].map(|name| folder.path().join(name));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    fs::write(&certificate, made.cert.pem()).expect("written");
    fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    fs::write(&users, "realm = \"millrace\"\n").expect("written");
    let mut server = Told::start(&[
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
        server.forget();
    }
    fs::write(&certificate, "none").expect("written");
    server.tell("HUP");
    wait_until("it is told", || server.has_said("certificates stay as they are"));
    assert!(server.child.try_wait().expect("a child").is_none());
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

fn tell(pid: u32, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().expect("kill runs").success());
}

/// A server, and what it says.
struct Told {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Told {
    fn start(settings: &[&str]) -> Self {
        let mut command = millrace();
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--set", "workers.count=1"]);
        command.args(["--set", "workers.udp_port=0", "--set", "log.filter=info"]);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let said = Arc::<Mutex<String>>::default();
        let (mut log, heard) = (BufReader::new(child.stderr.take().expect("a pipe")), said.clone());
        thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|len| len > 0) {
                heard.lock().expect("nobody panics").push_str(&std::mem::take(&mut line));
            }
        });
        // It says where it listens when it is there.
        child.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("it starts");
        Told { child, said }
    }

    fn tell(&self, signal: &str) {
        tell(self.child.id(), signal);
    }

    fn has_said(&self, what: &str) -> bool {
        self.said.lock().expect("nobody panics").contains(what)
    }

    fn forget(&self) {
        self.said.lock().expect("nobody panics").clear();
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
