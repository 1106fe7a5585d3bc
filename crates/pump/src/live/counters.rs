//! What is counted of one live input.

use std::time::Duration;

use counters::{Cell, Value, counters};

counters! {
    /// What is counted of one live input, and what holds now. Of `sessions` and `dropped` knows who hands its chunks out.
    pub struct Counters: "millrace_pump_live_" {
        /// 1 for what an input does.
        gauge state: State = "state",
        /// Sessions that play an input.
        gauge sessions: u64 = "sessions",
        /// Mean rate of its stream.
        gauge rate_bps: u64 = "rate_bps",
        /// Datagrams of its source.
        counter datagrams: u64 = "datagrams_total",
        /// Bytes of these.
        counter bytes: u64 = "bytes_total",
        /// Datagrams of others.
        counter foreign: u64 = "foreign_total",
        /// Datagrams and packets that are none.
        counter malformed: u64 = "malformed_total",
        /// RTP packets that did not come.
        counter rtp_lost: u64 = "rtp_lost_total",
        /// RTP packets put back in order.
        counter rtp_reordered: u64 = "rtp_reordered_total",
        /// RTP packets that came too late, or twice.
        counter rtp_late: u64 = "rtp_late_total",
        /// Times that continuity counters did not continue.
        counter continuity_errors: u64 = "continuity_errors_total",
        /// Packets missing by these counters, which see no more than 14 in a row.
        counter lost: u64 = "lost_packets_total",
        /// Times that its clock did not continue.
        counter resyncs: u64 = "resyncs_total",
        /// Times that another source was taken.
        counter sources: u64 = "source_changes_total",
        /// Packets left out, a second and more before their time.
        counter overruns: u64 = "overruns_total",
        /// Chunks let go without a reference.
        counter flushes: u64 = "flushes_total",
        /// Chunks for workers that have hung.
        counter dropped: u64 = "dropped_chunks_total",
        /// How much slower the source's clock is.
        gauge drift_ppm: f64 = "drift_ppm",
        /// Of the last second's references, earliest to latest.
        gauge jitter: Duration = "jitter_seconds",
        /// RFC 4445, by the mean rate, the worst second.
        gauge delay_factor_max: Duration = "delay_factor_max_seconds",
    }
}

/// What an input does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::FromRepr, strum::IntoStaticStr)]
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
        Value::ByLabel("state", vec![(self.into(), 1)])
    }
}
