//! What a thread can ask for itself: a core, a priority, exact timers; and what others may know of it: its CPU time.

use std::io;
use std::mem;
use std::time::Duration;

use super::check;

/// The kernel's number for the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

/// CPU time that a thread of this process has used, user and kernel together; `None` when there is no such thread.
pub fn thread_cpu_time(thread_id: i32) -> Option<Duration> {
    // A thread's CPU clock has the complement of its id in the upper bits, and 6 below: per thread, scheduler time
    // (MAKE_THREAD_CPUCLOCK in the kernel's posix-timers.h, and what pthread_getcpuclockid computes).
    let clock = (!thread_id << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec; it checks the clock id.
    check(unsafe { libc::clock_gettime(clock, &mut time) }).ok()?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Sets the priority of the calling thread: 19 is the most modest, below 0 needs a privilege (setpriority(2)).
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: no pointer is passed. On Linux the process number of this call names a thread, 0 the calling one.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

/// Keeps the calling thread on core `cpu`, counted from zero.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such core"));
    }
    // SAFETY: a CPU set is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the core's number was checked against the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads as many bytes as the set has.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) }).map(drop)
}

/// By how much the kernel may delay the calling thread's timers to join them with others; 50 µs unless it is set.
pub fn set_timer_slack(slack: Duration) -> io::Result<()> {
    let slack_ns = libc::c_ulong::try_from(slack.as_nanos()).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: no pointer is passed.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns.max(1)) }).map(drop)
}

/// How many files the process may have open.
pub fn open_files_max() -> io::Result<u64> {
    open_files_limit().map(|limit| limit.rlim_cur)
}

fn open_files_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(limit)
}

/// Raises the limit of open files as far as the process may, and returns what it is then.
pub fn raise_open_files_max() -> io::Result<u64> {
    let mut limit = open_files_limit()?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the kernel reads one rlimit.
        check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, TryRecvError};
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_works_is_seen_working_from_outside() {
        let (tell, told) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::sync_channel::<()>(1);
        let worker = thread::spawn(move || {
            tell.send(thread_id()).expect("the test listens");
            while ended.try_recv() == Err(TryRecvError::Empty) {
                std::hint::spin_loop();
            }
        });
        let tid = told.recv().expect("the thread tells");

        let start = Instant::now();
        while thread_cpu_time(tid).is_none_or(|used| used < Duration::from_micros(500)) {
            assert!(start.elapsed() < Duration::from_secs(40), "it works");
            thread::sleep(Duration::from_millis(1));
        }
        drop(end);
        worker.join().expect("no panic");
    }

    #[test]
    fn a_thread_that_is_not_there_has_no_cpu_time() {
        assert_eq!(thread_cpu_time(0x0fff_ffff), None);
    }

    #[test]
    fn what_a_thread_asks_for_itself_is_granted() {
        thread::spawn(|| {
            set_nice(5).expect("more modest is always allowed");
            set_timer_slack(Duration::from_nanos(1)).expect("slack");
            assert!(pin_to_cpu(usize::MAX).is_err());
            assert!(raise_open_files_max().expect("limit") > 0);
        })
        .join()
        .expect("no panic");
    }
}
