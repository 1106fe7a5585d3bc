//! What a worker's rooms count.

use counters::{Lateness, counters};

use crate::drops::DropCounters;

counters! {
    /// A worker's counters since it started, and what it has now.
    pub struct Counters: "millrace_rooms_" {
        /// Streams that the worker knows, its own and those it mirrors.
        gauge streams: u64 = "streams",
        /// Publishers of rooms on the worker.
        gauge publishers: u64 = "publishers",
        /// Viewers of rooms on the worker.
        gauge viewers: u64 = "viewers",
        /// Sessions of rooms on the worker.
        gauge sessions: u64 = "sessions",
        /// Pictures that viewers on the worker get.
        gauge pictures: u64 = "pictures",
        /// Pictures that viewers on the worker get, and that are smaller than they want and their publishers send.
        gauge pictures_small: u64 = "pictures_small",
        /// Pictures that viewers want and publishers send, and of which nothing is sent: a keyframe is waited for, or bandwidth.
        gauge pictures_missing: u64 = "pictures_missing",
        /// Media packets taken from publishers.
        counter packets_in: u64 = "packets_in_total",
        /// Media packets written for viewers, retransmissions not counted.
        counter packets_out: u64 = "packets_out_total",
        /// Packets written again (RTX), and padding that probes.
        counter packets_resent: u64 = "packets_resent_total",
        /// Audio packets written with those before them once more (RED).
        counter packets_redundant: u64 = "packets_redundant_total",
        /// Audio packets that were lost on their way from a publisher, and taken from the redundancy of later ones (RED).
        counter packets_recovered: u64 = "packets_recovered_total",
        /// Bytes of packets and padding that were written only to find out how much a viewer's path carries.
        counter probe_bytes: u64 = "probe_bytes_total",
        /// Keyframes asked of publishers.
        counter keyframe_requests: u64 = "keyframe_requests_total",
        /// Packets that went no further, by reason.
        counter drops: DropCounters = "dropped_total",
        /// Seconds from the time of each timer until it fired.
        histogram lateness: Lateness = "lateness_seconds",
    }
}
