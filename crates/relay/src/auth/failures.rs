//! Proofs that failed, for whoever looks after the server.
//!
//! In: each of them. Out: some, with how many were left out between them. A stranger chooses how many there are, so no more
//! are told than somebody reads: see `RATE`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::{Budget, Rate};

use crate::spec::{FailedProof, ProofError};

/// Those of one worker that are told. So a flood makes some 200 bytes a second, and what is seldom is told each time.
const RATE: Rate = Rate { burst: 20, interval: Duration::from_secs(1) };

/// Those that are to be told.
#[derive(Debug)]
pub(super) struct Failures {
    budget: Budget,
    left_out: u64,
    /// No more than `RATE` allows.
    told: VecDeque<FailedProof>,
}

impl Failures {
    pub(super) fn new(now: Instant) -> Self {
        Failures { budget: Budget::new(now), left_out: 0, told: VecDeque::new() }
    }

    /// Takes one.
    pub(super) fn note(&mut self, now: Instant, client: SocketAddr, user: Option<&[u8]>, error: ProofError) {
        if self.told.len() >= RATE.burst as usize || !self.budget.take(now, RATE) {
            self.left_out += 1;
            return;
        }
        let user = user.map(|user| String::from_utf8_lossy(user).chars().take(FailedProof::NAME_MAX).collect());
        let left_out = std::mem::take(&mut self.left_out);
        self.told.push_back(FailedProof { user, client, error, left_out });
    }

    /// The oldest that is to be told.
    pub(super) fn poll(&mut self) -> Option<FailedProof> {
        self.told.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_them_is_told_once_a_second_with_how_many_there_were() {
        let mut now = Instant::now();
        let mut failures = Failures::new(now);
        let client = ([192, 0, 2, 1], 5_000).into();
        let mut fail = |now| {
            failures.note(now, client, Some(&[b'x'; 508]), ProofError::WrongPassword);
            failures.poll()
        };
        let told = (0..1_000).filter_map(|_| fail(now)).collect::<Vec<_>>();
        assert_eq!((told.len(), told[0].left_out), (20, 0));
        assert_eq!(told[0].user, Some("x".repeat(FailedProof::NAME_MAX)), "no more of it than that");
        for left_out in [980, 9] {
            now += RATE.interval;
            let told = (0..10).filter_map(|_| fail(now)).map(|failure| failure.left_out).collect::<Vec<_>>();
            assert_eq!(told, [left_out]);
        }
    }

    #[test]
    fn those_that_nobody_takes_are_no_more_than_so_many() {
        let now = Instant::now();
        let mut failures = Failures::new(now);
        for second in 0..1_000 {
            failures.note(now + RATE.interval * second, ([192, 0, 2, 1], 1).into(), None, ProofError::UnknownUser);
        }
        assert_eq!((failures.told.len(), failures.left_out), (20, 980));
    }
}
