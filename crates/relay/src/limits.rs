//! How often strangers are answered, how often who is at his address may fail to prove who he is, and how often he may shake
//! hands.
//!
//! In: the address that a request claims to come from, or comes from. Out: whether there is an answer for it.
//! Cost: two buckets looked at; three tables of 1 MiB that never grow.
//! Source: RFC 8656 §21.1.1 and §21.4 (what a server is used for that answers strangers).
//!
//! Each IPv4 address and each IPv6 /64 (which one host has) gets so many at once, and then so many a second. Their buckets
//! are chosen by hashes, two for each, and a request is answered while either has something left. So there is no list of
//! sources to fill, and nobody is driven out: many thousand spoofed sources that each ask seldom empty no bucket, and one
//! that asks much empties its own two, which a stranger shares with it once in 2^30. A source may so get up to twice its
//! rate. All together get no more than the total, whatever they claim to be.
//!
//! Who brings a nonce is at his address. His tries have a table of their own, so that nobody who only claims that address
//! takes them from him, and no total. So do handshakes, which begin behind a cookie; one thread makes those of all workers, so
//! there is a total of them, too. A cookie is shorter than what asks for it, so a flood in somebody's name is none to him, and
//! takes nothing from him: there is a total alone.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::{Budget, Random, Rate};

/// Buckets in the table; a power of two.
const BUCKET_COUNT: usize = 1 << 16;

/// How many answers to requests that prove nothing.
#[derive(Clone, Copy, Debug)]
pub struct LimitSettings {
    /// To one IPv4 address or IPv6 /64. A household or an office comes with one address.
    pub source: Rate,
    /// To all together.
    pub total: Rate,
    /// Cookies of DTLS, and alerts in their stead, for all together.
    pub cookies: Rate,
    /// Handshakes by DTLS that one such source begins, and all together; with several workers, at all of them
    /// (`with_workers`).
    pub source_handshakes: Rate,
    /// The same, of all sources.
    pub handshakes: Rate,
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            source: Rate { burst: 200, interval: Duration::from_millis(20) },
            total: Rate { burst: 10_000, interval: Duration::from_micros(20) },
            cookies: Rate { burst: 20_000, interval: Duration::from_micros(10) },
            source_handshakes: Rate { burst: 100, interval: Duration::from_millis(100) },
            handshakes: Rate { burst: 1_000, interval: Duration::from_millis(1) },
        }
    }
}

impl LimitSettings {
    /// Those of one of so many workers: the kernel spreads a source's ports over them, and one thread shakes hands for all.
    #[must_use]
    pub fn with_workers(self, count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let part = |rate: Rate| Rate { burst: rate.burst.div_ceil(count), interval: rate.interval * count };
        LimitSettings { source_handshakes: part(self.source_handshakes), handshakes: part(self.handshakes), ..self }
    }
}

/// What is left of them, on one worker.
#[derive(Debug)]
pub struct Limits {
    settings: LimitSettings,
    strangers: Table,
    total: Budget,
    attempts: Table,
    cookies: Budget,
    source_handshakes: Table,
    handshakes: Budget,
}

/// Buckets that sources share.
#[derive(Debug)]
pub struct Table {
    rate: Rate,
    /// Which sources share a bucket is not to be known.
    seed: u64,
    buckets: Box<[Budget]>,
}

impl Limits {
    /// All of them. The seed is secret.
    pub fn new(now: Instant, settings: LimitSettings, seed: u64) -> Self {
        let table = |rate| Table::new(now, rate, seed);
        Limits {
            settings,
            strangers: table(settings.source),
            total: Budget::new(now),
            attempts: table(settings.source),
            cookies: Budget::new(now),
            source_handshakes: table(settings.source_handshakes),
            handshakes: Budget::new(now),
        }
    }

    /// Takes one answer for who claims to be at this address. False when there is none: then nothing is said.
    pub fn take(&mut self, now: Instant, claimed: IpAddr) -> bool {
        self.total.next_at(self.settings.total) <= now
            && self.strangers.take(now, claimed)
            && self.total.take(now, self.settings.total)
    }

    /// Whether who is at this address may try to prove something: some of his tries may still fail.
    pub fn may_attempt(&self, now: Instant, at: IpAddr) -> bool {
        let [fuller, _] = self.attempts.places(at);
        self.attempts.buckets[fuller].next_at(self.attempts.rate) <= now
    }

    /// Takes a try that has failed. False when there is none: then nothing is said.
    pub fn take_attempt(&mut self, now: Instant, at: IpAddr) -> bool {
        self.attempts.take(now, at)
    }

    /// Takes a handshake that who is at this address wants to begin. False when there is none: then nothing is said.
    pub fn take_handshake(&mut self, now: Instant, at: IpAddr) -> bool {
        let rate = self.settings.handshakes;
        self.handshakes.next_at(rate) <= now && self.source_handshakes.take(now, at) && self.handshakes.take(now, rate)
    }

    /// Takes a cookie, or an alert in its stead. False when there is none: then nothing is said.
    pub fn take_cookie(&mut self, now: Instant) -> bool {
        self.cookies.take(now, self.settings.cookies)
    }

    /// Gives back one that was taken before it was known whether it fails.
    pub fn give_attempt_back(&mut self, now: Instant, at: IpAddr) {
        let [_, emptier] = self.attempts.places(at);
        self.attempts.buckets[emptier].give_back(now, self.attempts.rate);
    }
}

impl Table {
    /// All of them are full. The seed is secret.
    pub fn new(now: Instant, rate: Rate, seed: u64) -> Self {
        Table { rate, seed, buckets: vec![Budget::new(now); BUCKET_COUNT].into_boxed_slice() }
    }

    /// Takes one for who is, or claims to be, at this address. False when there is none.
    pub fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        let [fuller, _] = self.places(source);
        self.buckets[fuller].take(now, self.rate)
    }

    /// A source's two buckets, the one that has more left first: it is used, so that both are used alike.
    fn places(&self, source: IpAddr) -> [usize; 2] {
        let hash = Random::new(self.seed ^ network(source)).next_u64() as usize;
        let [one, other] = [hash % BUCKET_COUNT, (hash >> 32) % BUCKET_COUNT];
        let next_at = |place: usize| self.buckets[place].next_at(self.rate);
        if next_at(other) < next_at(one) { [other, one] } else { [one, other] }
    }
}

/// The IPv4 address, or the first 64 bits of the IPv6 address; those of IPv4 lie in 0.0.0.0/8's form, which is nobody's.
fn network(source: IpAddr) -> u64 {
    match source.to_canonical() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const PLENTY: Rate = Rate { burst: 1_000_000, interval: Duration::from_nanos(1) };
    const SETTINGS: LimitSettings = LimitSettings {
        source: Rate { burst: 10, interval: Duration::from_millis(100) },
        total: PLENTY,
        cookies: PLENTY,
        source_handshakes: Rate { burst: 10, interval: Duration::from_millis(100) },
        handshakes: Rate { burst: 50, interval: Duration::from_millis(20) },
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn limits(settings: LimitSettings) -> (Limits, Instant) {
        let now = Instant::now();
        (Limits::new(now, settings, 0x5eed), now)
    }

    fn taken(limits: &mut Limits, now: Instant, from: IpAddr, count: usize) -> usize {
        (0..count).filter(|_| limits.take(now, from)).count()
    }

    #[test]
    fn a_source_gets_its_burst_and_then_its_rate_at_most_twice_each() {
        let (mut limits, now) = limits(SETTINGS);
        assert_eq!(taken(&mut limits, now, ip("9.9.9.9"), 100), 20);
        assert_eq!(taken(&mut limits, now + Duration::from_secs(1), ip("9.9.9.9"), 100), 20);
        assert_eq!(taken(&mut limits, now + Duration::from_millis(1_050), ip("9.9.9.9"), 100), 0);
        assert_eq!(taken(&mut limits, now + Duration::from_millis(1_100), ip("9.9.9.9"), 100), 2);
    }

    #[test]
    fn an_ipv6_network_is_one_source_and_a_mapped_address_is_the_ipv4_address() {
        let (mut limits, now) = limits(SETTINGS);
        let all = (0..100_u128).map(|host| IpAddr::V6(Ipv6Addr::from_bits((0x2a00 << 112) | (host << 3))));
        assert_eq!(all.filter(|from| limits.take(now, *from)).count(), 20);
        assert_eq!(taken(&mut limits, now, ip("2a00:0:0:1::"), 5), 5);
        assert_eq!(taken(&mut limits, now, ip("::ffff:9.9.9.9"), 100), 20);
        assert_eq!(taken(&mut limits, now, ip("9.9.9.9"), 100), 0);
    }

    #[test]
    fn a_million_spoofed_sources_leave_the_others_their_share_and_take_no_memory() {
        let (mut limits, mut now) = limits(SETTINGS);
        let mut random = Random::new(1);
        for _ in 0..1_000_000 {
            now += Duration::from_micros(5);
            limits.take(now, Ipv4Addr::from_bits(random.next_u64() as u32).into());
        }
        assert_eq!(limits.strangers.buckets.len(), BUCKET_COUNT);
        let served = (0..1_000).filter(|last| limits.take(now, Ipv4Addr::from_bits(0x0909_0000 + last).into())).count();
        assert_eq!(served, 1_000);
    }

    #[test]
    fn all_together_get_no_more_than_the_total() {
        let total = Rate { burst: 50, interval: Duration::from_millis(10) };
        let (mut limits, now) = limits(LimitSettings { total, ..SETTINGS });
        let served = (0..1_000).filter(|last| limits.take(now, Ipv4Addr::from_bits(0x0909_0000 + last).into())).count();
        assert_eq!(served, 50);
        assert!(limits.take(now + Duration::from_millis(10), ip("9.9.9.9")));
        assert!(!limits.take(now + Duration::from_millis(10), ip("9.9.9.9")));
    }

    #[test]
    fn answers_for_an_address_and_tries_of_who_is_there_are_apart() {
        let total = Rate { burst: 5, interval: Duration::from_millis(10) };
        let (mut limits, now) = limits(LimitSettings { total, ..SETTINGS });
        assert_eq!(taken(&mut limits, now, ip("9.9.9.9"), 100), 5);
        let failed =
            (0..100).filter(|_| limits.may_attempt(now, ip("9.9.9.9")) && limits.take_attempt(now, ip("9.9.9.9")));
        assert_eq!(failed.count(), 20);
        assert!(!limits.take_attempt(now, ip("9.9.9.9")) && limits.may_attempt(now, ip("9.9.9.8")));
        assert!(limits.may_attempt(now + Duration::from_millis(100), ip("9.9.9.9")));
    }

    #[test]
    fn handshakes_of_a_source_and_of_all_are_so_many_at_all_workers_together() {
        for workers in [1, 2, 5] {
            let settings = SETTINGS.with_workers(workers);
            let mut all: Vec<_> = (0..workers).map(|_| limits(settings)).collect();
            let mut begin = |from: IpAddr, later: Duration| -> usize {
                let begun = all
                    .iter_mut()
                    .map(|(limits, now)| (0..100).filter(|_| limits.take_handshake(*now + later, from)).count());
                begun.sum()
            };
            assert_eq!(begin(ip("9.9.9.9"), Duration::ZERO), 20, "{workers}");
            let others: usize = (0..100).map(|host| begin(IpAddr::from([9, 9, 8, host]), Duration::ZERO)).sum();
            assert_eq!(others, 30, "{workers}");
            assert_eq!(begin(ip("9.9.9.9"), Duration::from_secs(1)), 20, "{workers}");
        }
    }

    #[test]
    fn cookies_have_a_total_alone_and_take_nothing_from_others() {
        let cookies = Rate { burst: 500, interval: Duration::from_millis(1) };
        let (mut limits, now) = limits(LimitSettings { cookies, ..SETTINGS });
        assert_eq!((0..1_000).filter(|_| limits.take_cookie(now)).count(), 500);
        assert!(limits.take(now, ip("9.9.9.9")));
    }

    proptest! {
        #[test]
        fn no_source_gets_more_than_twice_its_rate(seed in any::<u64>(), steps in prop::collection::vec(0_u64..50, 1..400)) {
            let start = Instant::now();
            let mut limits = Limits::new(start, SETTINGS, seed);
            let (mut ms, mut served) = (0, 0);
            for step in steps {
                ms += step;
                served += u64::from(limits.take(start + Duration::from_millis(ms), ip("9.9.9.9")));
            }
            prop_assert!(served <= 2 * (10 + ms / 100));
        }
    }
}
