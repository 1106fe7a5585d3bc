//! What holds for all rooms, and what time it is.

use std::time::{Duration, Instant};

use crate::token::Keys;

/// What time it is, as the caller has it: nobody in here asks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// On a clock that only goes forward.
    pub at: Instant,
    /// Since 1970.
    pub unix: Duration,
}

/// What the operator says of all rooms.
pub struct Config {
    /// Who may sign tokens.
    pub keys: Keys,
    /// The server's version, which clients want to know.
    pub version: String,
    /// The machine's name, for clients and webhooks.
    pub node: String,
    /// Where it is; may be empty.
    pub region: String,
    /// Whether who joins a room opens it, when it is not there.
    pub auto_create: bool,
    /// How long a room that nobody has joined stays open.
    pub empty_timeout: Duration,
    /// How long a room that everybody has left stays open.
    pub departure_timeout: Duration,
    /// Participants per room; 0 is as many as are possible.
    pub participants_max: u32,
    /// Whether an admin may unmute somebody's track.
    pub remote_unmute: bool,
    /// From so many participants on, those who may not publish are not told of to others; 0 is never.
    pub livestream_from: usize,
    /// So many microphones of a room are heard at a time, the loudest; 0 is all.
    pub loudest: usize,
    /// Codecs that may be published, as "video/VP8", the preferred first.
    pub codecs: Vec<String>,
    /// From which the server's names are made; another one in each process.
    pub seed: u64,
}
