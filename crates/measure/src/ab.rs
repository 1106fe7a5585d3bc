//! `millrace ab`: programs that do the same work, compared so that the machine's moods do not decide.

pub mod record;
