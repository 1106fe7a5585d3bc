//! Where the datagrams end: sockets on loopback that nobody reads.
//!
//! Their receive buffers hold a packet or two, so that the kernel drops almost everything at the socket: the whole way
//! through the sending side is paid, and of the receiving side only what it takes to find the socket. A GSO send is
//! split there as well, by the same code that splits for a network card which cannot.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use engine::udp::{Options, UdpSocket};

/// The smallest buffer that the kernel gives (it raises this to its minimum).
const RECEIVE_BUFFER_BYTES: usize = 1;

/// Descriptors for everything that is not a sink.
const SPARE_FILES: u64 = 64;

/// One socket for each receiver, and so one port.
#[derive(Debug)]
pub(crate) struct Sinks {
    sockets: Vec<UdpSocket>,
}

impl Sinks {
    pub(crate) fn bind(count: usize) -> Result<Self> {
        let files_max = engine::sys::raise_open_files_max().context("raise the limit of open files")?;
        let needed = count as u64 + SPARE_FILES;
        anyhow::ensure!(files_max >= needed, "{count} receivers need {needed} open files, the limit is {files_max}");
        let options =
            Options { gso: false, gro: false, receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES), ..Options::default() };
        Ok(Sinks { sockets: (0..count).map(|_| bind_loopback(&options)).collect::<Result<_>>()? })
    }

    pub(crate) fn addr(&self, index: usize) -> SocketAddr {
        self.sockets[index].local_addr()
    }
}

pub(crate) fn bind_loopback(options: &Options) -> Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), options).context("bind a socket on 127.0.0.1")
}
