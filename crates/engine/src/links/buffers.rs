//! Memory of links that have something to keep, for as long as they have it.
//!
//! In and out: vectors. An idle link has none; what one lets go of, another takes up.
//! Cost: none for the heap in a steady state, as vectors go round.

/// Vectors that lie ready at most.
const IDLE_MAX: usize = 64;

/// The largest that is kept; a larger one, of a slow reader, goes back to the heap.
const IDLE_BYTES_MAX: usize = 64 * 1_024;

/// Empty vectors of one worker.
#[derive(Default)]
pub(crate) struct Buffers {
    idle: Vec<Vec<u8>>,
}

impl Buffers {
    /// An empty vector, with memory if there is one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.idle.pop().unwrap_or_default()
    }

    /// Takes a vector's memory back.
    pub(crate) fn give(&mut self, mut buffer: Vec<u8>) {
        if self.idle.len() < IDLE_MAX && (1..=IDLE_BYTES_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            self.idle.push(buffer);
        }
    }
}

/// Bytes that wait until the kernel has room.
#[derive(Default)]
pub(crate) struct Backlog {
    buffer: Vec<u8>,
    /// Bytes at the front that have gone.
    start: usize,
}

impl Backlog {
    pub(crate) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Puts bytes behind the others.
    pub(crate) fn push(&mut self, bytes: &[u8], buffers: &mut Buffers) {
        if !bytes.is_empty() {
            self.append(bytes.len(), buffers, |out| out.extend_from_slice(bytes));
        }
    }

    /// Lets `write` put some `len` bytes behind the others.
    pub(crate) fn append<T>(&mut self, len: usize, buffers: &mut Buffers, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.buffer.capacity() == 0 {
            self.buffer = buffers.take();
        }
        // Moving what waits is worth it when as much has gone.
        if self.buffer.len() + len > self.buffer.capacity() && self.start >= self.len() {
            self.buffer.copy_within(self.start.., 0);
            self.buffer.truncate(self.len());
            self.start = 0;
        }
        let result = write(&mut self.buffer);
        // It may be that nothing was put there.
        self.consume(0, buffers);
        result
    }

    /// Takes `count` bytes from the front.
    pub(crate) fn consume(&mut self, count: usize, buffers: &mut Buffers) {
        self.start += count;
        debug_assert!(self.start <= self.buffer.len(), "no more than there is");
        if self.is_empty() {
            self.start = 0;
            buffers.give(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_the_order_in_which_they_came_and_memory_goes_round() {
        let mut buffers = Buffers::default();
        let (mut backlog, mut expected, mut next) = (Backlog::default(), Vec::new(), 0_u8);
        for round in 0..1_000 {
            let bytes: Vec<u8> = (0..round % 37)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect();
            backlog.push(&bytes, &mut buffers);
            expected.extend(bytes);
            assert_eq!(backlog.bytes(), expected);
            let count = (round * 7 % 41).min(expected.len());
            backlog.consume(count, &mut buffers);
            expected.drain(..count);
        }
        assert!(backlog.buffer.capacity() <= 8 * 1_024, "what has gone takes no memory");
        let count = backlog.len();
        backlog.consume(count, &mut buffers);
        assert_eq!((backlog.buffer.capacity(), buffers.idle.len()), (0, 1));
    }

    #[test]
    fn the_memory_of_a_slow_reader_goes_back_to_the_heap() {
        let mut buffers = Buffers::default();
        let mut backlog = Backlog::default();
        backlog.push(&[0; IDLE_BYTES_MAX + 1], &mut buffers);
        backlog.consume(IDLE_BYTES_MAX + 1, &mut buffers);
        assert_eq!((backlog.buffer.capacity(), buffers.idle.len()), (0, 0));
        (0..2 * IDLE_MAX).for_each(|_| buffers.give(vec![0; 10]));
        assert_eq!(buffers.idle.len(), IDLE_MAX);
    }
}
