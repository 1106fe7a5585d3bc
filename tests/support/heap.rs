//! Counts the bytes that a process has from the heap; for the tests that say how much memory something takes.
//!
//! A test includes this file as a module of its own, as there is one allocator per program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

static BYTES: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, with a count of what is taken and not given back.
struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and `ptr` came from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that the process has at present.
pub fn bytes() -> isize {
    BYTES.load(Ordering::Relaxed)
}
