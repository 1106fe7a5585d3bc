//! Values from any thread to one thread, bounded, with a system call only when the receiver sleeps.
//!
//! In: `send`, which never waits: a full mailbox gives the value back. Out: the values in order of arrival.
//! Cost: one compare-and-swap and one fence per value; an eventfd write per sleep, not per value.
//!
//! No wake-up is lost: see `doorbell`. The bell is an eventfd, which stays readable until the receiver wakes.

mod doorbell;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crossbeam_queue::ArrayQueue;

use crate::sys::{self, EventFd};
use doorbell::Doorbell;

/// Makes both ends of a mailbox that holds at most `len` values.
pub fn mailbox<T>(len: usize) -> io::Result<(Mailbox<T>, Receiver<T>)> {
    let shared = Arc::new(Shared {
        queue: ArrayQueue::new(len.max(1)),
        event: EventFd::new()?,
        doorbell: Doorbell::new(),
        is_closed: AtomicBool::new(false),
        senders: AtomicUsize::new(1),
        refused: AtomicU64::new(0),
    });
    Ok((Mailbox { shared: Arc::clone(&shared) }, Receiver { shared }))
}

struct Shared<T> {
    queue: ArrayQueue<T>,
    event: EventFd,
    /// Whether the receiver waits for the eventfd, or is about to.
    doorbell: Doorbell,
    /// The receiver is gone.
    is_closed: AtomicBool,
    senders: AtomicUsize,
    /// Values given back because the mailbox was full.
    refused: AtomicU64,
}

impl<T> Shared<T> {
    fn wake(&self) {
        if self.doorbell.is_to_ring() {
            self.event.signal();
        }
    }
}

/// The sending end.
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Mailbox<T> {
    /// Puts a value in, or gives it back when the mailbox is full or its receiver is gone.
    pub fn send(&self, value: T) -> Result<(), T> {
        if self.shared.is_closed.load(Ordering::Relaxed) {
            return Err(value);
        }
        let sent = self.shared.queue.push(value);
        match sent {
            Ok(()) => self.shared.wake(),
            Err(_) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        sent
    }

    /// Values that it holds at most.
    pub fn size(&self) -> usize {
        self.shared.queue.capacity()
    }

    /// How many more it would take now.
    pub fn room(&self) -> usize {
        self.size().saturating_sub(self.shared.queue.len())
    }

    /// Wakes the receiver though there is no value for it.
    pub(crate) fn nudge(&self) {
        self.shared.event.signal();
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Mailbox { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::Release) == 1 {
            self.shared.wake();
        }
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox").field("len", &self.shared.queue.len()).finish_non_exhaustive()
    }
}

/// Why `recv_timeout` has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// The time is over.
    Timeout,
    /// Every sender is gone, and what they sent was received.
    Closed,
}

/// The receiving end, of which there is one.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Receiver<T> {
    /// The next value, if one is there.
    pub fn try_recv(&self) -> Option<T> {
        self.shared.queue.pop()
    }

    /// The next value; waits for it for `timeout`, or as long as it takes.
    pub fn recv_timeout(&self, timeout: Option<Duration>) -> Result<T, RecvError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(value) = self.try_recv() {
                return Ok(value);
            }
            // Ordered before the last look into the queue, so nothing that was sent before the drop is missed.
            if self.shared.senders.load(Ordering::Acquire) == 0 {
                return self.try_recv().ok_or(RecvError::Closed);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(RecvError::Timeout);
            }
            if self.fall_asleep() {
                // It cannot fail for a descriptor that we own; if it did, the loop would look again.
                let signalled = sys::wait_readable(self.as_fd(), left).unwrap_or(false);
                self.wake_up(signalled);
            }
        }
    }

    /// Announces that the receiver is going to wait for the eventfd. False when it must not, as there is a value or
    /// no sender.
    pub(crate) fn fall_asleep(&self) -> bool {
        let shared = &self.shared;
        shared.doorbell.fall_asleep(|| shared.queue.is_empty() && shared.senders.load(Ordering::Relaxed) > 0)
    }

    /// Ends what `fall_asleep` began; the caller looks for values next. `signalled`: the eventfd was seen readable.
    pub(crate) fn wake_up(&self, signalled: bool) {
        self.shared.doorbell.wake_up();
        // A sender that has taken the flag but not yet written makes the next sleep a short one, no more.
        if signalled {
            self.shared.event.clear();
        }
    }

    /// Whether no value is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.queue.is_empty()
    }

    /// Values given back so far because the mailbox was full, by all senders.
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

/// Readable when a sender has woken the receiver.
impl<T> AsFd for Receiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
        while self.try_recv().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn values_arrive_in_order_and_a_full_mailbox_gives_them_back() {
        let (tx, rx) = mailbox(2).expect("mailbox");
        assert_eq!([tx.send(1), tx.send(2), tx.send(3)], [Ok(()), Ok(()), Err(3)]);
        assert_eq!((rx.try_recv(), rx.try_recv(), rx.try_recv()), (Some(1), Some(2), None));
        assert_eq!(rx.refused(), 1);
    }

    #[test]
    fn a_receiver_waits_no_longer_than_asked() {
        let (tx, rx) = mailbox::<u8>(2).expect("mailbox");
        let start = Instant::now();
        assert_eq!(rx.recv_timeout(Some(Duration::from_millis(5))), Err(RecvError::Timeout));
        assert!(start.elapsed() >= Duration::from_millis(5));
        drop(tx);
    }

    #[test]
    fn the_end_of_the_last_sender_is_heard_after_its_last_value() {
        let (tx, rx) = mailbox(2).expect("mailbox");
        let second = tx.clone();
        drop(tx);
        let sender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            second.send(1).expect("room");
        });
        assert_eq!(rx.recv_timeout(None), Ok(1));
        assert_eq!(rx.recv_timeout(None), Err(RecvError::Closed));
        sender.join().expect("no panic");
    }

    #[test]
    fn without_a_receiver_values_come_back() {
        let (tx, rx) = mailbox(2).expect("mailbox");
        drop(rx);
        assert_eq!(tx.send(1), Err(1));
    }

    #[test]
    fn no_wake_up_is_lost_however_sends_and_sleeps_meet() {
        const SENDERS: u64 = 3;
        const VALUES: u64 = 20_000;
        let (tx, rx) = mailbox::<u64>(8).expect("mailbox");
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let tx = tx.clone();
                thread::spawn(move || {
                    for value in 0..VALUES {
                        while tx.send(sender << 32 | value).is_err() {
                            thread::yield_now();
                        }
                        // Now and then the receiver gets the time to fall asleep.
                        if value % 64 == sender {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        drop(tx);

        let mut next = [0; SENDERS as usize];
        // Were a wake-up lost, this would end with Timeout, for nothing else wakes the receiver.
        let end = loop {
            match rx.recv_timeout(Some(Duration::from_secs(20))) {
                Ok(value) => {
                    let sender = (value >> 32) as usize;
                    assert_eq!(value & 0xffff_ffff, next[sender], "values of one sender stay in order");
                    next[sender] += 1;
                }
                Err(end) => break end,
            }
        };
        assert_eq!((end, next), (RecvError::Closed, [VALUES; SENDERS as usize]));
        for sender in senders {
            sender.join().expect("no panic");
        }
    }
}
