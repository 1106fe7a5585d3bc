//! Waits until a server can be loaded.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use super::stop::Stop;
use super::tree::Tree;
use super::values::{Ready, Span};

/// How long one attempt may take, and the pause between two.
const ATTEMPT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);

/// Checks that nobody else has the server's address: the load would measure the wrong one.
pub fn ensure_free(ready: &Ready, log: &Path) -> anyhow::Result<()> {
    ensure!(!holds(ready, log, u16::MAX), "something answers at {ready} before the server is started");
    Ok(())
}

/// Waits until the server is ready.
///
/// # Errors
/// When it ends, when it takes longer than `timeout`, or when we are to stop.
pub fn wait(ready: &Ready, server: &mut Tree, log: &Path, timeout: Span, stop: &Stop) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs_f64(timeout.0);
    loop {
        stop.check()?;
        let holds = holds(ready, log, 400);
        if let Some(status) = server.exited() {
            bail!("the server ended ({status}) before it was ready ({ready})");
        }
        if holds {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the server was not ready ({ready}) within {timeout}");
        std::thread::sleep(PAUSE);
    }
}

/// Whether something listens there, answers with a status under `status_end`, or has written that.
fn holds(ready: &Ready, log: &Path, status_end: u16) -> bool {
    match ready {
        Ready::Tcp(addr) => connects(addr),
        Ready::Http(url) => status_of(url).is_some_and(|status| status < status_end),
        Ready::Log(words) => std::fs::read(log).is_ok_and(|log| String::from_utf8_lossy(&log).contains(words)),
    }
}

fn connects(addr: &str) -> bool {
    let addrs = addr.to_socket_addrs().into_iter().flatten();
    addrs.into_iter().any(|addr| TcpStream::connect_timeout(&addr, ATTEMPT).is_ok())
}

/// The answer's status; `None` when there is no answer.
fn status_of(url: &str) -> Option<u16> {
    let config = ureq::Agent::config_builder().timeout_global(Some(ATTEMPT)).http_status_as_error(false).build();
    ureq::Agent::new_with_config(config).get(url).call().ok().map(|response| response.status().as_u16())
}
