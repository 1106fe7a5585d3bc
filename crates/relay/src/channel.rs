//! The channels of a client (RFC 8656 §12): numbers that stand for peers' transport addresses, for 600 seconds.

use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

/// How long a channel is bound (RFC 8656 §12).
pub const CHANNEL_LIFETIME: Duration = Duration::from_secs(600);

/// The numbers that channels may have. RFC 8656 §12 ends at 0x4fff; clients of RFC 5766 §11 take others as well.
pub const CHANNEL_NUMBERS: RangeInclusive<u16> = 0x4000..=0x7fff;

/// The channels of one allocation. What has run out counts no more, and is forgotten when there is no room, and when the
/// allocation is refreshed.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    peers: HashMap<u16, (SocketAddr, Instant)>,
    numbers: HashMap<SocketAddr, (u16, Instant)>,
    /// The one that was asked for last. Most clients have one or two, and the tables lie where no cache has them when there are
    /// many clients.
    last: Cell<Option<Channel>>,
}

/// A number, the peer that it stands for, and until when.
#[derive(Clone, Copy, Debug)]
struct Channel {
    number: u16,
    peer: SocketAddr,
    until: Instant,
}

/// Why a channel is not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BindError {
    /// The number stands for another peer, or the peer has another number.
    Taken,
    /// There are enough.
    Full,
}

impl Channels {
    /// Binds a number to a peer, or refreshes that (RFC 8656 §12.2).
    pub(crate) fn bind(&mut self, now: Instant, number: u16, peer: SocketAddr, max: usize) -> Result<(), BindError> {
        let (bound_peer, bound_number) = (self.peer(now, number), self.number(now, &peer));
        if bound_peer.is_some_and(|bound| bound != peer) || bound_number.is_some_and(|bound| bound != number) {
            return Err(BindError::Taken);
        }
        if bound_peer.is_none() {
            // What they stood for before has run out.
            self.forget(number, &peer);
            if self.peers.len() >= max {
                self.keep(|_, until| now < until);
            }
            if self.peers.len() >= max {
                return Err(BindError::Full);
            }
        }
        let until = now + CHANNEL_LIFETIME;
        self.last.set(None);
        self.peers.insert(number, (peer, until));
        self.numbers.insert(peer, (number, until));
        debug_assert_eq!(self.peers.len(), self.numbers.len(), "each has the other");
        Ok(())
    }

    /// The peer that a number stands for.
    #[inline]
    pub(crate) fn peer(&self, now: Instant, number: u16) -> Option<SocketAddr> {
        self.find(
            now,
            |last| last.number == number,
            || {
                let (peer, until) = *self.peers.get(&number)?;
                Some(Channel { number, peer, until })
            },
        )
        .map(|channel| channel.peer)
    }

    /// The number that stands for a peer.
    #[inline]
    pub(crate) fn number(&self, now: Instant, peer: &SocketAddr) -> Option<u16> {
        self.find(
            now,
            |last| last.peer == *peer,
            || {
                let (number, until) = *self.numbers.get(peer)?;
                Some(Channel { number, peer: *peer, until })
            },
        )
        .map(|channel| channel.number)
    }

    /// The channel that was asked for last, or the one in the tables.
    #[inline]
    fn find(
        &self,
        now: Instant,
        is_it: impl FnOnce(&Channel) -> bool,
        in_tables: impl FnOnce() -> Option<Channel>,
    ) -> Option<Channel> {
        let last = self.last.get().filter(is_it);
        let found = last.or_else(|| {
            let found = in_tables();
            self.last.set(found.or(self.last.get()));
            found
        });
        found.filter(|channel| now < channel.until)
    }

    fn forget(&mut self, number: u16, peer: &SocketAddr) {
        self.last.set(None);
        if let Some((other_peer, _)) = self.peers.remove(&number) {
            self.numbers.remove(&other_peer);
        }
        if let Some((other_number, _)) = self.numbers.remove(peer) {
            self.peers.remove(&other_number);
        }
    }

    /// Forgets those that are not to be any more.
    pub(crate) fn keep(&mut self, mut may_stay: impl FnMut(SocketAddr, Instant) -> bool) {
        let Channels { peers, numbers, last } = self;
        last.set(None);
        peers.retain(|_, (peer, until)| {
            let stays = may_stay(*peer, *until);
            if !stays {
                numbers.remove(peer);
            }
            stays
        });
    }

    /// Forgets what has run out, and gives back the memory that it had.
    pub(crate) fn forget_lapsed(&mut self, now: Instant) {
        self.keep(|_, until| now < until);
        self.peers.shrink_to_fit();
        self.numbers.shrink_to_fit();
    }

    /// How many are bound.
    pub(crate) fn count(&self, now: Instant) -> usize {
        self.peers.values().filter(|(_, until)| now < *until).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn a_number_stands_for_one_peer_and_a_peer_has_one_number() {
        let (now, mut channels) = (Instant::now(), Channels::default());
        assert_eq!(channels.bind(now, 0x4000, peer(1), 9), Ok(()));
        assert_eq!(channels.bind(now, 0x4000, peer(2), 9), Err(BindError::Taken));
        assert_eq!(channels.bind(now, 0x4001, peer(1), 9), Err(BindError::Taken));
        assert_eq!(channels.bind(now, 0x4000, peer(1), 9), Ok(()));
        assert_eq!((channels.peer(now, 0x4000), channels.number(now, &peer(1))), (Some(peer(1)), Some(0x4000)));
        assert_eq!((channels.peer(now, 0x4001), channels.number(now, &peer(2))), (None, None));
    }

    #[test]
    fn the_one_that_was_asked_for_last_is_renewed_and_forgotten_like_others() {
        let (start, mut channels) = (Instant::now(), Channels::default());
        let [before, after] = [599, 601].map(|seconds| start + Duration::from_secs(seconds));
        channels.bind(start, 0x4000, peer(1), 9).expect("it is free");
        channels.bind(start, 0x4001, peer(2), 9).expect("it is free");
        let asked = |channels: &Channels, now| (channels.peer(now, 0x4000), channels.number(now, &peer(1)));
        assert_eq!(asked(&channels, before), (Some(peer(1)), Some(0x4000)));
        assert_eq!(asked(&channels, after), (None, None), "it has run out");
        channels.bind(before, 0x4000, peer(1), 9).expect("it is the same");
        assert_eq!(asked(&channels, after), (Some(peer(1)), Some(0x4000)));
        channels.keep(|kept, _| kept != peer(1));
        assert_eq!(asked(&channels, before), (None, None), "it is taken out");
        // What is not there leaves the last one as it was.
        assert_eq!((channels.peer(before, 0x4001), channels.peer(before, 0x4002)), (Some(peer(2)), None));
        assert_eq!(channels.last.get().map(|last| last.number), Some(0x4001));
    }

    #[test]
    fn after_600_seconds_number_and_peer_are_free_for_others() {
        let (start, mut channels) = (Instant::now(), Channels::default());
        let [before, after] = [599, 600].map(|seconds| start + Duration::from_secs(seconds));
        channels.bind(start, 0x4000, peer(1), 2).expect("it is free");
        channels.bind(start, 0x4001, peer(2), 2).expect("it is free");
        assert_eq!(channels.bind(before, 0x4002, peer(3), 2), Err(BindError::Full));
        assert_eq!((channels.peer(before, 0x4000), channels.peer(after, 0x4000)), (Some(peer(1)), None));
        assert_eq!(channels.count(before), 2);
        assert_eq!(channels.bind(after, 0x4000, peer(2), 2), Ok(()));
        assert_eq!((channels.count(after), channels.number(after, &peer(1))), (1, None));
        assert_eq!((channels.peer(after, 0x4001), channels.number(after, &peer(2))), (None, Some(0x4000)));
    }
    #[test]
    fn what_has_run_out_keeps_no_memory() {
        let (start, mut channels) = (Instant::now(), Channels::default());
        for port in 0..200 {
            channels.bind(start, 0x4000 + port, peer(port), 200).expect("it is free");
        }
        let later = start + Duration::from_secs(9);
        channels.bind(later, 0x4007, peer(7), 200).expect("it is the same");
        channels.forget_lapsed(start + Duration::from_secs(599));
        assert_eq!(channels.count(start), 200);
        channels.forget_lapsed(start + CHANNEL_LIFETIME);
        assert_eq!((channels.count(later), channels.peer(later, 0x4007)), (1, Some(peer(7))));
        assert!(channels.peers.capacity() < 8 && channels.numbers.capacity() < 8);
    }
}
