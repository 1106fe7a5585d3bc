//! Limits of streams and sessions.

use std::time::Duration;

/// What an operator may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A stream whose publisher does not come back within this is closed.
    pub reconnect_grace: Duration,
    /// Sessions of one worker; newcomers go to others. One place in sixteen is for publishers.
    pub sessions_max: usize,
    /// Offers of one client, by its address, that wait for it to connect, and a quarter as many by its token's subject; further
    /// ones are refused. Publishers and viewers are counted apart.
    pub waiting_per_client: usize,
    /// Sessions of one client, by its address or its token's subject; further ones are refused. Publishers and viewers are
    /// counted apart.
    ///
    /// The default is what the largest schools and offices behind one address may have, and a tenth of a worker's sessions.
    pub sessions_per_client: usize,
    /// Sessions of one token without a subject, which may be one for a whole audience; further ones are refused.
    ///
    /// The default is half of a worker's sessions.
    pub sessions_per_token: usize,
    /// Viewers of one stream; further ones are refused.
    pub viewers_per_stream: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            reconnect_grace: Duration::from_secs(10),
            sessions_max: 20_000,
            waiting_per_client: 1_000,
            sessions_per_client: 2_000,
            sessions_per_token: 10_000,
            viewers_per_stream: 1_000_000,
        }
    }
}
