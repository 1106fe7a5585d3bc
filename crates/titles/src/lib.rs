//! Where titles come from: local files, a watched folder, HTTP origins; and the chunks of them that are kept.
//!
//! In: a location (`Library::open`), then a title and a chunk's number (`Library::chunk`). Out: `pump`'s titles and
//! chunks, shared by all who ask. Everything here may wait, and nothing here is on a packet's path.
//! A location is probed once, and a chunk fetched and scanned once, however many want it at the same time.
#![forbid(unsafe_code)]
#![allow(dead_code)]

mod error;
mod library;
mod settings;
mod stats;

pub use error::{Error, ErrorKind, HttpError, Refusal};
pub use library::{Library, Listed};
pub use settings::Settings;
pub use stats::Stats;
pub use url::Url;
