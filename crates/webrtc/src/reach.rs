//! Which of the peer's addresses really are its own: those at which it has received something that nobody could guess.
//!
//! In: where authenticated checks come from, the responses to our own, and time.
//! Out: binding requests to send, and the address that a response has proved.
//! Cost: some 50 bytes for each of at most `REMOTES_MAX` addresses.
//! Source: RFC 8445 §7.2.2 (what a request says) and §7.2.5.2 (whose response counts), RFC 8489 §6.2.1 (when it is repeated).
//!
//! A lite agent need not ask anything. But a check only says that its sender knows the credentials, and each viewer knows its
//! own: with a forged source address it could have us send a stream to anybody. So an address counts for nothing until the
//! peer has answered there. A request goes out with the answer to the first check, so its response is here before the
//! client's ClientHello. A TCP connection has proved its address by its own handshake.

use std::time::{Duration, Instant};

use crate::peer::{Refused, Remote};

/// The most addresses from which one peer is heard between ICE restarts; checks from further ones are refused. A browser
/// with several interfaces, TCP and IPv6 uses about ten.
const REMOTES_MAX: usize = 32;

/// When a request without a response is repeated for the first time; the interval doubles (RFC 8489 §6.2.1).
const RTO: Duration = Duration::from_millis(500);

/// How often a request is sent for its own sake; after that, each further check of the peer has it sent again.
const REQUESTS_MAX: u32 = 4;

/// A check has a request sent again no earlier than this after the last one.
const REPEAT_MIN: Duration = Duration::from_millis(50);

/// Requests of one session that may go out in one go, and when there is one more: of some hundred bytes each. So a peer who
/// forges checks from very many addresses has us send them next to nothing.
const REQUESTS_BURST: u32 = 32;
const REQUEST_INTERVAL: Duration = Duration::from_millis(250);

/// ICE restarts of one session at once, and when there is one more: each brings addresses that str0m never forgets.
const RESTARTS_BURST: u32 = 8;
pub(crate) const RESTART_INTERVAL: Duration = Duration::from_secs(15);

/// Names a request (RFC 8489 §5).
pub(crate) type Transaction = [u8; 12];

/// All addresses of one peer.
#[derive(Debug)]
pub(crate) struct Reach {
    addresses: Vec<Address>,
    requests: Budget,
    restarts: Budget,
}

/// How often something may be done: so many times at once, and once more in each interval.
#[derive(Debug)]
struct Budget {
    left: u32,
    max: u32,
    interval: Duration,
    refilled_at: Instant,
}

#[derive(Debug)]
struct Address {
    remote: Remote,
    /// `None` once it is proved.
    asked: Option<Asked>,
    /// The priority with which the peer has nominated it meanwhile.
    nominated: Option<u32>,
}

#[derive(Debug)]
struct Asked {
    transaction: Transaction,
    sent: u32,
    last: Option<Instant>,
    next: Option<Instant>,
}

impl Reach {
    pub fn new(now: Instant) -> Self {
        Reach {
            addresses: Vec::new(),
            requests: Budget::new(now, REQUESTS_BURST, REQUEST_INTERVAL),
            restarts: Budget::new(now, RESTARTS_BURST, RESTART_INTERVAL),
        }
    }

    pub fn knows(&self, remote: Remote) -> bool {
        self.addresses.iter().any(|address| address.remote == remote)
    }

    pub fn is_proved(&self, remote: Remote) -> bool {
        self.addresses.iter().any(|address| address.remote == remote && address.asked.is_none())
    }

    /// Takes an address that needs no proof.
    pub fn trust(&mut self, remote: Remote) -> Result<(), Refused> {
        if self.knows(remote) {
            return Ok(());
        }
        self.add(remote, None)
    }

    /// Takes an authenticated check. `transaction` is for the request, should the address be new.
    pub fn handle_check(&mut self, now: Instant, remote: Remote, transaction: Transaction) -> Result<(), Refused> {
        match self.addresses.iter_mut().find(|address| address.remote == remote) {
            Some(Address { asked: Some(asked), .. }) => {
                let at = asked.last.map_or(now, |last| now.max(last + REPEAT_MIN));
                asked.next = Some(asked.next.map_or(at, |next| next.min(at)));
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.add(remote, Some(Asked { transaction, sent: 0, last: None, next: Some(now) })),
        }
    }

    fn add(&mut self, remote: Remote, asked: Option<Asked>) -> Result<(), Refused> {
        if self.addresses.len() >= REMOTES_MAX {
            return Err(Refused::TooManyAddresses);
        }
        self.addresses.push(Address { remote, asked, nominated: None });
        Ok(())
    }

    /// Keeps a nomination until the address is proved.
    pub fn keep_nomination(&mut self, remote: Remote, priority: u32) {
        if let Some(address) = self.addresses.iter_mut().find(|address| address.remote == remote) {
            address.nominated = Some(priority);
        }
    }

    /// Takes an authenticated success response. Where it proves the address that it comes from, returns the priority of a
    /// nomination that has waited for this.
    pub fn handle_response(&mut self, remote: Remote, transaction: &[u8]) -> Result<Option<u32>, Refused> {
        let address = self.addresses.iter_mut().find(|address| address.remote == remote);
        let address = address.ok_or(Refused::NotAuthentic)?;
        match &address.asked {
            Some(asked) if asked.transaction == transaction => {
                address.asked = None;
                Ok(address.nominated.take())
            }
            Some(_) => Err(Refused::NotAuthentic),
            // To a request that was repeated.
            None => Ok(None),
        }
    }

    /// The next request that is due.
    pub fn poll_request(&mut self, now: Instant) -> Option<(Remote, Transaction)> {
        let is_due = |asked: &Asked| asked.next.is_some_and(|next| next <= now);
        let mut asking =
            self.addresses.iter_mut().filter_map(|address| Some((address.remote, address.asked.as_mut()?)));
        let (remote, asked) = asking.find(|(_, asked)| is_due(asked))?;
        if !self.requests.take(now) {
            // Whoever is due waits for more.
            let later = now + REQUEST_INTERVAL;
            let due = self.addresses.iter_mut().filter_map(|address| address.asked.as_mut());
            due.filter(|asked| is_due(asked)).for_each(|asked| asked.next = Some(later));
            return None;
        }
        asked.sent += 1;
        asked.last = Some(now);
        asked.next = (asked.sent < REQUESTS_MAX).then(|| now + RTO * (1 << (asked.sent - 1)));
        Some((remote, asked.transaction))
    }

    /// When `poll_request` next has something.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.addresses.iter().filter_map(|address| address.asked.as_ref()?.next).min()
    }

    /// Whether ICE may be restarted once more.
    pub fn may_restart(&mut self, now: Instant) -> bool {
        self.restarts.take(now)
    }

    /// Forgets all but the address in use, which needs no new proof: after a restart, all others are asked again.
    pub fn restart(&mut self, current: Option<Remote>) {
        self.addresses.retain(|address| Some(address.remote) == current);
    }
}

impl Budget {
    fn new(now: Instant, max: u32, interval: Duration) -> Self {
        Budget { left: max, max, interval, refilled_at: now }
    }

    /// Whether it may be done now, and then once less.
    fn take(&mut self, now: Instant) -> bool {
        let earned = now.saturating_duration_since(self.refilled_at).as_millis() / self.interval.as_millis();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        self.refilled_at += self.interval * earned;
        self.left = self.left.saturating_add(earned).min(self.max);
        let has_some = self.left > 0;
        self.left -= u32::from(has_some);
        has_some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(port: u16) -> Remote {
        Remote { addr: ([192, 0, 2, 7], port).into(), tcp: false }
    }

    fn requests(reach: &mut Reach, now: Instant) -> usize {
        std::iter::from_fn(|| reach.poll_request(now)).count()
    }

    #[test]
    fn a_request_is_repeated_four_times_and_then_only_when_the_peer_checks_again() {
        let start = Instant::now();
        let mut reach = Reach::new(start);
        reach.handle_check(start, remote(1), [1; 12]).unwrap();
        let mut sent = Vec::new();
        for ms in 0..60_000 {
            let now = start + Duration::from_millis(ms);
            sent.extend(std::iter::repeat_n(ms, requests(&mut reach, now)));
        }
        assert_eq!(sent, [0, 500, 1_500, 3_500]);
        assert_eq!(reach.poll_timeout(), None);
        let later = start + Duration::from_secs(60);
        let mut repeated = 0;
        for _ in 0..3 {
            reach.handle_check(later, remote(1), [2; 12]).unwrap();
            repeated += requests(&mut reach, later);
        }
        assert_eq!(repeated, 1);
        assert_eq!(requests(&mut reach, later + REPEAT_MIN), 1);
    }

    #[test]
    fn only_the_response_to_the_own_request_from_the_own_address_proves_it() {
        let now = Instant::now();
        let mut reach = Reach::new(now);
        reach.handle_check(now, remote(1), [1; 12]).unwrap();
        reach.handle_check(now, remote(2), [2; 12]).unwrap();
        reach.keep_nomination(remote(2), 7);
        for (from, transaction) in [(1, 2), (2, 1), (3, 1)] {
            assert_eq!(reach.handle_response(remote(from), &[transaction; 12]), Err(Refused::NotAuthentic));
        }
        assert_eq!(reach.handle_response(remote(2), &[2; 12]), Ok(Some(7)));
        assert!(reach.is_proved(remote(2)) && !reach.is_proved(remote(1)));
        assert_eq!(requests(&mut reach, now), 1, "the other one");
    }

    #[test]
    fn checks_from_very_many_addresses_have_few_requests_sent() {
        let start = Instant::now();
        let mut reach = Reach::new(start);
        let mut sent = 0;
        for second in 0..60 {
            let now = start + Duration::from_secs(second);
            // As with an ICE restart each second.
            reach.restart(None);
            for port in 0..1_000 {
                let _ = reach.handle_check(now, remote(port), [0; 12]);
            }
            sent += requests(&mut reach, now);
        }
        assert!(sent <= REQUESTS_BURST as usize + 60 * 4, "{sent}");
    }
}
