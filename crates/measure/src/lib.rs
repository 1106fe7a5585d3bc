//! What the measuring tools share: CPU time, statistics of alternating rounds, distributions, charts, reports, numbers as text.
#![forbid(unsafe_code)]

pub mod cpu;
pub mod percentiles;
pub mod plot;
pub mod report;
pub mod rounds;
pub mod text;
