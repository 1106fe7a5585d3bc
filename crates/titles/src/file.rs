//! Local files: opened once, read piece by piece, watched for changes.
//!
//! In: a name below a folder, or a path. Out: bytes of a range. Everything here blocks.
//! A file stays open while its title is known, so one that is replaced or removed is played to its end.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Error, Refusal};
use crate::location::shown;

/// Opening must not wait: not for the other end of a pipe either.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A folder beneath which files are opened, and nowhere else.
pub(crate) struct Root {
    fd: OwnedFd,
    pub path: PathBuf,
}

impl Root {
    pub fn open(path: &Path) -> io::Result<Root> {
        let fd = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Root { fd, path: path.to_owned() })
    }

    /// Opens a file beneath the folder. Links that stay there are followed; whether they do is the kernel's to say, so
    /// that nobody can change them in between.
    pub fn open_file(&self, name: &str) -> Result<OpenFile, Error> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let fd = rustix::fs::openat2(&self.fd, name, OPEN, Mode::empty(), resolve).map_err(|error| match error {
            Errno::XDEV | Errno::LOOP => refused(name, Refusal::Outside),
            other => not_opened(name, other.into()),
        })?;
        OpenFile::new(fd.into(), name)
    }
}

/// Opens whatever is at the path.
pub(crate) fn open_path(path: &Path) -> Result<OpenFile, Error> {
    let location = path.to_string_lossy();
    let fd = rustix::fs::open(path, OPEN, Mode::empty()).map_err(|error| not_opened(&location, error.into()))?;
    OpenFile::new(fd.into(), &location)
}

fn refused(location: &str, reason: Refusal) -> Error {
    Error::Refused { location: shown(location), reason }
}

fn not_opened(location: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NotFound { location: shown(location) },
        _ => Error::io(format!("opening {:?}", shown(location)), error),
    }
}

/// Bytes at a file's start by which one that grew is told from another one in its place.
const HEAD_BYTES: usize = 4_096;

/// What tells one file, and one state of it, from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    pub len: u64,
    pub modified: Option<SystemTime>,
}

impl Identity {
    /// Names the file system.
    pub fn disk(&self) -> String {
        format!("disk {}", self.device)
    }

    pub fn of(metadata: &Metadata) -> Identity {
        let modified = metadata.modified().ok();
        Identity { device: metadata.dev(), inode: metadata.ino(), len: metadata.len(), modified }
    }
}

/// A file as it was when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    location: String,
    pub identity: Identity,
    head: Vec<u8>,
}

impl OpenFile {
    fn new(file: File, location: &str) -> Result<OpenFile, Error> {
        let metadata = file.metadata().map_err(|error| not_opened(location, error))?;
        if !metadata.is_file() {
            return Err(refused(location, Refusal::NoFile));
        }
        let head = head_of(&file).map_err(|error| not_opened(location, error))?;
        Ok(OpenFile { file, location: location.to_owned(), identity: Identity::of(&metadata), head })
    }

    /// # Errors
    /// `Io`; `Changed`, when the file is not what it was. One that only grew is.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
        let what = |error| Error::io(format!("reading {:?}", shown(&self.location)), error);
        match self.file.read_exact_at(&mut bytes, range.start) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(self.changed()),
            result => result.map_err(what)?,
        }
        let now = Identity::of(&self.file.metadata().map_err(what)?);
        let has_grown = now.len > self.identity.len && head_of(&self.file).map_err(what)?.starts_with(&self.head);
        if now != self.identity && !has_grown {
            return Err(self.changed());
        }
        Ok(bytes)
    }

    fn changed(&self) -> Error {
        Error::Changed { location: shown(&self.location) }
    }
}

fn head_of(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let len = file.read_at(&mut head, 0)?;
    head.truncate(len);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn refusal(result: Result<OpenFile, Error>) -> Refusal {
        match result {
            Err(Error::Refused { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_outside_of_the_folder_is_opened() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), b"secret").unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/a.ts"), b"title").unwrap();
        symlink(outside.path().join("secret"), folder.path().join("link.ts")).unwrap();
        symlink(outside.path(), folder.path().join("links")).unwrap();
        symlink("/proc/self/fd/0", folder.path().join("magic.ts")).unwrap();
        symlink("sub/a.ts", folder.path().join("inside.ts")).unwrap();
        let root = Root::open(folder.path()).unwrap();

        assert_eq!(refusal(root.open_file("link.ts")), Refusal::Outside);
        assert_eq!(refusal(root.open_file("links/secret")), Refusal::Outside);
        assert_eq!(refusal(root.open_file("magic.ts")), Refusal::Outside);
        assert_eq!(refusal(root.open_file("../x")), Refusal::Outside);
        assert_eq!(refusal(root.open_file("/etc/passwd")), Refusal::Outside);
        assert_eq!(refusal(root.open_file("sub")), Refusal::NoFile);
        assert_eq!(root.open_file("inside.ts").unwrap().read(0..5).unwrap(), b"title");
        assert!(matches!(root.open_file("none.ts"), Err(Error::NotFound { .. })));
        assert!(matches!(root.open_file("sub/a.ts/b"), Err(Error::NotFound { .. })));
    }

    #[test]
    fn a_pipe_is_no_title_and_nobody_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe.ts");
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();

        assert_eq!(refusal(open_path(&path)), Refusal::NoFile);
    }

    #[test]
    fn a_file_that_grew_is_the_same_and_one_that_shrank_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ts");
        fs::write(&path, b"0123456789").unwrap();
        let file = open_path(&path).unwrap();

        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all_at(b"more", 10).unwrap();
        assert_eq!(file.read(2..5).unwrap(), b"234");

        fs::write(&path, b"0123").unwrap();
        assert!(matches!(file.read(2..4), Err(Error::Changed { .. })));
        assert!(matches!(file.read(2..9), Err(Error::Changed { .. })));
    }

    #[test]
    fn a_file_that_was_written_over_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ts");
        fs::write(&path, b"0123456789").unwrap();
        let file = open_path(&path).unwrap();

        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(later).unwrap();

        assert!(matches!(file.read(2..5), Err(Error::Changed { .. })));

        let file = open_path(&path).unwrap();
        fs::write(&path, b"another and longer").unwrap();
        assert!(matches!(file.read(2..5), Err(Error::Changed { .. })));
    }

    #[test]
    fn a_file_that_is_replaced_is_played_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ts");
        fs::write(&path, b"0123456789").unwrap();
        let file = open_path(&path).unwrap();

        fs::write(folder.path().join("new"), b"abcdefghij").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();

        assert_eq!(file.read(2..5).unwrap(), b"234");
        assert_ne!(open_path(&path).unwrap().identity, file.identity);
    }
}
