//! Every promise that an origin can break: what is told, what is tried again, and where.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{CHUNK_BYTES, Fault, Item, Origin, item, library, packets_of, play, sample, settings, until};
use pump::chunk::Chunk;
use pump::title::Title;
use titles::{Error, ErrorKind, HttpError, Library, Settings};
use tokio::net::TcpSocket;

fn http_error(result: Result<impl Sized, Error>) -> HttpError {
    match result.err() {
        Some(Error::Http { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

/// An address that is taken, and that nobody listens at.
fn dead() -> (TcpSocket, titles::Url) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap()).parse().unwrap();
    (socket, url)
}

#[tokio::test]
async fn a_title_is_played_byte_for_byte_over_connections_that_are_kept() {
    let origin = Origin::start().await;
    let item = item(1);
    origin.put("/a.ts", item.clone());
    let library = library(&[&origin]);

    let title = library.open("a.ts").await.unwrap();
    play(&library, &title, &item.bytes).await;

    let stats = library.stats();
    assert_eq!(stats.fetches, u64::from(title.chunk_count()));
    assert_eq!(stats.hits, 1, "the first chunk came with the probe");
    assert_eq!((stats.retries, stats.failovers, stats.fetching), (0, 0, 0));
    // Now and then one is opened before the last one is known to be free.
    assert!(origin.connections() <= 3);
}

#[tokio::test]
async fn a_fault_that_passes_is_tried_again_at_the_same_origin() {
    let faults = [
        (Fault::Status(500), ErrorKind::Status),
        (Fault::Status(503), ErrorKind::Status),
        (Fault::Truncate(1_000), ErrorKind::Truncated),
        (Fault::Shorter(188), ErrorKind::Truncated),
        (Fault::Shift(188), ErrorKind::WrongRange),
        (Fault::NoContentRange, ErrorKind::WrongRange),
    ];
    for (fault, kind) in faults {
        let (origin, spare) = (Origin::start().await, Origin::start().await);
        origin.put("/a.ts", item(1));
        spare.put("/a.ts", item(1));
        let library = library(&[&origin, &spare]);
        let title = library.open("a.ts").await.unwrap();
        let before = library.stats();

        origin.break_next("/a.ts", [fault]);
        let chunk = library.chunk(&title, 3).await.unwrap();

        assert!(chunk.bytes() == packets_of(&sample(1), 3));
        let stats = library.stats();
        assert_eq!(stats.errors.0[kind as usize], 1, "{kind:?}");
        assert_eq!((stats.retries, stats.failovers, stats.fetches - before.fetches), (1, 0, 2), "{kind:?}");
        assert!(spare.asked().is_empty());
    }
}

#[tokio::test]
async fn a_fault_that_stays_is_told_by_its_name() {
    let check = |fault: Fault, is_expected: fn(&HttpError) -> bool, tries: u64| async move {
        let origin = Origin::start().await;
        origin.put("/a.ts", item(1));
        let library = library(&[&origin]);
        let title = library.open("a.ts").await.unwrap();
        let before = library.stats();

        origin.break_always("/a.ts", fault);
        let error = http_error(library.chunk(&title, 3).await);

        assert!(is_expected(&error), "{error:?}");
        assert_eq!(library.stats().fetches - before.fetches, tries, "{error:?}");
    };
    check(Fault::Status(500), |error| *error == HttpError::Status(500), 2).await;
    check(Fault::Status(403), |error| *error == HttpError::Status(403), 1).await;
    check(Fault::Status(404), |error| *error == HttpError::Status(404), 1).await;
    check(Fault::Truncate(1_000), |error| matches!(error, HttpError::Truncated { .. }), 2).await;
    check(Fault::Shorter(10), |error| matches!(error, HttpError::Truncated { .. }), 2).await;
    check(Fault::Shift(188), |error| matches!(error, HttpError::WrongRange { .. }), 2).await;
    check(Fault::IgnoreRange, |error| *error == HttpError::RangeIgnored, 1).await;
    check(Fault::Redirect("/a.ts".to_owned()), |error| matches!(error, HttpError::Redirects(_)), 1).await;
    check(Fault::Redirect("ftp://host/a.ts".to_owned()), |error| matches!(error, HttpError::BadRedirect(_)), 1).await;
    check(Fault::Redirect("file:///etc/passwd".to_owned()), |e| matches!(e, HttpError::BadRedirect(_)), 1).await;
}

#[tokio::test]
async fn an_origin_without_range_requests_is_told_from_a_title_that_is_short() {
    let origin = Origin::start().await;
    let short = Item { bytes: sample(1)[..188 * 100].to_vec().into(), ..item(1) };
    origin.put("/long.ts", Item { always: Some(Fault::IgnoreRange), ..item(1) });
    origin.put("/short.ts", Item { always: Some(Fault::IgnoreRange), ..short.clone() });
    let library = library(&[&origin]);

    assert_eq!(http_error(library.open("long.ts").await), HttpError::RangeIgnored);
    let title = library.open("short.ts").await.unwrap();
    play(&library, &title, &short.bytes).await;
}

#[tokio::test]
async fn a_dead_origin_costs_its_tries_once_and_the_next_one_plays_the_title() {
    let origin = Origin::start().await;
    let item = item(1);
    origin.put("/a.ts", item.clone());
    let mut settings = settings(&[&origin]);
    let (_socket, dead) = dead();
    settings.origins.insert(0, dead);
    let library = Library::new(settings).unwrap();

    let title = library.open("a.ts").await.unwrap();
    play(&library, &title, &item.bytes).await;

    let stats = library.stats();
    // The machine may be so slow that the dead one's turn comes again.
    assert!((1..u64::from(title.chunk_count())).contains(&stats.failovers), "{stats:?}");
    assert_eq!(stats.errors.0[ErrorKind::Connect as usize], 2 * stats.failovers);
}

#[tokio::test]
async fn a_title_goes_on_at_the_next_origin_though_that_has_another_etag() {
    let (first, second) = (Origin::start().await, Origin::start().await);
    first.put("/a.ts", item(1));
    second.put("/a.ts", Item { etag: Some("\"as the second says\"".to_owned()), ..item(1) });
    let library = library(&[&first, &second]);
    let title = library.open("a.ts").await.unwrap();

    first.remove("/a.ts");
    play(&library, &title, &sample(1)).await;

    assert_eq!(library.stats().failovers, u64::from(title.chunk_count()) - 1);
    // From the second request on it is asked for the state that it began with.
    assert_eq!(second.asked()[1].if_range.as_deref(), Some("\"as the second says\""));
}

#[tokio::test]
async fn another_origin_with_another_length_is_no_copy() {
    let (first, second) = (Origin::start().await, Origin::start().await);
    first.put("/a.ts", item(1));
    second.put("/a.ts", Item { always: Some(Fault::Len(9_999_999)), ..item(1) });
    let library = library(&[&first, &second]);
    let title = library.open("a.ts").await.unwrap();

    first.break_always("/a.ts", Fault::Status(500));
    let result = library.chunk(&title, 3).await;

    assert!(matches!(result, Err(Error::Changed { .. })), "{result:?}");
    assert_eq!(library.stats().errors.0[ErrorKind::OtherLength as usize], 1);
}

#[tokio::test]
async fn a_title_that_is_gone_in_the_middle_is_told_and_looked_for_anew() {
    let origin = Origin::start().await;
    origin.put("/a.ts", item(1));
    let library = library(&[&origin]);
    let title = library.open("a.ts").await.unwrap();

    origin.remove("/a.ts");

    assert_eq!(http_error(library.chunk(&title, 3).await), HttpError::Status(404));
    assert!(matches!(library.open("a.ts").await, Err(Error::NotFound { .. })));
    origin.put("/a.ts", item(1));
    assert!(library.open("a.ts").await.is_ok());
}

#[tokio::test]
async fn a_title_that_changes_is_told_and_opened_as_it_is_now() {
    let by_etag = |seed: u64| item(seed);
    let by_date = |seed: u64| Item {
        last_modified: Some(format!("Sat, 0{seed} Nov 2025 00:00:00 GMT")),
        etag: None,
        ..item(seed)
    };
    let by_weak_etag = |seed: u64| Item { etag: Some(format!("W/\"{seed}\"")), ..item(seed) };
    for (make, has_if_range) in [(by_etag as fn(u64) -> Item, true), (by_date, true), (by_weak_etag, false)] {
        let origin = Origin::start().await;
        origin.put("/a.ts", make(1));
        let library = library(&[&origin]);
        let title = library.open("a.ts").await.unwrap();
        library.chunk(&title, 1).await.unwrap();
        assert_eq!(origin.asked()[1].if_range.is_some(), has_if_range);

        origin.put("/a.ts", make(2));

        assert!(matches!(library.chunk(&title, 3).await, Err(Error::Changed { .. })));
        assert_eq!(library.stats().errors.0[ErrorKind::Changed as usize], 1);
        let again = library.open("a.ts").await.unwrap();
        play(&library, &again, &make(2).bytes).await;
        // What was read of the old one stays its own.
        assert!(library.chunk(&title, 1).await.unwrap().bytes() == packets_of(&sample(1), 1));
    }
}

#[tokio::test]
async fn a_title_is_asked_about_again_after_a_while() {
    let origin = Origin::start().await;
    origin.put("/a.ts", item(1));
    let library = Library::new(Settings { revalidate: Duration::ZERO, ..settings(&[&origin]) }).unwrap();
    let first = library.open("a.ts").await.unwrap();

    let same = library.open("a.ts").await.unwrap();
    origin.put("/a.ts", item(2));
    let other = library.open("a.ts").await.unwrap();
    origin.break_always("/a.ts", Fault::Status(500));
    let while_broken = library.open("a.ts").await.unwrap();

    assert!(std::sync::Arc::ptr_eq(&first, &same));
    assert!(!std::sync::Arc::ptr_eq(&first, &other));
    assert!(std::sync::Arc::ptr_eq(&other, &while_broken));
}

/// Settings with short pauses between requests for a title of which nothing comes.
fn patient(origin: &Origin) -> Settings {
    Settings {
        retries: 0,
        retry_backoff: Duration::from_millis(1),
        gone_after: Duration::from_millis(20),
        ..settings(&[origin])
    }
}

#[tokio::test]
async fn a_part_that_is_awaited_is_asked_for_until_it_comes() {
    let faults = || (0..20).map(|number| Fault::Status(if number % 7 == 6 { 404 } else { 503 }));
    let origin = Origin::start().await;
    origin.put("/a.ts", item(1));
    let library = Library::new(patient(&origin)).unwrap();
    let title = library.open("a.ts").await.unwrap();

    origin.break_next("/a.ts", faults());
    let chunk = library.await_chunk(&title, 3).await.unwrap();

    assert!(chunk.bytes() == packets_of(&sample(1), 3));
    let stats = library.stats();
    assert_eq!((stats.fetches, stats.troubles, stats.holes), (22, 1, 0));
    assert!(library.trouble(&title).is_none());
}

#[tokio::test]
async fn a_title_is_gone_when_its_origin_says_so_for_long_enough() {
    for is_other in [false, true] {
        let origin = Origin::start().await;
        origin.put("/a.ts", item(1));
        let library = Library::new(patient(&origin)).unwrap();
        let title = library.open("a.ts").await.unwrap();

        match is_other {
            false => origin.remove("/a.ts"),
            true => origin.put("/a.ts", item(2)),
        }
        let begun = std::time::Instant::now();
        let error = library.await_chunk(&title, 3).await.err().unwrap();

        assert!(error.is_gone(), "{error:?}");
        assert!(begun.elapsed() >= Duration::from_millis(20) && origin.asked().len() > 2);
        assert_eq!(library.trouble(&title).unwrap().error.to_string(), error.to_string());
    }
}

/// Waits for a part while the others come one after the other, again and again.
async fn await_among_others(library: &Library, title: &Arc<Title>, bytes: &[u8], number: u64) -> Arc<Chunk> {
    let awaited = tokio::spawn({
        let (library, title) = (library.clone(), title.clone());
        async move {
            loop {
                match library.await_chunk(&title, number).await {
                    Err(error) if error.is_passing() => continue,
                    awaited => return awaited.unwrap(),
                }
            }
        }
    });
    let mut others = (number + 1..u64::from(title.chunk_count())).cycle();
    while !awaited.is_finished() {
        let other = others.next().unwrap();
        assert!(library.await_chunk(title, other).await.unwrap().bytes() == packets_of(bytes, other));
    }
    awaited.await.unwrap()
}

#[tokio::test]
async fn a_part_that_cannot_be_had_while_others_come_is_a_hole() {
    // It is refused, or nothing is ever said of it.
    let at = 3 * CHUNK_BYTES as u64;
    for (fault, timeout_ms) in [(Fault::Hole(at), 60_000), (Fault::HangAt(at), 200)] {
        let origin = Origin::start().await;
        let bytes = item(1).bytes;
        origin.put("/a.ts", Item { always: Some(fault), ..item(1) });
        let timeout = Duration::from_millis(timeout_ms);
        let (connect_timeout, stall_timeout) = (timeout, timeout);
        let settings = Settings { cache_bytes: 1, connect_timeout, stall_timeout, ..patient(&origin) };
        let library = Library::new(settings).unwrap();
        let title = library.open("a.ts").await.unwrap();

        assert_eq!(await_among_others(&library, &title, &bytes, 3).await.packet_count(), 0);
        assert_eq!(library.stats().holes, 1);
    }
}

#[tokio::test]
async fn parts_of_the_disk_cache_are_no_sign_that_the_origin_is_there() {
    let origin = Origin::start().await;
    let item = item(1);
    origin.put("/a.ts", item.clone());
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { disk_cache: Some(folder.path().to_owned()), cache_bytes: 1, ..patient(&origin) };
    let library = Library::new(settings).unwrap();
    let title = library.open("a.ts").await.unwrap();
    until(&library, |stats| stats.disk_writes == 1).await;
    for number in 4..u64::from(title.chunk_count()) {
        library.chunk(&title, number).await.unwrap();
        // One at a time: what comes while many are being written is not kept.
        until(&library, |stats| stats.disk_writes == number - 2).await;
    }

    origin.break_next("/a.ts", (0..20).map(|_| Fault::Status(503)));
    let chunk = await_among_others(&library, &title, &item.bytes, 3).await;

    assert!(chunk.bytes() == packets_of(&item.bytes, 3));
    let stats = library.stats();
    assert_eq!((stats.holes, stats.troubles), (0, 1), "{stats:?}");
}

#[tokio::test]
async fn a_part_that_hangs_holds_up_no_other() {
    let origin = Origin::start().await;
    let item = item(1);
    origin.put("/a.ts", item.clone());
    let library = Library::new(patient(&origin)).unwrap();
    let title = library.open("a.ts").await.unwrap();

    // From the first failure on its requests leave one at a time.
    origin.break_next("/a.ts", [Fault::Status(503), Fault::Hang]);
    let hanging = tokio::spawn({
        let (library, title) = (library.clone(), title.clone());
        async move { library.await_chunk(&title, 3).await }
    });
    while origin.asked().len() < 3 {
        tokio::task::yield_now().await;
    }
    for number in 4..u64::from(title.chunk_count()) {
        assert!(library.await_chunk(&title, number).await.unwrap().bytes() == packets_of(&item.bytes, number));
    }
    assert!(!hanging.is_finished());
}

#[tokio::test]
async fn redirects_are_followed_to_other_hosts_and_counted() {
    let (origin, store) = (Origin::start().await, Origin::start().await);
    let item = item(1);
    store.put("/deep/a.ts", item.clone());
    origin.put("/a.ts", Item { always: Some(Fault::Redirect("/b.ts".to_owned())), ..item.clone() });
    let there = store.url().join("deep/a.ts").unwrap();
    origin.put("/b.ts", Item { always: Some(Fault::Redirect(there.into())), ..item.clone() });
    let library = library(&[&origin]);

    let title = library.open("a.ts").await.unwrap();
    play(&library, &title, &item.bytes).await;

    assert_eq!(library.stats().redirects, 2 * u64::from(title.chunk_count()));
}

#[tokio::test]
async fn an_origin_that_falls_silent_or_crawls_is_left_for_the_next() {
    let silent = |settings| Settings {
        connect_timeout: Duration::from_millis(500),
        stall_timeout: Duration::from_millis(300),
        ..settings
    };
    let crawling = |settings| Settings { fetch_timeout: Duration::from_millis(300), ..settings };
    let cases = [
        (Fault::Hang, ErrorKind::Stalled, silent as fn(Settings) -> Settings),
        (Fault::Stall(1_000), ErrorKind::Stalled, silent),
        (Fault::Trickle, ErrorKind::Slow, crawling),
    ];
    for (fault, kind, change) in cases {
        let origin = Origin::start().await;
        origin.put("/a.ts", Item { always: Some(fault), ..item(1) });
        let library = Library::new(change(settings(&[&origin]))).unwrap();

        let error = http_error(library.open("a.ts").await);

        assert_eq!(error.kind(), kind, "{error:?}");
        let stats = library.stats();
        assert_eq!((stats.errors.0[kind as usize], stats.retries, stats.fetching), (2, 1, 0));
    }
}

#[tokio::test]
async fn what_is_no_title_is_told() {
    let origin = Origin::start().await;
    origin.put("/a.ts", Item { bytes: vec![7; 300_000].into(), ..Item::default() });
    origin.put("/empty.ts", Item::default());
    let library = library(&[&origin]);

    assert!(matches!(library.open("a.ts").await, Err(Error::Title { .. })));
    assert_eq!(http_error(library.open("empty.ts").await), HttpError::Status(416));
    assert!(matches!(library.open("none.ts").await, Err(Error::NotFound { .. })));
    assert_eq!(library.stats().titles, 0);
}
