//! What one thread's viewers saw.

use std::collections::BTreeMap;

use measure::percentiles::Times;

use super::check::Faults;
use super::viewer::Role;

/// Kinds of failures at most that are told apart; others are counted together.
const KINDS_MAX: usize = 32;

/// What they saw, most of it since the counting began.
#[derive(Clone, Default)]
pub(super) struct Totals {
    /// Who gets the stream, of those who stay; who was closed, was refused or never came there.
    pub(super) watching: usize,
    /// Who is on the way there.
    pub(super) waiting: usize,
    /// Who was sent the stream and is not any more; of slow ones.
    pub(super) ended: u64,
    pub(super) slow_closed: u64,
    /// Why somebody has no stream, and how often.
    pub(super) failures: BTreeMap<String, u64>,
    /// Of the stream, all viewers together.
    pub(super) bytes: u64,
    /// Of each viewer that is expected to get all of it.
    pub(super) shares: Vec<u64>,
    /// Of each packet of those who are checked, from when it was made.
    pub(super) latency: Times,
    /// From the connection's beginning to the stream's first byte, and until a decoder could begin.
    pub(super) first_byte: Times,
    pub(super) picture: Times,
    /// The same of those who come and go.
    pub(super) passing_first_byte: Times,
    pub(super) passing_picture: Times,
    /// Times without a byte that were too long, and how long they were.
    pub(super) stall_count: u64,
    pub(super) stalls: Times,
    /// Of each viewer who is checked, between two arrivals.
    pub(super) longest_gaps: Times,
    /// What was wrong: with those who are checked, with those who are slow, and with others.
    pub(super) checked: Faults,
    pub(super) slow: Faults,
    pub(super) others: Faults,
}

impl Totals {
    /// Somebody has no stream.
    pub(super) fn fail(&mut self, error: &anyhow::Error) {
        let mut why = format!("{error:#}");
        if self.failures.len() >= KINDS_MAX && !self.failures.contains_key(&why) {
            why = "other failures".to_owned();
        }
        *self.failures.entry(why).or_default() += 1;
    }

    pub(super) fn first_byte_of(&mut self, role: Role) -> &mut Times {
        if role == Role::Passing { &mut self.passing_first_byte } else { &mut self.first_byte }
    }

    pub(super) fn picture_of(&mut self, role: Role) -> &mut Times {
        if role == Role::Passing { &mut self.passing_picture } else { &mut self.picture }
    }

    pub(super) fn faults_of(&mut self, role: Role) -> &mut Faults {
        match role {
            Role::Checked => &mut self.checked,
            Role::Slow(_) => &mut self.slow,
            Role::Plain | Role::Deaf | Role::Passing => &mut self.others,
        }
    }

    /// The counting begins: how viewers came is known by now, and what went wrong stays.
    pub(super) fn reset(&mut self) {
        let Totals { ended, slow_closed, failures, first_byte, picture, checked, slow, others, .. } =
            std::mem::take(self);
        *self =
            Totals { ended, slow_closed, failures, first_byte, picture, checked, slow, others, ..Totals::default() };
    }
}
