//! The rooms as a product: broadcasts by WHIP and WHEP, on the workers.
//!
//! In: what HTTP asks. Out: sessions on workers, and what they report.

pub mod client;
pub mod control;
pub mod directory;
pub mod negotiator;
pub mod spread;
pub mod stories;
