//! `millrace load attack`: what strangers may send to a server of rooms, while others watch.
//!
//! In: a server's URL, a stream that is watched, what to send and how much of it. Out: how much was sent, and what HTTP
//! said. It takes no part in any session but that it asks for offers to be answered, as anybody may who may watch.
//! Cost: a thread per kind.

mod raw;
mod stun;

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use measure::text::seconds;
use serde::Serialize;
use webrtc::{Context, Direction, OfferOptions, Peer};
use wire::Random;
use wire::codec::Codec;

pub use raw::Socket as RawSocket;
pub use stun::nominating_check;

use crate::clients::{Answer, Api, Basics, sleep_until};

/// Sends what strangers may send to a server, for as long as asked for: floods of datagrams that look like STUN, DTLS and
/// media, checks with a right user fragment and wrong integrity, forged ICMP, connections, offers.
///
/// On loopback it comes from many addresses (127.0.0.0/8), and its offers for many, as from a proxy. Forged ICMP takes root.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// A stream that is published, from whose answers the workers' ports are known.
    #[arg(long, default_value = "load-0")]
    pub stream: String,
    /// What to send.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "stun,ufrag,dtls,media,icmp,connects,slow,sdp,offers"
    )]
    pub kinds: Vec<Kind>,
    /// Datagrams or connections per second, of each kind.
    #[arg(long, default_value_t = 5_000)]
    pub rate: u32,
    /// Slow connections that are held at a time.
    #[arg(long, default_value_t = 1_000)]
    pub held: usize,
    /// Requests per second, of each kind that is asked by HTTP.
    #[arg(long, default_value_t = 20)]
    pub requests: u32,
    /// How often a slow connection sends a byte, in seconds.
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub byte_interval: Duration,
    /// What everybody is told who asks a server.
    #[command(flatten)]
    pub basics: Basics,
}

/// One thing that strangers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Datagrams that begin like STUN.
    Stun,
    /// Checks for a session that there is, with a wrong MESSAGE-INTEGRITY.
    Ufrag,
    /// Datagrams that begin like DTLS, ClientHellos among them.
    Dtls,
    /// Datagrams that begin like SRTP and SRTCP.
    Media,
    /// ICMP messages that a datagram of the server did not arrive, or was too long.
    Icmp,
    /// TCP connections that are closed at once; 2,000 a second at most, as each takes a port of ours for a while.
    Connects,
    /// TCP connections that stay and send a byte now and then.
    Slow,
    /// Offers that are none.
    Sdp,
    /// Offers whose sender never connects.
    Offers,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// For each kind, in the order asked for.
    pub kinds: Vec<(Kind, Sent)>,
}

/// What was sent of one kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sent {
    /// Datagrams, connections or requests.
    pub count: u64,
    /// Those that the system or the server refused.
    pub refused: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(kind, sent): &(Kind, Sent)| format!("{kind:?}: {} sent, {} refused", sent.count, sent.refused);
        f.write_str(&self.kinds.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// Runs the attack.
///
/// # Errors
/// When the server has not the stream, or the system lets nobody send from raw sockets.
pub fn run(args: &Args) -> Result<bool> {
    let report = attack(args)?;
    args.basics.print(&report, &[])
}

/// The same, with what was sent.
///
/// # Errors
/// As `run`.
pub fn attack(args: &Args) -> Result<Report> {
    engine::sys::raise_open_files_max().context("raise the limit of open files")?;
    let target = Target::find(args)?;
    let target = &target;
    let (start, end) = (Instant::now(), Instant::now() + args.basics.seconds);
    thread::scope(|scope| {
        let begin = |(index, kind): (usize, &Kind)| {
            let (kind, random) = (*kind, Random::new(index as u64 + 1));
            let (ufrag, sent) = (target.ufrag.clone(), Sent::default());
            let attacker = Attacker { args, target, random, start, end, ufrag, sent };
            (kind, scope.spawn(move || attacker.send(kind)))
        };
        let running: Vec<_> = args.kinds.iter().enumerate().map(begin).collect();
        let end = |(kind, thread): (Kind, thread::ScopedJoinHandle<'_, Result<Sent>>)| {
            Ok((kind, thread.join().expect("an attacker does not panic").with_context(|| format!("{kind:?}"))?))
        };
        Ok(Report { kinds: running.into_iter().map(end).collect::<Result<_>>()? })
    })
}

/// What is attacked.
struct Target {
    api: Api,
    context: Context,
    /// Where to watch.
    whep_url: String,
    /// UDP and TCP ports of workers.
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    /// The user fragment of a session that waits for its checks, and since when.
    ufrag: (String, Instant),
}

/// How long the stream may take to be there, and how long between two looks.
const STREAM_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_POLL: Duration = Duration::from_millis(100);

/// Answers that are looked at: viewers are spread over workers, each with a port of its own.
const ANSWERS: usize = 4;

impl Target {
    fn find(args: &Args) -> Result<Self> {
        let api = args.basics.api()?;
        let whep_url = format!("{}/whep/{}", api.url, args.stream);
        let context = Context::new()?;
        let (udp, tcp, ufrag) = (Vec::new(), Vec::new(), (String::new(), Instant::now()));
        let mut target = Target { api, context, whep_url, udp, tcp, ufrag };
        for _ in 0..ANSWERS {
            let answer = target.first_answer()?;
            ensure!(answer.status == 201, "POST {}: {}: {}", target.whep_url, answer.status, answer.body);
            target.read(&answer.body);
        }
        ensure!(!target.udp.is_empty() && !target.ufrag.0.is_empty(), "an answer names no IPv4 address");
        Ok(target)
    }

    /// What an offer is answered, once there is such a stream.
    fn first_answer(&self) -> Result<Answer> {
        let until = Instant::now() + STREAM_TIMEOUT;
        loop {
            let answer = self.api.post(&self.whep_url, "application/sdp", &self.offer()?)?;
            if answer.status != 404 || Instant::now() >= until {
                return Ok(answer);
            }
            thread::sleep(STREAM_POLL);
        }
    }

    fn offer(&self) -> Result<String> {
        let video = &[Codec::Vp8];
        let options =
            OfferOptions { direction: Direction::Receive, audio: false, video, rids: &[], stream: "", tcp: true };
        Ok(Peer::offer(&self.context, Instant::now(), &options)?.1)
    }

    /// The user fragment of one more session, if the server opens one.
    fn next_ufrag(&self) -> Option<String> {
        let answer = self.api.post(&self.whep_url, "application/sdp", &self.offer().ok()?).ok()?;
        ufrag_of(&answer.body).map(str::to_owned)
    }

    /// Takes what an answer tells of the worker: `a=candidate` (RFC 8839 §5.1) and the user fragment.
    fn read(&mut self, sdp: &str) {
        if let Some(ufrag) = ufrag_of(sdp) {
            self.ufrag = (ufrag.to_owned(), Instant::now());
        }
        for line in sdp.lines() {
            let Some(candidate) = line.strip_prefix("a=candidate:") else { continue };
            let words: Vec<&str> = candidate.split(' ').collect();
            let [_, _, protocol, _, ip, port, ..] = words[..] else { continue };
            let (Ok(ip), Ok(port)) = (ip.parse::<Ipv4Addr>(), port.parse()) else { continue };
            let ports = if protocol.eq_ignore_ascii_case("udp") { &mut self.udp } else { &mut self.tcp };
            let addr = SocketAddr::new(ip.into(), port);
            if !ports.contains(&addr) {
                ports.push(addr);
            }
        }
    }
}

/// The `a=ice-ufrag` of an answer (RFC 8839 §5.4).
fn ufrag_of(sdp: &str) -> Option<&str> {
    sdp.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:"))
}

/// One thread of it.
struct Attacker<'a> {
    args: &'a Args,
    target: &'a Target,
    random: Random,
    start: Instant,
    end: Instant,
    /// The user fragment that is used now, and since when.
    ufrag: (String, Instant),
    sent: Sent,
}

/// Addresses and ports that one attacker comes from.
const SOURCES: usize = 64;

/// Connections per second that are made and closed.
const CONNECTS_MAX: u32 = 2_000;

/// How long a user fragment is used: a session is dropped that has proved no address within 5 s.
const UFRAG_AGE_MAX: Duration = Duration::from_secs(4);

impl Attacker<'_> {
    fn send(mut self, kind: Kind) -> Result<Sent> {
        let Args { rate, requests, .. } = *self.args;
        match kind {
            Kind::Stun | Kind::Ufrag | Kind::Dtls | Kind::Media => {
                let sockets = (0..SOURCES).map(|index| self.socket(index)).collect::<Result<Vec<_>>>()?;
                self.at(rate, |own, index| {
                    let datagram = own.datagram(kind);
                    let to = own.target.udp[index as usize % own.target.udp.len()];
                    sockets[index as usize % SOURCES].send_to(&datagram, to).is_ok()
                });
            }
            Kind::Icmp => {
                let raw = raw::Socket::open()?;
                self.at(rate, |own, index| {
                    let server = own.target.udp[index as usize % own.target.udp.len()];
                    let viewer = SocketAddr::new(own.source(index as usize).into(), 1_024 + own.below(60_000) as u16);
                    raw.send_unreachable(server, viewer, own.random.next_u64().is_multiple_of(2))
                });
            }
            Kind::Connects => self.at(rate.min(CONNECTS_MAX), |own, index| own.connect(index).is_some()),
            Kind::Slow => self.hold(),
            Kind::Sdp => self.at(requests, |own, index| {
                let offer = own.target.offer().unwrap_or_default();
                let cut = own.below(offer.len() as u64) as usize;
                let text = if index % 2 == 0 { offer[..cut].to_owned() } else { offer.replace("a=", "b=") };
                own.post(index, &text)
            }),
            Kind::Offers => {
                self.at(requests, |own, index| own.target.offer().is_ok_and(|offer| own.post(index, &offer)));
            }
        }
        Ok(self.sent)
    }

    /// Does something at a rate until the end; false from it is counted as a refusal.
    fn at(&mut self, rate: u32, mut act: impl FnMut(&mut Self, u64) -> bool) {
        let start = self.start;
        while Instant::now() < self.end {
            // A burst every two milliseconds: a timer for each would be late anyway.
            let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u64;
            while self.sent.count < due && Instant::now() < self.end {
                let index = self.sent.count;
                let is_taken = act(self, index);
                self.sent.count += 1;
                self.sent.refused += u64::from(!is_taken);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// For a client of the networks that are for measuring (RFC 2544, appendix C.2.2); a server that does not take us for its
    /// proxy knows better.
    fn post(&self, index: u64, offer: &str) -> bool {
        let [high, low] = (index as u16).to_be_bytes();
        let client = Ipv4Addr::new(198, 18, high, low).into();
        let answer = self.target.api.post_for(client, &self.target.whep_url, "application/sdp", offer);
        answer.is_ok_and(|answer| answer.status == 201)
    }

    /// An address of ours: one of many on loopback, else any.
    fn source(&self, index: usize) -> Ipv4Addr {
        match self.target.udp[0].ip() {
            IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::new(127, 99, (index >> 8) as u8, index as u8),
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    fn socket(&self, index: usize) -> Result<UdpSocket> {
        let socket = UdpSocket::bind((self.source(index), 0)).context("a socket to attack from")?;
        // What does not fit is not sent, as with any flood.
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn connect(&mut self, index: u64) -> Option<TcpStream> {
        let to = *self.target.tcp.get(index as usize % self.target.tcp.len().max(1))?;
        raw::connect(self.source(index as usize), to).ok()
    }

    /// Holds connections, each of which sends a byte now and then; those that the server ends are made again.
    fn hold(&mut self) {
        let mut held: Vec<TcpStream> = Vec::new();
        let mut index = 0;
        while Instant::now() < self.end {
            while held.len() < self.args.held && Instant::now() < self.end {
                index += 1;
                self.sent.count += 1;
                match self.connect(index) {
                    Some(stream) => held.push(stream),
                    None => {
                        self.sent.refused += 1;
                        break;
                    }
                }
            }
            // A machine that was slow to make them is given no more at once.
            sleep_until(self.end.min(Instant::now() + self.args.byte_interval));
            let before = held.len();
            held.retain_mut(|stream| stream.write_all(&[0]).is_ok() && !matches!(stream.read(&mut [0]), Ok(0)));
            self.sent.refused += (before - held.len()) as u64;
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit.max(1)
    }

    /// A user fragment of a session that is there, as far as the server opens any.
    fn live_ufrag(&mut self) -> &str {
        let (ufrag, since) = &mut self.ufrag;
        if since.elapsed() > UFRAG_AGE_MAX {
            *since = Instant::now();
            if let Some(next) = self.target.next_ufrag() {
                *ufrag = next;
            }
        }
        ufrag
    }

    fn datagram(&mut self, kind: Kind) -> Vec<u8> {
        let len = 20 + self.below(if kind == Kind::Media { 1_200 } else { 200 }) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| self.random.next_u64() as u8).collect();
        match kind {
            Kind::Stun => {
                bytes[..2].copy_from_slice(&[0, 1]);
                if len.is_multiple_of(2) {
                    bytes[4..8].copy_from_slice(&stun::MAGIC_COOKIE);
                }
            }
            Kind::Ufrag => {
                let username = format!("{}:evil", self.live_ufrag());
                return stun::nominating_check(&username, None, &mut self.random);
            }
            Kind::Dtls if len.is_multiple_of(2) => return client_hello(&bytes),
            Kind::Dtls => bytes[0] = 20 + bytes[0] % 44,
            _ => bytes[0] = 128 + bytes[0] % 64,
        }
        bytes
    }
}

/// A ClientHello of DTLS 1.2 (RFC 6347 §4.2.1) with nothing in it that is agreed on.
fn client_hello(random: &[u8]) -> Vec<u8> {
    let mut body = vec![0xfe, 0xfd];
    body.extend((0..32).map(|index| random[index % random.len()]));
    body.extend([0, 0, 0, 2, 0xc0, 0x2b, 1, 0]);
    let len = (body.len() as u32).to_be_bytes();
    let handshake = [&[1][..], &len[1..], &[0, 0, 0, 0, 0], &len[1..], &body].concat();
    let record_len = (handshake.len() as u16).to_be_bytes();
    [&[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, random[0]][..], &record_len, &handshake].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_hello_says_how_long_it_is() {
        let hello = client_hello(&[7; 20]);
        assert_eq!(usize::from(u16::from_be_bytes([hello[11], hello[12]])), hello.len() - 13);
    }
}
