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

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use engine::{Mailbox, Socket, Worker, WorkerConfig, WorkerHandle};
use measure::text::seconds;
use wire::{Bitrate, Token, UdpOptions};

pub use report::Report;

use join::{Target, Video};
use service::{Joining, LoadService, Message, Totals};

use crate::clients::{Addresses, Common, in_parallel, one_in, sleep_until};

/// Publishes made-up video by WHIP and watches it by WHEP, with as many viewers as asked for.
///
/// On loopback every viewer has an IP address of its own (127.0.0.0/8), so one thread and one socket play thousands.
#[derive(Clone, Debug, Parser)]
pub struct Args {
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
    /// Joins per second.
    #[arg(long, default_value_t = 100.0)]
    pub join_rate: f64,
    /// Counts while viewers join instead of afterwards: shows what joins do to those who watch.
    #[arg(long, default_value_t = 0)]
    pub joiners: u32,
    /// Those who join while others watch leave again after so many seconds, so that the number of viewers stays.
    #[arg(long, value_name = "SECONDS", requires = "joiners", value_parser = seconds)]
    pub stay: Option<Duration>,
    /// Share of the viewers that decrypt and check every packet, and measure latency; the others count by headers.
    #[arg(long, default_value_t = 0.1)]
    pub sample: f64,
    /// Checks and times the last packet of each frame only: for servers that cut frames into packets anew.
    #[arg(long)]
    pub by_frame: bool,
    /// Name of the streams; a number is put behind it.
    #[arg(long, default_value = "load")]
    pub name: String,
    /// What every load generator is told.
    #[command(flatten)]
    pub common: Common,
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
pub fn run(args: &Args) -> Result<bool> {
    let report = measure(args)?;
    args.common.basics.print(&report, &report.failures(args.max_loss, args.max_p99))
}

/// Runs the load.
///
/// # Errors
/// As `run`.
pub fn measure(args: &Args) -> Result<Report> {
    let run = Run::start(args)?;
    let report = run.measure();
    // Whatever came of it: the server is to be as it was before.
    run.leave(&run.resources());
    report
}

/// The threads that play the clients, and how to join more.
struct Run<'a> {
    args: &'a Args,
    target: Target,
    workers: Vec<(WorkerHandle<Message>, Mailbox<Message>)>,
    video: Video,
    /// The URLs of sessions that are open until the end.
    resources: Mutex<Vec<String>>,
}

/// A viewer that has joined: the URL of its session, and where it is played.
struct Watching {
    resource: String,
    thread: usize,
    client: usize,
}

/// How long a load thread may take to forget a viewer that leaves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

impl<'a> Run<'a> {
    fn start(args: &'a Args) -> Result<Self> {
        let (api, epoch) = (args.common.basics.api()?, Instant::now());
        let mut workers = Vec::new();
        // Handshakes take a thread's time, and would make what others receive look late: joiners have a thread of their own.
        for thread in 0..args.common.threads.max(1) + u8::from(args.joiners > 0) {
            let addresses = Addresses { run: 1 + thread };
            // One socket receives what thousands would: it must hold what comes while the thread does something else.
            let (receive_buffer_bytes, send_buffer_bytes) = (Some(64 << 20), Some(64 << 20));
            let options = UdpOptions { receive_buffer_bytes, send_buffer_bytes, ..UdpOptions::default() };
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
        let own = |path| format!("{}/{path}/{}", api.url, join::STREAM);
        let target = Target {
            whip_url: args.whip_url.clone().unwrap_or_else(|| own("whip")),
            whep_url: args.whep_url.clone().unwrap_or_else(|| own("whep")),
            by_frame: args.by_frame,
            context: webrtc::Context::new()?,
            api,
        };
        let (bitrate, frames_per_second, simulcast) = (args.bitrate, args.fps, args.simulcast);
        let video = Video { bitrate, frames_per_second, simulcast, epoch };
        Ok(Run { args, target, workers, video, resources: Mutex::default() })
    }

    fn measure(&self) -> Result<Report> {
        let Args { subscribers, joiners, stay, common, .. } = self.args;
        (0..self.args.publishers).try_for_each(|number| self.publish(number))?;
        self.watch(0, *subscribers, None, "joining")?;
        thread::sleep(common.warm_up);

        self.tell_all(|| Message::Reset);
        // Who is not asked may be another server, without such a page.
        let api = Some(&self.target.api).filter(|_| common.server_pid.is_none());
        let join = || self.watch(*subscribers, *joiners, *stay, "joining while others watch");
        let ((), counted) = common.count(api, join)?;
        Ok(Report::new(&self.totals()?, (subscribers + joiners) as usize, &counted))
    }

    fn publish(&self, number: u32) -> Result<()> {
        let stream = format!("{}-{number}", self.args.name);
        let (joining, resource) = join::publish(&self.target, number as usize, &stream, self.video)?;
        self.resources().push(resource);
        self.hand_over(0, joining)
    }

    fn resources(&self) -> MutexGuard<'_, Vec<String>> {
        self.resources.lock().expect("nobody panics under this lock")
    }

    /// Joins viewers `first..first + count` at the asked-for rate, and lets them go after `stay`.
    fn watch(&self, first: u32, count: u32, stay: Option<Duration>, what: &str) -> Result<()> {
        let progress = self.args.common.progress(count.into(), what);
        let (joined, to_leave) = mpsc::sync_channel::<(Instant, Watching)>(count as usize);
        let done = thread::scope(|scope| {
            scope.spawn(move || to_leave.into_iter().for_each(|(at, watching)| self.end(at, &watching)));
            let (_, done) = in_parallel(count as usize, self.args.join_rate.max(0.1), |index| {
                let (joining, watching) = self.watch_one(first + index as u32)?;
                let handed = self.hand_over(watching.thread, joining);
                match stay {
                    None => self.resources().push(watching.resource),
                    Some(stay) => {
                        let leaving = joined.send((Instant::now() + stay, watching));
                        leaving.ok().context("the other end listens until all have joined")?;
                    }
                }
                progress.inc(1);
                handed
            });
            drop(joined);
            done
        });
        progress.finish_and_clear();
        done
    }

    fn end(&self, at: Instant, watching: &Watching) {
        sleep_until(at);
        // First here: who is told by the server that it has ended counts as failed. Who does not keep up shows it too.
        let (done, gone) = mpsc::sync_channel(0);
        let _ = self.workers[watching.thread].1.send(Message::Leave { client: watching.client, done });
        let _ = gone.recv_timeout(LEAVE_TIMEOUT);
        self.leave(std::slice::from_ref(&watching.resource));
    }

    fn watch_one(&self, viewer: u32) -> Result<(Joining, Watching)> {
        let args = self.args;
        let stream = format!("{}-{}", args.name, viewer % args.publishers.max(1));
        let threads = usize::from(args.common.threads.max(1));
        let thread = if viewer < args.subscribers { viewer as usize % threads } else { threads };
        let client = (args.publishers + viewer) as usize;
        ensure!(client < Addresses::MAX, "more than {} clients on one thread; use --threads", Addresses::MAX);
        let is_sample = (viewer as usize).is_multiple_of(one_in(args.sample));
        let (joining, resource) = join::watch(&self.target, client, &stream, is_sample)?;
        Ok((joining, Watching { resource, thread, client }))
    }

    fn hand_over(&self, thread: usize, joining: Joining) -> Result<()> {
        let sent = self.workers[thread].1.send(Message::Join(Box::new(joining)));
        sent.ok().context("the load thread does not keep up")
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for (_, mailbox) in &self.workers {
            // A full mailbox means that the thread is far behind; the report will show it.
            let _ = mailbox.send(message());
        }
    }

    fn totals(&self) -> Result<Vec<Totals>> {
        let (reply, totals) = mpsc::sync_channel(self.workers.len());
        self.tell_all(|| Message::Report(reply.clone()));
        let wait = Duration::from_secs(10);
        (0..self.workers.len()).map(|_| totals.recv_timeout(wait).context("a load thread does not answer")).collect()
    }

    fn leave(&self, resources: &[String]) {
        // RFC 9725 §4.2. A server that does not let us is not asked again.
        if let Err(error) = resources.iter().try_for_each(|resource| self.target.api.delete(resource).map(drop)) {
            eprintln!("{error:#}");
        }
    }
}
