//! Opens sessions by the server's HTTP API or by RTSP, asks for their statistics, and closes them.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::receive::now_ns;
use super::rtsp::{Players, SharedPlayer};
use crate::clients::{Api, in_parallel, sleep_until};

/// How long a live input may take until it has a clock.
const INPUT_PATIENCE: Duration = Duration::from_secs(10);

/// Requests at once, as many as may be under way.
const AT_ONCE: f64 = f64::INFINITY;

/// The server and what is asked of it.
pub(super) struct Server {
    pub(super) api: Api,
    /// "udp" or "rtp".
    pub(super) scheme: &'static str,
    /// Datagrams per send; the server's own choice unless given.
    pub(super) burst: Option<u8>,
    pub(super) looped: bool,
    /// Opens sessions by RTSP, if that is asked for.
    pub(super) rtsp: Option<Players>,
}

/// A session that is to be: its title, and where it is to be sent to.
pub(super) type Wanted = (String, SocketAddrV4);

/// A session that was opened.
pub(super) struct Opened {
    /// When it was asked for, in nanoseconds since 1970.
    pub(super) asked_ns: u64,
    handle: Handle,
}

enum Handle {
    /// Its URL at the API.
    Resource(String),
    Player(SharedPlayer),
}

impl Server {
    fn open(&self, (title, to): &Wanted) -> Result<Opened> {
        let asked_ns = now_ns();
        let handle = match &self.rtsp {
            Some(players) => Handle::Player(players.play(title, *to)?),
            None => Handle::Resource(self.create(title, *to)?),
        };
        Ok(Opened { asked_ns, handle })
    }

    /// Asks the API for a session, and gives its URL.
    fn create(&self, title: &str, to: SocketAddrV4) -> Result<String> {
        let destination = format!("{}://{to}", self.scheme);
        let mut wanted = json!({"title": title, "destination": destination, "loop": self.looped});
        if let Some(burst) = self.burst {
            wanted["burst"] = json!(burst);
        }
        let url = format!("{}/pump/sessions", self.api.url);
        let answer = self.api.post(&url, "application/json", &wanted.to_string())?;
        ensure!(answer.status == 201, "POST {url}: {}: {}", answer.status, answer.body.trim());
        let session: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        let id = session["id"].as_str().with_context(|| format!("the answer of {url}: {}", answer.body))?;
        Ok(format!("{url}/{id}"))
    }

    /// Waits until a live input has a clock, and so may be played.
    ///
    /// # Errors
    /// When the server does not have it, or nothing comes in.
    pub(super) fn wait_for_input(&self, title: &str) -> Result<()> {
        let end = Instant::now() + INPUT_PATIENCE;
        loop {
            let titles = self.get(&format!("{}/pump/titles", self.api.url))?;
            let input = titles.as_array().into_iter().flatten().find(|input| input["name"] == title);
            let input = input.with_context(|| format!("the server has no live input {title}"))?;
            if input["state"] == "receiving" {
                return Ok(());
            }
            let url = &input["url"];
            ensure!(Instant::now() < end, "nothing with a clock comes in at {title}, which listens at {url}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn get(&self, url: &str) -> Result<Value> {
        let body = self.api.get(url)?.body;
        serde_json::from_str(&body).with_context(|| format!("the answer of {url}: {body}"))
    }

    fn close(&self, opened: &Opened) -> Result<()> {
        match &opened.handle {
            Handle::Resource(url) => self.api.delete(url).map(drop),
            Handle::Player(player) => player.lock().unwrap_or_else(PoisonError::into_inner).tear_down(),
        }
    }

    /// Opens all, so many a second.
    ///
    /// # Errors
    /// One of the first, as several are opened at a time; those that were opened until then are closed.
    pub(super) fn open_all(&self, wanted: &[Wanted], per_second: f64, progress: &ProgressBar) -> Result<Vec<Opened>> {
        let open = |index: usize| self.open(&wanted[index]).inspect(|_| progress.inc(1));
        let (opened, done) = in_parallel(wanted.len(), per_second.max(0.1), open);
        done.inspect_err(|_| self.close_all(&opened))?;
        Ok(opened)
    }

    /// Opens each at its time within `span` from now on, closes each when it has been there for `stay`, and all of them in
    /// the end. Returns when each was asked for, in nanoseconds since 1970: `None` for one that the server refused, or that
    /// it was too late for.
    pub(super) fn visit(&self, wanted: &[Wanted], span: Duration, stay: Duration) -> Vec<Option<u64>> {
        let end = Instant::now() + span;
        let per_second = wanted.len() as f64 / span.as_secs_f64();
        // So many are there at a time.
        let there_max = ((per_second * stay.as_secs_f64()).ceil() as usize).max(1);
        let there = Mutex::new(BTreeMap::new());
        let (asked_ns, visited) = in_parallel(wanted.len(), per_second, |number| {
            let gone = there.lock().expect("no thread panics with it").remove(&number.wrapping_sub(there_max));
            // One whose title broke may have ended by itself.
            let _ = gone.map(|gone| self.close(&gone));
            let opened = (Instant::now() < end).then(|| self.open(&wanted[number]).ok()).flatten();
            let asked_ns = opened.as_ref().map(|opened| opened.asked_ns);
            there.lock().expect("no thread panics with it").extend(opened.map(|opened| (number, opened)));
            Ok(asked_ns)
        });
        debug_assert!(visited.is_ok(), "a refusal is among what is measured");
        sleep_until(end);
        let there = there.into_inner().unwrap_or_default().into_values().collect::<Vec<_>>();
        let (_, closed) = in_parallel(there.len(), AT_ONCE, |index| self.close(&there[index]).or(Ok(())));
        debug_assert!(closed.is_ok(), "nothing of it fails");
        asked_ns
    }

    /// How often a session's next chunk was late, by the server's count, of all together; sessions by RTSP have no count.
    pub(super) fn underruns_of_all(&self, opened: &[Opened]) -> Result<u64> {
        let (underruns, done) = in_parallel(opened.len(), AT_ONCE, |index| {
            let Handle::Resource(url) = &opened[index].handle else { bail!("a session by RTSP has no statistics") };
            let session = self.get(url)?;
            let underruns = session["statistics"]["underruns"].as_u64();
            underruns.with_context(|| format!("no underruns in the answer: {session}"))
        });
        done.map(|()| underruns.iter().sum())
    }

    /// Closes them; a server that does not let us is not asked again.
    pub(super) fn close_all(&self, opened: &[Opened]) {
        if let (_, Err(error)) = in_parallel(opened.len(), AT_ONCE, |index| self.close(&opened[index])) {
            eprintln!("{error:#}");
        }
    }
}
