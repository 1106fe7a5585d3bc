//! A network in memory: datagrams go in, and come out later, or not at all.
//!
//! In: datagrams with their addresses, and the time. Out: the same datagrams in order of arrival; `next_at` says when.
//! Each pair of addresses, in each direction, is a link of its own: a policer, a queue that drains at a rate, then a
//! delay. It has its own random numbers too, so what happens on one link depends on no other. Policer and rate count a
//! datagram with its headers, as real ones do.
//! Cost: O(log n) per datagram in flight.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::{Bitrate, Random};

/// What a link does to datagrams. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// From the queue's end to the other side.
    pub delay: Duration,
    /// Up to this much more delay, evenly spread; it does not change the order.
    pub jitter: Duration,
    /// `None`: as fast as one likes.
    pub rate: Option<Bitrate>,
    /// Bytes that may wait for the rate; what comes on top is dropped.
    pub queue_bytes: usize,
    /// A token bucket before the queue: what finds no tokens is dropped.
    pub policer: Option<Policer>,
    /// Datagrams arrive at multiples of this only, all at once, as those of one Wi-Fi or LTE transmission do. Zero: each
    /// arrives by itself.
    pub aggregation: Duration,
    /// Share that never arrives, each datagram by itself.
    pub loss: f64,
    /// Share that arrives a second time, 1 ms later.
    pub duplication: f64,
    /// Share of datagrams that are held back, so that later ones overtake them.
    pub reordering: f64,
    /// For how long they are held back.
    pub held_back: Duration,
}

impl Default for LinkConfig {
    /// A quiet path: 10 ms, and nothing else.
    fn default() -> Self {
        LinkConfig {
            delay: Duration::from_millis(10),
            jitter: Duration::ZERO,
            rate: None,
            queue_bytes: 150_000,
            policer: None,
            aggregation: Duration::ZERO,
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            held_back: Duration::from_millis(15),
        }
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policer {
    /// How fast tokens come.
    pub rate: Bitrate,
    /// How many there may be, in bytes.
    pub bucket_bytes: usize,
}

/// Bytes of the headers of IPv4 and UDP (RFC 791 §3.1, RFC 768).
pub(crate) const HEADERS: usize = 28;

/// A datagram on its way, or at its destination. Ordered by its first two fields, which are another pair for each.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivered {
    /// When it arrives.
    pub at: Instant,
    count: u64,
    /// Who sent it.
    pub from: SocketAddr,
    /// Whom it is for.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// All links, and what is on its way on them.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    default: LinkConfig,
    links: HashMap<(SocketAddr, SocketAddr), Link>,
    in_flight: BinaryHeap<Reverse<Delivered>>,
    captures: HashMap<(SocketAddr, SocketAddr), Capture>,
    /// Breaks ties: what was sent first arrives first.
    count: u64,
}

/// What was sent on a link, and when.
pub type Capture = Vec<(Instant, Vec<u8>)>;

#[derive(Debug)]
struct Link {
    random: Random,
    config: LinkConfig,
    sent_bytes: u64,
    /// When the link was first used.
    began: Option<Instant>,
    /// When the policer's bucket will be full, or was.
    full_at: Option<Instant>,
    /// When the queue has drained.
    free_at: Option<Instant>,
    /// Arrival of the last datagram that kept its place.
    last_arrival: Option<Instant>,
}

impl Network {
    /// A network of which every link is like `default` until it is told otherwise.
    pub fn new(seed: u64, default: LinkConfig) -> Self {
        Network {
            seed,
            default,
            links: HashMap::new(),
            in_flight: BinaryHeap::new(),
            captures: HashMap::new(),
            count: 0,
        }
    }

    /// Changes the link in one direction. What is on its way already stays as it is.
    pub fn set_link(&mut self, from: SocketAddr, to: SocketAddr, config: LinkConfig) {
        self.link(from, to).config = config;
    }

    /// Changes the links of both directions.
    pub fn set_path(&mut self, one: SocketAddr, other: SocketAddr, config: LinkConfig) {
        self.set_link(one, other, config);
        self.set_link(other, one, config);
    }

    /// Keeps a copy of all that is sent on a link from now on, arrive or not.
    pub fn capture(&mut self, from: SocketAddr, to: SocketAddr) {
        self.captures.insert((from, to), Vec::new());
    }

    /// What was captured on a link, in the order in which it was sent. Capturing ends.
    pub fn take_capture(&mut self, from: SocketAddr, to: SocketAddr) -> Vec<Vec<u8>> {
        self.take_timed_capture(from, to).into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// The same, with the times at which it was sent.
    pub fn take_timed_capture(&mut self, from: SocketAddr, to: SocketAddr) -> Capture {
        self.captures.remove(&(from, to)).unwrap_or_default()
    }

    /// Takes a datagram.
    pub fn send(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        if let Some(capture) = self.captures.get_mut(&(from, to)) {
            capture.push((now, bytes.to_vec()));
        }
        let link = self.link(from, to);
        let Some(at) = link.arrival(now, bytes.len()) else { return };
        if link.random.chance(link.config.duplication) {
            self.push(at + Duration::from_millis(1), from, to, bytes);
        }
        self.push(at, from, to, bytes);
    }

    /// The next datagram that has arrived by now.
    pub fn poll(&mut self, now: Instant) -> Option<Delivered> {
        if self.next_at()? > now {
            return None;
        }
        self.in_flight.pop().map(|Reverse(next)| next)
    }

    /// When the next datagram arrives.
    pub fn next_at(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(next)| next.at)
    }

    /// Bytes of all UDP payloads that were sent on a link so far, arrived or not; not of the way back.
    pub fn sent_bytes(&self, from: SocketAddr, to: SocketAddr) -> u64 {
        self.links.get(&(from, to)).map_or(0, |link| link.sent_bytes)
    }

    fn link(&mut self, from: SocketAddr, to: SocketAddr) -> &mut Link {
        let Network { seed, default, .. } = *self;
        self.links.entry((from, to)).or_insert_with(|| {
            // What tells links apart are the ports, as all tests have it.
            let place = u64::from(from.port()) << 16 | u64::from(to.port());
            Link::new(default, Random::new(seed ^ Random::new(place).next_u64()))
        })
    }

    fn push(&mut self, at: Instant, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.count += 1;
        self.in_flight.push(Reverse(Delivered { at, count: self.count, from, to, bytes: bytes.to_vec() }));
    }
}

impl Link {
    fn new(config: LinkConfig, random: Random) -> Self {
        Link { random, config, sent_bytes: 0, began: None, full_at: None, free_at: None, last_arrival: None }
    }

    /// When a datagram sent now arrives; `None` when it does not.
    fn arrival(&mut self, now: Instant, len: usize) -> Option<Instant> {
        self.sent_bytes += len as u64;
        let began = *self.began.get_or_insert(now);
        let len = len + HEADERS;
        if let Some(Policer { rate, bucket_bytes }) = self.config.policer {
            let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + rate.time_for(len);
            if full_at > now + rate.time_for(bucket_bytes) {
                return None;
            }
            self.full_at = Some(full_at);
        }
        let mut left_at = now;
        if let Some(rate) = self.config.rate {
            let start = self.free_at.map_or(now, |free_at| free_at.max(now));
            if start > now + rate.time_for(self.config.queue_bytes) {
                return None;
            }
            left_at = start + rate.time_for(len);
            self.free_at = Some(left_at);
        }
        if self.random.chance(self.config.loss) {
            return None;
        }
        let mut at = left_at + self.config.delay + self.config.jitter.mul_f64(self.random.unit());
        if !self.config.aggregation.is_zero() {
            let intervals = at.duration_since(began).as_nanos().div_ceil(self.config.aggregation.as_nanos());
            at = began + self.config.aggregation * intervals as u32;
        }
        if self.random.chance(self.config.reordering) {
            return Some(at + self.config.held_back);
        }
        let at = self.last_arrival.map_or(at, |last_arrival| at.max(last_arrival));
        self.last_arrival = Some(at);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        ([10, 0, 0, 1], port).into()
    }

    /// Sends numbered datagrams of 100 bytes, one per ms, and returns what arrives: number and delay in ms.
    fn run(config: LinkConfig, count: u16) -> Vec<(u16, u128)> {
        let start = Instant::now();
        let mut network = Network::new(3, config);
        let sent_at = |number: u16| start + Duration::from_millis(number.into());
        for number in 0..count {
            let mut bytes = [0; 100];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            network.send(sent_at(number), addr(1), addr(2), &bytes);
        }
        let end = start + Duration::from_secs(100);
        std::iter::from_fn(|| network.poll(end))
            .map(|datagram| {
                let number = u16::from_be_bytes([datagram.bytes[0], datagram.bytes[1]]);
                (number, datagram.at.duration_since(sent_at(number)).as_millis())
            })
            .collect()
    }

    #[test]
    fn a_quiet_link_only_delays() {
        let arrived = run(LinkConfig::default(), 50);
        assert_eq!(arrived, (0..50).map(|number| (number, 10)).collect::<Vec<_>>());
    }

    #[test]
    fn a_rate_spreads_and_a_full_queue_drops() {
        // 128 bytes per ms come in, half of that goes out, and 1,280 bytes may wait.
        let rate = Some(Bitrate::from_kbps(512));
        let arrived = run(LinkConfig { rate, queue_bytes: 1_280, ..LinkConfig::default() }, 200);
        assert!((100..115).contains(&arrived.len()), "{}", arrived.len());
        assert_eq!(arrived.last().unwrap().1, 32);
    }

    #[test]
    fn a_policer_lets_its_bucket_and_its_rate_pass_and_delays_nothing() {
        let policer = Some(Policer { rate: Bitrate::from_kbps(512), bucket_bytes: 1_280 });
        let arrived = run(LinkConfig { policer, ..LinkConfig::default() }, 200);
        // Half of them, and ten of the full bucket.
        assert!((105..=110).contains(&arrived.len()), "{}", arrived.len());
        assert!(arrived.iter().all(|(_, delay_ms)| *delay_ms == 10));
    }

    #[test]
    fn what_is_aggregated_arrives_together() {
        let arrived = run(LinkConfig { aggregation: Duration::from_millis(5), ..LinkConfig::default() }, 20);
        let at: Vec<u128> = arrived.iter().map(|(number, delay_ms)| u128::from(*number) + delay_ms).collect();
        assert_eq!(at.iter().filter(|at| **at == 15).count(), 5, "{at:?}");
        assert!(at.iter().all(|at| at.is_multiple_of(5)), "{at:?}");
    }

    #[test]
    fn loss_duplication_and_reordering_come_in_their_shares_and_repeat_with_the_seed() {
        let config = LinkConfig { loss: 0.1, duplication: 0.1, reordering: 0.1, ..LinkConfig::default() };
        let arrived = run(config, 2_000);
        let mut distinct: Vec<u16> = arrived.iter().map(|(number, _)| *number).collect();
        let overtaken = distinct.windows(2).filter(|pair| pair[1] < pair[0]).count();
        distinct.sort_unstable();
        distinct.dedup();
        assert!((1_740..1_860).contains(&distinct.len()), "{}", distinct.len());
        assert!((140..220).contains(&(arrived.len() - distinct.len())), "{}", arrived.len());
        assert!(overtaken > 100, "{overtaken}");
        assert_eq!(arrived, run(config, 2_000));
    }
}
