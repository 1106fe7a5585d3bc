//! Counts what a thread takes from the heap; for the tests that say that a packet takes nothing.
//!
//! A test includes this file as a module of its own, as there is one allocator per program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what a thread takes while it is watched.
struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_WATCHED.try_with(Cell::get).unwrap_or(false) {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `ptr` came from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Begins or ends the watch of this thread.
pub fn watch(is_watched: bool) {
    IS_WATCHED.set(is_watched);
}

/// What this thread took while it was watched.
pub fn count() -> u64 {
    ALLOCATIONS.get()
}

/// Runs `work` and counts its allocations on this thread.
#[allow(dead_code, reason = "not every test can call what it watches")]
pub fn watched<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = count();
    watch(true);
    let result = work();
    watch(false);
    (count() - before, result)
}
