//! `millrace ab` by the binary itself: verdicts, errors, and that nothing stays behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::free_addr;
use serde_json::Value;

/// A server that says that it is ready, and has a child of its own.
const SERVER: &str = "echo $$ >> {dir}/pids; sleep 600 & echo $! >> {dir}/pids; echo listening; wait";

/// A load that prints a cost: the subject's, with 2 % of noise from a counter, and a drift of 0.1 % per run.
const LOAD: &str = r#"
n=$(cat {dir}/n 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {dir}/n
x=$(( (n * 2654435761 + 12345) % 4294967296 )); x=$(( (x ^ (x >> 15)) * 2246822519 % 4294967296 ))
x=$(( (x ^ (x >> 13)) * 3266489917 % 4294967296 )); x=$(( x ^ (x >> 16) ))
cost=$(( {cost} * (100000 + x % 4001 - 2000 + 100 * n) / 100000 ))
echo "{\"packets\":1000,\"bytes\":1000000,\"seconds\":5,\"values\":{\"cost\":$cost}}"
"#;

#[test]
fn the_same_command_twice_is_within_noise() {
    let lab = Lab::new();
    let output = lab.run(&lab.plan(["1000000", "1000000"], SERVER, LOAD), &["--rounds", "8"]);
    let text = stdout(&output);
    assert!(output.status.success() && text.contains("within noise: 0.9"), "{text}{}", stderr(&output));
    assert_eq!(lab.records().len(), 16);
    lab.assert_nothing_is_left();
}

#[test]
fn a_slowdown_of_5_percent_is_found() {
    let lab = Lab::new();
    let output = lab.run(&lab.plan(["1000000", "1050000"], SERVER, LOAD), &["--rounds", "8", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    let comparison = &summary["points"][0]["subjects"][1]["against_baseline"];
    assert_eq!(comparison["verdict"], "real", "{comparison}");
    let median = comparison["median"].as_f64().unwrap();
    assert!((1.03..1.07).contains(&median), "{comparison}");
    assert!(comparison["low"].as_f64().unwrap() > 1.0, "{comparison}");
}

#[test]
fn two_commands_are_compared_without_a_plan() {
    let lab = Lab::new();
    let server = lab.fill(SERVER, "1");
    let (out, load) = (lab.path("out"), lab.fill(LOAD, "1000"));
    let flags =
        ["--ready", "log:listening", "--warm-up", "0s", "--seconds", "1s", "--rounds", "1", "--judge", "value:cost"];
    let words = ["ab", "--a", &server, "--b", &server, "--load", &load, "--out", out.to_str().unwrap()];
    let output = millrace(&[&words[..], &flags[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("too few rounds to tell") && text.contains("1 round cannot tell chance"), "{text}");
    let machine: Value = serde_json::from_str(&std::fs::read_to_string(out.join("machine.json")).unwrap()).unwrap();
    assert_eq!(machine["subjects"][1]["name"], "b");
    assert!(machine["command"].as_str().unwrap().contains("--ready log:listening"), "{machine}");
    assert!(machine["features"]["cpu_time"].is_string() && machine["cores"].as_u64() > Some(0), "{machine}");
    assert!(out.join("report.html").exists());
    lab.assert_nothing_is_left();

    let again = millrace(&[&words[..], &flags[..]].concat());
    assert!(!again.status.success() && stderr(&again).contains("has results already"), "{}", stderr(&again));
}

#[test]
fn what_a_load_does_behind_its_result_is_not_its_cost() {
    let lab = Lab::new();
    // One and a half seconds of CPU time in user space, in ticks of 10 ms, after all is told. A busy machine takes long for it.
    let burns = "while read -r _ _ _ _ _ _ _ _ _ _ _ _ _ user _ < /proc/$$/stat && [ $user -lt 150 ]; do :; done";
    let plan = lab.plan(["1000", "1000"], SERVER, &format!("{LOAD}\n{burns}"));
    let output = lab.run(&format!("load_timeout = 300\n{plan}"), &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    for record in lab.records() {
        let used = record["load"]["user_s"].as_f64().expect("known");
        assert!(used < 1.0, "{record}");
    }
    lab.assert_nothing_is_left();
}

#[test]
fn a_server_that_fails_is_named_with_its_log() {
    let lab = Lab::new();
    let output = lab.run(&lab.plan(["1", "1"], "echo no such codec >&2; exit 3", LOAD), &[]);
    lab.assert_error(&output, &["round 1, subject a", "exit status: 3", "before it was ready", "no such codec"]);
    let failures = std::fs::read_to_string(lab.path("out/failures.jsonl")).unwrap();
    assert_eq!(failures.lines().count(), 2, "when nothing works in the first round there is no second one: {failures}");
}

#[test]
fn one_that_fails_does_not_end_the_comparison_of_the_others() {
    let lab = Lab::new();
    let server = format!("if [ {{cost}} = 7 ]; then echo no such codec >&2; exit 3; fi; {SERVER}");
    let output = lab.run(&lab.plan(["1000", "7"], &server, LOAD), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("Note: 2 runs failed, and are missing: b (the server ended"), "{text}");
    assert_eq!(lab.records().len(), 2);
    let failures = std::fs::read_to_string(lab.path("out/failures.jsonl")).unwrap();
    assert!(failures.lines().count() == 2 && failures.contains("no such codec"), "{failures}");
    let page = std::fs::read_to_string(lab.path("out/report.html")).unwrap();
    assert!(page.contains("2 runs failed, and are missing: b (the server ended"), "{page}");
    lab.assert_nothing_is_left();
}

#[test]
fn a_server_that_never_listens_is_named_with_its_log() {
    let lab = Lab::new();
    let server = "echo $$ >> {dir}/pids; echo still thinking; exec sleep 600";
    let plan = lab.plan(["1", "1"], server, LOAD).replace("ready_timeout = 20", "ready_timeout = 2");
    let output = lab.run(&plan, &[]);
    lab.assert_error(&output, &["round 1, subject a", "not ready (log:listening) within 2s", "still thinking"]);
}

#[test]
fn a_server_that_dies_under_the_load_is_named() {
    let lab = Lab::new();
    let server = "echo listening; while [ ! -e {dir}/loading ]; do sleep 0.05; done; echo out of luck; exit 7";
    let output = lab.run(&lab.plan(["1", "1"], server, "touch {dir}/loading; sleep 600"), &[]);
    lab.assert_error(
        &output,
        &["round 1, subject a", "the server ended (exit status: 7) under the load", "out of luck"],
    );
}

#[test]
fn a_load_that_fails_is_named_with_its_log() {
    let lab = Lab::new();
    let output = lab.run(&lab.plan(["1", "1"], SERVER, "echo refused; echo by whom >&2; exit 4"), &[]);
    lab.assert_error(&output, &["round 1, subject a", "the load failed (exit status: 4)", "refused", "by whom"]);
}

#[test]
fn a_load_that_gets_nothing_through_is_named() {
    let lab = Lab::new();
    let output = lab.run(&lab.plan(["1", "1"], SERVER, r#"echo '{"packets":0,"bytes":0}'"#), &[]);
    lab.assert_error(&output, &["round 1, subject a", "nothing got through", "\"packets\":0"]);
}

#[test]
fn a_load_without_a_result_is_named() {
    let lab = Lab::new();
    let output = lab.run(&lab.plan(["1", "1"], SERVER, "echo all went well"), &[]);
    lab.assert_error(&output, &["round 1, subject a", "printed no result", "all went well"]);
    let lab = Lab::new();
    let output = lab.run(&lab.plan(["1", "1"], SERVER, r#"echo '{"packets":"many"}'"#), &[]);
    lab.assert_error(&output, &["round 1, subject a", "the load's result", "many"]);
}

#[test]
fn a_load_that_does_not_end_is_ended() {
    let lab = Lab::new();
    let load = "echo $$ >> {dir}/pids; sleep 600 & echo $! >> {dir}/pids; wait";
    let plan = format!("load_timeout = 0.2\n{}", lab.plan(["1", "1"], SERVER, load));
    let output = lab.run(&plan, &[]);
    lab.assert_error(&output, &["round 1, subject a", "the load did not end within 1 s"]);
}

#[test]
fn an_address_that_somebody_else_has_is_not_measured() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let lab = Lab::new();
    let ready = format!("tcp:{}", taken.local_addr().unwrap());
    let output = lab.run(&lab.plan(["1", "1"], SERVER, LOAD).replace("log:listening", &ready), &[]);
    lab.assert_error(&output, &["round 1, subject a", "something answers at tcp:"]);
}

#[test]
fn a_real_server_is_ready_when_it_answers() {
    let lab = Lab::new();
    for kind in ["tcp:", "http://"] {
        let addr = free_addr();
        let server =
            format!("exec {} serve --dev --listen {addr} --set workers.udp_port=0", env!("CARGO_BIN_EXE_millrace"));
        let plan = lab.plan(["1000", "1000"], &server, LOAD).replace("log:listening", &format!("{kind}{addr}"));
        let output = lab.run(&plan.replace("ready_timeout = 20", "ready_timeout = 60"), &["--rounds", "1"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let records = lab.records();
        assert!(records[0]["server"]["peak_memory_bytes"].as_u64() > Some(1 << 20), "{}", records[0]);
        std::fs::remove_dir_all(lab.path("out")).unwrap();
    }
}

#[test]
fn a_key_that_is_not_known_is_named_with_its_file_and_line() {
    let lab = Lab::new();
    let output = lab.run("rounds = 2\ncolour = 1\n", &[]);
    let expected = format!("millrace: {}:2: colour: ", lab.path("plan.toml").display());
    let error = stderr(&output);
    assert!(!output.status.success() && error.starts_with(&expected) && error.contains("`warm_up`"), "{error}");
}

#[test]
fn a_signal_in_the_middle_of_a_run_leaves_nothing_behind() {
    for signal in ["TERM", "INT", "HUP"] {
        let lab = Lab::new();
        let mut ab = lab.start_and_wait_for_the_load();
        let started = Instant::now();
        kill(signal, ab.id());
        let status = wait(&mut ab);
        assert!(!status, "{signal}");
        // The load hears nothing of SIGTERM.
        assert!(started.elapsed() >= Duration::from_secs(5), "it was given its time");
        lab.assert_nothing_is_left();
        assert!(lab.path("cleaned").exists(), "{signal}: the cleanup was run");
        let error = std::fs::read_to_string(lab.path("stderr")).unwrap();
        assert!(error.contains(&format!("round 1, subject a: stopped by SIG{signal}")), "{error}");
    }
}

#[test]
fn even_when_it_is_killed_itself_nothing_is_left_behind() {
    let lab = Lab::new();
    let mut ab = lab.start_and_wait_for_the_load();
    kill("KILL", ab.id());
    assert!(!wait(&mut ab));
    lab.assert_nothing_is_left();
    wait_until("the cleanup", || lab.path("cleaned").exists());
}

/// A directory with a plan, the results, and the ids of all processes that were started.
struct Lab {
    directory: PathBuf,
}

impl Lab {
    fn new() -> Lab {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("millrace-ab-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Lab { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn fill(&self, command: &str, cost: &str) -> String {
        command.replace("{dir}", &self.directory.display().to_string()).replace("{cost}", cost)
    }

    /// A plan of two subjects, a and b, whose load knows their costs. The tests' machine is never quiet.
    fn plan(&self, costs: [&str; 2], server: &str, load: &str) -> String {
        let mut text = "rounds = 2\nwarm_up = 0\nseconds = 1\nready_timeout = 20\njudge = \"value:cost\"\n\
                        steal_max = 100\nothers_max = 100\n"
            .to_owned();
        for (name, cost) in ["a", "b"].into_iter().zip(costs) {
            let command = toml_string(&self.fill(server, cost));
            let cleanup = toml_string(&format!("touch {}", self.path("cleaned").display()));
            text += &format!("[[subject]]\nname = \"{name}\"\ncommand = {command}\nready = \"log:listening\"\n");
            text += &format!("cleanup = {cleanup}\nvars = {{ cost = \"{cost}\" }}\n");
        }
        let load = load.replace("{dir}", &self.directory.display().to_string());
        text + &format!("[load]\ncommand = {}\n", toml_string(&load))
    }

    fn command(&self, plan: &str) -> Command {
        std::fs::write(self.path("plan.toml"), plan).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command.args(["ab", self.path("plan.toml").to_str().unwrap(), "--out", self.path("out").to_str().unwrap()]);
        command
    }

    fn run(&self, plan: &str, flags: &[&str]) -> Output {
        self.command(plan).args(flags).output().unwrap()
    }

    /// Starts a comparison whose load never ends and does not hear SIGTERM.
    fn start_and_wait_for_the_load(&self) -> Child {
        let load = "trap '' TERM; echo $$ >> {dir}/pids; setsid sleep 600 & echo $! >> {dir}/pids; touch {dir}/loading; \
                    while :; do sleep 1; done";
        let mut command = self.command(&self.plan(["1", "1"], SERVER, load));
        let errors = std::fs::File::create(self.path("stderr")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(errors).spawn().unwrap();
        wait_until("the load", || self.path("loading").exists());
        child
    }

    fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("out/rounds.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn assert_error(&self, output: &Output, words: &[&str]) {
        let error = stderr(output);
        assert!(!output.status.success(), "{error}");
        for word in words {
            assert!(error.contains(word), "{word:?} is not in:\n{error}");
        }
        self.assert_nothing_is_left();
        assert!(self.path("cleaned").exists(), "the cleanup was run");
    }

    fn assert_nothing_is_left(&self) {
        let pids = std::fs::read_to_string(self.path("pids")).unwrap_or_default();
        wait_until("the end of what was started", || !pids.lines().any(lives));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A process that is over, but not yet waited for, does not live.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn toml_string(text: &str) -> String {
    format!("{text:?}")
}

fn kill(signal: &str, pid: u32) {
    assert!(Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap().success());
}

fn wait(child: &mut Child) -> bool {
    wait_until("its end", || child.try_wait().unwrap().is_some());
    child.wait().unwrap().success()
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn millrace(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace")).args(words).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
