//! How long RTSP waits, and how many of everything there may be.

use std::time::Duration;

/// What RTSP's connections and sessions may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at most; newcomers are refused.
    pub sessions_max: usize,
    /// Sessions of one client's address at most; newcomers over that are refused.
    pub sessions_per_client: usize,
    /// A session without a request or receiver report for this long ends (§12.37), but for one that plays in a connection. A
    /// connection without sessions on which nothing comes for twice as long is closed.
    pub session_timeout: Duration,
    /// How long a player that said goodbye may take to end its session.
    pub goodbye_timeout: Duration,
    /// Connections at a time; when there are so many, the oldest without a session makes room for a newcomer, of the client that
    /// has most of these. Where there is none, newcomers wait in the kernel's backlog.
    pub connections_max: usize,
    /// Connections of one address at a time; further ones are closed.
    pub connections_per_client: usize,
    /// Requests of one client's address that look something up in a title (DESCRIBE, SETUP, PLAY) at a time; others are refused.
    pub lookups_per_client: usize,
    /// How long a request may take to arrive, and how long a connection may be silent that has not set up a session.
    pub request_timeout: Duration,
    /// A client that takes nothing of what waits for it for so long is gone.
    pub write_timeout: Duration,
    /// The first report of a stream comes so soon, as some players wait for it before they show anything.
    pub first_report: Duration,
    /// Those behind it follow each other at this distance and up to half as much again (RFC 3550 §6.2).
    pub report_interval: Duration,
    /// From the last packet of a title to the goodbye, which must not overtake it.
    pub goodbye_linger: Duration,
    /// How often sessions are looked at that may be due.
    pub tick: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            sessions_max: 50_000,
            sessions_per_client: 100,
            session_timeout: Duration::from_secs(60),
            goodbye_timeout: Duration::from_secs(5),
            connections_max: 10_000,
            connections_per_client: 1_000,
            lookups_per_client: 32,
            request_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(10),
            first_report: Duration::from_millis(500),
            report_interval: Duration::from_secs(4),
            goodbye_linger: Duration::from_millis(500),
            tick: Duration::from_millis(500),
        }
    }
}

impl Limits {
    /// A connection on which nothing comes for so long is closed. Those of its sessions that do not play have timed out by then.
    pub(super) fn idle_timeout(&self, has_session: bool) -> Duration {
        if has_session { self.session_timeout * 2 } else { self.request_timeout }
    }
}
