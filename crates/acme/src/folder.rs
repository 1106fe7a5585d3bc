//! The folder in which account and certificates are kept. Nobody else reads what is in it.
//!
//! Each directory has a folder of its own, so that certificates of a directory for tests are not taken for others. `NAME.pem`
//! is key and certificates in one file, which changes as a whole; `NAME.failed` says how often it could not be
//! had, and when it was tried last, in seconds since 1970.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use instant_acme::AccountCredentials;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const ACCOUNT: &str = "account.json";

/// The part of the folder that is one directory's.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// That of the directory at a URL.
    pub(crate) fn new(all: &Path, directory: &str) -> Self {
        let name = directory.split_once("://").map_or(directory, |(_, rest)| rest);
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        Folder { path: all.join(name.chars().map(plain).collect::<String>()) }
    }

    /// Makes it where it is missing, and sees that something can be written there.
    pub(crate) fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let tried = self.path.join("tried");
        write(&tried, b"")?;
        fs::remove_file(tried)
    }

    /// Where the certificate for a name is, with its key.
    pub(crate) fn certificate_file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.pem"))
    }

    /// The certificate for a name. `None`: there is none, or none that can be read.
    pub(crate) fn certificate(&self, name: &str) -> Option<CertificateDer<'static>> {
        CertificateDer::from_pem_file(self.certificate_file(name)).ok()
    }

    pub(crate) fn keep_certificate(&self, name: &str, pem: &str) -> io::Result<()> {
        self.keep(&self.certificate_file(name), pem.as_bytes())
    }

    /// `None`: there is none yet.
    pub(crate) fn account(&self) -> io::Result<Option<AccountCredentials>> {
        match fs::read(self.path.join(ACCOUNT)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn keep_account(&self, account: &AccountCredentials) -> io::Result<()> {
        self.keep(&self.path.join(ACCOUNT), &serde_json::to_vec(account)?)
    }

    /// Puts an account aside of which the directory knows nothing.
    pub(crate) fn drop_account(&self) -> io::Result<()> {
        fs::rename(self.path.join(ACCOUNT), self.path.join(format!("{ACCOUNT}.unknown")))
    }

    /// How often a certificate could not be had, and when it was tried last.
    pub(crate) fn failures(&self, name: &str) -> Option<(u32, SystemTime)> {
        let text = fs::read_to_string(self.failures_file(name)).ok()?;
        let (count, seconds) = text.trim().split_once(' ')?;
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
        Some((count.parse().ok()?, at))
    }

    /// Notes them before it is tried again, so that a server that does not live long enough to see it fail waits, too.
    pub(crate) fn note_failures(&self, name: &str, count: u32, now: SystemTime) -> io::Result<()> {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.keep(&self.failures_file(name), format!("{count} {seconds}\n").as_bytes())
    }

    pub(crate) fn forget_failures(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.failures_file(name))
    }

    pub(crate) fn failures_file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.failed"))
    }

    /// Replaces a file as a whole.
    fn keep(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".part");
        write(Path::new(&unfinished), bytes)?;
        fs::rename(unfinished, path)?;
        File::open(&self.path)?.sync_all()
    }
}

/// Writes a file that only its owner can read.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // One that is there may have another mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_kept_is_its_owners_alone_and_each_directorys_apart() {
        let all = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(all.path(), "https://acme.test:14000/dir/../x");
        assert_eq!(folder.path, all.path().join("acme.test-14000-dir-..-x"));
        folder.make().expect("made");
        folder.keep_certificate("one.test", "first").expect("written");
        folder.keep_certificate("one.test", "second").expect("written again");
        let file = folder.certificate_file("one.test");
        assert_eq!(fs::read_to_string(&file).expect("read"), "second");
        for (path, mode) in [(&folder.path, 0o700), (&file, 0o600)] {
            assert_eq!(fs::metadata(path).expect("it is there").permissions().mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(&folder.path).expect("a folder").count(), 1, "nothing is left over");
    }

    #[test]
    fn failures_are_remembered_until_they_are_over() {
        let all = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(all.path(), "https://acme.test/");
        folder.make().expect("made");
        assert_eq!(folder.failures("one.test"), None);
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        folder.note_failures("one.test", 3, at).expect("written");
        assert_eq!(folder.failures("one.test"), Some((3, at)));
        folder.forget_failures("one.test").expect("removed");
        assert_eq!(folder.failures("one.test"), None);
    }
}
