//! What is compared, and how: a TOML file, or two commands on the command line.
//!
//! In: text. Out: a [`Plan`] in which everything is checked that can be checked without running it. An error names the
//! file, the line, the key and what is allowed.
//!
//! ```toml
//! name = "rooms"
//! rounds = 8
//! points = [10, 100, 500]
//! axis = "viewers"
//! server_cpus = 0
//! load_cpus = 1
//!
//! [[subject]]
//! name = "millrace"
//! command = "millrace serve --dev --listen 127.0.0.1:8080"
//! ready = "tcp:127.0.0.1:8080"
//! version = "millrace --version"
//! vars = { url = "http://127.0.0.1:8080" }
//!
//! [load]
//! command = "millrace load rooms --json --url {url} --subscribers {point} --seconds {seconds}"
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::values::{Cpus, Judge, Ready, Span};

/// A whole comparison. In commands `{point}`, `{seconds}`, `{subject}` and a subject's `vars` are replaced by their
/// values; commands are run by `sh -c`, in the directory in which `millrace ab` was started.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Name of the plan, of which the results directory's name is made; by default the file's name.
    #[serde(default)]
    pub name: String,
    /// How often each subject is measured at each point; under 6 nothing can be proven.
    #[serde(default = "count::<8>")]
    pub rounds: u32,
    /// How long the load runs after each start of a server before it is measured; its result is thrown away.
    #[serde(default = "seconds::<4>")]
    pub warm_up: Span,
    /// How long the measured load runs: `{seconds}` in its command.
    #[serde(default = "seconds::<5>")]
    pub seconds: Span,
    /// Places on the x axis, such as numbers of viewers: `{point}` in commands.
    #[serde(default = "one_point")]
    pub points: Vec<f64>,
    /// What the points count, for the table and the plots.
    pub axis: Option<String>,
    /// Where points are no numbers but kinds of work: what each is called. Point 1 is the first of them.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// By what the subjects are compared.
    #[serde(default)]
    pub judge: Judge,
    /// Which of the load's values have columns of a table of their own.
    #[serde(default)]
    pub shown: Vec<String>,
    /// CPUs of the servers, such as 0 or "0-2,5"; by default all.
    pub server_cpus: Option<Cpus>,
    /// CPUs of the load.
    pub load_cpus: Option<Cpus>,
    /// How long a server may take until it is ready.
    #[serde(default = "seconds::<20>")]
    pub ready_timeout: Span,
    /// How long the load may take beside the time in which it measures, for instance to join.
    #[serde(default = "seconds::<60>")]
    pub load_timeout: Span,
    /// A run is disturbed when the hypervisor kept more than this share of the CPUs' time to itself, in percent.
    #[serde(default = "percent::<1>")]
    pub steal_max: f64,
    /// A run is disturbed when programs that are not part of it used more than this share of the CPUs' time, in percent.
    #[serde(default = "percent::<5>")]
    pub others_max: f64,
    /// How often a disturbed run is repeated, at most; then the last one counts, with a remark.
    #[serde(default = "count::<2>")]
    pub repeats: u32,
    /// What is compared: the first with each other one.
    #[serde(rename = "subject")]
    pub subjects: Vec<Subject>,
    /// What loads them.
    pub load: Load,
    /// The file's text; what the flags amount to, when there is none.
    #[serde(skip)]
    pub text: String,
}

/// A server to be compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// What it is called in the results.
    pub name: String,
    /// Starts the server, and stays in the foreground.
    pub command: String,
    /// How one sees that the server can be loaded: `tcp:HOST:PORT`, `http:URL` or `log:TEXT`.
    pub ready: Ready,
    /// Prints the version; its first line is kept.
    pub version: Option<String>,
    /// Is run after each run, whatever became of it, for instance to delete a network namespace.
    pub cleanup: Option<String>,
    /// The points at which it is measured; all, unless there are any.
    #[serde(default)]
    pub only: Vec<f64>,
    /// What else is different: `{NAME}` in the commands is replaced.
    #[serde(default)]
    pub vars: BTreeMap<String, String>,
}

/// What loads the servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Runs for {seconds}, and prints what arrived as its last line.
    pub command: String,
}

impl Plan {
    /// Reads a plan's file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read the plan {}", path.display()))?;
        let mut plan = Self::parse(&text).map_err(|wrong| anyhow::anyhow!("{}:{wrong}", path.display()))?;
        if plan.name.is_empty() {
            plan.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        Ok(plan)
    }

    /// Takes a plan's text.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let mut plan: Plan = toml::from_str(text).map_err(|error| Wrong::of_toml(text, &error))?;
        plan.text = text.to_owned();
        plan.check(text)?;
        Ok(plan)
    }

    /// Checks what the types do not say.
    fn check(&self, text: &str) -> Result<(), Wrong> {
        let check = |key, holds: bool, allowed: &str| if holds { Ok(()) } else { Err(Wrong::at(text, key, allowed)) };
        check("rounds", (1..=ROUNDS_MAX).contains(&self.rounds), "1 to 200 are allowed")?;
        check("seconds", self.seconds.0 > 0.0, "a time over 0 is allowed")?;
        check("points", !self.points.is_empty(), "one number or more is allowed")?;
        let points: BTreeSet<u64> = self.points.iter().map(|point| point.to_bits()).collect();
        check("points", points.len() == self.points.len(), "each number is allowed once")?;
        let has_name = |point: &f64| self.jobs.is_empty() || job(&self.jobs, *point).is_some();
        check("jobs", self.points.iter().all(has_name), "a name for each point is needed, of 1 and more")?;
        check("steal_max", (0.0..=100.0).contains(&self.steal_max), "0 to 100 percent are allowed")?;
        check("others_max", (0.0..=100.0).contains(&self.others_max), "0 to 100 percent are allowed")?;
        check("repeats", self.repeats <= REPEATS_MAX, "0 to 20 are allowed")?;
        check("subject", self.subjects.len() >= 2, "two or more are needed")?;
        let names: BTreeSet<&str> = self.subjects.iter().map(|subject| subject.name.as_str()).collect();
        check("name", names.len() == self.subjects.len(), "each subject needs a name of its own")?;
        let plain = |c: char| c.is_alphanumeric() || "-_.+ ".contains(c);
        let sound = |name: &str| name.chars().all(plain) && !name.starts_with('.');
        check("name", sound(&self.name), NAME_ALLOWED)?;
        check("name", names.iter().all(|name| sound(name) && !name.trim().is_empty()), NAME_ALLOWED)?;
        self.check_vars(text)
    }

    /// A name that one subject has and another does not would stay in the command as it is.
    fn check_vars(&self, text: &str) -> Result<(), Wrong> {
        let known: BTreeSet<&String> = self.subjects.iter().flat_map(|subject| subject.vars.keys()).collect();
        for subject in &self.subjects {
            let lacking = |name: &&&String| {
                self.load.command.contains(&format!("{{{name}}}")) && !subject.vars.contains_key(name.as_str())
            };
            if let Some(name) = known.iter().find(lacking) {
                let allowed = format!("{} needs {name} too, which the load's command asks for", subject.name);
                return Err(Wrong::at(text, "vars", &allowed));
            }
        }
        Ok(())
    }

    /// "100 viewers"; nothing when there is one point only.
    pub fn point_name(&self, point: f64) -> Option<String> {
        (self.points.len() > 1).then(|| match (job(&self.jobs, point), &self.axis) {
            (Some(job), _) => job.to_owned(),
            (None, Some(axis)) => format!("{point} {axis}"),
            (None, None) => format!("point {point}"),
        })
    }

    /// The same behind `before`, or nothing.
    pub fn place(&self, before: &str, point: f64) -> String {
        self.point_name(point).map_or_else(String::new, |name| format!("{before}{name}"))
    }

    /// Puts the values in the place of their names. `seconds` is how long the load is to measure.
    pub fn fill(&self, command: &str, subject: &Subject, point: f64, seconds: f64) -> String {
        let mut filled = command.to_owned();
        for (name, value) in &subject.vars {
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        filled
            .replace("{point}", &point.to_string())
            .replace("{seconds}", &seconds.to_string())
            .replace("{subject}", &subject.name)
    }

    /// Returns the plan that compares two commands, `a` and `b`. It has no file, so its words are the flags.
    pub fn of_flags(commands: [&str; 2], load: &str, ready: &Ready, cleanup: Option<&str>) -> anyhow::Result<Self> {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text = "name = \"ab\"\n".to_owned();
        for (name, command) in ["a", "b"].into_iter().zip(commands) {
            ensure!(!command.trim().is_empty(), "--{name}: a command is needed");
            text += &format!("\n[[subject]]\nname = \"{name}\"\ncommand = {}\n", quoted(command));
            text += &format!("ready = {}\n", quoted(&ready.to_string()));
            text += &cleanup.map_or_else(String::new, |cleanup| format!("cleanup = {}\n", quoted(cleanup)));
        }
        text += &format!("\n[load]\ncommand = {}\n", quoted(load));
        Ok(Self::parse(&text)?)
    }

    /// Takes what was typed over what the file says.
    pub fn set(&mut self, key: &str, value: impl Into<toml::Value>) -> anyhow::Result<()> {
        let mut table: toml::Table = self.text.parse()?;
        table.insert(key.to_owned(), value.into());
        let name = std::mem::take(&mut self.name);
        match Self::parse(&toml::to_string(&table)?) {
            Ok(plan) => *self = plan,
            Err(wrong) => bail!("{key}: {}", wrong.allowed),
        }
        self.name = name;
        Ok(())
    }
}

/// What a point is called, of which `jobs` has the first.
pub fn job(jobs: &[String], point: f64) -> Option<&str> {
    // Of what is no place in a list there is no name.
    let index = (point.fract() == 0.0 && point >= 1.0).then(|| point as usize - 1)?;
    jobs.get(index).map(String::as_str)
}

/// What is wrong with a plan, shown as `LINE: KEY: what is allowed`.
#[derive(Debug, thiserror::Error)]
#[error("{line}: {key}: {allowed}")]
pub struct Wrong {
    /// From 1.
    line: usize,
    key: String,
    allowed: String,
}

impl Wrong {
    /// For a key whose value is sound for itself only: the line where a key or table of this name stands first.
    fn at(text: &str, key: &str, allowed: &str) -> Wrong {
        let stands = |line: &str| {
            let line = line.trim_start().trim_start_matches('[');
            line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(['=', ']']))
        };
        let line = text.lines().position(stands).map_or(1, |index| index + 1);
        Wrong { line, key: key.to_owned(), allowed: allowed.to_owned() }
    }

    fn of_toml(text: &str, error: &toml::de::Error) -> Wrong {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        let line = 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
        let words = text.lines().nth(line - 1).unwrap_or_default();
        // What is missing has no line of its own, but that of the table in which it is missing.
        let missing = error.message().strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        let key = missing.unwrap_or(words.split('=').next().unwrap_or_default().trim()).to_owned();
        Wrong { line, key, allowed: error.message().replace('\n', " ") }
    }
}

/// More would make the exact test slow, and take days.
const ROUNDS_MAX: u32 = 200;
const REPEATS_MAX: u32 = 20;
const NAME_ALLOWED: &str = "letters, digits, blanks and - _ . + are allowed, for it becomes part of a file's name";

fn count<const COUNT: u32>() -> u32 {
    COUNT
}

fn percent<const PERCENT: u32>() -> f64 {
    PERCENT.into()
}

fn seconds<const SECONDS: u32>() -> Span {
    Span(SECONDS.into())
}

fn one_point() -> Vec<f64> {
    vec![0.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
rounds = 6
points = [10, 100]
server_cpus = 0
load_cpus = "1-2"

[[subject]]
name = "one"
command = "serve --port {port}"
ready = "tcp:127.0.0.1:80"
vars = { port = "80" }

[[subject]]
name = "two"
command = "other"
ready = "log:listening"
vars = { port = "81" }

[load]
command = "load --port {port} -n {point} --for {seconds} {subject} ${HOME}"
"#;

    #[test]
    fn what_is_not_said_has_its_default() {
        let plan = Plan::parse(GOOD).unwrap();
        assert_eq!((plan.rounds, plan.warm_up, plan.seconds), (6, Span(4.0), Span(5.0)));
        assert_eq!((plan.steal_max, plan.others_max, plan.repeats), (1.0, 5.0, 2));
        assert_eq!(plan.load_cpus, Some(Cpus(vec![1, 2])));
    }

    #[test]
    fn names_in_commands_are_replaced_and_other_braces_stay() {
        let plan = Plan::parse(GOOD).unwrap();
        let filled = plan.fill(&plan.load.command, &plan.subjects[1], 100.0, 2.5);
        assert_eq!(filled, "load --port 81 -n 100 --for 2.5 two ${HOME}");
    }

    #[test]
    fn an_error_names_the_line_the_key_and_what_is_allowed() {
        let cases = [
            ("rounds = 6", "round = 6", ["2: round: ", "`rounds`"]),
            ("rounds = 6", "rounds = 0", ["2: rounds: ", "1 to 200"]),
            ("rounds = 6", "rounds = \"many\"", ["2: rounds: ", "u32"]),
            ("rounds = 6", "seconds = \"5 parsecs\"", ["2: seconds: ", "4s"]),
            ("rounds = 6", "judge = \"beauty\"", ["2: judge: ", "cpu"]),
            ("points = [10, 100]", "points = []", ["3: points: ", "one number"]),
            ("points = [10, 100]", "points = [1, 1]", ["3: points: ", "once"]),
            ("points = [10, 100]", "points = [1, 3]\njobs = [\"send\", \"receive\"]", ["4: jobs: ", "for each point"]),
            ("points = [10, 100]", "steal_max = 200", ["3: steal_max: ", "0 to 100"]),
            ("server_cpus = 0", "server_cpus = \"x\"", ["4: server_cpus: ", "0-2,5"]),
            ("ready = \"tcp:127.0.0.1:80\"", "ready = \"soon\"", ["10: ready: ", "tcp:HOST:PORT"]),
            ("name = \"two\"", "name = \"one\"", ["8: name: ", "of its own"]),
            ("name = \"two\"", "name = \"../two\"", ["8: name: ", "letters"]),
            ("vars = { port = \"81\" }", "", ["11: vars: ", "two needs port"]),
            ("[load]\n", "[load]\nform = 1\n", ["20: form: ", "`command`"]),
        ];
        for (good, bad, words) in cases {
            let error = format!("{:#}", Plan::parse(&GOOD.replacen(good, bad, 1)).expect_err(bad));
            for word in words {
                assert!(error.contains(word), "{bad}: {word:?} is not in: {error}");
            }
        }
    }

    #[test]
    fn points_that_are_kinds_of_work_are_called_by_their_names() {
        let names = |more: &str| {
            let plan = Plan::parse(&GOOD.replacen("points = [10, 100]", more, 1)).unwrap();
            plan.points.iter().map(|point| plan.point_name(*point).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names("points = [1, 2]\njobs = [\"send\", \"receive\"]"), ["send", "receive"]);
        assert_eq!(names("points = [1, 2]\naxis = \"viewers\""), ["1 viewers", "2 viewers"]);
    }

    #[test]
    fn a_plan_without_a_second_subject_or_a_load_is_refused() {
        let (one, _) = GOOD.split_once("[[subject]]\nname = \"two\"").unwrap();
        assert!(format!("{:#}", Plan::parse(one).unwrap_err()).contains("load"));
        let error = format!("{:#}", Plan::parse(&format!("{one}[load]\ncommand = \"x\"")).unwrap_err());
        assert!(error.starts_with("7: subject: ") && error.contains("two or more"), "{error}");
    }

    #[test]
    fn a_file_gives_its_name_to_the_plan_and_to_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("good.toml");
        std::fs::write(&path, GOOD).unwrap();
        assert_eq!(Plan::read(&path).unwrap().name, "good");
        std::fs::write(&path, "colour = 1").unwrap();
        assert!(format!("{:#}", Plan::read(&path).unwrap_err()).contains("good.toml"));
    }

    #[test]
    fn flags_make_the_same_plan_as_a_file_would_and_go_over_it() {
        let ready = "tcp:localhost:80".parse().unwrap();
        let mut plan = Plan::of_flags(["x --name \"1\"", "y"], "z", &ready, Some("c")).unwrap();
        assert_eq!(plan.subjects[0].command, "x --name \"1\"");
        assert_eq!((plan.subjects[1].name.as_str(), plan.subjects[1].cleanup.as_deref()), ("b", Some("c")));
        plan.set("rounds", 12).unwrap();
        plan.set("warm_up", "1s").unwrap();
        assert_eq!((plan.rounds, plan.warm_up, plan.name.as_str()), (12, Span(1.0), "ab"));
        assert_eq!(Plan::parse(&plan.text).unwrap().rounds, 12);
        assert!(format!("{:#}", plan.set("rounds", 0).unwrap_err()).contains("1 to 200"));
    }
}
