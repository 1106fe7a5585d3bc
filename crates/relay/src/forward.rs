//! The way of data: from clients to peers, and back.
//!
//! In: runs of datagrams of one path. Out: the same bytes with another header, or none, for another path.
//! Cost: one lookup per run of one channel, and one hash of the peer's address per run from a peer; no copy, but of Data
//! indications whose data needs padding; no allocation.
//! Source: RFC 8656 §11 (Send and Data), §12.4 to §12.7 (ChannelData). What ICMP says of peers is not told to clients: the
//! attribute is optional (§11.5), and anybody can forge it.
//!
//! ```text
//! uplink    ┌───┬───┬─────────┐      ┌─────────┐        a run leaves as one run: what is left out lies between
//!  client → │num│len│ payload │  →   │ payload │ → peer its datagrams, and the kernel gathers them
//!           └───┴───┴─────────┘      └─────────┘
//! downlink  ┌─────────┐      ┌───┬───┬─────────┐        the header lies in the outbox, the payload where it was
//!  peer   → │ payload │  →   │num│len│ payload │ → client received
//!           └─────────┘      └───┴───┴─────────┘
//! ```

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use wire::{DatagramRun, LinkKind, Outbox, Path, Random};

use crate::allocation::Client;
use crate::allocations::Allocations;
use crate::associations::{self, Associations};
use crate::counters::Counters;
use crate::drops::DropReason;
use crate::ledger::Direction;
use crate::message::{
    COOKIE, Class, Family, HEADER_LEN, Method, attribute, attribute_at, message_type, xor, xor_address,
};
use crate::rules::{self, Rules};
use crate::settings::Settings;
use crate::spec::ClientTransport;

/// Bytes of the header of ChannelData.
const CHANNEL_HEADER_LEN: usize = 4;

/// One run on its way, and all that it takes.
pub(crate) struct Forward<'a, 'r> {
    pub(crate) now: Instant,
    pub(crate) allocations: &'a mut Allocations,
    pub(crate) associations: &'a mut Associations,
    pub(crate) settings: &'a Settings,
    pub(crate) rules: &'a Rules,
    pub(crate) counters: &'a mut Counters,
    /// Numbers of transactions that nobody answers.
    pub(crate) random: &'a mut Random,
    pub(crate) run: &'a DatagramRun<'r>,
    pub(crate) out: &'a mut Outbox,
}

/// Datagrams of the run, and which bytes of each.
#[derive(Clone, Debug)]
struct Part {
    segments: Range<usize>,
    bytes: Range<usize>,
}

/// How a client hears of a peer.
#[derive(Clone, Copy, Debug)]
enum Heading {
    /// ChannelData of this number.
    Channel(u16),
    /// A Data indication.
    Indication,
}

impl Forward<'_, '_> {
    /// Relays what stands at `first` and is ChannelData, with all behind it of the same channel. Returns how many datagrams
    /// that were.
    pub(crate) fn channel_data(&mut self, key: Option<usize>, first: usize) -> usize {
        let Some((number, part)) = self.channel_run(first) else {
            self.drop(DropReason::MalformedChannelData, 1);
            return 1;
        };
        let count = part.segments.len();
        let Some((key, allocation)) = key.and_then(|key| Some((key, self.allocations.get(key)?))) else {
            self.drop(DropReason::NoAllocation, count);
            return count;
        };
        match allocation.channels.peer(self.now, number) {
            Some(peer) => self.send_to_peer(key, peer, part),
            None => self.drop(DropReason::NoChannel, count),
        }
        count
    }

    /// The channel at `first`, and all datagrams from there on that are the same but for their payload. Each has all that it
    /// says; behind that there may be padding (RFC 8656 §12.5), in all of them or in none.
    fn channel_run(&self, first: usize) -> Option<(u16, Part)> {
        let header = channel_header(self.segment(first)?)?;
        let len = usize::from(header.len);
        let fits = |index: usize| {
            let segment = self.segment(index)?;
            let next = channel_header(segment)?;
            let same = next.number == header.number && next.is_exact == header.is_exact && next.len > 0;
            (same && (header.is_exact || next.len == header.len)).then_some(())
        };
        let mut end = first + 1;
        while len > 0 && fits(end).is_some() {
            end += 1;
        }
        // Where nothing is behind the payload, a shorter last datagram has just less of it.
        let to = if header.is_exact { usize::MAX } else { CHANNEL_HEADER_LEN + len };
        let bytes = CHANNEL_HEADER_LEN..if len == 0 { CHANNEL_HEADER_LEN } else { to };
        Some((header.number, Part { segments: first..end, bytes }))
    }

    /// Relays the Send indication at `index` (RFC 8656 §11.3).
    pub(crate) fn send_indication(&mut self, key: Option<usize>, index: usize) {
        let read = self.segment(index).and_then(|segment| read_send(segment, index));
        let Some((peer, part)) = read else {
            return self.drop(DropReason::MalformedStun, 1);
        };
        let Some((key, allocation)) = key.and_then(|key| Some((key, self.allocations.get(key)?))) else {
            return self.drop(DropReason::NoAllocation, 1);
        };
        let ports = allocation.permissions.ports(self.now, &peer.ip());
        match self.judge(ports, peer) {
            Some(reason) if allocation.channels.number(self.now, &peer).is_none() => self.drop(reason, 1),
            _ => self.send_to_peer(key, peer, part),
        }
    }

    /// Why data of or for a peer may not pass under a permission.
    fn judge(&self, ports: Option<rules::Ports>, peer: SocketAddr) -> Option<DropReason> {
        match ports {
            None => Some(DropReason::NoPermission),
            Some(rules::Ports::All) if peer.port() != 0 => None,
            Some(_) if self.rules.allows(peer) => None,
            Some(_) => Some(DropReason::ForbiddenPeer),
        }
    }

    /// Sends payloads to a peer that is permitted.
    fn send_to_peer(&mut self, key: usize, peer: SocketAddr, mut part: Part) {
        let (count, size) = (part.segments.len(), self.payload_len(&part));
        let Some(allocation) = self.allocations.get_mut(key) else { return };
        let Some(slot) = allocation.relayed(Family::of(peer.ip())).filter(|_| !allocation.is_tcp) else {
            return self.drop(DropReason::WrongFamily, count);
        };
        let taken = allocation.account.take(self.now, Direction::Sent, count, size, headers_len(peer));
        let bytes = self.bytes_of(&part, taken);
        let Some(allocation) = self.allocations.get_mut(key) else { return };
        allocation.sent.packets += taken as u64;
        allocation.sent.bytes += bytes;
        allocation.dropped += (count - taken) as u64;
        self.drop(DropReason::BandwidthSpent, count - taken);
        part.segments.end = part.segments.start + taken;
        self.counters.packets_to_peers += taken as u64;
        self.counters.bytes_to_peers += bytes;

        let Some(socket) = self.allocations.socket(slot) else { return };
        let (Some(link), shown) = (socket.link, socket.shown) else {
            return self.drop(DropReason::StaleLink, taken);
        };
        // Another client of this worker: it hears at once what the kernel would only bring back.
        if peer.ip() == shown.ip()
            && let Some(other) = self.allocations.shown(&peer)
        {
            self.counters.packets_joined += taken as u64;
            return self.send_to_client(other, shown, part);
        }
        let path = Path { link, remote: self.settings.inside(peer), local: None };
        let pushed = match size {
            // Data without a byte is a datagram all the same (RFC 8656 §11.3, §12.6).
            0 => usize::from(taken > 0 && self.out.push_empty(&path)),
            _ => self.out.push_prefixed(&path, self.run, part.segments, part.bytes, |_| []),
        };
        self.drop(DropReason::OutboxFull, taken - pushed);
    }

    /// Relays what a peer sent to a relayed address.
    pub(crate) fn handle_peer(&mut self, slot: usize) {
        // A run of no bytes is one datagram without any.
        let count = self.run.datagram_count().max(1);
        let is_known = self.allocations.socket(slot).is_some_and(|socket| socket.link == Some(self.run.path.link));
        if !is_known {
            return self.drop(DropReason::StaleLink, count);
        }
        self.send_to_client(
            slot,
            self.settings.outside(self.run.path.remote),
            Part { segments: 0..count, bytes: 0..usize::MAX },
        );
    }

    /// Sends payloads of a peer to the client behind a relayed address, if it permits that peer.
    fn send_to_client(&mut self, slot: usize, source: SocketAddr, mut part: Part) {
        let (count, size, now) = (part.segments.len(), self.payload_len(&part), self.now);
        let key = self.allocations.socket(slot).and_then(|socket| socket.allocation);
        let Some(allocation) = key.and_then(|key| self.allocations.get(key)).filter(|it| !it.is_over(now)) else {
            return self.drop(DropReason::NoAllocation, count);
        };
        let heading = match allocation.channels.number(now, &source) {
            Some(number) => Heading::Channel(number),
            None => match self.judge(allocation.permissions.ports(now, &source.ip()), source) {
                Some(reason) => return self.drop(reason, count),
                None => Heading::Indication,
            },
        };
        let client = allocation.client;
        let taken = allocation.account.take(now, Direction::Received, count, size, headers_len(source));
        let bytes = self.bytes_of(&part, taken);
        self.drop(DropReason::BandwidthSpent, count - taken);
        part.segments.end = part.segments.start + taken;
        if let Some(allocation) = key.and_then(|key| self.allocations.get_mut(key)) {
            allocation.received.packets += taken as u64;
            allocation.received.bytes += bytes;
            allocation.dropped += (count - taken) as u64;
        }
        self.counters.packets_to_clients += taken as u64;
        self.counters.bytes_to_clients += bytes;
        match heading {
            _ if client.transport == ClientTransport::Dtls => self.write_sealed(&client, heading, source, part),
            Heading::Channel(number) => self.write_channel_data(&client, number, part),
            Heading::Indication => self.write_indications(&client, source, part),
        }
    }

    /// Writes records of DTLS: each has one message, which is copied to be sealed. Those of one size leave as one run.
    fn write_sealed(&mut self, client: &Client, heading: Heading, source: SocketAddr, part: Part) {
        let Forward { associations, counters, random, run, out, .. } = self;
        let Some(records) = associations.records(&client.path) else {
            return counters.drops.add(DropReason::NoAssociation, part.segments.len() as u64);
        };
        for index in part.segments.clone() {
            let payload = payload_of(run, index, &part);
            let len = payload.len();
            let mut write = |parts: &[&[u8]]| associations::seal(records, &client.path, parts, out);
            let written = match (heading, source.ip()) {
                (Heading::Channel(number), _) => {
                    let head = u32::from(number) << 16 | (len as u32 & 0xffff);
                    write(&[&head.to_be_bytes(), payload])
                }
                (Heading::Indication, IpAddr::V4(ip)) => {
                    let head: [u8; 36] = indication_head(random, 1, source.port(), ip.octets(), len);
                    write(&[&head, payload, padding(len)])
                }
                (Heading::Indication, IpAddr::V6(ip)) => {
                    let head: [u8; 48] = indication_head(random, 2, source.port(), ip.octets(), len);
                    write(&[&head, payload, padding(len)])
                }
            };
            if let Err(reason) = written {
                counters.drops.add(reason, 1);
            }
        }
        if records.is_used_up() {
            associations.end_used_up(&client.path, out);
        }
    }

    fn write_channel_data(&mut self, client: &Client, number: u16, part: Part) {
        let (count, [high, low]) = (part.segments.len(), number.to_be_bytes());
        if self.run.data.is_empty() {
            let is_queued = count == 0 || self.out.push(&client.path, &[high, low, 0, 0]);
            return self.drop(DropReason::OutboxFull, usize::from(!is_queued));
        }
        let pushed = self.out.push_prefixed(&client.path, self.run, part.segments, part.bytes, |payload| {
            let [len_high, len_low] = (payload.len() as u16).to_be_bytes();
            [high, low, len_high, len_low]
        });
        self.drop(DropReason::OutboxFull, count - pushed);
    }

    /// Writes Data indications (RFC 8656 §11.6). On a connection the engine pads what it sends; a datagram has to be whole,
    /// so one whose data needs padding is copied.
    fn write_indications(&mut self, client: &Client, source: SocketAddr, part: Part) {
        let is_empty = self.run.data.is_empty();
        let is_framed = client.path.link.kind() == LinkKind::Framed;
        let is_whole = |len: usize| !is_empty && (is_framed || len.is_multiple_of(4));
        let mut first = part.segments.start;
        while first < part.segments.end {
            let len = self.len_at(first, &part);
            let same =
                (first..part.segments.end).take_while(|index| is_whole(len) && is_whole(self.len_at(*index, &part)));
            let whole = same.count();
            if whole > 0 {
                let segments = first..first + whole;
                let pushed = self.push_indications(client, source, segments, part.bytes.clone());
                self.drop(DropReason::OutboxFull, whole - pushed);
            } else {
                self.copy_indication(client, source, first, &part);
            }
            first += whole.max(1);
        }
    }

    /// Writes the heads of Data indications, and has the data follow from where it was received.
    fn push_indications(
        &mut self,
        client: &Client,
        source: SocketAddr,
        segments: Range<usize>,
        bytes: Range<usize>,
    ) -> usize {
        let Forward { run, random, out, .. } = self;
        match source.ip() {
            IpAddr::V4(ip) => out.push_prefixed::<36>(&client.path, run, segments, bytes, |payload| {
                indication_head(random, 1, source.port(), ip.octets(), payload.len())
            }),
            IpAddr::V6(ip) => out.push_prefixed::<48>(&client.path, run, segments, bytes, |payload| {
                indication_head(random, 2, source.port(), ip.octets(), payload.len())
            }),
        }
    }

    fn copy_indication(&mut self, client: &Client, source: SocketAddr, index: usize, part: &Part) {
        let Forward { run, random, out, .. } = self;
        let payload = payload_of(run, index, part);
        let padding = padding(payload.len());
        let is_queued = match source.ip() {
            IpAddr::V4(ip) => {
                let head: [u8; 36] = indication_head(random, 1, source.port(), ip.octets(), payload.len());
                out.push_joined(&client.path, &[&head, payload, padding])
            }
            IpAddr::V6(ip) => {
                let head: [u8; 48] = indication_head(random, 2, source.port(), ip.octets(), payload.len());
                out.push_joined(&client.path, &[&head, payload, padding])
            }
        };
        self.drop(DropReason::OutboxFull, usize::from(!is_queued));
    }

    /// Bytes of the payload of the first datagram of a part, of which no other has more.
    fn payload_len(&self, part: &Part) -> usize {
        self.len_at(part.segments.start, part)
    }

    fn len_at(&self, index: usize, part: &Part) -> usize {
        payload_of(self.run, index, part).len()
    }

    /// Bytes of the first `count` payloads.
    fn bytes_of(&self, part: &Part, count: usize) -> u64 {
        match count.checked_sub(1) {
            Some(others) => (others * self.payload_len(part) + self.len_at(part.segments.start + others, part)) as u64,
            None => 0,
        }
    }

    fn segment(&self, index: usize) -> Option<&[u8]> {
        segment_of(self.run, index)
    }

    /// Counts so many that go no further.
    fn drop(&mut self, reason: DropReason, count: usize) {
        self.counters.drops.add(reason, count as u64);
    }
}

/// What stands behind data of so many bytes in an attribute (RFC 8489 §14).
fn padding(len: usize) -> &'static [u8] {
    &[0; 3][..len.next_multiple_of(4) - len]
}

/// Bytes of the IP and UDP headers of a datagram from or for a peer (RFC 791, RFC 8200, RFC 768).
fn headers_len(peer: SocketAddr) -> usize {
    8 + if peer.is_ipv4() { 20 } else { 40 }
}

/// One datagram of a run.
pub(crate) fn segment_of<'a>(run: &'a DatagramRun<'_>, index: usize) -> Option<&'a [u8]> {
    let (start, size) = (index * run.segment_size.get(), run.segment_size.get());
    let end = (start + size).min(run.data.len());
    run.data.get(start..end).filter(|segment| !segment.is_empty())
}

/// What is relayed of it.
fn payload_of<'a>(run: &'a DatagramRun<'_>, index: usize, part: &Part) -> &'a [u8] {
    let segment = segment_of(run, index).unwrap_or_default();
    segment.get(part.bytes.start..part.bytes.end.min(segment.len())).unwrap_or_default()
}

/// What the header of ChannelData says.
struct ChannelHeader {
    number: u16,
    len: u16,
    /// Nothing is behind the data.
    is_exact: bool,
}

fn channel_header(segment: &[u8]) -> Option<ChannelHeader> {
    let (&[high, low, len_high, len_low], data) = segment.split_first_chunk()?;
    let (number, len) = (u16::from_be_bytes([high, low]), u16::from_be_bytes([len_high, len_low]));
    let is_channel = high >> 6 == 1 && usize::from(len) <= data.len();
    is_channel.then_some(ChannelHeader { number, len, is_exact: usize::from(len) == data.len() })
}

/// Whether a datagram is a Send indication, by its first bytes.
pub(crate) fn is_send(segment: &[u8]) -> bool {
    segment.starts_with(&message_type(Class::Indication, Method::Send))
}

/// Reads a Send indication: the peer, and where its data lies. `None` when it is none, or has something that must be
/// understood and is not (RFC 8489 §6.3.2).
fn read_send(segment: &[u8], index: usize) -> Option<(SocketAddr, Part)> {
    let header = segment.first_chunk::<HEADER_LEN>()?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let transaction = *header.last_chunk()?;
    if header[4..8] != COOKIE || length != segment.len() - HEADER_LEN {
        return None;
    }
    let (mut peer, mut data, mut at) = (None, None, HEADER_LEN);
    while at < segment.len() {
        let (kind, value, next) = attribute_at(segment, at)?;
        match kind {
            attribute::XOR_PEER_ADDRESS if peer.is_none() => peer = Some(xor_address(value, transaction)?),
            attribute::DATA if data.is_none() => data = Some(at + 4..at + 4 + value.len()),
            attribute::FINGERPRINT => {
                let crc = wire::stun::fingerprint(&segment[..at]);
                let is_right = value == crc.to_be_bytes() && next == segment.len();
                return is_right.then_some(()).and(Some((peer?, Part { segments: index..index + 1, bytes: data? })));
            }
            // Indications are not proved; what stands behind such a proof does not count.
            attribute::MESSAGE_INTEGRITY | attribute::MESSAGE_INTEGRITY_SHA256 => break,
            attribute::XOR_PEER_ADDRESS | attribute::DATA | attribute::DONT_FRAGMENT => {}
            _ if kind < 0x8000 => return None,
            _ => {}
        }
        at = next;
    }
    Some((peer?, Part { segments: index..index + 1, bytes: data? }))
}

/// All of a Data indication before the data: header, XOR-PEER-ADDRESS, and the head of DATA.
fn indication_head<const IP: usize, const N: usize>(
    random: &mut Random,
    family: u8,
    port: u16,
    ip: [u8; IP],
    data_len: usize,
) -> [u8; N] {
    const { assert!(N == HEADER_LEN + 8 + IP + 4, "header, address, head of the data") };
    let mut head = [0; N];
    let length = (N - HEADER_LEN + data_len.next_multiple_of(4)) as u16;
    let mut transaction = [0; 12];
    transaction[..8].copy_from_slice(&random.next_u64().to_be_bytes());
    head[..2].copy_from_slice(&message_type(Class::Indication, Method::Data));
    head[2..4].copy_from_slice(&length.to_be_bytes());
    head[4..8].copy_from_slice(&COOKIE);
    head[8..20].copy_from_slice(&transaction);
    head[20..22].copy_from_slice(&attribute::XOR_PEER_ADDRESS.to_be_bytes());
    head[22..24].copy_from_slice(&(4 + IP as u16).to_be_bytes());
    head[25] = family;
    head[26..28].copy_from_slice(&(port ^ u16::from_be_bytes([COOKIE[0], COOKIE[1]])).to_be_bytes());
    head[28..28 + IP].copy_from_slice(&xor(ip, transaction));
    head[N - 4..N - 2].copy_from_slice(&attribute::DATA.to_be_bytes());
    head[N - 2..].copy_from_slice(&(data_len as u16).to_be_bytes());
    head
}
