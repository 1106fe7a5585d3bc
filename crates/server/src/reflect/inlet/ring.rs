//! The memory of a stream: a file that is nowhere on disk, in which each byte stands at its own place, and what is given back of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Instant;

use reflect::backlog::{Backlog, Full};
use reflect::moved::BacklogState;
use reflect::window::Units;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use crate::reflect::hls::Hls;

#[derive(Debug)]
pub(super) struct Ring {
    pub(super) file: Arc<File>,
    pub(super) backlog: Backlog,
    /// Memory that could not be given back was told of.
    is_told: bool,
}

impl Ring {
    pub(super) fn new(size: u64) -> io::Result<Self> {
        let file = File::from(memfd_create("millrace-stream", MemfdFlags::CLOEXEC)?);
        Ok(Ring { file: Arc::new(file), backlog: Backlog::new(size, Units::Marked), is_told: false })
    }

    /// The memory of a stream that comes from another process.
    pub(super) fn take_up(now: Instant, file: Arc<File>, state: BacklogState) -> io::Result<Self> {
        let backlog = Backlog::restore(now, state).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ring { file, backlog, is_told: false })
    }

    /// Writes bytes at the end; nobody is told. Nothing was taken unless all were.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.backlog.end())?;
        // Whoever calls has looked whether there is room.
        self.backlog.append(bytes).map(drop).map_err(|Full { .. }| io::ErrorKind::StorageFull.into())
    }

    /// Gives back what nobody is at any more.
    pub(super) fn punch(&mut self, hls: Option<&Arc<Hls>>) {
        while let Some(hole) = self.backlog.take_hole() {
            if let Some(hls) = hls {
                hls.tell(|playlist| playlist.forget(hole.end));
            }
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if let Err(error) = fallocate(&self.file, mode, hole.start, hole.end - hole.start)
                && !std::mem::replace(&mut self.is_told, true)
            {
                tracing::error!(%error, "memory of a stream cannot be given back");
            }
        }
    }
}
