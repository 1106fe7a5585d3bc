//! What whoever watches over the service is told: systemd, or what speaks as it does (sd_notify(3)).
//!
//! Nobody is told anything without `NOTIFY_SOCKET`.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// That it is there, or has read again what changes while it runs; and how it is, in a line for `systemctl status`.
pub(crate) fn tell_ready(status: &str) {
    tell(&format!("READY=1\nSTATUS={}\n", status.replace('\n', " ")));
}

/// That it reads its settings again, until it is ready again.
pub(crate) fn tell_reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}\n", now.tv_sec * 1_000_000 + now.tv_nsec / 1_000));
}

/// That it takes nobody new, and ends.
pub(crate) fn tell_stopping() {
    tell("STOPPING=1\n");
}

/// That another process is it from now on. How that one is this one does not know.
pub(crate) fn tell_main_process(id: u32) {
    tell(&format!("MAINPID={id}\nREADY=1\nSTATUS=\n"));
}

/// Tells that it works, as often as is asked for (`WatchdogSec=`); a service that says no more is started anew.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// `None`: nobody asks.
    every: Option<Duration>,
    tell_at: Mutex<Option<Instant>>,
}

impl Watchdog {
    /// As the environment asks: `WATCHDOG_USEC`. `WATCHDOG_PID` says who had it first, and another process may have taken over.
    pub(crate) fn asked_for() -> Self {
        Self::every(std::env::var("WATCHDOG_USEC").ok().as_deref())
    }

    /// Half of what is asked for: what is told may come late.
    fn every(usec: Option<&str>) -> Self {
        let usec = usec.and_then(|usec| usec.parse().ok()).filter(|usec| *usec > 0);
        Watchdog { every: usec.map(|usec| Duration::from_micros(usec) / 2), tell_at: Mutex::new(None) }
    }

    /// The service works now. To be called more often than it is told.
    pub(crate) fn note(&self, now: Instant) {
        if self.is_due(now) {
            tell("WATCHDOG=1\n");
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let Some(every) = self.every else { return false };
        let mut tell_at = self.tell_at.lock().expect("nobody panics under this lock");
        let is_due = tell_at.is_none_or(|at| now >= at);
        if is_due {
            *tell_at = Some(now + every);
        }
        is_due
    }
}

fn tell(text: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(path.as_bytes(), text) {
        tracing::warn!(%error, "NOTIFY_SOCKET");
    }
}

fn send(path: &[u8], text: &str) -> io::Result<()> {
    let addr = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &addr).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_with_a_name_and_one_with_a_path_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).expect("bound");
        let name = format!("millrace-test-{}", std::process::id());
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).expect("a name")).expect("bound");
        let paths = [path.as_os_str().as_bytes().to_vec(), format!("@{name}").into_bytes()];
        for (path, socket) in paths.iter().zip([by_path, by_name]) {
            send(path, "MAINPID=7\n").expect("sent");
            let mut text = [0; 32];
            let len = socket.recv(&mut text).expect("it comes");
            assert_eq!(&text[..len], b"MAINPID=7\n");
        }
    }

    #[test]
    fn it_is_told_twice_as_often_as_is_asked_for_and_never_where_nobody_asks() {
        let start = Instant::now();
        let told = |usec: Option<&str>| {
            let watchdog = Watchdog::every(usec);
            (0..100).filter(|tick| watchdog.is_due(start + Duration::from_millis(100 * tick))).count()
        };
        assert_eq!(told(Some("2000000")), 10);
        assert_eq!([told(None), told(Some("0")), told(Some("often"))], [0; 3]);
    }
}
