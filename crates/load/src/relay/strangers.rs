//! Strangers: requests that prove nothing, each from an address that was not heard of before.
//!
//! In: how many a second, the time. Out: Allocate and Binding requests in turns, and what came back for how much.
//! They are from 127.228.0.0 on, a million addresses: to the server they look as spoofed ones do from elsewhere.
//! Source: RFC 8656 §7.1, RFC 8489 §12.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use stun_types::message::{BINDING, Message, MessageWriteVec};
use stun_types::prelude::{MessageWrite as _, MessageWriteExt as _};
use turn_types::attribute::RequestedTransport;
use turn_types::message::ALLOCATE;
use wire::{LinkId, Outbox, Path, Random};

/// Their addresses begin here, and there are so many.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 228, 0, 0);
const ADDRESSES: u32 = 1 << 20;

/// What is due is sent so often.
const TICK: Duration = Duration::from_millis(1);

/// Where a STUN message has its transaction id.
const TRANSACTION: std::ops::Range<usize> = 8..20;

/// What strangers sent and heard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    pub(super) sent: u64,
    pub(super) sent_bytes: u64,
    pub(super) answered: u64,
    pub(super) answered_bytes: u64,
}

/// Strangers of one thread.
pub(super) struct Strangers {
    per_second: f64,
    /// The socket that has all addresses, and whom they ask.
    link: LinkId,
    server: SocketAddr,
    requests: [Vec<u8>; 2],
    since: Option<Instant>,
    due_at: Option<Instant>,
    /// Requests since they began.
    count: u64,
    pub(super) heard: Heard,
}

impl Strangers {
    pub(super) fn new(per_second: f64, link: LinkId, server: SocketAddr) -> Self {
        let mut allocate = Message::builder_request(ALLOCATE, MessageWriteVec::new());
        allocate.add_attribute(&RequestedTransport::new(super::dialog::UDP)).expect("it is the first attribute");
        let requests = [allocate.finish(), Message::builder_request(BINDING, MessageWriteVec::new()).finish()];
        Strangers { per_second, link, server, requests, since: None, due_at: None, count: 0, heard: Heard::default() }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        (self.since, self.due_at) = (Some(now), Some(now));
    }

    pub(super) fn end(&mut self) {
        (self.since, self.due_at) = (None, None);
    }

    /// When the next ones come.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due_at
    }

    /// Sends what is due. True when there was no room for all.
    pub(super) fn send(&mut self, now: Instant, random: &mut Random, out: &mut Outbox) -> bool {
        let Some(since) = self.since.filter(|_| self.due_at.is_some_and(|at| at <= now)) else { return false };
        let due = (now.duration_since(since).as_secs_f64() * self.per_second) as u64;
        while self.count < due {
            let request = &mut self.requests[(self.count % 2) as usize];
            request[TRANSACTION].iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
            let address = Ipv4Addr::from_bits(FIRST.to_bits() + self.count as u32 % ADDRESSES);
            let path = Path { link: self.link, remote: self.server, local: Some(address.into()) };
            if !out.push(&path, request) {
                return true;
            }
            self.heard.sent += 1;
            self.heard.sent_bytes += request.len() as u64;
            self.count += 1;
        }
        self.due_at = Some(now + TICK);
        false
    }

    /// Takes what was sent to an address, if it is one of theirs.
    pub(super) fn handle(&mut self, local: Option<IpAddr>, datagram: &[u8]) {
        let Some(IpAddr::V4(local)) = local else { return };
        if local.to_bits().wrapping_sub(FIRST.to_bits()) < ADDRESSES {
            self.heard.answered += 1;
            self.heard.answered_bytes += datagram.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_from_another_address_and_counts_what_comes_back_there() {
        let (now, mut random, mut out) = (Instant::now(), Random::new(1), Outbox::new(100_000));
        let mut strangers = Strangers::new(3_000.0, LinkId::datagrams(0), "127.0.0.1:3478".parse().unwrap());
        assert!(!strangers.send(now, &mut random, &mut out) && out.is_empty());
        strangers.begin(now);
        assert!(!strangers.send(now + TICK, &mut random, &mut out));
        let sent: Vec<(Option<IpAddr>, u8, usize)> =
            out.datagrams().map(|(path, bytes)| (path.local, bytes[1], bytes.len())).collect();
        let from = |last| Some(Ipv4Addr::new(127, 228, 0, last).into());
        assert_eq!(sent, [(from(0), 3, 28), (from(1), 1, 20), (from(2), 3, 28)]);
        strangers.handle(from(1), &[0; 32]);
        strangers.handle(Some(Ipv4Addr::new(127, 1, 0, 0).into()), &[0; 32]);
        let Heard { sent, sent_bytes, answered, answered_bytes } = strangers.heard;
        assert_eq!((sent, sent_bytes, answered, answered_bytes), (3, 76, 1, 32));
        assert_eq!(strangers.poll_timeout(), Some(now + TICK * 2));
        strangers.end();
        assert_eq!(strangers.poll_timeout(), None);
    }
}
