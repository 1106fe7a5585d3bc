//! `millrace load rooms`: WHIP publishers and WHEP viewers, thousands on one core, that measure what a viewer would see.
//!
//! In: a server's URL. Out: bitrate, loss, order, latency and join times as the viewers saw them, and the server's CPU
//! time per packet that arrived. Everything is real: HTTP, ICE, DTLS, SRTP, NACK, transport feedback and reports.
//! Cost: about a microsecond of CPU per received packet, most of it the kernel's.

mod frames;
mod join;
mod publisher;
mod report;
mod service;
mod viewer;

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser;
use engine::{Mailbox, Socket, Worker, WorkerConfig, WorkerHandle};
use indicatif::{ProgressBar, ProgressStyle};
use wire::{Bitrate, Token, UdpOptions};

pub use report::Report;

use join::{Target, Video};
use service::{LoadService, Message, Totals};

use crate::clients::{Addresses, agent, count_down, mark};
use measure::cpu::CpuTime;

/// Publishes made-up video by WHIP and watches it by WHEP, with as many viewers as asked for.
///
/// On loopback every viewer has an IP address of its own (127.0.0.0/8), so one thread and one socket play thousands.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// The server, for instance http://127.0.0.1:8080.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Where to publish at servers with other paths, such as http://127.0.0.1:8889/{stream}/whip.
    #[arg(long, value_name = "URL", value_parser = join::template)]
    pub whip_url: Option<String>,
    /// Where to watch at servers with other paths, such as http://127.0.0.1:8889/{stream}/whep.
    #[arg(long, value_name = "URL", value_parser = join::template)]
    pub whep_url: Option<String>,
    /// Streams to publish.
    #[arg(long, default_value_t = 1)]
    pub publishers: u32,
    /// Viewers in all, spread evenly over the streams.
    #[arg(long, default_value_t = 100)]
    pub subscribers: u32,
    /// Video bitrate of each stream: a number with k or M.
    #[arg(long, default_value = "1.5M")]
    pub bitrate: Bitrate,
    /// Frames per second.
    #[arg(long, default_value_t = 30)]
    pub fps: u32,
    /// Publishes three simulcast layers that share the bitrate.
    #[arg(long)]
    pub simulcast: bool,
    /// How long to count, in seconds, once everybody has joined and the warm-up is over.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// How long to wait after the last join before counting, in seconds.
    #[arg(long, default_value_t = 2.0)]
    pub warm_up: f64,
    /// Joins per second.
    #[arg(long, default_value_t = 100.0)]
    pub join_rate: f64,
    /// Counts while viewers join instead of afterwards: shows what joins do to those who watch.
    #[arg(long, default_value_t = 0)]
    pub joiners: u32,
    /// Those who join while others watch leave again after so many seconds, so that the number of viewers stays.
    #[arg(long, value_name = "SECONDS", requires = "joiners")]
    pub stay: Option<f64>,
    /// Share of the viewers that decrypt and check every packet, and measure latency; the others count by headers.
    #[arg(long, default_value_t = 0.1)]
    pub sample: f64,
    /// Checks and times the last packet of each frame only: for servers that cut frames into packets anew.
    #[arg(long)]
    pub by_frame: bool,
    /// Threads that play the clients.
    #[arg(long, default_value_t = 1)]
    pub threads: u8,
    /// Name of the streams; a number is put behind it.
    #[arg(long, default_value = "load")]
    pub name: String,
    /// Bearer token for servers that ask for one.
    #[arg(long, env = "MILLRACE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Server process whose CPU time is measured; by default the one that /metrics tells of.
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// Prints the report as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Prints {"mark":"begin"} and {"mark":"end"} when the counting begins and ends, for whoever measures the server.
    #[arg(long)]
    pub marks: bool,
    /// Exit status 1 when a larger share of packets never came, 0 to 1.
    #[arg(long)]
    pub max_loss: Option<f64>,
    /// Exit status 1 when the 99th percentile of latency is larger, in milliseconds.
    #[arg(long)]
    pub max_p99: Option<f64>,
}

/// Runs the load and prints the report. False when the asked-for quality was not held.
///
/// # Errors
/// When the server cannot be reached, refuses a join, or a socket cannot be had.
pub fn run(args: &Args) -> anyhow::Result<bool> {
    let report = measure(args)?;
    measure::report::print(args.json, &report)?;
    let failures = report.failures(args.max_loss, args.max_p99);
    for failure in &failures {
        eprintln!("not held: {failure}");
    }
    Ok(failures.is_empty())
}

/// Runs the load.
///
/// # Errors
/// As `run`.
pub fn measure(args: &Args) -> anyhow::Result<Report> {
    let run = Run::start(args)?;
    let mut resources = run.publish()?;
    resources.extend(run.watch(0, args.subscribers, None, "joining")?);
    std::thread::sleep(Duration::from_secs_f64(args.warm_up.max(0.0)));

    run.tell_all(|| Message::Reset);
    mark(args.marks, "begin");
    let (started, server_before, load_before) = (Instant::now(), run.server_cpu(), CpuTime::own());
    if args.joiners > 0 {
        let stay = args.stay.map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
        resources.extend(run.watch(args.subscribers, args.joiners, stay, "joining while others watch")?);
    }
    let end = started + Duration::from_secs_f64(args.seconds);
    count_down(args.json, started, end);
    mark(args.marks, "end");
    let (server_after, load_after) = (run.server_cpu(), CpuTime::own());
    let span = started.elapsed();
    let parts = run.totals()?;
    let server = server_before.zip(server_after).map(|(before, after)| after.since(before));
    let wanted = (args.subscribers + args.joiners) as usize;
    let report = Report::new(&parts, wanted, span, server, load_after.since(load_before));
    run.leave(&resources);
    Ok(report)
}

/// The threads that play the clients, and how to join more.
struct Run<'a> {
    args: &'a Args,
    target: Target,
    workers: Vec<(WorkerHandle<Message>, Mailbox<Message>)>,
    video: Video,
}

/// A viewer that has joined: the URL of its session, and where it is played.
struct Watching {
    resource: String,
    thread: usize,
    client: u32,
}

/// How long a load thread may take to forget a viewer that leaves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Joins that may be under way at once.
const JOIN_THREADS: usize = 16;

impl<'a> Run<'a> {
    fn start(args: &'a Args) -> anyhow::Result<Self> {
        if !args.url.starts_with("http://") {
            bail!("--url {}: only http:// is understood here", args.url);
        }
        let epoch = Instant::now();
        let pid = std::process::id();
        let mut workers = Vec::new();
        // Handshakes take a thread's time, and would make what others receive look late: joiners have a thread of their own.
        for thread in 0..args.threads.max(1) + u8::from(args.joiners > 0) {
            let addresses = Addresses { run: 1 + thread };
            // One socket receives what thousands would: it must hold what comes while the thread does something else.
            let buffer_bytes = Some(64 << 20);
            let options = UdpOptions {
                receive_buffer_bytes: buffer_bytes,
                send_buffer_bytes: buffer_bytes,
                ..UdpOptions::default()
            };
            let config = WorkerConfig {
                name: format!("load-{thread}"),
                sockets: vec![Socket::udp(Token::default(), (Ipv4Addr::UNSPECIFIED, 0).into(), options)],
                ..WorkerConfig::default()
            };
            let bound = Worker::bind(config).context("binding the clients' socket")?;
            let mailbox = bound.mailbox();
            let [socket] = *bound.sockets() else { bail!("a worker has the socket that it was given") };
            let handle = bound.run(move || LoadService::new(Instant::now(), epoch, socket.link, addresses))?;
            workers.push((handle, mailbox));
        }
        let url = args.url.trim_end_matches('/');
        let template = |given: &Option<String>, path: &str| match given {
            Some(given) => given.clone(),
            None => format!("{url}/{path}/{}", join::STREAM),
        };
        let target = Target {
            agent: agent(),
            url: url.into(),
            whip_url: template(&args.whip_url, "whip"),
            whep_url: template(&args.whep_url, "whep"),
            token: args.token.clone(),
            by_frame: args.by_frame,
            context: webrtc::Context::new()?,
        };
        let video =
            Video { bitrate: args.bitrate, frames_per_second: args.fps, simulcast: args.simulcast, run: pid, epoch };
        Ok(Run { args, target, workers, video })
    }

    fn publish(&self) -> anyhow::Result<Vec<String>> {
        let mut resources = Vec::new();
        for number in 0..self.args.publishers {
            let stream = format!("{}-{number}", self.args.name);
            let (joining, resource) = join::publish(&self.target, number, &stream, self.video)?;
            self.hand_over(0, joining)?;
            resources.push(resource);
        }
        Ok(resources)
    }

    /// Joins viewers `first..first + count` at the asked-for rate, and lets them go after `stay`. Returns the resources of
    /// those who stay.
    fn watch(&self, first: u32, count: u32, stay: Option<Duration>, what: &str) -> anyhow::Result<Vec<String>> {
        let progress = self.progress_bar(u64::from(count), what);
        let start = Instant::now();
        let due: Mutex<VecDeque<u32>> = Mutex::new((first..first + count).collect());
        let (joined, to_leave) = mpsc::sync_channel::<(Instant, Watching)>(count as usize);
        let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
        let staying = std::thread::scope(|scope| {
            let leaving = scope.spawn(move || {
                let mut staying = Vec::new();
                for (at, watching) in to_leave {
                    match stay {
                        Some(stay) => self.end(at + stay, &watching),
                        None => staying.push(watching.resource),
                    }
                }
                staying
            });
            for _ in 0..JOIN_THREADS.min(count as usize) {
                let joined = joined.clone();
                let (due, failure, progress) = (&due, &failure, &progress);
                scope.spawn(move || {
                    while let Some(viewer) = due.lock().ok().and_then(|mut due| due.pop_front()) {
                        let at =
                            start + Duration::from_secs_f64(f64::from(viewer - first) / self.args.join_rate.max(0.1));
                        std::thread::sleep(at.saturating_duration_since(Instant::now()));
                        match self.watch_one(viewer) {
                            // The other end listens until all have joined.
                            Ok(watching) => drop(joined.send((Instant::now(), watching))),
                            Err(error) => {
                                failure.lock().expect("no thread panics with it").get_or_insert(error);
                                due.lock().expect("no thread panics with it").clear();
                            }
                        }
                        progress.inc(1);
                    }
                });
            }
            drop(joined);
            leaving.join().expect("it does not panic")
        });
        progress.finish_and_clear();
        match failure.into_inner()? {
            Some(error) => Err(error),
            None => Ok(staying),
        }
    }

    fn end(&self, at: Instant, watching: &Watching) {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        // First here: who is told by the server that it has ended counts as failed. Who does not keep up shows it too.
        let (done, gone) = mpsc::sync_channel(0);
        let _ = self.workers[watching.thread].1.send(Message::Leave { client: watching.client, done });
        let _ = gone.recv_timeout(LEAVE_TIMEOUT);
        self.leave(std::slice::from_ref(&watching.resource));
    }

    fn watch_one(&self, viewer: u32) -> anyhow::Result<Watching> {
        let args = self.args;
        let stream = format!("{}-{}", args.name, viewer % args.publishers.max(1));
        let threads = usize::from(args.threads.max(1));
        let thread = if viewer < args.subscribers { viewer as usize % threads } else { threads };
        let number = args.publishers + viewer;
        if number >= Addresses::MAX {
            bail!("more than {} clients on one thread; use --threads", Addresses::MAX);
        }
        let every = if args.sample > 0.0 { (1.0 / args.sample).round().max(1.0) as u32 } else { u32::MAX };
        let (joining, resource) = join::watch(&self.target, number, &stream, viewer.is_multiple_of(every))?;
        self.hand_over(thread, joining)?;
        Ok(Watching { resource, thread, client: number })
    }

    fn hand_over(&self, thread: usize, joining: service::Joining) -> anyhow::Result<()> {
        let sent = self.workers[thread].1.send(Message::Join(Box::new(joining)));
        sent.map_err(|_| anyhow::anyhow!("the load thread does not keep up"))
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for (_, mailbox) in &self.workers {
            // A full mailbox means that the thread is far behind; the report will show it.
            let _ = mailbox.send(message());
        }
    }

    fn totals(&self) -> anyhow::Result<Vec<Totals>> {
        let (reply, totals) = mpsc::sync_channel(self.workers.len());
        self.tell_all(|| Message::Report(reply.clone()));
        let wait = Duration::from_secs(10);
        (0..self.workers.len()).map(|_| totals.recv_timeout(wait).context("a load thread does not answer")).collect()
    }

    fn leave(&self, resources: &[String]) {
        for resource in resources {
            if let Err(error) = join::leave(&self.target, resource) {
                eprintln!("{error:#}");
                return;
            }
        }
    }

    fn server_cpu(&self) -> Option<CpuTime> {
        server_cpu(&self.target.agent, &self.target.url, self.args.server_pid)
    }

    fn progress_bar(&self, len: u64, what: &str) -> ProgressBar {
        if self.args.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg:<24} [{bar:40}] {pos}/{len}").expect("the template is sound");
        ProgressBar::new(len).with_style(style.progress_chars("=> ")).with_message(what.to_owned())
    }
}

/// CPU time of the server: from the kernel by its process number, or from what it says of itself.
fn server_cpu(agent: &ureq::Agent, url: &str, pid: Option<u32>) -> Option<CpuTime> {
    if let Some(pid) = pid {
        return CpuTime::of_process(pid);
    }
    let text = agent.get(format!("{url}/metrics")).call().ok()?.body_mut().read_to_string().ok()?;
    let value = |mode: &str| {
        let name = format!("millrace_process_cpu_seconds_total{{mode=\"{mode}\"}}");
        text.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok())
    };
    Some(CpuTime { user: value("user")?, system: value("system")? })
}
