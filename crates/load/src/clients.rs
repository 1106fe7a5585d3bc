//! What the load generators share: what they are told, how they ask a server, who their clients are, and how they count down.

mod metrics;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use measure::cpu::CpuTime;
use measure::text::seconds;
use serde::Serialize;
use ureq::http::Response;
use ureq::{Body, RequestBuilder};

use metrics::Reading;
pub use metrics::Served;

/// How long an HTTP request may take.
const HTTP_TIMEOUT: Duration = Duration::from_secs(20);

/// How often is looked who has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Requests that may be under way at once.
const REQUESTS: usize = 16;

/// What everybody is told who asks a server.
#[derive(clap::Args, Clone, Debug)]
pub struct Basics {
    /// The server, for instance http://127.0.0.1:8080.
    #[arg(long, default_value = "http://127.0.0.1:8080", display_order = 0)]
    pub url: String,
    /// How long it takes, in seconds: for who counts, once all have joined and the warm-up is over.
    #[arg(long, default_value = "10", value_parser = seconds)]
    pub seconds: Duration,
    /// Bearer token for servers that ask for one.
    #[arg(long, env = "MILLRACE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Prints the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

impl Basics {
    pub(crate) fn api(&self) -> Result<Api> {
        // LiveKit's clients call the same server so.
        let url = self.url.strip_prefix("ws://").map_or_else(|| self.url.clone(), |rest| format!("http://{rest}"));
        ensure!(url.starts_with("http://"), "--url {url}: only http:// is understood here");
        let agent =
            ureq::Agent::config_builder().timeout_global(Some(HTTP_TIMEOUT)).http_status_as_error(false).build();
        Ok(Api { agent: agent.into(), url: url.trim_end_matches('/').into(), token: self.token.clone() })
    }

    /// Prints the report, and what was not held; returns whether all was.
    pub(crate) fn print(&self, report: &(impl Serialize + fmt::Display), failures: &[String]) -> Result<bool> {
        measure::report::print(self.json, report)?;
        failures.iter().for_each(|failure| eprintln!("not held: {failure}"));
        Ok(failures.is_empty())
    }
}

/// What every load generator that counts is told.
#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    /// What everybody is told.
    #[command(flatten)]
    pub basics: Basics,
    /// How long to wait after the last join before counting, in seconds.
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub warm_up: Duration,
    /// Threads that play the clients.
    #[arg(long, default_value_t = 1)]
    pub threads: u8,
    /// Server process whose CPU time is measured; by default the one that /metrics tells of.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Prints {"mark":"begin"} and {"mark":"end"} when the counting begins and ends, for whoever measures the server.
    #[arg(long)]
    pub marks: bool,
}

impl Common {
    /// Tells whoever measures the server, when that was asked for.
    fn mark(&self, what: &str) {
        if self.marks {
            println!("{{\"mark\":\"{what}\"}}");
        }
    }

    pub(crate) fn progress(&self, len: u64, what: &str) -> ProgressBar {
        if self.basics.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg:<24} [{bar:40}] {pos}/{len}").expect("the template is sound");
        ProgressBar::new(len).with_style(style.progress_chars("=> ")).with_message(what.to_owned())
    }

    /// Lets `work` begin and all count for as long as was asked for, and looks at the server, if it is one that can be
    /// asked, and at this process before and after.
    pub(crate) fn count<T>(&self, api: Option<&Api>, work: impl FnOnce() -> Result<T>) -> Result<(T, Counted)> {
        self.mark("begin");
        let reading = || Reading::take(api, self.server_pid);
        let (started, server_before, load_before) = (Instant::now(), reading(), CpuTime::own());
        let begun = work()?;
        let (end, progress) = (started + self.basics.seconds, self.progress(self.basics.seconds.as_secs(), "counting"));
        while Instant::now() < end {
            sleep_until(end.min(Instant::now() + Duration::from_millis(200)));
            progress.set_position(started.elapsed().as_secs());
        }
        progress.finish_and_clear();
        self.mark("end");
        let (served, load_cpu) = (reading().since(&server_before), CpuTime::own().since(load_before));
        Ok((begun, Counted { seconds: started.elapsed().as_secs_f64(), served, load_cpu }))
    }
}

/// How far those are who were told to come.
pub(crate) struct Coming {
    pub(crate) waiting: usize,
    pub(crate) there: usize,
    /// Why somebody is neither.
    pub(crate) why: Option<String>,
}

/// Waits until nobody is on the way any more, `max` at most.
///
/// # Errors
/// When nobody is there then; `nobody` says what that means.
pub(crate) fn wait_for_all(
    progress: &ProgressBar,
    max: Duration,
    nobody: &str,
    look: impl Fn() -> Result<Coming>,
) -> Result<()> {
    let end = Instant::now() + max;
    loop {
        let Coming { waiting, there, why } = look()?;
        progress.set_position(there as u64);
        if waiting == 0 || Instant::now() >= end {
            progress.finish_and_clear();
            ensure!(there > 0, "{nobody}: {}", why.as_deref().unwrap_or("no answer"));
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// What the time of counting came to.
pub(crate) struct Counted {
    pub(crate) seconds: f64,
    pub(crate) served: Served,
    /// Of this process.
    pub(crate) load_cpu: CpuTime,
}

/// Whether a client is one of those that are looked at, when so large a share of them is to be, 0 to 1. The first is, unless nobody
/// is. Steps of the golden ratio come to each part of a circle equally often, and so do every second of them, or every tenth: of
/// those that watch one stream or run on one thread as many are looked at as of the others.
pub(crate) fn is_of_sample(number: usize, share: f64) -> bool {
    const GOLDEN: u32 = 0x9E37_79B9;
    f64::from((number as u32).wrapping_mul(GOLDEN)) < share * 2_f64.powi(32)
}

pub(crate) fn sleep_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// A server that is asked by HTTP.
#[derive(Clone)]
pub(crate) struct Api {
    agent: ureq::Agent,
    /// For instance "http://127.0.0.1:8080".
    pub(crate) url: String,
    token: Option<String>,
}

/// What it answers.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The header of this name, or nothing.
    pub(crate) location: String,
    pub(crate) body: String,
}

impl Api {
    pub(crate) fn get(&self, url: &str) -> Result<Answer> {
        Answer::read(self.authorized(self.agent.get(url)).call()).with_context(|| format!("GET {url}"))
    }

    pub(crate) fn delete(&self, url: &str) -> Result<Answer> {
        Answer::read(self.authorized(self.agent.delete(url)).call()).with_context(|| format!("DELETE {url}"))
    }

    pub(crate) fn post(&self, url: &str, content_type: &str, body: &str) -> Result<Answer> {
        let request = self.authorized(self.agent.post(url)).header("Content-Type", content_type);
        Answer::read(request.send(body)).with_context(|| format!("POST {url}"))
    }

    /// The same for somebody else, as a proxy asks.
    pub(crate) fn post_for(&self, client: IpAddr, url: &str, content_type: &str, body: &str) -> Result<Answer> {
        let request = self.authorized(self.agent.post(url)).header("X-Forwarded-For", client.to_string());
        Answer::read(request.header("Content-Type", content_type).send(body)).with_context(|| format!("POST {url}"))
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }
}

impl Answer {
    fn read(response: Result<Response<Body>, ureq::Error>) -> Result<Answer> {
        let mut response = response?;
        let location = response.headers().get("Location").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (status, location) = (response.status().as_u16(), location.to_owned());
        Ok(Answer { status, location, body: response.body_mut().read_to_string()? })
    }
}

/// Calls `work` with 0 to `count`, several at once and so many a second, until one fails. Returns what came of those that
/// did not, in their order, and the first failure of a thread.
pub(crate) fn in_parallel<T: Send>(
    count: usize,
    per_second: f64,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> (Vec<T>, Result<()>) {
    let (start, next) = (Instant::now(), AtomicUsize::new(0));
    let work_on = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return (done, Ok(()));
            }
            sleep_until(start + Duration::from_secs_f64(index as f64 / per_second));
            match work(index) {
                Ok(value) => done.push((index, value)),
                Err(error) => {
                    next.store(count, Ordering::Relaxed);
                    return (done, Err(error));
                }
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..REQUESTS.min(count)).map(|_| scope.spawn(work_on)).collect();
        let (mut all, mut whole) = (BTreeMap::new(), Ok(()));
        for thread in threads {
            let (done, result) = thread.join().expect("no thread panics");
            all.extend(done);
            whole = whole.and(result);
        }
        (all.into_values().collect(), whole)
    })
}

/// A thread that is told to end, and waited for, when this is dropped.
pub(crate) struct Background {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Runs `work` until it returns, which it does soon when it is told that all is over.
    pub(crate) fn start(name: &str, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = thread::Builder::new().name(name.into()).spawn(move || work(&stop)).context("start a thread")?;
        Ok(Background { is_over, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // One that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Which client has which address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) run: u8,
}

impl Addresses {
    /// Clients of one thread at most.
    pub(crate) const MAX: usize = 1 << 16;

    pub(crate) fn of(self, client: usize) -> Ipv4Addr {
        let [high, low] = (client as u16).to_be_bytes();
        Ipv4Addr::new(127, self.run, high, low)
    }

    pub(crate) fn client(self, addr: IpAddr) -> Option<usize> {
        match addr {
            IpAddr::V4(addr) => {
                let [127, run, high, low] = addr.octets() else { return None };
                (run == self.run).then_some(u16::from_be_bytes([high, low]).into())
            }
            IpAddr::V6(_) => None,
        }
    }
}

/// What a command line says, without the program's name.
#[cfg(test)]
pub(crate) fn typed<A: clap::Args>(words: &[&str]) -> Result<A, clap::Error> {
    #[derive(clap::Parser)]
    struct Line<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    let line: Line<A> = clap::Parser::try_parse_from([&["load"], words].concat())?;
    Ok(line.args)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_sample_has_its_share_of_every_stream_and_thread() {
        for share in [0.01, 0.1, 0.5] {
            for (every, from) in [(1, 0), (2, 0), (2, 1), (10, 0), (10, 7), (11, 3)] {
                let count = (0..1_000).filter(|index| is_of_sample(index * every + from, share)).count();
                let expected = share * 1_000.0;
                assert!((count as f64 - expected).abs() <= 0.2 * expected + 2.0, "{count}: {share} of every {every}th");
            }
        }
        let of = |share| [0, 1, 2].map(|number| is_of_sample(number, share));
        assert_eq!([of(0.0), of(0.01), of(1.0)], [[false; 3], [true, false, false], [true; 3]]);
    }

    #[test]
    fn all_is_done_once_and_the_first_error_ends_it() {
        let (done, whole) = in_parallel(100, f64::INFINITY, Ok);
        whole.unwrap();
        assert_eq!(done, (0..100).collect::<Vec<_>>());

        let failed = AtomicUsize::new(0);
        let (done, whole) = in_parallel(10_000, f64::INFINITY, |index| {
            if index < 40 {
                return Ok(index);
            }
            failed.fetch_add(1, Ordering::Relaxed);
            bail!("number {index}")
        });
        assert_eq!(done, (0..40).collect::<Vec<_>>());
        assert!(whole.unwrap_err().to_string().starts_with("number 4") || failed.load(Ordering::Relaxed) > 1);
        assert!(failed.load(Ordering::Relaxed) <= REQUESTS);
        assert!(in_parallel(0, 1.0, |_| -> Result<()> { bail!("never") }).1.is_ok());
    }
}
