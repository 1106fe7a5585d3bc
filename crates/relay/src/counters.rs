//! What a worker's relay counts.

use counters::{Cell, Lateness, Value, counters, counts_by};
use strum::VariantArray as _;

use crate::drops::DropCounters;
use crate::message::Family;
use crate::spec::ClientTransport;

counters! {
    /// A worker's counters since it started, and what it has now.
    pub struct Counters: "millrace_relay_" {
        /// Allocations on the worker, by how their clients come.
        gauge allocations: AllocationCounts = "allocations",
        /// Ports of relayed addresses that are in use, or kept for somebody.
        gauge ports_in_use: PortCounts = "ports_in_use",
        /// Ports that the worker has for relayed addresses.
        gauge ports: PortCounts = "ports",
        /// 1 when no allocation begins any more.
        gauge draining: u64 = "draining",
        /// Clients' connections on the worker, TCP and TLS.
        gauge connections: u64 = "connections",
        /// Clients' connections, and associations by DTLS, that were one too many, and closed.
        counter connections_refused: u64 = "connections_refused_total",
        /// Connections to and from peers on the worker (RFC 6062).
        gauge peer_connections: u64 = "peer_connections",
        /// Allocations that began.
        counter allocations_begun: u64 = "allocations_begun_total",
        /// Allocations that ran out of time, and were not deleted.
        counter allocations_expired: u64 = "allocations_expired_total",
        /// Requests that were proved and did what they asked for.
        counter requests_granted: u64 = "requests_granted_total",
        /// Requests that were answered by an error. Every client is first asked for a proof (401), and later for a newer
        /// one (438).
        counter refusals: RefusalCounts = "refusals_total",
        /// Binding requests that were answered.
        counter bindings: u64 = "bindings_total",
        /// Clients' connections that nobody made use of, and that made room for newcomers.
        counter connections_made_room: u64 = "connections_made_room_total",
        /// Clients' associations by DTLS on the worker.
        gauge dtls_associations: u64 = "dtls_associations",
        /// DTLS handshakes that go on.
        gauge dtls_handshakes: u64 = "dtls_handshakes",
        /// Clients by DTLS that were asked to show that they receive where they say they are.
        counter dtls_cookies: u64 = "dtls_cookies_total",
        /// DTLS handshakes that began.
        counter dtls_handshakes_begun: u64 = "dtls_handshakes_begun_total",
        /// DTLS handshakes that came to their end.
        counter dtls_handshakes_done: u64 = "dtls_handshakes_done_total",
        /// DTLS handshakes that came to nothing, or took too long.
        counter dtls_handshakes_failed: u64 = "dtls_handshakes_failed_total",
        /// DTLS handshakes, and associations that nobody made use of, that made room for newcomers.
        counter dtls_made_room: u64 = "dtls_made_room_total",
        /// Datagrams from clients to peers.
        counter packets_to_peers: u64 = "packets_to_peers_total",
        /// Bytes that clients sent to peers, without headers.
        counter bytes_to_peers: u64 = "bytes_to_peers_total",
        /// Datagrams from peers to clients.
        counter packets_to_clients: u64 = "packets_to_clients_total",
        /// Bytes that peers sent to clients, without headers.
        counter bytes_to_clients: u64 = "bytes_to_clients_total",
        /// Datagrams between two allocations of this worker, which the kernel did not see in between.
        counter packets_joined: u64 = "packets_joined_total",
        /// Datagrams that went no further, by reason.
        counter drops: DropCounters = "dropped_total",
        /// Seconds from the time of each allocation until it expired.
        histogram lateness: Lateness = "lateness_seconds",
    }
}

counts_by! {
    /// Ports of IPv4 and of IPv6.
    pub struct PortCounts: "family" of Family
}

/// Allocations by their clients' transport and family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationCounts([[u64; Family::VARIANTS.len()]; ClientTransport::VARIANTS.len()]);

impl AllocationCounts {
    /// How many there are.
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }

    /// Those of such clients.
    pub(crate) fn of(&mut self, transport: ClientTransport, family: Family) -> &mut u64 {
        &mut self.0[transport as usize][family as usize]
    }
}

impl Cell for AllocationCounts {
    const WORDS: usize = Family::VARIANTS.len() * ClientTransport::VARIANTS.len();

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.0.iter().flatten().for_each(|count| word(*count));
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        AllocationCounts(std::array::from_fn(|_| std::array::from_fn(|_| word())))
    }

    fn value(&self) -> Value<'_> {
        let rows = ClientTransport::VARIANTS.iter().zip(self.0).flat_map(|(transport, counts)| {
            Family::VARIANTS.iter().zip(counts).map(move |(family, count)| {
                let [transport, family] = [<&str>::from(transport), <&str>::from(family)];
                (format!("transport={transport:?},family={family:?}"), count)
            })
        });
        Value::ByLabels(rows.collect())
    }
}

/// Error codes that the relay answers with (RFC 8489 §14.8, RFC 8656 §19, RFC 6062 §6.3), and what they are as a label.
const CODES: [(u16, &str); 17] = [
    (300, "300"),
    (400, "400"),
    (401, "401"),
    (403, "403"),
    (420, "420"),
    (437, "437"),
    (438, "438"),
    (440, "440"),
    (441, "441"),
    (442, "442"),
    (443, "443"),
    (446, "446"),
    (447, "447"),
    (486, "486"),
    (500, "500"),
    (508, "508"),
    (0, "other"),
];

/// Answers by their error code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusalCounts([u64; CODES.len()]);

impl RefusalCounts {
    /// Counts one.
    pub(crate) fn add(&mut self, code: u16) {
        self.0[Self::place(code)] += 1;
    }

    /// How many of one code.
    pub fn count(&self, code: u16) -> u64 {
        self.0[Self::place(code)]
    }

    fn place(code: u16) -> usize {
        CODES.iter().position(|(other, _)| *other == code).unwrap_or(CODES.len() - 1)
    }
}

impl Cell for RefusalCounts {
    const WORDS: usize = CODES.len();

    fn put(&self, word: &mut impl FnMut(u64)) {
        self.0.iter().for_each(|count| word(*count));
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        RefusalCounts(std::array::from_fn(|_| word()))
    }

    fn value(&self) -> Value<'_> {
        Value::ByLabel("code", CODES.iter().zip(self.0).map(|((_, code), count)| (*code, count)).collect())
    }
}
