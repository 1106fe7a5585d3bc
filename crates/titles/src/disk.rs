//! Chunks from origins, kept on disk across restarts.
//!
//! In: a key and the bytes of the chunk's range. Out: the same bytes, or nothing. Everything here blocks.
//! A chunk is written under another name first and renamed when it is whole; each file says what it is and has a
//! checksum, so that what a crash, a full disk or a bad one left behind is found out when it is read, and removed.
//! No file is synced: a chunk that is lost is fetched again. One process uses a folder at a time.
//!
//! ```text
//! 0       8                       24       28       36       44
//! ┌───────┬───────────────────────┬────────┬────────┬────────┬─────────┐
//! │ magic │ title                 │ number │ length │ xxh3   │ bytes … │  all big-endian
//! └───────┴───────────────────────┴────────┴────────┴────────┴─────────┘
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use twox_hash::XxHash3_64;

use crate::cache::Key;
use crate::error::Error;
use crate::flight::lock;
use crate::stats::Counts;

const MAGIC: &[u8; 8] = b"mrchunk1";
const HEADER_LEN: usize = 44;
const CHUNK: &str = "chunk";
const UNFINISHED: &str = "part";

pub(crate) struct Disk {
    folder: PathBuf,
    bytes_max: u64,
    state: Mutex<State>,
    /// Makes names of unfinished files differ.
    next_part: AtomicU64,
    counts: Arc<Counts>,
}

/// What is there, by use.
#[derive(Default)]
struct State {
    /// When it was last used, and what it takes.
    files: HashMap<Key, (u64, u64)>,
    by_use: BTreeMap<u64, Key>,
    bytes: u64,
    clock: u64,
}

impl Disk {
    /// Looks at what is there, and removes what is unfinished and what is too much.
    pub fn open(folder: &Path, bytes_max: u64, counts: Arc<Counts>) -> Result<Disk, Error> {
        let what = |error| Error::io(format!("the disk cache {}", folder.display()), error);
        fs::create_dir_all(folder).map_err(what)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).map_err(what)? {
            let path = entry.map_err(what)?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                fs::remove_file(&path).map_err(what)?;
            } else if let Some(key) = key_of(&path)
                && let Ok(metadata) = fs::metadata(&path)
            {
                found.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), key, metadata.len()));
            }
        }
        found.sort_by_key(|(used, ..)| *used);
        let mut state = State::default();
        for (_, key, bytes) in found {
            state.add(key, bytes);
        }
        let disk = Disk {
            folder: folder.to_owned(),
            bytes_max,
            state: Mutex::new(state),
            next_part: AtomicU64::new(0),
            counts,
        };
        disk.make_room();
        Ok(disk)
    }

    /// Whether it was written, and not let go.
    pub fn has(&self, key: Key) -> bool {
        lock(&self.state).files.contains_key(&key)
    }

    /// The bytes that were written, if they are still what they were.
    pub fn read(&self, key: Key) -> Option<Vec<u8>> {
        lock(&self.state).touch(key).then_some(())?;
        match self.read_file(key) {
            Ok(Some(bytes)) => {
                self.counts.count(|stats| stats.disk_hits += 1);
                return Some(bytes);
            }
            // It had to go in this moment, or somebody removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            other => {
                tracing::debug!(?key, error = ?other.err(), "a chunk on disk is not what was written");
                self.counts.count(|stats| stats.disk_damaged += 1);
            }
        }
        self.remove(key);
        None
    }

    fn read_file(&self, key: Key) -> io::Result<Option<Vec<u8>>> {
        let mut file = File::open(self.path(key))?;
        let mut header = [0; HEADER_LEN];
        file.read_exact(&mut header)?;
        let len = file.metadata()?.len().saturating_sub(HEADER_LEN as u64);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact(&mut bytes)?;
        let is_whole = header == header_of(key, &bytes);
        if is_whole {
            // So that the order of use is still known after a restart. Not where that is not allowed.
            drop(file.set_modified(SystemTime::now()));
        }
        Ok(is_whole.then_some(bytes))
    }

    /// Keeps the bytes; what was used longest ago goes for that.
    pub fn write(&self, key: Key, bytes: &[u8]) -> io::Result<()> {
        let size = (HEADER_LEN + bytes.len()) as u64;
        if size > self.bytes_max || lock(&self.state).files.contains_key(&key) {
            return Ok(());
        }
        // It counts from here on, so that the limit holds while it is written, too.
        lock(&self.state).add(key, size);
        self.make_room();
        let written = self.write_file(key, bytes);
        // Others may have needed the room before it was there.
        let is_kept = lock(&self.state).files.contains_key(&key);
        if written.is_err() || !is_kept {
            self.remove(key);
        } else {
            self.counts.count(|stats| stats.disk_writes += 1);
        }
        written
    }

    fn write_file(&self, key: Key, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(key);
        let part = path.with_extension(format!("{}.{UNFINISHED}", self.next_part.fetch_add(1, Ordering::Relaxed)));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&part)?;
            file.write_all(&header_of(key, bytes))?;
            file.write_all(bytes)?;
            fs::rename(&part, &path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&part)))
    }

    /// Removes what was used longest ago until there is no more than allowed.
    fn make_room(&self) {
        loop {
            let oldest = {
                let state = lock(&self.state);
                let oldest = state.by_use.values().next().copied();
                oldest.filter(|_| state.bytes > self.bytes_max)
            };
            let Some(key) = oldest else { return };
            self.counts.count(|stats| stats.disk_evictions += 1);
            self.remove(key);
        }
    }

    fn remove(&self, key: Key) {
        // The file first: the sum never says less than what is there.
        if let Err(error) = fs::remove_file(self.path(key))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "a chunk on disk stays");
        }
        lock(&self.state).remove(key);
    }

    pub fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    fn path(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{:032x}-{:08x}.{CHUNK}", key.title, key.number))
    }
}

impl State {
    fn add(&mut self, key: Key, bytes: u64) {
        self.remove(key);
        self.clock += 1;
        self.files.insert(key, (self.clock, bytes));
        self.by_use.insert(self.clock, key);
        self.bytes += bytes;
    }

    fn remove(&mut self, key: Key) {
        if let Some((used, bytes)) = self.files.remove(&key) {
            self.by_use.remove(&used);
            self.bytes -= bytes;
        }
    }

    /// Whether it is there. Then it is the latest that was used.
    fn touch(&mut self, key: Key) -> bool {
        let Some((_, bytes)) = self.files.get(&key).copied() else { return false };
        self.add(key, bytes);
        true
    }
}

fn header_of(key: Key, bytes: &[u8]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..24].copy_from_slice(&key.title.to_be_bytes());
    header[24..28].copy_from_slice(&key.number.to_be_bytes());
    header[28..36].copy_from_slice(&(bytes.len() as u64).to_be_bytes());
    header[36..].copy_from_slice(&XxHash3_64::oneshot(bytes).to_be_bytes());
    header
}

fn key_of(path: &Path) -> Option<Key> {
    path.extension().filter(|extension| *extension == CHUNK)?;
    let (title, number) = path.file_stem()?.to_str()?.split_once('-')?;
    Some(Key { title: u128::from_str_radix(title, 16).ok()?, number: u32::from_str_radix(number, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(folder: &tempfile::TempDir, bytes_max: u64) -> Disk {
        Disk::open(folder.path(), bytes_max, Arc::default()).expect("a folder of its own")
    }

    fn key(number: u32) -> Key {
        Key { title: 0xfeed, number }
    }

    fn size_on_disk(folder: &Path) -> u64 {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn what_was_written_is_read_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder, 1_000);
        disk.write(key(1), b"chunk").unwrap();
        assert_eq!(disk.read(key(1)).unwrap(), b"chunk");
        assert_eq!(disk.read(key(2)), None);
        drop(disk);

        let disk = open(&folder, 1_000);

        assert_eq!(disk.read(key(1)).unwrap(), b"chunk");
        assert_eq!((disk.bytes(), disk.counts.read().disk_damaged), (49, 0));
    }

    #[test]
    fn damage_is_found_and_removed() {
        let damages: [fn(&mut Vec<u8>); 5] =
            [|b| b[50] ^= 1, |b| b.truncate(60), |b| b.truncate(3), |b| b.push(0), |b| b[12] ^= 1];
        for damage in damages {
            let folder = tempfile::tempdir().unwrap();
            let disk = open(&folder, 1_000);
            disk.write(key(1), &[7; 100]).unwrap();
            let mut bytes = fs::read(disk.path(key(1))).unwrap();
            damage(&mut bytes);
            fs::write(disk.path(key(1)), bytes).unwrap();

            assert_eq!(disk.read(key(1)), None);
            assert_eq!((disk.counts.read().disk_damaged, disk.bytes(), size_on_disk(folder.path())), (1, 0, 0));
        }
    }

    #[test]
    fn what_a_crash_left_unfinished_is_removed_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("00-00.7.part");
        fs::write(&part, b"half").unwrap();
        fs::write(folder.path().join("notes.txt"), b"not ours").unwrap();

        let disk = open(&folder, 1_000);

        assert!(!part.exists() && folder.path().join("notes.txt").exists());
        assert_eq!(disk.bytes(), 0);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder, 3 * 144);
        for number in 0..3 {
            disk.write(key(number), &[0; 100]).unwrap();
        }

        assert!(disk.read(key(0)).is_some());
        disk.write(key(3), &[0; 100]).unwrap();

        let there: Vec<bool> = (0..4).map(|number| disk.read(key(number)).is_some()).collect();
        assert_eq!(there, [true, false, true, true]);
    }

    #[test]
    fn a_smaller_limit_after_a_restart_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder, 10_000);
        for number in 0..20 {
            disk.write(key(number), &[0; 100]).unwrap();
        }
        drop(disk);

        let disk = open(&folder, 1_000);

        assert!(disk.bytes() <= 1_000 && size_on_disk(folder.path()) <= 1_000);
    }

    #[test]
    fn a_file_that_somebody_removed_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder, 1_000);
        disk.write(key(1), b"chunk").unwrap();
        fs::remove_file(disk.path(key(1))).unwrap();

        assert_eq!(disk.read(key(1)), None);
        disk.write(key(1), b"chunk").unwrap();
        assert_eq!(disk.read(key(1)).unwrap(), b"chunk");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn the_disk_never_has_more_bytes_than_it_may(
            bytes_max in 0_u64..2_000,
            steps in prop::collection::vec((0_u32..12, 0_usize..600, any::<bool>()), 1..60),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let disk = open(&folder, bytes_max);
            for (number, len, is_write) in steps {
                if is_write {
                    disk.write(key(number), &vec![number as u8; len]).unwrap();
                } else if let Some(bytes) = disk.read(key(number)) {
                    prop_assert!(bytes.iter().all(|byte| *byte == number as u8));
                }
                prop_assert!(disk.bytes() <= bytes_max);
                prop_assert_eq!(size_on_disk(folder.path()), disk.bytes());
            }
            prop_assert_eq!(disk.counts.read().disk_damaged, 0);
        }
    }
}
