//! `millrace load pump`: receives what a pump sends, and measures it as a set-top box would feel it.
//!
//! In: a server's URL and a title, or ports on which any sender's streams arrive. Out: losses by the continuity counters,
//! content, spacing of datagrams, delay factor, clock jitter, start times, underruns; the server's CPU.
//! Arrivals have the kernel's times, so that this program's own lateness is not in the numbers. On loopback every session
//! has an address of its own behind one socket. It can be the origin of the titles too, let others come while it counts,
//! and break their titles: nobody else should notice.
//! Cost: one system call per 64 messages, and a look at each packet; some 20 KiB per session.
//! Source: RFC 4445 (delay factor), ETSI TR 101 290 (errors by priority).

mod guests;
mod origin;
mod original;
mod receive;
mod receiver;
mod report;
mod sessions;
mod watch;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use pump::sample::Sample;
use wire::Bitrate;

pub use report::Report;

use guests::{Guests, STAY};
use origin::{Origin, faulty_title};
use original::Original;
use receiver::{By, Receiver, Totals};
use sessions::{Opened, Server};
use watch::Watch;

use crate::load::service::Addresses;
use crate::load::{count_down, mark, own_cpu, server_cpu};

/// One socket receives what thousands would: it holds what comes while its thread does something else.
const SHARED_BUFFER_BYTES: usize = 64 << 20;

/// Of a socket with one session.
const OWN_BUFFER_BYTES: usize = 2 << 20;

/// Sockets at most, where each session has one.
const SOCKETS_MAX: usize = 10_000;

/// What an origin of our own serves unless a file is given: long enough that no session comes to its end soon.
const ORIGIN_PICTURES: u32 = 25 * 60;

/// Starts sessions of a title, receives them all, and measures what arrives; or measures what any sender sends.
#[derive(clap::Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["title", "listen"]))]
pub struct Args {
    /// The server, for instance http://127.0.0.1:8080.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// Title to play. {n} in it stands for the session's number, so that each has a title of its own: "{n}.ts".
    #[arg(long, value_name = "NAME")]
    pub title: Option<String>,
    /// Is an HTTP origin there, for a server with pump.origins=http://ADDR:PORT/. Every NAME.ts is a title of its own: the
    /// file's bytes, or a minute at --rate.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "listen")]
    pub origin: Option<SocketAddr>,
    /// How long that origin takes before each response, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0, requires = "origin")]
    pub origin_delay: u64,
    /// Further sessions that come while it counts, a second, and stay for two; only their start is measured.
    #[arg(long, value_name = "N", default_value_t = 0.0, conflicts_with = "listen")]
    pub newcomers_per_second: f64,
    /// Their title, if it is another one; {n} stands for their number.
    #[arg(long, value_name = "NAME", requires = "newcomers_per_second")]
    pub newcomers_title: Option<String>,
    /// Further sessions that come while it counts, whose titles break in the middle: the origin is slow or dead, truncates,
    /// sends other bytes, has an error, or has them no more.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "origin")]
    pub faulty: usize,
    /// Starts nothing, and measures what is sent here by whomever: udp://ADDR:PORT, also a group. Of more sessions than
    /// one each has a port, from this one on.
    #[arg(long, value_name = "udp://ADDR:PORT", value_parser = listen_addr)]
    pub listen: Option<SocketAddrV4>,
    /// Sessions to receive; 100 unless given, and one with --listen.
    #[arg(long)]
    pub sessions: Option<usize>,
    /// Further sessions, which are not received: they go to addresses from --sink on.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "sink")]
    pub unreceived: usize,
    /// Where those go, such as 198.18.0.0:5000: somewhere that drops.
    #[arg(long, value_name = "ADDR:PORT")]
    pub sink: Option<SocketAddrV4>,
    /// Address of ours to receive on, with a port for each session; otherwise one port, and an address of 127.0.0.0/8 each.
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
    pub at: Option<Ipv4Addr>,
    /// Starts per second.
    #[arg(long, default_value_t = 100.0)]
    pub starts_per_second: f64,
    /// How long to count, in seconds, once all have started and the warm-up is over.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// How long to wait after the last start before counting, in seconds.
    #[arg(long, default_value_t = 2.0)]
    pub warm_up: f64,
    /// How long to wait for the first datagrams with --listen, in seconds.
    #[arg(long, default_value_t = 20.0)]
    pub wait: f64,
    /// Constant rate of the streams, nulls included, for the delay factor; unless given, what their clocks tell.
    #[arg(long)]
    pub rate: Option<Bitrate>,
    /// The title's file: a sample of the sessions is compared with it byte by byte, up to its end.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Share of the sessions that are compared.
    #[arg(long, default_value_t = 0.1)]
    pub sample: f64,
    /// Asks for RTP.
    #[arg(long)]
    pub rtp: bool,
    /// Datagrams per send, 1 to 7, to ask for; the server's choice unless given.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub burst: Option<u8>,
    /// Lets the title begin again at its end.
    #[arg(long = "loop")]
    pub looped: bool,
    /// Threads that receive.
    #[arg(long, default_value_t = 1)]
    pub threads: u8,
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
    #[command(flatten)]
    pub limits: Limits,
}

/// What has to be held; exit status 1 when it is not.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Limits {
    /// Exit status 1 when a larger share of packets never came, 0 to 1.
    #[arg(long)]
    pub max_loss: Option<f64>,
    /// Exit status 1 when the 99th percentile of lateness is larger, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_lateness: Option<f64>,
    /// Exit status 1 when the 99th percentile of the time between datagrams is larger, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_interval: Option<f64>,
    /// Exit status 1 when one in a hundred sessions has a second with a larger delay factor, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_delay_factor: Option<f64>,
    /// Exit status 1 when one in a thousand sessions starts later after its request, in milliseconds.
    #[arg(long, value_name = "MS")]
    pub max_start: Option<f64>,
    /// Exit status 1 when the server counts more underruns.
    #[arg(long, value_name = "N")]
    pub max_underruns: Option<u64>,
}

fn listen_addr(text: &str) -> Result<SocketAddrV4, String> {
    let addr = ["udp://", "rtp://"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    // multicat and VLC have the group behind an @.
    addr.trim_start_matches('@').parse().map_err(|_| "udp:// with an IPv4 address and a port".to_owned())
}

/// Runs the load and prints the report. False when the asked-for quality was not held.
///
/// # Errors
/// When the server cannot be reached, refuses a session, or a socket cannot be had.
pub fn run(args: &Args) -> Result<bool> {
    let report = measure(args)?;
    if args.json {
        println!("{}", report.json());
    } else {
        report.print();
    }
    let failures = report.failures(&args.limits);
    for failure in &failures {
        eprintln!("not held: {failure}");
    }
    Ok(failures.is_empty())
}

/// Runs the load.
///
/// # Errors
/// As `run`.
pub fn measure(args: &Args) -> Result<Report> {
    args.check()?;
    let origin = args.start_origin()?;
    let original = match (&args.file, &origin) {
        (Some(file), _) => Some(Original::read(file)?),
        (None, Some((_, title))) => Original::of(title),
        (None, None) => None,
    };
    let original = original.map(Arc::new);
    let places = Places::open(args)?;
    let addrs = Addrs::of(args, &places);
    let threads = places.start(args, original.as_ref())?;
    let server = args.server();
    let opened = match &server {
        Some(server) => open(args, server, &addrs.asked())?,
        None => Vec::new(),
    };
    let counted = count(args, &threads, server.as_ref(), &opened, &addrs);
    let underruns = server.as_ref().map(|server| server.underruns_of_all(&opened));
    if let Some(server) = &server {
        server.close_all(&opened);
    }
    let (totals, mut context) = counted?;
    context.underruns = underruns.and_then(|underruns| match underruns {
        Ok(underruns) => Some(underruns),
        Err(error) => {
            eprintln!("underruns are not known: {error:#}");
            None
        }
    });
    Ok(Report::new(&totals, context))
}

impl Args {
    fn check(&self) -> Result<()> {
        let sessions = self.session_count();
        ensure!(self.title.is_none() || self.url.starts_with("http://"), "--url {}: only http:// here", self.url);
        ensure!(sessions > 0 && self.threads > 0, "at least one session and one thread");
        ensure!((0.0..=86_400.0).contains(&self.seconds), "--seconds is 0 to a day");
        ensure!((0.0..=3_600.0).contains(&self.warm_up), "--warm-up is 0 to an hour");
        ensure!((0.0..=3_600.0).contains(&self.wait), "--wait is 0 to an hour");
        ensure!((0.0..=1.0).contains(&self.sample), "--sample is 0 to 1");
        ensure!(self.starts_per_second > 0.0, "--starts-per-second is more than 0");
        ensure!((0.0..=100_000.0).contains(&self.newcomers_per_second), "--newcomers-per-second is 0 to 100000");
        ensure!(self.origin.is_none() || self.seconds >= 1.0, "--origin needs --seconds of 1 at least");
        let places = self.place_count();
        if self.has_sockets() {
            ensure!(places <= SOCKETS_MAX, "at most {SOCKETS_MAX} sessions with a port each");
        } else {
            let per_thread = places.div_ceil(usize::from(self.threads));
            ensure!(per_thread <= Addresses::MAX as usize, "at most {} sessions on one thread", Addresses::MAX);
        }
        Ok(())
    }

    fn session_count(&self) -> usize {
        self.sessions.unwrap_or(if self.listen.is_some() { 1 } else { 100 })
    }

    fn newcomer_count(&self) -> usize {
        (self.newcomers_per_second * self.seconds) as usize
    }

    /// All that are sent to places of ours.
    fn place_count(&self) -> usize {
        self.session_count() + self.newcomer_count() + self.faulty
    }

    /// The title of a session by its number; newcomers come behind the others.
    fn title_of(&self, number: usize) -> String {
        let own = self.newcomers_title.as_ref().filter(|_| number >= self.session_count() + self.unreceived);
        own.or(self.title.as_ref()).map_or(String::new(), |title| title.replace("{n}", &number.to_string()))
    }

    /// The origin, and what it serves.
    fn start_origin(&self) -> Result<Option<(Origin, Vec<u8>)>> {
        let Some(listen) = self.origin else { return Ok(None) };
        let title = match &self.file {
            Some(file) => std::fs::read(file).with_context(|| format!("read {}", file.display()))?,
            None => {
                let rate = self.rate.unwrap_or(Bitrate::from_kbps(4_500));
                Sample { rate, pictures: ORIGIN_PICTURES, ..Sample::default() }.make()
            }
        };
        let delay = Duration::from_millis(self.origin_delay);
        Ok(Some((Origin::start(listen, title.clone(), delay)?, title)))
    }

    /// Each session has a socket of its own.
    fn has_sockets(&self) -> bool {
        self.listen.is_some() || self.at.is_some()
    }

    fn server(&self) -> Option<Server> {
        self.title.as_ref()?;
        Some(Server {
            agent: crate::load::agent(),
            url: self.url.trim_end_matches('/').into(),
            token: self.token.clone(),
            scheme: if self.rtp { "rtp" } else { "udp" },
            burst: self.burst,
            looped: self.looped,
        })
    }
}

/// Where sessions arrive: of each thread its sockets. Session `n` belongs to thread `n % threads`.
struct Places {
    threads: Vec<Vec<UdpSocket>>,
}

impl Places {
    fn open(args: &Args) -> Result<Self> {
        let threads = usize::from(args.threads);
        let mut places = Places { threads: (0..threads).map(|_| Vec::new()).collect() };
        if !args.has_sockets() {
            for sockets in &mut places.threads {
                let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
                sockets.push(receive::open(any, SHARED_BUFFER_BYTES)?);
            }
            return Ok(places);
        }
        engine::sys::raise_open_files_max().context("raise the limit of open files")?;
        for session in 0..args.place_count() {
            let addr = match args.listen {
                Some(first) => {
                    let port = u16::try_from(session).ok().and_then(|count| first.port().checked_add(count));
                    SocketAddrV4::new(*first.ip(), port.context("there are no ports behind 65535")?)
                }
                None => SocketAddrV4::new(args.at.unwrap_or(Ipv4Addr::LOCALHOST), 0),
            };
            places.threads[session % threads].push(receive::open(addr, OWN_BUFFER_BYTES)?);
        }
        Ok(places)
    }

    fn by(args: &Args, thread: usize) -> By {
        if args.has_sockets() { By::Socket } else { By::Address(Addresses { run: 1 + thread as u8 % 250 }) }
    }

    /// Where session `number` is to be sent to.
    fn addr(&self, args: &Args, number: usize) -> SocketAddrV4 {
        let port = |socket: &UdpSocket| socket.local_addr().map_or(0, |addr| addr.port());
        let (thread, index) = (number % self.threads.len(), number / self.threads.len());
        match Self::by(args, thread) {
            By::Address(addresses) => {
                let ip = match addresses.of(index as u32) {
                    std::net::IpAddr::V4(ip) => ip,
                    std::net::IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
                };
                SocketAddrV4::new(ip, port(&self.threads[thread][0]))
            }
            By::Socket => {
                let ip = args.at.unwrap_or(Ipv4Addr::LOCALHOST);
                SocketAddrV4::new(ip, port(&self.threads[thread][index]))
            }
        }
    }

    fn start(self, args: &Args, original: Option<&Arc<Original>>) -> Result<Vec<Receiver>> {
        // Whoever has no watch is received, and not looked at.
        let (count, threads) = (args.session_count(), self.threads.len());
        let all = count + args.newcomer_count();
        let every = if args.sample > 0.0 { (1.0 / args.sample).round().max(1.0) as usize } else { usize::MAX };
        let start = |(thread, sockets): (usize, Vec<UdpSocket>)| {
            let sessions = (thread..all).step_by(threads);
            let watches = sessions.map(|session| {
                if session >= count {
                    return Watch::of_newcomer();
                }
                let is_compared = original.is_some() && session.is_multiple_of(every);
                Watch::new(args.rate, is_compared)
            });
            Receiver::start(sockets, Self::by(args, thread), watches.collect(), original.cloned())
        };
        self.threads.into_iter().enumerate().map(start).collect()
    }
}

/// Where everybody is to be sent to.
struct Addrs {
    received: Vec<SocketAddrV4>,
    unreceived: Vec<SocketAddrV4>,
    newcomers: Vec<SocketAddrV4>,
    faulty: Vec<SocketAddrV4>,
}

impl Addrs {
    fn of(args: &Args, places: &Places) -> Addrs {
        let mut addrs = (0..args.place_count()).map(|number| places.addr(args, number));
        let mut next = |count: usize| addrs.by_ref().take(count).collect();
        let sinks = args.sink.into_iter().flat_map(|first| {
            let addr = move |index| Ipv4Addr::from_bits(first.ip().to_bits().wrapping_add(index as u32));
            (0..args.unreceived).map(move |index| SocketAddrV4::new(addr(index), first.port()))
        });
        Addrs {
            received: next(args.session_count()),
            unreceived: sinks.collect(),
            newcomers: next(args.newcomer_count()),
            faulty: next(args.faulty),
        }
    }

    /// Of those that are opened before it counts.
    fn asked(&self) -> Vec<SocketAddrV4> {
        [&self.received[..], &self.unreceived].concat()
    }

    /// Those that come while it counts: newcomers, and titles that break.
    fn guests(&self, args: &Args) -> [Guests; 2] {
        let span = Duration::from_secs_f64(args.seconds);
        let before = self.received.len() + self.unreceived.len();
        let newcomers = self.newcomers.iter().enumerate().map(|(number, to)| (args.title_of(before + number), *to));
        let faulty = self.faulty.iter().enumerate().map(|(number, to)| (faulty_title(number), *to));
        [
            Guests { sessions: newcomers.collect(), span, stay: STAY },
            Guests { sessions: faulty.collect(), span, stay: span },
        ]
    }
}

fn open(args: &Args, server: &Server, addrs: &[SocketAddrV4]) -> Result<Vec<Opened>> {
    let progress = if args.json { ProgressBar::hidden() } else { ProgressBar::new(addrs.len() as u64) };
    progress.set_style(ProgressStyle::with_template("starting [{bar:40}] {pos}/{len}")?.progress_chars("=> "));
    let opened = server.open_all(|number| args.title_of(number), addrs, args.starts_per_second, &progress);
    progress.finish_and_clear();
    opened
}

/// Waits for the warm-up, then counts.
fn count(
    args: &Args,
    threads: &[Receiver],
    server: Option<&Server>,
    opened: &[Opened],
    addrs: &Addrs,
) -> Result<(Vec<Totals>, report::Context)> {
    let guests = addrs.guests(args);
    if server.is_none() {
        wait_for_streams(args, threads)?;
    }
    thread::sleep(Duration::from_secs_f64(args.warm_up));
    let cpu = || match (server, args.server_pid) {
        (Some(server), pid) => server_cpu(&server.agent, &server.url, pid),
        (None, Some(pid)) => server_cpu(&crate::load::agent(), "", Some(pid)),
        (None, None) => None,
    };
    threads.iter().try_for_each(Receiver::reset)?;
    mark(args.marks, "begin");
    let (started, server_before, load_before) = (Instant::now(), cpu(), own_cpu());
    thread::scope(|scope| {
        let visits = guests.each_ref().map(|guests| {
            let server = server.filter(|_| !guests.sessions.is_empty())?;
            Some(scope.spawn(move || guests.visit(server, started)))
        });
        count_down(args.json, started, started + Duration::from_secs_f64(args.seconds));
        mark(args.marks, "end");
        let (server_after, load_after) = (cpu(), own_cpu());
        let span = started.elapsed();
        let totals = threads.iter().map(Receiver::totals).collect::<Result<_>>()?;
        let [newcomers, faulty] = visits.map(|visit| visit.and_then(|visit| visit.join().ok()).unwrap_or_default());
        let asked = opened.iter().take(args.session_count()).map(Some).chain(newcomers.iter().map(Option::as_ref));
        let asked_ns: Vec<Option<u64>> = asked.map(|opened| opened.map(|opened| opened.asked_ns)).collect();
        let of_thread = |thread| asked_ns.iter().copied().skip(thread).step_by(threads.len()).collect();
        let context = report::Context {
            sessions_wanted: args.session_count(),
            span,
            asked_ns: (0..threads.len()).map(of_thread).collect(),
            faulty: faulty.iter().flatten().count(),
            underruns: None,
            server_cpu: server_before.zip(server_after).map(|(before, after)| after.since(before)),
            load_cpu: load_after.since(load_before),
        };
        Ok((totals, context))
    })
}

/// Waits until something of every session has arrived, or of some when the time is over.
fn wait_for_streams(args: &Args, threads: &[Receiver]) -> Result<()> {
    let begun = || threads.iter().map(Receiver::begun).sum::<u64>();
    let end = Instant::now() + Duration::from_secs_f64(args.wait);
    while begun() < args.session_count() as u64 {
        if Instant::now() >= end {
            if begun() == 0 {
                bail!("nothing arrived within {} s", args.wait);
            }
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
