//! Interleaved sessions: the pump's datagrams on their way into the connection of their client.
//!
//! The pump sends to UDP destinations only, so an interleaved session's is a socket of the connection's own task, on
//! this machine. What comes there is framed and goes between the responses. A client that takes too little loses
//! datagrams at that socket, whole ones, as it would on a network; nobody else waits for it.
//! Cost: one more copy and one more receive call per datagram than a UDP session has.
//! Source: RFC 2326 §10.12.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use engine::sys::{BufferSide, set_buffer_bytes, udp_socket};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use wire::rtp::RtpPacket;
use wire::{DATAGRAM_MAX, Seq};

/// Sessions of one connection at most: each has two of 256 channels, and a player has one session.
const SESSIONS_MAX: usize = 16;

/// What the socket holds while the task is busy elsewhere: half a second of 20 Mbit/s, and what the kernel adds.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Reports that wait for the connection at most; further ones are left out, as the next will say the same.
const REPORTS_MAX: usize = 16;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) client: IpAddr,
    pub(super) client_port: u16,
    pub(super) server: IpAddr,
}

/// RTCP on its way to a connection.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) channel: u8,
    pub(super) compound: Vec<u8>,
}

/// How reports get to a connection.
pub(super) type Reports = mpsc::Sender<Report>;

/// What one connection carries beside requests and responses.
pub(super) struct Interleaved {
    /// Names the connection among all.
    pub(super) connection: u64,
    pub(super) ends: Ends,
    /// Ports that the pump sends from.
    senders: Vec<SocketAddr>,
    /// Where the pump sends to; from the first interleaved session on.
    socket: Option<UdpSocket>,
    channels: Vec<Channels>,
    reports: (Reports, mpsc::Receiver<Report>),
    /// When its sessions were kept alive last.
    kept: Option<Instant>,
    datagram: Box<[u8; DATAGRAM_MAX]>,
}

#[derive(Debug)]
struct Channels {
    session: String,
    ssrc: Option<u32>,
    rtp: u8,
    rtcp: u8,
    /// The number of the last packet.
    seq: Option<Seq>,
}

/// What is there to be written.
pub(super) enum Carried {
    /// Some datagrams may be read.
    Datagrams,
    Report(Report),
}

/// Datagrams that went into the connection, and that are missing before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) carried: u64,
    pub(super) lost: u64,
}

impl Interleaved {
    pub(super) fn new(connection: u64, ends: Ends, senders: Vec<SocketAddr>) -> Self {
        Interleaved {
            connection,
            ends,
            senders,
            socket: None,
            channels: Vec::new(),
            reports: mpsc::channel(REPORTS_MAX),
            kept: None,
            datagram: Box::new([0; DATAGRAM_MAX]),
        }
    }

    /// Where the pump is to send an interleaved session. `None`: there are too many, or no socket is to be had.
    pub(super) fn destination(&mut self) -> Option<SocketAddr> {
        if self.channels.len() >= SESSIONS_MAX {
            return None;
        }
        if self.socket.is_none() {
            self.socket = self.bind().ok();
        }
        self.socket.as_ref()?.local_addr().ok()
    }

    fn bind(&self) -> io::Result<UdpSocket> {
        // The pump reaches its own address, also when it sends from only one.
        let from = self.senders.iter().find(|addr| addr.is_ipv4()).or(self.senders.first());
        let ip = match from.map(|addr| addr.ip()) {
            Some(ip) if !ip.is_unspecified() => ip,
            Some(IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
            Some(IpAddr::V4(_)) | None => Ipv4Addr::LOCALHOST.into(),
        };
        let socket = udp_socket(&SocketAddr::new(ip, 0))?;
        // Where the system's limit is lower, that has to do.
        set_buffer_bytes(socket.as_fd(), BufferSide::Receive, SOCKET_BUFFER_BYTES).ok();
        UdpSocket::from_std(socket)
    }

    /// The channels that were asked for, when they are free; else the first two that are.
    pub(super) fn free_channels(&self, asked: Option<(u8, u8)>) -> Option<(u8, u8)> {
        let is_free = |channel: u8| self.channels.iter().all(|taken| taken.rtp != channel && taken.rtcp != channel);
        let mut pairs = (0..=254).step_by(2).map(|first| (first, first + 1));
        asked
            .filter(|pair| is_free(pair.0) && is_free(pair.1))
            .or(pairs.find(|pair| is_free(pair.0) && is_free(pair.1)))
    }

    pub(super) fn add(&mut self, session: String, ssrc: Option<u32>, (rtp, rtcp): (u8, u8)) {
        self.channels.push(Channels { session, ssrc, rtp, rtcp, seq: None });
    }

    /// A session has another SSRC from now on.
    pub(super) fn set_ssrc(&mut self, session: &str, ssrc: Option<u32>) {
        for channels in self.channels.iter_mut().filter(|channels| channels.session == session) {
            (channels.ssrc, channels.seq) = (ssrc, None);
        }
    }

    pub(super) fn remove(&mut self, session: &str) {
        self.channels.retain(|channels| channels.session != session);
    }

    /// Forgets the sessions that are not there any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.channels.retain(|channels| is_there(&channels.session));
    }

    /// Whether its sessions are to be kept alive again, which is noted as done.
    pub(super) fn take_kept(&mut self, now: Instant, interval: Duration) -> bool {
        let is_due = self.kept.is_none_or(|kept| now.saturating_duration_since(kept) >= interval);
        if is_due {
            self.kept = Some(now);
        }
        is_due
    }

    /// The interleaved sessions, which end with the connection.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &str> {
        self.channels.iter().map(|channels| &*channels.session)
    }

    pub(super) fn reports(&self) -> Reports {
        self.reports.0.clone()
    }

    /// Waits until there is something to write. Cancelled, it has taken nothing.
    pub(super) async fn ready(&mut self) -> Carried {
        let Interleaved { socket, reports: (_, reports), .. } = self;
        let readable = async {
            match socket {
                Some(socket) => socket.readable().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = readable => Carried::Datagrams,
            // The sender is held here, so there is always one.
            Some(report) = reports.recv() => Carried::Report(report),
        }
    }

    /// Frames what has come in, as long as `out` has fewer than `len_max` bytes.
    pub(super) fn read_datagrams(&mut self, out: &mut Vec<u8>, len_max: usize) -> Read {
        let mut read = Read::default();
        let Some(socket) = &self.socket else { return read };
        while out.len() < len_max {
            // It would block, or an earlier error is reported here.
            let Ok((len, from)) = socket.try_recv_from(&mut self.datagram[..]) else { break };
            let datagram = &self.datagram[..len];
            let is_pump = self.senders.iter().any(|addr| addr.port() == from.port());
            let Ok(packet) = RtpPacket::parse(datagram) else { continue };
            let (ssrc, seq) = (packet.header().ssrc, packet.header().seq);
            let channels = self.channels.iter_mut().find(|channels| channels.ssrc == Some(ssrc) && is_pump);
            if let Some(channels) = channels {
                write_frame(out, channels.rtp, datagram);
                // The pump numbers what it sends without a gap.
                let step = channels.seq.replace(seq).map_or(1, |last| last.distance_to(seq));
                read.carried += 1;
                read.lost += u64::try_from(step).map_or(0, |step| step.saturating_sub(1));
            }
        }
        read
    }
}

/// Writes a channel's data as it stands in the connection (§10.12).
pub(super) fn write_frame(out: &mut Vec<u8>, channel: u8, data: &[u8]) {
    let Ok(len) = u16::try_from(data.len()) else { return };
    let [high, low] = len.to_be_bytes();
    out.extend([b'$', channel, high, low]);
    out.extend(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends =
        Ends { client: IpAddr::V4(Ipv4Addr::LOCALHOST), client_port: 1, server: IpAddr::V4(Ipv4Addr::LOCALHOST) };

    #[test]
    fn channels_are_those_that_were_asked_for_unless_they_are_taken() {
        let mut interleaved = Interleaved::new(1, ENDS, Vec::new());
        assert_eq!(interleaved.free_channels(Some((4, 5))), Some((4, 5)));
        assert_eq!(interleaved.free_channels(None), Some((0, 1)));
        interleaved.add("a".into(), Some(7), (0, 1));
        assert_eq!(interleaved.free_channels(Some((1, 2))), Some((2, 3)));
        interleaved.remove("a");
        assert_eq!(interleaved.free_channels(Some((1, 2))), Some((1, 2)));
    }

    #[tokio::test]
    async fn only_known_streams_from_the_pump_go_into_the_connection() {
        let pump = UdpSocket::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("loopback can be bound");
        let mut interleaved = Interleaved::new(1, ENDS, vec![pump.local_addr().expect("bound")]);
        let to = interleaved.destination().expect("a socket");
        interleaved.add("a".into(), Some(7), (2, 3));

        let packet = |ssrc: u8, seq: u8| [0x80, 33, 255, seq, 0, 0, 0, 0, 0, 0, 0, ssrc, 0x47];
        for (socket, ssrc) in [(&stranger, 7), (&pump, 8), (&pump, 7)] {
            socket.send_to(&packet(ssrc, 253), to).await.expect("sent");
        }
        pump.send_to(b"short", to).await.expect("sent");
        let (out, read) = read_some(&mut interleaved).await;
        assert_eq!((out, read), ([&[b'$', 2, 0, 13][..], &packet(7, 253)].concat(), Read { carried: 1, lost: 0 }));

        pump.send_to(&packet(7, 255), to).await.expect("sent");
        let (_, read) = read_some(&mut interleaved).await;
        assert_eq!(read, Read { carried: 1, lost: 1 }, "one between them was lost");
    }

    async fn read_some(interleaved: &mut Interleaved) -> (Vec<u8>, Read) {
        let mut out = Vec::new();
        loop {
            assert!(matches!(interleaved.ready().await, Carried::Datagrams));
            let read = interleaved.read_datagrams(&mut out, 1_000);
            if !out.is_empty() {
                return (out, read);
            }
        }
    }
}
