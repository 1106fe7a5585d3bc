//! What several tests of workers need.

use std::thread;
use std::time::{Duration, Instant};

/// Counters are published once per turn, so a reader may be a turn ahead of them.
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}
