//! The number of a worker, by which products of several workers name each other's.

/// One worker, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

impl WorkerId {
    /// The first `count` workers. Numbers beyond 16 bits are none.
    pub fn all(count: usize) -> impl Iterator<Item = WorkerId> {
        (0..=u16::MAX).map(WorkerId).take(count)
    }

    /// Its place in a list of all workers.
    pub fn index(self) -> usize {
        self.0.into()
    }
}
