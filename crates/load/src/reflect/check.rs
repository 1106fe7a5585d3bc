//! Whether what came is the stream that was sent.
//!
//! In: a viewer's bytes in order, from wherever it begins; of what was not looked at, how many they were. Out: packets with
//! their stamps, and what was wrong: packets that are missing, came again, were cut, or have other bytes in them.
//! How: what is not as it was sent is searched for the next packet that is. Where that stands says whether bytes are others
//! (it is in step) or are missing (it is not).
//! Cost: that of reading a stamp for each packet; two packets of memory once something was wrong.

use std::sync::Arc;

use serde::Serialize;
use wire::ts::PACKET_LEN;

use super::stream::{Stamp, Stream};

/// Bytes in which a whole packet must be, if there is one.
const SEARCHED: usize = 2 * PACKET_LEN;

/// What was wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Times that packets are missing.
    pub gaps: u64,
    /// Gaps behind which no decoder can begin.
    pub gaps_amid: u64,
    /// Packets that are missing.
    pub missing: u64,
    /// Times that packets came again.
    pub repeats: u64,
    /// Packets of which a part is missing, with what follows it at once.
    pub torn: u64,
    /// Packets with other bytes in them, and such as nobody sent.
    pub damaged: u64,
    /// Viewers whose first bytes are not the beginning of a packet.
    pub ragged: u64,
}

impl Faults {
    /// Adds another viewer's.
    pub fn add(&mut self, other: &Faults) {
        let Faults { gaps, gaps_amid, missing, repeats, torn, damaged, ragged } = other;
        self.gaps += gaps;
        self.gaps_amid += gaps_amid;
        self.missing += missing;
        self.repeats += repeats;
        self.torn += torn;
        self.damaged += damaged;
        self.ragged += ragged;
    }

    /// Those that nobody excuses, however slow a viewer is.
    pub fn of_content(&self) -> u64 {
        self.gaps_amid + self.repeats + self.torn + self.damaged
    }
}

/// One viewer's place in the stream.
pub(super) struct Checker {
    stream: Arc<Stream>,
    /// The packet that is to come; `None` before the first.
    next: Option<u64>,
    /// Bytes of it that went by without a look.
    passed: usize,
    /// What is no whole packet yet, or is searched.
    held: Vec<u8>,
    is_searching: bool,
    /// A sound packet came since bytes were skipped.
    is_sure: bool,
    /// Tables that the server wrote itself, before a packet that is to follow a gap.
    tables: u64,
    pub(super) faults: Faults,
}

impl Checker {
    pub(super) fn new(stream: Arc<Stream>) -> Self {
        Checker {
            stream,
            next: None,
            passed: 0,
            held: Vec::new(),
            is_searching: false,
            is_sure: false,
            tables: 0,
            faults: Faults::default(),
        }
    }

    pub(super) fn stream(&self) -> Arc<Stream> {
        Arc::clone(&self.stream)
    }

    /// Whether it knows where it is, by a packet since bytes were skipped: so more can be.
    pub(super) fn is_sure(&self) -> bool {
        self.is_sure && !self.is_searching && self.tables == 0
    }

    /// Takes what came. `each` gets the stamps of sound packets.
    pub(super) fn take(&mut self, bytes: &[u8], mut each: impl FnMut(Stamp)) {
        let mut rest = self.pass_on(bytes);
        while !rest.is_empty() {
            if self.held.is_empty()
                && let Some((packet, behind)) = rest.split_first_chunk()
                && self.accept(packet, &mut each)
            {
                rest = behind;
                continue;
            }
            let wanted = if self.is_searching { SEARCHED } else { PACKET_LEN };
            let (part, behind) = rest.split_at(rest.len().min(wanted - self.held.len()));
            self.held.extend_from_slice(part);
            rest = behind;
            if self.held.len() == wanted {
                self.settle(&mut each);
            }
        }
    }

    /// So many bytes came that were not looked at.
    pub(super) fn skip(&mut self, len: usize) {
        let Some(next) = &mut self.next else { return };
        let all = self.held.len() + self.passed + len;
        *next += (all / PACKET_LEN) as u64;
        self.passed = all % PACKET_LEN;
        self.held.clear();
        (self.is_searching, self.is_sure) = (false, false);
    }

    /// The rest of a packet of which a part was not looked at.
    fn pass_on<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.passed == 0 {
            return bytes;
        }
        let (part, rest) = bytes.split_at(bytes.len().min(PACKET_LEN - self.passed));
        self.passed += part.len();
        if self.passed == PACKET_LEN {
            self.passed = 0;
            self.next = self.next.map(|next| next + 1);
        }
        rest
    }

    fn accept(&mut self, packet: &[u8; PACKET_LEN], each: &mut impl FnMut(Stamp)) -> bool {
        if let Some(stamp) = self.stream.read(packet) {
            self.place(stamp.number);
            each(stamp);
            return true;
        }
        let is_table = self.stream.is_own_table(packet);
        self.tables += u64::from(is_table);
        is_table
    }

    fn place(&mut self, number: u64) {
        let (next, tables) = (self.next.replace(number + 1), std::mem::take(&mut self.tables));
        self.is_sure = true;
        match next {
            None => {}
            // Nothing is missing that they could stand for.
            Some(next) if next == number => self.faults.damaged += tables,
            Some(next) if next < number => {
                self.faults.gaps += 1;
                self.faults.missing += number - next;
                self.faults.gaps_amid += u64::from(!self.stream.is_entrance(number));
            }
            Some(_) => self.faults.repeats += 1,
        }
    }

    /// Makes what it can of what is held.
    fn settle(&mut self, each: &mut impl FnMut(Stamp)) {
        while let Some(packet) = self.held.first_chunk().copied() {
            if self.accept(&packet, each) {
                self.held.drain(..PACKET_LEN);
                continue;
            }
            if self.held.len() < SEARCHED {
                break;
            }
            let is_sound = |at: &usize| {
                let packet = self.held[*at..].first_chunk();
                packet.is_some_and(|packet| self.stream.read(packet).is_some() || self.stream.is_own_table(packet))
            };
            let found = (1..=PACKET_LEN).find(is_sound);
            self.blame(found);
            self.held.drain(..found.unwrap_or(PACKET_LEN));
        }
        self.is_searching = self.held.len() >= PACKET_LEN;
    }

    /// What is held begins with nothing that was sent; so many bytes later there is a sound packet.
    fn blame(&mut self, found: Option<usize>) {
        match (self.next, found) {
            (None, _) => self.faults.ragged = 1,
            (Some(_), Some(at)) if at < PACKET_LEN => self.faults.torn += 1,
            (Some(next), _) => {
                self.faults.damaged += 1;
                self.next = Some(next + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::Bitrate;

    use super::*;

    /// A round of it is 66 packets.
    fn stream() -> Arc<Stream> {
        Arc::new(Stream::new(Bitrate::from_kbps(1_000), Duration::from_millis(100)).unwrap())
    }

    fn bytes(stream: &Stream, numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in numbers {
            let mut packet = [0; PACKET_LEN];
            stream.write(Stamp { number, sent_ns: 1_000 + number }, &mut packet);
            bytes.extend_from_slice(&packet);
        }
        bytes
    }

    /// What is found, and how many packets were sound, whatever the pieces that the bytes come in.
    fn found(stream: &Arc<Stream>, bytes: &[u8]) -> (Faults, u64) {
        let results = [1, 7, 187, 188, 189, 1_448, usize::MAX].map(|piece| {
            let (mut checker, mut sound) = (Checker::new(Arc::clone(stream)), 0);
            bytes.chunks(piece.min(bytes.len())).for_each(|piece| checker.take(piece, |_| sound += 1));
            (checker.faults, sound)
        });
        assert!(results.iter().all(|result| *result == results[0]), "{results:?}");
        results[0]
    }

    #[test]
    fn a_whole_stream_has_no_faults_wherever_it_begins() {
        let stream = stream();
        for from in [0, 1, 2, 50, 1_000_003] {
            assert_eq!(found(&stream, &bytes(&stream, from..from + 300)), (Faults::default(), 300));
        }
        let amid = &bytes(&stream, 5..100)[70..];
        assert_eq!(found(&stream, amid), (Faults { ragged: 1, ..Faults::default() }, 94));
    }

    #[test]
    fn a_gap_is_found_and_where_it_ends() {
        let stream = stream();
        let amid = bytes(&stream, (0..10).chain(20..40));
        let faults = Faults { gaps: 1, gaps_amid: 1, missing: 10, ..Faults::default() };
        assert_eq!(found(&stream, &amid), (faults, 30));
        for entrance in [66, 68] {
            let faults = Faults { gaps: 1, missing: entrance - 10, ..Faults::default() };
            assert_eq!(found(&stream, &bytes(&stream, (0..10).chain(entrance..80))), (faults, 90 - entrance));
        }
    }

    #[test]
    fn a_repeat_is_found() {
        let stream = stream();
        let twice = bytes(&stream, (0..10).chain(9..40));
        assert_eq!(found(&stream, &twice), (Faults { repeats: 1, ..Faults::default() }, 41));
    }

    #[test]
    fn a_torn_packet_is_found_and_the_gap_behind_it() {
        let stream = stream();
        for cut in [1, 50, 187] {
            let mut torn = bytes(&stream, 0..10);
            torn.truncate(torn.len() - cut);
            torn.extend(bytes(&stream, 68..100));
            let faults = Faults { torn: 1, gaps: 1, missing: 59, ..Faults::default() };
            assert_eq!(found(&stream, &torn), (faults, 41), "{cut}");
        }
    }

    #[test]
    fn bytes_that_were_overwritten_are_found() {
        let stream = stream();
        let newer = bytes(&stream, 1_000..1_020);
        for (from, len, damaged) in [(900, 1, 1), (200, 400, 2), (188, 188, 0), (376, 1_000, 1)] {
            let mut sent = bytes(&stream, 0..40);
            sent[from..from + len].copy_from_slice(&newer[from..from + len]);
            let (faults, sound) = found(&stream, &sent);
            // Whole packets that are newer are sound, and out of place.
            let jumps = faults.gaps + faults.repeats;
            assert_eq!(faults.damaged, damaged, "{from}: {faults:?}");
            assert_eq!((jumps > 0, sound), (len >= PACKET_LEN, 40 - damaged), "{from}: {faults:?}");
        }
    }

    #[test]
    fn tables_of_the_server_s_own_stand_before_a_start_and_nowhere_else() {
        let stream = stream();
        let mut tables = Vec::new();
        let own = |number: u64| {
            // As a server writes them that keeps their sections.
            let packet: [u8; PACKET_LEN] = bytes(&stream, [number])[..].try_into().unwrap();
            let mut own = [0xff; PACKET_LEN];
            own[..5].copy_from_slice(&[0x47, packet[1], packet[2], 0x10, 0]);
            own[5..161].copy_from_slice(&packet[28..184]);
            own
        };
        [0, 1].map(own).iter().for_each(|packet| tables.extend_from_slice(packet));
        let start = [tables.clone(), bytes(&stream, 68..80)].concat();
        assert_eq!(found(&stream, &start), (Faults::default(), 12));
        let skipped = [bytes(&stream, 0..10), tables.clone(), bytes(&stream, 68..80)].concat();
        assert_eq!(found(&stream, &skipped), (Faults { gaps: 1, missing: 58, ..Faults::default() }, 22));
        let inserted = [bytes(&stream, 0..10), tables, bytes(&stream, 10..20)].concat();
        assert_eq!(found(&stream, &inserted), (Faults { damaged: 2, ..Faults::default() }, 20));
    }

    #[test]
    fn it_goes_on_behind_bytes_that_nobody_looked_at() {
        let stream = stream();
        let all = bytes(&stream, 0..200);
        for seen in [188, 300, 376, 564, 565] {
            for unseen in [1, 100, 187, 188, 5_000] {
                let mut checker = Checker::new(Arc::clone(&stream));
                let mut rest = &all[..];
                while rest.len() > seen + unseen {
                    checker.take(&rest[..seen], |_| {});
                    // Of less there may be no whole packet.
                    assert!(seen < SEARCHED || checker.is_sure());
                    checker.skip(unseen);
                    rest = &rest[seen + unseen..];
                }
                checker.take(rest, |_| {});
                assert_eq!(checker.faults, Faults::default(), "{seen} seen, {unseen} not");
            }
        }
    }

    #[test]
    fn what_is_wrong_with_bytes_that_nobody_looked_at_shows_later() {
        let stream = stream();
        let mut checker = Checker::new(Arc::clone(&stream));
        checker.take(&bytes(&stream, 0..3), |_| {});
        // One packet less came than the next ones say.
        checker.skip(9 * PACKET_LEN);
        checker.take(&bytes(&stream, 13..20), |_| {});
        assert_eq!(checker.faults, Faults { gaps: 1, gaps_amid: 1, missing: 1, ..Faults::default() });
        checker.skip(5 * PACKET_LEN + 60);
        checker.take(&bytes(&stream, 26..32), |_| {});
        assert_eq!(checker.faults.torn, 1, "{:?}", checker.faults);
    }
}
