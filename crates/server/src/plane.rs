//! What the control planes of all products have in common: the way to the workers.

pub(crate) mod backlog;
pub mod busy;
pub(crate) mod questions;
