//! Waiting for descriptors: epoll(7) for many, ppoll(2) for one.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::check;

/// What to be woken for, beside errors, which are reported in any case. Both are level-triggered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Something to be read, or the end of it.
    pub read: bool,
    /// Room to write.
    pub write: bool,
}

impl Interest {
    /// Errors alone.
    pub const NOTHING: Interest = Interest { read: false, write: false };
    /// Input alone.
    pub const READ: Interest = Interest { read: true, write: false };

    fn events(self) -> u32 {
        let read = if self.read { libc::EPOLLIN } else { 0 };
        let write = if self.write { libc::EPOLLOUT } else { 0 };
        (read | write) as u32
    }
}

/// A descriptor that is ready, by the token under which it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// What the descriptor was added with.
    pub token: u64,
    /// There is something to be read, or the end.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// An error waits. It is reported whatever the interest.
    pub failed: bool,
}

/// A set of descriptors and room for what one wait reports; more stays ready for the next wait.
pub struct Epoll {
    fd: OwnedFd,
    events: Box<[libc::epoll_event]>,
    ready: usize,
    /// `epoll_pwait2` (Linux 5.11) is there; without it, timeouts are rounded up to milliseconds.
    has_pwait2: bool,
}

impl Epoll {
    /// An empty set, of which one wait reports `events_max` descriptors at most.
    pub fn new(events_max: usize) -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call succeeded, so the descriptor is open, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; events_max.max(1)].into();
        Ok(Epoll { fd, events, ready: 0, has_pwait2: true })
    }

    /// Watches a descriptor, which `Ready` will name by its token.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest.events())
    }

    /// Changes what a descriptor that is watched is watched for.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest.events())
    }

    /// Has a descriptor that is watched tell of input once, and then of nothing before this is asked again.
    pub fn watch_once(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, (libc::EPOLLIN | libc::EPOLLONESHOT) as u32)
    }

    /// Ends the watch of a descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, how: libc::c_int, fd: BorrowedFd<'_>, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: the kernel reads `event` during the call only.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), how, fd.as_raw_fd(), &mut event) }).map(drop)
    }

    /// Waits until a descriptor is ready or `timeout` is over; `None` waits for ever. A signal ends it early.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.ready = 0;
        let result = if self.has_pwait2 { self.pwait2(timeout) } else { self.wait_ms(timeout) };
        match result {
            Ok(ready) => self.ready = ready as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Missing in the kernel, or hidden by a container's system call filter, some of which say EPERM.
            Err(error) if self.has_pwait2 && matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                self.has_pwait2 = false;
                return self.wait(timeout);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// How many descriptors the last wait reported.
    pub fn ready_count(&self) -> usize {
        self.ready
    }

    /// The descriptor that the last wait reported at `index`, if there is one.
    pub fn ready(&self, index: usize) -> Option<Ready> {
        let event = self.events[..self.ready].get(index)?;
        let is_set = |flag: libc::c_int| event.events & flag as u32 != 0;
        let (readable, writable, failed) =
            (is_set(libc::EPOLLIN | libc::EPOLLHUP), is_set(libc::EPOLLOUT), is_set(libc::EPOLLERR));
        Some(Ready { token: event.u64, readable, writable, failed })
    }

    /// Lets timeouts be rounded up to milliseconds, as on kernels before 5.11.
    #[cfg(test)]
    fn without_pwait2(mut self) -> Self {
        self.has_pwait2 = false;
        self
    }

    fn pwait2(&mut self, timeout: Option<Duration>) -> io::Result<libc::c_int> {
        let timeout = timeout.map(timespec);
        let timeout_ptr = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (fd, room) = (self.fd.as_raw_fd(), self.events.len() as libc::c_int);
        // SAFETY: the kernel writes at most `room` events, which is the slice's length, and reads the timeout during
        // the call only. No signal mask is passed, so its size is ignored.
        let ready = unsafe {
            let mask = ptr::null::<libc::sigset_t>();
            libc::syscall(libc::SYS_epoll_pwait2, fd, self.events.as_mut_ptr(), room, timeout_ptr, mask, 0_usize)
        };
        check(ready as libc::c_int)
    }

    fn wait_ms(&mut self, timeout: Option<Duration>) -> io::Result<libc::c_int> {
        let timeout_ms =
            timeout.map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let (fd, room) = (self.fd.as_raw_fd(), self.events.len() as libc::c_int);
        // SAFETY: the kernel writes at most `room` events, which is the slice's length.
        check(unsafe { libc::epoll_wait(fd, self.events.as_mut_ptr(), room, timeout_ms) })
    }
}

/// A set can be watched by another: it is readable while something in it is ready.
impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until `fd` is readable or `timeout` is over, which says false, as a signal does; `None` waits for ever.
pub fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    poll_one(fd, libc::POLLIN, timeout)
}

/// Waits until `fd` is writable or `timeout` is over, which says false, as a signal does; `None` waits for ever.
pub fn wait_writable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    poll_one(fd, libc::POLLOUT, timeout)
}

/// Whether an error of `fd` waits, or both of its directions have ended.
pub fn is_broken(fd: BorrowedFd<'_>) -> bool {
    poll_one(fd, 0, Some(Duration::ZERO)).unwrap_or(true)
}

fn poll_one(fd: BorrowedFd<'_>, events: libc::c_short, timeout: Option<Duration>) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let timeout = timeout.map(timespec);
    let timeout_ptr = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: one entry is named and one is there; the kernel uses all pointers during the call only.
    let ready = check(unsafe { libc::ppoll(&mut entry, 1, timeout_ptr, ptr::null()) });
    match ready {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

fn timespec(span: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: span.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;
    use crate::sys::EventFd;

    #[test]
    fn both_ways_of_waiting_last_at_least_as_long_as_asked_and_report_what_is_ready() {
        let new = || Epoll::new(4).expect("epoll");
        for mut epoll in [new(), new().without_pwait2()] {
            let event = EventFd::new().expect("eventfd");
            epoll.add(event.as_fd(), 7, Interest::READ).expect("add");

            let asked = Duration::from_micros(1_500);
            let start = Instant::now();
            epoll.wait(Some(asked)).expect("wait");
            assert!(start.elapsed() >= asked);
            assert_eq!(epoll.ready(0), None);

            event.signal();
            epoll.wait(None).expect("wait");
            assert_eq!(epoll.ready(0), Some(Ready { token: 7, readable: true, writable: false, failed: false }));
            event.clear();
            epoll.wait(Some(Duration::ZERO)).expect("wait");
            assert_eq!(epoll.ready_count(), 0);
        }
    }
}
