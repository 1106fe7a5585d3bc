//! Runs the load once against a server that is ready, and looks at both when the load begins and ends to measure.
//!
//! In: the trees' counters, and what the load prints. Out: a [`Driven`]: the load's result and two looks around it.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;
use time::OffsetDateTime;

use super::network::{Counted, Namespace, Sockets, sockets_of};
use super::outcome::{Line, Outcome};
use super::proc::Used;
use super::quiet::CpuTimes;
use super::stop::Stop;
use super::tree::{Guard, Start, Tree};
use super::values::Format;

/// What one load came to.
pub struct Driven {
    pub outcome: Outcome,
    pub begin: Look,
    pub end: Look,
}

/// All counters at one time.
#[derive(Clone)]
pub struct Look {
    pub at: Instant,
    pub date: OffsetDateTime,
    pub machine: CpuTimes,
    /// CPU time of this program.
    pub own_s: f64,
    pub server: Used,
    pub server_sockets: Sockets,
    pub server_namespace: Counted,
    pub load: Used,
    pub load_lives: bool,
    /// Empty when the load is not there yet, or no longer.
    pub load_sockets: Sockets,
    pub load_namespace: Counted,
}

/// Where to look.
pub struct Eyes<'a> {
    pub machine: &'a mut dyn FnMut() -> CpuTimes,
    pub server: &'a mut Tree,
    pub server_namespace: Namespace,
    /// Known once a load has run.
    pub load_namespace: Option<Namespace>,
}

impl Eyes<'_> {
    fn look(&mut self, load: Option<&Tree>) -> anyhow::Result<Look> {
        let (at, date) = (Instant::now(), OffsetDateTime::now_utc());
        let load_members = load.map(Tree::members).unwrap_or_default();
        if !load_members.is_empty() && self.load_namespace.is_none() {
            self.load_namespace = Namespace::of(&load_members).ok();
        }
        Ok(Look {
            at,
            date,
            machine: (self.machine)(),
            own_s: cpu_s(UsageWho::RUSAGE_SELF),
            server: self.server.used(),
            server_sockets: sockets_of(&self.server.members()),
            server_namespace: self.server_namespace.counted().context("read the network's counters")?,
            load: load.map(Tree::used).unwrap_or_default(),
            load_lives: !load_members.is_empty(),
            load_sockets: sockets_of(&load_members),
            load_namespace: match &mut self.load_namespace {
                Some(namespace) => namespace.counted().context("read the network's counters")?,
                None => self.server_namespace.counted()?,
            },
        })
    }

    /// Whether server and load share one namespace, so that its counters cannot tell them apart.
    pub fn share_namespace(&self) -> bool {
        self.load_namespace.as_ref().is_none_or(|load| load.is(&self.server_namespace))
    }
}

/// How to run the load.
pub struct Drive<'a> {
    pub start: Start<'a>,
    pub format: Option<Format>,
    /// Then it is ended, and that is an error.
    pub time_max: Duration,
    pub stop: &'a Stop,
}

impl Drive<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// When it fails, takes too long, prints no result, or nothing arrived; when the server ends; when we are to stop.
    pub fn run(&self, eyes: &mut Eyes<'_>, guard: &mut Guard) -> anyhow::Result<Driven> {
        let mut seen = Seen { begin: eyes.look(None)?, end: None, has_end_mark: false, result: None };
        let children_before = children();
        let mut load = Tree::start(&self.start, guard)?;
        let stdout = load.stdout().context("the load has no standard output")?;
        let lines = follow(stdout, self.start.log)?;
        let deadline = Instant::now() + self.time_max;
        let mut last_seen = Used::default();
        loop {
            self.stop.check()?;
            let ended = load.exited().is_some();
            match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => seen.line(&line, eyes, &load)?,
                Err(RecvTimeoutError::Timeout) if !ended => last_seen = load.used(),
                // It ended, and nothing came any more; a child of it may hold its standard output open.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) if ended => break,
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
            if let Some(status) = eyes.server.exited() {
                bail!("the server ended ({status}) under the load");
            }
            ensure!(Instant::now() < deadline, "the load did not end within {:.0} s", self.time_max.as_secs_f64());
        }
        let status = load.exited().context("the load has no exit status")?;
        ensure!(status.success(), "the load failed ({status})");
        let result = seen.result.context("the load printed no result, a line that is a JSON object")?;
        let outcome = Outcome::read(result, self.format)?;
        ensure!(outcome.arrived.packets > 0, "nothing got through: the load received 0 packets");

        let mut end = seen.end.context("the load printed no result")?;
        end.load = most(end.load, last_seen);
        if !end.load_lives {
            // It was gone when we looked. What it used altogether is known, for we waited for it.
            end.load = most(end.load, children().since(&children_before));
        }
        Ok(Driven { outcome, begin: seen.begin, end })
    }
}

/// What has come until now.
struct Seen {
    begin: Look,
    end: Option<Look>,
    has_end_mark: bool,
    result: Option<Value>,
}

impl Seen {
    fn line(&mut self, text: &str, eyes: &mut Eyes<'_>, load: &Tree) -> anyhow::Result<()> {
        match Line::of(text) {
            Line::Begin => self.begin = eyes.look(Some(load))?,
            Line::End => {
                self.end = Some(eyes.look(Some(load))?);
                self.has_end_mark = true;
            }
            Line::Object(result) => {
                if !self.has_end_mark {
                    self.end = Some(eyes.look(Some(load))?);
                }
                self.result = Some(result);
            }
            Line::Other => {}
        }
        Ok(())
    }
}

/// How often the load is looked at in between, for what it used is not to be seen any more when it is gone.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Lines that wait to be read; a load that prints faster is held up.
const LINES_MAX: usize = 1_000;

/// Reads lines as they come, and adds them to the log.
fn follow(stdout: ChildStdout, log: &Path) -> anyhow::Result<Receiver<String>> {
    let mut log = OpenOptions::new().append(true).open(log).with_context(|| format!("open {}", log.display()))?;
    let (sender, receiver) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let _ = log.write_all(&line);
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
            line.clear();
        }
    });
    Ok(receiver)
}

/// What all processes used that we started and that are gone.
fn children() -> Used {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Used::default() };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Used {
        user_s: seconds(usage.user_time()),
        system_s: seconds(usage.system_time()),
        voluntary_switches: usage.voluntary_context_switches() as u64,
        involuntary_switches: usage.involuntary_context_switches() as u64,
        // The kernel keeps that of the largest child ever, which may have been another.
        peak_memory_bytes: 0,
    }
}

fn cpu_s(who: UsageWho) -> f64 {
    let Ok(usage) = getrusage(who) else { return 0.0 };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// Counters only rise, so of two looks the larger is the later.
fn most(one: Used, other: Used) -> Used {
    Used {
        user_s: one.user_s.max(other.user_s),
        system_s: one.system_s.max(other.system_s),
        voluntary_switches: one.voluntary_switches.max(other.voluntary_switches),
        involuntary_switches: one.involuntary_switches.max(other.involuntary_switches),
        peak_memory_bytes: one.peak_memory_bytes.max(other.peak_memory_bytes),
    }
}
