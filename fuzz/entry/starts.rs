//! What the fuzz target of live streams does with its bytes: reads them as a stream, whole and in pieces, which must tell
//! the same. Shared by the fuzz target and by `crates/live/tests`, which replays the corpus.
//!
//! The first byte says the format, the second how long pieces are.

use live::metacube::{self, Kind, Metadata, Part};
use live::{Error, Event, Format, HEADER_LEN_MAX, Reader};

pub fn starts(data: &[u8]) {
    let Some((&[format, piece], stream)) = data.split_first_chunk() else { return };
    let piece = usize::from(piece) + 1;
    let formats = [Format::Ts, Format::Flv, Format::Matroska, Format::Mp4, Format::Raw];
    let Some(format) = formats.get(usize::from(format)) else {
        assert_eq!(blocks(stream, stream.len().max(1)), blocks(stream, piece));
        return;
    };
    let told = read(*format, stream, stream.len().max(1));
    check(stream, &told.0);
    assert_eq!(told, read(*format, stream, piece));
    let _ = Format::detect(stream, None);
}

/// What is told, up to an error.
fn read(format: Format, stream: &[u8], piece: usize) -> (Vec<Event>, Option<Error>) {
    let (mut reader, mut events, mut decided) = (Reader::new(format), Vec::new(), 0);
    for mut bytes in stream.chunks(piece) {
        loop {
            let read = reader.read(&mut bytes);
            if let Ok(Some(Event::Start(start))) = &read {
                assert!(start.at >= decided, "{start:?}, decided up to {decided}");
            }
            assert!(reader.decided() <= reader.taken() && reader.boundary() <= reader.taken());
            decided = decided.max(reader.decided());
            assert!(reader.seam().is_none_or(|seam| seam <= reader.boundary()));
            match read {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.read(&mut &stream[..]), Err(error), "it stays");
                    return (events, Some(error));
                }
            }
        }
        assert!(bytes.is_empty());
    }
    (events, None)
}

fn check(stream: &[u8], events: &[Event]) {
    let (mut has_header, mut from) = (false, 0);
    for event in events {
        match event {
            Event::Header(header) => {
                assert!(!header.bytes.is_empty() && header.bytes.len() <= HEADER_LEN_MAX);
                has_header = true;
            }
            Event::Start(start) => {
                assert!(has_header && start.at >= from && start.at < stream.len() as u64, "{start:?} behind {from}");
                from = start.at + 1;
            }
        }
    }
}

type Block = (Kind, u32, Vec<u8>);

/// Blocks with their data, metadata, and how much was lost.
fn blocks(stream: &[u8], piece: usize) -> (Vec<Block>, Vec<Metadata>, u64) {
    let (mut reader, mut blocks, mut metadata) = (metacube::Reader::default(), Vec::new(), Vec::new());
    for mut bytes in stream.chunks(piece) {
        while let Some(part) = reader.read(&mut bytes) {
            match part {
                Part::Block { kind, len } => blocks.push((kind, len, Vec::new())),
                Part::Data(data) => blocks.last_mut().expect("data is of a block").2.extend(data),
                Part::Metadata(found) => metadata.push(found),
            }
        }
        assert!(bytes.is_empty());
    }
    assert!(blocks.iter().all(|(_, len, data)| data.len() <= *len as usize));
    (blocks, metadata, reader.lost())
}
