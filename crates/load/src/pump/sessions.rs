//! Opens sessions by the server's HTTP API or by RTSP, asks for their statistics, and closes them.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::{Value, json};

use super::receive::now_ns;
use super::rtsp::{Players, SharedPlayer};

/// Requests that may be under way at once.
const REQUESTS: usize = 16;

/// How long a live input may take until it has a clock.
const INPUT_PATIENCE: Duration = Duration::from_secs(10);

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
    /// Where sessions are opened by RTSP, if they are.
    pub(super) rtsp: Option<(SocketAddrV4, Arc<Players>)>,
}

/// A session that was opened.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// When it was asked for, in nanoseconds since 1970.
    pub(super) asked_ns: u64,
    handle: Handle,
}

#[derive(Clone, Debug)]
enum Handle {
    /// Its URL at the API.
    Resource(String),
    Player(SharedPlayer),
}

/// What the API answers, as far as it is of use here.
#[derive(Deserialize)]
struct Answer {
    id: String,
}

impl Server {
    pub(super) fn open(&self, title: &str, to: SocketAddrV4) -> Result<Opened> {
        let asked_ns = now_ns();
        let handle = match &self.rtsp {
            Some((addr, players)) => Handle::Player(players.play(*addr, title, to)?),
            None => Handle::Resource(self.create(title, to)?),
        };
        Ok(Opened { asked_ns, handle })
    }

    /// Asks the API for a session, and gives its URL.
    fn create(&self, title: &str, to: SocketAddrV4) -> Result<String> {
        let mut wanted = json!({
            "title": title,
            "destination": format!("{}://{to}", self.scheme),
            "loop": self.looped,
        });
        if let Some(burst) = self.burst {
            wanted["burst"] = json!(burst);
        }
        let url = format!("{}/pump/sessions", self.url);
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
        Ok(format!("{url}/{}", answer.id))
    }

    /// Waits until a live input has a clock, and so may be played.
    ///
    /// # Errors
    /// When the server does not have it, or nothing comes in.
    pub(super) fn wait_for_input(&self, title: &str) -> Result<()> {
        let end = Instant::now() + INPUT_PATIENCE;
        loop {
            let titles = self.get(&format!("{}/pump/titles", self.url))?;
            let input = titles.as_array().into_iter().flatten().find(|input| input["name"] == title);
            let input = input.with_context(|| format!("the server has no live input {title}"))?;
            if input["state"] == "receiving" {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "nothing with a clock comes in at {title}, which listens at {}",
                input["url"]
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How often the session's next chunk was late, by the server's count; of a session by RTSP that is not known.
    fn underruns(&self, opened: &Opened) -> Result<u64> {
        let Handle::Resource(url) = &opened.handle else { bail!("a session by RTSP has no statistics") };
        let session = self.get(url)?;
        session["statistics"]["underruns"].as_u64().with_context(|| format!("no underruns in the answer: {session}"))
    }

    fn get(&self, url: &str) -> Result<Value> {
        let mut request = self.agent.get(url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let body = request.call().with_context(|| format!("GET {url}"))?.body_mut().read_to_string()?;
        serde_json::from_str(&body).with_context(|| format!("the answer of {url}: {body}"))
    }

    pub(super) fn close(&self, opened: &Opened) -> Result<()> {
        let url = match &opened.handle {
            Handle::Resource(url) => url,
            Handle::Player(player) => return player.lock().unwrap_or_else(PoisonError::into_inner).tear_down(),
        };
        let mut request = self.agent.delete(url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().with_context(|| format!("DELETE {url}"))?;
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
