//! What is counted of one live input.

use std::time::Duration;

use counters::{Cell, Value, counters};
use strum::VariantArray as _;

counters! {
    /// What is counted of one live input, and what holds now. Of `sessions` and `dropped` knows who hands its chunks out.
    pub struct Counters: "millrace_pump_live_" {
        /// 1 for what a live input does, 0 for what it does not.
        gauge state: State = "state",
        /// Sessions that play a live input.
        gauge sessions: u64 = "sessions",
        /// Mean rate of a live input's stream, in bit/s.
        gauge rate_bps: u64 = "rate_bps",
        /// Datagrams of a live input's source.
        counter datagrams: u64 = "datagrams_total",
        /// Bytes of the datagrams of a live input's source.
        counter bytes: u64 = "bytes_total",
        /// Datagrams that came to a live input from others than its source.
        counter foreign: u64 = "foreign_total",
        /// Datagrams and packets that came to a live input and cannot be read.
        counter malformed: u64 = "malformed_total",
        /// RTP packets of a live input that did not come.
        counter rtp_lost: u64 = "rtp_lost_total",
        /// RTP packets of a live input that were put back in order.
        counter rtp_reordered: u64 = "rtp_reordered_total",
        /// RTP packets of a live input that came too late, or twice.
        counter rtp_late: u64 = "rtp_late_total",
        /// Times that continuity counters of a live input did not continue.
        counter continuity_errors: u64 = "continuity_errors_total",
        /// Packets of a live input that are missing by their continuity counters, which see no more than 14 in a row.
        counter lost: u64 = "lost_packets_total",
        /// Times that a live input's clock did not continue.
        counter resyncs: u64 = "resyncs_total",
        /// Times that a live input took another source.
        counter sources: u64 = "source_changes_total",
        /// Packets of a live input that were left out, as they came a second and more before their time.
        counter overruns: u64 = "overruns_total",
        /// Chunks of a live input that were let go without a clock reference.
        counter flushes: u64 = "flushes_total",
        /// Chunks of a live input that were for workers that have hung.
        counter dropped: u64 = "dropped_chunks_total",
        /// How much slower the clock of a live input's source is, in parts per million.
        gauge drift_ppm: f64 = "drift_ppm",
        /// Time between the earliest and the latest of a live input's clock references in the last second, in seconds.
        gauge jitter: Duration = "jitter_seconds",
        /// Worst delay factor (RFC 4445) that a live input came with in a second, by its mean rate, in seconds.
        gauge delay_factor_max: Duration = "delay_factor_max_seconds",
    }
}

/// What an input does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::FromRepr, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum State {
    /// Nothing comes.
    #[default]
    Silent,
    /// Something comes, and it is not known yet what it is.
    Searching,
    /// It is known what comes.
    Receiving,
}

impl Cell for State {
    const WORDS: usize = 1;

    fn put(&self, word: &mut impl FnMut(u64)) {
        word(*self as u64);
    }

    fn take(word: &mut impl FnMut() -> u64) -> Self {
        State::from_repr(word() as usize).unwrap_or_default()
    }

    fn value(&self) -> Value<'_> {
        Value::ByLabel("state", State::VARIANTS.iter().map(|state| (state.into(), u64::from(state == self))).collect())
    }
}
