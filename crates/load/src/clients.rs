//! What the load generators share: how they ask, who their clients are, and how they count down.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

/// How long an HTTP request may take.
const HTTP_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().timeout_global(Some(HTTP_TIMEOUT)).http_status_as_error(false).build().into()
}

/// Tells whoever measures the server, when that was asked for.
pub(crate) fn mark(is_wanted: bool, what: &str) {
    if is_wanted {
        println!("{{\"mark\":\"{what}\"}}");
    }
}

pub(crate) fn count_down(is_quiet: bool, started: Instant, end: Instant) {
    let progress = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new((end - started).as_secs()) };
    while Instant::now() < end {
        std::thread::sleep(end.saturating_duration_since(Instant::now()).min(Duration::from_millis(200)));
        progress.set_position(started.elapsed().as_secs());
    }
    progress.finish_and_clear();
}

/// Which client has which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub run: u8,
}

impl Addresses {
    /// Clients of one thread at most.
    pub const MAX: u32 = 1 << 16;

    pub fn of(self, client: u32) -> IpAddr {
        let [_, _, high, low] = client.to_be_bytes();
        IpAddr::from([127, self.run, high, low])
    }

    pub fn client(self, addr: IpAddr) -> Option<u32> {
        match addr {
            IpAddr::V4(addr) => {
                let [127, run, high, low] = addr.octets() else { return None };
                (run == self.run).then(|| u32::from_be_bytes([0, 0, high, low]))
            }
            IpAddr::V6(_) => None,
        }
    }
}
