//! Runs the body of a test in a process of its own, so that nobody else suffers from what it changes. A test includes this
//! file as a module, beside `skip`.
#![allow(dead_code, reason = "no test needs everything")]

use std::process::Command;

use super::skip::skip;

/// What the process of its own finds in its environment.
const MARK: &str = "MILLRACE_TEST_IN_A_PROCESS_OF_ITS_OWN";

/// Runs `test` once more, by a shell that does what `script` says before. True: this is that process, so the body is to be run.
pub(crate) fn is_alone(test: &str, script: &str) -> bool {
    is_here() || run(Command::new("sh"), test, script)
}

/// The same in a network of its own that `script` makes; where it cannot, the test is skipped, as that takes root and `needs`.
pub(crate) fn is_alone_in_a_network(test: &str, script: &str, needs: &str) -> bool {
    if is_here() {
        return true;
    }
    let shell = || {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh"]);
        command
    };
    if !shell().args(["-c", script]).output().is_ok_and(|output| output.status.success()) {
        skip(&format!("{test}: a network of its own needs root and {needs}"));
        return false;
    }
    run(shell(), test, script)
}

fn is_here() -> bool {
    std::env::var_os(MARK).is_some()
}

fn run(mut shell: Command, test: &str, script: &str) -> bool {
    let program = std::env::current_exe().expect("the test is a program");
    let script = format!("{script} && exec \"$0\" --exact {test} --nocapture");
    let status = shell.arg("-c").arg(script).arg(program).env(MARK, "1").status().expect("there is a shell");
    assert!(status.success(), "in a process of its own");
    false
}
