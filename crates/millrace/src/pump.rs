//! `millrace pump`: what was typed becomes a session.

use std::time::Duration;

use clap::Args;
use pump::spec::{Pacing, PlaySpec, Settings, TICK_STRICT};
use server::pump::destination::Destination;
use server::pump::play::{self, Play};
use server::pump::request::{OpenRequest, burst, fec, in_range, speed_permille};
use server::pump::setup::multicast;
use wire::Bitrate;

#[derive(Args)]
pub struct Pump {
    /// A file, an http or https URL whose server has range requests, or a live input: udp://@group:port, rtp://@:port, with
    /// source@group for one source, and ?interface=eth0&delay=300ms.
    #[arg(value_name = "FILE")]
    title: String,
    /// Where to: udp://host:port or rtp://host:port, a group (multicast) as well.
    destination: Destination,
    /// Sends the title's packets at this constant rate, such as 4.5Mbps, instead of by its clock.
    #[arg(long, value_parser = rate)]
    rate: Option<Bitrate>,
    /// Fills up with null packets to this constant rate, which is above the title's; its clock is corrected.
    #[arg(long, value_parser = rate, conflicts_with = "rate")]
    pad: Option<Bitrate>,
    /// Datagrams per send, 1 to 7: more cost less CPU, fewer are smoother.
    #[arg(long, value_name = "COUNT", default_value_t = Settings::default().burst, value_parser = burst_of)]
    burst: u8,
    /// Sends parity, too (SMPTE 2022-1, for rtp://): a datagram for each column of such a matrix, two ports above.
    #[arg(long, value_name = "COLUMNSxROWS", value_parser = matrix)]
    fec: Option<(u8, u8)>,
    /// And a datagram for each row of it, four ports above.
    #[arg(long, requires = "fec")]
    fec_rows: bool,
    /// Begins anew at the end, until it is stopped.
    #[arg(long = "loop")]
    looped: bool,
    /// Begins so far into the title, at the picture before: seconds, 1:30, 1:02:30, or a number with s, m or h.
    #[arg(long, value_name = "TIME", value_parser = place, default_value = "0")]
    start: Duration,
    /// Ends so far into the title.
    #[arg(long, value_name = "TIME", value_parser = place)]
    end: Option<Duration>,
    /// Waits before it begins.
    #[arg(long, value_name = "TIME", value_parser = crate::args::duration, default_value = "0s")]
    delay: Duration,
    /// Sends so many times as fast, for receivers that store; the title's clock stays as it is.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    speed: u32,
    /// Deadlines are kept to 50 µs instead of 500 µs, for receivers with tiny buffers.
    #[arg(long)]
    strict: bool,
    /// Port to send from; 0 takes any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    source_port: u16,
    /// Routers that datagrams to a group may pass, plus one: 1 stays in the local network.
    #[arg(long, default_value_t = 1)]
    ttl: u8,
    /// Interface that datagrams to a group leave by.
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Receivers on this machine do not get what is sent to a group.
    #[arg(long)]
    no_multicast_loop: bool,
    /// Class of service (DSCP, RFC 2474), 0 to 63: 34 is AF41, usual for video.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=63))]
    dscp: u8,
}

impl Pump {
    pub fn run(&self) -> anyhow::Result<()> {
        let parity = self.fec.map(|(columns, rows)| fec(columns, rows, self.fec_rows, &self.destination));
        let pacing = match (self.rate, self.pad) {
            (Some(rate), _) => Pacing::Rate(rate),
            (None, Some(rate)) => Pacing::Padded(rate),
            (None, None) => Pacing::Clock,
        };
        let request = OpenRequest {
            start: self.start,
            end: self.end,
            delay: self.delay,
            play: PlaySpec {
                pacing,
                fec: parity.transpose()?,
                burst: Some(self.burst),
                looped: self.looped,
                speed_permille: self.speed,
                ..PlaySpec::default()
            },
            ..OpenRequest::new(self.title.clone(), self.destination.clone())
        };
        play::run(&Play {
            request,
            source_port: self.source_port,
            multicast: multicast(self.ttl, self.interface.as_deref(), !self.no_multicast_loop)?,
            dscp: self.dscp,
            pump: if self.strict { Settings { tick: TICK_STRICT, ..Settings::default() } } else { Settings::default() },
        })
    }
}

fn rate(text: &str) -> Result<Bitrate, String> {
    let read = text.parse().ok().and_then(in_range);
    read.ok_or_else(|| "a rate up to 10 Gbit/s, such as 4.5Mbps".to_owned())
}

fn matrix(text: &str) -> Result<(u8, u8), String> {
    let read = text.split_once('x').and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
    read.ok_or_else(|| "columns and rows, such as 10x5".to_owned())
}

fn burst_of(text: &str) -> Result<u8, String> {
    burst(text.parse().unwrap_or(0)).map_err(|error| error.to_string())
}

fn speed(text: &str) -> Result<u32, String> {
    speed_permille(text.parse().unwrap_or(0.0)).map_err(|error| error.to_string())
}

/// A place in a title: hours, minutes and seconds with colons, as many as needed; or with a unit.
fn place(text: &str) -> Result<Duration, String> {
    by_colons(text)
        .or_else(|| crate::args::duration(text).ok())
        .ok_or_else(|| "a time in the title, such as 90, 1:30, 1:02:30.5, 90s or 12m".to_owned())
}

fn by_colons(text: &str) -> Option<Duration> {
    let (before, seconds) = text.rsplit_once(':').unwrap_or(("", text));
    let seconds: f64 = seconds.parse().ok().filter(|seconds| *seconds >= 0.0)?;
    let (hours, minutes) = before.rsplit_once(':').unwrap_or(("0", before));
    let minutes: u32 = if minutes.is_empty() { 0 } else { minutes.parse().ok()? };
    let whole = Duration::from_secs(3_600 * u64::from(hours.parse::<u32>().ok()?) + 60 * u64::from(minutes));
    whole.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_title_is_typed_in_any_usual_way() {
        let typed = ["0", "90", "1:30", "01:02:30.5", "90s", "12m"].map(|text| place(text).unwrap().as_secs_f64());
        assert_eq!(typed, [0.0, 90.0, 90.0, 3_750.5, 90.0, 720.0]);
        for wrong in ["", ":", "-1", "1:-1", "a:10", "1:2:3:4", "1e300", "NaN", "inf", "10 x"] {
            assert!(place(wrong).is_err(), "{wrong:?}");
        }
    }
}
