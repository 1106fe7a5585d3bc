//! A counter in the kernel that wakes who waits for it (eventfd(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// A descriptor that is readable from a `signal` to the next `clear`.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// One that is not readable.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the call succeeded, so the descriptor is open, and nobody else has it.
        Ok(EventFd { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the buffer has the eight bytes that are named. The only possible failure is a counter that is
        // nearly full, and then it is readable already.
        unsafe { libc::write(self.fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the descriptor unreadable until the next `signal`.
    pub fn clear(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: the buffer has the eight bytes that are named. It fails only when there was no signal.
        unsafe { libc::read(self.fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
