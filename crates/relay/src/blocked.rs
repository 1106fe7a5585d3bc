//! Users whom the operator keeps out for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Who, and until when; `None` is until control says otherwise. Workers share one, which control replaces as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked(pub HashMap<Arc<str>, Option<Instant>>);

impl Blocked {
    /// Whether a user is.
    pub fn has(&self, now: Instant, user: &str) -> bool {
        self.0.get(user).is_some_and(|until| until.is_none_or(|until| now < until))
    }
}
