//! On which workers one stream is, and what these are told of it. For broadcasts and for tracks of conferences.
//!
//! In: who comes to publish or to watch it, and where, connected; who leaves. Out: commands to workers, in the order in which
//! they have to arrive.
//!
//! A stream lives on one worker, that of its publisher. Another gets it (`OpenStream`, and `Mirror` there) with its first viewer,
//! and loses it with the last.

use std::collections::VecDeque;

use rooms::spec::{Command, StreamId, StreamSpec};
use wire::WorkerId;

/// What waits to be told, oldest first.
pub type Commands = VecDeque<(WorkerId, Command)>;

/// Where one stream is.
#[derive(Clone, Debug)]
pub struct Spread {
    home: WorkerId,
    /// Its home has it.
    is_open: bool,
    /// Viewers on each worker. Another than its home has it for these.
    viewers: Vec<usize>,
}

impl Spread {
    /// Nowhere yet; its home is one of so many workers.
    pub fn new(home: WorkerId, workers: usize) -> Self {
        Spread { home, is_open: false, viewers: vec![0; workers] }
    }

    /// The worker of its publisher.
    pub fn home(&self) -> WorkerId {
        self.home
    }

    /// Whether its home has it.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// On all workers.
    pub fn viewer_count(&self) -> usize {
        self.viewers.iter().sum()
    }

    /// Its home has it from now on. False: it has had it.
    pub fn open(&mut self, spec: impl FnOnce() -> StreamSpec, commands: &mut Commands) -> bool {
        let is_new = !std::mem::replace(&mut self.is_open, true);
        if is_new {
            commands.push_back((self.home, Command::OpenStream(spec())));
        }
        is_new
    }

    /// Somebody watches it there, that has it from now on. Its home has it already.
    pub fn enter(&mut self, worker: WorkerId, spec: impl FnOnce() -> StreamSpec, commands: &mut Commands) {
        debug_assert!(self.is_open, "who watches it comes after it is open");
        let Some(viewers) = self.viewers.get_mut(worker.index()) else { return };
        *viewers += 1;
        if *viewers == 1 && worker != self.home {
            let spec = spec();
            let stream = spec.id;
            commands.push_back((worker, Command::OpenStream(spec)));
            commands.push_back((self.home, Command::Mirror { stream, to: worker, on: true }));
        }
    }

    /// Somebody watches it there no more.
    pub fn leave(&mut self, stream: StreamId, worker: WorkerId, commands: &mut Commands) {
        let Some(viewers) = self.viewers.get_mut(worker.index()).filter(|viewers| **viewers > 0) else { return };
        *viewers -= 1;
        if *viewers == 0 && worker != self.home {
            commands.push_back((self.home, Command::Mirror { stream, to: worker, on: false }));
            commands.push_back((worker, Command::CloseStream(stream)));
        }
    }

    /// It is nowhere any more.
    pub fn close(self, stream: StreamId, commands: &mut Commands) {
        if self.is_open {
            commands.push_back((self.home, Command::CloseStream(stream)));
        }
        for (worker, viewers) in WorkerId::all(self.viewers.len()).zip(&self.viewers) {
            if *viewers > 0 && worker != self.home {
                commands.push_back((worker, Command::CloseStream(stream)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: StreamId = StreamId(1);

    /// What is told, in short.
    fn told(commands: &mut Commands) -> Vec<String> {
        let short = |(worker, command): (WorkerId, Command)| match command {
            Command::OpenStream(_) => format!("{} open", worker.0),
            Command::CloseStream(_) => format!("{} close", worker.0),
            Command::Mirror { to, on, .. } => format!("{} mirror {} {on}", worker.0, to.0),
            other => panic!("{other:?}"),
        };
        commands.drain(..).map(short).collect()
    }

    #[test]
    fn a_worker_has_a_stream_from_its_first_viewer_to_its_last() {
        let spec = || StreamSpec { id: STREAM, tracks: Vec::new() };
        let (mut spread, mut commands) = (Spread::new(WorkerId(1), 3), Commands::new());
        assert!(spread.open(spec, &mut commands) && !spread.open(spec, &mut commands));
        assert_eq!(told(&mut commands), ["1 open"]);
        for worker in [1, 0, 0] {
            spread.enter(WorkerId(worker), spec, &mut commands);
        }
        assert_eq!(told(&mut commands), ["0 open", "1 mirror 0 true"]);
        assert_eq!(spread.viewer_count(), 3);
        spread.leave(STREAM, WorkerId(0), &mut commands);
        assert!(commands.is_empty());
        spread.leave(STREAM, WorkerId(0), &mut commands);
        assert_eq!(told(&mut commands), ["1 mirror 0 false", "0 close"]);
        spread.leave(STREAM, WorkerId(0), &mut commands);
        assert!(commands.is_empty(), "nobody is there to leave");
        spread.enter(WorkerId(2), spec, &mut commands);
        commands.clear();
        spread.close(STREAM, &mut commands);
        assert_eq!(told(&mut commands), ["1 close", "2 close"]);
    }

    #[test]
    fn a_stream_that_was_never_open_is_closed_nowhere() {
        let mut commands = Commands::new();
        Spread::new(WorkerId(0), 2).close(STREAM, &mut commands);
        assert!(commands.is_empty());
    }
}
