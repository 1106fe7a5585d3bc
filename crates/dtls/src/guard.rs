//! A panic in dimpl ends one handshake, not all of them.
//!
//! As with str0m's (`webrtc::is_guarded`), whoever has panics end the process otherwise asks `is_guarded`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread would be caught now, and end one handshake only.
pub fn is_guarded() -> bool {
    IS_GUARDED.get()
}

/// Calls what may panic: then there is nothing, and what `call` has changed must not be used again.
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Option<T> {
    IS_GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    IS_GUARDED.set(false);
    result.ok()
}
