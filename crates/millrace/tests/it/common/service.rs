//! A server that is told things by signals: what it says, and which process it is by now.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{millrace, wait_until};

/// A server, whatever process it is, and what all of them say.
pub struct Service {
    pub child: Child,
    pub addr: String,
    /// By TLS, where there is such.
    pub tls_addr: String,
    said: Arc<Mutex<String>>,
}

impl Service {
    pub fn start(settings: &[&str]) -> Self {
        Self::start_as(millrace(), &[], settings)
    }

    pub fn start_as(mut command: Command, flags: &[&str], settings: &[&str]) -> Self {
        command.args(["serve", "--dev", "--listen", "127.0.0.1:0"]).args(flags);
        let own = ["workers.count=2", "workers.udp_port=0", "log.filter=info", "reflect.viewers_per_client=1000"];
        command.args(own.iter().chain(settings).flat_map(|setting| ["--set", setting]));
        command.args(["--set", "tls.newcomers_per_client=1000", "--set", "http.connections_per_client=1000"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let said = Arc::<Mutex<String>>::default();
        let (mut log, heard) = (BufReader::new(child.stderr.take().expect("a pipe")), said.clone());
        thread::spawn(move || {
            let mut line = String::new();
            while log.read_line(&mut line).is_ok_and(|len| len > 0) {
                heard.lock().expect("nobody panics").push_str(&std::mem::take(&mut line));
            }
        });
        // It says where it listens when it is there, all at once.
        let (mut lines, mut text) = (BufReader::new(child.stdout.take().expect("a pipe")), String::new());
        while !text.contains("metrics, health") {
            assert!(lines.read_line(&mut text).expect("what it prints") > 0, "{text}");
        }
        let after = |scheme: &str| {
            let (_, rest) = text.split_once(scheme)?;
            rest.split(['/', '\n']).next().map(str::to_owned)
        };
        let (addr, tls_addr) = (after("http://").expect("an address"), after("https://").unwrap_or_default());
        Service { child, addr, tls_addr, said }
    }

    /// Tells the process that is it now.
    pub fn tell(&self, signal: &str) {
        tell(self.successors().last().copied().unwrap_or(self.child.id()), signal);
    }

    pub fn has_said(&self, what: &str) -> bool {
        self.said.lock().expect("nobody panics").contains(what)
    }

    pub fn forget_what_was_said(&self) {
        self.said.lock().expect("nobody panics").clear();
    }

    pub fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").count()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// The processes after the first, which have taken over.
    pub fn successors(&self) -> Vec<u32> {
        let said = self.said.lock().expect("nobody panics");
        let numbers = said.lines().filter(|line| line.contains("has taken over")).filter_map(|line| {
            let (_, rest) = line.split_once("successor=")?;
            rest.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
        });
        numbers.collect()
    }

    pub fn wait_for_successor(&self, count: usize) {
        wait_until("a new process takes over", || self.successors().len() == count);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.said.lock().expect("nobody panics"));
        }
        for pid in self.successors().into_iter().filter(|pid| is_there(*pid)) {
            Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().ok();
        }
        // It may have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Whether there is such a process.
pub fn is_there(pid: u32) -> bool {
    // One that has ended and is nobody's child any more is gone.
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Sends a process a signal.
pub fn tell(pid: u32, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().expect("kill runs").success());
}
