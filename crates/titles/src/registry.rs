//! The titles that are known, by where they are and by the handle that was given out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pump::title::Title;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::file::OpenFile;
use crate::location::Location;
use crate::origins::Remote;
use crate::recovery::Recovery;

/// A title, and how to read it.
pub(crate) struct Entry {
    pub title: Arc<Title>,
    pub location: Location,
    /// Names this state of the title's bytes, and this way to cut it.
    pub id: u128,
    pub source: Source,
    /// By its file, or by its start.
    pub duration: Option<Duration>,
    /// Of a title at an origin, by looks at all of it.
    pub measured: OnceCell<Duration>,
    pub recovery: Recovery,
    /// It is not what it was; the next who opens it gets what it is now.
    is_stale: AtomicBool,
}

pub(crate) enum Source {
    File(Arc<OpenFile>),
    Remote(RemoteSource),
}

pub(crate) struct RemoteSource {
    pub remote: Arc<Remote>,
    /// The origin says by what this state of the title is known, so that it may be kept across restarts.
    pub has_validator: bool,
}

impl Entry {
    pub fn new(
        title: Title,
        location: Location,
        id: u128,
        source: Source,
        duration: Option<Duration>,
        recovery: Recovery,
    ) -> Arc<Entry> {
        let (title, is_stale) = (Arc::new(title), AtomicBool::new(false));
        Arc::new(Entry { title, location, id, source, duration, measured: OnceCell::new(), recovery, is_stale })
    }

    pub fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }

    fn is_played(&self) -> bool {
        Arc::strong_count(&self.title) > 1
    }
}

pub(crate) struct Registry {
    titles_max: usize,
    by_location: HashMap<Location, Known>,
    /// By the address of the `Title`, which stays while the entry has it.
    by_title: HashMap<usize, Arc<Entry>>,
    clock: u64,
    /// When there are so many, those that nobody plays are let go.
    tidy_at: usize,
}

struct Known {
    entry: Arc<Entry>,
    /// When its origin was asked.
    checked: Instant,
    /// The latest to be opened has the highest.
    used: u64,
}

impl Registry {
    pub fn new(titles_max: usize) -> Registry {
        let tidy_at = titles_max.max(1);
        Registry { titles_max, by_location: HashMap::new(), by_title: HashMap::new(), clock: 0, tidy_at }
    }

    /// What is at the location, and when that was last sure.
    pub fn known(&mut self, location: &Location) -> Option<(Arc<Entry>, Instant)> {
        self.clock += 1;
        let known = self.by_location.get_mut(location).filter(|known| !known.entry.is_stale.load(Ordering::Relaxed))?;
        known.used = self.clock;
        Some((known.entry.clone(), known.checked))
    }

    pub fn entry_of(&self, title: &Arc<Title>) -> Option<Arc<Entry>> {
        self.by_title.get(&address(title)).cloned()
    }

    pub fn set_checked(&mut self, location: &Location) {
        if let Some(known) = self.by_location.get_mut(location) {
            known.checked = Instant::now();
        }
    }

    /// Takes a title; gives back the handle for it. One that was at this location stays while it is played.
    pub fn insert(&mut self, entry: Arc<Entry>) -> Arc<Title> {
        let title = entry.title.clone();
        self.clock += 1;
        let known = Known { entry: entry.clone(), checked: Instant::now(), used: self.clock };
        self.by_title.insert(address(&title), entry.clone());
        if let Some(old) = self.by_location.insert(entry.location.clone(), known)
            && !old.entry.is_played()
        {
            self.by_title.remove(&address(&old.entry.title));
        }
        if self.by_title.len() > self.tidy_at {
            self.tidy();
        }
        title
    }

    pub fn len(&self) -> usize {
        self.by_title.len()
    }

    /// Lets go of titles that nobody plays, those opened longest ago first; a part of the room stays free, so that this
    /// is seldom done.
    fn tidy(&mut self) {
        let used = |entry: &Entry| {
            let known = self.by_location.get(&entry.location);
            known.filter(|known| std::ptr::eq(&*known.entry, entry)).map_or(0, |known| known.used)
        };
        let idle = self.by_title.iter().filter(|(_, entry)| !entry.is_played());
        let mut idle: Vec<_> = idle.map(|(address, entry)| (used(entry), *address)).collect();
        idle.sort_unstable();
        let too_many = self.by_title.len().saturating_sub(self.titles_max - self.titles_max / 4);
        for (_, address) in idle.into_iter().take(too_many) {
            let Some(entry) = self.by_title.remove(&address) else { continue };
            let is_latest = self.by_location.get(&entry.location).is_some_and(|k| Arc::ptr_eq(&k.entry, &entry));
            if is_latest {
                self.by_location.remove(&entry.location);
            }
        }
        self.tidy_at = self.titles_max.max(self.by_title.len() + self.titles_max / 4).max(1);
    }
}

fn address(title: &Arc<Title>) -> usize {
    Arc::as_ptr(title).addr()
}

#[cfg(test)]
mod tests {
    use pump::sample::Sample;

    use super::*;
    use crate::probe::probe;

    fn entry(name: &str) -> Arc<Entry> {
        let bytes = Sample { pictures: 5, ..Sample::default() }.make();
        let title = probe(&bytes, bytes.len() as u64, 700).unwrap();
        let remote = RemoteSource { remote: Arc::new(Remote::new(name, Vec::new())), has_validator: false };
        Entry::new(
            title,
            Location::Name(name.to_owned()),
            1,
            Source::Remote(remote),
            None,
            Recovery::new(Duration::ZERO),
        )
    }

    #[tokio::test]
    async fn titles_that_nobody_plays_go_those_opened_longest_ago_first() {
        let mut registry = Registry::new(8);
        let played = registry.insert(entry("played"));
        for number in 0..100 {
            registry.insert(entry(&number.to_string()));
        }

        assert!(registry.len() <= 8 && registry.by_location.len() <= 8);
        assert!(registry.entry_of(&played).is_some());
        assert!(registry.known(&Location::Name("99".to_owned())).is_some());
        assert!(registry.known(&Location::Name("1".to_owned())).is_none());
    }

    #[tokio::test]
    async fn titles_that_are_played_are_known_however_many_they_are() {
        let mut registry = Registry::new(8);
        let played: Vec<_> = (0..100).map(|number| registry.insert(entry(&number.to_string()))).collect();

        assert!(played.iter().all(|title| registry.entry_of(title).is_some()));
        drop(played);
        for number in 0..100 {
            registry.insert(entry(&format!("next {number}")));
        }
        assert!(registry.len() <= 108);
        for number in 0..100 {
            registry.insert(entry(&format!("last {number}")));
        }
        assert!(registry.len() <= 16, "{}", registry.len());
    }

    #[tokio::test]
    async fn a_title_that_took_anothers_place_leaves_it_to_its_players() {
        let mut registry = Registry::new(8);
        let old = registry.insert(entry("a"));
        let new = registry.insert(entry("a"));

        assert!(registry.entry_of(&old).is_some());
        let (known, _) = registry.known(&Location::Name("a".to_owned())).unwrap();
        assert!(Arc::ptr_eq(&known.title, &new));
        known.set_stale();
        assert!(registry.known(&Location::Name("a".to_owned())).is_none());
        assert!(registry.entry_of(&new).is_some());
    }
}
