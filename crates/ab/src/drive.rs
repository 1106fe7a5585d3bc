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
use serde_json::Value;
use time::OffsetDateTime;

use super::network::{Counted, Namespace, Sockets, sockets_of};
use super::outcome::{Line, Outcome};
use super::quiet::CpuTimes;
use super::record::Usage;
use super::stop::Stop;
use super::syscalls::Counter;
use super::tree::{Guard, Start, Tree};
use measure::cpu::CpuTime;

/// What one load came to.
pub struct Driven {
    pub outcome: Outcome,
    pub begin: Look,
    pub end: Look,
    /// System calls of the server, when they were to be counted and could be.
    pub calls_per_second: Option<f64>,
}

impl Driven {
    /// Measured time, by the load or else by the clock.
    pub fn seconds(&self) -> f64 {
        self.outcome.seconds.unwrap_or_else(|| self.end.at.duration_since(self.begin.at).as_secs_f64())
    }
}

/// All counters at one time.
#[derive(Clone)]
pub struct Look {
    pub at: Instant,
    pub date: OffsetDateTime,
    pub machine: CpuTimes,
    /// CPU time of this program.
    pub own_s: f64,
    pub server: Usage,
    pub server_sockets: Sockets,
    pub server_namespace: Counted,
    pub load: Usage,
    pub load_lives: bool,
    /// Empty when the load is not there yet, or no longer.
    pub load_sockets: Sockets,
    pub load_namespace: Counted,
}

/// Where to look.
pub struct Eyes<'a> {
    pub machine: &'a dyn Fn() -> CpuTimes,
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
        // What it used is whole only if it still lives afterwards.
        let used = load.map(Tree::used).unwrap_or_default();
        let load_lives = load.is_some_and(|load| !load.members().is_empty());
        Ok(Look {
            at,
            date,
            machine: (self.machine)(),
            own_s: CpuTime::own().total(),
            server: self.server.used(),
            server_sockets: sockets_of(&self.server.members()),
            server_namespace: self.server_namespace.counted().context("read the network's counters")?,
            load: used,
            load_lives,
            load_sockets: sockets_of(&load_members),
            load_namespace: match &mut self.load_namespace {
                Some(namespace) => namespace.counted().context("read the network's counters")?,
                None => self.server_namespace.counted()?,
            },
        })
    }

    /// Whether server and load share one namespace, so that its counters cannot tell them apart.
    pub fn share_namespace(&self) -> bool {
        self.load_namespace.as_ref().is_none_or(|load| load.inode == self.server_namespace.inode)
    }
}

/// Runs the load. `calls` is the file by way of which the server's system calls are counted. After `time_max` the load is
/// ended.
///
/// # Errors
/// When it fails, takes too long, prints no result, or nothing arrived; when the server ends; when we are to stop.
pub fn run(
    start: &Start<'_>,
    calls: Option<&Path>,
    time_max: Duration,
    stop: &Stop,
    eyes: &mut Eyes<'_>,
    guard: &mut Guard,
) -> anyhow::Result<Driven> {
    let mut seen = Seen::new(eyes.look(None)?, calls);
    seen.count_calls(eyes, guard)?;
    let mut load = Tree::start(start, guard)?;
    let stdout = load.stdout().context("the load has no standard output")?;
    let lines = follow(stdout, start.log)?;
    let deadline = Instant::now() + time_max;
    let mut last_seen = Usage::default();
    loop {
        stop.check()?;
        let ended = load.exited().is_some();
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => seen.line(&line, eyes, &load, guard)?,
            Err(RecvTimeoutError::Timeout) if !ended => {
                // What it does behind the end that it told is not what was measured.
                if seen.end.is_none() {
                    last_seen = load.used();
                }
            }
            // It ended, and nothing came any more; a child of it may hold its standard output open.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) if ended => break,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
        if let Some(status) = eyes.server.exited() {
            bail!("the server ended ({status}) under the load");
        }
        ensure!(Instant::now() < deadline, "the load did not end within {:.0} s", time_max.as_secs_f64());
    }
    let status = load.exited().context("the load has no exit status")?;
    ensure!(status.success(), "the load failed ({status})");
    let result = seen.result.context("the load printed no result, a line that is a JSON object")?;
    let outcome = Outcome::read(result)?;
    ensure!(outcome.arrived.packets > 0, "nothing got through: the load received 0 packets");

    let mut end = seen.end.context("the load printed no result")?;
    end.load = end.load.most(&last_seen);
    if !end.load_lives {
        // It was gone when we looked, and what it used altogether is known since.
        end.load = end.load.most(&load.used());
    }
    Ok(Driven { outcome, begin: seen.begin, end, calls_per_second: seen.calls_per_second })
}

/// What has come until now. System calls are counted from the load's start, or else its mark, to the first result or mark.
struct Seen<'a> {
    begin: Look,
    end: Option<Look>,
    has_end_mark: bool,
    result: Option<Value>,
    calls_file: Option<&'a Path>,
    counter: Option<Counter>,
    calls_per_second: Option<f64>,
}

impl<'a> Seen<'a> {
    fn new(begin: Look, calls_file: Option<&'a Path>) -> Self {
        let (end, has_end_mark, result, counter, calls_per_second) = (None, false, None, None, None);
        Seen { begin, end, has_end_mark, result, calls_file, counter, calls_per_second }
    }

    fn line(&mut self, text: &str, eyes: &mut Eyes<'_>, load: &Tree, guard: &mut Guard) -> anyhow::Result<()> {
        let line = Line::of(text);
        if line == Line::Begin {
            self.begin = eyes.look(Some(load))?;
            return self.count_calls(eyes, guard);
        }
        if line == Line::End || matches!(line, Line::Object(_)) && !self.has_end_mark {
            if let Some(counter) = self.counter.take() {
                self.calls_per_second = counter.stop();
            }
            self.end = Some(eyes.look(Some(load))?);
        }
        match line {
            Line::End => self.has_end_mark = true,
            Line::Object(result) => self.result = Some(result),
            Line::Begin | Line::Other => {}
        }
        Ok(())
    }

    /// Begins to count, or begins anew.
    fn count_calls(&mut self, eyes: &Eyes<'_>, guard: &mut Guard) -> anyhow::Result<()> {
        let Some(file) = self.calls_file else { return Ok(()) };
        self.counter = None;
        self.counter = Some(Counter::start(&eyes.server.members(), file, guard)?);
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
