//! sendfile from a file in memory to a TCP connection on loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::sendfile::sendfile64;

use super::on_own_thread;
use crate::comparison::Sample;

/// Bytes of one TCP segment on Ethernet, with timestamps: what the costs are counted by.
pub(super) const SEGMENT_BYTES: usize = 1_448;

/// Bytes of one call.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// The file is sent again and again.
const FILE_PIECES: usize = 16;

/// The reader takes as much as it can, so as to be out of the way.
const READ_BYTES: usize = 1 << 20;

/// The sender's cost alone: somebody else reads.
pub(super) fn to_tcp(time: Duration) -> Result<Sample> {
    let file = memfd_create("millrace-floor", MFdFlags::MFD_CLOEXEC).context("make a file in memory")?;
    let mut file = std::fs::File::from(file);
    file.write_all(&vec![0xa5; FILE_PIECES * PIECE_BYTES]).context("fill a file in memory")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on 127.0.0.1")?;
    let sender = TcpStream::connect(listener.local_addr()?).context("connect on 127.0.0.1")?;
    let (mut reader, _) = listener.accept().context("accept on 127.0.0.1")?;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut buf = vec![0; READ_BYTES];
            while reader.read(&mut buf).is_ok_and(|count| count > 0) {}
        });
        // The connection ends with the work, and the reader with it.
        on_own_thread(move || {
            let mut bytes = 0;
            let start = Instant::now();
            loop {
                for piece in 0..FILE_PIECES {
                    let mut offset = (piece * PIECE_BYTES) as i64;
                    bytes += sendfile64(&sender, &file, Some(&mut offset), PIECE_BYTES).context("sendfile")?;
                }
                if start.elapsed() >= time {
                    break;
                }
            }
            Ok((bytes / SEGMENT_BYTES) as u64)
        })
    })
}
