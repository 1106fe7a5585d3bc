//! What `millrace load pump` is told on the command line, and what of it makes no sense.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::body::Bytes;
use measure::text::seconds;
use pump::sample::Sample;
use wire::Bitrate;

use super::feed::{Feed, Input};
use super::origin::Origin;
use super::rtsp::{KEEP, Players};
use super::sessions::Server;
use crate::clients::{Addresses, Common};

/// Sockets at most, where each session has one.
const SOCKETS_MAX: usize = 10_000;

/// What an origin of our own serves unless a file is given: long enough that no session comes to its end soon.
const ORIGIN_PICTURES: u32 = 25 * 60;

/// Starts sessions of a title, receives them all, and measures what arrives; or measures what any sender sends.
#[derive(clap::Args, Clone, Debug)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["title", "listen"]))]
pub struct Args {
    /// Starts sessions by RTSP there, as set-top boxes do, and not by the API: RTP by UDP, a connection for each. The API is
    /// asked for the server's CPU time and lateness only.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["listen", "at", "unreceived", "burst", "looped"])]
    pub rtsp: Option<SocketAddrV4>,
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
    /// Is the source of a live input there, udp:// or rtp://: sends a stream of constant rate, --rate or 4.5 Mbit/s, from
    /// before the first session to the end. "--title live/NAME" plays it.
    #[arg(long, value_name = "udp://ADDR:PORT", value_parser = Input::parse, conflicts_with_all = ["listen", "file"])]
    pub feed: Option<Input>,
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
    /// Further sessions, which are not received, to addresses from --sink on: to load a server with more than one machine
    /// can look at. They need a route to something that drops.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "listen")]
    pub unreceived: usize,
    /// Where those go.
    #[arg(long, value_name = "ADDR:PORT", default_value = "198.18.0.0:5000")]
    pub sink: SocketAddrV4,
    /// Address of ours to receive on, with a port for each session; otherwise one port, and an address of 127.0.0.0/8 each.
    #[arg(long, value_name = "ADDR", conflicts_with = "listen")]
    pub at: Option<Ipv4Addr>,
    /// Starts per second.
    #[arg(long, default_value_t = 100.0)]
    pub starts_per_second: f64,
    /// How long to wait for the first datagrams with --listen, in seconds.
    #[arg(long, default_value = "20", value_parser = seconds)]
    pub wait: Duration,
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
    /// What every load generator is told.
    #[command(flatten)]
    pub common: Common,
    /// What has to be held.
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

impl Args {
    pub(super) fn check(&self) -> Result<()> {
        let sessions = self.session_count();
        ensure!(sessions > 0 && self.common.threads > 0, "at least one session and one thread");
        ensure!((0.0..=1.0).contains(&self.sample), "--sample is 0 to 1");
        ensure!(self.starts_per_second > 0.0, "--starts-per-second is more than 0");
        ensure!((0.0..=100_000.0).contains(&self.newcomers_per_second), "--newcomers-per-second is 0 to 100000");
        ensure!(
            self.origin.is_none() || self.common.basics.seconds >= Duration::from_secs(1),
            "--origin needs --seconds of 1 at least"
        );
        let places = self.place_count();
        if self.has_sockets() {
            ensure!(places <= SOCKETS_MAX, "at most {SOCKETS_MAX} sessions with a port each");
        } else {
            let per_thread = places.div_ceil(usize::from(self.common.threads));
            ensure!(per_thread <= Addresses::MAX, "at most {} sessions on one thread", Addresses::MAX);
        }
        Ok(())
    }

    pub(super) fn session_count(&self) -> usize {
        self.sessions.unwrap_or(if self.listen.is_some() { 1 } else { 100 })
    }

    pub(super) fn newcomer_count(&self) -> usize {
        (self.newcomers_per_second * self.common.basics.seconds.as_secs_f64()) as usize
    }

    /// All that are sent to places of ours.
    pub(super) fn place_count(&self) -> usize {
        self.session_count() + self.newcomer_count() + self.faulty
    }

    /// The title of a session by its number; newcomers come behind the others.
    pub(super) fn title_of(&self, number: usize) -> String {
        let own = self.newcomers_title.as_ref().filter(|_| number >= self.session_count() + self.unreceived);
        own.or(self.title.as_ref()).map_or(String::new(), |title| title.replace("{n}", &number.to_string()))
    }

    /// Where one that is not received is sent to.
    pub(super) fn sink_of(&self, index: usize) -> SocketAddrV4 {
        let ip = self.sink.ip().to_bits().wrapping_add(index as u32);
        SocketAddrV4::new(ip.into(), self.sink.port())
    }

    /// The origin, and what it serves.
    pub(super) fn start_origin(&self) -> Result<Option<(Origin, Bytes)>> {
        let Some(listen) = self.origin else { return Ok(None) };
        let title = match &self.file {
            Some(file) => std::fs::read(file).with_context(|| format!("read {}", file.display()))?,
            None => Sample { rate: self.made_rate(), pictures: ORIGIN_PICTURES, ..Sample::default() }.make(),
        };
        let (title, delay) = (Bytes::from(title), Duration::from_millis(self.origin_delay));
        let listener = TcpListener::bind(listen).with_context(|| format!("listen at {listen}, as an origin"))?;
        Ok(Some((Origin::start(listener, title.clone(), delay)?, title)))
    }

    /// The source of the live input, whose stream lasts longer than the run.
    pub(super) fn start_feed(&self) -> Result<Option<Feed>> {
        let Some(to) = self.feed else { return Ok(None) };
        let starts = (self.session_count() + self.unreceived) as f64 / self.starts_per_second;
        let starts = Duration::try_from_secs_f64(starts).context("--feed for so long")?;
        let span = 2 * (starts + self.common.warm_up + self.common.basics.seconds) + Duration::from_secs(30);
        Feed::start(to, self.made_rate(), span).map(Some)
    }

    /// Of streams that are made here.
    fn made_rate(&self) -> Bitrate {
        self.rate.unwrap_or(Bitrate::from_kbps(4_500))
    }

    /// Each session has a socket of its own.
    pub(super) fn has_sockets(&self) -> bool {
        self.listen.is_some() || self.at.is_some()
    }

    /// The server, if it is one that is asked for sessions.
    pub(super) fn server(&self) -> Result<Option<Server>> {
        if self.title.is_none() {
            return Ok(None);
        }
        let players = |addr| {
            engine::sys::raise_open_files_max().context("raise the limit of open files")?;
            Players::new(addr, KEEP)
        };
        let (api, rtsp) = (self.common.basics.api()?, self.rtsp.map(players).transpose()?);
        let scheme = if self.rtp { "rtp" } else { "udp" };
        Ok(Some(Server { api, scheme, burst: self.burst, looped: self.looped, rtsp }))
    }
}
