//! Runs a plan: every subject at every point in every round, forwards and backwards in turn, and keeps what was measured.
//!
//! In: a plan. Out: a line in `rounds.jsonl` for each run as soon as it is over, one in `failures.jsonl` for each that
//! failed, and progress on standard error.
//! A run is: start the server, wait until it is ready, warm up with the load and throw the result away, measure with the
//! load, end the server, clean up. A run that was disturbed is kept as such and repeated at once, a few times at most.
//! One that failed does not end the others: the subject is tried again in the next round, and given up at that point when
//! it fails there twice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use time::format_description::well_known::Rfc3339;

use super::drive::{self, Driven, Eyes};
use super::network::{Namespace, Sockets, drops, sockets_of};
use super::plan::{Plan, Subject};
use super::quiet::CpuTimes;
use super::ready;
use super::record::{self, Failure, Loss, Record, Usage};
use super::stop::Stop;
use super::tree::{Guard, PATIENCE, Start, Tree};
use super::values::Cpus;
use measure::rounds::turns;

/// What a plan is run with.
pub struct Bench<'a> {
    pub plan: &'a Plan,
    /// Where the results go.
    pub directory: &'a Path,
    pub stop: Stop,
    /// Whether processes can be counted in cgroups of their own.
    pub in_cgroup: bool,
    /// Whether system calls can be counted.
    pub counts_syscalls: bool,
    /// Reads what the machine's CPUs did; another may be put in its place in tests.
    pub machine: &'a dyn Fn(Option<&Cpus>) -> CpuTimes,
    /// Takes a line of progress.
    pub say: &'a dyn Fn(&str),
}

/// Which run it is.
#[derive(Clone, Copy)]
struct Place<'a> {
    round: u32,
    turn: u32,
    subject: &'a Subject,
    point: f64,
}

/// How many lines of a log an error shows.
const LOG_LINES: usize = 20;

/// A subject that has failed so often at a point is not tried there any more.
const FAILURES_MAX: usize = 2;

/// What became of a plan.
#[derive(Debug, Default)]
pub struct Results {
    pub records: Vec<Record>,
    pub failures: Vec<Failure>,
}

impl Bench<'_> {
    /// Runs all rounds and returns all records.
    ///
    /// # Errors
    /// When a signal has come, nothing can be written, or every run of the first round failed; the error names subject,
    /// point and round, and shows the ends of the logs.
    pub fn run(&self) -> anyhow::Result<Results> {
        let mut results = Results::default();
        let (plan, logs) = (self.plan, self.directory.join("logs"));
        std::fs::create_dir_all(&logs).with_context(|| format!("make {}", logs.display()))?;
        for index in 0..plan.rounds as usize {
            for point in turns(plan.points.len(), index) {
                for (turn, subject) in turns(plan.subjects.len(), index).enumerate() {
                    let (subject, point) = (&plan.subjects[subject], plan.points[point]);
                    let place = Place { round: index as u32 + 1, turn: turn as u32, subject, point };
                    let is_elsewhere = !subject.only.is_empty() && !subject.only.contains(&point);
                    if is_elsewhere || results.is_given_up(place) {
                        continue;
                    }
                    let Err(error) = self.run_undisturbed(place, &mut results.records) else { continue };
                    let error = self.explain(place, error);
                    if self.stop.check().is_err() {
                        return Err(error);
                    }
                    self.fail(place, &error, &mut results)?;
                }
            }
            if results.records.is_empty() {
                anyhow::bail!("no run of the first round succeeded");
            }
        }
        Ok(results)
    }

    /// Notes that a run failed.
    fn fail(&self, place: Place<'_>, error: &anyhow::Error, results: &mut Results) -> anyhow::Result<()> {
        let Place { round, turn, subject, point } = place;
        let failure = Failure { round, turn, subject: subject.name.clone(), point, error: format!("{error:#}") };
        record::append_failure(self.directory, &failure)?;
        results.failures.push(failure);
        let given_up = if results.is_given_up(place) { "; it is not tried there again" } else { "" };
        (self.say)(&format!(
            "failed: {error:#}\n{}{} has failed{given_up}",
            subject.name,
            self.plan.place(", ", point)
        ));
        Ok(())
    }

    fn run_undisturbed(&self, place: Place<'_>, records: &mut Vec<Record>) -> anyhow::Result<()> {
        for repeat in 0..=self.plan.repeats {
            let record = self.run_once(place)?;
            record::append(self.directory, &record)?;
            self.tell(&record, repeat);
            let quiet = record.disturbed.is_none();
            records.push(record);
            if quiet {
                break;
            }
        }
        Ok(())
    }

    fn run_once(&self, place: Place<'_>) -> anyhow::Result<Record> {
        let (plan, subject) = (self.plan, place.subject);
        for who in ["server", "load"] {
            let log = self.log(place, who);
            std::fs::write(&log, "").with_context(|| format!("write {}", log.display()))?;
        }
        self.stop.check()?;
        let fill = |text: &str| plan.fill(text, subject, place.point, plan.seconds.0);
        let (log, command) = (self.log(place, "server"), fill(&subject.command));
        // It ends after the server, and cleans up.
        let mut guard = Guard::start(&subject.cleanup.as_deref().map(fill).unwrap_or_default(), &log)?;
        ready::ensure_free(&subject.ready, &log)?;
        let mut server = Tree::start(&self.start(&command, plan.server_cpus.as_ref(), &log), &mut guard)?;
        ready::wait(&subject.ready, &mut server, &log, plan.ready_timeout, &self.stop)?;

        let members = server.members();
        let listening = sockets_of(&members);
        let server_namespace = Namespace::of(&members).context("read the network's counters")?;
        let machine = || (self.machine)(self.cpus().as_ref());
        let mut eyes = Eyes { machine: &machine, server: &mut server, server_namespace, load_namespace: None };
        let calls_per_packet = self.warm_up(place, &mut eyes, &mut guard)?;
        let driven = self.drive(place, plan.seconds.0, None, &mut eyes, &mut guard)?;
        let shared = eyes.share_namespace();
        server.end(PATIENCE);

        self.record(place, &driven, calls_per_packet, lost(&driven, &listening, shared))
    }

    fn start<'b>(&self, command: &'b str, cpus: Option<&'b Cpus>, log: &'b Path) -> Start<'b> {
        Start { command, cpus, log, piped: false, in_cgroup: self.in_cgroup }
    }

    /// Loads the server for a while before it counts, and counts its system calls per packet.
    fn warm_up(&self, place: Place<'_>, eyes: &mut Eyes<'_>, guard: &mut Guard) -> anyhow::Result<Option<f64>> {
        if self.plan.warm_up.0 <= 0.0 {
            return Ok(None);
        }
        let calls = self.counts_syscalls.then(|| self.directory.join("logs/perf"));
        let driven = self.drive(place, self.plan.warm_up.0, calls, eyes, guard).context("in the warm-up")?;
        let packets_per_second = driven.outcome.arrived.packets as f64 / driven.seconds();
        Ok(driven.calls_per_second.map(|calls| calls / packets_per_second))
    }

    fn drive(
        &self,
        place: Place<'_>,
        seconds: f64,
        calls: Option<PathBuf>,
        eyes: &mut Eyes<'_>,
        guard: &mut Guard,
    ) -> anyhow::Result<Driven> {
        let plan = self.plan;
        let command = plan.fill(&plan.load.command, place.subject, place.point, seconds);
        let log = self.log(place, "load");
        let start = Start { piped: true, ..self.start(&command, plan.load_cpus.as_ref(), &log) };
        let time_max = Duration::from_secs_f64(seconds + plan.load_timeout.0);
        drive::run(&start, calls.as_deref(), time_max, &self.stop, eyes, guard)
    }

    /// The CPUs that matter: those of server and load when both have their own, else all.
    fn cpus(&self) -> Option<Cpus> {
        let (server, load) = (self.plan.server_cpus.as_ref()?, self.plan.load_cpus.as_ref()?);
        let all: BTreeSet<usize> = server.0.iter().chain(&load.0).copied().collect();
        Some(Cpus(all.into_iter().collect()))
    }

    fn record(
        &self,
        place: Place<'_>,
        driven: &Driven,
        calls_per_packet: Option<f64>,
        loss: Loss,
    ) -> anyhow::Result<Record> {
        let Driven { outcome, begin, end, .. } = driven;
        let namespace = end.server_namespace.since(&begin.server_namespace);
        let (server, load) = (end.server.since(&begin.server), end.load.since(&begin.load));
        let span = end.machine.since(&begin.machine);
        let own_s = end.own_s - begin.own_s;
        let used_s = server.cpu_s() + load.cpu_s() + own_s;
        let mut values = outcome.values.clone();
        values.insert("ksoftirqd_s".into(), span.ksoftirqd_s);
        values.insert("rcvbuf_errors".into(), namespace.receive_buffer as f64);
        values.insert("sndbuf_errors".into(), namespace.send_buffer as f64);
        let syscalls = calls_per_packet.map(|calls| (calls * outcome.arrived.packets as f64).round() as u64);
        Ok(Record {
            plan: self.plan.name.clone(),
            time: begin.date.format(&Rfc3339)?,
            round: place.round,
            turn: place.turn,
            subject: place.subject.name.clone(),
            point: place.point,
            disturbed: span.disturbed(used_s, self.plan.steal_max, self.plan.others_max),
            seconds: driven.seconds(),
            arrived: outcome.arrived,
            server: Usage { syscalls, ..server },
            load,
            loss,
            latency_ms: outcome.latency_ms.clone(),
            values,
        })
    }

    /// The log of a subject's server or of its load; each run begins it anew.
    fn log(&self, place: Place<'_>, who: &str) -> PathBuf {
        self.directory.join("logs").join(format!("{}.{who}.log", place.subject.name))
    }

    /// Puts to an error which run it was, and the ends of its logs.
    fn explain(&self, place: Place<'_>, error: anyhow::Error) -> anyhow::Error {
        let mut text = format!(
            "round {}, subject {}{}: {error:#}",
            place.round,
            place.subject.name,
            self.plan.place(", ", place.point)
        );
        if self.stop.check().is_ok() {
            for who in ["server", "load"] {
                text += &tail(&self.log(place, who), who);
            }
        }
        anyhow::anyhow!(text)
    }

    fn tell(&self, record: &Record, repeat: u32) {
        let Record { round, subject, arrived, seconds, .. } = record;
        let rounds = self.plan.rounds;
        let disturbed = match &record.disturbed {
            None => String::new(),
            Some(by) if repeat < self.plan.repeats => format!("; disturbed by {by}, again"),
            Some(by) => format!("; disturbed by {by}, and no more repeats"),
        };
        (self.say)(&format!(
            "round {round}/{rounds}{}  {subject}: {:.0} packets/s, {:.3} µs of CPU per packet{disturbed}",
            self.plan.place(", ", record.point),
            arrived.packets as f64 / seconds,
            record.server.cpu_s() * 1e6 / arrived.packets as f64,
        ));
    }
}

impl Results {
    fn is_given_up(&self, place: Place<'_>) -> bool {
        let is_here = |failure: &&Failure| failure.subject == place.subject.name && failure.point == place.point;
        self.failures.iter().filter(is_here).count() >= FAILURES_MAX
    }
}

/// Says where packets were lost.
fn lost(driven: &Driven, listening: &Sockets, shared: bool) -> Loss {
    let Driven { begin, end, .. } = driven;
    let sockets = end.server_sockets.iter().map(|(inode, drops)| (*inode, *drops));
    let (mine, others): (Sockets, Sockets) = sockets.partition(|(inode, _)| listening.contains_key(inode));
    let [listener, relay] = [mine, others].map(|sockets| drops(&sockets, &begin.server_sockets));
    let server = end.server_namespace.since(&begin.server_namespace);
    let load = end.load_namespace.since(&begin.load_namespace);
    // The load's sockets, when they were still there. Else what its namespace counts, less what the server's sockets did.
    let client = match (end.load_sockets.is_empty(), shared) {
        (false, _) => drops(&end.load_sockets, &begin.load_sockets),
        (true, true) => load.receive_buffer.saturating_sub(listener + relay),
        (true, false) => load.receive_buffer,
    };
    let interface = server.interface + if shared { 0 } else { load.interface };
    let [listener, relay, client, interface] = [listener, relay, client, interface].map(Some);
    Loss { listener, relay, client, interface }
}

/// The last lines of a log, under a heading.
fn tail(log: &Path, who: &str) -> String {
    let text = std::fs::read(log).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return format!("\n  (the {who}'s log is empty)");
    }
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    let shown: String = last.iter().map(|line| format!("\n    {line}")).collect();
    format!("\n  the {who}'s log ends ({}):{shown}", log.display())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::skip::skip;
    use crate::tree::can_count;

    #[test]
    fn runs_go_forwards_and_backwards_and_each_is_kept_at_once() {
        let lab = Lab::new("", "echo listening; exec sleep 600", RESULT);
        let records = lab.run(&quiet).unwrap();
        let order: Vec<_> = records.iter().map(|record| (record.round, record.turn, record.subject.as_str())).collect();
        assert_eq!(order, [(1, 0, "a"), (1, 1, "b"), (2, 0, "b"), (2, 1, "a")]);
        assert_eq!(record::read(lab.directory.path()).unwrap(), records);
        assert!(records.iter().all(|record| record.seconds == 2.0 && record.arrived.packets == 10));
    }

    #[test]
    fn a_disturbed_run_is_kept_as_such_and_repeated_at_once() {
        let lab = Lab::new("", "echo listening; exec sleep 600", RESULT);
        let looks = Cell::new(0);
        // A run looks twice; in the first one a tenth of the time is stolen.
        let records = lab.run(&|_| {
            looks.set(looks.get() + 1);
            let steal_s = if looks.get() > 1 { 1.0 } else { 0.0 };
            CpuTimes { total_s: 10.0 * f64::from(looks.get()), steal_s, ..CpuTimes::default() }
        });
        let records = records.unwrap();
        let disturbed: Vec<_> = records.iter().map(|record| record.disturbed.as_deref()).collect();
        assert_eq!(disturbed, [Some("steal 10.0 %"), None, None, None, None]);
        assert_eq!((records[0].round, &records[0].subject), (records[1].round, &records[1].subject));
    }

    #[test]
    fn a_machine_that_is_never_quiet_ends_the_repeats() {
        let lab = Lab::new("repeats = 1", "echo listening; exec sleep 600", RESULT);
        let looks = Cell::new(0.0);
        let records = lab.run(&|_| {
            looks.set(looks.get() + 1.0);
            CpuTimes { total_s: 10.0 * looks.get(), busy_s: 9.0 * looks.get(), ..CpuTimes::default() }
        });
        let records = records.unwrap();
        assert_eq!(records.len(), 8);
        assert!(records.iter().all(|record| record.disturbed.as_deref().is_some_and(|by| by.starts_with("other"))));
    }

    #[test]
    fn cpu_time_is_that_of_all_processes_between_the_marks() {
        let burn = "while [ $i -lt 400000 ]; do i=$((i+1)); done";
        // The server burns in a child before the load comes, which does not count, and while it measures.
        let server = format!(
            "(i=0; {burn}); echo listening; while [ ! -e $MARK ]; do sleep 0.1; done; (i=0; {burn}); touch $MARK.done; \
             exec sleep 600"
        );
        let load = format!(
            "(i=0; {burn}); echo {{\\\"mark\\\":\\\"begin\\\"}}; sleep 1; touch $MARK; \
             while [ ! -e $MARK.done ]; do sleep 0.1; done; {RESULT}; rm $MARK $MARK.done"
        );
        for in_cgroup in [false, true] {
            if in_cgroup && !can_count() {
                skip(NO_CGROUP);
                continue;
            }
            let mut lab = Lab::new("rounds = 1", "SERVER", "LOAD");
            let mark = lab.directory.path().join("mark").display().to_string();
            for subject in &mut lab.plan.subjects {
                subject.command = server.replace("$MARK", &mark);
            }
            lab.plan.load.command = load.replace("$MARK", &mark);
            lab.in_cgroup = in_cgroup;
            let record = &lab.run(&quiet).unwrap()[0];
            // Once the same work, and not twice.
            let load = record.load.cpu_s();
            assert!(record.server.cpu_s() > 0.02, "{record:?}");
            assert!(load < record.server.cpu_s() * 0.8, "{record:?}");
            assert!(record.server.peak_memory_bytes > 100_000 && record.load.peak_memory_bytes > 100_000);
            assert!(record.server.voluntary_switches > 0);
        }
    }

    #[test]
    fn the_load_s_own_use_is_known_although_it_is_gone() {
        let load = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; ";
        let mut lab = Lab::new("rounds = 1", "echo listening; exec sleep 600", &format!("{load}{RESULT}"));
        lab.in_cgroup = false;
        assert!(lab.run(&quiet).unwrap()[0].load.cpu_s() > 0.01);
    }

    #[test]
    fn a_subject_is_measured_at_its_own_points_only() {
        let mut lab = Lab::new("rounds = 1\npoints = [1, 2]", "echo listening; exec sleep 600", RESULT);
        lab.plan.subjects[1].only = vec![2.0];
        let records = lab.run(&quiet).unwrap();
        let order: Vec<_> = records.iter().map(|record| (record.point, record.subject.as_str())).collect();
        assert_eq!(order, [(1.0, "a"), (2.0, "a"), (2.0, "b")]);
    }

    const NO_CGROUP: &str = "CPU time by cgroups: we may make none";
    const RESULT: &str = r#"echo '{"packets":10,"bytes":1000,"seconds":2}'"#;

    fn quiet(_: Option<&Cpus>) -> CpuTimes {
        CpuTimes::default()
    }

    struct Lab {
        directory: tempfile::TempDir,
        plan: Plan,
        in_cgroup: bool,
    }

    impl Lab {
        fn new(keys: &str, server: &str, load: &str) -> Lab {
            let rounds = if keys.contains("rounds") { "" } else { "rounds = 2" };
            let subject =
                |name| format!("[[subject]]\nname = {name:?}\nready = \"log:listening\"\ncommand = {server:?}\n");
            let text = format!(
                "{rounds}\n{keys}\nwarm_up = 0\nseconds = 1\n{}{}[load]\ncommand = {load:?}\n",
                subject("a"),
                subject("b")
            );
            Lab { directory: tempfile::tempdir().unwrap(), plan: Plan::parse(&text).unwrap(), in_cgroup: can_count() }
        }

        fn run(&self, machine: &dyn Fn(Option<&Cpus>) -> CpuTimes) -> anyhow::Result<Vec<Record>> {
            let results = self.run_all(machine)?;
            assert_eq!(results.failures, []);
            Ok(results.records)
        }

        fn run_all(&self, machine: &dyn Fn(Option<&Cpus>) -> CpuTimes) -> anyhow::Result<Results> {
            Bench {
                plan: &self.plan,
                directory: self.directory.path(),
                stop: Stop::default(),
                in_cgroup: self.in_cgroup,
                counts_syscalls: false,
                machine,
                say: &|_| {},
            }
            .run()
        }
    }

    #[test]
    fn a_subject_that_fails_is_noted_and_given_up_and_the_others_go_on() {
        let mut lab = Lab::new("rounds = 4", "echo listening; exec sleep 600", RESULT);
        lab.plan.subjects[1].command = "echo no such codec; exit 3".into();
        let results = lab.run_all(&quiet).unwrap();
        let rounds: Vec<_> = results.records.iter().map(|record| (record.round, record.subject.as_str())).collect();
        assert_eq!(rounds, [(1, "a"), (2, "a"), (3, "a"), (4, "a")]);
        let failed: Vec<_> = results.failures.iter().map(|failure| (failure.round, failure.subject.as_str())).collect();
        assert_eq!(failed, [(1, "b"), (2, "b")]);
        let error = &results.failures[0].error;
        assert!(error.starts_with("round 1, subject b: ") && error.contains("no such codec"), "{error}");
        assert_eq!(record::read_failures(lab.directory.path()).unwrap(), results.failures);
    }
}
