//! Shares of the negotiator's mailbox: how much of it one kind of sender may fill.
//!
//! In: who has a datagram for the negotiator. Out: a ticket, as long as fewer than its share are in the mailbox.
//! Cost: two atomic additions per datagram. Who waits in the mailbox has a ticket, and it is counted until it is dropped.

use std::sync::Arc;

use rooms::rooms::Sender;

/// Goes with a datagram, for as long as that waits.
#[derive(Clone, Debug, Default)]
pub struct Ticket(Arc<()>);

/// How many tickets of each kind there are, less the ones in here.
#[derive(Debug, Default)]
pub(super) struct Shares {
    strangers: Ticket,
    sessions: Ticket,
}

impl Shares {
    /// A ticket for a mailbox of that size. Three eighths are for strangers and as many for sessions, so that a flood of the
    /// one leaves room for the others, and a quarter for HTTP and for what must not be lost. One session's flood has half of
    /// the sessions' share at most. Less would let who forges its address keep its own datagrams out for nothing.
    pub(super) fn take(&self, sender: Sender, size: usize) -> Option<Ticket> {
        let (share, count_max) = match sender {
            Sender::Stranger => (&self.strangers, size * 3 / 8),
            Sender::Session => (&self.sessions, size * 3 / 8),
            Sender::Flood => (&self.sessions, size * 3 / 16),
        };
        (Arc::strong_count(&share.0) <= count_max).then(|| share.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_share_and_again_what_was_dropped() {
        let shares = Shares::default();
        let mut tickets: Vec<Ticket> = (0..100).filter_map(|_| shares.take(Sender::Stranger, 16)).collect();
        assert_eq!(tickets.len(), 6);
        assert_eq!((0..100).filter_map(|_| shares.take(Sender::Session, 16)).collect::<Vec<_>>().len(), 6);
        tickets.pop();
        assert!(shares.take(Sender::Stranger, 16).is_some());
    }
}
