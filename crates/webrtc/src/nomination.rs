//! Which of the peer's addresses we send to, as the controlled and lite side of ICE.
//!
//! In: each authenticated connectivity check: where it came from, its priority, and whether it nominates.
//! Out: the address to send to, whenever it changes.
//! Source: RFC 8445 §7.3.1.5 (nomination by USE-CANDIDATE), §8.1.1 and §11 (the pair of highest priority).
//!
//! A peer that nominates whatever works (aggressive nomination, RFC 5245 §8.1.1.2) does so on several paths until its checks
//! have come to rest. From then on a peer nominates the path that it uses, so the last one wins: who moves to another
//! network, perhaps under a lower priority, is followed at once. pion's and mediasoup's lite agents take the last one, too.

use std::time::{Duration, Instant};

use crate::peer::Remote;

/// So long after the first nomination a peer's checks have come to rest: browsers' take two or three seconds.
const SETTLED: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Nomination {
    current: Option<Nominated>,
    /// After a restart the next nomination wins, whatever its priority.
    is_stale: bool,
}

#[derive(Clone, Copy, Debug)]
struct Nominated {
    remote: Remote,
    priority: u32,
    /// When the peer first nominated, since the start or its last restart.
    first: Instant,
}

impl Nomination {
    pub fn remote(&self) -> Option<Remote> {
        self.current.map(|current| current.remote)
    }

    /// Whether the peer has nominated since it restarted last.
    pub fn is_settled(&self) -> bool {
        self.current.is_some() && !self.is_stale
    }

    /// The peer restarted ICE: its old path goes on being used until it nominates again.
    pub fn restart(&mut self) {
        self.is_stale = true;
    }

    /// The peer answers there and not where it wanted to be sent to.
    pub fn follow(&mut self, now: Instant, remote: Remote) {
        let current = self.current.unwrap_or(Nominated { remote, priority: 0, first: now });
        self.current = Some(Nominated { remote, ..current });
    }

    /// Takes a nominating check, and returns true when the address to send to has changed by it.
    pub fn nominate(&mut self, now: Instant, remote: Remote, priority: u32) -> bool {
        let Some(current) = self.current.filter(|_| !self.is_stale) else {
            let before = self.current.replace(Nominated { remote, priority, first: now });
            self.is_stale = false;
            return before.is_none_or(|before| before.remote != remote);
        };
        if current.remote == remote {
            return false;
        }
        let wins = priority > current.priority || now.saturating_duration_since(current.first) >= SETTLED;
        if wins {
            self.current = Some(Nominated { remote, priority, ..current });
        }
        wins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Remote = Remote::udp(1);
    const SLOW: Remote = Remote::udp(2);

    impl Remote {
        const fn udp(port: u16) -> Remote {
            let ip = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
            Remote { addr: std::net::SocketAddr::new(ip, port), tcp: false }
        }
    }

    #[test]
    fn until_the_peer_has_settled_the_better_path_wins() {
        let mut nomination = Nomination::default();
        let start = Instant::now();
        assert!(nomination.nominate(start, SLOW, 1));
        assert!(nomination.nominate(start, FAST, 2));
        for tenth in 1..50 {
            let now = start + SETTLED * tenth / 50;
            assert!(!nomination.nominate(now, SLOW, 1));
            assert!(!nomination.nominate(now, FAST, 2));
        }
        assert_eq!(nomination.remote(), Some(FAST));
    }

    #[test]
    fn who_has_settled_and_moves_is_followed_at_once() {
        let mut nomination = Nomination::default();
        let start = Instant::now();
        nomination.nominate(start, FAST, 2);
        assert!(nomination.nominate(start + SETTLED, SLOW, 1));
        assert_eq!(nomination.remote(), Some(SLOW));
        assert!(nomination.nominate(start + SETTLED, FAST, 2));
    }

    #[test]
    fn after_a_restart_the_next_nomination_wins() {
        let mut nomination = Nomination::default();
        let start = Instant::now();
        nomination.nominate(start, FAST, 2);
        nomination.restart();
        assert_eq!(nomination.remote(), Some(FAST));
        assert!(nomination.nominate(start + SETTLED, SLOW, 1));
        assert!(!nomination.nominate(start + SETTLED, Remote::udp(3), 1), "it settles anew");
    }
}
