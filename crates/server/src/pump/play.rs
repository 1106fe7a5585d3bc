//! Plays one title to one destination, without a server and a configuration: `millrace pump`.
//!
//! In: a file or URL, a session's request. Out: the session, a line of status for people, the end.

use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use engine::{WorkerConfig, mailbox};
use pump::spec::{self, EndReason, SessionId};
use titles::Library;
use tokio::runtime::{Builder, Handle};
use wire::{Bitrate, Multicast, UdpOptions};

use super::control::{Inspected, PumpControl, PumpError, Settings};
use super::outputs::Outputs;
use super::request::OpenRequest;
use super::sessions::{End, Limits, Session};
use super::{setup, times};
use crate::config::LiveInput;
use crate::host::addresses;
use crate::report;
use crate::signals::Ends;

/// How often it is looked whether the session has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Looks between two lines of status.
const LOOKS_PER_LINE: u32 = 20;

/// How long a session may take to end once it was told to.
const GOODBYE: Duration = Duration::from_secs(2);

/// What to play, and how.
#[derive(Clone, Debug)]
pub struct Play {
    /// Its `title` is a file's path, or a URL; that of a live input with udp or rtp.
    pub request: OpenRequest,
    /// Port to send from; 0 takes any free one.
    pub source_port: u16,
    /// How datagrams to a group leave.
    pub multicast: Multicast,
    /// The six upper bits of the traffic class.
    pub dscp: u8,
    /// As a server's `[pump]` would say.
    pub pump: spec::Settings,
}

/// Plays until the title ends, or a signal comes.
///
/// # Errors
/// Why the title cannot be played, or not to its end.
pub fn run(play: &Play) -> anyhow::Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().context("starting a thread")?;
    runtime.block_on(start(play))
}

async fn start(play: &Play) -> anyhow::Result<()> {
    let mut request = play.request.clone();
    let live = LiveInput::new("input", &request.title);
    if live.is_some() {
        request.title = "live/input".to_owned();
    } else if !request.title.contains("://") {
        let path = Path::new(&request.title).canonicalize().with_context(|| request.title.clone())?;
        request.title = path.to_str().context("the file's path is not UTF-8")?.to_owned();
    }
    let settings = titles::Settings { allow_paths: true, allow_urls: true, ..titles::Settings::default() };
    let library = Library::new(settings).context("preparing to read titles")?;
    let control = control(play, library)?;
    control.start_live(live.as_slice())?;
    let mut signals = Ends::new()?;
    let session = tokio::select! {
        opened = open(&control, &request) => opened?,
        () = signals.next() => return Ok(()),
    };
    let mut screen = Screen::new(&control, &session).await;
    let mut tick = tokio::time::interval(LOOK);
    let mut told = None;
    for look in 1_u32.. {
        tokio::select! {
            _ = tick.tick() => {}
            () = signals.next() => {
                // It may just have ended.
                control.close(session.id).ok();
                told = told.or(Some(Instant::now()));
            }
        }
        let end = ended(&control, session.id);
        if end.is_some() || look.is_multiple_of(LOOKS_PER_LINE) {
            screen.show(&control, end.is_some()).await;
        }
        match end {
            Some(End::Pump(EndReason::Ended | EndReason::Closed)) => return Ok(()),
            Some(why) => anyhow::bail!("{}: {why}", play.request.title),
            None => anyhow::ensure!(told.is_none_or(|at| at.elapsed() < GOODBYE), "the worker does not answer"),
        }
    }
    Ok(())
}

/// Waits for a live input until something comes.
async fn open(control: &PumpControl, request: &OpenRequest) -> Result<Session, PumpError> {
    let mut is_told = false;
    loop {
        match control.open(request).await {
            Err(PumpError::NoSignal) => {}
            opened => return opened,
        }
        if !std::mem::replace(&mut is_told, true) {
            for input in control.live_inputs() {
                say(&format!("waiting for a transport stream at {}\n", input.config));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn ended(control: &PumpControl, id: SessionId) -> Option<End> {
    let found = control.sessions().into_iter().find(|session| session.id == id);
    found.and_then(|session| session.end).map(|(why, _)| why)
}

/// A worker with a pump and nothing else, and the control plane above it.
fn control(play: &Play, library: Library) -> anyhow::Result<Arc<PumpControl>> {
    let options = UdpOptions { multicast: play.multicast, dscp: play.dscp, ..UdpOptions::sender() };
    let from = addresses(&[Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()], play.source_port);
    let sockets = setup::senders(from, &options);
    let config = WorkerConfig { name: "pump".into(), sockets, ..WorkerConfig::default() };
    let (control, reports) = mailbox(report::MAILBOX).context("making a mailbox")?;
    let worker = setup::start_worker(0, config, play.pump.clone(), control)?;
    let limits = Limits { bandwidth_max: Bitrate::from_bps(u64::MAX / 2), sessions_max: 1, refused_timeout: None };
    let settings = Settings { limits, outputs: Outputs::default(), destinations: None, read_timeout: Duration::MAX };
    setup::start(library, vec![worker], settings, reports, Handle::current())
}

/// What a person sees.
struct Screen {
    id: SessionId,
    /// The title's length; `None`: it goes on as long as it comes.
    length: Option<Duration>,
    is_terminal: bool,
    /// When the last line was written, and the bytes sent by then.
    last: (Instant, u64),
}

impl Screen {
    async fn new(control: &PumpControl, session: &Session) -> Self {
        let (title, zero) = (&session.content.title, session.content.zero);
        let length = match session.content.end {
            u64::MAX => None,
            _ => Some(times::length(control.library(), title, zero).await),
        };
        let is_terminal = std::io::stderr().is_terminal();
        let Session { name, destination, .. } = session;
        let rate = megabits(title.rate());
        let shown = length.map_or("live".to_owned(), clock);
        say(&format!("{name} ({shown}, {rate:.2} Mbit/s) to {destination}; Ctrl-C ends it\n"));
        Screen { id: session.id, length, is_terminal, last: (Instant::now(), 0) }
    }

    /// A terminal sees a line that changes; a file gets the last one.
    async fn show(&mut self, control: &PumpControl, is_last: bool) {
        if !self.is_terminal && !is_last {
            return;
        }
        let Ok(Inspected { stats, at, .. }) = control.inspect(self.id).await else { return };
        let rate = Bitrate::of(stats.bytes.saturating_sub(self.last.1), self.last.0.elapsed());
        self.last = (Instant::now(), stats.bytes);
        let lateness = control.plane().workers().numbers().next().map(|(_, numbers)| numbers.pump.load().lateness);
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let p99 = ms(lateness.unwrap_or_default().quantile(0.99));
        let line = format!(
            "{}{}  {:.2} Mbit/s  {} datagrams  late p99 {p99:.2} ms, at most {:.2} ms  underruns {}",
            clock(at),
            self.length.map_or(String::new(), |length| format!(" of {}", clock(length))),
            megabits(rate),
            stats.datagrams,
            ms(stats.late_max),
            stats.underruns,
        );
        let late_s = stats.pad_late.as_secs();
        let pad = if late_s == 0 { String::new() } else { format!("  too much for --pad, {late_s} s late") };
        let refusals = match control.totals().refusals {
            0 => "",
            _ => "  nobody listened there at times",
        };
        let (before, after) = (if self.is_terminal { "\r" } else { "" }, if is_last { "\n" } else { "" });
        let erase = if self.is_terminal { "\x1b[K" } else { "" };
        say(&format!("{before}{line}{pad}{refusals}{erase}{after}"));
    }
}

/// Nobody has to read it.
fn say(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).ok();
}

fn megabits(rate: Bitrate) -> f64 {
    rate.bps() as f64 / 1e6
}

/// "1:02:03.4"
fn clock(at: Duration) -> String {
    let tenths = (at.as_millis() + 50) / 100;
    let (seconds, minutes, hours) = (tenths / 10 % 60, tenths / 600 % 60, tenths / 36_000);
    match hours {
        0 => format!("{minutes}:{seconds:02}.{}", tenths % 10),
        _ => format!("{hours}:{minutes:02}:{seconds:02}.{}", tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_players_do() {
        let written = [0, 950, 61_240, 7_261_000].map(|ms| clock(Duration::from_millis(ms)));
        assert_eq!(written, ["0:00.0", "0:01.0", "1:01.2", "2:01:01.0"]);
    }
}
