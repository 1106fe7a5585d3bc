//! That what is counted is shown.

use std::fs;
use std::path::Path;

use crate::pump::harness::Harness;

/// Each number that some crate declares stands at `/metrics`, with its kind and its help; so does each that a document names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_is_declared_is_shown() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut declared = Vec::new();
    for entry in fs::read_dir(crates).expect("read") {
        // The crate that has the macro declares examples.
        let path = entry.expect("an entry").path();
        if !path.ends_with("counters") {
            gather(&path.join("src"), &mut declared);
        }
    }
    assert!(declared.len() > 60, "{declared:?}");

    let page = Harness::start(|_| {}).metrics().await;
    let lines: Vec<&str> = page.lines().collect();
    for (name, kind) in &declared {
        assert!(lines.contains(&format!("# TYPE {name} {kind}").as_str()), "{name} is not shown");
        let help = format!("# HELP {name} ");
        assert!(lines.iter().any(|line| line.strip_prefix(&help).is_some_and(|help| !help.is_empty())), "{name}");
    }
    let documents =
        ["docs/rooms.md", "docs/pump.md", "docs/relay.md", "docs/livekit.md", "docs/observe.md", "docs/runbook.md"];
    for document in documents.into_iter().chain(["README.md"]) {
        let text = fs::read_to_string(crates.join("..").join(document)).expect("text");
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        // What ends in "_" stands for a set.
        for name in words.filter(|word| word.starts_with("millrace_") && !word.ends_with('_')) {
            assert!(page.contains(name), "{document} names {name}");
        }
    }
    let sets =
        ["engine", "rooms", "pump", "library", "handshake", "rtsp", "http", "pump_live", "relay", "reflect", "livekit"];
    let missing = sets.map(|set| set.replace("engine", "worker")).into_iter().find(|set| {
        let prefix = format!("millrace_{set}_");
        !declared.iter().any(|(name, _)| name.starts_with(&prefix))
    });
    assert_eq!(missing, None, "of the sets that are known");
}

/// What the sources below a folder declare by `counters!`: each name and kind.
fn gather(folder: &Path, declared: &mut Vec<(String, String)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            gather(&path, declared);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            for set in text.split("counters! {\n").skip(1) {
                gather_set(set, declared);
            }
        }
    }
}

fn gather_set(set: &str, declared: &mut Vec<(String, String)>) {
    let head = set.lines().find_map(|line| line.trim().strip_prefix("pub struct ")).expect("a set has a struct");
    let prefix = quoted(head);
    for line in set.lines().take_while(|line| *line != "}") {
        let line = line.trim();
        let kind = ["counter", "gauge", "histogram"].into_iter().find(|kind| line.starts_with(&format!("{kind} ")));
        if let Some(kind) = kind {
            declared.push((format!("{prefix}{}", quoted(line)), kind.to_owned()));
        }
    }
}

fn quoted(line: &str) -> &str {
    line.split('"').nth(1).expect("a quoted name")
}
