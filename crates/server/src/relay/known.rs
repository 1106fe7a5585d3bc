//! Who is known to the relays without a question, and how that changes while they run.
//!
//! In: the settings, the file of users, the secrets of a store. Out: `Credentials` for all workers, again whenever one of
//! them has changed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use relay::auth::{Credentials, Secret as SharedSecret, UserKeys};
use relay::spec::Command;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::lookup::{Lookups, UserStore};
use super::redis::Redis;
use super::users::Users;
use crate::config::{self, Secret, UserSecret};
use crate::plane::Plane;
use crate::worker::Message;

/// The file is looked at so often,
const FILE_EVERY: Duration = Duration::from_secs(1);
/// and after so many looks the store is asked for its secrets.
const SECRETS_EVERY: u32 = 5;

/// Everything that users are known by.
#[derive(Clone, Debug)]
pub struct Known {
    settings: config::Relay,
    file: Option<(Stamp, Users)>,
    /// What the store has beside the settings.
    secrets: Vec<Vec<u8>>,
}

/// By which a file is seen to be another one: number, length, and when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64, u64, i64, i64);

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Stamp(file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    }
}

impl Known {
    /// What the settings say, and the file that they name.
    ///
    /// # Errors
    /// When the file cannot be read, or is none.
    pub fn read(settings: &config::Relay) -> anyhow::Result<Self> {
        let mut known = Known { settings: settings.clone(), file: None, secrets: Vec::new() };
        known.read_file()?;
        Ok(known)
    }

    fn read_file(&mut self) -> anyhow::Result<()> {
        let Some(path) = self.settings.users_file.as_deref().map(Path::new) else { return Ok(()) };
        // Before it is read: what changes meanwhile is seen the next time.
        let stamp = Stamp::of(path);
        let users = Users::read(path, &self.settings.realm)?;
        self.file = stamp.map(|stamp| (stamp, users));
        Ok(())
    }

    /// Reads the file if it is another one than before, or in any case (`is_told`); true when that was done. One that cannot
    /// be read changes nothing.
    pub fn read_again(&mut self, is_told: bool) -> bool {
        let Some(path) = self.settings.users_file.clone() else { return false };
        let stamp = Stamp::of(Path::new(&path));
        let before = self.file.as_ref().map(|(stamp, _)| *stamp);
        if !is_told && (stamp == before || stamp.is_none()) {
            return false;
        }
        match self.read_file() {
            Ok(()) => {
                tracing::info!(
                    path,
                    users = self.file.as_ref().map_or(0, |(_, users)| users.names().count()),
                    "users read again"
                );
                true
            }
            Err(error) => {
                tracing::warn!("users stay as they were: {error:#}");
                // It is told once, and tried again when it has changed.
                self.file = self.file.take().map(|(before, users)| (stamp.unwrap_or(before), users));
                false
            }
        }
    }

    /// Takes the secrets of the store; true when they are others than before.
    pub fn take_secrets(&mut self, secrets: Vec<Vec<u8>>) -> bool {
        let has_changed = self.secrets != secrets;
        self.secrets = secrets;
        has_changed
    }

    /// Whom the relays know. Of two users of one name that of the settings counts.
    pub fn credentials(&self) -> Credentials {
        let config::Relay { realm, users, secrets, .. } = &self.settings;
        let keys = |user: &config::RelayUser| match &user.secret {
            UserSecret::Password(password) => UserKeys::new(&user.name, realm, password),
            UserSecret::Md5(key) => UserKeys { md5: Some(*key), sha256: None },
            UserSecret::Sha256(key) => UserKeys { md5: None, sha256: Some(*key) },
        };
        let of_settings = users.iter().map(|user| (user.name.as_str().into(), keys(user)));
        let of_file = self.file.iter().flat_map(|(_, users)| users.keys());
        let secrets = secrets.iter().map(|secret| secret.0.as_bytes()).chain(self.secrets.iter().map(Vec::as_slice));
        Credentials::new(realm, of_file.chain(of_settings), secrets.map(SharedSecret::new))
    }
}

/// Keeps the relays of all workers up with whom the settings name a source for; when `told` is notified, at once. Returns who
/// is asked for others.
///
/// # Errors
/// When the source is none.
///
/// # Panics
/// Outside of a runtime.
pub fn start(known: Known, plane: &Arc<Plane>, told: Arc<Notify>) -> anyhow::Result<Option<Lookups>> {
    let redis = known.settings.redis.as_ref().map(|Secret(url)| Redis::new(url, &known.settings.realm));
    let redis = redis.transpose().context("relay.redis")?.map(Arc::new);
    let workers = plane.clone();
    let answer = move |worker, user, found| {
        workers.workers().post(worker, Message::Relay(Command::Found { user, found }));
    };
    let lookups = redis.clone().map(|redis| Lookups::start(redis, answer));
    let plane = plane.clone();
    let tell = move |credentials| {
        let credentials = Arc::new(credentials);
        for worker in plane.workers().ids() {
            plane.workers().post(worker, Message::Relay(Command::Credentials(Arc::clone(&credentials))));
        }
    };
    if redis.is_some() || known.settings.users_file.is_some() {
        tokio::spawn(keep_up(known, redis, told, tell));
    }
    Ok(lookups)
}

/// Tells of changes, for as long as the server runs.
pub async fn keep_up(
    mut known: Known,
    store: Option<Arc<impl UserStore>>,
    told: Arc<Notify>,
    tell: impl Fn(Credentials),
) {
    let mut looks = interval(FILE_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for count in (0..SECRETS_EVERY).cycle() {
        let is_told = tokio::select! {
            _ = looks.tick() => false,
            () = told.notified() => true,
        };
        // A file of many users takes a while to read.
        let look = tokio::task::spawn_blocking(move || (known.read_again(is_told), known));
        let (mut has_changed, looked) = look.await.expect("reading a file does not panic");
        known = looked;
        if let Some(store) = store.as_ref().filter(|_| count == 0 || is_told)
            && let Some(secrets) = store.secrets().await
        {
            let count = secrets.len();
            if known.take_secrets(secrets) {
                tracing::info!(count, "secrets in Redis have changed");
                has_changed = true;
            }
        }
        if has_changed {
            tell(known.credentials());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use relay::auth::Found;
    use tempfile::TempDir;
    use tokio::sync::mpsc;

    use super::*;
    use crate::config::Config;

    fn settings(lines: &str) -> config::Relay {
        let mut config = Config::default();
        config.apply_toml("test", &format!("[relay]\n{lines}\n")).expect("valid");
        config.relay
    }

    fn with_file() -> (TempDir, config::Relay) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users.toml");
        let settings = settings(&format!("users_file = {path:?}\nusers = [\"eve:apple\"]"));
        (folder, settings)
    }

    fn path(settings: &config::Relay) -> &Path {
        Path::new(settings.users_file.as_deref().expect("it is set"))
    }

    fn add(settings: &config::Relay, name: &str) {
        Users::change(path(settings), &settings.realm, |users| users.add(name, "p")).expect("written");
    }

    fn shown(known: &Known) -> String {
        format!("{:?}", known.credentials())
    }

    #[test]
    fn users_of_settings_and_file_are_known_and_a_file_that_changed_is_read_again() {
        let (_folder, settings) = with_file();
        add(&settings, "ada");
        let mut known = Known::read(&settings).expect("read");
        assert_eq!(shown(&known), "Credentials { users: 2, secrets: 0 }");
        assert!(!known.read_again(false));
        add(&settings, "bob");
        assert!(known.read_again(false) && !known.read_again(false));
        assert_eq!(shown(&known), "Credentials { users: 3, secrets: 0 }");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_no_start_and_later_changes_nothing() {
        let (_folder, settings) = with_file();
        assert!(Known::read(&settings).is_err());
        add(&settings, "ada");
        let mut known = Known::read(&settings).expect("read");
        fs::write(path(&settings), "damaged").expect("written");
        assert!(!known.read_again(false) && !known.read_again(false));
        assert_eq!(shown(&known), "Credentials { users: 2, secrets: 0 }");
        fs::remove_file(path(&settings)).expect("removed");
        assert!(!known.read_again(false));
        add(&settings, "bob");
        assert!(known.read_again(false));
    }

    /// Has these secrets, one answer after the other; the last one stays.
    struct Store(Mutex<Vec<Option<Vec<Vec<u8>>>>>);

    impl UserStore for Store {
        async fn find(&self, _name: &str) -> Found {
            Found::Nobody
        }

        async fn secrets(&self) -> Option<Vec<Vec<u8>>> {
            let mut answers = self.0.lock().expect("nobody panics");
            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn secrets_of_a_store_come_and_go_and_stay_while_it_is_away() {
        let known = Known::read(&settings("secrets = [\"0123456789abcdef\"]")).expect("read");
        let secret = |text: &str| text.as_bytes().to_vec();
        let answers = [Some(vec![secret("a"), secret("b")]), None, Some(vec![secret("a")]), None];
        let (tell, mut told) = mpsc::channel(8);
        let tell = move |credentials: Credentials| tell.try_send(format!("{credentials:?}")).expect("there is room");
        let keeping =
            tokio::spawn(keep_up(known, Some(Arc::new(Store(Mutex::new(answers.to_vec())))), Arc::default(), tell));
        assert_eq!(told.recv().await.as_deref(), Some("Credentials { users: 0, secrets: 3 }"));
        assert_eq!(told.recv().await.as_deref(), Some("Credentials { users: 0, secrets: 2 }"));
        let nothing_more = tokio::time::timeout(Duration::from_secs(60), told.recv()).await;
        assert!(nothing_more.is_err(), "{nothing_more:?}");
        keeping.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_told_to_reads_again_at_once_what_seems_to_be_the_same() {
        let (_folder, settings) = with_file();
        add(&settings, "ada");
        let known = Known::read(&settings).expect("read");
        let (tell, mut news) = mpsc::channel(8);
        let tell = move |credentials: Credentials| tell.try_send(format!("{credentials:?}")).expect("there is room");
        let told = Arc::new(Notify::new());
        let keeping = tokio::spawn(keep_up(known, None::<Arc<Store>>, told.clone(), tell));
        // It looks at the beginning, and then once a second.
        tokio::time::sleep(FILE_EVERY / 2).await;
        let start = tokio::time::Instant::now();
        told.notify_one();
        assert_eq!(news.recv().await.as_deref(), Some("Credentials { users: 2, secrets: 0 }"));
        assert_eq!(start.elapsed(), Duration::ZERO);
        keeping.abort();
    }
}
