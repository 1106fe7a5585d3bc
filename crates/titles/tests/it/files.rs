//! Titles from the watched folder and by path.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{CHUNK_BYTES, Origin, item, play, sample, settings};
use pump::sample::Sample;
use titles::{Error, Library, Refusal, Settings};
use wire::Bitrate;

fn refusal(result: Result<impl Sized, Error>) -> Refusal {
    match result.err() {
        Some(Error::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_title_of_the_folder_is_listed_and_played_byte_for_byte() {
    let media = tempfile::tempdir().unwrap();
    fs::create_dir(media.path().join("news")).unwrap();
    fs::write(media.path().join("news/a.ts"), &**sample(1)).unwrap();
    let settings = Settings { media: Some(media.path().to_owned()), chunk_bytes: CHUNK_BYTES, ..Settings::default() };
    let library = Library::new(settings).unwrap();
    assert_eq!((library.list()[0].name.as_str(), library.list()[0].duration), ("news/a.ts", None));

    let title = library.open("news/a.ts").await.unwrap();
    play(&library, &title, &sample(1)).await;

    let duration = library.duration(&title).unwrap();
    assert!((3.9..4.1).contains(&duration.as_secs_f64()), "{duration:?}");
    assert_eq!(library.list()[0].duration, Some(duration));
    assert!(Arc::ptr_eq(&title, &library.open("news/a.ts").await.unwrap()));
    assert_eq!(library.stats().probes, 1);
}

#[tokio::test]
async fn the_rate_of_a_file_is_that_of_all_of_it_and_not_of_its_start() {
    let media = tempfile::tempdir().unwrap();
    let part = |kbps, first_second: u64| {
        let first_pcr = first_second * wire::ts::Pcr::HZ;
        Sample { rate: Bitrate::from_kbps(kbps), pictures: 100, first_pcr, ..Sample::default() }.make()
    };
    fs::write(media.path().join("a.ts"), [part(8_000, 10), part(2_000, 14)].concat()).unwrap();
    let settings = Settings { media: Some(media.path().to_owned()), ..Settings::default() };
    let library = Library::new(settings).unwrap();

    let title = library.open("a.ts").await.unwrap();

    let rate = library.rate(&title).unwrap().bps();
    assert!((4_800_000..5_200_000).contains(&rate), "{rate} bit/s, its start has {}", title.rate().bps());
    assert!(title.rate().bps() > 7_500_000);
}

#[tokio::test]
async fn a_file_that_is_replaced_is_another_title_and_the_old_one_plays_on() {
    let media = tempfile::tempdir().unwrap();
    fs::write(media.path().join("a.ts"), &**sample(1)).unwrap();
    let settings = Settings { media: Some(media.path().to_owned()), chunk_bytes: CHUNK_BYTES, ..Settings::default() };
    let library = Library::new(settings).unwrap();
    let old = library.open("a.ts").await.unwrap();

    fs::write(media.path().join("new"), &**sample(2)).unwrap();
    fs::rename(media.path().join("new"), media.path().join("a.ts")).unwrap();
    let new = library.open("a.ts").await.unwrap();
    play(&library, &new, &sample(2)).await;
    play(&library, &old, &sample(1)).await;

    fs::remove_file(media.path().join("a.ts")).unwrap();
    assert!(matches!(library.open("a.ts").await, Err(Error::NotFound { .. })));
    play(&library, &new, &sample(2)).await;
}

#[tokio::test]
async fn a_file_that_is_cut_off_while_it_plays_is_told() {
    let media = tempfile::tempdir().unwrap();
    let path = media.path().join("a.ts");
    fs::write(&path, &**sample(1)).unwrap();
    let settings = Settings { media: Some(media.path().to_owned()), chunk_bytes: CHUNK_BYTES, ..Settings::default() };
    let library = Library::new(settings).unwrap();
    let title = library.open("a.ts").await.unwrap();

    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(CHUNK_BYTES as u64 * 2).unwrap();

    assert!(matches!(library.chunk(&title, 4).await, Err(Error::Changed { .. })));
    assert_eq!(library.open("a.ts").await.unwrap().chunk_count(), 2);
}

#[tokio::test]
async fn what_stands_between_packets_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.m2ts");
    let packets = sample(1);
    let stored: Vec<u8> = packets.chunks(188).flat_map(|packet| [&[0, 1, 2, 3], packet].concat()).collect();
    fs::write(&path, stored).unwrap();
    let settings = Settings { allow_paths: true, chunk_bytes: CHUNK_BYTES, ..Settings::default() };
    let library = Library::new(settings).unwrap();

    let title = library.open(path.to_str().unwrap()).await.unwrap();

    play(&library, &title, &packets).await;
    assert!(library.duration(&title).unwrap().as_secs_f64() > 3.9);
}

#[tokio::test]
async fn what_the_folder_has_not_is_looked_for_at_the_origins() {
    let media = tempfile::tempdir().unwrap();
    fs::write(media.path().join("here.ts"), &**sample(1)).unwrap();
    let origin = Origin::start().await;
    origin.put("/here.ts", item(2));
    origin.put("/there.ts", item(2));
    let library = Library::new(Settings { media: Some(media.path().to_owned()), ..settings(&[&origin]) }).unwrap();

    let (here, there) = (library.open("here.ts").await.unwrap(), library.open("there.ts").await.unwrap());
    play(&library, &here, &sample(1)).await;
    play(&library, &there, &sample(2)).await;

    assert!(origin.asked().iter().all(|asked| asked.path == "/there.ts"));
}

#[tokio::test]
async fn nothing_is_opened_that_is_not_allowed() {
    let media = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    fs::write(outside.path(), &**sample(1)).unwrap();
    std::os::unix::fs::symlink(outside.path(), media.path().join("link.ts")).unwrap();
    let path = outside.path().to_str().unwrap();
    let origin = Origin::start().await;
    origin.put("/link.ts", item(1));
    let with = |allow_paths| {
        let media = Some(media.path().to_owned());
        Library::new(Settings { media, allow_paths, ..settings(&[&origin]) }).unwrap()
    };
    let library = with(false);

    assert_eq!(refusal(library.open(path).await), Refusal::PathsNotAllowed);
    assert_eq!(refusal(library.open("../a.ts").await), Refusal::Path);
    assert_eq!(refusal(library.open("link.ts").await), Refusal::Outside);
    assert_eq!(refusal(library.open(origin.url().as_str()).await), Refusal::UrlsNotAllowed);
    assert!(origin.asked().is_empty());
    assert!(with(true).open(path).await.is_ok());
}

#[tokio::test]
async fn a_chunk_that_a_title_has_not_and_a_title_of_another_library_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ts");
    fs::write(&path, &**sample(1)).unwrap();
    let settings = Settings { allow_paths: true, rescan: Duration::from_secs(1), ..Settings::default() };
    let (library, other) = (Library::new(settings.clone()).unwrap(), Library::new(settings).unwrap());
    let title = library.open(path.to_str().unwrap()).await.unwrap();

    assert!(matches!(library.chunk(&title, u64::from(title.chunk_count())).await, Err(Error::NoChunk { .. })));
    assert!(matches!(library.chunk(&title, u64::MAX).await, Err(Error::NoChunk { .. })));
    assert!(matches!(other.chunk(&title, 0).await, Err(Error::UnknownTitle)));
}

#[test]
fn settings_that_cannot_work_are_told_at_the_start() {
    let nowhere = || Some("/does/not/exist".into());
    let with_password = vec!["https://user:secret@host/".parse().unwrap()];
    let error = |settings| Library::new(settings).err().unwrap();

    assert!(matches!(error(Settings { media: nowhere(), ..Settings::default() }), Error::Io { .. }));
    assert!(matches!(error(Settings { ca_file: nowhere(), ..Settings::default() }), Error::Settings { .. }));
    let refused = error(Settings { origins: with_password, ..Settings::default() });
    assert!(matches!(&refused, Error::Settings { what } if !what.contains("secret")), "{refused}");
}
