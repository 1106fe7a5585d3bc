//! RTCP of RTSP's sessions: sender reports and goodbyes out, receiver reports and goodbyes in.
//!
//! Each socket that the pump sends from has a neighbour here, on the port above where that is free, so that a session's
//! `server_port` is a pair. A report counts when it speaks of a stream's SSRC, which only its receiver knows, and comes
//! from that client's address.
//! Cost: one look at a session's counters per report, each 4 to 6 seconds.
//! Source: RFC 3550 §6.1 (compounds), §6.4, §6.6; RFC 7022 (CNAME).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use engine::OpenSocket;
use engine::sys::udp_socket;
use pump::spec::SessionStats;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use wire::rtcp::{
    Packet, SenderInfo, packets, write_bye, write_receiver_report, write_sdes_cname, write_sender_report,
};
use wire::rtp::FIXED_HEADER_LEN;
use wire::{DATAGRAM_MAX, WorkerId};

use super::Rtsp;
use crate::host::ntp;
use crate::random::{hex, random};

/// What a socket of the pump has beside it.
struct Neighbour {
    worker: WorkerId,
    rtp: SocketAddr,
    /// `None`: no port is to be had, and nothing is reported.
    rtcp: Option<(Arc<UdpSocket>, u16)>,
}

/// The sockets for RTCP.
pub(super) struct Sockets {
    neighbours: Vec<Neighbour>,
    /// Names this server in all its reports.
    cname: String,
}

impl Sockets {
    /// Binds beside the socket of each worker and family for sessions that ask for no other. Needs a runtime.
    pub(super) fn bind<'a>(senders: impl Iterator<Item = &'a [OpenSocket]>) -> Self {
        let first = |senders: &[OpenSocket], is_ipv4| {
            let mut plain = senders.iter().filter(|sender| sender.token.number == 0).map(|sender| sender.local);
            plain.find(|addr| addr.is_ipv4() == is_ipv4)
        };
        let both = |(worker, senders)| [true, false].map(|is_ipv4| first(senders, is_ipv4).map(|rtp| (worker, rtp)));
        let all = (0..).map(WorkerId).zip(senders).flat_map(both).flatten();
        let neighbours = all.map(|(worker, rtp)| Neighbour { worker, rtp, rtcp: bind_beside(rtp) }).collect();
        // A CNAME that others have as well only says that these streams belong together.
        let cname = hex(&random::<12>().unwrap_or_default());
        Sockets { neighbours, cname }
    }

    /// Ports that a worker's sessions to a client come from: packets, and reports.
    pub(super) fn server_ports(&self, worker: WorkerId, client: IpAddr) -> Option<(u16, u16)> {
        let found = self.find(worker, client)?;
        Some((found.rtp.port(), found.rtcp.as_ref()?.1))
    }

    /// Sends a compound to where a client wants it. What the socket does not take is lost, as the network may lose it.
    pub(super) fn send(&self, worker: WorkerId, to: SocketAddr, compound: &[u8]) {
        if let Some((socket, _)) = self.find(worker, to.ip()).and_then(|found| found.rtcp.as_ref()) {
            socket.try_send_to(compound, to).ok();
        }
    }

    fn find(&self, worker: WorkerId, client: IpAddr) -> Option<&Neighbour> {
        self.neighbours.iter().find(|found| found.worker == worker && found.rtp.is_ipv4() == client.is_ipv4())
    }

    /// Writes what there is to say of a stream: a report by its numbers, and who says it; without numbers a goodbye.
    pub(super) fn compound(&self, now: SystemTime, ssrc: u32, stats: Option<&SessionStats>) -> Option<Vec<u8>> {
        let mut buf = vec![0; DATAGRAM_MAX];
        let mut len = match stats {
            Some(stats) => write_sender_report(&mut buf, &sender_info(now, ssrc, stats)?, &[])?,
            None => write_receiver_report(&mut buf, ssrc, &[])?,
        };
        len += write_sdes_cname(&mut buf[len..], ssrc, &self.cname)?;
        if stats.is_none() {
            len += write_bye(&mut buf[len..], &[ssrc])?;
        }
        buf.truncate(len);
        Some(buf)
    }
}

fn bind_beside(rtp: SocketAddr) -> Option<(Arc<UdpSocket>, u16)> {
    let beside = rtp.port().checked_add(1).and_then(|port| udp_socket(&SocketAddr::new(rtp.ip(), port)).ok());
    let socket = beside.or_else(|| udp_socket(&SocketAddr::new(rtp.ip(), 0)).ok())?;
    let port = socket.local_addr().ok()?.port();
    Some((Arc::new(UdpSocket::from_std(socket).ok()?), port))
}

/// `None` before the first packet.
fn sender_info(now: SystemTime, ssrc: u32, stats: &SessionStats) -> Option<SenderInfo> {
    let headers = stats.datagrams * FIXED_HEADER_LEN as u64;
    Some(SenderInfo {
        ssrc,
        ntp: ntp(now),
        rtp_timestamp: stats.rtp?.timestamp,
        // Both wrap (RFC 3550 §6.4.1).
        packet_count: stats.datagrams as u32,
        byte_count: stats.bytes.saturating_sub(headers) as u32,
    })
}

/// What a compound from a receiver says: of which streams, and whether it leaves them.
pub(super) fn read(compound: &[u8]) -> (Vec<u32>, bool) {
    let (mut ssrcs, mut is_leaving) = (Vec::new(), false);
    // What is malformed says nothing.
    for packet in packets(compound).into_iter().flatten() {
        match packet {
            Packet::ReceiverReport(report) => ssrcs.extend(report.blocks().map(|block| block.ssrc)),
            Packet::SenderReport(report) => ssrcs.extend(report.blocks().map(|block| block.ssrc)),
            Packet::Bye(_) => is_leaving = true,
            _ => {}
        }
    }
    (ssrcs, is_leaving)
}

/// Receives reports until it is dropped.
pub(super) async fn receive(rtsp: &Arc<Rtsp>) {
    let mut tasks = JoinSet::new();
    for (socket, _) in rtsp.sockets.neighbours.iter().filter_map(|found| found.rtcp.as_ref()) {
        let (rtsp, socket) = (rtsp.clone(), socket.clone());
        tasks.spawn(async move {
            let mut buf = vec![0; DATAGRAM_MAX];
            loop {
                // An error is what ICMP says of a report that was sent; the session's timeout sees to that.
                if let Ok((len, from)) = socket.recv_from(&mut buf).await {
                    rtsp.handle_report(Instant::now(), from.ip().to_canonical(), &buf[..len]);
                }
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::host::SECONDS_1900_TO_1970;
    use pump::spec::RtpPoint;

    fn sockets() -> Sockets {
        Sockets { neighbours: Vec::new(), cname: "somebody".into() }
    }

    #[test]
    fn a_sender_report_tells_the_moment_by_both_clocks_and_what_was_sent() {
        let rtp = Some(RtpPoint { seq: 5, timestamp: 90_000 });
        let stats = SessionStats { datagrams: 10, bytes: 13_280, rtp, ..SessionStats::default() };
        let now = UNIX_EPOCH + Duration::from_millis(1_500);
        let compound = sockets().compound(now, 7, Some(&stats)).expect("it has begun");
        let mut read = packets(&compound).expect("well-formed");
        let Some(Packet::SenderReport(report)) = read.next() else { panic!("a sender report comes first") };
        assert_eq!(report.info.ntp, (SECONDS_1900_TO_1970 + 1) << 32 | 1 << 31);
        assert_eq!((report.info.ssrc, report.info.rtp_timestamp), (7, 90_000));
        assert_eq!((report.info.packet_count, report.info.byte_count), (10, 13_160));
        assert!(matches!(read.next(), Some(Packet::Other)), "then who it is");
        assert!(compound.windows(10).any(|item| item == b"\x01\x08somebody"));
        assert!(read.next().is_none());
    }

    #[test]
    fn nothing_is_reported_before_the_first_packet() {
        let stats = SessionStats::default();
        assert_eq!(sockets().compound(UNIX_EPOCH, 7, Some(&stats)), None);
    }

    #[test]
    fn a_goodbye_stands_behind_an_empty_report() {
        let compound = sockets().compound(UNIX_EPOCH, 7, None).expect("written");
        let kinds: Vec<_> = packets(&compound).expect("well-formed").collect();
        assert!(matches!(kinds[..], [Packet::ReceiverReport(_), Packet::Other, Packet::Bye(_)]));
        assert!(compound.ends_with(&[0x81, 203, 0, 1, 0, 0, 0, 7]));
    }

    #[test]
    fn receivers_tell_of_which_streams_they_speak() {
        let mut buf = [0; 200];
        let block = wire::rtcp::ReportBlock { ssrc: 9, ..Default::default() };
        let mut len = write_receiver_report(&mut buf, 1, &[block]).expect("room");
        assert_eq!(read(&buf[..len]), (vec![9], false));
        len += write_bye(&mut buf[len..], &[1]).expect("room");
        assert_eq!(read(&buf[..len]), (vec![9], true));
        assert_eq!(read(&buf[..len - 1]), (vec![], false), "what is cut says nothing");
        assert_eq!(read(&[]), (vec![], false));
    }
}
