//! What is heard of the datagrams that come: those of one sender, in order.
//!
//! In: datagrams, who sent them, and when they arrived. Out: what is in them. RTP is told by its first byte (RFC 2250), and put
//! in order; transport packets alone are as they come.

use std::net::{IpAddr, SocketAddr};

use wire::Seq;
use wire::rtp::RtpPacket;
use wire::ts::SYNC_BYTE;

use super::SOURCE_TIMEOUT;
use super::sorter::{Counts, Sorter};

/// Listens to one sender at a time. Times are nanoseconds since any fixed moment.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Nobody else is listened to.
    only: Option<IpAddr>,
    sender: Option<Sender>,
    sorter: Sorter,
}

/// Who is listened to.
#[derive(Clone, Copy, Debug)]
struct Sender {
    from: SocketAddr,
    ssrc: Option<u32>,
    heard_ns: i64,
}

/// A datagram, and what is in it.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    rtp: Option<(u32, Seq)>,
    payload: &'a [u8],
}

/// Whose a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nobody's who is listened to.
    Foreign,
    /// The sender's.
    Known,
    /// Another sender's, who is listened to from now on; the one before was silent. What of that one waits is to be taken first
    /// (`Receiver::restart`).
    Another,
}

impl<'a> Datagram<'a> {
    /// Looks at it.
    pub fn parse(bytes: &'a [u8]) -> Self {
        let packet = bytes.first().filter(|first| **first != SYNC_BYTE).and_then(|_| RtpPacket::parse(bytes).ok());
        match packet {
            Some(packet) => {
                Datagram { rtp: Some((packet.header().ssrc, packet.header().seq)), payload: packet.payload() }
            }
            None => Datagram { rtp: None, payload: bytes },
        }
    }

    /// What is in it.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl Receiver {
    /// Nothing has come. What is missing of RTP is waited for so long.
    pub fn new(only: Option<IpAddr>, patience_ns: i64) -> Self {
        Receiver { only, sender: None, sorter: Sorter::new(patience_ns) }
    }

    /// Whether a datagram is of the sender who is listened to. The first that comes is; another takes its place when it was
    /// silent for `SOURCE_TIMEOUT`.
    pub fn hear(&mut self, now_ns: i64, from: SocketAddr, datagram: &Datagram<'_>) -> Heard {
        if self.only.is_some_and(|only| only != from.ip().to_canonical()) {
            return Heard::Foreign;
        }
        let ssrc = datagram.rtp.map(|(ssrc, _)| ssrc);
        if let Some(sender) = &mut self.sender {
            if (sender.from, sender.ssrc) == (from, ssrc) {
                sender.heard_ns = now_ns;
                return Heard::Known;
            }
            if now_ns.saturating_sub(sender.heard_ns) <= super::ns(SOURCE_TIMEOUT) {
                return Heard::Foreign;
            }
        }
        match self.sender.replace(Sender { from, ssrc, heard_ns: now_ns }) {
            Some(_) => Heard::Another,
            None => Heard::Known,
        }
    }

    /// Another sender counts anew. What waits goes out first.
    pub fn restart(&mut self, out: &mut dyn FnMut(i64, &[u8])) {
        self.sorter.restart(out);
    }

    /// Takes a datagram that was heard; what is in order goes out, with the times of its arrival.
    pub fn push(&mut self, now_ns: i64, datagram: &Datagram<'_>, out: &mut dyn FnMut(i64, &[u8])) {
        match datagram.rtp {
            None => out(now_ns, datagram.payload),
            Some((_, seq)) => self.sorter.push(now_ns, seq, datagram.payload, out),
        }
    }

    /// What was waited for too long is lost.
    pub fn handle_timeout(&mut self, now_ns: i64, out: &mut dyn FnMut(i64, &[u8])) {
        self.sorter.handle_timeout(now_ns, out);
    }

    /// When `handle_timeout` next has work.
    pub fn poll_timeout(&self) -> Option<i64> {
        self.sorter.poll_timeout()
    }

    /// Who is listened to.
    pub fn sender(&self) -> Option<SocketAddr> {
        self.sender.map(|sender| sender.from)
    }

    /// Whether he was heard lately.
    pub(super) fn is_heard(&self, now_ns: i64) -> bool {
        let timeout_ns = super::ns(SOURCE_TIMEOUT);
        self.sender.is_some_and(|sender| now_ns.saturating_sub(sender.heard_ns) <= timeout_ns)
    }

    pub(super) fn counts(&self) -> Counts {
        self.sorter.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn one_sender_is_heard_until_he_was_silent_for_a_while() {
        let [one, two]: [SocketAddr; 2] = ["192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap()];
        let mut receiver = Receiver::new(None, SECOND);
        let datagram = Datagram::parse(&[SYNC_BYTE; 188]);
        assert_eq!(receiver.hear(0, one, &datagram), Heard::Known);
        assert_eq!(receiver.hear(SECOND, two, &datagram), Heard::Foreign);
        assert_eq!(receiver.hear(SECOND + 1, two, &datagram), Heard::Another);
        assert_eq!(receiver.hear(SECOND + 2, one, &datagram), Heard::Foreign);
        let mut choosy = Receiver::new(Some(two.ip()), SECOND);
        assert_eq!((choosy.hear(0, one, &datagram), choosy.hear(0, two, &datagram)), (Heard::Foreign, Heard::Known));
    }
}
