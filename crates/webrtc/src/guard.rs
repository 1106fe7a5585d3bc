//! Panics in str0m and below it end one session, not all of them.
//!
//! In: a call. Out: what it gives, or that it panicked. Cost: nothing while it does not.
//!
//! That a panic is caught has two conditions: the program unwinds (`panic` in its profile), and whoever has panics end the
//! process otherwise, by a hook, asks `is_guarded`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread would be caught now, and end one session only.
pub fn is_guarded() -> bool {
    IS_GUARDED.get()
}

/// Somebody else's code panicked; what it worked on is half done and must not be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Calls what may panic. Its caller never uses again what `call` has changed when it did.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
    IS_GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    IS_GUARDED.set(false);
    result.map_err(|_| Panicked)
}
