//! What a worker's relay counts.

use counters::{Lateness, counters};

use crate::drops::DropCounters;

counters! {
    /// A worker's counters since it started, and what it has now.
    pub struct Counters: "millrace_relay_" {
        /// Allocations on the worker.
        gauge allocations: u64 = "allocations",
        /// Clients' connections on the worker, TCP and TLS.
        gauge connections: u64 = "connections",
        /// Clients' connections that were one too many, and closed.
        counter connections_refused: u64 = "connections_refused_total",
        /// Connections to and from peers on the worker (RFC 6062).
        gauge peer_connections: u64 = "peer_connections",
        /// Allocations that began.
        counter allocations_begun: u64 = "allocations_begun_total",
        /// Allocations that ran out of time, and were not deleted.
        counter allocations_expired: u64 = "allocations_expired_total",
        /// Requests that were proved and did what they asked for.
        counter requests_granted: u64 = "requests_granted_total",
        /// Requests that were refused, but for those that had still to prove themselves (401, 438).
        counter requests_refused: u64 = "requests_refused_total",
        /// Answers that asked for a proof, or for a newer one (401, 438).
        counter challenges: u64 = "challenges_total",
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
        /// Their payload, in bytes.
        counter bytes_to_peers: u64 = "bytes_to_peers_total",
        /// Datagrams from peers to clients.
        counter packets_to_clients: u64 = "packets_to_clients_total",
        /// Their payload, in bytes.
        counter bytes_to_clients: u64 = "bytes_to_clients_total",
        /// Datagrams between two allocations of this worker, which the kernel did not see in between.
        counter packets_joined: u64 = "packets_joined_total",
        /// Datagrams that went no further, by reason.
        counter drops: DropCounters = "dropped_total",
        /// How long after its time each allocation expired.
        histogram lateness: Lateness = "lateness_seconds",
    }
}
