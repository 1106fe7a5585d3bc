//! Manual pages and completions.

use std::process::{Command, Stdio};

use crate::common::millrace;
use crate::skip::skip;

#[test]
fn each_command_has_a_manual_page_that_says_what_its_help_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let status = millrace().arg("manual").arg(folder.path()).status().expect("it runs");
    assert!(status.success());
    let page = |name: &str| {
        std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(page("millrace.1").contains("millrace\\-serve(1)"), "the first names the others");
    for (name, words) in [
        ("millrace-serve.1", "\\-\\-config"),
        ("millrace-doctor.1", "\\-\\-stun"),
        ("millrace-load-rooms.1", "\\-\\-microphones"),
        ("millrace-users-add.1", ".SH SYNOPSIS"),
    ] {
        assert!(page(name).contains(words), "{name} has no {words}");
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let ended = millrace().args(["manual", "/there/is/none"]).output().expect("it runs");
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("/there/is/none"));
}

#[test]
fn a_shell_reads_its_completions_and_is_told_of_the_commands() {
    let script = millrace().args(["completions", "bash"]).output().expect("it runs");
    let script = String::from_utf8(script.stdout).expect("text");
    if Command::new("bash").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("completions: bash is not here");
    }
    // As bash does for `millrace do<Tab>`.
    let asked = format!(
        "{script}\nCOMP_WORDS=(millrace do) COMP_CWORD=1; _millrace millrace do millrace; echo \"${{COMPREPLY[@]}}\""
    );
    let answer = Command::new("bash").args(["-c", &asked]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&answer.stdout).trim(), "doctor", "{answer:?}");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = millrace().args(["completions", shell]).output().expect("it runs");
        assert!(String::from_utf8_lossy(&script.stdout).contains("doctor"), "{shell}");
    }
}
