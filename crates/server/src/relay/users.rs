//! Users of the relay in a file of their own: `millrace users` changes it, and the server reads it again when it changed.
//!
//! In: the file, names and passwords. Out: keys by name.
//!
//! The file has keys and no passwords, but a key is as good as a password to who has it: so nobody but its owner may read
//! it (mode 0600). It is replaced as a whole: a reader finds the old users or the new ones, and whoever changes it waits for
//! who does so already.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use relay::auth::UserKeys;
use serde::{Deserialize, Serialize};

use crate::random::{hex, random, unhex};

/// A longer name is none (RFC 8489 §14.3).
const NAME_BYTES_MAX: usize = 508;

/// A million users have a fourth of it.
const FILE_BYTES_MAX: u64 = 1 << 30;

const HEAD: &str = "# Users of millrace's relay, and their keys. `millrace users` changes this file; the server reads it again by itself.\n";

/// What is in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// What the keys were made for (RFC 8489 §9.2.2).
    realm: String,
    /// By name.
    #[serde(default)]
    users: BTreeMap<String, Keys>,
}

/// Keys in hexadecimal.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    md5: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Users {
    /// Nobody.
    pub fn new(realm: &str) -> Self {
        Users { realm: realm.to_owned(), users: BTreeMap::new() }
    }

    /// Reads a file of users of this realm.
    ///
    /// # Errors
    /// When it cannot be read, or what is in it is something else.
    pub fn read(path: &Path, realm: &str) -> anyhow::Result<Self> {
        let name = path.display();
        let len = fs::metadata(path).with_context(|| format!("{name} cannot be read"))?.len();
        ensure!(len <= FILE_BYTES_MAX, "{name} has {len} bytes; allowed: {FILE_BYTES_MAX} at most");
        let text = fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
        // An error of the parser shows the line that it is about, which may have a key in it.
        let Ok(users) = toml::from_str::<Users>(&text) else { bail!("{name} is no file of users, or is damaged") };
        ensure!(
            users.realm == realm,
            "{name} has keys for the realm {:?}, and the relay's is {realm:?}: make it anew with --set relay.realm={realm} (or \
             --config), as a key belongs to its realm",
            users.realm
        );
        if let Some(damaged) =
            users.users.iter().find(|(name, keys)| check_name(name).is_err() || keys.read().is_none())
        {
            bail!("{name}: the entry of {:?} is damaged", damaged.0);
        }
        Ok(users)
    }

    /// Adds a user, or gives him another password. True when he is new.
    ///
    /// # Errors
    /// When name or password will not do.
    pub fn add(&mut self, name: &str, password: &str) -> anyhow::Result<bool> {
        check_name(name)?;
        ensure!(!password.is_empty() && !password.contains(['\0', '\r', '\n']), "a password is one line of text");
        let UserKeys { md5, sha256 } = UserKeys::new(name, &self.realm, password);
        let keys = Keys { md5: md5.map(|key| hex(&key)), sha256: sha256.map(|key| hex(&key)) };
        Ok(self.users.insert(name.to_owned(), keys).is_none())
    }

    /// Takes a user out. False when there is none of that name.
    pub fn remove(&mut self, name: &str) -> bool {
        self.users.remove(name).is_some()
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(String::as_str)
    }

    /// All users, as the relay knows them.
    pub fn keys(&self) -> impl Iterator<Item = (Arc<str>, UserKeys)> + '_ {
        self.users.iter().filter_map(|(name, keys)| Some((name.as_str().into(), keys.read()?)))
    }

    /// Changes the file; one that is not there yet begins empty. What `change` returns comes back.
    ///
    /// # Errors
    /// When `change` fails, or the file cannot be read or written; it is then as it was.
    pub fn change<T>(
        path: &Path,
        realm: &str,
        change: impl FnOnce(&mut Users) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        // Where it is a link, what it leads to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let lock = beside(&path, ".lock");
        let lock = private().create(true).truncate(false).open(&lock).with_context(|| format!("{}", lock.display()))?;
        lock.lock().context("waiting for who changes the users now")?;
        let mut users = if path.exists() { Users::read(&path, realm)? } else { Users::new(realm) };
        let changed = change(&mut users)?;
        users.write(&path).with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(changed)
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        let new = beside(path, ".new");
        // What a crash left behind; the lock is held, so it is nobody's.
        fs::remove_file(&new)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let mut file = private().create_new(true).open(&new)?;
        if let Ok(before) = fs::metadata(path) {
            // Who runs the server owns it, and whoever changes it may be root.
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.write_all(HEAD.as_bytes())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

impl Keys {
    fn read(&self) -> Option<UserKeys> {
        // One that is there and no key makes all of it none.
        let md5 = self.md5.as_deref().map_or(Some(None), |digits| unhex(digits).map(Some))?;
        let sha256 = self.sha256.as_deref().map_or(Some(None), |digits| unhex(digits).map(Some))?;
        let keys = UserKeys { md5, sha256 };
        (keys != UserKeys::default()).then_some(keys)
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let len = name.len();
    ensure!((1..=NAME_BYTES_MAX).contains(&len), "a name has 1 to {NAME_BYTES_MAX} bytes; this one has {len}");
    ensure!(!name.contains(char::is_control), "a name has no control characters");
    ensure!(!name.contains(':'), "a name has no colon: that is for time-limited credentials");
    Ok(())
}

/// One that nobody guesses: 144 bits.
///
/// # Errors
/// When there is no randomness.
pub fn password() -> anyhow::Result<String> {
    let bytes: [u8; 18] = random().context("reading random numbers")?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// For its owner alone.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::thread;

    use tempfile::TempDir;

    use super::*;

    fn folder() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users.toml");
        (folder, path)
    }

    fn add(path: &Path, name: &str, password: &str) -> anyhow::Result<bool> {
        Users::change(path, "millrace", |users| users.add(name, password))
    }

    #[test]
    fn users_are_added_listed_changed_and_removed() {
        let (_folder, path) = folder();
        assert!(add(&path, "ada", "lovelace").expect("written"));
        assert!(add(&path, "bob", "b").expect("written"));
        assert!(!add(&path, "ada", "byron").expect("written"), "she has another password");
        let users = Users::read(&path, "millrace").expect("read");
        assert_eq!(users.names().collect::<Vec<_>>(), ["ada", "bob"]);
        let keys: Vec<_> = users.keys().collect();
        assert_eq!(keys[0], ("ada".into(), UserKeys::new("ada", "millrace", "byron")));
        assert!(Users::change(&path, "millrace", |users| Ok(users.remove("bob"))).expect("written"));
        assert!(!Users::change(&path, "millrace", |users| Ok(users.remove("bob"))).expect("written"));
        assert_eq!(Users::read(&path, "millrace").expect("read").names().count(), 1);
    }

    #[test]
    fn the_file_has_no_password_and_is_for_its_owner_alone() {
        let (_folder, path) = folder();
        fs::write(&path, "realm = \"millrace\"\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        add(&path, "ada", "lovelace").expect("written");
        assert!(!fs::read_to_string(&path).expect("read").contains("lovelace"));
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(beside(&path, ".lock")).expect("there").mode() & 0o777, 0o600);
        assert!(!format!("{:?}", Users::read(&path, "millrace")).contains("md5"), "nor is a key shown");
    }

    #[test]
    fn who_changes_it_at_the_same_time_loses_nothing() {
        let (_folder, path) = folder();
        thread::scope(|scope| {
            for worker in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    (0..10).for_each(|n| assert!(add(path, &format!("u{worker}-{n}"), "p").expect("written")))
                });
            }
        });
        assert_eq!(Users::read(&path, "millrace").expect("read").names().count(), 40);
    }

    #[test]
    fn what_fails_leaves_the_file_as_it_was() {
        let (_folder, path) = folder();
        add(&path, "ada", "lovelace").expect("written");
        let before = fs::read(&path).expect("read");
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for (name, password) in [("", "p"), (&long, "p"), ("a:b", "p"), ("a\nb", "p"), ("bob", ""), ("bob", "a\nb")] {
            add(&path, name, password).expect_err("neither a name nor a password");
        }
        assert_eq!(fs::read(&path).expect("read"), before);
    }

    #[test]
    fn a_link_stays_one_and_what_a_crash_left_is_no_hindrance() {
        let (folder, path) = folder();
        let link = folder.path().join("link");
        add(&path, "ada", "lovelace").expect("written");
        symlink(&path, &link).expect("a link");
        fs::write(beside(&path, ".new"), "half of it").expect("written");
        add(&link, "bob", "b").expect("written");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(Users::read(&path, "millrace").expect("read").names().count(), 2);
    }

    #[test]
    fn a_file_that_is_none_says_so_and_shows_no_key() {
        let (_folder, path) = folder();
        let error = |text: &str| {
            fs::write(&path, text).expect("written");
            format!("{:#}", Users::read(&path, "millrace").expect_err(text))
        };
        let key = "ab".repeat(16);
        for damaged in [
            format!("realm = \"millrace\"\n[users]\nada = {{ md5 = \"{key}00\" }}"),
            format!("realm = \"millrace\"\n[users]\nada = {{ md5 = \"{key}\", sha = 1 }}"),
            format!("realm = \"millrace\"\n[users]\nada = {{ md5 = \"{key}\" "),
            format!("realm = \"millrace\"\n[users]\nada = {{ }} # {key}"),
            format!("realm = \"millrace\"\n[users]\n\"a:b\" = {{ md5 = \"{key}\" }}"),
        ] {
            let error = error(&damaged);
            assert!(error.contains("damaged") && !error.contains("abab"), "{error}");
        }
        assert!(error("realm = \"other\"").contains("\"other\""));
        assert!(
            error(&format!("realm = \"millrace\"\n[users]\nada = {{ md5 = \"{}\" }}", "\u{e9}".repeat(16)))
                .contains("damaged")
        );
    }
}
