//! The pump as a product: sessions that play titles to UDP destinations, beside the rooms on the same workers.
//!
//! In: what HTTP or the command line asks for. Out: sessions on workers, and what they report.
//! A chunk's way: a session wants it (`Event::Need`, by mailbox to the thread of `report`) → a task fetches it
//! (`titles::Library`) → `Command::Chunk` to the worker. The worker itself never waits, and neither does the thread.

pub mod connections;
pub mod control;
pub mod destination;
pub mod live;
pub mod outputs;
pub mod play;
pub mod request;
pub mod sessions;
pub mod setup;
pub mod times;
