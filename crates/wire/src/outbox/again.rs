//! Received datagrams that leave once more, with other bytes before them.
//!
//! What was received lies in the engine's buffers until the next receive; the outbox only says where. New bytes before each
//! datagram lie in the outbox, and the kernel gathers the two. Nothing of the payload is copied.

use std::ops::Range;

use super::{AGAIN_MAX, DATAGRAM_MAX, Outbox, PARTS_MAX, RUN_BYTES_MAX, Run, Source};
use crate::{DatagramRun, Path};

/// How a run is made of received datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// Where the new bytes lie in the outbox: `prefix_len` for each datagram.
    prefixes: u32,
    prefix_len: u16,
}

/// What is taken of one received datagram. Those of a run stand one behind the other, wherever they were received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    start: u32,
    len: u16,
}

/// The bytes of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunBytes<'a> {
    /// They lie one behind the other.
    Whole(&'a [u8]),
    /// Each datagram is in two places.
    Gathered(Gathered<'a>),
}

/// Datagrams of a run of which each is in two places.
#[derive(Clone, Copy, Debug)]
pub struct Gathered<'a> {
    prefixes: &'a [u8],
    prefix_len: usize,
    parts: &'a [Part],
    /// All that was received.
    received: &'a [u8],
}

impl<'a> RunBytes<'a> {
    /// The two parts of the datagram at `index`, of which one may be empty.
    pub fn datagram(&self, run: &Run, index: usize) -> [&'a [u8]; 2] {
        match self {
            RunBytes::Whole(bytes) => {
                let start = index * run.segment_size();
                let end = (start + run.segment_size()).min(bytes.len());
                [bytes.get(start..end).unwrap_or_default(), &[]]
            }
            RunBytes::Gathered(gathered) => gathered.datagram(index),
        }
    }
}

impl<'a> Gathered<'a> {
    /// The two parts of the datagram at `index`.
    pub fn datagram(&self, index: usize) -> [&'a [u8]; 2] {
        let of = |bytes: &'a [u8], start: usize, len: usize| bytes.get(start..start + len).unwrap_or_default();
        let part = self.parts.get(index).map_or((0, 0), |part| (part.start as usize, usize::from(part.len)));
        [of(self.prefixes, index * self.prefix_len, self.prefix_len), of(self.received, part.0, part.1)]
    }
}

impl Outbox {
    /// Queues datagrams of a run that was just received once more, for `path`: those that `segments` names, of each the
    /// bytes that `part` names, behind `N` others that `prefix` gives for them. Returns how many found room; the rest is
    /// not queued, as is what would be empty or longer than a datagram can be.
    ///
    /// The payload is not copied, and leaves as it is when the outbox is flushed, which is before the next receive. What
    /// stands behind a run for the same path leaves with it, also when it was received apart.
    pub fn push_prefixed<const N: usize>(
        &mut self,
        path: &Path,
        run: &DatagramRun<'_>,
        segments: Range<usize>,
        part: Range<usize>,
        mut prefix: impl FnMut(&[u8]) -> [u8; N],
    ) -> usize {
        let stride = run.segment_size.get();
        let part = part.start..part.end.min(stride);
        let mut queued = 0;
        for segment in run.data.chunks(stride).take(segments.end).skip(segments.start) {
            let Some(payload) = segment.get(part.start..part.end.min(segment.len())) else { break };
            let is_queued = match run.place() {
                Some(place) => {
                    let at = place + (segments.start + queued) * stride + part.start;
                    self.push_received(path, at, payload.len(), &prefix(payload))
                }
                None => self.push_copied(path, &prefix(payload), payload),
            };
            if !is_queued {
                break;
            }
            queued += 1;
        }
        queued
    }

    /// Queues `payload_len` received bytes from `at` on, behind the last run where that goes the same way.
    fn push_received(&mut self, path: &Path, at: usize, payload_len: usize, prefix: &[u8]) -> bool {
        let len = prefix.len() + payload_len;
        let (Ok(start), Ok(part_len)) = (u32::try_from(at), u16::try_from(payload_len)) else { return false };
        if len == 0 || len > RUN_BYTES_MAX || self.parts.len() >= PARTS_MAX {
            return false;
        }
        let prefixes = self.used;
        let Some(slot) = self.buf.get_mut(prefixes..prefixes + prefix.len()) else { return false };
        if let Some(run) = self.runs.last_mut()
            && let Source::Again(index) = run.source
            && let Some(again) = self.again.get(usize::from(index))
            && usize::from(again.prefix_len) == prefix.len()
            && again.prefixes as usize + run.segment_count() * prefix.len() == prefixes
            && run.has_room_for(path, len)
        {
            run.grow(len);
        } else {
            if self.again.len() >= AGAIN_MAX {
                return false;
            }
            let source = Source::Again(self.again.len() as u16);
            self.again.push(Again { prefixes: prefixes as u32, prefix_len: prefix.len() as u16 });
            let (start, segment_size) = (self.parts.len() as u32, len as u16);
            self.runs.push(Run { path: *path, source, start, len: len as u32, segment_size, segment_count: 1 });
        }
        slot.copy_from_slice(prefix);
        self.used += prefix.len();
        self.parts.push(Part { start, len: part_len });
        true
    }

    fn push_copied(&mut self, path: &Path, prefix: &[u8], payload: &[u8]) -> bool {
        let len = prefix.len() + payload.len();
        let Some(slot) = self.slot().filter(|_| (1..=DATAGRAM_MAX).contains(&len)) else { return false };
        slot[..prefix.len()].copy_from_slice(prefix);
        slot[prefix.len()..len].copy_from_slice(payload);
        self.commit(path, len);
        true
    }

    /// Whether something is queued that lies where it was received.
    pub fn points_at_received(&self) -> bool {
        !self.again.is_empty()
    }

    /// The bytes of one run; `received` is where what was just received lies.
    #[inline]
    pub fn run_bytes<'a>(&'a self, run: &Run, received: &'a [u8]) -> RunBytes<'a> {
        match run.source {
            Source::Again(index) => RunBytes::Gathered(self.gathered(run, usize::from(index), received)),
            Source::Slots | Source::Shared(_) => RunBytes::Whole(self.bytes(run)),
        }
    }

    fn gathered<'a>(&'a self, run: &Run, index: usize, received: &'a [u8]) -> Gathered<'a> {
        let (again, count) = (&self.again[index], run.segment_count());
        let prefix_len = usize::from(again.prefix_len);
        Gathered {
            prefixes: &self.buf[again.prefixes as usize..][..count * prefix_len],
            prefix_len,
            parts: &self.parts[run.start as usize..][..count],
            received,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::Arc;

    use super::*;
    use crate::{LinkId, LinkKind, Token};

    fn path(port: u16) -> Path {
        Path { link: LinkId::datagrams(0), remote: ([127, 0, 0, 1], port).into(), local: None }
    }

    fn run(data: &mut [u8], segment: usize) -> DatagramRun<'_> {
        let segment = NonZeroUsize::new(segment).expect("not empty");
        DatagramRun::new(Token::default(), path(9), segment, data)
    }

    /// Each queued datagram, put together.
    fn sent(out: &Outbox, received: &[u8]) -> Vec<(usize, Vec<Vec<u8>>)> {
        let all = out.runs().iter().map(|run| {
            let datagrams = match out.run_bytes(run, received) {
                RunBytes::Whole(bytes) => bytes.chunks(run.segment_size()).map(<[u8]>::to_vec).collect(),
                RunBytes::Gathered(gathered) => {
                    (0..run.segment_count()).map(|index| gathered.datagram(index).concat()).collect::<Vec<_>>()
                }
            };
            assert_eq!(datagrams.iter().map(Vec::len).sum::<usize>(), run.len_bytes());
            (run.segment_size(), datagrams)
        });
        all.collect()
    }

    #[test]
    fn a_run_leaves_with_other_bytes_before_it_and_is_not_copied() {
        // Three datagrams of 5 bytes and one of 3, at 7 in what was received.
        let mut received: Vec<u8> = (0..25).collect();
        let mut out = Outbox::new(2_000);
        let count = {
            let run = run(&mut received[7..25], 5).at(7);
            out.push_prefixed(&path(1), &run, 0..9, 1..9, |payload| [0xaa, payload.len() as u8])
        };
        assert_eq!((count, out.points_at_received()), (4, true));
        let expected = [[0xaa, 4, 8, 9, 10, 11].to_vec(), [0xaa, 4, 13, 14, 15, 16].to_vec()];
        let others = [[0xaa, 4, 18, 19, 20, 21].to_vec(), [0xaa, 2, 23, 24].to_vec()];
        assert_eq!(sent(&out, &received), [(6, [expected, others].concat())]);
        received.fill(7);
        assert_eq!(sent(&out, &received)[0].1[3], [0xaa, 2, 7, 7], "it was not copied");
        out.clear();
        assert!(!out.points_at_received());
    }

    #[test]
    fn without_a_place_in_what_was_received_it_is_copied() {
        let mut data: Vec<u8> = (0..13).collect();
        let run = run(&mut data, 5);
        let mut out = Outbox::new(20_000);
        assert_eq!(out.push_prefixed(&path(1), &run, 1..3, 0..2, |_| [9]), 2);
        let all: Vec<_> = out.datagrams().map(|(_, bytes)| bytes.to_vec()).collect();
        assert_eq!(all, [[9, 5, 6], [9, 10, 11]]);
        assert!(!out.points_at_received());
    }

    #[test]
    fn neighbours_for_one_path_become_one_run_and_others_do_not() {
        let mut received = vec![1; 50];
        let run = run(&mut received, 10).at(0);
        let mut out = Outbox::new(2_000);
        // A shorter datagram ends its run.
        let rows = [(1, 0..1, 0..10), (1, 1..3, 0..10), (2, 3..4, 0..10), (2, 4..5, 0..9), (2, 0..1, 0..9)];
        for (port, segments, part) in rows {
            let count = segments.len();
            assert_eq!(out.push_prefixed(&path(port), &run, segments, part, |_| [0; 4]), count);
        }
        let shape: Vec<_> = out.runs().iter().map(|run| (run.path.remote.port(), run.segment_count())).collect();
        assert_eq!(shape, [(1, 3), (2, 2), (2, 1)]);
        assert_eq!(out.push_prefixed(&path(3), &run, 0..5, 10..10, |_| []), 0, "an empty one is not queued");
        assert_eq!(out.push_prefixed(&path(3), &run, 0..5, 11..20, |_| [1]), 0, "nor what is not there");
    }

    #[test]
    fn what_was_received_apart_leaves_as_one_run_when_nothing_stands_between() {
        let mut received: Vec<u8> = (0..100).collect();
        let mut out = Outbox::new(2_000);
        let mut push = |place: usize, to: u16, part: Range<usize>| {
            let mut data = received[place..place + 5].to_vec();
            let run = run(&mut data, 5).at(place);
            assert_eq!(out.push_prefixed(&path(to), &run, 0..1, part, |_| [0xaa]), 1);
        };
        // Other parts of a datagram, and what was received before.
        push(50, 1, 0..4);
        push(20, 1, 1..5);
        push(90, 1, 2..4);
        push(0, 2, 0..5);
        push(10, 1, 0..5);
        assert!(out.push(&path(1), &[7; 6]));
        let of = |bytes: &[u8]| [&[0xaa], bytes].concat();
        let first = vec![of(&[50, 51, 52, 53]), of(&[21, 22, 23, 24]), of(&[92, 93])];
        let others = [(6, vec![of(&[0, 1, 2, 3, 4])]), (6, vec![of(&[10, 11, 12, 13, 14])]), (6, vec![vec![7; 6]])];
        assert_eq!(sent(&out, &received), [&[(5, first)][..], &others].concat());
        received.fill(9);
        assert_eq!(sent(&out, &received)[0].1[2], of(&[9, 9]), "it was not copied");
    }

    /// Queues the datagram at an index in some way.
    type Push<'a> = &'a dyn Fn(&mut Outbox, usize) -> bool;

    #[test]
    fn where_there_is_room_for_each_datagram_each_is_taken_however_it_is_pushed() {
        const COUNT: usize = 64;
        let (mut received, shared) = (vec![1; COUNT * 10], Arc::new(vec![2; 10]));
        let run = run(&mut received, 10).at(0);
        let stream = LinkId::new(LinkKind::Stream, 0, 0);
        // No two of neighbours go the same way.
        let to = |index: usize| path(index as u16 % 2);
        let mut out = Outbox::new(4 << 20);
        let ways: [Push<'_>; 5] = [
            &|out, index| out.push(&to(index), &[0; DATAGRAM_MAX]),
            &|out, index| out.push_shared(&to(index), &shared, 0, 10, 1),
            &|out, index| out.push_prefixed(&to(index), &run, index..index + 1, 0..10, |_| [0; 4]) == 1,
            &|out, _| out.push_bytes(stream, &[0; DATAGRAM_MAX]),
            &|out, _| out.push_stream(stream, &shared, 0, 10),
        ];
        for (number, push) in ways.into_iter().enumerate() {
            out.clear();
            assert!(out.has_room_for(COUNT));
            while out.has_room_for(COUNT) {
                let pushed = (0..COUNT).filter(|index| push(&mut out, *index)).count();
                assert_eq!(pushed, COUNT, "way {number}");
            }
        }
    }

    #[test]
    fn what_finds_no_room_is_not_queued() {
        let mut received = vec![1; 5_000];
        let run = run(&mut received, 10).at(0);
        let mut out = Outbox::new(DATAGRAM_MAX);
        assert_eq!(out.push_prefixed(&path(1), &run, 0..500, 0..10, |_| [0; 4]), DATAGRAM_MAX / 4);
        let counts: Vec<_> = out.runs().iter().map(Run::segment_count).collect();
        assert_eq!(counts, [64, 64, 64, 64, 64, 55]);
    }
}
