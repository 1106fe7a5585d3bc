//! Which of the peer's addresses we send to, as the controlled and lite side of ICE.
//!
//! In: each authenticated connectivity check: where it came from, its priority, and whether it nominates.
//! Out: the address to send to, whenever it changes.
//! Source: RFC 8445 §7.3.1.5 (nomination by USE-CANDIDATE), §8.1.1 and §11 (the pair of highest priority).
//!
//! A peer that moves to a worse path keeps saying so while it falls silent on the better one, whose pair would hold for
//! another half minute by priority alone. So a nomination also wins when the current path has been quiet for a while.

use std::time::{Duration, Instant};

use crate::peer::Remote;

/// After this long without a nominating check, a path no longer stands in the way of one of lower priority. Chromium
/// checks its selected pair every 2.5 s, Firefox every 5 s.
const QUIET: Duration = Duration::from_secs(6);

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
    last: Instant,
}

impl Nomination {
    pub fn remote(&self) -> Option<Remote> {
        self.current.map(|current| current.remote)
    }

    /// The peer restarted ICE: its old path goes on being used until it nominates again.
    pub fn restart(&mut self) {
        self.is_stale = true;
    }

    /// Takes a nominating check, and returns true when the address to send to has changed by it.
    pub fn nominate(&mut self, now: Instant, remote: Remote, priority: u32) -> bool {
        let candidate = Nominated { remote, priority, last: now };
        let Some(current) = &mut self.current else {
            self.current = Some(candidate);
            self.is_stale = false;
            return true;
        };
        let is_same = current.remote == remote;
        let wins = priority > current.priority || now.saturating_duration_since(current.last) > QUIET || self.is_stale;
        if is_same || wins {
            *current = candidate;
            self.is_stale = false;
        }
        wins && !is_same
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
    fn a_better_path_wins_at_once_and_a_worse_one_only_when_the_better_is_quiet() {
        let mut nomination = Nomination::default();
        let start = Instant::now();
        assert!(nomination.nominate(start, SLOW, 1));
        assert!(nomination.nominate(start, FAST, 2));
        assert!(!nomination.nominate(start + QUIET, SLOW, 1));
        assert_eq!(nomination.remote(), Some(FAST));
        assert!(nomination.nominate(start + QUIET + Duration::from_millis(1), SLOW, 1));
        assert_eq!(nomination.remote(), Some(SLOW));
    }

    #[test]
    fn repeated_checks_on_a_path_keep_it() {
        let mut nomination = Nomination::default();
        let start = Instant::now();
        nomination.nominate(start, FAST, 2);
        for second in 1..20 {
            let now = start + Duration::from_secs(second);
            assert!(!nomination.nominate(now, FAST, 2));
            assert!(!nomination.nominate(now, SLOW, 1));
        }
    }

    #[test]
    fn after_a_restart_the_next_nomination_wins() {
        let mut nomination = Nomination::default();
        let start = Instant::now();
        nomination.nominate(start, FAST, 2);
        nomination.restart();
        assert_eq!(nomination.remote(), Some(FAST));
        assert!(nomination.nominate(start, SLOW, 1));
    }
}
