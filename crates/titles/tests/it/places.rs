//! Times are found in titles far away, with little reading.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Item, Origin};
use pump::chunk::Chunk;
use pump::index::{Found, Index};
use pump::sample::Sample;
use pump::title::Title;
use titles::{Library, Settings};

/// Chunks of half a megabyte, as they are unless told otherwise.
fn library(origin: &Origin) -> Library {
    Library::new(Settings { origins: vec![origin.url()], ..Settings::default() }).unwrap()
}

async fn origin(sample: &Sample) -> (Origin, Arc<Vec<u8>>) {
    let (origin, bytes) = (Origin::start().await, Arc::new(sample.make()));
    origin.put("/a.ts", Item { bytes: bytes.clone(), etag: Some("\"1\"".to_owned()), ..Item::default() });
    (origin, bytes)
}

/// A minute, at a constant or another rate.
fn minute(is_constant: bool) -> Sample {
    Sample { pictures: 1_500, is_constant, ..Sample::default() }
}

/// All of a title's times.
fn whole(title: &Title, bytes: &[u8]) -> Index {
    let mut index = Index::new(title);
    for number in 0..title.chunk_count() {
        let range = title.chunk_range(number);
        index.add(&Chunk::scan(title, number, bytes[range.start as usize..range.end as usize].to_vec()));
    }
    index
}

/// Bytes that the origin was asked for.
fn read(origin: &Origin) -> u64 {
    origin.asked().iter().map(|asked| asked.range.end - asked.range.start).sum()
}

#[tokio::test]
async fn a_title_begins_after_its_first_128_kib() {
    let (origin, _) = origin(&minute(true)).await;
    let library = library(&origin);
    let title = library.open("a.ts").await.unwrap();
    let chunk = library.chunk(&title, 0).await.unwrap();
    assert_eq!((chunk.packet_count(), read(&origin)), (637, 128 << 10));
}

#[tokio::test]
async fn a_place_in_the_middle_is_found_with_a_look_or_two_and_the_chunks_that_are_played_first() {
    for is_constant in [true, false] {
        let mut most = 0;
        for seconds in [7, 20, 31, 42, 55] {
            let (origin, bytes) = origin(&minute(is_constant)).await;
            let library = library(&origin);
            let title = library.open("a.ts").await.unwrap();
            let at = Duration::from_secs(seconds);

            let place = library.place(&title, at, false).await.unwrap().unwrap();
            let chunk = library.chunk(&title, u64::from(title.chunk_of(place))).await.unwrap();

            // Pictures that stand alone are 480 ms apart, and the packets there begin one.
            let index = whole(&title, &bytes);
            let early = at.as_secs_f64() - index.time_at(place).unwrap().as_secs_f64();
            assert!((-0.05..0.6).contains(&early), "{seconds} s: {early} s early");
            assert!(chunk.pictures.iter().any(|picture| chunk.first + u64::from(picture.start) == place));
            most = most.max(read(&origin));
        }
        // The head, three first parts, and two chunks.
        assert!(most <= (128 << 10) + 3 * 140_000 + 2 * 524_000, "constant {is_constant}: {most} bytes");
    }
}

#[tokio::test]
async fn an_exact_place_is_the_packet_of_that_time_and_behind_the_end_is_the_end() {
    for is_constant in [true, false] {
        let (origin, bytes) = origin(&minute(is_constant)).await;
        let library = library(&origin);
        let title = library.open("a.ts").await.unwrap();
        let index = whole(&title, &bytes);
        for millis in [0, 40, 12_345, 59_000] {
            let at = Duration::from_millis(millis);
            let place = library.place(&title, at, true).await.unwrap().unwrap();
            let off = index.time_at(place).unwrap().abs_diff(at);
            assert!(off < Duration::from_millis(50), "{at:?}: off by {off:?}");
        }
        for exact in [true, false] {
            let place = library.place(&title, Duration::from_secs(61), exact).await.unwrap();
            assert_eq!(place, Some(title.packet_count()));
        }
        assert!(matches!(index.find(Duration::from_secs(30)), Some(Found::At(_))));
    }
}

#[tokio::test]
async fn what_was_read_is_not_read_again() {
    let (origin, _) = origin(&minute(true)).await;
    let library = library(&origin);
    let title = library.open("a.ts").await.unwrap();
    let first = library.place(&title, Duration::from_secs(30), false).await.unwrap();
    let before = read(&origin);
    let second = library.place(&title, Duration::from_secs(30), false).await.unwrap();
    assert_eq!(first, second);
    // Of what is not at hand only first parts.
    assert!(read(&origin) - before <= 140_000, "{} bytes", read(&origin) - before);
}
