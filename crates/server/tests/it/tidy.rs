//! What holds of all sources and documents, and what nobody would notice if it held no more.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use server::config::Config;

/// Who knows whom, from the bottom up. Crates that do not stand here may know whom they like of those before them in the
/// workspace's list.
const KNOWN: [(&str, &[&str]); 18] = [
    ("wire", &[]),
    ("counters", &[]),
    ("wheel", &["counters"]),
    ("srtp", &["wire"]),
    ("tls", &["wire"]),
    ("dtls", &["srtp"]),
    ("engine", &["counters", "wire"]),
    ("rooms", &["counters", "prefetch", "srtp", "wheel", "wire"]),
    ("pump", &["counters", "wheel", "wire"]),
    ("live", &["pump", "wire"]),
    ("relay", &["counters", "dtls", "wheel", "wire"]),
    ("reflect", &["counters", "wire"]),
    ("livekit", &[]),
    ("acme", &["counters"]),
    ("titles", &["counters", "pump", "wire"]),
    ("webrtc", &["srtp", "wire"]),
    ("client", &["srtp", "webrtc", "wire"]),
    ("measure", &["wire"]),
];

/// These are told the time, and what came; they wait for nothing.
const SANS_IO: [&str; 14] = [
    "wire", "counters", "wheel", "srtp", "tls", "dtls", "rooms", "pump", "live", "relay", "reflect", "livekit",
    "webrtc", "client",
];

/// What gives away that they are not. Sockets that are values of a link are not among these.
const IO: [&str; 8] =
    ["Instant::now", "SystemTime", ".elapsed()", "UdpSocket", "TcpStream", "TcpListener", "thread::", "tokio"];

/// A longer file has two things in it.
const LINES_MAX: usize = 700;

#[test]
fn dependencies_point_downwards() {
    let workspace = read(&root().join("Cargo.toml"));
    let listed = workspace.lines().filter_map(|line| line.split_once(" = { path = \"crates/"));
    let order: Vec<&str> = listed.map(|(name, _)| name).collect();
    let place = |name: &str| order.iter().position(|listed| *listed == name);
    let mut known_count = 0;
    for folder in folders(&root().join("crates")) {
        let name = folder.file_name().expect("a name").to_str().expect("text");
        let manifest = read(&folder.join("Cargo.toml"));
        let known = KNOWN.iter().find(|(crate_name, _)| *crate_name == name);
        known_count += usize::from(known.is_some());
        for dependency in dependencies(&manifest).filter(|dependency| place(dependency).is_some()) {
            // The binary and the programs for measuring are not listed: nobody knows them.
            assert!(place(name).is_none_or(|own| place(dependency) < Some(own)), "{name} knows {dependency} above it");
            let may = known.is_none_or(|(_, below)| below.contains(&dependency));
            assert!(may, "{name} is not to know {dependency}");
        }
    }
    assert_eq!(known_count, KNOWN.len(), "each of these is a crate");
}

#[test]
fn what_a_crate_depends_on_it_uses() {
    for folder in folders(&root().join("crates")) {
        let manifest = read(&folder.join("Cargo.toml"));
        let code: String = sources(&folder.join("src")).iter().map(|file| read(file)).collect();
        for dependency in dependencies(&manifest) {
            let is_used = code.contains(&format!("{}::", dependency.replace('-', "_")));
            assert!(is_used, "{} does not use {dependency}", folder.display());
        }
    }
}

#[test]
fn what_is_told_the_time_does_not_ask_for_it() {
    for name in SANS_IO {
        let files = sources(&root().join("crates").join(name).join("src"));
        assert!(!files.is_empty(), "{name}");
        for file in files.iter().filter(|file| !file.file_stem().is_some_and(is_of_tests)) {
            let text = read(file);
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for (number, line) in (1..).zip(code.lines()).filter(|(_, line)| !line.trim_start().starts_with("//")) {
                let found = IO.iter().find(|io| line.contains(**io));
                assert_eq!(found, None, "{}:{number}", file.display());
            }
        }
    }
}

#[test]
fn no_source_is_too_long_to_be_read() {
    for folder in ["crates", "fuzz", "tests"] {
        for file in sources(&root().join(folder)) {
            let lines = read(&file).lines().count();
            assert!(lines <= LINES_MAX, "{} has {lines} lines", file.display());
        }
    }
}

/// `cargo run`, the README's first command, takes a binary of a default member, and there must be no other than the server.
#[test]
fn cargo_runs_the_server() {
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().expect("TOML");
    assert_eq!(manifest["workspace"]["default-members"], toml::Value::from(vec!["crates/millrace"]));
}

/// Attributes of spans, by OpenTelemetry's semantic conventions; they look like settings.
const ATTRIBUTES: [&str; 3] = ["http.request.method", "http.route", "http.response.status_code"];

/// A setting is written `section.key`, a default `section.key = value` with "(default)" behind it.
#[test]
fn documents_name_settings_that_there_are_and_their_defaults() {
    let reference = Config::reference();
    let (mut section, mut settings) = ("", Vec::new());
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if let Some((key, value)) = line.trim_start_matches("# ").split_once(" = ") {
            settings.push((format!("{section}.{key}"), value));
        }
    }
    let is_section = |name: &str| settings.iter().any(|(setting, _)| setting.split('.').next() == Some(name));
    let mut seen = 0;
    for (file, text) in documents() {
        let is_of_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
        for word in text.split(|c| !is_of_word(c)).map(|word| word.trim_matches('.')) {
            let Some((name, key)) = word.split_once('.') else { continue };
            // Files are named like that, too.
            if is_section(name) && !["rs", "md"].contains(&key) && !ATTRIBUTES.contains(&word) {
                seen += 1;
                assert!(settings.iter().any(|(setting, _)| setting == word), "{file}: {word} is no setting");
            }
        }
        for (end, _) in text.match_indices("` (default)") {
            let quoted = text[..end].rsplit('`').next();
            let (setting, value) = quoted.and_then(|quoted| quoted.split_once(" = ")).expect("a setting and its value");
            assert!(settings.contains(&(setting.to_owned(), value)), "{file}: {setting} is not {value} by default");
        }
    }
    assert!(seen > 20, "{seen} settings were found");
}

#[test]
fn configurations_in_documents_are_read() {
    let mut seen = 0;
    for (file, text) in documents() {
        for block in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let read = Config::default().apply_toml(&file, block);
            assert!(read.is_ok(), "{file}: {read:?} in {block}");
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen} were found");
}

/// And each alert has what whoever it wakes needs.
#[test]
fn each_alert_has_its_entry_in_the_runbook_and_each_entry_its_alert() {
    let rules = read(&root().join("observe/alerts.yml"));
    let mut alerts = Vec::new();
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().expect("a name");
        for needed in ["for: ", "labels: {severity: ", "summary: ", "description: "] {
            assert!(rule.lines().any(|line| line.trim_start().starts_with(needed)), "{name} has no {needed}");
        }
        let entry = format!("runbook_url: docs/runbook.md#{}", name.to_lowercase());
        assert!(rule.lines().any(|line| line.trim_start() == entry), "{name}: {entry}");
        alerts.push(name);
    }
    let runbook = read(&root().join("docs/runbook.md"));
    let entries: Vec<&str> = runbook.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    assert_eq!(entries, alerts, "in the order of the rules");
    for entry in runbook.split("\n### ").skip(1) {
        let has = |begin: &str| entry.lines().any(|line| line.starts_with(begin));
        assert!((has("See: ") || has("See and do: ")) && (has("Do") || has("See and do: ")), "{entry}");
    }
}

/// `module::name`, `Type::function` and the like, whatever stands before these two.
#[test]
fn tests_that_are_named_for_findings_are_there() {
    let all = sources(&root().join("crates")).iter().map(|path| read(path)).collect::<String>();
    let text = read(&root().join("docs/security.md"));
    // "crate: module::name"; names of tests are sentences, and those of metrics begin alike.
    let code = text.split('`').skip(1).step_by(2).filter_map(|code| code.rsplit([':', ' ', '\n']).next());
    let is_test = |name: &&str| name.split('_').count() > 4 && !name.starts_with("millrace_") && !name.contains('…');
    let names: Vec<&str> = code.filter(is_test).collect();
    let functions: HashSet<&str> = all.split("fn ").filter_map(|rest| rest.split('(').next()).collect();
    let missing: Vec<_> = names.iter().filter(|name| !functions.contains(**name)).collect();
    assert!(missing.is_empty() && names.len() > 100, "{missing:?}");
}

#[test]
fn the_architecture_names_what_there_is() {
    let sources: Vec<_> = sources(&root().join("crates")).into_iter().map(|path| (read(&path), path)).collect();
    let text = read(&root().join("ARCHITECTURE.md"));
    let mut seen = 0;
    // The picture stands between two lines of three ticks, and so is none of the quoted names.
    for quoted in text.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains('\n')) {
        let mut names = quoted.rsplit("::");
        let (Some(name), Some(owner)) = (names.next(), names.next()) else { continue };
        seen += 1;
        assert!(sources.iter().any(|(text, path)| declares(path, text, owner, name)), "{quoted} is nowhere");
    }
    assert!(seen > 50, "{seen} names were found");
}

/// Whether a file is the owner's, or below it, or has code of its; and is the name's, or declares it.
fn declares(path: &Path, text: &str, owner: &str, name: &str) -> bool {
    let owns =
        |line| ["impl", "enum", "struct", "trait"].iter().any(|kind| words(line).take(2).any(|word| word == *kind));
    let declares = |line: &str| {
        let mut words = words(line).skip_while(|word| ["pub", "crate", "super", "async"].contains(word));
        match words.next() {
            Some("fn" | "struct" | "enum" | "trait" | "mod") => words.next() == Some(name),
            first => name.starts_with(char::is_uppercase) && first == Some(name),
        }
    };
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).map(|part| part.trim_end_matches(".rs")).collect();
    let is_owners =
        parts.contains(&owner) || text.lines().any(|line| owns(line) && words(line).any(|word| word == owner));
    is_owners && (parts.contains(&name) || text.lines().any(declares))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// What a manifest lists for the crate itself.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    section.lines().filter_map(|line| line.split(['.', ' ']).next()).filter(|name| !name.is_empty() && *name != "#")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What people read about the server.
fn documents() -> Vec<(String, String)> {
    let names = [
        "README.md",
        "ARCHITECTURE.md",
        "docs/rooms.md",
        "docs/pump.md",
        "docs/relay.md",
        "docs/tls.md",
        "docs/doctor.md",
        "docs/observe.md",
        "docs/runbook.md",
        "docs/measured.md",
    ];
    names.map(|name| (name.to_owned(), read(&root().join(name)))).to_vec()
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.is_dir()).collect()
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let mut found: Vec<PathBuf> = entries.filter(is_source).collect();
    for below in
        folders(folder).iter().filter(|folder| !folder.ends_with("node_modules") && !folder.ends_with("target"))
    {
        found.extend(sources(below));
    }
    found
}

fn is_of_tests(stem: &std::ffi::OsStr) -> bool {
    stem.to_str().is_some_and(|stem| stem.ends_with("tests"))
}
