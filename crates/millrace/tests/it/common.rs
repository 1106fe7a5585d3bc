//! A server as its own process, and clients of it over real sockets.

mod client;
mod collector;
mod dtls;
mod line;
mod publisher;
mod service;
mod turn;
mod viewer;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use client::{Client, FRAGMENT, Way, restart_from_another_address};
pub use collector::{Collector, Trace, said};
pub use dtls::Front;
pub use line::Cut;
pub use publisher::Publisher;
pub use service::{Service, is_there, tell};
pub use turn::{Echo, RELAY, TurnClient, Undisturbed, channel_data, relay_of, send_indication};
pub use viewer::Viewer;

/// How long anything may take before a test gives up. Far more than it takes, as the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The binary at work, on free ports. It ends with the test.
pub struct Server {
    child: Child,
    pub addr: String,
}

/// An HTTP response.
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Server {
    /// Starts a server with two workers, over which sessions are spread, and further settings, each as
    /// "section.key=value".
    pub fn start(settings: &[&str]) -> Self {
        Self::start_with(&[], settings)
    }

    /// The same with flags of `serve`.
    pub fn start_with(flags: &[&str], settings: &[&str]) -> Self {
        Self::start_as(millrace(), flags, settings)
    }

    /// The same in a process that may have `files` open files.
    pub fn start_with_files(files: u32, settings: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(millrace().get_program());
        Self::start_as(command, &[], settings)
    }

    /// The same, with a file for its log.
    pub fn start_with_files_and_log(files: u32, log: &Path, settings: &[&str]) -> Self {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files} && log=$1 && shift && exec \"$0\" \"$@\" 2>\"$log\"");
        command.args(["-c", &script]).arg(millrace().get_program()).arg(log);
        Self::start_as(command, &[], settings)
    }

    /// The same, to which tokens have to be shown, as the file in the flags says.
    pub fn start_with_keys(flags: &[&str], settings: &[&str]) -> Self {
        let mut command = millrace();
        command.arg("serve");
        Self::begin(command, flags, settings)
    }

    fn start_as(mut command: Command, flags: &[&str], settings: &[&str]) -> Self {
        command.args(["serve", "--dev"]);
        Self::begin(command, flags, settings)
    }

    fn begin(mut command: Command, flags: &[&str], settings: &[&str]) -> Self {
        command.args(["--listen", "127.0.0.1:0"]).args(flags);
        let own =
            ["workers.count=2", "workers.udp_port=0", "rooms.near_max=0", "log.filter=warn", "http.metrics_age_max=0s"];
        for setting in own.iter().chain(settings) {
            command.args(["--set", setting]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("what it prints");
        let (_, rest) = line.split_once("http://").expect("an address");
        Server { addr: rest.trim().trim_end_matches('/').to_owned(), child }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Asks by HTTP; `headers` are whole lines.
    pub fn ask(&self, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let len = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len}\r\n{headers}\r\n{body}"
        );
        let mut socket = TcpStream::connect(&self.addr).expect("it listens");
        socket.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// The sum of the samples of a metric, over all workers. `name` may have labels after the worker's.
    pub fn metric(&self, name: &str) -> f64 {
        let (name, label) =
            name.split_once('{').map_or((name, ""), |(name, label)| (name, label.trim_end_matches('}')));
        let page = self.ask("GET", "/metrics", &[], "").body;
        let samples = page.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let samples: Vec<f64> = samples
            .filter(|(labels, _)| (labels.is_empty() || labels.starts_with('{')) && labels.contains(label))
            .map(|(_, value)| value.parse().expect("a number"))
            .collect();
        assert!(!samples.is_empty(), "{name} {label} is not among the metrics");
        samples.iter().sum()
    }

    /// State of a stream as the API tells it; empty for one that is not listed.
    pub fn stream_state(&self, stream: &str) -> String {
        let list = self.ask("GET", "/api/streams", &[], "").body;
        let streams: serde_json::Value = serde_json::from_str(&list).expect("JSON");
        let found = streams.as_array().expect("a list").iter().find(|entry| entry["name"] == stream);
        found.and_then(|entry| entry["state"].as_str()).unwrap_or_default().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill runs").success());
    }

    /// How the process ended, when it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already cannot be ended again, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Answer {
    /// The path to which `Location` leads from where the request went to (RFC 3986 §5.2).
    pub fn location(&self, from: &str) -> String {
        let (parent, _) = from.rsplit_once('/').expect("a path");
        format!("{parent}/{}", self.header("location"))
    }

    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// The binary, without the settings of whoever runs the tests.
pub fn millrace() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLRACE_")) {
        command.env_remove(name);
    }
    command
}

/// Waits until `done`, while `step` keeps everybody going.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        sleep(Duration::from_millis(1));
    }
}

/// A number of this network (proc_pid_net(5)): of two lines that begin with `protocol` one has names, the other numbers.
pub fn snmp(protocol: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/snmp").expect("it can be read");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)).map(str::split_whitespace);
    let (mut names, mut numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
    let index = names.position(|other| other == name).expect("a name");
    numbers.nth(index).and_then(|number| number.parse().ok()).expect("a number")
}

/// Datagrams that found no room in this network, in sockets and on their way over loopback. As long as there are none, nothing
/// may be lost; on a busy machine, where buffers are small, there may be some.
pub fn kernel_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/dev").expect("it can be read");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("lo:")).expect("there is loopback");
    let on_loopback: u64 = line.split_whitespace().nth(3).and_then(|number| number.parse().ok()).expect("a number");
    on_loopback + snmp("Udp:", "RcvbufErrors")
}

/// An address that nobody else has, by TCP and by UDP: its host is this process's own, and no two tests are given the same port.
pub fn free_addr() -> String {
    static LAST: AtomicU16 = AtomicU16::new(20_000);
    let id = std::process::id();
    let host = [127, 128 + (id >> 16) as u8 % 100, (id >> 8) as u8, id as u8];
    loop {
        let addr = SocketAddr::from((host, LAST.fetch_add(1, Ordering::Relaxed)));
        // Who listens at all addresses may have it.
        if TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok() {
            return addr.to_string();
        }
    }
}
