//! Where sessions arrive.
//!
//! On loopback all sessions of a thread share one socket, and each has an address of 127.0.0.0/8; elsewhere each has a
//! socket of its own.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

use anyhow::{Context as _, Result};

use super::args::Args;
use super::original::Original;
use super::receive;
use super::receiver::Receiver;
use super::watch::Watch;
use crate::clients::{Addresses, is_of_sample};

/// One socket receives what thousands would: it holds what comes while its thread does something else.
const SHARED_BUFFER_BYTES: usize = 64 << 20;

/// Of a socket with one session.
const OWN_BUFFER_BYTES: usize = 2 << 20;

/// Where sessions arrive: of each thread its sockets. Session `n` belongs to thread `n % threads`.
pub(super) struct Places<'a> {
    args: &'a Args,
    threads: Vec<Vec<UdpSocket>>,
}

impl<'a> Places<'a> {
    pub(super) fn open(args: &'a Args) -> Result<Self> {
        let thread_count = usize::from(args.common.threads);
        let mut threads: Vec<Vec<UdpSocket>> = (0..thread_count).map(|_| Vec::new()).collect();
        if !args.has_sockets() {
            for sockets in &mut threads {
                sockets.push(receive::open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), SHARED_BUFFER_BYTES)?);
            }
            return Ok(Places { args, threads });
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
            threads[session % thread_count].push(receive::open(addr, OWN_BUFFER_BYTES)?);
        }
        Ok(Places { args, threads })
    }

    /// The addresses of a thread's sessions, where they share a socket.
    fn addresses(&self, thread: usize) -> Option<Addresses> {
        (!self.args.has_sockets()).then_some(Addresses { run: 1 + thread as u8 % 250 })
    }

    /// Where session `number` is to be sent to.
    pub(super) fn addr(&self, number: usize) -> SocketAddrV4 {
        let (thread, index) = (number % self.threads.len(), number / self.threads.len());
        let (ip, socket) = match self.addresses(thread) {
            Some(addresses) => (addresses.of(index), 0),
            None => (self.args.at.unwrap_or(Ipv4Addr::LOCALHOST), index),
        };
        let port = self.threads[thread][socket].local_addr().map_or(0, |addr| addr.port());
        SocketAddrV4::new(ip, port)
    }

    /// Receives all but those whose titles break, and looks at what arrives.
    pub(super) fn start(self, original: Option<&Arc<Original>>) -> Result<Vec<Receiver>> {
        let (args, count) = (self.args, self.args.session_count());
        let watch = |session: usize| match session < count {
            true => Watch::new(args.rate, original.is_some() && is_of_sample(session, args.sample)),
            false => Watch::of_newcomer(),
        };
        let addresses: Vec<_> = (0..self.threads.len()).map(|thread| self.addresses(thread)).collect();
        let start = |((thread, sockets), addresses)| {
            let sessions = (thread..count + args.newcomer_count()).step_by(usize::from(args.common.threads));
            Receiver::start(sockets, addresses, sessions.map(watch).collect(), original.cloned())
        };
        self.threads.into_iter().enumerate().zip(addresses).map(start).collect()
    }
}
