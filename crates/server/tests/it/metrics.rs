//! What whoever reads `/metrics` may rely on: units, help that is understood alone, and no label that grows with use.

use std::collections::BTreeSet;

use crate::pump::harness::Harness;

/// Names and their values are a worker's number, fixed words, or in the settings: so there is no user, stream of rooms, address
/// or title among them.
const LABELS: [&str; 17] = [
    "code",
    "family",
    "file",
    "input",
    "kind",
    "le",
    "method",
    "mode",
    "reason",
    "role",
    "state",
    "status",
    "stream",
    "transport",
    "version",
    "what",
    "worker",
];

/// How a name ends that has a unit, and how its help says it. What has none is counted one by one.
const UNITS: [(&str, &str); 4] =
    [("_seconds", "second"), ("_bytes", "ytes"), ("_bps", "bit/s"), ("_ppm", "parts per million")];

/// Prometheus shows each help alone, so it must not speak of the one before.
const LEANING: [&str; 7] = ["Of", "For", "With", "Not", "These", "Their", "Its"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_have_their_units_and_help_is_understood_alone() {
    let page = Harness::start(|_| {}).metrics().await;
    let mut helps = BTreeSet::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = line.split_once(' ').expect("a name and its help");
        let kind = page.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} "))).expect("a type");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        let base = name.trim_end_matches("_total").trim_end_matches("_max");
        for (end, word) in UNITS {
            assert!(!base.ends_with(end) || help.to_lowercase().contains(word), "{name}: {help}");
        }
        assert!(!["_ns", "_ms", "_us", "_kb"].iter().any(|end| base.ends_with(end)), "{name}");
        let first = help.split([' ', ':']).next().expect("a word");
        assert!(!LEANING.contains(&first), "{name}: {help}");
        assert!(helps.insert(help), "{name} has the help of another: {help}");
    }
    assert!(helps.len() > 200, "{}", helps.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_are_those_whose_values_have_a_bound() {
    let page = Harness::start(|_| {}).metrics().await;
    let labels = page.lines().filter_map(|line| line.split_once('{')?.1.split_once('}'));
    let names = labels.flat_map(|(labels, _)| labels.split(',')).filter_map(|label| label.split('=').next());
    let names: BTreeSet<&str> = names.collect();
    let unknown: Vec<_> = names.iter().filter(|name| !LABELS.contains(name)).collect();
    assert!(unknown.is_empty() && names.len() > 8, "{unknown:?} of {names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_says_when_it_began_and_how_many_files_it_has_open() {
    let harness = Harness::start(|_| {});
    let page = harness.metrics().await;
    let value = |page: &str, name: &str| {
        let found = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
        found.unwrap_or_else(|| panic!("{name} is missing"))
    };
    let (open, max) = (value(&page, "millrace_process_open_fds"), value(&page, "millrace_process_max_fds"));
    assert!(open > 3.0 && open < max, "{open} of {max}");
    let began = value(&page, "millrace_process_start_time_seconds");
    assert!(began > 1.7e9, "{began}");
    assert!(page.contains(&format!("millrace_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"))));
}
