//! Where users of the relay come from while it runs: a file that changes, and a Redis, a real one that each test starts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::time::Duration;

use engine::{Mailbox, Receiver, mailbox};
use relay::auth::{Found, UserKeys};
use relay::spec::{Command, Event};
use server::config::Config;
use server::plane::workers::Workers;
use server::plane::{Plane, placement};
use server::relay::control::RelayControl;
use server::relay::known;
use server::relay::lookup::UserStore;
use server::relay::redis::Redis;
use server::relay::setup::Shared;
use server::relay::users::Users;
use server::worker::Message;
use tempfile::TempDir;
use wire::WorkerId;

use crate::skip::skip;

const REALM: &str = "example.org";

/// Longer than anything takes, also on a busy machine.
const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn users_and_secrets_are_found_where_coturn_has_them() {
    let Some(server) = Server::start(&[]) else { return };
    let redis = server.client("db=2");
    let odd = ["%n%s", "a/../b", "x y\r\nDEL z", "*", "\u{30de}"];
    for name in odd.into_iter().chain(["ada"]) {
        server.set(name, &hex(&md5(name)));
    }
    server.set("damaged", "7da2270ccfa4");
    server.command(&["SADD", &format!("turn/realm/{REALM}/secret"), "north", "library"]);
    for name in odd.into_iter().chain(["ada"]) {
        let keys = Found::Keys(UserKeys { md5: Some(md5(name)), sha256: None });
        assert_eq!(found_out(&redis, name).await, keys, "{name:?}");
    }
    for name in ["damaged", "eve", "", "ada/key"] {
        assert_eq!(found_out(&redis, name).await, Found::Nobody, "{name:?}");
    }
    let secrets = until_answered(async || redis.secrets().await).await;
    assert_eq!(secrets, [b"library".to_vec(), b"north".to_vec()]);
}

#[tokio::test]
async fn a_redis_with_a_password_is_asked_with_it() {
    let Some(server) = Server::start(&["--requirepass", "hush"]) else { return };
    assert_eq!(server.client("db=2").find("ada").await, Found::Unavailable);
    assert_eq!(found_out(&server.client("db=2&pass=hush"), "ada").await, Found::Nobody);
}

#[tokio::test]
async fn while_redis_is_away_nothing_is_found_out_and_nobody_waits_long() {
    let Some(mut server) = Server::start(&[]) else { return };
    let redis = server.client("db=2");
    assert_eq!(found_out(&redis, "ada").await, Found::Nobody);

    server.signal("STOP");
    let answer = tokio::time::timeout(SOON, redis.find("ada")).await;
    assert_eq!(answer, Ok(Found::Unavailable), "it is there, and says nothing");
    server.signal("CONT");

    server.stop();
    assert_eq!(redis.find("ada").await, Found::Unavailable);
    assert_eq!(redis.secrets().await, None);

    server.start_again();
    assert_eq!(found_out(&redis, "ada").await, Found::Nobody, "the connection is made again");
}

#[tokio::test]
async fn a_worker_s_question_is_answered_and_all_workers_hear_of_secrets() {
    let Some(server) = Server::start(&[]) else { return };
    server.set("ada", &hex(&md5("ada")));
    server.command(&["SADD", &format!("turn/realm/{REALM}/secret"), "north"]);
    let mut test = Control::new(&format!("redis = {:?}", server.url("db=2")));
    let keys = Found::Keys(UserKeys { md5: Some(md5("ada")), sha256: None });
    for (name, expected) in [("ada", keys), ("eve", Found::Nobody)] {
        let found = loop {
            test.control.handle_event(WorkerId(1), Event::Lookup { user: name.into() });
            let (user, found) = test.found(1).await;
            assert_eq!(&*user, name);
            // A busy machine may need longer than a question waits.
            if found != Found::Unavailable {
                break found;
            }
        };
        assert_eq!(found, expected, "{name}");
    }
    for worker in 0..2 {
        assert_eq!(test.credentials(worker).await, "Credentials { users: 0, secrets: 1 }");
    }
}

#[tokio::test]
async fn without_a_redis_a_question_is_answered_too() {
    let mut test = Control::new("users = [\"ada:lovelace\"]");
    test.control.handle_event(WorkerId(0), Event::Lookup { user: "eve".into() });
    assert_eq!(test.found(0).await, ("eve".into(), Found::Unavailable));
}

#[tokio::test]
async fn a_file_of_users_that_changes_is_told_to_all_workers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.toml");
    let add = |name: &str| Users::change(&path, REALM, |users| users.add(name, "p")).expect("written");
    add("ada");
    let mut test = Control::new(&format!("users_file = {path:?}"));
    add("bob");
    for worker in 0..2 {
        assert_eq!(test.credentials(worker).await, "Credentials { users: 2, secrets: 0 }");
    }
}

/// What becomes known of a user. No question waits for longer than half a second, which is too short for a busy machine.
async fn found_out(redis: &Redis, name: &str) -> Found {
    until_answered(async || Some(redis.find(name).await).filter(|found| *found != Found::Unavailable)).await
}

/// Asks until there is an answer.
async fn until_answered<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let answered = async {
        loop {
            match ask().await {
                Some(answer) => break answer,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(SOON, answered).await.expect("it answers")
}

fn md5(name: &str) -> [u8; 16] {
    UserKeys::new(name, REALM, "hero").md5.expect("both are made")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The control plane of two workers that only have mailboxes.
struct Control {
    control: RelayControl,
    workers: Vec<Receiver<Message>>,
    /// Told meanwhile.
    others: Vec<Vec<Command>>,
}

impl Control {
    fn new(settings: &str) -> Self {
        let (mailboxes, workers): (Vec<Mailbox<Message>>, _) = (0..2).map(|_| mailbox(100).expect("a mailbox")).unzip();
        let plane = Plane::new(Workers::pretended(mailboxes), placement::Settings::default());
        let mut config = Config::default();
        config.apply_toml("test", &format!("[relay]\nrealm = {REALM:?}\n{settings}\n")).expect("valid");
        let listen: SocketAddr = ([127, 0, 0, 1], 3_478).into();
        config.relay.listen = vec![listen];
        let shared = Shared::new(&config, 100, &[listen], &[listen.ip()], &[]).expect("an address");
        let lookups = known::start(shared.known().clone(), &plane, Arc::default()).expect("a source");
        let control = RelayControl::new(plane, &shared, &config).with_users(lookups, Arc::default());
        Control { control, workers, others: vec![Vec::new(), Vec::new()] }
    }

    async fn found(&mut self, worker: usize) -> (Arc<str>, Found) {
        let command = self.told(worker, |command| matches!(command, Command::Found { .. })).await;
        let Command::Found { user, found } = command else { unreachable!() };
        (user, found)
    }

    async fn credentials(&mut self, worker: usize) -> String {
        let command = self.told(worker, |command| matches!(command, Command::Credentials(_))).await;
        let Command::Credentials(credentials) = command else { unreachable!() };
        format!("{credentials:?}")
    }

    /// The next command of a kind.
    async fn told(&mut self, worker: usize, is_it: impl Fn(&Command) -> bool) -> Command {
        let told = async {
            loop {
                if let Some(index) = self.others[worker].iter().position(&is_it) {
                    break self.others[worker].remove(index);
                }
                match self.workers[worker].try_recv() {
                    Some(Message::Relay(command)) => self.others[worker].push(command),
                    Some(other) => panic!("{other:?}"),
                    None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        tokio::time::timeout(SOON, told).await.expect("it is told")
    }
}

/// A Redis on a socket in a folder of its own, with nothing in it.
struct Server {
    folder: TempDir,
    options: Vec<String>,
    process: Child,
}

impl Server {
    /// `None`: there is none on this machine.
    fn start(options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let options = options.iter().map(ToString::to_string).collect::<Vec<_>>();
        match launch(&folder, &options) {
            Some(process) => Some(Server { folder, options, process }),
            None => {
                skip("users in Redis: there is no redis-server (Debian: redis-server)");
                None
            }
        }
    }

    fn start_again(&mut self) {
        self.process = launch(&self.folder, &self.options).expect("it is installed");
    }

    fn stop(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it has ended");
        fs::remove_file(self.socket()).expect("it is nobody's");
    }

    fn signal(&self, signal: &str) {
        let process = self.process.id().to_string();
        assert!(Process::new("kill").args(["-s", signal, &process]).status().expect("it runs").success());
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    fn url(&self, query: &str) -> String {
        format!("unix://{}?{query}", self.socket().display())
    }

    fn client(&self, query: &str) -> Redis {
        Redis::new(&self.url(query), REALM).expect("a URL")
    }

    fn set(&self, name: &str, key: &str) {
        self.command(&["SET", &format!("turn/realm/{REALM}/user/{name}/key"), key]);
    }

    fn command(&self, words: &[&str]) {
        let client = redis::Client::open(self.url("db=2")).expect("a URL");
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(word));
        command.exec(&mut client.get_connection().expect("a connection")).expect("done");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts one, and waits until it takes connections.
fn launch(folder: &TempDir, options: &[String]) -> Option<Child> {
    let socket = folder.path().join("redis.sock");
    let mut process = Process::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--unixsocket"])
        .arg(socket)
        .arg("--dir")
        .arg(folder.path())
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.to_lowercase().contains("ready to accept connections")), "it starts");
    // What it says later goes nowhere, and does not hold it up.
    std::thread::spawn(move || lines.for_each(drop));
    Some(process)
}
