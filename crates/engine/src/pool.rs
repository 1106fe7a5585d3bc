//! Buffers that go round instead of being made and freed.

use crossbeam_queue::ArrayQueue;

/// A bounded free list of boxed buffers, shared by threads without a lock.
///
/// A buffer comes back as it was given: who takes one resets it. Beyond `len` idle ones, buffers are freed.
pub struct Pool<T> {
    idle: ArrayQueue<Box<T>>,
    make: fn() -> T,
}

impl<T> Pool<T> {
    /// An empty pool that keeps up to `len` idle buffers and makes new ones with `make`.
    pub fn new(len: usize, make: fn() -> T) -> Self {
        Pool { idle: ArrayQueue::new(len.max(1)), make }
    }

    /// An idle buffer, or a new one.
    pub fn take(&self) -> Box<T> {
        self.idle.pop().unwrap_or_else(|| Box::new((self.make)()))
    }

    /// Puts a buffer back, or frees it when enough are idle.
    pub fn give(&self, buffer: Box<T>) {
        drop(self.idle.push(buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_was_given_back_is_taken_again_as_it_is() {
        let pool = Pool::new(1, Vec::<u8>::new);
        let mut first = pool.take();
        first.push(7);
        pool.give(first);
        pool.give(Box::new(vec![9]));

        assert_eq!(*pool.take(), [7]);
        assert_eq!(*pool.take(), []);
    }
}
