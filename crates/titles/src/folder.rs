//! The watched folder: which titles are in it.
//!
//! A thread looks through the folder every few seconds. That also works where the kernel tells nothing of changes (NFS,
//! SMB, FUSE), and costs a few system calls per file. Opening does not depend on it: a new file can be played at once.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crate::error::Error;
use crate::file::{Identity, Root};
use crate::flight::lock;

/// Files that are listed; more are left out, and can be opened nevertheless.
const LISTED_MAX: usize = 100_000;

/// Folders in folders that are looked into.
const DEPTH_MAX: usize = 16;

/// The folder is not looked through more often.
const RESCAN_MIN: Duration = Duration::from_millis(1);

/// What titles are called. Others are not listed, and can be opened nevertheless.
const EXTENSIONS: [&str; 7] = ["ts", "m2ts", "m2t", "mts", "tsv", "trp", "tp"];

/// A title of the watched folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What `Library::open` takes: its path from the folder, with `/`.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// When it was written last.
    pub modified: Option<SystemTime>,
    /// Known once it was opened.
    pub duration: Option<Duration>,
}

/// The folder, and what was in it at the last look.
pub(crate) struct Folder {
    pub root: Root,
    files: Mutex<BTreeMap<String, Identity>>,
    /// Of titles that were opened.
    durations: Mutex<HashMap<String, (Identity, Duration)>>,
    /// Dropped with the folder, which ends the thread.
    _alive: SyncSender<()>,
}

impl Folder {
    /// Looks through the folder, and goes on doing so.
    pub fn watch(path: &Path, rescan: Duration) -> Result<Arc<Folder>, Error> {
        let what = |error| Error::io(format!("the folder {}", path.display()), error);
        let path = fs::canonicalize(path).map_err(what)?;
        let root = Root::open(&path).map_err(what)?;
        let (alive, ended) = sync_channel(0);
        let files = Mutex::new(scan(&root));
        let folder = Arc::new(Folder { root, files, durations: Mutex::default(), _alive: alive });
        let watched = Arc::downgrade(&folder);
        let look = move || {
            while ended.recv_timeout(rescan.max(RESCAN_MIN)) == Err(RecvTimeoutError::Timeout) {
                let Some(folder) = watched.upgrade() else { return };
                folder.rescan();
            }
        };
        std::thread::Builder::new().name("titles".to_owned()).spawn(look).map_err(what)?;
        Ok(folder)
    }

    pub fn list(&self) -> Vec<Listed> {
        let durations = lock(&self.durations);
        let files = lock(&self.files);
        let listed = files.iter().map(|(name, found)| {
            let known = durations.get(name).filter(|(identity, _)| identity == found);
            let duration = known.map(|(_, duration)| *duration);
            Listed { name: name.clone(), bytes: found.len, modified: found.modified, duration }
        });
        listed.collect()
    }

    pub fn note_duration(&self, name: &str, identity: Identity, duration: Duration) {
        let mut durations = lock(&self.durations);
        if durations.len() < LISTED_MAX {
            durations.insert(name.to_owned(), (identity, duration));
        }
    }

    pub fn rescan(&self) {
        let found = scan(&self.root);
        lock(&self.durations).retain(|name, (identity, _)| found.get(name) == Some(identity));
        let mut files = lock(&self.files);
        let new = found.keys().filter(|name| !files.contains_key(*name)).count();
        let gone = files.keys().filter(|name| !found.contains_key(*name)).count();
        let changed = found.iter().filter(|(name, now)| files.get(*name).is_some_and(|then| then != *now)).count();
        if new + gone + changed > 0 {
            tracing::debug!(new, changed, gone, folder = %self.root.path.display(), "titles");
        }
        *files = found;
    }
}

/// The titles in the folder now. What cannot be read is left out.
fn scan(root: &Root) -> BTreeMap<String, Identity> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(root.path.clone(), String::new(), 0)];
    while let Some((path, prefix, depth)) = folders.pop() {
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::debug!(%error, folder = %path.display(), "not looked through");
                continue;
            }
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| is_plain(name)) else { continue };
            let name = format!("{prefix}{name}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEPTH_MAX => {
                    folders.push((entry.path(), format!("{name}/"), depth + 1));
                }
                Ok(kind) if !kind.is_dir() && is_title(&name) && found.len() < LISTED_MAX => {
                    if let Ok(Some(file)) = look(root, &entry, &name) {
                        found.insert(name, file);
                    }
                }
                _ => (),
            }
        }
    }
    found
}

/// What is there, when it is a file; links have to stay in the folder.
fn look(root: &Root, entry: &DirEntry, name: &str) -> io::Result<Option<Identity>> {
    if entry.file_type()?.is_symlink() && root.open_file(name).is_err() {
        return Ok(None);
    }
    let metadata = fs::metadata(entry.path())?;
    Ok(metadata.is_file().then(|| Identity::of(&metadata)))
}

/// Hidden files are what is being written, often.
fn is_plain(name: &str) -> bool {
    !name.starts_with('.') && !name.chars().any(char::is_control)
}

fn is_title(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Folder) -> Vec<String> {
        folder.list().into_iter().map(|listed| listed.name).collect()
    }

    #[test]
    fn titles_are_listed_by_their_path_and_nothing_else_is() {
        let outside = tempfile::NamedTempFile::with_suffix(".ts").unwrap();
        let path = tempfile::tempdir().unwrap();
        fs::create_dir_all(path.path().join("news/old")).unwrap();
        for name in ["b.ts", "a.M2TS", "news/old/c.ts", ".hidden.ts", "readme.txt"] {
            fs::write(path.path().join(name), b"12345").unwrap();
        }
        symlink(outside.path(), path.path().join("outside.ts")).unwrap();
        symlink("b.ts", path.path().join("inside.ts")).unwrap();
        symlink(".", path.path().join("round")).unwrap();

        let folder = Folder::watch(path.path(), Duration::from_secs(3_600)).unwrap();

        assert_eq!(names(&folder), ["a.M2TS", "b.ts", "inside.ts", "news/old/c.ts"]);
        assert_eq!(folder.list()[0].bytes, 5);
    }

    #[test]
    fn new_changed_and_removed_titles_are_seen() {
        let path = tempfile::tempdir().unwrap();
        fs::write(path.path().join("a.ts"), b"12345").unwrap();
        fs::write(path.path().join("b.ts"), b"12345").unwrap();
        let folder = Folder::watch(path.path(), Duration::from_secs(3_600)).unwrap();
        let identity = folder.root.open_file("a.ts").unwrap().identity;
        folder.note_duration("a.ts", identity, Duration::from_secs(9));
        assert_eq!(folder.list()[0].duration, Some(Duration::from_secs(9)));

        fs::write(path.path().join("a.ts"), b"123456789").unwrap();
        fs::remove_file(path.path().join("b.ts")).unwrap();
        fs::write(path.path().join("c.ts"), b"1").unwrap();
        folder.rescan();

        assert_eq!(names(&folder), ["a.ts", "c.ts"]);
        assert_eq!((folder.list()[0].bytes, folder.list()[0].duration), (9, None));
    }

    #[test]
    fn the_folder_is_looked_through_again_and_again() {
        let path = tempfile::tempdir().unwrap();
        let folder = Folder::watch(path.path(), Duration::from_millis(1)).unwrap();

        fs::write(path.path().join("a.ts"), b"1").unwrap();

        while folder.list().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(matches!(Folder::watch(Path::new("/does/not/exist"), Duration::from_secs(1)), Err(Error::Io { .. })));
    }
}
