//! Receiving datagrams that lie ready in a socket's buffer.
//!
//! One thread fills the socket, then the measured one empties it, in turn, so that the calls are always full. On
//! loopback the kernel joins what was sent as one: with GRO a message is as many datagrams as the sender's was.

use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use engine::sys::{Outgoing, Payload, SendBatch};
use engine::udp::{Options, recv_batch};
use wire::{LinkId, Path};

use super::on_own_thread;
use crate::comparison::Sample;
use crate::sinks::bind_loopback;

/// Datagrams of one turn: the handing over costs little for each, and they do not wait long in memory.
const DATAGRAMS_PER_TURN: usize = 1_024;

/// What a datagram in the buffer costs in the kernel's bookkeeping, at most.
const BUFFER_BYTES_PER_DATAGRAM: usize = 4_096;

/// `recvmmsg` of datagrams of `len` bytes; with `joined`, the kernel joins so many.
pub(super) fn batched(len: usize, joined: Option<usize>, time: Duration) -> Result<Sample> {
    let options = Options { gso: joined.is_some(), gro: joined.is_some(), ..Options::default() };
    let (sender, receiver) = (bind_loopback(&options)?, bind_loopback(&options)?);
    let per_turn = DATAGRAMS_PER_TURN.min(receiver.receive_buffer_bytes() / BUFFER_BYTES_PER_DATAGRAM);
    ensure!(per_turn > 0, "a receive buffer of {} bytes is too small", receiver.receive_buffer_bytes());
    let mut batch = recv_batch(joined.is_some());
    let (filled_tx, filled_rx) = mpsc::sync_channel::<()>(1);
    let (emptied_tx, emptied_rx) = mpsc::sync_channel::<()>(1);

    thread::scope(|scope| {
        let target = receiver.local_addr();
        scope.spawn(move || {
            // A send for each message, so that messages have the size that was asked for.
            let path = Path { link: LinkId::datagrams(0), remote: target, local: None };
            let (segments, segment_bytes) = (joined.unwrap_or(1), joined.map(|_| len as u16));
            let (mut sends, bytes) = (SendBatch::default(), vec![0xa5; len * segments]);
            let start = Instant::now();
            loop {
                for _ in 0..per_turn / segments {
                    let message = Outgoing { path: &path, data: Payload::Whole(&bytes), segment_bytes };
                    // What the kernel does not take is not missed: what arrives is counted.
                    sends.send(sender.as_fd(), std::iter::once(message)).ok();
                }
                if filled_tx.send(()).is_err() || emptied_rx.recv().is_err() {
                    return;
                }
                if start.elapsed() >= time {
                    break;
                }
            }
        });
        on_own_thread(move || {
            let (mut datagrams, mut messages) = (0, 0);
            while filled_rx.recv().is_ok() {
                loop {
                    let count = batch.fill(&receiver).context("receive on 127.0.0.1")?;
                    messages += count;
                    let count_of = |index| batch.message(index).map(|message| message.datagram_count());
                    datagrams += (0..count).filter_map(count_of).sum::<usize>();
                    let may_have_more = batch.is_full();
                    batch.clear();
                    if !may_have_more {
                        break;
                    }
                }
                emptied_tx.send(()).ok();
            }
            ensure!(datagrams > 0, "no datagram arrived on 127.0.0.1");
            ensure!(joined.is_none() || messages < datagrams, "the kernel has UDP_GRO, but joined nothing");
            Ok(datagrams as u64)
        })
    })
}
