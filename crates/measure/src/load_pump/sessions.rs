//! Opens sessions by the server's HTTP API, asks for their statistics, and closes them.

use std::net::SocketAddrV4;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Value, json};

use super::receive::now_ns;

/// Requests that may be under way at once.
const REQUESTS: usize = 16;

/// The server and what is asked of it.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) agent: ureq::Agent,
    /// For instance "http://127.0.0.1:8080".
    pub(super) url: String,
    pub(super) token: Option<String>,
    /// "udp" or "rtp".
    pub(super) scheme: &'static str,
    /// Datagrams per send; the server's own choice unless given.
    pub(super) burst: Option<u8>,
    pub(super) looped: bool,
}

/// A session that was opened.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// When it was asked for, in nanoseconds since 1970.
    pub(super) asked_ns: u64,
    resource: String,
}

/// What the API answers, as far as it is of use here.
#[derive(Deserialize)]
struct Answer {
    id: String,
}

impl Server {
    pub(super) fn open(&self, title: &str, to: SocketAddrV4) -> Result<Opened> {
        let mut wanted = json!({
            "title": title,
            "destination": format!("{}://{to}", self.scheme),
            "loop": self.looped,
        });
        if let Some(burst) = self.burst {
            wanted["burst"] = json!(burst);
        }
        let url = format!("{}/pump/sessions", self.url);
        let asked_ns = now_ns();
        let mut request = self.agent.post(&url).content_type("application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request.send(wanted.to_string()).with_context(|| format!("POST {url}"))?;
        let body = response.body_mut().read_to_string().with_context(|| format!("read the answer of {url}"))?;
        if response.status() != 201 {
            bail!("POST {url}: {}: {}", response.status(), body.trim());
        }
        let answer: Answer = serde_json::from_str(&body).with_context(|| format!("the answer of {url}: {body}"))?;
        Ok(Opened { asked_ns, resource: format!("{url}/{}", answer.id) })
    }

    /// How often the session's next chunk was late, by the server's count.
    fn underruns(&self, opened: &Opened) -> Result<u64> {
        let mut request = self.agent.get(&opened.resource);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let body = request.call().with_context(|| format!("GET {}", opened.resource))?.body_mut().read_to_string()?;
        let value: Value = serde_json::from_str(&body).with_context(|| format!("the answer: {body}"))?;
        value["statistics"]["underruns"].as_u64().with_context(|| format!("no underruns in the answer: {body}"))
    }

    pub(super) fn close(&self, opened: &Opened) -> Result<()> {
        let mut request = self.agent.delete(&opened.resource);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().with_context(|| format!("DELETE {}", opened.resource))?;
        Ok(())
    }

    /// Opens a session to each of `receivers`, so many a second. `title` names the title of each.
    ///
    /// # Errors
    /// The first; those that were opened until then are closed.
    pub(super) fn open_all(
        &self,
        title: impl Fn(usize) -> String + Sync,
        receivers: &[SocketAddrV4],
        per_second: f64,
        progress: &ProgressBar,
    ) -> Result<Vec<Opened>> {
        let start = Instant::now();
        let opened = Mutex::new(vec![None; receivers.len()]);
        let done = in_parallel(receivers.len(), |index| {
            let at = start + Duration::from_secs_f64(index as f64 / per_second.max(0.1));
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            let session = self.open(&title(index), receivers[index])?;
            opened.lock().expect("no thread panics with it")[index] = Some(session);
            progress.inc(1);
            Ok(())
        });
        let opened: Vec<Opened> = opened.into_inner()?.into_iter().flatten().collect();
        if let Err(error) = done {
            self.close_all(&opened);
            return Err(error);
        }
        Ok(opened)
    }

    /// Underruns of all sessions together.
    pub(super) fn underruns_of_all(&self, opened: &[Opened]) -> Result<u64> {
        let sum = Mutex::new(0);
        in_parallel(opened.len(), |index| {
            let underruns = self.underruns(&opened[index])?;
            *sum.lock().expect("no thread panics with it") += underruns;
            Ok(())
        })?;
        Ok(sum.into_inner()?)
    }

    /// Closes them; a server that does not let us is not asked again.
    pub(super) fn close_all(&self, opened: &[Opened]) {
        if let Err(error) = in_parallel(opened.len(), |index| self.close(&opened[index])) {
            eprintln!("{error:#}");
        }
    }
}

/// Calls `work` with 0 to `count`, several at once, until one fails.
pub(super) fn in_parallel(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..REQUESTS.min(count) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    if let Err(error) = work(index) {
                        failure.lock().expect("no thread panics with it").get_or_insert(error);
                        next.store(count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    failure.into_inner()?.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_done_once_and_the_first_error_ends_it() {
        let done = Mutex::new(Vec::new());
        in_parallel(100, |index| {
            done.lock().unwrap().push(index);
            Ok(())
        })
        .unwrap();
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());

        let failed = AtomicUsize::new(0);
        let error = in_parallel(10_000, |index| {
            if index < 40 {
                return Ok(());
            }
            failed.fetch_add(1, Ordering::Relaxed);
            bail!("number {index}")
        });
        assert!(error.unwrap_err().to_string().starts_with("number 4") || failed.load(Ordering::Relaxed) > 1);
        assert!(failed.load(Ordering::Relaxed) <= REQUESTS);
        assert!(in_parallel(0, |_| bail!("never")).is_ok());
    }
}
