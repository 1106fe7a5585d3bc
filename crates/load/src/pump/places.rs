//! Where sessions arrive, and where those go that are not received.
//!
//! On loopback all sessions of a thread share one socket, and each has an address of 127.0.0.0/8; elsewhere each has a
//! socket of its own.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::args::Args;
use super::guests::{Guests, STAY};
use super::origin::faulty_title;
use super::original::Original;
use super::receive;
use super::receiver::{By, Receiver};
use super::watch::Watch;
use crate::clients::Addresses;

/// One socket receives what thousands would: it holds what comes while its thread does something else.
const SHARED_BUFFER_BYTES: usize = 64 << 20;

/// Of a socket with one session.
const OWN_BUFFER_BYTES: usize = 2 << 20;

/// Where sessions arrive: of each thread its sockets. Session `n` belongs to thread `n % threads`.
pub(super) struct Places {
    threads: Vec<Vec<UdpSocket>>,
}

impl Places {
    pub(super) fn open(args: &Args) -> Result<Self> {
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

    pub(super) fn start(self, args: &Args, original: Option<&Arc<Original>>) -> Result<Vec<Receiver>> {
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
pub(super) struct Addrs {
    pub(super) received: Vec<SocketAddrV4>,
    pub(super) unreceived: Vec<SocketAddrV4>,
    pub(super) newcomers: Vec<SocketAddrV4>,
    pub(super) faulty: Vec<SocketAddrV4>,
}

impl Addrs {
    pub(super) fn of(args: &Args, places: &Places) -> Addrs {
        let mut addrs = (0..args.place_count()).map(|number| places.addr(args, number));
        let mut next = |count: usize| addrs.by_ref().take(count).collect();
        let sink = |index| {
            let ip = args.sink.ip().to_bits().wrapping_add(index as u32);
            SocketAddrV4::new(Ipv4Addr::from_bits(ip), args.sink.port())
        };
        Addrs {
            received: next(args.session_count()),
            unreceived: (0..args.unreceived).map(sink).collect(),
            newcomers: next(args.newcomer_count()),
            faulty: next(args.faulty),
        }
    }

    /// Those that come while it counts: newcomers, and titles that break.
    pub(super) fn guests(&self, args: &Args) -> [Guests; 2] {
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
