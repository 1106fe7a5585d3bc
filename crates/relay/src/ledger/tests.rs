use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn ledger(settings: LedgerSettings) -> (Arc<Ledger>, Instant) {
    let now = Instant::now();
    (Arc::new(Ledger::new(now, settings)), now)
}

fn user(name: &str) -> Arc<str> {
    name.into()
}

#[test]
fn a_user_has_as_many_allocations_as_he_may_and_a_place_is_free_again_when_one_ends() {
    let (ledger, _) = ledger(LedgerSettings { user_allocations_max: Some(2), ..LedgerSettings::default() });
    let (first, second) = (ledger.open(&user("ada")).expect("one"), ledger.open(&user("ada")).expect("two"));
    assert_eq!(ledger.open(&user("ada")).expect_err("three"), Full::User);
    assert!(ledger.open(&user("bob")).is_ok());
    drop(first);
    let third = ledger.open(&user("ada")).expect("room again");
    assert_eq!(ledger.user("ada").map(|totals| totals.allocations), Some(2));
    drop((second, third));
    assert_eq!(ledger.allocations(), 0);
}

#[test]
fn all_together_have_as_many_as_they_may() {
    let (ledger, _) = ledger(LedgerSettings { allocations_max: Some(2), ..LedgerSettings::default() });
    let _held = [ledger.open(&user("ada")).expect("one"), ledger.open(&user("bob")).expect("two")];
    assert_eq!(ledger.open(&user("eve")).expect_err("three"), Full::Total);
    assert_eq!(ledger.user("eve"), None, "who was refused is not remembered");
}

#[test]
fn a_user_without_allocations_is_forgotten() {
    let (ledger, now) = ledger(LedgerSettings::default());
    for number in 0..10_000 {
        let account = ledger.open(&user(&format!("u{number}"))).expect("no limit");
        account.take(now, Direction::Sent, 1, 100, 0);
    }
    assert_eq!(ledger.users(None, usize::MAX), []);
    assert_eq!(ledger.shards.iter().map(|shard| lock(shard).len()).sum::<usize>(), 0);
}

#[test]
fn what_a_user_has_used_is_the_sum_of_his_allocations() {
    let (ledger, now) = ledger(LedgerSettings::default());
    let accounts = [(); 2].map(|()| ledger.open(&user("ada")).expect("no limit"));
    assert_eq!(accounts[0].take(now, Direction::Sent, 10, 100, 0), 10);
    assert_eq!(accounts[1].take(now, Direction::Sent, 1, 50, 0), 1);
    assert_eq!(accounts[1].take(now, Direction::Received, 3, 7, 0), 3);
    let expected = UserTotals {
        user: user("ada"),
        allocations: 2,
        sent: Traffic { packets: 11, bytes: 1_050 },
        received: Traffic { packets: 3, bytes: 21 },
        dropped: Traffic::default(),
    };
    assert_eq!(ledger.user("ada").as_ref(), Some(&expected));
    assert_eq!(ledger.users(None, 5), std::slice::from_ref(&expected));
    assert_eq!(ledger.users(None, 0), []);
    let [first, _last] = accounts;
    drop(first);
    assert_eq!(ledger.user("ada"), Some(UserTotals { allocations: 1, ..expected }), "of one that has ended, too");
}

#[test]
fn a_user_s_bandwidth_is_for_all_his_allocations_and_each_way_has_its_own() {
    let settings = LedgerSettings { user_bandwidth: Some(Bitrate::from_kbps(8_000)), ..LedgerSettings::default() };
    let (ledger, now) = ledger(settings);
    let [one, other] = [(); 2].map(|()| ledger.open(&user("ada")).expect("no limit"));
    // Half a second at once: 500 kB.
    assert_eq!(one.take(now, Direction::Sent, 400, 1_000, 0), 400);
    assert_eq!(other.take(now, Direction::Sent, 400, 1_000, 0), 100, "the first so many of a run");
    assert_eq!(one.take(now, Direction::Sent, 1, 1_000, 0), 0);
    assert_eq!(one.take(now, Direction::Received, 400, 1_000, 0), 400);
    assert_eq!(one.take(now + Duration::from_millis(10), Direction::Sent, 400, 1_000, 0), 10);
    let totals = ledger.user("ada").expect("is there");
    assert_eq!(totals.dropped, Traffic { packets: 300 + 1 + 390, bytes: 691_000 });
    assert_eq!(ledger.open(&user("bob")).expect("no limit").take(now, Direction::Sent, 400, 1_000, 0), 400);
}

#[test]
fn what_the_total_refuses_is_not_taken_from_the_user() {
    let kbps = |kbps| Some(Bitrate::from_kbps(kbps));
    let settings = LedgerSettings { user_bandwidth: kbps(4_000), bandwidth: kbps(8_000), ..LedgerSettings::default() };
    let (ledger, now) = ledger(settings);
    let [ada, bob, eve] = ["ada", "bob", "eve"].map(|name| ledger.open(&user(name)).expect("no limit"));
    assert_eq!(ada.take(now, Direction::Sent, 250, 1_000, 0), 250);
    assert_eq!(eve.take(now, Direction::Sent, 200, 1_000, 0), 200);
    assert_eq!(bob.take(now, Direction::Sent, 250, 1_000, 0), 50);
    // In a tenth of a second there is room for 100 again, and he has more than that left.
    assert_eq!(bob.take(now + Duration::from_millis(100), Direction::Sent, 250, 1_000, 0), 100);
}

#[test]
fn a_run_as_it_is_received_passes_at_any_rate() {
    let settings = LedgerSettings { user_bandwidth: Some(Bitrate::from_kbps(1)), ..LedgerSettings::default() };
    let (ledger, now) = ledger(settings);
    let account = ledger.open(&user("ada")).expect("no limit");
    assert_eq!(account.take(now, Direction::Sent, 1, 65_507, 0), 1);
}

#[test]
fn workers_that_share_a_ledger_take_no_more_than_there_is() {
    let settings = LedgerSettings {
        allocations_max: Some(50),
        user_bandwidth: Some(Bitrate::from_kbps(8_000)),
        ..LedgerSettings::default()
    };
    let (ledger, now) = ledger(settings);
    let work = || {
        let accounts: Vec<Account> = (0..40).filter_map(|_| ledger.open(&user("ada")).ok()).collect();
        let taken: usize = accounts.iter().map(|account| account.take(now, Direction::Sent, 20, 1_000, 0)).sum();
        (accounts, taken)
    };
    let (accounts, taken): (Vec<_>, Vec<usize>) = thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work), scope.spawn(work)];
        workers.map(|worker| worker.join().expect("no panic")).into_iter().unzip()
    });
    assert_eq!(accounts.iter().map(Vec::len).sum::<usize>(), 50);
    assert_eq!(taken.iter().sum::<usize>(), 500);
    drop(accounts);
    assert_eq!((ledger.allocations(), ledger.user("ada")), (0, None));
}

proptest! {
    #[test]
    fn places_are_those_of_a_plain_count(steps in prop::collection::vec((0_usize..4, any::<bool>(), any::<usize>()), 0..200)) {
        let (ledger, _) = ledger(LedgerSettings {
            user_allocations_max: Some(3),
            allocations_max: Some(7),
            ..LedgerSettings::default()
        });
        let names = ["a", "b", "c", "d"].map(user);
        let mut open: [Vec<Account>; 4] = Default::default();
        for (who, opens, which) in steps {
            let total: usize = open.iter().map(Vec::len).sum();
            if opens {
                let expected = match open[who].len() {
                    3.. => Some(Full::User),
                    _ if total == 7 => Some(Full::Total),
                    _ => None,
                };
                let account = ledger.open(&names[who]);
                prop_assert_eq!(account.as_ref().err().copied(), expected);
                open[who].extend(account);
            } else if !open[who].is_empty() {
                let index = which % open[who].len();
                open[who].swap_remove(index);
            }
            prop_assert_eq!(ledger.allocations(), open.iter().map(Vec::len).sum::<usize>());
            let users = ledger.users(None, usize::MAX);
            prop_assert_eq!(users.len(), open.iter().filter(|accounts| !accounts.is_empty()).count());
        }
    }

    #[test]
    fn in_any_time_passes_no_more_than_the_rate_and_one_burst(
        kbps in 1_u64..100_000,
        steps in prop::collection::vec((0_u64..100, 1_usize..60, 1_usize..1_500), 1..200),
    ) {
        let rate = Bitrate::from_kbps(kbps);
        let (ledger, start) = ledger(LedgerSettings { bandwidth: Some(rate), ..LedgerSettings::default() });
        let account = ledger.open(&user("a")).expect("no limit");
        let (mut ms, mut bytes) = (0, 0);
        for (step_ms, count, size) in steps {
            ms += step_ms;
            bytes += account.take(start + Duration::from_millis(ms), Direction::Sent, count, size, 0) * size;
        }
        let burst = (rate.bps() as f64 / 16.0).max(128.0 * 1_024.0);
        let most = rate.bps() as f64 / 8.0 * ms as f64 / 1_000.0 + burst;
        prop_assert!(bytes as f64 <= most * 1.01 + 1_500.0, "{} of {}", bytes, most);
    }
}

#[test]
fn what_changes_holds_at_once_for_who_is_there_and_who_comes() {
    let (ledger, now) = ledger(LedgerSettings { user_allocations_max: Some(1), ..LedgerSettings::default() });
    let ada = ledger.open(&user("ada")).expect("one");
    assert_eq!(ada.take(now, Direction::Sent, 10_000, 1_000, 0), 10_000, "nothing is limited");
    assert_eq!(ledger.open(&user("ada")).expect_err("two"), Full::User);

    let limited = Some(Bitrate::from_kbps(8_000));
    let settings = LedgerSettings { user_allocations_max: Some(2), user_bandwidth: limited, ..ledger.settings() };
    ledger.change(now, settings);
    let second = ledger.open(&user("ada")).expect("two, now");
    let bob = ledger.open(&user("bob")).expect("he comes");
    // Half a second of one megabyte a second.
    for account in [&second, &bob] {
        assert_eq!(account.take(now, Direction::Sent, 10_000, 1_000, 0), 500);
    }
    assert_eq!(ada.take(now, Direction::Sent, 1, 1_000, 0), 0, "his allocations share it");

    ledger.change(now, LedgerSettings { user_bandwidth: None, bandwidth: limited, ..settings });
    assert_eq!(bob.take(now, Direction::Sent, 10_000, 1_000, 0), 500, "that of all");
    ledger.change(now, LedgerSettings { user_allocations_max: Some(1), ..LedgerSettings::default() });
    assert_eq!(ada.take(now, Direction::Sent, 10_000, 1_000, 0), 10_000);
    assert_eq!(ledger.user("ada").map(|totals| totals.allocations), Some(2), "what is there stays");
}

#[test]
fn a_rate_that_falls_between_taking_and_giving_back_leaves_no_debt_for_ever() {
    let bucket = Bucket::new(Some(Bitrate::from_kbps(1_000_000)));
    assert_eq!(bucket.take(0, 64, 1_500), 64);
    bucket.set(0, Some(Bitrate::from_kbps(10)));
    bucket.give_back(64, 1_500);
    assert!(bucket.take(1_000_000_000, 1, 1_000) > 0);
}

#[test]
fn a_rate_that_rises_does_not_leave_who_had_used_it_silent() {
    const SECOND: u64 = 1_000_000_000;
    let bucket = Bucket::new(Some(Bitrate::from_kbps(10)));
    // 128 KiB, for which it would be silent for 100 seconds.
    assert_eq!(bucket.take(0, 1_000, 1_000), 131);
    bucket.set(0, Some(Bitrate::from_kbps(8_000)));
    assert_eq!(bucket.take(SECOND / 2, 1_000, 1_000), 500);
}
