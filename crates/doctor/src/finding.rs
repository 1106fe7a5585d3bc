//! One thing that was looked at.

use serde::Serialize;

/// How much it hurts, from the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// Worth knowing, or not known.
    Note,
    /// The server runs, and worse than it could.
    Warning,
    /// Something does not work.
    Fault,
}

/// What was found, how it is known, and what mends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check, such as "buffers".
    pub check: &'static str,
    /// How much it hurts.
    pub severity: Severity,
    /// A sentence for people.
    pub says: String,
    /// The file or call that was read, and the value.
    pub seen: String,
    /// The command that mends it.
    pub mend: Option<String>,
}
