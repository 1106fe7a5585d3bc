//! `millrace load rooms`: publishers and viewers by WHIP and WHEP or by LiveKit's signalling, thousands on one core, that measure
//! what a viewer would see.
//!
//! In: a server's URL. Out: bitrate, loss, order, latency and join times as the viewers saw them, and the server's CPU
//! time per packet that arrived. Everything is real: HTTP or WebSocket, ICE, DTLS, SRTP, NACK, transport feedback and reports.
//! Cost: about a microsecond of CPU per received packet, most of it the kernel's.

mod fill;
mod frames;
mod join;
mod lobby;
mod publisher;
mod report;
mod service;
#[cfg(test)]
mod tests;
mod viewer;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use engine::{Mailbox, Socket, Worker, WorkerConfig, WorkerHandle};
use measure::text::seconds;
use wire::codec::MediaKind;
use wire::{Bitrate, Token, UdpOptions};

pub use fill::Filled;
pub use report::{Limits, Report};

use join::{Speaks, Target, Video};
use lobby::{Guest, Lobby, Seat};
use service::{Joining, LoadService, Message, Totals};
use viewer::Check;

use crate::clients::{Addresses, Api, Common, in_parallel, is_of_sample, sleep_until};

/// Publishes made-up video by WHIP and watches it by WHEP, or both in a LiveKit room, with as many viewers as asked for.
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
    /// How to join by LiveKit's signalling instead.
    #[command(flatten)]
    pub livekit: lobby::Options,
    /// Streams to publish.
    #[arg(long, default_value_t = 1)]
    pub publishers: u32,
    /// Viewers in all, spread evenly over the streams; with --livekit each has all streams.
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
    /// Publishes sound beside each video, a packet of 80 bytes each 20 ms, which viewers hear: by WHIP and WHEP.
    #[arg(long, conflicts_with = "livekit")]
    pub audio: bool,
    /// Publishes a microphone each instead of a video, with --livekit: a packet of 80 bytes each 20 ms that says how loud it is.
    #[arg(long, requires = "livekit", conflicts_with = "simulcast")]
    pub microphones: bool,
    /// So many microphones are spoken into at a time: every two seconds one begins, and one ends.
    #[arg(long, default_value_t = 6, requires = "microphones")]
    pub speakers: u32,
    /// The packets of a frame leave one by one over this time, as over an uplink that is not much faster than the video.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub spread: Duration,
    /// Joins per second.
    #[arg(long, default_value_t = 100.0)]
    pub join_rate: f64,
    /// Counts while viewers join instead of afterwards: shows what joins do to those who watch.
    #[arg(long, default_value_t = 0)]
    pub joiners: u32,
    /// Those who join while others watch leave again after so many seconds, so that the number of viewers stays.
    #[arg(long, value_name = "SECONDS", requires = "joiners", value_parser = seconds)]
    pub stay: Option<Duration>,
    /// Lets so many viewers more come each time that all was held for --seconds, until something breaks or --subscribers are
    /// there: how many are well? Where nothing else is said, --max-loss is 0.01, --max-p99 200 and --max-frozen 0.01.
    #[arg(long, value_name = "VIEWERS", conflicts_with = "joiners")]
    pub fill: Option<NonZeroU32>,
    /// Share of the viewers that decrypt and check every packet, and measure latency; the others count by headers.
    #[arg(long, default_value_t = 0.1)]
    pub sample: f64,
    /// Checks and times the last packet of each frame only: for servers that cut frames into packets anew.
    #[arg(long)]
    pub by_frame: bool,
    /// Name of the streams, or with --livekit of participants; a number is put behind it.
    #[arg(long, default_value = "load")]
    pub name: String,
    /// What every load generator is told.
    #[command(flatten)]
    pub common: Common,
    /// What is asked for.
    #[command(flatten)]
    pub limits: Limits,
}

/// Runs the load and prints the report. False when the asked-for quality was not held; with `fill`, not even by the first.
///
/// # Errors
/// When the server cannot be reached, refuses a join, or a socket cannot be had.
pub fn run(args: &Args) -> Result<bool> {
    if let Some(step) = args.fill {
        let filled = fill(args, step)?;
        args.common.basics.print(&filled, &[])?;
        return Ok(filled.well > 0);
    }
    let report = measure(args)?;
    let limits = Limits { may_be_silent: args.microphones, ..args.limits.clone() };
    args.common.basics.print(&report, &report.failures(&limits))
}

/// Runs the load.
///
/// # Errors
/// As `run`.
pub fn measure(args: &Args) -> Result<Report> {
    with_run(args, |run| run.measure())
}

/// Lets viewers come until quality breaks.
///
/// # Errors
/// As `run`.
pub fn fill(args: &Args, step: NonZeroU32) -> Result<Filled> {
    with_run(args, |run| fill::step_by_step(run, step.get()))
}

fn with_run<T>(args: &Args, work: impl FnOnce(&Run<'_>) -> Result<T>) -> Result<T> {
    let run = Run::start(args)?;
    let done = work(&run);
    // Whatever came of it: the server is to be as it was before. Publishers came first, and go last.
    let sessions = std::mem::take(&mut *run.sessions());
    run.leave(sessions.into_iter().rev());
    done
}

/// The threads that play the clients, and how to join more.
struct Run<'a> {
    args: &'a Args,
    api: Api,
    entrance: Entrance,
    workers: Vec<LoadThread>,
    video: Video,
    /// Those that are open until the end.
    sessions: Mutex<Vec<Session>>,
}

/// Where clients are played.
struct LoadThread {
    /// It ends with this.
    _handle: WorkerHandle<Message>,
    mailbox: Mailbox<Message>,
    addresses: Addresses,
    /// Of its socket, at all addresses.
    port: u16,
}

/// How clients join.
enum Entrance {
    Http(Target),
    Livekit(Lobby),
}

/// A session at the server.
enum Session {
    /// Its URL.
    Http(String),
    Livekit(Guest),
}

/// A viewer that has joined, and where it is played.
struct Watching {
    session: Session,
    thread: usize,
    client: usize,
}

/// How long those who have joined may take until they get something, and how often is looked.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_LOOK_EVERY: Duration = Duration::from_millis(50);

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
            let _handle = bound.run(move || LoadService::new(Instant::now(), epoch, socket.link, addresses))?;
            workers.push(LoadThread { _handle, mailbox, addresses, port: socket.local.port() });
        }
        let (own, context) = (|path| format!("{}/{path}/{}", api.url, join::STREAM), webrtc::Context::new()?);
        let entrance = if args.livekit.livekit {
            Entrance::Livekit(Lobby::new(&api.url, &args.livekit, context)?)
        } else {
            let whip_url = args.whip_url.clone().unwrap_or_else(|| own("whip"));
            let whep_url = args.whep_url.clone().unwrap_or_else(|| own("whep"));
            Entrance::Http(Target { api: api.clone(), whip_url, whep_url, context })
        };
        let Args { bitrate, fps: frames_per_second, simulcast, audio, spread, .. } = *args;
        let video = Video { bitrate, frames_per_second, simulcast, audio, speaks: None, spread, epoch };
        Ok(Run { args, api, entrance, workers, video, sessions: Mutex::default() })
    }

    fn measure(&self) -> Result<Report> {
        let Args { subscribers, joiners, stay, .. } = self.args;
        self.publish_all()?;
        self.watch(0, *subscribers, None, "joining")?;
        self.window(*subscribers, || self.watch(*subscribers, *joiners, *stay, "joining while others watch"))
    }

    /// Counts, when `viewers` get something and the warm-up is over, and lets `join` begin meanwhile.
    fn window(&self, viewers: u32, join: impl FnOnce() -> Result<()>) -> Result<Report> {
        let Args { joiners, common, .. } = self.args;
        self.settle(viewers as usize)?;
        thread::sleep(common.warm_up);

        self.tell_all(|| Message::Reset);
        // Who is not asked may be another server, without such a page.
        let api = Some(&self.api).filter(|_| common.server_pid.is_none());
        let ((), counted) = common.count(api, join)?;
        Ok(Report::new(&self.totals()?, (viewers + joiners) as usize, &counted))
    }

    fn publish_all(&self) -> Result<()> {
        (0..self.args.publishers).try_for_each(|number| self.publish(number))
    }

    /// Waits until so many viewers get something of each of their videos, `SETTLE_MAX` at most: the report shows what is missing.
    fn settle(&self, viewers: usize) -> Result<()> {
        let end = Instant::now() + SETTLE_MAX;
        while Instant::now() < end {
            let totals = self.totals()?;
            let seen = totals.iter().flat_map(|part| &part.viewers);
            let may_be_silent = self.args.microphones;
            if seen.filter(|seen| seen.packets > 0 && (may_be_silent || seen.silent == 0)).count() >= viewers {
                break;
            }
            thread::sleep(SETTLE_LOOK_EVERY);
        }
        Ok(())
    }

    fn publish(&self, number: u32) -> Result<()> {
        let (stream, client) = (format!("{}-{number}", self.args.name), number as usize);
        match &self.entrance {
            Entrance::Http(target) => {
                let (joining, resource) = join::publish(target, client, &stream, self.video)?;
                self.sessions().push(Session::Http(resource));
                self.hand_over(0, joining)
            }
            Entrance::Livekit(lobby) => {
                let Args { microphones, speakers, publishers, .. } = *self.args;
                let speaks = microphones.then_some(Speaks { number, speakers, microphones: publishers });
                let guest = lobby.publish(self.seat(0, client), &stream, Video { speaks, ..self.video })?;
                self.sessions().push(Session::Livekit(guest));
                Ok(())
            }
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Session>> {
        self.sessions.lock().expect("nobody panics under this lock")
    }

    /// Joins viewers `first..first + count` at the asked-for rate, and lets them go after `stay`.
    fn watch(&self, first: u32, count: u32, stay: Option<Duration>, what: &str) -> Result<()> {
        let progress = self.args.common.progress(count.into(), what);
        let (joined, to_leave) = mpsc::sync_channel::<(Instant, Watching)>(count as usize);
        let done = thread::scope(|scope| {
            scope.spawn(move || to_leave.into_iter().for_each(|(at, watching)| self.end(at, watching)));
            let (_, done) = in_parallel(count as usize, self.args.join_rate.max(0.1), |index| {
                let (watching, handed) = self.watch_one(first + index as u32)?;
                match stay {
                    None => self.sessions().push(watching.session),
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

    fn end(&self, at: Instant, watching: Watching) {
        sleep_until(at);
        // First here: who is told by the server that it has ended counts as failed. Who does not keep up shows it too.
        let (done, gone) = mpsc::sync_channel(0);
        let _ = self.workers[watching.thread].mailbox.send(Message::Leave { client: watching.client, done });
        let _ = gone.recv_timeout(LEAVE_TIMEOUT);
        self.leave([watching.session]);
    }

    /// Joins a viewer; also says whether it has got to its thread.
    fn watch_one(&self, viewer: u32) -> Result<(Watching, Result<()>)> {
        let args = self.args;
        let threads = usize::from(args.common.threads.max(1));
        let thread = if viewer < args.subscribers { viewer as usize % threads } else { threads };
        let client = (args.publishers + viewer) as usize;
        ensure!(client < Addresses::MAX, "more than {} clients on one thread; use --threads", Addresses::MAX);
        let is_sample = is_of_sample(viewer as usize, args.sample);
        let check = Check { is_sample, by_frame: args.by_frame };
        let (session, handed) = match &self.entrance {
            Entrance::Http(target) => {
                let stream = format!("{}-{}", args.name, viewer % args.publishers.max(1));
                let (joining, resource) = join::watch(target, client, &stream, args.audio, check)?;
                (Session::Http(resource), self.hand_over(thread, joining))
            }
            Entrance::Livekit(lobby) => {
                let (identity, streams) = (format!("{}-viewer-{viewer}", args.name), args.publishers as usize);
                let kind = if args.microphones { MediaKind::Audio } else { MediaKind::Video };
                let guest = lobby.watch(self.seat(thread, client), &identity, check, (kind, streams))?;
                (Session::Livekit(guest), Ok(()))
            }
        };
        Ok((Watching { session, thread, client }, handed))
    }

    fn seat(&self, thread: usize, client: usize) -> Seat {
        let LoadThread { mailbox, addresses, port, .. } = &self.workers[thread];
        Seat { client, inlet: mailbox.clone(), addr: SocketAddr::new(addresses.of(client).into(), *port) }
    }

    fn hand_over(&self, thread: usize, joining: Joining) -> Result<()> {
        let sent = self.workers[thread].mailbox.send(Message::Join(Box::new(joining)));
        sent.ok().context("the load thread does not keep up")
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        for LoadThread { mailbox, .. } in &self.workers {
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

    fn leave(&self, sessions: impl IntoIterator<Item = Session>) {
        let ended = sessions.into_iter().try_for_each(|session| match session {
            // RFC 9725 §4.2. A server that does not let us is not asked again.
            Session::Http(resource) => self.api.delete(&resource).map(drop),
            Session::Livekit(guest) => {
                guest.leave();
                Ok(())
            }
        });
        if let Err(error) = ended {
            eprintln!("{error:#}");
        }
    }
}
