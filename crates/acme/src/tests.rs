//! A keeper and a directory, in a time that passes as fast as it is waited for.

mod directory;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::time::{Instant, timeout};

use crate::keeper::{Keeper, Settings};
use crate::{Counters, Validity};
use directory::{Directory, Line, Mood};

const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);

thread_local! {
    /// When a test began.
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The time of day, which passes as tokio's does.
fn wall() -> SystemTime {
    let start = START.with(|start| {
        start.set(start.get().or_else(|| Some(Instant::now())));
        start.get().expect("it was set")
    });
    SystemTime::UNIX_EPOCH + 20_000 * DAY + start.elapsed()
}

struct World {
    folder: tempfile::TempDir,
    directory: Arc<Directory>,
    names: Vec<String>,
}

impl World {
    fn new(names: &[&str]) -> Self {
        START.with(|start| start.set(None));
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        World { folder: tempfile::tempdir().expect("a folder"), directory: Directory::new(90 * DAY), names }
    }

    /// A server runs for so long.
    async fn run(&self, time: Duration) -> Counters {
        let keeper = self.keeper();
        timeout(time, keeper.run()).await.expect_err("it goes on");
        for name in &self.names {
            assert!(keeper.challenges().answer(name).is_none(), "nothing is shown for longer than it is needed");
        }
        keeper.counters()
    }

    fn keeper(&self) -> Keeper {
        let settings = Settings {
            names: self.names.clone(),
            directory: "https://acme.test/directory".to_owned(),
            contact: None,
            external_account: None,
            ca_file: None,
            folder: self.folder.path().to_owned(),
        };
        let keeper = Keeper::with(settings, Arc::new(Line(self.directory.clone())), wall).expect("a folder");
        // Each server has its own.
        let mut state = self.directory.state();
        state.challenges = Some(keeper.challenges.clone());
        drop(state);
        keeper
    }

    /// When each order came, in hours since the beginning.
    fn orders(&self) -> Vec<u64> {
        let orders = self.directory.state();
        let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH + 20_000 * DAY).expect("later").as_secs();
        orders.orders.iter().map(|(_, at, _)| since(*at) / 3_600).collect()
    }
}

/// The certificate in a file, which has its key beside it.
fn read(file: &Path) -> Validity {
    let certificate = CertificateDer::from_pem_file(file).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(file).expect("a key");
    let pair = CertifiedKey::from_der(vec![certificate], key, &aws_lc_rs::default_provider()).expect("they fit");
    Validity::of(&pair.cert[0]).expect("a certificate")
}

#[tokio::test(start_paused = true)]
async fn each_name_has_a_certificate_that_is_renewed_at_two_thirds_of_its_life() {
    let world = World::new(&["one.test", "two.test"]);
    let counters = world.run(56 * DAY).await;
    assert_eq!((counters.obtained, counters.failures, counters.failing), (2, 0, 0));
    for file in world.keeper().files() {
        assert_eq!(read(&file).life(), 90 * DAY);
    }
    // Another server goes on with what the first one has kept.
    let counters = world.run(5 * DAY).await;
    assert_eq!((counters.obtained, world.directory.state().accounts.len()), (2, 1));
    assert_eq!(world.orders()[..2], [0, 0]);
    assert!(world.orders()[2..].iter().all(|hour| (57 * 24..=60 * 24).contains(hour)), "{:?}", world.orders());
    assert!(world.directory.state().orders[2..].iter().all(|(.., replaces)| !replaces), "it knows of none");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_starts_again_asks_for_nothing_that_it_has() {
    let world = World::new(&["one.test"]);
    world.run(HOUR).await;
    let asked = world.directory.state().requests;
    for _ in 0..10 {
        world.run(Duration::from_secs(60)).await;
    }
    assert_eq!(world.orders(), [0]);
    // What the directory suggests is asked for.
    assert!(world.directory.state().requests - asked <= 10);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_away_is_asked_less_and_less_often_and_what_is_there_is_kept() {
    let world = World::new(&["one.test"]);
    world.run(56 * DAY).await;
    let file = world.keeper().files().remove(0);
    let before = read(&file);
    world.directory.state().mood = Mood::Away;
    let asked = world.directory.state().requests;
    let counters = world.run(14 * DAY).await;
    // In the 10 to 13 days that are left: after 5, 10, 20 … 640 minutes, or up to a quarter more, and then after half a day, or
    // up to 15 hours; and once in a while what it suggests.
    assert!((23..=33).contains(&counters.failures), "{}", counters.failures);
    assert_eq!(counters.failing, 1);
    assert!(world.directory.state().requests - asked < 40 + 20);
    assert_eq!(read(&file), before);

    world.directory.state().mood = Mood::Fine;
    let counters = world.run(DAY).await;
    assert_eq!((counters.obtained, counters.failing), (1, 0));
    assert!(read(&file).from > before.from);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_started_again_and_again_does_not_ask_each_time() {
    let world = World::new(&["one.test"]);
    world.directory.state().mood = Mood::Doubts("one.test");
    for _ in 0..120 {
        world.run(Duration::from_secs(60)).await;
    }
    assert!((3..=24).contains(&world.orders().len()), "in two hours: {:?}", world.orders());
    // One that dies in the middle of it waits, too.
    let keeper = world.keeper();
    world.directory.state().mood = Mood::Fine;
    timeout(20 * Duration::from_secs(60), keeper.run()).await.expect_err("it goes on");
    assert_eq!(keeper.counters().obtained, 1, "who has seen to the reason does not wait for half a day");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_ours_takes_no_other_with_it() {
    let world = World::new(&["gone.test", "one.test"]);
    world.directory.state().mood = Mood::Doubts("gone.test");
    let counters = world.run(HOUR).await;
    assert_eq!((counters.obtained, counters.failing), (1, 1));
    let of_gone = world.directory.state().orders.iter().filter(|(name, ..)| name == "gone.test").count();
    assert!((2..=5).contains(&of_gone), "directories let a name fail five times an hour: {of_gone}");
}

#[tokio::test(start_paused = true)]
async fn who_has_asked_too_often_waits_for_an_hour() {
    let world = World::new(&["one.test"]);
    world.directory.state().mood = Mood::Limits;
    assert_eq!(world.run(59 * HOUR / 60).await.failures, 1);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_the_directory_has_forgotten_is_made_anew() {
    let world = World::new(&["one.test"]);
    world.run(50 * DAY).await;
    world.directory.state().accounts = vec!["https://acme.test/accounts/another".to_owned()];
    let counters = world.run(11 * DAY).await;
    assert_eq!((counters.failures, counters.obtained), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn where_the_clock_is_ahead_a_directory_is_asked_less_and_less_often() {
    let world = World::new(&["one.test"]);
    world.directory.state().behind = 70 * DAY;
    let keeper = world.keeper();
    timeout(10 * DAY, keeper.run()).await.expect_err("it goes on");
    assert_eq!(world.orders(), [0, 1, 3, 7, 15, 31, 63, 127]);
    // Once it is right, the next is renewed as any other.
    world.directory.state().behind = Duration::ZERO;
    world.run(50 * DAY).await;
    assert_eq!(world.orders().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_directory_says_when_a_certificate_is_to_be_renewed() {
    let world = World::new(&["one.test"]);
    world.directory.state().window = Some((40 * DAY, 41 * DAY));
    world.run(45 * DAY).await;
    assert_eq!(world.orders().len(), 2);
    assert!((40 * 24..=41 * 24).contains(&world.orders()[1]), "{:?}", world.orders());
    assert!(world.directory.state().orders[1].2, "it says which one it replaces");

    // It was revoked: at the next look, which is within a day. And one that says so of all of them is not asked on and on.
    world.directory.state().window = Some((Duration::ZERO, Duration::from_secs(1)));
    world.run(HOUR).await;
    assert_eq!(world.orders().len(), 3);
    world.run(2 * DAY).await;
    assert!(world.orders().len() <= 5, "{:?}", world.orders());
}
