//! From a worker to another thread: events in their order, without a wait.

use std::collections::VecDeque;

use engine::Mailbox;

/// A mailbox, and what found it full. That waits for the next `flush`; it is bounded by what products have to say: one end
/// per session, as many chunks as sessions read ahead, one answer per question that control has asked.
#[derive(Debug)]
pub(super) struct Outgoing<T> {
    mailbox: Mailbox<T>,
    waiting: VecDeque<T>,
}

impl<T> Outgoing<T> {
    pub(super) fn new(mailbox: Mailbox<T>) -> Self {
        Outgoing { mailbox, waiting: VecDeque::new() }
    }

    /// Takes what must not be lost; `flush` sends it.
    pub(super) fn send(&mut self, value: T) {
        self.waiting.push_back(value);
    }

    /// Sends at once, or drops what finds no room and returns false. A quarter of the mailbox is not for it: strangers may
    /// offer as much as they like, and what must not be lost finds room all the same.
    pub(super) fn offer(&mut self, value: T) -> bool {
        self.flush();
        let has_room = self.waiting.is_empty() && self.mailbox.room() > self.mailbox.size() / 4;
        has_room && self.mailbox.send(value).is_ok()
    }

    /// Values that the mailbox holds at most.
    pub(super) fn size(&self) -> usize {
        self.mailbox.size()
    }

    /// Sends what has room.
    pub(super) fn flush(&mut self) {
        while let Some(value) = self.waiting.pop_front() {
            if let Err(value) = self.mailbox.send(value) {
                return self.waiting.push_front(value);
            }
        }
    }

    /// Whether something waits for room.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use engine::mailbox;

    use super::*;

    #[test]
    fn what_must_not_be_lost_waits_and_keeps_its_order() {
        let (mailbox, receiver) = mailbox(2).expect("a mailbox");
        let mut outgoing = Outgoing::new(mailbox);
        for value in 0..4 {
            outgoing.send(value);
        }
        outgoing.flush();
        assert!(!outgoing.offer(9), "others wait");
        assert_eq!([receiver.try_recv(), receiver.try_recv(), receiver.try_recv()], [Some(0), Some(1), None]);

        outgoing.flush();
        assert_eq!([receiver.try_recv(), receiver.try_recv()], [Some(2), Some(3)]);
        assert!(outgoing.offer(10));
        assert_eq!([receiver.try_recv(), receiver.try_recv()], [Some(10), None]);
    }

    #[test]
    fn what_is_offered_leaves_a_quarter_to_what_must_not_be_lost() {
        let (mailbox, receiver) = mailbox(8).expect("a mailbox");
        let mut outgoing = Outgoing::new(mailbox.clone());
        assert_eq!((0..100).filter(|value| outgoing.offer(*value)).count(), 6);
        outgoing.send(100);
        outgoing.flush();
        assert!(!outgoing.is_behind() && mailbox.send(101).is_ok(), "others than this worker have room as well");
        let received: Vec<_> = std::iter::from_fn(|| receiver.try_recv()).collect();
        assert_eq!(received, [0, 1, 2, 3, 4, 5, 100, 101]);
        assert!(outgoing.offer(200));
    }
}
