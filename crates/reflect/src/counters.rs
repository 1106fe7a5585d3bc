//! What a worker's reflector counts.

use counters::{counters, counts_by};
use strum::VariantArray as _;

use crate::spec::EndReason;

counters! {
    /// A worker's counters since it started, and what it has now.
    pub struct Counters: "millrace_reflect_" {
        /// Viewers of reflected streams on the worker.
        gauge viewers: u64 = "viewers",
        /// Reflected streams that have viewers on the worker.
        gauge streams: u64 = "streams",
        /// Bytes of units that viewers were in when they fell out of the window, and that are kept for them.
        gauge rest_bytes: u64 = "rest_bytes",
        /// Viewers of reflected streams that came.
        counter viewers_begun: u64 = "viewers_begun_total",
        /// Viewers of reflected streams that are gone, by reason.
        counter viewers_ended: EndCounts = "viewers_ended_total",
        /// Times that a viewer fell out of the window and went on at a newer start point.
        counter skips: u64 = "skips_total",
        /// Bytes that the kernel took for viewers.
        counter sent_bytes: u64 = "sent_bytes_total",
        /// Times that the kernel had no room for all that a viewer was to get.
        counter full: u64 = "full_total",
        /// Bytes that viewers sent behind their requests, and nobody looked at.
        counter ignored_bytes: u64 = "ignored_bytes_total",
    }
}

counts_by! {
    /// Viewers that are gone.
    pub struct EndCounts: "reason" of EndReason
}
