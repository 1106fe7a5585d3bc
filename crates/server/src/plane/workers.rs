//! The way to the workers: each one's mailbox, and what waits for room in it.
//!
//! In: messages. Out: the same to each worker in the order in which they were posted, as it has room.
//! Cost: one lock per message, which only other senders to the same worker take.
//!
//! A worker takes a full mailbox within milliseconds. What control must not lose waits here meanwhile (`post`), up to
//! `BACKLOG_MAX`; what may be lost or asked again is not kept (`offer`). A worker for which more waits than that has hung:
//! the server then says so and ends, so that whoever watches over it starts it anew (`is_whole`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use engine::{CountersSnapshot, Mailbox, WorkerHandle};
use tokio::sync::oneshot;
use wire::{LinkId, WorkerId};

use crate::worker::{Message, Numbers};

/// Messages that wait for one worker at most, some 100 MB of them. All that control may owe a worker at once finds room, as
/// the chunks of every session when an origin comes back. A worker that lets more wait has failed, and gets no more.
pub const BACKLOG_MAX: usize = 1 << 20;

/// How long a worker may take to close its sockets.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// What became of a message that must not be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The worker has it.
    Sent,
    /// It waits for room.
    Waits,
    /// It is let go: there is no such worker, or it has hung.
    Refused,
}

/// All workers, by their numbers.
pub struct Workers {
    each: Vec<Worker>,
}

struct Worker {
    mailbox: Mailbox<Message>,
    backlog: Mutex<VecDeque<Message>>,
    /// More waited than `BACKLOG_MAX`.
    has_failed: AtomicBool,
    /// Where its products publish what they count.
    numbers: Numbers,
    /// Its thread; one that only pretends has none.
    handle: Option<WorkerHandle<Message>>,
}

impl Workers {
    /// Workers that run. They end with this.
    pub fn new(running: Vec<(WorkerHandle<Message>, Numbers)>) -> Self {
        let worker = |(handle, numbers): (WorkerHandle<_>, _)| Worker::new(handle.mailbox(), numbers, Some(handle));
        Workers { each: running.into_iter().map(worker).collect() }
    }

    /// Mailboxes that somebody reads as a worker would; for tests.
    pub fn pretended(mailboxes: Vec<Mailbox<Message>>) -> Self {
        Workers { each: mailboxes.into_iter().map(|mailbox| Worker::new(mailbox, Numbers::default(), None)).collect() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.each.len()
    }

    /// Their numbers.
    pub fn ids(&self) -> impl Iterator<Item = WorkerId> {
        WorkerId::all(self.count())
    }

    /// Hands over a message that must not be lost, behind those that wait already.
    pub fn post(&self, worker: WorkerId, message: Message) -> Posted {
        let Some(worker) = self.each.get(worker.index()) else { return Posted::Refused };
        let mut backlog = worker.backlog();
        if backlog.len() >= BACKLOG_MAX {
            worker.has_failed.store(true, Ordering::Relaxed);
            return Posted::Refused;
        }
        backlog.push_back(message);
        worker.flush(&mut backlog);
        if backlog.is_empty() { Posted::Sent } else { Posted::Waits }
    }

    /// Hands over a message at once or not at all, in which case it returns false. It overtakes nothing that waits.
    pub fn offer(&self, worker: WorkerId, message: Message) -> bool {
        self.give(worker, message).is_none()
    }

    /// The same; what is not taken comes back.
    pub fn give(&self, worker: WorkerId, message: Message) -> Option<Message> {
        let Some(worker) = self.each.get(worker.index()) else { return Some(message) };
        let mut backlog = worker.backlog();
        worker.flush(&mut backlog);
        if backlog.is_empty() { worker.mailbox.send(message).err() } else { Some(message) }
    }

    /// Hands over what a worker's negotiator has for it: commands behind those of control, as a session's stream was opened
    /// by control; datagrams, and that one is expected, at once or not at all.
    pub fn take_from_negotiator(&self, worker: WorkerId, message: Message) -> Posted {
        if !matches!(message, Message::Transmit { .. } | Message::Expect) {
            return self.post(worker, message);
        }
        if self.offer(worker, message) { Posted::Sent } else { Posted::Refused }
    }

    /// Closes the sockets that workers' products of this number have from the start: another process has them, too.
    pub(crate) async fn close_sockets(&self, owner: u16) {
        for (id, worker) in self.ids().zip(&self.each) {
            let sockets = worker.handle.iter().flat_map(|handle| handle.sockets());
            let links: Vec<LinkId> =
                sockets.filter(|socket| socket.token.owner == owner).map(|socket| socket.link).collect();
            let (done, is_done) = oneshot::channel();
            self.post(id, Message::CloseLinks { links, done });
            // Of one that has hung nobody gets the sockets.
            tokio::time::timeout(CLOSE_MAX, is_done).await.ok();
        }
    }

    /// Sends what waited and now has room. One worker that is full does not hold up others.
    pub fn flush(&self) {
        for worker in &self.each {
            worker.flush(&mut worker.backlog());
        }
    }

    /// How many messages wait for room at the worker.
    pub fn waiting(&self, worker: WorkerId) -> usize {
        self.each.get(worker.index()).map_or(0, |worker| worker.backlog().len())
    }

    /// Whether something waits for the worker.
    pub fn is_behind(&self, worker: WorkerId) -> bool {
        self.waiting(worker) > 0
    }

    /// Whether every worker still runs and takes what it is told.
    pub fn is_whole(&self) -> bool {
        let runs = |worker: &Worker| !worker.handle.as_ref().is_some_and(WorkerHandle::is_finished);
        self.each.iter().all(|worker| runs(worker) && !worker.has_failed.load(Ordering::Relaxed))
    }

    /// What each worker's engine has counted.
    pub fn counters(&self) -> impl Iterator<Item = (WorkerId, CountersSnapshot)> {
        let counters = self.each.iter().map(|worker| worker.handle.as_ref().map(WorkerHandle::counters));
        self.ids().zip(counters.map(Option::unwrap_or_default))
    }

    /// Where each worker's products publish what they count.
    pub fn numbers(&self) -> impl Iterator<Item = (WorkerId, &Numbers)> {
        self.ids().zip(self.each.iter().map(|worker| &worker.numbers))
    }

    /// CPU time of a worker's thread, the kernel's share included.
    pub fn cpu_time(&self, worker: WorkerId) -> Option<Duration> {
        self.each.get(worker.index())?.handle.as_ref()?.cpu_time()
    }
}

impl Worker {
    fn new(mailbox: Mailbox<Message>, numbers: Numbers, handle: Option<WorkerHandle<Message>>) -> Self {
        Worker { mailbox, backlog: Mutex::default(), has_failed: AtomicBool::new(false), numbers, handle }
    }

    fn flush(&self, backlog: &mut VecDeque<Message>) {
        while let Some(message) = backlog.pop_front() {
            if let Err(message) = self.mailbox.send(message) {
                return backlog.push_front(message);
            }
        }
    }

    fn backlog(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.backlog.lock().expect("nobody panics under this lock")
    }
}

#[cfg(test)]
mod tests {
    use engine::{Receiver, mailbox};
    use pump::spec::{Command, SessionId};
    use wire::Path;

    use super::*;

    const WORKER: WorkerId = WorkerId(0);

    fn message(number: u64) -> Message {
        Message::Pump(Command::Pause(SessionId(number)))
    }

    fn number(receiver: &Receiver<Message>) -> Option<u64> {
        match receiver.try_recv()? {
            Message::Pump(Command::Pause(SessionId(number))) => Some(number),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn workers(room: usize) -> (Workers, Receiver<Message>) {
        let (mailbox, receiver) = mailbox(room).expect("a mailbox");
        (Workers::pretended(vec![mailbox]), receiver)
    }

    #[test]
    fn what_finds_no_room_waits_and_nothing_overtakes_it() {
        let (workers, receiver) = workers(2);
        let posted = [0, 1, 2, 3, 4].map(|number| workers.post(WORKER, message(number)));
        assert_eq!(posted, [Posted::Sent, Posted::Sent, Posted::Waits, Posted::Waits, Posted::Waits]);
        assert_eq!((workers.waiting(WORKER), workers.is_behind(WORKER)), (3, true));
        assert!(!workers.offer(WORKER, message(9)), "there is no room");

        assert_eq!([number(&receiver), number(&receiver), number(&receiver)], [Some(0), Some(1), None]);
        workers.flush();
        assert_eq!(number(&receiver), Some(2));
        assert!(!workers.offer(WORKER, message(9)), "something waits, though there is room for one");
        assert_eq!([number(&receiver), number(&receiver), number(&receiver)], [Some(3), Some(4), None]);
        assert!(workers.offer(WORKER, message(9)) && !workers.is_behind(WORKER));
        assert_eq!(number(&receiver), Some(9));
    }

    #[test]
    fn what_a_negotiator_commands_comes_behind_what_control_did_and_its_datagrams_do_not_wait() {
        let (workers, receiver) = workers(1);
        workers.post(WORKER, message(0));
        workers.post(WORKER, message(1));
        assert_eq!(number(&receiver), Some(0));
        assert_eq!(workers.take_from_negotiator(WORKER, message(2)), Posted::Waits, "though there was room for one");
        let path = Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], 1).into(), local: None };
        let datagram = Message::Transmit { path, data: Box::default() };
        assert_eq!(workers.take_from_negotiator(WORKER, datagram), Posted::Refused);
        assert_eq!(number(&receiver), Some(1));
        workers.flush();
        assert_eq!([number(&receiver), number(&receiver)], [Some(2), None]);
    }

    #[test]
    fn a_worker_that_takes_nothing_has_failed_when_its_backlog_is_full() {
        let (workers, receiver) = workers(1);
        for number in 0..=BACKLOG_MAX as u64 {
            workers.post(WORKER, message(number));
        }
        assert!(workers.is_whole(), "one in the mailbox, the others wait");

        assert_eq!(workers.post(WORKER, message(0)), Posted::Refused);
        assert!(!workers.is_whole());
        assert_eq!(workers.each[0].backlog().len(), BACKLOG_MAX);
        drop(receiver);
    }

    #[test]
    fn a_worker_that_there_is_not_takes_nothing() {
        let (workers, _receiver) = workers(1);
        assert_eq!(workers.post(WorkerId(7), message(0)), Posted::Refused);
        assert!(!workers.offer(WorkerId(7), message(0)) && !workers.is_behind(WorkerId(7)));
        assert_eq!(workers.ids().collect::<Vec<_>>(), [WORKER]);
    }
}
