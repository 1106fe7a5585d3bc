//! What a worker's pump counts.

use std::time::Duration;

use counters::{Lateness, counters};

counters! {
    /// All of one worker's numbers.
    pub struct Counters: "millrace_pump_" {
        /// Datagrams written.
        counter datagrams: u64 = "datagrams_total",
        /// Bytes of the datagrams written, RTP headers included.
        counter bytes: u64 = "bytes_total",
        /// Parity datagrams written, which are not among the other datagrams.
        counter fec_datagrams: u64 = "fec_datagrams_total",
        /// Datagrams for connections (RTSP, interleaved) that had room, or seemed to: some of them may be among the lost.
        counter interleaved: u64 = "interleaved_datagrams_total",
        /// Datagrams for which connections had no room after all, as clients took too little.
        counter interleaved_lost: u64 = "interleaved_lost_total",
        /// Times that a session's next part was not there when it was due.
        counter underruns: u64 = "underruns_total",
        /// Packets of titles that could not be had.
        counter lost: u64 = "lost_packets_total",
        /// Errors of titles' continuity counters.
        counter continuity_errors: u64 = "continuity_errors_total",
        /// First priority errors (ETSI TR 101 290) of monitored sessions.
        counter priority_1: u64 = "tr101290_priority1_total",
        /// Second priority errors of monitored sessions.
        counter priority_2: u64 = "tr101290_priority2_total",
        /// Null packets added.
        counter nulls: u64 = "null_packets_total",
        /// Times that a session was so late that its schedule was moved.
        counter shifts: u64 = "shifts_total",
        /// Worst delay factor (RFC 4445) of sessions in their last second, in seconds.
        gauge delay_factor_max: Duration = "delay_factor_max_seconds",
        /// Pump sessions on the worker.
        gauge sessions: u64 = "worker_sessions",
        /// Pump sessions that are being sent.
        gauge playing: u64 = "worker_playing",
        /// Pump sessions whose next part is late.
        gauge starved: u64 = "worker_starved",
        /// Pump sessions with a monitor.
        gauge monitored: u64 = "monitored_sessions",
        /// Worst jitter of clock references that monitors saw, in seconds.
        gauge pcr_jitter_max: Duration = "pcr_jitter_max_seconds",
        /// Seconds from the time of each burst until it was written.
        histogram lateness: Lateness = "lateness_seconds",
    }
}
