//! Many who want the same, and those who want something else meanwhile.

use std::sync::Arc;

use crate::common::{CHUNK_BYTES, Fault, Item, Origin, item, library, packets_of, play, sample, settings, until};
use pump::sample::Sample;
use titles::{Library, Settings};
use tokio::sync::Semaphore;
use wire::Bitrate;
use wire::ts::Pcr;

#[tokio::test]
async fn whoever_names_titles_that_do_not_come_keeps_no_part_of_others_waiting() {
    let origin = Origin::start().await;
    origin.put("/a.ts", item(1));
    for name in ["/hangs.ts", "/hangs%20too.ts"] {
        origin.put(name, Item { always: Some(Fault::Hang), ..item(1) });
    }
    let library = Library::new(Settings { fetches_per_origin: 1, ..settings(&[&origin]) }).unwrap();
    let title = library.open("a.ts").await.unwrap();

    // One in the fast row, and one in that of slow ones.
    let hang = || {
        let library = library.clone();
        tokio::spawn(async move { library.open("hangs.ts").await.map(drop) })
    };
    let other = || {
        let library = library.clone();
        tokio::spawn(async move { library.open("hangs too.ts").await.map(drop) })
    };
    let hanging = [hang(), other()];
    until(&library, |stats| stats.fetching == 2).await;
    let chunk = tokio::time::timeout(std::time::Duration::from_secs(30), library.chunk(&title, 3)).await;
    assert!(chunk.is_ok_and(|chunk| chunk.is_ok()));
    hanging.iter().for_each(|each| each.abort());
}

#[tokio::test]
async fn a_hundred_sessions_cause_one_probe_and_one_fetch_per_chunk() {
    let origin = Origin::start().await;
    let gate = Arc::new(Semaphore::new(0));
    origin.put("/a.ts", Item { always: Some(Fault::Gate(gate.clone())), ..item(1) });
    let library = library(&[&origin]);

    let sessions: Vec<_> = (0..100)
        .map(|_| {
            let library = library.clone();
            tokio::spawn(async move {
                let title = library.open("a.ts").await.unwrap();
                let chunk = library.chunk(&title, 5).await.unwrap();
                (title, chunk)
            })
        })
        .collect();
    until(&library, |stats| stats.fetching == 1).await;
    gate.add_permits(1);
    until(&library, |stats| stats.misses == 100).await;
    gate.add_permits(1);

    let mut all = Vec::new();
    for session in sessions {
        all.push(session.await.unwrap());
    }
    assert!(all.iter().all(|(title, chunk)| Arc::ptr_eq(title, &all[0].0) && Arc::ptr_eq(chunk, &all[0].1)));
    let stats = library.stats();
    assert_eq!((stats.probes, stats.fetches, stats.misses, stats.joined), (1, 2, 100, 99));
    assert_eq!(origin.asked().len(), 2);
}

#[tokio::test]
async fn a_fetch_goes_on_when_its_session_is_gone() {
    let origin = Origin::start().await;
    let gate = Arc::new(Semaphore::new(0));
    origin.put("/a.ts", item(1));
    let library = library(&[&origin]);
    let title = library.open("a.ts").await.unwrap();
    origin.break_next("/a.ts", [Fault::Gate(gate.clone())]);

    let session = {
        let (library, title) = (library.clone(), title.clone());
        tokio::spawn(async move { library.chunk(&title, 2).await })
    };
    until(&library, |stats| stats.fetching == 1).await;
    session.abort();
    gate.add_permits(1);
    until(&library, |stats| stats.cached_chunks == 2).await;

    assert!(library.chunk(&title, 2).await.unwrap().bytes() == packets_of(&sample(1), 2));
    assert_eq!(library.stats().fetches, 2);
}

#[tokio::test]
async fn titles_that_hang_keep_no_other_waiting_at_their_own_origin_or_elsewhere() {
    let (hanging, good) = (Origin::start().await, Origin::start().await);
    let item = item(1);
    for number in 0..4 {
        hanging.put(&format!("/stuck{number}.ts"), Item { always: Some(Fault::Hang), ..item.clone() });
    }
    hanging.put("/same.ts", item.clone());
    good.put("/other.ts", item.clone());
    // As many as hang have a turn at a time.
    let settings = Settings { allow_urls: true, fetches_per_origin: 4, ..settings(&[]) };
    let library = Library::new(settings).unwrap();

    let stuck: Vec<_> = (0..4)
        .map(|number| {
            let (library, url) = (library.clone(), hanging.url().join(&format!("stuck{number}.ts")).unwrap());
            tokio::spawn(async move { library.open(url.as_str()).await.map(drop) })
        })
        .collect();
    until(&library, |stats| stats.fetching == 4).await;

    let other = library.open(good.url().join("other.ts").unwrap().as_str()).await.unwrap();
    play(&library, &other, &item.bytes).await;
    let same = library.open(hanging.url().join("same.ts").unwrap().as_str()).await.unwrap();
    play(&library, &same, &item.bytes).await;

    assert!(stuck.iter().all(|each| !each.is_finished()));
    assert_eq!(library.stats().fetching, 4);
    assert_eq!(library.stats().errors, Default::default());
}

#[tokio::test]
async fn requests_to_one_origin_are_limited() {
    let origin = Origin::start().await;
    let gate = Arc::new(Semaphore::new(0));
    for number in 0..20 {
        origin.put(&format!("/{number}.ts"), Item { always: Some(Fault::Gate(gate.clone())), ..item(number) });
    }
    let library = Library::new(Settings { fetches_per_origin: 3, ..settings(&[&origin]) }).unwrap();

    let opening: Vec<_> = (0..20)
        .map(|number| {
            let library = library.clone();
            tokio::spawn(async move { library.open(&format!("{number}.ts")).await.is_ok() })
        })
        .collect();
    until(&library, |stats| stats.fetching == 3).await;
    assert!(origin.connections() <= 3);
    gate.add_permits(20);

    for each in opening {
        assert!(each.await.unwrap());
    }
}

#[tokio::test]
async fn the_cache_is_bounded_and_chunks_in_use_are_counted_beyond_it() {
    let origin = Origin::start().await;
    for number in 0..10 {
        origin.put(&format!("/{number}.ts"), item(number));
    }
    let cache_bytes = 20 * CHUNK_BYTES;
    let library = Library::new(Settings { cache_bytes, ..settings(&[&origin]) }).unwrap();
    let mut in_use = Vec::new();
    for number in 0..10 {
        let title = library.open(&format!("{number}.ts")).await.unwrap();
        in_use.extend(play(&library, &title, &sample(number)).await);
        assert!(library.stats().cached_bytes <= cache_bytes as u64);
    }

    let stats = library.stats();
    assert!(stats.evictions > 0 && stats.held_chunks >= in_use.len() as u64, "{stats:?}");
    assert!(stats.held_bytes >= (in_use.len() * CHUNK_BYTES / 2) as u64);
    drop(in_use);
    let stats = library.stats();
    assert_eq!((stats.held_bytes, stats.held_chunks), (stats.cached_bytes, stats.cached_chunks));
}

#[tokio::test]
async fn chunks_on_disk_are_not_fetched_again_after_a_restart_and_damaged_ones_are() {
    let origin = Origin::start().await;
    let item = item(1);
    origin.put("/a.ts", item.clone());
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { disk_cache: Some(folder.path().to_owned()), ..settings(&[&origin]) };
    let library = Library::new(settings.clone()).unwrap();
    let title = library.open("a.ts").await.unwrap();
    let count = u64::from(title.chunk_count());
    for number in 0..count {
        library.chunk(&title, number).await.unwrap();
        // One at a time: what comes while many are being written is not kept.
        until(&library, |stats| stats.disk_writes == number + 1).await;
    }
    drop(library);
    let mut files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut bytes = std::fs::read(&files[3]).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&files[3], bytes).unwrap();

    let library = Library::new(settings).unwrap();
    let title = library.open("a.ts").await.unwrap();
    play(&library, &title, &item.bytes).await;

    let stats = library.stats();
    assert_eq!((stats.disk_hits, stats.disk_damaged, stats.fetches), (count - 2, 1, 2));
}

#[tokio::test]
async fn a_title_that_changed_is_not_taken_from_disk() {
    let origin = Origin::start().await;
    origin.put("/a.ts", item(1));
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { disk_cache: Some(folder.path().to_owned()), ..settings(&[&origin]) };
    let library = Library::new(settings.clone()).unwrap();
    let title = library.open("a.ts").await.unwrap();
    play(&library, &title, &sample(1)).await;
    drop(library);

    origin.put("/a.ts", item(2));
    let library = Library::new(settings).unwrap();
    let title = library.open("a.ts").await.unwrap();

    play(&library, &title, &sample(2)).await;
    assert_eq!(library.stats().disk_hits, 0);
}

#[tokio::test]
async fn a_title_at_an_origin_is_measured_once_for_who_is_told_its_length() {
    let origin = Origin::start().await;
    // Two seconds of nearly nothing, as many films begin.
    let quiet = Sample { rate: Bitrate::from_kbps(100), is_constant: false, pictures: 50, ..Sample::default() };
    let first_pcr = quiet.first_pcr + 2 * Pcr::HZ;
    let busy = Sample { first_pcr, is_constant: false, pictures: 500, seed: 2, ..Sample::default() };
    origin.put("/a.ts", Item { bytes: [quiet.make(), busy.make()].concat().into(), ..item(1) });
    let library = library(&[&origin]);
    let title = library.open("a.ts").await.unwrap();
    let guess = library.duration(&title).unwrap().as_secs_f64();
    assert!(guess > 40.0, "{guess}");

    let (told, told_too) = tokio::join!(library.measure(&title), library.measure(&title));
    let fetches = library.stats().fetches;

    let seconds = told.unwrap().as_secs_f64();
    assert!((21.0..23.5).contains(&seconds) && told == told_too, "{seconds}");
    assert_eq!((library.measure(&title).await, library.duration(&title)), (told, told));
    assert_eq!(library.stats().fetches, fetches);
}
