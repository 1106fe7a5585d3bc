//! The source of a live input: sends a stream of constant rate to where a server listens, each datagram when it is due.
//!
//! In: a place, a rate, how long. Out: datagrams of seven packets, plain or in RTP; and the bytes, to compare with. Its
//! counters go on from beginning to end, so what is missing later was lost on the way.
//! Cost: the stream is in memory; a thread that sleeps from datagram to datagram.
//! Source: RFC 2250 §2 (RTP).

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use pump::sample::Sample;
use wire::ts::{DATAGRAM_LEN, RTP_CLOCK_HZ, write_rtp_header};
use wire::{Bitrate, Seq};

use crate::clients::{Background, sleep_until};

/// Bytes of a stream at most: it is made before it is sent.
const STREAM_BYTES_MAX: u128 = 1 << 30;

/// Pictures a second of what is made.
const PICTURES: u64 = 25;

/// Room for an RTP header, of which no more than the fixed part is used.
const HEADER_MAX: usize = 16;

/// Where a server listens for a live input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub addr: SocketAddrV4,
    pub is_rtp: bool,
}

impl Input {
    /// Reads udp:// or rtp:// with an address and a port.
    pub(super) fn parse(text: &str) -> Result<Input, String> {
        let (is_rtp, addr) = match text.split_once("://") {
            Some(("udp", addr)) => (false, addr),
            Some(("rtp", addr)) => (true, addr),
            _ => return Err("udp:// or rtp://, with an IPv4 address and a port".to_owned()),
        };
        let addr = addr.trim_start_matches('@').parse().map_err(|_| "an IPv4 address and a port".to_owned())?;
        Ok(Input { addr, is_rtp })
    }
}

/// A stream that is being sent. It ends when this is dropped.
pub(super) struct Feed {
    /// All that is sent in the end.
    pub(super) stream: Arc<Vec<u8>>,
    _thread: Background,
}

impl Feed {
    /// Begins to send; the stream lasts for `span`.
    pub(super) fn start(to: Input, rate: Bitrate, span: Duration) -> Result<Feed> {
        let bytes = u128::from(rate.bps()) * span.as_millis() / 8_000;
        ensure!(bytes <= STREAM_BYTES_MAX, "a live input of {} s at {rate} is more than 1 GiB", span.as_secs());
        let pictures = (span.as_secs() * PICTURES) as u32;
        let stream = Arc::new(Sample { rate, pictures, ..Sample::default() }.make());
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("open a socket")?;
        let bytes = Arc::clone(&stream);
        let thread = Background::start("feed", move |is_over| send(&socket, to, rate, &bytes, is_over))?;
        Ok(Feed { stream, _thread: thread })
    }
}

fn send(socket: &UdpSocket, to: Input, rate: Bitrate, stream: &[u8], is_over: &AtomicBool) {
    let start = Instant::now();
    let mut buf = [0; HEADER_MAX + DATAGRAM_LEN];
    for (count, packets) in stream.chunks(DATAGRAM_LEN).enumerate() {
        let due = rate.time_for(DATAGRAM_LEN * count);
        sleep_until(start + due);
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let timestamp = (due.as_micros() * u128::from(RTP_CLOCK_HZ) / 1_000_000) as u32;
        let header = to.is_rtp.then(|| write_rtp_header(&mut buf, Seq(count as u16), timestamp, 1, false)).flatten();
        let header_len = header.unwrap_or(0);
        let len = header_len + packets.len();
        buf[header_len..len].copy_from_slice(packets);
        // The server may not listen yet, or any more; it shows in what arrives.
        let _ = socket.send_to(&buf[..len], to.addr);
    }
}

#[cfg(test)]
mod tests {
    use wire::ts::datagram_packets;

    use super::*;

    #[test]
    fn what_is_sent_is_the_stream_in_its_order_and_at_its_pace() {
        for scheme in ["udp", "rtp"] {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let to = Input::parse(&format!("{scheme}://{}", socket.local_addr().unwrap())).unwrap();
            let (start, rate) = (Instant::now(), Bitrate::from_kbps(2_000));
            let feed = Feed::start(to, rate, Duration::from_secs(20)).unwrap();
            let mut received = Vec::new();
            for count in 0..100 {
                let mut buf = [0; 2_000];
                let len = socket.recv(&mut buf).unwrap();
                let (header, packets) = datagram_packets(&buf[..len]).unwrap();
                assert_eq!(header.map(|header| header.seq), to.is_rtp.then_some(Seq(count)));
                received.extend_from_slice(packets.as_flattened());
            }
            assert!(start.elapsed() >= rate.time_for(99 * DATAGRAM_LEN));
            assert!(feed.stream.starts_with(&received), "{scheme}");
        }
    }

    #[test]
    fn an_input_is_an_address_and_a_stream_has_a_size() {
        assert_eq!(Input::parse("rtp://@239.1.1.1:5004").unwrap().addr.to_string(), "239.1.1.1:5004");
        for text in ["127.0.0.1:5000", "http://127.0.0.1:5000", "udp://localhost:5000", "udp://127.0.0.1"] {
            assert!(Input::parse(text).is_err(), "{text}");
        }
        let to = Input::parse("udp://127.0.0.1:9").unwrap();
        assert!(Feed::start(to, Bitrate::from_kbps(100_000), Duration::from_secs(3_600)).is_err());
    }
}
