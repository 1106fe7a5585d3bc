//! What a test leaves out because the machine has not what it needs; `./test` names it at its end. A test includes this file
//! as a module.

use std::fs::File;
use std::io::Write as _;

/// Says what is not tested, and why: in the test's output, and in the file that `MILLRACE_TEST_SKIPS` names.
pub(crate) fn skip(what: &str) {
    println!("skipped: {what}");
    if let Some(path) = std::env::var_os("MILLRACE_TEST_SKIPS") {
        let mut file = File::options().create(true).append(true).open(path).expect("it can be written");
        file.write_all(format!("{what}\n").as_bytes()).expect("it can be written");
    }
}
