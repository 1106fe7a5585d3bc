//! What an operator may choose about titles.

use std::path::PathBuf;
use std::time::Duration;

use pump::title::CHUNK_PACKETS;
use url::Url;
use wire::ts::{DATAGRAM_LEN, DATAGRAM_PACKETS};

/// What an operator may choose. `default()` has no source at all: set `media`, `origins`, or one of the permissions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The watched folder. Titles in it are named by their path from here.
    pub media: Option<PathBuf>,
    /// How often the folder is looked through for `list`. New files can be opened at once.
    pub rescan: Duration,
    /// An absolute path opens that file. For the one who starts the process himself, never for a server.
    pub allow_paths: bool,
    /// Where a title is looked for that is not in the folder, in this order. They are taken for copies of each other: a
    /// title that one cannot deliver goes on from the next, if it is as long there.
    pub origins: Vec<Url>,
    /// `http://…` and `https://…` open whatever is there. Clients can then make the server ask any host that it reaches.
    pub allow_urls: bool,
    /// Certificates (PEM) that are trusted beside the system's, for origins with private ones.
    pub ca_file: Option<PathBuf>,
    /// Bytes of a chunk without what stands between packets: rounded down to whole datagrams of 1,316.
    pub chunk_bytes: usize,
    /// Chunks in memory at most. What sessions hold beyond that is counted (`Stats::held_bytes`).
    pub cache_bytes: usize,
    /// Where chunks from origins are kept on disk. `None`: nowhere.
    pub disk_cache: Option<PathBuf>,
    /// Most that they may take there.
    pub disk_cache_bytes: u64,
    /// Until a connection to an origin is there, with TLS.
    pub connect_timeout: Duration,
    /// Until a response begins, and from each piece of it to the next.
    pub stall_timeout: Duration,
    /// One request from its start to its last byte.
    pub fetch_timeout: Duration,
    /// How often an origin is asked again before the next one is. A 404 is not asked again. What an origin
    /// that died costs until then should not be longer than what sessions have read ahead plays.
    pub retries: u32,
    /// Before the first retry; twice as long before each later one, up to two seconds. Half of it is random.
    pub retry_backoff: Duration,
    /// A title that its origins say is gone, or has changed, is taken to be when they say so for this long.
    pub gone_after: Duration,
    /// Requests to one origin at a time, for parts, and as many to open titles; others wait. Those under way for longer than a second count apart, up to the
    /// same number, so that slow titles do not hold up others. Each takes up to a chunk's memory.
    pub fetches_per_origin: usize,
    /// A title from an origin that was asked about longer ago is asked about again by `open`.
    pub revalidate: Duration,
    /// Titles that are known, as long as so many are played at most. A file that is known is open.
    pub titles_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            media: None,
            rescan: Duration::from_secs(5),
            allow_paths: false,
            origins: Vec::new(),
            allow_urls: false,
            ca_file: None,
            chunk_bytes: CHUNK_PACKETS as usize * 188,
            cache_bytes: 512 << 20,
            disk_cache: None,
            disk_cache_bytes: 10 << 30,
            connect_timeout: Duration::from_secs(1),
            stall_timeout: Duration::from_millis(1_500),
            fetch_timeout: Duration::from_secs(10),
            retries: 1,
            retry_backoff: Duration::from_millis(100),
            gone_after: Duration::from_secs(2),
            fetches_per_origin: 64,
            revalidate: Duration::from_secs(10),
            titles_max: 2_000,
        }
    }
}

impl Settings {
    /// Packets of a chunk: whole datagrams, one at least.
    pub(crate) fn chunk_packets(&self) -> u32 {
        let datagrams = (self.chunk_bytes / DATAGRAM_LEN).clamp(1, 100_000);
        (datagrams * DATAGRAM_PACKETS) as u32
    }
}
