//! Where titles come from: local files, a watched folder, HTTP origins; and the chunks of them that are kept.
//!
//! In: a location (`Library::open`), then a title and a chunk's number (`Library::chunk`). Out: `pump`'s titles and
//! chunks, shared by all who ask. Everything here may wait, and nothing here is on a packet's path.
//! A location is probed once, and a chunk fetched and scanned once, however many want it at the same time.
//!
//! `places` finds times in a title. `streams` is for what has no end: the same client, without a cache.
//!
//! A chunk's way, read downwards: `library` looks into `cache`, joins a fetch under way (`flight`), reads the file
//! (`file`), or looks on disk (`disk`) and asks the origins (`origins`, each request by `http`).
#![forbid(unsafe_code)]

mod cache;
mod disk;
mod error;
mod file;
mod flight;
mod folder;
mod guard;
mod http;
mod library;
mod location;
mod origins;
mod places;
mod probe;
mod recovery;
mod registry;
mod settings;
mod slots;
mod stats;
mod streams;

pub use error::{Error, ErrorKind, HttpError, Refusal};
pub use folder::Listed;
pub use guard::is_guarded;
pub use library::Library;
pub use recovery::Trouble;
pub use settings::Settings;
pub use stats::Stats;
pub use streams::{Stream, Streams};
pub use url::Url;
