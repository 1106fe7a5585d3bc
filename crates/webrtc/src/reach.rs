//! Which of the peer's addresses really are its own: those at which it has lately received what nobody could guess.
//!
//! In: where authenticated checks come from, the responses to our own, and time.
//! Out: binding requests to send, the address that a response has proved, and how the address in use stands.
//! Cost: some 100 bytes for each of at most `REMOTES_MAX` addresses; of a session at rest, a request in `RENEW_AFTER`.
//! Source: RFC 8445 §7.2.2 (what a request says) and §7.2.5.2 (whose response counts), RFC 8489 §6.2.1 (when it is repeated),
//! RFC 7675 §5.1 (how long a response is good for).
//!
//! A lite agent need not ask anything. But a check only says that its sender knows the credentials, and each viewer knows its
//! own: with a forged source address it could have us send a stream to anybody, or to an address that it has left to somebody
//! else. So an address counts for nothing until the peer has answered there, and for nothing any more when the last answer is
//! too old: the address in use is asked again and again, others when the peer checks from there. The first request goes out
//! with the answer to the first check, so its response is here before the client's ClientHello. A TCP connection has proved
//! its address by its own handshake, and does so again by each check that comes over it.

use std::time::{Duration, Instant};

use wire::{Budget, Rate};

use crate::peer::{Refused, Remote};

/// Addresses of one peer that are known at a time. A browser with several interfaces, TCP and IPv6 uses about ten.
const REMOTES_MAX: usize = 32;

/// An address is proved for so long (RFC 7675 §5.1).
const PROOF_LIFE: Duration = Duration::from_secs(30);

/// When the address in use is asked again, which leaves the time for `RENEWALS_MAX` requests. RFC 7675 §5.1 says 4 to 6 s, for
/// those who send one request each time.
const RENEW_AFTER: Duration = Duration::from_secs(10);

/// So long after a request the address in use is in doubt: there are round trips of a second.
const DOUBT_AFTER: Duration = Duration::from_secs(3);

/// When a request without a response is repeated for the first time; the interval doubles (RFC 8489 §6.2.1).
const RTO: Duration = Duration::from_millis(500);

/// How often a request is sent for its own sake, to prove an address and to prove it anew; after that, each further check of
/// the peer has it sent again.
const REQUESTS_MAX: u32 = 4;
const RENEWALS_MAX: u32 = 12;

/// A renewal is repeated no less often than this until the address lapses, as few of the peer's checks come here meanwhile.
const RENEWAL_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// A check has a request sent again no earlier than this after the last one.
const REPEAT_MIN: Duration = Duration::from_millis(50);

/// Requests of one session that may go out: of some hundred bytes each. So a peer who forges checks from very many addresses
/// has us send them next to nothing.
const REQUESTS: Rate = Rate { burst: 32, interval: Duration::from_millis(250) };

/// Names a request (RFC 8489 §5).
pub(crate) type Transaction = [u8; 12];

/// All addresses of one peer.
#[derive(Debug)]
pub(crate) struct Reach {
    addresses: Vec<Address>,
    requests: Budget,
}

#[derive(Debug)]
struct Address {
    remote: Remote,
    /// When the request was first sent that it answered last.
    proved: Option<Instant>,
    /// The request that it is yet to answer.
    asked: Option<Asked>,
    /// When a check or an answer last came from there.
    heard: Instant,
    /// The priority with which the peer has nominated it while it was not proved.
    nominated: Option<u32>,
}

#[derive(Debug)]
struct Asked {
    transaction: Transaction,
    sent: u32,
    first: Option<Instant>,
    last: Option<Instant>,
    next: Option<Instant>,
}

/// What an authenticated response to a request of ours has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// It has proved its address. With the priority of a nomination that has waited for this.
    Proof(Option<u32>),
    /// It has proved it anew.
    Renewal,
    /// Nothing: the request was answered before.
    Late,
}

/// How the address in use stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is proved.
    Good,
    /// It is, but not for long: it is to be asked.
    Old,
    /// It was asked and does not answer.
    Doubtful,
    /// It is proved no more.
    Lapsed,
}

impl Reach {
    pub fn new(now: Instant) -> Self {
        Reach { addresses: Vec::new(), requests: Budget::new(now) }
    }

    pub fn knows(&self, remote: Remote) -> bool {
        self.address(remote).is_some()
    }

    pub fn is_proved(&self, now: Instant, remote: Remote) -> bool {
        self.address(remote).is_some_and(|address| address.is_proved(now))
    }

    fn address(&self, remote: Remote) -> Option<&Address> {
        self.addresses.iter().find(|address| address.remote == remote)
    }

    fn address_mut(&mut self, remote: Remote) -> Option<&mut Address> {
        self.addresses.iter_mut().find(|address| address.remote == remote)
    }

    /// Takes an address that what came from there has proved. `in_use` is the one that is kept whatever comes.
    pub fn trust(&mut self, now: Instant, remote: Remote, in_use: Option<Remote>) {
        let address = self.enter(now, remote, in_use);
        (address.proved, address.heard) = (Some(now), now);
    }

    /// Takes an authenticated check. `transaction` is for the request, should the address not be proved.
    pub fn handle_check(&mut self, now: Instant, remote: Remote, in_use: Option<Remote>, transaction: Transaction) {
        let address = self.enter(now, remote, in_use);
        address.heard = now;
        let is_proved = address.is_proved(now);
        match &mut address.asked {
            Some(asked) => {
                let at = asked.last.map_or(now, |last| now.max(last + REPEAT_MIN));
                asked.next = Some(asked.next.map_or(at, |next| next.min(at)));
            }
            None if is_proved => {}
            None => address.asked = Some(Asked::new(now, transaction)),
        }
    }

    /// The address, which is new or not. Of too many the one goes that is not proved, or of which nothing came for longest.
    fn enter(&mut self, now: Instant, remote: Remote, in_use: Option<Remote>) -> &mut Address {
        let index = self.addresses.iter().position(|address| address.remote == remote).unwrap_or_else(|| {
            if self.addresses.len() >= REMOTES_MAX {
                let others = self.addresses.iter().enumerate().filter(|(_, other)| Some(other.remote) != in_use);
                let oldest = others.min_by_key(|(_, other)| (other.is_proved(now), other.heard));
                if let Some((index, _)) = oldest {
                    self.addresses.swap_remove(index);
                }
            }
            self.addresses.push(Address { remote, proved: None, asked: None, heard: now, nominated: None });
            self.addresses.len() - 1
        });
        &mut self.addresses[index]
    }

    /// Keeps a nomination until the address is proved.
    pub fn keep_nomination(&mut self, remote: Remote, priority: u32) {
        if let Some(address) = self.address_mut(remote) {
            address.nominated = Some(priority);
        }
    }

    /// Takes an authenticated success response.
    pub fn handle_response(&mut self, now: Instant, remote: Remote, transaction: &[u8]) -> Result<Answered, Refused> {
        let address = self.address_mut(remote).ok_or(Refused::NotAuthentic)?;
        match &address.asked {
            Some(asked) if asked.transaction == transaction => {
                let was_proved = address.is_proved(now);
                address.proved = asked.first.or(Some(now));
                (address.asked, address.heard) = (None, now);
                Ok(if was_proved { Answered::Renewal } else { Answered::Proof(address.nominated.take()) })
            }
            None if address.is_proved(now) => Ok(Answered::Late),
            Some(_) | None => Err(Refused::NotAuthentic),
        }
    }

    /// How the address in use stands.
    pub fn standing(&self, now: Instant, in_use: Remote) -> Standing {
        let Some(address) = self.address(in_use) else { return Standing::Lapsed };
        match (address.lapses_at(), &address.asked) {
            (Some(at), _) if now >= at => Standing::Lapsed,
            (None, _) => Standing::Lapsed,
            (Some(at), None) if !in_use.tcp && now + PROOF_LIFE >= at + RENEW_AFTER => Standing::Old,
            (_, Some(asked)) if asked.first.is_some_and(|first| now >= first + DOUBT_AFTER) => Standing::Doubtful,
            _ => Standing::Good,
        }
    }

    /// Has the address in use asked again, unless that is under way. `transaction` is for the request.
    pub fn renew(&mut self, now: Instant, in_use: Remote, transaction: Transaction) {
        if let Some(address) = self.address_mut(in_use).filter(|address| !address.remote.tcp) {
            address.asked.get_or_insert_with(|| Asked::new(now, transaction));
        }
    }

    /// Where to go from an address in doubt: the other one that is proved and was heard last, since this one was asked.
    pub fn successor(&self, now: Instant, in_use: Remote) -> Option<Remote> {
        let asked = self.address(in_use).and_then(|address| address.asked.as_ref()?.first);
        let is_there = |other: &&Address| {
            other.remote != in_use && other.is_proved(now) && asked.is_none_or(|asked| other.heard >= asked)
        };
        self.addresses.iter().filter(is_there).max_by_key(|other| other.heard).map(|other| other.remote)
    }

    /// The next request that is due.
    pub fn poll_request(&mut self, now: Instant) -> Option<(Remote, Transaction)> {
        let is_due = |asked: &Asked| asked.next.is_some_and(|next| next <= now);
        let mut asking = self.addresses.iter_mut().filter(|address| address.asked.as_ref().is_some_and(is_due));
        let address = asking.next()?;
        if !self.requests.take(now, REQUESTS) {
            // Whoever is due waits for more.
            let later = self.requests.next_at(REQUESTS);
            let due = self.addresses.iter_mut().filter_map(|address| address.asked.as_mut());
            due.filter(|asked| is_due(asked)).for_each(|asked| asked.next = Some(later));
            return None;
        }
        let (requests_max, interval_max) =
            if address.is_proved(now) { (RENEWALS_MAX, RENEWAL_INTERVAL_MAX) } else { (REQUESTS_MAX, Duration::MAX) };
        let (remote, asked) = (address.remote, address.asked.as_mut()?);
        asked.sent += 1;
        asked.first.get_or_insert(now);
        asked.last = Some(now);
        let interval = || interval_max.min(RTO * (1 << (asked.sent - 1).min(8)));
        asked.next = (asked.sent < requests_max).then(|| now + interval());
        Some((remote, asked.transaction))
    }

    /// When `poll_request` next has something, or the standing of the address in use changes.
    pub fn poll_timeout(&self, now: Instant, in_use: Option<Remote>) -> Option<Instant> {
        let request = self.addresses.iter().filter_map(|address| address.asked.as_ref()?.next).min();
        let changes = in_use.and_then(|in_use| {
            let address = self.address(in_use)?;
            let lapses_at = address.lapses_at()?;
            Some(match &address.asked {
                None if !in_use.tcp => lapses_at - (PROOF_LIFE - RENEW_AFTER),
                Some(Asked { first: Some(first), .. }) if *first + DOUBT_AFTER > now => *first + DOUBT_AFTER,
                _ if lapses_at > now => lapses_at,
                _ => return None,
            })
        });
        request.into_iter().chain(changes).min()
    }

    /// Forgets all but the address in use after a restart. Who restarts has proved nothing anew.
    pub fn restart(&mut self, in_use: Option<Remote>) {
        self.addresses.retain(|address| Some(address.remote) == in_use);
        // What is answered now is answered with another password.
        self.addresses.iter_mut().for_each(|address| address.asked = None);
    }
}

impl Address {
    fn lapses_at(&self) -> Option<Instant> {
        self.proved.map(|at| at + PROOF_LIFE)
    }

    fn is_proved(&self, now: Instant) -> bool {
        self.lapses_at().is_some_and(|at| now < at)
    }
}

impl Asked {
    fn new(now: Instant, transaction: Transaction) -> Self {
        Asked { transaction, sent: 0, first: None, last: None, next: Some(now) }
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

    /// A peer whose first address is in use since `start`.
    fn proved(start: Instant) -> Reach {
        let mut reach = Reach::new(start);
        prove(&mut reach, start, 1);
        reach
    }

    fn prove(reach: &mut Reach, now: Instant, port: u16) {
        reach.handle_check(now, remote(port), None, [port as u8; 12]);
        assert_eq!(requests(reach, now), 1);
        assert_eq!(reach.handle_response(now, remote(port), &[port as u8; 12]), Ok(Answered::Proof(None)));
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_request_is_repeated_four_times_and_then_only_when_the_peer_checks_again() {
        let start = Instant::now();
        let mut reach = Reach::new(start);
        reach.handle_check(start, remote(1), None, [1; 12]);
        let mut sent = Vec::new();
        for ms in 0..60_000 {
            let now = start + Duration::from_millis(ms);
            sent.extend(std::iter::repeat_n(ms, requests(&mut reach, now)));
        }
        assert_eq!(sent, [0, 500, 1_500, 3_500]);
        let later = start + Duration::from_secs(60);
        assert_eq!(reach.poll_timeout(later, None), None);
        let mut repeated = 0;
        for _ in 0..3 {
            reach.handle_check(later, remote(1), None, [2; 12]);
            repeated += requests(&mut reach, later);
        }
        assert_eq!(repeated, 1);
        assert_eq!(requests(&mut reach, later + REPEAT_MIN), 1);
    }

    #[test]
    fn only_the_response_to_the_own_request_from_the_own_address_proves_it() {
        let now = Instant::now();
        let mut reach = Reach::new(now);
        reach.handle_check(now, remote(1), None, [1; 12]);
        reach.handle_check(now, remote(2), None, [2; 12]);
        reach.keep_nomination(remote(2), 7);
        for (from, transaction) in [(1, 2), (2, 1), (3, 1)] {
            let answered = reach.handle_response(now, remote(from), &[transaction; 12]);
            assert_eq!(answered, Err(Refused::NotAuthentic));
        }
        assert_eq!(reach.handle_response(now, remote(2), &[2; 12]), Ok(Answered::Proof(Some(7))));
        assert_eq!(reach.handle_response(now, remote(2), &[2; 12]), Ok(Answered::Late));
        assert!(reach.is_proved(now, remote(2)) && !reach.is_proved(now, remote(1)));
        assert_eq!(requests(&mut reach, now), 1, "the other one");
    }

    #[test]
    fn an_address_is_proved_for_30_seconds_and_then_asked_when_the_peer_checks_from_there() {
        let start = Instant::now();
        let mut reach = proved(start);
        let before = start + seconds(30) - Duration::from_millis(1);
        reach.handle_check(before, remote(1), None, [2; 12]);
        assert_eq!((requests(&mut reach, before), reach.is_proved(before, remote(1))), (0, true));
        let lapsed = start + seconds(30);
        assert!(!reach.is_proved(lapsed, remote(1)));
        assert_eq!(requests(&mut reach, lapsed), 0, "it is not in use, so nobody asks");
        reach.handle_check(lapsed, remote(1), None, [3; 12]);
        assert_eq!(requests(&mut reach, lapsed), 1);
        assert_eq!(reach.handle_response(lapsed, remote(1), &[3; 12]), Ok(Answered::Proof(None)));
        assert!(reach.is_proved(lapsed, remote(1)));
    }

    #[test]
    fn the_address_in_use_is_asked_after_10_seconds_and_lapses_20_seconds_later() {
        let start = Instant::now();
        let mut reach = proved(start);
        let at = |ms| start + Duration::from_millis(ms);
        let (mut sent, mut standings) = (Vec::new(), Vec::new());
        for ms in (0..40_000).step_by(100) {
            let standing = reach.standing(at(ms), remote(1));
            if standings.last().is_none_or(|(_, last)| *last != standing) {
                standings.push((ms, standing));
            }
            if standing == Standing::Old {
                reach.renew(at(ms), remote(1), [2; 12]);
            }
            sent.extend(std::iter::repeat_n(ms, requests(&mut reach, at(ms))));
        }
        let expected = [(0, Standing::Good), (10_000, Standing::Old), (10_100, Standing::Good)];
        assert_eq!(standings[..3], expected);
        assert_eq!(standings[3..], [(13_000, Standing::Doubtful), (30_000, Standing::Lapsed)]);
        let expected = [10_000, 10_500, 11_500, 13_500, 15_500, 17_500, 19_500, 21_500, 23_500, 25_500, 27_500, 29_500];
        assert_eq!(sent, expected);
    }

    #[test]
    fn each_standing_of_the_address_in_use_has_its_timeout() {
        let start = Instant::now();
        let mut reach = proved(start);
        let in_use = Some(remote(1));
        assert_eq!(reach.poll_timeout(start, in_use), Some(start + seconds(10)));
        let asked = start + seconds(10);
        reach.renew(asked, remote(1), [2; 12]);
        while requests(&mut reach, asked) > 0 {}
        reach.addresses[0].asked.as_mut().unwrap().next = None;
        assert_eq!(reach.poll_timeout(asked, in_use), Some(asked + DOUBT_AFTER));
        assert_eq!(reach.poll_timeout(asked + DOUBT_AFTER, in_use), Some(start + PROOF_LIFE));
        // The answer counts from the request, not from when it came.
        let answered = asked + seconds(5);
        assert_eq!(reach.handle_response(answered, remote(1), &[2; 12]), Ok(Answered::Renewal));
        assert_eq!(reach.poll_timeout(answered, in_use), Some(asked + seconds(10)));
    }

    #[test]
    fn who_is_in_doubt_has_the_one_for_a_successor_that_is_proved_and_was_heard_since() {
        let start = Instant::now();
        let mut reach = proved(start);
        prove(&mut reach, start, 2);
        reach.handle_check(start, remote(3), None, [3; 12]);
        requests(&mut reach, start);
        let asked = start + seconds(10);
        reach.renew(asked, remote(1), [4; 12]);
        assert!(requests(&mut reach, asked) > 0);
        assert_eq!(reach.successor(asked, remote(1)), None, "nothing was heard since");
        reach.handle_check(asked, remote(3), None, [3; 12]);
        assert_eq!(reach.successor(asked, remote(1)), None, "it is not proved");
        reach.handle_check(asked, remote(2), None, [2; 12]);
        assert_eq!(reach.successor(asked, remote(1)), Some(remote(2)));
    }

    #[test]
    fn a_tcp_connection_is_never_asked_and_lapses_without_checks() {
        let start = Instant::now();
        let tcp = Remote { tcp: true, ..remote(1) };
        let mut reach = Reach::new(start);
        reach.trust(start, tcp, None);
        reach.trust(start + seconds(20), tcp, None);
        reach.renew(start + seconds(45), tcp, [1; 12]);
        assert_eq!(requests(&mut reach, start + seconds(45)), 0);
        assert_eq!(reach.standing(start + seconds(49), tcp), Standing::Good);
        assert_eq!(reach.poll_timeout(start + seconds(49), Some(tcp)), Some(start + seconds(50)));
        assert_eq!(reach.standing(start + seconds(50), tcp), Standing::Lapsed);
    }

    #[test]
    fn a_new_address_takes_the_place_of_one_that_is_of_no_use() {
        let start = Instant::now();
        let mut reach = proved(start);
        prove(&mut reach, start, 2);
        let now = start + seconds(1);
        for port in 3..1_000 {
            reach.handle_check(now, remote(port), Some(remote(1)), [0; 12]);
            assert!(reach.knows(remote(port)), "{port}");
        }
        assert!(reach.addresses.len() <= REMOTES_MAX && reach.is_proved(now, remote(2)));
        for port in 1_000..2_000 {
            reach.trust(now, remote(port), Some(remote(1)));
        }
        assert!(reach.addresses.len() <= REMOTES_MAX && !reach.knows(remote(2)));
        assert!(reach.knows(remote(1)), "the one in use stays");
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
                reach.handle_check(now, remote(port), None, [0; 12]);
            }
            sent += requests(&mut reach, now);
        }
        assert!(sent <= REQUESTS.burst as usize + 60 * 4, "{sent}");
    }
}
