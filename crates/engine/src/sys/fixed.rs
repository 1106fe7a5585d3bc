//! A row of values that never moves, so that the kernel can be given pointers into it.

use std::ptr::{self, NonNull};

/// Like `Box<[T]>`, but pointers from `ptr` stay good while references come and go: everything goes through one
/// raw pointer that was made once.
pub(super) struct Fixed<T> {
    start: NonNull<T>,
    len: usize,
}

// SAFETY: `Fixed` owns its values just as a box does.
unsafe impl<T: Send> Send for Fixed<T> {}

impl<T> Fixed<T> {
    pub(super) fn new(values: Box<[T]>) -> Self {
        let len = values.len();
        let start = NonNull::from(Box::leak(values)).cast();
        Fixed { start, len }
    }

    pub(super) fn from_fn(len: usize, make: impl FnMut(usize) -> T) -> Self {
        Self::new((0..len).map(make).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where value `index` lies, for as long as `self` lives.
    pub(super) fn ptr(&self, index: usize) -> *mut T {
        assert!(index < self.len, "inside the row");
        // SAFETY: the index was checked against the length of the allocation.
        unsafe { self.start.add(index).as_ptr() }
    }

    pub(super) fn get(&self, index: usize) -> &T {
        // SAFETY: `ptr` checks the index; the value was initialised by `new` and `&self` excludes writers in Rust. The
        // kernel writes only inside calls that hold `&mut` on the owner.
        unsafe { &*self.ptr(index) }
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as in `get`, and `&mut self` makes this the only reference.
        unsafe { &mut *self.ptr(index) }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: `new` took `len` initialised values at `start`, and `&self` excludes writers, as in `get`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: `new` took `len` initialised values at `start`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a box of just this slice, and nothing else frees it.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.len)) });
    }
}
