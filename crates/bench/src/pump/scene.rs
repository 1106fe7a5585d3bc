//! What is sent: titles of a constant rate that lie in memory, and the streams that send them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pump::chunk::Chunk;
use pump::sample::Sample;
use pump::title::{CHUNK_PACKETS, Title};
use wire::Bitrate;
use wire::ts::DATAGRAM_LEN;

/// Pictures of a made-up title in a second.
const PICTURES_PER_SECOND: f64 = 25.0;

/// Streams of one title begin at places that differ by up to this.
const STARTS: Duration = Duration::from_secs(4);

/// A title in memory: as the pump wants it, and as ready-made datagrams.
pub(super) struct Content {
    pub(super) title: Arc<Title>,
    pub(super) chunks: Vec<Arc<Chunk>>,
    bytes: Vec<u8>,
    pub(super) rate: Bitrate,
}

impl Content {
    /// Makes a title that lasts for `time`, wherever a stream of it begins.
    pub(super) fn make(rate: Bitrate, time: Duration) -> Result<Self> {
        let bytes = title(rate, time + STARTS + Duration::from_secs(1));
        let title = Title::probe(&bytes, bytes.len() as u64, CHUNK_PACKETS);
        let title = title.context("read the title that was made")?;
        let chunks = (0..title.chunk_count()).map(|number| {
            let range = title.chunk_range(number);
            Arc::new(Chunk::scan(&title, number, bytes[range.start as usize..range.end as usize].to_vec()))
        });
        Ok(Content { chunks: chunks.collect(), title: Arc::new(title), bytes, rate })
    }

    /// Time from one burst of so many datagrams to the next.
    pub(super) fn interval(&self, burst: u8) -> Duration {
        self.rate.time_for(DATAGRAM_LEN * usize::from(burst))
    }

    /// The datagrams of a burst, `position` datagrams from the title's start; from the start again behind its end.
    pub(super) fn burst(&self, position: u64, burst: u8) -> &[u8] {
        let places = (self.bytes.len() / DATAGRAM_LEN).saturating_sub(usize::from(burst)).max(1);
        let start = (position % places as u64) as usize * DATAGRAM_LEN;
        &self.bytes[start..start + DATAGRAM_LEN * usize::from(burst)]
    }

    /// Where stream `index` begins, in datagrams.
    fn start(&self, index: usize) -> u64 {
        let places = (STARTS.as_nanos() / self.interval(1).as_nanos().max(1)).max(1) as u64;
        // The pump keeps whole datagrams together, so all begin at one.
        index as u64 * 97 % places
    }
}

/// A title of a constant rate.
pub(super) fn title(rate: Bitrate, time: Duration) -> Vec<u8> {
    let pictures = (time.as_secs_f64() * PICTURES_PER_SECOND).ceil() as u32;
    Sample { rate, pictures, ..Sample::default() }.make()
}

/// One stream.
pub(super) struct Stream {
    pub(super) index: usize,
    pub(super) to: SocketAddr,
    pub(super) content: Arc<Content>,
    /// Where it begins, in datagrams from the title's start.
    pub(super) start: u64,
}

impl Stream {
    /// How long after the others' common zero its bursts are due: evenly spread, whichever streams are looked at.
    pub(super) fn phase(&self, burst: u8) -> Duration {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        self.content.interval(burst).mul_f64((self.index as f64 * GOLDEN).fract())
    }
}

/// All streams of a case.
pub(super) struct Scene {
    pub(super) contents: Vec<Arc<Content>>,
    pub(super) streams: Vec<Arc<Stream>>,
}

impl Scene {
    /// Streams to all of `receivers`; contents are taken in turn.
    pub(super) fn new(contents: &[Arc<Content>], receivers: impl Iterator<Item = SocketAddr>) -> Self {
        let contents = contents.to_vec();
        let streams = receivers.enumerate().map(|(index, to)| {
            let content = Arc::clone(&contents[index % contents.len()]);
            Arc::new(Stream { index, to, start: content.start(index), content })
        });
        let streams = streams.collect();
        Scene { contents, streams }
    }

    /// The streams of worker `worker` of `workers`.
    pub(super) fn share(&self, worker: usize, workers: usize) -> Vec<Arc<Stream>> {
        self.streams.iter().skip(worker).step_by(workers).cloned().collect()
    }

    /// Datagrams that are due in `time`.
    pub(super) fn due(&self, time: Duration) -> f64 {
        self.streams.iter().map(|stream| time.as_secs_f64() / stream.content.interval(1).as_secs_f64()).sum()
    }
}

#[cfg(test)]
mod tests {
    use wire::ts::{DATAGRAM_PACKETS, PACKET_LEN};

    use super::*;

    #[test]
    fn a_title_outlasts_every_stream_of_it() {
        let content = Content::make(Bitrate::from_kbps(1_000), Duration::from_secs(2)).unwrap();
        let packets = content.title.packet_count();
        let needed = content.rate.bps() * 2 / (8 * PACKET_LEN as u64);
        let last = (0..5_000).map(|index| content.start(index) * DATAGRAM_PACKETS as u64).max().unwrap();
        assert!(last + needed <= packets, "{last} + {needed} of {packets}");
        let chunks: u64 = content.chunks.iter().map(|chunk| u64::from(chunk.packet_count())).sum();
        assert_eq!(chunks, packets);
    }

    #[test]
    fn bursts_are_whole_datagrams_of_the_title_and_begin_again_behind_its_end() {
        let content = Content::make(Bitrate::from_kbps(1_000), Duration::ZERO).unwrap();
        assert_eq!(content.interval(2), Duration::from_nanos(2 * 10_528_000));
        for position in [0, 1, 1_000_000] {
            let burst = content.burst(position, 4);
            assert_eq!(burst.len(), 4 * DATAGRAM_LEN);
            assert!(burst.chunks_exact(PACKET_LEN).all(|packet| packet[0] == 0x47));
        }
    }

    #[test]
    fn phases_of_any_number_of_streams_fill_the_interval_evenly() {
        let content = Arc::new(Content::make(Bitrate::from_kbps(1_000), Duration::ZERO).unwrap());
        let scene = Scene::new(&[content], (0..100).map(|_| ([127, 0, 0, 1], 9).into()));
        let mut phases: Vec<Duration> = scene.streams.iter().map(|stream| stream.phase(1)).collect();
        phases.sort_unstable();
        let widest = phases.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(widest < scene.contents[0].interval(1) / 50, "{widest:?}");
    }
}
