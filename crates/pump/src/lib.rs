//! The pump: MPEG-TS titles as paced datagrams. No sockets, no clock, no threads: commands, chunks and the time in;
//! datagrams and events out.
//!
//! `pump::Pump` is all of one worker, driven as `rooms::Rooms` is:
//! 1. Control reads a title's head (128 KiB are mostly enough) and calls `title::Title::probe`. An `Arc<Title>` is shared by its sessions.
//! 2. `Command::Open` opens a session. The pump answers with `Event::Need` for each chunk that it wants next.
//! 3. Control reads `Title::chunk_range`, calls `chunk::Chunk::scan` (on its own thread: this is where the bytes are
//!    looked at), and hands `Command::Chunk` in. One `Arc<Chunk>` serves all sessions of the title.
//! 4. The worker calls `handle_timeout` when `poll_timeout` says so, then `poll_transmit` until it returns false, then
//!    takes all of `poll_event`.
//!
//! A live input (`live`) has chunks that come by themselves: control hands each to every worker whose sessions play it.
//!
//! What can be known off the packet path is: `index` finds times and pictures, `trick` picks pictures for another speed.
//! `monitor` measures what a receiver gets. `sample` makes titles to test with.
#![forbid(unsafe_code)]

pub mod chunk;
pub mod clock;
mod connections;
pub mod counters;
mod cut;
pub mod fec;
pub mod index;
mod inputs;
pub mod live;
pub mod monitor;
mod pace;
mod phase;
pub mod picture;
pub mod pids;
mod player;
#[allow(clippy::module_inception)]
pub mod pump;
mod queue;
mod rewrite;
pub mod sample;
pub mod spec;
mod tables;
pub mod title;
mod totals;
pub mod trick;
