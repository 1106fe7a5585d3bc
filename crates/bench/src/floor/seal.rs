//! SRTP alone: payloads that lie in memory are sealed into datagrams, as `rooms` does it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use srtp::{Profile, Sealer, SessionKeys};

use super::on_own_thread;
use crate::comparison::Sample;

/// A fixed RTP header and one block of extensions.
const HEADER_BYTES: usize = 24;

/// Datagrams that are written in turn, as into an outbox, and payloads that they come from.
const DATAGRAMS: usize = 128;
const PAYLOADS: usize = 8;

const SSRC: u32 = 1;

/// Seals datagrams of `len` bytes, tag included.
pub(super) fn seal(profile: Profile, len: usize, time: Duration) -> Result<Sample> {
    let (_, keys) = SessionKeys::made_up_pair(profile, 1);
    let sealer = Sealer::new(&keys).context("make a key")?;
    let payload_len = len - HEADER_BYTES - profile.rtp_overhead();
    let payloads: Vec<u8> = (0..PAYLOADS * payload_len).map(|i| (i * 7) as u8).collect();
    let mut datagrams = vec![0xa5; DATAGRAMS * len];
    on_own_thread(move || {
        // Extended numbers begin here.
        let mut seq = 1 << 16;
        let start = Instant::now();
        loop {
            let payloads = payloads.chunks_exact(payload_len).cycle();
            for (datagram, payload) in datagrams.chunks_exact_mut(len).zip(payloads) {
                black_box(sealer.seal_rtp_from(datagram, HEADER_BYTES, payload, SSRC, seq));
                seq += 1;
            }
            black_box(&mut datagrams);
            if start.elapsed() >= time {
                break;
            }
        }
        Ok(seq - (1 << 16))
    })
}
