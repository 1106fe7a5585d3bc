//! Sending ready-made datagrams: one by one, many per call, and several as one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::sys::{self, Outgoing, SendBatch};
use engine::udp::{Options, UdpSocket};
use wire::{LinkId, Path};

use super::clock::{Sample, on_own_thread};
use super::{Outcome, bind_loopback};

/// Sockets that are sent to in turn, as a server has many viewers.
const SINKS: usize = 64;

/// The smallest buffer that the kernel gives (it raises this to its minimum): a packet or two.
const SINK_BUFFER_BYTES: usize = 1;

/// Datagrams in one call, and so the number that lie ready: about what a worker's outbox holds.
const DATAGRAMS_PER_CALL: usize = 128;

/// For how long one send waits for a full queue.
const STALL_MAX: Duration = Duration::from_millis(2);

/// Where datagrams end.
pub(super) struct Sinks {
    /// Kept open, so that nobody is told that the port is closed.
    _sockets: Vec<UdpSocket>,
    addrs: Vec<SocketAddr>,
}

impl Sinks {
    /// Sockets on loopback that nobody reads.
    pub(super) fn bind() -> Result<Self> {
        let options = Options { gso: false, gro: false, receive_buffer_bytes: SINK_BUFFER_BYTES, ..Options::default() };
        let sockets: Vec<UdpSocket> = (0..SINKS).map(|_| bind_loopback(&options)).collect::<Result<_>>()?;
        let addrs = sockets.iter().map(UdpSocket::local_addr).collect();
        Ok(Sinks { _sockets: sockets, addrs })
    }

    /// One address, whatever is there.
    pub(super) fn elsewhere(addr: SocketAddr) -> Self {
        Sinks { _sockets: Vec::new(), addrs: vec![addr] }
    }

    fn paths(&self) -> impl Iterator<Item = Path> + Clone {
        self.addrs.iter().map(|&remote| Path { link: LinkId(0), remote, local: None }).cycle()
    }

    /// Binds a sender: on loopback for our own sinks, otherwise wherever the route leads.
    fn sender_addr(&self) -> SocketAddr {
        let ip = if self._sockets.is_empty() { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        (ip, 0).into()
    }

    fn nothing_passed(&self, error: Option<io::Error>) -> anyhow::Error {
        let error = error.unwrap_or_else(|| io::Error::other("no datagram was taken"));
        anyhow::Error::new(error).context(format!("send to {}", self.addrs[0]))
    }
}

/// The datagrams of one call, each byte written once, so that they are not all the kernel's one page of zeros.
fn datagrams(len: usize) -> Vec<u8> {
    (0..DATAGRAMS_PER_CALL * len).map(|i| (i * 7) as u8).collect()
}

/// One `sendto` per datagram.
pub(super) fn one_by_one(sinks: &Sinks, len: usize, time: Duration) -> Result<Sample> {
    let socket = std::net::UdpSocket::bind(sinks.sender_addr()).context("bind a sending socket")?;
    let bytes = datagrams(len);
    let mut addrs = sinks.addrs.iter().cycle();
    on_own_thread(move || {
        let (mut sent, mut refused) = (0_u64, None);
        let start = Instant::now();
        while start.elapsed() < time {
            for (datagram, addr) in bytes.chunks_exact(len).zip(&mut addrs) {
                match socket.send_to(datagram, addr) {
                    Ok(_) => sent += 1,
                    Err(error) => refused = Some(error),
                }
            }
        }
        anyhow::ensure!(sent > 0, sinks.nothing_passed(refused));
        Ok(sent as f64)
    })
}

/// Many datagrams per call; with `segments`, so many to a message.
pub(super) fn batched(sinks: &Sinks, len: usize, segments: Option<usize>, time: Duration) -> Result<Outcome> {
    let socket = UdpSocket::bind(sinks.sender_addr(), &Options::default()).context("bind a sending socket")?;
    let message_len = len * segments.unwrap_or(1);
    // What does not fit one datagram of IP is no message.
    if message_len > usize::from(u16::MAX) - 28 {
        return Ok(Outcome::Absent("more than 64 KB in one message"));
    }
    let bytes = datagrams(len);
    let segment_bytes = segments.map(|_| len as u16);
    let mut batch = SendBatch::new();
    let mut paths = sinks.paths();
    let mut gso_refused = false;
    let sample = on_own_thread(|| {
        let (mut sent, mut refused) = (0_u64, None);
        let start = Instant::now();
        while start.elapsed() < time && !gso_refused {
            let call: Vec<Path> = paths.by_ref().take(bytes.len() / message_len).collect();
            let messages = bytes.chunks_exact(message_len).zip(&call);
            let messages = messages.map(|(data, path)| Outgoing { path, data, segment_bytes });
            match batch.send(socket.as_fd(), messages) {
                // What was not taken is not sent again: it is made up anyway.
                Ok(count) => sent += (count * segments.unwrap_or(1)) as u64,
                Err(error) => {
                    gso_refused = is_refusal_of_gso(&error, segments);
                    sys::wait_writable(socket.as_fd(), Some(STALL_MAX)).ok();
                    refused = Some(error);
                }
            }
        }
        anyhow::ensure!(sent > 0 || gso_refused, sinks.nothing_passed(refused));
        Ok(sent as f64)
    })?;
    if gso_refused {
        return Ok(Outcome::Absent("the kernel refuses to split a send here"));
    }
    Ok(Outcome::Done(sample))
}

/// Whether the kernel or the network card cannot split: EIO for the card, EINVAL for the kernel.
fn is_refusal_of_gso(error: &io::Error, segments: Option<usize>) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    segments.is_some() && matches!(errno, Some(Errno::EIO | Errno::EINVAL))
}
