//! All titles behind one handle.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pump::chunk::Chunk;
use pump::title::Title;

use crate::error::Error;
use crate::settings::Settings;
use crate::stats::{Counters, Stats};

/// All titles, and the chunks of them that are kept. Clones are the same library.
#[derive(Clone)]
pub struct Library {
    shared: Arc<Shared>,
}

struct Shared {
    counters: Counters,
}

/// A title of the watched folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What `Library::open` takes: its path from the folder, with `/`.
    pub name: String,
    pub bytes: u64,
    pub modified: Option<SystemTime>,
    /// Known once it was opened.
    pub duration: Option<Duration>,
}

impl Library {
    /// Looks through the folder, and reads the certificates that are trusted.
    ///
    /// # Errors
    /// When a folder or file of the settings cannot be read.
    pub fn new(_settings: Settings) -> Result<Library, Error> {
        Ok(Library { shared: Arc::new(Shared { counters: Counters::default() }) })
    }

    /// Opens `name.ts` in the watched folder or at the origins; `http(s)://…` and absolute paths where they are allowed.
    /// However many open a title at the same time, it is probed once, and all get the same.
    ///
    /// # Errors
    /// Why it cannot be played.
    pub async fn open(&self, location: &str) -> Result<Arc<Title>, Error> {
        Err(Error::NotFound { location: location.to_owned() })
    }

    /// A chunk of a title that `open` gave: from memory, disk, or where the title is.
    ///
    /// # Errors
    /// Why it cannot be had, when all retries and origins are used up. `Chunk::hole` stands in for it.
    pub async fn chunk(&self, _title: &Arc<Title>, _index: u64) -> Result<Arc<Chunk>, Error> {
        Err(Error::UnknownTitle)
    }

    /// The titles of the watched folder, by name, as of the last look.
    pub fn list(&self) -> Vec<Listed> {
        Vec::new()
    }

    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }
}
