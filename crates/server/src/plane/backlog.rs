//! Commands to workers, in their order: what finds a worker's mailbox full waits here.

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Backlog<C> {
    by_worker: Vec<VecDeque<C>>,
}

impl<C> Backlog<C> {
    pub(crate) fn new(workers: usize) -> Self {
        Backlog { by_worker: (0..workers).map(|_| VecDeque::new()).collect() }
    }

    /// A command to a worker that there is not is let go.
    pub(crate) fn push(&mut self, worker: usize, command: C) {
        if let Some(commands) = self.by_worker.get_mut(worker) {
            commands.push_back(command);
        }
    }

    /// Hands over what workers have room for; `send` gives back what found none. One that is full does not hold up others.
    pub(crate) fn flush(&mut self, send: impl Fn(usize, C) -> Result<(), C>) {
        for (worker, commands) in self.by_worker.iter_mut().enumerate() {
            while let Some(command) = commands.pop_front() {
                if let Err(command) = send(worker, command) {
                    commands.push_front(command);
                    break;
                }
            }
        }
    }
}
