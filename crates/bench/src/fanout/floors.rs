//! The floors below all ways: each thread goes through its down tracks again and again, and does one part of the work only.

use std::time::Instant;

use anyhow::Result;
use wire::DATAGRAM_MAX;

use super::ours::Sender;
use super::schedulers::Bench;
use super::work::{Frame, Track};
use crate::comparison::{Sample, on_threads, spending};

/// Sends ready-made bytes, as many and as large as ours does.
pub(super) fn send(bench: &Bench<'_>, tracks: &[Track]) -> Result<Sample> {
    let senders = bench.shares(tracks).map(|tracks| {
        let mut sender = Sender::new(bench, true)?;
        // Touches every byte, so that what is sent unwritten does not all come from the kernel's one page of zeros.
        while let Some(slot) = sender.out.slot() {
            slot.fill(0xa5);
            sender.out.commit(&tracks[0].path, DATAGRAM_MAX);
        }
        sender.out.clear();
        Ok((tracks, sender))
    });
    let senders = senders.collect::<Result<Vec<_>>>()?;
    let work = |(tracks, mut sender): (&[Track], Sender)| {
        let start = Instant::now();
        while start.elapsed() < bench.time() {
            for track in tracks {
                for _ in 0..bench.args.burst {
                    if !sender.out.has_room() {
                        sender.flush();
                    }
                    sender.out.commit(&track.path, bench.args.size);
                }
            }
            sender.flush();
        }
        Ok(sender.done())
    };
    spending(|| on_threads(senders, work, || Ok(Sample::default())))
}

/// Seals the frame's payloads and no more, into as many slots as an outbox has.
pub(super) fn seal(bench: &Bench<'_>, frame: &Frame, tracks: &[Track]) -> Result<Sample> {
    let outs = bench.shares(tracks).map(|tracks| (tracks, vec![0; bench.args.outbox_bytes()])).collect();
    let work = |(tracks, mut out): (&[Track], Vec<u8>)| {
        let mut slots = (0..out.len() / DATAGRAM_MAX).cycle();
        let mut sent = 0;
        let start = Instant::now();
        while start.elapsed() < bench.time() {
            for track in tracks {
                for (packet, slot) in (0..frame.packet_count()).zip(&mut slots) {
                    track.seal(frame, packet, &mut out[slot * DATAGRAM_MAX..][..DATAGRAM_MAX]);
                    sent += 1;
                }
            }
        }
        Ok(Sample { sent, ..Sample::default() })
    };
    spending(|| on_threads(outs, work, || Ok(Sample::default())))
}
