//! Sending ready-made datagrams: one by one, many per call, and several as one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::sys::{self, Outgoing, Payload, SendBatch};
use engine::udp::{Options, UdpSocket};
use wire::{LinkId, Path};

use super::{Outcome, on_own_thread};
use crate::comparison::Sample;

/// Datagrams in one call, and so the number that lie ready: about what a worker's outbox holds.
const DATAGRAMS_PER_CALL: usize = 128;

/// For how long one send waits for a full queue.
const STALL_MAX: Duration = Duration::from_millis(2);

/// Where a sender is bound: on loopback for targets there, otherwise wherever the route leads.
fn sender_addr(targets: &[SocketAddr]) -> SocketAddr {
    let ip = if targets[0].ip().is_loopback() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    (ip, 0).into()
}

fn nothing_passed(targets: &[SocketAddr], error: Option<io::Error>) -> anyhow::Error {
    let error = error.unwrap_or_else(|| io::Error::other("no datagram was taken"));
    anyhow::Error::new(error).context(format!("send to {}", targets[0]))
}

/// The datagrams of one call, each byte written once, so that they are not all the kernel's one page of zeros.
fn datagrams(len: usize) -> Vec<u8> {
    (0..DATAGRAMS_PER_CALL * len).map(|i| (i * 7) as u8).collect()
}

/// One `sendto` per datagram.
pub(super) fn one_by_one(targets: &[SocketAddr], len: usize, time: Duration) -> Result<Sample> {
    let socket = std::net::UdpSocket::bind(sender_addr(targets)).context("bind a sending socket")?;
    let bytes = datagrams(len);
    let mut addrs = targets.iter().cycle();
    on_own_thread(move || {
        let (mut sent, mut refused) = (0_u64, None);
        let start = Instant::now();
        loop {
            for (datagram, addr) in bytes.chunks_exact(len).zip(&mut addrs) {
                match socket.send_to(datagram, addr) {
                    Ok(_) => sent += 1,
                    Err(error) => refused = Some(error),
                }
            }
            if start.elapsed() >= time {
                break;
            }
        }
        anyhow::ensure!(sent > 0, nothing_passed(targets, refused));
        Ok(sent)
    })
}

/// Many datagrams per call; with `segments`, so many to a message.
pub(super) fn batched(targets: &[SocketAddr], len: usize, segments: Option<usize>, time: Duration) -> Result<Outcome> {
    let socket = UdpSocket::bind(sender_addr(targets), &Options::default()).context("bind a sending socket")?;
    let message_len = len * segments.unwrap_or(1);
    // What does not fit one datagram of IP is no message.
    if message_len > usize::from(u16::MAX) - 28 {
        return Ok(Err("more than 64 KB in one message"));
    }
    let bytes = datagrams(len);
    let segment_bytes = segments.map(|_| len as u16);
    let mut batch = SendBatch::default();
    let paths = targets.iter().map(|&remote| Path { link: LinkId::datagrams(0), remote, local: None });
    let mut paths = paths.cycle();
    let mut gso_refused = false;
    let sample = on_own_thread(|| {
        let (mut sent, mut refused) = (0_u64, None);
        let start = Instant::now();
        loop {
            let call: Vec<Path> = paths.by_ref().take(bytes.len() / message_len).collect();
            let messages = bytes.chunks_exact(message_len).zip(&call);
            let messages = messages.map(|(data, path)| Outgoing { path, data: Payload::Whole(data), segment_bytes });
            match batch.send(socket.as_fd(), messages) {
                // What was not taken is not sent again: it is made up anyway.
                Ok(count) => sent += (count * segments.unwrap_or(1)) as u64,
                Err(error) => {
                    gso_refused = is_refusal_of_gso(&error, segments);
                    sys::wait_writable(socket.as_fd(), Some(STALL_MAX)).ok();
                    refused = Some(error);
                }
            }
            if start.elapsed() >= time || gso_refused {
                break;
            }
        }
        anyhow::ensure!(sent > 0 || gso_refused, nothing_passed(targets, refused));
        Ok(sent)
    })?;
    Ok(if gso_refused { Err("the kernel refuses to split a send here") } else { Ok(sample) })
}

/// Whether the kernel or the network card cannot split: EIO for the card, EINVAL for the kernel.
fn is_refusal_of_gso(error: &io::Error, segments: Option<usize>) -> bool {
    use nix::errno::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw);
    segments.is_some() && matches!(errno, Some(Errno::EIO | Errno::EINVAL))
}
